"""Causal masks that are left out as soon as there is a cache, although the prompt itself comes in with the cache."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import libcst as cst

from attn_guard.anatomy import Stage, StepKind
from attn_guard.lint import names
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
    node, above = mask.node, mask.region.parent(mask.node)
    while above is not None:
        if isinstance(above, cst.If) and above.body is node and cst.Module([]).code_for_node(above.test) == text:
            return above.test
        node, above = above, mask.region.parent(above)
    return None
