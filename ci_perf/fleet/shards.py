"""Shares cases out over jobs that run at the same time, so that all of them end at about the same time."""

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence

from ci_perf.judge.next_pairs import affordable
from ci_perf.judge.verdict import judge
from ci_perf.values.baseline import Baseline
from ci_perf.values.errors import ConfigError
from ci_perf.values.job import Job, Plan, Shard
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.quantity import duration
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Run

START_S = 1.5
"""Seconds that a fresh process takes beside its samples: start, warm-up, estimate, profilers. An H100 run of 72
processes (tests/data/runs/h100-unchanged) held the GPU for 120.5 s, and its samples last 8.9 s."""
SAMPLE_S = 4e-3
MOST_LAUNCHES = 500
"""A sample lasts this long or takes this many launches (`userside` of the worker), whichever is less."""
PROCESSES = 6
"""Processes of a case of which nothing is recorded."""
MOST_JOBS = 256
"""GitHub's limit for a matrix."""


def share_out(
    jobs: Sequence[Job],
    selection: Sequence[str],
    shards: int,
    runners: Sequence[tuple[str, ...]],
    seconds: Mapping[str, float],
) -> Plan:
    """Share cases out over `shards` jobs on each runner: the longest first, each to the job with the least to do.

    `seconds` is how long a case uses the GPU, by `kernel/case`; an unknown case counts as their mean. No shard is
    empty: there are at most as many as cases. This order takes at most 4/3 of the shortest possible time: R. L. Graham,
    "Bounds on multiprocessing timing anomalies", 1969.
    """
    specs = {job.spec.name: job.spec for job in jobs}
    ids = list(dict.fromkeys(job.id for job in jobs))
    count = min(shards, len(ids))
    if count * len(runners) > MOST_JOBS:
        raise ConfigError(
            f"{count} shards on {len(runners)} runners are {count * len(runners)} jobs, GitHub takes {MOST_JOBS}",
            hint="fewer --shards",
        )
    cost = costs(ids, seconds)
    piles = _piles(cost, count)
    devices = tuple(dict.fromkeys(job.device for job in jobs))
    planned = [
        Shard(
            f"{label}-{i}-of-{count}",
            runner,
            tuple(pile),
            tuple(_patterns(pile, specs, devices)),
            sum(cost[case] for case in pile),
        )
        for runner, label in zip(runners, _labels(runners), strict=True)
        for i, pile in enumerate(piles, start=1)
    ]
    return Plan(tuple(selection), devices, tuple(specs.values()), tuple(planned))


def fewest_shards(jobs: Sequence[Job], seconds: Mapping[str, float], most_s: float) -> int:
    """Return how many shards are needed so that none probably takes more than `most_s` seconds.

    `seconds` is as in `share_out`. ConfigError where one case alone takes longer.
    """
    cost = costs(list(dict.fromkeys(job.id for job in jobs)), seconds)
    longest = max(cost, key=lambda case: cost[case])
    if cost[longest] > most_s:
        raise ConfigError(
            f"flag --within: `{longest}` alone takes about {duration(cost[longest])}", hint="allow a job more minutes"
        )
    count = max(1, math.ceil(sum(cost.values()) / most_s))
    while max(sum(cost[case] for case in pile) for pile in _piles(cost, count)) > most_s:
        count += 1
    return count


def costs(ids: Sequence[str], seconds: Mapping[str, float]) -> dict[str, float]:
    """Return how long each case uses the GPU; an unknown one counts as the mean of the known ones."""
    unknown = statistics.fmean(seconds.values()) if seconds else PROCESSES * START_S
    return {case: seconds.get(case, unknown) for case in ids}


def _piles(cost: Mapping[str, float], count: int) -> list[list[str]]:
    order = {case: i for i, case in enumerate(cost)}
    piles: list[list[str]] = [[] for _ in range(count)]
    load = [0.0] * count
    for case in sorted(cost, key=lambda case: (-cost[case], order[case])):
        least = min(range(count), key=lambda i: (load[i], len(piles[i]), i))
        piles[least].append(case)
        load[least] += cost[case]
    return [sorted(pile, key=order.__getitem__) for pile in piles]


def _patterns(pile: Sequence[str], specs: Mapping[str, KernelSpec], devices: Sequence[str]) -> Iterable[str]:
    """Name a kernel alone where all of its cases are there; on a CPU the name alone selects fewer cases."""
    for kernel in dict.fromkeys(case.partition("/")[0] for case in pile):
        mine = [case for case in pile if case.partition("/")[0] == kernel]
        whole = len(mine) == len(specs[kernel].cases) and "cpu" not in devices
        yield from [kernel] if whole else mine


def _labels(runners: Sequence[tuple[str, ...]]) -> list[str]:
    """Return a short name for each runner: its last label.

    >>> _labels([("self-hosted", "gpu", "h100"), ("self-hosted", "gpu", "l4")])
    ['h100', 'l4']
    """
    names = [re.sub(r"[^A-Za-z0-9_.-]+", "-", runner[-1]) for runner in runners]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(
            f"two runners end in the label `{twice}`", hint="put the label that only one of them has last"
        )
    return names


def matrix(plan: Plan) -> dict[str, list[dict[str, object]]]:
    """Return the value of `strategy.matrix`, for `fromJSON`; `among` is the number of cases of all jobs."""
    among = sum(len(shard.cases) for shard in plan.shards)
    return {
        "include": [
            {
                "shard": shard.name,
                "runner": list(shard.runner),
                "kernels": " ".join(shard.patterns),
                "among": among,
            }
            for shard in plan.shards
        ]
    }


def number_decided(cases: Iterable[str], cost: Mapping[str, float], within_s: float) -> int:
    """Return how many of the cases a run with such a budget will probably decide: the cheapest ones that fit in it.

    >>> number_decided(["k/a", "k/b", "k/c"], {"k/a": 9.0, "k/b": 2.0, "k/c": 4.0}, 7.0)
    2
    """
    return len(affordable({case: cost[case] for case in cases}, within_s))


def seconds_of_run(run: Run) -> dict[str, float]:
    """Return how long each case of an earlier run probably takes.

    That is how long it took there. If its budget left cases undecided, what these took is shared by those that it
    decided, and each counts as their mean: a plan for the same budget so has as many decisions as the run had.
    """
    took = _wall_seconds(run) or _gpu_seconds(run)
    undecided = {finding.id for finding in judge(run) if finding.code is Reason.BUDGET_SPENT}
    decided = took.keys() - undecided
    if not decided:
        return took
    whole = sum(took.values())
    more, mean = whole / sum(took[case] for case in decided), whole / len(decided)
    return {case: more * seconds if case in decided else max(seconds, mean) for case, seconds in took.items()}


def _wall_seconds(run: Run) -> dict[str, float]:
    """Return what each case of a run on CPUs took, with a share of the control; empty on a GPU, or if it is unknown."""
    if any(device.kind != "cpu" for device in run.devices):
        return {}
    head = {m.id: sum(m.spent.get("head", {}).values()) for m in run.measurements if m.timed and m.spent}
    control = sum(sum(m.spent.get("control", {}).values()) for m in run.measurements)
    more = 1 + control / sum(head.values()) if any(head.values()) else 1.0
    return {case: more * seconds for case, seconds in head.items()}


def _gpu_seconds(run: Run) -> dict[str, float]:
    """Return how long each case used the GPU: its samples, and a share of the other time.

    The time beside the samples is known for all processes together, from `gpu_seconds`.
    """
    sampled: dict[str, float] = {}
    processes: dict[str, int] = {}
    for m in run.measurements:
        timed = sum(sum(r.seconds) * r.launches for r in m.replicates if r.unit == "s")
        paired = sum((sum(p.base) + sum(p.head)) * p.launches for p in m.pairs if p.unit == "s")
        count = len(m.replicates) + 2 * len(m.pairs)
        if count:
            sampled[m.id] = sampled.get(m.id, 0.0) + timed + paired
            processes[m.id] = processes.get(m.id, 0) + count
    total = sum(processes.values())
    rest = run.gpu_seconds - sum(sampled.values())
    start = rest / total if total and rest > 0 else START_S
    return {case: sampled[case] + start * processes[case] for case in sampled}


def seconds_of_baselines(baselines: Iterable[Baseline]) -> dict[str, float]:
    """Estimate how long each case uses the GPU, from the samples of the baselines."""
    found: dict[str, float] = {}
    for baseline in baselines:
        for name, case in baseline.cases.items():
            times = [t for process in case.time.replicates for t in process] if case.time.unit == "s" else []
            sampled = sum(max(t, min(SAMPLE_S, MOST_LAUNCHES * t)) for t in times)
            spent = sampled + START_S * len(case.time.replicates)
            key = f"{baseline.kernel}/{name}"
            found[key] = max(spent, found.get(key, 0.0))
    return found
