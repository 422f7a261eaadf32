"""The diagnosis: each problem is named in a sentence and comes with its own fix."""

from dataclasses import replace

import pytest

from ci_perf.doctor.diagnosis import diagnose
from ci_perf.doctor.facts import Check, CheckState, Facts, GpuFacts
from ci_perf.doctor.tools import best
from ci_perf.values.device import Device
from ci_perf.values.tool import Importer, Python, Tool

PYTHON = Python("/venv/bin/python", "3.12.3", has_torch=True)
H100 = GpuFacts(0, Device("cuda", "NVIDIA H100 80GB HBM3", "9.0", memory_bytes=80 * 1024**3), persistence=True)
NSYS = Tool("/opt/nsys", "2025.3.1", importer=Importer("/opt/host-linux-x64", "/opt/host-linux-x64"))
NCU = Tool("/opt/ncu", "2025.3.1.0")
SANITIZER = Tool("/opt/compute-sanitizer", "2025.3.1.0")
HEALTHY = Facts(
    python="3.12.3",
    interpreter=PYTHON,
    torch="2.11.0+cu130",
    torch_cuda="13.0",
    cuda_core="1.2.0",
    driver="580.159.04",
    driver_cuda="13.0",
    gpus=(H100,),
    nsys=(NSYS,),
    ncu=(NCU,),
    sanitizer=(SANITIZER,),
    counters_admin_only=False,
    disk_free_bytes=64 * 1024**3,
    git="2.43.0",
    kernels=5,
)
LAPTOP = replace(
    HEALTHY,
    torch="2.11.0+cpu",
    torch_cuda=None,
    driver=None,
    driver_cuda=None,
    driver_problem="NVML Shared Library Not Found",
    gpus=(),
    nsys=(),
    ncu=(),
    counters_admin_only=None,
)


def problems(facts: Facts) -> list[Check]:
    return [check for check in diagnose(facts) if check.state is not CheckState.OK]


def only_problem(facts: Facts) -> Check:
    (check,) = problems(facts)
    return check


def with_gpu(**changes) -> Facts:
    return replace(HEALTHY, gpus=(replace(H100, **changes),))


def test_a_healthy_h100_has_no_problem_and_needs_no_fix():
    assert problems(HEALTHY) == []
    assert not any(check.fix for check in diagnose(HEALTHY))


def test_a_laptop_lacks_only_the_gpu_and_hears_what_still_works():
    check = only_problem(LAPTOP)
    assert (check.name, check.state) == ("gpu", CheckState.MISSING)
    assert "reference implementations on the CPU" in check.sentence
    assert "replay" in check.sentence


@pytest.mark.parametrize(
    ("facts", "fix"),
    [
        (replace(LAPTOP, container=True), "docker run --gpus all"),
        (replace(LAPTOP, wsl=True), "on Windows"),
        (replace(LAPTOP, driver_problem="nvidia-ml-py is not installed"), "pip install nvidia-ml-py"),
        (replace(LAPTOP, driver_problem="RM has detected an NVML/RM version mismatch."), "sudo reboot"),
        (replace(LAPTOP, driver_problem="Driver Not Loaded"), "sudo modprobe nvidia"),
    ],
)
def test_each_reason_for_no_gpu_has_its_own_fix(facts, fix):
    assert fix in only_problem(facts).fix


def test_denied_counters_are_mended_by_the_option_of_the_kernel_module():
    check = only_problem(replace(HEALTHY, counters_admin_only=True))
    assert check.state is CheckState.BROKEN
    assert "options nvidia NVreg_RestrictProfilingToAdminUsers=0" in check.fix


def test_denied_counters_in_a_container_are_mended_by_a_capability():
    check = only_problem(replace(HEALTHY, counters_admin_only=True, container=True))
    assert check.fix.startswith("docker run --cap-add=SYS_ADMIN")


def test_in_wsl_the_counters_are_allowed_on_windows():
    assert "NVIDIA Control Panel" in only_problem(replace(HEALTHY, counters_admin_only=None, wsl=True)).fix


def test_a_capability_overrides_the_option():
    denied = replace(HEALTHY, counters_admin_only=True)
    assert problems(replace(denied, cap_sys_admin=True)) == []
    assert problems(replace(denied, cap_perfmon=True)) == []
    assert problems(replace(denied, cap_perfmon=True, driver="550.90.07")) != []


def test_an_old_driver_gets_an_older_torch_and_an_older_ncu():
    old = replace(HEALTHY, driver="535.104.05", driver_cuda="12.2")
    torch, ncu = problems(old)
    assert (torch.name, torch.state) == ("torch and driver", CheckState.BROKEN)
    assert "whl/cu121" in torch.fix
    assert (ncu.name, ncu.state) == ("ncu and driver", CheckState.BROKEN)


def test_a_driver_of_the_same_major_version_is_only_a_warning():
    facts = replace(HEALTHY, torch_cuda="12.8", driver_cuda="12.4", ncu=(replace(NCU, version="2024.1.1"),))
    assert [(check.name, check.state) for check in problems(facts)] == [
        ("torch and driver", CheckState.WARN),
        ("ncu and toolkit", CheckState.WARN),
    ]


def test_a_second_ncu_that_fits_the_driver_is_offered():
    fitting = Tool("/usr/local/cuda-12.2/bin/ncu", "2023.2.0")
    facts = replace(HEALTHY, torch_cuda="12.1", driver_cuda="12.2", ncu=(NCU, fitting))
    assert only_problem(facts).fix == "export CI_PERF_NCU=/usr/local/cuda-12.2/bin/ncu"


def test_an_ncu_older_than_the_chip_is_a_warning():
    l4 = replace(H100, device=Device("cuda", "NVIDIA L4", "8.9"))
    facts = replace(HEALTHY, gpus=(l4,), torch_cuda="11.8", ncu=(replace(NCU, version="2022.3.0"),))
    assert "2023.1 is the first" in only_problem(facts).sentence


def test_a_missing_sanitizer_costs_only_its_own_gate():
    check = only_problem(replace(HEALTHY, sanitizer=()))
    assert (check.name, check.state) == ("compute-sanitizer", CheckState.MISSING)
    assert "--sanitize" in check.sentence
    assert "CI_PERF_COMPUTE_SANITIZER" in check.fix


def test_a_missing_ncu_costs_the_counters_but_not_the_verdict():
    check = only_problem(replace(HEALTHY, ncu=()))
    assert (check.name, check.state) == ("ncu", CheckState.MISSING)
    assert "verdicts do not need it" in check.sentence
    assert "cuda-nsight-compute-13-0" in check.fix


def test_a_pinned_tool_that_vanished_is_not_replaced_in_silence():
    pinned = Tool("/gone/ncu", None, "CI_PERF_NCU", problem="no such file or directory")
    check = only_problem(replace(HEALTHY, ncu=(pinned, NCU)))
    assert (check.name, check.state) == ("CI_PERF_NCU", CheckState.BROKEN)
    assert "/gone/ncu: no such file or directory" in check.sentence


def test_an_nsys_without_its_importer_is_told_each_thing_that_it_lacks():
    importer = Importer("/host/host-linux-x64", "/host/linux-desktop-x64", lacks="libdw.so.1")
    folder, library = problems(replace(HEALTHY, nsys=(replace(NSYS, importer=importer),)))
    assert folder.fix == "sudo ln -s /host/linux-desktop-x64 /host/host-linux-x64"
    assert library.fix == "sudo apt-get install libdw1"


def test_the_best_tool_is_the_first_complete_one():
    dead, crippled = Tool("/dead", None), replace(NSYS, importer=Importer("/a", None))
    assert best((dead, crippled, NSYS)) == NSYS
    assert best((dead, crippled)) == crippled
    assert best((dead,)) is None


def test_a_torch_without_cuda_beside_a_gpu_is_broken():
    check = only_problem(replace(HEALTHY, torch="2.11.0+cpu", torch_cuda=None))
    assert (check.name, check.state) == ("torch", CheckState.BROKEN)
    assert check.fix.endswith("--index-url https://download.pytorch.org/whl/cu130")


def test_an_interpreter_that_was_not_found_brings_its_own_hint():
    facts = replace(LAPTOP, interpreter=None, interpreter_problem="is Python 3.6", interpreter_hint="take 3.12")
    assert Check("python", CheckState.BROKEN, "is Python 3.6", "take 3.12") in problems(facts)


@pytest.mark.parametrize(
    ("facts", "state", "said", "fix"),
    [
        (with_gpu(others=("python (pid 7)",)), CheckState.WARN, "python (pid 7)", "stop them"),
        (with_gpu(memory_used_bytes=2 * 1024**3), CheckState.WARN, "2.0 GiB", "nvidia-smi"),
        (with_gpu(uncorrected_errors=3), CheckState.BROKEN, "3 uncorrected", "--gpu-reset"),
        (with_gpu(repair_pending=True), CheckState.WARN, "broken rows", "--gpu-reset"),
        (with_gpu(persistence=False), CheckState.WARN, "persistence", "nvidia-smi -i 0 -pm 1"),
        (with_gpu(throttle_reasons=("hw-thermal",)), CheckState.WARN, "hw-thermal", "cooling"),
        (with_gpu(device=replace(H100.device, mig=True)), CheckState.WARN, "MIG", "-mig 0"),
        (replace(HEALTHY, dcgm="nv-hostengine"), CheckState.WARN, "nv-hostengine", "dcgmi profile --pause"),
        (replace(HEALTHY, disk_free_bytes=0), CheckState.BROKEN, "too little", "free some space"),
        (replace(HEALTHY, cuda_core=None), CheckState.MISSING, "cuda-core", '"cuda-core[cu13]"'),
        (replace(HEALTHY, git=None), CheckState.MISSING, "no git", "apt-get install git"),
        (replace(HEALTHY, kernels=0), CheckState.MISSING, "kernel.toml", "write kernels/NAME/kernel.toml"),
    ],
)
def test_each_problem_has_its_own_sentence_and_fix(facts, state, said, fix):
    check = only_problem(facts)
    assert check.state is state
    assert said in check.sentence
    assert fix in check.fix


def test_a_power_cap_is_no_problem():
    assert problems(with_gpu(throttle_reasons=("sw-power-cap",))) == []


def test_instances_of_one_gpu_report_its_problems_once():
    split = replace(H100, device=replace(H100.device, mig=True))
    assert only_problem(replace(HEALTHY, gpus=(split, split))).name == "gpu 0 mig"
