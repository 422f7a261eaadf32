"""Which variables hold secrets, and which processes get them.

Profilers record the whole environment of the process that they profile, their own, and that of any other process that
they can read. So the processes that run kernels do not get the secrets, and whatever is about to leave the machine is
searched for their values.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import unquote

SHORTEST = 6
"""Characters of a value that is searched for: a shorter one occurs in files by chance."""

_ENCODED = r"(?:_?(?:B64|BASE64|DATA|HEX|JSON|VALUE|\d+))*$"
"""What may follow a word at the end of a name: how its value is written, or a number."""
_CREDENTIAL = (
    r"TOKEN|TKN|SECRET|PASSW|PSWD|PASSPHRASE|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_?KEY|AUTH(?!OR)|BEARER|COOKIE|NETRC|JWT"
    r"|WEBHOOK|SIGNATURE|KUBECONFIG|DOCKER_?CONFIG_?JSON|SERVICE_?ACCOUNT|KEYSTORE|KEYTAB|MNEMONIC"
    r"|(?:^|_)SA(?:_JSON|_B64|_BASE64|$)|CONN(?:ECTION)?_?STR(?:ING)?|KEYS?(?:_|\d|$)|(?:^|_)CREDS?(?:_|\d|$)|(?:^|_)SAS(?:_|\d|$)|_PWD$"
    r"|(?:^|_)(?:DSN|PATS?|PW|OTP|TOTP|SALT|CERT|CERTIFICATE|PEM|PFX|P12|CREDS)" + _ENCODED + "|"
    r"(?:^|_|DB|SSH|SQL|USER|SMTP|MAIL|ROOT|ADMIN|PG|FTP)PASS" + _ENCODED
)
_HOLDS_SECRET = re.compile(_CREDENTIAL, re.IGNORECASE)
_SECRET_NAME = re.compile(rf"{_CREDENTIAL}|AUTH|^ACTIONS_|^INPUT_", re.IGNORECASE)
_ONLY_A_PLACE = re.compile(r"_(SOCK|FILE|PATH|DIR)$|^(KUBECONFIG|NETRC)$", re.IGNORECASE)
_CERTIFICATE = re.compile(r"(?:^|_)(?:CERT|CERTIFICATE|PEM|PFX|P12)$", re.IGNORECASE)
"""Variables that hold a certificate with its key, or the path of a file with public ones, as PIP_CERT does."""
_NO_SECRET = re.compile(
    r"\d{1,9}|true|false|null|none|default|enabled?|disabled?|required|optional|undefined|anonymous|localhost|password"
    r"|postgres|changeme|secret|example|x-access-token|x-oauth-basic|oauth2?|github-actions|gitlab-ci-token|__token__",
    re.IGNORECASE,
)
"""Values that occur in files without secrets too: numbers, as of `MAX_TOKENS`, and words that settings take."""
_USER_INFO = re.compile(r"[a-z][a-z0-9+.-]*://([^/?#\s@:]*)(?::([^/\s]*))?@", re.IGNORECASE)
_IN_QUERY = re.compile(
    r"[?&;](?:sig|signature|(?:\w*[-_])?token|password|pwd|secret|\w*key|credential)=([^&;\s\"']+)", re.IGNORECASE
)
"""A secret among the parameters of a URL or of a connection string: `AccountKey` of Azure, `sig` of a SAS."""
_KNOWN_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"gh[pousr]_\w{16,}|github_pat_\w{16,}|gl(?:pat|dt|rt|rtr|cbt|ptt|ft|soat|agent|oas)-[\w-]{16,}"  # GitHub, GitLab
    r"|xox[abeoprs]-[\w-]{10,}|xapp-[\w-]{10,}"  # Slack
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}|ya29\.[\w-]{16,}"  # Amazon, Google
    r"|nvapi-[\w-]{16,}|hf_[A-Za-z0-9]{16,}|sk-[\w-]{16,}|r8_\w{16,}"  # NVIDIA, Hugging Face, OpenAI, Replicate
    r"|pypi-[\w-]{16,}|npm_[A-Za-z0-9]{16,}|rubygems_\w{16,}|dckr_(?:pat|oat)_[\w-]{16,}|do[opr]_v1_\w{16,}"
    r"|[rs]k_(?:live|test)_\w{10,}|SG\.[\w-]{10,}\.[\w-]{10,}|hv[sbr]\.[\w-]{16,}|tskey-[\w-]{16,}|shp\w\w_\w{16,}"
    r"|AKCp\w{16,}|hooks\.slack\.com/(?:services|workflows|triggers)/[\w/-]{16,}"  # JFrog, Slack's hooks
    r"|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*"  # a JSON Web Token
    r")"
)
"""Tokens that are recognised by how they begin, as their issuers document it, whatever their variable is called."""
_PRIVATE_KEY = "PRIVATE KEY-----"

FILES_OF_A_JOB = frozenset({"GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STATE", "GITHUB_STEP_SUMMARY"})
"""Variables that name files by which a step controls later steps of its job; no process of a kernel gets them."""

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


@dataclass(frozen=True, slots=True)
class Rules:
    """Which variables the processes of kernels get, beside what the names and values of variables say."""

    passed: tuple[str, ...] = ()
    """Names, with wildcards, of variables that they get although they look secret."""
    withheld: tuple[str, ...] = ()
    """Names, with wildcards, of variables that are secret whatever they look like; these outrank `passed`."""

    def withholds(self, name: str) -> bool:
        """Say whether a variable is secret because its name is in `withheld`."""
        return _matches(name, self.withheld)

    def for_workers(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a worker: all variables except secrets and the files of the job.

        >>> environ = {"HF_TOKEN": "hf_1", "PIP_INDEX_URL": "https://me:pass@host", "GITHUB_ENV": "/f", "MY_FLAG": "1"}
        >>> Rules(passed=("HF_*",)).for_workers(environ), Rules(withheld=("MY_*",)).for_workers(environ)
        ({'HF_TOKEN': 'hf_1', 'MY_FLAG': '1'}, {})
        """
        return {
            name: value
            for name, value in environ.items()
            if self._may_pass(name) and (_matches(name, self.passed) or not looks_secret(name, value))
        }

    def for_profilers(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a profiler: the variables that programs on a GPU need, and those in `passed`.

        >>> Rules(("MY_*",)).for_profilers({"PATH": "/bin", "TORCH_API_KEY": "x", "MY_FLAG": "1", "YOURS": "2"})
        {'PATH': '/bin', 'MY_FLAG': '1'}
        """
        wanted = (*PASSED_TO_PROFILERS, *self.passed)
        return {name: value for name, value in self.for_workers(environ).items() if _matches(name, wanted)}

    def secrets_of(self, environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """Return the values to search for, by the name of their variable: secrets, and those inside other values.

        ci-perf's own settings are secret only by their values. Values that are short or common are left out: they
        occur by chance.

        >>> environ = {"GH_TOKEN": "ghp_abcdef", "A_KEY": "abc", "PROXY": "http://me:hunter22@host", "MAX_TOKENS": "9"}
        >>> Rules().secrets_of(environ)
        {'GH_TOKEN': ('ghp_abcdef',), 'PROXY': ('hunter22',)}
        """
        found = {}
        for name, value in environ.items():
            by_name = _HOLDS_SECRET.search(name) and not _is_place(name, value) and not name.startswith("CI_PERF_")
            values = (value.strip(),) if by_name or self.withholds(name) else _secrets_inside(value)
            found[name] = tuple(v for v in values if len(v) >= SHORTEST and not _NO_SECRET.fullmatch(v))
        return {name: values for name, values in found.items() if values}

    def _may_pass(self, name: str) -> bool:
        return name not in FILES_OF_A_JOB and not self.withholds(name)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def looks_secret(name: str, value: str) -> bool:
    """Say whether a variable looks secret: by its name, a user or password in a URL, or the beginning of a token.

    >>> looks_secret("INDEX", "https://0123abcd@host/simple"), looks_secret("ARGS", "--user ghp_0123456789abcdef")
    (True, True)
    """
    by_name = is_secret_name(name) and not (_CERTIFICATE.search(name) and _is_place(name, value))
    return by_name or bool(_USER_INFO.search(value) or _secrets_inside(value))


def _is_place(name: str, value: str) -> bool:
    """Say whether a variable that is called like a secret holds the place of one, which is not secret itself."""
    is_path = value.startswith(("/", "./", "~/"))
    return bool(_ONLY_A_PLACE.search(name) or (_CERTIFICATE.search(name) and is_path))


def _secrets_inside(value: str) -> tuple[str, ...]:
    """Return the secrets in a value whose variable is not called like one; of a URL, as written and decoded."""
    if _PRIVATE_KEY in value:
        return (value.strip(),)
    # The password of a URL, or its user where the password is empty or a word: then the user is the token.
    users = ((user, word) for user, word in _USER_INFO.findall(value))
    in_urls = [user if not word or _NO_SECRET.fullmatch(word) else word for user, word in users]
    found = (*in_urls, *_IN_QUERY.findall(value), *_KNOWN_TOKEN.findall(value))
    return tuple(dict.fromkeys(spelled for part in found for spelled in (part, unquote(part))))


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
