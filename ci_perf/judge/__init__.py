"""What a run means: statistics, verdicts, report. Pure.

agreed         what a run was compared with, in words
baseline       baselines made from a run, checked, compared
causes/        why the time of a case changed
checks         the verdict on random cases and on what a sanitizer found
clocks         whether a change is one of the SM clock
comment        the content of a comment, from a report
continued      a finished run that left cases undecided, and goes on
control        whether a session is reliable: the base against itself
creep          small changes of several merges that add up
explained      why one case of a run changed
finding        the verdict on one case, with its reason and numbers
gates          limits on counters and timelines, and differences
launches       how base and head launch their GPU kernels
looks          the looks at pairs: after how many pairs, and at which error
memory         peak device memory, and the verdict on it
noisy          why a run would be a poor baseline
outcome        the verdict on a number alone, thresholds
next_pairs     which cases get the next pairs where the budget is short
pairs          the verdict on a case that took turns with its base commit
parts          the times of a program's GPU kernels and ranges, compared with earlier ones
ratios         the values of pairs, and their interval
report         findings and numbers in order
roofline       the share of the device's limit that a time reaches
scatter        what baselines know of the scatter of pairs
sessions       the sessions of a baseline, and the scatter between them
stats          summaries and intervals
stored         the verdict on a case against a baseline
verdict        the verdict on each case
witness        checks a change on a CPU by the instructions of a launch
"""
