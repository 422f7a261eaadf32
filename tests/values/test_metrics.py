import pytest

from ci_perf.judge.roofline import roofline
from ci_perf.values.device import Device
from ci_perf.values.measurement import Cost
from ci_perf.values.metrics import BY_NAME, METRICS, Trust, combine_kernels, wanted
from ci_perf.values.trace import Reading

DURATION = BY_NAME["duration_ns"].ncu


def combined(name, *kernels):
    """Combine GPU kernels, each given by its readings of the metric `name` and of its duration."""
    metric = BY_NAME[name]
    read = [{metric.ncu: Reading(value), DURATION: Reading(duration)} for value, duration in kernels]
    return combine_kernels(read, [metric])[name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("instructions", 40.0),
        ("registers_per_thread", 30.0),
        ("l1_hit_rate_pct", 25.0),
        ("l1_miss_rate_pct", 75.0),
    ],
)
def test_the_kernels_of_a_launch_become_one_by_sum_maximum_or_weight(name, expected):
    assert combined(name, (10.0, 1.0), (30.0, 3.0)) == Reading(expected, BY_NAME[name].unit)


def test_without_durations_each_kernel_weighs_the_same():
    assert combined("l1_hit_rate_pct", (10.0, None), (30.0, None)).value == 20.0
    assert combined("l1_hit_rate_pct", (10.0, 0.0), (30.0, 0.0)).value == 20.0


def test_a_duration_that_is_not_available_is_no_weight_of_zero():
    reading = combined("l1_hit_rate_pct", (10.0, 5.0), (90.0, None))

    assert (reading.value, reading.reason) == (None, "the duration of a kernel, its weight, is not available")


@pytest.mark.parametrize("name", ["instructions", "registers_per_thread", "l1_hit_rate_pct", "l1_miss_rate_pct"])
def test_what_one_kernel_lacks_the_launch_lacks(name):
    metric = BY_NAME[name]
    kernels = [{metric.ncu: Reading(1.0)}, {metric.ncu: Reading(None, "", "ERR_NVGPUCTRPERM")}]

    assert combine_kernels(kernels, [metric]) == {name: Reading(None, metric.unit, "ERR_NVGPUCTRPERM")}
    assert combine_kernels([{}], [metric]) == {name: Reading(None, metric.unit, "not in the report")}
    assert combine_kernels([], [metric]) == {name: Reading(None, metric.unit, "no GPU kernel ran")}


def test_a_measured_zero_is_a_value():
    assert combined("local_load_inst", (0.0, 1.0)).value == 0.0
    assert combined("l1_miss_rate_pct", (100.0, 1.0)).value == 0.0


def test_costly_counters_are_asked_for_only_where_a_gate_names_them():
    cheap = {m.name for m in wanted([])}

    assert cheap == {m.name for m in METRICS if not m.explains} - {"sm_throughput_pct"}
    assert {m.name for m in wanted([], explain=True)} == set(BY_NAME) - {"sm_throughput_pct"}
    assert {m.name for m in wanted([], full=True)} == set(BY_NAME)
    assert {m.name for m in wanted(["sm_throughput_pct", "cycles"])} - cheap == {"sm_throughput_pct"}


def test_the_error_for_a_missing_metric_names_those_of_the_same_counter():
    registers, duration = BY_NAME["registers_per_thread"], BY_NAME["duration_ns"]
    kernel = {"gpu__time_duration.max": Reading(1.0, "ns"), "gpu__time_active.sum": Reading(1.0, "ns")}
    found = combine_kernels([kernel], [registers, duration])

    assert found["duration_ns"].reason == "not in the report, which has gpu__time_duration.max"
    assert found["registers_per_thread"].reason == "not in the report"


def test_names_are_unique_and_bands_belong_to_banded_counters():
    assert len(BY_NAME) == len(METRICS)
    assert all((m.band > 0) == (m.trust is Trust.BANDED) for m in METRICS)


def test_a_metric_is_found_under_the_name_of_another_chip_or_version():
    metric = BY_NAME["tensor_active_pct"]
    other = metric.names[1]

    assert combine_kernels([{other: Reading(5.0, "%")}], [metric])[metric.name].value == 5.0
    both = {metric.ncu: Reading(None, "%", "n/a"), other: Reading(5.0, "%")}
    assert combine_kernels([both], [metric])[metric.name].value == 5.0
    assert combine_kernels([{metric.ncu: Reading(None, "%", "n/a")}], [metric])[metric.name].reason == "n/a"


@pytest.mark.parametrize(
    ("flop", "intensity", "ceiling", "bound"),
    [(4e6, 4.0, 4e12, "memory"), (1e9, 1000.0, 256e12, "compute"), (0.0, 0.0, None, "memory")],
)
def test_the_ceiling_is_the_lower_of_compute_and_of_memory_at_this_intensity(flop, intensity, ceiling, bound):
    device = Device(  # 1 TB/s; 9.0 does 4096 operations per SM and clock
        "cuda",
        "GPU",
        compute_capability="9.0",
        sm_count=50,
        sm_clock_max_hz=1.25e9,
        memory_clock_max_hz=1e9,
        memory_bus_bits=4000,
    )
    found = roofline(Cost(flop=flop, bytes=1e6), 1e-3, device, "float16")

    assert found is not None
    assert (found.intensity, found.bound) == (intensity, bound)
    assert found.attainable_flop_per_s == (ceiling and pytest.approx(ceiling))
