"""Runs the drafts of a function under the user's interpreter until one is right."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ci_perf.init.python_draft import Attempt, Source, attempts
from ci_perf.init.shapes import sizes
from ci_perf.measure.worker_process import Worker
from ci_perf.values.measurement import Failure

TIMEOUT_S = 60.0
"""Of one attempt: small inputs, but Triton may compile."""
MOST_ATTEMPTS = 60


@dataclass(frozen=True, slots=True)
class Tried:
    """The attempt that was right; without one, why the first one was not."""

    attempt: Attempt | None
    failure: str = ""


def try_out(source: Source, worker: Worker, root: Path, scratch: Path, *, device: str) -> Tried:
    """Verify the drafts of a function in their order, with small inputs; `scratch` is an empty folder.

    On a CPU, a Triton kernel runs in Triton's interpreter, with tiny inputs.
    """
    interpreted = device == "cpu" and source.candidate.kind == "triton"
    path = [str(root / source.import_from[0])]
    uses = {"path": path, "env": {"TRITON_INTERPRET": "1"} if interpreted else {}, "imports": [], "root": str(root)}
    first = ""
    for number, attempt in enumerate(islice(attempts(source), MOST_ATTEMPTS)):
        entry = scratch / f"attempt{number}.py"
        entry.write_text(attempt.entry, encoding="utf-8")
        params: dict[str, object] = {
            **sizes(attempt.shapes, "trial" if interpreted else "small"),
            "dtype": attempt.dtype,
        }
        request: dict[str, object] = {
            "op": "verify",
            "entry": str(entry),
            "uses": uses,
            "params": params,
            "device": device,
        }
        request |= {"target": "launch", "seed": 0, "rng": "device", "tolerance": {attempt.dtype: attempt.tolerance}}
        answer = worker.ask(request, TIMEOUT_S)
        if not isinstance(answer, Failure):
            return Tried(attempt)
        first = first or answer.message
        if answer.code in ("timeout", "not-started"):
            break
    return Tried(None, first)
