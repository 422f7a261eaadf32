"""A git repository with kernels that use a simulated clock, and `run --against` in it."""

import json
import subprocess
from pathlib import Path

from click.testing import CliRunner

from ci_perf.cli import program

TOML = """
entry = "kernel.py"
devices = ["cpu"]
[cases.one]
microseconds = {microseconds}
"""


NAP = """
import os, random, time
from ci_perf.userside import core_wait

now, noise = 0.0, random.Random(os.getpid())

def perf_counter():
    return now

time.perf_counter = perf_counter  # a clock that only launches move: a busy machine changes no verdict
core_wait.waited = lambda: 0.0  # nor does the time for which it waits for a core

def make_inputs(rng, device, microseconds):
    return microseconds / 1e6

def launch(inputs):
    global now
    seconds = inputs[0] if isinstance(inputs, tuple) else inputs
    now += seconds * {factor} * noise.uniform(0.999, 1.001)
    return 1.0

def reference(seconds):
    return 1.0
"""


def git(*arguments):
    ran = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def commit(message):
    git("add", "--all")
    git("commit", "--quiet", "--message", message)
    return git("rev-parse", "HEAD")


def write(kernel, factor=1.0, microseconds=2500):
    folder = Path("kernels") / kernel
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.toml").write_text(TOML.format(microseconds=microseconds))
    (folder / "kernel.py").write_text(NAP.format(factor=factor))


def run(*arguments):
    ran = CliRunner().invoke(program, ["run", "--output", "out", "--json", *arguments])
    report = json.loads(ran.stdout) if ran.stdout.startswith("{") else None
    return ran, {case["kernel"]: case for case in report["cases"]} if report else None
