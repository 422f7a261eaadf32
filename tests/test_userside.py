"""What runs under the user's interpreter, without a GPU: NVIDIA's own header and compiler are the judges."""

import re
import subprocess
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci_perf import cuda
from ci_perf.userside import cupti, identity, strides
from ci_perf.userside.cupti import Span, busy_ns

# --- CUPTI's records ---

HEADERS = [root / "include/cupti_activity.h" for root in cuda._toolkit_roots()]
RECORDS = {
    "Kernel": ("CONCURRENT_KERNEL", cupti.KERNEL),
    "Memcpy": ("MEMCPY", cupti.MEMCPY),
    "Memset": ("MEMSET", cupti.MEMSET),
    "MemcpyPtoP": ("MEMCPY2", cupti.MEMCPY_PEER),
}
"""The structs of the header and the names of their kinds, and what we call the kinds."""


def test_the_fields_of_a_record_lie_where_the_header_of_cupti_has_them(tmp_path):
    header = next((path for path in HEADERS if path.is_file()), None)
    if header is None:
        pytest.skip("no CUDA toolkit with the header of CUPTI")
    text = header.read_text(encoding="utf-8")
    printed = []
    for name, (kind, _) in RECORDS.items():
        newest = max((int(n or 0) for n in re.findall(rf"}} *CUpti_Activity{name}(\d*);", text)), default=0) or ""
        offsets = (f"offsetof(CUpti_Activity{name}{newest}, {field})" for field in ("kind", "start", "end", "streamId"))
        printed.append(f"CUPTI_ACTIVITY_KIND_{kind}, {', '.join(f'(int){offset}' for offset in offsets)}")
    lines = "".join(f'printf("%d %d %d %d %d\\n", {values});\n' for values in printed)
    source = tmp_path / "offsets.c"
    source.write_text(
        "#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <cuda.h>\n#include <cupti_activity.h>\n"
        f"int main(void) {{\n{lines}return 0;\n}}\n"
    )
    subprocess.run(["cc", f"-I{header.parent}", "-o", str(tmp_path / "offsets"), str(source)], check=True)
    said = subprocess.run([str(tmp_path / "offsets")], check=True, capture_output=True, text=True).stdout

    ours = [f"{kind} 0 {cupti.START} {cupti.END} {cupti.STREAM[kind]}" for _, kind in RECORDS.values()]
    assert said.splitlines() == ours
    assert len(ours) == len(cupti.STREAM)


spans = st.builds(lambda start, length, stream: Span(start, start + length, stream), *[st.integers(0, 50)] * 3)


@given(st.lists(spans, max_size=12))
def test_the_gpu_is_busy_in_every_nanosecond_that_any_span_covers(found):
    covered = {nanosecond for span in found for nanosecond in range(span.start_ns, span.end_ns)}
    lengths = [span.end_ns - span.start_ns for span in found]

    assert busy_ns(found) == len(covered)
    assert max(lengths, default=0) <= busy_ns(found) <= sum(lengths)


# --- the identity of machine code ---

SCALE = """extern "C" __global__ void scale(float* x) {
    __shared__ float s[256];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = 2.0f * s[255 - threadIdx.x];
}
"""


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """Compile a source as a kernel does, without a cache that lasts."""
    monkeypatch.setenv("CI_PERF_CACHE", str(tmp_path / "cache"))
    try:
        cuda.find_compiler()
    except cuda.CompileError as error:
        pytest.skip(str(error))

    def cubin(source=SCALE, arch="sm_90a"):
        path = tmp_path / "kernel.cu"
        path.write_text(source)
        return cuda.CudaSource(path).cubin(arch)

    return cubin


@pytest.mark.parametrize("name", ["scale", "debug_scale"])
def test_comments_and_blank_lines_leave_the_machine_code_what_it_was(compiled, name):
    source = SCALE.replace("scale", name)
    moved = compiled("// says why\n\n\n" + source.replace(";\n", ";  /* says more */\n\n"))

    assert moved != compiled(source)
    assert identity.code_hash(moved) == identity.code_hash(compiled(source))


@pytest.mark.parametrize("name", ["scale", "debug_scale"])
@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(lambda source: source.replace("2.0f", "3.0f"), id="constant"),
        pytest.param(lambda source: source.replace("s[256]", "s[512]"), id="shared-memory"),
        pytest.param(lambda source: source + SCALE.replace("scale", "other"), id="another-kernel"),
        pytest.param(lambda source: source.replace("float* x", "float* x, int n"), id="another-argument"),
    ],
)
def test_whatever_runs_otherwise_is_other_machine_code(compiled, name, changed):
    source = SCALE.replace("scale", name)

    assert identity.code_hash(compiled(changed(source))) != identity.code_hash(compiled(source))


def test_every_architecture_has_machine_code_of_its_own(compiled):
    hashes = {identity.code_hash(compiled(arch=arch)) for arch in ("sm_80", "sm_86", "sm_90", "sm_90a")}

    assert len(hashes) == 4


def test_a_cubin_that_was_cut_off_has_no_hash_or_the_one_of_the_whole(compiled):
    cubin = compiled()
    whole, kept = identity.code_hash(cubin), 0
    for length in range(0, len(cubin), 7):
        try:
            assert identity.code_hash(cubin[:length]) == whole  # only what runs nowhere is lacking
            kept += 1
        except identity.Unknown:
            continue

    assert kept < len(cubin) / 7 / 4


def test_a_launch_whose_machine_code_cannot_be_read_has_no_hash(compiled, monkeypatch):
    monkeypatch.setattr(cuda, "loaded_codes", lambda: {1: compiled()[:100]})

    assert identity.launch_hash(case=None) is None


# --- strides ---

KINDS = (*strides.VIEWS, "mixed")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_rearranged_inputs_have_the_same_values_types_and_places(library, kind):
    module = pytest.importorskip(library)
    kinds = ("float32", "int32", "bool", "complex64", "uint8")
    values = [module.ones((3, 5), dtype=getattr(module, name)) for name in kinds]
    values += [module.zeros((0, 4)), module.ones(()), module.ones((2, 3, 4)).swapaxes(0, 2)]
    inputs = Pair(values, {"again": values[0], "number": 3, "none": None})
    found = strides.rearranged(inputs, kind, seed=1)

    assert type(found) is Pair
    assert found.second == {"again": found.first[0], "number": 3, "none": None} or library == "numpy"
    assert found.second["again"] is found.first[0]
    for before, after in zip(values, found.first, strict=True):
        assert (before.shape, before.dtype) == (after.shape, after.dtype)
        assert bool((before == after).all())


class Pair(NamedTuple):
    first: object
    second: object


@pytest.mark.parametrize(
    ("kind", "steps", "begin"),
    [
        ("contiguous", (5, 1), 0),
        ("offset", (5, 1), 1),
        ("padded", (21, 1), 0),
        ("stepped", (10, 2), 0),
        ("transposed", (1, 3), 0),
    ],
)
def test_each_order_of_memory_is_what_it_says_and_nan_lies_between(kind, steps, begin):
    torch = pytest.importorskip("torch")
    made = torch.arange(15.0).view(3, 5)
    view = strides.rearranged(made, kind, 0)
    column_major = strides.rearranged(made.t().contiguous().t(), kind, 0)
    whole = torch.as_strided(view, (view.untyped_storage().nbytes() // 4,), (1,), 0)

    assert (view.stride(), view.storage_offset(), view.data_ptr() % 16) == (steps, begin, 4 * begin)
    assert int(whole.isnan().sum()) == whole.numel() - 15
    assert (column_major.stride()[0] < column_major.stride()[1]) == (kind != "transposed")


def test_each_tensor_of_mixed_inputs_has_an_order_of_its_own_a_function_of_the_seed():
    torch = pytest.importorskip("torch")
    made = [torch.ones(4, 4) for _ in range(40)]
    first, again, other = (strides.rearranged(made, "mixed", seed) for seed in (1, 1, 2))
    orders = [[(tensor.stride(), tensor.storage_offset()) for tensor in found] for found in (first, again, other)]

    assert orders[0] == orders[1] != orders[2]
    assert len(set(orders[0])) == len(strides.VIEWS)
