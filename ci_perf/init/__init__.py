"""Sets ci-perf up in a repository: finds what can be measured, and drafts the files.

candidates        what can be measured, and the files that are drafted for it
files             reads the files of a repository
python_functions  functions of Python files: wrappers of Triton kernels, functions of torch
frozen            the source of a function of torch with all that it uses, as its reference
cuda_kernels      `extern "C"` kernels of .cu files
elementwise       the formula of a CUDA kernel that computes each element by itself
programs          programs with nvbench or google-benchmark: executables, targets of CMake
equivalents       what torch offers for the usual names of kernels
references        the reference of a kernel.py as source, and its tolerances
shapes            which inputs a function may take
drafting          all files for a candidate: drafts and tries them
python_draft      kernel.toml and kernel.py of a Python function
cuda_draft        kernel.toml and kernel.py of a CUDA kernel
program_draft     kernel.toml of a program
try_out           runs the drafts of a function under the user's interpreter until one is right
unfinished        the functions of a kernel.py that a person has yet to write
workflow          the workflow file, one for all
"""
