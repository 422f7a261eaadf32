"""Temporary folders of a run; those of runs that were killed are removed by the next run."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOCK = "used"


@contextmanager
def temporary_folder(prefix: str, forget: Callable[[Path], object] = lambda _: None) -> Iterator[Path]:
    """Yield a temporary folder that is removed afterwards; remove the same of this user's runs that were killed.

    `forget` gets each of those first. The name of a folder begins with `prefix`; a file `used` in it is locked.
    """
    _remove_abandoned(prefix, forget)
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder, _marked_as_used(folder):
        yield Path(folder)


@contextmanager
def _marked_as_used(folder: str) -> Iterator[None]:
    """Hold a lock in a folder; it ends with this process, however that ends."""
    descriptor = os.open(Path(folder, "new"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        Path(folder, "new").rename(Path(folder, _LOCK))  # visible only once it is held
        yield
    finally:
        os.close(descriptor)


def _remove_abandoned(prefix: str, forget: Callable[[Path], object]) -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with (folder / _LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                forget(folder)
                shutil.rmtree(folder, ignore_errors=True)
