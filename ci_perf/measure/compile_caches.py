"""Where Triton and inductor keep compiled code and autotuning results during a session."""

from collections.abc import Mapping
from pathlib import Path


def private_caches(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return an environment whose compile caches lie below `folder`; a variable that `env` sets stays as it is.

    All processes of a session share them: each kernel is compiled and autotuned once, and both sides use the same
    choice where the code is the same. The caches are keyed by content. No code of an earlier run is loaded from them.

    >>> private_caches({"TRITON_CACHE_DIR": "/mine"}, Path("/tmp/x"))["TRITON_CACHE_DIR"]
    '/mine'
    """
    ours = {
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TRITON_CACHE_AUTOTUNING": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "CUPY_CACHE_DIR": str(folder / "cupy"),
    }
    return {**ours, **env}
