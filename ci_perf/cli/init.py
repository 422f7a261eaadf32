"""`ci-perf init`: the files of a first kernel, a workflow, and a first baseline."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from ci_perf import store
from ci_perf.cli.baseline import warn
from ci_perf.cli.log import tell
from ci_perf.cli.options import resolve_settings, setting_options
from ci_perf.cli.output import show
from ci_perf.cli.run import measure_run
from ci_perf.init.candidates import DESCRIPTIONS, Candidate
from ci_perf.init.drafting import SETTINGS_FILE, Drafted, Drafter
from ci_perf.init.files import Files, read_files
from ci_perf.init.unfinished import find_unfinished
from ci_perf.judge.baseline import make_baselines
from ci_perf.judge.report import Report
from ci_perf.measure import git
from ci_perf.measure.session import Session
from ci_perf.values.errors import EXIT_OK, CiPerfError, ConfigError
from ci_perf.values.quantity import amount
from ci_perf.values.reasons import Reason

MOST_SHOWN = 9
"""Candidates in the question."""


@click.command()
@click.argument("place", metavar="[FILE[:NAME]]", required=False)
@click.option("--yes", is_flag=True, help="Ask nothing: take the first of what was found.")
@click.option("--print", "only_print", is_flag=True, help="Print the files; write and measure nothing.")
@click.option("--baseline/--no-baseline", "measures", default=True, help="Whether to measure a first baseline.")
@setting_options("kernels-dir", "baselines", "output", "device", "python", "setup")
@click.pass_context
def init(
    ctx: click.Context, /, place: str | None, yes: bool, only_print: bool, measures: bool, **flags: object
) -> None:
    """Set ci-perf up in this repository: a first kernel, a workflow for GitHub, and a first baseline.

    The repository is searched for wrappers of Triton kernels, CUDA kernels that are declared extern "C", programs with
    nvbench or google-benchmark (executables, or targets of CMake), and functions of torch. FILE or FILE:NAME says which
    one is meant; otherwise a question lists them, if there are several and --yes is not given. Inputs and reference are
    guessed and tried. What cannot be guessed is marked with TODO, and `ci-perf run` refuses to run until it is written.

    No file is overwritten, nothing is committed, and nothing leaves this machine.
    """
    root = Path.cwd()
    settings = resolve_settings(root, flags)
    files = read_files(root, settings["kernels-dir"])
    candidate = _chosen(files, place, ask=not yes and sys.stdin.isatty())
    drafter = Drafter(root, settings, files, candidate, tell)
    tell(f"found {candidate}")
    if (root / drafter.folder).exists():
        hint = "choose another function or program with `ci-perf init FILE:NAME`, or remove the folder"
        raise ConfigError(f"{drafter.folder} exists, and init overwrites nothing", hint=hint)
    drafted = drafter.draft()
    if only_print:
        for path, text in drafted.texts.items():
            click.echo(f"--- {path} ---\n{text}")
        return
    written = _write(root, drafted.texts)
    status = EXIT_OK
    if measures and not drafted.open_work:
        more, status = _first_baseline(root, candidate.kernel_name, {**flags, "setup": drafted.setup or flags["setup"]})
        written += more
    click.echo(_next_steps(root, drafter, drafted, written) if status == EXIT_OK else _after_failure(candidate))
    ctx.exit(status)


def _chosen(files: Files, place: str | None, *, ask: bool) -> Candidate:
    """Return what the user names, else what they choose from a list, else the first of what was found."""
    found = files.candidates
    if place:
        path, _, name = place.removeprefix("./").partition(":")
        found = tuple(one for one in found if one.path == path and name in ("", one.name))
    if not found:
        kinds = ", ".join(DESCRIPTIONS.values())
        raise ConfigError(
            f"{place or 'this folder'}: nothing was found that init can set up ({kinds})",
            hint='a CUDA kernel must be declared extern "C"; a function at the top of its file must take tensors and '
            "return one. For all else, write kernel.toml by hand: .github/docs/writing-kernels.md of ci-perf",
        )
    if len(found) == 1 or not ask:
        return found[0]
    for number, one in enumerate(found[:MOST_SHOWN], 1):
        tell(f"  {number}  {one}")
    if len(found) > MOST_SHOWN:
        tell(f"  {len(found) - MOST_SHOWN} more can be named: ci-perf init FILE:NAME")
    numbers = click.IntRange(1, min(len(found), MOST_SHOWN))
    chosen: int = click.prompt("Which one is measured first?", default=1, type=numbers, err=True)
    return found[chosen - 1]


def _write(root: Path, texts: Mapping[str, str]) -> list[str]:
    """Write the files that do not exist; return their paths."""
    written = []
    for path, text in texts.items():
        if (root / path).exists():
            tell(f"kept {path}, which exists" + _missing_line(path, text))
            continue
        store.write_text(root / path, text)
        tell(f"wrote {path}")
        written.append(path)
    return written


def _missing_line(path: str, text: str) -> str:
    return f"; it needs these lines:\n\n{text}" if path == SETTINGS_FILE else ""


def _first_baseline(root: Path, name: str, flags: Mapping[str, object]) -> tuple[list[str], int]:
    """Measure the new kernel, without profilers, and write its baseline; return its files and the exit status."""
    tell("measuring the first baseline")
    settings = resolve_settings(root, {**flags, "profile": "none"})
    specs = store.read_kernels(root / settings["kernels-dir"], root, (name,))
    report, session = measure_run(root, specs, (name,), settings, _show)
    if report.exit_status != EXIT_OK:
        _show(report, session=session)
        return [], report.exit_status
    return _accepted(root, root / settings["baselines"], settings["output"]), EXIT_OK


def _show(report: Report, *, session: Session) -> None:
    show(report, session.folder)


def _accepted(root: Path, folder: Path, output: str) -> list[str]:
    """Write the baseline of a run and return its file; a run in which a reference ran has no time of the kernel."""
    run = store.read_run(root / output)
    if not any(device.kind in spec.devices for device in run.devices for spec in run.kernels):
        tell("no baseline was written: the kernel runs on a GPU only, and none was found here")
        tell(f"hint: on a machine with a GPU: ci-perf run && ci-perf baseline accept {output}")
        return []
    try:
        made = make_baselines(run, (), git.query_user(root), output)
    except CiPerfError as error:
        tell(f"no baseline was written: {error}")
        return []
    warn(run, made, folder, said=(Reason.CPU_BUSY,))  # the run has printed it
    written = []
    for baseline in made:
        path = store.write_baseline(baseline, folder)
        written.append(store.relative_path(path, root))
        for case, agreed in baseline.cases.items():
            click.echo(
                f"{baseline.kernel}/{case}: {amount(agreed.time.median, agreed.time.unit)} on {baseline.device.name}"
            )
        tell(f"wrote {written[-1]}")
    return written


def _next_steps(root: Path, drafter: Drafter, drafted: Drafted, written: list[str]) -> str:
    name = drafter.candidate.kernel_name
    if drafted.open_work:
        entry = root / drafter.folder / "kernel.py"
        found = find_unfinished(entry.read_text(encoding="utf-8"))
        line = f", line {found[0]}" if found else ""
        return f"\nNext, write {drafted.open_work}{line}. Then measure it:\n\n  ci-perf run {name}"
    added = shlex.join([*_untracked_sources(root, drafter.candidate), *written])
    begin = "" if git.ask(root, "rev-parse", "--git-dir") else "git init && "
    commit = f"{begin}git add {added} && git commit -m {shlex.quote(f'Measure {name} with ci-perf')}"
    return (
        f"\nNext, commit what was written:\n\n  {commit}\n\n"
        f"Then change {drafter.candidate.name}, and compare it with the last commit, in turns:\n\n"
        f"  ci-perf run {name} --against HEAD"
    )


def _untracked_sources(root: Path, candidate: Candidate) -> list[str]:
    """Return what must be committed for a base to have the source, by the files and folders at the top of the tree."""
    top = [candidate.path.partition("/")[0]]
    if candidate.path.endswith("CMakeLists.txt") and (root / "CMakeLists.txt").is_file():
        top.append("CMakeLists.txt")
    return [path for path in dict.fromkeys(top) if not git.ask(root, "ls-files", "--", path)]


def _after_failure(candidate: Candidate) -> str:
    return f"\nNext, correct the kernel, and measure it again:\n\n  ci-perf run {candidate.kernel_name}"
