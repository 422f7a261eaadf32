"""The code under the user's interpreter, without a GPU, against NVIDIA's own headers and compiler."""

import ctypes
import itertools
import re
import shutil
import struct
import subprocess
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci_perf import cuda
from ci_perf.userside import compilers, cupti, cupti_timers, identity, launches, machine_code, strides
from ci_perf.userside.case import Case, release_memory
from ci_perf.userside.cupti import CuptiError, Span, busy_ns

# --- CUPTI's records ---

HEADERS = [root / "include/cupti_activity.h" for root in compilers.toolkit_roots()]
RECORDS = {
    "Kernel": ("CONCURRENT_KERNEL", cupti.KERNEL),
    "Memcpy": ("MEMCPY", cupti.MEMCPY),
    "Memset": ("MEMSET", cupti.MEMSET),
    "MemcpyPtoP": ("MEMCPY2", cupti.MEMCPY_PEER),
}
"""The structs of the header, the names of their kinds, and our names for the kinds."""


def test_the_offsets_in_a_record_are_those_of_the_header_of_cupti(tmp_path):
    header = next((path for path in HEADERS if path.is_file()), None)
    if header is None:
        pytest.skip("no CUDA toolkit with the header of CUPTI")
    text = header.read_text(encoding="utf-8")
    printed, structs = [], {}
    for name, (kind, _) in RECORDS.items():
        newest = max((int(n or 0) for n in re.findall(rf"}} *CUpti_Activity{name}(\d*);", text)), default=0) or ""
        offsets = (f"offsetof(CUpti_Activity{name}{newest}, {field})" for field in ("kind", "start", "end", "streamId"))
        structs[name] = f"CUpti_Activity{name}{newest}"
        printed.append(f"CUPTI_ACTIVITY_KIND_{kind}, {', '.join(f'(int){offset}' for offset in offsets)}")
    lines = "".join(f'printf("%d %d %d %d %d\\n", {values});\n' for values in printed)
    fields = (
        "registersPerThread",
        "gridX",
        "blockX",
        "staticSharedMemory",
        "dynamicSharedMemory",
        "localMemoryPerThread",
    )
    of_kernel = ", ".join(f"(int)offsetof({structs['Kernel']}, {field})" for field in fields)
    lines += f'printf("%d %d %d %d %d %d\\n", {of_kernel});\n'
    source = tmp_path / "offsets.c"
    source.write_text(
        "#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <cuda.h>\n#include <cupti_activity.h>\n"
        f"int main(void) {{\n{lines}return 0;\n}}\n"
    )
    subprocess.run(["cc", f"-I{header.parent}", "-o", str(tmp_path / "offsets"), str(source)], check=True)
    said = subprocess.run([str(tmp_path / "offsets")], check=True, capture_output=True, text=True).stdout

    ours = [f"{kind} 0 {cupti.START} {cupti.END} {cupti.STREAM[kind]}" for _, kind in RECORDS.values()]
    launched = (cupti.REGISTERS, cupti.GRID, cupti.BLOCK, cupti.STATIC_SHARED, cupti.DYNAMIC_SHARED, cupti.LOCAL)
    assert said.splitlines() == [*ours, " ".join(map(str, launched))]
    assert len(ours) == len(cupti.STREAM)


spans = st.builds(lambda start, length, stream: Span(start, start + length, stream), *[st.integers(0, 50)] * 3)


@given(st.lists(spans, max_size=12))
def test_the_gpu_is_busy_in_every_nanosecond_that_a_span_covers(found):
    covered = {nanosecond for span in found for nanosecond in range(span.start_ns, span.end_ns)}
    lengths = [span.end_ns - span.start_ns for span in found]

    assert busy_ns(found) == len(covered)
    assert max(lengths, default=0) <= busy_ns(found) <= sum(lengths)


LIBRARY = """
#include <stddef.h>
#include <stdint.h>
#include <string.h>
typedef void (*Request)(uint8_t **, size_t *, size_t *);
typedef void (*Complete)(void *, uint32_t, uint8_t *, size_t, size_t);
static Request request; static Complete complete;
static uint8_t recorded[4096]; static size_t filled, dropped;
int cuptiActivityRegisterCallbacks(Request r, Complete c) { request = r; complete = c; return 0; }
int cuptiActivityEnable(uint32_t kind) { return 0; }
int cuptiActivityGetNumDroppedRecords(void *c, uint32_t s, size_t *n) { *n = dropped; dropped = 0; return 0; }
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record) {
    *record = *record ? *record + 128 : buffer;
    return *record + 128 <= buffer + valid ? 0 : 12;
}
int cuptiActivityFlushAll(uint32_t flag) {
    uint8_t *buffer; size_t size, most;
    if (!filled && !dropped) return 0;
    request(&buffer, &size, &most);
    memcpy(buffer, recorded, filled);
    complete(0, 0, buffer, size, filled);
    filled = 0;
    return 0;
}
void lose(size_t n) { dropped = n; }
void record(uint32_t kind, uint64_t start, uint64_t end, uint32_t stream, size_t at) {
    uint8_t *place = recorded + filled;
    memcpy(place, &kind, 4); memcpy(place + 16, &start, 8); memcpy(place + 24, &end, 8); memcpy(place + at, &stream, 4);
    filled += 128;
}
void launched(uint16_t registers, uint32_t grid, uint32_t block, uint32_t fixed, uint32_t dynamic, uint32_t local) {
    uint8_t *place = recorded + filled - 128;
    uint32_t numbers[] = {grid, 2, 1, block, 1, 1, fixed, dynamic, local};
    memcpy(place + 6, &registers, 2); memcpy(place + 52, numbers, sizeof numbers);
}
"""


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A library that returns buffers of records as CUPTI does; `record` and `lose` define their content."""
    source, built = tmp_path / "cupti.c", tmp_path / "libcupti.so"
    source.write_text(LIBRARY)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(built), str(source)], check=True)
    loaded = ctypes.CDLL(str(built))
    monkeypatch.setattr(cupti, "_library", lambda: loaded)
    return loaded


def record(library, kind, start, end, stream=7):
    offset = ctypes.c_size_t(cupti.STREAM.get(kind, 40))
    library.record(kind, ctypes.c_uint64(start), ctypes.c_uint64(end), stream, offset)


def test_the_records_of_kernels_copies_and_memsets_are_read_and_no_others(library):
    recorder = cupti.Activities()
    record(library, cupti.KERNEL, 10, 20)
    record(library, 99, 10, 90)
    record(library, cupti.MEMSET, 30, 35, stream=8)

    assert recorder.collect() == [Span(10, 20, 7), Span(30, 35, 8)]
    assert recorder.collect() == []


def test_the_facts_of_kernels_are_read_where_they_are_asked_for(library):
    recorder = cupti.Activities()
    for recorder.describes in (True, False):
        record(library, cupti.KERNEL, 10, 20)
        library.launched(76, 1056, 256, 512, 49152, 16)
        record(library, cupti.MEMSET, 30, 35)
        kernel, memset = recorder.collect()
        facts = {
            "grid": [1056, 2, 1],
            "block": [256, 1, 1],
            "registers_per_thread": 76,
            "static_shared_bytes": 512,
            "dynamic_shared_bytes": 49152,
            "local_bytes": 16,
        }
        assert (kernel.kernel, memset.kernel) == (facts if recorder.describes else None, None)


def test_dropped_records_are_an_error_once(library):
    recorder = cupti.Activities()
    record(library, cupti.KERNEL, 10, 20)
    library.lose(3)

    with pytest.raises(CuptiError, match="dropped 3 records"):
        recorder.collect()
    record(library, cupti.KERNEL, 30, 40)
    assert recorder.collect() == [Span(30, 40, 7)]


class RecordedGpu:
    """A GPU on which each launch runs kernels of 10 ns, and a recorder that sometimes loses records."""

    def __init__(self, kernels=(2,), losses=()):
        self.kernels, self.losses = itertools.cycle(kernels), list(losses)
        self.now, self.spans, self.launched = 0, [], 0
        self.describes, self.facts, self.device = False, None, "cuda"

    def launch(self):
        self.launched += 1
        for _ in range(next(self.kernels)):
            self.spans.append(Span(self.now + 1, self.now + 11, 7, self.facts if self.describes else None))
            self.now += 20

    def collect(self):
        spans, self.spans = self.spans, []
        lost = self.losses.pop(0) if spans and self.losses else 0
        if lost == "times":
            return [Span(0, 0, 7), *spans[1:]]
        return spans[lost:]

    def timer(self, monkeypatch):
        torch = pytest.importorskip("torch")
        monkeypatch.setattr(cupti_timers, "activities", lambda: self)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        timer = cupti_timers.CuptiTimer(self)
        timer.prepare(10)
        return timer


COUNTED = (0,) * cupti_timers.COUNTED_LAUNCHES


@pytest.mark.parametrize("lost", [1, 20, "times"])
def test_a_sample_with_missing_records_is_measured_again(monkeypatch, lost):
    timer = RecordedGpu(losses=(*COUNTED, 0, lost)).timer(monkeypatch)

    assert timer.samples(3) == pytest.approx([200e-9] * 3)


@pytest.mark.parametrize(
    ("lost", "says"), [(1, "19 of at least 20 kernels"), (20, "no work"), ("times", "could not time 1 of 20")]
)
def test_records_that_keep_missing_are_an_error(monkeypatch, lost, says):
    timer = RecordedGpu(losses=(*COUNTED, *[lost] * cupti_timers.ATTEMPTS)).timer(monkeypatch)

    with pytest.raises(CuptiError, match=says):
        timer.samples(1)
    assert timer.samples(1) == pytest.approx([200e-9])


def test_a_kernel_whose_launches_leave_different_numbers_of_records_is_timed(monkeypatch):
    gpu = RecordedGpu(kernels=(2, 3))
    timer = gpu.timer(monkeypatch)

    assert timer.samples(2) == pytest.approx([250e-9] * 2)
    assert gpu.launched == cupti_timers.COUNTED_LAUNCHES + 2 * 10


def test_more_records_than_expected_are_no_error(monkeypatch):
    gpu = RecordedGpu()
    timer = gpu.timer(monkeypatch)
    assert timer.seconds(5) == pytest.approx(20e-9)
    gpu.kernels = itertools.cycle((4,))

    assert timer.samples(1) == pytest.approx([400e-9])


@pytest.mark.parametrize(("lost", "expected"), [(0, 2), (1, 0)])
def test_the_kernels_of_a_launch_that_cupti_times_are_known_if_all_were_recorded(monkeypatch, lost, expected):
    gpu = RecordedGpu(losses=(*COUNTED, 0, lost))
    timer = gpu.timer(monkeypatch)
    timer.seconds(1)
    gpu.facts = {"registers_per_thread": 32}

    assert launches.launched_kernels(gpu, timer, captured=False) == [gpu.facts] * expected
    assert not gpu.describes


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
def test_comments_and_blank_lines_do_not_change_the_hash_of_machine_code(compiled, name):
    source = SCALE.replace("scale", name)
    moved = compiled("// says why\n\n\n" + source.replace(";\n", ";  /* says more */\n\n"))

    assert moved != compiled(source)
    assert machine_code.code_hash(moved) == machine_code.code_hash(compiled(source))


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
def test_a_change_of_what_runs_changes_the_hash_of_machine_code(compiled, name, changed):
    source = SCALE.replace("scale", name)

    assert machine_code.code_hash(compiled(changed(source))) != machine_code.code_hash(compiled(source))


def test_another_generation_of_gpus_has_another_hash(compiled):
    assert machine_code.code_hash(compiled(arch="sm_80")) != machine_code.code_hash(compiled(arch="sm_90"))


def test_a_truncated_cubin_has_no_hash_or_that_of_the_complete_one(compiled):
    cubin = compiled()
    whole, kept = machine_code.code_hash(cubin), 0
    for length in range(0, len(cubin), 7):
        try:
            assert machine_code.code_hash(cubin[:length]) == whole  # only what runs nowhere is lacking
            kept += 1
        except machine_code.Unknown:
            continue

    assert kept < len(cubin) / 7 / 4


# --- the identity of a launch ---

DRIVER = """
#undef CUDA_VERSION
#include <cuda.h>
#undef cuGraphGetEdges
#undef cuCtxGetLimit
#include <string.h>

/* A graph of two launches of one kernel with three arguments; what a test sets is what they differ in. */
static CUlaunchAttributeValue attributes[64];
static int of_function[64], cache_config, nodes = 2, edges = 1, programmatic;
static size_t limits[16];
static unsigned shared_bytes = 512, grid = 4;
static int argument = 3, no_more = CUDA_ERROR_INVALID_VALUE, no_pointer = CUDA_ERROR_INVALID_VALUE;
static CUlaunchAttributeID last = CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
static CUdeviceptr x = 0x10100, y = 0x30000;
static void *arguments[] = {&argument, &x, &y};

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *found, size_t *number) {
    if (found) for (size_t i = 0; i < *number; i++) found[i] = (CUgraphNode)(i + 1);
    *number = nodes;
    return 0;
}
CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *number) {
    if (programmatic) return CUDA_ERROR_LOSSY_QUERY;
    if (from) { *from = (CUgraphNode)1; *to = (CUgraphNode)2; }
    *number = edges;
    return 0;
}
static CUgraphNodeType kind = CU_GRAPH_NODE_TYPE_KERNEL;
CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) { *type = kind; return 0; }
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *found) {
    memset(found, 0, sizeof *found);
    found->func = (CUfunction)7;
    found->gridDimX = grid; found->gridDimY = found->gridDimZ = 1;
    found->blockDimX = 128; found->blockDimY = found->blockDimZ = 1;
    found->sharedMemBytes = shared_bytes; found->kernelParams = arguments;
    return 0;
}
CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID id, CUkernelNodeAttrValue *value) {
    if (id > last) return CUDA_ERROR_INVALID_VALUE;
    *value = attributes[id];
    return attributes[0].cooperative ? CUDA_ERROR_NOT_SUPPORTED : 0;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute id, CUfunction function) {
    if (id >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    *value = of_function[id];
    return 0;
}
CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size) {
    *offset = 8 * index; *size = index ? 8 : 4;
    return index < 3 ? 0 : no_more;
}
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute id, CUdeviceptr address) {
    return id == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR && address >> 16 && address < 1 << 20 ? 0 : no_pointer;
}
CUresult cuCtxGetCacheConfig(CUfunc_cache *found) { *found = cache_config; return 0; }
CUresult no_limit;
CUresult cuCtxGetLimit(size_t *value, CUlimit limit) { *value = limits[limit]; return no_limit; }

void set(const char *what) {
#define SET(name, change) if (!strcmp(what, name)) change
    CUaccessPolicyWindow *window = &attributes[CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW].accessPolicyWindow;
    SET("cluster", attributes[CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION].clusterDim.x = 2);
    SET("cluster scheduling",
        attributes[CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE].clusterSchedulingPolicyPreference = 1);
    SET("cooperative", attributes[CU_LAUNCH_ATTRIBUTE_COOPERATIVE].cooperative = 1);
    SET("priority", attributes[CU_LAUNCH_ATTRIBUTE_PRIORITY].priority = -1);
    SET("persisting L2", (window->num_bytes = 4096, window->base_ptr = (void *)0x30000));
    SET("persisting L2 of the other", (window->num_bytes = 4096, window->base_ptr = (void *)0x10000));
    SET("persisting L2 elsewhere", (window->num_bytes = 4096, window->base_ptr = (void *)0xC0000));
    SET("persisting L2 of nothing", (window->base_ptr = (void *)0x30000, window->hitRatio = 1));
    SET("persisting L2 of who knows", (window->num_bytes = 4096, window->base_ptr = (void *)0x50000));
    SET("carve-out of the launch",
        attributes[CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT].sharedMemCarveout = 50);
    SET("carve-out", of_function[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = 100);
    SET("limit of shared memory", of_function[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 65536);
    SET("nothing that counts", memset(attributes[CU_LAUNCH_ATTRIBUTE_PRIORITY].pad + 4, 1, 60));
    SET("cache", cache_config = CU_FUNC_CACHE_PREFER_L1);
    SET("L2 limit", limits[CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = 1 << 20);
    SET("shared memory", shared_bytes = 1024);
    SET("grid", grid = 5);
    SET("argument", argument = 4);
    SET("swapped", (x = 0x30100, y = 0x10000));
    SET("in place", y = x);
    SET("further in", x += 4096);
    SET("elsewhere", (x += 0x80000, y += 0x90000));
    SET("out of line", (x += 0x80004, y += 0x90000));
    SET("unknown memory", y = 0x50000);
    SET("past the end", y = 0x40000);
    SET("arguments unreadable", no_more = CUDA_ERROR_NOT_SUPPORTED);
    SET("limits unknown", no_limit = CUDA_ERROR_UNSUPPORTED_LIMIT);
    SET("limits unreadable", no_limit = CUDA_ERROR_INVALID_CONTEXT);
    SET("addresses unreadable", (x = 5, no_pointer = CUDA_ERROR_NOT_INITIALIZED));
    SET("more attributes", last = 20);
    SET("an attribute nobody knows", (last = 20, attributes[20].pad[7] = 1));
    SET("event", attributes[CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT].programmaticEvent.event = (CUevent)0x1234);
    SET("stack", limits[CU_LIMIT_STACK_SIZE] = 4096);
    SET("L2 fetches", limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 32);
    SET("two kernels", nodes = 4);
    SET("copies", kind = CU_GRAPH_NODE_TYPE_MEMCPY);
    SET("a graph in it", kind = CU_GRAPH_NODE_TYPE_GRAPH);
    SET("registers", of_function[CU_FUNC_ATTRIBUTE_NUM_REGS] = 76);
    SET("static shared memory", of_function[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES] = 4096);
    SET("local memory", of_function[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES] = 16);
    SET("not in order", edges = 0);
    SET("programmatic", programmatic = 1);
    SET("attributes unknown", attributes[0].cooperative = 1);
}
"""


@pytest.fixture(scope="module")
def driver_source(tmp_path_factory):
    """A driver with NVIDIA's own declarations, built once."""
    header = next((root / "include/cuda.h" for root in compilers.toolkit_roots()), None)
    if header is None:
        pytest.skip("no CUDA toolkit with the header of the driver")
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text(DRIVER)
    built = folder / "libdriver.so"
    command = ["cc", f"-I{header.parent}", "-shared", "-fPIC", "-w", "-o", str(built), str(folder / "driver.c")]
    subprocess.run(command, check=True)
    return built


def a_driver(source, folder, *changes):
    """Return a new fake driver in which something was set."""
    copy = folder / f"{len(list(folder.iterdir()))}.so"
    shutil.copy(source, copy)
    driver = ctypes.CDLL(str(copy))
    for change in changes:
        driver.set(change.encode())
    return driver


def test_the_kernels_of_a_launch_are_read_from_its_graph(driver_source, tmp_path):
    changes = ("registers", "static shared memory", "local memory", "two kernels")
    found = launches.kernels_of(a_driver(driver_source, tmp_path, *changes), 99)

    assert len(found) == 4
    assert found[0] == {
        "grid": [4, 1, 1],
        "block": [128, 1, 1],
        "registers_per_thread": 76,
        "static_shared_bytes": 4096,
        "dynamic_shared_bytes": 512,
        "local_bytes": 16,
    }
    assert launches.kernels_of(a_driver(driver_source, tmp_path, "copies"), 99) == []
    with pytest.raises(identity.Unknown):
        launches.kernels_of(a_driver(driver_source, tmp_path, "a graph in it"), 99)


def a_cubin(content=b""):
    """An ELF file of one section, and one of names."""
    header = bytearray(64)
    struct.pack_into("<Q", header, 0x28, 64)
    struct.pack_into("<HHH", header, 0x3A, 64, 2, 1)
    names = b"\0.text\0"
    code = struct.pack("<IIQQQQ24x", 1, 1, 0, 0, 192 + len(names), len(content))
    return bytes(header) + code + struct.pack("<IIQQQQ24x", 0, 3, 0, 0, 192, len(names)) + names + content


CUBIN = a_cubin()
MEMORY = (range(0x10000, 0x20000), range(0x30000, 0x40000))
"""The addresses of the two tensors of the launch."""
ELSEWHERE = (range(0x90000, 0xA0000), range(0xC0000, 0xD0000))


@pytest.fixture
def facts(driver_source, tmp_path):
    """Return the facts of two launches, each with a new fake driver, after something was set in the second one."""

    def of(*changes, memory=MEMORY, cubin=CUBIN):
        driver = a_driver(driver_source, tmp_path, *changes)
        nodes = identity.two_launches(driver, 99)
        codes = {7: lambda: cubin, 8: lambda: b"cut off"}
        return identity.context_facts(driver), [identity.node_facts(driver, node, codes, memory) for node in nodes]

    return of


def test_the_same_launch_has_the_same_facts(facts):
    assert facts() == facts()
    assert len(facts()[1]) == 2


@pytest.mark.parametrize("change", ["nothing that counts", "stack", "persisting L2 of nothing"])
def test_what_does_not_change_the_launch_does_not_change_its_facts(facts, change):
    assert facts(change) == facts()


def test_an_address_counts_as_its_tensor_and_the_offset_in_it(facts):
    found = [facts(), *map(facts, ("swapped", "in place", "further in"))]

    assert facts("elsewhere", memory=ELSEWHERE) == facts()
    assert facts("out of line", memory=(range(0x90004, 0xA0004), ELSEWHERE[1])) != facts()
    assert all(a != b for a, b in itertools.combinations(found, 2))


def test_an_address_in_several_tensors_counts_as_in_the_first(facts):
    assert facts(memory=(*MEMORY, *MEMORY)) == facts()


def test_the_memory_that_a_launch_allocates_for_itself_is_that_of_its_graph(monkeypatch):
    torch = pytest.importorskip("torch")
    segments = [
        {"address": 0x900, "total_size": 0x200, "segment_pool_id": (0, 3)},
        {"address": 0x100, "total_size": 0x400, "segment_pool_id": (0, 3)},
        {"address": 0x600, "total_size": 0x100, "segment_pool_id": (0, 0)},
        {"address": 0x700, "total_size": 0x100},
    ]
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)

    assert identity.scratch(SimpleNamespace(pool=lambda: (0, 3))) == [range(0x900, 0xB00), range(0x100, 0x500)]


def test_extents_are_those_of_the_inputs_then_of_the_outputs_in_the_order_of_keys():
    torch = pytest.importorskip("torch")
    a, b, out = torch.ones(4), torch.ones(6), torch.ones(8)

    found = identity.extents({"b": b, "a": a, "n": 3}, [out, [a]])

    assert [len(extent) for extent in found] == [16, 24, 32, 16]
    assert found == identity.extents({"n": 3, "a": a, "b": b}, [out, [a]])


def test_the_extent_of_a_view_ends_with_its_elements():
    torch = pytest.importorskip("torch")
    whole = torch.ones(4, 6)

    (columns, part, empty) = identity.extents([whole[:, 1:3], whole.view(-1)[20:22], whole[:0]], [])
    assert columns == range(whole.data_ptr() + 4, whole.data_ptr() + 4 * (3 * 6 + 3))
    assert part == range(whole.data_ptr() + 80, whole.data_ptr() + 88)
    assert len(empty) == 0


def test_only_the_machine_code_that_is_launched_is_hashed(facts):
    assert facts(cubin=a_cubin(b"other")) != facts()
    with pytest.raises(identity.Unknown):
        facts(cubin=a_cubin(b"cut off")[:-1])


def test_the_machine_code_of_loaded_kernels_is_read_only_when_needed(monkeypatch):
    monkeypatch.setattr(cuda, "loaded_codes", lambda: {1: a_cubin(), 2: b"cut off"})

    assert {function: read() for function, read in machine_code.known_codes().items()} == cuda.loaded_codes()


def test_an_argument_that_ctypes_refuses_means_no_hash(monkeypatch):
    monkeypatch.setattr(cuda, "loaded_codes", lambda: ctypes.CDLL(None).abs(object()))

    with pytest.raises(ctypes.ArgumentError):
        machine_code.known_codes()
    assert identity.launch_hash(case=None, inputs="known") is None


def test_the_bytes_in_use_of_an_attribute_are_those_of_the_header_of_the_driver(driver_source):
    fields = {
        "accessPolicyWindow": 1, "cooperative": 2, "clusterDim": 4, "clusterSchedulingPolicyPreference": 5,
        "priority": 8, "memSyncDomainMap": 9, "memSyncDomain": 10, "preferredClusterDim": 11,
        "sharedMemCarveout": 14, "nvlinkUtilCentricScheduling": 16,
    }  # fmt: skip
    header = next(root / "include/cuda.h" for root in compilers.toolkit_roots())
    known = {name: number for name, number in fields.items() if name in header.read_text(encoding="utf-8")}
    lines = "".join(f'printf("%zu\\n", sizeof(((CUlaunchAttributeValue *)0)->{name}));' for name in known)
    source, built = driver_source.with_name("sizes.c"), driver_source.with_name("sizes")
    source.write_text(f"#include <stdio.h>\n#include <cuda.h>\nint main(void) {{ {lines} return 0; }}\n")
    subprocess.run(["cc", f"-I{header.parent}", "-o", str(built), str(source)], check=True)
    sizes = subprocess.run([str(built)], check=True, capture_output=True, text=True).stdout.split()

    for number, size in zip(known.values(), map(int, sizes), strict=True):
        used = identity._WINDOW.size if number == 1 else identity._BYTES_USED[number]
        assert 0 <= size - used < 8  # padding at the end


@pytest.mark.parametrize(
    "change",
    [
        *["cluster", "cluster scheduling", "cooperative", "priority", "persisting L2", "carve-out of the launch"],
        *["carve-out", "limit of shared memory", "cache", "L2 limit", "shared memory", "grid", "argument"],
        *["L2 fetches", "more attributes", "limits unknown"],
    ],
)
def test_any_change_of_a_launch_changes_its_facts(facts, change):
    assert facts(change) != facts()
    assert facts(change) == facts(change)


def test_memory_that_persists_in_l2_counts_as_its_tensor_not_its_address(facts):
    assert facts("persisting L2") != facts("persisting L2 of the other")
    assert facts("elsewhere", "persisting L2 elsewhere", memory=ELSEWHERE) == facts("persisting L2")


@pytest.mark.parametrize(
    "unknown",
    [
        *["two kernels", "not in order", "programmatic", "attributes unknown", "an attribute nobody knows", "event"],
        *["unknown memory", "past the end", "arguments unreadable", "addresses unreadable", "limits unreadable"],
        "persisting L2 of who knows",
    ],
)
def test_a_launch_with_something_unknown_has_no_hash(facts, unknown):
    with pytest.raises(identity.Unknown):
        facts(unknown)


# --- the content of inputs ---


def content_of(*tensors):
    case = Case.__new__(Case)
    case.inputs = tensors
    return identity.inputs_hash(case)


@pytest.mark.parametrize("size", [0, 1, 8, 63, 64, 65, 1000])
def test_each_byte_of_an_input_counts_in_its_place_whatever_its_address(monkeypatch, size):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(identity, "_CHUNK", 8)
    made = torch.arange(size, dtype=torch.int64).to(torch.uint8)
    whole = content_of(made)
    hashes = {content_of(made ^ (torch.arange(size) == place).to(torch.uint8)) for place in range(size)}

    assert len(hashes | {whole}) == size + 1
    for begin in (1, 4, 8):
        assert content_of(torch.cat([made.new_zeros(begin), made])[begin:]) == whole


def test_hashing_an_input_copies_only_a_part_at_a_time(monkeypatch):
    torch = pytest.importorskip("torch")
    from torch.utils._python_dispatch import TorchDispatchMode

    monkeypatch.setattr(identity, "_CHUNK", 64)
    made = torch.arange(10_003, dtype=torch.uint8)

    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                storage = result.untyped_storage()
                self.size = max(self.size, storage.nbytes() if storage.data_ptr() != made.data_ptr() else 0)
            return result

    with Largest() as largest:
        assert content_of(made)

    assert 0 < largest.size <= 2 * 64 * 8


IN_PLACE = """
from pathlib import Path
import torch
from ci_perf.cuda import CudaSource

SOURCE = CudaSource(Path(__file__).with_name("kernel.cu"))

def make_inputs(rng, device):
    return torch.ones(256, device=device)

def launch(x):
    SOURCE.launch("scale", 1, 256, (x,))
    return x, torch.empty(1 << 24, device=x.device)

def reference(x):
    return x
"""


def test_the_hash_of_shapes_depends_on_shapes_and_types_of_arrays_alone():
    torch = pytest.importorskip("torch")

    def hashed(*inputs):
        return identity.shapes_hash(SimpleNamespace(inputs=inputs))

    class Odd:
        shape = dtype = 3

    one = hashed(torch.zeros(2, 3), 8, Odd())
    assert one == hashed(torch.ones(3, 2).t(), 16, Odd()), "values, strides, plain numbers"
    others = (torch.zeros(3, 3), torch.zeros(2, 3).half(), torch.zeros(2, 3, 1), None)
    assert len({one, *(hashed(other, 8, Odd()) for other in others), hashed(torch.zeros(2, 3), 8)}) == 6


@pytest.mark.gpu
def test_a_kernel_that_works_in_place_has_one_hash_after_any_number_of_launches(tmp_path):
    torch = pytest.importorskip("torch")
    (tmp_path / "kernel.py").write_text(IN_PLACE)
    (tmp_path / "kernel.cu").write_text(SCALE)
    case = Case({"device": "cuda", "entry": str(tmp_path / "kernel.py"), "target": "launch", "params": {}})
    inputs = identity.inputs_hash(case)
    case.launch()
    case.synchronize()
    release_memory()
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()

    first = identity.launch_hash(case, inputs)
    case.launch()

    assert first is not None
    assert first == identity.launch_hash(case, inputs)
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == before


@pytest.mark.gpu
def test_cupti_and_a_cuda_graph_tell_the_same_of_a_launch(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "kernel.py").write_text(IN_PLACE)
    (tmp_path / "kernel.cu").write_text(SCALE)
    case = Case({"device": "cuda", "entry": str(tmp_path / "kernel.py"), "target": "launch", "params": {}})
    case.launch()
    case.synchronize()
    of_graph = launches.launch_facts(case)

    assert [kernel["static_shared_bytes"] for kernel in of_graph] == [1024]
    assert cupti_timers.CuptiTimer(case).kernels() == of_graph


# --- strides ---

KINDS = (*strides.VIEWS, "mixed")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_rearranged_inputs_have_the_same_values_types_and_structure(library, kind):
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
def test_each_order_of_memory_has_its_strides_and_nan_between_the_elements(kind, steps, begin):
    torch = pytest.importorskip("torch")
    made = torch.arange(15.0).view(3, 5)
    view = strides.rearranged(made, kind, 0)
    column_major = strides.rearranged(made.t().contiguous().t(), kind, 0)
    whole = torch.as_strided(view, (view.untyped_storage().nbytes() // 4,), (1,), 0)

    assert (view.stride(), view.storage_offset(), view.data_ptr() % 16) == (steps, begin, 4 * begin)
    assert int(whole.isnan().sum()) == whole.numel() - 15
    assert (column_major.stride()[0] < column_major.stride()[1]) == (kind != "transposed")


def test_each_tensor_of_mixed_inputs_has_an_order_drawn_with_the_seed():
    torch = pytest.importorskip("torch")
    made = [torch.ones(4, 4) for _ in range(40)]
    first, again, other = (strides.rearranged(made, "mixed", seed) for seed in (1, 1, 2))
    orders = [[(tensor.stride(), tensor.storage_offset()) for tensor in found] for found in (first, again, other)]

    assert orders[0] == orders[1] != orders[2]
    assert len(set(orders[0])) == len(strides.VIEWS)
