"""What must not leave the machine: which variables hold secrets, who may see them, and how their values look in a file.

Profilers record the whole environment of the process that they profile, their own, and that of any other process that
they can read. So the processes that run kernels do not get the secrets, and whatever is about to leave the machine is
searched for their values in every spelling in which a program may have written them.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

SHORTEST = 6
"""Characters of a value that is searched for: a shorter one stands in files by chance."""

_PIECE, _SHORTEST_PIECE = 32, 12
"""Characters of base64 by which a value is known, even if a line ends inside it."""

_CREDENTIAL = (
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_?KEY|_KEY$|_PAT$|AUTH(?!OR)|COOKIE|NETRC"
    r"|(?:^|_)(?:SSH)?PASS$|_PWD$|JWT|WEBHOOK|(?:^|_)DSN$|CONNECTION_?STRING"
)
_HOLDS_SECRET = re.compile(_CREDENTIAL, re.IGNORECASE)
_SECRET_NAME = re.compile(rf"{_CREDENTIAL}|AUTH|^ACTIONS_|^INPUT_", re.IGNORECASE)
_ONLY_A_PLACE = re.compile(r"_(SOCK|FILE|PATH|DIR)$", re.IGNORECASE)
_UNRESERVED = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
"""What a URL holds as it is (RFC 3986)."""
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
"""Names, with wildcards, of the variables that a profiled process gets; all others stay behind."""


def is_secret_name(name: str) -> bool:
    """Say whether a variable's name looks as if its value were a secret.

    >>> [is_secret_name(n) for n in ("GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "CUDA_VISIBLE_DEVICES", "PATH")]
    [True, True, False, False]
    """
    return _SECRET_NAME.search(name) is not None


def without_secrets(environ: Mapping[str, str], passed: Sequence[str] = ()) -> dict[str, str]:
    """Return the environment of a worker: all but what looks like a secret and was not passed on purpose.

    >>> without_secrets({"HF_TOKEN": "hf_1", "PIP_INDEX_URL": "https://me:pass@host", "MY_FLAG": "1"}, ["HF_*"])
    {'HF_TOKEN': 'hf_1', 'MY_FLAG': '1'}
    """
    return {name: value for name, value in environ.items() if _is_passed(name, passed) or not looks_secret(name, value)}


def for_profilers(environ: Mapping[str, str], passed: Sequence[str] = ()) -> dict[str, str]:
    """Return the environment of a profiler: what programs on a GPU need, and what was passed on purpose.

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
    """Say whether a variable is to be kept from others: for its name, or for a password in a URL."""
    return is_secret_name(name) or _USER_INFO.search(value) is not None


def secrets_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values to search for, by the name of their variable: secrets, and passwords inside URLs.

    ci-perf's own settings are no secrets, nor is what is too short to be told from chance.

    >>> secrets_of({"GH_TOKEN": "ghp_abcdef", "A_KEY": "abc", "PROXY": "http://me:hunter22@host", "HOME": "/root"})
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
    return {name: value for name, value in found.items() if len(value) >= SHORTEST}


@dataclass(frozen=True, slots=True)
class Needle:
    """One spelling of one secret."""

    name: str
    """The variable."""
    text: bytes


def needles_of(secrets: Mapping[str, str]) -> tuple[Needle, ...]:
    """Return every spelling to search for, each once, so that a search reads a file as few times as possible.

    >>> [needle.text for needle in needles_of({"KEY": "s3cr=t"})][-3:]
    [b'MzY3I9d', b'zM2NyPX', b's3cr=t']
    """
    found: dict[bytes, str] = {}
    for name, value in secrets.items():
        for text in _spellings(value):
            found.setdefault(text, name)
    longest_first = sorted(found.items(), key=lambda item: -len(item[0]))  # for `redact`: one may begin with another
    return tuple(Needle(name, text) for text, name in longest_first)


def _spellings(value: str) -> Iterator[bytes]:
    raw = value.encode("utf-8", "surrogateescape")
    yield raw
    for also_plain in (b"", b"/"):
        for digits in ("%%%02X", "%%%02x"):
            encoded = _percent_encoded(raw, also_plain, digits)
            yield encoded
            yield encoded.replace(b"%20", b"+")
    for ascii_only in (True, False):
        escaped = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        yield escaped.encode("utf-8", "surrogatepass")
        yield escaped.replace("/", "\\/").encode("utf-8", "surrogatepass")
    yield raw.decode("utf-8", "replace").encode("utf-16-le")
    for shift in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield from _perhaps_wrapped(_inside_base64(raw, shift, encode(bytes(shift) + raw)))


def _percent_encoded(raw: bytes, also_plain: bytes, digits: str) -> bytes:
    plain = _UNRESERVED + also_plain
    return b"".join(bytes([byte]) if byte in plain else (digits % byte).encode() for byte in raw)


def _perhaps_wrapped(encoded: bytes) -> Iterator[bytes]:
    """Yield base64 whole, and pieces of its end of which one stays whole where lines of 64 or 76 characters are cut."""
    yield encoded
    end = encoded[-2 * _PIECE :]
    if len(end) >= 2 * _SHORTEST_PIECE:
        yield end[: len(end) // 2]
        yield end[len(end) // 2 :]


def _inside_base64(raw: bytes, shift: int, encoded: bytes) -> bytes:
    """Return what does not depend on the bytes around the value, which begins `shift` bytes into a group of three."""
    first = -(-8 * shift // 6)
    return encoded[first : 8 * (shift + len(raw)) // 6]


def names_in(blocks: Iterable[bytes], needles: Sequence[Needle]) -> frozenset[str]:
    """Return the variables whose value stands in a stream of bytes, however it is cut into blocks.

    >>> sorted(names_in([b"..hun", b"ter2.."], needles_of({"PASSWORD": "hunter2"})))
    ['PASSWORD']
    """
    needles = [n for n in needles if not any(n.name == o.name and n is not o and o.text in n.text for o in needles)]
    overlap = max((len(needle.text) for needle in needles), default=1) - 1
    found: set[str] = set()
    tail = b""
    for block in blocks:
        text = tail + block
        found.update(needle.name for needle in needles if needle.name not in found and needle.text in text)
        tail = text[-overlap:] if overlap else b""
    return frozenset(found)


_ENTRY = re.compile(rb"(?<![A-Za-z0-9_])([A-Za-z_][A-Za-z0-9_]{2,60})=[^\s\0]{6}")


def variables_in(blocks: Iterable[bytes]) -> frozenset[str]:
    r"""Return names that look secret and stand before a `=` and a value, as in an environment that was recorded.

    For files made elsewhere, whose secrets nobody here knows.

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


_IDENTIFIERS = frozenset(
    {
        *("schema", "kernel", "case", "device", "target", "stage", "code", "method", "checked", "metric", "operator"),
        *("kind", "l2", "devices", "fail_on", "source"),
    }
)
"""Keys whose values are words of ci-perf's own or names from the repository; redacted, a run could not be read."""


def redact(value: object, needles: Sequence[Needle]) -> object:
    """Return a JSON document with every spelling of every secret replaced by its variable's name.

    >>> redact({"message": "cannot log in with hunter2", "n": 1}, needles_of({"PASSWORD": "hunter2"}))
    {'message': 'cannot log in with [PASSWORD withheld]', 'n': 1}
    """
    if isinstance(value, str):
        return _redact_text(value, needles)
    if isinstance(value, Mapping):
        return {k: part if k in _IDENTIFIERS else redact(part, needles) for k, part in value.items()}
    if isinstance(value, list | tuple):
        return [redact(part, needles) for part in value]
    return value


def _redact_text(text: str, needles: Sequence[Needle]) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    for needle in needles:
        if needle.text in raw:
            raw = raw.replace(needle.text, f"[{needle.name} withheld]".encode())
    return raw.decode("utf-8", "surrogatepass")
