"""The error rate of ci-perf's own verdicts, from sessions whose true change is known.

session  one session, and the verdicts on its cases
measure  measures such sessions
file     the audit file: a session for each line of JSON
rates    error rate, scatter and operating curve of some sessions
render   these as tables and as JSON
rule     a hash of the rule that judges pairs
"""
