"""Compiles the cases of a kernel in several processes at once, beside the process that answers other requests."""

from __future__ import annotations

import json
import select
import time
from collections.abc import Iterator
from typing import Any, Callable

from ci_perf.userside.answers import reply
from ci_perf.userside.case import Answer, Request
from ci_perf.userside.processes import Fork
from ci_perf.userside.stages import take_spent

NOTHING: Answer = {"ok": True, "tuned": False, "begun": 0, "cases": {}}
"""The answer of processes that cannot fork: they compile nothing ahead."""


class CompilePool:
    """What a template compiles ahead: `begin` returns at once, `wait` when a case is done, or all are."""

    def __init__(self, *, tuned: bool) -> None:
        """`tuned` says whether the entry has kernels that are tuned."""
        self._tuned = tuned
        self._manager: Fork | None = None
        self._done: dict[str, Answer] = {}
        """The answers that were not asked for yet, by the number of the case."""
        self._seen: set[str] = set()

    def beside(self, line: str) -> str | None:
        """Answer `compile` and `compiled`; None for any other request."""
        request = json.loads(line)
        if request["op"] not in ("compile", "compiled"):
            return None
        return json.dumps(self.begin(request) if request["op"] == "compile" else self.wait(request)) + "\n"

    def begin(self, request: Request) -> Answer:
        """Start to compile the `cases` of a request; say how many, and whether kernels are tuned.

        With `but_first`, the first case is left out unless they are: the caller launches it at the same time.
        """
        self.wait({})
        self._done, self._seen = {}, set()
        first = 1 if request.get("but_first") and not self._tuned else 0
        begun = len(request["cases"]) - first
        if begun > 0:
            self._manager = Fork(serve_pool)
            self._manager.send(json.dumps({**request, "first": first}) + "\n")
        return {"ok": True, "tuned": self._tuned, "begun": begun}

    def wait(self, request: Request) -> Answer:
        """Wait until the case with the number `case` is done, or all are, and their processes have ended.

        The answer has that of each case that was done since the last one. With `give_up` no further case is begun.
        """
        if self._manager is not None and request.get("give_up"):
            self._manager.close_requests()
        while self._manager is not None and str(request.get("case")) not in self._seen:
            answer = json.loads(self._manager.receive())
            if "case" in answer:
                self._done[str(answer["case"])] = answer
                self._seen.add(str(answer["case"]))
            else:
                self._manager.release()
                self._manager = None
        done, self._done = self._done, {}
        return {"ok": True, "cases": done}


def serve_pool(requests: Any, answers: Any) -> None:
    """Answer one request with a line for each case when it is done, and a last line.

    At the end of `requests` no further case is begun.
    """
    take_spent()  # the time of the import is that of another process
    request = json.loads(requests.readline())
    for number, answer in compile_cases(request, requests, Fork):
        reply(answers, json.dumps({**answer, "case": number}) + "\n")
    reply(answers, '{"ok": true}\n')


def compile_cases(request: Request, requests: Any, start: Callable[[], Fork]) -> Iterator[tuple[int, Answer]]:
    """Yield number and answer of each of the `cases`, from at most `processes` processes that `start` returns.

    No further case is begun at the end of `requests`, nor after a case has exceeded the time limit `timeout_s`; that
    one has no answer.
    """
    waiting = list(range(request["first"], len(request["cases"])))
    busy: dict[Fork, tuple[int, float]] = {}
    idle: list[Fork] = []
    while waiting or busy:
        while waiting and len(busy) < request["processes"]:
            process = idle.pop() if idle else start()
            busy[process] = waiting.pop(0), time.monotonic() + request["timeout_s"]
            process.send(json.dumps(_one_case(request, busy[process][0])) + "\n")
        answered, _, _ = select.select([*busy, *([requests] if waiting else [])], [], [], _left(busy))
        if requests in answered:
            waiting.clear()
        for process in [process for process in busy if process in answered]:
            number, _ = busy.pop(process)
            answer = json.loads(process.receive())
            if answer["ok"]:
                idle.append(process)
            else:  # its context on the GPU may be unusable
                process.release()
            yield number, answer
        for process in [process for process, (_, deadline) in busy.items() if deadline <= time.monotonic()]:
            del busy[process]
            process.kill()
            waiting.clear()
    for process in idle:
        process.release()


def _one_case(request: Request, number: int) -> Request:
    shared = {name: value for name, value in request.items() if name != "cases"}
    return {**shared, **request["cases"][number], "op": "compile-case"}


def _left(busy: dict[Fork, tuple[int, float]]) -> float:
    """Return the seconds until the next time limit."""
    return max(0.0, min(deadline for _, deadline in busy.values()) - time.monotonic())
