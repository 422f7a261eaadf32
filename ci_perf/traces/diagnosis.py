"""Recognises what went wrong in a profiler from its printed output."""

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A known failure: `code` for programs, one sentence and what to do for people."""

    code: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Symptom:
    """A pattern of a profiler's output and the failure it stands for.

    `message` is a format: `{0}` is what the pattern matched, `{1}` its first group.
    """

    code: str
    pattern: str
    message: str
    hint: str


def match(symptoms: Iterable[Symptom], text: str) -> Diagnosis | None:
    """Return the failure of the first of `symptoms` that `text` shows, so put causes before their consequences."""
    for symptom in symptoms:
        if found := re.search(symptom.pattern, text, re.IGNORECASE | re.MULTILINE):
            message = symptom.message.format(found[0].strip(), *(group or "" for group in found.groups()))
            return Diagnosis(symptom.code, message, symptom.hint)
    return None
