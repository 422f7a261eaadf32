"""`run --fuzz` and `run --sanitize`: checks in place of measurements.

flow          the flow of a run of checks, saved after every step
random_cases  random cases, and smaller ones in place of those that fail
sanitize      runs cases under compute-sanitizer, a process for each case and tool
sanitizer     compute-sanitizer: its command line, and what its output says
"""
