"""The device memory that a launch takes at most, as torch's allocator counts it."""

from __future__ import annotations

import gc
from typing import Any


def allocated_bytes(device: str) -> int:
    """Return how much device memory tensors hold now; 0 on a CPU, for which torch does not count."""
    if device == "cpu":
        return 0
    import torch

    return int(torch.cuda.memory_allocated())


def peak_memory(case: Any) -> int | None:
    """Launch a case once more and return the peak of device memory meanwhile, in bytes.

    Its inputs, temporary memory and outputs count. What it keeps from its first launch on does not, nor what CUDA gives
    out beside torch's allocator. None on a CPU, and where torch's allocator gave nothing.
    """
    if case.device == "cpu":
        return None
    import torch

    gc.collect()
    case.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    case.launch()
    case.synchronize()
    return case.inputs_bytes + int(torch.cuda.max_memory_allocated()) - int(before) or None
