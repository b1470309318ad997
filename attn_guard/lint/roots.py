"""Chooses the functions of a file from which walks start."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from attn_guard.lint import copies, time_convolutions
from attn_guard.lint.einsum_letters import holds_lost_letter
from attn_guard.lint.prefilter import (
    BUILT_IN_LAYERS,
    CORE_LAYERS,
    adds_table,
    holds_core,
    holds_masked_logits,
    holds_product,
)
from attn_guard.lint.regions import Region, Source

_HOPS = 2
_NOT_CALLED = r"\s*(?:[,)\n]|if\b)"
_INHERITED = ("self_attn", "multihead_attn")  # from the layers of nn.Transformer
_LAYERS = re.compile(rf"self\.(\w+)[^=\n]*=[^\n]*(?:{BUILT_IN_LAYERS}|{CORE_LAYERS}|[sS]oftmax)")


def roots(source: Source) -> list[Region]:
    """Functions that hold a core of attention, those that call them, and those that add tables of positions."""
    chosen = {id(region): region for region in _with_core(source) if _meets_product(source, region)}
    for hop in range(_HOPS):
        called = {region.name for region in chosen.values() if region.name not in ("forward", "__init__")}
        for region in _callers(source, called):
            chosen.setdefault(id(region), region)
        built = {region.owner.name for region in chosen.values() if region.owner and region.name == "forward"}
        if hop == 0:
            for region in _users(source, built):
                chosen.setdefault(id(region), region)
    chosen |= {id(region): region for region, _ in copies.lossy(source.all_classes)}
    chosen |= {id(region): region for region in source.regions if adds_table(region.text)}
    if "Conv1d(" in source.text:
        chosen |= {id(region): region for region, _ in time_convolutions.looking_ahead(source.all_classes)}
    return list(chosen.values())


def _with_core(source: Source) -> Iterator[Region]:
    yield from (region for region in source.functions.values() if holds_core(region.text))
    yield from (region for region in source.regions if holds_lost_letter(region.text))
    for owner in source.all_classes:
        if not holds_core(owner.text) and "DotProduct" not in owner.text:
            continue
        layers = {*_LAYERS.findall(owner.text), *(_INHERITED if "coderLayer" in owner.head else ())}
        uses = re.compile(rf"self\.(?:{'|'.join(map(re.escape, layers))})\s*[(\[:]") if layers else None
        for region in owner.methods.values():
            if region.name != "__init__" and (holds_core(region.text) or (uses and uses.search(region.text))):
                yield region


def _meets_product(source: Source, region: Region) -> bool:
    """Whether there is a product near a core: in it, in its class, or in what uses it. Without one, a softmax routes,
    classifies or samples, unless its logits are masked by a product."""
    if holds_product(region.owner.text if region.owner else region.text) or holds_masked_logits(region.text):
        return True
    if region.owner and region.name == "forward":
        around: Iterator[Region] = _users(source, {region.owner.name})
    else:
        around = _callers(source, {region.name})
    return any(holds_product(user.owner.text if user.owner else user.text) for user in around)


def _callers(source: Source, called: set[str]) -> Iterator[Region]:
    functions = called & source.functions.keys()
    for region in source.regions:
        if any(_calls(region, name) for name in called):
            yield region
        elif region.name not in called and _hands_on(region.text, functions, called):
            # what a constructor keeps is called in forward
            kept = region.owner is not None and region.name == "__init__"
            yield region.owner.methods.get("forward", region) if region.owner and kept else region


def _hands_on(text: str, functions: Iterable[str], methods: Iterable[str]) -> bool:
    """Whether one of these functions is an argument or a value: ``attend = choose(backend, attend_by_hand)``."""
    if any(name in text and re.search(rf"{name}(?<![.\w]{name}){_NOT_CALLED}", text) for name in functions):
        return True
    return "checkpoint(" in text and any(
        re.search(rf"checkpoint\(\s*self\.{name}{_NOT_CALLED}", text) for name in methods
    )


def _users(source: Source, built: set[str]) -> Iterator[Region]:
    """``forward`` of the classes that make an object of a class with a core of its own."""
    for owner in source.all_classes:
        constructor = owner.methods.get("__init__")
        if owner.name in built or constructor is None or "forward" not in owner.methods:
            continue
        if any(name in constructor.text and calls(constructor.text, name) for name in built):
            yield owner.methods["forward"]


def is_called(source: Source, region: Region) -> bool:
    """Whether another function of the file calls something of its name; every module is called ``forward``."""
    others = (other for other in source.regions if other is not region)
    return region.name != "forward" and any(_calls(other, region.name) for other in others)


def _calls(region: Region, name: str) -> bool:
    """Whether a function calls something of this name; where it has the name itself, its head is no call."""
    return name in region.text and calls(region.text, name) > (region.name == name)


def calls(text: str, name: str) -> int:
    """How often a name stands before an opening bracket."""
    count, at = 0, text.find(name)
    while at >= 0:
        end = at + len(name)
        is_whole = not (text[at - 1 : at] or " ").replace("_", "a").isalnum()
        count += is_whole and text[end : end + 20].lstrip().startswith("(")
        at = text.find(name, end)
    return count
