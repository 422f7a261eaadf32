"""Merges the runs of shards into one. Each keeps its own machine; a planned case without a result is a failed row."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ci_perf.values.baseline import Baseline
from ci_perf.values.device import Device, Provenance, Toolchain
from ci_perf.values.errors import ConfigError
from ci_perf.values.job import Plan, Shard
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.measurement import Failure, Measurement
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Against, Note, Policy, Run, Session

Found = Mapping[str, Run]
"""Runs by the name of the file or folder that each was read from."""


def merge_runs(found: Found) -> Run:
    """Merge runs; a ConfigError if they differ in commit, rules, base or version, or measured a case twice.

    A run that was stopped counts as finished where the other runs have what it had left.
    """
    if not found:
        raise ConfigError("there is no run to merge", hint="name the folders of the shards, or their plan with --plan")
    _check_alike(found)
    found = _without_unfinished(found)
    _check_once(found)
    runs = list(found.values())
    sessions = tuple(_session(run) for run in runs)
    patterns = tuple(dict.fromkeys(pattern for run in runs for pattern in run.selection))
    return Run(
        provenance=replace(runs[0].provenance, date=max(run.provenance.date for run in runs), shard=None),
        selection=patterns if all(run.selection for run in runs) else (),
        policy=runs[0].policy,
        kernels=_kernels(found),
        devices=_models(sessions),
        toolchain=runs[0].toolchain,
        measurements=tuple(replace(m, session=i) for i, run in enumerate(runs) for m in run.measurements),
        baselines=_baselines(found),
        notes=tuple(dict.fromkeys(note for run in runs for note in run.notes)),
        planted=runs[0].planted,
        gpu_seconds=sum(run.gpu_seconds for run in runs),
        against=_against(runs),
        finished=all(run.finished for run in runs),
        sessions=sessions,
        confirmations=tuple(replace(part, session=i) for i, run in enumerate(runs) for part in run.confirmations),
        unknown_keys=runs[0].unknown_keys,
    )


def merge_planned(found: Found, plan: Plan, provenance: Provenance) -> Run:
    """Merge the shards of a plan; each planned case has a row, measured or not.

    Of several runs of one shard, as a repeated job leaves them, the latest counts. Of runners that turn out to have the
    same model of GPU, the first counts. `provenance` is used if no run was found.
    """
    kept, notes = _latest(found, plan)
    kept, twice = _first_of_each_model(kept, plan)
    merged = merge_runs(kept) if kept else Run(provenance, (), Policy(), (), (), Toolchain(), finished=True)
    sessions, measurements = list(merged.sessions), list(merged.measurements)
    for shard in plan.shards:
        index = next((i for i, session in enumerate(sessions) if session.name == shard.name), len(sessions))
        if index == len(sessions):
            sessions.append(_absent(shard, plan, merged.sessions))
            notes.append(twice.get(shard.name) or _absent_note(shard))
        measurements += _lost(shard, plan, sessions[index], index, measurements)
    names = {spec.name for spec in merged.kernels}
    return replace(
        merged,
        selection=plan.selection,
        kernels=(*merged.kernels, *(spec for spec in plan.kernels if spec.name not in names)),
        devices=_models(sessions),
        measurements=tuple(measurements),
        notes=(*merged.notes, *notes),
        finished=merged.finished and len(sessions) == len(merged.sessions),
        sessions=tuple(sessions),
    )


def _latest(found: Found, plan: Plan) -> tuple[dict[str, Run], list[Note]]:
    """Keep the latest run of each shard."""
    kept: dict[str, str] = {}
    planned = [shard.name for shard in plan.shards]
    for source, run in found.items():
        shard = run.provenance.shard
        if shard is None:
            raise ConfigError(
                f"{source}: does not say which shard of the plan it is",
                hint="measure it with `ci-perf run --shard NAME`",
            )
        if shard not in planned:
            raise ConfigError(f"{source}: the plan has no shard `{shard}`", hint="it has " + ", ".join(planned))
        if shard not in kept or run.provenance.date >= found[kept[shard]].provenance.date:
            kept[shard] = source
    left = [source for source in found if source not in kept.values()]
    notes = [Note("earlier-run", f"{source} was left out: a later run of its shard is there") for source in left]
    return {kept[shard]: found[kept[shard]] for shard in planned if shard in kept}, notes


def _first_of_each_model(found: Found, plan: Plan) -> tuple[dict[str, Run], dict[str, Note]]:
    """Leave out the shards of a runner that has the same model of GPU as an earlier runner of the plan.

    The second value is a note for each shard that was left out, by its name.
    """
    runners = {shard.name: ", ".join(shard.runner) for shard in plan.shards}
    owners: dict[str, str] = {}
    kept: dict[str, Run] = {}
    left: dict[str, Note] = {}
    for source, run in found.items():
        shard = run.provenance.shard or ""
        taken = next((d for d in run.devices if owners.get(d.slug, runners[shard]) != runners[shard]), None)
        if taken is None:
            kept[source] = run
            owners |= {device.slug: runners[shard] for device in run.devices}
            continue
        message = f"shard {shard} does not count: {runners[shard]} led to {taken.name}, as {owners[taken.slug]} did"
        left[shard] = Note("same-device", message, "give each model of GPU a label that no other runner has")
    return kept, left


def _check_alike(found: Found) -> None:
    """Refuse runs whose commit, rules, base or version differ from the first, and runs that did not measure."""
    for source, run in found.items():
        if run.fuzzed or run.sanitized:
            raise ConfigError(
                f"{source}: a run with --fuzz or --sanitize",
                hint="such a run cannot be merged; merge runs that measured",
            )
    (first, expected), *others = found.items()
    for source, run in others:
        for what, key, a, b in _asked(expected, run):
            if a != b:
                raise ConfigError(
                    f"{source}: {what} differs from {first}: key `{key}` is {_short(b)} here and {_short(a)} there",
                    hint="merge runs of one workflow run only",
                )


def _asked(one: Run, other: Run) -> Iterator[tuple[str, str, object, object]]:
    bases = [run.against.commit if run.against else None for run in (one, other)]
    for key, what in (("commit", "the commit"), ("head", "the commit"), ("repository", "the repository")):
        yield what, f"provenance.{key}", getattr(one.provenance, key), getattr(other.provenance, key)
    yield "the version of ci-perf", "provenance.tool", one.provenance.tool, other.provenance.tool
    yield "the policy", "policy", one.policy, other.policy
    yield "the planted slowdown", "planted", one.planted, other.planted
    yield "the base", "against.commit", bases[0], bases[1]
    mine = {spec.name: spec for spec in one.kernels}
    for spec in other.kernels:
        yield "a kernel", f"kernels.{spec.name}", mine.get(spec.name, spec), spec


def _short(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 200 else text[:197] + "..."


def _check_once(found: Found) -> None:
    """Refuse a case that two runs measured on the same model of device: there is one row for it."""
    seen: dict[tuple[str, str], str] = {}
    for source, run in found.items():
        for key, m in _rows(run):
            if key in seen:
                raise ConfigError(
                    f"{source}: `{m.id}` on {key[1]} is in {seen[key]} too",
                    hint="each case belongs to one shard, as in a plan of `ci-perf plan`",
                )
            seen[key] = source


def _without_unfinished(found: Found) -> Found:
    """Leave out of each run that was stopped the cases without a result that another run has."""
    done = {key for run in found.values() for key, m in _rows(run) if run.finished or _has_result(m)}
    kept: dict[str, Run] = {}
    for source, run in found.items():
        if run.finished or run.sessions:
            kept[source] = run
            continue
        rows = tuple(m for key, m in _rows(run) if _has_result(m) or key not in done)
        rest_is_known = len(rows) < len(run.measurements) and all(map(_has_result, rows))
        kept[source] = replace(run, measurements=rows, finished=rest_is_known)
    return kept


def _rows(run: Run) -> Iterator[tuple[tuple[str, str], Measurement]]:
    """Yield each measurement with the case and the model of its device."""
    slugs = {device.kind: device.slug for device in run.devices}
    yield from (((m.id, slugs[m.device]), m) for m in run.measurements)


def _has_result(measurement: Measurement) -> bool:
    m = measurement
    return bool(m.failure or m.timed or m.unpaired or m.same_code)


def _session(run: Run) -> Session:
    broken = next((note.message for note in run.notes if note.code == Reason.MEMORY_ERRORS), "")
    shard = run.provenance.shard or ""
    return Session(
        shard, run.devices, run.toolchain, run.finished, run.against, run.trace, among=run.among, memory_errors=broken
    )


def _models(sessions: Iterable[Session]) -> tuple[Device, ...]:
    """Return one device of each model."""
    devices: dict[str, Device] = {}
    for session in sessions:
        for device in session.devices:
            devices.setdefault(device.slug, device)
    return tuple(devices.values())


def _kernels(found: Found) -> tuple[KernelSpec, ...]:
    specs = {spec.name: spec for run in found.values() for spec in run.kernels}
    return tuple(specs[name] for name in sorted(specs))


def _baselines(found: Found) -> tuple[Baseline, ...]:
    """Return the baselines of all shards; each has the rows that its shards needed."""
    merged: dict[tuple[str, str], Baseline] = {}
    for source, run in found.items():
        for baseline in run.baselines:
            key = (baseline.device.slug, baseline.kernel)
            known = merged.setdefault(key, baseline)
            merged[key] = replace(known, cases={**known.cases, **baseline.cases})
            if merged[key] != replace(baseline, cases={**baseline.cases, **known.cases}):
                raise ConfigError(
                    f"{source}: its baseline of {key[1]} on {key[0]} differs from that of the other shards"
                )
    return tuple(merged[key] for key in sorted(merged))


def _against(runs: Sequence[Run]) -> Against | None:
    """Return the common base; each session keeps its own control."""
    if runs[0].against is None:
        return None
    gone = sorted({name for run in runs if run.against for name in run.against.gone})
    crept = dict.fromkeys((one.case, one.device, one) for run in runs if run.against for one in run.against.creep)
    return Against(
        runs[0].against.ref, runs[0].against.commit, tuple(gone), creep=tuple(one for *_, one in sorted(crept))
    )


def _absent(shard: Shard, plan: Plan, sessions: Sequence[Session]) -> Session:
    """Return a session for a shard without a run; its devices are those of the other shards of its runner, if any."""
    runners = {other.name: other.runner for other in plan.shards}
    for session in sessions:
        if runners.get(session.name) == shard.runner:
            return Session(shard.name, session.devices, session.toolchain, finished=False)
    unknown = tuple(Device(kind, f"runner {' '.join(shard.runner)}") for kind in plan.devices)
    return Session(shard.name, unknown, Toolchain(), finished=False)


def _absent_note(shard: Shard) -> Note:
    message = (
        f"shard {shard.name} on {', '.join(shard.runner)} left no run: none of its {len(shard.cases)} cases counts"
    )
    return Note("no-run", message, Reason.NO_RUN.hint)


def _lost(
    shard: Shard, plan: Plan, session: Session, index: int, measurements: Sequence[Measurement]
) -> list[Measurement]:
    """Return a failed row for each case that its shard should have measured."""
    specs = {spec.name: spec for spec in plan.kernels}
    known = {m.id for m in measurements if m.session == index}
    failure = Failure("shard", "no-run", f"{shard.name} left no measurement of this case")
    kind = session.devices[0].kind
    return [
        Measurement(kernel, name, specs[kernel].cases[name], kind, "launch", failure=failure, session=index)
        for kernel, _, name in (case.partition("/") for case in shard.cases if case not in known)
    ]
