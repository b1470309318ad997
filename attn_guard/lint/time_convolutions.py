"""Convolutions over time that are padded on both sides, in a model whose other convolutions are causal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from attn_guard.lint import names
from attn_guard.lint import nodes as cst
from attn_guard.lint.regions import Class, Region

_BOTH_SIDES = re.compile(r"padding\s*=\s*(?:[^,\n]*//\s*2\b|['\"]same)")
_ALONG_TIME = re.compile(r"->[^'\"\n]*\b(?:t|time)\s*['\"]")  # einops, with time last
_NAMED_AFTER_TIME = re.compile(r"time|temporal", re.IGNORECASE)
_CONVOLUTION = re.compile(r"\b(\w*(?:Causal\w*Conv|causal_?conv)\w*)\(")


def looking_ahead(classes: Iterable[Class]) -> Iterator[tuple[Region, Class]]:
    """Constructors that make such a convolution, and the model that uses their class beside causal convolutions."""
    known = tuple(classes)
    models = [owner for owner in known if any(map(names.is_causal, _CONVOLUTION.findall(_constructor(owner))))]
    for owner in known if models else ():
        made = _constructor(owner)
        if "Conv1d(" in made and _BOTH_SIDES.search(made) and "causal" not in owner.text.lower() and _over_time(owner):
            users = (model for model in models if re.search(rf"\b{owner.name}\(", _constructor(model)))
            yield from ((owner.methods["__init__"], model) for model in islice(users, 1))


def _constructor(owner: Class) -> str:
    return owner.methods["__init__"].text if "__init__" in owner.methods else ""


def _over_time(owner: Class) -> bool:
    forward = owner.methods.get("forward")
    return bool(_NAMED_AFTER_TIME.search(owner.name) or (forward and _ALONG_TIME.search(forward.text)))


def padded_on_both_sides(node: cst.CSTNode) -> Iterator[cst.Call]:
    """The one-dimensional convolutions in a piece of source that see as much of the future as of the past."""
    if isinstance(node, cst.Call):
        text = cst.code(node)
        if re.match(r"(?:torch\.)?(?:nn\.)?Conv1d\(", text) and _BOTH_SIDES.search(text):
            yield node
            return
    for child in node.children:
        yield from padded_on_both_sides(child)
