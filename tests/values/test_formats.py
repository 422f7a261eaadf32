"""Files of released versions stay readable, and files of newer minor versions keep what this version does not know."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ci_perf.audit.file import dump_session, load_sessions
from ci_perf.fleet.merge import merge_runs
from ci_perf.guard.redact import redact_run
from ci_perf.guard.spellings import needles_of
from ci_perf.judge.baseline import make_baselines
from ci_perf.judge.report import build_report
from ci_perf.values.codec import canonical, dump_baseline, dump_plan, dump_run, load_baseline, load_plan, load_run
from ci_perf.values.errors import ConfigError, FormatError
from ci_perf.values.kernel_toml import parse_kernel
from ci_perf.values.run import Note
from ci_perf.values.schema import validator

REPOSITORY = Path(__file__).parents[2]
FORMATS = REPOSITORY / "tests" / "data" / "formats"


def rewrite_audit(text: str, source: str) -> str:
    sessions, warnings = load_sessions(text, source)
    assert warnings == ()
    return "".join(map(dump_session, sessions))


REWRITE: dict[str, Callable[[str, str], str]] = {
    "run": lambda text, source: dump_run(load_run(text, source)),
    "baseline": lambda text, source: dump_baseline(load_baseline(text, source)),
    "plan": lambda text, source: dump_plan(load_plan(text, source)),
    "audit": rewrite_audit,
}


def files(*suffixes: str) -> list[Path]:
    return sorted(path for path in FORMATS.glob("*/*") if path.suffix in suffixes)


def kind_of(path: Path) -> str:
    return path.stem.partition("-")[0]


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def test_there_is_a_file_of_each_kind():
    assert {kind_of(path) for path in files(".json", ".jsonl", ".toml")} == {*REWRITE, "kernel"}


@pytest.mark.parametrize("path", files(".json", ".jsonl"), ids=name_of)
def test_a_file_of_a_released_version_is_read_and_nothing_is_lost(path):
    text = path.read_text(encoding="utf-8")

    assert REWRITE[kind_of(path)](text, path.name) == text


@pytest.mark.parametrize("path", files(".toml"), ids=name_of)
def test_a_kernel_of_a_released_version_is_read(path):
    assert parse_kernel(path.read_text(encoding="utf-8"), name="sdpa", folder="kernels/sdpa").cases


@pytest.mark.parametrize("path", [path for path in files(".json") if kind_of(path) == "run"], ids=name_of)
def test_a_run_of_a_released_version_is_judged(path):
    assert build_report(load_run(path.read_text(encoding="utf-8"), path.name)).rows


def grown(node: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """Return a document with an unknown key in every object whose keys the schema lists."""
    for branch in schema.get("anyOf", ()):
        if "$ref" in branch:
            schema = branch
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if isinstance(node, list):
        return [grown(item, schema["items"], root) for item in node]
    if not isinstance(node, dict):
        return node
    if "properties" in schema:
        known = {key: grown(value, schema["properties"][key], root) for key, value in node.items()}
        return {**known, "later": {"at": ["any", "depth"]}}
    return {key: grown(value, schema["additionalProperties"], root) for key, value in node.items()}


def newer(text: str, kind: str) -> str:
    """Return a file with unknown keys as a newer minor version would write it."""
    schema = validator(kind).schema
    document = grown(json.loads(text), schema, schema)
    document["schema"] += ".7"
    if kind == "audit":
        return json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n"
    return canonical(document)


@pytest.mark.parametrize("path", files(".json", ".jsonl"), ids=name_of)
def test_unknown_keys_of_a_newer_minor_version_are_kept_when_the_file_is_written_again(path):
    kind, text = kind_of(path), path.read_text(encoding="utf-8")
    text = "".join(newer(line, kind) for line in (text.splitlines() if path.suffix == ".jsonl" else [text]))

    assert text.count('"later"') > 5
    assert REWRITE[kind](text, path.name) == text


def test_unknown_keys_survive_redaction_a_merge_and_a_new_baseline():
    run = load_run(newer((FORMATS / "0.1.0" / "run-baseline.json").read_text(encoding="utf-8"), "run"), "run.json")
    one_case = replace(run.kernels[0], cases={"s128": run.kernels[0].cases["s128"]})
    run = replace(run, kernels=(one_case,), notes=(Note("leak", "hunter2hunter2"),))
    (baseline,) = make_baselines(run, [], "me", "run.json")

    redacted = redact_run(run, needles_of({"PASSWORD": "hunter2hunter2"}))
    assert "hunter2" not in dump_run(redacted)
    assert redacted.unknown_keys == run.unknown_keys
    assert redacted.measurements[0].unknown_keys == run.measurements[0].unknown_keys != ()
    merged = merge_runs({"a": run})
    assert (merged.unknown_keys, merged.measurements[0].unknown_keys) == (
        run.unknown_keys,
        run.measurements[0].unknown_keys,
    )
    assert '"later"' in dump_baseline(baseline)


@pytest.mark.parametrize("path", files(".json", ".jsonl"), ids=name_of)
def test_a_newer_major_version_is_refused_with_file_version_and_remedy(path):
    text = re.sub(r'("schema": ?"[^"]*)1"', r'\g<1>2.3"', path.read_text(encoding="utf-8"))

    with pytest.raises(
        FormatError, match=rf"^{path.name}(:1)?: key `schema`: format 2 of the {kind_of(path)} file"
    ) as error:
        REWRITE[kind_of(path)](text, path.name)
    assert error.value.hint == "a newer ci-perf wrote the file: upgrade ci-perf"


def test_a_kernel_may_name_its_format_and_an_unknown_key_stays_an_error():
    text = 'schema = "urn:ci-perf:kernel:{}"\nentry = "kernel.py"\n[cases.a]\n'

    assert parse_kernel(text.format("1"), name="a", folder="a").entry == "kernel.py"
    with pytest.raises(ConfigError, match=r"^a/kernel.toml: key `schema`: format 2 of the kernel file"):
        parse_kernel(text.format("2"), name="a", folder="a")
    with pytest.raises(ConfigError, match="unknown key `shiny`") as error:
        parse_kernel("shiny = 1\n" + text.format("1.1"), name="a", folder="a")
    assert error.value.hint == "kernel.toml is written for format 1.1; this ci-perf reads 1.0: upgrade ci-perf"
    with pytest.raises(ConfigError, match="unknown key `entri`") as error:
        parse_kernel('entri = "kernel.py"\n[cases.a]\n', name="a", folder="a")
    assert error.value.hint.startswith("did you mean entry")


def test_the_schemas_are_generated_from_the_types():
    script = REPOSITORY / "scripts" / "generate-schemas"

    subprocess.run([sys.executable, str(script), "--check"], check=True)
