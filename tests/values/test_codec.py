import dataclasses
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci_perf.judge.verdict import is_red, judge
from ci_perf.values.codec import canonical, dump_baseline, dump_run, load_baseline, load_run
from ci_perf.values.errors import FormatError
from ci_perf.values.kernel import Gate, Program
from ci_perf.values.measurement import Cost, Failure, Measurement, Replicate, Verification
from ci_perf.values.run import CAUSES, Note, Policy
from ci_perf.values.trace import CaseTimeline, TracedKernel
from tests.builders import (
    STEADY,
    a_baseline,
    a_baseline_case,
    a_cpu,
    a_device,
    a_measurement,
    a_run,
    a_spec,
    agreed,
    counters,
    replicates,
    times,
)

BASELINE = a_baseline(cases={"s128": a_baseline_case(counters=agreed(registers_per_thread=128, cycles=4096.5))})
RUN = a_run(
    a_measurement(
        STEADY,
        times(1.01),
        cost=Cost(1e9, 2e6, "float16"),
        verification=Verification(0.0, 0.01, "launch"),
        timeline=CaseTimeline(
            10,
            (TracedKernel("flash<float, 128>(…)", 10, 500_000, 5e4, (64, 1, 1), (128, 1, 1), 168, 0),),
        ),
        counters=counters(registers_per_thread=128, dram_read_bytes=None),
    ),
    a_measurement(kernel="bench", replicates=(Replicate((7e11,), 1, "triton-csv", unit="byte/s", better="higher"),)),
    a_measurement(device="cpu", target="reference", failure=Failure("time", "timeout", "30 s", "Traceback …")),
    selection=("sdpa/*",),
    policy=Policy(fail_on=("regression", "inconclusive")),
    kernels=(
        a_spec(
            cases={"s128": {"seq": 128, "causal": True, "scale": 1.0, "dtype": "float16"}},
            cpu_cases=("s128",),
            tolerance={"float16": 0.01},
            regression=0.05,
            timeout_s=30,
            gates=(Gate("sm_throughput_pct", ">=", 85.0),),
        ),
        a_spec(
            "bench", entry="", program=Program("triton_csv", ("./b", "{output}"), "Triton", unit="GB/s"), ranges=("x",)
        ),
    ),
    devices=(a_device(), a_cpu()),
    baselines=(BASELINE,),
    notes=(Note("no-ncu", "ncu is not installed", "install it"),),
    planted=0.05,
    gpu_seconds=12.5,
)


def test_what_is_written_is_read_back_equal():
    assert load_run(dump_run(RUN), "run.json") == RUN
    assert load_baseline(dump_baseline(BASELINE), "sdpa.json") == BASELINE


def test_a_run_that_was_read_is_written_and_judged_alike():
    again = load_run(dump_run(RUN), "run.json")

    assert dump_run(again) == dump_run(RUN)
    assert judge(again) == judge(RUN)


def test_a_unit_is_written_where_it_is_not_seconds_and_read_back():
    rate = a_baseline_case()
    rate = dataclasses.replace(rate, time=dataclasses.replace(rate.time, unit="byte/s", better="higher"))
    text = dump_baseline(a_baseline(cases={"s128": rate}))

    assert load_baseline(text, "sdpa.json").cases["s128"] == rate
    assert '"unit": "byte/s"' in text
    assert '"better"' not in dump_baseline(BASELINE)
    assert dump_run(RUN).count('"unit": "byte/s"') == 1


def test_parameters_keep_their_types():
    spec, _ = load_run(dump_run(RUN), "run.json").kernels

    assert [type(value) for value in spec.cases["s128"].values()].count(bool) == 1
    assert {type(value) for value in spec.cases["s128"].values()} == {int, bool, float, str}


def test_a_run_with_a_time_of_zero_can_be_replayed():
    run = a_run(a_measurement(replicates=replicates((0.0, 1e-6))), baselines=(BASELINE,))

    (finding,) = judge(load_run(dump_run(run), "run.json"))

    assert finding.code == "bad-values"


@given(seconds=st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=9), text=st.text(max_size=20))
def test_no_digit_and_no_letter_is_lost(seconds, text):
    run = a_run(a_measurement(seconds), notes=(Note("odd", text or "-", text),))

    assert load_run(dump_run(run), "run.json") == run


json_documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(document=json_documents)
def test_the_canonical_form_is_a_fixed_point(document):
    text = canonical(document)

    assert json.loads(text) == document
    assert canonical(json.loads(text)) == text
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_the_canonical_form_sorts_indents_by_two_and_keeps_letters():
    assert canonical({"b": [1.0], "a": "µs"}) == '{\n  "a": "µs",\n  "b": [\n    1.0\n  ]\n}\n'


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_no_json_number_is_not_written(bad):
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump_run(a_run(gpu_seconds=bad))


def test_a_baseline_that_could_not_be_read_back_is_not_written():
    with pytest.raises(FormatError, match=r"^baseline of sdpa: key `cases.s128.time.median`: 0.0 is less than"):
        dump_baseline(a_baseline([0.0]))


def edited(path: str, value: object) -> str:
    """Return the text of RUN with one value replaced."""
    document = json.loads(dump_run(RUN))
    *parents, last = (int(key) if key.isdecimal() else key for key in path.split("."))
    place = document
    for key in parents:
        place = place[key]
    place[last] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "not JSON: Expecting value", "the file is empty"),
        ("{", "not JSON: Expecting property name", ""),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "not JSON", "run `git lfs pull`"),
        (edited("gpu_seconds", math.nan), "not JSON: NaN is not a JSON number", ""),
        (edited("gpu_seconds", -math.inf), "not JSON: -Infinity is not a JSON number", ""),
        (dump_run(RUN).replace("12.5", "1e999"), "not JSON: 1e999 is too large a number", ""),
        (dump_run(RUN).replace("12.5", "9" * 400), "not JSON: 99999999999999999999 is too large a number", ""),
        ("[" * 100_000, "not JSON: maximum recursion depth exceeded", ""),
        ("[]", "key `schema`: None is not a ci-perf schema", "expected a run file"),
        (edited("schema", "urn:other:run:1"), "key `schema`: 'urn:other:run:1' is not a ci-perf", "expected a run"),
        (edited("schema", "urn:ci-perf:run:2"), "key `schema`: format 2 of the run file; ci-perf", "upgrade ci-perf"),
        (edited("schema", "urn:ci-perf:run:2.1"), "key `schema`: format 2 of the run file; ci-perf", "upgrade ci-perf"),
        (dump_baseline(BASELINE), "this is a baseline file, expected a run file", ""),
        (edited("measurements.0.replicates.0.seconds.1", "fast"), "key `measurements[0].replicates[0].seconds[1]`", ""),
        (edited("measurements.0.replicates.0.seconds.1", -1e-6), "key `measurements[0].replicates[0].seconds[1]`", ""),
        (edited("measurements.0.replicates.0.launches", 0), "key `measurements[0].replicates[0].launches`: 0 is", ""),
        (edited("measurements.2.failure.code", "boom"), "key `measurements[2].failure.code`: 'boom' is not one", ""),
        (edited("measurements.2.failure.stage", "lunch"), "key `measurements[2].failure.stage`: 'lunch' is not", ""),
        (edited("measurements.0.kernel", "gemm"), "key `measurements[0]`: the run lists no such kernel or device", ""),
        (edited("devices.0.kind", "cpu"), "key `measurements[0]`: the run lists no such kernel or device", ""),
        (edited("measurements.0.target", "both"), "key `measurements[0].target`: 'both' is not one of", ""),
        (edited("devices.0.kind", "tpu"), "key `devices[0].kind`: 'tpu' is not one of ['cuda', 'cpu']", ""),
        (edited("baselines.0.cases.s128.time.median", 0), "key `baselines[0].cases.s128.time.median`: 0 is less", ""),
        (edited("policy.fail_on.0", "everything"), "key `policy.fail_on[0]`: 'everything' is not one of", ""),
        (edited("policy.confidence", 1), "key `policy.confidence`: 1 is greater than or equal to", ""),
        (edited("kernels.0.gates.0.operator", ">"), "key `kernels[0].gates[0].operator`: '>' is not one of", ""),
    ],
)
def test_a_file_that_is_no_run_is_refused_with_file_key_and_remedy(text, message, hint):
    with pytest.raises(FormatError) as error:
        load_run(text, "run.json")

    assert str(error.value).startswith(f"run.json: {message}")
    assert hint in error.value.hint


def test_a_run_is_no_baseline():
    with pytest.raises(FormatError, match=r"^l4/sdpa.json: this is a run file, expected a baseline file$"):
        load_baseline(dump_run(RUN), "l4/sdpa.json")


def test_the_causes_that_a_run_may_fail_on_are_those_that_are_judged():
    (finding,) = judge(a_run(baselines=(a_baseline(),)))

    assert [is_red(finding, [cause]) for cause in CAUSES] == [False] * len(CAUSES)


def test_optional_parts_may_be_left_out():
    document = json.loads(dump_run(RUN))
    for optional in ("measurements", "baselines", "notes", "planted", "gpu_seconds", "finished"):
        del document[optional]

    assert load_run(json.dumps(document), "run.json").measurements == ()


def test_a_measurement_with_nothing_but_a_name_fits():
    bare = Measurement("sdpa", "s128", {}, "cuda", "launch")

    assert load_run(dump_run(a_run(bare)), "run.json").measurements == (bare,)


TURNS = Path(__file__).parents[1] / "data/runs/h200-turns-planted-8-percent/run.json"


@pytest.mark.parametrize(("side", "lost"), [("base", 0), ("base", 1), ("head", 1)])
def test_a_pair_has_as_many_rounds_of_base_and_head(side, lost):
    document = json.loads(TURNS.read_text())
    index = next(i for i, measurement in enumerate(document["measurements"]) if measurement.get("pairs"))
    del document["measurements"][index]["pairs"][0][side][:lost]

    if not lost:
        assert load_run(json.dumps(document), "run.json").measurements[index].pairs
        return
    with pytest.raises(
        FormatError, match=rf"^run.json: key `measurements\[{index}\]\.pairs\[0\]`: \d+ rounds of `base`"
    ):
        load_run(json.dumps(document), "run.json")


def test_a_merged_run_lists_the_devices_of_its_sessions():
    document = json.loads((Path(__file__).parents[1] / "data/formats/0.1.0/run-merged.json").read_text())
    assert load_run(json.dumps(document), "run.json").sessions

    document["devices"][0]["name"] = "NVIDIA L4"
    with pytest.raises(FormatError, match="key `devices`: lacks NVIDIA H100"):
        load_run(json.dumps(document), "run.json")
