"""How it becomes known: sessions on a machine.

base              the base commit made ready: tree, build, kernels, worker
build_inputs      what a build depends on beside its tree
built             its tree as the setup command left it, kept from run to run
cpu               the CPU as a device
git               commit and user
gpu               NVML: which GPUs, and how they are just now
journal           the run as it grows
lab               what a machine must be able to do
lock              one run at a time on each GPU
machine_lab       the machine as the flow sees it: verify, time, profile
main_job          verify, time, confirm, profile
pair_loop         pairs until the verdict is clear, and the control
proc              starts programs, with a time limit
profile           one session of nsys or ncu for all cases
program_counters  programs under ncu
program_kernels   programs under nsys, timed through their kernels
program_results   what benchmark programs wrote of themselves
program_run       one run of a program
program_traces    the traces of programs that are kept
programs          programs: run anew for each replicate, timed through their kernels, by the clock, or by themselves
session           what is settled before the first measurement: interpreter, devices, profilers
tools             finds nsys, ncu and the Python with torch
torch_trace       the timeline from torch's profiler, where there is no nsys
turns             base and head in turns on one device
watch             what happens on a GPU while something is measured: other programs, sudden slowdowns
worker_process    a worker from outside: asks, waits, turns every death into a Failure
"""
