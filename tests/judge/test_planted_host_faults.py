"""The first cause of faults of the host: a timeline of both sides, changed as each fault changes it."""

import pytest

from ci_perf.judge.causes import Side, explain, explain_host
from ci_perf.judge.causes.explanation import ON_GPU, ON_HOST
from ci_perf.judge.causes.of_readings import sides_of
from tests.judge.test_causes import ON_BOTH_SIDES_OF_ITS_BOUNDARY
from tests.judge.test_planted_faults import FAULTS

LAUNCHES = {
    "range_ns": 1e6, "sync_calls": 1, "sync_pct": 8, "idle_pct": 5, "cuda_time_pct": 80, "alloc_calls": 0,
    "alloc_pct": 0, "alloc_share_pct": 0, "pageable_copies": 0, "launch_calls": 10, "graph_launches": 0,
    "launch_overhead_pct": 16, "overlap_pct": 0, "longest_gap_ns": 5e3,
}  # fmt: skip
"""The timeline of ten launches that are one after the other in one stream, and copy nothing."""
COPIES = {"copied_bytes": 20e6, "h2d_bytes_per_s": 5e10, "d2h_bytes_per_s": 5e10}
# Fault, how many times as long, the timeline of the base and what of it changes, mechanisms, and words of the sentence.
HOST_FAULTS = [
    ("`.item()` in each call", 1.9, {},
     {"sync_calls": 11, "sync_pct": 50, "idle_pct": 40, "pageable_copies": 10, "copied_bytes": 40,
      "d2h_bytes_per_s": 2e7},
     ["synchronisation"], "synchronisation: 1 -> 11 calls wait"),
    ("`.cpu()` of a result in each call", 3.0, {},
     {"sync_calls": 11, "sync_pct": 66, "idle_pct": 10, "pageable_copies": 10, "copied_bytes": 20e6,
      "d2h_bytes_per_s": 1.1e10}, ["pageable-copies"], "copies of pageable memory: 0 -> 10 copies, 0 -> 20 MB"),
    ("pageable in place of pinned memory", 1.8, COPIES, {"pageable_copies": 4, "h2d_bytes_per_s": 1e10},
     ["pageable-copies"], "pageable in place of pinned memory"),
    ("pinned copies in each call", 1.4, COPIES, {"copied_bytes": 40e6}, ["copies"], "more copies"),
    ("cudaMalloc in each call", 1.5, {}, {"alloc_calls": 20, "alloc_pct": 33, "alloc_share_pct": 60, "idle_pct": 30},
     ["allocation"], "allocation: 0 -> 20 calls"),
    ("many cheap cudaMalloc beside a synchronisation", 1.5, {},
     {"alloc_calls": 200, "alloc_pct": 0.9, "alloc_share_pct": 3, "sync_calls": 11, "sync_pct": 20, "idle_pct": 36},
     ["synchronisation"], "synchronisation"),
    ("a loop of launches in Python", 4.0, {}, {"launch_calls": 160, "launch_overhead_pct": 55, "idle_pct": 60},
     ["launch-overhead"], "launch overhead: 10 -> 160 launch calls"),
    ("no CUDA graph", 2.0, {"graph_launches": 1, "launch_calls": 1},
     {"graph_launches": 0, "launch_calls": 40, "launch_overhead_pct": 50, "idle_pct": 30}, ["graph-capture"],
     "CUDA graph lost"),
    ("one stream in place of two", 1.7, {"overlap_pct": 42}, {"overlap_pct": 0}, ["overlap"], "lost overlap: 42 -> 0"),
    ("a synchronisation that costs 4 % of the time", 1.04, {}, {"sync_calls": 11, "idle_pct": 7.5}, ["synchronisation"],
     "1 -> 11 calls wait"),
    ("an allocation that costs 4 % of the time", 1.04, {}, {"alloc_calls": 10, "alloc_pct": 3.9}, ["allocation"],
     "0 -> 10 calls"),
    ("the same calls, and 4 % of the time", 1.04, {}, {"idle_pct": 8}, [], ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("times", "base", "changes", "mechanisms", "words"), [f[1:] for f in HOST_FAULTS], ids=[f[0] for f in HOST_FAULTS]
)
@pytest.mark.parametrize("judged", [True, False], ids=["time of the host", "time of the GPU"])
def test_a_fault_of_the_host_is_the_first_cause_in_proportion_to_its_time(
    times, base, changes, mechanisms, words, judged
):
    old = LAUNCHES | base
    new = {**old, "range_ns": times * old["range_ns"], **changes}
    sides = sides_of(Side(old), Side(new), times if judged else 1.0)
    found = explain(sides, rules=ON_HOST) if judged else explain_host(sides)
    causes = [cause for cause in (found.causes if found else ()) if cause.mechanism != "idle"]

    assert [cause.mechanism for cause in causes] == mechanisms
    assert not causes or (words in found.sentence and found.causes[0] == causes[0])


def test_a_gpu_that_waits_for_the_host_without_another_call_is_idle():
    new = LAUNCHES | {"range_ns": 2e6, "idle_pct": 50}
    found = explain(sides_of(Side(LAUNCHES), Side(new), 2.0), rules=ON_HOST)

    assert [cause.mechanism for cause in found.causes] == ["idle"]
    assert "the GPU is idle for 5 -> 50 % of the time" in found.sentence


def test_every_mechanism_has_a_fault_that_shows_it():
    tested_alone = {"split-kernels", "other-kernel", "tensor-cores", "tensor-work", "idle"}
    shown = {row[0] for row in ON_BOTH_SIDES_OF_ITS_BOUNDARY} | {row[6] for row in FAULTS}
    shown |= {mechanism for row in HOST_FAULTS for mechanism in row[4]} | tested_alone

    assert {rule.mechanism for rule in (*ON_GPU, *ON_HOST)} == shown
