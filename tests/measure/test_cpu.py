"""The cores of this machine: how busy they are, how long a thread waits for one, and what it executes."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ci_perf import store
from ci_perf.judge.verdict import judge
from ci_perf.measure.cpu import available_bytes, cpu_device, note_busy, used_share
from ci_perf.measure.side_answers import share_waited
from ci_perf.userside import core_wait, stopwatch
from ci_perf.userside.case import load_entry
from ci_perf.userside.cpu_timers import CpuTimer, RestoredCpuTimer
from ci_perf.userside.instructions import Counter
from tests.builders import a_baseline, a_baseline_case, a_cpu, a_measurement, a_run

BEFORE = "cpu 9 9 9 9\ncpu0 100 0 50 1000 10 0 5 0 0 0\ncpu1 100 0 50 1000 10 0 5 0 0 0\ncpu12 0 0 0 0 0 0 0 0 0 0\n"
AFTER = "cpu 9 9 9 9\ncpu0 130 5 60 1025 20 0 10 15 0 0\ncpu1 100 0 50 1100 10 0 5 0 0 0\ncpu12 1 0 0 0 0 0 0 0 0 0\n"

MEMORY = "MemTotal:        8000 kB\nMemFree:          100 kB\nMemAvailable:    6000 kB\n"


def limited(limit, used):
    """Return the files of a cgroup with a limit; files that Linux keeps in memory do not count as used."""
    return {"sys/fs/cgroup/memory.max": f"{limit}\n", "sys/fs/cgroup/memory.stat": f"anon {used}\nfile 4000000\n"}


@pytest.mark.parametrize(
    ("cores", "share"),
    [({0}, 0.65), ({1}, 0.0), ({0, 1}, 0.325), ({12}, 1.0), ({7}, None), (set(), None)],
    ids=["one is busy", "one is idle", "both", "two digits", "unknown", "none"],
)
def test_the_used_share_is_that_of_the_allowed_cores_without_idle_time_and_waits_for_disks(cores, share):
    assert used_share(BEFORE, AFTER, cores) == share


@pytest.mark.parametrize(("share", "busy"), [(None, False), (0.0, False), (0.19, False), (0.2, True), (1.0, True)])
def test_a_machine_is_busy_from_a_fifth_of_its_cores_on(share, busy):
    note = note_busy(share, 9.25, 2)
    assert (note is not None) is busy
    if note and share == 1.0:
        assert note.code == "cpu-busy"
        assert note.message.startswith(
            "this machine is busy: other programs use 100 % of 2 cores (load average 9.2); times scatter more"
        )


@pytest.mark.parametrize(
    ("files", "available"),
    [
        ({}, None),
        ({"proc/meminfo": MEMORY}, 6000 * 1024),
        ({"proc/meminfo": MEMORY, **limited("max", 1000)}, 6000 * 1024),
        ({"proc/meminfo": MEMORY, **limited("5000000", 1000)}, 4999000),
        ({"proc/meminfo": MEMORY, **limited("9000000", 1000)}, 6000 * 1024),
        ({"proc/meminfo": MEMORY, **limited("1000", 1001)}, 0),
        (limited("5000000", 1000), 4999000),
    ],
    ids=["unknown", "machine", "no limit", "limit", "higher limit", "at the limit", "limit alone"],
)
def test_the_available_memory_is_that_of_the_machine_within_the_limit_of_the_container(tmp_path, files, available):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    assert available_bytes(tmp_path) == available


def test_a_thread_that_shares_a_core_waits():
    """Two processes on one core: while one waits, the other one runs."""
    allowed = os.sched_getaffinity(0)
    if not Path("/proc/thread-self/schedstat").exists():
        pytest.skip("this Linux does not count the waits of threads")
    core = min(allowed)
    spin = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile os.getppid() == {os.getpid()}: pass"
    with subprocess.Popen([sys.executable, "-c", spin]) as other:
        try:
            os.sched_setaffinity(0, {core})
            wait, started = core_wait.Wait(), time.monotonic()
            while wait.seconds() < 0.02:
                pass
            assert time.monotonic() - started >= 0.02
        finally:
            os.sched_setaffinity(0, allowed)
            other.kill()


@pytest.mark.parametrize(
    ("waited", "others", "counts"),
    [(0.5, 0.0, 0.5), (0.5, 0.2, 0.3), (0.5, 0.5, 0.0), (0.5, 0.9, 0.0), (0.0, 0.9, 0.0)],
)
def test_a_wait_that_other_threads_of_the_process_may_have_caused_does_not_count(monkeypatch, waited, others, counts):
    """Else a kernel that starts too many threads would seem as fast as before."""
    monkeypatch.setattr(core_wait, "waited", lambda: 7.0)
    monkeypatch.setattr(core_wait, "others_ran", lambda: 3.0)
    wait = core_wait.Wait()
    monkeypatch.setattr(core_wait, "waited", lambda: 7.0 + waited)
    monkeypatch.setattr(core_wait, "others_ran", lambda: 3.0 + others)

    assert wait.seconds() == pytest.approx(counts)


def test_a_child_process_that_ended_counts_as_one_of_the_others_that_ran():
    before = core_wait.others_ran()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.05: pass"], check=True)

    assert core_wait.others_ran() - before >= 0.05


@pytest.mark.parametrize(
    ("waits", "windows", "share"),
    [
        ([0.0], [(1.0, 3.0)], 0.0),
        ([0.5, 0.25], [(1.0, 3.0), (5.0, 6.0)], 0.25),
        ([3.0], [(1.0, 2.0)], 1.0),
        ([0.0], [(1.0, 1.0)], 0.0),
    ],
    ids=["none", "two answers", "more than the window", "an empty window"],
)
def test_the_share_of_waits_is_that_of_all_windows(waits, windows, share):
    answers = [{"waited": waited, "window": window} for waited, window in zip(waits, windows, strict=True)]

    assert share_waited(answers) == share


@pytest.mark.parametrize(("keeps_waits", "seconds"), [(False, 0.5), (True, 2.0)])
def test_the_times_of_a_cpu_kernel_include_its_waits_only_where_they_are_to(monkeypatch, keeps_waits, seconds):
    clocks = {"now": 0.0, "waited": 0.0}

    def launch():
        clocks["now"] += 2.0
        clocks["waited"] += 1.5

    monkeypatch.setattr(time, "perf_counter", lambda: clocks["now"])
    monkeypatch.setattr(core_wait, "waited", lambda: clocks["waited"])
    monkeypatch.setattr(core_wait, "others_ran", lambda: 0.0)
    timer = CpuTimer(SimpleNamespace(launch=launch))
    timer.keeps_waits = keeps_waits

    assert timer.seconds(4) == seconds
    assert timer.waited == 6.0


@pytest.mark.parametrize("reading", [0, 1, 2], ids=["first reading", "last before the launches", "first after them"])
def test_losing_the_core_while_the_counts_are_read_does_not_change_the_time_of_the_launches(monkeypatch, reading):
    """On a busy machine this is frequent, as these are system calls."""
    clocks = {"now": 0.0, "waited": 0.0, "ran": 0.0}
    waits = iter([0.0] * reading + [1.5])

    def launch():
        clocks["now"] += 0.5
        clocks["ran"] += 0.5

    def read(value):
        waited = next(waits, 0.0)
        clocks["now"] += waited
        clocks["waited"] += waited
        return value

    monkeypatch.setattr(time, "perf_counter", lambda: clocks["now"])
    monkeypatch.setattr(time, "thread_time", lambda: clocks["ran"])
    monkeypatch.setattr(core_wait, "waited", lambda: read(clocks["waited"]))
    monkeypatch.setattr(core_wait, "others_ran", lambda: read(0.0))

    assert CpuTimer(SimpleNamespace(launch=launch)).seconds(4) == 0.5


@pytest.mark.parametrize(
    ("waits", "keeps_waits", "seconds", "launched"),
    [
        ([0, 0, 0, 0], False, 1.0, 4),
        ([1, 0, 1, 0, 0, 0], False, 1.0, 6),
        ([1, 1, 1, 1, 0, 0, 0, 0], False, 1.0, 8),
        ([1, 1, 1, 1, 1, 0, 0, 0], False, 1.25, 8),
        ([1, 0, 1, 0], True, 1.5, 4),
    ],
    ids=["no wait", "some", "half", "more than half", "times that include them"],
)
def test_a_restored_launch_that_waited_for_a_core_is_repeated(monkeypatch, waits, keeps_waits, seconds, launched):
    """Each launch takes 1 s, and a wait 1 s more."""
    clocks, left = {"now": 0.0, "waited": 0.0}, list(waits)

    def launch():
        waited = left.pop(0)
        clocks["now"] += 1.0 + waited
        clocks["waited"] += waited

    monkeypatch.setattr(time, "perf_counter", lambda: clocks["now"])
    monkeypatch.setattr(core_wait, "waited", lambda: clocks["waited"])
    monkeypatch.setattr(core_wait, "others_ran", lambda: 0.0)
    timer = RestoredCpuTimer(SimpleNamespace(launch=launch, saved=[]))
    timer.keeps_waits = keeps_waits

    assert (timer.seconds(4), len(waits) - len(left)) == (seconds, launched)
    assert timer.waited == sum(waits)


def test_the_time_in_which_a_launch_sleeps_counts(monkeypatch):
    clocks = {"now": 0.0}
    monkeypatch.setattr(time, "perf_counter", lambda: clocks["now"])
    monkeypatch.setattr(core_wait, "waited", lambda: 0.0)

    assert CpuTimer(SimpleNamespace(launch=lambda: clocks.update(now=clocks["now"] + 3.0))).seconds(2) == 3.0


def test_a_counter_of_perf_event_open_counts_what_this_process_does():
    """The clock of a task is an event that every machine has; the instructions often cannot be counted."""
    software, task_clock = 1, 1
    counter = Counter(software, task_clock)
    before = counter.read()
    if before is None:
        pytest.skip("perf_event_open is not allowed here")
    end = time.thread_time() + 0.02
    while time.thread_time() < end:
        pass
    after = counter.read()
    assert after is not None
    assert after - before >= 15_000_000


def test_an_answer_has_the_instructions_of_one_launch_and_its_own_waits_alone(tmp_path, monkeypatch):
    (tmp_path / "kernel.py").write_text(COUNTED)
    request = {"device": "cpu", "entry": str(tmp_path / "kernel.py"), "target": "launch", "params": {}}
    kernel = load_entry(request)
    monkeypatch.setattr(stopwatch, "Counter", lambda: SimpleNamespace(read=lambda: 7 * kernel.launches))
    monkeypatch.setattr(core_wait, "waited", lambda: kernel.launches * 1e-9)
    monkeypatch.setattr(core_wait, "others_ran", lambda: 0.0)
    watch = stopwatch.Stopwatch(request)
    answers = [watch.take(2) for _ in range(2)]

    assert [answer["instructions"] for answer in answers] == [7.0, 7.0]
    assert [answer["waited"] for answer in answers] == pytest.approx([2 * watch.count * 1e-9] * 2)


COUNTED = """
launches = 0

def make_inputs(rng, device):
    return 1.0

def launch(inputs):
    global launches
    launches += 1
    return inputs

reference = launch
"""


def test_where_there_is_no_counter_nothing_is_counted():
    assert Counter(99, 0).read() is None
    instructions = Counter()
    first = instructions.read()
    assert first is None or instructions.read() > first


X86 = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nstepping\t: 1\n\n"
ARM = "BogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU variant\t: 0x3\nCPU part\t: 0xD0C\nCPU revision\t: 1\n\n"


@pytest.mark.parametrize(
    ("info", "model", "slug"),
    [
        (X86 * 2, "25-17-1", "cpu-amd-epyc-25-17-1"),
        (ARM * 2, "0x41-0x3-0xd0c-1", None),
        ("processor\t: 0\n", None, None),
    ],
    ids=["x86", "Arm", "unknown"],
)
def test_the_key_of_a_cpu_tells_models_of_one_name_apart(tmp_path, info, model, slug):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(info)
    device = cpu_device(tmp_path)

    assert device.cpu_model == model
    assert device.slug == (slug or device.slug)
    assert model is None or device.slug.endswith(f"-{model}")


def test_a_baseline_from_before_the_model_was_read_is_compared_until_there_is_one_of_the_model(tmp_path):
    epyc = a_cpu(name="AMD EPYC", cpu_model="25-17-1")
    other = a_cpu(name="AMD EPYC", cpu_model="26-2-1")
    cases = {"s128": a_baseline_case(target="launch")}
    store.write_baseline(a_baseline(device=a_cpu(name="AMD EPYC"), cases=cases), tmp_path)
    for device in (epyc, other):
        (found,) = store.read_baselines(tmp_path, (device,))
        run = a_run(a_measurement(device="cpu"), devices=(device,), baselines=(found,))
        assert [finding.code for finding in judge(run)] == ["within-noise"]

    store.write_baseline(a_baseline(device=epyc, cases=cases), tmp_path)

    assert [baseline.device for baseline in store.read_baselines(tmp_path, (epyc,))] == [epyc]
    assert [baseline.device for baseline in store.read_baselines(tmp_path, (other,))] == [a_cpu(name="AMD EPYC")]
    assert len(store.read_baselines(tmp_path)) == 2
