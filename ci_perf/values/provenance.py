"""Where a run or a baseline comes from."""

from dataclasses import dataclass
from typing import Annotated

from ci_perf.values.extensible import OMIT_DEFAULT, Extensible, Text, pattern


@dataclass(frozen=True, slots=True)
class Provenance(Extensible):
    """Where the numbers come from."""

    tool: Text
    """ci-perf and its version."""
    date: Annotated[str, pattern(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|\+00:00)$")]
    """UTC, ISO 8601."""
    command: str
    """The command line that measured."""
    commit: Annotated[str, pattern("^[0-9a-f]{7,64}(-dirty)?$")] | None = None
    """The commit of the repository with the kernels; ends in `-dirty` if files differed from the commit."""
    accepted_by: str | None = None
    """Who accepted these numbers as the baseline."""
    repository: Annotated[str | None, pattern("^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$"), OMIT_DEFAULT] = None
    """`owner/name` of the repository whose workflow measured; None outside of GitHub Actions. Runs only."""
    head: Annotated[str | None, pattern("^[0-9a-f]{40,64}$"), OMIT_DEFAULT] = None
    """The commit of the workflow's event: of a pull request its head, where `commit` is a merge commit."""
    shard: Annotated[str | None, OMIT_DEFAULT] = None
    """Which shard of a plan this run measured; None without a plan. Runs only."""
