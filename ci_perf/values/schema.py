"""The JSON Schemas of kernel.toml, runs, baselines, plans and audits, and errors that name the file and the key."""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources

import jsonschema
from jsonschema.exceptions import ValidationError, best_match
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from ci_perf.values.errors import CiPerfError, ConfigError


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    """Return the validator of one of the packaged schemas: `kernel`, `run`, `baseline`, `plan` or `audit`."""
    schema = _read(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    # Schemas refer to what others define by their `$id`; nothing is looked up on the network.
    known = [DRAFT202012.create_resource(_read(other)) for other in ("baseline", "run")]
    return jsonschema.Draft202012Validator(schema, registry=known @ Registry())


def _read(name: str) -> dict[str, object]:
    text = resources.files("ci_perf.schemas").joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    document: dict[str, object] = json.loads(text)
    return document


def check(document: object, name: str, source: str, error: type[CiPerfError] = ConfigError) -> None:
    """Raise `error` with the file, the key and what is wrong there, unless `document` fits the schema `name`."""
    found = best_match(validator(name).iter_errors(document))
    if found is not None:
        raise error(f"{source}: {_sentence(found)}", hint=_hint(found))


def key_path(keys: Iterable[str | int]) -> str:
    """Write the way to a value as in TOML.

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
            return where + f"{found.instance!r} is not of the form that is expected"
        case "type":
            return where + f"{found.instance!r} is not of type {_types(found.validator_value)}"
        case _:
            return where + found.message


def _unknown(found: ValidationError) -> Sequence[str]:
    instance = found.instance if isinstance(found.instance, dict) else {}
    known = found.schema.get("properties", {}) if isinstance(found.schema, dict) else {}
    return [key for key in instance if key not in known]


def _types(expected: object) -> str:
    return " or ".join(expected) if isinstance(expected, list) else str(expected)


def _hint(found: ValidationError) -> str:
    schema = found.schema if isinstance(found.schema, dict) else {}
    if found.validator == "additionalProperties":
        return "known keys: " + ", ".join(sorted(schema.get("properties", {})))
    return str(schema.get("description", ""))
