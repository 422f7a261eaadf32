"""Divides each row by the root of its mean square with CuPy, and ends with status 1 if the result is wrong.

Without a GPU NumPy takes the place of CuPy, so that the program can be tried anywhere.
"""

import argparse
import contextlib
import sys

import numpy

try:
    import cupy
    from cupyx.profiler import time_range
except ImportError:
    cupy = None
ON_GPU = cupy is not None and cupy.is_available()
xp = cupy if ON_GPU else numpy
EPS = 1e-6

if ON_GPU:
    arguments = ("float32 x, float32 squares", "float32 out")
    scaled = cupy.ElementwiseKernel(*arguments, f"out = x * rsqrtf(squares + {EPS}f)", "scale_rows")
else:

    def scaled(x, squares):
        return x / numpy.sqrt(squares + numpy.float32(EPS))


def row_norm(x):
    return scaled(x, (x * x).mean(axis=1, keepdims=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("rows", "columns", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    arguments = parser.parse_args()
    values = numpy.random.default_rng(0).standard_normal((arguments.rows, arguments.columns), numpy.float32)
    x = xp.asarray(values)
    out = row_norm(x)  # compiles
    with time_range("step") if ON_GPU else contextlib.nullcontext():
        for _ in range(arguments.steps):
            out = row_norm(x)
    exact = values.astype(float)
    exact /= numpy.sqrt((exact * exact).mean(axis=1, keepdims=True) + EPS)
    error = abs((cupy.asnumpy(out) if ON_GPU else out) - exact).max()
    if not error < 1e-4:
        sys.exit(f"wrong result: the largest error is {error:g}")


if __name__ == "__main__":
    main()
