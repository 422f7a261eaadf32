"""Which variables hold secrets, and which processes get them.

Profilers record the whole environment of the process that they profile, their own, and that of any other process that
they can read. So the processes that run kernels do not get the secrets, and whatever is about to leave the machine is
searched for their values.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

SHORTEST = 6
"""Characters of a value that is searched for: a shorter one occurs in files by chance."""

_CREDENTIAL = (
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_?KEY|_KEY$|_PAT$|AUTH(?!OR)|COOKIE|NETRC"
    r"|(?:^|_)(?:SSH)?PASS$|_PWD$|JWT|WEBHOOK|(?:^|_)DSN$|CONNECTION_?STRING"
)
_HOLDS_SECRET = re.compile(_CREDENTIAL, re.IGNORECASE)
_SECRET_NAME = re.compile(rf"{_CREDENTIAL}|AUTH|^ACTIONS_|^INPUT_", re.IGNORECASE)
_ONLY_A_PLACE = re.compile(r"_(SOCK|FILE|PATH|DIR)$", re.IGNORECASE)
_NO_SECRET = re.compile(
    r"\d{1,9}|true|false|null|none|default|enabled?|disabled?|required|optional|undefined|anonymous|localhost|password"
    r"|postgres|changeme|secret|example",
    re.IGNORECASE,
)
"""Values that occur in files without secrets too: numbers, as of `MAX_TOKENS`, and words that settings take."""
_USER_INFO = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s:@]*:([^/\s@]+)@", re.IGNORECASE)

PASSED_TO_PROFILERS = (
    # the system
    *("PATH", "LD_LIBRARY_PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ"),
    *("TMPDIR", "TMP", "TEMP", "LANG", "LANGUAGE", "LC_*"),
    # compilers that a first launch may start
    *("CC", "CXX", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"),
    # the GPU, its tools and libraries
    *("CUDA_*", "NVIDIA_*", "NSYS_*", "NV_*", "NVTX_*", "NCCL_*", "CUBLAS*", "CUDNN*", "CUTLASS_*", "CUTE_*"),
    # Python and what kernels are written with
    *("PYTHON*", "VIRTUAL_ENV", "CONDA_PREFIX", "TORCH*", "PYTORCH*", "TRITON*", "OMP_*", "MKL_*", "KMP_*", "GOMP_*"),
    *("XDG_CACHE_HOME", "CI_PERF_CACHE"),
)
"""Names, with wildcards, of the variables that a profiled process gets; it gets no others."""


def is_secret_name(name: str) -> bool:
    """Say whether a variable's name looks like that of a secret.

    >>> [is_secret_name(n) for n in ("GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "CUDA_VISIBLE_DEVICES", "PATH")]
    [True, True, False, False]
    """
    return _SECRET_NAME.search(name) is not None


def without_secrets(environ: Mapping[str, str], passed: Sequence[str] = ()) -> dict[str, str]:
    """Return the environment of a worker: all variables except those that look secret and are not in `passed`.

    >>> without_secrets({"HF_TOKEN": "hf_1", "PIP_INDEX_URL": "https://me:pass@host", "MY_FLAG": "1"}, ["HF_*"])
    {'HF_TOKEN': 'hf_1', 'MY_FLAG': '1'}
    """
    return {name: value for name, value in environ.items() if _is_passed(name, passed) or not looks_secret(name, value)}


def for_profilers(environ: Mapping[str, str], passed: Sequence[str] = ()) -> dict[str, str]:
    """Return the environment of a profiler: the variables that programs on a GPU need, and those in `passed`.

    >>> for_profilers({"PATH": "/bin", "TORCH_API_KEY": "x", "MY_FLAG": "1", "YOURS": "2"}, ["MY_*"])
    {'PATH': '/bin', 'MY_FLAG': '1'}
    """
    return {
        name: value
        for name, value in environ.items()
        if _is_passed(name, passed) or (_is_passed(name, PASSED_TO_PROFILERS) and not looks_secret(name, value))
    }


def _is_passed(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def looks_secret(name: str, value: str) -> bool:
    """Say whether a variable looks secret: by its name, or by a password in a URL."""
    return is_secret_name(name) or _USER_INFO.search(value) is not None


def secrets_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values to search for, by the name of their variable: secrets, and passwords inside URLs.

    ci-perf's own settings are not secrets. Values that are short or common are left out: they occur by chance.

    >>> url = "http://me:hunter22@host"
    >>> secrets_of({"GH_TOKEN": "ghp_abcdef", "A_KEY": "abc", "PROXY": url, "MAX_TOKENS": "131072"})
    {'GH_TOKEN': 'ghp_abcdef', 'PROXY': 'hunter22'}
    """
    found = {}
    for name, value in environ.items():
        if name.startswith("CI_PERF_"):
            continue
        if _HOLDS_SECRET.search(name) and not _ONLY_A_PLACE.search(name):
            found[name] = value.strip()
        elif inside := _USER_INFO.search(value):
            found[name] = inside[1]
    return {name: v for name, v in found.items() if len(v) >= SHORTEST and not _NO_SECRET.fullmatch(v)}


_ENTRY = re.compile(
    rb"(?<![A-Za-z0-9_])([A-Za-z_][A-Za-z0-9_]{2,60})"
    rb"(?:=|\x12(?:[\x06-\x7f]|[\x80-\xff][\x01-\x7f]))"  # in an .nsys-rep, the tag and the length of the value
    rb"[^\s\0]{6}"
)


def variables_in(blocks: Iterable[bytes]) -> frozenset[str]:
    r"""Return names that look secret and are followed by a value, as in a recorded environment.

    For files made elsewhere, whose secrets are not known here.

    >>> sorted(variables_in([b"PATH=/usr/bin\0GITHUB_TOKEN=ghp_1234567"]))
    ['GITHUB_TOKEN']
    """
    found: set[str] = set()
    tail = b""
    for block in blocks:
        text = tail + block
        found.update(name for raw in _ENTRY.findall(text) if _HOLDS_SECRET.search(name := raw.decode()))
        tail = text[-80:]
    return frozenset(found)
