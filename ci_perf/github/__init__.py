"""Pull requests, comments, annotations, artifacts of workflows.

actions            the files of GitHub's runner: event, summary, outputs
archive            reads run.json from an untrusted artifact
client             pull requests and comments, through PyGithub
earlier            reads what an earlier attempt of a job measured
event              the event that started a workflow
foreign            checks and judges a run that untrusted code measured
patch              the baselines of a run as a patch for `git apply`
places             where each kernel is launched
publish            decides what a report sends to GitHub
target             the pull request, and our comment there
workflow_commands  annotations for GitHub's runner
"""
