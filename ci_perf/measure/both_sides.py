"""The base under the profilers, and what they saw of both sides."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ci_perf.measure.backend import Profiled
from ci_perf.measure.conditions import Conditions
from ci_perf.measure.worker_process import Worker
from ci_perf.store import write_text
from ci_perf.traces.ncu.code import Code, difference, opcodes
from ci_perf.traces.ncu.code_reader import read_codes
from ci_perf.traces.ncu.lines import in_base, same_files, source_lines
from ci_perf.traces.selection import counts
from ci_perf.values.errors import CiPerfError
from ci_perf.values.job import Job
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.kernel_names import matches
from ci_perf.values.run import Note
from ci_perf.values.trace import SideProfile, SourceLine

FOLDER = "sass"
"""Where the differences of machine code lie in the artifact folder."""
_LARGEST_SOURCE = 1 << 20
"""Bytes of a source file whose lines are compared."""


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
    renamed: Mapping[str, str] = field(default_factory=dict)
    """The base's name of each file that the head calls otherwise."""

    def jobs(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the same cases with the base's own code, without those that it does not have."""
        return [replace(job, spec=self.kernels[job.spec.name]) for job in jobs if job.spec.name in self.kernels]

    def conditions(self, of_head: Conditions) -> Conditions:
        """Return the conditions of a profiler on the base; its environment has the same variables as for the head."""
        kept = {*of_head.env, "TORCH_EXTENSIONS_DIR"}
        env = {name: value for name, value in self.env.items() if name in kept}
        return replace(of_head, root=self.root, python=self.python, env=env)


@dataclass(frozen=True, slots=True)
class Tree:
    """Where the source of a case lies on one side."""

    root: Path
    folder: str
    """Of its kernel, relative to `root`."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Of the base: its name of each file that the head calls otherwise."""


def trees_of(
    base: Path, theirs: Iterable[Job], head: Path, mine: Iterable[Job], renamed: Mapping[str, str]
) -> dict[str, tuple[Tree, Tree]]:
    """Return where the source of each case of the head lies in base and head; a case that only the head has, twice.

    `renamed` is the base's name of each file that the head calls otherwise.
    """
    old = {job.label: Tree(base, job.spec.folder, renamed) for job in theirs}
    new = {job.label: Tree(head, job.spec.folder) for job in mine}
    return {label: (old.get(label, tree), tree) for label, tree in new.items()}


def as_base(found: Profiled) -> Profiled:
    """Return what a profiler saw of the base as that."""
    return Profiled(base_profiles=_profiles(found), notes=_of_base(found.notes))


def as_sides(base: Profiled, head: Profiled, trees: Mapping[str, tuple[Tree, Tree]]) -> Profiled:
    """Return what was counted of both sides; the counters of the head are not judged again.

    `trees` are those of base and head, by label of the case: they tell which source lines are the same.
    """
    heads = {label: _in_base(profile, *trees[label]) for label, profile in _profiles(head).items()}
    return replace(as_base(base), head_profiles=heads, notes=(*_of_base(base.notes), *head.notes))


def _profiles(found: Profiled) -> dict[str, SideProfile]:
    labels = dict.fromkeys((*found.timelines, *found.counters))
    return {
        label: SideProfile(
            found.counters.get(label, ()),
            found.timelines.get(label),
            opcodes(found.codes.get(label, ())),
            source_lines(found.codes.get(label, ())),
        )
        for label in labels
    }


def codes_of(report: Path) -> tuple[Code, ...]:
    """Return the machine code in an ncu report; a report without any still has its counters."""
    with suppress(CiPerfError):
        return read_codes(report)
    return ()


def case_codes(codes: Sequence[Code], jobs: Iterable[Job], root: Path) -> dict[str, tuple[Code, ...]]:
    """Return the machine code of the GPU kernels that count of each case, by label; files are relative to `root`."""
    return {
        job.label: tuple(
            located(code, root, job.spec.folder)
            for code in codes
            if job.label in code.ranges and counts(code.name, job.spec.kernels)
        )
        for job in jobs
    }


def located(code: Code, root: Path, folder: str) -> Code:
    """Return machine code whose source files are named relative to `root`.

    NVRTC is told the name of a file alone, and records it as one of the current folder; a cache may hold what another
    checkout compiled. In both cases the file of that name in the kernel's own `folder` is meant. Of any other file only
    the name is kept.
    """
    places = {file: _place_of(file, root, folder) for file in {i.file for i in code.instructions} if file}
    return replace(code, instructions=tuple(replace(i, file=places.get(i.file, "")) for i in code.instructions))


def _place_of(file: str, root: Path, folder: str) -> str:
    path = Path(file)
    if path.is_absolute() and path.is_relative_to(root) and path.is_file():
        return path.relative_to(root).as_posix()
    own = Path(folder) / path.name
    return own.as_posix() if (root / own).is_file() else path.name


def _in_base(profile: SideProfile, base: Tree, head: Tree) -> SideProfile:
    """Return a profile of the head whose source lines have their places in the base."""
    sources = {}
    for file in {line.file for line in profile.lines}:
        own = Path(file)
        before = Path(base.folder) / own.relative_to(head.folder) if own.is_relative_to(head.folder) else own
        before = Path(base.renamed.get(file, before))
        texts = _text(base.root / before), _text(head.root / own)
        if texts[0] is not None and texts[1] is not None:
            sources[file] = (before.as_posix(), texts[0], texts[1])
    return replace(profile, lines=in_base(profile.lines, sources))


def lines_in_base(
    head: Iterable[SourceLine], base: Iterable[SourceLine], reports: tuple[Path, Path]
) -> tuple[SourceLine, ...]:
    """Return the lines of the head's report with their places in the sources of the base's; `reports` are base, head.

    The numbers are known if both files are here, in different places, and no newer than the reports.
    """
    head = tuple(head)
    files = same_files((line.file for line in base), (line.file for line in head))
    moved = {new: old for new, old in files.items() if new != old}
    texts = {}
    for new, old in moved.items():
        before, now = (_unchanged_text(file, report) for file, report in zip((old, new), reports, strict=True))
        if before is not None and now is not None:
            texts[new] = (old, before, now)
    return in_base((replace(line, base_file=moved.get(line.file, "")) for line in head), texts)


def _unchanged_text(file: str, report: Path) -> str | None:
    """Return a source file that is no newer than a report; None for a name that is relative to an unknown folder."""
    path = Path(file)
    try:
        found = path.is_absolute() and path.stat().st_mtime <= report.stat().st_mtime
        return _text(path) if found else None
    except OSError:
        return None


def _text(file: Path) -> str | None:
    """Return a source file; None for one that is not there, or is too large to be compared."""
    try:
        if not file.is_file() or file.stat().st_size > _LARGEST_SOURCE:  # a device has no end
            return None
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def write_differences(folder: Path, jobs: Iterable[Job], base: Profiled, head: Profiled) -> None:
    """Write for each case how the machine code of its GPU kernels differs: `KERNEL.CASE.diff`."""
    for job in jobs:
        old, new = base.codes.get(job.label, ()), head.codes.get(job.label, ())
        if text := "".join(_differences(old, new)):
            write_text(folder / FOLDER / f"{job.spec.name}.{job.case}.diff", text)


def _differences(base: Sequence[Code], head: Sequence[Code]) -> Iterator[str]:
    old, new = ({code.name: code for code in codes} for codes in (base, head))
    gone_new = [pair for pair in matches(old, new) if not all(pair)]
    for before, now in matches(old, new):
        if before and now:
            yield difference(old[before[0]], new[now[0]])
    gone, added = ([name for pair in gone_new for name in pair[place]] for place in (0, 1))
    if len(gone) == len(added) == 1:  # most likely the same kernel by another name
        yield difference(old[gone[0]], new[added[0]])
    else:
        yield from (f"--- base: {name}\n+++ not in the head\n" for name in gone)
        yield from (f"--- not in the base\n+++ head: {name}\n" for name in added)


def _of_base(notes: Iterable[Note]) -> tuple[Note, ...]:
    return tuple(replace(note, message=f"base: {note.message}") for note in notes)
