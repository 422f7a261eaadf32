"""The modules of the commands in scripts/: no file here is a command.

browser             pages in Chromium: `picture`, tests
fault_table         the faults and the places where text leaves: `faults`
kernel_bench/       kernels beside their alternatives: `bench-kernels`
reader_fuzzing/     damaged files for every reader: `fuzz-readers`
rule_comparison/    the rules of other systems: `compare-rules`
verdict_simulation  pull requests under several kinds of noise: `simulate-verdicts`
"""
