"""`scripts/compare-rules`: the rules of other systems on the sessions of an audit, as a table and a picture."""

import itertools
import math
import statistics
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lib.rule_comparison.pair_rules import PAIR_RULES, signed_rank_p
from lib.rule_comparison.plot import render_plot
from lib.rule_comparison.rules import RULES, Call, Setting, bootstrap_median, cliffs_delta, mann_whitney_p
from lib.rule_comparison.same_pairs import KINDS, OWN, Taken, flag_drawn, flag_recorded, one_process_a_side, wandering
from lib.rule_comparison.shares import MOST_STORED, judge_by_rules

from ci_perf.audit.file import append_session
from ci_perf.audit.rates import build_audit
from ci_perf.values.errors import ConfigError
from ci_perf.values.run import Policy
from tests.audit.test_audit import audit_file, recorded_sessions  # noqa: F401 # a fixture
from tests.builders import STEADY, a_device, an_audit_case, an_audit_session, times
from tests.project.test_project import ROOT

RULE = {rule.name: rule.call for rule in RULES}
OF_PAIRS = {rule.name: rule.call for rule in PAIR_RULES}


def compare(*arguments):
    command = [sys.executable, ROOT / "scripts/compare-rules", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_the_table_of_recorded_sessions(audit_file, golden):  # noqa: F811 # the fixture
    shown = compare(audit_file)

    assert shown.returncode == 0, shown.stderr
    golden("compare-rules.md", shown.stdout)


def test_a_file_that_cannot_be_read_ends_with_an_error_line(tmp_path):
    shown = compare(tmp_path / "gone.jsonl")

    assert (shown.returncode, shown.stdout) == (1, "")
    assert shown.stderr == f"error: {tmp_path}/gone.jsonl: there is no such audit file\n"


side = st.lists(st.sampled_from([1.0, 1.01, 1.02, 1.03, 1.05, 1.1, 1.2, 2.0]), min_size=2, max_size=30).map(tuple)
MIRROR = {Call.SLOWER: Call.FASTER, Call.FASTER: Call.SLOWER, Call.SAME: Call.SAME}


@pytest.mark.parametrize("name", sorted(RULE.keys() - {"do_bench medians, 3 %"}))
@given(samples=side)
def test_a_side_against_itself_is_never_flagged(name, samples):
    assert RULE[name](samples, samples) is Call.SAME


@pytest.mark.parametrize("name", sorted(RULE))
@given(base=side, head=side)
def test_swapped_sides_give_the_opposite_answer(name, base, head):
    # The order of time is mirrored, too: one of the rules looks at it.
    assert RULE[name](head[::-1], base[::-1]) is MIRROR[RULE[name](base, head)]


@pytest.mark.parametrize("name", sorted(RULE))
@given(base=side, head=side, power=st.integers(-40, 10))
def test_the_unit_of_time_does_not_matter(name, base, head, power):
    def scaled(samples):
        return tuple(s * 2.0**power for s in samples)

    assert RULE[name](scaled(base), scaled(head)) is RULE[name](base, head)


@pytest.mark.parametrize("name", sorted(RULE))
def test_every_rule_sees_a_large_change(name):
    base = tuple(1 + 0.001 * i for i in range(30))

    assert RULE[name](base, times(1.3, base)) is Call.SLOWER
    assert RULE[name](times(1.3, base), base) is Call.FASTER


@pytest.mark.parametrize(
    ("name", "base", "head", "call"),
    [
        ("median, 3 %", (1.0, 1.0, 9.0), (1.03, 1.03, 1.03), Call.SLOWER),
        ("median, 3 %", (1.0, 1.0, 1.0), (1.029, 1.029, 9.0), Call.SAME),
        ("ci-perf, 1 session", (1.0, 1.0, 1.0), (1.068, 1.068, 1.068), Call.SLOWER),
        ("ci-perf, 1 session", (1.0, 1.0, 1.0), (1.067, 1.067, 9.0), Call.SAME),
        ("mean, 3 % (nsys-ai)", (1.0, 1.0, 1.0), (1.0, 1.0, 1.1), Call.SLOWER),
        ("mean, 3 % (nsys-ai)", (1.0, 1.0, 1.0), (1.0, 1.0, 1.08), Call.SAME),
        ("do_bench medians, 3 %", (1.0, 1.0, 2.0, 2.0), (1.0, 1.0, 1.04, 1.04), Call.SLOWER),
        ("bootstrap + Cliff's delta", (1.0, 1.001) * 15, (1.01, 1.011) * 15, Call.SLOWER),
        ("bootstrap + Cliff's delta, 3 %", (1.0, 1.001) * 15, (1.01, 1.011) * 15, Call.SAME),
        # Separate sides of n and n samples have p = 2 / (2n choose n): 2 / 924, 2 / 3432; 2 / 20, 2 / 70.
        ("asv continuous", (1.0, 1.01, 1.02, 1.03, 1.04, 1.05), (2.0, 2.01, 2.02, 2.03, 2.04, 2.05), Call.SAME),
        ("asv continuous", tuple(1 + i / 1000 for i in range(7)), tuple(1.2 + i / 1000 for i in range(7)), Call.SLOWER),
        ("asv continuous", tuple(1 + i / 1000 for i in range(7)), tuple(1.09 + i / 1000 for i in range(7)), Call.SAME),
        ("asv continuous", (1.0,) * 10 + (1.2,) * 20, (1.0,) * 10 + (1.35,) * 20, Call.SAME),
        ("benchstat", (1.0, 1.1, 1.2), (2.0, 2.1, 2.2), Call.SAME),
        ("benchstat", (1.0, 1.1, 1.2, 1.3), (2.0, 2.1, 2.2, 2.3), Call.SLOWER),
        ("benchstat", (1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 2.0), Call.SAME),
        ("benchstat", (1.0,) * 30, (1.0001,) * 30, Call.SLOWER),
        # 24 and 36 equal samples of 60: p is 0.037, and 0.077 without the correction for ties.
        ("benchstat", (1.0,) * 16 + (2.0,) * 14, (1.0,) * 8 + (2.0,) * 22, Call.SLOWER),
        # The medians are surely apart, but a sample of one side exceeds one of the other in 54 % of the pairs only.
        ("bootstrap + Cliff's delta", (1.0,) * 22 + (9.0,) * 8, (1.5,) * 22 + (0.1,) * 8, Call.SAME),
    ],
)
def test_each_rule_has_the_threshold_of_its_system(name, base, head, call):
    assert RULE[name](base, head) is call


@given(samples=st.lists(st.floats(1, 2), min_size=1, max_size=5).map(tuple))
def test_the_bootstrap_of_the_median_is_that_of_all_resamples(samples):
    medians = sorted(statistics.median(drawn) for drawn in itertools.product(samples, repeat=len(samples)))
    ends = (math.ceil(share * len(medians) - 1e-9) - 1 for share in (0.025, 0.975))

    assert bootstrap_median(samples) == pytest.approx([medians[max(0, end)] for end in ends])


@pytest.mark.parametrize("n", range(7, 42, 2))
def test_the_bootstrap_of_the_median_is_binomial(n):
    """The median of an odd resample is at most the j-th sample where most of the n draws are."""
    below = [
        sum(math.comb(n, k) * j**k * (n - j) ** (n - k) for k in range(n // 2 + 1, n + 1)) / n**n for j in range(n + 1)
    ]

    expected = tuple(float(next(j for j in range(n + 1) if below[j] >= share)) for share in (0.025, 0.975))

    assert bootstrap_median(tuple(range(n, 0, -1))) == expected


@given(base=side, head=side)
def test_the_effect_size_is_that_of_all_pairs_of_samples(base, head):
    signs = [(h > b) - (h < b) for b in base for h in head]

    assert cliffs_delta(base, head) == pytest.approx(sum(signs) / len(signs))


@pytest.mark.parametrize(
    ("u", "m", "n", "p"), [(2, 5, 5, 8 / 252), (23, 5, 5, 8 / 252), (0, 3, 4, 2 / 35), (6, 3, 4, 1.0)]
)
def test_the_exact_p_counts_orderings(u, m, n, p):
    assert mann_whitney_p(u, m, n) == pytest.approx(p)


# --- with the pairs of ci-perf ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "ratios", "call"),
    [
        ("median, 3 %", (1.0, 1.03, 1.5), Call.SLOWER),
        ("median, 3 %", (1.0, 1.0299, 1.5), Call.SAME),
        ("mean, 3 % (nsys-ai)", (1.0, 1.0, 1.0, 1.13), Call.SLOWER),
        ("mean, 3 % (nsys-ai)", (1.0, 1.0, 1.0, 1.12), Call.SAME),
        ("bootstrap + Cliff's delta", (1.001, 1.001, 1.002), Call.SLOWER),
        ("bootstrap + Cliff's delta", (0.999, 1.001, 1.002), Call.SAME),
        ("bootstrap + Cliff's delta, 3 %", (1.001, 1.03, 1.04), Call.SLOWER),
        ("bootstrap + Cliff's delta, 3 %", (1.001, 1.029, 1.04), Call.SAME),
        # Where all n pairs are slower, p = 2 / 2^n: 0.0039 of 9 pairs, 0.00195 of 10; 0.0625 of 5, 0.031 of 6.
        ("asv continuous", (1.11,) * 10, Call.SLOWER),
        ("asv continuous", (1.11,) * 9, Call.SAME),
        ("asv continuous", (1.09,) * 10, Call.SAME),
        ("benchstat", (1.001,) * 6, Call.SLOWER),
        ("benchstat", (1.001,) * 5, Call.SAME),
    ],
)
def test_each_rule_keeps_its_threshold_in_its_form_for_pairs(name, ratios, call):
    logs = [math.log(ratio) for ratio in ratios]

    assert OF_PAIRS[name](logs) is call
    assert OF_PAIRS[name]([-log for log in logs]) is MIRROR[call]


@given(ratios=st.lists(st.floats(-1, 1).filter(bool), min_size=1, max_size=8, unique_by=abs))
def test_the_p_of_signed_ranks_counts_all_signs(ratios):
    ranks = range(1, len(ratios) + 1)
    ups = itertools.product((0, 1), repeat=len(ranks))
    sums = [sum(rank * up for rank, up in zip(ranks, signs, strict=True)) for signs in ups]
    seen = sum(rank for rank, ratio in enumerate(sorted(ratios, key=abs), 1) if ratio > 0)
    p = 2 * min(sum(s <= seen for s in sums), sum(s >= seen for s in sums)) / len(sums)

    assert signed_rank_p(ratios) == pytest.approx(min(1.0, p))


def test_the_rules_get_the_pairs_that_ci_perf_used_and_no_more():
    quiet = an_audit_case(ratios=(0.0,) * 3 + (0.5,) * 2)  # decided after three pairs
    [found] = flag_recorded([an_audit_session(1, quiet)]).values()

    assert {(f.slower, f.pairs) for f in found.values()} == {(0, 3)}


def flagged(noise, change, name, taken):
    found = flag_drawn([noise], 100, change)[name, taken]
    return found.slower / found.n


def test_without_turns_or_fresh_processes_no_rule_helps():
    for name, taken in ((OWN, Taken.AS_OWN), ("median, 3 %", Taken.TWELVE)):
        assert flagged(wandering(0.001, turns=True), 0.035, name, taken) == 1.0
        assert flagged(wandering(0.001, turns=False), 0.035, name, taken) < 0.8
        assert flagged(KINDS, 0.0, name, taken) < 0.1
        assert flagged(one_process_a_side(KINDS), 0.0, name, taken) > 0.1


def test_with_few_pairs_of_two_kinds_of_processes_the_median_is_wrong_where_ci_perf_is_not():
    assert flagged(KINDS, 0.0, OWN, Taken.AS_OWN) == 0.0
    assert flagged(KINDS, 0.0, "median, 3 %", Taken.THREE) > 0.05


def test_pairs_are_not_drawn_from_too_few(tmp_path):
    file = tmp_path / "audit.jsonl"
    append_session(file, an_audit_session(1))
    shown = compare("--drawn", file)

    assert shown.returncode == 1
    assert shown.stderr == "error: --drawn needs a case with 20 pairs of A/A sessions: `ci-perf audit --ladder 0`\n"


# --- against stored runs ---------------------------------------------------------------------------------------------


def shares(sessions, name, setting):
    return next(rule for rule in judge_by_rules(sessions) if (rule.name, rule.setting) == (name, setting))


def test_a_stored_run_is_the_base_of_every_other_unchanged_session():
    sessions = (
        an_audit_session(1, an_audit_case(base=STEADY, head=STEADY)),
        an_audit_session(2, an_audit_case(base=STEADY, head=times(1.05))),
        an_audit_session(3, an_audit_case(base=times(9), head=times(1.05), planted=0.05), planted=0.05),
    )

    stored = shares(sessions, "median, 3 %", Setting.STORED)
    same_job = shares(sessions, "median, 3 %", Setting.SAME_JOB)

    assert (stored.at(0.0).slower, stored.at(0.0).n) == (1, 2)
    assert (stored.at(0.05).slower, stored.at(0.05).n) == (2, 2)
    assert (same_job.at(0.0).slower, same_job.at(0.0).n) == (1, 2)
    assert (same_job.at(0.05).faster, same_job.at(0.05).n) == (1, 1)


@pytest.mark.parametrize(
    "other",
    [
        an_audit_session(2, device=a_device(name="NVIDIA L4")),
        an_audit_session(2, an_audit_case(method="cuda-events")),
        an_audit_session(2, an_audit_case(case="s256")),
        an_audit_session(2, an_audit_case(base=(), head=())),
    ],
    ids=["device", "method", "case", "no samples"],
)
def test_only_the_same_case_by_the_same_method_on_the_same_device_is_compared(other):
    assert shares((an_audit_session(1), other), "median, 3 %", Setting.STORED).at(0.0).n == 0


def test_a_stored_run_is_compared_with_runs_of_the_same_card_where_the_card_is_known():
    cards = ("a" * 16, "a" * 16, "b" * 16, "", "")
    sessions = tuple(an_audit_session(number, card=card) for number, card in enumerate(cards))

    assert shares(sessions, "median, 3 %", Setting.STORED).at(0.0).n == 4  # both ways: of the first two, the last two
    assert shares(sessions, "median, 3 %", Setting.SAME_JOB).at(0.0).n == 5


def test_of_many_comparisons_the_same_ones_are_selected_each_time():
    sessions = [an_audit_session(n, an_audit_case(head=times(1 + n / 200))) for n in range(20)]

    selected = shares(sessions, "median, 3 %", Setting.STORED)

    assert selected.at(0.0).n == MOST_STORED < 20 * 19
    assert selected == shares(sessions[::-1], "median, 3 %", Setting.STORED)
    assert 100 < selected.at(0.0).slower < 190  # of all 380, 266 are


def drawn(*sessions):
    return render_plot(build_audit(sessions, Policy()), judge_by_rules(sessions))


@pytest.fixture(scope="module")
def picture():
    return drawn(*recorded_sessions())


@pytest.mark.slow
def test_the_picture_is_the_same_each_time_and_legible_on_any_background(audit_file, picture, tmp_path):  # noqa: F811
    again = tmp_path / "again.svg"
    assert compare(audit_file, "--plot", again).returncode == 0
    one, two = picture, again.read_text(encoding="utf-8")

    assert one == two
    assert "date" not in one.lower()
    assert "fill: #ffffff" in one
    assert ET.fromstring(one).tag.endswith("svg")


@pytest.mark.slow
def test_another_audit_gives_another_picture(picture):
    other = drawn(an_audit_session(1))

    assert "<svg" in other
    assert other != picture


def test_without_matplotlib_the_error_names_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(ConfigError, match="matplotlib") as caught:
        drawn(an_audit_session(1))
    assert "pip install 'matplotlib" in caught.value.hint
