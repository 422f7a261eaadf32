"""The parts of the worker and of `ci_perf.cuda`; standard library and torch only, Python 3.9 and newer.

answers       the operations of the worker: a request in, an answer out
case          a kernel.py with its inputs
compile_pool  compiles the cases of a kernel in several processes at once
compilers     NVRTC or nvcc, and what their output depends on
core_wait     how long a thread waited for a core
cpu_timers    timers of kernels on a CPU
cupti         the times at which the GPU worked, from CUPTI's activity records
cupti_timers  timers that use them
device_queries  answers questions about the GPU during an import without initialising CUDA
error_line    the line of a kernel that raised an error
first_launch  launches a case once, so that the compile caches have its code
fork_server   processes that import an entry once and fork those that run its cases
garbage       lets the garbage collector not run in a block
gradients     the expected gradients of a kernel.py that names them
identity      a hash of what a launch makes the GPU do
imported      the files that a kernel imported
instructions  counts the instructions of a process
launches      the GPU kernels of one launch: geometry, registers, memory
machine_code  the machine code of the loaded kernels, and its hash
package       what kernel.toml says of a kernel's packages and variables
outputs       the outputs of a launch by name, and how far they are from what is expected
memory        the device memory that a launch takes at most
processes     the processes that answer requests
profiling     launches under a profiler or compute-sanitizer
recheck       compares outputs after the timing with that of the first launch
restore       the inputs of kernels that work in place
slots         how many threads and processes compile at once
stages        where the time of a request goes
stopwatch     times a case, alone or in turns with another process
strides       inputs in another order of memory
timer_choice  chooses how a case is timed
timers        how a sample is taken
tuned         compiles the configurations of tuned Triton kernels without timing them
verify        compares the outputs of launches with the reference
"""
