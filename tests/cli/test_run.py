"""The whole program in temporary repositories: real files, real worker processes, on the CPU."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from ci_perf import store
from ci_perf.cli import program
from ci_perf.values.settings import SETTINGS, variable
from tests.measure.nap_repository import NAP, commit, git
from tests.measure.test_worker import is_alive, wait_for

pytestmark = pytest.mark.slow

# Turns for a time on a core, so that its time is the same however busy the machine is.
SPIN = """
from time import thread_time

def make_inputs(rng, device, **case):
    return case.get("ms", 0.01) / 1e3

def launch(seconds):
    end = thread_time() + seconds
    while thread_time() < end:
        pass
    return seconds

def reference(seconds):
    return seconds

def cost(**case):
    return {"flop": 2.0, "bytes": 8.0}
"""
BROKEN = SPIN.replace("return seconds", "return 2.0", 1)
TOML = 'entry = "kernel.py"\ndevices = ["cpu"]\n'
BRIEF = ("--processes", "1", "--samples", "5")
ACCEPTABLE = ("--processes", "5", "--samples", "5")


@pytest.fixture(autouse=True)
def repository(tmp_path, monkeypatch, bare_python):
    """An empty repository, and an environment in which only the interpreter is set."""
    settle(monkeypatch, tmp_path, bare_python)
    return tmp_path


def settle(monkeypatch, root, python):
    for name in ("GITHUB_EVENT_NAME", *(variable(setting.name) for setting in SETTINGS)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CI_PERF_PYTHON", python)
    monkeypatch.chdir(root)


def a_kernel(root, name="spin", *, source=SPIN, toml=TOML, cases=(("short", "ms = 0.01"),)):
    folder = root / "kernels" / name
    folder.mkdir(parents=True, exist_ok=True)
    tables = "".join(f"[cases.{case}]\n{params}\n" for case, params in cases)
    (folder / "kernel.toml").write_text(toml + tables)
    (folder / "kernel.py").write_text(source)


def ci_perf(*arguments):
    return CliRunner().invoke(program, [str(argument) for argument in arguments])


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def verdicts(done):
    return {
        f"{case['kernel']}/{case['case']}": (case["verdict"], case["code"]) for case in json.loads(done.stdout)["cases"]
    }


@pytest.fixture(scope="module")
def broken_run(tmp_path_factory, bare_python):
    """A run of three kernels, one of which is broken; many tests read it."""
    root = tmp_path_factory.mktemp("broken")
    for name in ("alpha", "broken", "omega"):
        a_kernel(root, name, source=BROKEN if name == "broken" else SPIN)
    with pytest.MonkeyPatch.context() as patch:
        settle(patch, root, bare_python)
        done = ci_perf("run", *ACCEPTABLE)
    return root / "ci-perf-run", done


def test_a_broken_kernel_is_a_red_row_and_does_not_affect_the_others(broken_run):
    folder, done = broken_run
    run = store.read_run(folder)

    assert done.exit_code == 1
    assert run.finished
    assert [(m.kernel, len(m.replicates), bool(m.failure)) for m in run.measurements] == [
        ("alpha", 5, False),
        ("broken", 0, True),
        ("omega", 5, False),
    ]
    assert "broken/short  ✗ FAILED" in done.stdout
    assert "1 failed kernel, 2 new cases" in done.stdout
    assert "Fix the failed kernels first" in done.stdout


def test_a_run_writes_its_files_and_names_that_of_the_comment(broken_run):
    folder, done = broken_run
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*")} - {".gitignore"}

    assert found == {
        "index.md",
        "report.html",
        "run.json",
        "report.md",
        "smoke.txt",
        "env.txt",
        "key_metrics.csv",
        "logs",
        "logs/worker.stderr.txt",
        "logs/worker.stdout.txt",
    }
    assert done.stdout.endswith("report.md is the comment that a pull request gets; --markdown prints it.\n")


@pytest.mark.parametrize("kind", ["file", "folder", "zip", "zip-of-folder"])
def test_a_replay_prints_the_same_report_as_the_run(broken_run, tmp_path, kind):
    folder, done = broken_run
    archive = tmp_path / "run.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.write(folder / "run.json", "run.json" if kind == "zip" else "artifact/ci-perf-run/run.json")
    path = {"file": folder / "run.json", "folder": folder}.get(kind, archive)
    replayed = ci_perf("replay", path)

    assert replayed.exit_code == done.exit_code == 1
    assert done.stdout.startswith(replayed.stdout)
    assert replayed.stdout.endswith("Fix the failed kernels first: their speed is not known.\n")


def test_a_report_has_exit_status_0_in_every_format(broken_run):
    folder, _ = broken_run
    texts = {}
    for form in ("--text", "--json", "--csv", "--junit", "--html", "--markdown"):
        done = ci_perf("report", folder, form)
        assert done.exit_code == 0
        texts[form] = done.stdout

    assert json.loads(texts["--json"])["exit_status"] == 1
    assert texts["--csv"] == (folder / "key_metrics.csv").read_text()
    assert ElementTree.fromstring(texts["--junit"]).get("failures") == "1"
    assert texts["--html"].startswith("<!doctype html>")
    assert texts["--markdown"] == (folder / "report.md").read_text()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(lambda text: text[: len(text) // 2], "not JSON", id="truncated"),
        pytest.param(lambda _: "", "hint: the file is empty", id="empty"),
        pytest.param(lambda _: '{"results": []}', "key `schema`: None is not a ci-perf schema", id="foreign"),
        pytest.param(lambda _: "[1]", "key `schema`: None is not a ci-perf schema", id="list"),
        pytest.param(lambda text: text.replace("run:1", "run:2"), "format 2 of the run file", id="newer"),
        pytest.param(lambda text: text.replace("run:1", "baseline:1"), "this is a baseline file", id="baseline"),
        pytest.param(lambda text: text.replace('"cpu"', '"tpu"'), "is not one of", id="unknown-device"),
        pytest.param(lambda _: "version https://git-lfs.github.com/spec/v1\n", "git lfs pull", id="lfs-pointer"),
        pytest.param(lambda _: "\udcff", "cannot be read", id="not-utf-8"),
    ],
)
def test_a_file_that_is_not_a_run_is_refused_in_one_line(broken_run, tmp_path, damage, message):
    text = damage((broken_run[0] / "run.json").read_text())
    (tmp_path / "run.json").write_text(text, errors="surrogateescape")
    done = ci_perf("replay", "run.json")

    assert done.exit_code == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert done.stderr.startswith("error: run.json: ")
    assert len(done.stderr.splitlines()) <= 2


def a_broken_zip(path, content):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("run.json", content)
    path.write_bytes(path.read_bytes().replace(b"cpu", b"gpu", 1))


def test_an_archive_that_is_damaged_or_contains_no_run_is_refused_in_one_line(broken_run, tmp_path):
    a_broken_zip(tmp_path / "damaged.zip", (broken_run[0] / "run.json").read_text())
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as file:
        file.writestr("a/run.json", "{}")
        file.writestr("b/run.json", "{}")
    damaged, two, gone = (ci_perf("replay", name) for name in ("damaged.zip", "two.zip", "gone.zip"))

    assert {damaged.exit_code, two.exit_code, gone.exit_code} == {2}
    assert damaged.stderr.startswith("error: damaged.zip: the archive cannot be unpacked: Bad CRC-32")
    assert two.stderr == "error: two.zip: holds 2 files called run.json, expected one\n"
    assert gone.stderr == "error: gone.zip: there is no run\nhint: `ci-perf run` writes one\n"


def test_accept_then_an_unchanged_run_then_a_planted_slowdown(repository):
    """End to end: an unchanged run raises no alarm, and a planted slowdown does, confirmed in turns."""
    toml = TOML + "[cases.long]\nmicroseconds = 50\n"
    a_kernel(repository, "nap", source=NAP.format(factor=1.0), toml=toml, cases=())
    (repository / ".gitignore").write_text("/ci-perf-run/\n__pycache__/\n")
    git("init", "--quiet")
    git("config", "user.name", "a developer")
    git("config", "user.email", "developer@users.noreply.github.com")
    commit("a kernel")
    six = ("--processes", "6", "--samples", "5")

    first = ci_perf("run", *six, "--json")
    assert verdicts(first) == {"nap/long": ("NEW", "no-baseline")}
    accepted = ci_perf("baseline", "accept", "ci-perf-run")
    assert (accepted.exit_code, accepted.stdout.count("wrote baselines/cpu-")) == (0, 1)
    assert ci_perf("baseline", "check").stdout == "1 baseline file, 0 problems\n"
    assert ci_perf("baseline", "diff", "ci-perf-run", "--json").stdout == "[]\n"
    commit("its baseline")

    second = ci_perf("run", *six, "--json")
    assert {case: verdict for case, (verdict, _) in verdicts(second).items()} == {"nap/long": "UNCHANGED"}
    assert second.exit_code == 0

    planted = ci_perf("run", *six, "--json", "--plant-slowdown", "50%")
    assert verdicts(planted) == {"nap/long": ("REGRESSION", "slower")}
    assert planted.exit_code == 1
    assert json.loads(planted.stdout)["cases"][0]["change"]["ratio"] == pytest.approx(1.5, rel=0.01)
    assert json.loads(planted.stdout)["planted"] == 0.5
    (measurement,) = store.read_run(repository / "ci-perf-run").measurements
    assert [replicate.batch for replicate in measurement.replicates] == [0] * 6 + [1] * 6

    for command in ("accept", "diff"):
        refused = ci_perf("baseline", command, "ci-perf-run")
        assert refused.exit_code == 2
        assert "this run was slowed down on purpose" in refused.stderr


def test_only_complete_runs_can_become_baselines(broken_run, repository):
    folder, _ = broken_run
    text = (folder / "run.json").read_text()
    (repository / "unfinished.json").write_text(text.replace('"finished": true', '"finished": false'))
    refusals = {
        ("unfinished.json",): "unfinished.json: this run did not finish",
        (folder,): "no usable time for case `broken/short`",
        (folder, "beta"): "the run has no kernel `beta`",
    }
    for arguments, message in refusals.items():
        done = ci_perf("baseline", "accept", *arguments)
        assert done.exit_code == 2
        assert message in done.stderr
    assert not (repository / "baselines").exists()

    assert ci_perf("baseline", "accept", folder, "alpha").exit_code == 0
    diff = ci_perf("baseline", "diff", folder, "omega", "--json")
    assert [(row["kernel"], row["what"], row["old"]) for row in json.loads(diff.stdout)] == [("omega", "added", None)]


def test_accept_shows_old_and_new_and_refuses_a_run_of_files_that_differ_from_the_commit(broken_run, repository):
    run = json.loads((broken_run[0] / "run.json").read_text())
    for name, recorded in (("clean.json", "1234567"), ("dirty.json", "1234567-dirty")):
        run["provenance"]["commit"] = recorded
        (repository / name).write_text(json.dumps(run))

    refused = ci_perf("baseline", "accept", "dirty.json", "alpha")
    assert refused.exit_code == 2
    assert "dirty.json: the run measured files that differed from commit 1234567\n" in refused.stderr
    run["provenance"]["commit"] = None
    run["notes"] = [{"code": "no-git", "message": "git refuses it", "hint": "trust it"}]
    (repository / "unknown.json").write_text(json.dumps(run))
    refused = ci_perf("baseline", "accept", "unknown.json", "alpha")
    assert refused.exit_code == 2
    assert "is not known: git refuses it\nhint: trust it; then measure again" in refused.stderr
    assert not (repository / "baselines").exists()

    for arguments in (("clean.json",), ("dirty.json", "--allow-dirty"), ("unknown.json", "--allow-dirty")):
        accepted = ci_perf("baseline", "accept", *arguments, "alpha")
        assert accepted.exit_code == 0, accepted.stderr
        assert accepted.stderr.split()[:6] == ["case", "device", "what", "old", "new", "change"]


def test_baseline_check_names_each_problem_and_fails(broken_run, repository):
    a_kernel(repository, "alpha", cases=(("other", "ms = 0.01"),))
    ci_perf("baseline", "accept", broken_run[0], "alpha")
    (file,) = (repository / "baselines").glob("*/alpha.json")
    file.with_name("beta.json").write_text(file.read_text().replace("\n", "\n "))
    file.with_name("gamma.json").write_text("{")
    done = ci_perf("baseline", "check")

    assert done.exit_code == 2
    for complaint in (
        "alpha.json: key `cases.short`: the kernel has no such case",
        "beta.json: holds alpha on ",
        "beta.json: not in canonical form",
        "gamma.json: not JSON",
        "3 baseline files, 5 problems",
    ):
        assert complaint in done.stdout


def test_a_damaged_baseline_stops_the_run_before_anything_is_measured(broken_run, repository):
    a_kernel(repository, "alpha")
    ci_perf("baseline", "accept", broken_run[0], "alpha")
    (file,) = (repository / "baselines").glob("*/alpha.json")
    good, run_file = file.read_text(), repository / "ci-perf-run/run.json"
    ci_perf("run", *BRIEF)
    before = run_file.read_text()
    file.write_text("{")
    done = ci_perf("run", *BRIEF)

    assert done.exit_code == 2
    assert "alpha.json: not JSON" in done.stderr
    assert run_file.read_text() == before
    file.write_text(good)
    assert ci_perf("run", *BRIEF).exit_code == 0


def test_a_baseline_in_the_place_of_another_stops_a_run_of_its_kernel_alone(broken_run, repository):
    a_kernel(repository, "alpha")
    a_kernel(repository, "beta")
    ci_perf("baseline", "accept", broken_run[0], "alpha")
    (file,) = (repository / "baselines").glob("*/alpha.json")
    file.rename(file.with_name("beta.json"))
    done = ci_perf("run", *BRIEF)

    assert (done.exit_code, ci_perf("run", "alpha", *BRIEF).exit_code) == (2, 0)
    assert "beta.json: holds alpha on " in done.stderr
    assert "hint: `ci-perf baseline check` names all errors" in done.stderr


def test_a_median_that_was_edited_by_hand_stops_a_run(broken_run, repository):
    a_kernel(repository, "alpha")
    ci_perf("baseline", "accept", broken_run[0], "alpha")
    (file,) = (repository / "baselines").glob("*/alpha.json")
    document = read(file)
    document["cases"]["short"]["time"]["median"] *= 2
    file.write_text(json.dumps(document))
    done = ci_perf("run", *BRIEF)

    assert done.exit_code == 2
    assert "alpha.json: key `cases.short.time.median`: does not follow from the values beside it" in done.stderr


def test_a_wrong_kernel_toml_does_not_stop_a_run_of_other_kernels(repository):
    a_kernel(repository, "good")
    (repository / "kernels/bad").mkdir()
    (repository / "kernels/bad/kernel.toml").write_text("entry = ")

    assert [ci_perf("list", *names).exit_code for names in (["good"], ["g*/*"], [], ["bad"], ["*"])] == [0, 0, 2, 2, 2]
    done = ci_perf("run", "good", *BRIEF)
    assert (done.exit_code, "kernels/bad" in done.stderr) == (0, False)


def test_a_byte_order_mark_of_kernel_toml_and_of_the_settings_is_read(repository):
    a_kernel(repository, "alpha")
    for file in (repository / "kernels/alpha/kernel.toml", repository / "ci-perf.toml"):
        file.write_bytes(b"\xef\xbb\xbf" + (file.read_bytes() if file.exists() else b'kernels-dir = "kernels"\n'))
    assert ci_perf("list").exit_code == 0

    (repository / "ci-perf.toml").write_text('kernels-dir = "kernels"\n', encoding="utf-16")
    assert "hint: save the file as UTF-8" in ci_perf("list").stderr


def test_a_missing_gpu_that_was_requested_is_exit_status_3(repository):
    a_kernel(repository)
    done = ci_perf("run", "--device", "cuda")

    assert done.exit_code == 3
    assert "error: no GPU to measure on" in done.stderr
    assert "hint: name the interpreter that has torch with --python PATH; `ci-perf doctor` says" in done.stderr


def test_requesting_a_profiler_changes_nothing_on_a_cpu(repository):
    a_kernel(repository)

    assert ci_perf("run", *BRIEF, "--profile", "ncu").exit_code == 0


@pytest.mark.parametrize(
    ("slug", "chosen", "flags", "status"),
    [
        ("h200", "", (), 3),
        ("cpu-other", "", (), 0),
        ("", "GPU-00000000-dead", (), 3),
        ("", "-1", (), 0),
        ("h200", "GPU-00000000-dead", ("--device", "cpu"), 0),
    ],
)
def test_a_run_that_falls_back_to_the_cpu_where_a_gpu_is_expected_fails(
    repository, monkeypatch, slug, chosen, flags, status
):
    a_kernel(repository)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    if slug:
        file = repository / f"baselines/{slug}/other.json"
        file.parent.mkdir(parents=True)
        file.write_text("{}")

    done = ci_perf("run", *BRIEF, *flags, "--json")

    report = json.loads(done.stdout)
    assert (done.exit_code, "gpu-expected" in [note["code"] for note in report["notes"]]) == (status, status == 3)
    assert report["headline"].startswith("no usable GPU: measured on the CPU") == (status == 3)


def test_on_a_cpu_the_reference_of_a_gpu_kernel_is_timed_with_a_note(repository):
    a_kernel(repository, toml=TOML.replace("cpu", "cuda"))
    done = ci_perf("run", *BRIEF, "--json")

    assert done.exit_code == 0
    assert [note["code"] for note in json.loads(done.stdout)["notes"]] == ["no-gpu", "reference-timed"]
    (measurement,) = store.read_run(repository / "ci-perf-run").measurements
    assert measurement.replicates[0].method == "perf-counter/reference"


def test_a_pattern_that_matches_nothing_is_an_error_before_anything_starts(repository):
    a_kernel(repository)
    done = ci_perf("run", "spinn")

    assert done.exit_code == 2
    assert done.stderr == "error: no case matches `spinn`\nhint: did you mean spin?\n"
    assert not (repository / "ci-perf-run").exists()


def by_flag(name, value, root):
    del root
    return (f"--{name}", value), f"flag --{name}"


def by_environment(name, value, root):
    del root
    os.environ[variable(name)] = value
    return (), f"environment {variable(name)}"


def by_file(name, value, root):
    (root / "ci-perf.toml").write_text(f'{name} = "{value}"\n')
    return (), f"ci-perf.toml: key `{name}`"


def by_pyproject(name, value, root):
    (root / "pyproject.toml").write_text(f'[tool.ci-perf]\n{name} = "{value}"\n')
    return (), f"pyproject.toml: key `{name}`"


SOURCES = [by_flag, by_environment, by_file, by_pyproject]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("processes", "six", "'six' is not a number"),
        (
            "regression-threshold",
            "3",
            "'3' is not between 0 and 1\nhint: a number without % must be below 1: did you mean 3%?",
        ),
        ("fail-on", "regresion", "`regresion` is not one of regression,"),
        ("device", "gpu", "`gpu` is not one of auto, cpu, cuda\nhint: did you mean cuda?"),
        ("profile", "nsight", "`nsight` is not one of auto, none, nsys, ncu"),
    ],
)
def test_a_wrong_value_names_its_source_and_its_key(repository, monkeypatch, source, name, value, message):
    monkeypatch.setenv(variable(name), "")
    a_kernel(repository)
    flags, where = source(name, value, repository)
    done = ci_perf("run", *flags)

    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {where}: {message}")


@pytest.mark.parametrize("source", [by_file, by_pyproject])
def test_an_unknown_key_in_the_settings_file_is_an_error(repository, source):
    a_kernel(repository)
    _, where = source("proceses", "3", repository)
    done = ci_perf("run")

    assert done.exit_code == 2
    assert done.stderr == f"error: {where}: there is no such setting\nhint: did you mean processes?\n"


def test_the_error_for_a_settings_file_that_is_not_toml_names_it(repository):
    (repository / "ci-perf.toml").write_text("samples =\n")

    assert ci_perf("list").stderr.startswith("error: ci-perf.toml: Invalid value (at line 1")


def test_config_selects_another_settings_file(repository):
    a_kernel(repository, toml=TOML)
    (repository / "ci-perf.toml").write_text("samples = 7\n")
    (repository / "nightly.toml").write_text("processes = 9\n")

    done = ci_perf("run", "--show-settings", "--config", "nightly.toml")
    missing = ci_perf("run", "--show-settings", "--config", "nowhere.toml")

    assert re.search(r"processes +9 +nightly.toml: key `processes`", done.stdout)
    assert re.search(r"samples +30 +default", done.stdout)
    assert missing.exit_code == 2
    assert missing.stderr.startswith("error: nowhere.toml: there is no such file of settings")


def test_show_settings_says_where_each_value_came_from(repository, monkeypatch):
    a_kernel(repository, toml=TOML + '[policy]\nregression = "4%"\nspeedup = "20%"\ntimeout = 9\n')
    (repository / "ci-perf.toml").write_text('samples = 7\nprocesses = 7\ntimeout = 7\nspeedup-threshold = "7%"\n')
    monkeypatch.setenv("CI_PERF_PROCESSES", "8")
    monkeypatch.setenv("CI_PERF_TIMEOUT", "8")
    done = ci_perf("run", "--show-settings", "--timeout", "9", "--regression-threshold", "5%")
    shown = {tuple(re.split(r"\s{2,}", line.strip())) for line in done.stdout.splitlines()}

    assert done.exit_code == 0
    assert shown >= {
        ("timeout", "9.0", "flag --timeout"),
        ("processes", "8", "environment CI_PERF_PROCESSES"),
        ("samples", "7", "ci-perf.toml: key `samples`"),
        ("kernels-dir", "kernels", "default"),
        ("regression-threshold of spin", "0.04", "kernels/spin/kernel.toml (outranked)"),
        ("speedup-threshold of spin", "0.2", "kernels/spin/kernel.toml"),
    }
    assert not (repository / "ci-perf-run").exists()


def test_a_flag_overrides_kernel_toml_which_overrides_the_settings_file(repository):
    a_kernel(repository, source=SPIN + "\nimport time\ntime.sleep(600)\n", toml=TOML + "[policy]\ntimeout = 0.2\n")
    (repository / "ci-perf.toml").write_text("timeout = 0.3\n")

    for flags, limit in ((), "0.2 s"), (("--timeout", "0.1"), "0.1 s"):
        done = ci_perf("run", *BRIEF, "--json", *flags)
        assert verdicts(done) == {"spin/short": ("FAILED", "timeout")}
        assert limit in done.stdout


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        (None, "kernels: there is no such folder"),
        (None, "`ci-perf init` sets up a first kernel"),
        ("entry = 'kernel.py'\n", "kernels/spin/kernel.toml: `cases` is missing but required"),
        ("entry = 'kernel.py'\nentry = 'kernel.py'\n", "kernels/spin/kernel.toml: Cannot overwrite a value"),
        (
            "entry = 'kern.py'\n[cases.a]\n",
            "kernels/spin/kernel.toml: key `entry`: there is no file `kernels/spin/kern.py`",
        ),
        (
            "entry = 'kernel.py'\n[cases.A]\n",
            "kernels/spin/kernel.toml: key `cases`: 'A' does not have the expected form",
        ),
        (
            "entry = 'kernel.py'\n[cases.a]\n[sweep]\n'a|b' = [1]\n",
            "kernels/spin/kernel.toml: key `sweep`: 'a|b' does not",
        ),
        ("entry = 'kernel.py'\n[cases.a]\n[gates]\nsm_pct = '>= 5'\n", "key `gates.sm_pct`: no counter has this name"),
        ("entry = 'kernel.py'\ncpu_cases = ['b']\n[cases.a]\n", "key `cpu_cases`: no case is called `b`"),
    ],
)
def test_a_wrong_kernels_folder_is_named_with_file_and_key(repository, toml, message):
    if toml is not None:
        a_kernel(repository, toml=toml, cases=())
    done = ci_perf("list")

    assert done.exit_code == 2
    assert message in done.stderr
    assert "hint: " in done.stderr


def test_a_kernels_folder_may_have_another_name(repository):
    a_kernel(repository)
    shutil.move(repository / "kernels", repository / "ops")

    assert "spin/short" in ci_perf("list", "--kernels-dir", "ops").stdout


def test_list_gives_programs_every_case(repository):
    a_kernel(repository, toml=TOML + 'cpu_cases = ["short"]\n', cases=(("short", "ms = 1"), ("long", "ms = 9")))

    assert json.loads(ci_perf("list", "--json").stdout) == [
        {"kernel": "spin", "case": "short", "params": {"ms": 1}, "launch_on": ["cpu"], "default_on_cpu": True},
        {"kernel": "spin", "case": "long", "params": {"ms": 9}, "launch_on": ["cpu"], "default_on_cpu": False},
    ]


def test_on_a_cpu_only_cpu_cases_run_unless_all_are_requested(repository):
    a_kernel(repository, toml=TOML + 'cpu_cases = ["short"]\n', cases=(("short", "ms = 0.01"), ("long", "ms = 0.02")))

    assert list(verdicts(ci_perf("run", *BRIEF, "--json"))) == ["spin/short"]
    assert list(verdicts(ci_perf("run", *BRIEF, "--json", "--all-cases"))) == ["spin/short", "spin/long"]


def test_a_run_in_a_workflow_records_the_pushed_commit_and_its_baseline_does_not(repository, monkeypatch):
    head = {"sha": "a" * 40, "repo": {"full_name": "mallory/kernels"}}
    (repository / "event.json").write_text(json.dumps({"pull_request": {"number": 7, "head": head}}))
    variables = {"EVENT_NAME": "pull_request", "EVENT_PATH": str(repository / "event.json"), "SHA": "b" * 40}
    for name, value in {**variables, "REPOSITORY": "octo/kernels"}.items():
        monkeypatch.setenv(f"GITHUB_{name}", value)
    a_kernel(repository)
    ci_perf("run", *ACCEPTABLE)
    ci_perf("baseline", "accept", "ci-perf-run")
    measured = read(repository / "ci-perf-run/run.json")["provenance"]
    (agreed,) = (repository / "baselines").rglob("*.json")

    assert (measured["repository"], measured["head"]) == ("octo/kernels", "a" * 40)
    assert not {"repository", "head"} & read(agreed)["provenance"].keys()


def test_secrets_are_passed_neither_to_the_kernel_nor_to_any_file_of_the_run(repository, monkeypatch):
    for name in ("GITHUB_TOKEN", "MY_API_KEY", "ACTIONS_RUNTIME_TOKEN", "INPUT_TOKEN", "DB_PASSWORD"):
        monkeypatch.setenv(name, "hunter2-" + name)
    monkeypatch.setenv("MY_FLAG", "public")
    shows = "\nimport os, sys\nprint(os.environ)\nprint(open('/proc/self/environ').read(), file=sys.stderr)\n"
    a_kernel(repository, source=SPIN + shows)
    done = ci_perf("run", *BRIEF)
    texts = [path.read_bytes() for path in (repository / "ci-perf-run").rglob("*") if path.is_file()]

    assert done.exit_code == 0
    assert sum(b"MY_FLAG" in text for text in texts) == 2
    assert not any(b"hunter2" in text for text in (*texts, done.output.encode()))


def test_a_new_run_replaces_the_old_one_and_keeps_other_files(repository):
    a_kernel(repository)
    ci_perf("run", *BRIEF)
    (repository / "ci-perf-run/notes.txt").write_text("mine")
    (repository / "ci-perf-run/logs/ncu.log").write_text("old")
    ci_perf("run", *BRIEF)

    assert (repository / "ci-perf-run/notes.txt").exists()
    assert not (repository / "ci-perf-run/logs/ncu.log").exists()


@pytest.mark.parametrize("start", [(sys.executable, "-m", "ci_perf"), (Path(sys.executable).with_name("ci-perf"),)])
def test_the_program_shows_every_command(start):
    done = subprocess.run([*start, "--help"], capture_output=True, text=True, check=True)

    assert done.stdout.startswith("Usage: ci-perf [OPTIONS] COMMAND")
    for command in program.commands:
        assert re.search(rf"^  {command} ", done.stdout, re.MULTILINE)


def test_an_unexpected_exception_is_reported_as_a_bug(repository, monkeypatch):
    def fail(*_):
        raise RuntimeError("the planner lost count")

    a_kernel(repository)
    monkeypatch.setattr(store, "read_kernels", fail)
    done = ci_perf("list")

    assert done.exit_code == 70
    assert "RuntimeError: the planner lost count" in done.stderr
    assert re.search(r"^This is a bug in ci-perf [\d.]+: report it with the lines above\.$", done.stderr, re.MULTILINE)


HANGS = (
    SPIN
    + """
import os, pathlib, time

def launch(seconds):
    pathlib.Path("pid").write_text(str(os.getpid()))
    time.sleep(600)
"""
)


def test_after_ctrl_c_the_run_can_be_read_and_no_process_is_left(repository):
    a_kernel(repository, "alpha")
    a_kernel(repository, "omega", source=HANGS)
    listens = ("env", "--default-signal=INT")  # a shell's job in the background inherits deaf ears
    started = subprocess.Popen(
        [*listens, sys.executable, "-m", "ci_perf", "run", *BRIEF], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    pid = wait_for(lambda: (repository / "pid").exists() and (repository / "pid").read_text())
    started.send_signal(signal.SIGINT)
    _, errors = started.communicate(timeout=300)
    run = store.read_run(repository / "ci-perf-run")

    assert started.returncode != 0
    assert b"Traceback" not in errors
    assert not run.finished
    assert [bool(m.verification) for m in run.measurements] == [True, False]
    assert not is_alive(int(pid))
    assert "the run ended before it was timed" in ci_perf("report", "ci-perf-run").stdout
    assert "did not finish" in ci_perf("baseline", "accept", "ci-perf-run").stderr


def test_a_run_that_was_killed_is_read_from_its_journal(repository):
    a_kernel(repository, "alpha")
    a_kernel(repository, "omega", source=HANGS)
    started = subprocess.Popen(
        [sys.executable, "-m", "ci_perf", "run", *BRIEF], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    pid = wait_for(lambda: (repository / "pid").exists() and (repository / "pid").read_text())
    started.kill()
    started.wait()
    os.kill(int(pid), signal.SIGKILL)
    folder = repository / "ci-perf-run"

    run = store.read_run(folder)
    assert not (folder / "run.json").exists()
    assert not run.finished
    assert [bool(m.verification) for m in run.measurements] == [True, False]
    assert "the run ended before it was timed" in ci_perf("report", "ci-perf-run").stdout
    assert ci_perf("replay", "ci-perf-run").exit_code == 3
    assert ci_perf("publish", "ci-perf-run", "--dry-run").exit_code == 0
    assert ci_perf("merge", "ci-perf-run", "--output", "merged").exit_code == 0
    assert not store.read_run(repository / "merged").finished

    a_kernel(repository, "omega")
    assert ci_perf("run", *BRIEF).exit_code == 0
    assert store.read_run(folder).finished
    assert not (folder / "run.jsonl").exists()


def test_the_run_records_how_it_was_called(repository):
    a_kernel(repository)
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
    ci_perf("run", "spin/s*", *BRIEF)

    assert shlex.split(read(repository / "ci-perf-run/run.json")["provenance"]["command"]) == [
        "ci-perf",
        "run",
        "spin/s*",
        "--processes=1",
        "--samples=5",
    ]


def test_accept_warns_of_a_noisy_run(broken_run, repository):
    run = json.loads((broken_run[0] / "run.json").read_text())
    alpha = next(measurement for measurement in run["measurements"] if measurement["kernel"] == "alpha")
    for number, replicate in enumerate(alpha["replicates"]):
        replicate["seconds"] = [1e-5 * (1 + number)] * 5
    run["notes"].append({"code": "cpu-busy", "message": "this machine is busy", "hint": ""})
    run["provenance"]["commit"] = "1234567"
    (repository / "noisy.json").write_text(json.dumps(run))

    accepted = ci_perf("baseline", "accept", "noisy.json", "alpha")

    assert accepted.exit_code == 0, accepted.stderr
    assert "warning: this machine is busy\n" in accepted.stderr
    assert "warning: alpha/short: its processes differ by 66.7 %, so no smaller slowdown" in accepted.stderr
    assert "hint: measure again where nothing else runs" in accepted.stderr
