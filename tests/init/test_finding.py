"""What `ci-perf init` finds in a repository, and what it makes of it, without running anything."""

import ast

import pytest

from ci_perf.init.candidates import Candidate, sorted_candidates
from ci_perf.init.cuda_draft import draft_cuda
from ci_perf.init.cuda_kernels import find_kernels, kernel_of
from ci_perf.init.files import read_files
from ci_perf.init.frozen import freeze
from ci_perf.init.program_draft import build_command, draft_program
from ci_perf.init.programs import find_targets, library_of, listed
from ci_perf.init.python_draft import Source, attempts
from ci_perf.init.python_functions import arguments_of, find_functions, function_of
from ci_perf.values.kernel_toml import parse_kernel

KERNEL = "@triton.jit\ndef kernel(x_ptr, n, BLOCK: tl.constexpr):\n    return\n\n\n"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("import torch\ndef f(x): return torch.relu(x)", "torch"),
        ("import torch\n@torch.compile\ndef f(x: torch.Tensor, eps: float = 1e-6): return x + eps", "torch"),
        (f"import torch, triton\n{KERNEL}def f(x):\n    kernel[(1,)](x, 8, BLOCK=8)\n    return x", "triton"),
        ("import torch\ndef f(): return torch.ones(3)", None),  # no tensor goes in
        ("import torch\ndef f(x): print(x)", None),  # nothing comes out
        ("import torch\ndef f(x, path: str): return x", None),  # what would the path be?
        ("import torch\ndef f(*xs): return xs", None),
        ("import torch\ndef f(y, /, x): return x * y", None),
        ("import torch\ndef _f(x): return x", None),
        ("import torch\ndef test_f(x): return x", None),
        ("def f(x): return x", None),
        ("import torch\ndef f(x: return", None),
    ],
)
def test_functions_that_take_and_return_tensors_are_found(code, kind):
    assert [(one.kind, one.name) for one in find_functions(code, "f.py")] == ([(kind, "f")] if kind else [])


def test_arguments_are_told_by_their_annotation_and_else_by_their_name():
    code = "def f(x, labels, alpha, dim, w: torch.Tensor, k: int, p: float, causal: bool, *, n, m=3): ..."

    roles = {one.name: one.role for one in arguments_of(function_of(code, "f"))}

    tensors = {"x": "tensor", "w": "tensor", "labels": "indices"}
    numbers = {"alpha": "number", "p": "number", "dim": "integer", "k": "integer", "n": "integer", "causal": "flag"}
    assert roles == tensors | numbers


CUDA = """
#define BLOCK 128
// extern "C" __global__ void comment(const float* x, float* y, int n) {}
extern "C" __global__ void axpy(int n, float a, const float* __restrict__ x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
extern "C" __global__ void __launch_bounds__(BLOCK) clip(const half* x, half* out, long long n) {
  out[threadIdx.x] = x[threadIdx.x];
}
extern "C" {
__global__ void row_max(const float* x, float* out, int rows, int columns) { int row = blockIdx.x; for (;;) {} }
}
__global__ void mangled(const float* x, float* y, int n) {}
extern "C" __global__ void unknown_type(const float4* x, float* y, int n) {}
"""


def test_kernels_with_c_linkage_are_found_and_others_are_not():
    found = find_kernels(CUDA, "a.cu")

    assert [(one.name, one.line) for one in found] == [("axpy", 4), ("clip", 8), ("row_max", 12), ("unknown_type", 15)]


def test_the_parameters_of_a_cuda_kernel_are_read_written_or_both():
    axpy, clip = kernel_of(CUDA, "axpy"), kernel_of(CUDA, "clip")

    assert [(one.name, one.kind) for one in axpy.parameters] == [
        ("n", "int"),
        ("a", "float"),
        ("x", "input"),
        ("y", "both"),
    ]
    assert (clip.threads, axpy.threads) == (128, 256)
    assert [(one.kind, one.dtype) for one in clip.parameters] == [
        ("input", "float16"),
        ("output", "float16"),
        ("size", ""),
    ]
    assert kernel_of(CUDA, "unknown_type") is None


@pytest.mark.parametrize(
    ("name", "reference", "open_work"),
    [
        ("axpy", "    return a * x + y", ""),  # translated
        ("row_max", "raise NotImplementedError", "`reference` in kernels/row_max/kernel.py"),
        ("unknown_type", "raise NotImplementedError", "`make_inputs`, `launch` and `reference`"),
    ],
)
def test_the_files_of_a_cuda_kernel_are_valid_and_say_what_is_left_to_a_person(name, reference, open_work):
    draft = draft_cuda(Candidate("cuda", "src/a.cu", name), CUDA, f"kernels/{name}")

    parse_kernel(draft.files["kernel.toml"], name=name, folder=f"kernels/{name}")
    ast.parse(draft.files["kernel.py"])
    assert 'parents[2] / "src/a.cu"' in draft.files["kernel.py"]
    assert reference in draft.files["kernel.py"]
    assert draft.open_work.startswith(open_work)


@pytest.mark.parametrize(
    ("body", "formula"),
    [
        ("out[i] = x[i] * 2.0f + bias[i];", "x * 2.0 + bias"),
        ("out[i] = tanhf(x[i]) / (1.0f + __expf(-bias[i]));", "torch.tanh(x) / (1.0 + torch.exp(-bias))"),
        ("out[i] = fmaxf(x[i], 0.f);", "torch.clamp(x, min=0.0)"),
        ("out[i] = x[i + 1];", None),  # another element
        ("out[i] = x[i] > 0 ? x[i] : 0;", None),
        ("__shared__ float s[8]; out[i] = x[i];", None),
        ("out[i] = x[i]; out[i] = bias[i];", None),
        ("out[i] = system(x[i]);", None),
    ],
)
def test_the_formula_of_an_elementwise_kernel_is_translated(body, formula):
    code = f'extern "C" __global__ void f(const float* x, const float* bias, float* out, int n) {{ int i = 0; {body} }}'
    files = draft_cuda(Candidate("cuda", "a.cu", "f"), code, "kernels/f").files

    expected = f"    return {formula}\n" if formula else "raise NotImplementedError"
    assert expected in files["kernel.py"]


@pytest.mark.parametrize(
    ("text", "copied"),
    [
        ("import torch\nEPS = 1e-6\ndef g(x): return x + EPS\ndef f(x): return g(x)", ["EPS", "g", "f"]),
        ("import torch\nfrom torch.nn import functional as F\ndef f(x): return F.gelu(x)", ["functional", "f"]),
        ("import torch\nfrom mine import g\ndef f(x): return g(x)", None),
        ("import torch\nfrom .mine import g\ndef f(x): return g(x)", None),
        ("import torch\ndef launch(x): return x\ndef f(x): return launch(x)", None),  # kernel.py has its own
    ],
)
def test_a_reference_is_a_copy_of_the_function_with_all_that_it_uses_or_none(text, copied):
    found = freeze(text, "f", taken=("launch",))

    assert (found is None) == (copied is None)
    for name in copied or ():
        assert name in found


def test_the_usual_names_are_compared_with_torch_first():
    text = "import torch\ndef fused_rms_norm(x, weight, eps=1e-5): return x"
    source = Source(Candidate("torch", "a.py", "fused_rms_norm"), text, frozenset(), "kernels/a")

    first = next(attempts(source))

    assert "return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-05) * weight" in first.entry
    assert first.shapes == (("rows", "columns"), ("columns",))


CMAKE = """
add_executable(sums sums.cpp) # add_executable(comment comment.cpp)
target_link_libraries(sums PRIVATE fmt benchmark::benchmark_main)
ADD_EXECUTABLE(copy
  copy.cu)
target_link_libraries(copy nvbench::main)
add_executable(app app.cpp)
target_link_libraries(app PRIVATE fmt)
add_library(benchmark_helpers a.cpp)
target_link_libraries(benchmark_helpers benchmark)
"""


def test_targets_of_cmake_with_a_library_of_benchmarks_are_found():
    found = find_targets(CMAKE, "bench/CMakeLists.txt")

    assert [(one.name, one.kind) for one in found] == [("sums", "google_benchmark"), ("copy", "nvbench")]
    assert "-S bench -B build" in build_command(found[0], top=False)
    assert "-S . -B build" in build_command(found[0], top=True)


@pytest.mark.parametrize(
    ("content", "library"),
    [
        (b"\x7fELF...--jsonbin...", "nvbench"),
        (b"\x7fELF...benchmark_list_tests...", "google_benchmark"),
        (b"#!/usr/bin/env python3\nimport google_benchmark as benchmark\n", "google_benchmark"),
        (b"\x7fELF...", None),
        (b"see --benchmark_list_tests", None),
    ],
)
def test_programs_are_told_by_the_flags_that_they_hold(content, library):
    assert library_of(content) == library


def test_each_benchmark_of_nvbench_is_a_case_with_the_first_value_of_its_axes():
    printed = (
        "# Benchmarks\n\n## [0] `copy_sweep` (4 configurations)\n\n### Axes\n\n"
        "* `Size` : [2^10, 2^12]\n* `Type` : [I32, F64]\n\n## [1] `fill`\n"
    )
    cases = listed("nvbench", printed)
    draft = draft_program(Candidate("nvbench", "build/copy", "copy"), "nvbench", {"copy_sweep": cases["copy_sweep"]})
    spec = parse_kernel(draft.files["kernel.toml"], name="copy", folder="kernels/copy")

    assert list(cases) == ["copy_sweep", "fill"]
    assert dict(spec.cases["copy_sweep"]) == {"name": "copy_sweep", "Size": 1024, "Type": "I32", "device": 0}
    assert [word for word in spec.program.argv if word.startswith("Size")] == ["Size={Size}"]


def test_the_code_of_others_and_the_kernels_that_are_measured_already_are_not_searched(tmp_path):
    code = "import torch\ndef f(x): return torch.relu(x)\n"
    for path in ("src/ops/f.py", ".venv/f.py", "env/f.py", "third_party/f.py", "kernels/f/kernel.py"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(code)
    (tmp_path / "env/pyvenv.cfg").touch()
    (tmp_path / "src/ops/__init__.py").touch()

    found = read_files(tmp_path, "kernels")

    assert [one.place for one in found.candidates] == ["src/ops/f.py:f"]
    assert found.packages == {"src/ops"}


def test_kernels_for_gpus_are_proposed_before_functions_of_torch():
    kinds = ("torch", "nvbench", "cuda", "triton")
    found = [Candidate(kind, "a", f"f{number}") for number, kind in enumerate(kinds)]

    assert [one.kind for one in sorted_candidates(found)] == ["triton", "cuda", "nvbench", "torch"]
