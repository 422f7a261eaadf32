"""Worker processes on kernels that fail: each failure is a value, and the next request works."""

import importlib.metadata
import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ci_perf.measure import worker_process
from ci_perf.measure.worker_process import Worker, rest
from ci_perf.store import write_run
from ci_perf.traces import chrome
from ci_perf.userside.case import Wrong
from ci_perf.userside.profiling import nvtx_functions
from ci_perf.values.codec import dump_run, load_run
from ci_perf.values.errors import MachineError
from ci_perf.values.measurement import Failure, Measurement
from tests.builders import a_cpu, a_run, a_spec
from tests.project.test_project import ROOT

pytestmark = pytest.mark.slow

SOUND = """
def make_inputs(rng, device, **case):
    return [1.0, 2.0]

def launch(inputs):
    return sum(inputs)

def reference(inputs):
    return sum(inputs)
"""
TORCH = """
import torch

def make_inputs(rng, device, **case):
    return torch.rand(8, generator=rng)

def reference(inputs):
    return 2 * inputs.double()
"""
NUMPY = """
import numpy as np

def make_inputs(rng, device, **case):
    return np.arange(8, dtype=np.float32)

def reference(inputs):
    return 2 * inputs.astype(np.float64)
"""
RAISES = "\ndef launch(inputs):\n    raise ValueError({})\n"


@pytest.fixture
def kernel(tmp_path):
    """Write a kernel.py that works, followed by the text of a test."""
    written = []

    def write(below="", *, above=SOUND):
        path = tmp_path / f"kernel{len(written)}.py"
        path.write_text(above + textwrap.dedent(below), encoding="utf-8")
        written.append(path)
        return path

    return write


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def worker(bare_python, logs):
    """A worker without torch, which starts at once."""
    with Worker(bare_python, dict(os.environ), logs) as started:
        yield started


@pytest.fixture(scope="module")
def torch_worker(tmp_path_factory):
    pytest.importorskip("torch")
    with Worker(sys.executable, dict(os.environ), tmp_path_factory.mktemp("torch-logs")) as started:
        yield started


def request(entry, op="verify", **more):
    return {"op": op, "entry": str(entry), "params": {}, "device": "cpu", "target": "launch", "samples": 5, **more}


def ask(worker, entry, op="verify", *, timeout_s=300.0, **more):
    return worker.ask(request(entry, op, **more), timeout_s)


def works(worker, kernel):
    return ask(worker, kernel())["checked"] == "launch"


@pytest.mark.parametrize(
    ("launch", "code", "message"),
    [
        pytest.param("raise KeyError('row 7')", "raised", "KeyError: 'row 7'", id="raises"),
        pytest.param("raise MemoryError", "out-of-memory", "MemoryError", id="memory-error"),
        pytest.param("import sys; sys.exit('bye')", "exited", "the kernel called exit(bye)", id="sys-exit"),
        pytest.param("import os; os._exit(3)", "exited", "the process ended with exit status 3", id="os-exit"),
        pytest.param("import ctypes; ctypes.string_at(0)", "crashed", "the process ended with SIGSEGV", id="segfault"),
        pytest.param(
            "import os; os.kill(os.getpid(), 9)", "out-of-memory", "the process was killed by SIGKILL", id="killed"
        ),
        pytest.param(
            "import os; os.kill(os.getpid(), 40)", "crashed", "the process ended with signal 40", id="real-time"
        ),
        pytest.param("raise KeyboardInterrupt", "crashed", "the process ended with SIGINT", id="interrupt"),
        pytest.param(
            "import os; os.closerange(3, 99)", "exited", "the process ended with exit status", id="closes-all"
        ),
        pytest.param(
            "return 4.0", "wrong-output", "largest error against the reference is 0.333, allowed is 1e-12", id="wrong"
        ),
        pytest.param("return float('nan')", "wrong-output", "largest error against the reference is nan", id="nan"),
        pytest.param("return ()", "wrong-output", "0 outputs, the reference has 1", id="too-few-outputs"),
        pytest.param("return {'a': 3.0, 'b': 3.0}", "wrong-output", "2 outputs, the reference has 1", id="too-many"),
    ],
)
def test_a_failing_kernel_is_a_failure_with_a_reason_and_the_next_one_works(worker, kernel, launch, code, message):
    failure = ask(worker, kernel(f"\ndef launch(inputs):\n    {launch}\n"))

    assert isinstance(failure, Failure)
    assert (failure.stage, failure.code) == ("verify", code)
    assert failure.message.startswith(message)
    assert works(worker, kernel)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param(
            "def make_inputs(rng, device): ...\n", "kernel0.py defines no function `reference`", id="no-reference"
        ),
        pytest.param("def launch(:\n", "SyntaxError: invalid syntax", id="syntax-error"),
        pytest.param("import nowhere_to_be_found\n", "ModuleNotFoundError: No module named", id="import-error"),
        pytest.param(SOUND.replace("launch", "lunch"), "defines no function `launch`", id="no-launch"),
        pytest.param(SOUND.replace("**case", "n"), "make_inputs() missing 1 required", id="parameters"),
    ],
)
def test_the_error_for_an_unusable_entry_file_says_why(worker, kernel, source, message):
    failure = ask(worker, kernel(above=source))

    assert failure.code == "raised"
    assert message in failure.message
    assert works(worker, kernel)


def test_a_reference_without_an_output_is_a_failure(worker, kernel):
    failure = ask(worker, kernel("def launch(inputs):\n    return ()\nreference = launch\n"))

    assert failure.code == "wrong-output"
    assert "returns no output" in failure.message


RAISES_AGAIN = """
def launch(inputs):
    try:
        inputs[0].nothing()
    except AttributeError as error:
        raise ValueError("again") from error
"""
DEEP = "def deep(n):\n    return deep(n - 1) if n else 1 / 0\ndef launch(inputs):\n    return deep(1) + deep(400)\n"


@pytest.mark.parametrize(
    ("source", "first", "last"),
    [
        (RAISES.format("'line one\\nline two'"), 1, "ValueError: line one\nline two"),
        (RAISES_AGAIN, 2, "ValueError: again"),
        (DEEP, 1, "ZeroDivisionError: division by zero"),
        ("raise OSError('at import')\n", 1, "OSError: at import"),
    ],
    ids=["raise", "raise from", "recursion", "import"],
)
def test_tracebacks_begin_in_the_kernel_and_end_with_the_error(worker, kernel, source, first, last):
    detail = ask(worker, kernel(source)).detail

    begins = detail.split("Traceback (most recent call last):\n")[1:]
    assert [begin.startswith('  File "') and "kernel0.py" in begin.split("\n")[0] for begin in begins] == [True] * first
    assert "userside" not in detail
    assert detail.endswith(last)


def test_parameters_that_make_inputs_does_not_take_are_named_without_a_traceback(worker, kernel):
    entry = kernel("def make_inputs(rng, device, rows):\n    return [1.0] * rows\n")
    failure = ask(worker, entry, params={"row": 4})

    assert failure.code == "raised"
    assert "unexpected keyword argument 'row'; kernel.toml gives the case the parameters row" in failure.message
    assert failure.detail == ""


def test_a_type_error_within_make_inputs_has_its_traceback(worker, kernel):
    failure = ask(worker, kernel("def make_inputs(rng, device):\n    return 1 + 'a'\n"))

    assert failure.message.startswith("TypeError")
    assert "in make_inputs" in failure.detail


@pytest.mark.parametrize("output", ["'text'", "None", "(n for n in inputs)"])
def test_an_output_that_cannot_be_compared_is_named_without_a_traceback(worker, kernel, output):
    failure = ask(worker, kernel(f"def launch(inputs):\n    return {output}\n"))

    assert failure.code == "wrong-output"
    assert failure.message.endswith(", not a tensor, an array or a number")
    assert failure.detail == ""


def test_the_line_of_the_kernel_is_shown_where_its_process_crashed(worker, kernel):
    crashing = "\nimport ctypes, sys\ndef launch(inputs):\n    print('{}', file=sys.stderr)\n    ctypes.string_at(0)\n"
    first, second = (ask(worker, kernel(crashing.format(word))) for word in ("first words", "last words"))

    assert (first.code, first.message) == ("crashed", "the process ended with SIGSEGV")
    assert first.detail.startswith("first words\nFatal Python error: Segmentation fault\n")
    assert first.detail.endswith(" in launch")
    assert "kernel0.py" in first.detail
    assert "first words" not in second.detail


def test_the_begin_and_the_end_of_a_long_stderr_are_shown(worker, kernel):
    write = (
        "import os, sys\ndef launch(inputs):\n    for i in range(200_000):\n        print('line', i, file=sys.stderr)\n"
    )

    detail = ask(worker, kernel(f"{write}    os._exit(3)\n")).detail

    assert detail.startswith("line 0\n")
    assert detail.endswith("\nline 199999")
    assert len(detail) < 10_000


def test_a_kernel_that_hangs_is_killed_with_its_child_processes(worker, kernel, tmp_path):
    hangs = kernel(f"""
        import subprocess, time
        def launch(inputs):
            child = subprocess.Popen(["sleep", "600"])
            with open({str(tmp_path / "pid")!r}, "w") as file:
                print(child.pid, file=file)
            time.sleep(600)
    """)
    worker.send(request(hangs))
    pid = wait_for(lambda: (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text())
    failure = worker.receive(0.1)

    assert (failure.code, failure.message) == ("timeout", "no answer within 0.1 s; the process was killed")
    assert wait_for(lambda: not is_alive(int(pid)))
    assert works(worker, kernel)


def test_each_case_has_its_own_process_that_lives_until_the_next_request(worker, kernel, tmp_path):
    entry = kernel(f"""
        import os
        def launch(inputs):
            with open({str(tmp_path / "pids")!r}, "a") as file:
                print(os.getpid(), file=file)
            return sum(inputs)
    """)
    alive = []
    for _ in range(3):
        ask(worker, entry)
        pids = list(dict.fromkeys(int(line) for line in (tmp_path / "pids").read_text().split()))
        alive.append([is_alive(pid) for pid in pids])

    assert len(set(pids)) == 3
    assert alive == [[True], [False, True], [False, False, True]]


def test_the_cases_of_a_kernel_import_it_once(worker, kernel, tmp_path):
    entry = kernel(f"""
        with open({str(tmp_path / "imports")!r}, "a") as file:
            print("imported", file=file)
    """)
    for _ in range(3):
        ask(worker, entry)

    assert (tmp_path / "imports").read_text().split() == ["imported"]


def test_a_kernel_may_extend_the_path_of_modules_for_its_launches(worker, kernel, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/late_module.py").write_text("def total(values):\n    return sum(values)\n")
    entry = kernel(f"""
        import sys
        sys.path.insert(0, {str(tmp_path / "src")!r})
        def launch(inputs):
            import late_module
            return late_module.total(inputs)
    """)

    assert ask(worker, entry)["checked"] == "launch"


def test_a_kernel_is_imported_before_it_is_asked_for(worker, kernel, tmp_path):
    entry = kernel(f"""
        with open({str(tmp_path / "imports")!r}, "a") as file:
            print("imported", file=file)
    """)
    worker.preload({"entry": str(path)} for path in (entry, tmp_path / "missing.py"))

    assert works(worker, kernel)
    assert ask(worker, entry)["checked"] == "launch"
    assert (tmp_path / "imports").read_text().split() == ["imported"]


def test_processes_that_were_started_ahead_have_imported_a_kernel_when_they_take_over(
    bare_python, kernel, logs, tmp_path
):
    imports, told = tmp_path / "imports", []
    entry = kernel(f"""
        import os
        with open({str(imports)!r}, "a") as file:
            print("imported", file=file)
    """)
    with Worker(bare_python, dict(os.environ), logs, "ahead") as worker:
        worker.start_ahead(2, [{"entry": str(entry)}])
        assert worker.wait_ahead() == 2
        for _ in range(3):
            told.append((ask(worker, entry)["checked"], imports.read_text().count("imported"), worker.wait_ahead()))
            worker.end()

    assert told == [("launch", 2, 1), ("launch", 2, 0), ("launch", 3, 0)]


def test_a_process_that_was_started_ahead_and_died_is_left_out(bare_python, kernel, logs, tmp_path):
    fake = (ROOT / "tests/data/fakes/torch").read_text()
    (tmp_path / "torch.py").write_text(f"{fake}\nimport os\nos.mkdir({str(tmp_path / 'first')!r})")  # fails once more
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with Worker(bare_python, env, logs, "dies") as worker:
        worker.start_ahead(2, [{"entry": str(kernel())}])

        assert worker.wait_ahead() == 1


def test_a_process_that_waits_holds_no_memory_on_the_gpu(bare_python, kernel, logs, tmp_path):
    (tmp_path / "torch.py").write_text((ROOT / "tests/data/fakes/torch").read_text())
    entry = kernel(f"""
        import os, torch
        torch.cuda.is_initialized = lambda: True
        with open({str(tmp_path / "imports")!r}, "a") as file:
            print(os.getpid(), file=file)
    """)
    with Worker(bare_python, {**os.environ, "PYTHONPATH": str(tmp_path)}, logs, "ahead-cuda") as worker:
        worker.start_ahead(1, [{"entry": str(entry)}])
        worker.wait_ahead()
        (pid,) = (tmp_path / "imports").read_text().split()

        assert not is_alive(int(pid))
        assert ask(worker, entry)["checked"] == "launch"


@pytest.mark.parametrize(
    "at_import",
    ["raise ValueError('no')", "exit(3)", "import os; os._exit(3)", "import os; os.kill(os.getpid(), 11)"],
)
def test_a_kernel_that_fails_or_dies_when_it_is_imported_is_a_failure_and_the_next_one_works(worker, kernel, at_import):
    failures = [ask(worker, kernel(f"\n{at_import}\n")) for _ in range(2)]

    assert [failure.code for failure in failures] == [failures[0].code] * 2
    assert works(worker, kernel)


def test_a_kernel_that_starts_a_thread_when_it_is_imported_is_imported_by_each_process(worker, kernel, tmp_path):
    """A process with threads must not fork: locks that another thread holds stay locked for ever."""
    entry = kernel(f"""
        import threading
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        with open({str(tmp_path / "imports")!r}, "a") as file:
            print("imported", file=file)
    """)
    answers = [ask(worker, entry) for _ in range(2)]

    assert [answer["error"] for answer in answers] == [0.0, 0.0]
    assert len((tmp_path / "imports").read_text().split()) == 2


def wait_for(condition, timeout_s=300.0):
    """Return what the condition returns once it is true."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not true within {timeout_s} s"
        time.sleep(0.01)
    return found


def is_alive(pid):
    """Say whether a process runs; one that has ended and waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_kernel_may_print_while_it_is_imported_and_verified(worker, kernel, logs):
    entry = kernel("print('imported')\ndef launch(inputs):\n    print('launched')\n    return 3.0\n")

    assert ask(worker, entry)["error"] == 0.0
    assert "imported\nlaunched\n" in (logs / "worker.stdout.txt").read_text()


@pytest.mark.parametrize("write", ["print('in launch')", "os.write(1, b'in launch')", "os.system('echo in launch')"])
def test_a_kernel_that_prints_while_it_is_timed_is_a_failure(worker, kernel, logs, write):
    failure = ask(worker, kernel(f"import os\ndef launch(inputs):\n    {write}\n    return 3.0\n"), "time")

    assert (failure.stage, failure.code) == ("time", "printed")
    assert "in launch" in (logs / "worker.stdout.txt").read_text()


def test_a_kernel_that_prints_at_import_only_is_timed(worker, kernel):
    assert len(ask(worker, kernel("print('imported')\n"), "time")["seconds"]) == 5


@pytest.mark.parametrize(
    "below",
    [
        pytest.param("print('{}', flush=True)", id="print"),
        pytest.param("import os; os.write(1, b'{}\\n')", id="write"),
        pytest.param("import os; os.close(1)", id="close"),
        pytest.param("import sys; sys.stdout.close()", id="close-stdout"),
        pytest.param("import sys; sys.__stdout__ = sys.stdout = None", id="no-stdout"),
    ],
)
def test_output_of_a_kernel_is_not_taken_for_an_answer_of_the_worker(worker, kernel, below):
    forged = json.dumps({"ok": True, "error": 0.0, "tolerance": 1.0, "checked": "forged", "cost": None})
    entry = kernel(below.format(forged) + "\ndef launch(inputs):\n    return 4.0\n")

    assert ask(worker, entry).code == "wrong-output"
    assert works(worker, kernel)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        pytest.param("{'flop': float('nan'), 'bytes': 1}", "cost(): `flop` is nan, not a finite number", id="nan"),
        pytest.param("{'flop': 1, 'bytes': 'many'}", "cost(): `bytes` is 'many', not a finite number", id="text"),
        pytest.param("{'flop': -1, 'bytes': 1}", "cost(): `flop` is -1, not a finite number", id="negative"),
        pytest.param("{'flop': 1}", "cost() returned {'flop': 1}, not a dictionary", id="incomplete"),
        pytest.param("'cheap'", "cost() returned 'cheap', not a dictionary", id="no-table"),
        pytest.param("{'flop': 1, 'bytes': 1, 'dtype': int}", "cost(): `dtype` is <class 'int'>", id="dtype"),
    ],
)
def test_an_invalid_cost_is_a_failure(worker, kernel, returned, message):
    failure = ask(worker, kernel(f"def cost(**case):\n    return {returned}\n"))

    assert failure.code == "raised"
    assert failure.message.startswith(message)


def test_a_cost_reaches_the_answer_as_plain_numbers(worker, kernel):
    entry = kernel(
        "from fractions import Fraction\ndef cost(**case):\n    return {'flop': Fraction(3, 2), 'bytes': 8}\n"
    )

    assert ask(worker, entry)["cost"] == {"flop": 1.5, "bytes": 8.0, "dtype": None}


def test_a_message_with_a_lone_surrogate_can_be_saved(worker, kernel, tmp_path):
    failure = ask(worker, kernel(RAISES.format("'caf\\udce9'")))
    run = a_run(
        Measurement("sdpa", "s128", {}, "cpu", "launch", failure=failure), kernels=(a_spec(),), devices=(a_cpu(),)
    )
    path = write_run(run, tmp_path)

    assert failure.message == "ValueError: caf?"
    assert load_run(path.read_text(encoding="utf-8"), "run.json") == run
    assert dump_run(run).encode()


def test_a_planted_slowdown_is_made_of_whole_launches(worker, kernel):
    slow = "from time import sleep\ndef launch(inputs):\n    sleep(0.0003)\n    return 3.0\n"
    honest, planted = ask(worker, kernel(slow), "time"), ask(worker, kernel(slow), "time", planted=0.05)

    assert (honest["method"], honest["planted"]) == ("perf-counter", 0.0)
    assert (planted["launches"], planted["planted"]) == (20, pytest.approx(1 / 20))
    assert min(planted["seconds"]) > 0.0003 * 21 / 20


def test_the_time_of_a_reference_has_its_own_method_id(worker, kernel):
    assert ask(worker, kernel(), "time", target="reference")["method"] == "perf-counter/reference"


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        pytest.param("return (2 * inputs).reshape(2, 4)", "shape (2, 4), the reference has (8,)", id="wrong-shape"),
        pytest.param("return kept", "largest error against the reference is nan", id="unwritten"),
        pytest.param("return 2 * inputs.half()", "allowed is 0", id="tolerance-of-its-type"),
        pytest.param(
            "inputs = 2 * inputs; inputs[[1, 6]] = 0; inputs[6] = 9.5; return inputs.reshape(8)",
            "the output[6] is 9.5 instead of",
            id="element",
        ),
        pytest.param(
            "inputs = 2 * inputs; inputs[[1, 6]] = 9.5; return inputs", "; 2 of 8 elements are wrong", id="count"
        ),
        pytest.param(
            "inputs[3] = float('inf'); return inputs.mul_(2)", "largest error against the reference is inf", id="inf"
        ),
    ],
)
def test_a_wrong_tensor_is_a_wrong_output(torch_worker, kernel, launch, message):
    # The buffer holds the right values when it is first returned, and then nobody writes it again.
    below = f"""
        kept = None
        def launch(inputs):
            global kept
            kept = 2 * inputs if kept is None else kept
            {launch}
    """
    failure = ask(torch_worker, kernel(below, above=TORCH), tolerance={"float16": 0.0})

    assert failure.code == "wrong-output"
    assert message in failure.message


def test_a_kernel_that_works_in_place_on_its_inputs_passes(torch_worker, kernel):
    in_place = kernel("def launch(inputs):\n    return inputs.mul_(2)\n", above=TORCH)

    assert ask(torch_worker, in_place)["error"] == 0.0


ONCE_ONLY = """
class Buffer(list):
    copies = 0
    def __deepcopy__(self, memo):
        Buffer.copies += 1
        if Buffer.copies > {most}:
            raise MemoryError("no room for a copy")
        return Buffer(self)

def make_inputs(rng, device, **case):
    return Buffer([rng.random(), 2.0])

def launch(inputs):
    inputs[:] = [2 * value for value in inputs]  # in place
    return inputs[0] {wrong}

def reference(inputs):
    return 2 * inputs[0]
"""


@pytest.mark.parametrize("most", [0, 1, 2])
def test_inputs_are_made_again_if_there_is_no_memory_for_copies(worker, kernel, most):
    sound, wrong = (ONCE_ONLY.replace("{most}", str(most)).replace("{wrong}", more) for more in ("", "+ 1"))

    assert ask(worker, kernel(above=sound))["error"] == 0.0
    assert ask(worker, kernel(above=wrong)).code == "wrong-output"


def test_half_precision_has_its_own_default_tolerance(torch_worker, kernel):
    half = kernel("def launch(inputs):\n    return 2 * inputs.half()\n", above=TORCH)

    answer = ask(torch_worker, half)
    assert 0 < answer["error"] < 1e-3
    assert answer["tolerance"] == 0.01


@pytest.mark.parametrize("declared", ["float32", "torch.float32"])
def test_the_tolerance_follows_the_declared_type_whatever_the_type_of_the_output(torch_worker, kernel, declared):
    half = kernel("def launch(inputs):\n    return 2 * inputs.half()\n", above=TORCH)

    failure = ask(torch_worker, half, params={"dtype": declared})
    assert failure.code == "wrong-output"
    assert "allowed is 1e-05" in failure.message


SEVERAL = {
    "dict": ("", "{'dw': x + 2, 'dx': x}", "dw"),
    "nested": ("", "{'of': {'dw': x + 2}, 'dx': x}", "of.dw"),
    "tuple": ("", "(x + 2, x)", "0"),
    "namedtuple": (
        "import collections\nGradients = collections.namedtuple('Gradients', 'dw dx')\n",
        "Gradients(x + 2, x)",
        "dw",
    ),
    "dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass Gradients:\n    dw: float\n    dx: float\n",
        "Gradients(x + 2, x)",
        "dw",
    ),
}
REF = "def make_inputs(rng, device, **case):\n    return 4.0\ndef reference(x):\n    return {}\n"


@pytest.mark.parametrize("kind", SEVERAL)
def test_a_wrong_output_is_named_and_may_have_its_own_tolerance(worker, kernel, kind):
    source, outputs, name = SEVERAL[kind]
    launch = f"def launch(x):\n    return {outputs.replace('x + 2', 'x + 2.06')}\n"
    entry = kernel(launch, above=source + REF.format(outputs))

    failure = ask(worker, entry, tolerance={"float64": 1e-3})
    assert failure.message == (
        f"largest error against the reference is 0.01, allowed is 0.001: `{name}` is 6.06 instead of 6; "
        "1 of 1 elements are wrong"
    )
    assert ask(worker, entry, tolerance={"outputs": {name: {"float64": 0.02}}})["tolerance"] == 0.02
    assert "tolerance.outputs.dz" in ask(worker, entry, tolerance={"outputs": {"dz": {"float64": 0.02}}}).message


def test_all_wrong_outputs_are_named(worker, kernel):
    entry = kernel("def launch(x):\n    return (x, x + 1, x + 2, x)\n", above=REF.format("(x, x, x, x)"))

    assert "`2` is 6 instead of 4; 1 of 1 elements are wrong; also wrong: `1`" in ask(worker, entry).message


def test_both_parts_of_complex_numbers_are_compared(torch_worker, kernel):
    source = TORCH.replace("2 * inputs.double()", "torch.fft.fft(inputs.double())")
    sound, conjugate = "torch.fft.fft(inputs)", "torch.fft.fft(inputs).conj()"
    launch = "def launch(inputs):\n    return {}\n"

    assert ask(torch_worker, kernel(launch.format(sound), above=source), tolerance={"complex64": 1e-5})["error"] < 1e-5
    assert ask(torch_worker, kernel(launch.format(conjugate), above=source)).code == "wrong-output"


@pytest.mark.parametrize(
    ("output", "reference", "same"),
    [
        pytest.param("2 * x", "2 * x.astype(np.float64)", True, id="sound"),
        pytest.param("3 * x", "2 * x.astype(np.float64)", False, id="wrong"),
        pytest.param(
            "x.astype(np.float16) + 300", "x.astype(np.float16) + 500", False, id="squares-run-over-in-float16"
        ),
        pytest.param("x.astype(np.int8) + 120", "x.astype(np.int8) + 120", True, id="squares-run-over-in-int8"),
        pytest.param("x.astype(np.uint8)", "x.astype(np.uint8) + 1", False, id="differences-wrap-in-uint8"),
        pytest.param("float(x.sum())", "x.sum()", True, id="number"),
    ],
)
def test_arrays_of_numpy_are_compared_in_double_precision(torch_worker, kernel, output, reference, same):
    pytest.importorskip("numpy")
    below = f"def launch(x):\n    return {output}\ndef reference(x):\n    return {reference}\n"
    answer = ask(torch_worker, kernel(below, above=NUMPY))

    assert (not isinstance(answer, Failure)) is same


def test_hello_describes_the_interpreter(worker):
    hello = worker.ask({"op": "hello"}, 300.0)

    assert hello["python"] == ".".join(map(str, sys.version_info[:3]))
    assert (hello["torch"], hello["gpu"]) == (None, None)


def test_requests_in_a_file_are_all_answered_by_one_process(bare_python, kernel, tmp_path):
    """As under a profiler; a failure does not affect the other requests."""
    base = {"op": "verify", "params": {}, "device": "cpu", "target": "launch"}
    entries = [kernel(), kernel(RAISES.format("''")), kernel()]
    lines = [json.dumps({**base, "entry": str(entry)}) + "\n" for entry in entries]
    (tmp_path / "requests").write_text("".join(lines))
    files = ("--requests", str(tmp_path / "requests"), "--answers", str(tmp_path / "answers"))
    subprocess.run(worker_process.command(bare_python, tmp_path / "printed", *files), check=True)

    answers = [json.loads(line) for line in (tmp_path / "answers").read_text().splitlines()]
    assert [answer["ok"] for answer in answers] == [True, False, True]


THREADS = """
import threading

def launch(inputs):
    total = []
    thread = threading.Thread(target=lambda: total.append(sum(range(100000)) * 0 + sum(inputs)))
    thread.start()
    thread.join()
    return total[0]
"""


@pytest.mark.parametrize(("below", "has_threads"), [(THREADS, True), (None, False)], ids=["threads", "none"])
def test_a_kernel_whose_threads_run_says_so_before_it_is_timed(worker, kernel, below, has_threads):
    answer = ask(worker, kernel(below) if below else kernel(), "ready", placements=1)

    assert answer["has_threads"] is has_threads


def test_an_interpreter_that_cannot_be_started_is_a_machine_error(tmp_path):
    with (
        Worker(str(tmp_path / "nowhere"), {}, tmp_path) as worker,
        pytest.raises(MachineError, match="cannot start the interpreter") as error,
    ):
        ask(worker, "kernel.py")

    assert error.value.hint == "name another with --python"


@pytest.mark.parametrize(
    ("number", "code", "cause"),
    [(signal.SIGTERM, "crashed", ""), (signal.SIGKILL, "out-of-memory", ": most often the system ran out of memory")],
)
def test_a_worker_that_dies_itself_is_replaced(worker, kernel, number, code, cause):
    kills = kernel(
        f"import os, signal\ndef launch(inputs):\n    os.kill(os.getsid(0), {number:d})\n    signal.pause()\n"
    )
    failure = ask(worker, kills)

    assert (failure.code, failure.message) == (code, f"the worker ended with {number.name}{cause}")
    assert works(worker, kernel)
    assert math.isfinite(ask(worker, kernel(), "time")["seconds"][0])


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        ("inputs.mul_(1.7)", "largest error"),
        ("{'avg': inputs, 'std': inputs}", "not nested and named like those of the reference"),
    ],
)
def test_working_in_place_does_not_change_a_reference_that_returns_its_inputs(torch_worker, kernel, launch, message):
    above = TORCH.replace(
        "return 2 * inputs.double()", "return {'mean': inputs, 'var': inputs}" if "avg" in launch else "return inputs"
    )
    entry = kernel(f"\ndef launch(inputs):\n    return {launch}\n", above=above)

    failure = ask(torch_worker, entry)

    assert failure.code == "wrong-output"
    assert message in failure.message


def test_a_numpy_kernel_cannot_return_a_stored_result(torch_worker, kernel):
    entry = kernel(
        "\nSTORE = []\ndef launch(inputs):\n    STORE or STORE.append(2 * inputs)\n    return STORE[0]\n", above=NUMPY
    )

    assert ask(torch_worker, entry).code == "wrong-output"


@pytest.mark.parametrize("above", ["TORCH", "NUMPY"])
@pytest.mark.parametrize(("answer", "code"), [("STORE[0]", "wrong-output"), ("STORE.pop()", None)])
@pytest.mark.parametrize("of", ["(2 * inputs > 1)", "(4 * inputs).TO"])
def test_a_stored_result_of_integers_or_booleans_is_wrong_output(torch_worker, above, answer, code, of, kernel):
    of = of.replace("TO", "int()" if above == "TORCH" else "astype(int)")
    above = {"TORCH": TORCH, "NUMPY": NUMPY}[above].replace("return 2 * inputs", f"return {of}")
    entry = kernel(
        f"\nSTORE = []\ndef launch(inputs):\n    STORE or STORE.append({of})\n    return {answer}\n", above=above
    )

    assert getattr(ask(torch_worker, entry), "code", None) == code


@pytest.mark.parametrize(("planted", "launches"), [(0.05, 20), (0.03, 100), (2 / 57, 57)])
def test_a_planted_slowdown_is_exact(worker, kernel, planted, launches):
    answer = ask(
        worker,
        kernel("\nimport time\ndef launch(inputs):\n    time.sleep(0.001)\n    return 3.0\n"),
        "time",
        samples=5,
        planted=planted,
    )

    assert answer["launches"] % launches == 0
    assert answer["planted"] == pytest.approx(planted, abs=1e-12)


def test_the_time_limit_of_the_case_after_a_hang_excludes_the_restart(bare_python, kernel, tmp_path):
    """Its time limit begins when the new process has imported torch; here a file ends the import."""
    torch = (ROOT / "tests/data/fakes/torch").read_text()
    imported = tmp_path / "imported"
    (tmp_path / "torch.py").write_text(f"{torch}\nimport time\ntime.sleep(0.2)\nopen({str(imported)!r}, 'w').close()\n")
    hangs = kernel("\nimport time\ndef launch(inputs):\n    time.sleep(600)\n")
    with Worker(bare_python, {**os.environ, "PYTHONPATH": str(tmp_path)}, tmp_path) as restarted:
        assert ask(restarted, hangs, timeout_s=0.1).code == "timeout"
        imported.unlink()

        restarted.send(request(kernel()))
        assert imported.exists()
        assert not isinstance(restarted.receive(300.0), Failure)


def test_a_trace_of_torch_on_a_cpu_holds_the_range_and_no_kernel(torch_worker, kernel, tmp_path):
    entry = kernel(above="import torch\n", below=TORCH_ADDS)
    more = {"range": "ci-perf:a/b", "launches": 3, "trace": str(tmp_path / "t.json")}
    answer = ask(torch_worker, entry, "trace", **more)
    found, document = chrome.read(tmp_path / "t.json", answer["local_bytes"])

    assert answer["launches"] == 3
    assert (found.timeline.ranges, found.timeline.inside(["ci-perf:a/b"])) == ({"ci-perf:a/b": 1}, ())
    assert "no kernel was traced" in found.timeline.warnings[0]
    assert document["traceEvents"]


TORCH_ADDS = """
def make_inputs(rng, device, **case):
    return torch.ones(8)

def launch(inputs):
    return inputs + 1

def reference(inputs):
    return inputs + 1
"""


@pytest.fixture
def torch_without_nvtx(monkeypatch):
    """Install a fake torch that was built without NVTX."""

    def stand_in(*_):
        raise RuntimeError("NVTX functions not installed")

    without = SimpleNamespace(range_start=stand_in, range_end=stand_in)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(nvtx=without)))


def with_nvtx(monkeypatch, version):
    functions = SimpleNamespace(start_range=1, end_range=2, push_range=3, pop_range=4)
    monkeypatch.setitem(sys.modules, "nvtx", functions)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "nvtx" and version)
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)


@pytest.mark.usefixtures("torch_without_nvtx")
@pytest.mark.parametrize(("version", "nsys"), [("0.2.11", "2023.4.4"), ("0.2.14", "2025.3.1.0"), ("0.2.14", None)])
def test_the_package_nvtx_is_used_if_torch_was_built_without_nvtx(monkeypatch, version, nsys):
    with_nvtx(monkeypatch, version)

    assert tuple(nvtx_functions(nsys)) == (1, 2, 3, 4)


@pytest.mark.usefixtures("torch_without_nvtx")
def test_a_package_nvtx_that_an_old_nsys_does_not_record_is_an_error(monkeypatch):
    with_nvtx(monkeypatch, "0.2.14")

    with pytest.raises(Wrong, match=r"nsys 2023\.4\.4 does not record ranges of nvtx 0\.2\.14"):
        nvtx_functions("2023.4.4")


@pytest.mark.usefixtures("torch_without_nvtx")
def test_without_any_nvtx_the_error_says_so(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)

    with pytest.raises(Wrong, match="no NVTX"):
        nvtx_functions(None)


def test_a_kernel_that_writes_to_every_open_file_fails_and_the_next_one_works(worker, kernel):
    scribbles = kernel("""
        import os
        def launch(inputs):
            for number in range(3, 30):
                try:
                    os.write(number, b"scribble\\n")
                except OSError:
                    pass
            return sum(inputs)
    """)
    failure = ask(worker, scribbles)

    assert (failure.code, failure.message) == ("crashed", "something wrote into the worker's answers")
    assert works(worker, kernel)


def test_where_importing_torch_uses_cuda_each_case_gets_a_new_interpreter(bare_python, kernel, logs, tmp_path):
    torch = (
        (ROOT / "tests/data/fakes/torch")
        .read_text()
        .replace("is_initialized=lambda: False", "is_initialized=lambda: True")
    )
    (tmp_path / "torch.py").write_text(torch)
    entry = kernel("import os\ndef launch(inputs):\n    print(os.getpid(), os.getppid())\n    return sum(inputs)\n")

    with Worker(bare_python, {**os.environ, "PYTHONPATH": str(tmp_path)}, logs, "spawned") as worker:
        answers = [
            ask(worker, entry),
            ask(worker, entry, same=True),
            ask(worker, entry),
            ask(worker, kernel(RAISES.format(1))),
        ]
        rest(worker)

    pids = [line.split()[0] for line in (logs / "spawned.stdout.txt").read_text().splitlines()]
    assert [answer["checked"] for answer in answers[:3]] == ["launch"] * 3
    assert answers[3].code == "raised"
    assert len(set(pids)) == 2
    assert not any(is_alive(int(pid)) for pid in pids)


def test_the_processes_of_cases_end_though_one_worker_is_dead(bare_python, kernel, logs):
    entry = kernel("import os\ndef launch(inputs):\n    print(os.getpid())\n    return sum(inputs)\n")
    with (
        Worker(bare_python, dict(os.environ), logs, "dead") as dead,
        Worker(bare_python, dict(os.environ), logs, "other") as other,
    ):
        ask(dead, entry)
        ask(other, entry)
        dead.kill()
        rest(dead, other)
        pid = (logs / "other.stdout.txt").read_text().split()[0]
        answers = [ask(worker, entry) for worker in (dead, other)]

    assert not is_alive(int(pid))
    assert [answer["checked"] for answer in answers] == ["launch"] * 2, "each got its own answer"


def test_the_garbage_collector_runs_in_a_kernel_but_not_in_its_import(bare_python, kernel, logs):
    entry = kernel("""
        import gc
        print("import", gc.isenabled())
        def launch(inputs):
            print("launch", gc.isenabled())
            return sum(inputs)
    """)
    with Worker(bare_python, dict(os.environ), logs, "collector") as worker:
        ask(worker, entry)

    printed = set((logs / "collector.stdout.txt").read_text().splitlines())
    assert printed == {"import False", "launch True"}


def test_a_kernel_whose_import_uses_cuda_is_imported_by_each_process(bare_python, kernel, logs, tmp_path):
    """No process forked from one that has initialized CUDA can use it."""
    (tmp_path / "torch.py").write_text((ROOT / "tests/data/fakes/torch").read_text())
    entry = kernel(f"""
        import torch
        torch.cuda.is_initialized = lambda: True
        with open({str(tmp_path / "imports")!r}, "a") as file:
            print("imported", file=file)
    """)

    with Worker(bare_python, {**os.environ, "PYTHONPATH": str(tmp_path)}, logs, "uses-cuda") as worker:
        answers = [ask(worker, entry), ask(worker, entry, same=True), ask(worker, entry)]

    assert [answer["checked"] for answer in answers] == ["launch"] * 3
    assert len((tmp_path / "imports").read_text().split()) == 2


FAKE_TRITON = """
import torch

class CudaUtils:
    def __init__(self):
        self.get_device_properties = properties

def properties(index):
    assert torch.cuda.is_initialized(), "Triton relies on torch to have initialised CUDA"
    return {"max_shared_mem": 232448}

def driver():
    assert torch.cuda.is_available()
    torch.cuda.current_device()
    return CudaUtils()
"""


def test_questions_about_the_gpu_do_not_prevent_a_kernel_from_being_imported_once(bare_python, kernel, logs, tmp_path):
    """Packages ask torch and Triton for the compute capability and the shared memory when they are imported."""
    fake = (ROOT / "tests/data/fakes/torch").read_text()
    (tmp_path / "torch.py").write_text(f"""{fake}
used = []
cuda.is_initialized = lambda: bool(used)
cuda.init = lambda: used.append("init")
cuda.current_device = lambda: used.append("current_device") or 0
cuda.get_device_properties = lambda index: used.append("properties") or _GPU
cuda.mem_get_info = lambda: used.append("memory")
""")
    driver = tmp_path / "triton/backends/nvidia/driver.py"
    driver.parent.mkdir(parents=True)
    driver.write_text(FAKE_TRITON)
    entry = kernel(f"""
        import torch
        from triton.backends.nvidia.driver import driver
        with open({str(tmp_path / "imports")!r}, "a") as file:
            print("imported", file=file)
        properties, shared = torch.cuda.get_device_properties(0), driver().get_device_properties(0)["max_shared_mem"]
        def launch(inputs):
            assert torch.cuda.get_device_properties(0) is torch._GPU and torch.used[0] == torch.used[-1] == "properties"
            assert (properties.major, properties.total_memory, shared) == (9, 80 << 30, 232448)
            return sum(inputs)
    """)
    uses_memory = kernel("""
        import torch
        torch.cuda.mem_get_info()
        assert torch.cuda.get_device_properties(0) is torch._GPU
    """)

    with Worker(bare_python, {**os.environ, "PYTHONPATH": str(tmp_path)}, logs, "asks") as worker:
        answers = [ask(worker, entry), ask(worker, entry), ask(worker, uses_memory)]

    assert [answer["checked"] for answer in answers] == ["launch"] * 3
    assert len((tmp_path / "imports").read_text().split()) == 1


def test_a_kernel_with_variables_of_the_interpreter_is_imported_once_too(bare_python, kernel, logs, tmp_path):
    entry = kernel(f"""
        import os
        with open({str(tmp_path / "imports")!r}, "a") as file:
            print("imported", file=file)
        def launch(inputs):
            assert os.environ["OMP_SCHEDULE"] == "static"
            print(os.getpid())
            return sum(inputs)
    """)
    uses = {"uses": {"env": {"OMP_SCHEDULE": "static"}}}

    with Worker(bare_python, dict(os.environ), logs, "variables") as worker:
        worker.preload([{"entry": str(entry), **uses}])
        answers = [ask(worker, entry, **uses), ask(worker, entry, **uses, same=True), ask(worker, entry, **uses)]
        answers.append(ask(worker, kernel()))

    assert [answer["checked"] for answer in answers] == ["launch"] * 4
    assert len(set((logs / "variables.stdout.txt").read_text().split())) == 2
    assert len((tmp_path / "imports").read_text().split()) == 1


PACKAGE = """
import sys
with open({log!r}, "a") as log:
    print("imported", file=log)
changed = []
{more}
"""


def a_package(tmp_path, more=""):
    """Write a package that logs each import; return the log, and what a request says of its use."""
    (tmp_path / "src").mkdir()
    log = tmp_path / "imports"
    (tmp_path / "src/own_package.py").write_text(PACKAGE.format(log=str(log), more=more))
    uses = {"path": [str(tmp_path / "src")], "imports": ["own_package"], "root": str(tmp_path), "env": {}}
    return log, {"uses": uses}


USES_PACKAGE = """
import own_package
own_package.changed.append(__file__)
def launch(inputs):
    assert own_package.changed == [__file__]
    return sum(inputs)
"""


def test_a_package_of_several_kernels_is_imported_once_and_none_sees_what_another_changed(
    bare_python, kernel, logs, tmp_path
):
    log, uses = a_package(tmp_path)
    entries = [kernel(USES_PACKAGE) for _ in range(3)]
    with Worker(bare_python, dict(os.environ), logs, "package") as worker:
        worker.preload([{"entry": str(entry), **uses} for entry in entries])
        answers = [ask(worker, entry, same=same, **uses) for entry in entries for same in (False, True)]
        stages = [answer["spent"].get("import", 0.0) for answer in answers]
        answers.append(ask(worker, kernel()))

    assert [answer["checked"] for answer in answers] == ["launch"] * 7
    assert log.read_text().split() == ["imported"]
    assert stages[0] > 0
    assert stages[1] == 0


@pytest.mark.parametrize(
    "more",
    ["import torch; torch.cuda.is_initialized = lambda: True", "import threading; threading.Timer(9, print).start()"],
)
def test_a_package_that_cannot_be_imported_before_a_fork_is_imported_by_each_process(
    bare_python, kernel, logs, tmp_path, more
):
    (tmp_path / "torch.py").write_text((ROOT / "tests/data/fakes/torch").read_text())
    log, uses = a_package(tmp_path, more)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    entries = [kernel(USES_PACKAGE) for _ in range(2)]
    with Worker(bare_python, env, logs, "package-cuda") as worker:
        answers = []
        for entry in entries:
            worker.preload([{"entry": str(entry), **uses} for entry in entries])
            answers.append(ask(worker, entry, **uses))

    assert [answer["checked"] for answer in answers] == ["launch"] * 2
    assert len(log.read_text().split()) == 3


@pytest.mark.parametrize("more", ["raise ImportError('no driver')", "import os; os._exit(3)"])
def test_a_package_that_fails_at_import_is_a_failure_of_each_kernel(bare_python, kernel, logs, tmp_path, more):
    _, uses = a_package(tmp_path, more)
    with Worker(bare_python, dict(os.environ), logs, "package-fails") as worker:
        failures = [ask(worker, kernel(USES_PACKAGE), **uses) for _ in range(2)]
        assert works(worker, kernel)

    assert [failure.code for failure in failures] in (["raised"] * 2, ["exited"] * 2)


def test_an_answer_lists_its_time_by_stage(worker, kernel):
    spent = ask(worker, kernel("import time\ntime.sleep(0.2)\n"), "time")["spent"]

    assert {"import", "inputs", "first launch", "warm-up", "rounds"} <= spent.keys()
    assert spent["import"] >= 0.2
