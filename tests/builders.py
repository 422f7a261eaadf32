"""Values for tests: each builder has defaults for what a test does not care about, and takes what it does."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ci_perf.audit.session import AuditCase, AuditSession
from ci_perf.values.baseline import Baseline, BaselineCase, BaselineCounter, BaselineTime
from ci_perf.values.device import Device, Provenance, Toolchain
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.measurement import Measurement, Replicate
from ci_perf.values.metrics import BY_NAME
from ci_perf.values.run import Policy, Run
from ci_perf.values.trace import Reading

STEADY = (50.0e-6, 50.1e-6, 50.2e-6, 50.3e-6, 50.4e-6, 50.5e-6)
"""The medians of six processes that agree within 1 %."""
PARAMS = {"seq": 128, "dtype": "float16"}


def times(factor: float, seconds: Sequence[float] = STEADY) -> tuple[float, ...]:
    """Return `seconds`, each `factor` times as long."""
    return tuple(factor * s for s in seconds)


def a_device(**changes: Any) -> Device:
    h100 = Device("cuda", "NVIDIA H100 80GB HBM3", driver="580.159.03", power_limit_w=700.0, mig=False)
    return replace(h100, **changes)


def a_cpu(**changes: Any) -> Device:
    return replace(Device("cpu", "AMD EPYC 9654"), **changes)


def a_spec(name: str = "sdpa", **changes: Any) -> KernelSpec:
    spec = KernelSpec(name, f"kernels/{name}", "kernel.py", cases={"s128": PARAMS})
    return replace(spec, **changes)


def replicates(*batches: Sequence[float], method: str = "cuda-graph") -> tuple[Replicate, ...]:
    """Return a process for each value, which is its median; each argument is a batch."""
    return tuple(
        Replicate((0.99 * median, median, 1.02 * median), 100, method, batch)
        for batch, medians in enumerate(batches)
        for median in medians
    )


def counters(**values: float | Sequence[float | None] | None) -> tuple[Mapping[str, Reading], ...]:
    """Return the readings of the profiled launches; a single value is that of two launches, None is not available."""
    columns = {name: v if isinstance(v, Sequence) else (v, v) for name, v in values.items()}
    launches = max(len(column) for column in columns.values())
    return tuple(
        {
            name: Reading(column[i], BY_NAME[name].unit, "no permission" if column[i] is None else "")
            for name, column in columns.items()
        }
        for i in range(launches)
    )


def a_measurement(*batches: Sequence[float], kernel: str = "sdpa", case: str = "s128", **changes: Any) -> Measurement:
    measurement = Measurement(kernel, case, PARAMS, "cuda", "launch", replicates=replicates(*batches or (STEADY,)))
    return replace(measurement, **changes)


def a_baseline_case(medians: Sequence[float] = STEADY, **changes: Any) -> BaselineCase:
    middle = sorted(medians)[len(medians) // 2]
    processes = tuple((0.99 * m, m, 1.02 * m) for m in sorted(medians))
    return replace(BaselineCase(PARAMS, "launch", BaselineTime("cuda-graph", middle, 0.01, processes)), **changes)


def a_baseline(medians: Sequence[float] = STEADY, *, kernel: str = "sdpa", **changes: Any) -> Baseline:
    """Return a baseline of the one case `s128`."""
    baseline = Baseline(kernel, a_device(), a_toolchain(), a_provenance(), {"s128": a_baseline_case(medians)})
    return replace(baseline, **changes)


def agreed(**values: float) -> dict[str, BaselineCounter]:
    """Return the counters of a baseline, each read twice."""
    return {name: BaselineCounter(BY_NAME[name].unit, (value, value)) for name, value in values.items()}


def a_toolchain(**changes: Any) -> Toolchain:
    toolchain = Toolchain("3.12.3", "2.11.0", "13.0", {"triton": "3.6.0"}, "2025.5.1", "2025.3.1")
    return replace(toolchain, **changes)


def a_provenance(**changes: Any) -> Provenance:
    return replace(Provenance("ci-perf 0.1.0", "2026-11-27T12:00:00Z", "ci-perf run", "0fd4e2e"), **changes)


def a_policy(**changes: Any) -> Policy:
    return replace(Policy(), **changes)


def a_run(*measurements: Measurement, **changes: Any) -> Run:
    """Return a finished run of all cases, without a baseline."""
    run = Run(
        provenance=a_provenance(),
        selection=(),
        policy=Policy(),
        kernels=(a_spec(),),
        devices=(a_device(),),
        toolchain=a_toolchain(),
        measurements=measurements or (a_measurement(),),
        finished=True,
    )
    return replace(run, **changes)


def an_audit_case(kernel: str = "sdpa", *, true: float = 1.0, planted: float = 0.0, **changes: Any) -> AuditCase:
    """Return a case of five pairs whose head takes `true` times as long, with a scatter of 0.1 %."""
    ratios = tuple(math.log(true) + noise for noise in (-0.001, 0.0005, 0.0, -0.0005, 0.001))
    case = AuditCase(kernel, "s128", "cuda-graph", 1000, planted, ratios, (1.0,) * 5, STEADY, times(true))
    return replace(case, **changes)


def an_audit_session(number: int, *cases: AuditCase, planted: float = 0.0, **changes: Any) -> AuditSession:
    """Return a session with a control that did not move."""
    session = AuditSession(
        session=f"{number:04x}",
        provenance=a_provenance(command="ci-perf audit"),
        device=a_device(),
        toolchain=a_toolchain(),
        planted=planted,
        seconds=4.5,
        cases=cases or (an_audit_case(planted=planted, true=1 + planted),),
        control_case="sdpa/s128",
        control=(0.001, -0.001, 0.0, 0.0005, -0.0005),
    )
    return replace(session, **changes)
