"""The creep that the ledger of a tree shows."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from ci_perf import store
from ci_perf.judge.creep import accepted, creep, without_overlaps
from ci_perf.measure import git
from ci_perf.values.baseline import Baseline
from ci_perf.values.device import Device
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.merged import Creep, Merged


def find_creep(
    folder: Path, devices: Sequence[Device], specs: Iterable[KernelSpec], known: Iterable[Baseline], limit: float
) -> tuple[Creep, ...]:
    """Return the creep of the cases of these kernels on these devices; FormatError where the ledger cannot be read.

    `folder` is that of the baselines, in a repository; `known` are the baselines, which end what was before them.
    `limit` is the threshold of a kernel that sets none.
    """
    specs = tuple(specs)
    own = {spec.name: spec.regression for spec in specs if spec.regression}
    cases = {f"{spec.name}/{case}" for spec in specs for case in spec.cases}
    merges = sound_merges(folder, store.read_merged(folder, [device.slug for device in devices]))
    return tuple(one for one in creep(merges, limit, accepted(known), own) if one.case in cases)


def sound_merges(folder: Path, merges: Sequence[Merged]) -> tuple[Merged, ...]:
    """Return the merges of a ledger that can be added up, as far as the repository of its folder knows."""
    parents = git.query_first_parents(folder, [merged.head for merged in merges]) if merges else {}
    return without_overlaps(merges, parents)
