"""Two ways through one function that compute attention, of which one is given the mask and the other is not."""

from __future__ import annotations

import re
from collections.abc import Set
from typing import TYPE_CHECKING

from attn_guard.anatomy import Stage, StepKind
from attn_guard.lint import nodes as cst
from attn_guard.lint.record import SiteDraft
from attn_guard.lint.values import Branch, Draft

if TYPE_CHECKING:
    from attn_guard.lint.regions import Region

_SWITCH = re.compile(
    r"(?:need|return|output)_\w+|(?:with|get|save|store|visuali\w*)_\w*(?:attn|attention|weights?|scores|probs|map)"
    r"|flash|sdpa|fused|scaled_dot_product|xformers|memory_efficient|mem_efficient|eager|naive|checkpoint",
    re.IGNORECASE,
)
_MISSING_MASK = (  # by the side of a branch on which it is missing
    re.compile(r"\b\w*mask\w* is None\b", re.IGNORECASE),
    re.compile(r"\b\w*mask\w* is not None\b", re.IGNORECASE),
)
_ABOUT_MASKS = re.compile(r"mask|causal|cross|past|cache|prev|len|size|shape|pad|train", re.IGNORECASE)


def masked_beside(site: SiteDraft, other: SiteDraft) -> bool:
    """Whether a site is surely without a mask, and an implementation switch leads to another one that has one."""
    if not site.is_unmasked or first_mask(other) is None or any(map(_is_for_no_mask, site.branches)):
        return False
    parted = _parted(site.branches, other.branches)
    return (
        len(parted) == 1
        and all(is_switch(node) for node in parted)
        and not any(_asks_for_an_argument(node, site.region) for node in parted)
    )


def _is_for_no_mask(branch: Branch) -> bool:
    """Whether a branch is taken because there is no mask: ``if mask is None``."""
    node, side = branch
    return isinstance(node, cst.If | cst.IfExp) and _MISSING_MASK[side].search(cst.code(node.test)) is not None


def _asks_for_an_argument(node: cst.CSTNode, region: Region) -> bool:
    """Whether a test asks, among other things, if an argument of the function is given: it may be the mask."""
    tree, test = region.tree, cst.code(node.test) if isinstance(node, cst.If | cst.IfExp) else ""
    params = tree.params.single if tree else []
    return any(re.search(rf"(?<![\w.]){param.name.value} is (?:not )?None\b", test) for param in params)


def exclude_each_other(branches: Set[Branch], others: Set[Branch]) -> bool:
    """Whether two places are on different sides of something that is no switch between implementations."""
    return not all(is_switch(node) for node in _parted(branches, others))


def _parted(branches: Set[Branch], others: Set[Branch]) -> set[cst.CSTNode]:
    return {node for node, side in branches if any(node is at and side != to for at, to in others)}


def first_mask(site: SiteDraft) -> Draft | None:
    """The first mask on the scores of a site."""
    masks = (step for step in site.value.steps if step.kind is StepKind.MASK and step.stage is Stage.SCORES)
    return next(masks, None)


def is_named_like_a_switch(text: str) -> bool:
    """Whether a text speaks of another implementation, or of weights that are handed out."""
    return _SWITCH.search(text) is not None


def is_switch(node: cst.CSTNode) -> bool:
    """Whether a statement chooses an implementation, and not by what masks there are."""
    if not isinstance(node, cst.If | cst.IfExp):
        return False
    test = cst.code(node.test)
    return bool(_SWITCH.search(test)) and not _ABOUT_MASKS.search(test)
