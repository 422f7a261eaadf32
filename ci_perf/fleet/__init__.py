"""Divides cases among jobs, and merges the runs of the jobs.

merge   merges the runs of shards
shards  divides the cases of a plan among jobs
"""
