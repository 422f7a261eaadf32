"""`python -m ci_perf` is `ci-perf`."""

from ci_perf.cli import main

main()
