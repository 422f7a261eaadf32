"""What a machine lacks before it can measure, and the command or edit that mends each thing.

`machine.py` sees, this package judges: facts in, checks out. Without a GPU there is nothing to profile, so all
that only a GPU needs is passed over in silence.
"""

from collections.abc import Iterator

from ci_perf.doctor import hardware, software, tools
from ci_perf.doctor.facts import Check, CheckState, Facts

_FIRST_KERNEL = "write kernels/NAME/kernel.toml and kernel.py (ci-perf's README shows both), or name --kernels-dir"
_GIB = 1024**3
_LITTLE_DISK_BYTES = 5 * _GIB
_NO_DISK_BYTES = _GIB // 2


def diagnose(facts: Facts) -> tuple[Check, ...]:
    """Judge the machine; each problem is a check of its own, with its own fix."""
    return tuple(dict.fromkeys(_diagnose(facts)))  # the instances of one GPU share its problems


def _diagnose(facts: Facts) -> Iterator[Check]:
    yield Check("ci-perf", CheckState.OK, f"runs on Python {facts.python}")
    yield from software.interpreter(facts)
    yield from hardware.driver(facts)
    for gpu in facts.gpus:
        yield from hardware.gpu(gpu, facts)
    if facts.gpus:
        yield from software.what_fits(facts)
        yield from tools.nsys(facts)
        yield from tools.ncu(facts)
        yield from tools.sanitizer(facts)
    yield from _surroundings(facts)


def _surroundings(facts: Facts) -> Iterator[Check]:
    if facts.disk_free_bytes is not None:
        free = f"{facts.disk_free_bytes / _GIB:.1f} GiB free in {facts.disk_folder}"
        more = f"free some space in {facts.disk_folder}"
        if facts.disk_free_bytes < _NO_DISK_BYTES:
            yield Check("disk", CheckState.BROKEN, f"{free}: too little for profiles and runs", more)
        elif facts.disk_free_bytes < _LITTLE_DISK_BYTES:
            yield Check("disk", CheckState.WARN, f"{free}: a profile of many kernels may not fit", more)
        else:
            yield Check("disk", CheckState.OK, free)
    if facts.git:
        yield Check("git", CheckState.OK, f"git {facts.git}")
    else:
        yield Check("git", CheckState.MISSING, "no git: a run does not know its commit", "sudo apt-get install git")
    if facts.kernels:
        yield Check("kernels", CheckState.OK, f"{facts.kernels} kernel.toml found")
    else:
        yield Check("kernels", CheckState.MISSING, "there is no kernels/*/kernel.toml here", _FIRST_KERNEL)
