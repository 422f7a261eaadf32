"""Diagnoses of a machine: each problem has its own sentence and fix."""

from dataclasses import replace

import pytest

from ci_perf.doctor.diagnosis import diagnose
from ci_perf.doctor.facts import Diagnosis, DiagnosisState, Facts, GpuFacts
from ci_perf.doctor.tools import best
from ci_perf.values.device import Device, Importer, Python, Tool

PYTHON = Python("/venv/bin/python", "3.12.3", has_torch=True)
H100 = GpuFacts(0, Device("cuda", "NVIDIA H100 80GB HBM3", "9.0", memory_bytes=80 * 1024**3), persistence=True)
NSYS = Tool("/opt/nsys", "2025.3.1", importer=Importer("/opt/host-linux-x64", "/opt/host-linux-x64"))
NCU = Tool("/opt/ncu", "2025.3.1.0")
SANITIZER = Tool("/opt/compute-sanitizer", "2025.3.1.0")
L4 = Device("cuda", "NVIDIA L4", "8.9")
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
OLD_DRIVER = replace(HEALTHY, driver="535.104.05", driver_cuda="12.2")
COUNTERS_DENIED = replace(HEALTHY, counters_admin_only=True)


def problems(facts: Facts) -> list[Diagnosis]:
    return [diagnosis for diagnosis in diagnose(facts) if diagnosis.state is not DiagnosisState.OK]


def only_problem(facts: Facts) -> Diagnosis:
    (diagnosis,) = problems(facts)
    return diagnosis


def with_gpu(**changes) -> Facts:
    return replace(HEALTHY, gpus=(replace(H100, **changes),))


def with_nsys(importer: Importer) -> Facts:
    return replace(HEALTHY, nsys=(replace(NSYS, importer=importer),))


def test_a_healthy_machine_has_no_problem_and_no_fix():
    assert problems(HEALTHY) == []
    assert not any(diagnosis.fix for diagnosis in diagnose(HEALTHY))


WARN, MISSING, BROKEN = DiagnosisState.WARN, DiagnosisState.MISSING, DiagnosisState.BROKEN


@pytest.mark.parametrize(
    ("facts", "name", "state", "said", "fix"),
    [
        # No GPU: what still works, and a fix for each reason.
        (LAPTOP, "gpu", MISSING, "reference implementations on the CPU; list, replay", "install its driver"),
        (replace(LAPTOP, container=True), "gpu", MISSING, "no GPU", "docker run --gpus all"),
        (replace(LAPTOP, wsl=True), "gpu", MISSING, "no GPU", "on Windows"),
        (
            replace(LAPTOP, driver_problem="nvidia-ml-py is not installed"),
            *("gpu", MISSING, "nvidia-ml-py is not installed", "pip install nvidia-ml-py"),
        ),
        (
            replace(LAPTOP, driver_problem="RM has detected an NVML/RM version mismatch."),
            *("driver", BROKEN, "old kernel module", "sudo reboot"),
        ),
        (
            replace(LAPTOP, driver_problem="Driver Not Loaded"),
            *("driver", BROKEN, "not loaded", "sudo modprobe nvidia"),
        ),
        # One GPU.
        (with_gpu(others=("python (pid 7)",)), "gpu 0 users", WARN, "python (pid 7)", "stop them"),
        (with_gpu(memory_used_bytes=2 * 1024**3), "gpu 0 users", WARN, "2.0 GiB", "nvidia-smi"),
        (with_gpu(uncorrected_errors=3), "gpu 0 memory", BROKEN, "3 uncorrected", "--gpu-reset"),
        (with_gpu(repair_pending=True), "gpu 0 memory", WARN, "faulty memory rows", "--gpu-reset"),
        (with_gpu(persistence=False), "gpu 0 persistence", WARN, "persistence", "nvidia-smi -i 0 -pm 1"),
        (with_gpu(throttle_reasons=("hw-thermal",)), "gpu 0 clocks", WARN, "hw-thermal", "cooling"),
        (with_gpu(device=replace(H100.device, mig=True)), "gpu 0 mig", WARN, "MIG", "-mig 0"),
        # Permission to read counters.
        (
            COUNTERS_DENIED,
            *("counter permission", BROKEN, "only root", "options nvidia NVreg_RestrictProfilingToAdminUsers=0"),
        ),
        (
            replace(COUNTERS_DENIED, container=True),
            *("counter permission", BROKEN, "only root", "docker run --cap-add=SYS_ADMIN"),
        ),
        (
            replace(HEALTHY, counters_admin_only=None, wsl=True),
            *("counter permission", WARN, "Windows", "NVIDIA Control Panel"),
        ),
        (replace(HEALTHY, dcgm="nv-hostengine"), "dcgm", WARN, "nv-hostengine", "dcgmi profile --pause"),
        # Tools.
        (replace(HEALTHY, ncu=()), "ncu", MISSING, "verdicts do not need it", "cuda-nsight-compute-13-0"),
        (replace(HEALTHY, nsys=()), "nsys", MISSING, "verdicts do not need it", "nsight-systems-cli"),
        (replace(HEALTHY, sanitizer=()), "compute-sanitizer", MISSING, "--sanitize", "CI_PERF_COMPUTE_SANITIZER"),
        (
            replace(HEALTHY, ncu=(Tool("/gone/ncu", None, "CI_PERF_NCU", problem="no such file or directory"), NCU)),
            *("CI_PERF_NCU", BROKEN, "/gone/ncu: no such file or directory", "unset it"),
        ),
        (with_nsys(Importer("/host", None)), "nsys importer", BROKEN, "/host", "nsight-systems-cli"),
        (with_nsys(Importer("/host", "/other")), "nsys importer", BROKEN, "/host", "sudo ln -s /other /host"),
        (
            with_nsys(Importer("/host", "/host", lacks="libdw.so.1")),
            *("nsys libraries", BROKEN, "libdw.so.1", "sudo apt-get install libdw1"),
        ),
        # Versions.
        (
            replace(HEALTHY, torch="2.11.0+cpu", torch_cuda=None),
            *("torch", BROKEN, "without CUDA", "--index-url https://download.pytorch.org/whl/cu130"),
        ),
        (
            replace(OLD_DRIVER, torch_cuda="12.1", ncu=(NCU, Tool("/cuda-12.2/ncu", "2023.2.0"))),
            *("ncu and driver", BROKEN, "needs a driver for CUDA 12.4", "export CI_PERF_NCU=/cuda-12.2/ncu"),
        ),
        (
            replace(with_gpu(device=L4), torch_cuda="11.8", ncu=(replace(NCU, version="2022.3.0"),)),
            *("ncu and gpu", WARN, "2023.1 is the first", "install ncu 2023.1"),
        ),
        (replace(HEALTHY, cuda_core=None), "cuda-core", MISSING, "cuda-core", '"cuda-core[cu13]"'),
        # Everything else.
        (replace(HEALTHY, disk_free_bytes=0), "disk", BROKEN, "too little", "free some space"),
        (replace(HEALTHY, disk_free_bytes=512 * 1024**2 - 1), "disk", BROKEN, "too little", "free some space"),
        (replace(HEALTHY, disk_free_bytes=512 * 1024**2), "disk", WARN, "may not fit", "free some space"),
        (replace(HEALTHY, disk_free_bytes=5 * 1024**3 - 1), "disk", WARN, "may not fit", "free some space"),
        (replace(HEALTHY, git=None), "git", MISSING, "git is not installed", "apt-get install git"),
        (replace(HEALTHY, kernels=0), "kernels", MISSING, "kernel.toml", "write kernels/NAME/kernel.toml"),
    ],
)
def test_each_problem_has_its_own_sentence_and_fix(facts, name, state, said, fix):
    problem = only_problem(facts)
    assert (problem.name, problem.state) == (name, state)
    assert said in problem.sentence
    assert fix in problem.fix


@pytest.mark.parametrize(
    "facts",
    [
        replace(COUNTERS_DENIED, cap_sys_admin=True),
        replace(COUNTERS_DENIED, cap_perfmon=True),
        with_gpu(throttle_reasons=("sw-power-cap",)),
        replace(HEALTHY, disk_free_bytes=5 * 1024**3),
        with_gpu(memory_used_bytes=512 * 1024**2),
    ],
)
def test_harmless_facts_are_not_problems(facts):
    assert problems(facts) == []


def test_cap_perfmon_does_not_permit_counters_before_driver_565():
    for driver, names in (("564.99", ["counter permission"]), ("565.00", [])):
        facts = replace(COUNTERS_DENIED, cap_perfmon=True, driver=driver)
        assert [problem.name for problem in problems(facts)] == names


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (OLD_DRIVER, [("torch and driver", BROKEN), ("ncu and driver", BROKEN)]),
        (
            replace(HEALTHY, torch_cuda="12.8", driver_cuda="12.4", ncu=(replace(NCU, version="2024.1.1"),)),
            [("torch and driver", WARN), ("ncu and toolkit", WARN)],
        ),
    ],
)
def test_torch_and_ncu_are_compared_with_the_driver(facts, expected):
    assert [(problem.name, problem.state) for problem in problems(facts)] == expected


def test_an_old_driver_gets_the_newest_torch_that_it_supports():
    assert "whl/cu121" in problems(OLD_DRIVER)[0].fix


def test_the_best_tool_is_the_first_complete_one():
    dead, incomplete = Tool("/dead", None), replace(NSYS, importer=Importer("/a", None))
    assert best((dead, incomplete, NSYS)) == NSYS
    assert best((dead, incomplete)) == incomplete
    assert best((dead,)) is None


def test_the_hint_for_a_missing_interpreter_is_shown():
    facts = replace(LAPTOP, interpreter=None, interpreter_problem="is Python 3.6", interpreter_hint="take 3.12")
    assert Diagnosis("python", BROKEN, "is Python 3.6", "take 3.12") in problems(facts)


def test_instances_of_one_gpu_report_its_problems_once():
    split = replace(H100, device=replace(H100.device, mig=True))
    assert only_problem(replace(HEALTHY, gpus=(split, split))).name == "gpu 0 mig"
