"""The table of settings: name, default, parser and meaning of each.

The flags, the keys of `ci-perf.toml` and `[tool.ci-perf]`, the variables `CI_PERF_<NAME>`, which the action sets, and
`--show-settings` are made from it. Precedence: flag, environment, kernel.toml (for its own kernel), file, default.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ci_perf.values.errors import ConfigError, did_you_mean
from ci_perf.values.kernel_toml import parse_fraction
from ci_perf.values.run import CAUSES, Policy
from ci_perf.values.setting_values import (
    choice_of,
    optional_of,
    parse_count,
    parse_flag,
    parse_key,
    parse_names,
    parse_positive,
    parse_samples,
    parse_text,
    parse_whole,
    words_of,
)

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

    def replaced(self, values: Mapping[str, Any]) -> "Settings":
        """Return the settings with other values for some; where those came from stays."""
        return replace(self, values={**self.values, **values})

    def chosen_by_user(self, name: str) -> bool:
        """Return whether a flag or the environment set it: then it overrides a kernel.toml."""
        return self.origins[name].startswith(("flag", "environment"))


_POLICY = Policy()
SETTINGS: tuple[Setting, ...] = (
    Setting(
        "config", "", parse_text, "File of settings; default: ci-perf.toml, else [tool.ci-perf] of pyproject.", "FILE"
    ),
    Setting("kernels-dir", "kernels", parse_text, "Folder of the kernels, a folder for each.", "DIR"),
    Setting("baselines", "baselines", parse_text, "Folder of the baselines.", "DIR"),
    Setting(
        "output", "ci-perf-run", parse_text, "Folder for the files of the run: run.json, report, profiles, logs.", "DIR"
    ),
    Setting(
        "device",
        ("auto",),
        words_of(DEVICES),
        "Where to run the kernels: auto, cpu, cuda, or cpu,cuda for both.",
        "LIST",
    ),
    Setting(
        "python",
        "",
        parse_text,
        "Python interpreter for the kernels; default: the first one found that has torch.",
        "PATH",
    ),
    Setting(
        "profile",
        "auto",
        choice_of(("auto", "none", "nsys", "ncu", "full")),
        "Profilers to use: auto (nsys and ncu, if they work), full (with ncu's full set of metrics), nsys, ncu, none.",
        "NAME",
    ),
    Setting(
        "pass-env",
        (),
        parse_names,
        "Further environment variables for kernels and profilers, also secret ones. Wildcards are allowed.",
        "LIST",
    ),
    Setting(
        "withhold-env",
        (),
        parse_names,
        "Further environment variables that are secret: kernels do not get them, and files with their values are "
        "withheld. Wildcards are allowed.",
        "LIST",
    ),
    Setting(
        "against",
        "",
        parse_text,
        "Measure this tree and a base commit in turns. REF is a commit, a branch, merge-base:BRANCH, base (of the pull "
        "request or merge group), or auto (base if the event has one, else none).",
        "REF",
    ),
    Setting(
        "setup",
        "",
        parse_text,
        "Command that builds what the kernels import. It runs first; with --against it runs in both trees.",
        "COMMAND",
    ),
    Setting(
        "setup-env",
        (),
        parse_names,
        "Variables of this job or terminal that the setup command also gets: GITHUB_SHA, GITHUB_*.",
        "LIST",
    ),
    Setting(
        "keep-base",
        "auto",
        choice_of(("auto", "always", "never")),
        "Whether later runs reuse the built tree of a base commit: always, never, or auto (not in a workflow, where "
        "one pull request could change the base of another).",
        "WHEN",
    ),
    Setting("base-python", "", parse_text, "Python interpreter for the base; default: that of the head.", "PATH"),
    Setting(
        "processes",
        6,
        parse_count,
        "Fresh processes that time each case before the first verdict; not with --against.",
        "N",
    ),
    Setting("samples", 30, parse_samples, "Samples in each process, 5 or more; not with --against.", "N"),
    Setting("timeout", 120.0, parse_positive, "Seconds that one case may take in one process.", "S"),
    Setting(
        "budget",
        None,
        optional_of(parse_positive),
        "Seconds for measuring all cases in turns, without the control. Cases undecided by then are INCONCLUSIVE.",
        "S",
    ),
    Setting("case-budget", None, optional_of(parse_positive), "Seconds for measuring one case in turns.", "S"),
    Setting(
        "confirm",
        True,
        parse_flag,
        "Measure cases that are slower or faster than their baseline again, in turns with the commit of the baseline; "
        "that result counts. Not with --against.",
    ),
    Setting(
        "time-identical",
        False,
        parse_flag,
        "Also time the cases whose machine code, launch parameters and inputs are the same on both sides.",
    ),
    Setting(
        "wait",
        3600.0,
        parse_positive,
        "Seconds to wait while another run or program uses the GPU.",
        "S",
    ),
    Setting(
        "regression-threshold",
        _POLICY.regression,
        parse_fraction,
        "Slowdown from which a case is a regression: 3% means head / base >= 1.03.",
        "PERCENT",
    ),
    Setting(
        "speedup-threshold",
        _POLICY.speedup,
        parse_fraction,
        "Speedup that is reported: 10% means base / head >= 1.10.",
        "PERCENT",
    ),
    Setting(
        "fail-on",
        _POLICY.fail_on,
        words_of(CAUSES),
        "Outcomes for which the exit status is 1, out of: " + ", ".join(CAUSES) + ".",
        "LIST",
    ),
    Setting("shard", "", parse_text, "Name of this shard of a plan, for `merge --plan`.", "NAME"),
    Setting(
        "among",
        0,
        parse_whole,
        "Number of cases in the whole plan of this shard; the error rate is divided among them.",
        "N",
    ),
    Setting("strict", False, parse_flag, "Exit with status 1 for every outcome that --fail-on can name.", "BOOL"),
    Setting(
        "compile-cache",
        "run",
        choice_of(("run", "user")),
        "Where Triton and inductor keep compiled code: run (a folder of this run, for base and head) or user (the "
        "user's own caches).",
        "WHERE",
    ),
    Setting(
        "all-cases",
        False,
        parse_flag,
        "On a CPU, also run the cases that `cpu_cases` of kernel.toml leaves out.",
        "BOOL",
    ),
    Setting(
        "plant-slowdown",
        None,
        optional_of(parse_fraction),
        "Slow the kernels down by additional launches, to test that a slowdown is found: 5% makes 21 launches of 20.",
        "PERCENT",
    ),
    Setting(
        "fuzz",
        None,
        optional_of(parse_count),
        "Verify N random cases of each kernel that has a [fuzz] table, instead of the usual run; nothing is timed.",
        "N",
    ),
    Setting("seed", 0, parse_whole, "Seed of the random cases: the same seed gives the same cases.", "N"),
    Setting(
        "sanitize",
        (),
        words_of(SANITIZERS),
        "Run the small cases, or those named, under these tools of compute-sanitizer instead of the usual run: "
        + ", ".join(SANITIZERS)
        + ".",
        "LIST",
    ),
    Setting(
        "comment",
        "on-change",
        choice_of(COMMENT_POLICIES),
        "When to comment on a pull request: on-change (once a case changed), always, never.",
        "WHEN",
        "publish",
    ),
    Setting(
        "comment-key",
        "default",
        parse_key,
        "Name that distinguishes the comments of several runs on one pull request.",
        "KEY",
        "publish",
    ),
    Setting(
        "artifact-name",
        "ci-perf-run",
        parse_key,
        "Name of the artifact with the run; the comment contains the command that downloads it.",
        "NAME",
        "publish",
    ),
    Setting(
        "cost-per-hour",
        None,
        optional_of(parse_positive),
        "Price of one GPU hour, in any currency; the comment then contains the cost of the run.",
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
