"""`ci-perf run --resume FOLDER`: what a run has measured, and whether this one may continue it.

A run that was stopped is finished. A finished run with undecided cases gets more pairs of these, under the same error.
"""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ci_perf import store
from ci_perf.judge.continued import continued, undecided
from ci_perf.judge.control import control_doubt
from ci_perf.values.errors import ConfigError
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Against, Run

_AGAIN = "measure everything again: run without --resume"
_OF_WHAT_IS_KEPT = frozenset({Reason.MEASURED_AGAIN, Reason.WITHHELD, Reason.LINK_REMOVED})
"""Notes on single processes and files: one of the continued run does not replace one of the earlier run."""


def read_unfinished(folder: Path) -> Run:
    """Read the run of a folder; ConfigError where there is none, or nothing is left to measure."""
    run = store.read_run(folder)
    if run.sessions or run.fuzzed or run.sanitized:
        raise ConfigError(f"--resume {folder}: a run that was merged, or of --fuzz or --sanitize", hint=_AGAIN)
    if run.finished and not undecided(run):
        raise ConfigError(f"--resume {folder}: this run is finished, and {_why_final(run)}", hint=_AGAIN)
    return run


def _why_final(run: Run) -> str:
    """Return why a finished run without undecided cases cannot be continued."""
    if run.against is None:
        return "has no base to take more turns with"
    doubt = control_doubt(run, run.against)
    return f"its pairs are of no use: {doubt.sentence}" if doubt else "more pairs would decide no case"


def first_start(run: Run) -> int:
    """Return the number of the next start of the workers: no pair that is kept has it."""
    return 1 + max((pair.start for m in run.measurements for pair in m.pairs if pair.start is not None), default=-1)


def without_repeats(run: Run, earlier: Run) -> Run:
    """Return the continued run with each note once.

    A note replaces the earlier run's notes of the same code, except those of _OF_WHAT_IS_KEPT.
    """
    new = {note.code for note in run.notes if note not in earlier.notes} - _OF_WHAT_IS_KEPT
    notes = (note for note in run.notes if note not in earlier.notes or note.code not in new)
    return replace(run, notes=tuple(dict.fromkeys(notes)))


def resumed(blank: Run, earlier: Run, folder: Path) -> Run:
    """Return a run with what an earlier one has measured; ConfigError where the two would not measure the same."""
    commit = blank.provenance.commit
    if commit is None or commit.endswith("-dirty"):
        why = "is not known" if commit is None else "has uncommitted changes"
        message = f"--resume {folder}: the commit {why}, so nothing shows that the code is the same"
        raise ConfigError(message, hint=f"commit the changes, or {_AGAIN}")
    for what, now, then in _asked(blank, earlier):
        if now != then:
            message = f"--resume {folder}: {what} differs: {_short(now)} now, {_short(then)} in the folder"
            raise ConfigError(message, hint=f"give the same as then, or {_AGAIN}")
    run = replace(
        blank,
        measurements=continued(earlier) if earlier.finished else earlier.measurements,
        notes=(*earlier.notes, *blank.notes),
        against=_continued(blank.against, earlier.against),
        gpu_seconds=earlier.gpu_seconds,
        trace=earlier.trace,
    )
    return without_repeats(run, earlier)


def _asked(now: Run, then: Run) -> Iterator[tuple[str, object, object]]:
    yield "the version of ci-perf", now.provenance.tool, then.provenance.tool
    yield "the commit", now.provenance.commit, then.provenance.commit
    yield "the command line", _without_budgets(now.provenance.command), _without_budgets(then.provenance.command)
    yield "the shard", now.provenance.shard, then.provenance.shard
    yield "the base", _base_of(now), _base_of(then)
    yield "the device", _devices_of(now), _devices_of(then)
    yield "the toolchain", now.toolchain, then.toolchain
    yield "the policy", now.policy, then.policy
    specs = {spec.name: spec for spec in then.kernels}
    yield "the list of kernels", [spec.name for spec in now.kernels], list(specs)
    for spec in now.kernels:
        yield f"kernel.toml of {spec.name}", spec, specs[spec.name]
    for mine, theirs in zip(now.baselines, then.baselines, strict=False):
        yield f"the baseline of {mine.kernel}", mine, theirs
    yield "the number of baselines", len(now.baselines), len(then.baselines)


def _without_budgets(command: str) -> str:
    """Return a command line without what limits only the seconds that a run may take."""
    words = (word for word in shlex.split(command) if not word.startswith(("--budget=", "--case-budget=")))
    return shlex.join(words)


def _base_of(run: Run) -> str:
    return run.against.commit if run.against else "none"


def _devices_of(run: Run) -> list[str]:
    return [device.slug for device in run.devices]


def _continued(now: Against | None, then: Against | None) -> Against | None:
    """Return the base with the control that was measured so far."""
    if now is None or then is None:
        return now
    return replace(now, control=then.control, control_case=then.control_case)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:197]}..."
