"""The error rate of ci-perf's own verdicts.

anchor_shares  how often these are wrong on the same data
anchors        the rules of other systems
file           files of audit sessions, appended to
line           such sessions as lines of JSON
measure        sessions in which the truth is known
plot           the operating curve of an audit as a picture
rates          the error rate that they show
render         the audit as tables and JSON
session        sessions in which the truth is known, judged again
"""
