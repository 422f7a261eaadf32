"""NVIDIA's tools, and the permission to read counters."""

from collections.abc import Iterator

from ci_perf.doctor.facts import Check, CheckState, Facts
from ci_perf.doctor.versions import FIRST_NCU_OF_CHIP, cuda_of_ncu, fitting, major, older, toolkit
from ci_perf.values.tool import Tool


def best(tools: tuple[Tool, ...]) -> Tool | None:
    """Return the first tool that is complete, else the first that answers."""
    answering = [tool for tool in tools if tool.version is not None]
    return next((tool for tool in answering if tool.complete), answering[0] if answering else None)


def nsys(facts: Facts) -> Iterator[Check]:
    """Judge Nsight Systems, and whether it will leave a report."""
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


def ncu(facts: Facts) -> Iterator[Check]:
    """Judge Nsight Compute, what it fits, and whether it may read counters."""
    yield from _pinned(facts.ncu)
    tool = best(facts.ncu)
    if tool is None:
        yield Check(
            "ncu",
            CheckState.MISSING,
            "no Nsight Compute: no counters and no gates; times and verdicts do not need it",
            f"sudo apt-get install cuda-nsight-compute-{toolkit(facts).replace('.', '-')} (NVIDIA's repository), "
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


def sanitizer(facts: Facts) -> Iterator[Check]:
    """Judge compute-sanitizer."""
    yield from _pinned(facts.sanitizer)
    tool = best(facts.sanitizer)
    if tool is None:
        yield Check(
            "compute-sanitizer",
            CheckState.MISSING,
            "no compute-sanitizer: `ci-perf run --sanitize` cannot run; all else does not need it",
            f"sudo apt-get install cuda-sanitizer-{toolkit(facts).replace('.', '-')} (NVIDIA's repository), "
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
    other = fitting(facts.ncu, driver_cuda)
    use_other = f"export CI_PERF_NCU={other.path}" if other and other != tool else ""
    if driver_cuda and major(version) >= 2025 and older(driver_cuda, "12.4"):
        yield Check(
            "ncu and driver",
            CheckState.BROKEN,
            f"ncu {version} needs a driver for CUDA 12.4 or newer, driver {facts.driver} supports {driver_cuda}",
            use_other or f"install the ncu of CUDA {driver_cuda}, or a newer driver",
        )
    elif driver_cuda and toolkit and older(driver_cuda, toolkit):
        yield Check(
            "ncu and driver",
            CheckState.WARN,
            f"ncu {version} belongs to CUDA {toolkit}, driver {facts.driver} supports {driver_cuda}: it may say "
            '"driver is not compatible"',
            use_other or f"install the ncu of CUDA {driver_cuda}, or a newer driver",
        )
    elif torch_cuda and toolkit and older(toolkit, torch_cuda):
        yield Check(
            "ncu and toolkit",
            CheckState.WARN,
            f"ncu {version} belongs to CUDA {toolkit} and may not read kernels that CUDA {torch_cuda} built",
            f"install the ncu of CUDA {torch_cuda}",
        )
    for capability in sorted({gpu.device.compute_capability or "" for gpu in facts.gpus}):
        first = FIRST_NCU_OF_CHIP.get(capability)
        if first and older(version, first):
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
    if facts.cap_sys_admin or (facts.cap_perfmon and major(facts.driver or "0") >= 565):
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
