"""action.yml: what it promises, and a real run of it by act, which stands in for GitHub's runner.

act runs the steps on this machine, with nothing in between. Of the nested actions, checkout is act's own, and
upload-artifact, which needs GitHub's storage, is replaced by tests/data/github/upload-artifact. GitHub is
tests/fake_github.py.

The first job installs what ci-perf needs anew, as on a runner that has uv; the later ones get hard links to it. Where
there is no index at all, PIP_NO_INDEX and PIP_FIND_LINKS lead pip and uv to a folder of wheels: the steps have the
environment of the tests.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from ci_perf import __version__, store
from ci_perf.audit.file import append_session, dump_session, read_sessions
from ci_perf.audit.rule import rule_hash
from ci_perf.judge.report import build_report
from ci_perf.values.artifact import FILES
from ci_perf.values.codec import dump_run
from ci_perf.values.comment import CommentStatus, State, marker, read_marker
from ci_perf.values.reasons import Verdict
from ci_perf.values.settings import BY_NAME, variable
from tests.builders import a_baseline, a_provenance, an_audit_session
from tests.fake_github import FakeGitHub
from tests.github.test_foreign import HEAD, foreign, workflow_run
from tests.github.test_publish import slower
from tests.measure.nap_repository import NAP, TOML
from tests.measure.test_worker import wait_for
from tests.project.test_project import ROOT

pytestmark = pytest.mark.slow

CHECKOUT = "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1"
ACT = Path(sys.executable).with_name("act")
UV = Path(sys.executable).with_name("uv")
DOWNLOAD = "actions/download-artifact@3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c"
UPLOAD = "actions/upload-artifact@bbbca2ddaa5d8feaa63e36b76fdaad77386f024f"
WORKFLOW = """
on: pull_request
jobs:
  perf:
    runs-on: self-hosted
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
      - id: perf
        uses: octo/ci-perf@v1
        with:
          kernels: |
            nap/one
            na*
          python: ${{ env.KERNELS_PYTHON }}
          regression-threshold: 5%
      - if: always()
        run: printf '%s' "$OUTPUTS" >"$KEPT/outputs.json"
        env:
          OUTPUTS: ${{ toJSON(steps.perf.outputs) }}
"""
PUBLISH = """
on: workflow_run
jobs:
  publish:
    runs-on: self-hosted
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
      - id: fork
        uses: octo/ci-perf/.github/actions/publish@v1
      - run: printf '%s' "$OUTPUTS" >"$KEPT/outputs.json"
        env:
          OUTPUTS: ${{ toJSON(steps.fork.outputs) }}
"""


MANY = """
on: pull_request
jobs:
  perf:
    uses: octo/ci-perf/.github/workflows/perf.yml@v1
    with:
      runners: self-hosted,gpu,h100 self-hosted,gpu,l4
      shards: 2
      planner: self-hosted
      device: cpu
      regression-threshold: 5%
"""


def loaded(path):
    return YAML(typ="safe").load((ROOT / path).read_text(encoding="utf-8"))


CALLED = ".github/workflows/perf.yml"
ACTION = loaded("action.yml")


TWO_JOBS = """
on: pull_request
jobs:
  measure:
    runs-on: self-hosted
    permissions:
      contents: read
    outputs:
      artifact: ${{ steps.perf.outputs.artifact }}
      status: ${{ steps.perf.outputs.status }}
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
      - id: perf
        uses: octo/ci-perf@v1
        with:
          python: ${{ env.KERNELS_PYTHON }}
          regression-threshold: 5%
          publish: "false"
          github-token: ""
  publish:
    needs: measure
    if: always() && needs.measure.result != 'skipped'
    runs-on: self-hosted
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
      - id: perf
        uses: octo/ci-perf/.github/actions/publish@v1
        with:
          artifact: ${{ needs.measure.outputs.artifact }}
          measure-result: ${{ needs.measure.result }}
          measure-status: ${{ needs.measure.outputs.status }}
      - run: printf '%s' "$OUTPUTS" >"$KEPT/outputs.json"
        env:
          OUTPUTS: ${{ toJSON(steps.perf.outputs) }}
"""


def said(body):
    """Return the state in the marker of a comment."""
    found = read_marker(body, "default")
    return found and found.state


INSTALLS_ONCE = """#!/bin/bash
# What uv installed for one job, the next ones get as hard links to the same files, as from uv's own cache, with the
# bytecode that it compiled. Its arguments: pip install --quiet --python PYTHON ...
[[ "$1 $2" == "pip install" ]] || exec {uv} "$@"
site=$("$5" -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
if [[ -d {kept} ]]; then exec cp --recursive --link {kept}/. "$site"; fi
{uv} "$@" || exit
cp --recursive --link "$site" {kept}.$$ && mv --no-target-directory {kept}.$$ {kept}
"""
"""The uv of the runners. Only the first job of all downloads, checks hashes and compiles."""
PAGE = (ROOT / ".github/docs/on-github.md").read_text(encoding="utf-8")
SCRIPT = (ROOT / "scripts/action").read_text(encoding="utf-8")
MEASURE = (ROOT / "scripts/measure").read_text(encoding="utf-8")
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}


YAML_FILES = [
    "action.yml",
    ".github/actions/publish/action.yml",
    ".github/actions/record/action.yml",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / ".github/workflows").glob("*.yml")),
]


PINS = {"unpinned-uses": {"config": {"policies": {"org/ci-perf/*": "ref-pin", "*": "hash-pin"}}}}
"""The rule of zizmor for workflows of users: the tag of ci-perf stands for the commit that a user pins."""


def steps_of(document):
    jobs = document.get("jobs") or {"action": document["runs"]}
    return [step for job in jobs.values() for step in job.get("steps", ())]


class Repository:
    """A user's repository on GitHub, with a kernel whose duration a commit can change, and its runner."""

    def __init__(self, root, github, python, action):
        self.root, self.github, self.python, self.action = root, github, python, action
        self.tree, self.kept, self.artifacts = root / "tree", root / "kept", root / "artifacts"
        (self.tree / "kernels/nap").mkdir(parents=True)
        (self.tree / ".github/workflows").mkdir(parents=True)
        for name, text in (("perf.yml", WORKFLOW), ("publish.yml", PUBLISH), ("many.yml", MANY), ("two.yml", TWO_JOBS)):
            (self.tree / ".github/workflows" / name).write_text(text)
        (self.tree / "kernels/nap/kernel.toml").write_text(TOML.format(microseconds=2500))
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("remote", "add", "origin", "https://github.com/octo/kernels")
        (root / "tools").mkdir()
        (root / "tools/uv").write_text(INSTALLS_ONCE.format(uv=UV, kept=action.parent / "installed"))
        (root / "tools/uv").chmod(0o755)
        self.base = self.commit(1.0)
        self.git("checkout", "--quiet", "-b", "feature")

    def git(self, *arguments):
        who = ("-c", "user.name=a developer", "-c", "user.email=developer@users.noreply.github.com")
        ran = subprocess.run(["git", *who, *arguments], cwd=self.tree, capture_output=True, text=True, check=True)
        return ran.stdout.strip()

    def commit(self, factor, more=""):
        (self.tree / "kernels/nap/kernel.py").write_text(NAP.format(factor=factor) + more)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", f"factor {factor}")
        return self.git("rev-parse", "HEAD")

    def push(self, factor, workflow="perf.yml", more=""):
        """Push a commit to the pull request and run its workflow; return how the job ended and what it wrote."""
        self.github.open_pull(7, self.commit(factor, more))
        return self.attempt(1, workflow)

    def attempt(self, number, workflow="perf.yml", **environ):
        """Run the workflow of the pull request, as its attempt of this number."""
        head = self.git("rev-parse", "HEAD")
        sides = {
            name: {"sha": sha, "ref": name, "repo": {"full_name": "octo/kernels"}}
            for name, sha in (("head", head), ("base", self.base))
        }
        event = {"number": 7, "pull_request": {"number": 7, "draft": False, **sides}}
        return self.act("pull_request", workflow, event, GITHUB_RUN_ATTEMPT=number, **environ)

    def keep(self, name):
        """Let later attempts download an artifact of the last one, packed as GitHub packs it."""
        self.artifacts.mkdir(exist_ok=True)
        shutil.make_archive(self.artifacts / name, "zip", self.kept / name)

    def act(self, event, workflow, document, **more):
        """Run a workflow for an event; return how the job ended and what it wrote."""
        (self.root / "event.json").write_text(json.dumps(document))
        shutil.rmtree(self.kept, ignore_errors=True)
        self.kept.mkdir()
        # What act keeps for itself goes among the test's files; its steps keep the user's, such as pip's cache.
        own = {"XDG_CACHE_HOME": self.root / "cache", "XDG_CONFIG_HOME": self.root / "config"}
        kept = {name: os.environ.get(name) or Path.home() / f".{path.name}" for name, path in own.items()}
        ours = {
            "KEPT": self.kept,
            "ARTIFACTS": self.artifacts,
            "KERNELS_PYTHON": self.python,
            "GITHUB_API_URL": self.github.url,
            "ITSELF": self.action,
            **more,
        }
        command = [
            *(ACT, event, "--workflows", f".github/workflows/{workflow}", "--eventpath", self.root / "event.json"),
            *("--platform", "self-hosted=-self-hosted"),
            *("--action-offline-mode", "--action-cache-path", self.root / "act", "--no-cache-server"),
            *("--local-repository", f"octo/ci-perf@v1={self.action}"),
            *("--local-repository", f"{CHECKOUT}={ROOT / 'tests/data/github/checkout'}"),
            *("--local-repository", f"{UPLOAD}={ROOT / 'tests/data/github/upload-artifact'}"),
            *("--local-repository", f"{DOWNLOAD}={ROOT / 'tests/data/github/download-artifact'}"),
            *("--secret", "GITHUB_TOKEN=ghs_secret"),
            *(word for name, value in {**ours, **kept}.items() for word in ("--env", f"{name}={value}")),
        ]
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "CI_PERF_"))}
        environ |= {name: str(path) for name, path in own.items()}
        # As on a machine whose user installs packages of their own: none of it concerns the action.
        environ |= {"PIP_USER": "1", "PIP_TARGET": str(self.root / "theirs"), "PIP_PREFIX": str(self.root / "theirs")}
        environ["PATH"] = f"{self.root / 'tools'}:{os.environ['PATH']}"
        return subprocess.run(
            [str(word) for word in command],
            cwd=self.tree,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def outputs(self):
        return json.loads((self.kept / "outputs.json").read_text())


@pytest.fixture(scope="module")
def action(tmp_path_factory):
    """The action as a user's workflow gets it: the files tracked by git, at a tag."""
    folder = tmp_path_factory.mktemp("action")
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        if not name.startswith(("tests/", "baselines/", "kernels/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    # act does not know which repository a called workflow is of; tests/data/github/checkout stands in for it.
    called = folder / CALLED
    known = called.read_text().replace("${{ job.workflow_repository }}", "octo/ci-perf")
    called.write_text(known.replace("${{ job.workflow_sha }}", "0" * 40))
    return folder


@pytest.fixture
def repository(tmp_path, bare_python, action):
    with FakeGitHub() as github:
        yield Repository(tmp_path, github, bare_python, action)


def test_a_planted_slowdown_turns_the_job_red_and_comments_and_its_removal_turns_the_same_comment_green(repository):
    slower = repository.push(factor=1.3)

    assert slower.returncode == 1, slower.stdout
    line = NAP.splitlines().index("def launch(inputs):") + 1
    assert f"::error file=kernels/nap/kernel.py,line={line},title=REGRESSION nap/one::" in slower.stdout
    [comment] = repository.github.bodies(7)
    assert said(comment) is State.FLAGGED
    assert "| `nap/one` | ▲ **REGRESSION** |" in re.sub(" +", " ", comment)
    outputs = repository.outputs
    assert set(outputs) == set(ACTION["outputs"])
    assert {name: outputs[name] for name in ("verdict", "regressions", "speedups", "inconclusive", "failed")} == {
        "verdict": "REGRESSION",
        "regressions": "1",
        "speedups": "0",
        "inconclusive": "0",
        "failed": "0",
    }
    assert outputs["comment-url"].endswith(f"/octo/kernels/pull/7#issuecomment-{outputs['comment-id']}")
    assert outputs["artifact-url"] == f"https://github.com/octo/kernels/artifacts/{outputs['artifact-id']}"
    assert Path(outputs["run-path"]).parent == Path(outputs["report-path"]).parent
    artifact = repository.kept / "ci-perf-run-1"
    run = store.read_run(artifact)
    assert {"index.md", "report.md", "key_metrics.csv", "smoke.txt", "env.txt", "logs"} <= {
        p.name for p in artifact.iterdir()
    }
    assert [p.name for p in (repository.kept / "ci-perf-run-1-numbers").iterdir()] == ["run.json"]
    assert (run.against.commit, run.provenance.repository) == (repository.base, "octo/kernels")
    assert run.policy.regression == 0.05
    summary = slower.stdout.split("Summary - ")[1]
    assert said(summary) is State.FLAGGED
    assert "\n\n### ci-perf: 1 regression\n" in summary
    assert "ghs_secret" not in "".join(p.read_text(errors="replace") for p in artifact.rglob("*") if p.is_file())

    mended = repository.push(factor=1.0)

    assert mended.returncode == 0, mended.stdout
    [comment] = repository.github.bodies(7)
    assert said(comment) is State.RESOLVED
    assert repository.outputs["comment-id"] == outputs["comment-id"]
    assert repository.outputs["verdict"] == "UNCHANGED"
    assert repository.git("status", "--porcelain") == ""
    assert repository.git("worktree", "list").count("\n") == 0
    assert not (repository.root / "theirs").exists()


HOSTILE = """

def spy():
    import glob, json, os
    controls = ["GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STATE", "GITHUB_STEP_SUMMARY"]
    texts, pid = ["\\0".join(f"{n}={v}" for n, v in os.environ.items())], os.getppid()
    while pid > 1:
        try:
            texts.append(open(f"/proc/{pid}/environ", errors="replace").read())
        except PermissionError:
            pass
        pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
    entries = [entry.partition("=") for text in texts for entry in text.split("\\0")]
    seen = [name for name, _, value in entries if name in controls and value.strip("*")]
    seen += [name for name, _, value in entries if "hunter2hunter2" in value]
    planted = glob.glob(os.environ["CI_PERF_CACHE"] + "/trees/*/tree/kernels/nap/kernel.py")
    for file in planted:
        open(file, "a").write("\\nraise SystemExit('planted code ran')\\n")
    with open(os.environ["KEPT"] + "/seen.json", "w") as file:
        json.dump({"seen": seen, "processes": len(texts), "planted": len(planted)}, file)


spy()
"""


def test_the_code_of_a_pull_request_finds_no_control_of_its_job_no_secret_and_no_base_of_another(repository):
    """It looks in its environment and in those of the processes above it, and writes into every base that is kept."""
    workflow = WORKFLOW.replace("          regression", "          setup: 'true'\n          regression")
    environ = f"    env:\n      DB_CREDS: hunter2hunter2\n      CI_PERF_CACHE: {repository.root / 'kept-bases'}\n"
    workflow = workflow.replace("    steps:", f"{environ}    steps:")
    (repository.tree / ".github/workflows/hostile.yml").write_text(workflow)

    first = repository.push(factor=1.0, workflow="hostile.yml", more=HOSTILE)
    found = json.loads((repository.kept / "seen.json").read_text())
    second = repository.push(factor=1.0, workflow="hostile.yml")

    assert first.returncode == 0, first.stdout
    assert (found["seen"], found["planted"]) == ([], 0)
    assert list((repository.root / "kept-bases").glob("trees/*")) == []
    assert found["processes"] > 2
    assert second.returncode == 0, second.stdout
    assert repository.outputs["verdict"] == "UNCHANGED"


def test_one_job_measures_without_a_token_and_another_publishes(repository):
    ran = repository.push(factor=1.3, workflow="two.yml")

    assert ran.returncode == 1, ran.stdout
    [comment] = repository.github.bodies(7)
    assert said(comment) is State.FLAGGED
    assert "fork" not in comment
    assert repository.outputs["verdict"] == "REGRESSION"
    assert ran.stdout.count("title=REGRESSION nap/one::") == 1


def notes_of(run):
    return {note.code: note.message for note in run.notes}


def test_a_rerun_keeps_what_the_earlier_attempt_decided_and_measures_again_where_it_may_not_download_it(repository):
    repository.push(factor=1.3)
    first = store.read_run(repository.kept / "ci-perf-run-1")
    repository.keep("ci-perf-run-1-numbers")

    again = repository.attempt(2)

    assert again.returncode == 1, again.stdout
    second = store.read_run(repository.kept / "ci-perf-run-2")
    assert notes_of(second)["attempt-continued"] == "1 case of ci-perf-run-1-numbers kept"
    assert [m.pairs for m in second.measurements] == [m.pairs for m in first.measurements]
    assert repository.outputs["verdict"] == "REGRESSION"

    refused = repository.attempt(3, REFUSED="1")

    assert refused.returncode == 1, refused.stdout
    third = store.read_run(repository.kept / "ci-perf-run-3")
    assert notes_of(third)["attempt-not-continued"] == "no run of an earlier attempt of this job was found"
    assert [m.pairs for m in third.measurements] != [m.pairs for m in first.measurements]


def test_what_a_merge_changed_is_pushed_to_the_ledger_though_another_job_pushed_first(repository):
    """The ledger of the branch has got another line since this commit was checked out."""
    repository.git("checkout", "--quiet", "main")
    origin = repository.root / "origin.git"
    repository.git("clone", "--quiet", "--bare", ".", str(origin))
    repository.git("remote", "set-url", "origin", str(origin))
    workflow = re.search(r"^```yaml\n(# \.github/workflows/perf-merged\.yml\n.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[
        1
    ]
    workflow = workflow.replace("org/ci-perf", "octo/ci-perf").replace("ubuntu-24.04", "self-hosted")
    workflow = workflow.replace("[self-hosted, gpu]", "self-hosted")
    python = "          python: ${{ env.KERNELS_PYTHON }}\n          publish"
    (repository.tree / ".github/workflows/merged.yml").write_text(workflow.replace("          publish", python))
    head = repository.commit(1.02)
    repository.git("push", "--quiet", "origin", "main")
    repository.git("commit", "--quiet", "--allow-empty", "--message", "what another job pushed")
    repository.git("push", "--quiet", "origin", "main")
    repository.git("reset", "--quiet", "--hard", head)

    ran = repository.act("push", "merged.yml", {"ref": "refs/heads/main"})

    assert ran.returncode == 0, ran.stdout
    repository.git("fetch", "--quiet", "origin", "main")
    log = repository.git("log", "--format=%s", "-2", "FETCH_HEAD").splitlines()
    assert log == [f"Record what {head[:8]} changed [skip ci]", "what another job pushed"]
    [name] = repository.git("show", "--format=", "--name-only", "FETCH_HEAD").splitlines()
    assert re.fullmatch(r"baselines/[^/]+/merged\.jsonl", name)
    line = json.loads(repository.git("show", f"FETCH_HEAD:{name}"))
    assert (line["base"], line["head"]) == (repository.base, head)
    assert line["cases"]["nap/one"]["change"] == pytest.approx(0.0198, abs=0.002)
    assert "ghs_secret" not in ran.stdout


def test_the_nightly_workflow_hands_its_sessions_to_the_job_that_pushes_them(repository):
    """No GPU is here: in place of the audit, its step copies sessions."""
    shutil.copytree(repository.action, repository.tree, dirs_exist_ok=True)
    workflow = loaded(".github/workflows/nightly.yml")
    workflow["jobs"] = {name: workflow["jobs"][name] for name in ("audit", "record")}
    for job in workflow["jobs"].values():
        job["runs-on"] = "self-hosted"
    [audit] = [step for step in workflow["jobs"]["audit"]["steps"] if step.get("id") == "audit"]
    audit["run"] = 'cp -r "$PREPARED" "$ACTION_AUDIT" && echo artifact=audit-1 >>"$GITHUB_OUTPUT"'
    with (repository.tree / ".github/workflows/nightly.yml").open("w") as file:
        YAML().dump(workflow, file)
    repository.git("checkout", "--quiet", "main")
    head = repository.commit(1.0)
    origin = repository.root / "origin.git"
    repository.git("clone", "--quiet", "--bare", ".", str(origin))
    repository.git("remote", "set-url", "origin", str(origin))
    session = an_audit_session(1, rule=rule_hash(), provenance=a_provenance(commit=head))
    append_session(repository.root / "prepared/audit.jsonl", session)

    event = {"ref": "refs/heads/main"}
    ran = repository.act("workflow_dispatch", "nightly.yml", event, PREPARED=repository.root / "prepared")

    assert ran.returncode == 0, ran.stdout
    repository.git("fetch", "--quiet", "origin", "main")
    pushed = repository.git("show", "FETCH_HEAD:baselines/h100-80gb-hbm3/nightly-audit.jsonl")
    assert f"{pushed}\n" == dump_session(session)
    assert "ghs_secret" not in ran.stdout


def test_a_push_that_could_not_be_measured_does_not_leave_the_comment_as_it_was(repository):
    repository.push(factor=1.3, workflow="two.yml")
    repository.push(factor=1.0, workflow="two.yml")
    [resolved] = repository.github.bodies(7)
    (repository.tree / "kernels/nap/kernel.toml").write_text("entry =")

    ran = repository.push(factor=1.0, workflow="two.yml")

    assert said(resolved) is State.RESOLVED
    assert ran.returncode == 1, ran.stdout
    [comment] = repository.github.bodies(7)
    assert said(comment) is State.PENDING
    assert "Nothing was measured: a setting or a file is wrong" in comment
    assert repository.outputs["verdict"] == "NOT_MEASURED"


PLANTED = """

def plant():
    import glob, os, subprocess, sys
    # The folder of the job's temporary files, as an attacker finds it: from the command lines of the processes above.
    pid, venv = os.getppid(), None
    while pid > 1 and venv is None:
        words = open(f"/proc/{pid}/cmdline").read().split("\\0")
        venv = next((w.split("/ci-perf-venv/")[0] + "/ci-perf-venv" for w in words if "/ci-perf-venv/" in w), None)
        pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
    CODE
    with open(os.environ["KEPT"] + "/planted", "w") as file:
        file.write(venv)


plant()
"""
PTH = """[site] = glob.glob(venv + "/lib/python3*/site-packages")
    with open(site + "/planted.pth", "w") as file:
        file.write("import os; open(os.environ['KEPT'] + '/ran', 'w').close()\\n")"""
DAEMON = """subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)", "test-daemon", os.environ["KEPT"]],
                     start_new_session=True, stdin=-3, stdout=-3, stderr=-3)"""


def test_a_pth_that_a_kernel_plants_in_the_environment_of_ci_perf_is_found_before_the_token(repository):
    ran = repository.push(factor=1.3, more=PLANTED.replace("CODE", PTH))

    assert ran.returncode == 1, ran.stdout
    assert (repository.kept / "planted").exists()
    assert "::the measured code changed files of ci-perf, so nothing is published" in ran.stdout
    assert repository.github.bodies(7) == []


def test_a_daemon_that_a_kernel_starts_ends_with_the_measuring_step(repository):
    ran = repository.push(factor=1.0, more=PLANTED.replace("CODE", DAEMON))

    assert ran.returncode == 0, ran.stdout
    assert "processes that still ran after the measurement: python" in ran.stdout
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK)]
    assert not any(b"test-daemon\0" + bytes(repository.kept) in line for line in lines)


CONTROLS = """roots = [os.path.dirname(os.path.dirname(venv))]
    files = [f for r in roots for f in glob.glob(r + "/**/*env*.txt", recursive=True) if "site-packages" not in f]
    spy = os.environ["KEPT"] + "/spy.sh"
    with open(spy, "w") as file:
        file.write("env >>" + os.environ["KEPT"] + "/later-steps\\n")
    for name in files:
        with open(name, "a") as file:
            file.write("BASH_ENV=" + spy + "\\n")
    assert files, roots"""


def test_with_two_jobs_code_that_finds_the_control_files_of_its_job_takes_no_token(repository):
    """It sets BASH_ENV for the later steps of its job, as one job alone cannot prevent; the token is not there."""
    ran = repository.push(factor=1.3, workflow="two.yml", more=PLANTED.replace("CODE", CONTROLS))

    assert (repository.kept / "planted").exists(), ran.stdout
    later = (repository.kept / "later-steps").read_text()
    assert "ACTION_STATUS=1\n" in later, "the step after the measurement ran it"
    assert "ghs_secret" not in later
    [comment] = repository.github.bodies(7)
    assert said(comment) is State.FLAGGED


def test_perf_yml_stops_before_it_checks_anything_out_where_its_own_repository_is_not_known(repository):
    called = repository.action / CALLED
    known = called.read_text()
    called.write_text(known.replace("octo/ci-perf\n", '""\n'))
    try:
        ran = repository.push(factor=1.0, workflow="many.yml")
    finally:
        called.write_text(known)

    assert ran.returncode == 1
    assert "Main Stop where the repository of this workflow is not known" in ran.stdout
    assert "Run Main actions/checkout" not in ran.stdout
    assert repository.github.bodies(7) == []


def test_every_job_of_perf_yml_first_asserts_that_its_own_repository_is_known():
    for job in loaded(CALLED)["jobs"].values():
        assert job["steps"][0]["env"]["REPOSITORY"] == "${{ job.workflow_repository }}"
        assert job["steps"][0]["run"].startswith('test -n "$REPOSITORY" && test -n "$COMMIT"')


def test_perf_yml_distributes_a_pull_request_over_runners_and_shards_and_comments_once(repository):
    """The whole workflow, 2 runners x 2 shards; all of act's runners are this machine, which the merge notices."""
    kernel = repository.tree / "kernels/doze"
    kernel.mkdir()
    (kernel / "kernel.toml").write_text(TOML.format(microseconds=1000))
    (kernel / "kernel.py").write_text(NAP.format(factor=1.0))

    ran = repository.push(factor=1.3, workflow="many.yml")

    assert ran.returncode == 1, ran.stdout
    shards = [f"{runner}-{i}-of-2" for runner in ("h100", "l4") for i in (1, 2)]
    kept = {f"ci-perf-run-{shard}-1{part}" for shard in shards for part in ("", "-shard")}
    kept |= {"ci-perf-run-plan-1", "ci-perf-run-1", "ci-perf-run-1-numbers"}
    assert {path.name for path in repository.kept.iterdir()} == kept
    run = store.read_run(repository.kept / "ci-perf-run-1")
    found = [(row.finding.id, row.finding.verdict, "runner" in row.finding.device) for row in build_report(run).rows]
    assert sorted(found) == [
        ("doze/one", Verdict.FAILED, True),
        ("doze/one", Verdict.NEW, False),
        ("nap/one", Verdict.FAILED, True),
        ("nap/one", Verdict.REGRESSION, False),
    ]
    [comment] = repository.github.bodies(7)
    assert said(comment) is State.FLAGGED
    assert "shard l4-1-of-2 does not count: self-hosted, gpu, l4 led to" in comment
    assert comment.count(", measured in turns;") == 1


def test_a_rerun_of_perf_yml_continues_each_shard_without_a_token(repository):
    few = MANY.replace("self-hosted,gpu,h100 self-hosted,gpu,l4", "self-hosted,gpu,l4").replace(
        "shards: 2", "shards: 1"
    )
    (repository.tree / ".github/workflows/few.yml").write_text(few)
    repository.push(factor=1.3, workflow="few.yml")
    first = store.read_run(repository.kept / "ci-perf-run-1")
    repository.keep("ci-perf-run-l4-1-of-1-1-shard")

    again = repository.attempt(2, workflow="few.yml")

    assert again.returncode == 1, again.stdout
    second = store.read_run(repository.kept / "ci-perf-run-2")
    assert notes_of(second)["attempt-continued"] == "1 case of ci-perf-run-l4-1-of-1-1-shard kept"
    assert [m.pairs for m in second.measurements] == [m.pairs for m in first.measurements]


def test_perf_yml_publishes_that_nothing_was_measured_where_it_could_not_plan(repository):
    repository.push(factor=1.3, workflow="two.yml")
    (repository.tree / "kernels/nap/kernel.toml").write_text("entry =")

    ran = repository.push(factor=1.0, workflow="many.yml")

    assert ran.returncode == 1, ran.stdout
    [comment] = repository.github.bodies(7)
    assert said(comment) is State.PENDING
    assert "Nothing was measured" in comment


def test_a_workflow_run_comments_for_a_fork_from_the_downloaded_archive(repository):
    repository.github.open_pull(8, HEAD, head="mallory/kernels")
    repository.artifacts.mkdir()
    store.write_baseline(a_baseline(), repository.tree / "baselines")
    with zipfile.ZipFile(repository.artifacts / "ci-perf-run-1-numbers.zip", "w") as archive:
        archive.writestr("run.json", dump_run(foreign(slower())))

    ran = repository.act("workflow_run", "publish.yml", workflow_run())

    assert ran.returncode == 0, ran.stdout
    [comment] = repository.github.bodies(8)
    assert said(comment) is State.FLAGGED
    assert repository.outputs["verdict"] == "REGRESSION"
    assert repository.outputs["comment-url"].endswith(f"#issuecomment-{repository.outputs['comment-id']}")


def test_no_key_of_a_forks_run_is_a_command_in_the_trusted_job(repository):
    """The error names the key, whose lines would be commands if they were printed as they are."""
    repository.github.open_pull(8, HEAD, head="mallory/kernels")
    repository.artifacts.mkdir()
    document = json.loads(dump_run(foreign(slower())))
    planted = "x\n::set-output name=verdict::PLANTED\n##[set-output name=verdict;]PLANTED"
    document["measurements"][0]["params"][planted] = 1
    with zipfile.ZipFile(repository.artifacts / "ci-perf-run-1-numbers.zip", "w") as archive:
        archive.writestr("run.json", json.dumps(document))

    ran = repository.act("workflow_run", "publish.yml", workflow_run())

    assert "PLANTED" in ran.stdout, ran.stdout
    assert not re.search(r"^[^|]*\|\s*(::set-output|##\[)", ran.stdout, re.MULTILINE), ran.stdout
    assert not re.search("set-output::? verdict=PLANTED", ran.stdout)


# --- what the files promise ------------------------------------------------------------------------------------------


def variables_of(name):
    """Return the variables that an input is handed on as, and whether it is used in any other way."""
    used = re.compile(rf"\${{{{ inputs\.{re.escape(name)} }}}}")
    return {key for step in STEPS.values() for key, value in step.get("env", {}).items() if used.fullmatch(str(value))}


@pytest.mark.parametrize("name", ACTION["inputs"])
def test_each_input_is_in_the_readme_and_reaches_the_setting_of_its_name(name):
    described = ACTION["inputs"][name]
    default = f"`{described['default']}`" if described["default"] else ""

    assert f"| `{name}` | {described['description']} | {default} |\n" in PAGE
    handed = variables_of(name)
    if name in BY_NAME and name != "artifact-name":
        assert handed == {variable(name)}
    elif name == "pull-request":
        assert handed == {"CI_PERF_PULL_REQUEST"}
    elif name == "github-token":
        assert handed == {"GITHUB_TOKEN"}
    elif handed:
        assert all(f"${{{key}" in SCRIPT for key in handed)
    else:
        assert f"inputs.{name} " in json.dumps(ACTION["runs"])


@pytest.mark.parametrize("name", ACTION["outputs"])
def test_each_output_is_in_the_readme_and_has_a_writer(name):
    described = ACTION["outputs"][name]

    step, output = re.fullmatch(r"\$\{\{ steps\.(\w+)\.outputs\.([\w-]+) \}\}", described["value"]).groups()

    assert output == name
    assert step in {found.get("id") for found in STEPS.values()}
    assert f"| `{name}` | {described['description']} |\n" in PAGE


def test_every_variable_of_the_yaml_is_a_setting_or_read_by_the_script():
    for path in YAML_FILES:
        for step in steps_of(loaded(path)):
            for key in step.get("env", {}):
                if key.startswith("CI_PERF_"):
                    assert key in {variable(name) for name in BY_NAME} | {"CI_PERF_PULL_REQUEST"}, path
                if key.startswith("ACTION_"):
                    assert re.search(rf"\${{?{key}\b", SCRIPT) or f'"{key}"' in MEASURE, (path, key)


@pytest.mark.parametrize("path", [CALLED, ".github/actions/publish/action.yml", ".github/actions/record/action.yml"])
def test_what_calls_the_same_steps_has_inputs_of_the_same_names(path):
    document = loaded(path)
    inputs = (document["on"]["workflow_call"] if "on" in document else document)["inputs"]
    text = (ROOT / path).read_text()

    own = {"runners", "shards", "within", "planner", "timeout-minutes", "artifact", "measure-result", "measure-status"}
    assert set(inputs) - own <= set(ACTION["inputs"])
    for name in inputs:
        assert re.search(rf"inputs\.{name}[ ,]", text), name
    if "workflow_call" in text:
        assert set(ACTION["inputs"]) - set(inputs) == {"upload-artifact", "github-token", "publish"}


def test_the_workflows_of_the_readme_fit_the_schema_and_name_inputs_that_exist(tmp_path):
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    files = [tmp_path / block.splitlines()[0].rsplit("/", 1)[1] for block in blocks]
    for file, block in zip(files, blocks, strict=True):
        file.write_text(block)
        for job in YAML(typ="safe").load(block)["jobs"].values():
            for step in [job, *job.get("steps", ())]:
                if step.get("uses", "").startswith("org/ci-perf@"):
                    assert set(step["with"]) <= set(ACTION["inputs"])
                if called := re.match(r"org/ci-perf/(\.github/actions/\w+)@", step.get("uses", "")):
                    assert set(step.get("with", ())) <= set(loaded(f"{called[1]}/action.yml")["inputs"])
                if step.get("uses", "").startswith(f"org/ci-perf/{CALLED}@"):
                    assert set(step["with"]) <= set(loaded(CALLED)["on"]["workflow_call"]["inputs"])

    checker = Path(sys.executable).with_name("check-jsonschema")
    command = [checker, "--builtin-schema", "vendor.github-workflows", *files]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)

    assert len(files) == 5
    assert checked.returncode == 0, checked.stdout


def test_the_workflow_that_records_merges_passes_the_checks_of_this_project(tmp_path):
    block = re.search(r"^```yaml\n(# \S+/perf-merged\.yml\n.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1]
    (tmp_path / "perf-merged.yml").write_text(block)
    YAML().dump({"rules": PINS}, tmp_path / "zizmor.yml")
    zizmor = Path(sys.executable).with_name("zizmor")
    command = [zizmor, "--offline", "--quiet", "--persona=pedantic", "--config", tmp_path / "zizmor.yml"]

    checked = subprocess.run([*command, tmp_path / "perf-merged.yml"], capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("path", YAML_FILES)
def test_yaml_contains_no_logic(path):
    for step in steps_of(loaded(path)):
        if "run" in step:
            assert step["run"].count("\n") == 0, step
            assert "${{" not in step["run"], step
        if "uses" in step and not step["uses"].startswith("./"):
            assert re.search(r"@[0-9a-f]{40}$", step["uses"]), step


@pytest.mark.parametrize("path", ["action.yml", CALLED])
def test_of_the_artifact_folder_only_listed_files_are_uploaded(path):
    uploaded = {step["with"]["path"] for step in steps_of(loaded(path)) if step.get("uses", "").startswith(UPLOAD)}

    folder = {path for path in uploaded if "steps.prepare" in path}
    assert folder == {"${{ steps.prepare.outputs.files }}", "${{ steps.prepare.outputs.folder }}/run.json"}
    assert uploaded - folder <= {"${{ runner.temp }}/plan.json"}


def test_no_step_with_a_token_follows_a_measurement_that_may_have_left_processes():
    """It ends with an error where processes of the kernels still run, and without the nonce where it was killed."""
    steps = {step.get("id"): step for step in STEPS.values()}

    ended = "steps.measure.outcome == 'cancelled' && steps.measure.outputs.ended == steps.prepare.outputs.nonce"
    assert f"(steps.measure.outcome == 'success' || ({ended}))" in steps["unchanged"]["if"]
    assert "steps.unchanged.outcome == 'success'" in steps["publish"]["if"].split(" && ")


def test_the_step_that_measures_gets_no_token():
    """The first one runs no code of the pull request, and comes before any that does."""
    holders = [name for name, step in STEPS.items() if re.search("token|secret", json.dumps(step), re.IGNORECASE)]

    assert holders == ["Download what the earlier attempts of this job measured, still packed", "Publish"]
    assert list(STEPS).index(holders[0]) < list(STEPS).index("Measure")


# --- the script ------------------------------------------------------------------------------------------------------


def script(tmp_path, step, **environ):
    """Run a step of scripts/action; return the completed process and what it set as outputs."""
    out = tmp_path / "output"
    out.touch()
    basic = {"PATH": os.environ["PATH"], "RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": str(out)}
    ran = subprocess.run(
        [ROOT / "scripts/action", step],
        env={**basic, **environ},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    set_ = re.findall(r"^(\w+)(?:=(.*)|<<END\n((?:.*\n)*?)END)$", out.read_text(), re.MULTILINE)
    return ran, {name: value or lines for name, value, lines in set_}


def install(runner_temp, program):
    """Put a program in the place where `prepare` installs ci-perf."""
    path = runner_temp / "ci-perf-venv/bin/ci-perf"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{program}\n")
    python = path.with_name("python")
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    for file in (path, python):
        file.chmod(0o755)


@pytest.fixture
def installed(tmp_path):
    """A fake ci-perf that prints its arguments and has the given exit status."""
    install(tmp_path, 'printf "<%s>" "$@"\necho\n[ -z "$LINGER" ] || exec sleep 600\nexit ${STATUS:-0}')
    return tmp_path


def test_the_kernels_input_is_split_into_words_and_not_run_by_a_shell(installed):
    ran, _ = script(installed, "measure", ACTION_KERNELS="sdpa/*\n  gemm/s?  $(touch owned) ; rm -rf /")

    assert ran.stdout == "<run><sdpa/*><gemm/s?><$(touch><owned)><;><rm><-rf></>\n"
    assert not (installed / "owned").exists()


@pytest.mark.parametrize(
    ("attempt", "downloaded", "flag"),
    [
        ("1", ["perf-1-numbers"], None),
        ("2", ["perf-1-numbers", "perf-l4-1-numbers"], "perf-1-numbers"),
        ("4", ["perf-1-numbers", "perf-2-numbers", "perf-4-numbers"], "perf-2-numbers"),
        ("2", ["perf-l4-1-numbers"], "perf-1-numbers"),  # which there is not: a note says so
        ("2", None, None),
    ],
)
def test_a_rerun_continues_the_latest_attempt_before_it_of_the_same_job(attempt, downloaded, flag, installed):
    folder = installed / "earlier"
    for name in downloaded or ():
        (folder / name).mkdir(parents=True)
    given = {"ACTION_EARLIER": str(folder) if downloaded else "", "ACTION_PART": "numbers"}

    ran, _ = script(
        installed, "measure", **given, ACTION_ARTIFACT=f"perf-{attempt}", ACTION_KERNELS="a", GITHUB_RUN_ATTEMPT=attempt
    )

    assert ran.stdout == (f"<run><--earlier><{folder / flag}><a>\n" if flag else "<run><a>\n")


@pytest.mark.parametrize("folder", ["baselines", "perf/agreed"], ids=["default", "settings"])
def test_the_ledger_is_pushed_from_the_folder_of_the_settings_and_where_git_ignores_it(folder, tmp_path):
    install(tmp_path, f"mkdir -p {folder}/gpu\necho line >>{folder}/gpu/merged.jsonl")

    def git(*words):
        who = ("-c", "user.name=n", "-c", "user.email=n@example.org")
        return subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    git("init", "--quiet", "--bare", "origin.git")
    git("init", "--quiet", "--initial-branch", "main")
    (tmp_path / ".gitignore").write_text("*.jsonl\n")
    git("add", ".gitignore")
    git("commit", "--quiet", "--message", "one")
    git("remote", "add", "origin", str(tmp_path / "origin.git"))
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/run.json").touch()

    where = {"ACTION_RUNS": str(tmp_path / "runs"), "GITHUB_SHA": "a" * 40, "GITHUB_REF_NAME": "main"}
    ran, _ = script(tmp_path, "record", GITHUB_TOKEN="t", **where)

    assert ran.returncode == 0, ran.stderr
    assert git("-C", "origin.git", "ls-tree", "-r", "--name-only", "main").split() == [
        ".gitignore",
        f"{folder}/gpu/merged.jsonl",
    ]


@pytest.mark.parametrize("status", [0, 1, 2, 3, 70])
def test_the_status_of_the_measurement_decides_in_the_last_step(installed, status):
    measured, outputs = script(installed, "measure", STATUS=str(status))
    decided, _ = script(installed, "verdict", ACTION_STATUS=outputs["status"])

    assert measured.returncode == 0
    assert decided.returncode == status
    assert decided.stderr.startswith("::error title=ci-perf::") == (status != 0)


def test_in_a_shard_a_red_verdict_does_not_fail_the_job(installed):
    assert script(installed, "verdict", ACTION_STATUS="1", ACTION_SHARD="true")[0].returncode == 0
    assert script(installed, "verdict", ACTION_STATUS="3", ACTION_SHARD="true")[0].returncode == 3


def test_a_cancelled_job_ends_the_measurement(installed):
    out = installed / "output"
    out.touch()
    environ = {"PATH": os.environ["PATH"], "RUNNER_TEMP": str(installed), "GITHUB_OUTPUT": str(out), "LINGER": "1"}
    environ["ACTION_NONCE"] = "4f1d"
    process = subprocess.Popen([ROOT / "scripts/action", "measure"], env=environ, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "<run>\n"

    process.terminate()
    process.communicate(timeout=300)

    assert out.read_text() == "status=143\nended=4f1d\n"


HANGS = """
import os, time

seen = os.environ.get("ACTION_NONCE", "none")

def make_inputs(rng, device, microseconds):
    with open(os.environ["KEPT"], "w") as file:
        file.write(seen)
    time.sleep(3600)

launch = reference = abs
"""


def test_a_cancelled_job_publishes_what_it_finished_before_it_was_stopped(tmp_path, bare_python):
    """GitHub sends SIGINT to the step that measures, and runs the later ones whose condition holds."""
    really_install(tmp_path)
    for kernel, code in (("doze", NAP.format(factor=1.0)), ("nap", HANGS)):
        folder = tmp_path / "kernels" / kernel
        folder.mkdir(parents=True)
        (folder / "kernel.toml").write_text(TOML.format(microseconds=1000))
        (folder / "kernel.py").write_text(code)
    sides = {"sha": HEAD, "ref": "feature", "repo": {"full_name": "octo/kernels"}}
    (tmp_path / "event.json").write_text(json.dumps({"pull_request": {"number": 7, "head": sides, "base": sides}}))
    with FakeGitHub() as github:
        github.open_pull(7, HEAD)
        github.say(7, f"{marker('default', CommentStatus(State.FLAGGED))}\nslower")
        event = {"EVENT_NAME": "pull_request", "EVENT_PATH": str(tmp_path / "event.json"), "API_URL": github.url}
        job = {f"GITHUB_{name}": value for name, value in {**event, "REPOSITORY": "octo/kernels"}.items()}
        job["GITHUB_STEP_SUMMARY"] = str(tmp_path / "summary.md")
        run = str(tmp_path / "run")
        out, kept = tmp_path / "output", tmp_path / "kept"
        out.touch()
        step = {"RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": str(out), "ACTION_NONCE": "4f1d", "KEPT": str(kept)}
        settings = {"CI_PERF_OUTPUT": run, "CI_PERF_PYTHON": bare_python, "CI_PERF_DEVICE": "cpu"}
        environ = {"PATH": os.environ["PATH"], **job, **step, **settings}
        measure = subprocess.Popen([ROOT / "scripts/action", "measure"], env=environ, cwd=tmp_path)
        wait_for(lambda: kept.exists() and kept.read_text())

        measure.send_signal(signal.SIGINT)
        measure.wait(timeout=300)
        measured = dict(line.split("=") for line in out.read_text().splitlines())
        published, _ = script(
            tmp_path, "publish", **job, ACTION_RUN=run, ACTION_STATUS=measured["status"], GITHUB_TOKEN="ghs_secret"
        )

        assert measured == {"status": "130", "ended": "4f1d"}
        assert kept.read_text() == "none"
        assert published.returncode == 0, published.stderr
        [comment] = github.bodies(7)
        assert said(comment) is State.PENDING
        assert "This run was cut short" in comment
        assert "doze/one" in (tmp_path / "summary.md").read_text()
        assert "\nINCOMPLETE\n" in out.read_text()


SHOW_PARENTS = r"""
echo "own: $DB_CREDS"
pid=$PPID
while [ "$pid" != "$TEST" ]; do
  tr '\0' '\n' </proc/$pid/environ
  pid=$(awk '/^PPid/ { print $2 }' /proc/$pid/status)
done
"""


def test_no_process_above_ci_perf_holds_the_secrets_of_the_job(tmp_path):
    """Only root can read them at all: the memory of these processes is closed to others."""
    install(tmp_path, SHOW_PARENTS)
    ran, outputs = script(tmp_path, "measure", DB_CREDS="hunter2hunter2", TEST=str(os.getpid()))

    assert "own: hunter2hunter2\n" in ran.stdout
    assert ran.stdout.count("hunter2hunter2") == 1
    assert "DB_CREDS=****" in ran.stdout or "Permission denied" in ran.stderr
    assert outputs["status"]


@pytest.mark.parametrize(("upload", "flags"), [("true", ""), ("false", "<--no-artifact>")])
def test_a_comment_does_not_mention_an_artifact_that_is_not_uploaded(installed, upload, flags):
    (installed / "run.json").write_text("{}")
    ran, _ = script(installed, "publish", ACTION_RUN=str(installed), ACTION_UPLOAD=upload)

    assert ran.stdout == f"<publish><{installed}>{flags}\n"


def test_without_a_measurement_that_is_published(installed):
    ran, _ = script(installed, "publish", ACTION_RUN=str(installed / "nowhere"), ACTION_STATUS="2")

    assert ran.stdout == f"<publish><{installed / 'nowhere'}><--measure-status><2>\n"


@pytest.mark.parametrize(
    ("result", "status", "published"),
    [("failure", "2", 2), ("failure", "", 3), ("cancelled", "", 130), ("", "", 3), ("success", "0", None)],
)
def test_a_job_that_ended_before_it_left_numbers_is_published_as_such(installed, result, status, published):
    folder = installed / "none"
    given = {"ACTION_RUNS": str(folder), "ACTION_RESULT": result, "ACTION_STATUS": status}
    ran, _ = script(installed, "publish_foreign", **given, GITHUB_EVENT_NAME="pull_request")

    assert ran.returncode == (2 if published is None else 0)
    assert ran.stdout == ("" if published is None else f"<publish><{folder}><--measure-status><{published}>\n")


def a_runner(tmp_path, **programs):
    """Make the PATH of a runner with only basic tools and these programs, given as shell scripts."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "cat", "chmod", "dirname", "env", "mkdir", "mktemp", "rm", "sh"):
        (tools / name).symlink_to(shutil.which(name))
    for name, code in programs.items():
        (tools / name).write_text(f"#!/bin/sh\n{code}\n")
        (tools / name).chmod(0o755)
    return str(tools)


PYTHON = f"""
case "$*" in
  "-I -m venv "*) echo venv >>"$LOG"; mkdir "$4/bin"; cat "$0" >"$4/bin/python"; chmod +x "$4/bin/python" ;;
  "-I -m pip install "*/uv.txt)
    echo pip uv >>"$LOG"
    [ "$UPSTREAM" ] && cat "$UPSTREAM" >"${{0%/*}}/uv" && chmod +x "${{0%/*}}/uv" ;;
  "-I -m pip install "*) echo pip >>"$LOG" ;;
  "-I -m pip --version") ;;
  *sysconfig*) echo "${{0%/*}}" ;;
  *) exec {sys.executable} "$@" ;;
esac
"""
A_UV = """
echo uv "$1" >>"$LOG"
case "$1" in
  venv) "$PYTHON3" -I -m venv "$5" ;;
  pip) [ -z "$UNSOLVABLE" ] ;;
esac
"""


@pytest.mark.parametrize(
    ("on_path", "from_index", "unsolvable", "calls"),
    [
        (True, False, "", ["uv venv", "venv", "uv pip"]),
        (False, True, "", ["venv", "pip uv", "uv pip"]),
        (False, False, "", ["venv", "pip uv", "pip"]),
        (True, False, "1", ["uv venv", "venv", "uv pip", "pip"]),
    ],
    ids=["a runner with uv", "uv from the index", "no uv in the index", "versions that uv cannot resolve"],
)
def test_uv_installs_where_there_is_one_and_pip_elsewhere(tmp_path, on_path, from_index, unsolvable, calls):
    path = a_runner(tmp_path, **({"uv": A_UV} if on_path else {"python3": PYTHON}))
    for name, code in (("a-python", PYTHON), ("a-uv", A_UV)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{code}")
        (tmp_path / name).chmod(0o755)
    environ = {
        "LOG": str(tmp_path / "log"),
        "PYTHON3": str(tmp_path / "a-python"),
        "UPSTREAM": str(tmp_path / "a-uv") if from_index else "",
        "UNSOLVABLE": unsolvable,
    }

    ran, outputs = script(tmp_path, "prepare", PATH=path, **environ)

    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "log").read_text().splitlines() == calls
    assert outputs["artifact"] == "ci-perf-run-1"
    assert re.fullmatch("[0-9a-f]{32}", outputs["nonce"])
    assert outputs["files"].splitlines() == [f"{outputs['folder']}/{name}" for name in FILES]
    venv = tmp_path / "ci-perf-venv"
    assert (venv / "bin/ci-perf.pth").read_text() == f"{ROOT}\n"
    assert os.access(venv / "bin/ci-perf", os.X_OK)


def test_the_error_on_a_runner_without_python_and_uv_says_what_is_missing(tmp_path):
    ran, _ = script(tmp_path, "prepare", PATH=a_runner(tmp_path))

    assert ran.returncode == 3
    assert "it needs uv, or Python 3.11 or newer with venv" in ran.stderr


# --- shards ----------------------------------------------------------------------------------------------------------


def really_install(runner_temp):
    """Put ci-perf in the place where the steps expect it, as `prepare` does."""
    install(runner_temp, f'PYTHONPATH={ROOT} exec {sys.executable} -m ci_perf "$@"')


SCALE_TOML = """
entry = "kernel.py"
devices = ["cpu"]
[cases.one]
n = 1
[fuzz]
n = { min = 2, max = 9 }
"""
SCALE = """
def make_inputs(rng, device, n):
    return float(n)

def launch(n):
    return n if n < 2 else n + 1.0  # right in the case that is named, and in no other

def reference(n):
    return n
"""


def test_the_steps_of_perf_yml_plan_measure_and_merge_and_a_lost_shard_is_red(tmp_path, bare_python):
    really_install(tmp_path)
    for kernel in ("doze", "nap"):
        folder = tmp_path / "kernels" / kernel
        folder.mkdir(parents=True)
        (folder / "kernel.toml").write_text(TOML.format(microseconds=1000))
        (folder / "kernel.py").write_text(NAP.format(factor=1.0))
    plan = {"ACTION_PLAN": str(tmp_path / "plan.json")}

    _, planned = script(tmp_path, "plan", **plan, ACTION_RUNNERS="gpu,l4", ACTION_SHARDS="2", CI_PERF_DEVICE="cpu")
    _, hurried = script(
        tmp_path, "plan", ACTION_PLAN=str(tmp_path / "other.json"), ACTION_RUNNERS="gpu", ACTION_WITHIN="0.1"
    )
    rows = json.loads(planned["matrix"])["include"]
    for row in rows[:1]:
        shard = {"ACTION_KERNELS": row["kernels"], "CI_PERF_SHARD": row["shard"], "CI_PERF_PYTHON": bare_python}
        folder = str(tmp_path / "runs" / row["shard"])
        script(tmp_path, "measure", **shard, CI_PERF_PROCESSES="2", CI_PERF_OUTPUT=folder)
    merged = {**plan, "ACTION_RUNS": str(tmp_path / "runs"), "ACTION_RUN": str(tmp_path / "merged")}
    ran, outputs = script(tmp_path, "merge", **merged)

    assert [(row["shard"], row["runner"]) for row in rows] == [
        ("l4-1-of-2", ["gpu", "l4"]),
        ("l4-2-of-2", ["gpu", "l4"]),
    ]
    assert len(json.loads(hurried["matrix"])["include"]) == 2
    assert ran.returncode == 0, ran.stderr
    assert outputs["status"] == "1"
    verdicts = {
        row.finding.kernel: row.finding.verdict for row in build_report(store.read_run(tmp_path / "merged")).rows
    }
    assert verdicts == {"doze": Verdict.NEW, "nap": Verdict.FAILED}


def test_the_nightly_check_is_red_where_a_random_case_is_wrong_and_goes_on_to_the_sanitizer(tmp_path, bare_python):
    really_install(tmp_path)
    folder = tmp_path / "kernels/scale"
    folder.mkdir(parents=True)
    (folder / "kernel.toml").write_text(SCALE_TOML)
    (folder / "kernel.py").write_text(SCALE)
    ci = {"CI_PERF_PYTHON": bare_python, "CI_PERF_DEVICE": "cpu", "GITHUB_RUN_NUMBER": "7"}
    summary = tmp_path / "summary.md"

    ran, _ = script(tmp_path, "check", **ci, ACTION_CHECK=str(tmp_path / "check"), GITHUB_STEP_SUMMARY=str(summary))

    assert ran.returncode == 1, ran.stdout
    assert "::error title=ci-perf::a kernel is wrong, or could not be checked: see the summary" in ran.stderr
    assert store.read_run(tmp_path / "check/fuzz").fuzzed
    assert "compute-sanitizer" in (ran.stdout + ran.stderr), "it went on"
    assert "scale/fuzz-7-" in summary.read_text()


def test_the_sessions_of_a_nightly_audit_are_pushed_though_another_job_pushed_first(tmp_path):
    """What it pushed has one of the two sessions already: the other is added to it."""
    install(tmp_path, "exit 1")

    def git(*arguments):
        who = ("-c", "user.name=a developer", "-c", "user.email=developer@users.noreply.github.com")
        ran = subprocess.run(["git", *who, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        return ran.stdout.strip()

    git("init", "--quiet", "--initial-branch=main")
    git("commit", "--quiet", "--allow-empty", "--message", "first")
    git("clone", "--quiet", "--bare", ".", "origin.git")
    git("remote", "add", "origin", str(tmp_path / "origin.git"))
    head = git("rev-parse", "HEAD")
    sessions = [an_audit_session(n, rule=rule_hash(), provenance=a_provenance(commit=head)) for n in (1, 2)]
    file = tmp_path / "baselines/h100-80gb-hbm3/nightly-audit.jsonl"
    append_session(file, sessions[0])
    git("add", "baselines")
    git("commit", "--quiet", "--message", "what another job pushed")
    git("push", "--quiet", "origin", "main")
    git("reset", "--quiet", "--hard", head)
    (tmp_path / "runs").mkdir()
    with zipfile.ZipFile(tmp_path / "runs/audit-1.zip", "w") as archive:
        archive.writestr("audit.jsonl", "".join(map(dump_session, sessions)))
        archive.writestr("audit.md", "")
    job = {"GITHUB_SHA": head, "GITHUB_REF_NAME": "main", "GITHUB_TOKEN": "ghs_secret"}

    ran, _ = script(tmp_path, "record_audit", **job, ACTION_RUNS=str(tmp_path / "runs"))

    assert ran.returncode == 0, ran.stderr
    git("fetch", "--quiet", "origin", "main")
    log = git("log", "--format=%s", "-2", "FETCH_HEAD").splitlines()
    assert log == [f"Add the sessions of an audit of {head[:8]} [skip ci]", "what another job pushed"]
    assert git("show", "--format=", "--name-only", "FETCH_HEAD") == "baselines/h100-80gb-hbm3/nightly-audit.jsonl"
    git("reset", "--quiet", "--hard", "FETCH_HEAD")
    assert read_sessions([file])[0] == tuple(sessions)

    again, _ = script(tmp_path, "record_audit", **job, ACTION_RUNS=str(tmp_path / "runs"))

    assert "added none of 2 sessions\nnothing is added to nightly-audit.jsonl\n" in again.stdout


def test_a_nightly_audit_measures_unchanged_code_and_then_slower_code_into_one_file(installed):
    out = installed / "audit"
    environ = {"ACTION_AUDIT": str(out), "ACTION_MINUTES": "60", "GITHUB_STEP_SUMMARY": str(installed / "summary.md")}
    install_log = installed / "calls"
    (installed / "ci-perf-venv/bin/ci-perf").write_text(f'#!/bin/sh\necho "$*" | tee -a {install_log}\n')

    ran, outputs = script(installed, "audit", **environ)

    assert ran.returncode == 0, ran.stderr
    first, second = install_log.read_text().splitlines()
    assert f"--file {out}/audit.jsonl" in first
    assert f"--file {out}/audit.jsonl" in second
    assert first.endswith("--ladder 0 --minutes 60")
    assert second.endswith("--ladder 2%,3.5%,5%,10% --minutes 30")
    assert outputs["artifact"] == "audit-1"
    assert (installed / "summary.md").read_text() == f"{second}\n"


@pytest.mark.parametrize("path", [path for path in YAML_FILES if "workflows" in path])
def test_no_job_that_runs_kernels_has_a_token_that_can_write(path):
    for name, job in loaded(path)["jobs"].items():
        if "self-hosted" in str(job.get("runs-on")):
            assert "write" not in job["permissions"].values(), name
            assert "secrets." not in json.dumps(job), name
            assert "github.token" not in json.dumps(job), name


# --- releases --------------------------------------------------------------------------------------------------------


@pytest.fixture
def release(tmp_path):
    """Return a function that makes a dry run of a release in a copy of this repository with a dated version."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/release", tmp_path / "scripts")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    changes = tmp_path / "CHANGELOG.md"
    changes.write_text((ROOT / "CHANGELOG.md").read_text().replace("- unreleased", "- 2026-12-01"))
    for command in ("init -q", "add -A", "-c user.name=me -c user.email=me@localhost commit -qm all"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist/ci_perf.whl").touch()

    def call(tag):
        command = [tmp_path / "scripts/release", tag, "--dry-run"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return call, changes


def test_a_release_has_its_notes_and_moves_the_major_tag(release):
    ran = release[0](f"v{__version__}")

    major = __version__.split(".")[0]
    assert ran.returncode == 0, ran.stderr
    assert f"gh release create v{__version__} --verify-tag" in ran.stdout
    assert "`ci-perf run`" in ran.stdout
    assert " dist/ci_perf.whl\n" in ran.stdout
    assert f"refs/tags/v{major} -f sha=" in ran.stdout


def test_a_release_that_is_not_prepared_is_refused(release):
    call, changes = release

    (changes.parent / "dist/ci_perf.whl").unlink()
    assert "dist/ has no wheel" in call(f"v{__version__}").stderr
    assert "pyproject.toml says" in call("v99.0.0").stderr
    assert "is not of the form" in call("latest").stderr
    changes.write_text("# Changelog\n")
    assert "CHANGELOG.md has nothing on" in call(f"v{__version__}").stderr
    changes.write_text(f"## {__version__} - unreleased\n\n- all\n")
    assert "unreleased" in call(f"v{__version__}").stderr


def test_packages_that_cannot_be_looked_up_are_not_green(tmp_path):
    pip_audit = tmp_path / "pip-audit"
    for said, status, expected in (
        ("ConnectionError: cannot reach pypi.org", 1, 3),
        ("Found 1 known vulnerability in 1 package", 1, 1),
        ("No known vulnerabilities found", 0, 0),
    ):
        pip_audit.write_text(f"#!/bin/sh\necho '{said}'\nexit {status}\n")
        pip_audit.chmod(0o755)
        environ = {**os.environ, "PIP_AUDIT": str(pip_audit)}
        ran = subprocess.run(
            [ROOT / "scripts/audit-packages"], env=environ, capture_output=True, text=True, check=False
        )
        assert (ran.returncode, "could not be looked up" in ran.stderr) == (expected, expected == 3)


def test_every_file_that_the_action_installs_has_a_hash_and_the_version_of_constraints():
    pinned = {re.sub("[-_.]+", "-", line).lower() for line in (ROOT / "constraints.txt").read_text().split()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    entries = re.split(r"^(?=\S)", (ROOT / "scripts/requirements/runtime.txt").read_text(), flags=re.MULTILINE)[1:]

    names = {re.sub("[-_.]+", "-", entry.split()[0]).lower() for entry in entries}
    assert names <= pinned
    assert all("--hash=sha256:" in entry for entry in entries)
    wanted = {re.match(r"[\w-]+", requirement)[0].lower() for requirement in project["dependencies"]}
    assert wanted <= {entry.split("==")[0] for entry in entries}
