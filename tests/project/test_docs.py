"""README and .github/docs show only commands that run, flags and files that exist, and tables as the commands print."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ci_perf.cli.audit import audit
from ci_perf.values.errors import EXIT_BUG
from ci_perf.values.settings import SETTINGS
from tests.project.test_project import ROOT

pytestmark = pytest.mark.slow

OTHER_FLAGS = {
    *("yes", "print", "no-baseline", "no-confirm"),
    *("add", "global", "gpus", "cap-add", "cuda-graph-trace", "benchmark-compare-fail"),
    *("csv", "html", "show-settings", "dry-run", "from-workflow-run", "format", "runner", "shards", "timings"),
    *("check", "ephemeral", "axis", "benchmark", "jsonbin", "repo"),
    *("cases", "drawn", "durations", "kernels", "load", "within"),
    *("resume", "earlier", "runs", "picture", "export", "store", "good", "bad", "pull-request"),
}
"""Flags that are not settings, and flags of other programs."""
SHORT = {"CI_PERF_SAMPLES": "5", "CI_PERF_PROCESSES": "5", "CI_PERF_CASE_BUDGET": "1", "CI_PERF_DEVICE": "cpu"}
"""Settings that make a run short: these tests look at no verdict. A baseline needs five processes."""
DEVELOPER = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in (("NAME", "a developer"), ("EMAIL", "developer@users.noreply.github.com"))
}
PAGES = {
    page: page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *sorted(ROOT.glob(".github/docs/*.md")))
}
README = PAGES[ROOT / "README.md"]
DOCS = "\n".join(PAGES.values())


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", DOCS, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Return a user's repository with the kernel that the pages show and those that their commands name."""
    root = tmp_path_factory.mktemp("repository")
    shutil.copytree(ROOT / "kernels/sdpa", root / "kernels/sdpa", ignore=shutil.ignore_patterns("__pycache__"))
    lines = re.findall(r"^\$ .*", DOCS, re.MULTILINE)
    named = [path for line in lines for path in re.findall(r" ((?:tests/data|baselines)/\S+)", line)]
    for file in (*map(ROOT.joinpath, named), *ROOT.glob("baselines/*/sdpa.json")):
        copy = root / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    for block in (block for block in blocks("toml") + blocks("python") if re.match("# (kernels|src)/", block)):
        path = root / block.splitlines()[0].removeprefix("# ")
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(block, encoding="utf-8")
    commit = "-c user.name=me -c user.email=me@localhost commit --allow-empty -qm"
    for command in ("init -q", "add -A", f"{commit} first", f"{commit} second"):
        subprocess.run(["git", *command.split()], cwd=root, check=True)
    return root


def shell(command, cwd):
    """Run a command line as a user does after activating the virtual environment."""
    environ = {**os.environ, **SHORT, **DEVELOPER, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    argv = ["bash", "-c", command]
    return subprocess.run(argv, cwd=cwd, env=environ, capture_output=True, text=True, check=False)


def test_the_kernel_of_the_docs_runs(repository):
    ran = shell("ci-perf run row_sum --processes 1 --output row-sum", repository)

    assert ran.returncode == 0, ran.stderr
    assert "row_sum/n1024" in ran.stdout


def test_the_commands_of_the_docs_run_in_their_order(repository):
    commands = [line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines()]
    assert len(commands) >= 10

    for command in commands:
        ran = shell(command, repository)
        assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
        assert ran.stdout


def test_scripts_run_runs_the_main_job(tmp_path):
    assert all(f"`{script}`" in README and (ROOT / script).is_file() for script in ("scripts/run", "scripts/test"))

    ran = shell(f"scripts/run --processes 1 --output {tmp_path}", ROOT)

    assert ran.returncode == 0, ran.stderr
    assert "trajectory_resample/b8-s250" in ran.stdout
    assert (tmp_path / "run.json").is_file()


INSTALLING = [
    line.split("#")[0].strip(" -") for line in re.findall(r"^.*(?:uv tool|pipx) install .*", DOCS, re.MULTILINE)
]


def pipx(folder):
    """Install pipx into a virtual environment of its own, and return the folder of its program."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin/pip", "install", "--quiet", "pipx"], check=True)
    return folder / "bin"


@pytest.mark.parametrize("line", INSTALLING)
def test_the_commands_that_install_make_a_program_that_starts(line, tmp_path):
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    command = re.sub(r"https://github.com/org/ci-perf", f"file://{ROOT}", line.removeprefix("run: "))
    command = command.replace("COMMIT", head.strip())
    places = {
        "UV_TOOL_DIR": tmp_path / "tools",
        "UV_TOOL_BIN_DIR": tmp_path,
        "UV_PYTHON": sys.executable,
        "PIPX_HOME": tmp_path / "home",
        "PIPX_BIN_DIR": tmp_path,
        "PIPX_MAN_DIR": tmp_path / "man",
        "PIPX_DEFAULT_PYTHON": sys.executable,
    }
    given = " ".join(f"{name}={value}" for name, value in places.items())
    path = f"PATH={pipx(tmp_path / 'pipx')}:$PATH " if command.startswith("pipx") else ""

    ran = shell(f"{path}{given} {command}", tmp_path)

    assert ran.returncode == 0, ran.stderr
    assert shell(f"{tmp_path}/ci-perf --version", tmp_path).stdout.startswith("ci-perf, version")


def test_each_way_to_install_is_run():
    assert [line.removeprefix("run: ").split()[0] for line in INSTALLING] == ["uv", "pipx", "pipx"]


def test_the_symptoms_in_the_page_on_troubleshooting_are_texts_that_ci_perf_prints():
    page = PAGES[ROOT / ".github/docs/troubleshooting.md"]
    sources = [*(ROOT / "ci_perf").rglob("*.py"), ROOT / "action.yml", ROOT / "scripts/action"]
    printed = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    shown = [word for row in re.findall(r"^\| (.+?) \|", page, re.MULTILINE) for word in re.findall("`(.+?)`", row)]

    assert len(shown) > 40
    assert [text for text in shown if text not in printed and text != "comment-key"] == []


def test_the_completion_line_of_the_docs_completes():
    ran = shell("_CI_PERF_COMPLETE=bash_complete COMP_WORDS='ci-perf run sdp' COMP_CWORD=2 ci-perf", ROOT)

    assert "_CI_PERF_COMPLETE=bash_source ci-perf" in DOCS
    assert "sdpa/s512" in ran.stdout


def test_every_flag_that_the_docs_name_exists():
    flags = set(re.findall(r"(?<![\w-])--([a-z][a-z-]+)", DOCS))
    known = {setting.name for setting in SETTINGS} | OTHER_FLAGS
    known |= {f"no-{setting.name}" for setting in SETTINGS if isinstance(setting.default, bool)}
    known |= {parameter.opts[0].removeprefix("--") for parameter in audit.params}

    assert flags - known == set()


def test_the_files_headings_and_exit_statuses_that_the_docs_name_exist():
    for page, text in PAGES.items():
        for path, heading in re.findall(r"\]\(((?!http)[^)#]*)(?:#([^)]+))?\)", text):
            target = page.parent / path if path else page
            assert target.exists(), f"{page}: {path}"
            assert not heading or heading in map(
                _anchor, re.findall(r"^#+ (.+)$", PAGES[target.resolve()], re.MULTILINE)
            )
    assert f"| {EXIT_BUG} | a bug" in DOCS


def _anchor(heading):
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


def test_the_tables_are_what_the_command_above_them_prints():
    pages = DOCS + (ROOT / "kernels/README.md").read_text()
    blocks = re.findall(r"<!-- from: (.+?) -->\n(.*?)<!-- end -->", pages, re.DOTALL)

    printed = {
        command: _tables(shell(command, ROOT).stdout) for command in dict.fromkeys(command for command, _ in blocks)
    }
    for command, shown in blocks:
        tables = _tables(shown)
        assert tables
        assert [table for table in tables if table not in printed[command]] == []
    assert any(command.startswith("ci-perf audit") for command, _ in blocks)


def _tables(text):
    """Return the rows of each table, without padding and alignment."""
    parts = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [[_cells(line) for line in part.splitlines() if not re.match(r"\|\s*:?--", line)] for part in parts]


def test_the_picture_of_the_audit_shows_the_committed_sessions(tmp_path):
    ran = shell(f"scripts/compare-rules baselines/h100-80gb-hbm3/audit.jsonl --plot {tmp_path}/audit.svg", ROOT)

    assert ran.returncode == 0, ran.stderr
    assert _labels(tmp_path / "audit.svg") == _labels(ROOT / ".github/audit.svg")


def _cells(line):
    return tuple(cell.replace("\u00a0", " ").strip() for cell in line.strip().strip("|").split("|"))


def _labels(svg):
    """Return the labels of the picture and the rounded positions of its points: fonts and versions may differ."""
    text = svg.read_text(encoding="utf-8")
    return re.findall(r"<!-- (.+?) -->", text), [
        round(float(x)) for x in re.findall(r'<use xlink:href="#\w+" x="([\d.]+)"', text)
    ]
