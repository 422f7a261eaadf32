"""Opening a session: what every command that runs kernels on a GPU refuses, notes and treats as invalid."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ci_perf.cli import audit as audit_command
from ci_perf.measure import gpu, lock, session
from ci_perf.values.errors import MachineError
from tests.builders import a_device
from tests.cli.test_run import SPIN, ci_perf, settle

FAKES = Path(__file__).parents[1] / "data/fakes"
TOML = 'entry = "kernel.py"\n[cases.a]\nms = 0.01\n[fuzz]\nms = [0.01, 0.02]\nstrides = ["contiguous"]\n'
RUN = ("run", "--processes", "1", "--samples", "5", "--profile", "none", "--json")
FUZZ = ("run", "--fuzz", "2", "--json")
SANITIZE = ("run", "--sanitize", "memcheck", "--json")
AUDIT = ("audit", "--file", "audit.jsonl", "--ladder", "0")
COMMANDS = pytest.mark.parametrize("command", [RUN, FUZZ, SANITIZE, AUDIT], ids=["run", "fuzz", "sanitize", "audit"])


@pytest.fixture(autouse=True)
def repository(tmp_path, monkeypatch, bare_python):
    """A repository with one kernel, and a torch that sees a GPU."""
    settle(monkeypatch, tmp_path, bare_python)
    folder = tmp_path / "kernels/spin"
    folder.mkdir(parents=True)
    (folder / "kernel.toml").write_text(TOML)
    (folder / "kernel.py").write_text(SPIN)
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "torch.py").write_text((FAKES / "torch").read_text())
    sanitizer = tmp_path / "compute-sanitizer"
    sanitizer.write_text(f"#!{sys.executable}\n" + (FAKES / "compute-sanitizer").read_text())
    sanitizer.chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.setenv("CI_PERF_COMPUTE_SANITIZER", str(sanitizer))
    monkeypatch.setattr(session, "BUSY_POLL_S", 0.0)
    monkeypatch.setattr(lock, "FOLDER", tmp_path)  # other tests may hold the lock of a GPU of this name
    monkeypatch.setattr(audit_command, "measure_session", lambda *_: SimpleNamespace(seconds=1.0))
    monkeypatch.setattr(audit_command, "append_session", lambda *_: None)
    return tmp_path


@pytest.fixture
def on_gpu(monkeypatch):
    """Return a function that lets NVML show one GPU in a state, with a number of memory errors for each query."""

    def show(state=gpu.State(others=(), busy_pct=0.0), errors=(0,)):  # noqa: B008 # frozen
        left = list(errors)
        monkeypatch.setattr(gpu, "query_gpus", lambda: (gpu.Gpu(0, "GPU-1", a_device()),))
        monkeypatch.setattr(gpu, "query_state", lambda *_: state)
        monkeypatch.setattr(gpu, "query_working", lambda *_: ())
        health = lambda _: gpu.Health(uncorrected_errors=left.pop(0) if len(left) > 1 else left[0])  # noqa: E731
        monkeypatch.setattr(gpu, "query_health", health)

    return show


@COMMANDS
def test_without_memory_errors_results_are_valid(on_gpu, command):
    on_gpu(errors=(3,))
    done = ci_perf(*command)

    assert done.exit_code == 0, done.output
    assert "memory errors" not in done.output


@COMMANDS
def test_passed_cases_are_invalid_if_the_memory_had_errors_during_the_session(on_gpu, command):
    on_gpu(errors=(3, 5))
    done = ci_perf(*command)

    assert done.exit_code == 3, done.output
    assert "2 uncorrected memory errors (ECC) while this ran" in done.output
    if command is not AUDIT:
        report = json.loads(done.stdout)
        assert {(case["verdict"], case["code"]) for case in report["cases"]} == {("INCONCLUSIVE", "memory-errors")}
        assert not any(word in report["headline"] for word in ("passed", "clean"))


@pytest.mark.parametrize("command", [RUN, FUZZ, SANITIZE], ids=["run", "fuzz", "sanitize"])
def test_failures_are_valid_even_with_memory_errors(on_gpu, repository, command):
    kernel = repository / "kernels/spin/kernel.py"
    kernel.write_text(SPIN.replace("def launch(seconds):", "def launch(seconds):\n    raise ValueError('broken')"))
    on_gpu(errors=(3, 5))
    done = ci_perf(*command)

    assert done.exit_code == 1, done.output
    assert {case["verdict"] for case in json.loads(done.stdout)["cases"]} == {"FAILED"}


@COMMANDS
def test_a_gpu_that_another_program_keeps_busy_is_refused(on_gpu, command):
    on_gpu(gpu.State(others=(gpu.Process(77, "python"),), busy_pct=98.0))
    done = ci_perf(*command, "--wait", "0.001")

    assert done.exit_code == 3, done.output
    assert "python (77) has kept this GPU busy for 0 s" in done.stderr


@COMMANDS
def test_an_idle_program_on_the_gpu_is_noted(on_gpu, command):
    on_gpu(gpu.State(others=(gpu.Process(77, "python"),), busy_pct=0.0))
    done = ci_perf(*command)

    assert done.exit_code == 0, done.output
    assert "other programs were on this GPU when the run began: python (77)" in done.output


@COMMANDS
def test_a_session_that_waits_for_the_gpu_uses_no_memory_on_it(on_gpu, monkeypatch, command):
    asked = []
    send = session.Worker.send
    monkeypatch.setattr(
        session.Worker, "send", lambda self, request: (asked.append(request["op"]), send(self, request))
    )

    def taken(*_):
        asked.append("lock")
        raise MachineError("another run has it")

    monkeypatch.setattr(session, "gpu_lock", taken)
    on_gpu()
    ci_perf(*command)

    assert asked == ["hello", "rest", "lock"]


@COMMANDS
def test_a_session_locks_its_gpu_once(on_gpu, monkeypatch, command):
    locked, lock_of = [], session.gpu_lock
    monkeypatch.setattr(session, "gpu_lock", lambda uuid, *more: (locked.append(uuid), lock_of(uuid, *more))[1])
    on_gpu()
    done = ci_perf(*command)

    assert done.exit_code == 0, done.output
    assert locked == ["GPU-1"]


@COMMANDS
def test_if_a_session_cannot_begin_the_earlier_run_is_kept(on_gpu, repository, command):
    on_gpu()
    ci_perf(*RUN)
    before = (repository / "ci-perf-run/run.json").read_text()
    on_gpu(gpu.State(others=(), busy_pct=98.0))
    ci_perf(*command, "--wait", "0.001")

    assert (repository / "ci-perf-run/run.json").read_text() == before
