"""kernel.toml and kernel.py of a Python function. Pure.

Which inputs a function takes and what it computes can only be guessed: `attempts` yields drafts, and `try_out` finds
the one that is right.
"""

import ast
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ci_perf.init.candidates import Candidate, Draft
from ci_perf.init.equivalents import Equivalent, Shape, equivalents_of, written
from ci_perf.init.frozen import freeze
from ci_perf.init.python_functions import Argument, arguments_of, function_of, module_of
from ci_perf.init.references import EPS, OF_SUMS, TOLERANCES, open_reference, reference_of
from ci_perf.init.shapes import guesses, sizes

_OF_ANY = {**TOLERANCES, "float32": "1e-4"}
"""Where it is not known what is computed."""
_VALUES = {"integer": "8", "number": "0.5", "flag": "False"}
OURS = ("make_inputs", "launch", "reference", "cost", "prepare", "wider", "gradients")
"""The names that a kernel.py defines."""


@dataclass(frozen=True, slots=True)
class Source:
    """A function of a repository, and where it is imported from."""

    candidate: Candidate
    text: str
    """Of its file."""
    packages: frozenset[str]
    """The folders of the repository with an `__init__.py`."""
    kernel_folder: str
    """Of the files that are drafted, relative to the root of the repository."""

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """What a caller must give."""
        function = function_of(self.text, self.candidate.name)
        return arguments_of(function) if function else ()

    @property
    def import_from(self) -> tuple[str, str]:
        """The folder from which its file is imported, and its module."""
        return module_of(self.candidate.path, set(self.packages))

    @property
    def eps(self) -> str:
        """The value that its argument `eps` has by default."""
        function = function_of(self.text, self.candidate.name)
        if function is None:
            return EPS
        positional = [*function.args.posonlyargs, *function.args.args]
        pairs = [*zip(reversed(positional), reversed(function.args.defaults), strict=False)]
        pairs += [(a, v) for a, v in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True) if v]
        return next((ast.unparse(value) for one, value in pairs if one.arg in ("eps", "epsilon")), EPS)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A draft that may be right, and how to find out."""

    draft: Draft
    entry: str
    """A kernel.py to try: that of the draft, or with the function as its own reference, to try the inputs alone."""
    shapes: tuple[Shape, ...]
    dtype: str
    tolerance: float


def attempts(source: Source) -> Iterator[Attempt]:
    """Yield the drafts of a function, the most likely ones first; those with open work come last."""
    arguments = source.arguments
    tensors = [one.name for one in arguments if one.role == "tensor"]
    numbers = [one.name for one in arguments if one.role == "number"]
    known = equivalents_of(source.candidate.name, len(tensors), numbers)
    used = [(one.name, one.role == "tensor") for one in arguments if one.role in ("tensor", "number")]
    likely = list(dict.fromkeys(guesses(arguments)))
    for one in known:
        for shapes in dict.fromkeys((one.shapes, *_same_rank(one, likely))):
            for formula in one.formulas:
                body = reference_of(written(formula, source.candidate.name, tensors, numbers, source.eps), used)
                yield from _attempts(source, shapes, body, OF_SUMS if one.sums else TOLERANCES)
    frozen = freeze(source.text, source.candidate.name, OURS) if source.candidate.kind == "torch" else None
    for shapes in (*(one.shapes for one in known), *likely):
        if frozen:
            for double in (True, False):
                yield from _attempts(source, shapes, _by_copy(source.candidate.name, frozen, double=double), _OF_ANY)
        else:
            yield from _attempts(source, shapes, "", OF_SUMS)


def unfinished(source: Source) -> Draft:
    """Return the draft of a function whose reference a person has to write."""
    return next(_attempts(source, next(guesses(source.arguments)), "", OF_SUMS)).draft


def with_late_import(source: Source, draft: Draft) -> Draft:
    """Return the draft of a function whose file cannot be imported without a GPU: its launch imports it.

    `imports` of kernel.toml would import it, too, to see where it lies.
    """
    line = f"from {source.import_from[1]} import {source.candidate.name}\n"
    entry = draft.files["kernel.py"].replace(line, "")
    entry = entry.replace("def launch(inputs):\n", f"def launch(inputs):\n    {line}\n")
    toml = re.sub(r"^imports = .*\n", "", draft.files["kernel.toml"], flags=re.MULTILINE)
    return replace(draft, files={"kernel.toml": toml, "kernel.py": entry})


def _same_rank(known: Equivalent, likely: Sequence[tuple[Shape, ...]]) -> list[tuple[Shape, ...]]:
    """Return the guesses that fit a formula, too: for one that treats all tensors alike, those that do."""
    alike = len(set(known.shapes)) == 1 and len(known.shapes[0]) <= 2
    return [shapes for shapes in likely if alike and len(set(shapes)) == 1]


def _attempts(
    source: Source, shapes: tuple[Shape, ...], reference: str, tolerances: Mapping[str, str]
) -> Iterator[Attempt]:
    for dtype in ("float32", "float16", "bfloat16"):
        tolerance = tolerances[dtype]
        entry = _entry(source, shapes, reference or open_reference(source.candidate.name))
        open_work = "" if reference else f"`reference` in {source.kernel_folder}/kernel.py"
        trial = entry if reference else f"{entry}\n\nreference = launch\n"
        toml = _toml(source, shapes, dtype, tolerance)
        draft = Draft({"kernel.toml": toml, "kernel.py": entry}, open_work)
        yield Attempt(draft, trial, shapes, dtype, float(tolerance))


def _toml(source: Source, shapes: Sequence[Shape], dtype: str, tolerance: str) -> str:
    folder, module = source.import_from
    path = posixpath.relpath(folder or ".", source.kernel_folder)
    devices = 'devices = ["cpu", "cuda"]'
    if source.candidate.kind == "triton":
        devices = 'devices = ["cuda"]              # on a CPU, `reference` is timed in its place'
    parts = [
        f"# Written by `ci-perf init` for {source.candidate.place}; change it as you like.",
        'entry = "kernel.py"',
        devices,
        'rng = "device"                  # inputs are drawn on the GPU',
        'cpu_cases = ["small"]           # what runs on a CPU',
        "",
        "[package]",
        "# Imported from here, in the tree of the commit that is measured, and not from an installed package.",
        f'path = ["{path}"]',
        f'imports = ["{module.partition(".")[0]}"]',
    ]
    for case in ("small", "large"):
        lines = [f"{name} = {size}" for name, size in sizes(shapes, case).items()]
        parts += ["", f"[cases.{case}]", *lines, f'dtype = "{dtype}"']
    parts += ["", "[tolerance]                     # the largest |out - ref| / (|ref| + rms(ref)) of any element"]
    return "\n".join([*parts, f"{dtype} = {tolerance}", ""])


def _entry(source: Source, shapes: tuple[Shape, ...], reference: str) -> str:
    name, module = source.candidate.name, source.import_from[1]
    parameters = ", ".join([*sizes(shapes, "small"), "dtype"])
    alias = f"current_{name}" if re.search(rf"^def {name}\b", reference, re.MULTILINE) or name in OURS else name
    imported = f"from {module} import {name}" + (f" as {alias}" if alias != name else "")
    return f'''"""Inputs and reference of {source.candidate.place}. Written by `ci-perf init`; change it as you like."""

import torch
{imported}


def make_inputs(rng, device, {parameters}):
    """Return the arguments of {name} by name."""
{_made(source.arguments, shapes)}


def launch(inputs):
    return {alias}(**inputs)


{reference}
'''


def _made(arguments: Sequence[Argument], shapes: Sequence[Shape]) -> str:
    """Return the body of make_inputs."""
    of_tensors = iter(shapes)
    lines = []
    for one in arguments:
        if one.role == "tensor":
            made = f"torch.randn({', '.join(next(of_tensors))}, generator=rng, device=rng.device)"
            made += ".to(device, getattr(torch, dtype))"
        elif one.role == "indices":
            made = f"torch.randint(64, ({shapes[0][0]},), generator=rng, device=rng.device).to(device)"
        else:
            made = "-1" if one.name in ("dim", "axis") else _VALUES[one.role]
        lines.append(f'        "{one.name}": {made},')
    return "\n".join(["    return {", *lines, "    }"])


_WIDER = """def wider(value):
    return value.double() if torch.is_tensor(value) and value.is_floating_point() else value


"""


def _by_copy(name: str, frozen: str, *, double: bool) -> str:
    asked = "{name: wider(value) for name, value in inputs.items()}" if double else "inputs"
    return f'''# {name} as it was when `ci-perf init` ran: later commits are compared with this copy.
{frozen}


{_WIDER if double else ""}def reference(inputs):
    """Return what the copy of {name} above computes{" in float64" if double else ""}."""
    return {name}(**{asked})'''
