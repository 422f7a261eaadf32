"""Both sides of a change from two runs: each by what its profilers saw of its head."""

import mmap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ci_perf import store
from ci_perf.cli.two_files import Part, device_note, lacking_note
from ci_perf.judge.explained import sides_of_runs
from ci_perf.values.errors import ConfigError
from ci_perf.values.run import Run
from ci_perf.values.trace import SourceLine

_SCHEMA = b"urn:ci-perf:run:"


def is_run(path: Path) -> bool:
    """Say whether a path is that of a run: its folder, run.json, its journal, or a zip."""
    if path.is_dir():
        return any((path / name).is_file() for name in ("run.json", store.JOURNAL))
    if not path.is_file() or path.suffix in (".jsonl", ".zip"):
        return path.is_file()
    if path.suffix != ".json" or not path.stat().st_size:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(_SCHEMA) >= 0


def compare_runs(base: Path, head: Path) -> Iterator[tuple[str, Part]]:
    """Yield each case that both runs profiled; ConfigError where there is none."""
    old, new = store.read_run(base), store.read_run(head)
    if not (found := dict(_parts(old, new))):
        raise ConfigError(
            f"{base} and {head}: no case was profiled in both runs",
            hint="`ci-perf run` without `--profile none` profiles each case on a GPU",
        )
    yield from found.items()


def _parts(base: Run, head: Run) -> Iterator[tuple[str, Part]]:
    before = {(m.id, m.device): m for m in base.measurements}
    for measurement in head.measurements:
        old = before.get((measurement.id, measurement.device))
        devices = [[d for d in run.devices if d.kind == measurement.device] for run in (base, head)]
        sides = sides_of_runs(old, measurement, devices[1][0]) if old and all(devices) else None
        if old is None or sides is None:
            continue
        lines = [profile.lines if profile else () for profile in (old.head_profile, measurement.head_profile)]
        notes = (*device_note(*({d.name for d in of_run} for of_run in devices)), *lacking_note(sides))
        yield measurement.id, Part(sides, _placed(lines[0]), _placed(lines[1]), notes)


def _placed(lines: tuple[SourceLine, ...]) -> tuple[SourceLine, ...]:
    """Return lines without their places in the base of their own run."""
    return tuple(replace(line, base_line=None, base_file="") for line in lines)
