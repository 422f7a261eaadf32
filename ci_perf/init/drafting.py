"""The files for a candidate: drafts and tries them."""

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ci_perf import store
from ci_perf.init.candidates import Candidate, Draft
from ci_perf.init.cuda_draft import draft_cuda
from ci_perf.init.files import Files
from ci_perf.init.program_draft import build_command, draft_program, program_path
from ci_perf.init.programs import listed, listing_flag
from ci_perf.init.python_draft import Source, attempts, unfinished, with_late_import
from ci_perf.init.try_out import Trial
from ci_perf.init.workflow import PATH, workflow
from ci_perf.measure import git, proc, tools
from ci_perf.measure.setup import Setup
from ci_perf.measure.worker_process import Worker
from ci_perf.values.errors import ConfigError, MachineError
from ci_perf.values.measurement import Failure
from ci_perf.values.settings import Settings

SETTINGS_FILE = "ci-perf.toml"
_START_TIMEOUT_S = 120.0
_LIST_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Drafted:
    """All files for a candidate, before they are written."""

    texts: Mapping[str, str]
    """By their paths relative to the root of the repository."""
    open_work: str = ""
    """What a person has to write before the kernel can be measured."""
    setup: str = ""
    """The command that builds it."""


@dataclass(frozen=True, slots=True)
class Drafter:
    """Drafts the files of one kernel of a repository."""

    root: Path
    settings: Settings
    files: Files
    candidate: Candidate
    say: Callable[[str], object]
    """Gets messages on what is done."""

    @property
    def folder(self) -> str:
        """The kernel's folder, relative to the root."""
        return f"{self.settings['kernels-dir'].rstrip('/')}/{self.candidate.kernel_name}"

    def draft(self) -> Drafted:
        """Draft all files; MachineError if the interpreter or the program that is needed does not work."""
        setup, kind = "", self.candidate.kind
        if kind == "cuda":
            draft = draft_cuda(self.candidate, self._text, self.folder)
        elif kind in ("torch", "triton"):
            draft = self._function()
        else:
            setup = build_command(self.candidate, top=(self.root / "CMakeLists.txt").is_file())
            draft = self._program(setup)
        texts = {f"{self.folder}/{name}": text for name, text in draft.files.items()}
        if setup and store.read_settings_file(self.root)[0] == "pyproject.toml":
            self.say(f"add to [tool.ci-perf] of pyproject.toml: setup = '''{setup}'''")
        elif setup:
            about = "# Builds what is measured; with --against in the trees of both commits.\n"
            texts[SETTINGS_FILE] = f"{about}setup = '''\n{setup}\n'''\n"
        branch = (git.ask(self.root, "symbolic-ref", "--short", "HEAD") or "main").strip()
        return Drafted({**texts, PATH: workflow(branch)}, draft.open_work, setup)

    @property
    def _text(self) -> str:
        return self.files.texts[self.candidate.path]

    @property
    def _env(self) -> dict[str, str]:
        return tools.kernels_env(self.settings, os.environ)

    def _function(self) -> Draft:
        source = Source(self.candidate, self._text, self.files.packages, self.folder)
        python = tools.kernels_python(self.settings, self.root)
        with tempfile.TemporaryDirectory(prefix="ci-perf-init-") as folder:
            scratch = Path(folder)
            with Worker(python, self._env, scratch / "logs") as worker:
                has_gpu = self._sees_gpu(worker)
                self.say(f"trying inputs and references with {python} on the {'GPU' if has_gpu else 'CPU'}")
                trial = Trial(source, worker, self.root, scratch, "cuda" if has_gpu else "cpu")
                tried = trial.find_right()
                chosen = tried.attempt or next(attempts(source))
                late = self.candidate.kind == "triton" and not has_gpu and not trial.imports(chosen)
        draft = with_late_import(source, chosen.draft) if late else chosen.draft
        if tried.attempt:
            return draft
        if self.candidate.kind == "triton" and not has_gpu and not draft.open_work:
            self.say(f"the reference was chosen by the name and not tried: {tried.failure}")
            return draft
        self.say(f"no guess of inputs and reference was right; the first one: {tried.failure}")
        return unfinished(source)

    def _sees_gpu(self, worker: Worker) -> bool:
        hello = worker.ask({"op": "hello"}, _START_TIMEOUT_S)
        if isinstance(hello, Failure) or not hello["torch"]:
            why = (
                hello.message if isinstance(hello, Failure) else f"it has no torch, which {self.candidate.place} needs"
            )
            raise MachineError(f"{worker.python}: {why}", hint="name the interpreter that has it with --python PATH")
        return bool(hello["gpu"]) and "cpu" not in self.settings["device"]

    def _program(self, setup: str) -> Draft:
        """Draft the kernel of a program, which is built and asked for its benchmarks."""
        kind = self.candidate.kind
        if kind not in ("google_benchmark", "nvbench"):
            raise ValueError(f"{kind} is no program")
        if setup:
            self.say(f"building it: {setup}")
            with tempfile.TemporaryDirectory(prefix="ci-perf-init-") as folder:
                Setup(setup, self._env).run(self.root, Path(folder) / "setup.log")
        program = f"./{program_path(self.candidate)}"
        argv = (str(self.root / program), listing_flag(kind))
        done = proc.run(argv, timeout_s=_LIST_TIMEOUT_S, env=self._env, cwd=self.root)
        cases = listed(kind, done.output) if done.status == 0 else {}
        if not cases:
            hint = f"run `{program} {listing_flag(kind)}`: it must print the names of the benchmarks"
            hint += "; with nvbench this needs a GPU" if kind == "nvbench" else ""
            raise ConfigError(f"{program} {done.end} and listed no benchmark{done.said}", hint=hint)
        return draft_program(self.candidate, kind, cases)
