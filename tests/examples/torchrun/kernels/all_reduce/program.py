"""Times the sum of a tensor over all processes: over NCCL where there are GPUs, else over gloo on the CPU.

Each sample is the time of the slowest process. The program ends with status 1 if the sum is wrong.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import distributed

SAMPLES, LAUNCHES = 20, 10
ON_GPU = torch.cuda.is_available()


def sample(tensor):
    """Return the seconds of one sum, as the slowest process sees it."""
    distributed.barrier()
    if ON_GPU:
        torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(LAUNCHES):
        distributed.all_reduce(tensor)
    if ON_GPU:
        torch.cuda.synchronize()
    seconds = torch.tensor((time.perf_counter() - started) / LAUNCHES, dtype=torch.float64, device=tensor.device)
    distributed.all_reduce(seconds, distributed.ReduceOp.MAX)
    return seconds.item()


def google_benchmark(name, times):
    """Return a document as google-benchmark writes it, with a repetition for each time in seconds."""
    common = {"name": name, "run_name": name, "run_type": "iteration", "iterations": LAUNCHES, "time_unit": "s"}
    benchmarks = [{**common, "repetition_index": i, "real_time": t, "cpu_time": t} for i, t in enumerate(times)]
    return {"context": {"executable": __file__}, "benchmarks": benchmarks}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if ON_GPU else torch.device("cpu")
    if ON_GPU:
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if ON_GPU else "gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()

    tensor = torch.full((arguments.elements,), float(rank + 1), device=device)
    distributed.all_reduce(tensor)
    right = bool((tensor == ranks * (ranks + 1) / 2).all())
    tensor.zero_()  # sums of sums would overflow
    times = [sample(tensor) for _ in range(SAMPLES)]
    if rank == 0:
        arguments.output.write_text(json.dumps(google_benchmark(f"all_reduce/{arguments.elements}", times)))
    distributed.destroy_process_group()
    if not right:
        sys.exit("wrong result: the sum over all processes is not that of their numbers")


if __name__ == "__main__":
    main()
