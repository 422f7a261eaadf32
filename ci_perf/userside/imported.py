"""The files that a kernel imported: from its tree, and from packages that are installed."""

from __future__ import annotations

import os
import sys


def own_files() -> list[str]:
    """Return the files, libraries included, that were imported from outside the folders of this interpreter."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    installed = (os.path.join(sys.base_prefix, "lib"), here)
    return sorted(
        file
        for _, file in imported_files()
        if file.endswith((".py", ".so")) and "-packages" + os.sep not in file and not file.startswith(installed)
    )


def installed_packages() -> dict[str, str]:
    """Return the file of each top-level package that was imported from this interpreter's site-packages."""
    return {name: file for name, file in imported_files() if "-packages" + os.sep in file and "." not in name}


def imported_files() -> list[tuple[str, str]]:
    """Return name and file of all modules; links among the folders are followed."""
    folders: dict[str, str] = {}  # to follow the links of each file takes 0.2 s where thousands are imported
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file:
            folder, base = os.path.split(str(file))
            if folder not in folders:
                folders[folder] = os.path.realpath(folder)
            found.append((name, os.path.join(folders[folder], base)))
    return found
