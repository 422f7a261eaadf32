"""The ledger of merges, `baselines/<device>/merged.jsonl`: a line of JSON for each merge.

The lines are independent of each other and of their order, so two branches that add lines can be merged by taking all
of them (`merge=union` in .gitattributes).
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from ci_perf.store.text_files import append_line, read_text
from ci_perf.values.codec import from_document, parse_json, to_document
from ci_perf.values.errors import FormatError
from ci_perf.values.merged import FILE, Merged
from ci_perf.values.schema import check


def read_merged(baselines: Path, slugs: Iterable[str] | None = None) -> tuple[Merged, ...]:
    """Read the ledgers of these devices, or of all, from the oldest merge to the newest.

    Each commit counts once on each device: of lines with other bases, whose changes overlap, the latest. FormatError
    names the line that is none. No ledger means none.
    """
    folders = [baselines / slug for slug in slugs] if slugs is not None else sorted(baselines.glob("*/"))
    lines = sorted((m for folder in folders for m in _read(folder / FILE)), key=lambda m: (m.date, m.head, m.base))
    found = {(m.device, m.head): m for m in lines}
    return tuple(sorted(found.values(), key=lambda m: (m.date, m.head)))


def check_merged(file: Path, parent_of: Callable[[str], str | None]) -> tuple[str, ...]:
    """Return what is wrong with a ledger: a sentence for each line that is none, or that is not of one merge.

    `parent_of` returns the first parent of a commit, None where it is not known.
    """
    problems = []
    for where, line in _lines(file):
        try:
            merged = _merged(where, line)
        except FormatError as error:
            problems.append(str(error))
            continue
        if merged.device != file.parent.name:
            problems.append(f"{where}: key `device` is {merged.device}, but the ledger is of {file.parent.name}")
        if (parent := parent_of(merged.head) or merged.base) != merged.base:
            bases = f"{merged.base[:8]}, not {parent[:8]}, the parent of {merged.head[:8]}"
            problems.append(f"{where}: key `base` is {bases}: the line does not count")
    return tuple(problems)


def _read(file: Path) -> list[Merged]:
    return [_merged(where, line) for where, line in _lines(file)] if file.is_file() else []


def _lines(file: Path) -> list[tuple[str, str]]:
    """Return the lines that are not empty, each with its place."""
    lines = enumerate(read_text(file, str(file), FormatError).split("\n"), start=1)
    return [(f"{file}:{number}", line) for number, line in lines if line.strip()]


def _merged(where: str, line: str) -> Merged:
    return from_document(parse_json(line, where), where, "merged", Merged)


def append_merged(merged: Merged, baselines: Path) -> Path:
    """Add a merge to the ledger of its device, and return the path of the ledger.

    FormatError where the ledger is a link: the line must not be written elsewhere.
    """
    document = to_document(merged, "merged")
    text = json.dumps(document, sort_keys=True, allow_nan=False, separators=(",", ":"))
    check(json.loads(text), "merged", f"merge {merged.head}", FormatError)
    path = baselines / merged.device / FILE
    if path.is_symlink():
        raise FormatError(f"{path}: is a link, expected a file", hint="replace the link by the file")
    append_line(path, text + "\n", make_folder=True)
    return path
