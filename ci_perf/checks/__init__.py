"""Random cases and compute-sanitizer.

order      the order of a run that checks in place of measuring: random cases, compute-sanitizer
sanitize   compute-sanitizer, a process for each case and tool
sanitizer  compute-sanitizer: command, complaints, findings
"""
