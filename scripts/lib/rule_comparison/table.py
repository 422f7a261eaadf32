"""The shares that each rule flags, as a table."""

from ci_perf.audit.rates import AuditReport
from ci_perf.audit.render import NOTHING, step_name
from ci_perf.render.tables import table
from ci_perf.values.quantity import percent
from lib.rule_comparison.shares import RuleShares

NOTE = (
    "Share flagged as slower. ci-perf judges all pairs of a session; every other rule the samples of its first "
    "pair, or of the first pairs of two sessions."
)


def render_table(report: AuditReport, rules: tuple[RuleShares, ...]) -> str:
    """Return a Markdown table of the share that ci-perf and each other rule flag at each planted step."""
    steps = (0.0, *report.steps)
    points = [report.point(step) for step in steps]
    own = [percent(point.flagged) if point else NOTHING for point in points]
    lines = [["ci-perf", "same job", str(report.unchanged.verdicts), *own]]
    for rule in rules:
        shares = [rule.at(step) for step in steps]
        if any(share.n for share in shares):
            flagged = [percent(share.fraction) if share.n else NOTHING for share in shares]
            lines.append([rule.name, rule.setting, str(shares[0].n), *flagged])
    header = ("rule", "base from", "A/A comparisons", *map(step_name, steps))
    return f"{table(header, lines, header[1:])}\n\n{NOTE}\n"
