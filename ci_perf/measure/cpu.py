"""The CPU as a device, and how busy it is."""

import os
import platform
import re
import time
from collections.abc import Collection
from pathlib import Path

from ci_perf.values.device import Device
from ci_perf.values.quantity import counted, percent
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Note

BUSY = 0.2
"""The machine is busy if other programs use this share of the cores that the kernels may use."""
_MODEL = ("cpu family", "model", "stepping", "CPU implementer", "CPU variant", "CPU part", "CPU revision")
"""The keys of `/proc/cpuinfo` that tell models of one name apart: three on x86, four on Arm."""
LOOK_S = 0.3
"""For how long the cores are watched: `/proc/stat` counts in steps of 10 ms."""


def read_file(path: Path) -> str:
    """Return what a file of /proc holds; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def cpu_device(root: Path = Path("/")) -> Device:
    """Describe the CPU and its memory, as one device."""
    info = read_file(root / "proc/cpuinfo")
    model = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+) kB", read_file(root / "proc/meminfo"), re.MULTILINE)
    numbers = [re.search(rf"^{key}\s*:\s*(\w+)$", info, re.MULTILINE) for key in _MODEL]
    return Device(
        kind="cpu",
        name=model[1].strip() if model else platform.processor() or platform.machine() or "unknown",
        sm_count=usable_cores(),
        memory_bytes=int(memory[1]) * 1024 if memory else None,
        cpu_model="-".join(number[1].lower() for number in numbers if number) or None,
    )


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return how much memory new programs can have without swapping; None: not known.

    It is MemAvailable of /proc/meminfo, or what the limit of a container (cgroup v2) leaves; files that Linux keeps in
    memory do not count as used.
    """
    group = root / "sys/fs/cgroup"
    free = re.search(r"^MemAvailable:\s*(\d+) kB", read_file(root / "proc/meminfo"), re.MULTILINE)
    used = re.search(r"^anon (\d+)$", read_file(group / "memory.stat"), re.MULTILINE)
    limit = read_file(group / "memory.max").strip()  # "max": none
    known = [int(free[1]) * 1024] if free else []
    if used and limit.isdecimal():
        known.append(max(0, int(limit) - int(used[1])))
    return min(known, default=None)


def used_share(before: str, after: str, cores: Collection[int]) -> float | None:
    """Return the share of the time of these cores that was used between two states of `/proc/stat`; None: not known.

    All but idle time and the wait for disks is used, also what a hypervisor gave to other machines (`steal`): proc(5).

    >>> used_share("cpu0 10 0 0 100 0 0 0 0", "cpu0 16 0 0 104 0 0 0 0", {0})
    0.6
    """
    passed: list[tuple[int, int]] = []
    for core in cores:
        lines = [re.search(rf"^cpu{core} (.+)$", text, re.MULTILINE) for text in (before, after)]
        if all(lines):
            old, new = ([int(part) for part in line[1].split()[:8]] for line in lines if line)
            steps = [b - a for a, b in zip(old, new, strict=True)]
            passed.append((sum(steps), sum(steps) - steps[3] - steps[4]))
    whole = sum(all_steps for all_steps, _ in passed)
    return max(0.0, sum(used for _, used in passed) / whole) if whole > 0 else None


def query_busy(root: Path = Path("/")) -> Note | None:
    """Watch the allowed cores for LOOK_S while nothing is measured; return a note where other programs use them."""
    cores = os.sched_getaffinity(0)
    before = read_file(root / "proc/stat")
    time.sleep(LOOK_S)
    return note_busy(used_share(before, read_file(root / "proc/stat"), cores), os.getloadavg()[0], len(cores))


def note_busy(share: float | None, load: float, cores: int) -> Note | None:
    """Return a note where other programs use at least BUSY of the cores: how many, and what to expect."""
    if share is None or share < BUSY:
        return None
    message = (
        f"this machine is busy: other programs use {percent(share, digits=0)} of {counted(cores, 'core')} "
        f"(load average {load:.1f}); times scatter more, cases take longer to decide, and more stay undecided"
    )
    return Note(Reason.CPU_BUSY, message, Reason.CPU_BUSY.hint)
