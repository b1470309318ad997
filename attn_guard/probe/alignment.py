"""Lines up two recorded runs of one module, a whole and a part of it, and finds the first operation at which they
disagree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from attn_guard.probe.tape import Op, Tape, same

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Alignment:
    """``full`` ran over ``total`` positions, ``part`` over those from ``start`` to ``end`` of them.

    The part's keys may be all positions up to ``end``, from a cache.
    """

    full: Tape
    part: Tape
    start: int
    end: int
    total: int

    @cached_property
    def first_difference(self) -> tuple[Op, Op] | None:
        """(operation on the content, root): the first operation on the content whose result differs, and the first
        operation behind it that has nothing to do with the content and differs, or else the same once more."""
        content = self.part.descendants(self.part.inputs().values())
        for op, counterpart in self.pairs:
            if op.writes or op.name in {"overwrite", "slice_scatter", "empty"} or content.isdisjoint(op.outputs):
                continue
            if self.differs(op.output, counterpart.output):
                return op, self._root(op, counterpart, content)
        return None

    def _root(self, op: Op, counterpart: Op, content: frozenset[int]) -> Op:
        behind: set[int] = set()
        for read, other in zip(op.inputs, counterpart.inputs, strict=False):
            if read not in content and self.differs(read, other):
                behind |= self.part.ancestors(read)
        for candidate, match in self.pairs:
            if not behind.isdisjoint(candidate.outputs) and self.differs(candidate.output, match.output):
                return candidate
        return op

    @cached_property
    def pairs(self) -> list[tuple[Op, Op]]:
        """Operations of the part with those of the whole that the same instruction of the same module made."""
        known = dict(_keyed(self.full))
        return [(op, known[key]) for key, op in _keyed(self.part) if key in known]

    def counterpart(self, op: Op) -> Op | None:
        return next((other for one, other in self.pairs if one is op), None)

    def differs(self, part: int, full: int) -> bool:
        """Whether a value of the part is another than the same positions of the whole; False where that is unclear."""
        left, right = self.part.values[part], self.full.values[full]
        cut = self.matching(left, right)
        if cut is None or left.dtype != right.dtype:
            return False
        left, right = cut
        if not left.is_floating_point() and not left.is_complex():
            return not bool(same(left, right).all())
        finite = right[right.isfinite()].abs()
        rounding = TOLERANCE * (float(finite.max()) if finite.numel() else 1.0)
        return bool((~same(left, right) & ~((left - right).abs() <= rounding)).any())

    def matching(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor] | None:
        """The part's value and the same positions of the whole's; None where the axes do not line up."""
        if left.dim() != right.dim():
            return None
        for axis, (short, long) in enumerate(zip(left.shape, right.shape, strict=True)):
            if short == long:
                if long > self.total:  # what lies beyond the end was not computed by the part
                    left, right = left.narrow(axis, 0, self.end), right.narrow(axis, 0, self.end)
            elif long == self.total and short == self.end - self.start:
                right = right.narrow(axis, self.start, short)
            elif long == self.total and short == self.end:
                right = right.narrow(axis, 0, short)
            else:
                return None
        return left, right


def _keyed(tape: Tape) -> Iterator[tuple[tuple[object, ...], Op]]:
    """Each operation with its name, instruction and module, and how often these came before."""
    seen: Counter[tuple[object, ...]] = Counter()
    for op in tape.ops:
        key = (op.name, op.place, op.module)
        seen[key] += 1
        if op.outputs:
            yield (*key, seen[key]), op
