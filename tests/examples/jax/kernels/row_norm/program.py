"""Divides each row by the root of its mean square with JAX, and ends with status 1 if the result is wrong.

XLA compiles before the range "step" begins, so that neither compilation nor autotuning is timed. JAX has no NVTX ranges
of its own: the package `nvtx` makes it.
"""

import argparse
import contextlib
import sys

import jax
import numpy
from jax import numpy as jnp

try:
    from nvtx import annotate
except ImportError:
    annotate = contextlib.nullcontext
EPS = 1e-6


@jax.jit
def row_norm(x):
    return x * jax.lax.rsqrt((x * x).mean(axis=1, keepdims=True) + EPS)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("rows", "columns", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    arguments = parser.parse_args()
    values = numpy.random.default_rng(0).standard_normal((arguments.rows, arguments.columns), numpy.float32)
    x = jnp.asarray(values)
    out = row_norm(x).block_until_ready()
    with annotate("step"):
        for _ in range(arguments.steps):
            out = row_norm(x)
        out.block_until_ready()
    exact = values.astype(float)
    exact /= numpy.sqrt((exact * exact).mean(axis=1, keepdims=True) + EPS)
    error = abs(numpy.asarray(out) - exact).max()
    if not error < 1e-4:
        sys.exit(f"wrong result: the largest error is {error:g}")


if __name__ == "__main__":
    main()
