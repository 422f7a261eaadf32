"""`ci-perf publish`: a recorded run as a comment on its pull request, a summary, annotations and outputs."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click

from ci_perf import store
from ci_perf.cli.options import resolve_settings, setting_options
from ci_perf.github import actions
from ci_perf.github.archive import read_untrusted
from ci_perf.github.client import Conversation, Forbidden, Repository
from ci_perf.github.event import PULL_REQUEST_EVENTS, Event
from ci_perf.github.foreign import check_run, judge_foreign
from ci_perf.github.patch import PATCH, apply_command, baseline_patch
from ci_perf.github.places import query_places
from ci_perf.github.publish import Action, Annotation, Effects, Level, Place, Thread, decide
from ci_perf.github.workflow_commands import render_annotation
from ci_perf.judge.report import Report, build_report
from ci_perf.measure import git
from ci_perf.render.markdown import LARGEST_COMMENT, LARGEST_SUMMARY, Frame, render_comment
from ci_perf.values.codec import load_run
from ci_perf.values.errors import ConfigError, MachineError
from ci_perf.values.settings import Settings, policy_from

TOKENS = ("CI_PERF_GITHUB_TOKEN", "GITHUB_TOKEN")
"""Where the token is looked for, in this order; it is no flag, so that no list of processes shows it."""


_RULES = ("kernels-dir", "regression-threshold", "speedup-threshold", "fail-on", "strict")
"""Of the base repository, for runs that a fork measured."""


@dataclass(frozen=True, slots=True)
class Found:
    """What is to be published."""

    report: Report
    patch: str
    """What would make it the baseline; empty: nothing would."""
    foreign: bool
    places: Mapping[str, Place] | None
    """Where each kernel is launched; None where the job has checked out another commit."""


@dataclass(frozen=True, slots=True)
class Target:
    """The pull request that it is published on, as far as there is one."""

    event: Event
    thread: Thread
    conversation: Conversation | None = None
    failure: MachineError | None = None
    """Why GitHub could not be asked. It waits until what needs no GitHub is done."""


@click.command()
@click.argument("run_file", metavar="RUN", type=click.Path(path_type=Path))
@setting_options("comment", "comment-key", "artifact-name", "cost-per-hour", "baselines", *_RULES)
@click.option(
    "--from-workflow-run",
    is_flag=True,
    help="In a workflow_run job: RUN comes from a fork. Thresholds, gates and baselines are this repository's.",
)
@click.option("--no-artifact", is_flag=True, help="The workflow keeps no artifact: the comment leads to none.")
@click.option("--dry-run", is_flag=True, help="Print what would be done as JSON; GitHub is only read, with a token.")
def publish(run_file: Path, from_workflow_run: bool, no_artifact: bool, dry_run: bool, **flags: object) -> None:
    """Comment on the pull request of RUN (a run.json, its folder, or a zip), and set summary, annotations and outputs.

    To be called in a step of a GitHub workflow, with the token in GITHUB_TOKEN (or CI_PERF_GITHUB_TOKEN). The comment
    is made at the first speedup, regression, failure or broken gate, kept up to date from then on, and turned to
    "resolved" once all is well. Where the event belongs to no pull request there is everything but a comment.

    Exit status 0 whatever the report says: `run` and `replay` judge. 3 where GitHub cannot be asked or written to.
    """
    root = Path.cwd()
    settings = resolve_settings(root, flags)
    event = actions.read_event(os.environ)
    found = _read_foreign(run_file, event, settings, root) if from_workflow_run else _read_own(run_file, settings, root)
    target = _aim(event, settings, from_workflow_run=from_workflow_run)
    effects = decide(found.report, target.event, settings["comment"], target.thread, found.places)
    frame = Frame(
        key=settings["comment-key"],
        state=effects.state,
        run_url=event.run_url,
        patch_command=apply_command(event, settings["artifact-name"]) if found.patch and not no_artifact else "",
        artifact=not no_artifact,
        foreign=found.foreign,
        cost_per_hour=settings["cost-per-hour"],
    )
    outputs = {**effects.outputs, **_paths(run_file, found)}
    if dry_run:
        click.echo(_as_json(effects, target, found, frame, outputs))
    else:
        _publish(run_file, found, effects, target, frame, outputs)


def _read_own(run_file: Path, settings: Settings, root: Path) -> Found:
    for name in _RULES:
        if settings.origins[name].startswith("flag"):
            raise ConfigError(
                f"{settings.origins[name]}: a run is judged by the rules that it was measured under",
                hint="give it to `ci-perf run`; here it is for --from-workflow-run",
            )
    run = store.read_run(run_file)
    report = build_report(run)
    prefix = git.query_prefix(root)
    patch = baseline_patch(run, report, f"{prefix}{settings['baselines']}".rstrip("/"))
    return Found(report, patch, foreign=False, places=query_places(run.kernels, root, prefix))


def _read_foreign(run_file: Path, event: Event, settings: Settings, root: Path) -> Found:
    """Read a run that nobody vouches for, and judge it by this repository's rules."""
    if event.origin is None:
        raise ConfigError(
            f"--from-workflow-run: the event is `{event.name or 'none'}`, not `workflow_run`",
            hint="leave the flag out where the workflow itself measured",
        )
    text = read_untrusted(run_file)
    run = load_run(text, str(run_file))
    check_run(run, json.loads(text), event, str(run_file))
    kernels, baselines = root / settings["kernels-dir"], root / settings["baselines"]
    specs = {spec.name: spec for spec in store.read_kernels(kernels, root)} if kernels.is_dir() else {}
    own = store.read_baselines(baselines, dict.fromkeys(d.slug for d in run.devices))
    report = judge_foreign(run, policy_from(settings), specs, own, str(run_file))
    return Found(report, patch="", foreign=True, places=None)


def _aim(event: Event, settings: Settings, *, from_workflow_run: bool) -> Target:
    """Find the pull request and our comment on it, or why there is neither; nothing is written."""
    token = next((os.environ[name] for name in TOKENS if os.environ.get(name)), "")
    if settings["comment"] == "never" or (event.pull_request is None and not from_workflow_run):
        return Target(event, Thread())
    if not token:
        missing = f"{TOKENS[1]} is not set: `env: GITHUB_TOKEN: ${{{{ github.token }}}}` lets the step comment"
        return Target(event, Thread(absent=missing))
    repository = Repository(event.api_url, event.repository, token)
    try:
        if from_workflow_run:
            event, absent = _locate(event, repository)
            if absent:
                return Target(event, Thread(absent=absent))
        conversation = repository.pull_request(event.pull_request or 0, settings["comment-key"])
        return Target(event, Thread(conversation.find_state(), conversation.head_sha), conversation)
    except MachineError as error:
        return Target(event, Thread(absent=str(error)), failure=error)


def _locate(event: Event, repository: Repository) -> tuple[Event, str]:
    """Find the pull request by the commit that the event names, or say why there is none."""
    origin = event.origin
    if origin is None or origin.event not in PULL_REQUEST_EVENTS:
        return event, f"the workflow run was started by `{origin.event if origin else ''}`, not by a pull request"
    if not origin.head_repository or not origin.head_branch:
        return event, "the repository of the pull request's head is gone"
    numbers = repository.find_open(origin, event.head_sha)
    if len(numbers) == 1:
        return replace(event, pull_request=numbers[0]), ""
    count = f"{len(numbers)} open pull requests have" if numbers else "no open pull request has"
    return event, f"{count} {event.head_sha} of {origin.head_repository} as its head"


def _paths(run_file: Path, found: Found) -> dict[str, str]:
    folder = run_file if run_file.is_dir() else run_file.parent
    report = folder / "report.md"
    return {
        "report-path": str(report) if report.is_file() and not found.foreign else "",
        "run-path": str(folder / "run.json" if run_file.is_dir() else run_file),
        "comment-id": "",
        "comment-url": "",
        "baseline-patch-path": str(folder / PATCH) if found.patch else "",
    }


def _as_json(effects: Effects, target: Target, found: Found, frame: Frame, outputs: Mapping[str, str]) -> str:
    comment = {
        "action": effects.action,
        "reason": effects.reason,
        "state": effects.state,
        "pull_request": target.event.pull_request,
        "body": render_comment(found.report, replace(frame, limit=LARGEST_COMMENT)),
    }
    document = {
        "comment": comment,
        "summary": render_comment(found.report, replace(frame, limit=LARGEST_SUMMARY)),
        "annotations": [asdict(annotation) for annotation in effects.annotations],
        "outputs": outputs,
        "patch": found.patch,
    }
    return json.dumps(document, indent=2)


def _publish(
    run_file: Path, found: Found, effects: Effects, target: Target, frame: Frame, outputs: Mapping[str, str]
) -> None:
    """Do it: first what needs no network, so that nothing is lost where GitHub fails."""
    if found.patch:
        store.write_text((run_file if run_file.is_dir() else run_file.parent) / PATCH, found.patch)
    actions.append_summary(os.environ, render_comment(found.report, replace(frame, limit=LARGEST_SUMMARY)))
    _annotate(effects.annotations)
    written: dict[str, str] = {}
    try:
        if target.failure:
            raise target.failure
        if effects.action is Action.LEAVE or target.conversation is None:
            click.echo(f"no comment: {effects.reason}")
        else:
            comment = target.conversation.write(render_comment(found.report, replace(frame, limit=LARGEST_COMMENT)))
            written = {"comment-id": str(comment.id), "comment-url": comment.url}
            click.echo(f"comment on #{target.event.pull_request}: {comment.url} ({effects.state}; {effects.reason})")
    except Forbidden as error:
        if not target.event.read_only:
            raise
        _annotate((_read_only(target.event, error),))
    finally:
        actions.append_outputs(os.environ, {**outputs, **written})


def _read_only(event: Event, error: Forbidden) -> Annotation:
    message = f"{event.read_only}, so GitHub gave this workflow a token that cannot write. {error}"
    hint = " A workflow_run job may comment for it: `ci-perf publish --from-workflow-run`."
    return Annotation(Level.NOTICE, "ci-perf: no comment", message + hint)


def _annotate(annotations: tuple[Annotation, ...]) -> None:
    for annotation in annotations:
        click.echo(render_annotation(annotation))
