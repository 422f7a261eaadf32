"""Keeps files that hold a secret out of the artifact folder, and moves them out of it."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ci_perf.guard import unpack
from ci_perf.guard.redact import redact_text
from ci_perf.guard.secrets import Rules, variables_in
from ci_perf.guard.spellings import Needle, names_in, needles_of
from ci_perf.values.artifact import is_listed
from ci_perf.values.errors import ConfigError
from ci_perf.values.run import Note
from ci_perf.values.settings import Settings

_LONGEST_NAME = 200


def rules_of(settings: Settings) -> Rules:
    """Return the rules that the settings ask for."""
    return Rules(settings["pass-env"], settings["withhold-env"])


@dataclass(frozen=True, slots=True)
class Guard:
    """Searches files for secrets, and keeps those that hold one in a folder beside the artifact folder."""

    folder: Path
    """The artifact folder."""
    needles: tuple[Needle, ...]

    @classmethod
    def of(cls, folder: Path, environ: Mapping[str, str], rules: Rules | None = None) -> "Guard":
        """Return the guard of a folder against the secrets of an environment."""
        return cls(folder, needles_of((rules or Rules()).secrets_of(environ)))

    @property
    def outside(self) -> Path:
        """The folder of files that were not searched yet, and of those that hold secrets; never to be uploaded."""
        return self.folder.with_name(f"{self.folder.name}.withheld")

    def open(self) -> None:
        """Make an empty folder outside, which this user alone can read and git ignores."""
        try:
            shutil.rmtree(self.outside, ignore_errors=True)
            self.outside.mkdir(mode=0o700, parents=True)
            (self.outside / ".gitignore").write_text("*\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{self.outside}: cannot be used: {error}", hint="name another --output") from None

    def close(self) -> None:
        """Remove the folder outside if it is empty."""
        if self.outside.is_dir() and {path.name for path in self.outside.iterdir()} <= {".gitignore"}:
            shutil.rmtree(self.outside, ignore_errors=True)

    def admit(self, file: Path, folder: str = "") -> tuple[Note, ...]:
        """Move a listed file from outside into a folder of the artifact folder; or leave it there and say why."""
        listed = is_listed(f"{folder}/{file.name}" if folder else file.name)
        why = self._why_withheld(file, file.name) if listed else "ci-perf writes no file of this name"
        if why:
            return (self._withheld(file.name, why),)
        inside = self.folder / folder
        inside.mkdir(parents=True, exist_ok=True)
        shutil.move(file, inside / file.name)
        return ()

    def sweep(self) -> tuple[Note, ...]:
        """Search every file of the folder, move out those that hold a secret, and return a note for each."""
        notes = []
        for link in sorted(path for path in self.folder.rglob("*") if path.is_symlink()):
            link.unlink()
            name = redact_text(_printable(link.relative_to(self.folder)), self.needles)
            what = f"{name}: a link was removed: an upload would have followed it"
            notes.append(Note("link-removed", what, hint="write files into the folder, not links"))
        for file in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            name = _printable(file.relative_to(self.folder))
            if why := self._why_withheld(file, name):
                self.outside.mkdir(mode=0o700, parents=True, exist_ok=True)
                shutil.move(file, self.outside / name.replace("/", "-")[-_LONGEST_NAME:])
                notes.append(self._withheld(name, why))
        return tuple(notes)

    def _why_withheld(self, file: Path, name: str) -> str:
        """Return why a file must stay outside, or nothing; `name`, its path in the folder, is searched too."""
        try:
            names = {*names_in_file(file, self.needles), *_names_in_text(name, self.needles)}
        except FileNotFoundError:  # its writer removed it
            return ""
        except unpack.Unsearchable as error:
            return f"it cannot be searched: it {str(error).removeprefix(f'{file}: ')}"
        except OSError as error:
            return f"it cannot be searched: {(error.strerror or str(error)).lower()}"
        return f"it holds the value of {', '.join(sorted(names))}" if names else ""

    def _withheld(self, name: str, why: str) -> Note:
        name = redact_text(name, self.needles)
        message = f"{name} was withheld: {why}; it is in {self.outside.name}/ on the machine"
        if name.endswith(".nsys-rep"):
            hint = (
                "nsys records the environment of every process that it can read: give the measuring step no secrets, "
                "and start ci-perf with `exec`; timeline.sqlite holds the trace without environments"
            )
            return Note("withheld", message, hint)
        return Note("withheld", message, "give the measuring step no secrets, or find out which program wrote it there")


def _printable(path: Path) -> str:
    return path.as_posix().encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def names_in_file(file: Path, needles: Sequence[Needle]) -> tuple[str, ...]:
    """Return the variables whose value is in the name or the contents of a file, packed or not; Unsearchable."""
    if not needles:
        return ()
    in_name = _names_in_text(file.name, needles)
    return tuple(sorted(in_name | _search(file, lambda blocks: names_in(blocks, needles), found=in_name)))


def variables_in_file(file: Path) -> tuple[str, ...]:
    """Return the secret-looking variables that a file holds with a value, as a recorded environment does."""
    return tuple(sorted(_search(file, variables_in)))


def _search(
    file: Path, search: Callable[[Iterator[bytes]], frozenset[str]], found: frozenset[str] = frozenset()
) -> frozenset[str]:
    try:
        for blocks in unpack.contents(file):
            found |= search(blocks)
    except unpack.Unsearchable:
        if not found:
            raise
    return found


def _names_in_text(text: str, needles: Sequence[Needle]) -> frozenset[str]:
    return names_in([text.encode("utf-8", "surrogateescape")], needles)
