"""Measures the softmax of Triton and of torch with triton.testing, and saves the rates: softmax.py FOLDER.

Without a GPU one call of each is timed by the clock, so that the program can be tried anywhere.
"""

import sys
import time

import torch
from row_ops import softmax
from triton.testing import Benchmark, do_bench, perf_report

ON_GPU = torch.cuda.is_available()
ROWS = 8192 if ON_GPU else 4
PROVIDERS = {"Triton": softmax, "torch": lambda x: x.softmax(-1)}


def seconds(function):
    if ON_GPU:
        return do_bench(function) / 1e3
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


@perf_report(
    Benchmark(
        x_names=["columns", "dtype"],
        x_vals=[(1000, torch.float16), (1000, torch.float32), (4000, torch.float32)],
        line_arg="provider",
        line_vals=list(PROVIDERS),
        line_names=list(PROVIDERS),
        ylabel="GB/s",
        plot_name="softmax",
        args={},
    )
)
def bench(columns, dtype, provider):
    """Return the bytes that are read and written in a second, in GB."""
    x = torch.randn(ROWS, columns, device="cuda" if ON_GPU else "cpu", dtype=dtype)
    torch.testing.assert_close(PROVIDERS[provider](x), x.softmax(-1))
    return 2 * x.numel() * x.element_size() / seconds(lambda: PROVIDERS[provider](x)) / 1e9


if __name__ == "__main__":
    bench.run(save_path=sys.argv[1])
