"""Cases shared out over jobs, and the runs of the jobs as one.

merge   shards into one run
shards  the cases of a plan shared out over jobs
"""
