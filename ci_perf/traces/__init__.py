"""Readers of the files of profilers and benchmarks. They know nothing of CI.

nsys/          Nsight Systems
ncu/           Nsight Compute
benchmarks/    files that benchmark programs write
guards         the checks of every reader; what they leave out is counted
chrome         reads the trace of torch's profiler
chrome_events  what its events say
chrome_json    its JSON, event by event
timeline       what a trace holds
activity       what a program did with the GPU in a range, summed up
attribution    which kernels and counters belong to which case
selection      which kernels count
document       a file's content for `inspect`
diagnosis      recognises a profiler's errors
filetype       recognises files by how they begin; their encoding
"""
