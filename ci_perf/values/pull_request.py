"""The pull request that an event of another kind names: a comment, or a push of copy-pr-bot."""

import re
from collections.abc import Mapping

_MIRROR = re.compile("pull-request/([1-9][0-9]{0,9})")
"""The branch to which copy-pr-bot pushes the head of a pull request, where runners take no `pull_request` events."""


def claimed_number(environ: Mapping[str, str], document: object) -> int | None:
    """Return the pull request of a comment (`issue_comment`) or of copy-pr-bot's push; None for any other event.

    `document` is the JSON of the event. The commit of such an event need not be the head of the pull request.
    """
    name = environ.get("GITHUB_EVENT_NAME")
    if name == "push":
        return mirrored(environ.get("GITHUB_REF", "").removeprefix("refs/heads/"))
    issue = document.get("issue") if name == "issue_comment" and isinstance(document, Mapping) else None
    if not isinstance(issue, Mapping) or not issue.get("pull_request"):
        return None
    number = issue.get("number")
    return number if isinstance(number, int) and number > 0 else None


def mirrored(branch: str) -> int | None:
    """Return the number of the pull request whose head copy-pr-bot pushed to a branch.

    >>> mirrored("pull-request/7"), mirrored("main")
    (7, None)
    """
    found = _MIRROR.fullmatch(branch)
    return int(found[1]) if found else None
