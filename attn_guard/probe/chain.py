"""Draws the chain of shapes of an attention computation, the one thing to hold in one's head when wiring attention.

``x (2,5,64) → qkv (2,5,192) → heads (2,8,5,8) → scores (2,8,5,5) → softmax → context (2,8,5,8) → merge (2,5,64) →
out (2,5,64)``
"""

from __future__ import annotations

from dataclasses import dataclass

from attn_guard.findings import Location
from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.flow import Projection
from attn_guard.probe.influence import origin
from attn_guard.probe.masks import multiplier
from attn_guard.probe.sites import Trace
from attn_guard.probe.tape import Op

_PLAIN = frozenset(
    """
    view _unsafe_view reshape expand unsqueeze squeeze clone contiguous alias detach _to_copy t
    """.split()
)


@dataclass(frozen=True)
class Link:
    """One link of the chain: a name, the shape there, a remark ("·0.3536") and the source line."""

    name: str
    shape: tuple[int, ...] | None = None
    remark: str = ""
    location: Location | None = None

    def __str__(self) -> str:
        shape = f" ({','.join(map(str, self.shape))})" if self.shape else ""
        return f"{self.name}{shape}{' ' + self.remark if self.remark else ''}"


def draw(anatomy: Anatomy) -> str:
    """The chain on one line, then one line per link with the place that made it."""
    found = links(anatomy)
    title = f"{anatomy.trace.module or type(anatomy.module).__name__}: "
    width = max(len(str(link)) for link in found)
    places = [f"  {link!s:<{width}}  {link.location}" for link in found if link.location is not None]
    return "\n".join([title + " → ".join(str(link) for link in found), *places])


def links(anatomy: Anatomy) -> list[Link]:
    trace = anatomy.trace
    tape = trace.flow.tape
    found = [Link("x", _shape(trace, _input_of(trace)))]
    found += _projections(trace)
    heads = tape.values[trace.query].shape
    found.append(Link("heads", _stack_shape(anatomy, heads[-2:]), location=_maker(trace, trace.query)))
    scores = _last_shape(trace, trace.softmax.inputs[0])
    found.append(Link("scores", scores, _scale(anatomy), trace.scores.location))
    found += [Link("mask", None, _fill(mask.fill), mask.op.location) for mask in anatomy.masks]
    found.append(Link("softmax", None, "", trace.softmax.location))
    context = tape.values[trace.context.output].shape
    found.append(Link("context", _stack_shape(anatomy, context[-2:]), "", trace.context.location))
    found += _ending(trace)
    return found


def _projections(trace: Trace) -> list[Link]:
    parts = [trace.query_projection, trace.key_projection, trace.value_projection]
    names = "qkv"
    groups: dict[int, str] = {}
    for name, part in zip(names, parts, strict=True):
        if part is not None:
            groups[part.op.index] = groups.get(part.op.index, "") + name
    return [
        Link(name, _projected_shape(trace, _by_index(parts, index)), "", trace.flow.tape.ops[index].location)
        for index, name in groups.items()
    ]


def _by_index(parts: list[Projection | None], index: int) -> Projection:
    return next(part for part in parts if part is not None and part.op.index == index)


def _projected_shape(trace: Trace, projection: Projection) -> tuple[int, ...]:
    """The shape of a projection's result as the user's line gives it: what comes next from the same place counts."""
    tape = trace.flow.tape
    value = projection.op.output
    leading = _shape(trace, _input_of(trace))
    while True:
        following = next((op for op in tape.consumers(value) if op.place == projection.op.place), None)
        if following is None or following.name not in _PLAIN | {"add"}:
            break
        value = following.output
    shape = tuple(tape.values[value].shape)
    if len(shape) == 2 and leading and len(leading) == 3 and shape[0] == leading[0] * leading[1]:
        return (*leading[:2], shape[1])
    return shape


def _input_of(trace: Trace) -> int:
    return origin(trace.flow, trace.query, trace.query_projection).source


def _stack_shape(anatomy: Anatomy, face: tuple[int, ...]) -> tuple[int, ...]:
    """(batch, heads, rows, columns) for a stack of batch × heads matrices."""
    slices = anatomy.trace.flow.tape.values[anatomy.trace.query].shape[:-2].numel()
    from attn_guard.anatomy import Size

    heads = anatomy.sizes[Size.HEADS]
    return (slices // heads, heads, *face)


def _last_shape(trace: Trace, value: int) -> tuple[int, ...]:
    return tuple(trace.flow.tape.values[value].shape)


def _scale(anatomy: Anatomy) -> str:
    if anatomy.scale is None or anatomy.scale.value is None:
        return "·?" if anatomy.scale is None else ""
    return f"·{anatomy.scale.value:.4g}"


def _fill(fill: float | None) -> str:
    return "" if fill is None else f"{fill:.4g}"


def _ending(trace: Trace) -> list[Link]:
    found = []
    tape = trace.flow.tape
    if trace.merged is not None and trace.merge:
        shape = _merged_shape(trace)
        found.append(Link("merge", shape, "", trace.merge[-1].location))
    if trace.output is not None:
        found.append(Link("out", _projected_shape(trace, trace.output), "", trace.output.op.location))
    elif trace.merged is None:
        found.append(Link("out", tuple(tape.values[trace.context.output].shape)))
    return found


def _merged_shape(trace: Trace) -> tuple[int, ...]:
    """The shape before the output projection's own line flattens it."""
    own = trace.output.op.place if trace.output is not None else None
    value = trace.context.output
    for op in trace.merge:
        if op.place == own and op.name in _PLAIN and trace.output is not None and op is trace.merge[-1]:
            break
        value = op.output
    shape = tuple(trace.flow.tape.values[value].shape)
    leading = _shape(trace, _input_of(trace))
    if len(shape) == 2 and leading and len(leading) == 3 and shape[0] == leading[0] * leading[1]:
        return (*leading[:2], shape[1])
    return shape


def _shape(trace: Trace, value: int) -> tuple[int, ...]:
    return tuple(trace.flow.tape.values[value].shape)


def _maker(trace: Trace, value: int) -> Location | None:
    """The place of the last operation that moved the heads into their stack."""
    op: Op | None = trace.flow.tape.maker(value)
    while op is not None and (op.name in _PLAIN or op.place == trace.scores.place) and op.inputs:
        if multiplier(trace.flow, op, op.inputs[0]) is None:
            break
        op = trace.flow.tape.maker(op.inputs[0])
    return op.location if op is not None else None
