"""The command line: each command parses its arguments, calls the slices, prints and exits.

against     the base of `run --against`
artifacts   finishes the artifact folder of a run
audit       `audit`
baseline    `baseline accept`, `record`, `check`, `diff`
bisect      `bisect`
case_history  the history of the cases of a run, for its page
checks      `run --fuzz` and `run --sanitize`
creep       the creep that the ledger of a tree shows
doctor      `doctor`
empty_run   a run before anything is measured
explain     `explain`
history     `history` and `site`
init        `init`
inspect     `inspect`
inspection  reads any file of a profiler or a benchmark
listing     `list`
log         messages that are no command of GitHub's runner
merge       `merge`: makes one run of several
options     makes flags from the table of settings
output      the report on a terminal, progress bars
plan        `plan`: divides the cases among jobs
program     the group of all commands; turns errors into exit statuses
publish     `publish`: a run's comment, summary, annotations and outputs
report      `report` and `replay`: print a recorded run
resume      `run --resume` and `--earlier`: what a run begins with
run         `run`: the main job
scrub       `scrub`
two_files   both sides of a change from two files of a profiler
two_runs    the same from two runs
unmeasured  `publish` of a job that could not measure
"""

from ci_perf.cli.program import main, program

__all__ = ["main", "program"]
