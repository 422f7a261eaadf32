"""The hash of the rule changes with what decides on pairs, and with nothing else."""

import ast
import re
from pathlib import Path

from ci_perf.audit.rule import MODULES, meaning, rule_hash
from tests.project.test_project import ROOT

JUDGE = ROOT / "ci_perf/judge"
NOT_DECIDING = {"causes", "finding", "gates", "parts"}
"""Modules that `pairs` imports, directly or not, for the words and other checks of a row."""


def imported(name):
    """Return the modules of the judge that one of them imports."""
    path = JUDGE / f"{name}.py"
    text = path.read_text() if path.is_file() else ""
    return set(re.findall(r"^from ci_perf\.judge\.(\w+)", text, re.MULTILINE))


def test_every_module_that_decides_on_pairs_is_hashed():
    found, new = set(), {"pairs"}
    while new:
        found |= new
        new = {name for module in new for name in imported(module)} - found - NOT_DECIDING

    assert found == set(MODULES)


def test_words_and_layout_do_not_change_the_hash_but_numbers_and_conditions_do():
    source = (JUDGE / "looks.py").read_text()
    same = '"""Other words."""\n# a comment\n' + source.replace('"""', '"""Words. ', 1)

    assert meaning(same) == meaning(source)
    assert meaning(source.replace("FAKED = 0.005", "FAKED = 0.006")) != meaning(source)
    assert meaning(source.replace("share(24)", "share(25)")) == meaning(source)
    assert meaning("def f(x):\n    return x < 1") != meaning("def f(x):\n    return x <= 1")
    assert re.fullmatch("[0-9a-f]{12}", rule_hash())
    assert ast.parse(meaning(Path(JUDGE / "pairs.py").read_text()))
