"""What is said of what is known: statistics, verdicts, report. Pure.

baseline       made from a run, checked, compared
checks         the verdict on random cases and on what a sanitizer found
comment_state  what a comment says next
decision       the verdict on one number
finding        what is said of a case
gates          limits on counters and timelines, and differences
paired         the verdict on pairs that took turns
parts          what a program's time is made of, beside what it was
report         findings and numbers in order
roofline       how near a time is to the device's best
stats          summaries and intervals
verdict        the verdict on each case
versus         the verdict on a case against its base commit, and on the session
"""
