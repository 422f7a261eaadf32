"""A run without the values of secrets."""

import json
from collections.abc import Sequence

from ci_perf.guard.spellings import Needle, redact
from ci_perf.values.codec import canonical, dump_run, load_run
from ci_perf.values.run import Run


def redact_run(run: Run, needles: Sequence[Needle]) -> Run:
    """Return the run without the values of secrets; what identifies its kernels and devices stays."""
    if not needles:
        return run
    document = json.loads(dump_run(run))
    redacted = redact(document, needles)
    return run if redacted == document else load_run(canonical(redacted), "run.json")
