"""The operations of the worker: a request in, an answer out."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import platform
from typing import Any, Callable

from ci_perf.userside.case import Answer, Request, Wrong, code_of, torch_or_none
from ci_perf.userside.error_line import kernels_traceback
from ci_perf.userside.first_launch import compile_case
from ci_perf.userside.profiling import profile, sanitize, trace
from ci_perf.userside.stages import take_spent
from ci_perf.userside.stopwatch import alike, check, measure, ready, turn
from ci_perf.userside.verify import verify


def hello(request: Request) -> Answer:
    """Describe this interpreter and, unless `cuda` is false, the first GPU that it sees."""
    torch = torch_or_none()
    answer: Answer = {"python": platform.python_version(), "torch": None, "cuda": None, "gpu": None, "packages": {}}
    for name in ("triton", "cuda-core", "cuda-bindings", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            answer["packages"][name] = importlib.metadata.version(name)
    if torch is None:
        return answer
    answer["torch"] = torch.__version__
    answer["cuda"] = torch.version.cuda
    if request.get("cuda", True) and torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(0)
        answer["gpu"] = {
            "name": gpu.name,
            "uuid": str(getattr(gpu, "uuid", "")),
            "compute_capability": f"{gpu.major}.{gpu.minor}",
            "sm_count": gpu.multi_processor_count,
            "memory_bytes": gpu.total_memory,
            "l2_bytes": getattr(gpu, "L2_cache_size", None),
        }
    return answer


OPERATIONS: dict[str, Callable[[Request], Answer]] = {
    "hello": hello,
    "ready": ready,
    "alike": alike,
    "turn": turn,
    "check": check,
    "compile-case": compile_case,
    "verify": verify,
    "time": measure,
    "profile": profile,
    "sanitize": sanitize,
    "trace": trace,
}


def answer_all(requests: Any, answers: Any) -> None:
    """Answer each line of `requests` in this process."""
    for line in requests:
        reply(answers, json.dumps(answer_to(line)) + "\n")


def reply(answers: Any, line: str) -> None:
    """Write the line of one answer, and flush it."""
    answers.write(line)
    answers.flush()


def answer_to(line: str) -> Answer:
    """Perform a request; whatever a kernel raises becomes an answer."""
    try:
        request = json.loads(line)
        answer = OPERATIONS[request["op"]](request)
        return {"ok": True, "spent": take_spent(), **answer}
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a SystemExit of a kernel must not end the process without an answer
        return {
            "ok": False,
            "spent": take_spent(),
            "code": code_of(error),
            "message": encodable(message_of(error)),
            "detail": encodable(kernels_traceback(error)),
        }


def message_of(error: BaseException) -> str:
    """Return one line that names the exception."""
    first = (str(error).strip().split("\n") or [""])[0]
    if isinstance(error, Wrong):
        return first
    if isinstance(error, SystemExit):
        return f"the kernel called exit({first})"
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def encodable(text: str) -> str:
    """Replace lone surrogates, as of a file name that is not UTF-8, which cannot be written to a file."""
    return text.encode("utf-8", "replace").decode("utf-8")
