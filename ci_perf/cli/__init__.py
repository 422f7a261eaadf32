"""The command line: each command parses, calls, prints, exits.

artifacts   the artifact folder of a run
audit       `audit`
baseline    `baseline accept`, `check`, `diff`
checks      `run --fuzz` and `run --sanitize`
doctor      `doctor`
inspect     `inspect`
inspection  any file of a profiler or a benchmark
listing     `list`
merge       `merge`: several runs as one
options     flags made from the table of settings
output      the report on a terminal, progress bars
plan        `plan`: cases shared out over jobs
program     the commands together; where errors become exit statuses
publish     `publish`: a run's comment, summary, annotations and outputs
report      `report` and `replay`: a recorded run as text
run         `run`: the main job
scrub       `scrub`
"""

from ci_perf.cli.program import main, program

__all__ = ["main", "program"]
