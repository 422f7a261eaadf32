"""Queries on one trace, asked of several processes at a time; a small trace is read in this one."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Self, TypeVar

from ci_perf.traces.nsys import scan as nsys_scan
from ci_perf.traces.nsys.scan import Rows

SMALL = 16 << 20
"""Bytes of a trace that is read before another process has started."""
MOST = 4
"""Processes: each takes 20 MB, and this one cannot keep many more of them busy."""

_VARIABLES = ("PATH", "LD_LIBRARY_PATH")
"""What such a process is told of the environment, which may hold secrets."""

Ask = Callable[..., Rows]
"""From a query and its values to the rows; text comes as bytes."""
Item = TypeVar("Item")
Result = TypeVar("Result")


class Pool:
    """Does jobs that ask a trace; each is called with what answers it. A context manager."""

    def __init__(self, path: Path, uri: str, statements: Sequence[str]) -> None:
        """Take the trace and the statements that give it its views."""
        self._uri, self._statements = uri, statements
        self._apart = path.stat().st_size > SMALL and bool(sys.executable)
        self.size = max(2, min(MOST, len(os.sched_getaffinity(0)))) if self._apart else 1
        self._own = threading.local()
        self._opened: list[_Here | _Apart] = []
        self._threads = ThreadPoolExecutor(self.size)

    def submit(self, job: Callable[[Ask], Result]) -> Future[Result]:
        """Do a job as soon as a process is free."""
        return self._threads.submit(lambda: job(self._ask))

    def each(self, job: Callable[[Ask, Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Do a job for each item and yield the results in order; a few are done ahead."""
        waiting = iter(items)

        def submit(item: Item) -> Future[Result]:
            return self.submit(lambda ask: job(ask, item))

        pending = deque(map(submit, islice(waiting, self.size + 2)))
        while pending:
            result = pending.popleft().result()
            pending.extend(map(submit, islice(waiting, 1)))
            yield result

    @property
    def _ask(self) -> Ask:
        if not hasattr(self._own, "opened"):
            self._own.opened = self._open()
            self._opened.append(self._own.opened)
        return self._own.opened.ask  # type: ignore[no-any-return]

    def _open(self) -> "_Here | _Apart":
        if self._apart:
            with suppress(OSError):  # no process is to be had
                return _Apart(self._uri, self._statements)
        return _Here(self._uri, self._statements)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._threads.shutdown(wait=error[0] is None, cancel_futures=True)
        for opened in self._opened:
            opened.interrupt()
        self._threads.shutdown()
        for opened in self._opened:
            opened.close()


class _Here:
    """Answers in this process."""

    def __init__(self, uri: str, statements: Sequence[str]) -> None:
        self._database = nsys_scan.connect(uri, statements)

    def ask(self, query: str, values: Sequence[int] = ()) -> Rows:
        return self._database.execute(query, values).fetchall()

    def interrupt(self) -> None:
        self._database.interrupt()

    def close(self) -> None:
        self._database.close()


class _Apart:
    """Answers through a process of its own."""

    def __init__(self, uri: str, statements: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-IS", nsys_scan.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if name in _VARIABLES},
            start_new_session=True,  # Ctrl-C is ours to handle
        )
        self._write([uri, list(statements)])

    def ask(self, query: str, values: Sequence[int] = ()) -> Rows:
        self._write([query, list(values)])
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise sqlite3.OperationalError("the process that read the trace died; is there enough memory?")
        found = json.loads(line, object_hook=self._fill)
        if isinstance(found, _Error):
            raise sqlite3.OperationalError(found)
        return [tuple(row) for row in found]

    def _write(self, request: list[Any]) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the answer that is missing says so
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def _fill(self, found: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
        assert self._process.stdout is not None
        return _Error(found["error"]) if "error" in found else self._process.stdout.read(found["size"])

    def interrupt(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._process.communicate()


class _Error(str):
    """What SQLite said."""

    __slots__ = ()
