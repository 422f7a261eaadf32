"""The versions of the files in `baselines/`, read by two processes of git however many commits there are."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ci_perf.history.points import in_utc, points_of_baseline
from ci_perf.measure.git import outside_hooks, query_problem
from ci_perf.values.errors import MachineError
from ci_perf.values.series import Point


@dataclass(frozen=True, slots=True)
class Version:
    """A baseline file as one commit left it."""

    commit: str
    when: str
    device: str
    kernel: str
    blob: str


def read_history(
    root: Path, baselines: str, kernels: Sequence[str] = (), *, devices: Sequence[str] = ("*",), newest: int = 0
) -> tuple[list[Point], list[str]]:
    """Return the points of these kernels, or of all, and a sentence for each version that cannot be read.

    `devices` are slugs. With `newest` above 0, only so many commits are read. MachineError where there is no git or no
    repository.
    """
    paths = [f":(glob){baselines}/{device}/{kernel}.json" for device in devices for kernel in kernels or ("*",)]
    most = [f"--max-count={newest}"] if newest else []
    log = _git(root, "log", "--reverse", *most, "--format=%x00%H %cI", *_RAW, "--", *paths)
    versions = list(_versions(log.decode()))
    points: list[Point] = []
    problems: list[str] = []
    for version, text in zip(versions, _blobs(root, [v.blob for v in versions]), strict=True):
        try:
            points += points_of_baseline(text.decode(), version.kernel, version.device, version.when, version.commit)
        except ValueError as error:
            problems.append(f"{version.device}/{version.kernel}.json at {version.commit[:8]} cannot be read: {error}")
    return points, problems


_RAW = ("--raw", "--no-abbrev", "--no-renames", "-z", "--relative", "--diff-filter=AM")


def _versions(log: str) -> Iterator[Version]:
    """Parse `git log --raw -z`: a commit, then for each file a line of its modes and hashes, and its path."""
    commit, when = "", ""
    fields = iter(log.split("\0"))
    for field in fields:
        text = field.strip()
        if text.startswith(":"):
            path = Path(next(fields))
            yield Version(commit, when, path.parent.name, path.stem, text.split()[3])
        elif text:
            commit, _, date = text.partition(" ")
            when = in_utc(date)


def _blobs(root: Path, hashes: Sequence[str]) -> Iterator[bytes]:
    """Yield the content of each blob, in order."""
    if not hashes:
        return
    output = _git(root, "cat-file", "--batch", stdin="\n".join(hashes).encode() + b"\n")
    place = 0
    for _ in hashes:
        end = output.index(b"\n", place)
        header = output[place:end].split()
        size = int(header[2]) if len(header) == 3 else 0  # a partial clone may lack it: `HASH missing`
        yield output[end + 1 : end + 1 + size]
        place = end + 1 + (size + 1 if len(header) == 3 else 0)


def _git(root: Path, *arguments: str, stdin: bytes | None = None) -> bytes:
    try:
        env = {**outside_hooks(os.environ), "LC_ALL": "C"}
        argv = ("git", "-C", str(root), *arguments)
        ran = subprocess.run(argv, input=stdin or b"", capture_output=True, check=False, env=env)
    except OSError as error:
        raise MachineError(f"cannot start `git`: {error.strerror}", hint="install git") from None
    if ran.returncode:
        if problem := query_problem(root):
            raise MachineError(problem[0], hint=problem[1])
        said = ran.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise MachineError(f"git {arguments[0]} failed in {root}: {said[0]}", hint="see `git status` there")
    return ran.stdout
