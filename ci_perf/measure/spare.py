"""How many processes may compile at once: the cores and the free memory of this machine decide."""

from ci_perf.measure import cpu, gpu

GPU_BYTES = 4 << 30
"""Device memory that each process may take: a context has about 0.6 GB on an H200; the rest is for inputs.

A case with larger inputs may find too little memory. Then it is compiled when it is verified or timed.
"""
HOST_BYTES = 3 << 30
"""The same of the memory of the machine: torch and a context have about 1.5 GB."""


def compile_processes(uuid: str | None) -> int:
    """Return how many processes may compile at once: at most half of the cores, and what the memory of both allows."""
    free = (gpu.query_free_memory(uuid) if uuid else None, GPU_BYTES), (cpu.available_bytes(), HOST_BYTES)
    limits = [cpu.usable_cores() // 2, *(available // each for available, each in free if available is not None)]
    return max(1, min(limits))
