"""Where query, key and value of an attention come from, as its source names it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations

from attn_guard.anatomy import Stage
from attn_guard.lint import names
from attn_guard.lint import nodes as cst
from attn_guard.lint.record import Operands
from attn_guard.lint.regions import Class
from attn_guard.lint.values import Draft, Instance, Layer


def idle_projections(family: Iterable[Class], instance: Instance) -> dict[Stage, str]:
    """The linear layers of a class that no method uses, by the part that their names say."""
    idle: dict[Stage, str] = {}
    users = [
        region.text
        for owner in family
        for region in owner.methods.values()
        if region.name != "__init__" and not re.search(r"init|reset", region.name)
    ]
    if any("getattr(" in text for text in users):
        return {}
    for name, value in instance.attributes.items():
        part = names.part_called(name)
        is_linear = isinstance(value, Layer) and value.kind == "Linear"
        if part and is_linear and not any(re.search(rf"\.{name}\b", text) for text in users):
            idle[part] = name
    return idle


def mixed_up(operands: Operands, idle: dict[Stage, str]) -> Iterator[tuple[Draft, Stage, Stage | None, str]]:
    """(place, the part that is wrong, the part whose projection it takes, the projection that lies idle)."""
    made = {Stage.QUERY: operands.query, Stage.KEY: operands.key, Stage.VALUE: operands.value}
    for wrong, other in permutations(made, 2):
        first, second = made[wrong], made[other]
        if wrong not in idle or first is None or second is None or first.node is second.node:
            continue
        name = layer_called(first)
        if name and name == layer_called(second) and names.part_called(name) is other:
            yield first, wrong, other, idle[wrong]
    others = [draft for draft in (operands.query, operands.key) if draft and layer_called(draft)]
    if operands.is_value_bare and Stage.VALUE in idle and len(others) == 2:
        yield operands.core, Stage.VALUE, None, idle[Stage.VALUE]


def unread_value(text: str) -> str:
    """The name of a value that a function takes apart from its query and key, and never reads; "" where there is
    none."""
    code = _COMMENT.sub("", text)
    for found in _TRIPLE.finditer(code):
        kinds = (names.is_query(found[1]), names.is_key(found[2]), names.is_value(found[3]))
        is_alias = _ENDS_IN_A_NAME.fullmatch(found["made"]) is not None  # another name for what is read by its own
        if all(kinds) and not is_alias and len(re.findall(rf"\b{found[3]}\b", code)) == 1:
            return found[3]
    return ""


_COMMENT = re.compile(r"#[^\n]*")
_TRIPLE = re.compile(r"\n[ \t]*\(?(\w+), *(\w+), *(\w+)\)? *=(?!=)(?P<made>[^\n]*)")
_ENDS_IN_A_NAME = re.compile(r".*, *\w+ *")


def layer_called(draft: Draft) -> str:
    """The name of the layer of the module that made a projection: w_q in ``self.w_q(x)``."""
    node = draft.node
    called = node.func if isinstance(node, cst.Call) else None
    is_own = isinstance(called, cst.Attribute) and isinstance(called.value, cst.Name) and called.value.value == "self"
    return called.attr.value if is_own and isinstance(called, cst.Attribute) else ""


def memory_of(parameters: Sequence[str], declared: bool) -> str:
    """The argument of a cross attention that is asked; "" where nothing says so plainly."""
    if declared and len(parameters) > 1:
        return parameters[1]
    return next((name for name in parameters[1:] if names.is_memory(name, parameters)), "")


def swapped(operands: Sequence[Operands], memory: str, parameters: Sequence[str]) -> Iterator[Draft]:
    """Projections of queries from the memory whose keys come from the stream, which is the first argument; none
    where both ways are used."""
    pairs = [(o.query, o.key) for o in operands if o.query is not None and o.key is not None]
    if any(query.text != memory and key.text == memory for query, key in pairs):
        return
    for query, key in pairs:
        if query.text == memory and key.text == parameters[0]:
            yield query
