"""What the targets are written with: public files are run where they lie, with their own names and line numbers."""

from __future__ import annotations
import __future__

import ast
import importlib
import json
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

B, H, T, D = 3, 2, 5, 7
WIDTH = H * D

# Calls that make a type or a function, and run nothing.
_MAKERS = frozenset({"namedtuple", "partial", "TypeVar", "NewType"})

Call = tuple[tuple[Any, ...], dict[str, Any]]


class Missing:
    """Stands in for an import that is not installed, and that what is checked does not need."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, attribute: str) -> Missing:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return Missing(f"{self.__name__}.{attribute}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        decorates = len(args) == 1 and not kwargs and callable(args[0])
        return args[0] if decorates else Missing(f"{self.__name__}()")

    def __getitem__(self, item: object) -> Missing:
        return self

    def __or__(self, other: object) -> Missing:
        return self

    __ror__ = __or__

    def __mro_entries__(self, bases: tuple[type, ...]) -> tuple[type, ...]:
        return (nn.Module,)


class Files:
    """The files of one pinned revision, in a folder of their own."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def load(
        self,
        path: str,
        given: Mapping[str, object] | None = None,
        only: Collection[str] | None = None,
        first: bool = False,
    ) -> Any:
        """A module made of the imports, constants, functions and classes of a file; scripts in it do not run.

        ``given`` stands for what the file imports under these names; ``only`` names the definitions to run; ``first``
        keeps the first of several definitions of one name. The code cells of a notebook are written beside it first.
        """
        given = given or {}
        source = self.root / path
        if source.suffix == ".ipynb":
            source = cells(source)
        name = f"replayed_{len(sys.modules)}_{source.stem.replace('-', '_')}"
        module = ModuleType(name)
        module.__file__ = str(source)
        sys.modules[name] = module
        space = module.__dict__
        space.update(given)
        for node in ast.parse(source.read_text(encoding="utf-8"), str(source)).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                _import(node, space, given, source)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                if (only is None or node.name in only) and not (first and node.name in space):
                    _run(node, space, source)
            elif isinstance(node, ast.Try) or _is_constant(node):
                try:
                    _run(node, space, source)
                except Exception:
                    continue
        space.update(given)
        return module

    def package(self, name: str) -> Any:
        """A module of a package that lies in the folder."""
        if str(self.root) not in sys.path:
            sys.path.insert(0, str(self.root))
        return importlib.import_module(name)


def _import(node: ast.Import | ast.ImportFrom, space: dict[str, Any], given: Collection[str], source: Path) -> None:
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        return
    for alias in node.names:
        bound = alias.asname or alias.name.split(".")[0]
        if bound in given:
            continue
        single: ast.stmt
        if isinstance(node, ast.Import):
            single = ast.Import([alias])
        else:
            single = ast.ImportFrom(node.module, [alias], node.level)
        try:
            if isinstance(node, ast.ImportFrom) and node.level:
                raise ImportError("a neighbour of the file")
            _run(ast.copy_location(single, node), space, source)
        except Exception:
            space[bound] = Missing(alias.name)


def _is_constant(node: ast.stmt) -> bool:
    """Whether a statement gives something a name without running a script."""
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return False
    value = node.value
    return not isinstance(value, ast.Call) or (isinstance(value.func, ast.Name) and value.func.id in _MAKERS)


def _run(node: ast.stmt, space: dict[str, Any], source: Path) -> None:
    flags = __future__.annotations.compiler_flag
    exec(compile(ast.Module([node], []), str(source), "exec", flags=flags), space)


def cells(notebook: Path) -> Path:
    """The code cells of a notebook as one file beside it; magic and shell lines become comments."""
    cells = [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    text = []
    for number, cell in enumerate(cells):
        lines = "".join(cell["source"]).splitlines()
        kept = "\n".join(f"# {line}" if line.lstrip().startswith(("!", "%")) else line for line in lines)
        text.append(f"# %% cell {number}\n{kept}\n")
    target = notebook.with_suffix(".py")
    target.write_text("\n".join(text), encoding="utf-8")
    return target


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    """The module with the numbers that its own initialisation draws, in eval mode."""
    torch.manual_seed(0)
    return make().eval()


def trained(module: nn.Module, *names: str, scale: float = 0.4) -> nn.Module:
    """The module with random numbers in the named parameters, which start at zero and do not stay there."""
    generator = torch.Generator().manual_seed(0)
    for name, parameter in module.named_parameters():
        if any(name.endswith(end) for end in names):
            parameter.data = torch.randn(parameter.shape, generator=generator) * scale
    return module


def randn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def ids(*shape: int, low: int = 5, high: int = 13, seed: int = 1) -> Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


def lengths_mask(*lengths: int, size: int = T) -> Tensor:
    """True at real tokens, one row for each length."""
    return torch.arange(size) < torch.tensor(lengths)[:, None]


def alike(*shape: int, count: int = 3) -> Call:
    """The same tensor for query, key and value."""
    x = randn(*shape)
    return (x,) * count, {}
