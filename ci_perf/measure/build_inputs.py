"""What a build depends on beside its tree: the interpreter with all that is installed in it, compilers, environment.

Asked without importing anything of the user's: torch takes seconds, all metadata a tenth of one.
"""

import hashlib
import platform
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from ci_perf.measure import gpu, tools
from ci_perf.values.errors import MachineError

STEERING = re.compile(
    r"CC|CXX|CPP|LD|AR|NVCC|CUDACXX|CUDAHOSTCXX|CUDA_(HOME|PATH|ROOT|INC_PATH)|CUDAToolkit_ROOT|NVCC_.*|.*FLAGS"
    r"|TORCH_(CUDA_ARCH_LIST|DONT_.*|NVCC_.*)|(FORCE|USE|WITH|NO)_.*|CMAKE_.*|CPATH|LIBRARY_PATH|\w*_INCLUDE_PATH"
    r"|PKG_CONFIG_PATH|PYTHONPATH|SETUPTOOLS_.*|TRITON_.*|(HIP|ROCM)_(HOME|PATH)"
)
"""The environment variables by which builds of extensions are commonly told what to make."""

# The RECORD of a package lists its files with their hashes; direct_url.json says which tree an editable one lies in.
_INSTALLED_PROBE = """
import hashlib, importlib.metadata, sys
sys.path = [folder for folder in sys.path if folder]
found = []
for dist in importlib.metadata.distributions():
    try:
        texts = [dist.read_text(name) or "" for name in ("RECORD", "direct_url.json")]
        known = [dist.metadata["Name"], dist.version, *texts]
    except Exception as error:
        known = [repr(error)]
    found.append(hashlib.sha256(repr(known).encode()).hexdigest())
print("ci-perf: " + sys.version.replace("\\n", " ") + " " + sys.prefix)
print("ci-perf: " + hashlib.sha256("\\n".join(sorted(found)).encode()).hexdigest())
"""


def steering_variables(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables that steer builds, as `NAME=value`, in order.

    >>> steering_variables({"TORCH_CUDA_ARCH_LIST": "9.0", "CXXFLAGS": "-O3", "HOME": "/root"})
    ('CXXFLAGS=-O3', 'TORCH_CUDA_ARCH_LIST=9.0')
    """
    return tuple(f"{name}={env[name]}" for name in sorted(env) if STEERING.fullmatch(name))


def toolchain_hash(python: str, env: Mapping[str, str]) -> str:
    """Return a hash of interpreter, installed packages, compilers and GPUs as they are now."""
    parts = [platform.machine(), *_installed(python, env)]
    for command in _compilers(env):
        parts += [shlex.join(command), tools.probe([*command, "--version"], env)[1]]
    # torch compiles for what it sees where TORCH_CUDA_ARCH_LIST names nothing.
    parts += sorted({str(found.device.compute_capability) for found in gpu.query_gpus()})
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _installed(python: str, env: Mapping[str, str]) -> list[str]:
    well, output = tools.probe([python, "-c", _INSTALLED_PROBE], env)
    lines = [line for line in output.splitlines() if line.startswith("ci-perf: ")]
    if not well or len(lines) != 2:
        last = (output.splitlines() or ["it printed nothing"])[-1]
        raise MachineError(f"{python}: cannot say what is installed: {last}", hint="see --python and --base-python")
    return [str(Path(python).resolve()), *lines]


def _compilers(env: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield the commands that compile, of those that there are, as builds choose them."""
    for name, usual in (("CC", "cc"), ("CXX", "c++")):
        yield shlex.split(env.get(name) or usual)
    homes = [Path(env[name]) for name in ("CUDA_HOME", "CUDA_PATH") if env.get(name)]
    for nvcc in (*(home / "bin/nvcc" for home in homes), Path("nvcc"), Path("/usr/local/cuda/bin/nvcc")):
        yield [str(nvcc)]
