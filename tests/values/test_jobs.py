import pytest

from ci_perf.values.errors import ConfigError
from ci_perf.values.job import select_jobs
from tests.builders import a_spec

SDPA = a_spec("sdpa", cases={"s128": {"seq": 128}, "s256": {"seq": 256}}, cpu_cases=("s128",))
GEMM = a_spec("gemm", cases={"n64": {}}, devices=("cuda", "cpu"))


def ids(patterns=(), devices=("cuda",), specs=(SDPA, GEMM), **options):
    return [job.id for job in select_jobs(specs, patterns, devices, **options)]


def test_without_a_pattern_every_case_runs_in_the_order_of_the_files():
    assert ids() == ["sdpa/s128", "sdpa/s256", "gemm/n64"]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["gemm"], ["gemm/n64"]),
        (["sdpa/s256"], ["sdpa/s256"]),
        (["*/s1*"], ["sdpa/s128"]),
        (["gemm", "sdpa/s128"], ["sdpa/s128", "gemm/n64"]),
        (["gemm", "gemm/*"], ["gemm/n64"]),
    ],
)
def test_patterns_choose_and_do_not_reorder(patterns, expected):
    assert ids(patterns) == expected


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("sdap", "did you mean sdpa?"),
        ("sdpa/s265", "did you mean sdpa/s256"),
        ("SDPA", "`ci-perf list` shows all cases"),
        ("sd", "did you mean sdpa?"),
        ("s*x", "`ci-perf list` shows all cases"),
        ("", "`ci-perf list` shows all cases"),
    ],
)
def test_a_pattern_that_matches_nothing_is_an_error(pattern, hint):
    with pytest.raises(ConfigError, match=r"^no case matches") as error:
        ids(["gemm", pattern])

    assert str(error.value) == f"no case matches `{pattern}`"
    assert error.value.hint.startswith(hint)


def test_a_cpu_runs_the_small_cases_unless_more_is_asked_for():
    assert ids(devices=["cpu"]) == ["sdpa/s128", "gemm/n64"]
    assert ids(["sdpa"], devices=["cpu"]) == ["sdpa/s128"]
    assert ids(["sdpa/s256"], devices=["cpu"]) == ["sdpa/s256"]
    assert ids(devices=["cpu"], all_cases=True) == ["sdpa/s128", "sdpa/s256", "gemm/n64"]


def test_devices_run_one_after_the_other():
    jobs = select_jobs([GEMM, SDPA], ["*/n64", "*/s128"], ["cuda", "cpu"])

    assert [(j.device, j.id) for j in jobs] == [
        ("cuda", "gemm/n64"),
        ("cuda", "sdpa/s128"),
        ("cpu", "gemm/n64"),
        ("cpu", "sdpa/s128"),
    ]


def test_the_reference_stands_in_where_the_kernel_does_not_run():
    jobs = select_jobs([SDPA, GEMM], [], ["cuda", "cpu"])

    assert {(j.spec.name, j.device): j.target for j in jobs} == {
        ("sdpa", "cuda"): "launch",
        ("sdpa", "cpu"): "reference",
        ("gemm", "cuda"): "launch",
        ("gemm", "cpu"): "launch",
    }


def test_a_job_carries_its_parameters_and_its_label():
    job, *_ = select_jobs([SDPA], [], ["cuda"])

    assert (job.params, job.label) == ({"seq": 128}, "ci-perf:sdpa/s128")
