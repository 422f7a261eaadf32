"""A run that is stopped or killed at any moment: what it leaves on disk, and that no process is left."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from ci_perf import store
from tests.measure.test_worker import is_alive, wait_for

HANG = """
import os, signal, sys
from pathlib import Path

def hang():
    '''Leave a daemon in a session of its own, as a double fork does, report both pids, and wait for ever.'''
    told, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(write, str(os.getpid()).encode())
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.pause()
        os._exit(0)
    daemon = os.read(told, 20).decode()
    place = Path(os.environ["HANG_IN"])
    (place / "draft").write_text(f"{os.getpid()} {daemon}")
    (place / "draft").rename(place / "hangs")
    while True:
        signal.pause()
"""
KERNEL = """
import os, sys
from pathlib import Path
sys.path.insert(0, os.environ["HANG_IN"])
from hang import hang
home = Path(__file__).parent
stage, verified = os.environ["STAGE"], Path(os.environ["HANG_IN"], f"verified-{home.name}")
if stage == "import":
    hang()

def make_inputs(rng, device):
    return 1.0

def launch(value):
    last = home.name == "omega"
    if stage == "verify" and last:
        hang()
    if verified.exists() and verified.read_text() != str(os.getpid()):
        if stage == "time" or (stage == "base" and "root" not in home.parts) or (stage == "omega" and last):
            hang()
    return value

def reference(value):
    if not verified.exists():
        verified.write_text(str(os.getpid()))
    return value

def cost():
    return {"flop": 1.0, "bytes": 8.0}
"""
TOML = 'entry = "kernel.py"\ndevices = ["cpu"]\n[cases.one]\n'
PROGRAM = 'google_benchmark = ["{python}", "hang.py", "{output}"]\ndevices = ["cpu"]\n[cases.one]\n'
STAGES = {
    "setup": ("run", "--setup", "{python} hang.py"),
    "setup-base": ("run", "--against", "HEAD", "--setup", "{python} hang-in-base.py"),
    "import": ("run",),
    "verify": ("run",),
    "time": ("run",),
    "base": ("run", "--against", "HEAD"),
    "program": ("run", "--kernels-dir", "programs"),
    "python": ("run", "--python", "hang"),
    "doctor": ("doctor",),
}
"""Where a run hangs, and its command line."""
FINISHES_SOMETHING = ("verify", "time", "base")
SIGNALS = [
    pytest.param(signal.SIGINT, id="SIGINT"),
    pytest.param(signal.SIGTERM, id="SIGTERM", marks=pytest.mark.slow),
    pytest.param(signal.SIGHUP, id="SIGHUP", marks=pytest.mark.slow),
    pytest.param(signal.SIGKILL, id="SIGKILL"),
]


@pytest.fixture
def repository(tmp_path, bare_python):
    """A repository with two kernels, that hang where the variable STAGE says."""
    root, place = tmp_path / "root", tmp_path / "place"
    root.mkdir()
    place.mkdir()
    (place / "hang.py").write_text(HANG)
    (root / "hang.py").write_text(f"{HANG}\nhang()\n")
    (root / "hang-in-base.py").write_text(f"{HANG}\nif Path.cwd().name != 'root':\n    hang()\n")
    hangs = place / "bin" / "hang"
    hangs.parent.mkdir()
    hangs.write_text(f"#!{bare_python}\n{HANG}\nhang()\n")
    hangs.chmod(0o755)
    for name in ("nvidia-smi", "nsys", "ncu"):
        (hangs.parent / name).symlink_to(hangs)
    for name in ("alpha", "omega"):
        folder = root / "kernels" / name
        folder.mkdir(parents=True)
        (folder / "kernel.toml").write_text(TOML)
        (folder / "kernel.py").write_text(KERNEL)
    (root / "programs" / "waits").mkdir(parents=True)
    (root / "programs" / "waits" / "kernel.toml").write_text(PROGRAM)
    (root / ".gitignore").write_text("ci-perf-run*\n__pycache__\n")
    for command in ("init -q", "add .", "-c user.name=n -c user.email=n@example.org commit -qm first"):
        subprocess.run(["git", *command.split()], cwd=root, check=True)
    return root


class Started:
    """A ci-perf that was started; all of its processes are found by a variable of the environment."""

    def __init__(self, root, python, stage, command, before=()):
        self.place = root.parent / "place"
        self.mark = uuid.uuid4().hex
        for verified in self.place.glob("verified-*"):
            verified.unlink()
        env = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "CI"))}
        env |= {"STAGE": stage, "HANG_IN": str(self.place), "STARTED": self.mark}
        env |= {"CI_PERF_PYTHON": python, "CI_PERF_PROCESSES": "1", "CI_PERF_SAMPLES": "5"}
        if stage in ("python", "doctor"):
            env["PATH"] = f"{self.place / 'bin'}:{env['PATH']}"
            del env["CI_PERF_PYTHON"]
        words = [word.replace("{python}", shlex.quote(python)) for word in command]
        heard = ("env", "--default-signal=INT,TERM,HUP")  # a shell's job in the background inherits ignored ones
        argv = [*(before or heard), sys.executable, "-m", "ci_perf", *words]
        self.process = subprocess.Popen(
            argv, cwd=root, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, umask=0o022
        )

    def pids(self):
        """Return the pids of the process that hangs and of its daemon, once there are two."""
        hangs = self.place / "hangs"

        def found():
            assert self.process.poll() is None, self.process.communicate()[0]
            return hangs.exists()

        wait_for(found)
        return [int(pid) for pid in hangs.read_text().split()]

    def left(self):
        """Return the processes that are left."""
        found = []
        for folder in Path("/proc").iterdir():
            try:
                if folder.name.isdigit() and f"STARTED={self.mark}".encode() in (folder / "environ").read_bytes():
                    found.append(folder.name)
            except OSError:
                continue
        return [pid for pid in found if is_alive(int(pid))]


@pytest.fixture
def start(repository, bare_python):
    """Start ci-perf so that it hangs at a stage; nothing of it is left after the test."""
    started = []

    def begin(stage, *command, before=(), keep=False):
        if not keep:
            (repository.parent / "place" / "hangs").unlink(missing_ok=True)
        started.append(Started(repository, bare_python, stage, command or STAGES[stage], before))
        return started[-1]

    yield begin
    for one in started:
        for pid in one.left():
            os.kill(int(pid), signal.SIGKILL)
        one.process.kill()
        one.process.wait()
        one.process.stdout.close()


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("stage", STAGES)
def test_no_process_is_left_and_what_was_finished_is_reported(stage, number, start, repository):
    started = start(stage)
    pids = started.pids()
    assert all(map(is_alive, pids))
    started.process.send_signal(number)
    said, _ = started.process.communicate(timeout=300)
    wait_for(lambda: not started.left())
    assert not any(map(is_alive, pids))
    assert "Traceback" not in said
    assert "bug in ci-perf" not in said
    if number == signal.SIGKILL:
        return
    assert started.process.returncode == 130
    assert f"stopped by {number.name}" in said
    if stage in FINISHES_SOMETHING:
        folder = repository / "ci-perf-run"
        run = store.read_run(folder)
        assert not run.finished
        assert run.measurements[0].verification
        assert not any(m.failure for m in run.measurements)
        assert "alpha" in (folder / "report.md").read_text()
        assert f"--resume {folder}" in said


def test_a_second_signal_ends_the_run_at_once(start):
    started = start("verify")
    started.pids()

    def ended():
        started.process.send_signal(signal.SIGTERM)
        return started.process.poll() is not None

    wait_for(ended)
    started.process.communicate()
    assert started.process.returncode in (130, -signal.SIGTERM)  # the latter: it came while Python ended
    wait_for(lambda: not started.left())


def test_nohup_keeps_a_run_that_loses_its_terminal(start):
    started = start("verify", before=("nohup",))
    pids = started.pids()
    started.process.send_signal(signal.SIGHUP)
    started.process.send_signal(signal.SIGTERM)
    said, _ = started.process.communicate(timeout=300)
    assert started.process.returncode == 130
    assert "stopped by SIGTERM" in said
    assert not any(map(is_alive, pids))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["stopped", "killed"])
@pytest.mark.parametrize(("stage", "more"), [("omega", ()), ("base", ("--against", "HEAD"))])
def test_a_resumed_run_keeps_what_was_finished(stage, more, number, start, repository):
    started = start(stage, "run", *more)
    started.pids()
    started.process.send_signal(number)
    started.process.communicate()
    folder = repository / "ci-perf-run"
    before = store.read_run(folder)

    again = start("none", "run", *more, "--resume", "ci-perf-run", "--json")
    printed, _ = again.process.communicate(timeout=300)
    run = store.read_run(folder)
    assert again.process.returncode == 0, printed
    assert run.finished
    assert [m.verification for m in run.measurements] == [m.verification for m in before.measurements]
    if not more:
        assert run.measurements[0].replicates == before.measurements[0].replicates != ()
    assert all(m.replicates or m.pairs or m.same_code for m in run.measurements)
    assert not (folder / "run.jsonl").exists()

    third = start("none", "run", *more, "--resume", "ci-perf-run").process
    said, _ = third.communicate(timeout=300)
    if third.returncode == 2:
        assert "this run is finished, and " in said
    else:  # nanoseconds on a busy CPU may be undecided, and then the case gets more pairs
        assert more
        kept = zip(store.read_run(folder).measurements, run.measurements, strict=True)
        assert all(new.pairs[: len(old.pairs)] == old.pairs for new, old in kept)


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        ("", ("--samples", "6"), "the command line differs"),
        ("", ("--output", "other"), "are two folders"),
        ("", ("--fuzz", "3"), "cannot be resumed"),
        ("edit", (), "the commit has uncommitted changes"),
        ("commit", (), "the commit differs"),
    ],
)
def test_a_run_with_other_settings_or_another_commit_is_not_resumed(change, more, message, start, repository):
    started = start("omega", "run")
    started.pids()
    started.process.kill()
    started.process.communicate()
    before = store.read_run(repository / "ci-perf-run")
    if change:
        (repository / "kernels" / "alpha" / "kernel.py").write_text(f"{KERNEL}\n")
    if change == "commit":
        commit = ["git", "-c", "user.name=n", "-c", "user.email=n@example.org", "commit", "-qam", "second"]
        subprocess.run(commit, cwd=repository, check=True)

    again = start("none", "run", "--resume", "ci-perf-run", *more).process
    said, _ = again.communicate(timeout=300)
    assert again.returncode == 2, said
    assert message in said
    assert store.read_run(repository / "ci-perf-run") == before


@pytest.mark.parametrize(
    ("stdout", "says"),
    [(">/dev/full", "No space left on device"), (">&{}", "Broken pipe"), (">&-", "Bad file descriptor")],
    ids=["full", "no reader", "closed"],
)
@pytest.mark.parametrize("command", ["run --show-settings", "doctor", "run --help", "--version"])
def test_a_stdout_that_takes_nothing_has_a_status_of_its_own(command, stdout, says, repository):
    reader, writer = os.pipe()
    os.close(reader)
    line = f"exec {sys.executable} -m ci_perf {command} {stdout.format(writer)}"

    done = subprocess.run(
        ["bash", "-c", line], cwd=repository, pass_fds=(writer,), stderr=subprocess.PIPE, text=True, check=False
    )

    os.close(writer)
    assert (done.returncode, done.stderr.splitlines()) == (74, [f"error: not everything could be written: {says}"])


@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-"])
@pytest.mark.parametrize(("kernel", "status"), [("alpha", 0), ("nope", 2)])
def test_a_stderr_that_takes_nothing_does_not_change_the_status(kernel, status, stderr, repository):
    line = f"exec {sys.executable} -m ci_perf list {kernel} {stderr}"

    done = subprocess.run(["bash", "-c", line], cwd=repository, stdout=subprocess.DEVNULL, check=False)

    assert done.returncode == status


def test_a_removed_current_folder_is_named(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    code = (
        f"import os, sys; os.rmdir({str(gone)!r}); os.execv(sys.executable, [sys.executable, '-m', 'ci_perf', 'run'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=gone, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: the current folder was removed\n")


@pytest.mark.parametrize("command", ["run", "merge earlier --output ci-perf-run"])
def test_a_folder_that_another_ci_perf_measures_into_is_refused(command, start, repository):
    start("none", "run", "--output", "earlier").process.communicate(timeout=300)
    start("verify").pids()

    said, _ = (second := start("none", *command.split(), keep=True).process).communicate(timeout=300)

    assert second.returncode == 2
    assert "another ci-perf measures into this folder" in said
    assert (repository / "ci-perf-run/run.jsonl").exists()


def test_a_folder_that_is_removed_in_a_run_is_written_again(start, repository):
    started = start("verify")
    started.pids()
    shutil.rmtree(repository / "ci-perf-run")
    started.process.send_signal(signal.SIGINT)
    started.process.communicate(timeout=300)
    assert started.process.returncode == 130
    assert store.read_run(repository / "ci-perf-run").measurements[0].verification
    assert "alpha" in (repository / "ci-perf-run" / "report.md").read_text()


def test_the_verdict_is_printed_and_no_draft_is_left_where_the_report_cannot_be_written(repository, start):
    started = start("omega", "run")
    started.pids()
    (repository / "ci-perf-run" / "report.md").mkdir()  # nothing can take its place
    (repository / "ci-perf-run" / "report.md" / "file").touch()
    started.process.send_signal(signal.SIGINT)
    said, _ = started.process.communicate(timeout=300)
    assert started.process.returncode == 74
    assert "alpha/one" in said
    assert "report.md: cannot be written: Is a directory" in said
    assert [file.name for file in (repository / "ci-perf-run").glob(".*")] == [".gitignore"]


def test_the_umask_is_kept(tmp_path):
    mask = os.umask(0o027)
    try:
        assert store.write_text(tmp_path / "file", "text").stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(mask)


@pytest.mark.parametrize(("more", "is_cut"), [(0, False), (1, True)])
def test_a_large_log_keeps_its_begin_and_its_end(more, is_cut, tmp_path):
    log = tmp_path / "logs" / "worker.stdout.txt"
    log.parent.mkdir()
    text = b"first" + b"." * (store.LARGEST_LOG - 9 + more) + b"last"
    log.write_bytes(text)
    store.cap_logs(tmp_path)
    kept = log.read_bytes()
    assert (kept != text) == is_cut
    assert (kept.startswith(b"first"), kept.endswith(b"last")) == (True, True)
    assert (b"\n... 1 bytes were left out here ...\n" in kept) == is_cut
