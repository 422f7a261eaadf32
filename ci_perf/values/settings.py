"""The table of settings: name, default, parser and meaning of each.

The flags, the keys of `ci-perf.toml` and `[tool.ci-perf]`, the variables `CI_PERF_<NAME>`, which the action sets, and
`--show-settings` are made from it. Precedence: flag, environment, kernel.toml (for its own kernel), file, default.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ci_perf.values.errors import ConfigError, did_you_mean
from ci_perf.values.kernel_toml import parse_fraction
from ci_perf.values.run import CAUSES, Policy

COMMENT_POLICIES = ("on-change", "always", "never")
DEVICES = ("auto", "cpu", "cuda")
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that a user can set."""

    name: str
    """Kebab-case: the flag is `--NAME`, the key NAME, the variable `CI_PERF_NAME`."""
    default: Any
    parse: Callable[[object, str], Any]
    """From text or a TOML value; the second argument says where it came from, for errors."""
    help: str
    metavar: str = "TEXT"
    command: str = "run"
    """The command that takes them all; `publish` has a few of its own."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The resolved values, and where each came from."""

    values: Mapping[str, Any]
    origins: Mapping[str, str]

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 # each setting has its own type
        return self.values[name]

    def chosen_by_user(self, name: str) -> bool:
        """Return whether a flag or the environment set it: then it overrides a kernel.toml."""
        return self.origins[name].startswith(("flag", "environment"))


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{where}: {value!r} is not text")
    return value


def _positive(value: object, where: str) -> float:
    try:
        number = float(str(value))
    except ValueError:
        raise ConfigError(f"{where}: {value!r} is not a number") from None
    if not 0 < number < 1e9:
        raise ConfigError(f"{where}: {value!r} is not a positive number")
    return number


def _count(value: object, where: str) -> int:
    number = _positive(value, where)
    if not number.is_integer():
        raise ConfigError(f"{where}: {value!r} is not a whole number")
    return int(number)


def _whole(value: object, where: str) -> int:
    if not str(value).isdecimal() or len(str(value)) > 18:
        raise ConfigError(f"{where}: {value!r} is not a whole number of at most 18 digits")
    return int(str(value))


def _optional(parse: Callable[[object, str], Any]) -> Callable[[object, str], Any]:
    """Return the parser of a value that may be empty: then it is None."""
    return lambda value, where: None if value in (None, "") else parse(value, where)


def _samples(value: object, where: str) -> int:
    number = _count(value, where)
    if number < 5:
        raise ConfigError(f"{where}: {number} samples are too few for a median", hint="write 5 or more")
    return number


def _flag(value: object, where: str) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if str(value).lower() not in words:
        raise ConfigError(f"{where}: {value!r} is neither true nor false")
    return words[str(value).lower()]


def _listed(value: object) -> tuple[str, ...]:
    parts = value if isinstance(value, list | tuple) else str(value).split(",")
    return tuple(str(part).strip() for part in parts if str(part).strip())


def _words(choices: Sequence[str]) -> Callable[[object, str], tuple[str, ...]]:
    choose = _choice(choices)
    return lambda value, where: tuple(choose(word, where) for word in _listed(value))


def _choice(choices: Sequence[str]) -> Callable[[object, str], str]:
    def parse(value: object, where: str) -> str:
        if value not in choices:
            hint = did_you_mean(str(value), choices, most=1)
            raise ConfigError(f"{where}: `{value}` is not one of {', '.join(choices)}", hint=hint)
        return str(value)

    return parse


def _names(value: object, where: str) -> tuple[str, ...]:
    names = _listed(value)
    for name in names:
        if not re.fullmatch(r"[A-Za-z_*?][A-Za-z0-9_*?]*", name):
            hint = "write NAME or a pattern like MY_*"
            raise ConfigError(f"{where}: `{name}` is not the name of a variable", hint=hint)
    return names


def _key(value: object, where: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_.][A-Za-z0-9_. -]{0,99}", value):
        raise ConfigError(f"{where}: {value!r} is not a name", hint="letters, digits, `_`, `.`, `-` and spaces")
    return value


_POLICY = Policy()
SETTINGS: tuple[Setting, ...] = (
    Setting("config", "", _text, "File of settings; default: ci-perf.toml, else [tool.ci-perf] of pyproject.", "FILE"),
    Setting("kernels-dir", "kernels", _text, "Folder that holds a folder for each kernel.", "DIR"),
    Setting("baselines", "baselines", _text, "Folder of the baselines.", "DIR"),
    Setting("output", "ci-perf-run", _text, "Folder that takes the run: run.json, report, profiles, logs.", "DIR"),
    Setting("device", ("auto",), _words(DEVICES), "auto, cpu, cuda, or cpu,cuda for both side by side.", "LIST"),
    Setting("python", "", _text, "Interpreter that the kernels run under; default: the one that has torch.", "PATH"),
    Setting(
        "profile",
        "auto",
        _choice(("auto", "none", "nsys", "ncu", "full")),
        "What to profile with: auto (nsys and ncu where they work), full (with ncu's full set), nsys, ncu, none.",
        "NAME",
    ),
    Setting(
        "pass-env",
        (),
        _names,
        "Variables, with wildcards, that kernels and profilers get beside the usual ones, secrets among them.",
        "LIST",
    ),
    Setting(
        "withhold-env",
        (),
        _names,
        "Variables, with wildcards, that are secret whatever they are called: kernels do not get them, and files with "
        "their values are withheld.",
        "LIST",
    ),
    Setting(
        "against",
        "",
        _text,
        "Measure a base in turns with this tree: a commit, a branch, merge-base:BRANCH, base (of the pull request or "
        "merge group), or auto (base where the event has one, else none).",
        "REF",
    ),
    Setting(
        "setup",
        "",
        _text,
        "Command that builds what the kernels import. It runs before all else; with --against it runs in each tree.",
        "COMMAND",
    ),
    Setting(
        "setup-env",
        (),
        _names,
        "Variables of this job or terminal, with wildcards, that the setup command gets too: GITHUB_SHA, for example.",
        "LIST",
    ),
    Setting(
        "keep-base",
        "auto",
        _choice(("auto", "always", "never")),
        "Whether the base that the setup command built serves later runs: always, never, or auto (not in a workflow, "
        "where one pull request could write into the tree that serves the next one).",
        "WHEN",
    ),
    Setting("base-python", "", _text, "Interpreter of the base; default: that of the head.", "PATH"),
    Setting(
        "processes", 6, _count, "Fresh processes that time each case before the first verdict; not with --against.", "N"
    ),
    Setting("samples", 30, _samples, "Samples in each process, 5 or more; not with --against.", "N"),
    Setting("timeout", 120.0, _positive, "Seconds that one case may take in one process.", "S"),
    Setting(
        "budget",
        None,
        _optional(_positive),
        "Seconds for the turns of all cases, the control not counted: what is undecided then stays INCONCLUSIVE.",
        "S",
    ),
    Setting("case-budget", None, _optional(_positive), "The same for each case.", "S"),
    Setting(
        "confirm",
        True,
        _flag,
        "Measure the cases that a baseline calls slower or faster in turns with the commit of the baseline: the turns "
        "decide. Not with --against.",
    ),
    Setting(
        "time-identical",
        False,
        _flag,
        "Time also the cases whose machine code, launch parameters and inputs are the same on both sides.",
    ),
    Setting(
        "wait",
        3600.0,
        _positive,
        "Seconds to wait for whatever keeps the GPU busy: another run or any program.",
        "S",
    ),
    Setting(
        "regression-threshold",
        _POLICY.regression,
        parse_fraction,
        "How much slower is a regression: 3% means head / base >= 1.03.",
        "PERCENT",
    ),
    Setting(
        "speedup-threshold",
        _POLICY.speedup,
        parse_fraction,
        "How much faster is a speedup: 10% means base / head >= 1.10.",
        "PERCENT",
    ),
    Setting(
        "fail-on",
        _POLICY.fail_on,
        _words(CAUSES),
        "What makes the exit status 1, of: " + ", ".join(CAUSES) + ".",
        "LIST",
    ),
    Setting("shard", "", _text, "Which shard of a plan this is; `merge --plan` goes by it.", "NAME"),
    Setting("among", 0, _whole, "How many cases the plan of this shard has: they share the error.", "N"),
    Setting("strict", False, _flag, "Fail on everything that fail-on can name.", "BOOL"),
    Setting(
        "compile-cache",
        "run",
        _choice(("run", "user")),
        "Where Triton and inductor keep compiled code: run (a folder of this run; base and head share it) or user "
        "(the user's own caches, kept from run to run).",
    ),
    Setting("all-cases", False, _flag, "On a CPU, run the cases that cpu_cases leaves out too.", "BOOL"),
    Setting(
        "plant-slowdown",
        None,
        _optional(parse_fraction),
        "Slow the kernels down by extra launches, to see that a gate works: 5% makes 21 launches of 20.",
        "PERCENT",
    ),
    Setting(
        "fuzz",
        None,
        _optional(_count),
        "Verify N random cases of each kernel with a [fuzz] table, in place of the usual run; nothing is timed.",
        "N",
    ),
    Setting("seed", 0, _whole, "Of the random cases: each seed gives others, always the same.", "N"),
    Setting(
        "sanitize",
        (),
        _words(SANITIZERS),
        "Run the small cases, or those named, under these tools of compute-sanitizer in place of the usual run: "
        + ", ".join(SANITIZERS)
        + ".",
        "LIST",
    ),
    Setting(
        "comment",
        "on-change",
        _choice(COMMENT_POLICIES),
        "When to comment on a pull request: on-change (from the first change on), always, never.",
        "WHEN",
        "publish",
    ),
    Setting(
        "comment-key", "default", _key, "Tells the comments of several runs on a pull request apart.", "KEY", "publish"
    ),
    Setting(
        "artifact-name",
        "ci-perf-run",
        _key,
        "Artifact that holds the run, for the command in the comment that fetches it.",
        "NAME",
        "publish",
    ),
    Setting(
        "cost-per-hour",
        None,
        _optional(_positive),
        "What an hour of the GPU costs, in any currency: the comment says what the run cost.",
        "PRICE",
        "publish",
    ),
)
BY_NAME: Mapping[str, Setting] = {setting.name: setting for setting in SETTINGS}


def resolve(sources: Sequence[tuple[str, Mapping[str, object]]]) -> Settings:
    """Read each setting from the first source that has it. Each source has a name; the first one overrides the others.

    >>> settings = resolve([("flag", {"samples": "7"}), ("ci-perf.toml", {"samples": 9, "processes": 3})])
    >>> settings["samples"], settings.origins["samples"], settings["processes"], settings.origins["timeout"]
    (7, 'flag --samples', 3, 'default')
    """
    for origin, found in sources:
        if unknown := [name for name in found if name not in BY_NAME]:
            name = unknown[0]
            hint = did_you_mean(name, BY_NAME, most=1) or "known: " + ", ".join(BY_NAME)
            raise ConfigError(f"{origin}: key `{name}`: there is no such setting", hint=hint)
    values = {setting.name: setting.default for setting in SETTINGS}
    origins = dict.fromkeys(values, "default")
    for origin, found in reversed(sources):
        for name in found:
            named = {"flag": f"flag --{name}", "environment": f"environment {variable(name)}"}
            origins[name] = named.get(origin, f"{origin}: key `{name}`")
        values |= found
    chosen = {name: origin for name, origin in origins.items() if origin != "default"}
    parsed = {name: BY_NAME[name].parse(values[name], origin) for name, origin in chosen.items()}
    return Settings(values | parsed, origins)


def variable(name: str) -> str:
    """Return the environment variable of a setting.

    >>> variable("fail-on")
    'CI_PERF_FAIL_ON'
    """
    return "CI_PERF_" + name.upper().replace("-", "_")


def policy_from(settings: Settings) -> Policy:
    """Return the rules of the verdict that the settings ask for."""
    return Policy(
        regression=settings["regression-threshold"],
        speedup=settings["speedup-threshold"],
        fail_on=CAUSES if settings["strict"] else settings["fail-on"],
    )
