"""`ci-perf audit --show`: the error rate of the verdicts from recorded sessions."""

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from ci_perf.audit import rates
from ci_perf.audit.file import append_session, dump_session, load_sessions, read_sessions
from ci_perf.audit.measure import card_hash
from ci_perf.audit.rates import Seconds, Seen, build_audit
from ci_perf.audit.render import render_audit_markdown
from ci_perf.audit.session import AuditCase, AuditSession, judge_session, replay
from ci_perf.cli import program
from ci_perf.cli.audit import parse_step
from ci_perf.judge.control import control_doubt
from ci_perf.judge.ratios import log_ratio
from ci_perf.judge.stats import upper_bound
from ci_perf.judge.verdict import judge
from ci_perf.values.errors import ConfigError, FormatError
from ci_perf.values.measurement import Pair
from ci_perf.values.reasons import Verdict
from ci_perf.values.run import Against, Policy
from tests.builders import a_device, a_provenance, a_run, a_toolchain, an_audit_case, an_audit_session
from tests.judge.test_noise import RECORDED, SimulatedGpu
from tests.judge.test_noise import session as simulated_session

STEPS = (0.0, 0.02, 0.035, 0.05)


def recorded_case(kernel, trials, planted):
    """A case made of recorded pairs; a planted slowdown makes each sample of the head longer, as more launches do."""
    pairs = [
        Pair(tuple(a * 1e-6 for a, _ in t), tuple(b * 1e-6 * (1 + planted) for _, b in t), 1000, "cuda-graph")
        for t in trials
    ]
    ratios = tuple(log_ratio(pair) for pair in pairs)
    return AuditCase(kernel, "c", "cuda-graph", 1000, planted, ratios, (1.0,) * 5, pairs[0].base, pairs[0].head)


def recorded_sessions(steps=STEPS):
    """Six sessions for each step, of five pairs recorded on an H100 each."""
    unchanged = RECORDED["unchanged"]
    numbers = itertools.count(1)
    return tuple(
        AuditSession(
            session=f"{next(numbers):04x}",
            provenance=a_provenance(command="ci-perf audit"),
            device=a_device(),
            toolchain=a_toolchain(),
            planted=step,
            seconds=18.5,
            cases=tuple(recorded_case(kernel, unchanged[kernel][i : i + 5], step) for kernel in sorted(unchanged)),
            control_case="copy/c",
            control=recorded_case("copy", unchanged["copy"][25 - i : 30 - i], 0.0).ratios,
        )
        for step in steps
        for i in range(0, 30, 5)
    )


@pytest.fixture(autouse=True)
def rule(monkeypatch):
    """Give today's rule a hash that stays."""
    monkeypatch.setattr(rates, "rule_hash", lambda: "0123456789ab")


@pytest.fixture
def audit_file(tmp_path):
    path = tmp_path / "audit.jsonl"
    for session in recorded_sessions():
        append_session(path, session)
    return path


def run(*arguments):
    return CliRunner().invoke(program, ["audit", *map(str, arguments)])


def report_of(*sessions):
    return build_audit(sessions, Policy())


# The file


def test_a_session_is_one_line_that_is_read_back_equal(golden):
    case = an_audit_case(clocks=(1.0, None, 1.0, 0.99, 1.0))
    session = an_audit_session(1, case, AuditCase("gone", "s", "", 0, 0.0, failure="raised: no\nmore"))
    line = dump_session(session)

    golden("audit-line.json", line)
    assert line.count("\n") == 1
    assert load_sessions(line, "a.jsonl") == ((session,), ())


def test_a_value_that_the_format_forbids_is_refused_before_it_is_written(tmp_path):
    for broken in (an_audit_case(ratios=(math.nan,)), an_audit_case(kernel="a b")):
        with pytest.raises(FormatError, match="session 0001"):
            append_session(tmp_path / "a.jsonl", an_audit_session(1, broken))
    assert not (tmp_path / "a.jsonl").exists()


@pytest.mark.slow
def test_a_line_cut_off_anywhere_costs_only_its_own_session():
    first, second, third = (an_audit_session(n) for n in (1, 2, 3))
    whole, cut, after = (dump_session(s) for s in (first, second, third))

    warning = "the line is incomplete (writing was interrupted): it is ignored"
    for end in range(1, len(cut) - 1):
        assert load_sessions(cut[:end], "a.jsonl") == ((), (f"a.jsonl:1: {warning}",))
    assert load_sessions(whole + cut[:99], "a.jsonl") == ((first,), (f"a.jsonl:2: {warning}",))
    assert load_sessions(whole + cut[:99] + "\n" + after, "a.jsonl")[0] == (first, third)


def test_a_session_appended_after_a_cut_off_line_starts_a_new_line(tmp_path):
    path = tmp_path / "folder" / "a.jsonl"
    append_session(path, an_audit_session(1))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:100])
    append_session(path, an_audit_session(2))
    append_session(path, an_audit_session(3))

    sessions, warnings = read_sessions([path])

    assert [s.session for s in sessions] == ["0001", "0002", "0003"]
    assert len(warnings) == 1
    assert path.read_bytes().startswith(whole + whole[:100] + b"\n{")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('"planted":0.0,"provenance"', '"planted":"none","provenance"', r"a.jsonl:2: key `planted`: 'none' is not"),
        ('"launches":1000', '"launches":-1', r"a.jsonl:2: key `cases\[0\].launches`"),
        ('"seconds":4.5', '"minutes":4.5', r"a.jsonl:2: .*`minutes`|a.jsonl:2: `seconds` is missing"),
        ("ci-perf/audit-1", "ci-perf/audit-2", "a.jsonl:2: key `schema`: format 2 of the audit file"),
        ('"planted":0.0', '"planted":NaN', r"a.jsonl:2: not JSON: NaN"),
        ('{"card"', "card", "a.jsonl:2: not JSON"),
        ('"control":[', '"control":[,', "a.jsonl:2: not JSON"),
    ],
)
def test_an_invalid_line_is_an_error_with_file_line_and_key(old, new, complaint):
    line = dump_session(an_audit_session(2))
    assert old in line

    with pytest.raises(FormatError, match=complaint):
        load_sessions(dump_session(an_audit_session(1)) + line.replace(old, new), "a.jsonl")


def test_a_session_in_two_files_counts_once_and_may_not_differ(tmp_path):
    first, second = an_audit_session(1), an_audit_session(2)
    one, other, edited = (tmp_path / name for name in ("one.jsonl", "other.jsonl", "edited.jsonl"))
    for path, session in ((one, first), (other, second), (other, first), (edited, replace(first, seconds=5.0))):
        append_session(path, session)

    assert read_sessions([one, other])[0] == (first, second)
    with pytest.raises(FormatError, match=r"edited.jsonl: session 0001 is recorded twice"):
        read_sessions([one, edited])


# The verdicts


@pytest.mark.parametrize(
    "gpu",
    [{}, {"sd": 0.01, "true": 1.03}, {"true": 1.05}, {"true": 0.85}, {"bias": 0.05}, {"true": 1.05, "throttle": 0.95}],
    ids=["quiet", "near", "slower", "faster", "control", "clock"],
)
def test_a_replayed_session_has_the_verdicts_that_the_run_had(gpu):
    for seed in range(3):
        finished = simulated_session(SimulatedGpu(seed, **gpu))
        cases = tuple(
            AuditCase(
                m.kernel,
                m.case,
                "cuda-graph",
                100,
                0.0,
                tuple(log_ratio(pair) for pair in m.pairs),
                tuple(pair.clocks for pair in m.pairs),
            )
            for m in finished.measurements
        )
        control = tuple(log_ratio(pair) for pair in finished.against.control)
        session = an_audit_session(1, *cases, control_case=finished.against.control_case, control=control)

        replayed = {
            (found.case.id, found.outcome.code, found.outcome.change) for found in judge_session(session, Policy())
        }

        assert replayed == {(finding.id, finding.code, finding.change) for finding in judge(finished)}


def test_a_rule_decides_at_the_first_look_that_is_clear_and_uses_no_later_pair():
    clear, moved = (0.05, 0.051, 0.049, 0.0505, 0.0495), (0.0,) * 7

    outcome, pairs, _ = replay(clear + moved, (1.0,) * 12, Policy(), comparisons=1)

    assert (outcome.verdict, pairs) == (Verdict.REGRESSION, 5)
    assert replay(moved + clear, (1.0,) * 12, Policy(), comparisons=1)[0].verdict is Verdict.UNCHANGED


def test_a_rule_looks_at_twenty_four_pairs_at_most():
    restless = (0.2, -0.2, 0.1, -0.1, 0.0) * 6

    outcome, pairs, cut_short = replay(restless, (1.0,) * 30, Policy(), comparisons=1)

    assert (outcome.code, pairs, cut_short) == ("interval-too-wide", 24, False)


def test_a_record_that_ends_before_the_rule_decides_is_counted():
    undecided = an_audit_case(ratios=(0.2, -0.2, 0.1, -0.1, 0.0, 0.1))
    report = report_of(an_audit_session(1, undecided, an_audit_case()), an_audit_session(2, undecided, planted=0.05))

    assert report.cut_short == (1, 1)
    assert [report.point(step).cut_short for step in (0.0, 0.05)] == [1, 1]
    assert report.unchanged.inconclusive_codes == {"interval-too-wide": 1}


def test_only_the_clocks_up_to_the_deciding_look_count():
    slower = (0.05, 0.051, 0.049, 0.0505, 0.0495) * 2

    for clocks, code in (((0.95,) * 5 + (1.0,) * 5, "slower-clock"), ((1.0,) * 5 + (0.95,) * 5, "slower")):
        outcome, pairs, _ = replay(slower, clocks, Policy(), comparisons=1)
        assert (outcome.code, pairs) == (code, 5)


def test_swapped_sides_swap_clocks_and_control_too():
    session = an_audit_session(1, an_audit_case(true=0.8, clocks=(1.25,) * 5), control=(0.002, 0.001))
    swapped = session.swapped

    assert swapped.control == (-0.002, -0.001)
    assert swapped.swapped == session
    codes = [found.outcome.code for side in (session, swapped) for found in judge_session(side, Policy())]
    assert codes == ["faster-clock", "slower-clock"]


@pytest.mark.parametrize(
    ("seconds", "name"),
    [(1.9e-6, "< 2 us"), (2e-6, "2-20 us"), (19e-6, "2-20 us"), (20e-6, ">= 20 us"), (9.0, ">= 20 us")],
)
def test_the_duration_class_is_that_of_the_median_sample_of_the_base(seconds, name):
    assert an_audit_case(base=(0.0, seconds, 99.0), head=(1.0,)).duration_class == name


@pytest.mark.slow
def test_more_cases_in_a_session_need_more_certainty():
    near = an_audit_case(ratios=(0.031, 0.039, 0.035, 0.032, 0.038))

    alone = judge_session(an_audit_session(1, near), Policy())
    among = judge_session(an_audit_session(1, *(replace(near, case=f"c{i}") for i in range(3000))), Policy())

    assert alone[0].outcome.verdict is Verdict.REGRESSION
    assert among[0].outcome.verdict is Verdict.INCONCLUSIVE


def test_a_clock_known_for_half_of_the_pairs_explains_a_change():
    known, unknown = (0.95,) * 3, (None,) * 2

    for clocks, code in (
        ((*known, *unknown), "slower-clock"),
        ((*known[:2], *unknown, None), "slower"),
        ((), "slower"),
    ):
        (found,) = judge_session(an_audit_session(1, an_audit_case(true=1.05, clocks=clocks)), Policy())
        assert found.outcome.code == code


def test_a_session_whose_control_moved_is_inconclusive_as_a_whole():
    session = an_audit_session(1, an_audit_case(true=1.05), an_audit_case("copy"), control=(0.05, 0.051, 0.049, 0.05))

    assert {found.outcome.code for found in judge_session(session, Policy())} == {"control-moved"}


@pytest.mark.parametrize(
    ("control", "case", "code"),
    [
        ((), "copy/c", "no-control"),
        ((0.0,), "copy/c", "no-control"),
        ((0.0, 0.0, 0.0), "copy/c", "no-control"),
        ((0.0, 0.0, 0.0, 0.0), "copy/c", "slower"),
        ((), "", "slower"),
    ],
)
def test_a_session_with_too_few_pairs_of_the_control_is_judged_as_the_run_was(control, case, code):
    session = an_audit_session(1, an_audit_case(true=1.05), control=control, control_case=case)
    pairs = tuple(Pair((1.0,), (1.0,), 1, "cuda-graph") for _ in control)
    against = Against("HEAD~1", "0" * 40, control_case=case, control=pairs)

    assert [found.outcome.code for found in judge_session(session, Policy())] == [code]
    assert bool(control_doubt(a_run(), against)) == (code == "no-control")


# The figures


def test_recorded_sessions_show_no_false_alarm_and_flag_what_was_planted():
    report = report_of(*recorded_sessions())

    assert (report.unchanged.verdicts, report.unchanged.regression, report.unchanged.speedup) == (24, 0, 0)
    assert (report.swapped.verdicts, report.swapped.regression, report.swapped.speedup) == (24, 0, 0)
    assert report.point(0.035, ">= 20 us").counts.regression == 18
    assert report.point(0.02).counts.regression == 0
    assert {s.case: s.duration_class for s in report.spreads}["small/c"] == "2-20 us"
    assert report.worst("2-20 us").sd < 0.01
    assert report.worst(">= 20 us").sd < 0.0035


def test_alarms_are_counted_by_verdict_and_by_session_on_both_sides():
    report = report_of(
        an_audit_session(1, an_audit_case("a", true=1.05), an_audit_case("b", true=1.05)),
        an_audit_session(2, an_audit_case("a"), an_audit_case("b", true=0.8)),
        an_audit_session(3),
        an_audit_session(4, planted=0.05),
    )

    assert (report.unchanged.regression, report.unchanged.speedup, report.unchanged.unchanged) == (2, 1, 2)
    assert (report.alarmed_sessions, report.unchanged_sessions) == (2, 3)
    assert (report.swapped.regression, report.swapped.speedup) == (
        1,
        0,
    )  # 20 % faster is 25 % slower; 5 % slower is no speedup
    assert report.unchanged.alarm_bound == pytest.approx(upper_bound(3, 5))


def test_the_bounds_count_the_steps_beyond_and_below_the_threshold():
    steps = (0.0, 0.0, 0.02, 0.03, 0.05, 0.1)
    report = report_of(*(an_audit_session(n, planted=step) for n, step in enumerate(steps)))

    assert report.missed_bound == pytest.approx(upper_bound(0, 2))  # 5 and 10 %; 3 % itself may be either
    assert report.early_bound == pytest.approx(upper_bound(0, 1))
    assert report.session_bound == pytest.approx(upper_bound(0, 2))
    assert report_of(an_audit_session(1)).missed_bound is None


def test_the_base_against_itself_is_judged_like_a_case_in_every_session_that_has_it():
    sessions = (
        an_audit_session(1),
        an_audit_session(2, planted=0.05),
        replace(an_audit_session(3), control=(0.05, 0.051, 0.049, 0.05, 0.052)),
        replace(an_audit_session(4), control=(), control_case=""),
    )
    counts = report_of(*sessions).controls

    assert (counts.verdicts, counts.regression, counts.speedup, counts.unchanged) == (3, 1, 0, 2)


def test_the_scatter_of_a_case_is_that_of_its_reported_ratios():
    report = report_of(*(an_audit_session(n, an_audit_case(true=true)) for n, true in enumerate((1.01, 1.0, 1.02))))

    (spread,) = report.spreads
    assert spread.bias == pytest.approx(0.01, abs=3e-4)
    assert spread.sd == pytest.approx(0.01, abs=3e-4)
    assert (spread.positive, spread.sessions) == (2, 3)


def test_the_wall_time_is_that_of_unchanged_sessions_over_all_their_cases():
    failed = AuditCase("b", "s", "", 0, 0.0, failure="raised: no")
    sessions = an_audit_session(1, an_audit_case(), failed, seconds=6.0), an_audit_session(2, seconds=4.0)
    report = report_of(*sessions, an_audit_session(3, an_audit_case(planted=0.02), planted=0.02, seconds=9.0))

    assert report.seconds_per_case == Seconds(3.0, 3.5, 4.0)
    assert report.failed == 1
    assert report.unchanged.verdicts == 2


def test_a_step_counts_as_seen_only_if_every_larger_one_is():
    def at(number, step, true):
        return an_audit_session(number, an_audit_case(true=true, planted=step), planted=step)

    seen = [at(1, 0.035, 1.035), at(2, 0.05, 1.05)]

    assert report_of(*seen).seen_from() == Seen(0.035, 2, 2)
    assert report_of(*seen, at(3, 0.1, 1.0)).seen_from() is None
    assert report_of(at(1, 0.02, 1.02), at(2, 0.05, 1.05)).seen_from() == Seen(0.05, 1, 1)


@pytest.mark.parametrize(("missed", "seen"), [(1, Seen(0.05, 99, 100)), (2, None)])
def test_seen_is_what_is_flagged_in_99_of_100_cases(missed, seen):
    trues = (1.0,) * missed + (1.05,) * (100 - missed)
    cases = (
        an_audit_case(case=f"c{i}", true=true, planted=0.05, ratios=(math.log(true),) * 8, clocks=(1.0,) * 8)
        for i, true in enumerate(trues)
    )

    assert report_of(an_audit_session(1, *cases, planted=0.05)).seen_from() == seen


def test_the_curve_says_what_was_really_planted():
    cases = (an_audit_case("a", planted=0.035, true=1.035), an_audit_case("b", planted=0.036, true=1.036))

    planted = report_of(an_audit_session(1, *cases, planted=0.035)).point(0.035).planted

    assert planted == pytest.approx((0.035, 0.0355, 0.036))


# Upper limits of Clopper and Pearson, one-sided 95 %; of no events 1 - 0.05^(1/n).
@pytest.mark.parametrize(
    ("events", "trials", "bound"),
    [(0, 10, 0.2589), (0, 60, 0.0487), (1, 10, 0.3942), (0, 500, 0.00597), (5, 5, 1.0), (0, 1, 0.95)],
)
def test_the_bound_of_a_rate_is_that_of_clopper_and_pearson(events, trials, bound):
    assert upper_bound(events, trials) == pytest.approx(bound, abs=6e-5)


@given(trials=st.integers(1, 60), data=st.data())
def test_at_the_bound_so_few_events_have_a_probability_of_five_percent(trials, data):
    events = data.draw(st.integers(0, trials - 1))
    p = Fraction(upper_bound(events, trials))

    seen = sum(math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(events + 1))

    assert float(seen) == pytest.approx(0.05, rel=1e-6)


@pytest.mark.parametrize(
    ("cards", "kind", "said", "known", "unknown"),
    [
        (("a" * 16, "a" * 16), "cuda", "; 1 card; 2 A/A", 1, 0),
        (("a" * 16, "b" * 16, ""), "cuda", "; 2 cards, not recorded in 1 session; 3 A/A", 2, 1),
        (("", ""), "cuda", "; cards not recorded; 2 A/A", 0, 2),
        (("", ""), "cpu", "driver 580.159.03; 2 A/A", 0, 0),
    ],
)
def test_the_audit_lists_the_number_of_cards(tmp_path, cards, kind, said, known, unknown):
    path = tmp_path / "audit.jsonl"
    for number, card in enumerate(cards):
        append_session(path, an_audit_session(number, card=card, device=a_device(kind=kind)))

    assert said in run("--show", path, "--markdown").stdout
    document = json.loads(run("--show", path, "--json").stdout)
    assert (document["cards"], document["sessions_without_card"]) == (known, unknown)


def test_a_line_from_before_cards_were_recorded_is_read():
    line = dump_session(an_audit_session(1)).replace('"card":"",', "")

    assert "card" not in line
    assert load_sessions(line, "a.jsonl") == ((an_audit_session(1),), ())


def test_the_hash_of_a_card_differs_from_others_and_hides_its_uuid():
    one, other = (card_hash(f"GPU-{digit}7a5b5ea-0000-4b1c-8a55-0123456789ab") for digit in "01")

    assert one != other
    assert "7a5b5ea" not in one
    assert card_hash(None) == ""
    assert dump_session(an_audit_session(1, card=one))


# The command


@pytest.mark.parametrize(
    ("text", "step"), [("0", 0.0), ("0%", 0.0), ("1%", 0.01), ("0.01", 0.01), ("3.5%", 0.035), ("150%", 1.5)]
)
def test_a_step_of_the_ladder_is_a_percentage_or_a_fraction(text, step):
    assert parse_step(text) == step


@pytest.mark.parametrize("text", ["0.99%", "0.0099", "-1%", "1", "nan", "many"])
def test_a_step_that_cannot_be_planted_is_a_usage_error(text):
    with pytest.raises(ConfigError, match="--ladder"):
        parse_step(text)


# What people see


def test_another_threshold_judges_all_cases_by_it_and_is_named(audit_file):
    document = json.loads(run("--show", audit_file, "--threshold", "1.5%", "--json").stdout)
    flagged = {p["step"]: p["regression"] for p in document["curve"] if p["duration_class"] == ">= 20 us"}

    assert document["threshold"] == 0.015
    assert flagged == {0.0: 0, 0.02: 18, 0.035: 18, 0.05: 18}
    assert "threshold 1.5 %" in run("--show", audit_file, "--threshold", "1.5%", "--markdown").stdout
    assert run("--show", audit_file, "--threshold", "0").exit_code == 2


def test_only_sessions_recorded_after_the_rule_count_as_later_ones():
    late = {"rule": "0123456789ab"}
    sessions = [
        an_audit_session(1),
        an_audit_session(2, **late, checked_out=True),
        an_audit_session(3, an_audit_case(true=1.1), **late),
        an_audit_session(4, planted=0.1, **late),
        an_audit_session(5, planted=0.1, rule="ffffffffffff"),
    ]
    later = build_audit(sessions, Policy()).later

    assert (later.sessions, later.alarmed, later.checked_out) == (2, 1, 1)
    assert (later.counts.regression, later.counts.unchanged) == (1, 1)
    assert later.steps == {0.1: (1, 1)}
    assert later.session_bound == upper_bound(1, 2, 0.95)


def test_the_tables_of_recorded_sessions(audit_file, golden):
    shown = run("--show", audit_file, "--markdown")

    assert shown.exit_code == 0
    golden("audit.md", shown.stdout)


def test_the_terminal_and_json_say_the_same(audit_file):
    text, document = run("--show", audit_file), json.loads(run("--show", audit_file, "--json").stdout)

    assert text.exit_code == 0
    assert "0 REGRESSION, 0 SPEEDUP" in text.stdout
    assert document["unchanged"]["verdicts"] == 24
    assert [point["regression"] for point in document["curve"] if point["duration_class"] == ">= 20 us"][2:] == [18, 18]


def test_several_files_are_shown_together(audit_file, tmp_path):
    append_session(tmp_path / "b.jsonl", an_audit_session(0xABC))

    shown = json.loads(run("--show", audit_file, tmp_path / "b.jsonl", audit_file, "--json").stdout)

    assert shown["sessions"] == 25


def test_a_line_that_was_cut_off_is_a_warning_on_stderr(audit_file):
    audit_file.write_bytes(audit_file.read_bytes()[:-50])

    shown = run("--show", audit_file)

    assert shown.exit_code == 0
    assert "audit.jsonl:24: the line is incomplete" in shown.stderr


def test_names_cannot_break_a_table():
    text = render_audit_markdown(
        report_of(an_audit_session(1, an_audit_case(case="a|b<img>@you\n"), device=a_device(name="<b>")))
    )

    assert "a|b" not in text
    assert "<img" not in text
    assert "<b>" not in text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--show"], "--show needs at least one audit file"),
        (["--show", "missing.jsonl"], "missing.jsonl: there is no such audit file"),
        (["--show", "{empty}"], "the audit holds no session"),
        (["--show", "{folder}"], "cannot be read"),
        (["--show", "{text}"], "other.txt:1: not JSON"),
    ],
)
def test_what_cannot_be_shown_is_a_usage_error(arguments, complaint, tmp_path):
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "other.txt").write_text("a report\n")
    places = {"empty": tmp_path / "empty.jsonl", "folder": tmp_path, "text": tmp_path / "other.txt"}

    shown = run(*(argument.format(**places) for argument in arguments))

    assert shown.exit_code == 2
    assert complaint in shown.stderr
