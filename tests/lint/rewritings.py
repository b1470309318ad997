"""Ways to write the same code differently, each from source to source. Those by syntax tree also drop all
formatting."""

from __future__ import annotations

import ast
import builtins
import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator
from zlib import crc32

from attn_guard.lint import names

Rewriting = Callable[[str], str]


def reformatted(source: str) -> str:
    """Without comments, in the layout of ``ast.unparse``."""
    return ast.unparse(ast.parse(source)) + "\n"


def commented(source: str) -> str:
    """A comment behind every line that ends a statement."""
    lines = []
    ends = {node.end_lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)}
    for number, line in enumerate(source.split("\n"), 1):
        is_plain = number in ends and line.strip() and "#" not in line and '"""' not in line
        lines.append(f"{line}  # softmax(mask) -1e9" if is_plain else line)
    return "\n".join(lines)


def spread(source: str) -> str:
    """Every pair of brackets that holds several things on a line each."""
    tree = ast.parse(source)
    breaks = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) > 1 and node.lineno == node.end_lineno:
            breaks |= {(arg.lineno, arg.col_offset) for arg in node.args[1:]}
    lines = source.split("\n")
    for line, column in sorted(breaks, reverse=True):
        text = lines[line - 1]
        lines[line - 1] = f"{text[:column].rstrip()}\n{' ' * 16}{text[column:]}"
    return "\n".join(lines)


def renamed(source: str) -> str:
    """Other names for local variables; names that say a size or a mask are kept, because the linter reads them."""
    tree = ast.parse(source)
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        given = {arg.arg for arg in ast.walk(function.args) if isinstance(arg, ast.arg)}
        stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        local = sorted(name for name in stored - given if not _speaks(name))
        new = {name: f"zz{index}" for index, name in enumerate(local)}
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and node.id in new:
                node.id = new[node.id]
    return ast.unparse(tree) + "\n"


def _speaks(name: str) -> bool:
    return bool(names.size_called(name) or names.is_mask(name) or names.is_feature_axis(name) or _SAID.search(name))


_SAID = re.compile(r"mask|bias|keep|hide|pad|cache|past|pos|lengths", re.IGNORECASE)


def aliased(source: str) -> str:
    """Other names for what is imported."""
    tree = ast.parse(source)
    new: dict[str, str] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom) and getattr(statement, "module", "") != "__future__":
            for alias in statement.names:
                bound = alias.asname or alias.name
                if "." not in bound and bound != "attn_guard":
                    new[bound] = alias.asname = f"some_{bound}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in new:
            node.id = new[node.id]
    return ast.unparse(tree) + "\n"


def imported_whole(source: str) -> str:
    """``torch.nn.Linear`` and ``torch.nn.functional.softmax`` where ``nn`` and ``F`` were."""
    tree = ast.parse(source)
    whole = {"nn": "torch.nn", "F": "torch.nn.functional"}
    bound = {a.asname or a.name for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names}

    class Whole(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return ast.parse(whole[node.id], mode="eval").body if node.id in whole and node.id in bound else node

    return "import torch\n" + ast.unparse(Whole().visit(tree)) + "\n"


def split(source: str) -> str:
    """Operands and arguments that are computed get a name in a statement of their own."""
    tree = ast.parse(source)
    for body in _bodies(tree):
        index = 0
        while index < len(body):
            new = _hoisted(body[index])
            body[index:index] = new
            index += len(new) + 1
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _hoisted(statement: ast.stmt) -> list[ast.stmt]:
    """The statements that compute the operands of a statement, whose names then stand in it."""
    value = getattr(statement, "value", None)
    if not isinstance(statement, ast.Assign | ast.Return | ast.Expr) or not isinstance(value, ast.Call | ast.BinOp):
        return []
    if isinstance(value, ast.Call):
        receiver = value.func.value if isinstance(value.func, ast.Attribute) else None
        parts = [*([receiver] if isinstance(receiver, ast.Call | ast.BinOp) else []), *value.args]
    else:
        parts = [value.left, value.right]
    made: list[ast.stmt] = []
    for part in parts:
        if isinstance(part, ast.Call | ast.BinOp) and not _is_constant(part):
            name = f"part_{crc32(ast.dump(part).encode())}"
            made += [*_hoisted(first := ast.Assign([ast.Name(name, ast.Store())], copy.deepcopy(part))), first]
            _replace(value, part, ast.Name(name, ast.Load()))
    return made


def _is_constant(node: ast.expr) -> bool:
    """Such as ``float("-inf")``."""
    return all(
        isinstance(n, ast.Constant | ast.Call | ast.UnaryOp | ast.USub | ast.Load)
        or (isinstance(n, ast.Name) and hasattr(builtins, n.id))
        for n in ast.walk(node)
    )


def _replace(node: ast.expr, old: ast.expr, new: ast.expr) -> None:
    for above in ast.walk(node):
        for field, child in ast.iter_fields(above):
            if child is old:
                setattr(above, field, new)
            elif isinstance(child, list) and any(item is old for item in child):
                setattr(above, field, [new if item is old else item for item in child])


def joined(source: str) -> str:
    """A name that is assigned once and read once, in the next statement, gives way to its value."""
    tree = ast.parse(source)
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        uses = Counter(node.id for node in ast.walk(function) if isinstance(node, ast.Name))
        for body in _bodies(function):
            index = 0
            while index + 1 < len(body):
                if not _joins(body[index], body[index + 1], uses):
                    index += 1
                else:
                    del body[index]
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _joins(statement: ast.stmt, following: ast.stmt, uses: Counter[str]) -> bool:
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    if not isinstance(target, ast.Name) or uses[target.id] != 2 or _speaks(target.id):
        return False
    value = getattr(following, "value", None)
    if not isinstance(following, ast.Assign | ast.Return) or not isinstance(value, ast.expr):
        return False
    read = [n for n in ast.walk(value) if isinstance(n, ast.Name) and n.id == target.id]
    inner = [n for n in ast.walk(value) if isinstance(n, ast.Lambda | ast.GeneratorExp | ast.ListComp)]
    if len(read) != 1 or inner:
        return False
    if read[0] is value:
        following.value = statement.value
    else:
        _replace(value, read[0], statement.value)
    return True


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """The statements of functions, block by block; of those that only build and call the module, none."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for function in [function for function in functions if function.name not in ("build", "inputs")]:
        for node in ast.walk(function):
            for field in ("body", "orelse"):
                block = getattr(node, field, None)
                if isinstance(block, list) and not isinstance(node, ast.ClassDef):
                    yield block


def moved(source: str) -> str:
    """Functions behind the classes that use them, and methods in the opposite order."""
    tree = ast.parse(source)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            rest = [part for part in node.body if not isinstance(part, ast.FunctionDef)]
            node.body = [*rest, *reversed(methods)]
    helpers = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    tree.body = [*(node for node in tree.body if node not in helpers), *reversed(helpers)]
    return ast.unparse(tree) + "\n"


def nested(source: str) -> str:
    """Everything inside ``if True:``, as after a check of versions."""
    indented = "\n".join(f"    {line}" if line.strip() else line for line in source.split("\n"))
    return f"if True:\n{indented}\n" if '"""' not in source else source


ALL: tuple[Rewriting, ...] = (
    reformatted,
    commented,
    spread,
    renamed,
    aliased,
    imported_whole,
    split,
    joined,
    moved,
    nested,
)
