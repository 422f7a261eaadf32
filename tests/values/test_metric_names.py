"""NVIDIA's own library knows the counters by name, and how many replays they cost: no GPU is needed to ask it."""

import pytest

from ci_perf.values.metrics import METRICS, wanted
from tests import nvperf

LIBRARY = nvperf.find_library()
pytestmark = pytest.mark.skipif(
    LIBRARY is None, reason="no libnvperf_host.so: `pip install ncu-report` on x86-64 Linux"
)
L4, H100 = "AD104", "GH100"


def counted(metrics):
    """Leave out what ncu knows of a launch without counting."""
    of_launch = ("launch__", "sm__maximum_warps_per_active_cycle_pct")
    return [metric for metric in metrics if not metric.ncu.startswith(of_launch)]


@pytest.mark.parametrize("chip", [L4, H100])
def test_every_counter_exists_under_one_of_its_names(chip):
    found = nvperf.Chip(chip, LIBRARY)

    missing = [m.name for m in counted(METRICS) if not any(found.has(name) for name in m.names)]
    assert missing == []
    assert not found.has("sm__nothing.sum")


@pytest.mark.parametrize("chip", [L4, H100])
def test_what_is_always_collected_costs_few_replays(chip):
    found = nvperf.Chip(chip, LIBRARY)

    assert 1 <= found.passes(metric.ncu for metric in counted(wanted([]))) <= 3
    assert found.passes(["sm__throughput.avg.pct_of_peak_sustained_elapsed"]) >= 6, "why it is asked for only by name"


@pytest.mark.parametrize("chip", [L4, H100])
def test_what_explains_a_change_costs_a_fourth_of_all_counters(chip):
    found = nvperf.Chip(chip, LIBRARY)

    assert found.passes(metric.ncu for metric in counted(wanted([], explain=True))) <= 9, "all counters: 34 to 38"
