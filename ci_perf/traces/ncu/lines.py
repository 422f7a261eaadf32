"""The source lines of machine code: what each of them takes, and which lines of two versions of a file are the same."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from ci_perf.traces.ncu.code import COUNTED, Code
from ci_perf.values.trace import SourceLine

MOST_LINES = 40
_Place = tuple[str, int]


def source_lines(codes: Iterable[Code]) -> tuple[SourceLine, ...]:
    """Return the MOST_LINES lines with the largest part of anything that is counted of lines, or of the spills.

    Those with most samples come first, then those with most bytes.
    """
    takes: dict[str, defaultdict[_Place, float]] = {field: defaultdict(float) for field in (*COUNTED, "spills")}
    for instruction in (i for code in codes for i in code.instructions if i.file and i.line > 0):
        for field, of in takes.items():
            of[instruction.file, instruction.line] += getattr(instruction, field)
    parts, samples = [_parts(of) for of in takes.values()], takes["samples"]
    most = sorted(samples, key=lambda place: (-max(part[place] for part in parts), -samples[place], place))[:MOST_LINES]
    most.sort(key=lambda place: (-samples[place], -takes["bytes"][place], -takes["spills"][place], place))
    return tuple(
        SourceLine(
            *place,
            samples_pct=round(100 * parts[0][place], 2),
            spills=round(takes["spills"][place]),
            bytes=round(takes["bytes"][place]),
            shared_wavefronts=round(takes["shared_wavefronts"][place]),
            excessive_wavefronts=round(takes["excessive_wavefronts"][place]),
        )
        for place in most
    )


def _parts(of: Mapping[_Place, float]) -> dict[_Place, float]:
    whole = sum(of.values()) or 1.0
    return {place: value / whole for place, value in of.items()}


def same_files(base: Iterable[str], head: Iterable[str]) -> dict[str, str]:
    """Return by file of the head the same file of the base, where its tree may lie in another folder.

    It is the file of the same path, else the one of the same name that has most folders in common from the end on, on
    both sides.

    >>> same_files(["/old/src/k.cu", "/old/test/k.cu", "/cuda/include/a.h"], ["/new/src/k.cu", "/cuda/include/a.h"])
    {'/cuda/include/a.h': '/cuda/include/a.h', '/new/src/k.cu': '/old/src/k.cu'}
    >>> same_files(["/old/b/k.cu"], ["/new/a/k.cu", "/new/b/k.cu"]), same_files(["/old/k.cu"], ["/a/k.cu", "/b/k.cu"])
    ({'/new/b/k.cu': '/old/b/k.cu'}, {})
    """
    old, new = list(dict.fromkeys(base)), list(dict.fromkeys(head))
    found = {file: file for file in new if file in old}
    while True:
        old, new = [file for file in old if file not in found.values()], [file for file in new if file not in found]
        nearest = {file: _nearest(file, old) for file in new}
        matched = {file: other for file, other in nearest.items() if other and _nearest(other, new) == file}
        if not matched:
            return found
        found |= matched


def _nearest(file: str, others: Iterable[str]) -> str:
    """Return the path that has the most names in common from the end on; empty if there is none, or several."""
    common = {other: _common(_parents_up(file), _parents_up(other)) for other in others}
    most = max(common.values(), default=0)
    nearest = [other for other, number in common.items() if number == most]
    return nearest[0] if most and len(nearest) == 1 else ""


def _parents_up(file: str) -> list[str]:
    return file.replace("\\", "/").split("/")[::-1]


def in_base(lines: Iterable[SourceLine], sources: Mapping[str, tuple[str, str, str]]) -> tuple[SourceLine, ...]:
    """Return lines of the head with the places that they have in the base.

    `sources` holds by file of the head the name of that file in the base, and its text in the base and in the head. A
    line of another file keeps its place unknown.
    """
    numbers = {file: same_lines(old, new) for file, (_, old, new) in sources.items()}
    return tuple(
        replace(
            line,
            base_line=numbers[line.file].get(line.line, 0),
            base_file=sources[line.file][0] if sources[line.file][0] != line.file else "",
        )
        if line.file in numbers
        else line
        for line in lines
    )


def same_lines(base: str, head: str) -> dict[int, int]:
    r"""Return by number of a line of the head, from 1, that of the same line of the base; new lines are left out.

    Indentation does not count. A line that was edited is the same line, as long as its block has as many lines as
    before; a line that was moved is found where its text is unique.

    >>> same_lines("a;\nb;\nc;", "// new\na;\nif (x) {\n  b2;\n}\nc;"), same_lines("a;\nb;", "a;\n  b + 1;")
    ({2: 1, 6: 3}, {1: 1, 2: 2})
    >>> same_lines("a;\nb;\nc;", "b;\nc;\na;")
    {1: 2, 2: 3, 3: 1}
    """
    old, new = ([" ".join(line.split()) for line in text.split("\n")] for text in (base, head))
    found = dict(_paired(old, new))
    found |= _moved(old, new, found)
    return dict(sorted(found.items()))


def _paired(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the numbers of the lines that a diff leaves in their order: (head, base)."""
    first = _common(old, new)
    last = _common(old[first:][::-1], new[first:][::-1])
    yield from ((number + 1, number + 1) for number in range(first))
    yield from ((len(new) - back, len(old) - back) for back in range(last))
    middle = SequenceMatcher(None, old[first : len(old) - last], new[first : len(new) - last], autojunk=False)
    for kind, begin, end, now, until in middle.get_opcodes():
        if kind == "equal" or (kind == "replace" and end - begin == until - now):
            yield from ((first + now + step + 1, first + begin + step + 1) for step in range(end - begin))


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many lines both begin with."""
    pairs = zip(old, new, strict=False)
    return next((place for place, (before, now) in enumerate(pairs) if before != now), min(len(old), len(new)))


def _moved(old: Sequence[str], new: Sequence[str], found: Mapping[int, int]) -> dict[int, int]:
    """Return the lines that are left, and whose text is unique among those that are left on both sides."""
    taken = set(found.values())
    mine, theirs = (
        _unique((number, text) for number, text in enumerate(lines, start=1) if text and number not in known)
        for lines, known in ((new, found), (old, taken))
    )
    return {mine[text]: theirs[text] for text in mine if text in theirs}


def _unique(lines: Iterable[tuple[int, str]]) -> dict[str, int]:
    lines = list(lines)
    counted = Counter(text for _, text in lines)
    return {text: number for number, text in lines if counted[text] == 1}
