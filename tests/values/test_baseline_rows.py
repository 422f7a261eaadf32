import pytest

from ci_perf.values.baseline import selected_rows
from tests.builders import a_baseline, a_baseline_case, a_cpu, a_device, a_spec

SPEC = a_spec(cases={"s64": {}, "s128": {}, "s256": {}}, cpu_cases=("s64", "s128"))


@pytest.mark.parametrize(
    ("device", "selected", "expected"),
    [
        (a_device(), {"s64"}, {"s64", "removed"}),
        (a_device(), {"s64", "s128"}, {"s64", "s128", "removed"}),
        (a_device(), {"s64", "s128", "s256"}, {"s64", "s128", "s256", "removed"}),
        (a_cpu(), {"s64"}, {"s64", "s256", "removed"}),
        (a_cpu(), {"s64", "s128"}, {"s64", "s128", "s256", "removed"}),
        (a_device(), set(), {"removed"}),
    ],
)
def test_a_run_embeds_the_rows_of_its_cases_and_of_cases_that_do_not_run_by_default(device, selected, expected):
    rows = dict.fromkeys(("s64", "s128", "s256", "removed"), a_baseline_case())

    assert selected_rows(a_baseline(device=device, cases=rows), SPEC, selected).cases.keys() == expected
