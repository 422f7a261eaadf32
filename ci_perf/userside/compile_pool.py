"""Compiles the cases of a kernel in several processes at once, beside the process that answers other requests."""

from __future__ import annotations

import json
import select
import time
from typing import Any, Callable

from ci_perf.userside.answers import reply
from ci_perf.userside.case import Answer, Request
from ci_perf.userside.processes import Fork
from ci_perf.userside.stages import take_spent

NOTHING: Answer = {"ok": True, "tuned": False, "begun": 0, "cases": []}
"""The answer of processes that cannot fork: they compile nothing ahead."""


class CompilePool:
    """What a template compiles ahead: `begin` returns at once, `end` waits."""

    def __init__(self, *, tuned: bool) -> None:
        """`tuned` says whether the entry has kernels that are tuned."""
        self._tuned = tuned
        self._manager: Fork | None = None

    def beside(self, line: str) -> str | None:
        """Answer `compile` and `compiled`; None for any other request."""
        request = json.loads(line)
        if request["op"] not in ("compile", "compiled"):
            return None
        return json.dumps(self.begin(request) if request["op"] == "compile" else self.end()) + "\n"

    def begin(self, request: Request) -> Answer:
        """Start to compile the `cases` of a request; say how many, and whether kernels are tuned.

        With `but_first`, the first case is left out unless they are: the caller launches it at the same time.
        """
        self.end()
        cases = request["cases"][1 if request.get("but_first") and not self._tuned else 0 :]
        if cases:
            self._manager = Fork(serve_pool)
            self._manager.send(json.dumps({**request, "cases": cases}) + "\n")
        return {"ok": True, "tuned": self._tuned, "begun": len(cases)}

    def end(self) -> Answer:
        """Wait until all processes have ended, and return what each case took; the last answer for each case."""
        if self._manager is None:
            return NOTHING
        manager, self._manager = self._manager, None
        answer: Answer = json.loads(manager.receive())
        manager.release()
        return answer


def serve_pool(requests: Any, answers: Any) -> None:
    """Answer one request for several cases."""
    take_spent()  # the time of the import is that of another process
    for line in requests:
        request = json.loads(line)
        reply(answers, json.dumps({"ok": True, "cases": compile_cases(request, Fork)}) + "\n")


def compile_cases(request: Request, start: Callable[[], Fork]) -> list[Answer]:
    """Return the answer for each of the `cases`, from at most `processes` processes that `start` returns.

    No further case is begun after one has exceeded the time limit `timeout_s`: its answer is empty.
    """
    waiting = list(range(len(request["cases"])))
    found: list[Answer] = [{} for _ in waiting]
    busy: dict[Fork, tuple[int, float]] = {}
    idle: list[Fork] = []
    while waiting or busy:
        while waiting and len(busy) < request["processes"]:
            process = idle.pop() if idle else start()
            busy[process] = waiting.pop(0), time.monotonic() + request["timeout_s"]
            process.send(json.dumps(_one_case(request, busy[process][0])) + "\n")
        answered, _, _ = select.select(list(busy), [], [], _left(busy))
        for process in answered:
            number, _ = busy.pop(process)
            found[number] = json.loads(process.receive())
            if found[number]["ok"]:
                idle.append(process)
            else:  # its context on the GPU may be unusable
                process.release()
        for process in [process for process, (_, deadline) in busy.items() if deadline <= time.monotonic()]:
            del busy[process]
            process.kill()
            waiting.clear()
    for process in idle:
        process.release()
    return found


def _one_case(request: Request, number: int) -> Request:
    shared = {name: value for name, value in request.items() if name != "cases"}
    return {**shared, **request["cases"][number], "op": "compile-case"}


def _left(busy: dict[Fork, tuple[int, float]]) -> float:
    """Return the seconds until the next time limit."""
    return max(0.0, min(deadline for _, deadline in busy.values()) - time.monotonic())
