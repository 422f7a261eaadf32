"""`ci-perf publish`: a recorded run as a comment on its pull request, a summary, annotations and outputs."""

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click

from ci_perf.cli.options import resolve_settings, setting_options
from ci_perf.core.errors import CiPerfError, ConfigError
from ci_perf.core.event import PULL_REQUEST_EVENTS, Event
from ci_perf.core.foreign import check_run, judge_foreign
from ci_perf.core.model import Run
from ci_perf.core.patch import baseline_patch
from ci_perf.core.publish import Action, Annotation, Effects, Level, Place, Thread, decide
from ci_perf.core.report import Report, build_report
from ci_perf.core.serial import load_run
from ci_perf.core.settings import Settings, policy_from
from ci_perf.core.source import launch_line
from ci_perf.edge import actions, git, store
from ci_perf.edge.archive import read_untrusted
from ci_perf.edge.github import Conversation, Forbidden, Repository
from ci_perf.render.commands import render_annotation
from ci_perf.render.markdown import LARGEST_COMMENT, LARGEST_SUMMARY, Frame, render_comment

TOKENS = ("CI_PERF_GITHUB_TOKEN", "GITHUB_TOKEN")
"""Where the token is looked for, in this order; it is no flag, so that no list of processes shows it."""
_GIVE_TOKEN = "`env: GITHUB_TOKEN: ${{ github.token }}` lets the step comment"
PATCH = "baseline.patch"


@dataclass(frozen=True, slots=True)
class Published:
    """A run on its way to GitHub."""

    report: Report
    patch: str
    foreign: bool
    places: Mapping[str, Place] | None


@click.command()
@click.argument("run_file", metavar="RUN", type=click.Path(path_type=Path))
@setting_options(
    *("comment", "comment-key", "artifact-name", "cost-per-hour", "baselines", "kernels-dir"),
    *("regression-threshold", "speedup-threshold", "fail-on", "strict"),
)
@click.option(
    "--from-workflow-run",
    is_flag=True,
    help="In a workflow_run job: RUN comes from a fork. The rules above and the baselines are this repository's.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be done as JSON; GitHub is only read, with a token.")
def publish(run_file: Path, from_workflow_run: bool, dry_run: bool, **flags: object) -> None:
    """Comment on the pull request of RUN (a run.json, its folder, or a zip), and set summary, annotations and outputs.

    To be called in a step of a GitHub workflow, with the token in GITHUB_TOKEN (or CI_PERF_GITHUB_TOKEN). The comment
    is made at the first speedup, regression, failure or broken gate, kept up to date from then on, and turned to
    "resolved" once all is well. Where the event belongs to no pull request there is everything but a comment.

    Exit status 0 whatever the report says: `run` and `replay` judge. 3 where GitHub cannot be written to.
    """
    root = Path.cwd()
    settings = resolve_settings(root, flags)
    event = actions.read_event(os.environ)
    found = _read_foreign(run_file, event, settings, root) if from_workflow_run else _read_own(run_file, settings, root)
    token = next((os.environ[name] for name in TOKENS if os.environ.get(name)), "")
    repository = Repository(event.api_url, event.repository, token) if token and event.name else None
    thread = Thread()
    if from_workflow_run:
        event, thread = _located(event, repository)
    talk = _conversation(event, repository, settings)
    if talk:
        thread = Thread(talk.find_state(), talk.head_sha)
    elif event.pull_request and not token:
        thread = Thread(absent=f"{TOKENS[1]} is not set: {_GIVE_TOKEN}")
    effects = decide(found.report, event, settings["comment"], thread, found.places)
    frame = _frame(event, settings, found, effects)
    outputs = {**effects.outputs, **_paths(run_file, found)}
    if dry_run:
        click.echo(_as_json(effects, event, found, frame, outputs))
        return
    _publish(run_file, found, effects, event, talk, frame, outputs)


def _read_own(run_file: Path, settings: Settings, root: Path) -> Published:
    run = store.read_run(run_file)
    report = build_report(run)
    prefix = git.query_prefix(root)
    patch = baseline_patch(run, report, f"{prefix}{settings['baselines']}".strip("/"))
    return Published(report, patch, foreign=False, places=_places(run, root, prefix))


def _read_foreign(run_file: Path, event: Event, settings: Settings, root: Path) -> Published:
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
    own = store.read_baselines(baselines, dict.fromkeys(d.slug for d in run.devices)) if baselines.is_dir() else None
    report = judge_foreign(run, policy_from(settings), specs, own, str(run_file))
    return Published(report, patch="", foreign=True, places=None)


def _places(run: Run, root: Path, prefix: str) -> dict[str, Place]:
    """Return where each kernel is launched: in its entry file, or, of a program, its kernel.toml."""
    places = {}
    for spec in run.kernels:
        file = root / spec.folder / (spec.entry or "kernel.toml")
        try:
            line = launch_line(file.read_text(encoding="utf-8")) if spec.entry else 1
        except (OSError, UnicodeDecodeError):
            line = 1
        places[spec.name] = Place(f"{prefix}{spec.folder}/{spec.entry or 'kernel.toml'}", line)
    return places


def _located(event: Event, repository: Repository | None) -> tuple[Event, Thread]:
    """Find the pull request by the commit that the event names, or say why there is none."""
    origin = event.origin
    if origin is None or origin.event not in PULL_REQUEST_EVENTS:
        started = origin.event if origin else ""
        return event, Thread(absent=f"the workflow run was started by `{started}`, not by a pull request")
    if not origin.head_repository or not origin.head_branch:
        return event, Thread(absent="the repository of the pull request's head is gone")
    if repository is None:
        raise ConfigError(f"environment {TOKENS[1]}: is not set", hint=_GIVE_TOKEN)
    numbers = repository.find_open(origin, event.head_sha)
    if len(numbers) != 1:
        several = f"{len(numbers)} open pull requests have" if numbers else "no open pull request has"
        return event, Thread(absent=f"{several} {event.head_sha} of {origin.head_repository} as its head")
    return replace(event, pull_request=numbers[0]), Thread()


def _conversation(event: Event, repository: Repository | None, settings: Settings) -> Conversation | None:
    if event.pull_request is None or repository is None or settings["comment"] == "never":
        return None
    return repository.pull_request(event.pull_request, settings["comment-key"])


def _frame(event: Event, settings: Settings, found: Published, effects: Effects) -> Frame:
    return Frame(
        key=settings["comment-key"],
        state=effects.state,
        run_url=event.run_url,
        patch_command=_patch_command(event, settings) if found.patch else "",
        foreign=found.foreign,
        cost_per_hour=settings["cost-per-hour"],
    )


def _patch_command(event: Event, settings: Settings) -> str:
    """Return the commands that fetch the patch from the artifact and apply it."""
    if not event.run_id:
        return f"git apply {PATCH}"
    host = event.server_url.partition("://")[2]
    repository = event.repository if host == "github.com" else f"{host}/{event.repository}"
    folder = f"ci-perf-run-{event.run_id}"
    options = ["--repo", repository, "--name", settings["artifact-name"], "--dir", folder]
    fetch = shlex.join(["gh", "run", "download", event.run_id, *options])
    return f"{fetch} &&\n  git apply {folder}/{PATCH}"


def _paths(run_file: Path, found: Published) -> dict[str, str]:
    folder = run_file if run_file.is_dir() else run_file.parent
    run, report = (run_file / "run.json" if run_file.is_dir() else run_file), folder / "report.md"
    return {
        "report-path": str(report) if report.is_file() else "",
        "run-path": str(run),
        "comment-id": "",
        "comment-url": "",
        "baseline-patch-path": str(folder / PATCH) if found.patch else "",
    }


def _as_json(effects: Effects, event: Event, found: Published, frame: Frame, outputs: Mapping[str, str]) -> str:
    comment = {
        "action": effects.action,
        "reason": effects.reason,
        "state": effects.state,
        "pull_request": event.pull_request,
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
    run_file: Path,
    found: Published,
    effects: Effects,
    event: Event,
    talk: Conversation | None,
    frame: Frame,
    outputs: Mapping[str, str],
) -> None:
    """Do it: first what needs no network, so that nothing is lost where GitHub fails."""
    if found.patch:
        store.write_text((run_file if run_file.is_dir() else run_file.parent) / PATCH, found.patch)
    actions.append_summary(os.environ, render_comment(found.report, replace(frame, limit=LARGEST_SUMMARY)))
    _annotate(effects.annotations)
    said: dict[str, str] = {}
    try:
        if effects.action is Action.LEAVE or talk is None:
            click.echo(f"no comment: {effects.reason}")
        else:
            comment = talk.write(render_comment(found.report, replace(frame, limit=LARGEST_COMMENT)))
            said = {"comment-id": str(comment.id), "comment-url": comment.url}
            click.echo(f"comment on #{event.pull_request}: {comment.url} ({effects.state}; {effects.reason})")
    except Forbidden as error:
        if not event.read_only:
            raise
        _annotate((_read_only(event, error),))
    finally:
        actions.append_outputs(os.environ, {**outputs, **said})


def _read_only(event: Event, error: CiPerfError) -> Annotation:
    message = f"{event.read_only}, so GitHub gave this workflow a token that cannot write. {error}"
    hint = " A workflow_run job may comment for it: `ci-perf publish --from-workflow-run`."
    return Annotation(Level.NOTICE, "ci-perf: no comment", message + hint)


def _annotate(annotations: tuple[Annotation, ...]) -> None:
    for annotation in annotations:
        click.echo(render_annotation(annotation))
