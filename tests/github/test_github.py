"""Comments on a pull request, at a GitHub whose every request and answer fits GitHub's own description."""

import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest

from ci_perf.github.client import Locked, Patience, Repository
from ci_perf.github.event import Origin
from ci_perf.github.publish import Forbidden
from ci_perf.values.comment import CommentStatus, State, marker
from ci_perf.values.errors import MachineError
from tests.fake_github import Account, FakeGitHub, Fault

TOKEN = "ghs_secret"
SHA = "a" * 40
QUICK = Patience(tries=3, backoff_s=0.0, secondary_limit_s=0.0, between_s=0.0, between_writes_s=0.0)
OURS = marker("default", CommentStatus(State.FLAGGED))


@pytest.fixture
def github():
    with FakeGitHub() as server:
        server.open_pull(7, SHA)
        yield server


def repository(github, token=TOKEN, patience=QUICK):
    return Repository(github.url, "octo/kernels", token, patience)


def talk(github, key="default", **options):
    return repository(github, **options).pull_request(7, key)


def write(github, body, **options):
    return talk(github, **options).write(body)


def test_the_first_write_makes_a_comment_and_the_next_ones_change_it(github):
    first = write(github, f"{OURS}\nslower")
    second = write(github, f"{OURS}\nslower still")

    assert github.bodies(7) == [f"{OURS}\nslower still"]
    assert second.id == first.id
    assert second.url == f"https://github.com/octo/kernels/pull/7#issuecomment-{first.id}"


def test_a_comment_that_says_the_same_already_is_not_written_again(github):
    write(github, f"{OURS}\nslower")
    write(github, f"{OURS}\nslower")

    assert [method for method, path in github.requests if "graphql" not in path].count("PATCH") == 0


def test_a_comment_is_found_on_any_page_and_its_state_read(github):
    for i in range(150):
        github.say(7, f"remark {i}", login="ada", kind="User")
    github.say(7, f"{marker('default', CommentStatus(State.RESOLVED))}\nfine")
    for i in range(150):
        github.say(7, f"remark {i}", login="ada", kind="User")

    assert talk(github).find_status().state is State.RESOLVED
    write(github, f"{OURS}\nslower")
    assert len(github.bodies(7)) == 301
    assert github.bodies(7)[150] == f"{OURS}\nslower"


def test_comments_with_another_key_or_by_somebody_else_are_left_alone(github):
    others = [
        github.say(7, f"{OURS}\nmine", login="mallory", kind="User"),
        github.say(7, f"{OURS}\nmine", login="github-actions", kind="User"),
        github.say(7, f"{marker('l4', CommentStatus(State.FLAGGED))}\nof another GPU"),
        github.say(7, f"as I quoted: {OURS}"),
    ]
    before = [comment["body"] for comment in others]

    assert talk(github).find_status() is None
    write(github, f"{OURS}\nslower")
    assert github.bodies(7) == [*before, f"{OURS}\nslower"]


@pytest.mark.parametrize(
    "account",
    [Account("ada", "User"), Account("perf-bot[bot]", "Bot"), Account("github-actions[bot]", "Bot")],
    ids=lambda account: account.login,
)
def test_ours_is_what_the_tokens_own_user_wrote(github, account):
    github.accounts["mine"] = account
    write(github, f"{OURS}\none", token="mine")
    write(github, f"{OURS}\ntwo", token="mine")

    assert github.bodies(7) == [f"{OURS}\ntwo"]


def test_where_github_does_not_say_who_we_are_the_workflows_own_user_is_meant(github):
    github.faults.append(Fault("POST", 400, message="no GraphQL here"))
    github.say(7, f"{OURS}\nold")

    assert talk(github).find_status().state is State.FLAGGED


def test_two_jobs_that_create_at_once_end_with_one_comment(github):
    """Both are held before they create, so that each has seen a pull request without a comment."""
    both = threading.Barrier(2, timeout=300)

    def hold(method, path):
        if method == "POST" and path.endswith("/comments"):
            both.wait()

    github.before = hold
    with ThreadPoolExecutor() as pool:
        comments = list(pool.map(lambda name: write(github, f"{OURS}\n{name}"), ["one", "two"]))

    assert len(github.bodies(7)) == 1
    assert comments[0].id == comments[1].id == min(github.comments)


def test_of_several_of_ours_the_oldest_stays(github):
    kept = github.say(7, f"{OURS}\nold")
    github.say(7, f"{OURS}\nyounger")
    github.say(7, f"{marker('default', CommentStatus(State.RESOLVED))}\nyoungest")

    assert write(github, f"{OURS}\nnew").id == kept["id"]
    assert github.bodies(7) == [f"{OURS}\nnew"]


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
@pytest.mark.parametrize(
    "fault",
    [
        {"status": 502},
        {"status": 503, "headers": {"Retry-After": "0"}},
        {"status": 429},
        {"status": 403, "headers": {"Retry-After": "0"}, "message": "You have exceeded a secondary rate limit"},
        {"status": 403, "message": "You have exceeded a secondary rate limit. Please wait a few minutes"},
    ],
    ids=["502", "503", "429", "retry-after", "secondary"],
)
def test_what_passes_is_tried_again(github, method, fault):
    github.say(7, f"{OURS}\nold")
    if method == "DELETE":
        github.say(7, f"{OURS}\nyounger")
    if method == "POST":
        github.comments.clear()
    github.faults.append(Fault(method, times=2, **fault))

    write(github, f"{OURS}\nnew")

    assert github.bodies(7) == [f"{OURS}\nnew"]
    assert github.faults[0].times == 0


PAGE = b"<!DOCTYPE html><html><body>Sign in to the proxy</body></html>"
UNREADABLE = [
    {"status": 200, "raw": PAGE, "headers": {"Content-Type": "text/html"}},
    {"status": 200, "raw": b"[", "headers": {}},
    {"status": 200, "raw": b'{"id": ', "headers": {"Content-Length": "5000"}},
    {"status": 200, "raw": b"", "headers": {}},
    {"status": 200, "raw": b"[]{}", "headers": {"Content-Encoding": "gzip"}},
    {"status": 301, "headers": {"Location": "ftp://elsewhere.example/x"}},
    {"status": 301, "headers": {"Location": "https://elsewhere.example/x"}},
    {"status": 302, "headers": {"Location": "/login"}},
    {"status": 307, "headers": {}},
]


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH"])
@pytest.mark.parametrize("fault", UNREADABLE, ids=lambda fault: f"{fault['status']}-{fault.get('raw', b'')[:5]!r}")
def test_an_answer_that_cannot_be_read_is_asked_for_again(github, method, fault):
    if method != "POST":
        github.say(7, f"{OURS}\nold")
    github.faults.append(Fault(method, path="/comments" if method == "POST" else "", **fault))

    write(github, f"{OURS}\nnew")

    assert github.bodies(7) == [f"{OURS}\nnew"]


@pytest.mark.parametrize("fault", UNREADABLE, ids=lambda fault: f"{fault['status']}-{fault.get('raw', b'')[:5]!r}")
def test_answers_that_are_never_readable_are_an_error_of_the_machine(github, fault):
    github.faults.append(Fault("GET", times=99, **fault))

    with pytest.raises(MachineError, match=r"is not one of GitHub's API, or was cut short|elsewhere"):
        talk(github).find_status()


def test_all_requests_together_have_a_deadline(github):
    github.faults.append(Fault("GET", 503, times=99, headers={"Retry-After": "3600"}))

    with pytest.raises(MachineError, match="not done within 1 s"):
        talk(github, patience=replace(QUICK, longest_s=1))


def test_a_comment_that_is_deleted_meanwhile_is_made_again(github):
    write(github, f"{OURS}\nold")
    github.before = lambda method, _: github.comments.clear() if method == "PATCH" else None

    assert write(github, f"{OURS}\nnew").id in github.comments
    assert github.bodies(7) == [f"{OURS}\nnew"]


def test_an_app_that_github_does_not_name_keeps_to_one_comment(github):
    """GraphQL is closed to some tokens of Apps."""
    github.accounts["ghs_app"] = Account("perf-app[bot]", "Bot")
    github.faults.append(Fault("POST", 403, times=99, message="Resource not accessible", path="/graphql"))
    github.say(7, f"{OURS}\nmine", login="mallory", kind="User")

    for text in ("one", "two", "three"):
        write(github, f"{OURS}\n{text}", token="ghs_app")

    assert github.bodies(7) == [f"{OURS}\nmine", f"{OURS}\nthree"]


def test_a_locked_conversation_is_told_from_a_token_that_may_not_write(github):
    message = "Unable to create comment because issue is locked."
    github.faults.append(Fault("POST", 403, message=message, path="/comments"))

    with pytest.raises(Locked, match="the conversation is locked") as error:
        write(github, f"{OURS}\nnew")

    assert "permissions" not in error.value.hint


def test_a_comment_that_was_made_although_the_answer_was_an_error_is_not_made_twice(github):
    """GitHub made it and then failed to say so: the repeated request makes a second one, which is then removed."""

    def lose_the_first_answer(method, path):
        if method == "POST" and path.endswith("/comments") and not github.comments:
            github.say(7, f"{OURS}\nnew")
            github.faults.append(Fault("POST", 502))

    github.before = lose_the_first_answer
    write(github, f"{OURS}\nnew")

    assert github.bodies(7) == [f"{OURS}\nnew"]


def test_a_comment_that_githubs_list_does_not_show_yet_is_ours_all_the_same(github):
    github.lag = True

    assert write(github, f"{OURS}\nnew").id in github.comments
    assert github.bodies(7) == [f"{OURS}\nnew"]


def test_retry_after_is_respected(github):
    github.faults.append(Fault("GET", 403, headers={"Retry-After": "1"}, message="secondary rate limit"))
    times = []
    github.before = lambda *_: times.append(time.monotonic())

    talk(github)

    assert times[1] - times[0] >= 1


@pytest.mark.parametrize(
    ("fault", "message", "hint"),
    [
        (Fault("GET", 401, message="Bad credentials"), "does not accept the token (Bad credentials)", "github.token"),
        (Fault("POST", 403, message="Resource not accessible by integration"), "may not", "pull-requests: write"),
        (Fault("POST", 403, message="Repository was archived so is read-only."), "is archived", "unarchive it"),
        (Fault("GET", 403, message="Resource protected by organization SAML enforcement."), "sign-on", "authorize"),
        (Fault("GET", 403, message="`octo` has an IP allow list enabled"), "listed addresses", "IP allow list"),
        (Fault("GET", 403, message="Sorry. Your account was suspended"), "is suspended", "another account"),
        (Fault("GET", 404, message="Not Found"), "knows no such repository", "pull-requests: write"),
        (Fault("POST", 422, message="Validation Failed"), "refuses the comment (Validation Failed)", "locked"),
        (Fault("GET", 502, times=9), "answered each try with an error", "githubstatus"),
        (Fault("GET", 418, message="a teapot"), "418: GitHub failed (a teapot)", "githubstatus"),
        (Fault("GET", 403, times=9, message="API rate limit exceeded for x"), "rate limit", "later"),
    ],
    ids=lambda value: f"{value.method}-{value.status}" if isinstance(value, Fault) else "",
)
def test_each_refusal_says_what_to_change(github, fault, message, hint):
    conversation = talk(github)
    conversation.find_status()
    github.faults.append(fault)

    with pytest.raises(MachineError) as error:
        conversation.write(f"{OURS}\nslower")

    assert message in str(error.value)
    assert hint in error.value.hint
    assert "may not" not in message or isinstance(error.value, Forbidden)


def test_a_github_that_is_not_there_is_said():
    with pytest.raises(MachineError, match=r"http://127\.0\.0\.1:9: cannot be reached: ConnectionError"):
        Repository("http://127.0.0.1:9", "octo/kernels", TOKEN, QUICK).pull_request(7, "default")


def test_the_token_is_in_no_error_and_no_log(github, caplog):
    caplog.set_level("DEBUG")
    github.faults.append(Fault("GET", 404, message=f"no such thing for {TOKEN}"))

    with pytest.raises(MachineError) as error:
        talk(github)

    shown = "".join(traceback.format_exception(error.value)) + error.value.hint
    assert TOKEN not in shown
    assert TOKEN not in caplog.text


def test_github_enterprise_is_another_address():
    with FakeGitHub(prefix="/api/v3") as github:
        github.open_pull(7, SHA)
        write(github, f"{OURS}\none")
        write(github, f"{OURS}\ntwo")

        assert github.bodies(7) == [f"{OURS}\ntwo"]
        assert all(path.startswith("/api/") for _, path in github.requests)


def test_the_stand_in_notices_what_github_would_not_take():
    """A stand-in that takes anything would prove nothing."""
    asks = [
        ("GET", "/repos/octo/kernels/issues/7/comments?per_page=many", b""),
        ("GET", "/repos/octo/kernels/pulls?head_sha=abc", b""),
        ("POST", "/repos/octo/kernels/issues/7/comments", b'{"text": "x"}'),
        ("GET", "/repos/octo/kernels/issues/7/labels", b""),
    ]
    for ask in asks:
        github = FakeGitHub()
        github.url = "http://localhost"
        github.open_pull(7, SHA)
        with suppress(KeyError, ValueError):
            github.answer(ask[0], ask[1], {"Authorization": f"token {TOKEN}"}, ask[2])
        assert github.problems, ask

    github = FakeGitHub()
    github.url = "http://localhost"
    github.open_pull(7, SHA)
    del github.pulls["octo/kernels", 7]["head"]
    github.answer("GET", "/repos/octo/kernels/pulls/7", {"Authorization": f"token {TOKEN}"}, b"")
    assert "'head' is a required property" in github.problems[0]


FORK = Origin("pull_request", "mallory/kernels", "feature", run_id="41", attempt=1)


def test_a_pull_request_is_found_by_head_repository_branch_and_commit(github):
    github.open_pull(8, SHA, head="mallory/kernels")
    github.open_pull(9, "c" * 40, head="mallory/kernels")
    github.open_pull(10, SHA, head="mallory/kernels", branch="other")
    github.open_pull(11, SHA, head="mallory/other")
    github.open_pull(12, SHA, head="mallory/kernels", state="closed")

    assert repository(github).find_open(FORK, SHA) == [8]
    assert repository(github).find_open(FORK, "d" * 40) == []
