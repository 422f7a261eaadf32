"""kernel.toml files and settings files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ci_perf.store.text_files import read_text, relative_path
from ci_perf.values.errors import ConfigError
from ci_perf.values.job import may_select
from ci_perf.values.kernel import KernelSpec
from ci_perf.values.kernel_toml import parse_kernel
from ci_perf.values.toml_text import parse_toml


def read_kernels(folder: Path, root: Path, patterns: Sequence[str] = ()) -> tuple[KernelSpec, ...]:
    """Read every `FOLDER/*/kernel.toml`, in the order of names; ConfigError for one that is wrong.

    With `patterns` of the command line, a wrong file of a kernel that none of them selects is left out.
    """
    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: there is no such folder",
            hint="`ci-perf init` sets up a first kernel; or run where `kernels/` lies, or name it with --kernels-dir",
        )
    files = sorted(folder.glob("*/kernel.toml"))
    if not files:
        raise ConfigError(f"{folder}: has no kernel", hint="a kernel is a folder with a kernel.toml")
    specs = []
    for file in files:
        try:
            specs.append(read_kernel(file, root))
        except ConfigError:
            if may_select(file.parent.name, patterns):
                raise
    return tuple(specs)


def read_kernel(file: Path, root: Path) -> KernelSpec:
    """Read a kernel.toml; ConfigError for one that is wrong."""
    home = file.parent
    folder = relative_path(home, root)
    spec = parse_kernel(read_text(file, f"{folder}/kernel.toml", ConfigError), name=home.name, folder=folder)
    if spec.program is None and not (home / spec.entry).is_file():
        raise ConfigError(
            f"{folder}/kernel.toml: key `entry`: there is no file `{folder}/{spec.entry}`",
            hint="name the Python file beside kernel.toml that defines make_inputs, launch, reference and cost",
        )
    return spec


def read_settings_file(root: Path, name: str | None = None) -> tuple[str, Mapping[str, object]]:
    """Return the settings and the file that holds them: the one named, ci-perf.toml, or [tool.ci-perf] of pyproject."""
    own, project = root / (name or "ci-perf.toml"), root / "pyproject.toml"
    if name and not own.is_file():
        raise ConfigError(f"{name}: there is no such file of settings", hint="--config names a file like ci-perf.toml")
    for file, table in ((own, ()), (project, ("tool", "ci-perf"))):
        if file.is_file():
            found: object = parse_toml(read_text(file, file.name, ConfigError), file.name)
            for key in table:
                found = found.get(key, {}) if isinstance(found, dict) else found
            if not isinstance(found, dict):
                raise ConfigError(f"{file.name}: key `{'.'.join(table)}`: {found!r} is not a table of settings")
            if found or file == own:
                return file.name, found
    return "ci-perf.toml", {}
