"""Every reason code of the package is a `Reason`, and says what it means."""

import ast
import itertools
import re
from pathlib import Path

import pytest

import ci_perf
from ci_perf.values.reasons import Reason

PACKAGE = Path(ci_perf.__file__).parent
CODES = {reason.value for reason in Reason}
PLACES = {"Note": 0, "Failure": 1, "ProgramFailed": 0, "NoNumber": 0, "Wrong": 0}
"""The calls that take a code, and at which place."""
TOOLS = ("nsys", "ncu")


def literals(node):
    """Return the texts that an expression can have, of a tool's name all; None where it is not a literal."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else None
    if isinstance(node, ast.IfExp):
        return [text for branch in (node.body, node.orelse) for text in literals(branch) or ()]
    if isinstance(node, ast.JoinedStr):
        parts = [[part.value] if isinstance(part, ast.Constant) else holes(part.value) for part in node.values]
        return None if None in parts else ["".join(chosen) for chosen in itertools.product(*parts)]
    return None


def holes(node):
    name = ast.unparse(node)
    return TOOLS if name in {"tool", "self.tool"} else None


def codes_in(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            place = PLACES.get(name)
            if place is not None and len(node.args) > place:
                yield from literals(node.args[place]) or ()
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "code":
                    yield from literals(value) or ()


def symptoms(tool):
    tree = ast.parse((PACKAGE / "traces" / tool / "tool.py").read_text(encoding="utf-8"))
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Symptom")
    return {f"{tool}-{call.args[0].value}" for call in calls}


def test_no_reason_code_is_written_outside_of_the_enum():
    found = {code: path.name for path in PACKAGE.rglob("*.py") for code in codes_in(path)}

    assert len(found) > 40
    assert {code: name for code, name in found.items() if code not in CODES} == {}


@pytest.mark.parametrize("tool", TOOLS)
def test_each_complaint_of_a_profiler_has_a_reason(tool):
    assert len(symptoms(tool)) > 4
    assert symptoms(tool) - CODES == set()


def test_each_reason_says_in_one_line_what_it_means():
    for reason in Reason:
        assert re.fullmatch(r"[a-z][a-zK-]+", reason.value)
        assert re.fullmatch(r"[^\n|]{10,90}", reason.meaning), reason
        assert all("\n" not in step and (not step or step.endswith(".")) for step in reason.steps), reason


@pytest.mark.parametrize(
    ("codes", "step"),
    [
        (("nsys-warning", "ncu-warning", "nsys-case-failed", "ncu-case-failed", "unreadable-run"), "See the note"),
        (("nsys-no-range", "ncu-no-range", "torch-no-range"), "Check that the case starts GPU kernels"),
        (("bad-values", "no-values"), "A time is missing or is not a positive number"),
        (("slower-clock", "faster-clock", "slower-uneven-clock", "faster-uneven-clock"), "The SM clocks"),
        (("wrong-output", "raised", "crashed"), "Fix the failed kernels first"),
        (("device-taken",), "Stop the process"),
        (("not-started",), "Correct the command"),
        (("skipped",), "Remove the case"),
        (("same-code",), "Let each side load its own tree"),
        (("profiler", "nsys-failed"), "See the log of the tool"),
        (("other-device", "other-driver", "other-unit"), "This case was not compared"),
    ],
)
def test_the_next_step_is_the_remedy_for_this_cause(codes, step):
    assert {code: Reason(code).steps[0].startswith(step) for code in codes} == dict.fromkeys(codes, True)


def test_a_code_of_another_version_is_read_and_said_to_be_unknown():
    reason = Reason.of("from-the-future")

    assert (reason, reason.meaning) == ("from-the-future", "a reason that this version of ci-perf does not know")
    assert Reason.of("slower") is Reason.SLOWER
