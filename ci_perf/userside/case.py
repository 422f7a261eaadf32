"""A kernel.py with its inputs, ready to be launched; checks of what its functions return."""

from __future__ import annotations

import copy
import gc
import importlib.util
import math
import os
import random
import re
import sys
from typing import Any

from ci_perf.userside.memory import allocated_bytes
from ci_perf.userside.package import take_effect, why_foreign
from ci_perf.userside.stages import stage

Request = dict[str, Any]
Answer = dict[str, Any]


class Wrong(Exception):
    """The kernel's output or its entry file is wrong; `code` is the reason code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


_OUT_OF_MEMORY = re.compile(r"out of memory|_ALLOC_FAILED")
"""In the messages of CUDA and its libraries."""
_DEVICE_TAKEN = re.compile(r"device\(s\) is/are busy or unavailable")
"""cudaErrorDevicesUnavailable: in an exclusive compute mode, another process uses the GPU."""


def code_of(error: BaseException) -> str:
    """Return the reason code of an exception that a kernel raised."""
    if isinstance(error, Wrong):
        return error.code
    if isinstance(error, SystemExit):
        return "exited"
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__ or _OUT_OF_MEMORY.search(str(error)):
        return "out-of-memory"
    return "device-taken" if _DEVICE_TAKEN.search(str(error)) else "raised"


_ENTRIES: dict[str, Any] = {}
"""The modules of the kernel.py files that were imported, by path."""


def load_entry(request: Request) -> Any:
    """Import the entry of a request once; its folder is importable while it loads."""
    path, uses = request["entry"], request.get("uses", {})
    take_effect(uses)
    if path not in _ENTRIES:
        spec = importlib.util.spec_from_file_location(f"ci_perf_entry_{len(_ENTRIES)}", path)
        folder = os.path.dirname(path)
        sys.path.insert(0, folder)
        try:
            module = run_module(spec)
        finally:
            if folder in sys.path:  # its first occurrence: the kernel may have put its own folders before
                sys.path.remove(folder)
        for name in ("make_inputs", "reference"):
            if not callable(getattr(module, name, None)):
                raise Wrong("raised", f"{os.path.basename(path)} defines no function `{name}`")
        if foreign := why_foreign(uses):
            raise Wrong("other-package", foreign)
        _ENTRIES[path] = module
    return _ENTRIES[path]


def run_module(spec: Any) -> Any:
    """Execute the file that an import spec names and return its module."""
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def torch_or_none() -> Any:
    """Return torch where this interpreter has it."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    return torch


def leave_cores_free() -> None:
    """Let torch use half of the cores: threads that wait for a core would measure the scheduler."""
    torch = torch_or_none()
    if torch is not None:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 2))


def generator(seed: int, device: str = "cpu") -> Any:
    """Return the random generator for make_inputs, on `device` if torch is installed."""
    torch = torch_or_none()
    return random.Random(seed) if torch is None else torch.Generator(device).manual_seed(seed)


class Case:
    """A kernel with its inputs, ready to be launched."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.device = request["device"]
        if self.device == "cpu":
            leave_cores_free()
        with stage("import"):
            self.module = load_entry(request)
        if not callable(getattr(self.module, request["target"], None)):
            file = os.path.basename(request["entry"])
            raise Wrong("raised", f"{file} defines no function `{request['target']}`")
        self.function = getattr(self.module, request["target"])
        self.prepares = request["target"] == "launch" and callable(getattr(self.module, "prepare", None))
        self.prepared: Any = None
        self.saved: list[tuple[Any, Any]] = []
        """Inputs that a launch changes and reads, with copies from before: restored before each timed launch."""
        with stage("context"):
            self.synchronize()
        with stage("inputs"):
            before = allocated_bytes(self.device)
            self.inputs = self.fresh_inputs()
            self.synchronize()
            self.inputs_bytes = allocated_bytes(self.device) - before
            """The device memory that its inputs hold, in bytes."""

    def fresh_inputs(self) -> Any:
        """Make the inputs again; with the same seed they have the same values."""
        place = self.device if self.request.get("rng") == "device" else "cpu"
        rng = generator(self.request.get("seed", 0), place)
        params = self.request["params"]
        try:
            return self.module.make_inputs(rng, self.device, **params)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise  # from within the function
            message = f"{error}; kernel.toml gives the case the parameters {', '.join(params) or '(none)'}"
            raise Wrong("raised", message) from None

    def with_copied_inputs(self) -> Case:
        """Return the same case on a copy of its inputs; views of one tensor stay views of one tensor."""
        other = copy.copy(self)
        try:
            other.inputs = copy.deepcopy(self.inputs)
        except Exception:  # torch does not copy a tensor with a gradient history
            other.inputs = self.fresh_inputs()
        return other

    def prepare(self) -> None:
        """Run `prepare` of the entry, which makes what `launch` gets from the inputs: a forward pass, say."""
        if self.prepares:
            self.prepared = self.module.prepare(self.inputs)

    @property
    def arguments(self) -> Any:
        """What `launch` gets."""
        return self.prepared if self.prepares else self.inputs

    def launch(self) -> Any:
        return self.function(self.prepared if self.prepares else self.inputs)

    def synchronize(self) -> None:
        """Wait for the GPU, so that an error is raised in the case that caused it."""
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()

    def cost(self) -> Any:
        """Return the result of `cost()` of the entry, or None."""
        function = getattr(self.module, "cost", None)
        return checked_cost(function(**self.request["params"])) if callable(function) else None


def checked_cost(cost: Any) -> Any:
    """Return the result of `cost()` as plain numbers; raise Wrong where it is invalid."""
    if cost is None:
        return None
    if not isinstance(cost, dict) or not {"flop", "bytes"} <= cost.keys() <= {"flop", "bytes", "dtype"}:
        raise Wrong("raised", f"cost() returned {cost!r:.80}, not a dictionary of `flop`, `bytes` and perhaps `dtype`")
    checked = {"flop": cost["flop"], "bytes": cost["bytes"], "dtype": cost.get("dtype")}
    for name in ("flop", "bytes"):
        value = cost[name]
        if isinstance(value, str) or not 0 <= float(value) < math.inf:
            raise Wrong("raised", f"cost(): `{name}` is {value!r:.80}, not a finite number from 0 up")
        checked[name] = float(value)
    if not isinstance(checked["dtype"], (str, type(None))):
        raise Wrong("raised", f"cost(): `dtype` is {checked['dtype']!r:.80}, not the name of a type")
    return checked


def release_memory() -> None:
    """Free the GPU memory of the previous case."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
