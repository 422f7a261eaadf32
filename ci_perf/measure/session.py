"""One session: one use of one machine by one process of ci-perf, prepared, locked and watched.

Every command that runs kernels opens it here, so that all of them refuse the same machines and note the same doubts.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ci_perf import store
from ci_perf.guard import own_environment
from ci_perf.guard.guard import Guard, rules_of
from ci_perf.measure import cpu, gpu, tools
from ci_perf.measure.base import Base
from ci_perf.measure.compile_caches import private_caches
from ci_perf.measure.conditions import Conditions
from ci_perf.measure.lock import gpu_lock
from ci_perf.measure.machine import Machine
from ci_perf.measure.prepare import Profilers, find_devices, find_profilers, gpu_uuid, query_interpreter
from ci_perf.measure.program_counters import ProgramCounters
from ci_perf.measure.program_run import Launcher
from ci_perf.measure.program_trace import KeptTraces
from ci_perf.measure.programs import Programs
from ci_perf.measure.python_kernels import PythonKernels
from ci_perf.measure.setup import setup_of
from ci_perf.measure.temporary import temporary_folder
from ci_perf.measure.worker_process import Worker, rest
from ci_perf.values.device import Device, Toolchain
from ci_perf.values.errors import CiPerfError, MachineError
from ci_perf.values.job import Job
from ci_perf.values.reasons import Reason
from ci_perf.values.run import Note
from ci_perf.values.settings import Settings

BUSY_PCT, BUSY_READINGS, BUSY_POLL_S = 5.0, 4, 0.5
"""The GPU is busy where its utilization is at least BUSY_PCT in BUSY_READINGS readings, BUSY_POLL_S seconds apart."""


@dataclass(frozen=True, slots=True)
class Session:
    """A machine that is ready to measure: its GPU is locked and idle, and the other programs on it are known."""

    conditions: Conditions
    worker: Worker
    devices: tuple[Device, ...]
    """What is measured on, in this order."""
    toolchain: Toolchain
    profilers: Profilers
    guard: Guard
    notes: tuple[Note, ...]
    """What is missing, and which other programs are on the GPU."""
    health: gpu.Health | None = None
    """Of the GPU before anything ran."""
    base: Base | None = None
    """The base commit, if there is one to compare with."""

    @property
    def folder(self) -> Path:
        """Where the run's files go: the artifact folder."""
        return self.guard.folder

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of device in the order in which they are measured."""
        return tuple(device.kind for device in self.devices)

    @property
    def gpu_uuid(self) -> str | None:
        """The GPU that is measured on; None on a CPU."""
        return self.conditions.gpu_uuid if "cuda" in self.kinds else None

    def begin(self, *, keep: bool = False) -> None:
        """Clear the run's folder. Call it once every input is known to be valid: the files of the last run are lost.

        With `keep` they stay: the run continues the one of the folder.
        """
        if not keep:
            store.clear_run_folder(self.folder)
        self.guard.open()

    def machine(self, jobs: Sequence[Job], base: Base | None = None, *, first_start: int = 0) -> Machine:
        """Return the machine that runs these jobs; with `base`, it can run them in turns with the base.

        `first_start` is the number of the first start of the workers.
        """
        kernels = PythonKernels(self.conditions, self.worker, self.profilers.of_kernels, base)
        return Machine(kernels, self.programs(jobs, base), base, first_start=first_start)

    def programs(self, jobs: Sequence[Job], base: Base | None = None, *, keep_traces: bool = True) -> Programs:
        """Return the backend of the programs among the jobs; nsys times commands, whatever `--profile` says."""
        conditions, ncu = self.conditions, self.profilers.ncu
        on_gpu = [job for job in jobs if job.device == "cuda" and job.spec.program is not None]
        benchmarks = "nsys" in self.profilers.versions and base is not None
        traced = any(job.is_command or benchmarks for job in on_gpu)
        counted = ncu is not None and any(job.is_command or base is not None for job in on_gpu)
        nsys = (tool.path for tool in tools.find("nsys", conditions.env) if tool.complete) if traced else ()
        return Programs(
            Launcher(conditions, self.folder),
            nsys_path=next(iter(nsys), None),
            counters=ProgramCounters(ncu.path, conditions, self.guard, ncu.full) if ncu and counted else None,
            traces=KeptTraces(self.guard) if traced and keep_traces else None,
            base_root=base.side.root if base else None,
            base_is_built=base is None or base.is_built,
            trace_benchmarks=benchmarks,
            renamed=base.renamed if base else None,
        )

    def memory_errors(self) -> tuple[Note, ...]:
        """Return a note where the GPU's memory had errors in this session that ECC could not correct."""
        before = self.health.uncorrected_errors if self.health else None
        after = gpu.query_health(self.gpu_uuid).uncorrected_errors if self.gpu_uuid else None
        if before is None or after is None or after <= before:
            return ()
        new = f"{after - before} uncorrected memory errors (ECC)"
        message = f"{new} while this ran: neither outputs nor times can be trusted"
        return (Note(Reason.MEMORY_ERRORS, message, "reset the GPU, and see `nvidia-smi -q -d ECC,ROW_REMAPPER`"),)


PrepareBase = Callable[[Worker, Path], AbstractContextManager[Base | None]]
"""Checks out and builds the base and starts its workers: like the worker of the head, with logs in this folder."""


def _no_base(*_: object) -> AbstractContextManager[None]:
    return nullcontext()


@contextmanager
def open_session(
    settings: Settings,
    root: Path,
    say: Callable[[str], object],
    planned: Sequence[Job],
    prepare_base: PrepareBase = _no_base,
) -> Iterator[Session]:
    """Build head and base, prepare the machine, lock the GPU, wait until it is idle, and note what else is there.

    `planned` are the jobs that may run: where all are programs, torch is not needed. `say` gets messages: what it waits
    for, and at the end which files were withheld. Afterwards no process of the session is left, and the run's folder
    was searched for secrets, however the session ends. MachineError, ConfigError.
    """
    folder, setup = root / settings["output"], setup_of(settings, os.environ)
    if not setup.command:
        tools.kernels_python(settings, root)  # an error in it leaves the last run's folder as it is
    with store.held_run_folder(folder), _searched(_claimed(folder, settings), say) as guard:
        setup.run(root, folder / "logs" / "setup-head.log")
        with _prepared(settings, root, say, guard, planned, prepare_base) as session:
            yield session


@contextmanager
def _prepared(
    settings: Settings,
    root: Path,
    say: Callable[[str], object],
    guard: Guard,
    planned: Sequence[Job],
    prepare_base: PrepareBase,
) -> Iterator[Session]:
    """Yield a session of the claimed folder; the head is built."""
    logs = guard.folder / "logs"
    with _worker(settings, root, logs) as worker, worker, ExitStack() as stack:
        worker.begin()  # it imports torch while the base is prepared
        base = stack.enter_context(prepare_base(worker, logs))
        env = worker.env
        programs_only = all(job.spec.program for job in planned)
        session = _prepare(settings, root, env, worker, guard, programs_only=programs_only)
        _refuse_missing_torch(session, root, planned)
        rest(worker)  # who waits holds no memory on a GPU that another run measures on
        uuid = session.gpu_uuid
        workers = (worker, *base.workers) if base else (worker,)
        with gpu_lock(uuid, settings["wait"], say), ExitStack() as ending:
            for started in workers:  # they end before another run may have the GPU
                ending.enter_context(started)
            wait_until_idle(uuid, settings["wait"], say)
            # Nothing of this session is on the GPU, and no other run may measure on it.
            others = gpu.query_state(uuid).others if uuid else ()
            conditions = replace(session.conditions, other_programs=frozenset(p.pid for p in others or ()))
            notes = (*session.notes, *note_other_programs(uuid, others), *_note_busy(session, workers, say))
            health = gpu.query_health(uuid) if uuid else None
            yield replace(session, conditions=conditions, notes=notes, health=health, base=base)


@contextmanager
def _worker(settings: Settings, root: Path, logs: Path) -> Iterator[Worker]:
    """Return the head's worker, which is not started yet. Its environment is that of all kernels."""
    rules = rules_of(settings)
    own_environment.hide(lambda name, _: rules.withholds(name))
    env = tools.kernels_env(settings, os.environ)
    python = tools.kernels_python(settings, root)
    with temporary_folder("ci-perf-caches-") as caches:
        yield Worker(python, private_caches(env, caches) if settings["compile-cache"] == "run" else env, logs)


_IMPORTS_TORCH = re.compile(r"^(import|from) torch\b", re.MULTILINE)


def _refuse_missing_torch(session: Session, root: Path, planned: Sequence[Job]) -> None:
    """Raise MachineError where the interpreter has no torch and an entry needs it to be imported at all."""
    if session.toolchain.torch is not None:
        return
    for spec in {job.spec.name: job.spec for job in planned if job.spec.entry}.values():
        entry = Path(spec.folder) / spec.entry
        if _IMPORTS_TORCH.search((root / entry).read_text(encoding="utf-8", errors="replace")):
            hint = "name the interpreter that has torch with --python PATH, or install torch into this one"
            raise MachineError(f"{session.worker.python} has no torch, which {entry} imports", hint=hint)


def _claimed(folder: Path, settings: Settings) -> Guard:
    store.claim_run_folder(folder)
    return Guard.of(folder, os.environ, rules_of(settings))


def _prepare(
    settings: Settings, root: Path, env: Mapping[str, str], worker: Worker, guard: Guard, *, programs_only: bool
) -> Session:
    """Find the devices and the profilers; nothing is locked yet."""
    seen = query_interpreter(worker, worker.python, programs_only=programs_only)
    devices, notes = find_devices(settings["device"], seen, worker.python)
    conditions = Conditions(
        python=worker.python,
        root=root,
        env=env,
        samples=settings["samples"],
        timeout_s=settings["timeout"],
        planted=settings["plant-slowdown"],
        time_identical=settings["time-identical"],
        gpu_uuid=gpu_uuid(seen),
    )
    on_gpu = any(device.kind == "cuda" for device in devices)
    profilers = find_profilers(settings, conditions, worker, guard) if on_gpu else Profilers()
    toolchain = Toolchain(
        python=seen["python"],
        torch=seen["torch"],
        cuda=seen["cuda"],
        packages=seen["packages"],
        nsys=profilers.versions.get("nsys"),
        ncu=profilers.versions.get("ncu"),
    )
    return Session(conditions, worker, devices, toolchain, profilers, guard, (*notes, *profilers.notes))


@contextmanager
def _searched(guard: Guard, say: Callable[[str], object]) -> Iterator[Guard]:
    """Close the journal and search the folder for secrets however the session ends; name what was withheld."""
    try:
        yield guard
    finally:
        with suppress(CiPerfError):  # the journal stays, and can be read
            store.close_journal(guard.folder)
        for note in guard.sweep():
            say(f"warning: {note.message}")
        guard.close()


def note_other_programs(uuid: str | None, others: Sequence[gpu.Process] | None) -> tuple[Note, ...]:
    """Return notes that name the other programs on the GPU, or say that they are not known."""
    notes = []
    if uuid and uuid.startswith("MIG-"):
        message = "this is an instance of a GPU (MIG): its other instances share power and clock, and are not watched"
        notes.append(Note("mig-neighbours", message, Reason.MIG_NEIGHBOURS.hint))
    if others is None:
        message = "this GPU cannot be watched: NVML does not report what else runs on it"
        hint = "in a container set NVIDIA_DRIVER_CAPABILITIES=compute,utility; see `ci-perf doctor`"
        notes.append(Note("gpu-unwatched", message, hint))
    if others:
        names = ", ".join(f"{other.name} ({other.pid})" for other in others[:5])
        message = f"other programs were on this GPU when the run began: {names}"
        hint = "stop them and run again: they disturb what is measured"
        notes.append(Note("foreign-processes", message, hint))
    return tuple(notes)


def _note_busy(session: Session, workers: Iterable[Worker], say: Callable[[str], object]) -> tuple[Note, ...]:
    """Return a note, which `say` gets too, where other programs use the cores that will be measured."""
    if "cpu" not in session.kinds:
        return ()
    for worker in workers:
        worker.wait()  # they import torch
    note = cpu.query_busy()
    if note is None:
        return ()
    say(f"warning: {note.message}")
    return (note,)


def wait_until_idle(uuid: str | None, wait_s: float, say: Callable[[str], object]) -> None:
    """Wait until the GPU runs no other program's kernel; `say` gets one message. MachineError after `wait_s` seconds.

    Call it while the GPU is locked and nothing of this session runs. A program that only holds memory does not count.
    """
    deadline = time.monotonic() + wait_s
    said = False
    while uuid and all(_is_busy(uuid) for _ in range(BUSY_READINGS)):
        others = ", ".join(f"{p.name} ({p.pid})" for p in gpu.query_state(uuid).others or ()) or "another program"
        if time.monotonic() >= deadline:
            message = f"{others} has kept this GPU busy for {wait_s:.0f} s: a measurement beside it means nothing"
            raise MachineError(message, hint="stop it, or raise --wait")
        if not said:
            say(f"waiting for {others} to stop using the GPU ...")
            said = True


def _is_busy(uuid: str) -> bool:
    time.sleep(BUSY_POLL_S)
    return (gpu.query_state(uuid).busy_pct or 0.0) >= BUSY_PCT
