"""Pull requests, comments, annotations, artifacts of workflows.

actions            the files of GitHub's runner: event, summary, outputs
archive            the run.json of an artifact that nobody vouches for
client             pull requests and comments, through PyGithub
event              the event that started a workflow
foreign            a run from code that nobody vouches for
patch              the baselines of a run as a patch
places             where each kernel is launched
publish            what a report sends to GitHub
target             the pull request, and our comment there
workflow_commands  annotations for GitHub's runner
"""
