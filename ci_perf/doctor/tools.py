"""Diagnoses of NVIDIA's tools, and of the permission to read counters."""

from collections.abc import Iterator

from ci_perf.doctor.facts import Diagnosis, DiagnosisState, Facts, broken, missing, ok, warn
from ci_perf.doctor.versions import FIRST_NCU_OF_CHIP, cuda_of_ncu, fitting, major, older, toolkit
from ci_perf.values.device import Tool


def best(tools: tuple[Tool, ...]) -> Tool | None:
    """Return the first tool that is complete, or else the first that runs; None if there is none."""
    working = [tool for tool in tools if tool.version is not None]
    return next((tool for tool in working if tool.complete), working[0] if working else None)


def nsys(facts: Facts) -> Iterator[Diagnosis]:
    """Diagnose Nsight Systems, and whether it can write a report."""
    lacking = "reports have no timeline; times and verdicts do not need it"
    package = "sudo apt-get install nsight-systems-cli (NVIDIA's repository)"
    yield from _tool("nsys", "Nsight Systems", facts.nsys, lacking, f"{package}, or set CI_PERF_NSYS to its path")
    tool = best(facts.nsys)
    importer = tool.importer if tool else None
    if importer is None:
        return
    if importer.found is None:
        yield broken(
            "nsys importer",
            f"this nsys has no QdstrmImporter in {importer.expected}, so it writes a .qdstrm file in place of a report",
            f"{package}, which contains the importer",
        )
    elif importer.found != importer.expected:
        yield broken(
            "nsys importer",
            f"nsys looks for its importer in {importer.expected}, but it is in {importer.found}; without it nsys "
            "writes a .qdstrm file in place of a report",
            f"sudo ln -s {importer.found} {importer.expected}",
        )
    if importer.lacks:
        library = "libdw1" if importer.lacks.startswith("libdw") else f"the package that contains {importer.lacks}"
        sentence = f"the importer of nsys does not start: {importer.lacks} is missing"
        yield broken("nsys libraries", sentence, f"sudo apt-get install {library}")


def ncu(facts: Facts) -> Iterator[Diagnosis]:
    """Diagnose Nsight Compute: its version, and whether it may read counters."""
    package = f"sudo apt-get install cuda-nsight-compute-{toolkit(facts).replace('.', '-')} (NVIDIA's repository)"
    lacking = "no counters and no gates; times and verdicts do not need it"
    yield from _tool("ncu", "Nsight Compute", facts.ncu, lacking, f"{package}, or set CI_PERF_NCU to its path")
    tool = best(facts.ncu)
    if tool is None:
        return
    yield from _ncu_fits(tool, facts)
    yield _counters(facts)
    if facts.dcgm:
        yield warn(
            "dcgm",
            f"{facts.dcgm} is running; while it reads profiling metrics, ncu cannot read counters",
            "run `dcgmi profile --pause` before a run and `dcgmi profile --resume` after it",
        )


def sanitizer(facts: Facts) -> Iterator[Diagnosis]:
    """Diagnose compute-sanitizer."""
    name, lacking = "compute-sanitizer", "`ci-perf run --sanitize` cannot run; nothing else needs it"
    package = f"sudo apt-get install cuda-sanitizer-{toolkit(facts).replace('.', '-')} (NVIDIA's repository)"
    yield from _tool(name, name, facts.sanitizer, lacking, f"{package}, or set CI_PERF_COMPUTE_SANITIZER to its path")


def _tool(name: str, title: str, found: tuple[Tool, ...], lacking: str, install: str) -> Iterator[Diagnosis]:
    """Diagnose whether a tool is installed, and whether a tool that an environment variable names runs."""
    for tool in found:
        if tool.source.startswith("CI_PERF_") and tool.version is None:  # another version must not replace it silently
            yield broken(tool.source, f"{tool.path}: {tool.problem}", f"correct {tool.source}, or unset it")
    if working := best(found):
        yield ok(name, f"{title} {working.version} at {working.path}")
    else:
        yield missing(name, f"{title} is not installed: {lacking}", install)


def _ncu_fits(tool: Tool, facts: Facts) -> Iterator[Diagnosis]:
    version, driver_cuda, torch_cuda = tool.version or "", facts.driver_cuda, facts.torch_cuda
    toolkit = cuda_of_ncu(version)
    other = fitting(facts.ncu, driver_cuda)
    use_other = f"export CI_PERF_NCU={other.path}" if other and other != tool else ""
    if driver_cuda and major(version) >= 2025 and older(driver_cuda, "12.4"):
        yield broken(
            "ncu and driver",
            f"ncu {version} needs a driver for CUDA 12.4 or newer, driver {facts.driver} supports {driver_cuda}",
            use_other or f"install the ncu of CUDA {driver_cuda}, or a newer driver",
        )
    elif driver_cuda and toolkit and older(driver_cuda, toolkit):
        yield warn(
            "ncu and driver",
            f"ncu {version} belongs to CUDA {toolkit}, driver {facts.driver} supports {driver_cuda}: it may fail with "
            '"driver is not compatible"',
            use_other or f"install the ncu of CUDA {driver_cuda}, or a newer driver",
        )
    elif torch_cuda and toolkit and older(toolkit, torch_cuda):
        yield warn(
            "ncu and toolkit",
            f"ncu {version} belongs to CUDA {toolkit} and may not read kernels that CUDA {torch_cuda} built",
            f"install the ncu of CUDA {torch_cuda}",
        )
    for capability in sorted({gpu.device.compute_capability or "" for gpu in facts.gpus}):
        first = FIRST_NCU_OF_CHIP.get(capability)
        if first and older(version, first):
            yield warn(
                "ncu and gpu",
                f"ncu {version} may not support compute capability {capability}; {first} is the first that does",
                f"install ncu {first} or newer",
            )


def _counters(facts: Facts) -> Diagnosis:
    """Diagnose whether this process may read counters, as ncu does; nsys and timing need no permission."""
    name = "counter permission"
    # CAP_PERFMON suffices since driver R565.
    if facts.cap_sys_admin or (facts.cap_perfmon and major(facts.driver or "0") >= 565):
        return ok(name, "this process may read GPU counters")
    if facts.wsl:
        return warn(
            name,
            "in WSL, Windows grants the permission to read GPU counters; ci-perf cannot see it",
            'NVIDIA Control Panel > Desktop > Enable Developer Settings > Manage GPU Performance Counters > "Allow '
            'access to the GPU performance counters to all users"',
        )
    if facts.counters_admin_only is False:
        return ok(name, "the driver lets all users read GPU counters")
    if facts.counters_admin_only is None:
        state, sentence = DiagnosisState.WARN, "it is not known whether this user may read GPU counters"
    else:
        state, sentence = DiagnosisState.BROKEN, "only root may read GPU counters, so ncu fails with ERR_NVGPUCTRPERM"
    fix = (
        "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee /etc/modprobe.d/nvidia-profiling.conf"
        " && sudo update-initramfs -u && sudo reboot"
    )
    if facts.container:
        return Diagnosis(name, state, sentence, f"docker run --cap-add=SYS_ADMIN ...; or on the host: {fix}")
    return Diagnosis(name, state, sentence, fix)
