"""Answers queries on a trace in a process of its own: started by path, standard library only.

SQLite takes a lock of the whole process for each piece of memory, so two threads that go over one trace are slower than
one. The first line on the standard input is JSON, the database and the statements that give it its views; each further
line is a query and its values. An answer is a line of JSON, the rows or the error; the bytes that a row holds follow
it, and in their place is their size.
"""

import json
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from typing import Any

Rows = list[tuple[Any, ...]]


def connect(uri: str, statements: Iterable[str]) -> sqlite3.Connection:
    """Open a trace; what it has as text comes as bytes."""
    database = sqlite3.connect(uri, uri=True, check_same_thread=False)
    database.text_factory = bytes
    for statement in statements:
        database.execute(statement)
    return database


def answer(database: sqlite3.Connection, query: str, values: Sequence[int]) -> tuple[bytes, list[bytes]]:
    """Return the line to answer with and the bytes that follow it."""
    held: list[bytes] = []

    def hold(raw: bytes) -> dict[str, int]:
        held.append(raw)
        return {"size": len(raw)}

    try:
        rows = database.execute(query, values).fetchall()
    except sqlite3.Error as error:
        return json.dumps({"error": str(error)}).encode(), []
    return json.dumps(rows, default=hold).encode(), held


def main() -> None:
    """Answer until the standard input ends."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    database = connect(*json.loads(requests.readline()))
    for request in requests:
        line, held = answer(database, *json.loads(request))
        answers.write(line + b"\n")
        answers.writelines(held)
        answers.flush()


if __name__ == "__main__":
    main()
