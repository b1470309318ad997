"""Draws the chain of shapes of an attention computation, the one thing to hold in one's head when wiring attention.

``x (2,5,64) → qkv (2,5,192) → heads (2,8,5,8) → scores (2,8,5,5) → softmax → context (2,8,5,8) → merge (2,5,64) →
out (2,5,64)``
"""

from __future__ import annotations

from dataclasses import dataclass

from attn_guard.anatomy import Site, Size, StepKind
from attn_guard.findings import Location
from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.flow import stacked
from attn_guard.probe.origins import origin
from attn_guard.probe.sites import Trace


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
    return _drawn(anatomy.trace.module or type(anatomy.module).__name__, links(anatomy))


def draw_pooling(site: Site, title: str) -> str:
    """The same of attention pooling and of additive attention, whose scores no query and key have made."""
    found = [Link(step.kind.value, step.shape, _fill(step.fill), step.location) for step in site.steps]
    return _drawn(site.name or title, found)


def _drawn(title: str, found: list[Link]) -> str:
    width = max(len(str(link)) for link in found)
    places = [f"  {link!s:<{width}}  {link.location}" for link in found if link.location is not None]
    return "\n".join([f"{title}: " + " → ".join(str(link) for link in found), *places])


def links(anatomy: Anatomy) -> list[Link]:
    trace = anatomy.trace
    values = trace.flow.tape.values
    of = origin(trace.flow, trace.query, trace.query_projection).source
    found = [Link("x", tuple(values[of].shape)), *_projections(trace)]
    found.append(Link("heads", _stack(anatomy, trace.query), "", _split_at(trace)))
    found.append(Link("scores", _stack(anatomy, trace.scores.output), _scale(anatomy), trace.scores.location))
    found += [Link("mask", None, _fill(mask.fill), mask.op.location) for mask in anatomy.masks]
    found.append(Link("softmax", None, "", trace.softmax.location))
    found.append(Link("context", _stack(anatomy, trace.context.output), "", trace.context.location))
    if trace.merged is not None and trace.merge:
        step = next(iter(anatomy.site.find(StepKind.MERGE)), None)
        place = step.location if step is not None else trace.merge[-1].location
        found.append(Link("merge", _rows(trace, trace.merged, of), "", place))
    if trace.output is not None:
        found.append(Link("out", _rows(trace, trace.output.op.output, of), "", trace.output.op.location))
    return found


def _projections(trace: Trace) -> list[Link]:
    """One link per projection, named by what it makes: "qkv" for a fused one."""
    names: dict[int, str] = {}
    inputs: dict[int, int] = {}
    made = {
        "q": (trace.query, trace.query_projection),
        "k": (trace.key, trace.key_projection),
        "v": (trace.value, trace.value_projection),
    }
    for name, (operand, projection) in made.items():
        if projection is not None:
            index = projection.op.index
            names[index] = names.get(index, "") + name
            inputs[index] = origin(trace.flow, operand, projection).source
    ops = trace.flow.tape.ops
    return [
        Link(name, _rows(trace, ops[index].output, inputs[index]), "", ops[index].location)
        for index, name in names.items()
    ]


def _rows(trace: Trace, value: int, of: int) -> tuple[int, ...]:
    """A matrix of one row per position of the value ``of`` is shown with its leading axes, however it is laid out
    in memory."""
    values = trace.flow.tape.values
    shape, leading = values[value].shape, values[of].shape[:-1]
    if shape and shape.numel() == leading.numel() * shape[-1]:
        return (*leading, shape[-1])
    return tuple(shape)


def _stack(anatomy: Anatomy, value: int) -> tuple[int, ...]:
    """(batch, heads, rows, columns) for a stack of batch × heads matrices."""
    shape = stacked(anatomy.trace.flow.tape.values[value]).shape
    rows, columns = shape[-2:]
    heads = anatomy.sizes[Size.HEADS]
    return (shape[:-2].numel() // heads, heads, rows, columns)


def _scale(anatomy: Anatomy) -> str:
    return "·?" if anatomy.scale is None or anatomy.scale.value is None else f"·{anatomy.scale.value:.4g}"


def _fill(fill: float | None) -> str:
    return "" if fill is None else f"{fill:.4g}"


def _split_at(trace: Trace) -> Location | None:
    """The place of the last operation that moved the query's heads into their stack."""
    op = trace.flow.tape.nearest(trace.query, {"transpose", "permute", "view", "reshape", "_unsafe_view", "unflatten"})
    while op is not None and op.place == trace.scores.place:
        op = trace.flow.tape.maker(op.inputs[0])
    return op.location if op is not None else None
