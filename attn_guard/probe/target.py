"""Turns a target of the command line, ``model.py:Attention(64, 8)`` or ``pkg.mod:build()``, into a module."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from attn_guard.errors import UsageError

_TARGET = re.compile(r"(?P<place>(?:[A-Za-z]:[\\/])?[^:]+):(?P<expression>.+)", re.DOTALL)
_FORMS = '"FILE.py:EXPRESSION" or "package.module:EXPRESSION", such as "model.py:MultiHeadAttention(64, 8)"'

T = TypeVar("T")


def load(target: str) -> Any:
    """The `torch.nn.Module` that a target names.

    A file is imported as ``python FILE.py`` would run it, except that its name is not ``__main__``. Raises
    `UsageError` in one line, also for an exception of the user's own code.
    """
    _require_torch()
    match = _TARGET.fullmatch(target.strip())
    if match is None:
        raise UsageError(f"{target!r}: expected {_FORMS}")
    place, expression = match["place"], match["expression"].strip()
    code = _compiled(expression)
    source = _file(Path(place)) if place.endswith(".py") or "/" in place or "\\" in place else _named(place)
    value = _guarded(lambda: eval(code, vars(source), _Names(source)), source)
    return _module(value, place, expression, source)


def _require_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise UsageError("torch is not installed, and modules cannot run without it: pip install 'attn-guard[torch]'")
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # torch without numpy, which is not needed


class _Names(dict[str, Any]):
    """Names that a module makes up on demand (``__getattr__``), as `transformers` does."""

    def __init__(self, source: ModuleType) -> None:
        super().__init__()
        self.source = source

    def __missing__(self, name: str) -> Any:
        try:
            return getattr(self.source, name)
        except AttributeError:
            raise KeyError(name) from None


def _compiled(expression: str) -> Any:
    try:
        return compile(ast.parse(expression, mode="eval"), "<target>", "eval")
    except SyntaxError as error:
        raise UsageError(f"{expression!r} is not an expression: {error.msg}") from None


def _file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    path = path.resolve()
    root, name = path.parent, path.stem
    while (root / "__init__.py").is_file():  # a file of a package: its relative imports need the package's name
        root, name = root.parent, f"{root.name}.{name}"
    _first_on_path(root)
    if "." in name:
        return _guarded(lambda: importlib.import_module(name), path)
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    if known is not None or name in sys.stdlib_module_names:
        name = f"_attn_guard_target_{name}"  # `types.py` must not stand in for the library's own
    return _guarded(lambda: _executed(name, path), path)


def _executed(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _named(name: str) -> ModuleType:
    _first_on_path(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise UsageError(f"{name}: no such module; {_FORMS}") from None
        raise UsageError(_told(error, None)) from None
    except Exception as error:
        raise UsageError(_told(error, None)) from None


def _first_on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _guarded(run: Callable[[], T], source: ModuleType | Path) -> T:
    """Runs the user's code; what it raises becomes a `UsageError` that names its line."""
    path = source if isinstance(source, Path) else Path(getattr(source, "__file__", None) or "")
    try:
        return run()
    except NameError as error:
        near = difflib.get_close_matches(error.name or "", dir(source), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"{_told(error, path)}{hint}") from None
    except (Exception, SystemExit) as error:
        raise UsageError(_told(error, path)) from None


def _told(error: BaseException, path: Path | None) -> str:
    """``model.py:14: ValueError: …``: the last line of the user's file that was running, else of any file."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: SyntaxError: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _ours(frame.filename)]
    own = [frame for frame in frames if path is not None and Path(frame.filename) == path]
    place = next((f"{_shown(frame.filename)}:{frame.lineno}: " for frame in [*frames[-1:], *own[-1:]][::-1]), "")
    first_line = str(error).strip().partition("\n")[0]
    return f"{place}{type(error).__name__}{': ' if first_line else ''}{first_line}"


def _ours(filename: str) -> bool:
    return filename == __file__ or filename.startswith("<")


def _shown(filename: str) -> str:
    try:
        return Path(filename).relative_to(Path.cwd()).as_posix()
    except ValueError:
        return filename


def _module(value: Any, place: str, expression: str, source: ModuleType) -> Any:
    from torch import nn

    is_class = isinstance(value, type) and issubclass(value, nn.Module)
    if is_class or inspect.isroutine(value):
        required = _required(value)
        if required:
            kind = "class" if is_class else "function"
            call = f"{expression}({', '.join(required)})"
            raise UsageError(f'{expression} is a {kind}, not a module; call it: "{place}:{call}"')
        value = _guarded(value, source)
    if not isinstance(value, nn.Module):
        raise UsageError(f"{expression} gives {type(value).__qualname__}, not a torch.nn.Module")
    return value


def _required(value: Callable[..., Any]) -> list[str]:
    """The parameters that must be given."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [name.name for name in parameters if name.default is inspect.Parameter.empty and name.kind not in optional]
