"""One run at a time on each physical GPU: a lock file that every user of the machine can lock."""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ci_perf.measure import gpu
from ci_perf.values.errors import MachineError

_POLL_S = 0.5
FOLDER = Path("/tmp")  # noqa: S108 # not $TMPDIR, which schedulers set for each job: all must meet in one place


@contextmanager
def gpu_lock(
    uuid: str | None, wait_s: float, say: Callable[[str], object], folder: Path | None = None
) -> Iterator[None]:
    """Hold the lock of a GPU; wait up to `wait_s` seconds for another run to end, then raise MachineError.

    The instances of a split GPU (MIG) share its lock, as they share its power and its clock. `say` gets one
    message: which process holds the lock. With `uuid` None nothing is locked. The lock (flock) ends with the process
    that holds it; the file stays.
    """
    if uuid is None:
        yield
        return
    path = (folder or FOLDER) / f"ci-perf-{gpu.card_of(uuid)}.lock"
    descriptor = _open(path)
    try:
        _take(descriptor, path, wait_s, say)
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    """Open or create the file. In a folder that everyone may write to, only its owner may open it with O_CREAT."""
    try:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise MachineError(f"{path}: the lock of this GPU cannot be opened: {error.strerror}") from None
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise MachineError(f"{path}: the lock of this GPU cannot be made: {error.strerror}") from None
    with contextlib.suppress(OSError):
        os.fchmod(descriptor, 0o666)  # whatever the umask says: the next user must be able to take it
    return descriptor


def _take(descriptor: int, path: Path, wait_s: float, say: Callable[[str], object]) -> None:
    deadline = time.monotonic() + wait_s
    said = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            if time.monotonic() >= deadline:
                raise MachineError(
                    f"another ci-perf run (process {holder}) has held this GPU for {wait_s:.0f} s",
                    hint=f"wait for it, or raise --wait; the lock is {path}",
                ) from None
            if not said:
                say(f"waiting for process {holder}, which measures on this GPU ...")
                said = True
            time.sleep(min(_POLL_S, max(0.01, deadline - time.monotonic())))
        else:
            return
