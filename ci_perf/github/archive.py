"""Reads run.json from an untrusted artifact: in memory, within limits, without unpacking anything to disk."""

import re
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from ci_perf.values.errors import ConfigError, FormatError

LARGEST_ARCHIVE = 32 << 20
"""Bytes of the zip. Its directory is read as a whole, so this limits the entries as well."""
LARGEST_RUN = 64 << 20
"""Bytes of run.json when unpacked."""
MOST_ENTRIES = 1_000
LARGEST_RATIO = 200
"""Unpacked to packed size; a run.json has a ratio of about 10."""
_NAME = "run.json"
_BLOCK = 1 << 20


def read_untrusted(path: Path) -> str:
    """Return the text of run.json in a folder or in a zip, or of the file itself.

    Links, devices, bombs, entries that leave the archive's folder and several files called run.json are a FormatError.
    """
    file = path / _NAME if path.is_dir() and not path.is_symlink() else path
    try:
        kind = file.lstat()
        if not stat.S_ISREG(kind.st_mode):
            raise FormatError(f"{file}: is a link or a device, expected a file")
        if zipfile.is_zipfile(file):
            content = _from_zip(file, kind.st_size)
        else:
            with file.open("rb") as opened:
                content = opened.read(LARGEST_RUN + 1)
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: there is no run", hint="the workflow downloads the artifact of the run that the event names"
        ) from None
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise FormatError(f"{path}: the archive cannot be unpacked: {error}") from None
    if len(content) > LARGEST_RUN:
        raise FormatError(f"{file}: {_NAME} is larger than {LARGEST_RUN >> 20} MiB")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{file}: {_NAME} is not UTF-8: {error.reason}") from None


def _from_zip(file: Path, size: int) -> bytes:
    if size > LARGEST_ARCHIVE:
        raise FormatError(
            f"{file}: {size >> 20} MiB, at most {LARGEST_ARCHIVE >> 20} are read",
            hint="upload run.json alone for the job that publishes",
        )
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if len(entries) > MOST_ENTRIES:
            raise FormatError(f"{file}: {len(entries)} entries, at most {MOST_ENTRIES} are read")
        for entry in entries:
            _check_entry(entry, file)
        found = [entry for entry in entries if PurePosixPath(entry.filename).name == _NAME]
        if len(found) != 1:
            raise FormatError(f"{file}: holds {len(found)} files called {_NAME}, expected one")
        return _unpack(archive, found[0], file)


def _check_entry(entry: zipfile.ZipInfo, file: Path) -> None:
    """Refuse an entry that would leave the folder into which the archive is unpacked."""
    name = PurePosixPath(entry.filename.replace("\\", "/"))
    if name.is_absolute() or ".." in name.parts or re.match("[A-Za-z]:", entry.filename):
        raise FormatError(f"{file}: the entry {entry.filename!r:.80} leaves the archive's folder")
    mode = entry.external_attr >> 16
    if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise FormatError(f"{file}: the entry {entry.filename!r:.80} is a link or a device")


def _unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, file: Path) -> bytes:
    """Unpack block by block, no further than the limits allow: the sizes in the archive's directory are not trusted."""
    most = LARGEST_RATIO * max(entry.compress_size, _BLOCK // LARGEST_RATIO)
    content = bytearray()
    with archive.open(entry) as member:
        while len(content) <= min(most, LARGEST_RUN) and (block := member.read(_BLOCK)):
            content += block
    if len(content) > most:
        raise FormatError(f"{file}: {_NAME} unpacks to more than {LARGEST_RATIO} times its size: a bomb")
    return bytes(content)
