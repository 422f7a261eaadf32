"""Cases shared out over jobs, and the runs of the jobs as one.

merge   the runs of shards merged into one
shards  the cases of a plan shared out over jobs
"""
