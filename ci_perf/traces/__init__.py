"""Files of profilers and benchmarks, read. Knows nothing of CI.

activity         what a program did with the GPU in a range, summed up
attribution      which kernels and counters belong to which case
chrome_trace     reads the trace of torch's profiler
counters         what a report holds
diagnosis        a profiler's complaint as a value
document         a file's content for `inspect`
filetype         what a file that cannot be read looks like
ncu              Nsight Compute: command, complaints
ncu_csv          reads its CSV pages and logs
ncu_report_file  reads .ncu-rep
nsys             Nsight Systems: command, complaints
nsys_activity    reads what a program did in a range, call by call
nsys_calls       goes over its API calls, and finds the launch of a kernel
nsys_columns     columns of integers out of SQLite, many rows at a time
nsys_kernels     goes over the kernels of a trace of any length
nsys_pool        asks a large trace through several processes
nsys_ranges      says which ranges are open at a launch
nsys_scan        such a process; started by path, stands alone
nsys_schema      gives every version's tables one shape
nsys_scrub       removes environments from an export
nsys_sqlite      reads its exported database
nsys_tally       sums and medians of kernels
nsys_warnings    what a trace does not hold
occupancy        how many warps of a kernel fit on a multiprocessor
printed          numbers of any locale
program_trace    the kernels of a program that count
timeline         what a trace holds
units            every unit to its base unit
benchmarks/      its own folder
"""
