"""Measures kernels: sessions on a machine.

Start with `session`, which every command opens, and `main_job`, which runs in it.

Session
session           one use of the machine: prepared, locked, idle, watched
prepare           the interpreter, the devices and the profilers
conditions        what all measurements of a session share
process_tracking  ends every process that ci-perf started, and all that those start
lock              one run at a time on each GPU
watch             what disturbs a measurement: other programs, sudden slowdowns
gpu, cpu          what NVML and Linux report about the devices
compile_ahead     compiles the cases of both sides at once, before they are verified and timed
compile_caches    where Triton and inductor keep compiled code
spare             how many processes may compile at once
spent             where the seconds of a run go
starts            starts of the workers of both sides that import at the same time
tools, proc       finds programs; starts them with a time limit
temporary         temporary folders, also those of runs that were killed

Flow, pure
main_job          verify, time, confirm, profile
confirm           turns with the commit of a baseline for the cases that it calls changed
budget            the seconds of the turns, and which cases get what is left of them
pair_loop         pairs until the verdict is clear, and the control
open_cases        the cases that are not decided yet
journal           the run as it grows

Backends
backend           the protocol
machine           sends each job to the backend of its kind
python_kernels    kernels with a Python entry, in worker processes
worker_process    the worker process from the outside
turns             base and head in turns on one device
side              one of the two commits whose kernels take turns
side_answers      what the answers of base and head say together
profile           nsys and ncu over Python kernels
torch_profiler    timelines where there is no nsys
programs          programs in place of a Python entry
program_run       one run of a program, and the metric of its results that a kernel.toml names
program_trace     programs timed through the GPU kernels of an nsys trace
program_counters  programs under ncu

Base commit
base              its tree, build, kernels and workers
both_sides        the base under the profilers
setup             the setup command
one_install       packages that programs of both sides import from one place
kept_base         its tree as the setup command left it, kept from run to run
git               runs git; commits, renamed files
git_base          which commit is the base
git_checkout      commits in folders of their own
git_bisect        `git bisect` in a worktree
"""
