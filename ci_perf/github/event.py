"""The event that started a workflow: its commit, its pull request, and whether its token can write.

Made from the variables that GitHub's runner sets and from the event's JSON document, which it writes to
`GITHUB_EVENT_PATH`. Fields as in GitHub's "Webhook events and payloads" and "Variables reference".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ci_perf.values.errors import ConfigError
from ci_perf.values.pull_request import claimed_number

PULL_REQUEST_EVENTS = ("pull_request", "pull_request_target")
_BOT = "dependabot[bot]"
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")
_TEXT = re.compile(".*", re.DOTALL)
_DIGITS = re.compile("[0-9]{1,18}")
_SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_URL = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]+)?(/[A-Za-z0-9._/-]*)?")


@dataclass(frozen=True, slots=True)
class Origin:
    """The workflow run that a `workflow_run` event reports: its trigger and the commit that it measured."""

    event: str
    head_repository: str
    """`owner/name`; empty if it was deleted."""
    head_branch: str
    run_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Event:
    """What started this workflow."""

    name: str
    """`pull_request`, `push`, `schedule`, ...; empty outside of GitHub Actions."""
    repository: str
    """`owner/name` of the repository of the workflow; for a fork's pull request the base repository."""
    head_sha: str
    """The commit of the event; for a pull request its head, not the merge commit that is checked out."""
    api_url: str = "https://api.github.com"
    server_url: str = "https://github.com"
    run_id: str = ""
    attempt: int = 1
    """More than 1 in a re-run."""
    pull_request: int | None = None
    """Its number; None if the event belongs to no pull request, or its number cannot be trusted."""
    claimed: bool = False
    """Whether the commit of the event need not be the pull request's head: GitHub must be asked."""
    read_only: str = ""
    """Why the workflow's token probably cannot write; empty if it probably can."""
    origin: Origin | None = None

    @property
    def run_url(self) -> str:
        """The page of the workflow run that measured, with its artifacts; empty outside of GitHub Actions."""
        run_id, attempt = (self.origin.run_id, self.origin.attempt) if self.origin else (self.run_id, self.attempt)
        if not run_id:
            return ""
        suffix = f"/attempts/{attempt}" if attempt > 1 else ""
        return f"{self.server_url}/{self.repository}/actions/runs/{run_id}{suffix}"


def parse_event(environ: Mapping[str, str], document: object, source: str = "GITHUB_EVENT_PATH") -> Event:
    """Read an event; `document` is its JSON, and `source` is the name of that file in errors (ConfigError).

    Outside of GitHub Actions, where `GITHUB_EVENT_NAME` is not set, the event has no name.

    >>> variables = {"GITHUB_EVENT_NAME": "push", "GITHUB_REPOSITORY": "octo/kernels", "GITHUB_SHA": 40 * "a"}
    >>> parse_event(variables, {}).pull_request is None
    True
    """
    name = environ.get("GITHUB_EVENT_NAME", "")
    if not name:
        return Event("", "", "")
    keys = _Keys(document, source)
    repository = _variable(environ, "GITHUB_REPOSITORY", _REPOSITORY, "owner/name")
    number, read_only, origin = claimed_number(environ, document), "", None
    claimed = number is not None
    if name in PULL_REQUEST_EVENTS:
        sha = keys.text("pull_request.head.sha", _SHA, "a commit")
        number = keys.number("pull_request.number")
        read_only = _read_only(name, repository, environ, keys)
    elif name == "merge_group":
        sha = keys.text("merge_group.head_sha", _SHA, "a commit")
    elif name == "workflow_run":
        sha = keys.text("workflow_run.head_sha", _SHA, "a commit")
        origin = _origin(repository, keys)
    else:
        sha = _variable(environ, "GITHUB_SHA", _SHA, "a commit")
    return Event(
        name=name,
        repository=repository,
        head_sha=sha,
        api_url=_variable(environ, "GITHUB_API_URL", _URL, "an address", "https://api.github.com").rstrip("/"),
        server_url=_variable(environ, "GITHUB_SERVER_URL", _URL, "an address", "https://github.com").rstrip("/"),
        run_id=_variable(environ, "GITHUB_RUN_ID", _DIGITS, "a number", "0").lstrip("0"),
        attempt=int(_variable(environ, "GITHUB_RUN_ATTEMPT", _DIGITS, "a number", "1")) or 1,
        pull_request=number,
        claimed=claimed,
        read_only=read_only,
        origin=origin,
    )


def claim(event: Event, number: int | None) -> Event:
    """Return the event as one of this pull request, which the user names; ConfigError if the event names another."""
    if number is None or number == event.pull_request:
        return event
    if event.pull_request is not None:
        raise ConfigError(
            f"--pull-request {number}: the event `{event.name}` belongs to #{event.pull_request}",
            hint="omit the option where the event names the pull request",
        )
    return replace(event, pull_request=number, claimed=True)


def _read_only(name: str, repository: str, environ: Mapping[str, str], keys: "_Keys") -> str:
    """Return why GitHub gives the workflow of this pull request a token that cannot write; empty if it can."""
    if name == "pull_request_target":
        return ""
    head = keys.text("pull_request.head.repo.full_name", absent="")  # null once the fork is deleted
    if head.lower() != repository.lower():
        return f"the pull request comes from the fork {head}" if head else "the pull request's fork is gone"
    # In a re-run too, `GITHUB_ACTOR` and the token's permissions are those of the first attempt.
    if environ.get("GITHUB_ACTOR") == _BOT:
        return "Dependabot opened the pull request"
    return ""


def _origin(repository: str, keys: "_Keys") -> Origin:
    """Read which workflow run was completed; one of another repository is refused."""
    of = keys.text("workflow_run.repository.full_name")
    if of.lower() != repository.lower():
        raise ConfigError(
            f"{keys.source}: key `workflow_run.repository.full_name`: a run of `{of}`, this is `{repository}`",
            hint="a run from another repository is not published here",
        )
    return Origin(
        event=keys.text("workflow_run.event"),
        head_repository=keys.text("workflow_run.head_repository.full_name", absent=""),
        head_branch=keys.text("workflow_run.head_branch", absent=""),
        run_id=str(keys.number("workflow_run.id")),
        attempt=keys.number("workflow_run.run_attempt"),
    )


@dataclass(frozen=True, slots=True)
class _Keys:
    """Reads values from a JSON document; a value of another kind is a ConfigError with file and key."""

    document: object
    source: str

    def find(self, path: str) -> object:
        found = self.document
        for key in path.split("."):
            found = found.get(key) if isinstance(found, Mapping) else None
        return found

    def text(self, path: str, form: re.Pattern[str] = _TEXT, expected: str = "text", absent: str | None = None) -> str:
        found = self.find(path)
        if found is None and absent is not None:
            return absent
        if not isinstance(found, str) or not form.fullmatch(found):
            raise self.error(path, found, expected)
        return found

    def number(self, path: str) -> int:
        found = self.find(path)
        if not isinstance(found, int) or isinstance(found, bool) or not 0 < found < 1 << 53:
            raise self.error(path, found, "a number")
        return found

    def error(self, path: str, found: object, expected: str) -> ConfigError:
        shown = "is missing" if found is None else f"{found!r:.80} is not {expected}"
        return ConfigError(
            f"{self.source}: key `{path}`: {shown}", hint="GitHub's runner writes this file for each job"
        )


def _variable(environ: Mapping[str, str], name: str, form: re.Pattern[str], expected: str, default: str = "") -> str:
    value = environ.get(name) or default
    if not form.fullmatch(value):
        shown = f"{value!r:.80} is not {expected}" if value else "is not set"
        raise ConfigError(f"environment {name}: {shown}", hint="GitHub's runner sets it in each step of a job")
    return value
