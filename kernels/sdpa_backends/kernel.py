"""Scaled dot product attention by each backend of PyTorch; `sdpa` uses the one that PyTorch chooses."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

SHARED = Path(__file__).parents[1] / "sdpa"


def _load(name: str) -> Any:
    """Import a file of the folder `sdpa` by its path, because its name is `kernel` too."""
    spec = importlib.util.spec_from_file_location(f"sdpa_{name}", SHARED / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sdpa, alternatives = _load("kernel"), _load("alternatives")


class Inputs(NamedTuple):
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    backend: str


def make_inputs(rng: torch.Generator, device: str, *, backend: str, **shape: Any) -> Inputs:
    """Return the inputs of `sdpa`, and the backend, one of `BACKENDS` there."""
    return Inputs(*sdpa.make_inputs(rng, device, **shape), backend)


def launch(inputs: Inputs) -> torch.Tensor:
    return alternatives.attend(inputs, inputs.backend)


def reference(inputs: Inputs) -> torch.Tensor:
    return sdpa.reference(sdpa.Inputs(*inputs[:3]))


def cost(*, backend: str, **shape: Any) -> dict[str, int]:
    """Count the same as `sdpa`, whatever else a backend does."""
    del backend
    return sdpa.cost(**shape)
