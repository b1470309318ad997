"""Turns what a walk has recovered into `Site`s."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attn_guard.anatomy import ONE, Factor, Site, Size, Stage, Step, StepKind
from attn_guard.findings import Location
from attn_guard.lint import grid, layout, names
from attn_guard.lint.record import SiteDraft
from attn_guard.lint.values import Draft, Scalar, Tensor

Locate = Callable[[Draft], Location]


def exactly(draft: Draft) -> Location:
    """Where a step is, to the column."""
    return draft.region.location(draft.node)


def roughly(draft: Draft) -> Location:
    """The function that a step is in, which costs nothing to know."""
    return Location(draft.region.path, draft.region.line)


def make_site(site: SiteDraft, dropped: Iterable[Draft], locate: Locate) -> Site:
    """The site of a draft; ``dropped`` are masks of its scores or weights whose result is thrown away."""
    drafts = _ordered((*site.value.steps, *site.beside))
    steps = [_step(draft, locate, used=True) for draft in drafts if not _is_doubtful(site, draft)]
    steps += [_step(draft, locate, used=False) for draft in dropped]
    over, summed = grid.directions(site.value.grid)
    return Site(
        name=site.region.qualified_name,
        steps=tuple(steps),
        scale=None if site.declares_scale else scale_of(site.value),
        normalised=site.value.bounded,
        causal=False if site.is_unmasked and not _is_over_pixels(site.value) else None,
        softmax_over=over,
        summed_over=summed,
    )


def _is_over_pixels(value: Tensor) -> bool:
    return value.grid is not None and value.grid.pixels


def _ordered(drafts: Iterable[Draft]) -> list[Draft]:
    return list({draft.identity: draft for draft in drafts}.values())


def _is_doubtful(site: SiteDraft, draft: Draft) -> bool:
    """A mask after the softmax proves nothing where something that is not understood may have masked the scores."""
    return site.value.opaque and draft.kind is StepKind.MASK and draft.stage is Stage.WEIGHTS


def _step(draft: Draft, locate: Locate, *, used: bool) -> Step:
    return Step(
        kind=draft.kind,
        stage=draft.stage or Stage.QUERY,
        location=locate(draft),
        text=draft.text,
        factor=_plain_factor(draft.factor) if draft.factor else None,
        fill=draft.fill,
        used=used,
        scrambles=draft.scrambles,
        divides=draft.divides,
    )


def _plain_factor(factor: Scalar) -> Factor:
    if factor.is_number:
        return Factor(value=factor.number)
    size, power = factor.size or (None, None)
    return Factor(size=size, power=power)


def scale_of(value: Tensor) -> Factor | None:
    """The product of all factors between the projections and the softmax; None unless all of them are known."""
    scales = [step for step in value.steps if step.kind is StepKind.SCALE and step.stage in _BEFORE]
    if not value.traced or any(step.factor is None for step in scales):
        return None
    product = Scalar()
    for step in scales:
        assert step.factor is not None
        product = product.times(step.factor)
    if product == Scalar() and value.width == Scalar():
        return Factor(size=Size.HEAD_DIM, power=-0.5)
    if product == Scalar():
        return None if _has_position_bias(value) else ONE
    return _judged(product, value)


_BEFORE = (Stage.QUERY, Stage.KEY, Stage.SCORES, None)


def _has_position_bias(value: Tensor) -> bool:
    """T5 and its kin have no scale: it is folded into how their weights are drawn."""
    return any(step.kind is StepKind.BIAS and names.is_position_bias(step.text) for step in value.steps)


def _whole_width(width: Scalar) -> Scalar:
    """The width that was divided by the heads to give a head its own, whatever it is called."""
    heads = tuple((atom, -power) for atom, power in width.powers if atom.size is Size.HEADS and power == -1.0)
    return width.times(Scalar(powers=heads))


def _judged(product: Scalar, value: Tensor) -> Factor | None:
    width = value.width
    if width is not None and width.powers:
        for power in (-0.5, -1.0, 0.5):
            if product == width.to_power(power):
                return Factor(size=Size.HEAD_DIM, power=power)
            if product.powers and product == _whole_width(width).to_power(power):
                return Factor(size=Size.D_MODEL, power=power)
    if product.is_number:
        if width is not None and width.is_number:
            right = width.to_power(-0.5)
            close = right is not None and abs(right.number - product.number) < 1e-3 * right.number
            return Factor(size=Size.HEAD_DIM, power=-0.5) if close else None
        return Factor(value=product.number) if layout.is_head_dim(width) else None
    if product.size is None or product.number != 1.0:
        return None
    size, power = product.size
    if size is Size.D_MODEL and not layout.is_head_dim(width):
        return None
    return Factor(size=size, power=power) if size in (Size.D_MODEL, Size.HEAD_DIM) else None
