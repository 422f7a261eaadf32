"""Chooses how a case is timed."""

from __future__ import annotations

import sys
from typing import Any

from ci_perf.userside.case import Case, Wrong, code_of
from ci_perf.userside.cpu_timers import CpuTimer, RestoredCpuTimer
from ci_perf.userside.cupti import CuptiError
from ci_perf.userside.cupti_timers import CuptiColdTimer, CuptiRestoredTimer, CuptiTimer
from ci_perf.userside.error_line import what_broke
from ci_perf.userside.timers import (
    ColdTimer,
    EventTimer,
    GraphTimer,
    RestoredTimer,
    RestoredWallTimer,
    WallTimer,
)


def choose_timer(case: Case, *, restores: bool = False) -> Any:
    """Choose how to time a case; its duration does not matter, so that both sides of a comparison choose alike.

    On a CPU a loop. On a GPU the wall clock if the request says so, else a CUDA graph if the launch can be captured,
    else CUPTI. With a cold L2 cache CUPTI, as events would time the launch gap of a small kernel. Events where CUPTI is
    not available. With `restores`, timers that restore the inputs before each launch, outside of the time.
    """
    if case.device == "cpu":
        return RestoredCpuTimer(case) if restores else CpuTimer(case)
    if case.request.get("time") == "wall":
        return RestoredWallTimer(case) if restores else WallTimer(case)
    if case.request.get("l2") == "cold":
        return cupti_or(ColdTimer, CuptiColdTimer, case)
    if restores:
        return cupti_or(RestoredTimer, CuptiRestoredTimer, case)
    timer = GraphTimer(case)
    try:
        timer.prepare(3)
    except Exception as error:
        if code_of(error) == "out-of-memory":
            raise
        reason = what_broke(error)
        print(f"ci-perf: no CUDA graph of this kernel ({reason}); timed through CUPTI or events", file=sys.stderr)
        case.synchronize()
        instead = cupti_or(EventTimer, CuptiTimer, case)
        if isinstance(error, Wrong) and not isinstance(instead, CuptiTimer):
            raise  # events would miss the same work
        instead.not_captured = reason
        return instead
    return timer


def cupti_or(instead: Any, wanted: Any, case: Case) -> Any:
    """Return a timer that uses CUPTI, or the other one where CUPTI is not available."""
    try:
        timer = wanted(case)
        timer.seconds(1)
    except CuptiError as error:
        print(f"ci-perf: no CUPTI ({error}); timing by events", file=sys.stderr)
        return instead(case)
    return timer
