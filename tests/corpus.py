"""Profiler files that other people published, where they lie beside the repository; never copied into it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

CAPTURES = Path(__file__).parent / "data" / "captures"
_CORPUS = Path(os.environ.get("CI_PERF_CORPUS") or Path(__file__).parents[2] / "shared" / "corpus")


def files(folder: str) -> list[Any]:
    """Return a parameter (path, expected values) for each file of a folder of the corpus; none without a corpus."""
    manifest = _CORPUS / "MANIFEST.json"
    if not manifest.exists():
        return []
    entries = [entry for entry in json.loads(manifest.read_text()) if entry["file"].startswith(f"{folder}/")]
    return [pytest.param(_CORPUS / entry["file"], entry["expected"], id=entry["file"]) for entry in entries]
