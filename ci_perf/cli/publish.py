"""`ci-perf publish`: a recorded run as a comment on its pull request, a summary, annotations and outputs.

Three acts: `decide` what a report does, render the texts, and apply them or, with --dry-run, print them.
"""

import json
import os
import secrets
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from ci_perf import store
from ci_perf.cli.creep import find_creep
from ci_perf.cli.options import resolve_settings, setting_options
from ci_perf.cli.unmeasured import publish_unmeasured
from ci_perf.github import actions
from ci_perf.github.archive import read_untrusted
from ci_perf.github.event import Event, claim
from ci_perf.github.foreign import check_run, judge_foreign
from ci_perf.github.patch import PATCH, apply_command, baseline_patch
from ci_perf.github.places import query_places
from ci_perf.github.publish import Action, Annotation, Effects, Forbidden, Level, Place, decide
from ci_perf.github.target import Target, find_target
from ci_perf.github.workflow_commands import neutral, neutral_json, render_annotation
from ci_perf.judge.report import Report, build_report
from ci_perf.measure import git
from ci_perf.render.markdown import LARGEST_COMMENT, LARGEST_SUMMARY, Frame, render_comment
from ci_perf.values.codec import load_run
from ci_perf.values.device import plain_commit
from ci_perf.values.errors import EXIT_BUG, CiPerfError, ConfigError
from ci_perf.values.settings import Settings, policy_from

_TOKENS = ("CI_PERF_GITHUB_TOKEN", "GITHUB_TOKEN")
"""Variables that may hold the token, in this order. It is no flag, so that no list of processes shows it."""
_RULES = ("kernels-dir", "regression-threshold", "speedup-threshold", "fail-on", "strict")
"""Of the base repository, for runs that a fork measured."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is published."""

    report: Report
    patch: str
    """What makes it the baseline; empty where there is nothing to accept."""
    foreign: bool
    measured: tuple[str, ...]
    """The commits that the run may stand for."""
    places: Mapping[str, Place] | None
    """Where each kernel is launched; None where the job has checked out another commit."""


@dataclass(frozen=True, slots=True)
class Texts:
    """What is written where."""

    comment: str
    summary: str
    annotations: tuple[str, ...]
    outputs: Mapping[str, str]


@click.command()
@click.argument("run_file", metavar="RUN", type=click.Path(path_type=Path))
@setting_options("comment", "comment-key", "artifact-name", "cost-per-hour", "baselines", *_RULES)
@click.option(
    "--from-workflow-run",
    is_flag=True,
    help="For a workflow_run job, with RUN from a fork: thresholds, gates and baselines are those of this repository.",
)
@click.option(
    "--pull-request",
    type=click.IntRange(1),
    envvar="CI_PERF_PULL_REQUEST",
    help="The pull request, if the event names none (workflow_dispatch). Its head must be the measured commit.",
)
@click.option(
    "--measure-status",
    type=click.IntRange(0, 255),
    help="Exit status of the step that measured. If that step left no RUN, NOT_MEASURED is published.",
)
@click.option(
    "--no-artifact", is_flag=True, help="The workflow uploads no artifact, so the comment has no link to one."
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print what would be published, as JSON. With a token GitHub is read, but nothing is written.",
)
def publish(run_file: Path, from_workflow_run: bool, dry_run: bool, **flags: Any) -> None:  # noqa: ANN401 # click
    """Comment on the pull request of RUN (a run.json, its folder, or a zip), and set summary, annotations and outputs.

    Call it in a step of a GitHub workflow, with the token in GITHUB_TOKEN (or CI_PERF_GITHUB_TOKEN). The comment is
    created at the first speedup, regression, failure or broken gate, then updated, and marked "resolved" once nothing
    is flagged. If the event belongs to no pull request, there is no comment; everything else is published.

    The exit status does not depend on the verdicts, which are those of `run` and `replay`: it is 0, or 3 if GitHub
    cannot be read or written.
    """
    if from_workflow_run:
        with _neutral_output():
            _publish(run_file, from_workflow_run=True, dry_run=dry_run, **flags)
    else:
        _publish(run_file, from_workflow_run=False, dry_run=dry_run, **flags)


@contextmanager
def _neutral_output() -> Iterator[None]:
    """Let the runner find no command in what is printed until the program ends: errors quote a fork's files."""
    token = secrets.token_hex(16)
    click.echo(f"::stop-commands::{token}", err=True)
    context = click.get_current_context()
    context.find_root().call_on_close(lambda: click.echo(f"::{token}::", err=True))
    try:
        yield
    except CiPerfError as error:
        error.args, error.hint = (neutral(str(error)),), neutral(error.hint)
        raise
    except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
        raise
    except Exception:
        for line in traceback.format_exc().splitlines():
            click.echo(neutral(line), err=True)
        click.echo("This is a bug in ci-perf: report it with the lines above.", err=True)
        context.exit(EXIT_BUG)


def _publish(
    run_file: Path,
    *,
    from_workflow_run: bool,
    no_artifact: bool,
    dry_run: bool,
    pull_request: int | None,
    measure_status: int | None,
    **flags: object,
) -> None:
    root = Path.cwd()
    settings = resolve_settings(root, flags)
    event = claim(actions.read_event(os.environ), pull_request)
    token = next((os.environ[name] for name in _TOKENS if os.environ.get(name)), "")
    if measure_status is not None and not (_folder(run_file) / "run.json").exists():
        publish_unmeasured(measure_status, event, settings, token, root)
        return
    read = _read_foreign if from_workflow_run else _read_own
    subject = read(run_file, event, settings, root)
    policy, key = settings["comment"], settings["comment-key"]
    target = find_target(event, policy, key, token, subject.measured, foreign=from_workflow_run)

    effects = decide(subject.report, target.event, policy, target.thread, subject.places)
    frame = Frame(
        key=key,
        status=effects.status,
        run_url=event.run_url,
        patch_command=apply_command(event, settings["artifact-name"]) if subject.patch and not no_artifact else "",
        artifact=not no_artifact,
        foreign=subject.foreign,
        cost_per_hour=settings["cost-per-hour"],
    )
    texts = _render(run_file, subject, effects, frame)
    if dry_run:
        shown = _as_json(subject, effects, texts, target)
        click.echo(neutral_json(shown) if from_workflow_run else shown)
    else:
        _apply(run_file, subject, effects, texts, target)


def _read_own(run_file: Path, _event: Event, settings: Settings, root: Path) -> Subject:
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
    measured = git.query_heads(root, plain_commit(run.provenance.commit))
    return Subject(report, patch, foreign=False, measured=measured, places=query_places(run.kernels, root, prefix))


def _read_foreign(run_file: Path, event: Event, settings: Settings, root: Path) -> Subject:
    """Read a run that is not trusted, and judge it by this repository's rules."""
    if event.origin is None:
        raise ConfigError(
            f"--from-workflow-run: the event is `{event.name or 'none'}`, not `workflow_run`",
            hint="omit the flag where the workflow itself measured",
        )
    source, text = str(run_file), read_untrusted(run_file)
    run = load_run(text, source)
    check_run(run, json.loads(text), event, source)
    kernels, baselines = root / settings["kernels-dir"], root / settings["baselines"]
    names = [spec.name for spec in run.kernels]
    specs = {spec.name: spec for spec in store.read_kernels(kernels, root, names)} if kernels.is_dir() else {}
    own = store.read_baselines(baselines, run.devices)
    policy = policy_from(settings)
    if run.against is not None:  # only this repository's own ledger counts
        crept = find_creep(baselines, run.devices, specs.values(), own, policy.regression)
        run = replace(run, against=replace(run.against, creep=crept))
    report = judge_foreign(run, policy, specs, own, source)
    measured = (plain_commit(run.provenance.commit),)
    return Subject(report, patch="", foreign=True, measured=measured, places=None)


def _render(run_file: Path, subject: Subject, effects: Effects, frame: Frame) -> Texts:
    folder = _folder(run_file)
    has_report = (folder / "report.md").is_file() and not subject.foreign
    outputs = {
        **effects.outputs,
        "report-path": str(folder / "report.md") if has_report else "",
        "run-path": str(folder / "run.json" if run_file.is_dir() else run_file),
        "comment-id": "",
        "comment-url": "",
        "baseline-patch-path": str(folder / PATCH) if subject.patch else "",
    }
    return Texts(
        comment=render_comment(subject.report, replace(frame, limit=LARGEST_COMMENT)),
        summary=render_comment(subject.report, replace(frame, limit=LARGEST_SUMMARY)),
        annotations=tuple(map(render_annotation, effects.annotations)),
        outputs=outputs,
    )


def _as_json(subject: Subject, effects: Effects, texts: Texts, target: Target) -> str:
    document = {
        "comment": {
            "action": effects.action,
            "reason": effects.reason,
            "state": effects.status.state,
            "pull_request": target.event.pull_request,
            "body": texts.comment,
        },
        "summary": texts.summary,
        "annotations": [asdict(annotation) for annotation in effects.annotations],
        "outputs": texts.outputs,
        "patch": subject.patch,
    }
    return json.dumps(document, indent=2)


def _apply(run_file: Path, subject: Subject, effects: Effects, texts: Texts, target: Target) -> None:
    """Write everything; first what needs no network, so that nothing is lost if GitHub fails."""
    if subject.patch:
        store.write_text(_folder(run_file) / PATCH, subject.patch)
    actions.append_summary(os.environ, texts.summary)
    for line in texts.annotations:
        click.echo(line)
    comment: dict[str, str] = {}
    try:
        comment = _write_comment(effects, texts.comment, target)
    except Forbidden as error:
        if not target.event.read_only:
            raise
        click.echo(render_annotation(_no_comment(target.event, error)))
    finally:
        actions.append_outputs(os.environ, {**texts.outputs, **comment})


def _write_comment(effects: Effects, body: str, target: Target) -> dict[str, str]:
    """Create or update the comment, or say why not; return the outputs that name it."""
    if target.failure:
        raise target.failure
    if effects.action is Action.LEAVE or target.conversation is None:
        click.echo(f"no comment: {neutral(effects.reason)}")
        return {}
    comment = target.conversation.write(body)
    click.echo(f"comment on #{target.event.pull_request}: {comment.url} ({effects.status.state}; {effects.reason})")
    return {"comment-id": str(comment.id), "comment-url": comment.url}


def _no_comment(event: Event, error: Forbidden) -> Annotation:
    message = f"{event.read_only}, so GitHub gave this workflow a token that cannot write. {error}"
    hint = " A workflow_run job may comment in its place: `ci-perf publish --from-workflow-run`."
    return Annotation(Level.NOTICE, "ci-perf: no comment", message + hint)


def _folder(run_file: Path) -> Path:
    return run_file if run_file.is_dir() or not run_file.exists() else run_file.parent
