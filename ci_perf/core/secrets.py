"""What must not reach the processes that run or profile a user's kernels: profilers record the whole environment."""

import re
from collections.abc import Mapping

_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_?KEY|_KEY$|_PAT$|AUTH|COOKIE|NETRC|^ACTIONS_|^INPUT_",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Say whether a variable's name looks as if its value were a secret.

    >>> [is_secret_name(n) for n in ("GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "CUDA_VISIBLE_DEVICES", "PATH")]
    [True, True, False, False]
    """
    return _SECRET_NAME.search(name) is not None


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the variables that look like secrets."""
    return {name: value for name, value in environ.items() if not is_secret_name(name)}
