"""Which versions of CUDA, torch and NVIDIA's tools work together."""

from ci_perf.doctor.facts import Facts
from ci_perf.values.device import Python, Tool

# The CUDA toolkit that contains each ncu, oldest first, from NVIDIA's release notes.
_CUDA_OF_NCU = (
    ("2022.3", "11.8"), ("2022.4", "12.0"), ("2023.1", "12.1"), ("2023.2", "12.2"), ("2023.3", "12.3"),
    ("2024.1", "12.4"), ("2024.2", "12.5"), ("2024.3", "12.6"), ("2025.1", "12.8"), ("2025.2", "12.9"),
    ("2025.3", "13.0"), ("2025.4", "13.1"), ("2026.1", "13.2"), ("2026.2", "13.3"), ("2026.3", "13.4"),
)  # fmt: skip
# ncu 2022.3 lists gh100 but not ad104; CUPTI 12.1, released with ncu 2023.1, is the first that does.
FIRST_NCU_OF_CHIP = {"8.9": "2023.1", "9.0": "2022.3", "10.0": "2025.1", "12.0": "2025.1"}
_TORCH_WHEELS = ("11.8", "12.1", "12.4", "12.6", "12.8", "12.9", "13.0")
"""The CUDA versions in the names of torch's package indexes."""


def cuda_of_ncu(version: str) -> str | None:
    """Return the CUDA toolkit that contains this ncu; None if it is older than all known versions.

    >>> cuda_of_ncu("2025.3.1.0"), cuda_of_ncu("2021.1"), cuda_of_ncu("2027.1")
    ('13.0', None, '13.4')
    """
    return next((cuda for ncu, cuda in reversed(_CUDA_OF_NCU) if not older(version, ncu)), None)


def toolkit(facts: Facts) -> str:
    """Return the CUDA version whose tools fit: the lower of torch's and the driver's."""
    known = [cuda for cuda in (facts.torch_cuda, facts.driver_cuda) if cuda]
    return min(known, key=_parts, default="13.0")


def fitting(tools: tuple[Tool, ...], driver_cuda: str | None) -> Tool | None:
    """Return the first ncu that is not newer than the driver; None if there is none."""
    for tool in tools:
        cuda = cuda_of_ncu(tool.version or "0")
        if cuda and driver_cuda and not older(driver_cuda, cuda):
            return tool
    return None


def install_torch(python: Python, driver_cuda: str | None) -> str:
    """Return the command that installs the newest torch that the driver supports."""
    usable = [cuda for cuda in _TORCH_WHEELS if driver_cuda and not older(driver_cuda, cuda)]
    index = f" --index-url https://download.pytorch.org/whl/cu{usable[-1].replace('.', '')}" if usable else ""
    return f"{python.path} -m pip install --force-reinstall torch{index}"


def older(version: str, than: str) -> bool:
    """Return whether `version` is older; only as many parts as `than` has count: 2025.3.1 equals 2025.3."""
    wanted = _parts(than)
    return _parts(version)[: len(wanted)] < wanted


def major(version: str) -> int:
    """Return the first number of a version; 0 if it has none."""
    return _parts(version)[0]


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal()) or (0,)
