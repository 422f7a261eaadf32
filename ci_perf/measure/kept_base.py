"""The base commit's tree as the setup command left it, kept from run to run: a pull request's base rarely changes.

A tree lies in the cache under a hash of what determines the build: the content of the commit, the command, the
interpreter, the environment of the command. It is used again as long as the toolchain is as it was after the build
(torch may have been upgraded since, or another base installed into the same interpreter) and its tracked files are
those of the commit. Whoever can write into the cache can still replace what was built, which nothing can check: in a
workflow nothing is kept unless `--keep-base` asks for it. The head is built in place, every time, by tools that know
what is up to date.
"""

import fcntl
import hashlib
import os
import platform
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from ci_perf.measure import git, git_checkout, gpu, tools
from ci_perf.values.errors import MachineError

KEPT = 5
"""How many built trees are kept: those used last."""
_MOST_SHOWN = 10

# The RECORD of a package lists its files with their hashes; direct_url.json says which tree an editable one lies in.
_INSTALLED_PROBE = """
import hashlib, importlib.metadata, sys
sys.path = [folder for folder in sys.path if folder]
found = []
for dist in importlib.metadata.distributions():
    try:
        texts = [dist.read_text(name) or "" for name in ("RECORD", "direct_url.json")]
        known = [dist.metadata["Name"], dist.version, *texts]
    except Exception as error:
        known = [repr(error)]
    found.append(hashlib.sha256(repr(known).encode()).hexdigest())
print("ci-perf: " + sys.version.replace("\\n", " ") + " " + sys.prefix)
print("ci-perf: " + hashlib.sha256("\\n".join(sorted(found)).encode()).hexdigest())
"""


def _cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of built trees: in $CI_PERF_CACHE, else in ci-perf in the XDG cache folder."""
    chosen = environ.get("CI_PERF_CACHE")
    home = Path(environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return (Path(chosen) if chosen else home / "ci-perf") / "trees"


@contextmanager
def built_tree(
    root: Path,
    commit: str,
    depends_on: tuple[str, ...],
    environ: Mapping[str, str],
    build: Callable[[Path, str], None],
    toolchain: Callable[[], str],
) -> Iterator[Path]:
    """Yield the folder of `root` in a commit's tree in which `build` was run once for these `depends_on`.

    It is built again, and `build` is told why, where `toolchain`, which returns a hash, or a tracked file has changed
    since the build. A build that fails or is killed does not count as built. One run at a time builds a tree, several
    use it, and a tree in use is neither built again nor removed.
    """
    cache = _cache_folder(environ)
    parts = (git.query_tree(root, commit), git.query_prefix(root), *git_checkout.query_submodules(root), *depends_on)
    folder = cache / hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(
            f"{folder}: built trees cannot be kept there: {error.strerror}", hint="name a folder with CI_PERF_CACHE"
        ) from None
    descriptor = os.open(folder.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        tree, complete = folder / "tree", folder / "complete"
        why = _why_not_usable(root, commit, tree, complete, toolchain)
        if why is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # another run may build it first
            why = _why_not_usable(root, commit, tree, complete, toolchain)
        if why is not None:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True)
            with git_checkout.worktree(root, commit, tree, kept=True):
                build(tree / git.query_prefix(root), why)
            complete.write_text(f"{toolchain()}\n", encoding="utf-8")
        os.utime(folder)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        _forget_old(cache, folder)
        yield tree / git.query_prefix(root)
    finally:
        os.close(descriptor)


def _why_not_usable(root: Path, commit: str, tree: Path, complete: Path, toolchain: Callable[[], str]) -> str | None:
    """Return why a tree must be built, an empty text where it never was; None where it can be used."""
    if not complete.is_file():
        return ""
    if complete.read_text(encoding="utf-8").strip() != toolchain():
        return "interpreter, installed packages, compilers or GPUs have changed"
    changed = git.query_changed(root, commit, tree)
    return f"tracked files are not those of the commit: {', '.join(changed[:_MOST_SHOWN])}" if changed else None


def _forget_old(cache: Path, current: Path) -> None:
    """Remove all but the trees used last; one that is in use stays."""
    folders = sorted((f for f in cache.iterdir() if f.is_dir()), key=lambda f: f.stat().st_mtime, reverse=True)
    for folder in folders[KEPT:]:
        if folder == current:
            continue
        lock = folder.with_suffix(".lock")
        with suppress(OSError), lock.open("ab") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
            lock.unlink()


def toolchain_hash(python: str, env: Mapping[str, str]) -> str:
    """Return a hash of interpreter, installed packages, compilers and GPUs; imports none of the packages."""
    parts = [platform.machine(), *_installed(python, env)]
    for command in _compilers(env):
        parts += [shlex.join(command), tools.probe([*command, "--version"], env)[1]]
    # torch compiles for what it sees where TORCH_CUDA_ARCH_LIST names nothing.
    parts += sorted({str(found.device.compute_capability) for found in gpu.query_gpus()})
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _installed(python: str, env: Mapping[str, str]) -> list[str]:
    well, output = tools.probe([python, "-c", _INSTALLED_PROBE], env)
    lines = [line for line in output.splitlines() if line.startswith("ci-perf: ")]
    if not well or len(lines) != 2:
        last = (output.splitlines() or ["it printed nothing"])[-1]
        raise MachineError(f"{python}: cannot say what is installed: {last}", hint="see --python and --base-python")
    return [str(Path(python).resolve()), *lines]


def _compilers(env: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield the commands of compilers in the order in which builds look for them."""
    for name, usual in (("CC", "cc"), ("CXX", "c++")):
        yield shlex.split(env.get(name) or usual)
    homes = [Path(env[name]) for name in ("CUDA_HOME", "CUDA_PATH") if env.get(name)]
    for nvcc in (*(home / "bin/nvcc" for home in homes), Path("nvcc"), Path("/usr/local/cuda/bin/nvcc")):
        yield [str(nvcc)]
