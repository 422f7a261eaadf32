"""Launches a case once, so that the compile caches have its code before the case is timed."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from ci_perf.userside.case import Answer, Case, Request, load_entry, release_memory
from ci_perf.userside.slots import Slots, slots_in
from ci_perf.userside.stages import stage
from ci_perf.userside.tuned import compile_instead_of_tuning, tuner_class


def compile_case(request: Request) -> Answer:
    """Launch a case once and keep nothing of it.

    This runs while other processes use the GPU, which would disturb the tuning of a kernel, and its choice is kept. So
    a kernel that is tuned is compiled in all of its configurations where `slots` names their folder, and is a
    RuntimeError elsewhere. Triton is changed for the rest of the process.
    """
    slots = slots_in(request["slots"]) if "slots" in request else None
    load_entry(request)  # and Triton with it
    with slots.own() if slots else contextlib.nullcontext():
        do_not_tune(slots)
        launch_once(request)
    release_memory()
    return {}


def launch_once(request: Request) -> None:
    """Make the inputs of a case and launch it."""
    case = Case(request)
    with stage("first launch"):
        case.prepare()
        case.launch()
        case.synchronize()


def do_not_tune(slots: Slots | None) -> None:
    """Let tuned kernels of Triton be compiled only, or without slots refuse them; `torch.compile` compiles nothing."""
    tuner = tuner_class()
    if tuner is not None and tuner.run.__module__ != compile_instead_of_tuning.__module__:
        if slots is None:
            tuner.run = _refuse
        else:
            compile_instead_of_tuning(slots)
    with contextlib.suppress(AttributeError, RuntimeError):  # an older torch, or none
        sys.modules["torch"].compiler.set_stance("force_eager")


def _refuse(*_: Any, **__: Any) -> None:
    raise RuntimeError("the kernel is tuned at its first launch, which needs the GPU for itself")
