"""`ci-perf audit`: how often the verdicts are wrong, measured on changes of known size."""

import shlex
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from ci_perf import store
from ci_perf.audit.file import append_session, read_sessions
from ci_perf.audit.measure import measure_session, verify_once
from ci_perf.audit.rates import AuditReport, build_audit
from ci_perf.audit.render import render_audit_json, render_audit_markdown, render_audit_terminal
from ci_perf.cli.against import prepared_base, refuse_several_devices
from ci_perf.cli.empty_run import empty_run
from ci_perf.cli.log import tell
from ci_perf.cli.options import resolve_settings, setting_options
from ci_perf.cli.output import Bars, draw, no_workflow_commands
from ci_perf.measure import git
from ci_perf.measure.session import PrepareBase, open_session
from ci_perf.values.device import is_dirty
from ci_perf.values.errors import ConfigError, MachineError
from ci_perf.values.escape import clean
from ci_perf.values.job import select_jobs
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.kernel_toml import parse_fraction
from ci_perf.values.run import Policy
from ci_perf.values.settings import Settings

FORMATS: dict[str, Callable[[AuditReport], str]] = {"markdown": render_audit_markdown, "json": render_audit_json}

LADDER = "0,1%,2%,3%,3.5%,5%,10%"
"""Planted slowdowns on both sides of the default threshold; 0 is A/A."""
METHODS: dict[str, dict[str, Any]] = {
    "warm": {"l2": "warm", "time": "gpu"},
    "cold": {"l2": "cold", "time": "gpu"},
    "wall": {"l2": "warm", "time": "wall"},
}
"""The keys of kernel.toml that choose how a case is timed."""
SMALLEST_STEP = 0.01
"""One more launch for 100 launches."""


@click.command("audit")
@click.argument("names", metavar="[KERNEL[/CASE]|FILE]...", nargs=-1)
@click.option("--show", "shown", is_flag=True, help="Print the tables of the audit files FILE...; measure nothing.")
@click.option("--file", "file", type=click.Path(path_type=Path), help="Audit file to which each session is appended.")
@click.option("--ladder", default=LADDER, metavar="LIST", help=f"Slowdowns to plant.  [default: {LADDER}]")
@click.option(
    "--sessions", type=click.IntRange(min=1), default=1, help="Number of sessions for each slowdown.  [default: 1]"
)
@click.option(
    "--threshold",
    default=f"{Policy().regression:.0%}",
    metavar="PERCENT",
    help=f"Slowdown from which a case is a regression.  [default: {Policy().regression:.0%}]",
)
@click.option("--minutes", type=click.FloatRange(min=0), help="Start no session after this number of minutes.")
@click.option(
    "--method",
    type=click.Choice(sorted(METHODS)),
    help="How to time all cases; default: as each kernel.toml says.",
)
@setting_options("kernels-dir", "output", "device", "python", "setup", "pass-env", "withhold-env", "timeout", "wait")
@click.option("--markdown", "form", flag_value="markdown", help="Print Markdown.")
@click.option("--json", "form", flag_value="json", help="Print JSON for programs.")
def audit(
    names: tuple[str, ...],
    shown: bool,
    file: Path | None,
    ladder: str,
    sessions: int,
    threshold: str,
    minutes: float | None,
    method: str | None,
    form: str | None,
    **flags: object,
) -> None:
    """Measure how often the verdicts of `run --against` are wrong: on unchanged code, and on slowdowns of known size.

    Measures sessions of the cases on this machine, each as `run --against` would: the tree against its own commit,
    which is checked out and built. Appends them to an audit file, and prints the figures of that file. The exit status
    is 0 whatever the figures are. A tree that differs from its commit, or has none, runs on both sides.

    All cases have the same threshold, also those whose kernel.toml sets one. A session that was measured for a higher
    threshold may end before the rule decides at a lower one; such records are counted.
    """
    policy = replace(Policy(), regression=parse_fraction(threshold, "--threshold"))
    if shown:
        if not names:
            raise ConfigError("--show needs at least one audit file", hint="ci-perf audit --show FILE...")
        show((Path(name) for name in names), form, policy)
        return
    if file is None:
        raise ConfigError("an audit needs a file for its sessions", hint="ci-perf audit --file audit.jsonl")
    steps = [parse_step(step.strip()) for step in ladder.split(",")]
    if file.exists():
        read_sessions([file])  # nothing is appended to a file that cannot be read
    measure(names, file, steps * sessions, minutes, policy, method, flags)
    if file.exists():
        show([file], form, policy)


def parse_step(text: str) -> float:
    """Read a planted slowdown: `3.5%`, or 0 for none."""
    if text in {"0", "0%"}:
        return 0.0
    step = parse_fraction(text, "--ladder")
    if step < SMALLEST_STEP:
        raise ConfigError(f"--ladder: {text} cannot be planted by whole launches", hint="write 0, or 1% and more")
    return step


def measure(
    patterns: tuple[str, ...],
    file: Path,
    steps: Sequence[float],
    minutes: float | None,
    policy: Policy,
    method: str | None,
    flags: dict[str, object],
) -> None:
    """Measure a session for each step by the policy, and append each to the file when it ends."""
    root = Path.cwd()
    settings = resolve_settings(root, {**flags, "profile": "none"})
    found = store.read_kernels(root / settings["kernels-dir"], root, patterns)
    timed = METHODS[method] if method else {}
    specs = tuple(replace(spec, regression=None, speedup=None, **timed) for spec in found if spec.program is None)
    planned = select_jobs(specs, patterns, ["cuda"])
    refuse_several_devices(settings, "an audit takes turns")
    prepare_base = _checkout(root, specs, settings, file)
    with open_session(settings, root, tell, planned) as session:
        session.begin()
        for note in session.notes:
            tell(f"warning: {note.message}")
        jobs = select_jobs(specs, patterns, session.kinds)
        empty = empty_run(patterns, jobs, settings, session, root)
        provenance = replace(empty.provenance, command=_command())
        empty = replace(empty, policy=policy, baselines=(), provenance=provenance)
        verified = verify_once(session, jobs)
        started = time.monotonic()
        for number, step in enumerate(steps, 1):
            if minutes is not None and time.monotonic() - started >= minutes * 60:
                tell(f"{minutes:g} minutes are over: {number - 1} of {len(steps)} sessions were measured")
                break
            with Bars() as bars:
                measured = measure_session(session, jobs, empty, verified, step, bars, prepare_base)
            for note in session.memory_errors():
                raise MachineError(f"{note.message}: the session is not kept", hint=note.hint)
            append_session(file, measured)
            tell(f"session {number} of {len(steps)}: {step:.3g} planted, {measured.seconds:.0f} s")


def _checkout(root: Path, specs: tuple[KernelSpec, ...], settings: Settings, file: Path) -> PrepareBase | None:
    """Return what checks out and builds the commit of the tree; None, after a warning, if the tree differs from it."""
    commit = git.query_commit(root, besides=file)
    if commit is None or is_dirty(commit):
        why = "differs from its commit" if commit else "has no commit"
        tell(f"warning: this tree {why}: both sides run it, and nothing is checked out as for `run --against`")
        return None
    return partial(prepared_base, root, commit, specs, settings.replaced({"against": "HEAD"}))


def _command() -> str:
    return shlex.join(["ci-perf", *sys.argv[1:]])


def show(paths: Iterable[Path], form: str | None, policy: Policy) -> None:
    """Print the figures of the sessions of some files, judged by the policy."""
    sessions, warnings = read_sessions(paths)
    for warning in warnings:
        tell(f"warning: {clean(warning, 600)}")
    report = build_audit(sessions, policy)
    with nullcontext() if form == "json" else no_workflow_commands():
        if form is None:
            draw(render_audit_terminal(report))
        else:
            click.echo(FORMATS[form](report), nl=False)
