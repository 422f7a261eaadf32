"""Launches a case once, so that the compile caches have its code before the case is timed."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from ci_perf.userside.case import Answer, Case, Request
from ci_perf.userside.stages import stage


def compile_case(request: Request) -> Answer:
    """Launch a case once and keep nothing of it; RuntimeError for a kernel that is tuned at its first launch.

    This runs while another process uses the GPU, which would disturb the tuning, and its choice is kept. It changes
    Triton for the rest of the process.
    """
    case = Case(request)
    refuse_to_tune()
    with stage("first launch"):
        case.prepare()
        case.launch()
        case.synchronize()
    return {}


def refuse_to_tune() -> None:
    """Make the launch of a kernel with `triton.autotune` fail, and functions of `torch.compile` run uncompiled."""
    tuner = getattr(sys.modules.get("triton.runtime.autotuner"), "Autotuner", None)
    if tuner is not None:
        tuner.run = _refuse
    with contextlib.suppress(AttributeError, RuntimeError):  # an older torch, or none
        sys.modules["torch"].compiler.set_stance("force_eager")


def _refuse(*_: Any, **__: Any) -> None:
    raise RuntimeError("the kernel is tuned at its first launch, which needs the GPU for itself")
