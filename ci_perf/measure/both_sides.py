"""The base under the profilers, and what they saw of both sides."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ci_perf.measure.backend import Profiled
from ci_perf.measure.conditions import Conditions
from ci_perf.measure.worker_process import Worker
from ci_perf.values.job import Job
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.run import Note
from ci_perf.values.trace import SideProfile


@dataclass(frozen=True, slots=True)
class ProfiledBase:
    """The base as profilers see it."""

    root: Path
    """Of its tree."""
    python: str
    env: Mapping[str, str]
    worker: Worker
    kernels: Mapping[str, KernelSpec]
    """As its own files describe them, by the head's names."""
    touched: Collection[str] = ()
    """Kernels whose own files differ, by the head's names."""

    def jobs(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the same cases with the base's own code, without those that it does not have."""
        return [replace(job, spec=self.kernels[job.spec.name]) for job in jobs if job.spec.name in self.kernels]

    def conditions(self, of_head: Conditions) -> Conditions:
        """Return the conditions of a profiler on the base; its environment has the same variables as for the head."""
        kept = {*of_head.env, "TORCH_EXTENSIONS_DIR"}
        env = {name: value for name, value in self.env.items() if name in kept}
        return replace(of_head, root=self.root, python=self.python, env=env)


def as_base(found: Profiled) -> Profiled:
    """Return what a profiler saw of the base as that."""
    labels = dict.fromkeys((*found.timelines, *found.counters))
    profiles = {label: SideProfile(found.counters.get(label, ()), found.timelines.get(label)) for label in labels}
    return Profiled(base_profiles=profiles, notes=_of_base(found.notes))


def as_sides(base: Profiled, head: Profiled) -> Profiled:
    """Return the counters of both sides; those of the head are not judged again."""
    heads = {label: SideProfile(counters) for label, counters in head.counters.items()}
    return replace(as_base(base), head_profiles=heads, notes=(*_of_base(base.notes), *head.notes))


def _of_base(notes: Iterable[Note]) -> tuple[Note, ...]:
    return tuple(replace(note, message=f"base: {note.message}") for note in notes)
