"""The `reference` of a kernel.py as source, and the tolerance of its outputs. Pure."""

from collections.abc import Iterable

TOLERANCES = {"float64": "1e-10", "float32": "1e-5", "float16": "1e-2", "bfloat16": "2e-2"}
OF_SUMS = {**TOLERANCES, "float32": "2e-3"}
"""Where each element is a sum over many: products of TensorFloat-32, with 10 bits, must pass."""
EPS = "1e-05"
"""The value of `eps` in a formula where the kernel names none."""


def reference_of(formula: str, used: Iterable[tuple[str, bool]]) -> str:
    """Return a reference that computes a formula in float64; `used` are the inputs, and whether each is a tensor.

    >>> reference_of("a * x", [("a", False), ("x", True)]).splitlines()[2:]
    ['    a = inputs["a"]', '    x = inputs["x"].double()', '    return a * x']
    """
    lines = [f'    {name} = inputs["{name}"]{".double()" if is_tensor else ""}' for name, is_tensor in used]
    head = ["def reference(inputs):", '    """Return the result of torch in float64."""']
    return "\n".join([*head, *lines, f"    return {formula}"])


def open_reference(name: str) -> str:
    """Return the reference of a kernel that a person has to write."""
    return f'''def reference(inputs):
    # TODO: return what {name} must return, in float64 and by the simplest method; for example of a softmax:
    # return torch.softmax(inputs["x"].double(), dim=-1)
    raise NotImplementedError("{name} has no reference yet")'''
