"""Causes of changes, from recorded counters of both sides, and from small made ones for each rule."""

import json
import re
from pathlib import Path

import pytest

from ci_perf.judge.causes import explain
from ci_perf.judge.causes.of_readings import side_of_launches, sides_of
from ci_perf.values.trace import Reading

FAULTS = json.loads((Path(__file__).parents[1] / "data/explain/h200-faults.json").read_text())["faults"]
ON_GPU = [name for name in FAULTS if name not in ("neutral", "python_sync")]


def side(name, which):
    launches = [
        (kernel["name"], {metric: Reading(*reading) for metric, reading in kernel["counters"].items()})
        for kernel in FAULTS[name][which]
    ]
    return side_of_launches(launches)


def names_it(name, text):
    return any(re.search(word, text, re.IGNORECASE) for word in FAULTS[name]["words"])


@pytest.mark.parametrize("name", ON_GPU)
def test_a_planted_fault_is_the_first_cause_of_its_own_slowdown(name):
    found = explain(sides_of(side(name, "base"), side(name, "head")))

    assert found.causes
    assert names_it(name, found.sentence), found.sentence


@pytest.mark.parametrize("name", ON_GPU)
def test_a_fault_that_is_removed_is_the_first_cause_of_the_speedup(name):
    slower = explain(sides_of(side(name, "base"), side(name, "head")))
    faster = explain(sides_of(side(name, "head"), side(name, "base")))

    assert [cause.mechanism for cause in faster.causes] == [cause.mechanism for cause in slower.causes]
    assert faster.sentence != slower.sentence


@pytest.mark.parametrize("name", ["neutral", "python_sync"])
def test_unchanged_kernels_have_no_cause(name):
    assert explain(sides_of(side(name, "base"), side(name, "head"))).causes == ()
