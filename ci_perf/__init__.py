"""CI for GPU kernels: check, time, profile and judge each kernel, and explain the verdict.

The map. Each folder is a slice of one subject; the docstring of its `__init__.py` lists its modules. Imports run
downwards only, as the contracts in pyproject.toml check:

    cli
    audit
    checks | doctor | fleet | github | render
    measure
    judge | guard | traces | store
    values

values    what is known: kernels, measurements, runs, baselines; pure
store     files on disk: kernels, settings, runs, baselines
judge     what is said of it: statistics, verdicts, report; pure
measure   how it becomes known: a session on a machine
userside  what runs under the user's interpreter beside the worker; standard library only
traces    reads the files of profilers and benchmarks; knows nothing of CI
render    a report as text
github    pull requests, comments, annotations, artifacts of workflows
checks    random cases and compute-sanitizer
audit     the error rate of ci-perf's own verdicts
fleet     cases shared out over jobs, and their runs as one
doctor    what a machine lacks and how to mend it
guard     keeps secrets on the machine
cli       the command line: each command parses, calls, prints, exits
schemas   JSON Schema 2020-12 of the files
worker    runs kernels under the user's interpreter; standard library only, stands alone
cuda      compiles and launches the .cu files beside a kernel.py; under the user's interpreter too
"""

__version__ = "0.1.0"
