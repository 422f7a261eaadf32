"""Alternatives to bsr_gemm in PyTorch and cuSPARSE."""

from __future__ import annotations

import functools
import importlib.util
import warnings
from pathlib import Path
from typing import Any, Callable

import torch


@functools.lru_cache(maxsize=1)
def as_bsr(inputs: Any) -> torch.Tensor:
    """Return torch's BSR matrix; the conversion is not part of the timed product."""
    shape = ((len(inputs.crow_indices) - 1) * inputs.values.shape[1], len(inputs.dense))
    crow, col = inputs.crow_indices.long(), inputs.col_indices.long()  # the type that torch uses
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the warning that BSR is in beta
        return torch.sparse_bsr_tensor(crow, col, inputs.values, shape, check_invariants=False)


@functools.lru_cache(maxsize=1)
def as_dense(inputs: Any) -> torch.Tensor:
    return as_bsr(inputs).to_dense()


def torch_bsr(inputs: Any) -> torch.Tensor:
    return as_bsr(inputs) @ inputs.dense


def torch_triton(inputs: Any) -> torch.Tensor:
    from torch.sparse._triton_ops import bsr_dense_mm

    return bsr_dense_mm(as_bsr(inputs), inputs.dense)


@functools.lru_cache(maxsize=1)
def prepared(inputs: Any, form: str) -> Callable[[], torch.Tensor]:
    """Return cuSPARSE's product of the matrix in one of its formats; the conversion is not timed."""
    spec = importlib.util.spec_from_file_location("cusparse", Path(__file__).with_name("cusparse.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    product: Callable[[], torch.Tensor] = getattr(module, form)(inputs)
    return product


def cusparse_bsr(inputs: Any) -> torch.Tensor:
    return prepared(inputs, "bsr")()


def cusparse_ell(inputs: Any) -> torch.Tensor:
    return prepared(inputs, "blocked_ell")()


def dense(inputs: Any) -> torch.Tensor:
    return as_dense(inputs) @ inputs.dense


ALTERNATIVES: dict[str, Callable[[Any], torch.Tensor]] = {
    "torch BSR": torch_bsr,
    "torch bsr_dense_mm (Triton)": torch_triton,
    "cuSPARSE BSR": cusparse_bsr,
    "cuSPARSE blocked ELL": cusparse_ell,
    "dense (cuBLAS)": dense,
}
