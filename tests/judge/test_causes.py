"""Causes of changes, from recorded counters of both sides, and from small made ones for each rule."""

import re
from functools import cache
from pathlib import Path

import pytest

from ci_perf.judge.causes import explain
from ci_perf.judge.causes.of_readings import side_of_launches, sides_of
from ci_perf.traces import ncu

WORDS = {
    "bank_conflict": "bank conflict",
    "extra_pass": "extra pass|DRAM reads",
    "fp64_slip": "fp64|double",
    "reg_pressure": "register|occupanc",
    "shared_occupancy": "shared memory",
    "split_kernel": "split|GPU kernels",
    "tail": "tail|wave",
    "tf32_lost": "tensor",
    "uncoalesced": "coalesc|sectors a request",
}
"""What names each fault of the recorded kernels; `neutral` and `python_sync` have none on the GPU."""


@cache
def launches(which):
    """Return the GPU kernels of each fault on one side."""
    found = {}
    for launch in ncu.read(Path(__file__).parents[1] / f"data/explain/h200-{which}.csv").launches:
        found.setdefault(launch.ranges[0], []).append((launch.name, launch.metrics))
    return found


def side(name, which):
    return side_of_launches(launches(which)[name])


def names_it(name, text):
    return re.search(WORDS[name], text, re.IGNORECASE)


@pytest.mark.parametrize("name", WORDS)
def test_a_planted_fault_is_the_first_cause_of_its_own_slowdown(name):
    found = explain(sides_of(side(name, "base"), side(name, "head")))

    assert found.causes
    assert names_it(name, found.sentence), found.sentence


@pytest.mark.parametrize("name", WORDS)
def test_a_fault_that_is_removed_is_the_first_cause_of_the_speedup(name):
    slower = explain(sides_of(side(name, "base"), side(name, "head")))
    faster = explain(sides_of(side(name, "head"), side(name, "base")))

    assert [cause.mechanism for cause in faster.causes] == [cause.mechanism for cause in slower.causes]
    assert faster.sentence != slower.sentence


@pytest.mark.parametrize("name", ["neutral", "python_sync"])
def test_unchanged_kernels_have_no_cause(name):
    assert explain(sides_of(side(name, "base"), side(name, "head"))).causes == ()
