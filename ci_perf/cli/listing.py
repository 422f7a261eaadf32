"""`ci-perf list`: list kernels and cases without importing them."""

import json
from pathlib import Path

import click
from tabulate import tabulate

from ci_perf import store
from ci_perf.cli.log import in_log
from ci_perf.cli.options import complete_case, resolve_settings, setting_options
from ci_perf.values.escape import clean
from ci_perf.values.job import Job, select_jobs


@click.command("list")
@click.argument("patterns", metavar="[KERNEL[/CASE]]...", nargs=-1, shell_complete=complete_case)
@setting_options("kernels-dir")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def list_cases(patterns: tuple[str, ...], as_json: bool, **flags: object) -> None:
    """List the kernels and their cases; nothing is imported or run."""
    root = Path.cwd()
    settings = resolve_settings(root, flags)
    jobs = select_jobs(store.read_kernels(root / settings["kernels-dir"], root, patterns), patterns, ["cuda"])
    if as_json:
        rows = [
            {
                "kernel": job.spec.name,
                "case": job.case,
                "params": dict(job.params),
                "launch_on": list(job.spec.devices),
                "default_on_cpu": job.spec.cpu_cases is None or job.case in job.spec.cpu_cases,
            }
            for job in jobs
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    lines = [(job.id, _parameters(job), ", ".join(job.spec.devices)) for job in jobs]
    click.echo(in_log(tabulate(lines, headers=("case", "parameters", "launch runs on"), tablefmt="simple")))


def _parameters(job: Job) -> str:
    return " ".join(clean(f"{name}={value}") for name, value in job.params.items())
