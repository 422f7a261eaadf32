"""Run the Triton kernels on a CPU by Triton's interpreter, and print for each the largest error against float64.

Run it in a separate process, python tests/kernels/interpreted.py: how a kernel runs is settled when Triton is
imported. float16 stands in for bfloat16, which the interpreter does not multiply; Gluon is not supported by it.
"""

import builtins
import importlib.util
import json
import os
import sys
from pathlib import Path

KERNELS = Path(__file__).parents[2] / "kernels"


def main():
    os.environ["TRITON_INTERPRET"] = "1"
    import torch

    mend_interpreter()
    for row in [*dense(torch), *sparse(torch)]:
        sys.stdout.write(f"{json.dumps(row)}\n")


def mend_interpreter():
    """Let the interpreter of Triton 3.6 and 3.7 convert an array of one element to int, which NumPy 2.4 refuses."""
    import numpy as np
    from triton.runtime import interpreter

    class Kind(type):
        def __instancecheck__(cls, value):
            return isinstance(value, builtins.int)

        def __call__(cls, value=0, *base):
            return builtins.int(value.item() if isinstance(value, np.ndarray) else value, *base)

    class Int(metaclass=Kind):
        pass

    interpreter.int = Int


def load(kernel, file):
    spec = importlib.util.spec_from_file_location(f"{kernel}_{file}", KERNELS / kernel / f"{file}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def error(out, expected):
    return ((out.double() - expected).abs() / (expected.abs() + expected.square().mean().sqrt())).max().item()


def dense(torch):
    """Multiply with each tile: a product smaller than a tile, and one that exceeds the edges of several tiles."""
    kernel, tma = load("matmul", "kernel"), load("matmul", "matmul_tma")
    torch.cuda.get_device_properties = lambda _: type("Device", (), {"multi_processor_count": 132})
    for tile in tma.TILES:
        tma.tile_for = lambda *_, tile=tile: tile
        for dtype in ("float16", "float8_e4m3fn"):
            for m, k, n in ((1, 16, 8), (150, 272, 264)):
                rng = torch.Generator().manual_seed(3)
                inputs = kernel.make_inputs(rng, "cpu", m=m, k=k, n=n, dtype=dtype, backend="gluon")
                yield f"matmul_tma {tile.m} x {tile.n}", dtype, error(tma.matmul(*inputs[:4]), kernel.reference(inputs))


def sparse(torch):
    kernel = load("bsr_gemm", "kernel")
    for way, blocks in {"any": (16, 32, 64, 128), "small": (16, 32), "tma": (128,)}.items():
        module = load("bsr_gemm", f"bsr_gemm_{way}")
        for block in blocks:
            rng = torch.Generator().manual_seed(3)
            shape = {"rows": 4, "columns": 3, "n": 264, "block": block, "density": 0.4, "dtype": "float16"}
            inputs = kernel.make_inputs(rng, "cpu", **shape)
            out = torch.full((4 * block, 264), 9.0, dtype=torch.float16)
            module.launch(*inputs[:4], out)
            yield f"bsr_gemm_{way} {block} x {block}", "float16", error(out, kernel.reference(inputs))


if __name__ == "__main__":
    main()
