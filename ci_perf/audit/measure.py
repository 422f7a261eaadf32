"""Measures sessions whose true change is known: the tree against itself, with or without a planted slowdown."""

import hashlib
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from ci_perf.audit.rule import rule_hash
from ci_perf.audit.session import AuditCase, AuditSession
from ci_perf.judge.ratios import log_ratio, usable_ratios
from ci_perf.measure import gpu
from ci_perf.measure.backend import Profiled, Progress, Verified
from ci_perf.measure.base import Base
from ci_perf.measure.budget import Budget
from ci_perf.measure.machine import Machine
from ci_perf.measure.main_job import execute
from ci_perf.measure.python_kernels import PythonKernels
from ci_perf.measure.session import PrepareBase, Session
from ci_perf.measure.side import Side
from ci_perf.measure.worker_process import Worker, rest
from ci_perf.values.errors import MachineError
from ci_perf.values.job import Job
from ci_perf.values.measurement import Failure, Measurement
from ci_perf.values.run import Against, Run

PRECISION = 6
"""Significant digits of a recorded number."""


def verify_once(session: Session, jobs: Sequence[Job]) -> dict[str, Verified]:
    """Compare each case's output with its reference; a kernel that fails is a MachineError."""
    verified: dict[str, Verified] = {}
    for job, answer in session.machine(jobs).verify(jobs):
        if isinstance(answer, Failure):
            raise MachineError(f"{job.id}: {answer.message}", hint="an audit needs kernels that work")
        verified[job.id] = answer
    rest(session.worker)
    return verified


class _AuditMachine(Machine):
    """The machine as for `run --against`, but without profiling, and with the verification of the audit's start.

    Machine code is not identified: it is the same on both sides, and the times alone are to decide.
    """

    def __init__(
        self, session: Session, planted: float, base: Base, worker: Worker, verified: dict[str, Verified]
    ) -> None:
        conditions = replace(session.conditions, planted=planted or None)
        self._python_kernels = PythonKernels(conditions, worker, base=base, identify=False)
        super().__init__(self._python_kernels, session.programs(()), base)
        self.verified = verified

    def verify(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Verified | Failure]]:
        """Return the results of the verification at the start; all kernels are imported at the same time."""
        self._python_kernels.preload(jobs)
        yield from ((job, self.verified[job.id]) for job in jobs)

    def profile(self, jobs: Sequence[Job], changed: Sequence[Job] = ()) -> Iterator[Profiled]:
        """Profile nothing."""
        del jobs, changed
        return iter(())


def measure_session(
    session: Session,
    jobs: Sequence[Job],
    empty: Run,
    verified: dict[str, Verified],
    planted: float,
    progress: Progress,
    prepare_base: PrepareBase | None = None,
) -> AuditSession:
    """Measure one session as `run --against` would, with its own workers, and return what an audit file keeps.

    `prepare_base` checks out and builds the commit of the tree; without it both sides run the one tree.
    """
    started = time.monotonic()
    with _against_itself(session, jobs, prepare_base) as (base, worker):
        machine = _AuditMachine(session, planted, base, worker, verified)
        run = replace(empty, against=base.against, planted=planted or None)
        run = execute(run, jobs, machine, processes=1, save=lambda _: None, progress=progress, budget=Budget())
    against, on_gpu = run.against or base.against, run.devices[0].kind == "cuda"
    return AuditSession(
        session=secrets.token_hex(8),
        provenance=empty.provenance,
        device=run.devices[0],
        toolchain=run.toolchain,
        planted=planted,
        seconds=round(time.monotonic() - started, 2),
        cases=tuple(_case(measurement) for measurement in run.measurements),
        control_case=against.control_case,
        control=tuple(_short(value) for value in usable_ratios(against.control)),
        card=card_hash(gpu.card_of(session.conditions.gpu_uuid)) if on_gpu else "",
        rule=rule_hash(),
        checked_out=prepare_base is not None,
    )


@contextmanager
def _against_itself(
    session: Session, jobs: Sequence[Job], prepare_base: PrepareBase | None
) -> Iterator[tuple[Base, Worker]]:
    """Start three workers: the base, a second base for the control, and the head."""
    conditions, logs = session.conditions, session.folder / "logs"

    def started(name: str) -> Worker:
        worker = Worker(conditions.python, conditions.env, logs, name, conditions.root)
        worker.begin()
        return worker

    with ExitStack() as stack:
        head = stack.enter_context(started("audit-head"))
        if prepare_base is not None and (base := stack.enter_context(prepare_base(head, logs))) is not None:
            yield base, head
            return
        worker, control = (stack.enter_context(started(name)) for name in ("audit-base", "audit-control"))
        side = Side("base", conditions.root, {job.spec.name: job.spec for job in jobs}, worker)
        yield Base(Against("itself", ""), side, replace(side, worker=control)), head


def card_hash(uuid: str | None) -> str:
    """Return an id of a GPU for a file that is published, which must not hold the UUID of the hardware."""
    return hashlib.sha256(uuid.encode()).hexdigest()[:16] if uuid else ""


def _case(measurement: Measurement) -> AuditCase:
    pairs, failure = measurement.sound_pairs, ""
    if not pairs:
        failure = measurement.failure.message if measurement.failure else measurement.unpaired or "every pair disturbed"
    elif len(usable_ratios(pairs)) < len(pairs):
        failure = "a pair holds no usable time"
    if failure:
        return AuditCase(measurement.kernel, measurement.case, method="", launches=0, planted=0.0, failure=failure)
    return AuditCase(
        kernel=measurement.kernel,
        case=measurement.case,
        method=pairs[0].method,
        launches=pairs[0].launches,
        planted=_short(pairs[0].planted),
        ratios=tuple(_short(log_ratio(pair)) for pair in pairs),
        clocks=tuple(pair.clocks for pair in pairs),
        starts=tuple(pair.start for pair in pairs),
        base=tuple(_short(value) for value in pairs[0].base),
        head=tuple(_short(value) for value in pairs[0].head),
    )


def _short(value: float) -> float:
    return float(f"{value:.{PRECISION}g}")
