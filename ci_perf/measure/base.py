"""The base commit: its own tree, built like the head, with its kernels and its workers."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ci_perf.measure import git, git_base, git_checkout
from ci_perf.measure.both_sides import ProfiledBase
from ci_perf.measure.kept_base import built_tree, toolchain_hash
from ci_perf.measure.one_install import note_one_install
from ci_perf.measure.setup import Setup
from ci_perf.measure.side import Side
from ci_perf.measure.worker_process import Worker
from ci_perf.values.errors import CiPerfError, ConfigError
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.kernel_toml import parse_kernel
from ci_perf.values.run import Against, Note

_LARGE = 1_000_000


@dataclass(frozen=True, slots=True)
class Base:
    """What runs the base: a side that takes turns with the head, and the control, which takes turns with that side."""

    against: Against
    side: Side
    control: Side
    cases: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The names of the cases that the base's own kernel.toml has, by the head's names of kernels."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Of its workers."""
    touched: Collection[str] = ()
    """Kernels whose own files differ from the head's, by the head's names."""
    is_built: bool = True
    """Whether a setup command ran in its tree."""
    notes: tuple[Note, ...] = ()
    """What may make its numbers those of the head."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """The base's name of each file that the head calls otherwise."""

    @property
    def workers(self) -> tuple[Worker, Worker]:
        """That of the base, and that of the control."""
        return self.side.worker, self.control.worker

    @property
    def profiled(self) -> ProfiledBase:
        """The base as profilers see it."""
        side = self.side
        return ProfiledBase(
            side.root, side.worker.python, self.env, side.worker, side.kernels, self.touched, self.renamed
        )


def find_base(root: Path, ref: str, setup: Setup, environ: Mapping[str, str], *, shared: bool) -> str:
    """Return the commit of the base that `ref` names; ConfigError, MachineError for a wrong reference or setup command.

    `environ` is the job's own environment, which names the pull request.
    """
    setup.check(shared=shared)  # an error in it is reported before anything is fetched
    return git_base.resolve_base(root, ref, environ)


@contextmanager
def prepared(
    root: Path,
    ref: str,
    commit: str,
    *,
    kernels_dir: str,
    head: Sequence[KernelSpec],
    setup: Setup,
    python: str,
    env: Mapping[str, str],
    logs: Path,
    environ: Mapping[str, str],
    shared: bool = True,
) -> Iterator[Base]:
    """Check out the base, run the setup command in its tree, and start the base's workers.

    `commit` is that of `ref` (`find_base`). `environ` is the job's own environment; `env` is that of the workers.
    `shared` means that both sides run under one interpreter. ConfigError, MachineError.
    """
    toolchain = partial(toolchain_hash, python, env)

    def build(folder: Path, why: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.iterdir()):  # the base does not have the folder: everything in the head is new
            return
        before = toolchain() if shared else ""
        own = _env_of(setup.env or env, root, folder, python)
        heading = f"# built again: {why}\n" if why else ""
        setup.run(folder, logs / "setup-base.log", env=own, heading=heading, of_base=True)
        if shared and toolchain() != before:
            raise ConfigError(
                f"--setup `{setup.command}`: for the base it changed what is installed for both sides",
                hint="the head would run with it: give the base its own environment with --base-python",
            )

    if setup.command and setup.keeps_base:
        depends_on = (setup.command, python, *(f"{name}={value}" for name, value in sorted((setup.env or {}).items())))
        built = built_tree(root, commit, depends_on, environ, build, toolchain)
    else:
        built = _built_once(root, commit, build if setup.command else None)
    with built as tree:
        renamed = git.renamed_from(root, commit)
        kernels = _kernels_of(tree, head, renamed)
        against = Against(ref, commit, tuple(sorted(_gone(tree, kernels_dir, head, kernels))))
        own = _env_of(env, root, tree, python)
        with (
            Worker(python, own, logs, "worker-base", tree) as worker,
            Worker(python, own, logs, "worker-control", tree) as control,
        ):
            for started in (worker, control):
                started.begin()
            side = Side("base", tree, kernels, worker)
            notes = note_one_install(root, head, python, env) if shared else ()
            touched = touched_kernels(root, commit, tree, head, kernels)
            cases = {name: frozenset(_own(tree, spec).cases) for name, spec in kernels.items()}
            yield Base(
                against, side, replace(side, worker=control), cases, own, touched, bool(setup.command), notes, renamed
            )


@contextmanager
def _built_once(root: Path, commit: str, build: Callable[[Path, str], None] | None) -> Iterator[Path]:
    """Check the base out and build it for this run alone."""
    with git_checkout.checked_out(root, commit) as tree:
        if build:
            build(tree, "")
        yield tree


def _env_of(env: Mapping[str, str], root: Path, tree: Path, python: str) -> dict[str, str]:
    """Return the environment of the base: paths into the head's tree point into its own, its interpreter is first.

    torch builds extensions in a folder named after them; each side needs its own.
    """
    own = paths_in_tree(env, root, tree)
    own["TORCH_EXTENSIONS_DIR"] = str(tree.parent / "torch-extensions")
    if "/" in python:
        own["PATH"] = os.pathsep.join(part for part in (str(Path(python).parent), own.get("PATH", "")) if part)
    return own


def paths_in_tree(env: Mapping[str, str], root: Path, tree: Path) -> dict[str, str]:
    """Return variables such as PYTHONPATH with paths in `root` replaced by those in `tree` that exist."""
    return {
        name: os.pathsep.join(_in_tree(part, root.resolve(), tree) for part in value.split(os.pathsep))
        for name, value in env.items()
    }


def _in_tree(path: str, root: Path, tree: Path) -> str:
    """Return the same path in the base's tree if it exists there; a virtual environment usually does not."""
    if not path.startswith("/"):
        return path
    real = Path(path).resolve()
    there = tree / real.relative_to(root) if real.is_relative_to(root) else None
    return str(there) if there is not None and there.exists() else path


def _gone(
    tree: Path, kernels_dir: str, head: Sequence[KernelSpec], followed: Mapping[str, KernelSpec]
) -> Iterator[str]:
    """List what only the base has: `kernel` or `kernel/case`.

    A case with the same name or with the same parameters in the head is not gone.
    """
    heads = {Path(followed[spec.name].folder).name: spec for spec in head if spec.name in followed}
    for file in sorted((tree / kernels_dir).glob("*/kernel.toml")):
        name = file.parent.name
        if name not in heads:
            yield name
            continue
        spec, own = heads[name], _parsed(file, name, name)
        known = [dict(params) for params in spec.cases.values()]
        for case, params in own.cases.items() if own else ():
            if case not in spec.cases and dict(params) not in known:
                yield f"{spec.name}/{case}"


def _kernels_of(tree: Path, head: Sequence[KernelSpec], renamed: Mapping[str, str]) -> dict[str, KernelSpec]:
    """Find the head's kernels in the base, by the head's names; those that the base does not have are left out.

    Only the entry file counts: the head's kernel.toml defines the cases of both sides.
    """
    found: dict[str, KernelSpec] = {}
    for spec in head:
        if spec.program is not None:  # the head's command line runs in the base's tree
            if (tree / spec.folder / "kernel.toml").is_file():
                found[spec.name] = spec
            continue
        entry = renamed.get(f"{spec.folder}/{spec.entry}", f"{spec.folder}/{_own(tree, spec).entry}")
        if (tree / entry).is_file():
            folder, _, file = entry.rpartition("/")
            found[spec.name] = replace(spec, folder=folder, entry=file)
    return found


def _own(tree: Path, spec: KernelSpec) -> KernelSpec:
    """Return a kernel as the base's own kernel.toml describes it, or as the head's does where that cannot be read."""
    return _parsed(tree / spec.folder / "kernel.toml", spec.name, spec.folder) or spec


def _parsed(file: Path, name: str, folder: str) -> KernelSpec | None:
    try:
        return parse_kernel(file.read_text(encoding="utf-8"), name=name, folder=folder)
    except (OSError, UnicodeDecodeError, CiPerfError):
        return None


def touched_kernels(
    root: Path, commit: str, tree: Path, head: Sequence[KernelSpec], base: Mapping[str, KernelSpec]
) -> frozenset[str]:
    """Return the kernels of the head whose folder holds other files than the base's, or files of other content.

    What git ignores does not count: it is built, such as the cache of a compiler.
    """
    folders = {spec.name: (spec.folder, base[spec.name].folder) for spec in head if spec.name in base}
    if not folders:
        return frozenset()
    mine = _contents(root, git.query_files(root, [here for here, _ in folders.values()]))
    theirs = _contents(tree, git.query_files(root, [there for _, there in folders.values()], commit))
    return frozenset(name for name, (new, old) in folders.items() if _below(new, mine) != _below(old, theirs))


def _contents(tree: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Return the content of files; those of 1 MB or more are built, not written. Some may be deleted, or unreadable."""
    found = {}
    for name in names:
        with suppress(OSError):
            if (tree / name).is_file() and (tree / name).stat().st_size < _LARGE:
                found[name] = (tree / name).read_bytes()
    return found


def _below(folder: str, contents: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the contents of the files of a folder by their place in it."""
    return {name[len(folder) + 1 :]: content for name, content in contents.items() if name.startswith(f"{folder}/")}
