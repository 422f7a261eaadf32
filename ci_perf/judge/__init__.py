"""What a run means: statistics, verdicts, report. Pure.

baseline       baselines made from a run, checked, compared
causes/        why a case takes another time
checks         the verdict on random cases and on what a sanitizer found
clocks         whether a change is one of the SM clock
comment        what a comment says of a report
continued      a finished run that left cases undecided, and goes on
control        whether a session can be believed: the base against itself
creep          small changes of several merges that add up
explained      why one case of a run changed
finding        the verdict on one case, with its reason and numbers
gates          limits on counters and timelines, and differences
launches       how base and head launch their GPU kernels
looks          when the pairs are looked at, and what each look may err
memory         peak device memory, and the verdict on it
noisy          what speaks against a run as a baseline
outcome        the verdict on a number alone, thresholds
next_pairs     which cases get the next pairs where the budget is short
pairs          the verdict on a case that took turns with its base commit
parts          what a program's time is made of, beside what it was
ratios         the values of pairs, and their interval
report         findings and numbers in order
roofline       how near a time is to the device's best
scatter        what baselines know of the scatter of pairs
sessions       the sessions of a baseline, and the scatter between them
stats          summaries and intervals
stored         the verdict on a case against a baseline
verdict        the verdict on each case
witness        the instructions of a launch on a CPU, beside its time
"""
