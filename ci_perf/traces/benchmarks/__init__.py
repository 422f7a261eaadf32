"""What benchmark programs write of themselves, read.

choice            the one number that a kernel.toml means
google            google-benchmark's JSON and CSV
nvbench           its JSON and CSV
pytest_benchmark  its JSON
reader            tells the kinds of file apart; refuses the rest
results           the cases that a file holds
triton            the CSV of perf_report
"""
