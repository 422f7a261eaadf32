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


@dataclass(frozen=True, slots=True)
class Trial:
    """Verifies drafts of a function under the user's interpreter."""

    source: Source
    worker: Worker
    root: Path
    """Of the repository."""
    scratch: Path
    """An empty folder."""
    device: str

    def find_right(self) -> Tried:
        """Verify the drafts in their order, with small inputs.

        On a CPU, a Triton kernel runs in Triton's interpreter, with tiny inputs.
        """
        interpreted = self.device == "cpu" and self.source.candidate.kind == "triton"
        first = ""
        for number, attempt in enumerate(islice(attempts(self.source), MOST_ATTEMPTS)):
            failure = self._failure(attempt, f"attempt{number}", "launch", interpreted=interpreted)
            if failure is None:
                return Tried(attempt)
            first = first or failure.message
            if failure.code in ("timeout", "not-started"):
                break
        return Tried(None, first)

    def imports(self, attempt: Attempt) -> bool:
        """Return whether its kernel.py can be imported here, and its reference runs."""
        return self._failure(attempt, "imported", "reference", interpreted=False) is None

    def _failure(self, attempt: Attempt, name: str, target: str, *, interpreted: bool) -> Failure | None:
        entry = self.scratch / f"{name}.py"
        entry.write_text(attempt.entry, encoding="utf-8")
        params: dict[str, object] = {
            **sizes(attempt.shapes, "trial" if interpreted else "small"),
            "dtype": attempt.dtype,
        }
        env = {"TRITON_INTERPRET": "1"} if interpreted else {}
        path = [str(self.root / self.source.import_from[0])]
        request: dict[str, object] = {"op": "verify", "entry": str(entry), "params": params, "device": self.device}
        request["uses"] = {"path": path, "env": env, "imports": [], "root": str(self.root)}
        request |= {"target": target, "seed": 0, "rng": "device", "tolerance": {attempt.dtype: attempt.tolerance}}
        answer = self.worker.ask(request, TIMEOUT_S)
        return answer if isinstance(answer, Failure) else None
