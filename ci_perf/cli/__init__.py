"""The command line: each command parses, calls, prints, exits.

Reports go to stdout; progress, warnings and errors to stderr. Exit status: 0 fine; 1 a regression, a failed kernel, a
broken gate or whatever else `fail-on` names; 2 usage or configuration; 3 this machine cannot measure; 70 a bug.
"""

from ci_perf.cli.program import main, program

__all__ = ["main", "program"]
