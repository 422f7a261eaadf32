"""Reads what an earlier attempt of a job measured: untrusted data, as in every artifact."""

import json
from pathlib import Path

from ci_perf.github.archive import read_untrusted
from ci_perf.github.event import Event
from ci_perf.github.foreign import check_run
from ci_perf.values.codec import load_run
from ci_perf.values.errors import ConfigError, FormatError
from ci_perf.values.run import Run


def read_earlier(path: Path, event: Event) -> Run:
    """Return the run of an artifact: a folder with one file, a zip or a run.json, as it was downloaded.

    Nothing is unpacked to disk. ConfigError where there is none, or no workflow; FormatError where it is larger than
    the limits, no run, of another repository or commit than the event's, or has absurd numbers.
    """
    if not event.repository:
        raise ConfigError("--earlier continues an attempt of a GitHub workflow, and this is none (GITHUB_REPOSITORY)")
    files = sorted(path.iterdir()) if path.is_dir() and not path.is_symlink() else []
    if not files:
        raise ConfigError("no run of an earlier attempt of this job was found")
    if len(files) > 1:
        raise FormatError(f"{path.name}: holds {len(files)} files, expected one")
    text = read_untrusted(files[0])
    run = load_run(text, path.name)
    check_run(run, json.loads(text), event, path.name)
    return run
