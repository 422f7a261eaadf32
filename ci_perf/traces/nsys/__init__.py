"""Nsight Systems: the command that traces, and the readers of what it wrote.

tool      its commands and its errors
views     opens an exported trace, and gives every version's tables one shape
kernels   kernels and the calls that launched them, as columns
ranges    NVTX ranges, and the kernels that were launched inside them
reader    the trace as a Timeline
warnings  what a trace does not hold
activity  what a program did in a range, call by call
scrub     removes environments from an export
"""

from ci_perf.traces.nsys.tool import command, diagnose, export_command, read_timeline

__all__ = ["command", "diagnose", "export_command", "read_timeline"]
