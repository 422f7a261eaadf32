"""What a machine lacks before it can measure, and the command or edit that mends each thing.

`machine.py` sees, this module judges: facts in, checks out. Without a GPU there is nothing to profile, so all that
only a GPU needs is passed over in silence.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from ci_perf.core.model import Device


class CheckState(StrEnum):
    """How bad it is."""

    OK = "OK"
    WARN = "WARN"
    """Measuring works, but the numbers or a part of the report suffer."""
    MISSING = "MISSING"
    """Not there; what needs it is left out."""
    BROKEN = "BROKEN"
    """There, and does not work."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at, in one sentence; `fix` is empty where nothing is wrong."""

    name: str
    state: CheckState
    sentence: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter that can run kernels."""

    path: str
    version: str
    has_torch: bool


@dataclass(frozen=True, slots=True)
class Importer:
    """The part of nsys that turns a recording into a report."""

    expected: str
    """The folder where nsys looks for it."""
    found: str | None
    """The folder where it lies."""
    lacks: str | None = None
    """The first shared library that it does not find."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of NVIDIA on this machine; without a version it did not answer, and `problem` says what it did."""

    path: str
    version: str | None
    source: str = "PATH"
    """What led to it: a variable such as `CI_PERF_NCU`, `PATH`, or a well-known folder."""
    problem: str = ""
    importer: Importer | None = None
    """Of nsys, where its layout shows it."""

    @property
    def complete(self) -> bool:
        """Whether it answers and, for nsys, will leave a report."""
        importer = self.importer
        return self.version is not None and (
            importer is None or (importer.found == importer.expected and importer.lacks is None)
        )


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU as it was found; None is not known."""

    index: int
    device: Device
    persistence: bool | None = None
    uncorrected_errors: int | None = None
    repair_pending: bool | None = None
    throttle_reasons: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    """Other programs on it: `python (pid 123)`."""
    memory_used_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the diagnosis rests on; None is not installed or not known."""

    python: str
    """The version that runs ci-perf itself."""
    interpreter: Python | None = None
    interpreter_problem: str = ""
    interpreter_hint: str = ""
    torch: str | None = None
    torch_cuda: str | None = None
    """The CUDA that torch was built with; None: torch was built without."""
    cuda_core: str | None = None
    driver: str | None = None
    driver_cuda: str | None = None
    driver_problem: str = ""
    gpus: tuple[GpuFacts, ...] = ()
    nsys: tuple[Tool, ...] = ()
    ncu: tuple[Tool, ...] = ()
    sanitizer: tuple[Tool, ...] = ()
    """Every compute-sanitizer."""
    counters_admin_only: bool | None = None
    """RmProfilingAdminOnly of the driver."""
    cap_sys_admin: bool = False
    cap_perfmon: bool = False
    dcgm: str | None = None
    """The DCGM program that runs here."""
    container: bool = False
    wsl: bool = False
    disk_folder: str = "."
    disk_free_bytes: int | None = None
    git: str | None = None
    kernels: int = 0
    """How many `kernel.toml` there are."""


# NVIDIA's release notes: the CUDA toolkit that each ncu belongs to, oldest first.
_CUDA_OF_NCU = (
    ("2022.3", "11.8"), ("2022.4", "12.0"), ("2023.1", "12.1"), ("2023.2", "12.2"), ("2023.3", "12.3"),
    ("2024.1", "12.4"), ("2024.2", "12.5"), ("2024.3", "12.6"), ("2025.1", "12.8"), ("2025.2", "12.9"),
    ("2025.3", "13.0"), ("2025.4", "13.1"), ("2026.1", "13.2"), ("2026.2", "13.3"), ("2026.3", "13.4"),
)  # fmt: skip
# ncu 2022.3 lists gh100 but not ad104; CUPTI 12.1, of ncu 2023.1, is the first that has it.
_FIRST_NCU_OF_CHIP = {"8.9": "2023.1", "9.0": "2022.3", "10.0": "2025.1", "12.0": "2025.1"}
_TORCH_WHEELS = ("11.8", "12.1", "12.4", "12.6", "12.8", "12.9", "13.0")
"""The CUDA versions in the names of torch's package indexes."""

_DRIVER_TROUBLE = (
    (
        "mismatch",
        "the driver was updated while its old kernel module still runs: NVML and the module do not match",
        "sudo reboot",
    ),
    ("not loaded", "the driver is installed, but its kernel module is not loaded", "sudo modprobe nvidia"),
)
"""What NVML says, what it means, and what to do."""

_GIB = 1024**3
_LITTLE_DISK_BYTES = 5 * _GIB
_NO_DISK_BYTES = _GIB // 2
_STRANGERS_MEMORY_BYTES = _GIB // 2
_SLOWED_BY_HARDWARE = ("hw-slowdown", "sw-thermal", "hw-thermal", "hw-power-brake")


def diagnose(facts: Facts) -> tuple[Check, ...]:
    """Judge the machine; each problem is a check of its own, with its own fix."""
    return tuple(dict.fromkeys(_diagnose(facts)))  # the instances of one GPU share its problems


def best(tools: tuple[Tool, ...]) -> Tool | None:
    """Return the first tool that is complete, else the first that answers."""
    answering = [tool for tool in tools if tool.version is not None]
    return next((tool for tool in answering if tool.complete), answering[0] if answering else None)


def _diagnose(facts: Facts) -> Iterator[Check]:
    yield Check("ci-perf", CheckState.OK, f"runs on Python {facts.python}")
    yield from _interpreter(facts)
    yield from _driver(facts)
    for gpu in facts.gpus:
        yield from _gpu(gpu, facts)
    if facts.gpus:
        yield from _what_fits(facts)
        yield from _nsys(facts)
        yield from _ncu(facts)
        yield from _sanitizer(facts)
    yield from _surroundings(facts)


def _interpreter(facts: Facts) -> Iterator[Check]:
    python = facts.interpreter
    if python is None:
        yield Check("python", CheckState.BROKEN, facts.interpreter_problem, facts.interpreter_hint)
        return
    yield Check("python", CheckState.OK, f"kernels run under Python {python.version} at {python.path}")
    if facts.torch is None:
        yield Check(
            "torch", CheckState.MISSING, f"{python.path} has no torch", _install_torch(python, facts.driver_cuda)
        )
    elif facts.torch_cuda is None and facts.gpus:
        yield Check(
            "torch",
            CheckState.BROKEN,
            f"torch {facts.torch} was built without CUDA, so it does not see the GPU",
            _install_torch(python, facts.driver_cuda),
        )
    else:
        built = f", built with CUDA {facts.torch_cuda}" if facts.torch_cuda else ", for the CPU"
        yield Check("torch", CheckState.OK, f"torch {facts.torch}{built}")


def _driver(facts: Facts) -> Iterator[Check]:
    if facts.gpus:
        supports = f", supports CUDA {facts.driver_cuda}" if facts.driver_cuda else ""
        yield Check("driver", CheckState.OK, f"NVIDIA driver {facts.driver}{supports}")
        return
    for trouble, sentence, fix in _DRIVER_TROUBLE:
        if trouble in facts.driver_problem.lower():
            yield Check("driver", CheckState.BROKEN, sentence, fix)
            return
    why = facts.driver_problem or "the driver shows no GPU"
    yield Check(
        "gpu",
        CheckState.MISSING,
        f"no GPU ({why}): `ci-perf run` checks and times the reference implementations on the CPU; "
        "list, replay, report and baseline work in full",
        _bring_gpu(facts),
    )


def _bring_gpu(facts: Facts) -> str:
    if "nvidia-ml-py" in facts.driver_problem:
        return "pip install nvidia-ml-py"
    if facts.wsl:
        return "install the NVIDIA driver on Windows, none inside WSL, then `wsl --shutdown`"
    if facts.container:
        return "start the container with `docker run --gpus all ...`; the host needs nvidia-container-toolkit"
    return "on a machine with an NVIDIA GPU: install its driver, then check `nvidia-smi`"


def _gpu(gpu: GpuFacts, facts: Facts) -> Iterator[Check]:
    name = f"gpu {gpu.index}"
    memory = f", {gpu.device.memory_bytes / _GIB:.0f} GiB" if gpu.device.memory_bytes else ""
    yield Check(name, CheckState.OK, f"{gpu.device.name}{memory}")
    if gpu.others:
        yield Check(
            f"{name} users",
            CheckState.WARN,
            f"other programs use this GPU and will move every time: {', '.join(gpu.others)}",
            "stop them, or measure when they are done",
        )
    elif (gpu.memory_used_bytes or 0) > _STRANGERS_MEMORY_BYTES:
        yield Check(
            f"{name} users",
            CheckState.WARN,
            f"{(gpu.memory_used_bytes or 0) / _GIB:.1f} GiB of its memory are in use by a program that is not visible"
            f" from {'this container' if facts.container else 'here'}",
            "run `nvidia-smi` on the host and stop what it lists",
        )
    yield from _gpu_health(gpu, name)
    if gpu.device.mig:
        yield Check(
            f"{name} mig",
            CheckState.WARN,
            "the GPU is split (MIG): its instances share clocks and power, clocks cannot be locked, and ncu reads "
            "shared units not at all",
            f"sudo nvidia-smi -i {gpu.index} -mig 0; or keep it: an instance has its own name, so its own baselines",
        )


def _gpu_health(gpu: GpuFacts, name: str) -> Iterator[Check]:
    if gpu.uncorrected_errors:
        yield Check(
            f"{name} memory",
            CheckState.BROKEN,
            f"{gpu.uncorrected_errors} uncorrected ECC errors since the driver was loaded",
            f"sudo nvidia-smi -i {gpu.index} --gpu-reset; replace the GPU if they come back",
        )
    elif gpu.repair_pending:
        yield Check(
            f"{name} memory",
            CheckState.WARN,
            "broken rows of memory wait to be replaced by spare ones",
            f"sudo nvidia-smi -i {gpu.index} --gpu-reset; replace the GPU if the warning stays",
        )
    if slowed := [reason for reason in gpu.throttle_reasons if reason in _SLOWED_BY_HARDWARE]:
        yield Check(
            f"{name} clocks",
            CheckState.WARN,
            f"the clocks are held down just now: {', '.join(slowed)}",
            f"nvidia-smi -i {gpu.index} -q -d PERFORMANCE,TEMPERATURE,POWER; mend the cooling or the power supply",
        )
    if gpu.persistence is False:
        yield Check(
            f"{name} persistence",
            CheckState.WARN,
            "persistence mode is off: the driver unloads its state between processes, which start slowly and cold",
            f"sudo nvidia-smi -i {gpu.index} -pm 1",
        )


def _what_fits(facts: Facts) -> Iterator[Check]:
    torch_cuda, driver_cuda = facts.torch_cuda, facts.driver_cuda
    if facts.interpreter and torch_cuda and driver_cuda:
        if _major(torch_cuda) > _major(driver_cuda):
            yield Check(
                "torch and driver",
                CheckState.BROKEN,
                f"torch needs CUDA {torch_cuda}, but driver {facts.driver} supports CUDA {driver_cuda} at most",
                f"{_install_torch(facts.interpreter, driver_cuda)}; or install a newer driver",
            )
        elif _older(driver_cuda, torch_cuda):
            yield Check(
                "torch and driver",
                CheckState.WARN,
                f"torch was built with CUDA {torch_cuda}, driver {facts.driver} supports {driver_cuda}: this works "
                "within a major version, except for kernels that are shipped as PTX",
                f"{_install_torch(facts.interpreter, driver_cuda)}; or install a driver for CUDA {torch_cuda}",
            )
        else:
            yield Check(
                "torch and driver", CheckState.OK, f"CUDA {torch_cuda} of torch fits the driver's {driver_cuda}"
            )
    if facts.interpreter and facts.cuda_core is None:
        yield Check(
            "cuda-core",
            CheckState.MISSING,
            f"{facts.interpreter.path} has no cuda-core, which kernels in CUDA C++ need; others do not",
            f'{facts.interpreter.path} -m pip install "cuda-core[cu{_major(driver_cuda or torch_cuda or "13")}]"',
        )
    elif facts.cuda_core:
        yield Check("cuda-core", CheckState.OK, f"cuda-core {facts.cuda_core}")


def _nsys(facts: Facts) -> Iterator[Check]:
    yield from _pinned(facts.nsys)
    tool = best(facts.nsys)
    if tool is None:
        yield Check(
            "nsys",
            CheckState.MISSING,
            "no Nsight Systems: no timeline; times and verdicts do not need it",
            "sudo apt-get install nsight-systems-cli (NVIDIA's repository), or set CI_PERF_NSYS to the path of nsys",
        )
        return
    yield Check("nsys", CheckState.OK, f"Nsight Systems {tool.version} at {tool.path}")
    importer = tool.importer
    if importer is None:
        return
    if importer.found is None:
        yield Check(
            "nsys importer",
            CheckState.BROKEN,
            f"this nsys has no QdstrmImporter in {importer.expected}, so it ends with a .qdstrm file and no report",
            "sudo apt-get install nsight-systems-cli (NVIDIA's repository): the importer comes with it",
        )
    elif importer.found != importer.expected:
        yield Check(
            "nsys importer",
            CheckState.BROKEN,
            f"nsys looks for its importer in {importer.expected}, but it lies in {importer.found}; without it nsys "
            "ends with a .qdstrm file and no report",
            f"sudo ln -s {importer.found} {importer.expected}",
        )
    if importer.lacks:
        package = "libdw1" if importer.lacks.startswith("libdw") else f"the package that holds {importer.lacks}"
        yield Check(
            "nsys libraries",
            CheckState.BROKEN,
            f"the importer of nsys does not start: it lacks {importer.lacks}",
            f"sudo apt-get install {package}",
        )


def _ncu(facts: Facts) -> Iterator[Check]:
    yield from _pinned(facts.ncu)
    tool = best(facts.ncu)
    if tool is None:
        yield Check(
            "ncu",
            CheckState.MISSING,
            "no Nsight Compute: no counters and no gates; times and verdicts do not need it",
            f"sudo apt-get install cuda-nsight-compute-{_toolkit(facts).replace('.', '-')} (NVIDIA's repository), "
            "or set CI_PERF_NCU to the path of ncu",
        )
        return
    yield Check("ncu", CheckState.OK, f"Nsight Compute {tool.version} at {tool.path}")
    yield from _ncu_fits(tool, facts)
    yield _counters(facts)
    if facts.dcgm:
        yield Check(
            "dcgm",
            CheckState.WARN,
            f"{facts.dcgm} runs here; while it watches profiling metrics it holds the counters, and ncu gets none",
            "dcgmi profile --pause before, dcgmi profile --resume after",
        )


def _sanitizer(facts: Facts) -> Iterator[Check]:
    yield from _pinned(facts.sanitizer)
    tool = best(facts.sanitizer)
    if tool is None:
        yield Check(
            "compute-sanitizer",
            CheckState.MISSING,
            "no compute-sanitizer: `ci-perf run --sanitize` cannot run; all else does not need it",
            f"sudo apt-get install cuda-sanitizer-{_toolkit(facts).replace('.', '-')} (NVIDIA's repository), "
            "or set CI_PERF_COMPUTE_SANITIZER to its path",
        )
        return
    yield Check("compute-sanitizer", CheckState.OK, f"compute-sanitizer {tool.version} at {tool.path}")


def _pinned(tools: tuple[Tool, ...]) -> Iterator[Check]:
    """A pinned tool that vanished must not be replaced in silence: the numbers would come from another version."""
    for tool in tools:
        if tool.source.startswith("CI_PERF_") and tool.version is None:
            yield Check(
                tool.source, CheckState.BROKEN, f"{tool.path}: {tool.problem}", f"set {tool.source} anew, or unset it"
            )


def _ncu_fits(tool: Tool, facts: Facts) -> Iterator[Check]:
    version, driver_cuda, torch_cuda = tool.version or "", facts.driver_cuda, facts.torch_cuda
    toolkit = cuda_of_ncu(version)
    other = _fitting(facts.ncu, driver_cuda)
    use_other = f"export CI_PERF_NCU={other.path}" if other and other != tool else ""
    if driver_cuda and _major(version) >= 2025 and _older(driver_cuda, "12.4"):
        yield Check(
            "ncu and driver",
            CheckState.BROKEN,
            f"ncu {version} needs a driver for CUDA 12.4 or newer, driver {facts.driver} supports {driver_cuda}",
            use_other or f"install the ncu of CUDA {driver_cuda}, or a newer driver",
        )
    elif driver_cuda and toolkit and _older(driver_cuda, toolkit):
        yield Check(
            "ncu and driver",
            CheckState.WARN,
            f"ncu {version} belongs to CUDA {toolkit}, driver {facts.driver} supports {driver_cuda}: it may say "
            '"driver is not compatible"',
            use_other or f"install the ncu of CUDA {driver_cuda}, or a newer driver",
        )
    elif torch_cuda and toolkit and _older(toolkit, torch_cuda):
        yield Check(
            "ncu and toolkit",
            CheckState.WARN,
            f"ncu {version} belongs to CUDA {toolkit} and may not read kernels that CUDA {torch_cuda} built",
            f"install the ncu of CUDA {torch_cuda}",
        )
    for capability in sorted({gpu.device.compute_capability or "" for gpu in facts.gpus}):
        first = _FIRST_NCU_OF_CHIP.get(capability)
        if first and _older(version, first):
            yield Check(
                "ncu and gpu",
                CheckState.WARN,
                f"ncu {version} may not know chips of compute capability {capability}; {first} is the first that does",
                f"install ncu {first} or newer",
            )


def _counters(facts: Facts) -> Check:
    """Whether the driver lets this process read counters, as ncu does; nsys and times need no permission."""
    name = "counter permission"
    # CAP_PERFMON suffices since driver R565.
    if facts.cap_sys_admin or (facts.cap_perfmon and _major(facts.driver or "0") >= 565):
        return Check(name, CheckState.OK, "this process may read GPU counters")
    if facts.wsl:
        return Check(
            name,
            CheckState.WARN,
            "in WSL the permission to read GPU counters is given on the Windows side; it is not known from here",
            'NVIDIA Control Panel > Desktop > Enable Developer Settings > Manage GPU Performance Counters > "Allow '
            'access to the GPU performance counters to all users"',
        )
    if facts.counters_admin_only is False:
        return Check(name, CheckState.OK, "the driver lets all users read GPU counters")
    if facts.counters_admin_only is None:
        state, sentence = CheckState.WARN, "the driver does not tell whether this user may read GPU counters"
    else:
        state, sentence = CheckState.BROKEN, "only root may read GPU counters, so ncu ends with ERR_NVGPUCTRPERM"
    for_all = (
        "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee /etc/modprobe.d/nvidia-profiling.conf"
        " && sudo update-initramfs -u && sudo reboot"
    )
    if facts.container:
        return Check(name, state, sentence, f"docker run --cap-add=SYS_ADMIN ...; or on the host: {for_all}")
    return Check(name, state, sentence, for_all)


def _surroundings(facts: Facts) -> Iterator[Check]:
    if facts.disk_free_bytes is not None:
        free = f"{facts.disk_free_bytes / _GIB:.1f} GiB free in {facts.disk_folder}"
        more = f"free some space in {facts.disk_folder}"
        if facts.disk_free_bytes < _NO_DISK_BYTES:
            yield Check("disk", CheckState.BROKEN, f"{free}: too little for profiles and runs", more)
        elif facts.disk_free_bytes < _LITTLE_DISK_BYTES:
            yield Check("disk", CheckState.WARN, f"{free}: a profile of many kernels may not fit", more)
        else:
            yield Check("disk", CheckState.OK, free)
    if facts.git:
        yield Check("git", CheckState.OK, f"git {facts.git}")
    else:
        yield Check("git", CheckState.MISSING, "no git: a run does not know its commit", "sudo apt-get install git")
    if facts.kernels:
        yield Check("kernels", CheckState.OK, f"{facts.kernels} kernel.toml found")
    else:
        yield Check("kernels", CheckState.MISSING, "there is no kernels/*/kernel.toml here", "ci-perf init")


def cuda_of_ncu(version: str) -> str | None:
    """Return the CUDA toolkit that an ncu belongs to; None for one that is older than all known.

    >>> cuda_of_ncu("2025.3.1.0"), cuda_of_ncu("2021.1"), cuda_of_ncu("2027.1")
    ('13.0', None, '13.4')
    """
    return next((cuda for ncu, cuda in reversed(_CUDA_OF_NCU) if not _older(version, ncu)), None)


def _toolkit(facts: Facts) -> str:
    """Return the CUDA whose tools fit: that of torch, as far as the driver goes along."""
    known = [cuda for cuda in (facts.torch_cuda, facts.driver_cuda) if cuda]
    return min(known, key=_parts, default="13.0")


def _fitting(tools: tuple[Tool, ...], driver_cuda: str | None) -> Tool | None:
    """Return an ncu that is no newer than the driver."""
    for tool in tools:
        toolkit = cuda_of_ncu(tool.version or "0")
        if toolkit and driver_cuda and not _older(driver_cuda, toolkit):
            return tool
    return None


def _install_torch(python: Python, driver_cuda: str | None) -> str:
    """Return the command that installs the newest torch that the driver can run."""
    usable = [cuda for cuda in _TORCH_WHEELS if driver_cuda and not _older(driver_cuda, cuda)]
    index = f" --index-url https://download.pytorch.org/whl/cu{usable[-1].replace('.', '')}" if usable else ""
    return f"{python.path} -m pip install --force-reinstall torch{index}"


def _older(version: str, than: str) -> bool:
    """Compare the parts of `version` that `than` has: 2025.3.1 is not newer than 2025.3, nor older."""
    wanted = _parts(than)
    return _parts(version)[: len(wanted)] < wanted


def _major(version: str) -> int:
    return _parts(version)[0]


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal()) or (0,)
