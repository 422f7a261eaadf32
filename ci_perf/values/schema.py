"""The JSON Schemas of kernel.toml, runs, baselines, plans, audits, merges; their versions; errors that name the key.

Each kind of file has its own version MAJOR.MINOR. A new key makes a new minor version: an older ci-perf ignores the
key and writes it again, except in kernel.toml, where it refuses each unknown key. What an older ci-perf would misread
makes a new major version, which it refuses.
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any

import jsonschema
from jsonschema.exceptions import ValidationError, best_match

from ci_perf import __version__
from ci_perf.values.errors import CiPerfError, ConfigError, did_you_mean

VERSIONS: Mapping[str, tuple[int, int]] = {
    "run": (1, 0),
    "baseline": (1, 0),
    "plan": (1, 0),
    "audit": (1, 0),
    "merged": (1, 0),
    "kernel": (1, 0),
}
"""The version of each kind of file that this ci-perf writes, as (major, minor)."""
_PREFIXES = {"audit": "ci-perf/audit-"}
_ID = re.compile(r"(?:urn:ci-perf:|ci-perf/)(\w+)[:-](\d{1,9})(?:\.(\d{1,9}))?")


def schema_id(kind: str) -> str:
    """Return the value of the key `schema` of a file; minor version 0 is left out.

    >>> schema_id("run"), schema_id("audit")
    ('urn:ci-perf:run:1', 'ci-perf/audit-1')
    """
    major, minor = VERSIONS[kind]
    return _PREFIXES.get(kind, f"urn:ci-perf:{kind}:") + (f"{major}.{minor}" if minor else f"{major}")


def check_version(document: object, kind: str, source: str, error: type[CiPerfError] = ConfigError) -> bool:
    """Raise `error` unless the file is of this kind and of a known major version; return whether its minor is newer."""
    found: object = document.get("schema") if isinstance(document, Mapping) else None
    match = _ID.fullmatch(str(found))
    if match is None:
        raise error(f"{source}: key `schema`: {found!r} is not a ci-perf schema", hint=f"expected a {kind} file")
    if match[1] != kind:
        raise error(f"{source}: this is a {match[1]} file, expected a {kind} file")
    major, minor = VERSIONS[kind]
    if int(match[2]) > major:
        raise error(
            f"{source}: key `schema`: format {match[2]} of the {kind} file; ci-perf {__version__} reads format {major}",
            hint="a newer ci-perf wrote the file: upgrade ci-perf",
        )
    return (int(match[2]), int(match[3] or 0)) > (major, minor)


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    """Return the validator of a packaged schema: `kernel`, `run`, `baseline`, `plan`, `audit` or `report`."""
    text = resources.files("ci_perf.schemas").joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    return jsonschema.Draft202012Validator(json.loads(text))


def check(document: object, name: str, source: str, error: type[CiPerfError] = ConfigError) -> None:
    """Raise `error` with the file, the key and what is wrong there, unless `document` fits the schema `name`."""
    found = best_match(validator(name).iter_errors(document))
    if found is not None:
        raise error(f"{source}: {_sentence(found)}", hint=_hint(found))


def key_path(keys: Iterable[str | int]) -> str:
    """Write the path to a value as in TOML.

    >>> key_path(["cases", "s512", "seq", 0])
    'cases.s512.seq[0]'
    """
    return "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in keys).lstrip(".")


def _sentence(found: ValidationError) -> str:
    path = key_path(found.absolute_path)
    where = f"key `{path}`: " if path else ""
    match found.validator:
        case "additionalProperties":
            return where + "unknown key " + ", ".join(f"`{key}`" for key in _unknown(found))
        case "required":
            return where + found.message.replace("'", "`").replace("is a required property", "is missing but required")
        case "pattern":
            return where + f"{found.instance!r} does not have the expected form"
        case "type":
            expected = found.validator_value
            types = " or ".join(expected) if isinstance(expected, list) else expected
            return where + f"{found.instance!r} is not of type {types}"
        case _:
            return where + found.message


def _unknown(found: ValidationError) -> list[str]:
    instance = found.instance if isinstance(found.instance, dict) else {}
    return [key for key in instance if key not in _known(found)]


def _known(found: ValidationError) -> list[str]:
    return sorted(_schema(found).get("properties", {}))


def _schema(found: ValidationError) -> Mapping[str, Any]:
    return found.schema if isinstance(found.schema, dict) else {}


def _hint(found: ValidationError) -> str:
    if found.validator == "additionalProperties":
        known = _known(found)
        return did_you_mean(_unknown(found)[0], known) or "known keys: " + ", ".join(known)
    return str(_schema(found).get("description", ""))
