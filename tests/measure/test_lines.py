"""The source line that changed most: a diff of the files of both trees tells which lines are the same."""

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci_perf.cli.two_files import compare
from ci_perf.judge.causes import explain
from ci_perf.judge.causes.lines import line_change
from ci_perf.judge.explained import at_line
from ci_perf.measure.backend import Profiled
from ci_perf.measure.both_sides import Tree, as_sides, case_codes, lines_in_base
from ci_perf.render.explanations import explanation_document
from ci_perf.traces.ncu.code import Code, Instruction
from ci_perf.traces.ncu.code_reader import read_codes
from ci_perf.traces.ncu.lines import same_lines, source_lines
from ci_perf.values.job import Job
from ci_perf.values.trace import SourceLine
from tests import corpus
from tests.builders import a_spec
from tests.measure.test_both_sides_on_gpu import HEAD, TOLD
from tests.measure.test_both_sides_on_gpu import SOURCE as TRANSPOSE

SOURCE = """\
// Scales and adds.
__global__ void f(float* y, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = 2.0f * x[i];
    }
}
"""
DATA = Path(__file__).parents[1] / "data/explain"
READS, LABEL = 5, "ci-perf:k/a"
"""The line with `x[i]`, and the label of the case."""


def instructions(of_lines, file):
    """Return an instruction for each (line, samples, bytes) or (line, samples, bytes, opcode)."""
    return tuple(
        Instruction(f"{(*more, 'LDG.E')[0]} R1, [R2]", file, line, samples, moved)
        for line, samples, moved, *more in of_lines
    )


def changed(tmp_path, base, head, ratio, by="samples", folders=("kernels/k", "kernels/k")):
    """Return the line that changed most between two sides, each of them the source and what its lines take."""
    trees, found = [], []
    for side, (source, of_lines), folder in zip(("base", "head"), (base, head), folders, strict=True):
        tree = Tree(tmp_path / side, folder)
        (tree.root / folder).mkdir(parents=True, exist_ok=True)
        (tree.root / folder / "k.cu").write_text(source)
        code = Code("f", (LABEL,), instructions(of_lines, f"{folder}/k.cu"))
        trees.append(tree)
        found.append(Profiled(counters={LABEL: ({},)}, codes={LABEL: (code,)}))
    sides = as_sides(*found, {LABEL: (trees[0], trees[1])})
    return line_change(sides.base_profiles[LABEL].lines, sides.head_profiles[LABEL].lines, ratio, by)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("trees")


BASE = (SOURCE, [(3, 60, 0), (READS, 40, 4096)])


@given(at=st.integers(0, 4), added=st.lists(st.sampled_from(["", "// more", "int j = 0;", "}"]), max_size=12))
def test_lines_that_are_inserted_above_change_nothing_in_the_sentence(scratch, at, added):
    lines = SOURCE.split("\n")
    moved = "\n".join([*lines[:at], *added, *lines[at:]])

    def head(shift):
        return [(3 + (shift if at < 3 else 0), 60, 0), (READS + shift, 240, 32768)]

    for by in ("samples", "bytes"):
        still, shifted = (
            changed(scratch, BASE, (source, head(shift)), 2.0, by)
            for source, shift in ((SOURCE, 0), (moved, len(added)))
        )
        assert (str(shifted), shifted.line, shifted.title) == (str(still), READS + len(added), still.title)
    assert str(still) == "40 -> 80 % of the samples, 4.096 -> 32.77 kB of memory traffic"


@pytest.mark.parametrize(
    ("source", "line", "before"),
    [
        (SOURCE.replace("2.0f", "2.0"), READS, READS),  # edited in its place
        (SOURCE.replace("    if", "    for (int k = 0; k < 2; ++k)\n        if"), READS + 1, READS),
        (SOURCE.replace("    ", "\t"), READS, READS),
        (SOURCE.replace("        y[i]", "        float v = x[i];\n        y[i]"), READS, 0),
    ],
    ids=["edited", "in a loop", "indented anew", "new"],
)
def test_a_line_is_that_of_the_base_if_only_its_text_or_its_place_changed(tmp_path, source, line, before):
    found = changed(tmp_path, BASE, (source, [(line, 90, 4096)]), 3.0)

    assert (found.line, found.base_line) == (line, before)
    assert str(found).endswith("a new line") == (before == 0)


def test_a_kernel_whose_folder_was_renamed_has_the_same_lines(tmp_path):
    found = changed(tmp_path, BASE, (f"\n{SOURCE}", [(READS + 1, 90, 0)]), 2.0, folders=("old/k", "kernels/k"))

    assert (found.place, found.base_pct) == (f"kernels/k/k.cu:{READS + 1}", 40.0)


def test_a_file_that_was_renamed_has_the_same_lines(tmp_path):
    tree = Tree(tmp_path / "head", "kernels/k")
    trees = Tree(tmp_path / "base", "kernels/k", {"kernels/k/new.cu": "kernels/k/old.cu"}), tree
    found = []
    for side, name, source, line in (
        (trees[0], "old.cu", SOURCE, READS),
        (trees[1], "new.cu", f"\n{SOURCE}", READS + 1),
    ):
        (side.root / "kernels/k").mkdir(parents=True)
        (side.root / "kernels/k" / name).write_text(source)
        code = Code("f", (LABEL,), instructions([(3, 60, 0), (line, 40, 0)], f"kernels/k/{name}"))
        found.append(Profiled(counters={LABEL: ({},)}, codes={LABEL: (code,)}))
    sides = as_sides(*found, {LABEL: trees})
    lines = sides.head_profiles[LABEL].lines

    assert {(line.line, line.base_file, line.base_line) for line in lines} == {
        (3, "kernels/k/old.cu", 2),
        (READS + 1, "kernels/k/old.cu", READS),
    }


def test_without_the_file_of_a_side_lines_are_compared_by_their_place(tmp_path):
    code = Code("f", (LABEL,), instructions([(7, 90, 0)], "header.cuh"))
    found = Profiled(counters={LABEL: ({},)}, codes={LABEL: (code,)})
    tree = Tree(tmp_path, "kernels/k")
    (line,) = as_sides(found, found, {LABEL: (tree, tree)}).head_profiles[LABEL].lines

    assert line.base_line is None


@pytest.mark.parametrize(
    ("edited", "expected"),
    [("neither", (READS, 40.0)), ("base", (None, 0.0)), ("head", (None, 0.0))],
    ids=["as-profiled", "base-edited-later", "head-edited-later"],
)
def test_lines_of_two_reports_from_different_folders_are_compared(tmp_path, edited, expected):
    files, reports = [], []
    for side, source in (("base", SOURCE), ("head", f"\n\n{SOURCE}")):
        (tmp_path / side / "src").mkdir(parents=True)
        files.append(tmp_path / side / "src/k.cu")
        files[-1].write_text(source)
        reports.append(tmp_path / f"{side}.ncu-rep")
        reports[-1].touch()
        profiled = reports[-1].stat().st_mtime
        os.utime(files[-1], (profiled, profiled + (1 if side == edited else -1)))
    base = [SourceLine(str(files[0]), 3, 60), SourceLine(str(files[0]), READS, 40)]
    head = [SourceLine(str(files[1]), READS + 2, 90)]
    found = line_change(base, lines_in_base(head, base, tuple(reports)), 3.0)

    assert (found.line, found.base_line, found.base_pct) == (READS + 2, *expected)


def test_lines_of_two_reports_of_one_file_are_compared_by_their_number():
    base, head = [SourceLine("/src/k.cu", READS, 40)], [SourceLine("/src/k.cu", READS, 90)]
    found = line_change(base, lines_in_base(head, base, (Path("a"), Path("b"))), 3.0)

    assert (found.line, found.base_pct) == (READS, 40.0)


@pytest.mark.parametrize(
    ("by", "ratio", "line"),
    [
        ("samples", 2.0, 3),
        ("bytes", 2.0, 4),
        ("spills", 2.0, 5),
        ("bytes", 0.5, 6),
    ],
)
def test_the_cause_says_whether_samples_bytes_or_spills_tell_the_line(tmp_path, by, ratio, line):
    source = "\n" * 9
    base = [(3, 20, 0), (4, 60, 1000), (5, 10, 0), (6, 10, 1000)]
    head = [(3, 60, 0), (4, 30, 8000), (5, 5, 0, "LDL"), (6, 5, 100)]
    found = changed(tmp_path, (source, base), (source, head), ratio, by)

    assert (found.line, found.by) == (line, by)


@pytest.mark.parametrize(("head", "by"), [(1099, None), (1120, "bytes")])
def test_where_the_samples_tell_no_line_its_bytes_do_if_they_grew_by_a_tenth(tmp_path, head, by):
    found = changed(tmp_path, ("a", [(1, 50, 1000)]), ("a", [(1, 50, head)]), 1.0)

    assert (found.by if found else None) == by


@pytest.mark.parametrize(
    ("head", "by", "expected"),
    [
        ((1111, 0), "wavefronts", None),
        ((1112, 0), "wavefronts", "wavefronts"),
        ((1120, 0), "conflicts", None),  # and its samples are the same
        ((1000, 111), "conflicts", None),
        ((1000, 112), "conflicts", "conflicts"),
        ((1120, 112), "samples", None),
    ],
)
def test_wavefronts_tell_a_line_if_a_tenth_of_them_was_added_there(head, by, expected):
    """The base has 1000, of which 100 are beyond the ideal."""
    sides = [
        [SourceLine("k.cu", 1, 50, shared_wavefronts=every, excessive_wavefronts=excessive)]
        for every, excessive in ((1000, 100), head)
    ]
    found = line_change(*sides, 1.0, by)

    assert (found.by if found else None) == expected


TRANSPOSED = Job(a_spec("transpose", folder="kernels/transpose", cases={"n4096": {}}), "n4096", {}, "cuda")


@pytest.fixture(scope="module")
def transposed(tmp_path_factory):
    """Return what `explained` needs of each side: its report, its tree, and what was profiled."""
    found = []
    for side, source in (("base", TRANSPOSE), ("head", HEAD)):
        tree = Tree(tmp_path_factory.mktemp(side), TRANSPOSED.spec.folder)
        (tree.root / tree.folder).mkdir(parents=True)
        (tree.root / tree.folder / "transpose.cu").write_text(source)
        report = tree.root / "explain.ncu-rep"
        report.write_bytes(gzip.decompress((DATA / f"h200-transpose-{side}.ncu-rep.gz").read_bytes()))
        codes = case_codes(read_codes(report), [TRANSPOSED], tree.root)
        found.append((report, tree, Profiled(counters={TRANSPOSED.label: ({},)}, codes=codes)))
    return found


def explained(base, head):
    """Return why the transpose takes another time in head than in base, as a report does."""
    label = TRANSPOSED.label
    sides = compare(base[0], head[0], {})[label].sides
    lines = as_sides(base[2], head[2], {label: (base[1], head[1])})
    return at_line(explain(sides), lines.base_profiles[label].lines, lines.head_profiles[label].lines, sides.ratio)


def test_the_line_of_a_bank_conflict_is_the_one_that_conflicts_and_not_the_one_where_warps_wait(transposed):
    base, head = transposed
    slower, faster = explained(base, head), explained(head, base)

    assert explanation_document(slower)["line"].items() >= TOLD.items()
    assert (slower.line.place, str(slower.line)) == (
        "kernels/transpose/transpose.cu:15",
        "0 -> 16.25 M wavefronts beyond the ideal, 27.6 -> 34.9 % of the samples",
    )
    assert slower.line.title == faster.line.title == "The source line whose bank conflicts changed most"
    assert (faster.line.line, faster.line.base_line, str(faster.line)) == (
        8,
        15,
        "16.25 M -> 0 wavefronts beyond the ideal, 34.9 -> 27.6 % of the samples",
    )


def test_a_moved_line_is_found_by_its_text_if_that_is_unique():
    assert same_lines("a;\n}\nb;\n}\n", "}\nb;\n}\na;\n") == {1: 2, 2: 3, 3: 4, 4: 1, 5: 5}


def test_lines_with_few_samples_are_kept_for_their_bytes():
    hot = [(line, 100.0, 0) for line in range(1, 60)]
    kept = source_lines([Code("f", (), instructions([*hot, (99, 1.0, 4096)], "k.cu"))])

    assert (len(kept), kept[-1].line, kept[-1].bytes) == (40, 99, 4096)


REPORTS = {path.values[0].name: path.values[0] for path in corpus.files("ncu-rep")}


@pytest.mark.skipif(not REPORTS, reason="the corpus is not beside the repository")
def test_the_bytes_of_a_line_are_those_that_ncu_counted_for_its_instructions():
    _, silu = read_codes(REPORTS["gh200-triton-2025-1.ncu-rep"])
    moved = {(line.file.rpartition("/")[2], line.line): line.bytes for line in source_lines([silu]) if line.bytes}

    assert moved == {("silu-triton.py", 153): 1 << 28, ("silu-triton.py", 157): 1 << 28}
