"""The pull request on which a run is published, and our comment there.

GitHub is asked only where a comment may follow: PyGithub is imported no earlier.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ci_perf.github.event import PULL_REQUEST_EVENTS, Event
from ci_perf.github.publish import Thread
from ci_perf.values.errors import MachineError
from ci_perf.values.pull_request import mirrored

if TYPE_CHECKING:
    from ci_perf.github.client import Conversation, Repository

NO_TOKEN = "GITHUB_TOKEN is not set: `env: GITHUB_TOKEN: ${{ github.token }}` lets the step comment"  # noqa: S105


@dataclass(frozen=True, slots=True)
class Target:
    """The pull request, as far as there is one."""

    event: Event
    """With the number of the pull request, where only GitHub knows it."""
    thread: Thread
    conversation: "Conversation | None" = None
    failure: MachineError | None = None
    """Why GitHub could not be asked. It is raised after everything that does not need GitHub is done."""


def find_target(event: Event, policy: str, key: str, token: str, measured: Collection[str], *, foreign: bool) -> Target:
    """Find the pull request and our comment with this key, or why there is none; nothing is written.

    `policy` is one of COMMENT_POLICIES. For a foreign run GitHub is asked which pull request has the commit that the
    event names: no number from the artifact is used. `measured` are the commits that the run may stand for: where the
    event does not name the head of the pull request, that must be one of them.
    """
    if policy == "never" or (event.pull_request is None and not foreign):
        return Target(event, Thread())
    if not token:
        return Target(event, Thread(absent=NO_TOKEN))
    from ci_perf.github.client import Repository

    repository = Repository(event.api_url, event.repository, token)
    try:
        if foreign:
            event, absent = _locate(event, repository)
            if absent:
                return Target(event, Thread(absent=absent))
        conversation = repository.pull_request(event.pull_request or 0, key)
        head = conversation.head_sha
        if event.claimed and head not in measured:
            absent = f"{min(measured, default='no commit')} was measured, the head of #{event.pull_request} is {head}"
            return Target(event, Thread(absent=absent))
        event = replace(event, head_sha=head) if event.claimed else event
        return Target(event, Thread(conversation.find_status(), head), conversation)
    except MachineError as error:
        return Target(event, Thread(absent=str(error)), failure=error)


def _locate(event: Event, repository: "Repository") -> tuple[Event, str]:
    """Add the number of the one open pull request whose head is the event's commit, or return why there is none."""
    origin = event.origin
    if event.claimed:  # a maintainer's workflow names it
        return event, ""
    own = origin and origin.head_repository.lower() == event.repository.lower()
    if origin and own and origin.event == "push" and (number := mirrored(origin.head_branch)):
        return replace(event, pull_request=number), ""
    if origin is None or origin.event not in PULL_REQUEST_EVENTS:
        by = f"the workflow run was started by `{origin.event if origin else ''}`, not by a pull request"
        return event, f"{by}: name it with --pull-request"
    if not origin.head_repository or not origin.head_branch:
        return event, "the repository of the pull request's head is gone"
    numbers = repository.find_open(origin, event.head_sha)
    if len(numbers) == 1:
        return replace(event, pull_request=numbers[0]), ""
    count = f"{len(numbers)} open pull requests have" if numbers else "no open pull request has"
    return event, f"{count} {event.head_sha} of {origin.head_repository} as its head"
