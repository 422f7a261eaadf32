"""CI for GPU kernels: check, time, profile and judge each kernel, and explain the verdict.

Each folder is a slice of one subject; the docstring of its `__init__.py` lists its modules. Imports
go downwards only; the contracts in pyproject.toml check this:

    cli
    audit
    checks | doctor | fleet | github | history | init | render
    measure
    judge | guard | pages | traces | store
    values

values    the data types: kernels, measurements, runs, baselines; pure
store     files on disk: kernels, settings, runs, baselines
judge     verdicts on runs: statistics, decisions, report; pure
measure   measures kernels: a session on a machine
userside  modules that the worker uses under the user's interpreter; standard library only
traces    reads the files of profilers and benchmarks; knows nothing of CI
render    a report as text
pages     HTML pages of one file each, and their charts; pure
github    pull requests, comments, annotations, artifacts of workflows
checks    random cases and compute-sanitizer
audit     the error rate of ci-perf's own verdicts
history   the times of kernels over commits and runs
fleet     divides cases among jobs, and merges their runs
init      sets ci-perf up in a repository
doctor    finds what a machine lacks, and how to fix it
guard     keeps secrets on the machine
cli       the command line: each command parses, calls, prints, exits
schemas   JSON Schema 2020-12 of the files
worker    runs kernels under the user's interpreter; standard library only, stands alone
cuda      compiles and launches the .cu files beside a kernel.py; under the user's interpreter too
"""

__version__ = "0.1.0"
