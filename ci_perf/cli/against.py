"""The base of `run --against`: its commit, its tree, and what its own baselines know."""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from ci_perf import store
from ci_perf.cli.creep import find_creep
from ci_perf.judge.creep import creep_notes
from ci_perf.judge.scatter import known_scatter
from ci_perf.measure import git, git_base
from ci_perf.measure.base import Base, find_base, prepared
from ci_perf.measure.machine import Machine
from ci_perf.measure.session import Session
from ci_perf.measure.setup import setup_of
from ci_perf.measure.worker_process import Worker
from ci_perf.values.baseline import KnownScatter
from ci_perf.values.errors import ConfigError, FormatError, MachineError
from ci_perf.values.job import Job
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.merged import Creep
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Against, Note, Run
from ci_perf.values.settings import Settings

MOST_NAMED = 5
"""Files that a note names."""
_SOURCES = frozenset({".toml", ".py", ".cu", ".cuh", ".h", ".hpp", ".c", ".cc", ".cpp"})
"""Other files beside a kernel may be built, and are not committed."""


def with_event_base(settings: Settings) -> Settings:
    """Replace `--against auto` by the base of the event, or by nothing."""
    if settings["against"] != "auto":
        return settings
    has_base = git_base.query_event_base(os.environ) or git_base.query_claimed(os.environ)
    base = "base" if has_base else ""
    return settings.replaced({"against": base})


def refuse_several_devices(settings: Settings, why: str) -> None:
    """Raise ConfigError for several devices where sides take turns: the control covers one device only."""
    if len(set(settings["device"])) > 1:
        kinds = ",".join(settings["device"])
        message = f"{settings.origins['device']}: `{kinds}` in one session, whose control is of one device; {why}"
        raise ConfigError(message, hint="run once for each device, each with its own --output")


def base_commit(root: Path, settings: Settings) -> str:
    """Return the commit of the base, or an empty text without one."""
    setup = setup_of(settings, os.environ)
    if not settings["against"]:
        setup.check(shared=False)
        return ""
    return find_base(root, settings["against"], setup, os.environ, shared=not settings["base-python"])


def untracked_sources(root: Path, jobs: Sequence[Job], against: str) -> tuple[Note, ...]:
    """Return a note that names the sources beside these kernels that git does not track: no base commit has them."""
    folders = sorted({job.spec.folder for job in jobs}) if against else []
    files = git.query_untracked(root, folders) if folders else ()
    names = [name for name in files if Path(name).suffix in _SOURCES]
    if not names:
        return ()
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    message = f"git does not track these files, so the base does not have them: {', '.join(names[:MOST_NAMED])}{more}"
    return (Note(Reason.UNTRACKED, message, Reason.UNTRACKED.hint),)


def prepared_base(
    root: Path, commit: str, specs: tuple[KernelSpec, ...], settings: Settings, head: Worker, logs: Path
) -> AbstractContextManager[Base | None]:
    """Check out and build the base; its workers live as long as the context. None without `--against`.

    They have the environment of the `head`'s worker, and its interpreter, unless the settings name another.
    """
    if not settings["against"]:
        return nullcontext()
    return prepared(
        root,
        settings["against"],
        commit,
        kernels_dir=settings["kernels-dir"],
        head=specs,
        setup=setup_of(settings, os.environ),
        python=settings["base-python"] or head.python,
        env=head.env,
        logs=logs,
        environ=os.environ,
        shared=not settings["base-python"],
    )


@contextmanager
def prepared_commit(
    root: Path,
    specs: tuple[KernelSpec, ...],
    settings: Settings,
    session: Session,
    run: Run,
    commit: str,
    jobs: Sequence[Job],
) -> Iterator[tuple[Against, Machine]]:
    """Check out and build the commit of a baseline; yield it as a base, and a machine that takes turns with it.

    A commit that this clone lacks is fetched. ConfigError, MachineError where it cannot be had or built.
    """

    def against(ref: str) -> Settings:
        return settings.replaced({"against": ref})

    found = base_commit(root, against(commit))
    with prepared_base(root, found, specs, against(found[:8]), session.worker, session.folder / "logs") as base:
        known = with_against(run, base, settings["baselines"]).against
        if base is None or known is None:
            raise MachineError(f"there is no commit {commit}")
        yield known, session.machine(jobs, base)


def with_against(empty: Run, base: Base | None, baselines: str) -> Run:
    """Return the run with its base, and a note where a commit is compared with itself."""
    if base is None:
        return empty
    scatter, crept, found = _known(base, empty, baselines)
    notes = (*empty.notes, *base.notes, *found)
    if base.against.commit == empty.provenance.commit:
        message = f"the base is the commit that is checked out, {base.against.commit[:8]}: it is compared with itself"
        hint = "name the commit before the change: --against HEAD~1, or merge-base:BRANCH"
        notes = (*notes, Note("base-is-head", message, hint))
    return replace(empty, against=replace(base.against, scatter=scatter, creep=crept), notes=notes)


def _known(
    base: Base, empty: Run, baselines: str
) -> tuple[dict[str, KnownScatter], tuple[Creep, ...], tuple[Note, ...]]:
    """Return what the base knows of the scatter of cases, creep, and notes: on it, or that files cannot be read.

    Only baselines and merges in the base's own tree count: a change must not loosen its own verdict.
    """
    tree = base.side.root.resolve()
    folder = (tree / baselines).resolve()
    if not folder.is_relative_to(tree):
        return {}, (), ()
    try:
        known = store.read_baselines(folder, empty.devices)
    except FormatError as error:
        return (
            {},
            (),
            (_unreadable("the baselines of the base cannot be read, so its scatter is not used", error, tree),),
        )
    try:
        crept = find_creep(folder, empty.devices, empty.kernels, known, empty.policy.regression)
    except FormatError as error:
        message = "the ledger of merges of the base cannot be read, so creep is not noticed"
        return known_scatter(known), (), (_unreadable(message, error, tree),)
    return known_scatter(known), crept, creep_notes(crept)


def _unreadable(message: str, error: FormatError, tree: Path) -> Note:
    """Return a note that names the file by its path in the repository: the tree is a temporary checkout."""
    what = str(error).replace(f"{tree}/", "")
    return Note(Reason.BASE_BASELINES, f"{message}: {what}", Reason.BASE_BASELINES.hint)
