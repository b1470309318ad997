"""Causal masks that are left out as soon as there is a cache, although the prompt itself comes in with the cache."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from attn_guard.anatomy import Stage, StepKind
from attn_guard.lint import names
from attn_guard.lint import nodes as cst
from attn_guard.lint.record import SiteDraft
from attn_guard.lint.values import Draft

_HIDING = (StepKind.MASK, StepKind.BIAS)
_FILLED = re.compile(r"\b(\w+)\.update\(")
_COUNTED = re.compile(r"(?:[<>]=?|[=!]=)\s*1\b")


def filled_caches(text: str) -> Iterator[str]:
    """Names of caches that a function fills itself, so that a prompt can only come in with one, and that it asks for.

    Where the function asks whether there is one query, it may have thought of prompts.
    """
    if not _COUNTED.search(text):
        yield from sorted(
            {name for name in _FILLED.findall(text) if names.is_cache(name) and f"{name} is None" in text}
        )


def left_out(site: SiteDraft, cache: str) -> tuple[Draft, Draft] | None:
    """The causal mask of a site, if it is the only mask there and is left out where there is a cache: what leaves it
    out, and the mask."""
    masks = [step for step in site.value.steps if step.kind in _HIDING and step.stage is Stage.SCORES]
    if len(masks) != 1 or "causal" not in masks[0].text or site.value.opaque:
        return None
    mask = masks[0]
    if mask.text == "is_causal":
        is_asked = re.search(rf"is_causal\s*=\s*\(?{cache} is None\b", site.region.text)
        return (mask, mask) if is_asked else None
    test = _test_around(mask, f"{cache} is None")
    return (replace(mask, node=test), mask) if test else None


def _test_around(mask: Draft, text: str) -> cst.BaseExpression | None:
    """The test of an ``if text`` whose body holds a step."""
    waiting: list[cst.CSTNode] = [mask.region.tree] if mask.region.tree else []
    for node in waiting:
        if isinstance(node, cst.If) and cst.code(node.test) == text and _holds(node.body, mask.node):
            return node.test
        waiting.extend(node.children)
    return None


def _holds(node: cst.CSTNode, sought: cst.CSTNode) -> bool:
    return node is sought or any(_holds(child, sought) for child in node.children)
