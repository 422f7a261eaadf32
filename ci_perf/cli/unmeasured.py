"""Publishes that a job could not measure: summary, annotation, outputs, and a comment that no longer says "fine"."""

import os
from collections.abc import Mapping
from pathlib import Path

import click

from ci_perf import store
from ci_perf.github import actions
from ci_perf.github.event import Event
from ci_perf.github.publish import Annotation, Level, Place, within_limits
from ci_perf.github.target import find_target
from ci_perf.github.workflow_commands import render_annotation
from ci_perf.measure import git
from ci_perf.values.comment import CommentStatus, State, marker
from ci_perf.values.device import plain_commit
from ci_perf.values.errors import ConfigError
from ci_perf.values.settings import Settings

NOT_MEASURED = "NOT_MEASURED"
"""The output `verdict` of a job that left no run."""
_TITLE = "ci-perf: nothing was measured"
_WHY = {
    2: "a setting or a file is wrong",
    3: "the machine could not measure",
    130: "the job was stopped",
}


def publish_unmeasured(status: int, event: Event, settings: Settings, token: str, root: Path) -> None:
    """Say that nothing was measured; `status` is the exit status of the step that should have measured.

    A comment that exists says so and keeps its open cases; where nothing was ever flagged, it stays clean for the next
    run. None is created. MachineError if GitHub fails, after everything else is written.
    """
    why = _WHY.get(status, f"ci-perf ended with status {status}")
    sentence = f"Nothing was measured: {why}. See the log of the step that measured."
    outputs = {"verdict": NOT_MEASURED, **dict.fromkeys(("regressions", "speedups", "inconclusive", "failed"), "0")}
    outputs |= dict.fromkeys(("report-path", "run-path", "comment-id", "comment-url", "baseline-patch-path"), "")
    text = f"### ci-perf: nothing was measured\n\n{sentence}\n"
    actions.append_summary(os.environ, text)
    for annotation in within_limits(_annotations(sentence, event, settings, root)):
        click.echo(render_annotation(annotation))
    try:
        outputs |= _write_comment(text, event, settings, token, root)
    finally:
        actions.append_outputs(os.environ, outputs)


def _annotations(sentence: str, event: Event, settings: Settings, root: Path) -> list[Annotation]:
    """Return an annotation at each kernel.toml that is wrong, else at that of each kernel, which was not measured.

    Without a checkout of the measured commit there is one that names no file.
    """
    folder, prefix = root / settings["kernels-dir"], git.query_prefix(root)
    files = sorted(folder.glob("*/kernel.toml")) if event.name != "workflow_run" else []
    wrong: dict[Path, str] = {}
    for file in files:
        try:
            store.read_kernel(file, root)
        except ConfigError as error:
            wrong[file] = f"Nothing was measured: {error}"
    return [
        Annotation(
            Level.ERROR, _TITLE, wrong.get(file, sentence), Place(f"{prefix}{store.relative_path(file, root)}", 1)
        )
        for file in wrong or files
    ] or [Annotation(Level.ERROR, _TITLE, sentence)]


def _write_comment(text: str, event: Event, settings: Settings, token: str, root: Path) -> Mapping[str, str]:
    commit = plain_commit(git.query_commit(root))
    key = settings["comment-key"]
    target = find_target(
        event, settings["comment"], key, token, git.query_heads(root, commit), foreign=event.name == "workflow_run"
    )
    if target.failure and not target.event.read_only:
        raise target.failure
    before, head = target.thread.before, target.thread.head_sha
    if target.conversation is None or before is None or head != target.event.head_sha or target.event.read_only:
        click.echo("no comment: there is none to update at this commit")
        return {}
    status = before if before.state is State.CLEAN else CommentStatus(State.PENDING, before.open)
    link = f"\n[workflow run]({event.run_url})\n" if event.run_url else ""
    comment = target.conversation.write(f"{marker(key, status)}\n{text}{link}")
    click.echo(f"comment on #{target.event.pull_request}: {comment.url} ({status.state})")
    return {"comment-id": str(comment.id), "comment-url": comment.url}
