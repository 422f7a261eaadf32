"""`ci-perf baseline`: accepts a run as the baseline, checks the files, shows what accepting would change."""

import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import click
from tabulate import tabulate

from ci_perf import store
from ci_perf.cli.log import in_log, tell
from ci_perf.cli.options import resolve_settings, setting_options
from ci_perf.judge.baseline import Difference, add_session, check_baseline, diff_baselines, make_baselines
from ci_perf.judge.creep import changes_of
from ci_perf.judge.noisy import doubts, doubts_of_machine, shown
from ci_perf.measure import git
from ci_perf.values.baseline import Baseline
from ci_perf.values.codec import dump_baseline
from ci_perf.values.device import is_dirty, plain_commit
from ci_perf.values.errors import EXIT_USAGE, CiPerfError, ConfigError
from ci_perf.values.merged import FILE
from ci_perf.values.metrics import BY_NAME
from ci_perf.values.quantity import amount, counted, number, percent
from ci_perf.values.run import Run

MOST_WARNINGS = 10
"""More cases are only counted."""
_RUN = click.argument("run_file", metavar="RUN", type=click.Path(path_type=Path))
_KERNELS = click.argument("kernels", metavar="[KERNEL]...", nargs=-1)


@click.group()
def baseline() -> None:
    """Accept, check and compare the files in baselines/, which hold the agreed numbers of each kernel and GPU."""


@baseline.command()
@_RUN
@_KERNELS
@setting_options("baselines")
@click.option(
    "--by", metavar="NAME", default=None, help="Name of the person who accepts it.  [default: git's user.name]"
)
@click.option("--allow-dirty", is_flag=True, help="Accept a run of uncommitted changes, or of an unknown commit.")
def accept(run_file: Path, kernels: tuple[str, ...], by: str | None, allow_dirty: bool, **flags: object) -> None:
    """Make RUN (a run.json or its folder) the baseline of its kernels, or of those named.

    A baseline holds up to eight sessions of several days: the run adds one to each case whose code and time agree with
    what the file holds, and otherwise replaces it. More sessions show smaller changes.

    Only this command writes baselines, of whole kernels. A run that failed, was cut short or was slowed down on purpose
    is refused, and so is a run of files that differed from their commit, unless --allow-dirty is given. The old and the
    new numbers are shown on stderr, with a warning where processes scatter much or other programs used the machine.
    """
    root = Path.cwd()
    folder = root / resolve_settings(root, flags)["baselines"]
    run = store.read_run(run_file)
    if not allow_dirty:
        _refuse_dirty(run, run_file)
    proposed = make_baselines(run, kernels, by or git.query_user(root), str(run_file))
    tell(_table([row for new in proposed for row in diff_baselines(_current(new, folder), new)]))
    warn(run, proposed, folder)
    for new in proposed:
        path = store.write_baseline(add_session(_current(new, folder), new, run.policy.confidence), folder)
        click.echo(f"wrote {store.relative_path(path, root)}")
    tell("Commit these files, and give the reason in the message.")


def _refuse_dirty(run: Run, run_file: Path) -> None:
    """Raise ConfigError where the measured files are not those of a commit, or git could not tell."""
    commit = run.provenance.commit or ""
    if is_dirty(commit):
        raise ConfigError(
            f"{run_file}: the run measured files that differed from commit {plain_commit(commit)}",
            hint="commit the files and measure again, or accept the run with --allow-dirty",
        )
    if not commit and (note := next((note for note in run.notes if note.code == "no-git"), None)):
        raise ConfigError(
            f"{run_file}: whether the measured files are those of a commit is not known: {note.message}",
            hint=f"{note.hint}; then measure again, or accept the run with --allow-dirty",
        )


@baseline.command()
@_RUN
@setting_options("baselines")
@click.option("--allow-empty", is_flag=True, help="Accept a run in which no case was compared: nothing is recorded.")
def record(run_file: Path, allow_empty: bool, **flags: object) -> None:
    """Add the changes of RUN, of a merged commit against its first parent, to the ledger of merged changes.

    The ledger is baselines/<device>/merged.jsonl. Small changes that add up to the threshold over several merges are
    creep, which `run --against` and `ci-perf history` report. A baseline that is accepted later ends what was before.
    """
    root = Path.cwd()
    folder = root / resolve_settings(root, flags)["baselines"]
    run = store.read_run(run_file)
    hint = "measure the merged commit: ci-perf run --against HEAD~1"
    if why := _why_not_recorded(run):
        raise ConfigError(f"{run_file}: {why}", hint=hint)
    changes = changes_of(run)
    if not changes and allow_empty:
        click.echo("nothing to record: no case was compared in a reliable session")
        return
    if not changes:
        raise ConfigError(
            f"{run_file}: no case was compared in a reliable session", hint="--allow-empty makes this no error"
        )
    if why := _why_no_merge(run, root):
        raise ConfigError(f"{run_file}: {why}", hint=hint)
    known = {(merged.device, merged.head): merged for merged in store.read_merged(folder)}
    for merged in changes:
        if before := known.get((merged.device, merged.head)):
            against = "" if before.base == merged.base else f", against {before.base[:8]}"
            click.echo(f"commit {merged.head[:8]} is recorded already for {merged.device}{against}")
            continue
        path = store.append_merged(merged, folder)
        cases = counted(len(merged.cases), "case")
        click.echo(f"recorded {cases} in {store.relative_path(path, root)}")


def _why_not_recorded(run: Run) -> str:
    commit = run.provenance.commit or ""
    if run.against is None:
        return "the run has no base that took turns with it"
    if not run.finished:
        return "the run was cut short"
    if run.planted is not None:
        return "a slowdown was planted on purpose"
    if not commit or is_dirty(commit):
        return "the run measured files that are no commit"
    if commit == run.against.commit:
        return "base and head are the same commit"
    return ""


def _why_no_merge(run: Run, root: Path) -> str:
    """Return why the base of a run is not the commit before its head; the change would be that of other merges, too."""
    commit, base = run.provenance.commit or "", run.against.commit if run.against else ""
    parents = git.parents_of(root, commit)
    if not parents:
        return f"the parent of commit {commit[:8]} is not known in this clone: fetch the commit"
    if base == parents[0]:
        return ""
    return f"the base is {base[:8]}, but the parent of commit {commit[:8]} is {parents[0][:8]}"


@baseline.command()
@setting_options("baselines", "kernels-dir")
@click.pass_context
def check(ctx: click.Context, /, **flags: object) -> None:
    """Check every baseline file: schema, canonical form, place, and that the kernels still have its cases.

    The lines of the ledgers of merges are checked, too.
    """
    root = Path.cwd()
    settings = resolve_settings(root, flags)
    folder = root / settings["baselines"]
    specs = {spec.name: spec for spec in store.read_kernels(root / settings["kernels-dir"], root)}
    files = sorted(folder.rglob("*.json"))
    ledgers = sorted(folder.rglob(FILE))
    if not files and not ledgers:
        raise ConfigError(
            f"{settings['baselines']}: holds no baseline", hint="`ci-perf baseline accept` writes baselines"
        )
    problems = 0
    for file in files:
        path = file.relative_to(folder).as_posix()
        try:
            found = store.read_baseline(file)
        except CiPerfError as error:
            click.echo(in_log(str(error)))
            problems += 1
            continue
        complaints = check_baseline(found, path, specs)
        if dump_baseline(found) != file.read_text(encoding="utf-8"):
            complaints.append("not in canonical form: `ci-perf baseline accept` writes it")
        for complaint in complaints:
            click.echo(in_log(f"{path}: {complaint}"))
        problems += len(complaints)
    complaints = [complaint for ledger in ledgers for complaint in store.check_merged(ledger, _parent_in(root))]
    for complaint in complaints:
        click.echo(in_log(complaint))
    problems += len(complaints)
    click.echo(f"{counted(len(files), 'baseline file')}, {counted(problems, 'problem')}")
    ctx.exit(EXIT_USAGE if problems else 0)


def _parent_in(root: Path) -> Callable[[str], str | None]:
    return lambda commit: next(iter(git.parents_of(root, commit)), None)


@baseline.command()
@_RUN
@_KERNELS
@setting_options("baselines")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def diff(run_file: Path, kernels: tuple[str, ...], as_json: bool, **flags: object) -> None:
    """Show what `accept` would change in the baselines; write nothing."""
    root = Path.cwd()
    folder = root / resolve_settings(root, flags)["baselines"]
    run = store.read_run(run_file)
    proposed = make_baselines(run, kernels, None, str(run_file))
    rows = [row for new in proposed for row in diff_baselines(_current(new, folder), new)]
    if as_json:
        keys = ("kernel", "case", "device", "what", "old", "new")
        click.echo(json.dumps([{key: getattr(row, key) for key in keys} for row in rows], indent=2))
        return
    click.echo(in_log(_table(rows)))
    tell(counted(len(rows), "difference"))
    warn(run, proposed, folder)


def warn(run: Run, proposed: Sequence[Baseline], folder: Path, *, said: Collection[str] = ()) -> None:
    """Print on stderr why a run may be a poor baseline; `said` are codes of notes that were printed before."""
    cases = [sentence for new in proposed for sentence in doubts(run, new, _current(new, folder))]
    for sentence in (*doubts_of_machine(run, said=said), *shown(cases, MOST_WARNINGS)):
        tell(f"warning: {sentence}")
    if cases:
        tell("hint: measure again where nothing else runs, and accept that run instead")


def _current(new: Baseline, folder: Path) -> Baseline | None:
    found = store.read_baselines(folder, (new.device,), (new.kernel,))
    return found[0] if found else None


def _table(rows: list[Difference]) -> str:
    headers = ("case", "device", "what", "old", "new", "change")
    return tabulate([_line(row) for row in rows], headers=headers, tablefmt="simple", disable_numparse=True)


def _line(row: Difference) -> tuple[str, ...]:
    is_counter = row.what in BY_NAME
    old, new = ("-" if v is None else number(v) if is_counter else amount(v, row.unit) for v in (row.old, row.new))
    change = percent(row.new / row.old - 1, sign=True) if row.old and row.new is not None else "-"
    return f"{row.kernel}/{row.case}", row.device, row.what, old, new, change
