"""The outputs of a launch by name, and how far they are from what is expected."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from ci_perf.userside.case import Wrong

DEFAULT_TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 1e-2, "bfloat16": 2e-2}
TINY = 1e-300
WHOLE = "output"
"""The name of an output that is not part of a tuple, dictionary or dataclass."""

Tolerances = dict[str, Any]
"""The tolerance by data type; under `outputs` the same for single outputs by name, as in kernel.toml."""


class Difference(NamedTuple):
    """How far one output is from what is expected: the largest |out - ref| / (|ref| + rms(ref))."""

    name: str
    error: float
    tolerance: float
    place: tuple[int, ...]
    """Of the element with the largest error."""
    value: Any
    """Of this element."""
    expected: Any
    wrong: int
    """The number of elements beyond the tolerance."""
    elements: int

    @property
    def is_wrong(self) -> bool:
        """Whether an element is beyond the tolerance; NaN is."""
        return not self.error <= self.tolerance

    @property
    def brief(self) -> str:
        """The error and what is allowed."""
        return f"{self.error:.3g}, allowed is {self.tolerance:.3g}"

    def __str__(self) -> str:
        name = f"`{self.name}`" if self.name != WHOLE else "the output"
        element = f"{name}[{', '.join(map(str, self.place))}]" if self.place else name
        found = f"{self.brief}: {element} is {shown(self.value)} instead of "
        return found + f"{shown(self.expected)}; {self.wrong} of {self.elements} elements are wrong"


def shown(value: Any) -> str:
    """Return a number with six digits."""
    return f"{value:.6g}" if isinstance(value, (float, complex)) else str(value)


def parts_of(value: Any) -> list[tuple[str, Any]] | None:
    """Return the parts of a dictionary, dataclass, tuple or list by name; None for anything else."""
    if isinstance(value, dict):
        return [(str(key), value[key]) for key in sorted(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(name, getattr(value, name)) for name in sorted(field.name for field in dataclasses.fields(value))]
    if isinstance(value, (tuple, list)):
        names = getattr(value, "_fields", range(len(value)))
        return [(str(name), part) for name, part in zip(names, value)]
    return None


def named(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Return each leaf with its name: `dw`, `grads.dw`, or the index in a tuple without names."""
    parts = parts_of(value)
    if parts is None:
        return [(prefix or WHOLE, value)]
    return [leaf for name, part in parts for leaf in named(part, f"{prefix}.{name}" if prefix else name)]


def leaves(value: Any) -> list[Any]:
    """Flatten tuples, lists, dictionaries and dataclasses of tensors."""
    return [leaf for _, leaf in named(value)]


def structure(value: Any) -> Any:
    """Return the nesting and the names of outputs, without the tensors; the names of a tuple's fields do not count."""
    parts = parts_of(value)
    if parts is None:
        return None
    inner = [(name, structure(part)) for name, part in parts]
    return [part for _, part in inner] if isinstance(value, (tuple, list)) else dict(inner)


def names_of(output: Any, reference: Any) -> list[str]:
    """Return the names of the outputs: of a tuple without names, those of the other side."""
    return [
        theirs if ours.rpartition(".")[2].isdigit() else ours
        for (ours, _), (theirs, _) in zip(named(output), named(reference))
    ]


def shape(leaf: Any) -> tuple[int, ...]:
    """Return the shape of a tensor or array; that of a number is empty."""
    return tuple(getattr(leaf, "shape", ()))


def dtype_of(leaf: Any) -> str:
    """Return the data type of a tensor, array or number as kernel.toml writes it."""
    return str(getattr(leaf, "dtype", "float64")).replace("torch.", "")


def tolerance_of(name: str, leaf: Any, tolerances: Tolerances, declared: Any) -> float:
    """Return the tolerance of an output.

    It follows the type that the case declares, so that less precise results need a tolerance of their own. The type of
    the output counts if the case declares none that has a tolerance, and for integers and booleans.
    """
    own = {**DEFAULT_TOLERANCE, **tolerances, **tolerances.get("outputs", {}).get(name, {})}
    kind, wanted = dtype_of(leaf), str(declared).replace("torch.", "")
    inexact = kind.startswith(("float", "bfloat", "complex"))
    return float(own.get(wanted, own.get(kind, 0.0)) if inexact else own.get(kind, 0.0))


def compare(output: Any, reference: Any, tolerances: Tolerances, declared: Any) -> list[Difference]:
    """Compare each output with its reference; Wrong where names, nesting or shapes differ."""
    outputs, references = leaves(output), leaves(reference)
    if len(outputs) != len(references):
        raise Wrong("wrong-output", f"{len(outputs)} outputs, the reference has {len(references)}")
    if structure(output) != structure(reference):
        raise Wrong("wrong-output", "the outputs are not nested and named like those of the reference")
    names = names_of(output, reference)
    if unknown := sorted(set(tolerances.get("outputs", {})) - set(names)):
        known = ", ".join(f"`{name}`" for name in names)
        raise Wrong("raised", f"tolerance.outputs.{unknown[0]} in kernel.toml: the outputs are {known}")
    found = []
    for name, out, ref in zip(names, outputs, references):
        place = "" if name == WHOLE else f"`{name}`: "
        if not hasattr(out, "shape") and not isinstance(out, (bool, int, float, complex)):
            what = "None" if out is None else f"a {type(out).__name__}"
            raise Wrong("wrong-output", f"{place}the output is {what}, not a tensor, an array or a number")
        if shape(out) != shape(ref):
            raise Wrong("wrong-output", f"{place}shape {shape(out)}, the reference has {shape(ref)}")
        found.append(difference(name, out, ref, tolerance_of(name, out, tolerances, declared)))
    return found


def worst_of(differences: list[Difference]) -> Difference | None:
    """Return the one that is largest relative to its tolerance; None without outputs."""
    wrong = [found for found in differences if found.is_wrong]
    return max(wrong or differences, key=lambda found: found.error / (found.tolerance + TINY), default=None)


def wrong_sentence(differences: list[Difference]) -> str:
    """Return what is wrong with the outputs, or an empty text."""
    wrong = [found for found in differences if found.is_wrong]
    if not wrong:
        return ""
    worst = worst_of(differences)
    others = ", ".join(f"`{found.name}`" for found in wrong if found is not worst)
    return f"largest error against the reference is {worst}" + (f"; also wrong: {others}" if others else "")


def difference(name: str, out: Any, ref: Any, tolerance: float) -> Difference:
    """Compare one output in double precision; NaN and infinity give an error of NaN or infinity."""
    error, out, ref = errors(out, ref)
    if 0 in shape(ref):
        return Difference(name, 0.0, tolerance, (), None, None, 0, 0)
    if not hasattr(error, "reshape"):
        return Difference(name, float(error), tolerance, (), out, ref, int(not error <= tolerance), 1)
    flat = error.reshape(-1)
    at = int(flat.argmax())  # NaN counts as the largest
    wrong = int((~(flat <= tolerance)).sum())
    value, expected = (x.reshape(-1)[at].item() if shape(x) else x for x in (out, ref))
    index: list[int] = []
    rest = at
    for size in reversed(shape(ref)):
        index.append(rest % size)
        rest //= size
    return Difference(name, float(flat[at]), tolerance, tuple(reversed(index)), value, expected, wrong, len(flat))


def errors(out: Any, ref: Any) -> tuple[Any, Any, Any]:
    """Return |out - ref| / (|ref| + rms(ref)) of each element, and both sides in double precision."""
    if hasattr(ref, "detach"):
        import torch

        wide = torch.complex128 if ref.is_complex() or out.is_complex() else torch.float64
        ref = ref.detach().to(wide)
        out = out.detach().to(device=ref.device, dtype=wide)
    elif hasattr(ref, "astype"):
        # In a narrow type the squares below overflow, and an error divided by infinity is 0.
        name = "complex128" if "c" in (ref.dtype.kind, getattr(out, "dtype", ref.dtype).kind) else "float64"
        ref = ref.astype(name)
        out = out.astype(name) if hasattr(out, "astype") else out
    size, error = abs(ref), abs(out - ref)
    if hasattr(size, "mean") and 0 not in shape(ref):
        size = size + (size * size).mean() ** 0.5
    return error / (size + TINY), out, ref
