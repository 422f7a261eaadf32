"""Runs kernels under the user's own interpreter; standard library only, Python 3.9 and newer.

Started by path, never imported by ci-perf: `python worker.py --printed LOG [--requests FILE --answers FILE [--fork]]`.
Requests and answers are JSON, one object a line, over stdin and stdout unless files are named. A kernel has no access
to the stream of answers: file descriptor 1 is replaced, so what a kernel prints goes to the log.

Over pipes, each request is answered by a new process. It is forked from one that has imported torch and the entry and
has not initialised CUDA, so it has its own GPU context and memory, at a fraction of the cost of a new interpreter. It
lives until the next request, and answers that too if the request says `same`. An entry whose import initialises CUDA or
starts threads is imported by each process itself; questions about the GPU's properties do not count
(`userside.device_queries`). With files, as a profiler needs it, this process answers all.

Requests, each with `op`:
  hello     -> versions and the GPU of this interpreter
  compile   -> begins to launch each of `cases` once, in at most `processes` processes at the same time; `slots` is a
               folder of locks that limit how many compile at once, and `timeout_s` limits a case; how many cases it
               begins, and whether a kernel of the entry is tuned
  compiled  -> waits until the case with the number `case` was launched, or these processes have ended; the stages of
               each case that was launched since the last such answer; with `give_up` no further case is begun
  verify    -> the error against the reference, and the cost; `strides` says how inputs lie in memory, and with
               `may_refuse` a ValueError is correct too
  time      -> samples in seconds per launch, the method id, and the window (CLOCK_MONOTONIC) in which they were taken
  ready     -> prepares and warms up a case, to be timed in turns with another process; the hash of what it launches
  alike     -> sets the launches and placements of the ready case to those of the other process
  turn      -> the samples of one round of the ready case
  preload   -> begins to import `entry` for later requests; has no answer
  imported  -> answers when all that was to be preloaded is imported
  rest      -> ends the process that answered before, so that nothing holds memory on the GPU
  profile   -> launches inside an NVTX range, between cudaProfilerStart and cudaProfilerStop
  sanitize  -> launches once, for compute-sanitizer
  trace     -> launches under torch's profiler, exported as a Chrome trace to the file `trace`; the local memory of
               the kernels whose loaders know it
Other requests are answered between compile and compiled. All but hello, preload, imported, rest, alike and turn name
`entry` (path of kernel.py), `params`, `device`, `target` (`launch` or `reference`) and `seed`. With `entry` there may
be `uses`: `path`, `env`, `imports` and `root` of `userside.package`. An answer holds `ok`; if that is false, also
`code`, `message` and `detail`.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib.util
import os
import sys
from typing import Any


def expose_package() -> None:
    """Make `ci_perf.cuda` importable for a kernel.py without putting ci-perf's own packages on the path."""
    folder = os.path.dirname(os.path.abspath(__file__))
    # Python puts the folder of a script first on the path, where our cuda.py would shadow NVIDIA's package `cuda`.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != folder]
    spec: Any = importlib.util.spec_from_file_location(
        "ci_perf", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    package = importlib.util.module_from_spec(spec)
    sys.modules["ci_perf"] = package
    spec.loader.exec_module(package)


if "ci_perf" not in sys.modules:
    expose_package()

from ci_perf.userside.answers import answer_all  # noqa: E402
from ci_perf.userside.fork_server import serve  # noqa: E402
from ci_perf.userside.processes import die_with_parent, keep_memory  # noqa: E402


def main() -> None:
    """Answer requests until there are no more."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", help="read requests from this file, answer them in this process")
    parser.add_argument("--answers", help="write answers to this file")
    parser.add_argument("--fork", action="store_true", help="answer from forks, though requests come from a file")
    parser.add_argument("--printed", required=True, help="file that receives what kernels print to stdout")
    arguments = parser.parse_args()
    answers = open(arguments.answers, "w") if arguments.answers else os.fdopen(os.dup(1), "w")  # noqa: SIM115
    keep_memory()
    faulthandler.enable(2)  # where a kernel crashes, stderr shows its line; forks inherit this
    printed = os.open(arguments.printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(printed, 1)
    requests = open(arguments.requests) if arguments.requests else os.fdopen(os.dup(0))  # noqa: SIM115
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if not arguments.requests or arguments.fork:
        die_with_parent()  # not under a profiler, whose launching thread may end before the program does
        serve(requests, answers, arguments.printed, has_variables=arguments.fork)
        return
    answer_all(requests, answers)


if __name__ == "__main__":
    main()
