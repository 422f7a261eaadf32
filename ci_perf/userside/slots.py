"""Limits how many threads and processes compile at once, over all processes that share a folder."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import time
from collections.abc import Iterator

_POLL_S = 0.01


class Slots:
    """As many slots as a folder has files. A slot is a lock on one of them, which Linux frees if its owner dies."""

    def __init__(self, folder: str) -> None:
        self._files = sorted(os.path.join(folder, name) for name in os.listdir(folder))
        self._mine: int | None = None

    def __len__(self) -> int:
        return len(self._files)

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Hold a slot during a block, once one is free."""
        handle = self._take()
        try:
            yield
        finally:
            _free(handle)

    @contextlib.contextmanager
    def own(self) -> Iterator[None]:
        """Hold a slot during a block, which `lent` can give to threads of this process for a while."""
        self._mine = self._take()
        try:
            yield
        finally:
            _free(self._mine)
            self._mine = None

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Free the slot of `own` during a block, while this thread only waits."""
        if self._mine is None:
            yield
            return
        fcntl.flock(self._mine, fcntl.LOCK_UN)
        try:
            yield
        finally:
            os.close(self._mine)
            self._mine = self._take()

    def _take(self) -> int:
        """Return the descriptor of a locked file, once there is one."""
        while True:
            for file in self._files:
                handle = os.open(file, os.O_RDWR)
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return handle
                os.close(handle)
            time.sleep(_POLL_S)


def _free(handle: int) -> None:
    """Free a slot. Closing it is not enough: a process that was forked meanwhile shares the lock."""
    fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


@functools.cache
def slots_in(folder: str) -> Slots:
    """Return the same object for the same folder, so that this process can lend the slot that it has."""
    return Slots(folder)
