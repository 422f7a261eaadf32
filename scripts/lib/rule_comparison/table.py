"""The shares that each rule flags, as tables."""

from collections.abc import Mapping, Sequence

from ci_perf.audit.rates import AuditReport
from ci_perf.audit.render import NOTHING, step_name
from ci_perf.render.tables import table
from ci_perf.values.quantity import percent
from lib.rule_comparison.pair_rules import PAIR_RULES
from lib.rule_comparison.same_pairs import OWN, Flagged, Flags, Taken, share
from lib.rule_comparison.shares import RuleShares

NOTE = (
    "Share flagged as slower. ci-perf judges the pairs of a session until it decides. Of the other rules, those on the "
    "same pairs judge these pairs, in their form for ratios; the rest judge the samples of the first pair, or of the "
    "first pairs of two sessions."
)
ONE_PROCESS = "1"


def render_table(report: AuditReport, rules: tuple[RuleShares, ...], pairs: Mapping[float, Flags]) -> str:
    """Return a Markdown table of the share that ci-perf and each other rule flag at each planted step."""
    steps = (0.0, *report.steps)
    points = [report.point(step) for step in steps]
    used = _mean_pairs(pairs.get(0.0, {}).get((PAIR_RULES[0].name, Taken.AS_OWN), Flagged()))
    own = [percent(point.flagged) if point else NOTHING for point in points]
    lines = [[OWN, "same job", str(report.unchanged.verdicts), used, *own]]
    for rule in rules:
        shares = [rule.at(step) for step in steps]
        if any(share.n for share in shares):
            flagged = [percent(share.fraction) if share.n else NOTHING for share in shares]
            lines.append([rule.name, rule.setting, str(shares[0].n), ONE_PROCESS, *flagged])
    for name in (rule.name for rule in PAIR_RULES):
        found = [pairs.get(step, {}).get((name, Taken.AS_OWN), Flagged()) for step in steps]
        lines.append([name, "same pairs", str(found[0].n), used, *map(_share, found)])
    header = ("rule", "base from", "A/A comparisons", "pairs, A/A", *map(step_name, steps))
    return f"{table(header, lines, header[1:])}\n\n{NOTE}\n"


def render_drawn(drawn: Mapping[float, Flags], unchanged: Mapping[str, Flags], changed: Mapping[str, Flags]) -> str:
    """Return two tables for each number of pairs that the other rules get: on drawn pairs, and on simulated ones.

    `drawn` is by the planted step; `unchanged` and `changed` are by the noise.
    """
    return "\n".join(
        f"Pairs of the other rules: {taken}. Drawn from the pairs of unchanged code, by what is planted:\n\n"
        f"{_by_step(drawn, taken)}\n\nSimulated, unchanged code / 3.5 % slower:\n\n"
        f"{_by_noise(unchanged, changed, taken)}\n"
        for taken in Taken
    )


def _by_step(drawn: Mapping[float, Flags], taken: Taken) -> str:
    lines = []
    for name, key in _rows(taken):
        found = [flags[key] for flags in drawn.values()]
        lines.append([name, *(_mean_pairs(drawn[step][key]) for step in (0.0, 0.035)), *map(_share, found)])
    header = ("rule", "pairs, A/A", "pairs, 3.5 %", *map(step_name, drawn))
    return table(header, lines, header[1:])


def _by_noise(unchanged: Mapping[str, Flags], changed: Mapping[str, Flags], taken: Taken) -> str:
    lines = [
        [name, *(f"{_share(unchanged[noise][key])} / {_share(changed[noise][key])}" for noise in unchanged)]
        for name, key in _rows(taken)
    ]
    header = ("rule", *unchanged)
    return table(header, lines, header[1:])


def _rows(taken: Taken) -> Sequence[tuple[str, tuple[str, Taken]]]:
    """Return the names of the rows, and the keys of what they show."""
    own = [(OWN, (OWN, Taken.AS_OWN))]
    if taken is Taken.TWELVE:
        own.append((f"{OWN}, 12 at most", (OWN, taken)))
    return [*own, *((rule.name, (rule.name, taken)) for rule in PAIR_RULES)]


def _share(found: Flagged) -> str:
    return percent(share(found)) if found.n else NOTHING


def _mean_pairs(found: Flagged) -> str:
    return f"{found.pairs / found.n:.1f}" if found.n else NOTHING
