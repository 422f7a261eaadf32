"""The CPU as a device."""

import os
import platform
import re
from pathlib import Path

from ci_perf.values.device import Device


def read_file(path: Path) -> str:
    """Return what a file of /proc holds; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def cpu_device(root: Path = Path("/")) -> Device:
    """Describe the CPU and its memory, as one device."""
    model = re.search(r"^model name\s*:\s*(.+)$", read_file(root / "proc/cpuinfo"), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+) kB", read_file(root / "proc/meminfo"), re.MULTILINE)
    return Device(
        kind="cpu",
        name=model[1].strip() if model else platform.processor() or platform.machine() or "unknown",
        sm_count=len(os.sched_getaffinity(0)),
        memory_bytes=int(memory[1]) * 1024 if memory else None,
    )
