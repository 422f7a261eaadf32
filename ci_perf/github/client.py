"""Finds pull requests and writes our comment, through PyGithub, which reads all pages and retries."""

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import TypeVar

import requests.exceptions
from github import Auth, Github, GithubException, RateLimitExceededException, UnknownObjectException
from github.GithubRetry import GithubRetry
from github.IssueComment import IssueComment
from github.PullRequest import PullRequest

from ci_perf.github.event import Origin
from ci_perf.github.publish import Forbidden
from ci_perf.values.comment import CommentStatus, read_marker
from ci_perf.values.errors import MachineError

PERMISSIONS = """give the job these permissions:

permissions:
  contents: read
  pull-requests: write
"""
_GONE = (
    "GitHub knows no such repository, pull request or comment, or hides it",
    f"the token must see {{name}}: {PERMISSIONS}",
)
_MEANINGS: dict[int, tuple[str, str]] = {
    HTTPStatus.UNAUTHORIZED: (
        "GitHub does not accept the token",
        "pass `github-token: ${{{{ github.token }}}}`; a token of your own may have expired",
    ),
    HTTPStatus.NOT_FOUND: _GONE,
    HTTPStatus.GONE: _GONE,
    HTTPStatus.UNPROCESSABLE_ENTITY: (
        "GitHub refuses the comment",
        "a locked conversation takes none; otherwise report this with the output of `--dry-run`",
    ),
}
_OTHER = ("GitHub failed", "see https://www.githubstatus.com, and run the job again")
"""What an error status means, and the remedy."""
_TIMEOUT_S = 30
_Result = TypeVar("_Result")
_LOCKED = re.compile(r"\bis locked\b", re.IGNORECASE)
_NO_PERMISSION_HELPS: dict[str, tuple[str, str]] = {
    "archived": ("the repository is archived", "unarchive it, or set `comment` to `never`"),
    "SAML": ("the organization demands single sign-on", "authorize the token for it, or use `github.token`"),
    "IP allow list": (
        "the organization admits listed addresses only",
        "add the address of the runner to its IP allow list",
    ),
    "personal access token": (
        "the organization refuses this kind of token",
        "use `github.token`, or a token of a GitHub App",
    ),
    "suspended": ("the account of the token is suspended", "use `github.token`, or the token of another account"),
    "blocked": ("the account of the token is blocked", "use `github.token`, or the token of another account"),
}
"""What a refusal with status 403 means whose message holds these words, and the remedy."""
_CUT_SHORT = (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError)


class Locked(MachineError):
    """The conversation is locked: only users with write access to the repository may comment."""


class UnreadableError(MachineError):
    """The answer was cut short, or is not one of GitHub's API, such as the HTML page of a proxy."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long a request is retried; the defaults follow GitHub's best practices for the REST API."""

    tries: int = 6
    backoff_s: float = 1.0
    """Doubled with each try after the second."""
    secondary_limit_s: float = 60.0
    """If GitHub sends no `Retry-After`."""
    longest_s: float = 480.0
    """All requests together, with their waits. A longer `Retry-After` is not waited for."""
    between_s: float = 0.25
    between_writes_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment of ours."""

    id: int
    url: str
    body: str
    status: CommentStatus


class Repository:
    """A repository on GitHub, accessed with a token; every failure is a MachineError with the remedy as its hint."""

    def __init__(self, api_url: str, name: str, token: str, patience: Patience = Patience()) -> None:
        self._api_url, self._name, self._token = api_url, name, token
        self._patience, self._ends = patience, time.monotonic() + patience.longest_s
        self._known_login: str | None = None
        retry = GithubRetry(
            total=patience.tries,
            backoff_factor=patience.backoff_s,
            backoff_max=60,
            secondary_rate_wait=patience.secondary_limit_s,
            max_rate_limit_wait=patience.longest_s,
            retry_after_max=int(patience.longest_s) + 1,
            status_forcelist=[HTTPStatus.TOO_MANY_REQUESTS, *range(500, 600)],
            allowed_methods=None,  # also POST: `write` removes a comment that was created twice
        )
        self._github = Github(
            auth=Auth.Token(token),
            base_url=api_url,
            lazy=True,
            timeout=_TIMEOUT_S,
            per_page=100,
            retry=retry,
            seconds_between_requests=patience.between_s,
            seconds_between_writes=patience.between_writes_s,
        )
        self._repository = self._github.get_repo(name)

    def find_open(self, origin: Origin, head_sha: str) -> list[int]:
        """Return the numbers of the open pull requests whose head is this commit of this branch of this repository."""
        owner = origin.head_repository.split("/")[0]

        def search() -> list[int]:
            found = self._repository.get_pulls(state="open", head=f"{owner}:{origin.head_branch}")
            return sorted(pull.number for pull in found if self._is_head(pull, origin, head_sha))

        return self.ask(search)

    def _is_head(self, pull: PullRequest, origin: Origin, head_sha: str) -> bool:
        source = str(getattr(pull.head.repo, "full_name", ""))  # None once the fork is deleted
        expected = (origin.head_repository.lower(), origin.head_branch, head_sha, self._name.lower())
        return expected == (source.lower(), pull.head.ref, pull.head.sha, pull.base.repo.full_name.lower())

    def pull_request(self, number: int, key: str) -> "Conversation":
        """Return the comments of a pull request."""
        return self.ask(lambda: Conversation(self._repository.get_pull(number), key, self))

    def is_ours(self, comment: IssueComment) -> bool:
        """Return whether the user of the token wrote a comment with our marker.

        Where GitHub does not say who that is, every comment of a bot is taken for ours: a token of a workflow or an
        App writes as a bot, and a second comment for each run would be worse.
        """
        user = comment.user
        if user is None:
            return False
        login = self._known_login or self._asked_login
        bare = user.login.removesuffix("[bot]") if user.type == "Bot" else user.login
        return login in {user.login, bare} if login else user.type == "Bot"

    def learn(self, made: IssueComment) -> None:
        """Take the author of a comment that was just made for the user of the token."""
        self._known_login = str(made.user.login)

    @cached_property
    def _asked_login(self) -> str:
        """The login of the token's user, empty if GitHub does not say. GraphQL names apps with or without `[bot]`."""
        try:
            _, data = self._github.requester.graphql_query("query { viewer { login } }", {})
            return str(data["data"]["viewer"]["login"])
        except (GithubException, LookupError, TypeError):
            return ""

    def ask(self, action: Callable[[], _Result]) -> _Result:
        """Return what an action at GitHub returns; MachineError, also once the time for all of them is over.

        An answer that cannot be read is asked for again, so the action must be one that may be repeated. It runs in a
        thread of its own, since an answer that comes byte by byte has no other end.
        """
        done: list[_Result] = []
        failed: list[BaseException] = []

        def work() -> None:
            try:
                done.append(self._repeated(action))
            except BaseException as error:  # raised again below
                failed.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(max(0.0, self._ends - time.monotonic()))
        if done:
            return done[0]
        if failed:
            raise failed[0]
        raise MachineError(
            f"{self._api_url}: {self._name}: not done within {self._patience.longest_s:g} s",
            hint="GitHub was slow, or asked for a longer wait; run the job again later",
        )

    def _repeated(self, action: Callable[[], _Result]) -> _Result:
        for attempt in range(self._patience.tries):
            try:
                with self.errors():
                    return action()
            except UnreadableError:
                if attempt + 1 == self._patience.tries:
                    raise
                time.sleep(self._patience.backoff_s * 2**attempt)
        raise AssertionError("there is at least one try")

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn errors of GitHub and of the network into a MachineError with a remedy."""
        try:
            yield
        except MachineError:
            raise
        except RateLimitExceededException:
            raise self._limited() from None
        except GithubException as error:
            raise self._explained(error) from None
        except requests.exceptions.RetryError as error:
            if re.search("too many (403|429) error", str(error)):
                raise self._limited() from None
            raise MachineError(
                f"{self._api_url}: answered each try with an error",
                hint="see https://www.githubstatus.com, and run the job again later",
            ) from None
        except _CUT_SHORT as error:
            raise self.unreadable(type(error).__name__) from None
        except requests.exceptions.RequestException as error:
            raise MachineError(
                f"{self._api_url}: cannot be reached: {self._harmless(type(error).__name__)}",
                hint="a runner behind a proxy needs HTTPS_PROXY; GITHUB_API_URL names GitHub's address",
            ) from None
        except Exception as error:  # PyGithub's own checks of an answer raise all kinds
            raise self.unreadable(type(error).__name__) from None

    def unreadable(self, why: str) -> UnreadableError:
        """Return the error of an answer that makes no sense; it is asked for again."""
        return UnreadableError(
            f"{self._api_url}: {self._name}: the answer is not one of GitHub's API, or was cut short "
            f"({self._harmless(why)})",
            hint="a proxy may have answered in place of GitHub; GITHUB_API_URL names GitHub's address",
        )

    def _limited(self) -> MachineError:
        return MachineError(
            f"{self._api_url}: the token's rate limit is used up",
            hint="run the job again later; many jobs with one token of your own share its limit",
        )

    def _explained(self, error: GithubException) -> MachineError:
        if (error.status or 0) < HTTPStatus.BAD_REQUEST:
            return self.unreadable(f"{error.status}")
        data = error.data if isinstance(error.data, dict) else {}
        said = self._harmless(str(data.get("message", ""))) or "without a reason"
        what = f"{self._api_url}: {self._name}: {error.status}"
        if error.status == HTTPStatus.FORBIDDEN and _LOCKED.search(said):
            return Locked(f"{what}: the conversation is locked ({said})", hint="unlock it, or set `comment` to `never`")
        if error.status == HTTPStatus.FORBIDDEN:
            if known := next((_NO_PERMISSION_HELPS[words] for words in _NO_PERMISSION_HELPS if words in said), None):
                return MachineError(f"{what}: {known[0]} ({said})", hint=known[1])
            return Forbidden(f"{what}: the token may not do this ({said})", hint=PERMISSIONS)
        meaning, hint = _MEANINGS.get(error.status, _OTHER)
        return MachineError(f"{what}: {meaning} ({said})", hint=hint.format(name=self._name))

    def _harmless(self, text: str) -> str:
        return text.replace(self._token, "***")[:300] if self._token else text[:300]


class Conversation:
    """The comments of one pull request, among them at most one of ours with a key."""

    def __init__(self, pull: PullRequest, key: str, repository: Repository) -> None:
        self.head_sha = pull.head.sha
        """The current head of the pull request."""
        self._pull, self._key, self._repository = pull, key, repository

    def find_status(self) -> CommentStatus | None:
        """Return what our comment says, or None if there is no comment."""
        ours = self._repository.ask(self._ours)
        return ours[0][1].status if ours else None

    def write(self, body: str) -> Comment:
        """Make `body` our only comment; if two jobs do so at once, one comment remains.

        Both may create one. The job that lists the comments last sees both, keeps the oldest and deletes the other. A
        comment that somebody deletes meanwhile is made again.
        """
        return self._repository.ask(lambda: self._write(body))

    def _write(self, body: str) -> Comment:
        ours = self._ours() or self._create(body)
        (kept, found), *younger = ours
        if _plain(found.body) != _plain(body):
            try:
                kept.edit(body)
                if _plain(kept.body) == _plain(found.body):
                    raise self._repository.unreadable("the answer does not show the new text")
            except UnknownObjectException:  # deleted since it was listed
                ((_, found),) = self._create(body)[:1]
        for comment, _ in younger:
            with suppress(UnknownObjectException):  # the other job deleted it
                comment.delete()
        return found

    def _create(self, body: str) -> list[tuple[IssueComment, Comment]]:
        made = self._pull.create_issue_comment(body)
        self._repository.learn(made)
        return self._ours() or self._of_key([made])  # GitHub's list may lag behind

    def _ours(self) -> list[tuple[IssueComment, Comment]]:
        found = self._of_key(self._pull.get_issue_comments())
        return sorted((pair for pair in found if self._repository.is_ours(pair[0])), key=lambda pair: pair[1].id)

    def _of_key(self, comments: Iterable[IssueComment]) -> list[tuple[IssueComment, Comment]]:
        return [
            (comment, Comment(comment.id, comment.html_url, comment.body, status))
            for comment in comments
            if (status := read_marker(comment.body or "", self._key))
        ]


def _plain(body: str) -> str:
    """Return a text without what GitHub may change in it: ends of lines, and white space at both ends."""
    return body.replace("\r\n", "\n").strip()
