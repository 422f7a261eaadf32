"""No secret leaves: planted in the environment of the whole program, then looked for in every byte that it wrote.

The program is real, and so are its processes; torch, nsys and ncu are stand-ins that leak all they can read.
"""

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from ci_perf import store
from tests.cli.test_run import SPIN
from tests.project.test_project import ROOT

pytestmark = pytest.mark.slow

FAKES = Path(__file__).parents[1] / "data/fakes"
SECRETS = {
    "GITHUB_TOKEN": "ghp_0123456789abcdefghij",
    "DB_PASSWORD": 'hunter2/"with"+odd&chars=',
    "ACTIONS_RUNTIME_TOKEN": "eyJhbGciOi.J9.abc-def",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCY",
    "PIP_INDEX_URL": "https://robot:s3cr3t-index@packages.example.org/simple",
}
VALUES = {**SECRETS, "PIP_INDEX_URL": "s3cr3t-index"}
LOOKED_ABOVE = re.compile(rb"GITHUB_TOKEN=\*\*\*\*|cannot be read")
"""What the fake profiler finds above it: only root can read the environment of ci-perf at all."""
ASKED = ("--processes", "1", "--samples", "5")
TOML = 'entry = "kernel.py"\n[cases.a]\nms = 0.01\n[cases.b]\nms = 0.02\n[gates]\nlaunch_overhead_pct = "<= 4"\n'


@pytest.fixture
def machine(tmp_path, bare_python):
    """Return the environment of a GPU machine with secrets, and the folder of its repository."""
    for tool in ("nsys", "ncu"):
        (tmp_path / tool).write_text(f"#!{sys.executable}\n" + (FAKES / "profiler").read_text())
        (tmp_path / tool).chmod(0o755)
    kernel = tmp_path / "repository/kernels/spin"
    kernel.mkdir(parents=True)
    (kernel / "kernel.toml").write_text(TOML)
    (kernel / "kernel.py").write_text(SPIN)
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages/torch.py").write_text((FAKES / "torch").read_text())
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": f"{tmp_path / 'packages'}:{Path(__file__).parents[2]}",
        "CI_PERF_PYTHON": bare_python,
        "CI_PERF_NSYS": str(tmp_path / "nsys"),
        "CI_PERF_NCU": str(tmp_path / "ncu"),
    }
    return tmp_path / "repository", environ | SECRETS


def ci_perf(machine, *arguments, **more):
    root, environ = machine
    return subprocess.run(
        [sys.executable, "-m", "ci_perf", *arguments],
        cwd=root,
        env=environ | more,
        capture_output=True,
        text=True,
        check=False,
    )


def leaks(root, done):
    """Return each place in which a value stands, in any spelling."""
    spellings = {
        text
        for value in VALUES.values()
        for raw in [value.encode()]
        for text in (
            *(raw, quote(value, safe="").encode(), json.dumps(value)[1:-1].encode()),
            *(base64.b64encode(b"\0" * shift + raw)[shift and shift + 1 :].rstrip(b"=")[:-1] for shift in range(3)),
        )
    }
    texts = {path: path.read_bytes() for path in (root / "ci-perf-run").rglob("*") if path.is_file()}
    texts |= {"stdout": done.stdout.encode(), "stderr": done.stderr.encode()}
    return sorted(str(place) for place, text in texts.items() if any(spelling in text for spelling in spellings))


def test_profilers_that_record_environments_find_no_secret_in_any(machine):
    root, _ = machine
    done = ci_perf(machine, "run", *ASKED)
    run = store.read_run(root / "ci-perf-run")
    files = {path.name for path in (root / "ci-perf-run").iterdir()} - {".gitignore"}

    assert leaks(root, done) == []
    assert files == {
        *(
            "index.md",
            "run.json",
            "report.md",
            "report.html",
            "key_metrics.csv",
            "smoke.txt",
            "env.txt",
            "nsys_summary.txt",
        ),
        *("timeline.nsys-rep", "timeline.sqlite", "kernels.ncu-rep", "logs"),
    }
    assert not [note for note in run.notes if note.code == "withheld"]
    assert LOOKED_ABOVE.search((root / "ci-perf-run/timeline.nsys-rep").read_bytes())
    assert not (root / "ci-perf-run.withheld").exists()


COMMAND = 'command = ["{python}", "-c", "import os; print(os.environ)"]\ndevices = ["cuda"]\n[cases.a]\n'


def test_the_trace_of_a_program_is_kept_and_holds_no_secret(machine, tmp_path):
    root, _ = machine
    (root / "kernels/app").mkdir()
    (root / "kernels/app/kernel.toml").write_text(COMMAND)
    done = ci_perf(machine, "run", "app", "--processes", "2")
    (case,) = store.read_run(root / "ci-perf-run").measurements
    traces = root / "ci-perf-run/traces"

    assert leaks(root, done) == []
    assert case.methods == ("nsys-kernel-sum",)
    assert {path.name for path in traces.iterdir()} == {"app.a.nsys-rep", "app.a.sqlite"}
    assert LOOKED_ABOVE.search((traces / "app.a.nsys-rep").read_bytes())
    assert "[traces/](traces/)" in (root / "ci-perf-run/index.md").read_text()
    assert not (root / "ci-perf-run.withheld").exists()

    (tmp_path / "neighbour").write_text(SECRETS["GITHUB_TOKEN"])
    done = ci_perf(machine, "run", "app", "--processes", "1", NSYS_FAKE_NEIGHBOUR=str(tmp_path / "neighbour"))
    withheld = [n.message for n in store.read_run(root / "ci-perf-run").notes if n.code == "withheld"]

    assert leaks(root, done) == []
    assert [path.name for path in traces.iterdir()] == ["app.a.sqlite"]
    assert any(m.startswith("app.a.nsys-rep was withheld: it holds the value of GITHUB_TOKEN") for m in withheld)


def test_a_file_with_the_secret_of_a_neighbour_is_withheld_and_the_clean_database_is_not(machine, tmp_path):
    root, _ = machine
    (tmp_path / "neighbour").write_text("\0".join(f"{name}={value}" for name, value in SECRETS.items()))
    done = ci_perf(machine, "run", *ASKED, NSYS_FAKE_NEIGHBOUR=str(tmp_path / "neighbour"))
    run = store.read_run(root / "ci-perf-run")
    withheld = [note.message for note in run.notes if note.code == "withheld"]

    assert leaks(root, done) == []
    assert [message.split(" ")[0] for message in withheld] == [
        "timeline.nsys-rep",
        "kernels.ncu-rep",
        "logs/ncu.log",
        "logs/nsys.log",
    ]
    assert all(name in withheld[0] for name in SECRETS)
    assert (root / "ci-perf-run/timeline.sqlite").is_file()
    assert {m.case: m.timeline.metrics["cuda_time_pct"].value for m in run.measurements} == {"a": 70.0, "b": 70.0}
    assert "## Withheld" in (root / "ci-perf-run/index.md").read_text()
    assert (root / "ci-perf-run.withheld/timeline.nsys-rep").is_file()
    assert (root / "ci-perf-run.withheld").stat().st_mode & 0o777 == 0o700


def test_what_a_kernel_finds_and_prints_is_withheld_and_its_message_is_redacted(machine, tmp_path):
    root, _ = machine
    (tmp_path / "netrc").write_text(SECRETS["DB_PASSWORD"])
    reads = f"\nsecret = open({str(tmp_path / 'netrc')!r}).read()\nprint(secret)\n"
    reads += "raise RuntimeError('no login: ' + secret)\n"
    (root / "kernels/spin/kernel.py").write_text(SPIN + reads)
    done = ci_perf(machine, "run", *ASKED)
    run = store.read_run(root / "ci-perf-run")

    assert leaks(root, done) == []
    assert {m.failure.message for m in run.measurements} == {"RuntimeError: no login: [DB_PASSWORD withheld]"}
    assert [note.message.split(" ")[0] for note in run.notes if note.code == "withheld"] == ["logs/worker.stdout.txt"]


def test_a_variable_that_is_passed_on_purpose_reaches_kernels(machine):
    root, _ = machine
    wants = "\nimport os\nassert os.environ['DB_PASSWORD'] and 'GITHUB_TOKEN' not in os.environ\n"
    (root / "kernels/spin/kernel.py").write_text(SPIN + wants)
    done = ci_perf(machine, "run", *ASKED, "--pass-env", "DB_*")

    assert leaks(root, done) == []
    assert all(m.failure is None for m in store.read_run(root / "ci-perf-run").measurements)


def test_without_nsys_the_timeline_is_that_of_torch(machine, tmp_path):
    root, _ = machine
    done = ci_perf(machine, "run", *ASKED, CI_PERF_NSYS=str(tmp_path / "gone"), CI_PERF_NCU=str(tmp_path / "gone"))
    run = store.read_run(root / "ci-perf-run")
    measurement = run.measurements[0]

    assert leaks(root, done) == []
    assert {note.code for note in run.notes} >= {"no-nsys", "no-ncu", "torch-trace"}
    assert (measurement.timeline.source, measurement.timeline.kernels[0].name) == ("torch", "spin")
    assert measurement.timeline.metrics["launch_overhead_pct"].value == 4.0
    assert measurement.counters[0]["registers_per_thread"].value == 32.0
    assert json.loads((root / "ci-perf-run/timeline.trace.json").read_text())["traceEvents"]


def test_where_nsys_records_nothing_torch_traces_in_its_place(machine, tmp_path):
    root, _ = machine
    (tmp_path / "nsys").write_text("#!/bin/sh\necho NVIDIA Nsight Systems version 2025.3.1.0\n")
    ci_perf(machine, "run", *ASKED)
    run = store.read_run(root / "ci-perf-run")

    assert [m.timeline.source for m in run.measurements] == ["torch", "torch"]
    assert "nsys-no-report" in {note.code for note in run.notes}


# --- scripts/canary --------------------------------------------------------------------------------------------------


def canary(program):
    """Run scripts/canary with this ci-perf; return its exit status and its lines."""
    command = [ROOT / "scripts/canary", "sdpa/b2-*", "--device", "cpu", "--processes", "1", "--samples", "5"]
    environ = {**os.environ, "PYTHON": sys.executable, "CI_PERF": program}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


ITSELF = f"{sys.executable} -m ci_perf"


def test_the_canary_passes_where_the_secrets_were_in_reach_and_none_leaked():
    status, lines = canary(ITSELF)

    assert status == 0, lines
    assert "PASS control: the kernel gets every secret" in lines
    assert "PASS kernel: the kernel gets no secret" in lines
    assert "PASS run: run.json" in lines


@pytest.mark.parametrize(
    ("program", "line"),
    [
        ("/bin/true", "FAIL control: ci-perf ended with status 0 and measured 0 cases"),
        (f"{sys.executable} -m no_such_module", "FAIL control: ci-perf ended with status 1 and measured 0 cases"),
        (f"env -u SSHKEY {ITSELF}", "FAIL control: the kernel gets every secret SSHKEY"),
    ],
    ids=["does nothing", "does not start", "a secret out of reach"],
)
def test_the_canary_fails_where_it_proves_nothing(program, line):
    status, lines = canary(program)

    assert status == 1
    assert line in lines


def test_the_timeline_of_the_base_is_recorded_with_its_own_code_and_holds_no_secret(machine):
    root, environ = machine
    kernel = root / "kernels/spin/kernel.py"
    for number, content in enumerate((SPIN, SPIN.replace("/ 1e3", "/ 5e2"))):
        kernel.write_text(content)
        for command in ("init -q", "add -A", f"-c user.name=me -c user.email=me@localhost commit -qm {number}"):
            subprocess.run(["git", *command.split()], cwd=root, env=environ, check=True)
    done = ci_perf(machine, "run", "spin/b", "--against", "HEAD~1", "--profile", "nsys")
    (case,) = store.read_run(root / "ci-perf-run").measurements
    requests = [
        json.loads((root / f"ci-perf-run/logs/nsys{side}-requests.jsonl").read_text()) for side in ("", "-base")
    ]

    assert leaks(root, done) == []
    assert case.base_profile.timeline.kernels == case.timeline.kernels
    assert {"timeline-base.sqlite", "timeline-base.nsys-rep"} <= {p.name for p in (root / "ci-perf-run").iterdir()}
    assert [request["entry"].startswith(str(root)) for request in requests] == [True, False]
    assert (requests[0]["params"], requests[0]["range"]) == (requests[1]["params"], requests[1]["range"])
    assert "[timeline-base.sqlite](timeline-base.sqlite)" in (root / "ci-perf-run/index.md").read_text()
