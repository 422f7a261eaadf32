"""The verdicts, and every reason code of a finding, a failure or a note, with its meaning and the next step.

The codes are written to files and read by other programs: they never change. Reports, `report --json` and the
documentation take meaning and next step from here.
"""

from enum import StrEnum


class Verdict(StrEnum):
    """The verdict on a case; a reason code and a sentence always accompany it."""

    SPEEDUP = "SPEEDUP"
    REGRESSION = "REGRESSION"
    UNCHANGED = "UNCHANGED"
    INCONCLUSIVE = "INCONCLUSIVE"
    NEW = "NEW"
    MISSING = "MISSING"
    FAILED = "FAILED"
    NOT_COMPARABLE = "NOT_COMPARABLE"
    EXPECTED_FAILURE = "EXPECTED_FAILURE"

    @property
    def is_change(self) -> bool:
        """Whether the case became slower or faster."""
        return self in (Verdict.REGRESSION, Verdict.SPEEDUP)

    @property
    def sign(self) -> str:
        """The sign beside the verdict in every report, for readers without colours."""
        return _SIGNS[self][0]

    @property
    def ascii_sign(self) -> str:
        """The sign for terminals that show ASCII only."""
        return _SIGNS[self][1]


_SIGNS = {
    Verdict.FAILED: "✗x",
    Verdict.REGRESSION: "▲^",
    Verdict.MISSING: "!!",
    Verdict.SPEEDUP: "▼v",
    Verdict.NOT_COMPARABLE: "≠/",
    Verdict.INCONCLUSIVE: "??",
    Verdict.NEW: "++",
    Verdict.EXPECTED_FAILURE: "○o",
    Verdict.UNCHANGED: "==",
}


class GateState(StrEnum):
    """Whether a counter kept its limit; what was not measured is neither."""

    KEPT = "KEPT"
    BROKEN = "BROKEN"
    NOT_MEASURED = "NOT_MEASURED"


_FIX = "Fix the failed kernels first: their speed is not known."
_REGRESSION = (
    "Fix the regression, or accept it with `ci-perf baseline accept ci-perf-run` and say why in the commit.",
    "Fix the regression, or say in the pull request why it is acceptable.",
)
REGRESSIONS = (
    "Fix the regressions, or accept them with `ci-perf baseline accept ci-perf-run` and say why in the commit.",
    "Fix the regressions, or say in the pull request why they are acceptable.",
)
"""The next step of a report with several regressions, as `Reason.steps`."""
_SPEEDUP = (
    "Keep it: `ci-perf baseline accept ci-perf-run` makes the faster time the baseline.",
    "Keep it: once it is merged, accept a baseline, so that the faster time is the baseline.",
)
_NOISY = (
    "Some cases are too noisy to judge: more `--processes` narrow the interval.",
    "Some cases are too noisy to judge, even in turns: see what else runs on this machine.",
)
_FEW_SESSIONS = (
    "A baseline of few sessions shows large changes only: measure with `--against`, or accept runs of other days, too."
)
_STORED = "On a CPU, changes against a stored time are shown, but not established: measure with `--against`, in turns."
_CLOCK = "The SM clocks of the two sides differed: run again on a GPU whose clock is steady."
_BUSY = "Stop the other programs on this machine, or measure on an idle one, and run again."
_TIMES = "A time is missing or is not a positive number: see the row, correct what wrote it, and run again."
_ACCEPT = "This case was not compared: `ci-perf baseline accept ci-perf-run` makes its time the baseline."
_LOG = "See the log of the tool in the run's folder."
_INCOMPLETE = "See the note: the metrics of these cases may be incomplete."
_CASE_FAILED = "See the note, correct the case, and run again."
_NO_RANGE = "Check that the case starts GPU kernels, and that `ranges` and `kernels` in kernel.toml match them."
_DOCTOR = "`ci-perf doctor` says what is missing and how to install it."


class Reason(StrEnum):
    """A reason code; `of` reads those that another version of ci-perf wrote, too."""

    meaning: str
    steps: tuple[str, str]
    """What to do next: where times are compared with a baseline, and where base and head took turns."""

    def __new__(cls, code: str, meaning: str = "", step: str | tuple[str, str] = "") -> "Reason":
        """Make a member; `step` holds for baselines and turns alike, or is one text for each."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        member.steps = (step, step) if isinstance(step, str) else step
        return member

    @property
    def hint(self) -> str:
        """The next step as the hint of a note: with a small initial and without a full stop.

        >>> Reason.NO_RUN.hint
        'see the log of its job, and run the failed jobs again'
        """
        step = self.steps[0]
        return step[:1].lower() + step[1:].removesuffix(".")

    @classmethod
    def of(cls, code: str) -> "Reason":
        """Return the reason with this code; of a code that this version does not know, one without a meaning."""
        try:
            return cls(code)
        except ValueError:
            unknown = str.__new__(cls, code)
            unknown._name_ = unknown._value_ = code
            unknown.meaning = "a reason that this version of ci-perf does not know"
            unknown.steps = ("Update ci-perf.",) * 2
            return unknown

    # Findings: time.
    SLOWER = "slower", "the slowdown reaches the threshold and is established", _REGRESSION
    FASTER = "faster", "the speedup reaches the threshold and is established", _SPEEDUP
    WITHIN_NOISE = "within-noise", "no change is established, and none that reaches a threshold is possible"
    BELOW_THRESHOLD = "below-threshold", "a change is established, and it is below the threshold"
    MORE_MEMORY = "more-memory", "peak device memory grew by at least its threshold", _REGRESSION
    SAME_MACHINE_CODE = "same-machine-code", "machine code, launch parameters and inputs are the same on both sides"
    INTERVAL_TOO_WIDE = "interval-too-wide", "the interval reaches a threshold after the last look", _NOISY
    PAIRS_DISAGREE = "pairs-disagree", "a change on average, but not in enough of the pairs", _NOISY
    NOT_SURE = (
        *("not-sure-among-K-cases", "the change is sure for one case, but not among all cases of the run"),
        "Some changes are not sure among so many cases: run these cases alone.",
    )
    NEEDS_MORE_PAIRS = "needs-more-pairs", "not decided yet: the run stopped before the next look", _NOISY
    BUDGET_SPENT = (
        *("budget-spent", "the budget was spent before the case was decided"),
        "Some cases were not decided within the budget: raise `--budget` or `--case-budget`.",
    )
    NOT_MEASURED = "not-measured", "the run ended before the case was timed", "Run again until the run finishes."
    NO_VALUES = "no-values", "one side has no times", _TIMES
    BAD_VALUES = "bad-values", "a time is not positive and finite", _TIMES
    SLOWER_UNCONFIRMED = "slower-unconfirmed", "slower, but not measured a second time", _NOISY
    FASTER_UNCONFIRMED = "faster-unconfirmed", "faster, but not measured a second time", _NOISY
    SLOWER_NOT_REPEATED = "slower-not-repeated", "slower, but not in each batch of fresh processes", _NOISY
    FASTER_NOT_REPEATED = "faster-not-repeated", "faster, but not in each batch of fresh processes", _NOISY
    SLOWER_TOO_SMALL = "slower-too-small", "slower by less than stored times are repeatable", _FEW_SESSIONS
    FASTER_TOO_SMALL = "faster-too-small", "faster by less than stored times are repeatable", _FEW_SESSIONS
    SLOWER_STORED = "slower-stored", "slower than a stored time, which a busy CPU can cause without a change", _STORED
    FASTER_STORED = "faster-stored", "faster than a stored time, which a busy CPU can cause without a change", _STORED
    SLOWER_TOO_FEW = "slower-too-few-processes", "slower, but too few processes for the confidence", _NOISY
    FASTER_TOO_FEW = "faster-too-few-processes", "faster, but too few processes for the confidence", _NOISY
    SLOWER_NOT_SIGNIFICANT = (
        "slower-not-significant",
        "slower, but the interval includes no change or the baseline's scatter",
        _NOISY,
    )
    FASTER_NOT_SIGNIFICANT = (
        "faster-not-significant",
        "faster, but the interval includes no change or the baseline's scatter",
        _NOISY,
    )
    SLOWER_OVERLAPPING = "slower-overlapping", "slower, but processes of both sides overlap", _NOISY
    FASTER_OVERLAPPING = "faster-overlapping", "faster, but processes of both sides overlap", _NOISY
    SLOWER_CLOCK = "slower-clock", "slower in time, but not in SM cycles", _CLOCK
    FASTER_CLOCK = "faster-clock", "faster in time, but not in SM cycles", _CLOCK
    SLOWER_UNEVEN_CLOCK = "slower-uneven-clock", "slower, but the SM clocks vary too much to compare cycles", _CLOCK
    FASTER_UNEVEN_CLOCK = "faster-uneven-clock", "faster, but the SM clocks vary too much to compare cycles", _CLOCK
    SLOWER_SAME_INSTRUCTIONS = (
        *("slower-same-instructions", "slower on a busy machine, with the same number of instructions"),
        _BUSY,
    )
    FASTER_SAME_INSTRUCTIONS = (
        *("faster-same-instructions", "faster on a busy machine, with the same number of instructions"),
        _BUSY,
    )
    DISTURBED = (
        *("disturbed", "another program or a slowdown of the hardware disturbed the measurement"),
        "Some cases were disturbed: keep other programs off the GPU, and run again.",
    )
    CONTROL_MOVED = (
        *("control-moved", "code that cannot have changed took another time in this session"),
        "This session is not reliable: run again on a machine that nothing else uses.",
    )
    NO_CONTROL = (
        *("no-control", "the base was not compared with itself often enough to check the session"),
        "This session was not checked: see why the base has no control, and run again.",
    )
    MEMORY_ERRORS = (
        *("memory-errors", "the GPU's memory had errors that ECC could not correct"),
        "The memory of this GPU has errors: reset or replace the GPU, and run again.",
    )

    # Findings: what may be compared.
    NO_BASELINE = "no-baseline", "no baseline holds this case", (_ACCEPT, "")
    NOT_IN_BASE = "not-in-base", "the base commit does not have this case"
    REMOVED = (
        *("removed", "the baseline or the base commit has this case, the kernels do not"),
        (
            "A case with a baseline is gone: restore it, or drop it with `ci-perf baseline accept ci-perf-run`.",
            "A case that the base has is gone: restore it, or say in the pull request why it was removed.",
        ),
    )
    BASE_FAILED = (
        *("base-failed", "the base commit could not be measured"),
        "The base could not be measured in some cases, which is no pass: see why.",
    )
    OTHER_INPUTS = (
        *("other-inputs", "base and head made inputs of different shapes or types"),
        "Some cases have other inputs than the base: change inputs and kernel in separate commits.",
    )
    MIXED_METHODS = "mixed-methods", "processes of one case were timed by different methods", _LOG
    OTHER_DEVICE = "other-device", "the baseline is of another device", _ACCEPT
    OTHER_TOOLCHAIN = "other-toolchain", "the baseline is of another torch, CUDA, Triton or NumPy", _ACCEPT
    OTHER_POWER_LIMIT = "other-power-limit", "the baseline is of another power limit", _ACCEPT
    OTHER_DRIVER = "other-driver", "the baseline is of another branch of the driver", _ACCEPT
    OTHER_MIG = "other-mig", "the baseline is of another MIG mode", _ACCEPT
    OTHER_PARAMETERS = "other-parameters", "the baseline is of other parameters", _ACCEPT
    OTHER_TARGET = "other-target", "the baseline is of another function or program", _ACCEPT
    OTHER_METHOD = "other-method", "the baseline is of another timing method", _ACCEPT
    OTHER_UNIT = "other-unit", "the baseline is in another unit", _ACCEPT
    OTHER_DIRECTION = "other-direction", "lower is better in one of run and baseline, higher in the other", _ACCEPT

    # Findings: random cases and compute-sanitizer.
    SANITIZER_MEMCHECK = "sanitizer-memcheck", "compute-sanitizer found invalid memory accesses", _FIX
    SANITIZER_RACECHECK = "sanitizer-racecheck", "compute-sanitizer found races in shared memory", _FIX
    SANITIZER_INITCHECK = "sanitizer-initcheck", "compute-sanitizer found reads of uninitialised memory", _FIX
    SANITIZER_SYNCCHECK = "sanitizer-synccheck", "compute-sanitizer found invalid synchronisation", _FIX
    SANITIZER_NOT_CHECKED = (
        *("sanitizer-not-checked", "compute-sanitizer could not check the case"),
        "The sanitizer could not check some cases, which is no pass: their rows say why.",
    )

    # Findings: failures that kernel.toml names.
    EXPECTED_FAILURE = "expected-failure", "the case failed, as `expected_failures` in kernel.toml says"
    UNEXPECTED_PASS = (
        *("unexpected-pass", "the case passed, although `expected_failures` in kernel.toml says that it fails"),
        "A case that was known to fail passes: remove it from `expected_failures` in its kernel.toml.",
    )

    # Failures.
    WRONG_OUTPUT = "wrong-output", "the output differs from the reference by more than the tolerance", _FIX
    RAISED = "raised", "the kernel's code raised an exception", _FIX
    EXITED = "exited", "the kernel's code or program ended with an exit status", _FIX
    CRASHED = "crashed", "the process was killed by a signal", _FIX
    TIMEOUT = "timeout", "no answer within `--timeout`", _FIX
    OUT_OF_MEMORY = "out-of-memory", "the memory of the GPU or the machine does not suffice", _FIX
    DEVICE_TAKEN = (
        *("device-taken", "another process uses the GPU exclusively"),
        "Stop the process that uses the GPU, and run again.",
    )
    PRINTED = "printed", "the kernel printed while it was timed", _FIX
    NOT_STARTED = (
        *("not-started", "the program could not be started"),
        "Correct the command in kernel.toml, or build the program first.",
    )
    NO_OUTPUT = "no-output", "the program wrote no results", _FIX
    WRONG_FORMAT = "wrong-format", "the program's results cannot be read", _FIX
    NO_BENCHMARK = "no-benchmark", "the results do not contain the benchmark", _FIX
    SKIPPED = (
        *("skipped", "the program skipped the benchmark"),
        "Remove the case, or choose parameters that the program does not skip.",
    )
    NO_KERNELS = "no-kernels", "no GPU kernel of the program matches kernel.toml", _FIX
    PROFILER = "profiler", "nsys could not trace the program", _LOG
    SAME_CODE = (
        *("same-code", "base and head load the same file, so that nothing would be compared"),
        "Let each side load its own tree: put it on PYTHONPATH, or build it with `--setup`.",
    )
    OTHER_PACKAGE = (
        *("other-package", "a package that `imports` names was imported from outside of the tree that is measured"),
        "Put the tree on the path with `path` in kernel.toml, or build it with `--setup`; see what is installed.",
    )
    NOT_BUILT = (
        *("not-built", "the base lacks a module or a program, and no setup command built it"),
        "Commit what the base lacks if git does not track it; if a build makes it, give its command with `--setup`.",
    )
    NO_RUN = "no-run", "a shard of the plan has no run", "See the log of its job, and run the failed jobs again."

    # Notes: what was measured.
    LEFT_OUT = "left-out", "cases were not selected on this device"
    LARGE_CASES = "large-cases", "large cases were left out on the CPU", "`--all-cases` runs them too."
    SLOW_INPUTS = (
        *("slow-inputs", "the inputs of a case take long in each process"),
        'Draw them on the GPU: `rng = "device"` in kernel.toml, and `device=rng.device` where make_inputs draws.',
    )
    WALL_TIME = "wall-time", "programs are timed by the clock", "With a GPU and nsys their GPU kernels are timed."
    REFERENCE_TIMED = (
        *("reference-timed", "the reference is timed where `launch` cannot run on this device"),
        "Run on a GPU: here only references ran, which says nothing of the kernels.",
    )
    REFERENCE_CHECKED = "reference-checked", "the reference is checked where `launch` cannot run on this device"
    BASE_IS_HEAD = "base-is-head", "base and head are the same commit"
    UNTRACKED = (
        *("untracked", "git does not track sources of a kernel: the base commit does not have them"),
        "Commit them: until then their kernels are new, or the base cannot be measured.",
    )
    BASE_BASELINES = (
        "base-baselines",
        "the baselines of the base commit cannot be read",
        "`ci-perf baseline check` in the base commit names all errors.",
    )
    CREEP = (
        *("creep", "small changes of several merges add up to the threshold"),
        "Find what made the case slower (`ci-perf history KERNEL`), or agree to it with `ci-perf baseline accept`.",
    )
    MEASURED_AGAIN = "measured-again", "disturbed processes were measured again", "Keep other programs off the GPU."
    KERNELS_DIFFER = "kernels-differ", "a program ran different GPU kernels each time", "Fix its autotuning and seeds."
    KERNEL_NAMES_COLLIDE = "kernel-names-collide", "different GPU kernels have names that cannot be told apart"
    SANITIZER_LEFT_OUT = "sanitizer-left-out", "`sanitize` in kernel.toml excludes cases from a tool"

    # Notes: the machine.
    NO_GIT = "no-git", "git cannot be used: the commit is not known", "Install git, or allow git to use the folder."
    GPU_EXPECTED = (
        *("gpu-expected", "the run fell back to the CPU where a GPU is expected"),
        "Make the GPU usable (`ci-perf doctor`), or measure on the CPU on purpose: `--device cpu`.",
    )
    NO_GPU = "no-gpu", "no GPU can be used", _DOCTOR
    CPU_BUSY = "cpu-busy", "other programs use the cores of this machine", _BUSY
    MIG_NEIGHBOURS = (
        "mig-neighbours",
        "other MIG instances share this GPU",
        "Leave the other instances idle, or measure on a whole GPU.",
    )
    GPU_UNWATCHED = "gpu-unwatched", "NVML cannot tell who uses the GPU", _DOCTOR
    FOREIGN_PROCESSES = "foreign-processes", "other programs use this GPU", "Keep other programs off the GPU."
    NO_NSYS = "no-nsys", "nsys cannot be used", _DOCTOR
    NO_NCU = "no-ncu", "ncu cannot be used", _DOCTOR

    # Notes: artifacts and merged runs.
    WITHHELD = "withheld", "a file holds a secret and is not uploaded", "Give the measuring step no secrets."
    LINK_REMOVED = "link-removed", "a link was removed from the run's folder", "Write files into it, not links."
    ATTEMPT_CONTINUED = "attempt-continued", "this attempt of the job continues what an earlier one measured"
    ATTEMPT_NOT_CONTINUED = (
        *("attempt-not-continued", "what an earlier attempt of this job measured is not used: all was measured again"),
        "Where no run was found, give the job that measures `permissions: actions: read`, and its token to ci-perf.",
    )
    EARLIER_RUN = "earlier-run", "a later run of the shard is used"
    SAME_DEVICE = "same-device", "two jobs measured one case on one model of GPU", "Give each model its own label."
    UNREADABLE_RUN = (
        "unreadable-run",
        "a run could not be read and is not merged",
        "See the note; run the job that wrote it again.",
    )

    # Notes: profilers.
    NSYS_WARNING = "nsys-warning", "nsys: the trace is not complete", _INCOMPLETE
    NSYS_FAILED = "nsys-failed", "nsys: the profile could not be made", _LOG
    NSYS_NO_REPORT = "nsys-no-report", "nsys: wrote no report", _LOG
    NSYS_TIME_LIMIT = "nsys-time-limit", "nsys: killed at its time limit", "Raise `--timeout`."
    NSYS_NO_RANGE = "nsys-no-range", "nsys: no GPU kernel in the range of a case", _NO_RANGE
    NSYS_NO_KERNEL = "nsys-no-kernel", "nsys: no GPU kernel matches `kernels`", "Correct `kernels` in kernel.toml."
    NSYS_CASE_FAILED = "nsys-case-failed", "nsys: a case failed while it was profiled", _CASE_FAILED
    NSYS_CUT_OFF = "nsys-cut-off", "nsys: ended before the last case", _LOG
    NSYS_OTHER_PROFILER = "nsys-other-profiler", "nsys: another profiler uses the GPU", "Stop it, and run again."
    NSYS_BAD_OPTION = "nsys-bad-option", "nsys: an option is not known to this version", _DOCTOR
    NSYS_IMPORTER_MISSING = "nsys-importer-missing", "nsys: its importer is missing", _DOCTOR
    NSYS_NO_CUDA_DATA = "nsys-no-cuda-data", "nsys: the trace has no CUDA data", _DOCTOR
    NSYS_NOTHING_RECORDED = "nsys-nothing-recorded", "nsys: recorded nothing", _LOG
    NSYS_TARGET_FAILED = "nsys-target-failed", "nsys: the profiled program failed", _LOG
    TORCH_TRACE = "torch-trace", "the timeline is that of torch's profiler", _DOCTOR
    TORCH_TRACE_FAILED = "torch-trace-failed", "torch's profiler failed", _LOG
    TORCH_NO_RANGE = "torch-no-range", "torch's profiler saw no GPU kernel of a case", _NO_RANGE
    NCU_WARNING = "ncu-warning", "ncu: the report is not complete", _INCOMPLETE
    NCU_FAILED = "ncu-failed", "ncu: the counters could not be read", _LOG
    NCU_NO_REPORT = "ncu-no-report", "ncu: wrote no report", _LOG
    NCU_TIME_LIMIT = "ncu-time-limit", "ncu: killed at its time limit", "Raise `--timeout`."
    NCU_NO_RANGE = "ncu-no-range", "ncu: no GPU kernel in the range of a case", _NO_RANGE
    NCU_NO_KERNEL = "ncu-no-kernel", "ncu: no GPU kernel matches `kernels`", "Correct `kernels` in kernel.toml."
    NCU_CASE_FAILED = "ncu-case-failed", "ncu: a case failed while it was profiled", _CASE_FAILED
    NCU_CUT_OFF = "ncu-cut-off", "ncu: ended before the last case", _LOG
    NCU_FIRST_KERNELS = "ncu-first-kernels", "ncu: counted the first GPU kernels of a program only"
    NCU_NO_PERMISSION = "ncu-no-permission", "ncu: the driver denies access to the counters", _DOCTOR
    NCU_COUNTERS_BUSY = "ncu-counters-busy", "ncu: another program uses the counters", "Stop it, and run again."
    NCU_MIG_CLOCKS = "ncu-mig-clocks", "ncu: MIG does not allow to lock the clocks", _LOG
    NCU_DRIVER_INCOMPATIBLE = "ncu-driver-incompatible", "ncu: too old or too new for the driver", _DOCTOR
    NCU_BAD_OPTION = "ncu-bad-option", "ncu: an option is not known to this version", _DOCTOR
    NCU_UNKNOWN_METRIC = "ncu-unknown-metric", "ncu: a metric is not known to this version", _DOCTOR
    NCU_NO_METRICS = "ncu-no-metrics", "ncu: collected no metric", _LOG
    NCU_TARGET_CRASHED = "ncu-target-crashed", "ncu: the profiled program crashed", _LOG
    NCU_KERNEL_FAILED = "ncu-kernel-failed", "ncu: a GPU kernel could not be profiled", _LOG
    NCU_APPLICATION_ERROR = "ncu-application-error", "ncu: the profiled program failed", _LOG
    NCU_NO_KERNELS = "ncu-no-kernels", "ncu: no GPU kernel was profiled", _LOG
    NCU_OTHER = "ncu-other", "ncu: another failure", _LOG


NO_BASE_CODES = (Reason.SAME_CODE, Reason.OTHER_PACKAGE, Reason.NOT_BUILT)
"""Reasons why a case has no base to compare with that have a next step of their own, beside `base-failed`."""
