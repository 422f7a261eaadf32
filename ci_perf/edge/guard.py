"""The door of the artifact folder: what holds a secret does not get in, and does not stay."""

import lzma
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ci_perf.core.errors import ConfigError
from ci_perf.core.model import Note
from ci_perf.core.secrets import secrets_of, variables_in
from ci_perf.core.spellings import Needle, names_in, needles_of

_BLOCK = 1 << 22
_LARGEST_UNPACKED = 1 << 30
"""Bytes that are unpacked of one file; what lies beyond is not searched, so that no bomb can stop a run."""
_UNPACK_ERRORS = (OSError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError, RuntimeError)


@dataclass(frozen=True, slots=True)
class Guard:
    """Searches files for secrets, and keeps those that hold any in a folder beside the artifact folder."""

    folder: Path
    """The artifact folder."""
    needles: tuple[Needle, ...]

    @classmethod
    def of(cls, folder: Path, environ: Mapping[str, str]) -> "Guard":
        """Return the guard of a folder against the secrets of an environment."""
        return cls(folder, needles_of(secrets_of(environ)))

    @property
    def outside(self) -> Path:
        """Where files wait that were not searched yet, and stay that hold secrets; never to be uploaded."""
        return self.folder.with_name(f"{self.folder.name}.withheld")

    def open(self) -> None:
        """Make the folder outside anew, for this user alone and invisible to git."""
        try:
            shutil.rmtree(self.outside, ignore_errors=True)
            self.outside.mkdir(mode=0o700, parents=True)
            (self.outside / ".gitignore").write_text("*\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{self.outside}: cannot be used: {error}", hint="name another --output") from None

    def close(self) -> None:
        """Remove the folder outside where nothing had to stay in it."""
        if self.outside.is_dir() and {path.name for path in self.outside.iterdir()} <= {".gitignore"}:
            shutil.rmtree(self.outside, ignore_errors=True)

    def admit(self, file: Path, folder: str = "") -> tuple[Note, ...]:
        """Let a file from outside in, into a folder of the artifact folder; or leave it there and say why."""
        if names := names_in_file(file, self.needles):
            return (_withheld(file.name, names, self.outside),)
        inside = self.folder / folder
        inside.mkdir(parents=True, exist_ok=True)
        shutil.move(file, inside / file.name)
        return ()

    def sweep(self) -> tuple[Note, ...]:
        """Search every file of the folder; move out what holds a secret, and say so."""
        notes = []
        for link in sorted(path for path in self.folder.rglob("*") if path.is_symlink()):
            link.unlink()
            what = f"{link.relative_to(self.folder).as_posix()}: a link was removed: an upload would have followed it"
            notes.append(Note("link-removed", what, hint="write files into the folder, not links"))
        for file in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            if names := names_in_file(file, self.needles):
                name = file.relative_to(self.folder).as_posix()
                self.outside.mkdir(mode=0o700, parents=True, exist_ok=True)
                shutil.move(file, self.outside / name.replace("/", "-"))
                notes.append(_withheld(name, names, self.outside))
        return tuple(notes)


def _withheld(file: str, names: Sequence[str], outside: Path) -> Note:
    message = f"{file} was withheld: it holds the value of {', '.join(names)}; it is in {outside.name}/ on the machine"
    if file.endswith(".nsys-rep"):
        hint = (
            "nsys records the environment of every process that it can read: give the measuring step no secrets, and "
            "start ci-perf with `exec`; timeline.sqlite holds the trace without environments"
        )
        return Note("withheld", message, hint)
    return Note("withheld", message, "give the measuring step no secrets, or find out who wrote it there")


def names_in_file(file: Path, needles: Sequence[Needle]) -> tuple[str, ...]:
    """Return the variables whose value a file holds: in its bytes, in its name, or packed by zip or gzip."""
    if not needles:
        return ()
    search: Callable[[Iterator[bytes]], frozenset[str]] = lambda blocks: names_in(blocks, needles)  # noqa: E731
    return tuple(sorted(_search(file, search) | names_in([file.name.encode("utf-8", "surrogateescape")], needles)))


def variables_in_file(file: Path) -> tuple[str, ...]:
    """Return the names of secret-looking variables that a file holds with a value, as a recorded environment does."""
    return tuple(sorted(_search(file, variables_in)))


def _search(file: Path, search: Callable[[Iterator[bytes]], frozenset[str]]) -> frozenset[str]:
    with file.open("rb") as stream:
        found = search(_blocks(stream))
    for blocks in _unpacked(file):
        found |= search(_as_far_as_it_goes(blocks))
    return found


def _as_far_as_it_goes(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield blocks until one cannot be unpacked: what came before counts, and the rest was searched as it is."""
    try:
        yield from blocks
    except _UNPACK_ERRORS:
        return


def _blocks(stream: BinaryIO, limit: int | None = None) -> Iterator[bytes]:
    left = limit
    while block := stream.read(_BLOCK if left is None else min(_BLOCK, left)):
        yield block
        if left is not None:
            left -= len(block)


def _unpacked(file: Path) -> Iterator[Iterator[bytes]]:
    """Yield the content of each member of a zip file, or of a gzip file, as blocks."""
    with file.open("rb") as stream:
        head = stream.read(4)
    if head.startswith(b"\x1f\x8b"):
        yield _gunzip(file)
    elif head == b"PK\x03\x04" and zipfile.is_zipfile(file):
        try:
            archive = zipfile.ZipFile(file)
        except _UNPACK_ERRORS:
            return
        with archive:
            for member in archive.infolist():
                yield _member(archive, member)


def _gunzip(file: Path) -> Iterator[bytes]:
    """Unpack a gzip file as far as it goes: one that was cut off shows what it has, unlike the module `gzip`."""
    left = _LARGEST_UNPACKED
    with file.open("rb") as stream:
        unpacker, packed = zlib.decompressobj(wbits=31), b""
        while left > 0 and (packed or (packed := stream.read(_BLOCK))):
            block = unpacker.decompress(packed, _BLOCK)
            left -= len(block)
            yield block
            packed = unpacker.unconsumed_tail
            if unpacker.eof:  # another member may follow
                unpacker, packed = zlib.decompressobj(wbits=31), unpacker.unused_data


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    with archive.open(member) as stream:
        yield from _blocks(stream, _LARGEST_UNPACKED)  # type: ignore[arg-type] # zipfile's own reader
