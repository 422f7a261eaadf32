"""The files that are damaged, and how each is read."""

import gzip
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ci_perf import store
from ci_perf.cli import inspection
from ci_perf.cli.report import FORMATS
from ci_perf.judge.report import build_report
from ci_perf.values.kernel_toml import parse_kernel

KINDS = ("ncu-rep", "ncu-csv", "nsys", "torch", "benchmark", "kernel-toml", "run", "baseline")
_LARGEST = 1 << 20
"""Bytes of a file of the corpus: damage in a large one is found no more often, and takes longer."""
_GOOGLE = {
    "context": {"date": "2026-01-01", "num_cpus": 8},
    "benchmarks": [
        {
            "name": "BM_copy/64",
            "run_name": "BM_copy/64",
            "run_type": "iteration",
            "repetitions": 2,
            "repetition_index": index,
            "iterations": 1000,
            "real_time": 1.5 + index,
            "cpu_time": 1.25,
            "time_unit": "us",
            "bytes_per_second": 2.5e9,
            "flops": 3,
        }
        for index in range(2)
    ],
}
_PYTEST = {
    "machine_info": {"node": "n"},
    "benchmarks": [
        {"name": "test_a", "fullname": "t.py::test_a", "params": {"n": 4}, "stats": {"data": [0.5, 0.25], "rounds": 2}}
    ],
}
_NVBENCH = {
    "meta": {"version": {"json": {"major": 1, "minor": 0, "patch": 0, "string": "1.0.0"}}},
    "benchmarks": [
        {
            "name": "copy",
            "states": [
                {
                    "device": 0,
                    "axis_values": [{"name": "n", "type": "int64", "value": "4096"}],
                    "summaries": [
                        {
                            "tag": "nv/cold/time/gpu/mean",
                            "data": [{"name": "value", "type": "float64", "value": "0.00125"}],
                        }
                    ],
                    "is_skipped": False,
                }
            ],
        }
    ],
}
_TEXTS = {
    "google.json": json.dumps(_GOOGLE, indent=1),
    "google.csv": "name,iterations,real_time,cpu_time,time_unit,bytes_per_second,items_per_second,label,error_occurred,"
    'error_message\n"BM_copy/64",1000,1.5,1.25,us,2.5e9,,,,\n"BM_copy/128",500,3.5,3.25,us,,,,,\n',
    "pytest.json": json.dumps(_PYTEST, indent=1),
    "nvbench.json": json.dumps(_NVBENCH, indent=1),
    "nvbench.csv": "Benchmark,Device,Device Name,n,Skipped,Samples,GPU Time (sec),Noise\n"
    "copy,0,H100,4096,No,100,0.00125,0.5\ncopy,0,H100,8192,No,100,0.00250,0.5\n",
    "triton.csv": "N,Triton,Torch\n128.000000,1.500000,2.500000\n256.000000,3.500000,4.500000\n",
}
_TOML = """entry = "kernel.py"
l2 = "warm"
[cases.small]
seq = 128
dtype = "float16"
[sweep]
seq = [256, 512, 1024]
[tolerance]
float16 = 1e-2
[policy]
regression = "3%"
[gates]
sm_throughput_pct = ">= 85"
[fuzz]
seq = {min = 1, max = 4096, multiple_of = 8}
"""


@dataclass(frozen=True, slots=True)
class Seed:
    """A file that is sound."""

    kind: str
    name: str
    content: bytes = field(repr=False)
    is_ours: bool
    """Whether what comes of it may be kept in the repository."""

    @property
    def suffix(self) -> str:
        """Return the ending of its name, by which some readers go."""
        return "".join(Path(self.name).suffixes[-1:])

    @property
    def read(self) -> Callable[[Path], object]:
        """Return the reader of its kind."""
        return reader_of(self.kind)


def reader_of(kind: str) -> Callable[[Path], object]:
    """Return the reader of a kind of file."""
    return {"kernel-toml": read_kernel, "run": replay, "baseline": store.read_baseline}.get(kind, read_any)


def read_any(path: Path) -> object:
    """Read a file of a profiler or a benchmark."""
    return inspection.read(path, {"PATH": ""})


def read_kernel(path: Path) -> object:
    """Read a kernel.toml."""
    return parse_kernel(path.read_bytes().decode(errors="replace"), name="k", folder="kernels/k")


def replay(path: Path) -> object:
    """Judge a recorded run, and return what every format says of it."""
    report = build_report(store.read_run(path))
    return [render(report) for render, _ in FORMATS.values()]


def seeds(root: Path) -> Iterator[Seed]:
    """Yield the files of the repository, and those of other people where they are here."""
    captures = root / "tests/data/captures"
    packed = captures / "h200-ncu-2025.3.1-full-raw.csv.gz"
    for file in sorted(captures.iterdir()):
        if file != packed:
            yield Seed(kind_of(file.name), file.name, file.read_bytes(), is_ours=True)
    yield Seed("ncu-csv", packed.stem, gzip.decompress(packed.read_bytes()), is_ours=True)
    trace = root / "tests/data/hand-made-torch-2.11.trace.json"
    yield Seed("torch", trace.name, trace.read_bytes(), is_ours=True)
    for name, text in _TEXTS.items():
        yield Seed("benchmark", name, text.encode(), is_ours=True)
    yield Seed("kernel-toml", "kernel.toml", _TOML.encode(), is_ours=True)
    for file in sorted((root / "kernels").glob("*/kernel.toml")):
        yield Seed("kernel-toml", f"{file.parent.name}.toml", file.read_bytes(), is_ours=True)
    for file in sorted((root / "tests/data/formats").glob("*/*.json")):
        kind = file.name.partition("-")[0].removesuffix(".json")
        if kind in KINDS:
            yield Seed(kind, file.name, file.read_bytes(), is_ours=True)
    for file in sorted((root / "tests/data/runs").glob("*/run.json")):
        yield Seed("run", f"{file.parent.name}.json", file.read_bytes(), is_ours=True)
    yield from _of_other_people(root)


def _of_other_people(root: Path) -> Iterator[Seed]:
    corpus = Path(os.environ.get("CI_PERF_CORPUS") or root.parent / "shared/corpus")
    for folder, kind in (
        ("ncu-rep", "ncu-rep"),
        ("ncu-csv", "ncu-csv"),
        ("nsys-sqlite", "nsys"),
        ("bench", "benchmark"),
    ):
        for file in sorted((corpus / folder).glob("*")):
            if file.stat().st_size <= _LARGEST:
                yield Seed(kind, file.name, file.read_bytes(), is_ours=False)


def kind_of(name: str) -> str:
    """Return the kind of a capture, by the ending of its name."""
    return {".ncu-rep": "ncu-rep", ".csv": "ncu-csv", ".sqlite": "nsys", ".json": "torch"}[Path(name).suffix]
