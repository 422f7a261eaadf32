"""What a run begins with: the run of a folder (`--resume`), or what an earlier attempt of a job measured (`--earlier`).

A run that was stopped is finished. A finished run with undecided cases gets more pairs of these, under the same error.
What cannot be resumed is an error. What cannot be continued of an earlier attempt is a note: everything is measured.
"""

import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ci_perf import store
from ci_perf.github import actions
from ci_perf.github.earlier import read_earlier
from ci_perf.judge.continued import continued, undecided, why_not_continued
from ci_perf.judge.control import control_doubt
from ci_perf.judge.gates import release
from ci_perf.values.device import Device, is_dirty
from ci_perf.values.errors import CiPerfError, ConfigError
from ci_perf.values.quantity import counted
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Against, Note, Run

_AGAIN = "measure everything again: run without --resume"
_OF_WHAT_IS_KEPT = frozenset({Reason.MEASURED_AGAIN, Reason.WITHHELD, Reason.LINK_REMOVED})
"""Notes on single processes and files: one of the continued run does not replace one of the earlier run."""

_OF_ONE_RUN = frozenset({Reason.ATTEMPT_NOT_CONTINUED, Reason.BUDGET_SPENT})
"""Notes that say nothing of a run that continues: it finds out itself whether its budget suffices."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A run that continues the one of its folder."""

    folder: Path
    run: Run
    keeps_folder = True

    @classmethod
    def of(cls, folder: Path) -> "Resumed":
        """Read the run of a folder; ConfigError where there is none, or nothing is left to measure."""
        run = store.read_run(folder)
        if run.sessions or run.fuzzed or run.sanitized:
            raise ConfigError(f"--resume {folder}: a run that was merged, or of --fuzz or --sanitize", hint=_AGAIN)
        if run.finished and not undecided(run):
            raise ConfigError(f"--resume {folder}: this run is finished, and {_why_final(run)}", hint=_AGAIN)
        return cls(folder, run)

    def begin(self, empty: Run) -> Run:
        """Return a run with what the folder has; ConfigError where the two would not measure the same."""
        if why := _unknown_code(empty):
            raise ConfigError(f"--resume {self.folder}: {why}", hint=f"commit the changes, or {_AGAIN}")
        if differs := _difference(empty, self.run):
            raise ConfigError(f"--resume {self.folder}: {differs}", hint=f"give the same as then, or {_AGAIN}")
        return _joined(empty, self.run)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A run in a workflow that continues what an earlier attempt of its job measured, where that is possible."""

    artifact: str
    """The name of the artifact."""
    run: Run | None
    why: str = ""
    """Why there is no run."""
    keeps_folder = False

    @classmethod
    def of(cls, path: Path, environ: Mapping[str, str] = os.environ) -> "Attempt":
        """Read the artifact of an earlier attempt: untrusted data."""
        try:
            return cls(path.name, read_earlier(path, actions.read_event(environ)))
        except CiPerfError as error:
            return cls(path.name, None, str(error))

    def begin(self, empty: Run) -> Run:
        """Return a run with what the attempt measured and decided, or else the empty run; a note says which.

        A case that failed, or whose base did, is measured again: that may have been the machine.
        """
        if self.run is None:
            return _noted(empty, Reason.ATTEMPT_NOT_CONTINUED, self.why)
        try:
            return self._begun(empty, self.run)
        except (ArithmeticError, LookupError, ValueError, StopIteration) as error:  # untrusted numbers
            why = f"{self.artifact} is not continued: its numbers cannot be judged: {error!r:.200}"
            return _noted(empty, Reason.ATTEMPT_NOT_CONTINUED, why)

    def _begun(self, empty: Run, earlier: Run) -> Run:
        why = why_not_continued(earlier) or _unknown_code(empty) or _difference(empty, earlier)
        if why:
            return _noted(empty, Reason.ATTEMPT_NOT_CONTINUED, f"{self.artifact} is not continued: {why}")
        begun = _joined(empty, earlier)
        kept = tuple(m for m in begun.measurements if not m.failure and m.unpaired in ("", Reason.NOT_IN_BASE))
        open_cases = undecided(earlier) if earlier.finished else ()
        decided = f"{counted(len(kept) - len(open_cases), 'case')} of {self.artifact} kept"
        further = f", {counted(len(open_cases), 'undecided case')} measured further" if open_cases else ""
        return _noted(replace(begun, measurements=kept), Reason.ATTEMPT_CONTINUED, decided + further)


def _noted(run: Run, code: Reason, message: str) -> Run:
    return replace(run, notes=(*run.notes, Note(code, message, code.hint)))


def _joined(empty: Run, earlier: Run) -> Run:
    """Return a run with what an earlier one has measured; it is finished where the earlier one was."""
    kept = (note for note in earlier.notes if note.code not in _OF_ONE_RUN)
    run = replace(
        empty,
        measurements=continued(earlier) if earlier.finished else earlier.measurements,
        notes=(*kept, *empty.notes),
        against=_continued(empty.against, earlier.against),
        gpu_seconds=earlier.gpu_seconds,
        trace=earlier.trace,
        finished=earlier.finished,
    )
    return _without_repeats(run, earlier)


def without_repeats(run: Run, begins: Resumed | Attempt | None) -> Run:
    """Return a run with each note once, where it continues another one.

    A note replaces the earlier run's notes of the same code, except those of _OF_WHAT_IS_KEPT.
    """
    earlier = begins.run if begins else None
    anew = any(note.code == Reason.ATTEMPT_NOT_CONTINUED for note in run.notes)
    return run if anew or earlier is None else _without_repeats(run, earlier)


def _without_repeats(run: Run, earlier: Run) -> Run:
    new = {note.code for note in run.notes if note not in earlier.notes} - _OF_WHAT_IS_KEPT
    notes = (note for note in run.notes if note not in earlier.notes or note.code not in new)
    return replace(run, notes=tuple(dict.fromkeys(notes)))


def first_start(run: Run) -> int:
    """Return the number of the next start of the workers: no pair that is kept has it."""
    return 1 + max((pair.start for m in run.measurements for pair in m.pairs if pair.start is not None), default=-1)


def _why_final(run: Run) -> str:
    """Return why a finished run without undecided cases cannot be continued."""
    if run.against is None:
        return "has no base to take more turns with"
    doubt = control_doubt(run, run.against)
    return f"its pairs are of no use: {doubt.sentence}" if doubt else "more pairs would decide no case"


def _unknown_code(run: Run) -> str:
    """Return why nothing shows that the code of a run is that of an earlier one; empty: its commit does."""
    commit = run.provenance.commit
    why = "is not known" if commit is None else "has uncommitted changes" if is_dirty(commit) else ""
    return f"the commit {why}, so nothing shows that the code is the same" if why else ""


def _difference(now: Run, then: Run) -> str:
    """Return what two runs would not measure alike, with both values; empty: nothing."""
    differs = ((what, mine, theirs) for what, mine, theirs in _asked(now, then) if mine != theirs)
    return next((f"{what} differs: {_short(mine)} now, {_short(theirs)} then" for what, mine, theirs in differs), "")


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
    return [_key_of(device) for device in run.devices]


def _key_of(device: Device) -> str:
    """Return what the times of a device depend on, as words: other values are another machine."""
    limit = f"{device.power_limit_w:g} W" if device.power_limit_w is not None else ""
    size = f"{device.sm_count} multiprocessors or cores" if device.sm_count else ""
    driver = f"driver {release(device.driver, 1)}" if device.driver else ""
    mig = "MIG" if device.mig else ""
    return ", ".join(filter(None, (device.slug, size, driver, limit, mig)))


def _continued(now: Against | None, then: Against | None) -> Against | None:
    """Return the base with the control that was measured so far."""
    if now is None or then is None:
        return now
    return replace(now, control=then.control, control_case=then.control_case)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:197]}..."
