"""A run, or a step of one, without the values of secrets."""

import json
from collections.abc import Sequence
from typing import Any

from ci_perf.guard.spellings import Needle, redact
from ci_perf.values.codec import Step, canonical, dump_run, load_run
from ci_perf.values.run import Run


def redact_run(run: Run, needles: Sequence[Needle]) -> Run:
    """Return the run without the values of secrets; the names of its kernels and devices stay."""
    if not needles:
        return run
    document = json.loads(dump_run(run))
    redacted = redact(document, needles)
    return run if redacted == document else load_run(canonical(redacted), "run.json")


def redact_step(step: Step, needles: Sequence[Needle]) -> Step:
    """Return a step of a run without the values of secrets, as `redact_run` would leave them."""
    if not needles:
        return step
    return [_redact_change(change, needles) for change in step] if isinstance(step, list) else redact(step, needles)


def _redact_change(change: dict[str, Any], needles: Sequence[Needle]) -> dict[str, Any]:
    name = [key for key in change["at"] if isinstance(key, str)][-1]
    redacted = {verb: redact({name: value}, needles) for verb, value in change.items() if verb != "at"}
    return {"at": change["at"]} | {verb: value[name] for verb, value in redacted.items()}  # type: ignore[index] # a dict
