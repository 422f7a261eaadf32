"""The event that started a workflow, as GitHub's runner describes it in variables and JSON."""

import copy
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci_perf.github.event import parse_event
from ci_perf.values.errors import ConfigError

HEAD, MERGE = "a" * 40, "b" * 40
VARIABLES = {"GITHUB_REPOSITORY": "octo/kernels", "GITHUB_SHA": MERGE, "GITHUB_RUN_ID": "42", "GITHUB_ACTOR": "ada"}
PULL = {
    "number": 7,
    "draft": False,
    "head": {"sha": HEAD, "ref": "feature", "repo": {"full_name": "octo/kernels"}},
    "base": {"sha": "c" * 40},
}
WORKFLOW_RUN = {
    "event": "pull_request",
    "head_sha": HEAD,
    "head_branch": "feature",
    "head_repository": {"full_name": "mallory/kernels"},
    "repository": {"full_name": "octo/kernels"},
    "id": 41,
    "run_attempt": 1,
    "conclusion": "success",
    "pull_requests": [],
}


def event(name, document=None, **variables):
    return parse_event({**VARIABLES, "GITHUB_EVENT_NAME": name, **variables}, document or {}, "event.json")


def pull(**changes):
    return {"action": "synchronize", "number": 7, "pull_request": {**copy.deepcopy(PULL), **changes}}


def test_a_pull_request_is_about_its_head_and_not_about_the_merge_commit():
    found = event("pull_request", pull())

    assert (found.pull_request, found.head_sha, found.read_only) == (7, HEAD, "")
    assert found.run_url == "https://github.com/octo/kernels/actions/runs/42"


def test_a_draft_is_a_pull_request_like_any_other():
    assert event("pull_request", pull(draft=True)) == event("pull_request", pull())


@pytest.mark.parametrize(
    ("name", "document", "sha"),
    [
        ("push", {"before": "0" * 40, "after": MERGE}, MERGE),
        ("schedule", {"schedule": "0 3 * * *"}, MERGE),
        ("workflow_dispatch", {"inputs": None}, MERGE),
        ("merge_group", {"merge_group": {"head_sha": HEAD, "base_sha": "c" * 40}}, HEAD),
        ("workflow_run", {"workflow_run": WORKFLOW_RUN}, HEAD),
    ],
)
def test_other_events_belong_to_no_pull_request(name, document, sha):
    found = event(name, document)

    assert (found.pull_request, found.head_sha) == (None, sha)


def test_a_rerun_has_an_address_of_its_own():
    found = event("pull_request", pull(), GITHUB_RUN_ATTEMPT="2")

    assert found.run_url.endswith("/runs/42/attempts/2")


@pytest.mark.parametrize(
    ("head_repo", "actor", "why"),
    [
        ({"full_name": "mallory/kernels"}, "mallory", "the pull request comes from the fork mallory/kernels"),
        (None, "mallory", "the pull request's fork is gone"),
        ({"full_name": "octo/kernels"}, "dependabot[bot]", "Dependabot opened the pull request"),
        ({"full_name": "Octo/Kernels"}, "ada", ""),
    ],
)
def test_forks_and_dependabot_get_a_token_that_cannot_write(head_repo, actor, why):
    document = pull(head={**PULL["head"], "repo": head_repo})

    assert event("pull_request", document, GITHUB_ACTOR=actor).read_only == why
    assert event("pull_request_target", document, GITHUB_ACTOR=actor).read_only == ""


def test_a_workflow_run_says_whose_commit_it_measured():
    found = event("workflow_run", {"workflow_run": WORKFLOW_RUN}).origin

    assert (found.event, found.head_repository, found.head_branch) == ("pull_request", "mallory/kernels", "feature")


def test_the_artifact_of_a_workflow_run_is_at_the_run_that_measured():
    assert event("workflow_run", {"workflow_run": WORKFLOW_RUN}).run_url.endswith("/runs/41")


def test_a_workflow_run_of_a_fork_that_is_gone_is_still_an_event():
    document = {"workflow_run": {**WORKFLOW_RUN, "head_repository": None, "head_branch": None}}

    assert event("workflow_run", document).origin.head_repository == ""


def test_a_workflow_run_of_another_repository_is_refused():
    document = {"workflow_run": {**WORKFLOW_RUN, "repository": {"full_name": "mallory/kernels"}}}

    with pytest.raises(ConfigError, match=r"key `workflow_run\.repository\.full_name`: a run of `mallory/kernels`"):
        event("workflow_run", document)


def test_enterprise_has_addresses_of_its_own():
    own = {"GITHUB_API_URL": "https://git.example.com/api/v3", "GITHUB_SERVER_URL": "https://git.example.com/"}
    found = event("push", **own)

    assert found.api_url == "https://git.example.com/api/v3"
    assert found.run_url == "https://git.example.com/octo/kernels/actions/runs/42"


def test_outside_of_github_there_is_no_event():
    assert parse_event({}, None).name == ""


@pytest.mark.parametrize(
    ("name", "document", "variables", "message"),
    [
        ("pull_request", {}, {}, r"^event\.json: key `pull_request\.head\.sha`: is missing"),
        ("pull_request", pull(number="7; rm"), {}, r"key `pull_request\.number`: '7; rm' is not a number"),
        ("pull_request", pull(head={"sha": "$(id)"}), {}, r"key `pull_request\.head\.sha`: '\$\(id\)' is not a commit"),
        ("merge_group", {"merge_group": []}, {}, r"key `merge_group\.head_sha`: is missing"),
        ("workflow_run", {"workflow_run": {"head_sha": 1}}, {}, r"key `workflow_run\.head_sha`: 1 is not a commit"),
        ("push", {}, {"GITHUB_SHA": ""}, "^environment GITHUB_SHA: is not set"),
        ("push", {}, {"GITHUB_REPOSITORY": "octo"}, "^environment GITHUB_REPOSITORY: 'octo' is not owner/name"),
        ("push", {}, {"GITHUB_API_URL": "file:///etc"}, "^environment GITHUB_API_URL: 'file:///etc' is not an address"),
        ("push", {}, {"GITHUB_RUN_ID": "1/../2"}, "^environment GITHUB_RUN_ID: "),
    ],
)
def test_what_is_odd_is_said_with_its_key(name, document, variables, message):
    with pytest.raises(ConfigError, match=message):
        event(name, document, **variables)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*PULL, *PULL["head"]]), inner),
    max_leaves=8,
)


@given(
    name=st.sampled_from(["pull_request", "merge_group", "workflow_run", "push"]),
    document=st.dictionaries(st.sampled_from(["pull_request", "merge_group", "workflow_run"]), anything) | anything,
)
def test_no_document_does_worse_than_an_error_for_the_user(name, document):
    with suppress(ConfigError):
        event(name, document)
