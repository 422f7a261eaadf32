"""Text files: read with an error that names the file, written atomically."""

import os
import tempfile
from pathlib import Path

from ci_perf.values.errors import CiPerfError, WriteError


def relative_path(path: Path, root: Path) -> str:
    """Return how messages name a file: relative to `root` if it lies below it, else as it is.

    >>> relative_path(Path("/a/b/c"), Path("/a")), relative_path(Path("/b/c"), Path("/a"))
    ('b/c', '/b/c')
    """
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()


def read_text(file: Path, source: str, kind: type[CiPerfError]) -> str:
    """Return the text of a file; an error of the kind given names `source`. A byte-order mark is left out."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise kind(f"{source}: cannot be read: {error}", hint="save the file as UTF-8") from None
    except OSError as error:
        raise kind(f"{source}: cannot be read: {error}") from None


def write_text(path: Path, text: str) -> Path:
    """Write a file atomically: readers see the old content or the new one. When this returns, it is on the disk."""
    draft: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            draft = Path(file.name)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.chmod(0o666 & ~_umask())
        draft.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        hint = "free some disk space, or name another folder"
        raise WriteError(f"{path}: cannot be written: {error.strerror}", hint=hint) from None
    finally:
        if draft is not None:
            draft.unlink(missing_ok=True)  # after it took its place, there is none
    return path


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    """Put the names of a folder's files on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append_line(path: Path, text: str, *, make_folder: bool = False) -> None:
    """Append a line with one write; when this returns, it is on the disk. A line that was cut off before is ended."""
    try:
        if make_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+", buffering=0) as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                text = text if file.read(1) == b"\n" else "\n" + text
            line = text.encode()
            written = file.write(line)
            os.fsync(file.fileno())
    except OSError as error:
        raise WriteError(f"{path}: cannot be written: {error.strerror}") from None
    if written < len(line):
        hint = "free some disk space: the lines before are intact, and later ones start a new line"
        raise WriteError(f"{path}: only {written} of {len(line)} bytes could be written", hint=hint)
