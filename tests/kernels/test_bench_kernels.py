"""scripts/bench-kernels: whole runs on a CPU, its goals, and its pages compared with the recorded measurements."""

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from importlib.machinery import SourceFileLoader

import pytest
from lib.kernel_bench import goals, table

from tests.project.test_project import ROOT

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")

GOALS = tomllib.loads(goals.FILE.read_text())
SET = {
    ("trajectory_resample", "<= 7 us"),
    ("trajectory_resample", "<= 44 us"),
    ("trajectory_resample", ">= 80 % of the speed of a copy"),
    ("multimodal_fusion", "<= 4 us"),
    ("voxelize", ">= 40 billion points/s"),
    ("bsr_gemm", ">= 450 TFLOP/s"),
    ("bsr_gemm", ">= 1.5 x any alternative but dense*"),
    ("bsr_gemm", "faster than dense*"),
    ("sdpa", "every backend, the fastest named"),
    ("matmul", ">= 0.95 x torch*"),
}
"""The goals of the suite on an H100."""
COMMITTED = sorted(ROOT.glob("baselines/*/kernels.jsonl"))

KERNEL = """
import torch

def make_inputs(rng, device, size, dtype):
    return torch.randn(size, generator=rng).to(device, getattr(torch, dtype))

def launch(x):
    return x * 2

def reference(x):
    return x.double() * 2

def cost(size, dtype):
    return {"flop": size, "bytes": 8 * size}
"""
TOML = """
entry = "kernel.py"
devices = ["cpu", "cuda"]
cpu_cases = ["small"]
[cases.small]
size = 1000
dtype = "float32"
[cases.large]
size = 1000000
dtype = "float32"
[tolerance]
float32 = 1e-6
"""
ALTERNATIVES = """
import os, signal, time

def crash(x):
    os.kill(os.getpid(), signal.SIGSEGV)

def refuse(x):
    raise NotImplementedError("needs | a GPU")

ALTERNATIVES = {
    "slower": lambda x: sum(x for _ in range(20)) / 10,
    "crashes": crash,
    "wrong": lambda x: x * 2.001,
    "refuses": refuse,
    "hangs": lambda x: signal.alarm(1) and time.sleep(600),  # where an alarm was set, it comes sooner
    "in place": lambda x: x.mul_(2).clone(),
}
"""


SCRIPT = ROOT / "scripts/bench-kernels"


class Answers:
    """Fakes the processes: answers from a list for each implementation, and keeps the requests."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def ask(self, operation, name="", **_):
        if operation == "bound":
            return {"cost": None, "copy": None}
        if operation == "alternatives":
            return {"names": [name for name in self.answers if name != "ours"]}
        self.asked.append((operation, name or "ours"))
        return self.answers[name or "ours"].pop(0)


def measured_case(processes):
    loader = SourceFileLoader("bench_kernels", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_kernels", loader))
    loader.exec_module(module)
    return module.measure_case(processes, ROOT / "kernels/sdpa", {}, "s128", {}, "cuda")


def bench(*arguments):
    argv = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    for name, kernel, alternatives in (
        ("double", KERNEL, ALTERNATIVES),
        ("broken", KERNEL.replace("x * 2\n\ndef ref", "x * 3\n\ndef ref"), "ALTERNATIVES = {}"),
        ("lonely", KERNEL, "import nowhere"),
    ):
        (folder / name).mkdir()
        (folder / name / "kernel.toml").write_text(TOML)
        (folder / name / "kernel.py").write_text(kernel)
        (folder / name / "alternatives.py").write_text(alternatives)
    return folder


@pytest.fixture(scope="module")
def measured(folder):
    file = folder / "double.json"
    ran = bench("--device", "cpu", "--folder", folder, "--kernels", "double", "--json", file, "--timeout", "600")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, json.loads(file.read_text())


def test_each_alternative_is_timed_or_a_row_with_its_reason(measured):
    (case,) = measured[1]["cases"]
    failures = {row["name"]: row.get("failure") for row in case["rows"]}

    assert failures == {
        "ours": None,
        "slower": None,
        "crashes": "crashed: the process ended with SIGSEGV",
        "wrong": "wrong-output: largest error against the reference is 0.0004, allowed is 1e-06",
        "refuses": "raised: NotImplementedError: needs | a GPU",
        "hangs": "timeout: no end within 600 s",
        "in place": None,
    }
    assert goals.seconds_of(case, "slower") > goals.seconds_of(case, "ours")
    assert case["copy"]["seconds"] > 0
    assert {len(row["rounds"]) for row in case["rows"] if "seconds" in row} == {2}


def test_the_page_has_provenance_goals_ceilings_and_a_row_for_each_implementation(measured, golden):
    page = re.sub(r"^- (?!command)(\w[\w ]*): .*", r"- \1: ...", measured[0], flags=re.MULTILINE)
    page = re.sub(r"--folder \S+", "--folder ...", re.sub(r"--json \S+", "--json ...", page))
    page = re.sub(r"(?<!= )\b[\d.e-]+ (?=(us|ms|TB/s|TFLOP/s)\W)", "# ", page.replace("**", ""))
    page = re.sub(r"\| [\d.]+ (?=\|)|\| \d+ % (?=\|)", "| # ", page)
    page = re.sub(r"floor \(\w+\)", "floor (#)", page)
    page = re.sub(r"; # (us|ms) and # (us|ms)", "", page)

    golden("bench-kernels.md", page)


def test_all_are_checked_then_timed_in_turn_and_in_reverse_order():
    graph, events = ({"seconds": 1e-6, "method": method} for method in ("cuda-graph", "cuda-events"))
    processes = Answers(
        ours=[{"error": 0.0}, graph, {**graph, "seconds": 3e-6}],
        wrong=[{"failure": "wrong-output: off"}],
        late=[{"error": 0.0}, graph, {"failure": "crashed: SIGSEGV"}],
        mixed=[{"error": 0.0}, graph, events],
    )
    ours, *others = measured_case(processes)["rows"]

    timed = ["ours", "late", "mixed"]
    assert processes.asked[:4] == [("check", name) for name in ("ours", "wrong", "late", "mixed")]
    assert processes.asked[4:] == [("time", name) for name in (*timed, *reversed(timed))]
    assert (ours["seconds"], ours["rounds"], ours["error"]) == (pytest.approx(2e-6), [1e-6, 3e-6], 0.0)
    assert [row["failure"] for row in others] == [
        "wrong-output: off",
        "crashed: SIGSEGV",
        "timed by cuda-graph, then by cuda-events: these are never compared",
    ]


@pytest.mark.parametrize("text", [None, "no JSON", "[]", '{"cases": []}'])
def test_a_file_that_cannot_be_shown_is_refused_by_name(tmp_path, text):
    file = tmp_path / "k.jsonl"
    if text is not None:
        file.write_text(text)
    ran = bench("--show", file)

    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"bench-kernels: {file}: ")
    assert "Traceback" not in ran.stderr


def test_a_page_is_made_again_from_its_json(folder, measured):
    assert bench("--show", folder / "double.json").stdout == measured[0]


def test_a_wrong_output_of_our_kernel_is_exit_status_1(folder):
    ran = bench("--device", "cpu", "--folder", folder, "--kernels", "broken", "--cases", "large")

    assert ran.returncode == 1
    assert "| broken/large | ours |  |  |  |  | wrong-output: largest error against the reference" in ran.stdout


def test_every_backend_of_attention_is_an_alternative():
    ran = bench("--device", "cpu", "--kernels", "sdpa")

    assert ran.returncode == 0
    for backend in ("flash", "efficient", "cudnn", "math"):
        assert re.search(rf"^\|  \| (\*\*)?{backend}(\*\*)? \|", ran.stdout, re.MULTILINE)


@pytest.mark.skipif(torch.cuda.device_count() > 0, reason="there is a GPU")
def test_the_error_without_a_gpu_says_what_can_be_done():
    ran = bench()

    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr.startswith("bench-kernels: torch sees no GPU here; --device cpu times")


def test_alternatives_that_cannot_be_imported_are_a_row_and_our_kernel_is_timed(folder):
    ran = bench("--device", "cpu", "--folder", folder, "--kernels", "lonely")

    assert ran.returncode == 0
    assert re.search(r"^\| lonely/small \| \*\*ours\*\* \| [\d.]+ us \|", ran.stdout, re.MULTILINE)
    assert "|  | alternatives.py |  |  |  |  | raised: ModuleNotFoundError: No module named 'nowhere' |" in ran.stdout


def test_a_pattern_that_matches_nothing_is_an_error(folder):
    ran = bench("--device", "cpu", "--folder", folder, "--kernels", "treble")

    assert (ran.returncode, ran.stdout) == (2, "")
    assert "no case matches `treble`" in ran.stderr


def test_the_goals_are_those_that_were_set():
    assert {(goal["case"].partition("/")[0], goals.describe(goal)) for goal in GOALS["goal"]} == SET


@pytest.mark.parametrize("goal", GOALS["goal"], ids=lambda goal: goal["case"])
def test_a_goal_names_a_case_of_its_kernel(goal):
    kernel = goal["case"].partition("/")[0]
    file = ROOT / "kernels" / kernel / "kernel.toml"
    assert file.is_file()
    cases = [{"kernel": kernel, "case": name, "rows": []} for name in tomllib.loads(file.read_text())["cases"]]

    assert goals.judge(goal, cases)[0].case != goal["case"] or "*" not in goal["case"]
    assert goals.judge(goal, cases)[0].reached != "not measured"
    assert (file.parent / "alternatives.py").is_file()


def a_case(seconds, name="k/one", flop=9e9, moved=3e6, copy=None, points=100, **others):
    kernel, case = name.split("/")
    rows = [{"name": "ours", "seconds": seconds} if seconds else {"name": "ours", "failure": "raised: no"}]
    rows += [
        {"name": other, "seconds": time} if time else {"name": other, "failure": "no"} for other, time in others.items()
    ]
    cost = {"flop": flop, "bytes": moved, "dtype": None}
    return {"kernel": kernel, "case": case, "params": {"points": points}, "cost": cost, "copy": copy, "rows": rows}


@pytest.mark.parametrize(
    ("goal", "case", "reached", "met"),
    [
        ({"most_us": 7}, a_case(7e-6), "7 us", True),
        ({"most_us": 7}, a_case(7.1e-6), "7.1 us", False),
        ({"most_us": 7}, a_case(None), "not measured: ours failed", None),
        ({"least_copy_speed": 0.8}, a_case(1e-5, copy={"seconds": 8.1e-6}), "81 %", True),
        ({"least_copy_speed": 0.8}, a_case(1e-5, copy={"seconds": 7.9e-6}), "79 %", False),
        ({"least_per_second": 40e9, "count": "points"}, a_case(1e-6, points=50_000), "50 billion/s", True),
        ({"least_tflop_per_s": 450}, a_case(1.9e-5), "474 TFLOP/s", True),
        ({"least_tflop_per_s": 450}, {**a_case(1.9e-5), "cost": None}, "not measured: no cost", None),
        (
            {"least_speedup": 1.5, "over": ["*"], "except": ["d*"]},
            a_case(2e-6, a=4e-6, b=2.8e-6, d=1e-6),
            "1.40 x b",
            False,
        ),
        ({"least_speedup": 1.5, "over": ["*"]}, a_case(2e-6, a=None), "not measured: none of them ran", None),
        ({"faster_than": ["d*"]}, a_case(2e-6, a=1e-6), "not measured: no such alternative", None),
        ({"faster_than": ["d*"]}, a_case(2e-6, dense=2e-6), "1.00 x dense", False),
        ({"fastest_named": True}, a_case(2e-6, a=4e-6, b=2e-6), "b, of 2 that ran; 2 offered", True),
        ({"fastest_named": True}, a_case(2e-6, a=4e-6, b=None), "a, of 1 that ran; 2 offered", False),
    ],
)
def test_a_goal_is_met_missed_or_not_measured(goal, case, reached, met):
    (judged,) = goals.judge({"case": "k/*", **goal}, [case])

    assert (judged.case, judged.reached, judged.met) == ("k/one", reached, met)


def test_a_goal_is_not_judged_if_the_rounds_disagree():
    case = a_case(7e-6, other=7e-6)
    case["rows"][0] |= {"seconds": 7e-6, "rounds": [6.9e-6, 7.1e-6]}
    case["rows"][1] |= {"rounds": [6.9e-6, 7.1e-6]}

    (judged,) = goals.judge({"case": "k/*", "most_us": 7}, [case])
    assert (judged.reached, judged.met) == ("7 us (6.9, 7.1)", None)
    assert goals.judge({"case": "k/*", "most_us": 7.2}, [case])[0].met
    assert goals.judge({"case": "k/*", "least_speedup": 0.95, "over": ["*"]}, [case])[0].met  # both were slower then


def test_a_goal_of_another_device_or_without_a_case_is_not_judged():
    document = {"provenance": {"device": "NVIDIA L4"}, "cases": [a_case(1e-6)]}
    wanted = {"devices": ["*H100*"], "goal": [{"case": "k/*", "most_us": 7}, {"case": "gone/*", "most_us": 7}]}

    assert [row.met for row in goals.judge_all(document, wanted)] == [None, None]
    document["provenance"]["device"] = "NVIDIA H100 80GB HBM3"
    assert [(row.reached, row.met) for row in goals.judge_all(document, wanted)] == [
        ("1 us", True),
        ("not measured", None),
    ]


def test_a_similar_device_is_judged_and_the_page_says_what_is_easier_there():
    document = {"provenance": {"device": "NVIDIA H200"}, "cases": [a_case(8e-6)]}
    wanted = {"devices": ["*H100*"], "like": ["*H200*"], "goal": [{"case": "k/*", "most_us": 7}]}

    shown = table.goal_table(document, wanted)
    assert "| k/one | <= 7 us | 8 us | **missed** |" in shown
    assert "more easily here" in shown
    document["provenance"]["device"] = "NVIDIA H100 80GB HBM3"
    assert "easily" not in table.goal_table(document, wanted)


@pytest.mark.parametrize(
    ("second", "remark"),
    [(1.02e-6, ""), (1.04e-6, "1 us and 1.04 us")],
)
def test_rounds_that_differ_are_shown(second, remark):
    ours = {"name": "ours", "method": "cuda-graph", "seconds": (1e-6 + second) / 2, "rounds": [1e-6, second]}
    case = {**a_case(1e-6), "rows": [ours]}
    document = {"provenance": {"device": "NVIDIA L4"}, "ceilings": {"failure": "none"}, "cases": [case]}

    page = table.render(document, GOALS)
    assert f"| {(1e-6 + second) / 2 * 1e6:.3g} us |  |  |  | {remark} |" in page


@pytest.mark.parametrize(
    ("case", "floors"),
    [
        (a_case(1, flop=4e8, moved=3e6), (1e-6, 5e-7, "memory")),  # at 3 TB/s, the faster of the two copies
        (a_case(1, flop=8e9, moved=3e6), (1e-6, 1e-5, "compute")),  # at 800 TFLOP/s
    ],
)
def test_both_floors_are_shown_and_the_higher_one_is_the_roofline(case, floors):
    ceilings = {"copy_bytes": 3e9, "copy_launch": 1e-3, "copy_graph": 1.25e-3, "matmul_flop": 8e11, "matmul": 1e-3}

    found = table.floors_of(case, ceilings)

    assert (pytest.approx(found.memory), pytest.approx(found.compute), found.bound) == floors


@pytest.mark.parametrize(
    ("dtype", "stated", "seconds"),
    [("float8_e4m3fn", None, 5e-6), ("bfloat16", "float8_e4m3fn", 5e-6), ("bfloat16", None, 1e-5)],
)
def test_the_floor_of_float8_is_half_that_of_bfloat16_also_where_only_the_case_names_the_type(dtype, stated, seconds):
    ceilings = {"copy_bytes": 3e9, "copy_launch": 1e-3, "matmul_flop": 8e11, "matmul": 1e-3}
    case = a_case(1, flop=8e9, moved=3e6)
    case["params"]["dtype"], case["cost"]["dtype"] = dtype, stated

    assert table.floors_of(case, ceilings).compute == pytest.approx(seconds)


def test_rounds_that_differ_are_shown_even_if_both_meet_the_goal():
    case = a_case(5e-6, other=5e-6)
    case["rows"][0] |= {"rounds": [4.9e-6, 5.1e-6]}
    case["rows"][1] |= {"rounds": [5e-6, 5e-6]}

    (judged,) = goals.judge({"case": "k/*", "most_us": 7}, [case])

    assert (judged.reached, judged.met) == ("5 us (4.9, 5.1)", True)


def test_each_sparse_case_of_the_size_of_a_goal_or_sparser_is_compared_with_a_dense_product():
    described = tomllib.loads((ROOT / "kernels/bsr_gemm/kernel.toml").read_text())["cases"]
    large = {name for name, case in described.items() if case["columns"] * case["block"] >= 4096}
    (goal,) = (goal for goal in GOALS["goal"] if "faster_than" in goal)
    cases = [{"kernel": "bsr_gemm", "case": name, "rows": []} for name in described]

    assert all(described[name]["density"] <= 0.5 for name in large)
    assert {row.case for row in goals.judge(goal, cases)} == {f"bsr_gemm/{name}" for name in large}


@pytest.mark.parametrize("file", COMMITTED, ids=lambda file: file.parent.name)
def test_a_committed_page_is_that_of_its_measurements(file):
    page = file.with_suffix(".md").read_text()
    shown = bench("--show", file)

    assert (shown.returncode, shown.stdout) == (0, page)
    assert {
        (case.partition("/")[0], goal) for case, goal in re.findall(r"^\| (\S+) \| ([^|]+?) \|", page, re.MULTILINE)
    } >= SET
    provenance = json.loads(file.read_text())["provenance"]
    assert all(provenance[key] for key in ("device", "driver", "torch", "CUDA", "commit", "command", "date"))
    assert provenance["seconds"], "this run was cut short"
