"""A run as JUnit XML, for test viewers: a red row fails, an undecided row is skipped with its reason.

A gate that was not measured is written to the output of its case, because it is not a pass.
"""

from xml.etree import ElementTree

from ci_perf.judge.report import Report
from ci_perf.render import cells
from ci_perf.values.escape import clean
from ci_perf.values.reasons import Verdict


def render_junit(report: Report) -> str:
    """Return one test suite; the time of a case is its median launch, if times were measured."""
    undecided = (Verdict.INCONCLUSIVE, Verdict.NOT_COMPARABLE, Verdict.NEW, Verdict.EXPECTED_FAILURE)
    failures = sum(row.red for row in report.rows)
    skipped = sum(not row.red and row.finding.verdict in undecided for row in report.rows)
    suite = ElementTree.Element(
        "testsuite", name="ci-perf", tests=str(len(report.rows)), failures=str(failures), skipped=str(skipped)
    )
    for row in report.rows:
        name = f"{row.finding.case} [{row.finding.device}]"
        case = ElementTree.SubElement(suite, "testcase", classname=clean(row.finding.kernel), name=clean(name))
        if row.finding.head is not None and row.finding.unit == "s":
            case.set("time", f"{row.finding.head:.9f}")
        broken, unmeasured = (
            [f"gate: {cells.gate(gate)}" for gate in gates]
            for gates in (row.finding.broken_gates, row.finding.unmeasured_gates)
        )
        why = "; ".join([f"{row.finding.verdict} {cells.why(row)}", *broken, *(unmeasured if row.red else ())])
        message = clean(why, 1000)
        if row.red:
            ElementTree.SubElement(case, "failure", type=str(row.finding.verdict), message=message)
        elif row.finding.verdict in undecided:
            ElementTree.SubElement(case, "skipped", message=message)
        if unmeasured:
            ElementTree.SubElement(case, "system-out").text = clean("; ".join(unmeasured), 1000)
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"
