"""Builds pipeline.cu with nvcc, unless this source has been built before, and executes the program.

usage: run.py [ARGUMENT]...     arguments are passed to the program
       run.py --build           builds only

Programs are stored in $CI_PERF_CACHE, or else in the cache folder of XDG, under a hash of everything that affects the
build: base and head have separate programs, and nothing is written beside the source.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().with_name("pipeline.cu")
FLAGS = (
    *("-std=c++17", "-O3", "-lineinfo"),
    # Machine code for an L4 and an H100; for other GPUs the driver compiles the PTX.
    *("-gencode=arch=compute_89,code=sm_89", "-gencode=arch=compute_90,code=sm_90"),
    "-gencode=arch=compute_80,code=compute_80",
)
CANNOT_BUILD = 3


def find_nvcc() -> str:
    """Return the nvcc in PATH, in the toolkit that the environment names, or in the usual folder."""
    toolkits = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    places = os.pathsep.join(os.path.join(toolkit, "bin") for toolkit in toolkits if toolkit)
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path=places)
    if nvcc is None:
        fail("there is no nvcc: put that of a CUDA toolkit on the PATH, or name the toolkit with CUDA_HOME")
    return nvcc


def fail(message: str) -> None:
    """Exit with a message and the status for a missing tool."""
    print(f"{SOURCE.name}: {message}", file=sys.stderr)
    sys.exit(CANNOT_BUILD)


def build(nvcc: str) -> Path:
    """Return the program; build it if necessary."""
    version = subprocess.run([nvcc, "--version"], check=True, capture_output=True).stdout
    made_of = (SOURCE.read_bytes(), version, "\0".join(FLAGS).encode())
    digest = hashlib.sha256(b"".join(b"%d:%s" % (len(part), part) for part in made_of)).hexdigest()
    program = cache_folder() / f"{SOURCE.stem}-{digest[:16]}"
    if program.is_file():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as scratch:
        built = Path(scratch, SOURCE.stem)
        done = subprocess.run([nvcc, *FLAGS, "-o", str(built), str(SOURCE)], check=False, stderr=subprocess.STDOUT)
        if done.returncode:
            fail(f"does not compile: nvcc ended with exit status {done.returncode}")
        built.replace(program)  # atomic: two processes may build at once
    return program


def cache_folder() -> Path:
    """Return the folder of ci-perf's cache for programs."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    chosen = os.environ.get("CI_PERF_CACHE")
    return (Path(chosen) if chosen else home / "ci-perf") / "programs"


if __name__ == "__main__":
    arguments = sys.argv[1:]
    program = str(build(find_nvcc()))
    if arguments != ["--build"]:
        os.execv(program, [SOURCE.stem, *arguments])  # noqa: S606 # without a shell
