"""The times of kernels over commits and runs. The core is pure; three modules read or write files.

points    points and series, from baselines and runs
trend     change points and creep of a series
export    series as CSV, OpenMetrics and Bencher's metric format
table     series as a table
picture   series as SVG, by matplotlib (extra `history`)
page      static HTML pages
git_log   the versions of the files in `baselines/`, by two processes of git
parquet   points in Parquet files, read by DuckDB (extra `fleet`)
"""
