"""The baselines of a run as a patch, so that one `git apply` accepts them."""

import difflib
import re
import shlex

from ci_perf.github.event import Event
from ci_perf.judge.baseline import add_session, make_baselines
from ci_perf.judge.report import Report
from ci_perf.values.baseline import Baseline, path_of
from ci_perf.values.codec import dump_baseline
from ci_perf.values.errors import CiPerfError
from ci_perf.values.reasons import Verdict
from ci_perf.values.run import Run

PATCH = "baseline.patch"
"""Its name in the artifact folder."""
_AS_AGREED = (Verdict.UNCHANGED, Verdict.INCONCLUSIVE)
_PLAIN = re.compile(r"[A-Za-z0-9_./-]+")
"""Paths that git writes into a patch without quotes."""


def baseline_patch(run: Run, report: Report, folder: str) -> str:
    """Return the changes that `baseline accept` of this run would make, as a patch; empty if there are none.

    It contains the kernels with a case that is new or differs from its baseline, except those that cannot be accepted,
    such as after a failure. `folder` is the folder of the baselines, relative to the top of the repository.
    """
    old = {path_of(b.device, b.kernel): b for b in run.baselines}
    kernels = sorted({row.finding.kernel for row in report.rows if row.finding.verdict not in _AS_AGREED})
    made = [baseline for kernel in kernels for baseline in _acceptable(run, kernel)]
    new = [add_session(old.get(path_of(b.device, b.kernel)), b, run.policy.confidence) for b in made]
    patches = [
        _file_patch(f"{folder}/{path_of(b.device, b.kernel)}", old.get(path_of(b.device, b.kernel)), b) for b in new
    ]
    return "".join(patches)


def apply_command(event: Event, artifact: str) -> str:
    """Return a shell command that fetches the patch from a workflow's artifact and applies it.

    It works from any folder of the repository: in a subfolder, `git apply` would silently skip files outside of it.
    """
    apply = 'git -C "$(git rev-parse --show-toplevel)" apply "$PWD/{}"'
    if not event.run_id:
        return apply.format(PATCH)
    host = event.server_url.partition("://")[2]
    repository = event.repository if host == "github.com" else f"{host}/{event.repository}"
    folder = f"ci-perf-run-{event.run_id}"
    options = ["--repo", repository, "--name", artifact, "--dir", folder]
    fetch = shlex.join(["gh", "run", "download", event.run_id, *options])
    return f"{fetch} &&\n  {apply.format(f'{folder}/{PATCH}')}"


def _acceptable(run: Run, kernel: str) -> tuple[Baseline, ...]:
    try:
        return make_baselines(run, [kernel], None, "the run")
    except CiPerfError:
        return ()


def _file_patch(path: str, old: Baseline | None, new: Baseline) -> str:
    if not _PLAIN.fullmatch(path):
        return ""
    before = dump_baseline(old).splitlines(keepends=True) if old else []
    after = dump_baseline(new).splitlines(keepends=True)
    lines = difflib.unified_diff(before, after, f"a/{path}" if old else "/dev/null", f"b/{path}")
    mode = "" if old else "new file mode 100644\n"
    return "".join([f"diff --git a/{path} b/{path}\n{mode}", *lines]) if before != after else ""
