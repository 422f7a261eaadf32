"""Recognises files that a reader cannot use, so that the error can name what they look like."""

import codecs
from pathlib import Path

from ci_perf.values.errors import ProfileError

SQLITE_MAGIC = b"SQLite format 3\0"
NCU_MAGIC = b"NVR\0"
NSYS_MAGIC = b"NVIDIA Tegra Profiler Report"

LOST = "a part of the file is lost: there are only zero bytes in its place"
_EXPORT = "`nsys export --type sqlite REPORT` writes the file to inspect"
_OTHER = "name the file that the profiler or the benchmark wrote"
_PAGE = "the download returned a page (a login or an error) instead of the file"
_LOOKS = (
    (b"version https://git-lfs", "a git-lfs pointer, not the file itself", "fetch the file with `git lfs pull`"),
    (SQLITE_MAGIC, "an SQLite database", "nsys exports are read by the nsys reader, ncu reports are .ncu-rep files"),
    (NCU_MAGIC, "an ncu report", "read it with the ncu reader; nsys traces are exported to .sqlite"),
    (NSYS_MAGIC, "an nsys report", "export it first: `nsys export --type sqlite REPORT`"),
    (b"\x1f\x8b", "a gzip-compressed file", "decompress it first"),
    (b"PK\x03\x04", "a zip archive", "unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd-compressed file", "decompress it first"),
    (b"<!doctype html", "an HTML page", _PAGE),
    (b"<html", "an HTML page", _PAGE),
    (b"BZh", "a bzip2-compressed file", "decompress it first"),
    (b"\xfd7zXZ\0", "an xz-compressed file", "decompress it first"),
    (b"PAR1", "a Parquet table", _EXPORT),
    (b"ARROW1", "an Arrow table", _EXPORT),
    (b"\x89HDF", "an HDF5 file", _EXPORT),
    (b"%PDF", "a PDF document", _OTHER),
    (b"\x89PNG", "a picture", _OTHER),
    (b"\x7fELF", "a program", _OTHER),
    (b"{", "JSON", ""),
)


def read_head(path: Path, size: int = 4096) -> bytes:
    """Return the first bytes of a file that must exist and hold something."""
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for a writer
            what = "a directory" if path.is_dir() else "a pipe or device, which can be read only once"
            raise ProfileError(f"{path}: is {what}", hint=_OTHER)
        with path.open("rb") as file:
            head = file.read(size)
    except OSError as error:
        raise ProfileError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    if not head:
        raise ProfileError(
            f"{path}: the file is empty", hint="the output of the program that made it may say why; record it again"
        )
    return head


def database_uri(path: Path) -> str:
    """Return the URI under which SQLite reads a database and neither locks it nor writes anything beside it.

    SQLite then reads no journal either; a database whose changes are still in one is refused.
    """
    for suffix in ("-wal", "-journal"):
        journal = path.with_name(path.name + suffix)
        if journal.is_file() and journal.stat().st_size:
            raise ProfileError(
                f"{path}: another program still changes this database: {journal.name} holds changes to it",
                hint=f"wait until that program ends; if it died, `sqlite3 {path.name} .tables` applies the changes",
            )
    return f"{path.resolve().as_uri()}?mode=ro&immutable=1"


def refusal(path: Path, wanted: str, head: bytes) -> ProfileError:
    """Return the error for a file that is not `wanted` ("an nsys export"), saying what it looks like instead."""
    look, hint = find_look(head) or ("binary data" if b"\0" in head else "text", "is this what the profiler wrote?")
    return ProfileError(f"{path}: not {wanted}: it looks like {look}", hint=hint)


def find_look(head: bytes) -> tuple[str, str] | None:
    """Name the kind of file that begins with `head` and what to do with it, if it is a kind that turns up."""
    start = head.removeprefix(codecs.BOM_UTF8).lstrip().lower()
    return next(((look, hint) for magic, look, hint in _LOOKS if start.startswith(magic.lower())), None)


def text_encoding(head: bytes) -> str | None:
    """Return the encoding of a text file (PowerShell writes UTF-16), or None for a binary one."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" not in head:
        return "utf-8-sig"
    odd, even = head[1::2].count(0), head[0::2].count(0)
    if max(odd, even) > 0.8 * len(head) / 2 and min(odd, even) == 0:
        return "utf-16-le" if odd else "utf-16-be"
    return None


def read_text(path: Path, head: bytes) -> str:
    """Return the text of a file that begins with `head`; what does not decode is replaced."""
    return path.read_text(encoding=text_encoding(head) or "utf-8-sig", errors="replace")
