"""All diagnoses of a machine: what it lacks for measuring, and the command or edit that fixes each problem.

Without a GPU, everything that only a GPU needs is skipped.
"""

from collections.abc import Iterator

from ci_perf.doctor import hardware, software, tools
from ci_perf.doctor.facts import Diagnosis, Facts, broken, missing, ok, warn

_GIB = 1024**3
_LITTLE_DISK_BYTES = 5 * _GIB
_NO_DISK_BYTES = _GIB // 2


def diagnose(facts: Facts) -> tuple[Diagnosis, ...]:
    """Return the diagnoses of a machine; each problem has its own fix."""
    return tuple(dict.fromkeys(_diagnose(facts)))  # MIG instances of one GPU have the same problems


def _diagnose(facts: Facts) -> Iterator[Diagnosis]:
    yield ok("ci-perf", f"runs on Python {facts.python}")
    yield from software.interpreter(facts)
    yield from hardware.driver(facts)
    for gpu in facts.gpus:
        yield from hardware.gpu(gpu, facts)
    if facts.gpus:
        yield from software.compatibility(facts)
        yield from tools.nsys(facts)
        yield from tools.ncu(facts)
        yield from tools.sanitizer(facts)
    if facts.disk_free_bytes is not None:
        yield _disk(facts.disk_free_bytes, facts.disk_folder)
    if facts.git:
        yield ok("git", f"git {facts.git}")
    else:
        yield missing("git", "git is not installed: a run does not record its commit", "sudo apt-get install git")
    if facts.kernels:
        yield ok("kernels", f"{facts.kernels} kernel.toml found")
    else:
        fix = "write kernels/NAME/kernel.toml and kernel.py (documentation: Writing kernels), or set --kernels-dir"
        yield missing("kernels", "there is no kernels/*/kernel.toml here", fix)


def _disk(free_bytes: int, folder: str) -> Diagnosis:
    free, fix = f"{free_bytes / _GIB:.1f} GiB free in {folder}", f"free some space in {folder}"
    if free_bytes < _NO_DISK_BYTES:
        return broken("disk", f"{free}: too little for profiles and runs", fix)
    if free_bytes < _LITTLE_DISK_BYTES:
        return warn("disk", f"{free}: a profile of many kernels may not fit", fix)
    return ok("disk", free)
