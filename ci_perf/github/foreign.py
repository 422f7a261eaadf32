"""Checks and judges a run that untrusted code measured, such as that of a fork.

A fork can forge its measurements; nothing here can prevent that, and the comment says so. What is ensured: the file
belongs to this commit of this repository, no number in it breaks the arithmetic, and thresholds, gates and baselines
are those of the base repository.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ci_perf.github.event import Event
from ci_perf.judge.report import Report, build_report
from ci_perf.values.baseline import Baseline
from ci_perf.values.errors import FormatError
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.run import Policy, Run
from ci_perf.values.schema import key_path

LARGEST = 1e21
SMALLEST = 1e-18
"""No time in seconds, number of bytes or operations, or clock rate is outside of these two."""
LONGEST_TEXT = 100_000
MOST_CASES = 10_000
MOST_PROCESSES = 200
"""Of a case: the time of exact intervals grows with the square of the number of processes."""


def check_run(run: Run, document: object, event: Event, source: str) -> None:
    """Refuse a run of another repository or commit, and one with absurd numbers (FormatError).

    `document` is the JSON that the run was read from.
    """
    at = run.provenance
    if (at.repository or "").lower() != event.repository.lower():
        raise FormatError(
            f"{source}: key `provenance.repository`: measured for {at.repository or 'no repository that it names'}, "
            f"this is {event.repository}",
            hint="a run from another repository is not published here",
        )
    if at.head != event.head_sha:
        raise FormatError(
            f"{source}: key `provenance.head`: measured for commit {at.head or 'unknown'}, "
            f"the workflow run was about {event.head_sha}",
            hint="take the artifact of the workflow run that the event names",
        )
    _check_sizes(run, source)
    _check_values(document, [], source)


def judge_foreign(
    run: Run, policy: Policy, specs: Mapping[str, KernelSpec], baselines: Sequence[Baseline], source: str
) -> Report:
    """Judge a run by the rules of the base repository.

    `specs` and `baselines` are the base repository's. Baselines in the run are ignored; gates in the run are used only
    for kernels that the base repository does not have.
    """
    kernels = tuple(_by_own_rules(spec, specs.get(spec.name)) for spec in run.kernels)
    try:
        return build_report(replace(run, policy=policy, kernels=kernels, baselines=tuple(baselines)))
    except (ArithmeticError, LookupError, ValueError) as error:
        raise FormatError(f"{source}: the numbers of this run cannot be judged: {error}") from None


def _by_own_rules(brought: KernelSpec, own: KernelSpec | None) -> KernelSpec:
    if own is None:
        return replace(brought, regression=None, speedup=None, expected_failures={})
    return replace(
        brought,
        regression=own.regression,
        speedup=own.speedup,
        gates=own.gates,
        expected_failures=own.expected_failures,
    )


def _check_sizes(run: Run, source: str) -> None:
    if len(run.measurements) > MOST_CASES:
        raise FormatError(f"{source}: key `measurements`: {len(run.measurements)} of at most {MOST_CASES}")
    for i, measurement in enumerate(run.measurements):
        processes = len(measurement.replicates) + len(measurement.pairs)
        if processes > MOST_PROCESSES:
            raise FormatError(f"{source}: key `measurements[{i}]`: {processes} processes of at most {MOST_PROCESSES}")


def _check_values(node: object, keys: list[str | int], source: str) -> None:
    match node:
        case bool():
            return
        case str() if len(node) > LONGEST_TEXT:
            raise FormatError(f"{source}: key `{key_path(keys)}`: {len(node)} characters of at most {LONGEST_TEXT}")
        case int() | float():
            if node and not SMALLEST <= abs(node) <= LARGEST:
                raise FormatError(f"{source}: key `{key_path(keys)}`: {node:.3g} cannot be a measurement")
        case Mapping() | list():
            for key, value in node.items() if isinstance(node, Mapping) else enumerate(node):
                keys.append(key)
                _check_values(value, keys, source)
                keys.pop()
        case _:
            return
