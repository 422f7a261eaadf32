"""Queries of the machine: with folders of fake tools, with a fake NVML, and on this machine."""

import os
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ci_perf.doctor import machine
from ci_perf.doctor.diagnosis import diagnose
from ci_perf.doctor.tools import best
from ci_perf.measure import cpu, gpu, prepare, session, tools
from ci_perf.measure.conditions import Conditions
from ci_perf.measure.lock import gpu_lock
from ci_perf.measure.program_run import Launcher
from ci_perf.measure.programs import Programs
from ci_perf.measure.python_kernels import PythonKernels
from ci_perf.measure.watch import Watch, disturbances
from ci_perf.values.device import Device
from ci_perf.values.errors import ConfigError, MachineError
from ci_perf.values.job import select_jobs
from ci_perf.values.kernel import Program
from tests.builders import a_spec

NSYS_SAYS = "echo 'NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0'"
NCU_SAYS = "echo 'NVIDIA (R) Nsight Compute Command Line Profiler'; echo 'Version 2025.3.1.0 (build 36398880)'"
INNER_NSYS = "opt/nvidia/nsight-compute/2025.3.1/host/target-linux-x64/nsys"


def script(path: Path, body: str) -> Path:
    """Write an executable shell script, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def python_script(path: Path, version: str, *, torch: bool) -> Path:
    return script(path, f"echo 'ci-perf: {version}'; echo 'ci-perf: {torch}'")


# --- tools ---


def test_every_ncu_is_found_in_order_of_preference(tmp_path):
    pinned = script(tmp_path / "mine/ncu", NCU_SAYS)
    on_path = script(tmp_path / "bin/ncu", NCU_SAYS)
    newer = script(tmp_path / "opt/nvidia/nsight-compute/2025.10.0/ncu", NCU_SAYS)
    older = script(tmp_path / "opt/nvidia/nsight-compute/2025.9.0/ncu", NCU_SAYS)
    found = tools.find("ncu", {"CI_PERF_NCU": str(pinned), "PATH": str(on_path.parent)}, tmp_path)
    assert [tool.path for tool in found] == [str(path) for path in (pinned, on_path, newer, older)]
    assert [tool.version for tool in found] == ["2025.3.1.0"] * 4
    assert found[0].source == "CI_PERF_NCU"


def test_a_tool_with_two_paths_is_found_once(tmp_path):
    script(tmp_path / "usr/local/cuda-13.0/bin/ncu", NCU_SAYS)
    (tmp_path / "usr/local/cuda").symlink_to("cuda-13.0")
    assert len(tools.find("ncu", {}, tmp_path)) == 1


def test_a_tool_that_does_not_work_is_listed_with_its_error(tmp_path):
    broken = script(tmp_path / "bin/ncu", "echo 'libstdc++.so.6: not found' >&2; exit 127")
    working = script(tmp_path / "usr/local/cuda/bin/ncu", NCU_SAYS)
    found = tools.find("ncu", {"CI_PERF_NCU": "/nowhere/ncu", "PATH": str(broken.parent)}, tmp_path)
    assert [tool.problem for tool in found] == ["no such file or directory", "libstdc++.so.6: not found", ""]
    assert best(found).path == str(working)


def test_a_tool_that_hangs_is_killed(tmp_path):
    well, output = tools.probe([str(script(tmp_path / "ncu", "exec sleep 60"))], os.environ, timeout_s=0.05)
    assert (well, output) == (False, "gave no answer within 0.05 s")


def test_the_nsys_inside_nsight_compute_is_found_with_its_misplaced_importer(tmp_path):
    nsys = script(tmp_path / INNER_NSYS, NSYS_SAYS)
    elsewhere = nsys.parent.parent / "linux-desktop-glibc_2_11_3-x64"
    complaint = "QdstrmImporter: error while loading shared libraries: libdw.so.1: cannot open shared object file"
    script(elsewhere / "QdstrmImporter", f"echo '{complaint}' >&2; exit 127")
    (tool,) = tools.find("nsys", {}, tmp_path)
    assert tool.version == "2025.3.1.90"
    assert tool.importer.expected == str(nsys.parent.parent / "host-linux-x64")
    assert (tool.importer.found, tool.importer.lacks) == (str(elsewhere), "libdw.so.1")
    assert not tool.complete


def test_an_nsight_systems_with_its_importer_is_complete(tmp_path):
    base = tmp_path / "opt/nvidia/nsight-systems/2025.3.1"
    script(base / "target-linux-x64/nsys", NSYS_SAYS)
    script(base / "host-linux-x64/QdstrmImporter", "echo 2025.3.1")
    (base / "bin").mkdir()
    (base / "bin/nsys").symlink_to("../target-linux-x64/nsys")
    (tool,) = tools.find("nsys", {}, tmp_path)
    assert tool.complete


# --- the interpreter of the kernels ---


def test_the_interpreter_with_torch_wins_over_an_earlier_one_without(tmp_path):
    python_script(tmp_path / "venv/bin/python", "3.12.1", torch=False)
    with_torch = python_script(tmp_path / "bin/python3", "3.10.2", torch=True)
    found = tools.find_python(None, {"VIRTUAL_ENV": str(tmp_path / "venv"), "PATH": str(with_torch.parent)})
    assert (found.path, found.version, found.has_torch) == (str(with_torch), "3.10.2", True)


def test_probing_an_interpreter_does_not_import_torch(tmp_path):
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n", encoding="utf-8")
    (package / "version.py").write_text("__version__ = '9.9+cu130'\ncuda = '13.0'\n", encoding="utf-8")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert tools.find_python(sys.executable, environ).has_torch
    facts = machine.gather_facts(environ, python=sys.executable, folder=tmp_path, root=tmp_path)
    assert (facts.torch, facts.torch_cuda) == ("9.9+cu130", "13.0")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo 'ci-perf: 3.8.10'; echo 'ci-perf: True'", "is Python 3.8.10"),
        ("echo 'cannot execute' >&2; exit 126", "does not run: cannot execute"),
        ("exit 1", "does not run: it printed nothing"),
    ],
)
def test_a_requested_interpreter_that_cannot_be_used_is_refused_with_a_hint(tmp_path, body, said):
    with pytest.raises(ConfigError, match=said) as refused:
        tools.find_python(str(script(tmp_path / "python", body)), {})
    assert "Python 3.9 or newer" in refused.value.hint


def test_a_requested_interpreter_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match="there is no such program"):
        tools.find_python("/nowhere/python", {})


def test_a_machine_without_an_interpreter_is_a_machine_error(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))
    with pytest.raises(MachineError, match=r"Python 3\.9 or newer"):
        tools.find_python(None, {"PATH": str(tmp_path)})


# --- NVML ---


@pytest.fixture
def _new_connection():
    gpu._connect.cache_clear()
    yield
    gpu._connect.cache_clear()


class FakeNvml:
    """A pynvml with one H100, split into two instances, one of which is visible; it supports nothing else."""

    class NVMLError(Exception):
        pass

    answers = {  # noqa: RUF012
        ("nvmlInit",): None,
        ("nvmlShutdown",): None,
        ("nvmlDeviceGetCount",): 1,
        ("nvmlDeviceGetHandleByIndex", 0): "card",
        ("nvmlDeviceGetHandleByUUID", "MIG-1"): "instance",
        ("nvmlDeviceGetHandleByUUID", "GPU-1"): "card",
        ("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", "instance"): "card",
        ("nvmlDeviceGetMaxMigDeviceCount", "card"): 7,
        ("nvmlDeviceGetMigDeviceHandleByIndex", "card", 3): "instance",
        ("nvmlDeviceGetMigMode", "card"): [1, 1],
        ("nvmlDeviceGetUUID", "card"): "GPU-1",
        ("nvmlDeviceGetUUID", "instance"): "MIG-1",
        ("nvmlDeviceGetName", "card"): "NVIDIA H100 80GB HBM3",
        ("nvmlDeviceGetName", "instance"): "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        ("nvmlDeviceGetAttributes_v2", "instance"): SimpleNamespace(multiprocessorCount=16),
        ("nvmlDeviceGetMemoryInfo", "instance"): SimpleNamespace(total=10 << 30, used=1 << 30),
        ("nvmlDeviceGetMemoryBusWidth", "card"): 5120,
        ("nvmlDeviceGetClockInfo", "card", 1): 1980,
        ("nvmlDeviceGetTemperature", "card", 0): 61,
        ("nvmlDeviceGetCurrentClocksThrottleReasons", "card"): 0x44,
        ("nvmlDeviceGetComputeRunningProcesses", "instance"): [
            SimpleNamespace(pid=7, usedGpuMemory=None),
            SimpleNamespace(pid=8, usedGpuMemory=1 << 20),
            SimpleNamespace(pid=9, usedGpuMemory=1 << 20),
        ],
        ("nvmlSystemGetProcessName", 8): "/usr/bin/python3",
    }

    def __getattr__(self, name):
        def answer(*args):
            if (name, *args) not in self.answers:
                raise self.NVMLError("Not Supported")
            return self.answers[name, *args]

        return answer


@pytest.mark.usefixtures("_new_connection")
class TestNvml:
    def test_a_missing_nvidia_ml_py_is_no_gpu(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "pynvml", None)
        assert gpu.query_gpus() == ()
        assert gpu.query_driver().problem == "nvidia-ml-py is not installed"
        assert gpu.query_state("GPU-1") == gpu.State()
        assert gpu.query_health("GPU-1") == gpu.Health()

    def test_an_instance_of_a_gpu_has_neighbours_that_nobody_watches(self):
        assert [note.code for note in session.note_other_programs("MIG-1", ())] == ["mig-neighbours"]
        assert session.note_other_programs("GPU-1", ()) == ()

    @pytest.mark.parametrize(("before", "after", "codes"), [(1, 1, []), (1, 3, ["memory-errors"]), (None, 3, [])])
    def test_memory_errors_since_the_run_began_are_said(self, monkeypatch, before, after, codes):
        monkeypatch.setattr(gpu, "query_health", lambda _: gpu.Health(uncorrected_errors=after))
        on_gpu = SimpleNamespace(gpu_uuid="GPU-1", health=gpu.Health(uncorrected_errors=before))

        assert [note.code for note in session.Session.memory_errors(on_gpu)] == codes

    def test_a_gpu_that_cannot_be_watched_is_locked_and_said(self, monkeypatch):
        """In a container without the driver's `utility` capability torch sees the GPU, and NVML does not."""
        monkeypatch.setitem(sys.modules, "pynvml", None)
        uuid = prepare.gpu_uuid({"gpu": {"uuid": "12-34", "name": "NVIDIA L4"}})

        assert uuid == "GPU-12-34"
        others = gpu.query_state(uuid).others
        assert [note.code for note in session.note_other_programs(uuid, others)] == ["gpu-unwatched"]
        assert session.note_other_programs(None, ()) == ()

    def test_a_missing_driver_is_no_gpu(self, monkeypatch):
        pynvml = pytest.importorskip("pynvml")

        def refuse():
            raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

        monkeypatch.setattr(pynvml, "nvmlInit", refuse)
        assert gpu.query_gpus() == ()
        assert gpu.query_driver() == gpu.Driver(problem="NVML Shared Library Not Found")

    def test_an_instance_of_a_split_gpu_is_a_device_of_its_own(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
        (instance,) = gpu.query_gpus()
        assert (instance.index, instance.uuid) == (0, "MIG-1")
        assert instance.device.slug == "h100-80gb-hbm3-mig-1g-10gb"
        assert (instance.device.sm_count, instance.device.memory_bytes, instance.device.mig) == (16, 10 << 30, True)
        assert instance.device.memory_bus_bits is None

    def test_an_instance_has_the_lock_of_its_card(self, monkeypatch, tmp_path):
        monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
        with gpu_lock("MIG-1", 1.0, print, tmp_path), pytest.raises(MachineError, match="has held this GPU"):
            gpu_lock("GPU-1", 0.0, print, tmp_path).__enter__()

    def test_an_instance_has_the_clocks_of_its_card_and_none_where_nvml_is_silent(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
        state = gpu.query_state("MIG-1", ours=frozenset({9}))
        assert (state.sm_clock_hz, state.temperature_c) == (1.98e9, 61.0)
        assert state.throttle_reasons == ("sw-power-cap", "hw-thermal")
        assert state.power_w is None
        assert state.others == (gpu.Process(7, "unknown"), gpu.Process(8, "python3", 1 << 20))
        assert state.memory_used_bytes == 1 << 30

    def test_a_program_that_was_idle_and_works_meanwhile_is_seen(self, monkeypatch):
        nvml, asked = FakeNvml(), []

        def samples(card, since_us):
            asked.append((card, since_us))
            work = ((7, 40, 1), (8, 0, 1), (9, 60, -1), (10, 80, 1))  # another one's, and before the watch began
            return [SimpleNamespace(pid=pid, smUtil=used, timeStamp=since_us + when) for pid, used, when in work]

        nvml.nvmlDeviceGetProcessUtilization = samples
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        begun_us = time.time_ns() // 1000
        with Watch("GPU-1", frozenset({7, 8, 9})) as watch:
            pass

        assert watch.woken == ("unknown (7), which had been idle",)
        ((card, since_us),) = asked
        assert card == "card"
        assert begun_us - 1_000_000 <= since_us <= time.time_ns() // 1000 - 1_000_000

    def test_nobody_is_blamed_for_work_that_nvml_does_not_tell_of(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
        with Watch("GPU-1", frozenset({7})) as watch:
            pass

        assert watch.woken == ()


def test_idle_is_not_a_throttle_reason_and_unknown_reasons_are_shown_as_bits():
    assert gpu.decode_throttle_reasons(0x1) == ()
    assert gpu.decode_throttle_reasons(0x1001) == ("unknown-0x1000",)


@pytest.mark.parametrize(
    ("value", "indices"),
    [(None, [0, 1]), ("1", [1]), ("GPU-b,0", [1, 0]), ("1,7,0", [1]), ("-1", []), ("", [])],
)
def test_the_visible_gpus_are_those_that_cuda_would_see(value, indices):
    gpus = tuple(gpu.Gpu(n, uuid, Device("cuda", "L4")) for n, uuid in enumerate(("GPU-aa", "GPU-bb")))
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert [found.index for found in gpu.visible(gpus, environ)] == indices


# --- the GPU as shared ground ---

OURS = frozenset({10, 11})


def state_with(*pids, reasons=(), **more):
    """Return a state in which programs with these pids are on the GPU."""
    return gpu.State(others=tuple(gpu.Process(pid, "python") for pid in pids), throttle_reasons=reasons, **more)


@pytest.mark.parametrize(
    ("states", "said"),
    [
        pytest.param([state_with(10, 11)], (), id="our-own"),
        pytest.param([state_with(10, 11), state_with(10, 11, 12)], ("python (12)",), id="another-program"),
        pytest.param([state_with(10)], (), id="one-of-ours-has-no-context-yet"),
        pytest.param([state_with(710, 711)], (), id="another-namespace"),
        pytest.param([state_with(710, 711, 712)], ("1 other program on this GPU",), id="another-namespace-one-more"),
        pytest.param([state_with(1, 2, 3, 4)], ("2 other programs on this GPU",), id="another-namespace-two-more"),
        pytest.param([state_with(10, 11, reasons=("sw-power-cap",))], (), id="a-cap-that-turns-cancel"),
        pytest.param(
            [state_with(reasons=("hw-thermal",)), state_with(reasons=("hw-slowdown", "sw-thermal"))],
            ("hw-slowdown", "hw-thermal"),
            id="sudden-slowdowns",
        ),
        pytest.param([gpu.State()], (), id="nothing-known"),
    ],
)
def test_only_other_programs_and_sudden_slowdowns_count_as_disturbances(states, said):
    assert disturbances(states, OURS) == said


def test_of_two_alternating_processes_only_one_is_on_the_gpu_at_a_time():
    for others, said in (((710,), ()), ((710, 77), ("1 other program on this GPU",)), ((10, 77), ("python (77)",))):
        assert disturbances([state_with(*others)], OURS, at_once=1) == said


def test_clients_of_mps_count_as_other_programs_and_its_server_does_not(monkeypatch):
    names = {"nvmlSystemGetProcessName": {7: "/usr/bin/nvidia-cuda-mps-server", 8: "/usr/bin/python3", 9: "conditions"}}
    nvml = FakeNvml()
    nvml.nvmlSystemGetProcessName = names["nvmlSystemGetProcessName"].get
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    gpu._connect.cache_clear()

    assert [process.name for process in gpu.query_state("MIG-1").others] == ["python3", "conditions"]
    gpu._connect.cache_clear()


@pytest.fixture
def watch_reads(monkeypatch):
    """Let NVML report one state; return a function that waits until a watch has read it after the call."""
    reads = threading.Semaphore(0)

    def play(state):
        def query_state(*_):
            reads.release()
            return state

        monkeypatch.setattr(gpu, "query_state", query_state)
        return wait

    def wait():
        while reads.acquire(blocking=False):
            pass
        assert all(reads.acquire(timeout=60) for _ in range(2))  # the first may have begun before

    return play


class OneAnswer:
    """A worker that timed a case in process 10 while the GPU was watched."""

    traced = False

    def __init__(self, wait):
        self.wait = wait

    def ask(self, request, timeout_s):
        del request, timeout_s
        started = time.monotonic()
        self.wait()
        window = [started, time.monotonic()]
        answer = {"seconds": [1e-5], "launches": 100, "method": "cuda-graph", "window": window, "pid": 10}
        return {**answer, "memory_bytes": None, "not_captured": "", "waited": 0.0}


@pytest.mark.parametrize(
    ("pids", "working", "said"),
    [
        ((10, 5), (), ()),
        ((10, 5, 77), (), ("python (77)",)),
        ((10, 5), (gpu.Process(5, "python"),), ("python (5), which had been idle",)),
    ],
    ids=["alone", "a-program-came", "an-idle-one-works"],
)
def test_a_process_compared_with_a_baseline_records_what_disturbed_it(
    monkeypatch, watch_reads, tmp_path, pids, working, said
):
    wait = watch_reads(state_with(*pids))
    monkeypatch.setattr(gpu, "query_working", lambda *_: working)
    conditions = Conditions("python3", tmp_path, {}, 30, 60.0, gpu_uuid="GPU-1", other_programs=frozenset({5}))
    job = select_jobs((a_spec(),), [], ["cuda"])[0]
    replicate = PythonKernels(conditions, OneAnswer(wait)).time(job, 0)

    assert replicate.disturbed == said


def test_a_program_records_slowdowns_of_the_gpu_and_other_programs_during_it(monkeypatch, watch_reads, tmp_path):
    wait = watch_reads(state_with(10, 77, reasons=("hw-thermal", "sw-power-cap")))
    monkeypatch.setattr(gpu, "query_working", lambda *_: (gpu.Process(5, "python"),))
    conditions = Conditions("python3", tmp_path, {}, 30, 60.0, gpu_uuid="GPU-1", other_programs=frozenset({5}))
    spec = a_spec("app", entry="", program=Program("command", ("./app",)))
    job = select_jobs((spec,), [], ["cuda"])[0]
    monkeypatch.setattr(Launcher, "run", lambda *_: wait())
    programs = Programs(Launcher(conditions, tmp_path), base_root=tmp_path)
    replicate, control = programs.time(job, 0), programs.control(job, 0)
    ((_, pair),) = programs.pairs([job], 0)

    said = ("hw-thermal", "python (5), which had been idle")
    assert [found.disturbed for found in (replicate, pair, control)] == [said] * 3


@pytest.fixture
def seen_on_gpu(monkeypatch):
    """Let NVML return the states of a list without a delay, and then always the last one."""

    def play(*states):
        left = list(states)
        monkeypatch.setattr(session, "BUSY_POLL_S", 0.0)
        monkeypatch.setattr(gpu, "query_state", lambda _: left.pop(0) if len(left) > 1 else left[0])

    return play


BUSY, IDLE = state_with(77, busy_pct=98.0), state_with(77, busy_pct=0.0)


@pytest.mark.parametrize(
    "states",
    [
        pytest.param([IDLE], id="a-program-that-only-holds-memory"),
        pytest.param([gpu.State()], id="nothing-known"),
        pytest.param([BUSY, BUSY, BUSY, IDLE], id="busy-for-a-moment"),
    ],
)
def test_a_session_does_not_wait_for_an_idle_gpu(seen_on_gpu, states):
    seen_on_gpu(*states)
    said = []
    session.wait_until_idle("GPU-1", 0.0, said.append)

    assert said == []


def test_a_session_waits_for_a_busy_gpu_and_prints_one_message(seen_on_gpu):
    seen_on_gpu(*[BUSY] * 23, IDLE)
    said = []
    session.wait_until_idle("GPU-1", 60.0, said.append)

    assert said == ["waiting for python (77) to stop using the GPU ..."]


@pytest.mark.parametrize(
    ("state", "named"), [(BUSY, r"python \(77\)"), (gpu.State(busy_pct=50.0, others=()), "another program")]
)
def test_the_error_for_a_gpu_that_stays_busy_names_the_program(seen_on_gpu, state, named):
    seen_on_gpu(state)
    with pytest.raises(MachineError, match=f"{named} has kept this GPU busy for 0 s") as given_up:
        session.wait_until_idle("GPU-1", 0.0, lambda _: None)

    assert given_up.value.hint == "stop it, or raise --wait"


# --- the machine ---


def proc(root: Path, **files: str) -> Path:
    """Write a fake /proc; `__` in a name is a slash."""
    for name, text in files.items():
        path = root / "proc" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_the_permission_to_read_counters_is_read_from_proc(tmp_path):
    root = proc(
        tmp_path,
        driver__nvidia__params="RmMsg: \nRmProfilingAdminOnly: 1\n",
        self__uid_map="         0          0 4294967295\n",
        self__status="Name:\tpython\nCapEff:\t0000004000000000\n",
        version="Linux version 6.6 (root@microsoft-standard-WSL2)",
    )
    proc(root, **{"123__comm": "nv-hostengine\n"})
    facts = machine.gather_facts(os.environ, python=sys.executable, root=root)
    assert facts.counters_admin_only is True
    assert (facts.cap_sys_admin, facts.cap_perfmon) == (False, True)
    assert (facts.wsl, facts.container, facts.dcgm) == (True, False, "nv-hostengine")


def test_root_of_a_rootless_container_has_no_capabilities_for_the_driver(tmp_path):
    root = proc(tmp_path, self__uid_map="0 1000 1", self__status="CapEff:\t000001ffffffffff\n")
    assert machine._capabilities(root) == 0


def test_the_cpu_is_described_by_its_name_and_memory(tmp_path):
    root = proc(tmp_path, cpuinfo="processor\t: 0\nmodel name\t: Fast CPU\n", meminfo="MemTotal:   2048 kB\n")
    device = cpu.cpu_device(root)
    assert (device.kind, device.name, device.memory_bytes) == ("cpu", "Fast CPU", 2048 * 1024)
    assert cpu.cpu_device(tmp_path / "none").name


def test_this_machine_can_be_diagnosed():
    checks = diagnose(machine.gather_facts(os.environ, python=sys.executable))
    assert all(check.sentence and "\n" not in check.sentence for check in checks)


@pytest.mark.parametrize(
    ("held", "peak"),
    [
        ([{}], None),
        ([{7: 9}], None),
        ([{7: 9, 8: None}], None),
        ([{7: 9, 8: 5}, {8: 3, 9: 4}, {8: 6}], 7),
    ],
)
def test_the_memory_of_programs_that_were_there_before_does_not_count(held, peak):
    watch = Watch("GPU-1", frozenset({7}))
    states = [gpu.State(others=tuple(gpu.Process(pid, "x", size) for pid, size in one.items())) for one in held]
    watch._states = [(float(when), state) for when, state in enumerate(states)]

    assert watch.memory_bytes(0.0, 10.0) == peak
    assert watch.memory_bytes(20.0, 30.0) is None
