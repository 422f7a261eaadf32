"""The product by cuSPARSE, of BSR and of blocked ELL matrices: PyTorch calls it for float32 and float64 only."""

from __future__ import annotations

import ctypes
import functools
import weakref
from typing import Any

import torch

# From library_types.h and cusparse.h.
_TYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14}
_INT32, _FROM_ZERO, _ROW_MAJOR, _AS_IT_IS = 2, 0, 2, 0
_BLOCKED_ELL_ALG1, _BSR_ALG1 = 13, 14


def bsr(inputs: Any) -> Product:
    """Return the product of the matrix in its own format, BSR."""
    crow, col, values, dense, _ = inputs
    blocks, size = values.shape[:2]
    made = _created(
        "cusparseCreateBsr",
        *map(ctypes.c_int64, (len(crow) - 1, len(dense) // size, blocks, size, size)),
        *map(_pointer, (crow, col, values)),
        *(_INT32, _INT32, _FROM_ZERO, _TYPES[values.dtype], _ROW_MAJOR),
    )
    return Product(made, (crow, col, values), (len(crow) - 1) * size, dense, _BSR_ALG1)


def blocked_ell(inputs: Any) -> Product:
    """Return the product of the matrix in blocked ELL: all rows are padded to the length of the longest."""
    columns, values = padded(inputs)
    size = inputs.values.shape[1]
    made = _created(
        "cusparseCreateBlockedEll",
        *map(ctypes.c_int64, (len(values), len(inputs.dense), size, values.shape[1])),
        *map(_pointer, (columns, values)),
        *(_INT32, _FROM_ZERO, _TYPES[values.dtype]),
    )
    return Product(made, (columns, values), len(values), inputs.dense, _BLOCKED_ELL_ALG1)


def padded(inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return block columns [R, L], padded with -1, and the blocks of each row side by side, [R size, L size]."""
    crow, col, values, *_ = inputs
    lengths, size = crow.diff().long(), values.shape[1]
    rows, longest = len(lengths), int(lengths.max())
    row = torch.repeat_interleave(torch.arange(rows, device=crow.device), lengths)
    place = torch.arange(len(col), device=crow.device) - crow[:-1].long()[row]
    columns = col.new_full((rows, longest), -1)
    columns[row, place] = col
    blocks = values.new_zeros(rows, longest, size, size)
    blocks[row, place] = values
    return columns, blocks.transpose(1, 2).reshape(rows * size, longest * size)


class Product:
    """A prepared product of a sparse matrix and a dense one in row-major order."""

    def __init__(
        self, sparse: ctypes.c_void_p, held: tuple[torch.Tensor, ...], rows: int, dense: torch.Tensor, how: int
    ) -> None:
        self._sparse, self._held, self._rows, self._dense, self._how = sparse, held, rows, dense, how
        self._handle = _created("cusparseCreate")
        weakref.finalize(self, _call, "cusparseDestroy", self._handle)
        self._one, self._zero = ctypes.c_float(1), ctypes.c_float(0)
        self._from, self._to = _matrix(dense), _matrix(self._output())
        for made, destroy in ((sparse, "Sp"), (self._from, "Dn"), (self._to, "Dn")):
            weakref.finalize(self, _call, f"cusparseDestroy{destroy}Mat", made)
        size = ctypes.c_size_t()
        _call("cusparseSpMM_bufferSize", *self._arguments(), ctypes.byref(size))
        self._buffer = torch.empty(size.value, dtype=torch.uint8, device=dense.device)

    def __call__(self) -> torch.Tensor:
        """Launch on the current stream."""
        out = self._output()
        stream = torch.cuda.current_stream().cuda_stream
        _call("cusparseSetStream", self._handle, ctypes.c_void_p(stream))
        _call("cusparseDnMatSetValues", self._to, _pointer(out))
        _call("cusparseSpMM", *self._arguments(), _pointer(self._buffer))
        return out

    def _output(self) -> torch.Tensor:
        return self._dense.new_empty(self._rows, self._dense.shape[1])

    def _arguments(self) -> tuple[Any, ...]:
        one, zero = ctypes.byref(self._one), ctypes.byref(self._zero)
        matrices = self._handle, _AS_IT_IS, _AS_IT_IS, one, self._sparse, self._from, zero, self._to
        return (*matrices, _TYPES[torch.float32], self._how)


def _matrix(dense: torch.Tensor) -> ctypes.c_void_p:
    rows, columns = map(ctypes.c_int64, dense.shape)
    stride = ctypes.c_int64(dense.stride(0))
    return _created("cusparseCreateDnMat", rows, columns, stride, _pointer(dense), _TYPES[dense.dtype], _ROW_MAJOR)


def _created(function: str, *arguments: Any) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    _call(function, ctypes.byref(made), *arguments)
    return made


def _pointer(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _call(function: str, *arguments: Any) -> None:
    status = getattr(_library(), function)(*arguments)
    if status:
        raise RuntimeError(f"{function}: {_library().cusparseGetErrorString(status).decode()}")


@functools.cache
def _library() -> ctypes.CDLL:
    """Return the cuSPARSE library that torch has loaded."""
    library = ctypes.CDLL("libcusparse.so.12")
    library.cusparseGetErrorString.restype = ctypes.c_char_p
    return library
