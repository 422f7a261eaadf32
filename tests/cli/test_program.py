"""The program itself: its list of commands, and what it imports before a command is chosen."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from ci_perf.cli.program import COMMANDS, program

IMPORTED = {
    "ci_perf",
    "ci_perf.cli",
    "ci_perf.cli.log",
    "ci_perf.cli.program",
    "ci_perf.guard",
    "ci_perf.guard.own_environment",
    "ci_perf.guard.secrets",
    "ci_perf.guard.spellings",
    "ci_perf.measure",
    "ci_perf.measure.process_tracking",
    "ci_perf.values",
    "ci_perf.values.errors",
    "ci_perf.values.escape",
}
"""The modules of ci-perf that every command imports."""
HEAVY = {
    *("asyncio", "cattrs", "github", "importlib.metadata", "jsonschema", "jwt", "markdown_it", "msgspec", "ncu_report"),
    *("numpy", "pynvml", "referencing", "requests", "rich", "tabulate", "torch", "urllib3"),
}
"""Each takes 10 ms or more to import."""
SHOW_MODULES = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from ci_perf.cli import main
main()
"""


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_the_version_and_the_help_import_no_command_and_no_large_package(argument):
    ran = subprocess.run([sys.executable, "-c", SHOW_MODULES, argument], capture_output=True, text=True, check=True)
    modules = set(ran.stderr.split())

    assert {name for name in modules if name.partition(".")[0] == "ci_perf"} <= IMPORTED
    assert not modules & HEAVY


@pytest.mark.parametrize("name", COMMANDS)
def test_each_line_of_the_list_of_commands_is_a_command_of_that_name(name):
    listed = program.commands[name]

    assert isinstance(listed.load(), click.Command)
    assert listed.load().name == name
    assert f"\n  {name:<8}  {listed.short_help}\n" in CliRunner().invoke(program, ["--help"]).output


def test_the_help_of_a_command_is_its_own():
    shown = CliRunner().invoke(program, ["baseline", "accept", "--help"], prog_name="ci-perf")

    assert shown.output.startswith("Usage: ci-perf baseline accept ")


@pytest.mark.parametrize("name", COMMANDS)
def test_no_help_has_backticks(name):
    shown = CliRunner().invoke(program, [name, "--help"], terminal_width=200).output

    assert "`" not in shown
    if name == "run":
        assert "KERNEL and CASE can contain wildcards: \"ci-perf run 'sdpa/s*'\"." in shown


@pytest.mark.parametrize(
    ("words", "completed"),
    [("ci-perf re", "plain,replay\nplain,report\n"), ("ci-perf baseline a", "plain,accept\n")],
)
def test_a_shell_completes_commands_and_those_of_a_group(words, completed):
    environ = {"_CI_PERF_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}

    assert CliRunner().invoke(program, [], prog_name="ci-perf", env=environ).output == completed


COMMAND = "::set-output name=verdict::UNCHANGED"
HOSTILE = {
    "a folder of a kernel": (["run"], f"kernels/k\n{COMMAND}/kernel.toml", ""),
    "a parameter": (["list"], "kernels/k/kernel.toml", f'command = ["true"]\n[cases.c]\nn = "1\\n{COMMAND}"\n'),
    "a setting": (["list"], "ci-perf.toml", f'"k\\n{COMMAND}" = 1\n'),
    "the artifact of another job": (["publish", "run.json"], "run.json", '{"schema": "##[set-output name=verdict]x"}'),
}


@pytest.mark.parametrize("place", HOSTILE)
def test_no_text_of_a_repository_or_an_artifact_is_a_command_in_the_log_of_a_job(place, tmp_path, monkeypatch):
    words, name, text = HOSTILE[place]
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    monkeypatch.chdir(tmp_path)

    shown = CliRunner().invoke(program, words, env={"GITHUB_ACTIONS": "true"}).output

    assert "set-output" in shown
    assert [line for line in shown.splitlines() if line.lstrip().startswith("::") or "##[" in line] == []
