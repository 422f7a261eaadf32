"""kernel.toml and kernel.py of a CUDA kernel. Pure."""

import re
from dataclasses import dataclass

from ci_perf.init.candidates import Candidate, Draft
from ci_perf.init.cuda_kernels import CudaKernel, Parameter, kernel_of
from ci_perf.init.elementwise import formula_of
from ci_perf.init.equivalents import Shape, equivalents_of, written
from ci_perf.init.references import EPS, OF_SUMS, TOLERANCES, open_reference, reference_of
from ci_perf.init.shapes import sizes


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a kernel is called."""

    shapes: dict[str, Shape]
    """Of each tensor."""
    sizes: dict[str, str]
    """For each integer parameter, the size that it stands for."""
    grid: str
    block: str
    reference: str
    """The formula of the output; empty where it is not known."""
    sums: bool = False


def draft_cuda(candidate: Candidate, text: str, kernel_folder: str) -> Draft:
    """Return the files of a kernel; what is not known of it is left to a person, marked with TODO."""
    kernel = kernel_of(text, candidate.name)
    plan = _plan(kernel) if kernel else None
    if kernel is None or plan is None:
        return _empty(candidate, kernel_folder)
    dtype = kernel.writes[0].dtype
    known = list(dict.fromkeys(size for shape in plan.shapes.values() for size in shape))
    tolerance = (OF_SUMS if plan.sums else TOLERANCES).get(dtype, "0.0")
    toml = [
        f"# Written by `ci-perf init` for {candidate.place}; change it as you like.",
        'entry = "kernel.py"',
        'devices = ["cuda"]              # on a CPU, `reference` is timed in its place',
        'rng = "device"                  # inputs are drawn on the GPU',
        'cpu_cases = ["small"]           # what runs on a CPU',
    ]
    for case in ("small", "large"):
        values = sizes([tuple(known)], case)
        toml += ["", f"[cases.{case}]", *(f"{name} = {values[name]}" for name in known), f'dtype = "{dtype}"']
    toml += ["", "[tolerance]                     # the largest |out - ref| / (|ref| + rms(ref)) of any element"]
    entry = _entry(candidate, kernel, plan, known, kernel_folder)
    open_work = "" if plan.reference else f"`reference` in {kernel_folder}/kernel.py"
    return Draft({"kernel.toml": "\n".join([*toml, f"{dtype} = {tolerance}", ""]), "kernel.py": entry}, open_work)


def _plan(kernel: CudaKernel) -> _Plan | None:
    """Guess how a kernel is called, by the number of its integers and by how it uses the index of its block."""
    integers = [one.name for one in kernel.of_kind("int", "size")]
    tensors = (*kernel.of_kind("input"), *kernel.writes)
    if not kernel.reads or not kernel.writes:
        return None
    threads = kernel.threads
    if len(integers) <= 1:
        alike: Shape = ("n",)
        grid, block = f"-(-n // {threads})", str(threads)
    elif len(integers) == 2:
        alike = ("rows", "columns")
        by_row = re.search(r"=\s*blockIdx\.x\s*;", kernel.body)
        grid, block = "rows" if by_row else f"-(-rows * columns // {threads})", str(threads)
        if "blockIdx.y" in kernel.body:
            grid, block = "(-(-columns // 16), -(-rows // 16))", "(16, 16)"
    else:
        return _product(kernel, integers)
    of_integers = dict(zip(integers, alike, strict=False))
    return _Plan({one.name: alike for one in tensors}, of_integers, grid, block, _formula(kernel))


def _product(kernel: CudaKernel, integers: list[str]) -> _Plan | None:
    """Return how a product of two matrices is called; None for another kernel with three integers."""
    reads, writes = kernel.of_kind("input"), kernel.writes
    lower = [one.lower() for one in integers]
    if lower not in (["m", "n", "k"], ["m", "k", "n"]) or len(reads) != 2 or len(writes) != 1:
        return None
    shapes: dict[str, Shape] = {reads[0].name: ("m", "k"), reads[1].name: ("k", "n"), writes[0].name: ("m", "n")}
    formula = f"{reads[0].name} @ {reads[1].name}" if writes[0].kind == "output" else ""
    grid, block = "(-(-n // 16), -(-m // 16))", "(16, 16)"
    return _Plan(shapes, dict(zip(integers, lower, strict=True)), grid, block, formula, sums=True)


def _formula(kernel: CudaKernel) -> str:
    """Return what a kernel computes, by its source or by its name; empty if neither tells."""
    if found := formula_of(kernel):
        return found
    names = [one.name for one in kernel.reads]
    numbers = [one.name for one in kernel.of_kind("float", "double")]
    known = [one for one in equivalents_of(kernel.name, len(names), numbers) if one.keeps_shape]
    return written(known[0].formulas[0], kernel.name, names, numbers, EPS) if known else ""


def _entry(candidate: Candidate, kernel: CudaKernel, plan: _Plan, known: list[str], kernel_folder: str) -> str:
    made = [_drawn(one, plan.shapes[one.name]) for one in kernel.reads]
    made += [f'        "{one.name}": 0.5,' for one in kernel.of_kind("float", "double")]
    made += [f'        "{size}": {size},' for size in known]
    numbers = "import ctypes\n" if kernel.of_kind("float", "double", "size") else ""
    lines = [f'    {size} = inputs["{size}"]' for size in known]
    for one in kernel.of_kind("output"):
        options = f'dtype=torch.{one.dtype}, device=inputs["{kernel.reads[0].name}"].device'
        lines.append(f"    {one.name} = torch.empty({', '.join(plan.shapes[one.name])}, {options})")
    arguments = ", ".join(_argument(one, plan) for one in kernel.parameters)
    lines.append(f'    SOURCE.launch("{kernel.name}", grid={plan.grid}, block={plan.block}, args=[{arguments}])')
    returned = [one.name if one.kind == "output" else f'inputs["{one.name}"]' for one in kernel.writes]
    drawn, launched = "\n".join(made), "\n".join(lines)
    return f'''"""{candidate.place}: inputs, launch and reference. Written by `ci-perf init`; change it as you like."""

{numbers}from pathlib import Path

import torch
from ci_perf.cuda import CudaSource

{_source_line(candidate, kernel_folder)}


def make_inputs(rng, device, {", ".join(known)}, dtype):
    """Return the inputs of {kernel.name} by name."""
    return {{
{drawn}
    }}


def launch(inputs):
{launched}
    return {", ".join(returned)}


{_reference(kernel, plan)}
'''


def _source_line(candidate: Candidate, kernel_folder: str) -> str:
    up = kernel_folder.count("/") + 1
    return f'SOURCE = CudaSource(Path(__file__).parents[{up}] / "{candidate.path}")'


def _drawn(one: Parameter, shape: Shape) -> str:
    sized = ", ".join(shape)
    if one.dtype.startswith(("int", "uint")):
        made = f"torch.randint(64, ({sized},), generator=rng, device=rng.device, dtype=torch.{one.dtype})"
    else:
        made = f"torch.randn({sized}, generator=rng, device=rng.device)"
    return f'        "{one.name}": {made}.to(device, torch.{one.dtype}),'


def _argument(one: Parameter, plan: _Plan) -> str:
    if one.kind in ("input", "both"):
        return f'inputs["{one.name}"]'
    if one.kind == "output":
        return one.name
    if one.kind in ("float", "double"):
        return f'ctypes.c_{one.kind}(inputs["{one.name}"])'
    return plan.sizes[one.name] if one.kind == "int" else f"ctypes.c_int64({plan.sizes[one.name]})"


def _reference(kernel: CudaKernel, plan: _Plan) -> str:
    if not plan.reference:
        return open_reference(kernel.name)
    used = [one for one in kernel.parameters if re.search(rf"\b{one.name}\b", plan.reference)]
    return reference_of(plan.reference, ((one.name, one.kind in ("input", "both")) for one in used))


def _empty(candidate: Candidate, kernel_folder: str) -> Draft:
    """Return the files of a kernel of which nothing is known but its name."""
    toml = f"""# Written by `ci-perf init` for {candidate.place}; change it as you like.
entry = "kernel.py"
devices = ["cuda"]              # on a CPU, `reference` is timed in its place
rng = "device"                  # inputs are drawn on the GPU

[cases.small]
n = 1048576
dtype = "float32"

[tolerance]                     # the largest |out - ref| / (|ref| + rms(ref)) of any element
float32 = 1e-5
"""
    entry = f'''"""{candidate.place}: inputs, launch and reference. Written by `ci-perf init`; change it as you like."""

from pathlib import Path

import torch
from ci_perf.cuda import CudaSource

{_source_line(candidate, kernel_folder)}


def make_inputs(rng, device, n, dtype):
    # TODO: return what {candidate.name} reads, for the parameters of the cases in kernel.toml; for example:
    # return torch.randn(n, generator=rng, device=rng.device).to(device, getattr(torch, dtype))
    raise NotImplementedError("{candidate.name} has no inputs yet")


def launch(x):
    # TODO: start {candidate.name} with its arguments in their order; for example:
    # out = torch.empty_like(x)
    # SOURCE.launch("{candidate.name}", grid=-(-x.numel() // 256), block=256, args=(x, out, x.numel()))
    # return out
    raise NotImplementedError("{candidate.name} is not launched yet")


def reference(x):
    # TODO: return what {candidate.name} must return, in float64 and by the simplest method
    raise NotImplementedError("{candidate.name} has no reference yet")
'''
    names = "`make_inputs`, `launch` and `reference`"
    return Draft({"kernel.toml": toml, "kernel.py": entry}, f"{names} in {kernel_folder}/kernel.py")
