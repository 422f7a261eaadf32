"""What runs under the user's interpreter beside the worker: standard library and torch only, Python 3.9 and newer.

case          a kernel.py with its inputs
cupti         when the GPU worked, from CUPTI's records
cupti_timers  what is measured through them
identity      what a launch makes the GPU do, as a hash
machine_code  what of a cubin runs, as a hash
stages        where the time of a request goes
stopwatch     a case timed alone, or in turns with another process
strides       the same inputs elsewhere in memory
timers        what is measured, over how many launches
verify        its output held against its reference
"""
