"""Load the bundled kernels as the worker does, and compare their outputs."""

import importlib.util
import sys
import tomllib
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
KERNELS = Path(__file__).parents[2] / "kernels"
NAMES = sorted(path.parent.name for path in KERNELS.glob("*/kernel.py"))
NO_TRITON = "needs Triton, which has no wheel for this machine"


def load_kernel(name, file="kernel.py"):
    """Import a kernel.py (or its neighbour) as the worker does: by path, under a unique name."""
    spec = importlib.util.spec_from_file_location(f"{Path(file).stem}_{name}", KERNELS / name / file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def read_toml(name):
    return tomllib.loads((KERNELS / name / "kernel.toml").read_text())


def cases_of(described):
    return {name: {**described.get("defaults", {}), **case} for name, case in described["cases"].items()}


def load_alternatives(name):
    spec = importlib.util.spec_from_file_location(f"alternatives_{name}", KERNELS / name / "alternatives.py")
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings(action="ignore"):  # torch.compile deprecates parts of torch
        spec.loader.exec_module(module)
    return module.ALTERNATIVES


def worst_error(out, expected):
    """Return the error that [tolerance] bounds."""
    out, expected = out.double(), expected.double()
    return ((out - expected).abs() / (expected.abs() + expected.square().mean().sqrt())).max().item()


def rng():
    return torch.Generator().manual_seed(7)
