"""compute-sanitizer as pure functions: its command line, what it found, and why it checked nothing.

Its text output is parsed. NVIDIA documents that by examples (Compute Sanitizer documentation, "Understanding
Memcheck Errors" and the sections of the other tools); no schema of its XML is published.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ci_perf.traces import diagnosis
from ci_perf.traces.diagnosis import Diagnosis, Symptom
from ci_perf.values.run import Defect


@dataclass(frozen=True, slots=True)
class Findings:
    """What one run of the tool found."""

    errors: int | None
    """As its summary counts them, warnings of racecheck included; None: no summary, so the tool did not finish."""
    defects: tuple[Defect, ...]
    """Those that it printed, one for each message and place; of several alike, their number."""


def command(sanitizer: str, tool: str, target: Sequence[str], *, children: bool = False) -> tuple[str, ...]:
    """Return the invocation that runs `target` under a tool, with or without the programs that it starts."""
    own = (*_OPTIONS.get(tool, ()), *(("--target-processes", "all") if children else ()))
    return (sanitizer, "--tool", tool, "--show-backtrace", "device", *own, *target)


_OPTIONS = {
    # torch makes API calls that are allowed to fail; it reports a failed launch itself.
    "memcheck": ("--report-api-errors", "no"),
    # Kernels with TMA have several mbarriers in each block, more than the tool tracks by default.
    "synccheck": ("--num-cuda-barriers", "65536"),
}


def read(output: str) -> Findings:
    """Read what was printed; lines of the program itself, which stand between, are ignored."""
    errors = [int(count) for count in _SUMMARY.findall(output)]
    found: Counter[tuple[str, str, str]] = Counter()
    first: dict[tuple[str, str, str], Defect] = {}
    for lines in _records(output):
        defect = _defect(lines)
        key = (defect.message, defect.function, defect.place)
        found[key] += 1
        first.setdefault(key, defect)
    defects = tuple(replace(first[key], count=count) for key, count in found.items())
    return Findings(max(errors) if errors else None, defects)


def diagnose(output: str) -> Diagnosis | None:
    """Return why the tool checked nothing, or None; beside it the tool may print a summary of 0 errors."""
    return diagnosis.match(_SYMPTOMS, output)


def target_failed(output: str) -> bool:
    """Return whether the tool reports that its target failed: the exit status may be the tool's own."""
    return re.search(r"^=+ Target application returned an error", output, re.MULTILINE) is not None


_SUMMARY = re.compile(r"^=+ (?:ERROR SUMMARY: (?=\d+ errors?\s*$)|RACECHECK SUMMARY: )(\d+)", re.MULTILINE)
_LINE = re.compile(r"^={9}(?: (.*))?$")
_CONTINUED = re.compile(r"\s|at |by thread |by |and |in |Address |Access |Saved |Host Frame|Device Frame|Barrier is ")
_NO_RECORD = re.compile(
    r"COMPUTE-SANITIZER|\w+ SUMMARY:|Target application returned|Tracking kernels|Default timeout|"
    r"(?:Error|Fatal|Internal|Warning)\b(?!.*Race reported)"
)
_OFFSET = r"(?:\+?0x[0-9a-fA-F]+)"
# "at f(int *)+0x70 in /a/b.cu:41"; before 2023 "at 0x70 in /a/b.cu:41:f(int *)" and "at 0x70 in f(int *)".
_AT = re.compile(
    rf"\bat (?:(?P<function>[^\n]+?)(?:{_OFFSET})? in (?P<place>\S+:\d+)(?=\s|$)"
    rf"|{_OFFSET} in (?P<old_place>\S+?:\d+):(?P<old_function>[^\n\[]+)"
    rf"|{_OFFSET} in (?P<bare>[^\n\[]+)"
    rf"|(?P<only>[^\n]+?){_OFFSET})"
)
_FRAME = re.compile(rf"Device Frame: ?(?P<function>[^\n]+?)(?:{_OFFSET})?(?: in (?P<place>\S+:\d+))?$", re.MULTILINE)
_WHO = re.compile(r"by thread (\([\d,]+\)) in block (\([\d,]+\))")


def _records(output: str) -> Iterator[list[str]]:
    """Yield the lines of each complaint, the message first."""
    record: list[str] = []
    for line in output.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        text = found[1] or ""
        if record and text.strip() and _CONTINUED.match(text):
            record.append(text.strip())
            continue
        if record:
            yield record
        record = [text] if text.strip() and not _CONTINUED.match(text) and not _NO_RECORD.match(text) else []
    if record:
        yield record


def _defect(lines: Sequence[str]) -> Defect:
    text = "\n".join(lines)
    message = re.sub(r"^(?:Error|Warning): | at .*", "", lines[0]).rstrip(".")
    function, place = _where(_AT.search(text))
    frame = _FRAME.search(text)
    if frame and not (function and place):
        function, place = function or frame["function"], place or frame["place"] or ""
    if frame and "intrinsics" in place:  # the place is inside the barrier; name its caller
        function, place = frame["function"], frame["place"] or place
    other = re.search(r"^and (\w+ access) at [^\n]*? in (\S+:\d+)", text, re.MULTILINE)
    if other:
        message += f" and {other[1]} at {other[2]}"
    who = _WHO.search(text)
    return Defect(message, function.strip(), place, who[1] if who else "", who[2] if who else "")


def _where(found: re.Match[str] | None) -> tuple[str, str]:
    if found is None:
        return "", ""
    function = found["function"] or found["old_function"] or found["bare"] or found["only"] or ""
    return function, found["place"] or found["old_place"] or ""


_SYMPTOMS = (
    Symptom(
        "barriers-overflow",
        r"Detected overflow of tracked cuda::barrier structures",
        "compute-sanitizer lost track of the kernel's barriers: {0}",
        "the case has too many blocks: name a smaller case, or exclude the tool with `sanitize` in kernel.toml",
    ),
    Symptom(
        "device-refused",
        r"Device not supported|Failed to initialize WDDM",
        "compute-sanitizer refuses this device: {0}",
        "see the supported devices in its release notes; on WSL its debugger interface must be enabled on Windows",
    ),
    Symptom(
        "incomplete",
        r"Unable to find injection library (\S+)",
        "compute-sanitizer is incomplete: it lacks {1}",
        "reinstall the package cuda-sanitizer of the CUDA toolkit",
    ),
    Symptom(
        "bad-option",
        r"unrecogni[sz]ed option.*",
        "compute-sanitizer refused its command line: {0}",
        "it may be too old: install compute-sanitizer of CUDA 11.8 or newer",
    ),
    Symptom(
        "nothing-seen",
        r"terminated before first instrumented API call|No attachable process found",
        "compute-sanitizer saw no CUDA call: {0}",
        "it may be too old for the driver: install that of the driver's CUDA version, which `ci-perf doctor` shows",
    ),
    Symptom(
        "other",
        r"^=+ (?:Internal error|Error|Fatal)\b(?! SUMMARY|: Race reported):? ?(.*)$",
        "compute-sanitizer failed: {1}",
        "see its log",
    ),
)
