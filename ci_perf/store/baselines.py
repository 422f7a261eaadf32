"""The files of `baselines/`."""

from collections.abc import Collection, Iterable
from pathlib import Path

from ci_perf.store.text_files import read_text, write_text
from ci_perf.values.baseline import Baseline, contradictions, path_of
from ci_perf.values.codec import dump_baseline, load_baseline
from ci_perf.values.device import Device
from ci_perf.values.errors import FormatError


def read_baselines(
    folder: Path,
    devices: Iterable[Device] | None = None,
    kernels: Collection[str] | None = None,
    *,
    consistent: bool = False,
) -> tuple[Baseline, ...]:
    """Read the baselines of these devices and kernels, or of all; no folder means none.

    Those of a CPU may lie in the folder that its name alone gives, where its own has none of the kernel.
    FormatError for a file that its schema refuses, and with `consistent` for one that lies in the place of another or
    whose median is not that of its values.
    """
    if devices is None:
        files = sorted(folder.glob("*/*.json"))
    else:
        files = list(dict.fromkeys(file for device in devices for file in _files_of(folder, device)))
    files = [file for file in files if kernels is None or file.stem in kernels]
    found = tuple(map(read_baseline, files))
    for file, baseline in zip(files, found, strict=True):
        if consistent and (problems := contradictions(baseline, file.relative_to(folder).as_posix())):
            raise FormatError(f"{file}: {problems[0]}", hint="`ci-perf baseline check` names all errors")
    return found


def _files_of(folder: Path, device: Device) -> list[Path]:
    """Return the files of a device, those of its own folder first; each kernel once."""
    found: dict[str, Path] = {}
    for slug in device.slugs:
        for file in sorted((folder / slug).glob("*.json")):
            found.setdefault(file.name, file)
    return list(found.values())


def read_baseline(file: Path) -> Baseline:
    """Read one file of `baselines/`."""
    return load_baseline(read_text(file, str(file), FormatError), str(file))


def write_baseline(baseline: Baseline, folder: Path) -> Path:
    """Write a baseline to its path below the folder, and return the path."""
    return write_text(folder / path_of(baseline.device, baseline.kernel), dump_baseline(baseline))
