"""What NVIDIA's own library says of a chip's counters, without a GPU and without a driver.

The library comes in the wheel of ncu-report. Each of its functions takes one structure, which begins with its own
size and a null pointer; nvperf_host.h and nvperf_cuda_host.h, in the wheel of nvidia-cuda-cupti, have their layouts.
"""

import ctypes
import importlib.util
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

PROFILER = 1
"""NVPA_ACTIVITY_KIND_PROFILER"""


class EvalRequest(ctypes.Structure):
    _fields_ = (
        ("metric", ctypes.c_size_t),
        ("type", ctypes.c_uint8),
        ("rollup", ctypes.c_uint8),
        ("submetric", ctypes.c_uint16),
    )


class RawRequest(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("private", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("isolated", ctypes.c_uint8),
        ("instances", ctypes.c_uint8),
    )


_EVAL_SIZE, _RAW_SIZE = EvalRequest.submetric.offset + 2, RawRequest.instances.offset + 1


def find_library() -> Path | None:
    """Return NVIDIA's library, where the wheel that has it is installed."""
    spec = importlib.util.find_spec("ncu_report")
    library = Path(spec.origin or "").parent / "libnvperf_host.so" if spec else Path()
    return library if library.is_file() else None


class Chip:
    """The counters of one chip."""

    def __init__(self, name: str, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._name = name.encode()
        self._call("NVPW_InitializeHost")
        sized = self._call(
            "NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize", self._name, None, out=ctypes.c_size_t
        )
        self._scratch = ctypes.create_string_buffer(sized)
        self._evaluator = self._call(
            "NVPW_CUDA_MetricsEvaluator_Initialize",
            *(ctypes.cast(self._scratch, ctypes.c_void_p), ctypes.c_size_t(sized), self._name, None, None),
            ctypes.c_size_t(0),
            out=ctypes.c_void_p,
        )

    def has(self, metric: str) -> bool:
        """Say whether the chip has a counter of this name."""
        return self._request(metric) is not None

    def passes(self, metrics: Iterable[str]) -> int:
        """Return how often a kernel must run for all of these to be counted."""
        names = dict.fromkeys(name for metric in metrics for name in self._dependencies(metric))
        config = self._call(
            "NVPW_CUDA_RawMetricsConfig_Create_V2", ctypes.c_int(PROFILER), self._name, None, out=ctypes.c_void_p
        )
        self._call("NVPW_RawMetricsConfig_BeginPassGroup", config, ctypes.c_size_t(0))
        requests = (RawRequest * len(names))(*(RawRequest(_RAW_SIZE, None, name, 1, 0) for name in names))
        self._call("NVPW_RawMetricsConfig_AddMetrics", config, requests, ctypes.c_size_t(len(names)))
        self._call("NVPW_RawMetricsConfig_EndPassGroup", config)
        count: int = self._call("NVPW_RawMetricsConfig_GetNumPasses_V2", config, out=ctypes.c_size_t)
        self._call("NVPW_RawMetricsConfig_Destroy", config)
        return count

    def _request(self, metric: str) -> EvalRequest | None:
        request = EvalRequest()
        status = self._status(
            "NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest",
            *(self._evaluator, metric.encode(), ctypes.pointer(request), ctypes.c_size_t(_EVAL_SIZE)),
        )[0]
        return None if status else request

    def _dependencies(self, metric: str) -> Sequence[bytes]:
        request = self._request(metric)
        assert request is not None, f"{self._name.decode()} has no {metric}"
        names = (ctypes.c_char_p * 512)()
        size = ctypes.c_size_t
        known = (self._evaluator, ctypes.pointer(request), size(1), size(_EVAL_SIZE), size(ctypes.sizeof(EvalRequest)))
        status, params = self._status(
            "NVPW_MetricsEvaluator_GetMetricRawDependencies", *known, names, size(512), None, size(0)
        )
        assert not status, status
        return [name for name in names[: params.f6] if name]

    def _call(self, function: str, *values: Any, out: type | None = None) -> Any:
        status, params = self._status(function, *values, *([out()] if out else []))
        assert not status, f"{function}: status {status}"
        return getattr(params, f"f{len(values)}") if out else None

    def _status(self, function: str, *values: Any) -> tuple[int, Any]:
        """Call a function with a structure of these fields; an address is a pointer's type."""
        kinds = [_kind(value) for value in values]

        class Params(ctypes.Structure):
            _fields_ = (
                ("size", ctypes.c_size_t),
                ("private", ctypes.c_void_p),
                *((f"f{place}", kind) for place, kind in enumerate(kinds)),
            )

        plain = [
            ctypes.cast(v, ctypes.c_void_p) if k is ctypes.c_void_p and v else v
            for k, v in zip(kinds, values, strict=True)
        ]
        params = Params(ctypes.sizeof(Params), None, *plain)
        return getattr(self._library, function)(ctypes.byref(params)), params


def _kind(value: Any) -> type:
    if isinstance(value, bytes):
        return ctypes.c_char_p
    return type(value) if isinstance(value, ctypes.c_size_t | ctypes.c_int) else ctypes.c_void_p
