"""Gotchas of other packages: what they name in the entry-point group ``attn_guard.gotchas``.

An entry point names a gotcha file, or a package of such files. Whether any installed package has one is asked of the
file system first, because reading the metadata of all packages would cost more than linting a file.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from attn_guard.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from types import ModuleType

GROUP = "attn_guard.gotchas"

_METADATA = (".dist-info", ".egg-info")
_GOTCHA_FILE = re.compile(r"[a-z]+\d{3}_\w+")


def plugin_modules() -> Iterator[tuple[str, ModuleType]]:
    """The gotcha files of other packages, each with the words that say where it comes from.

    Raises `UsageError` for an entry point that cannot be loaded.
    """
    if not any(_names_group(folder) for folder in sys.path):
        return
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        origin = _origin(point)
        try:
            loaded: ModuleType = point.load()
            modules = list(_files(loaded))
        except (Exception, SystemExit) as error:  # whatever the package does when it is imported
            raise UsageError(f"{origin} cannot be loaded: {type(error).__name__}: {error}") from error
        yield from ((origin, module) for module in modules)


def _origin(point: EntryPoint) -> str:
    package = f" of {point.dist.name}" if point.dist else ""
    return f"the gotcha plugin {point.name!r}{package} ({point.value})"


def _files(loaded: ModuleType) -> Iterator[ModuleType]:
    if not hasattr(loaded, "__path__"):
        yield loaded
        return
    for name in sorted(info.name for info in pkgutil.iter_modules(loaded.__path__)):
        if _GOTCHA_FILE.fullmatch(name):
            yield importlib.import_module(f"{loaded.__name__}.{name}")


def _names_group(folder: str) -> bool:
    """Whether a package that is installed in a folder names the group."""
    try:
        with os.scandir(folder or ".") as listed:
            metadata = [entry.path for entry in listed if entry.name.endswith(_METADATA)]
    except NotADirectoryError:  # an archive
        return True
    except OSError:
        return False
    return any(_mentions_group(os.path.join(path, "entry_points.txt")) for path in metadata)  # noqa: PTH118


def _mentions_group(file: str) -> bool:
    try:
        with open(file, "rb") as text:  # noqa: PTH123
            return GROUP.encode() in text.read()
    except OSError:
        return False
