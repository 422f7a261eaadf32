"""Gathers the facts about this machine."""

import os
import platform
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from ci_perf.doctor.facts import Facts, GpuFacts
from ci_perf.measure import gpu, tools
from ci_perf.measure.cpu import read_file
from ci_perf.values.device import Python
from ci_perf.values.errors import CiPerfError

# Bits of the capability sets in /proc/self/status, from linux/capability.h.
_CAP_SYS_ADMIN = 21
_CAP_PERFMON = 38

# torch/version.py runs alone, because importing torch takes seconds.
_VERSIONS_PROBE = """
import importlib.metadata, importlib.util, os, runpy, sys
sys.path = [folder for folder in sys.path if folder]
for name in ("torch", "cuda-core"):
    try:
        print("ci-perf: %s %s" % (name, importlib.metadata.version(name)))
    except importlib.metadata.PackageNotFoundError:
        pass
spec = importlib.util.find_spec("torch")
if spec and spec.origin:
    built = runpy.run_path(os.path.join(os.path.dirname(spec.origin), "version.py"))
    print("ci-perf: torch %s" % built["__version__"])
    print("ci-perf: cuda %s" % (built.get("cuda") or ""))
"""


def gather_facts(
    environ: Mapping[str, str], *, python: str | None = None, folder: Path = Path(), root: Path = Path("/")
) -> Facts:
    """Return the facts about this machine; `root` is the parent of /proc and the well-known folders."""
    interpreter, problem, hint = _interpreter(python, environ, folder)
    versions = _versions(interpreter, environ) if interpreter else {}
    driver = gpu.query_driver()
    capabilities = _capabilities(root)
    return Facts(
        python=platform.python_version(),
        interpreter=interpreter,
        interpreter_problem=problem,
        interpreter_hint=hint,
        torch=versions.get("torch"),
        torch_cuda=versions.get("cuda") or None,
        cuda_core=versions.get("cuda-core"),
        driver=driver.version,
        driver_cuda=driver.cuda,
        driver_problem=driver.problem,
        gpus=tuple(_gpu_facts(found) for found in gpu.query_gpus()),
        nsys=tools.find("nsys", environ, root),
        ncu=tools.find("ncu", environ, root),
        sanitizer=tools.find("compute-sanitizer", environ, root),
        counters_admin_only=_counters_admin_only(root),
        cap_sys_admin=bool(capabilities >> _CAP_SYS_ADMIN & 1),
        cap_perfmon=bool(capabilities >> _CAP_PERFMON & 1),
        dcgm=_dcgm(root),
        container=_in_container(root),
        wsl="microsoft" in read_file(root / "proc/version").lower(),
        disk_folder=str(folder.absolute()),
        disk_free_bytes=shutil.disk_usage(folder).free,
        git=_git_version(environ),
        kernels=sum(1 for _ in folder.glob("kernels/*/kernel.toml")),
    )


def _interpreter(requested: str | None, environ: Mapping[str, str], folder: Path) -> tuple[Python | None, str, str]:
    try:
        return tools.find_python(requested, environ, folder), "", ""
    except CiPerfError as error:
        return None, str(error), error.hint


def _versions(python: Python, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of torch, its CUDA and cuda-core; what is not installed has no key."""
    _, output = tools.probe([python.path, "-c", _VERSIONS_PROBE], environ)
    return dict(re.findall(r"^ci-perf: (\S+) (.*)$", output, re.MULTILINE))


def _gpu_facts(found: gpu.Gpu) -> GpuFacts:
    state, health = gpu.query_state(found.uuid, ours=frozenset({os.getpid()})), gpu.query_health(found.uuid)
    return GpuFacts(
        index=found.index,
        device=found.device,
        persistence=health.persistence,
        uncorrected_errors=health.uncorrected_errors,
        repair_pending=health.repair_pending,
        throttle_reasons=state.throttle_reasons or (),
        others=tuple(f"{other.name} (pid {other.pid})" for other in state.others or ()),
        memory_used_bytes=state.memory_used_bytes,
    )


def _counters_admin_only(root: Path) -> bool | None:
    found = re.search(r"^RmProfilingAdminOnly: (\d)", read_file(root / "proc/driver/nvidia/params"), re.MULTILINE)
    return found[1] != "0" if found else None


def _capabilities(root: Path) -> int:
    """Return the effective capabilities that count for drivers: none inside a user namespace."""
    # The initial namespace maps all ids to themselves; in others (rootless docker), root is root of the container only.
    if read_file(root / "proc/self/uid_map").split() != ["0", "0", "4294967295"]:
        return 0
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", read_file(root / "proc/self/status"), re.MULTILINE)
    return int(found[1], 16) if found else 0


def _in_container(root: Path) -> bool:
    marks = (root / ".dockerenv", root / "run/.containerenv")
    return any(mark.exists() for mark in marks) or bool(
        re.search(r"docker|kubepods|containerd", read_file(root / "proc/1/cgroup"))
    )


def _dcgm(root: Path) -> str | None:
    """Return the name of the running DCGM service; one on the host is not visible from a container."""
    for name in root.glob("proc/[0-9]*/comm"):
        if (program := read_file(name).strip()) in {"nv-hostengine", "dcgm-exporter"}:
            return program
    return None


def _git_version(environ: Mapping[str, str]) -> str | None:
    well, output = tools.probe(["git", "--version"], environ)
    found = re.search(r"\d+(?:\.\d+)+", output)
    return found[0] if well and found else None
