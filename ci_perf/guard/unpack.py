"""The contents of a file at every depth: its bytes, and those of what is packed in it, in archives within archives too.

An archive may be written into it in base64 or hexadecimal.

Of a damaged file everything is read that can be. What cannot be unpacked here is an error: elsewhere it may be.
"""

import bz2
import gzip
import lzma
import sqlite3
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from io import BytesIO
from itertools import chain
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from ci_perf.guard import encoded
from ci_perf.values.errors import ProfileError

_SQLITE_MAGIC = b"SQLite format 3\0"
_BLOCK = 1 << 22
_MOST_UNPACKED = 1 << 32
"""Bytes that are unpacked of one file, at all depths together, so that no bomb can stop a run."""
_DEEPEST = 8
_IN_MEMORY = 1 << 26
_HEAD = 512
_DAMAGE = (OSError, EOFError, ValueError, zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError)

_OPENERS: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}
_CLOSED = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"7z\xbc\xaf\x27\x1c": "7-Zip",
    b"Rar!\x1a\x07": "RAR",
}
_ZIP = b"PK\x03\x04"
_NUMBERS = (b"INTEGER", b"INT", b"REAL")


class Unsearchable(ProfileError):
    """A file of which a part cannot be read here, but perhaps elsewhere."""


def contents_of_text(raw: bytes) -> Iterator[Iterator[bytes]]:
    """Yield a text, and each content of the archives that it holds in base64 or hexadecimal; Unsearchable."""
    yield from _Unpacking(Path("text")).contents(BytesIO(raw), 0)


def contents(file: Path) -> Iterator[Iterator[bytes]]:
    """Yield each content of a file as blocks of bytes, to be read before the next is asked for; Unsearchable."""
    with file.open("rb") as stream:
        yield from _Unpacking(file).contents(stream, 0)
        stream.seek(0)
        head = stream.read(100)
    if head.startswith(_SQLITE_MAGIC):
        yield _as_far_as_it_goes(_long_texts(file, int.from_bytes(head[16:18], "big")))


class _Unpacking:
    """One file as it is unpacked."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.left = _MOST_UNPACKED

    def contents(self, stream: IO[bytes], depth: int) -> Iterator[Iterator[bytes]]:
        """Yield a file itself, and what is packed in it."""
        yield _blocks(stream)
        stream.seek(0)
        head = stream.read(_HEAD)
        if depth == _DEEPEST and _is_packed(head):
            raise self._error(f"is packed more than {_DEEPEST} times")
        members = chain(self._members(stream, head), encoded.archives(stream, _is_packed))
        for blocks in _as_far_as_it_goes(members):
            with SpooledTemporaryFile(_IN_MEMORY) as copy:
                copy.writelines(_as_far_as_it_goes(self._counted(blocks)))
                yield from self.contents(copy, depth + 1)

    def _members(self, stream: IO[bytes], head: bytes) -> Iterator[Iterator[bytes]]:
        for magic, name in _CLOSED.items():
            if head.startswith(magic):
                raise self._error(f"is packed by {name}")
        for magic, opener in _OPENERS.items():
            if head.startswith(magic):
                stream.seek(0)
                with opener(stream) as unpacked:
                    yield iter(lambda: unpacked.read1(_BLOCK), b"")  # `read` has nothing of a file that was cut off
        if zipfile.is_zipfile(stream):  # also one that begins with something else, as a program that unpacks itself
            yield from self._in_zip(stream)
        elif _is_tar(head):
            stream.seek(0)
            with tarfile.open(fileobj=stream, mode="r:") as archive:
                for content in filter(None, (archive.extractfile(member) for member in archive)):
                    yield _blocks(content)

    def _in_zip(self, stream: IO[bytes]) -> Iterator[Iterator[bytes]]:
        with zipfile.ZipFile(stream) as archive:
            for member in archive.infolist():
                if member.flag_bits & 1:
                    raise self._error("holds an encrypted file")
                try:
                    content = archive.open(member)
                except NotImplementedError:
                    raise self._error(f"holds a file packed by method {member.compress_type} of zip") from None
                except _DAMAGE:
                    continue
                with content:
                    yield _blocks(content)

    def _counted(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        for block in blocks:
            self.left -= len(block)
            if self.left < 0:
                raise self._error(f"holds more than {_MOST_UNPACKED >> 30} GiB once it is unpacked")
            yield block

    def _error(self, what: str) -> Unsearchable:
        return Unsearchable(f"{self.file}: {what}", hint="unpack it, and search its contents")


def _is_packed(head: bytes) -> bool:
    return head.startswith((*_CLOSED, *_OPENERS, _ZIP)) or _is_tar(head)


def _is_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"


def _as_far_as_it_goes(items: Iterator[Any]) -> Iterator[Any]:
    """Yield up to the first item that cannot be read: the bytes of the rest are searched as they are."""
    try:
        yield from items
    except Unsearchable:
        raise
    except (*_DAMAGE, sqlite3.Error):
        return


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    stream.seek(0)
    while block := stream.read(_BLOCK):
        yield block


def _long_texts(file: Path, page: int) -> Iterator[bytes]:
    """Yield the texts of a database that may lie on several pages, so that its bytes hold them only in pieces.

    A row that fits its page is in one piece, and no table here has more than 20 texts in a row.
    """
    uri = f"{file.resolve().as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(uri, uri=True)) as database:
        database.text_factory = bytes
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in (_quoted(name) for name in tables):
            columns = database.execute(f"PRAGMA table_info({table})").fetchall()
            for column in [_quoted(row[1]) for row in columns if row[2].upper() not in _NUMBERS]:
                query = f"SELECT CAST({column} AS BLOB) FROM {table} WHERE length(CAST({column} AS BLOB)) > ?"  # noqa: S608
                for (text,) in database.execute(query, (max(page, 512) // 20,)):
                    yield b"\0" + text


def _quoted(name: bytes) -> str:
    return '"' + name.decode(errors="replace").replace('"', '""') + '"'
