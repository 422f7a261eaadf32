"""Every nasty text in the places of a workflow: annotations, outputs, blocks, commands to paste."""

import re
import shlex
import unicodedata

from ci_perf.github.actions import append_outputs
from ci_perf.github.event import Event
from ci_perf.github.patch import apply_command
from ci_perf.github.publish import Annotation, Level, Place
from ci_perf.github.workflow_commands import render_annotation
from ci_perf.values.escape import block, clean, without_commands
from tests.render.test_render import for_any


@for_any
def test_clean_text_is_one_line_without_control(text):
    written = clean(text)

    assert len(written.splitlines()) <= 1
    assert not [c for c in written if unicodedata.category(c)[0] == "C"]


@for_any
def test_no_line_ends_a_block(text):
    first, *lines, last = block(text).split("\n")

    assert (first, last) == ("```text", "```")
    assert not [line for line in lines if "`" in line or "<" in line or ">" in line]


@for_any
def test_no_line_of_a_message_is_a_command(text):
    written = without_commands(f"{text}\n::error::{text} ##[error]{text}\u2028 ::{text}")

    assert not [line for line in written.splitlines() if line.lstrip().startswith("::") or "##[" in line]


@for_any
def test_an_annotation_is_one_command_on_one_line(text):
    line = render_annotation(Annotation(Level.ERROR, text, text, Place("kernels/k/kernel.py", 7)))

    assert len(line.splitlines()) == 1
    command, properties, message = re.fullmatch(r"::(\w+) ([^:]*)::(.*)", line).groups()
    assert command == "error"
    assert [entry.partition("=")[0] for entry in properties.split(",")] == ["file", "line", "title"]
    assert not re.search(r"%(?!25|0A|0D)", message)


@for_any
def test_no_value_sets_another_output(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("step") / "output"
    value = text.encode("utf-8", "replace").decode()

    append_outputs({"GITHUB_OUTPUT": str(path)}, {"first": value, "second": "2"})

    written = path.read_bytes().decode()
    name, end = re.match(r"(\w+)<<(\S+)\n", written).groups()
    inner, _, rest = written.removeprefix(f"{name}<<{end}\n").partition(f"\n{end}\n")
    assert (name, inner) == ("first", value)
    assert re.fullmatch(r"second<<(\S+)\n2\n\1\n", rest)


@for_any
def test_the_command_to_apply_fetches_and_runs_nothing_else(text):
    event = Event("push", "octo/kernels", "c" * 40, run_id="12", server_url="https://github.com")

    fetch, apply = apply_command(event, text).rsplit(" &&\n  ", 1)

    assert shlex.split(fetch)[:4] == ["gh", "run", "download", "12"]
    assert shlex.split(fetch)[6:] == ["--name", text, "--dir", "ci-perf-run-12"]
    assert apply == 'git -C "$(git rev-parse --show-toplevel)" apply "$PWD/ci-perf-run-12/baseline.patch"'
