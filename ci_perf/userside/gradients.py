"""The expected gradients of a kernel.py that names them: those of its reference, by autograd in double precision."""

from __future__ import annotations

import collections
import copy
import dataclasses
from typing import Any

from ci_perf.userside.case import Case, Wrong
from ci_perf.userside.outputs import leaves, parts_of

UPSTREAM = "dy"
"""The name of the input that is the gradient of the output of `reference`."""


def expected(case: Case) -> Any:
    """Return the result of `reference`; with `gradients = {"dx": "x"}` in kernel.py, its gradients by these names."""
    wanted = getattr(case.module, "gradients", None)
    if wanted is None:
        return case.module.reference(case.inputs)
    if not isinstance(wanted, dict) or not all(isinstance(x, str) for pair in wanted.items() for x in pair):
        raise Wrong("raised", f"gradients is {wanted!r:.80}, not a dictionary from names of outputs to names of inputs")
    import torch

    inputs = dict(parts_of(case.inputs) or ())
    for name in (UPSTREAM, *wanted.values()):
        if name not in inputs:
            known = ", ".join(f"`{known}`" for known in inputs)
            raise Wrong("raised", f"gradients: make_inputs returns no `{name}`, but {known or 'a single tensor'}")
    sources = {name: inputs[name].detach().double().requires_grad_() for name in wanted.values()}
    outputs, upstream = leaves(case.module.reference(replaced(case.inputs, sources))), leaves(inputs[UPSTREAM])
    if len(outputs) != len(upstream):
        raise Wrong("raised", f"gradients: reference has {len(outputs)} outputs, but `{UPSTREAM}` has {len(upstream)}")
    steps = [dy.to(out) for dy, out in zip(upstream, outputs)]
    found = torch.autograd.grad(outputs, list(sources.values()), steps)
    by_source = dict(zip(sources, found))
    return {name: by_source[source] for name, source in wanted.items()}


def replaced(inputs: Any, new: dict[str, Any]) -> Any:
    """Return a copy of named inputs with other values for some of them."""
    if hasattr(inputs, "_replace"):
        return inputs._replace(**new)
    if dataclasses.is_dataclass(inputs) and not isinstance(inputs, type):
        return dataclasses.replace(inputs, **new)
    if not isinstance(inputs, dict):
        raise Wrong("raised", "gradients: make_inputs must return a dictionary, namedtuple or dataclass")
    other = copy.copy(inputs)
    other.update(new)
    return other


def as_output(reference: Any, output: Any, case: Case) -> Any:
    """Return expected gradients in the form of the output: a tuple holds them in the order of `gradients`."""
    if getattr(case.module, "gradients", None) is None or not isinstance(output, (tuple, list)):
        return reference
    names = [name for name in getattr(output, "_fields", reference) if name in reference]
    return collections.namedtuple("Gradients", names)(*(reference[name] for name in names))
