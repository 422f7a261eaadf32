"""Nsight Compute: the commands that profile, and the readers of what it wrote.

blocks       checks that a .ncu-rep file is whole
code         the machine code of kernels, and what differs between two
code_reader  reads it from .ncu-rep
counters     what a report holds
csv_table    reads its CSV pages and logs
figures      the values that it prints
lines        the source lines of machine code
printed      numbers of any locale
report_file  reads .ncu-rep
table        finds the tables in its output
tool         its commands and its errors
units        every unit to its base unit
"""

from ci_perf.traces.ncu.tool import command, diagnose, parse, program_command, read

__all__ = ["command", "diagnose", "parse", "program_command", "read"]
