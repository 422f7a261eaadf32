"""The setup command: builds what the kernels import, in the tree of the head and in that of the base."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ci_perf import store
from ci_perf.measure import proc, tools
from ci_perf.values.errors import ConfigError, MachineError
from ci_perf.values.measurement import Failure
from ci_perf.values.reasons import NO_BASE_CODES, Reason
from ci_perf.values.settings import Settings

TIMEOUT_S = 3600.0
_INSTALLS = re.compile(r"\binstall\b.*\s(-e|--editable|\.\S*|/\S+)(\s|\[|$)|\bsetup\.py\s+(develop|install)\b")
"""A command that installs a tree: editable, or by its path."""
_ELSEWHERE = re.compile(r"\s(-t|--target|--prefix|--root)\b")
_OF_ONE_RUN = re.compile(
    r"GITHUB_(?!(?:ACTIONS|WORKSPACE|REPOSITORY|SERVER_URL|API_URL)$)\w*|RUNNER_TRACKING_ID|CI_PERF_(?!CACHE$)\w*"
    r"|_|PWD|OLDPWD|SHLVL|TERM\w*|COLORTERM|COLUMNS|LINES|DISPLAY|WINDOWID|STY|TMUX\w*|SSH_\w+|VSCODE_\w+|DBUS_\w+"
    r"|XDG_SESSION_\w+|INVOCATION_ID|JOURNAL_STREAM|SYSTEMD_EXEC_PID"
)
"""Variables that name one run, job or terminal: with them in its key, no tree could serve a second run."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The command, what it can read from the environment, and what becomes of the base that it built."""

    command: str = ""
    env: Mapping[str, str] | None = None
    """All of its environment, so that a kept base is built again where any variable that it could read changed."""
    keeps_base: bool = False
    """Whether the tree of the base, as it was built, serves later runs."""

    def check(self, *, shared: bool) -> None:
        """Raise ConfigError for a text that is no command.

        Where both sides run under one interpreter, it must not install one tree for both.
        """
        try:
            shlex.split(self.command)
        except ValueError as error:
            hint = "quote as for a shell; there is none unless the command starts one: sh -c '...'"
            raise ConfigError(f"--setup `{self.command}`: {error}", hint=hint) from None
        if shared and _INSTALLS.search(self.command) and not _ELSEWHERE.search(self.command):
            raise ConfigError(
                f"--setup `{self.command}`: an install into the interpreter of both sides serves one tree only",
                hint="give the base its own environment with --base-python, or put the tree on PYTHONPATH instead",
            )

    def run(
        self, folder: Path, log: Path, *, env: Mapping[str, str] | None = None, heading: str = "", of_base: bool = False
    ) -> None:
        """Run the command in a tree, and keep its output, below a heading; MachineError where it fails."""
        if not self.command:
            return
        command = self.command
        own = {**(env or self.env or {}), "PWD": str(folder)}  # makefiles read it
        tree = f"the tree of the base, {folder}" if of_base else folder
        completed = proc.run(shlex.split(command), timeout_s=TIMEOUT_S, env=own, cwd=folder)
        store.write_text(log, heading + completed.output)
        if completed.timed_out:
            raise MachineError(f"setup `{command}` took longer than {TIMEOUT_S:g} s in {tree}", hint=f"see {log}")
        if completed.status != 0:
            raise MachineError(f"setup `{command}` {completed.end} in {tree}{completed.said}", hint=f"see {log}")


_MISSING = re.compile(r"^(ModuleNotFoundError|ImportError|FileNotFoundError)\b|cannot open shared object file")


def why_no_base(failure: Failure, *, is_built: bool) -> str:
    """Return why a case has no base to compare with; the text begins with the reason code where it has one of its own.

    `is_built` says whether a setup command ran in the base's tree.
    """
    code = failure.code
    if not is_built and (code == Reason.NOT_STARTED or _MISSING.search(failure.message)):
        code = Reason.NOT_BUILT
    return f"{code}: {failure.message}" if code in NO_BASE_CODES else failure.message


def setup_of(settings: Settings, environ: Mapping[str, str]) -> Setup:
    """Return the setup command of the settings, in an environment of the job.

    Without `--keep-base` a workflow keeps no base: the code of one pull request could write into the tree that serves
    the next one.
    """
    env = tools.kernels_env(settings, environ)
    asked = settings["setup-env"]
    env = {n: v for n, v in env.items() if not _OF_ONE_RUN.fullmatch(n) or any(fnmatchcase(n, p) for p in asked)}
    in_workflow = bool(environ.get("GITHUB_ACTIONS") or environ.get("CI"))
    keeps = {"always": True, "never": False}.get(settings["keep-base"], not in_workflow)
    return Setup(settings["setup"].strip(), env, keeps)
