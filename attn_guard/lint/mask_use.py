"""What can be wrong with a mask where it is used."""

from __future__ import annotations

from math import inf

from attn_guard.anatomy import StepKind
from attn_guard.lint import layout
from attn_guard.lint.paths import exclude_each_other
from attn_guard.lint.place import Place
from attn_guard.lint.record import Event, Trouble
from attn_guard.lint.values import Mask, Meaning, Tensor, Triangle


def blocks(place: Place, mask: Mask | None, scores: Tensor | None = None, fill: float | None = None) -> None:
    """The mask hides the keys where it is True, or holds its fill; ``fill`` is what the scores become there."""
    if mask is not None:
        if (fill or mask.fill) == -inf and mask.triangle and mask.padding:
            place.record.note(Trouble.EMPTY_ROW, Event(place.draft(StepKind.MASK)))
        _check(place, mask, scores)
        _read(place, mask, hides=True)
        if mask.triangle:
            _check_triangle(place, mask, mask.triangle.complement, scores)


def keeps(place: Place, mask: Mask | None, scores: Tensor | None = None) -> None:
    """The mask shows the keys where it is True."""
    if mask is not None:
        _check(place, mask, scores)
        _read(place, mask, hides=False)
        if mask.triangle:
            _check_triangle(place, mask, mask.triangle, scores)


def added(place: Place, mask: Mask | None, scores: Tensor | None = None, sign: float = 1.0) -> None:
    """The mask is added to the scores, or taken from them."""
    if mask is None:
        return
    if mask.flipped and sign > 0:
        text = "the keys that the mask keeps are given the fill that blocks"
        event = Event(
            mask.flipped, text, "give it to the others: (1 - mask) * fill", place.draft(StepKind.MASK), "added here"
        )
        place.record.misread.append(event)
    if mask.meaning is Meaning.ADDED:
        blocks(place, mask, scores)
    elif mask.flags:
        place.record.note(Trouble.ADDED_FLAGS, Event(place.draft(StepKind.MASK), mask.name))


def _check(place: Place, mask: Mask, scores: Tensor | None) -> None:
    used = place.draft(StepKind.MASK)
    if mask.split:
        place.record.note(Trouble.SPLIT, Event(mask.split, related=used, label="used here"))
    axes = len(scores.axes) if scores and _samples_come_first(scores) and scores.axes else 0
    if mask.rank is not None and mask.per_sample and mask.rank < axes:
        place.record.note(
            Trouble.TOO_FEW_AXES, Event(used, f"{mask.name} has {mask.rank} axes, the scores have {axes}")
        )


def _samples_come_first(scores: Tensor) -> bool:
    """Whether the scores are surely (batch, heads, queries, keys) or (batch, queries, keys), and not heads first."""
    axes = scores.axes or ()
    return (len(axes) == 4 and layout.is_heads(axes[1])) or (len(axes) == 3 and not layout.is_heads(axes[0]))


def _read(place: Place, mask: Mask, *, hides: bool) -> None:
    """Notes how an argument is read, and whether it was read the other way elsewhere."""
    if not mask.origin:
        return
    hides_if_true = hides is not mask.negated
    used, branches = place.draft(StepKind.MASK), place.record.branches
    reads = place.record.reads.setdefault(mask.origin, [])
    reads.append((hides_if_true, used, branches))
    for other, there, others in reads:
        if other is not hides_if_true and there.node is not used.node and not exclude_each_other(branches, others):
            hiding, keeping = (used, there) if hides_if_true else (there, used)
            # what tokenizers call attention_mask says True for tokens; of any other mask, the later place is blamed
            wrong, right = (hiding, keeping) if mask.origin == "attention_mask" else (used, there)
            says = "hides" if wrong is hiding else "keeps"
            text = f"True in {mask.origin} {says} a key here, and does the opposite elsewhere in this function"
            event = Event(wrong, text, "read the mask one way in both places", right, "read the other way here")
            place.record.misread.append(event)
            return


def _check_triangle(place: Place, mask: Mask, visible: Triangle, scores: Tensor | None) -> None:
    if visible.upper:
        return
    if visible.square is False:
        if visible.diagonal == 0 and scores is not None:
            starts_at_top_left(place, scores)
        return
    used = place.draft(StepKind.MASK)
    made = mask.made or used
    trouble = {1: Trouble.SEES_NEXT, -1: Trouble.HIDES_OWN}.get(visible.diagonal)
    if trouble:
        related = None if made.node is used.node else used
        place.record.note(trouble, Event(made, related=related, label="used here"))


def starts_at_top_left(place: Place, scores: Tensor) -> None:
    """A triangle that starts at the first key, where a cache is sure to be in front of the keys, or may be."""
    grown = scores.grown
    if grown is not None and place.record.branches <= grown.branches:
        event = Event(place.draft(StepKind.MASK), related=grown.draft, label="the keys of the cache come first here")
        place.record.note(Trouble.MISALIGNED, event)


def too_flat_for(place: Place, name: str, mask: Mask) -> None:
    """A mask of padded keys handed over as one of queries and keys."""
    if mask.rank == 2 and mask.per_sample and not name.endswith("key_padding_mask"):
        text = f"{mask.name} is (batch, keys), but {name} is (queries, keys)"
        place.record.note(Trouble.TOO_FEW_AXES, Event(place.draft(StepKind.MASK), text, f"pass it as {_padding(name)}"))


def _padding(name: str) -> str:
    prefix = name.removesuffix("attn_mask").removesuffix("mask")
    return f"{prefix or 'src_'}key_padding_mask" if name != "attn_mask" else "key_padding_mask"
