"""Nsight Systems: the command that traces, and the readers of what it wrote.

activity  what a program did in a range, call by call
calls     goes over the API calls, and finds the launch of a kernel
columns   columns of integers out of SQLite, many rows at a time
database  reads an exported trace
kernels   goes over the kernels of a trace of any length
pool      asks a large trace through several processes
ranges    says which ranges are open at a launch
scan      such a process; started by path, stands alone
schema    gives every version's tables one shape
scrub     removes environments from an export
tally     sums and medians of kernels
tool      its command and its complaints
warnings  what a trace does not hold
"""

from ci_perf.traces.nsys.tool import command, diagnose, export_command, read_inside, read_timeline

__all__ = ["command", "diagnose", "export_command", "read_inside", "read_timeline"]
