"""The call of the fused attention that a function could make instead of the steps that it writes out."""

from __future__ import annotations

import re

from attn_guard.anatomy import Axis, Site, Stage, StepKind
from attn_guard.lint import nodes as cst
from attn_guard.lint.paths import is_named_like_a_switch
from attn_guard.lint.record import SiteDraft
from attn_guard.lint.values import Draft, Instance, Role, Tensor

_STRONG_FILL = -1e3
_TRANSPOSED = re.compile(r"\.(?:transpose|swapaxes)\((?:-2, *-1|-1, *-2)\)$|\.mT$")
_SIMPLE = re.compile(r"[\w.]+")
_BEHIND = (StepKind.PROJECTION, StepKind.SPLIT, StepKind.MERGE)


def fused_call(draft: SiteDraft, site: Site, instance: Instance | None) -> str | None:
    """The call that equals a site: of three names, one mask at most, and dropout of a layer; None where that is not
    sure, or where somebody may want the weights."""
    steps = {step.identity: step for step in draft.value.steps if step.kind not in _BEHIND}.values()
    if any(step.region is not draft.region for step in steps) or not _is_plain(draft, site):
        return None
    kept = instance.attributes.values() if instance else ()
    if any(isinstance(value, Tensor) and value.role is not Role.PARAMETER and value.core for value in kept):
        return None
    if is_named_like_a_switch(draft.region.text):
        return None
    arguments = [_argument(step) for step in steps]
    if None in arguments or len({step.node for step in steps}) < len(steps):
        return None
    parts = sorted((part for part in arguments if part), key=lambda part: "=" in part)
    given = [part.partition("=")[0] for part in parts if "=" in part]
    return f"F.scaled_dot_product_attention({', '.join(parts)})" if len(set(given)) == len(given) else None


def _is_plain(draft: SiteDraft, site: Site) -> bool:
    """Whether scores are made, scaled by 1/√head_dim, normalised over the keys and summed over them."""
    once = all(len(site.find(kind)) == 1 for kind in (StepKind.SCORES, StepKind.SOFTMAX, StepKind.CONTEXT))
    scaled = site.scale is not None and site.scale.is_right and not draft.value.opaque
    return once and scaled and site.softmax_over is Axis.KEYS and site.summed_over is Axis.KEYS


def _argument(step: Draft) -> str | None:
    """What a step says in the call; "" where it says nothing, None where there is no word for it."""
    node = step.node
    if step.kind is StepKind.SOFTMAX or (step.kind is StepKind.SCALE and step.stage is Stage.SCORES):
        return ""
    if step.kind is StepKind.MASK and step.stage is Stage.SCORES and (step.fill or 0.0) <= _STRONG_FILL:
        return _mask(node)
    if step.kind is StepKind.DROPOUT and step.stage is Stage.WEIGHTS and isinstance(node, cst.Call):
        layer = _code(node.func)
        return f"dropout_p={layer}.p if self.training else 0.0" if re.fullmatch(r"self\.\w+", layer) else None
    if not isinstance(node, cst.BinaryOperation):
        return None
    left, right = _code(node.left), _code(node.right)
    if step.kind is StepKind.SCORES and _SIMPLE.fullmatch(left) and _TRANSPOSED.search(right):
        key = _TRANSPOSED.sub("", right)
        return f"{left}, {key}" if _SIMPLE.fullmatch(key) else None
    return right if step.kind is StepKind.CONTEXT and _SIMPLE.fullmatch(right) else None


def _mask(node: cst.CSTNode) -> str | None:
    """``scores.masked_fill(blocked, -inf)``: True means attend in the fused call."""
    if not (isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and len(node.args) == 2):
        return None
    blocked = _code(node.args[0].value)
    kept = re.fullmatch(r"([\w.]+) == 0", blocked)
    if kept or not _SIMPLE.fullmatch(blocked):
        return f"attn_mask={kept[1]} != 0" if kept else None
    return f"attn_mask=~{blocked}" if node.func.attr.value == "masked_fill" else None


def _code(node: cst.CSTNode) -> str:
    return cst.code(node)
