"""The base commit made ready: a tree of its own, built like the head, with its kernels and its worker."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ci_perf.core.errors import CiPerfError, MachineError
from ci_perf.core.model import Against, KernelSpec
from ci_perf.core.spec import parse_kernel
from ci_perf.edge import git, proc, store
from ci_perf.edge.turns import Side
from ci_perf.edge.worker_process import Worker

SETUP_TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Base:
    """What is needed to run the base: one side for the turns with the head, and its twin for the control."""

    against: Against
    side: Side
    twin: Side


@contextmanager
def prepared(
    root: Path,
    ref: str,
    *,
    kernels_dir: str,
    head: Sequence[KernelSpec],
    setup: str,
    python: str,
    env: Mapping[str, str],
    logs: Path,
    environ: Mapping[str, str],
) -> Iterator[Base]:
    """Check the base out, run the setup command in both trees, and start nothing yet.

    `environ` is the job's own environment, which tells of the pull request; `env` is that of the workers.
    """
    commit = git.resolve_base(root, ref, environ)
    with git.checked_out(root, commit) as tree:
        for name, folder in (("head", root), ("base", tree)):
            _set_up(setup, folder, env, logs / f"setup-{name}.log")
        kernels = _kernels_of(tree, head, git.renamed_from(root, commit))
        names = {file.parent.name for file in (tree / kernels_dir).glob("*/kernel.toml")}
        followed = {Path(spec.folder).name for spec in kernels.values()}
        against = Against(ref, commit, tuple(sorted(names - followed)))
        with Worker(python, env, logs, "worker-base") as worker, Worker(python, env, logs, "worker-control") as twin:
            side = Side("base", tree, kernels, worker)
            yield Base(against, side, replace(side, worker=twin))


def _set_up(command: str, folder: Path, env: Mapping[str, str], log: Path) -> None:
    """Run the setup command, which builds what the kernels import; its output is kept."""
    if not command:
        return
    completed = proc.run(shlex.split(command), timeout_s=SETUP_TIMEOUT_S, env=env, cwd=folder)
    store.write_text(log, completed.output)
    if completed.status != 0:
        last = completed.output.strip().splitlines()[-1:] or [""]
        raise MachineError(
            f"setup `{command}` ended with {proc.signal_name(completed.status)} in {folder}: {last[0]}",
            hint=f"see {log}",
        )


def _kernels_of(tree: Path, head: Sequence[KernelSpec], renamed: Mapping[str, str]) -> dict[str, KernelSpec]:
    """Find the head's kernels in the base, by the head's names; one that the base does not have is left out.

    Only the entry file counts: the head's kernel.toml says which cases are measured, on both sides alike.
    """
    found: dict[str, KernelSpec] = {}
    for spec in head:
        if spec.program is not None:  # the head's command line runs in the base's tree
            if (tree / spec.folder / "kernel.toml").is_file():
                found[spec.name] = spec
            continue
        entry = renamed.get(f"{spec.folder}/{spec.entry}", f"{spec.folder}/{_entry_of(tree, spec)}")
        if (tree / entry).is_file():
            folder, _, file = entry.rpartition("/")
            found[spec.name] = replace(spec, folder=folder, entry=file)
    return found


def _entry_of(tree: Path, spec: KernelSpec) -> str:
    """Return the entry that the base's own kernel.toml names; the head's where that one cannot be read."""
    file = tree / spec.folder / "kernel.toml"
    try:
        return parse_kernel(file.read_text(encoding="utf-8"), name=spec.name, folder=spec.folder).entry
    except (OSError, UnicodeDecodeError, CiPerfError):
        return spec.entry
