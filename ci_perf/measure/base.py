"""The base commit: its own tree, built like the head, with its kernels and its workers."""

import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ci_perf import store
from ci_perf.measure import git, proc
from ci_perf.measure.both_sides import ProfiledBase
from ci_perf.measure.built import built_tree, steering_variables, toolchain_hash
from ci_perf.measure.turns import Side
from ci_perf.measure.worker_process import Worker
from ci_perf.values.errors import CiPerfError, ConfigError, MachineError
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.kernel_toml import parse_kernel
from ci_perf.values.run import Against

SETUP_TIMEOUT_S = 3600.0
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

    @property
    def profiled(self) -> ProfiledBase:
        """The base as profilers see it."""
        side = self.side
        return ProfiledBase(side.root, side.worker.python, self.env, side.worker, side.kernels, self.touched)


def find_base(root: Path, ref: str, setup: str, environ: Mapping[str, str], *, shared: bool) -> str:
    """Return the commit of the base that `ref` names; ConfigError, MachineError for a wrong reference or setup command.

    `environ` is the job's own environment, which names the pull request.
    """
    _check_setup(setup.strip(), shared=shared)  # an error in it is reported before anything is fetched
    return git.resolve_base(root, ref, environ)


@contextmanager
def prepared(
    root: Path,
    ref: str,
    commit: str,
    *,
    kernels_dir: str,
    head: Sequence[KernelSpec],
    setup: str,
    python: str,
    env: Mapping[str, str],
    logs: Path,
    environ: Mapping[str, str],
    shared: bool = True,
) -> Iterator[Base]:
    """Check out the base, run the setup command in both trees, and start the base's workers.

    `commit` is that of `ref` (`find_base`). `environ` is the job's own environment; `env` is that of the workers.
    `shared` means that both sides run under one interpreter. ConfigError, MachineError.
    """
    setup = setup.strip()
    toolchain = partial(toolchain_hash, python, env)

    def build(folder: Path) -> None:
        if not folder.is_dir():  # the base does not have the folder: everything in the head is new
            folder.mkdir(parents=True)
            return
        before = toolchain() if shared else ""
        _set_up(setup, folder, env=_env_of(env, root, folder, python), log=logs / "setup-base.log")
        if shared and toolchain() != before:
            raise ConfigError(
                f"--setup `{setup}`: for the base it changed what is installed for both sides; the head would run so",
                hint="give the base its own environment with --base-python",
            )

    _set_up(setup, root, env=env, log=logs / "setup-head.log")
    depends_on = (setup, python, *steering_variables(env))
    built = built_tree(root, commit, depends_on, environ, build, toolchain) if setup else git.checked_out(root, commit)
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
            cases = {name: frozenset(_own(tree, spec).cases) for name, spec in kernels.items()}
            yield Base(against, side, replace(side, worker=control), cases, own, _touched(root, tree, head, kernels))


_INSTALLS = re.compile(r"\binstall\b.*\s(-e|--editable|\.\S*|/\S+)(\s|\[|$)|\bsetup\.py\s+(develop|install)\b")
"""A command that installs a tree: editable, or by its path."""
_ELSEWHERE = re.compile(r"\s(-t|--target|--prefix|--root)\b")


def _check_setup(command: str, *, shared: bool) -> None:
    """Raise ConfigError for a setup command that is no command, or that installs one tree for both sides."""
    try:
        shlex.split(command)
    except ValueError as error:
        hint = "quote as for a shell; there is none unless the command starts one: sh -c '...'"
        raise ConfigError(f"--setup `{command}`: {error}", hint=hint) from None
    if shared and _INSTALLS.search(command) and not _ELSEWHERE.search(command):
        raise ConfigError(
            f"--setup `{command}`: an install into the interpreter of both sides serves one tree only",
            hint="give the base its own environment with --base-python, or put the tree on PYTHONPATH instead",
        )


def _set_up(command: str, folder: Path, *, env: Mapping[str, str], log: Path) -> None:
    """Run the setup command, which builds what the kernels import; its output is kept."""
    if not command:
        return
    completed = proc.run(shlex.split(command), timeout_s=SETUP_TIMEOUT_S, env=env, cwd=folder)
    store.write_text(log, completed.output)
    if completed.timed_out:
        raise MachineError(f"setup `{command}` took longer than {SETUP_TIMEOUT_S:g} s in {folder}", hint=f"see {log}")
    if completed.status != 0:
        raise MachineError(f"setup `{command}` {completed.end} in {folder}{completed.said}", hint=f"see {log}")


def _env_of(env: Mapping[str, str], root: Path, tree: Path, python: str) -> dict[str, str]:
    """Return the environment of the base: paths into the head's tree point into its own, its interpreter is first.

    torch builds extensions in a folder named after them; each side needs its own.
    """
    own = {
        name: os.pathsep.join(_in_tree(part, root.resolve(), tree) for part in value.split(os.pathsep))
        for name, value in env.items()  # such as PYTHONPATH
    }
    own["TORCH_EXTENSIONS_DIR"] = str(tree.parent / "torch-extensions")
    if "/" in python:
        own["PATH"] = os.pathsep.join(part for part in (str(Path(python).parent), own.get("PATH", "")) if part)
    return own


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


def _touched(root: Path, tree: Path, head: Sequence[KernelSpec], base: Mapping[str, KernelSpec]) -> frozenset[str]:
    """Return the kernels of the head whose folder holds other files than the base's, or files of other content."""
    pairs = {spec.name: (root / spec.folder, tree / base[spec.name].folder) for spec in head if spec.name in base}
    return frozenset(name for name, (mine, theirs) in pairs.items() if _files(mine) != _files(theirs))


def _files(folder: Path) -> dict[Path, bytes]:
    """Return the small files of a folder by their place in it; those of 1 MB or more are built, not written."""
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder): path.read_bytes() for path in found if path.stat().st_size < _LARGE}
