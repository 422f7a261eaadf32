"""The tables of `scripts/faults` name what exists: tests, writers and encoders; every renderer is among them."""

import ast
import importlib
import re
import subprocess
import sys

import pytest
from lib.fault_table import FAULTS, SINKS

from tests.project.test_project import ROOT

NO_SINKS = {"__init__", "cells", "charts", "explanations", "fitting", "html_case", "sections", "tables"}
"""Modules of ci_perf.render whose text leaves through the others."""


def functions(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def found(reference):
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name, None)


@pytest.mark.parametrize("test", sorted({test for fault in FAULTS for test in fault.tests} | {s.test for s in SINKS}))
def test_every_fault_and_every_sink_has_a_test_that_exists(test):
    path, name = test.split("::")

    assert name in functions(path)


@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.place)
def test_the_writer_and_the_encoder_of_a_sink_exist(sink):
    assert found(f"ci_perf.{sink.writer}")
    assert found(sink.encoder)


def test_every_module_that_renders_is_a_sink():
    modules = {path.stem for path in (ROOT / "ci_perf/render").glob("*.py")}
    named = {
        sink.writer.removeprefix("render.").partition(":")[0] for sink in SINKS if sink.writer.startswith("render.")
    }

    assert modules - NO_SINKS <= named


@pytest.mark.slow
def test_the_command_prints_what_was_done_and_whether_it_ended_as_it_must():
    command = [sys.executable, ROOT / "scripts/faults", "--only", "network"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)

    lines = [line for line in ran.stdout.splitlines() if line.startswith("| network ")]
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert len(lines) == sum(fault.kind == "network" for fault in FAULTS)
    assert all(re.search(r"\| yes, [1-9]\d* of \d+ +\|$", line) for line in lines)


@pytest.mark.slow
def test_a_fault_that_cannot_be_made_is_not_green(tmp_path):
    """With a test that is not there."""
    code = (ROOT / "scripts/faults").read_text().replace("from lib.fault_table import FAULTS, SINKS", "")
    fault = "Fault('kill', 'x', 'y', ('tests/project/test_faults.py::test_no',))"
    lost = f"from lib.fault_table import Fault\nFAULTS = [{fault}]"
    copy = tmp_path / "faults.py"
    copy.write_text(code.replace("import pytest\n", f"import pytest\n{lost}\nSINKS = []\n", 1))
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'scripts')!r}); "
         f"import runpy; sys.argv = ['faults', '--only', 'kill']; runpy.run_path({str(copy)!r}, run_name='__main__')"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert ran.returncode == 1
    assert "NO: 1 missing" in ran.stdout
