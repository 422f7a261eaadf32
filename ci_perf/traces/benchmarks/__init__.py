"""Readers of the files that benchmark programs write.

google            google-benchmark's JSON and CSV
nvbench           its JSON and CSV
pytest_benchmark  its JSON
reader            detects the kind of a file; refuses the rest
results           the cases that a file holds
triton            the CSV of perf_report
"""
