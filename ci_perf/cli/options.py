"""Adds the flags of the settings to commands, and resolves flags, environment and file."""

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import click

from ci_perf import store
from ci_perf.values.errors import ConfigError, did_you_mean
from ci_perf.values.settings import BY_NAME, SETTINGS, Setting, Settings, resolve, variable

Command = Callable[..., Any]
OTHER_VARIABLES = {
    "CI_PERF_NSYS",
    "CI_PERF_NCU",
    "CI_PERF_COMPUTE_SANITIZER",
    "CI_PERF_CACHE",
    "CI_PERF_CORPUS",
    "CI_PERF_GITHUB_TOKEN",
    "CI_PERF_PULL_REQUEST",
    "CI_PERF_TRACKING_ID",
}
"""Variables that are not settings: paths of tools, cache and test data; the token, which has no flag or key; the pull
request, which belongs to one event; and the id by which processes are found, where a ci-perf starts another."""


def setting_options(*names: str, hidden: Collection[str] = ()) -> Callable[[Command], Command]:
    """Add the flags of these settings to a command, or those of `run` without names; `hidden` ones are in no help."""

    def decorate(command: Command) -> Command:
        for setting in reversed([s for s in SETTINGS if s.name in names or (not names and s.command == "run")]):
            command = _option(setting, hidden=setting.name in hidden)(command)
        return command

    return decorate


def _option(setting: Setting, *, hidden: bool) -> Callable[[Command], Command]:
    if isinstance(setting.default, bool):
        text = f"{setting.help}  [default: {setting.name}]" if setting.default else setting.help
        return click.option(f"--{setting.name}/--no-{setting.name}", default=None, hidden=hidden, help=text)
    default = _shown(setting.default)
    text = f"{setting.help}  [default: {default}]" if default else setting.help
    return click.option(f"--{setting.name}", metavar=setting.metavar, default=None, hidden=hidden, help=text)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float) and value < 1:
        return f"{value:.0%}"
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def resolve_settings(root: Path, flags: dict[str, object]) -> Settings:
    """Resolve flags (as click names them), environment and file into settings."""
    given = {name.replace("_", "-"): value for name, value in flags.items() if value is not None}
    _refuse_unknown_variables()
    environ = {name: os.environ[variable(name)] for name in BY_NAME if os.environ.get(variable(name))}
    config = given.get("config") or environ.get("config")
    file, table = store.read_settings_file(root, str(config) if config else None)
    return resolve([("flag", given), ("environment", environ), (file, table)])


def _refuse_unknown_variables() -> None:
    """Refuse a CI_PERF_ variable that is not a setting, as an unknown key of a file is."""
    known = {variable(name) for name in BY_NAME} | OTHER_VARIABLES
    for name in os.environ:
        if name.startswith("CI_PERF_") and name not in known:
            hint = did_you_mean(name, known, most=1)
            raise ConfigError(f"environment {name}: there is no such setting", hint=hint)


def complete_case(ctx: click.Context, param: click.Parameter, incomplete: str) -> Sequence[str]:
    """Complete `kernel` and `kernel/case` from the kernels of the current folder."""
    del ctx, param
    root = Path.cwd()
    try:
        specs = store.read_kernels(root / resolve_settings(root, {})["kernels-dir"], root)
    except Exception:
        return []
    names = [spec.name for spec in specs] + [f"{spec.name}/{case}" for spec in specs for case in spec.cases]
    return [name for name in names if name.startswith(incomplete)]
