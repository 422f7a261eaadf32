"""GitHub: the pull request of a commit, and the one comment that is ours. Through PyGithub, which pages and retries."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus

import requests.exceptions
from github import Auth, Github, GithubException, RateLimitExceededException, UnknownObjectException
from github.GithubRetry import GithubRetry
from github.IssueComment import IssueComment
from github.PullRequest import PullRequest

from ci_perf.github.event import Origin
from ci_perf.github.publish import Forbidden
from ci_perf.values.comment import State, read_marker
from ci_perf.values.errors import MachineError

WORKFLOW_USER = "github-actions[bot]"
"""Who comments with a workflow's own token, where GitHub does not say."""
PERMISSIONS = """give the job these permissions:

permissions:
  contents: read
  pull-requests: write
"""
_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Patience:
    """How long GitHub is asked again; the defaults follow its best practices for the REST API."""

    tries: int = 6
    backoff_s: float = 1.0
    """Doubled with each try after the second."""
    secondary_limit_s: float = 60.0
    """Where GitHub names no time itself in `Retry-After`."""
    longest_s: float = 600.0
    between_s: float = 0.25
    between_writes_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment of ours."""

    id: int
    url: str
    body: str
    state: State


class Repository:
    """A repository on GitHub, seen with a token; every failure is a MachineError that says what to change."""

    def __init__(self, api_url: str, name: str, token: str, patience: Patience = Patience()) -> None:
        self._api_url, self._name, self._token = api_url, name, token
        retry = GithubRetry(
            total=patience.tries,
            backoff_factor=patience.backoff_s,
            backoff_max=60,
            secondary_rate_wait=patience.secondary_limit_s,
            max_rate_limit_wait=patience.longest_s,
            retry_after_max=int(patience.longest_s),
            status_forcelist=[HTTPStatus.TOO_MANY_REQUESTS, *range(500, 600)],
            allowed_methods=None,  # A comment that was made twice is noticed: see `create`.
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
        with self._errors():
            found = self._repository.get_pulls(state="open", head=f"{owner}:{origin.head_branch}")
            return sorted(pull.number for pull in found if self._is_head(pull, origin, head_sha))

    def _is_head(self, pull: PullRequest, origin: Origin, head_sha: str) -> bool:
        source = str(getattr(pull.head.repo, "full_name", ""))  # None once the fork is deleted
        expected = (origin.head_repository.lower(), origin.head_branch, head_sha, self._name.lower())
        return expected == (source.lower(), pull.head.ref, pull.head.sha, pull.base.repo.full_name.lower())

    def pull_request(self, number: int, key: str) -> "Conversation":
        """Return the comments of a pull request."""
        with self._errors():
            pull = self._repository.get_pull(number)
            return Conversation(pull, pull.head.sha, key, self._is_ours, self._errors)

    def _is_ours(self, comment: IssueComment) -> bool:
        user = comment.user
        if user is None:
            return False
        bare = user.login.removesuffix("[bot]") if user.type == "Bot" else user.login
        return self._login in {user.login, bare}

    @cached_property
    def _login(self) -> str:
        """The user as whom the token comments; GitHub's GraphQL names apps with or without `[bot]`."""
        try:
            _, data = self._github.requester.graphql_query("query { viewer { login } }", {})
            return str(data["data"]["viewer"]["login"])
        except (GithubException, KeyError, TypeError):
            return WORKFLOW_USER

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn what GitHub answers, or that it does not, into what to do about it."""
        try:
            yield
        except RateLimitExceededException:
            raise self._limited() from None
        except GithubException as error:
            raise self._explained(error) from None
        except requests.exceptions.RetryError as error:
            if re.search("too many (403|429) error", str(error)):
                raise self._limited() from None
            raise MachineError(
                f"{self._api_url}: answered with errors again and again",
                hint="see https://www.githubstatus.com, and run the job again later",
            ) from None
        except requests.exceptions.RequestException as error:
            raise MachineError(
                f"{self._api_url}: cannot be reached: {self._harmless(type(error).__name__)}",
                hint="a runner behind a proxy needs HTTPS_PROXY; GITHUB_API_URL names GitHub's address",
            ) from None

    def _limited(self) -> MachineError:
        return MachineError(
            f"{self._api_url}: the token's rate limit is used up",
            hint="run the job again later; many jobs with one token of your own share its limit",
        )

    def _explained(self, error: GithubException) -> MachineError:
        data = error.data if isinstance(error.data, dict) else {}
        said = self._harmless(str(data.get("message", ""))) or "without a reason"
        what = f"{self._api_url}: {self._name}: {error.status}"
        match error.status:
            case HTTPStatus.UNAUTHORIZED:
                return MachineError(
                    f"{what}: GitHub does not accept the token ({said})",
                    hint="pass `github-token: ${{ github.token }}`; a token of your own may have expired",
                )
            case HTTPStatus.FORBIDDEN:
                return Forbidden(f"{what}: the token may not do this ({said})", hint=PERMISSIONS)
            case HTTPStatus.NOT_FOUND | HTTPStatus.GONE:
                return MachineError(
                    f"{what}: GitHub knows no such repository, pull request or comment, or hides it ({said})",
                    hint=f"the token must see {self._name}: {PERMISSIONS}",
                )
            case HTTPStatus.UNPROCESSABLE_ENTITY:
                return MachineError(
                    f"{what}: GitHub refuses the comment ({said})",
                    hint="a locked conversation takes none; otherwise report this with `--dry-run`'s output",
                )
            case _:
                return MachineError(
                    f"{what}: GitHub failed ({said})", hint="see https://www.githubstatus.com, and run the job again"
                )

    def _harmless(self, text: str) -> str:
        return text.replace(self._token, "***")[:300] if self._token else text[:300]


class Conversation:
    """The comments of one pull request, among them at most one of ours with a key."""

    def __init__(
        self,
        pull: PullRequest,
        head_sha: str,
        key: str,
        is_ours: Callable[[IssueComment], bool],
        errors: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.head_sha = head_sha
        """What the pull request's head is now."""
        self._pull, self._key, self._is_ours, self._errors = pull, key, is_ours, errors

    def find_state(self) -> State | None:
        """Return what our comment says, or None where there is none."""
        with self._errors():
            ours = self._ours()
        return ours[0][1].state if ours else None

    def write(self, body: str) -> Comment:
        """Make `body` our only comment; two jobs that do so at once end with one comment, whoever is first.

        A new comment may have been made beside another job's: who looks last sees both, and keeps the oldest.
        """
        with self._errors():
            ours = self._ours()
            if not ours:
                made = self._pull.create_issue_comment(body)
                ours = self._ours() or self._of_key([made])  # GitHub's lists may lag behind what was just made.
            (kept, found), *younger = ours
            if found.body != body:
                kept.edit(body)
            for comment, _ in younger:
                with suppress(UnknownObjectException):  # The other job was here first.
                    comment.delete()
        return found

    def _ours(self) -> list[tuple[IssueComment, Comment]]:
        found = self._of_key(self._pull.get_issue_comments())
        return sorted((pair for pair in found if self._is_ours(pair[0])), key=lambda pair: pair[1].id)

    def _of_key(self, comments: Iterable[IssueComment]) -> list[tuple[IssueComment, Comment]]:
        return [
            (comment, Comment(comment.id, comment.html_url, comment.body, state))
            for comment in comments
            if (state := read_marker(comment.body or "", self._key))
        ]
