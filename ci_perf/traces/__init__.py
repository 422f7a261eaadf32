"""Files of profilers and benchmarks, read. Knows nothing of CI.

nsys/          Nsight Systems
ncu/           Nsight Compute
benchmarks/    what benchmark programs write of themselves
chrome         reads the trace of torch's profiler
timeline       what a trace holds
activity       what a program did with the GPU in a range, summed up
attribution    which kernels and counters belong to which case
program_trace  the kernels of a program that count
occupancy      how many warps of a kernel fit on a multiprocessor
document       a file's content for `inspect`
diagnosis      a profiler's complaint as a value
filetype       what a file that cannot be read looks like
"""
