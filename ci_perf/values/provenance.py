"""Where a run or a baseline comes from."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a baseline or a run comes from."""

    tool: str
    date: str
    """UTC, ISO 8601."""
    command: str
    commit: str | None = None
    """Of the repository with the kernels; ends in `-dirty` where files differed from the commit."""
    accepted_by: str | None = None
    repository: str | None = None
    """`owner/name` of the repository whose workflow measured; None outside of GitHub Actions. Runs only."""
    head: str | None = None
    """The commit that the workflow's event was about: of a pull request its head, where `commit` is a merge commit."""
    shard: str | None = None
    """Which shard of a plan this run is; None where there is no plan. Runs only."""
