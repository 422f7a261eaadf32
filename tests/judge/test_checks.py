"""The verdicts on random cases and on compute-sanitizer, from the outcomes in a run."""

import pytest

from ci_perf.judge.checks import (
    applies,
    check_flags,
    could_not_check,
    defect_line,
    judge_checks,
    left_out,
    summary_of_checks,
)
from ci_perf.values.job import Job
from ci_perf.values.measurement import Failure
from ci_perf.values.reasons import Reason, Verdict
from ci_perf.values.run import Defect, Fuzzed, FuzzFailure, Note, Sanitized
from tests.builders import a_cpu, a_device, a_run, a_spec

WRITE = Defect("Invalid write", "f(int *)", "a.cu:9")
WRONG = Failure("fuzz", "wrong-output", "far off")
DIED = Failure("sanitize", "crashed", "the worker gave no answer")
BROKEN = Note(Reason.MEMORY_ERRORS, "2 uncorrected memory errors")


def fuzzed(**changes):
    return Fuzzed(**{"kernel": "k", "device": "cuda", "target": "launch", "seed": 7, "cases": 3, **changes})


def sanitized(tool="memcheck", **changes):
    return Sanitized("k", "a", "cuda", tool, **changes)


def judged(*outcomes, notes=()):
    of = {
        "fuzzed": tuple(o for o in outcomes if isinstance(o, Fuzzed)),
        "sanitized": tuple(o for o in outcomes if isinstance(o, Sanitized)),
    }
    run = a_run(devices=(a_device(), a_cpu()), notes=notes, **of)
    return [(finding.case, finding.verdict, finding.code, finding.sentence) for finding in judge_checks(run)]


@pytest.mark.parametrize(
    ("smallest", "sentence"),
    [
        (None, "fuzz: far off; with n=9, strides=padded; run it again with `ci-perf run k/fuzz-7-0`"),
        (
            {"n": 1, "strides": "padded"},
            "fuzz: far off; with n=9, strides=padded; also fails with n=1, strides=padded; "
            "run it again with `ci-perf run k/fuzz-7-0`",
        ),
    ],
)
def test_each_random_case_that_failed_is_a_finding(smallest, sentence):
    failures = (FuzzFailure("fuzz-7-0", {"strides": "padded", "n": 9}, WRONG, smallest),)

    assert judged(fuzzed(failures=failures)) == [("fuzz-7-0", Verdict.FAILED, "wrong-output", sentence)]
    assert judged(fuzzed()) == []


@pytest.mark.parametrize(
    ("found", "verdict", "code", "sentence"),
    [
        (
            sanitized(errors=1, defects=(WRITE,)),
            Verdict.FAILED,
            "sanitizer-memcheck",
            "memcheck: 1 error: Invalid write in f(int *) at a.cu:9",
        ),
        (
            sanitized(errors=2),
            Verdict.FAILED,
            "sanitizer-memcheck",
            "memcheck: 2 errors: none of them was printed",
        ),
        (
            sanitized("racecheck", failure=DIED),
            Verdict.FAILED,
            "sanitizer-racecheck",
            "racecheck: the worker gave no answer",
        ),
        (
            sanitized(problem="it refuses the device"),
            Verdict.INCONCLUSIVE,
            "sanitizer-not-checked",
            "memcheck: it refuses the device",
        ),
        (
            sanitized(problem="it refuses the device", failure=DIED),
            Verdict.INCONCLUSIVE,
            "sanitizer-not-checked",
            "memcheck: it refuses the device; the case: the worker gave no answer",
        ),
    ],
    ids=["defect", "not printed", "failure", "problem", "problem and failure"],
)
def test_a_case_under_a_tool_that_failed_or_was_not_checked_is_a_finding(found, verdict, code, sentence):
    assert judged(found) == [("a", verdict, code, sentence)]
    assert could_not_check(a_run(sanitized=(found,))) == bool(found.problem)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (sanitized(failure=DIED), Verdict.EXPECTED_FAILURE),
        (sanitized(errors=1, defects=(WRITE,), failure=DIED), Verdict.FAILED),
        (sanitized(problem="it refuses the device", failure=DIED), Verdict.INCONCLUSIVE),
    ],
    ids=["it dies as listed", "a defect is not listed", "not checked"],
)
def test_under_a_tool_only_the_failure_of_the_case_itself_can_be_expected(found, verdict):
    spec = a_spec("k", cases={"a": {}}, expected_failures={"a": "overflows: issue 12"})
    (finding,) = judge_checks(a_run(devices=(a_device(), a_cpu()), kernels=(spec,), sanitized=(found,)))

    assert finding.verdict == verdict


def test_a_case_under_a_tool_that_passed_is_no_finding():
    assert judged(sanitized()) == []
    assert not could_not_check(a_run(sanitized=(sanitized(),)))


@pytest.mark.parametrize(
    ("defects", "end"),
    [(3, "Invalid write 2"), (4, "Invalid write 2; 1 other place"), (5, "Invalid write 2; 2 other places")],
)
def test_a_sentence_names_three_places_at_most(defects, end):
    found = sanitized(errors=9, defects=tuple(Defect(f"Invalid write {i}") for i in range(defects)))
    ((*_, sentence),) = judged(found)

    assert sentence.startswith("memcheck: 9 errors: Invalid write 0; Invalid write 1; ")
    assert sentence.endswith(end)


@pytest.mark.parametrize(
    ("defect", "line"),
    [
        (Defect("Race"), "Race"),
        (Defect("Race", function="f"), "Race in f"),
        (Defect("Race", place="a.cu:1"), "Race at a.cu:1"),
        (Defect("Race", thread="(1,0,0)", block="(0,0,0)"), "Race by thread (1,0,0) of block (0,0,0)"),
        (Defect("Race", count=2), "Race, 2 times"),
    ],
)
def test_a_defect_is_one_line(defect, line):
    assert defect_line(defect) == line


def test_where_the_memory_of_the_gpu_had_errors_nothing_that_passed_counts():
    failure = FuzzFailure("fuzz-7-0", {}, WRONG)
    broken = ("*", Verdict.INCONCLUSIVE, Reason.MEMORY_ERRORS, BROKEN.message)

    assert judged(fuzzed(), notes=(BROKEN,)) == [broken]
    assert judged(fuzzed(cases=1, failures=(failure,)), notes=(BROKEN,))[0][1] is Verdict.FAILED
    assert judged(fuzzed(cases=2, failures=(failure,)), notes=(BROKEN,))[1] == broken
    assert judged(fuzzed(device="cpu"), notes=(BROKEN,)) == []
    assert judged(sanitized(), notes=(BROKEN,)) == [("a", Verdict.INCONCLUSIVE, Reason.MEMORY_ERRORS, BROKEN.message)]
    assert judged(sanitized(errors=1), notes=(BROKEN,))[0][1] is Verdict.FAILED


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        ({"fuzzed": (fuzzed(cases=1),)}, ["1 random case passed (seed 7)"]),
        ({"fuzzed": (fuzzed(failures=(FuzzFailure("fuzz-7-0", {}, WRONG),)),)}, ["2 random cases passed (seed 7)"]),
        (
            {"fuzzed": (fuzzed(refused=1), fuzzed(seed=8, refused=1), fuzzed(device="cpu"))},
            ["9 random cases passed (seed 7, 8), 2 of them refused"],
        ),
        ({"sanitized": (sanitized(), sanitized(), sanitized("racecheck", errors=1))}, ["memcheck: 2 cases clean"]),
        ({"sanitized": (sanitized(problem="no device"),)}, []),
        ({}, []),
    ],
)
def test_the_summary_counts_what_passed(outcomes, words):
    assert summary_of_checks(a_run(**outcomes)) == words


@pytest.mark.parametrize(
    ("sanitize", "tool", "case", "expected"),
    [
        (None, "synccheck", "small", True),
        ((), "memcheck", "small", False),
        (("memcheck",), "memcheck", "small", True),
        (("memcheck",), "racecheck", "small", False),
        (("racecheck/small*",), "racecheck", "small-2", True),
        (("racecheck/small*",), "racecheck", "large", False),
    ],
)
def test_kernel_toml_says_which_tools_apply_to_a_case(sanitize, tool, case, expected):
    assert applies(Job(a_spec(sanitize=sanitize), case, {}, "cuda"), tool) is expected


def test_excluded_cases_are_a_note_for_each_kernel_and_tool():
    some = a_spec("some", sanitize=("memcheck", "racecheck/a"))
    jobs = [Job(some, "a", {}, "cuda"), Job(some, "b", {}, "cuda"), Job(a_spec("none", sanitize=()), "a", {}, "cuda")]
    messages = [note.message for note in left_out(jobs, ("memcheck", "racecheck"))]

    assert messages == [
        "none: not run under memcheck, which `sanitize` in kernel.toml excludes",
        "some/b: not run under racecheck, which `sanitize` in kernel.toml excludes",
        "none: not run under racecheck, which `sanitize` in kernel.toml excludes",
    ]


@pytest.mark.parametrize(
    ("outcomes", "flags"),
    [
        ({}, ()),
        ({"fuzzed": (fuzzed(cases=3), fuzzed(cases=5))}, ("--fuzz", "5", "--seed", "7")),
        ({"sanitized": (sanitized(), sanitized("racecheck"), sanitized())}, ("--sanitize", "memcheck,racecheck")),
    ],
)
def test_the_flags_that_repeat_the_checks(outcomes, flags):
    assert check_flags(a_run(**outcomes)) == flags
