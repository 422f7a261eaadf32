"""The workflow file: one job measures without a token that can write, another publishes."""

from importlib import resources

PATH = ".github/workflows/perf.yml"


def workflow(branch: str) -> str:
    """Return the text of the workflow, which also runs after each push to `branch`."""
    text = resources.files("ci_perf.init").joinpath("perf.yml").read_text(encoding="utf-8")
    return text.replace("branches: [main]", f"branches: [{branch}]")
