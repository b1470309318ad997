"""Where decoding with a cache differs from the full pass, and what of the chunk is to blame."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from attn_guard.findings import Location
from attn_guard.probe.alignment import Alignment
from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.decoder import Decoder
from attn_guard.probe.flow import LAYOUT, Flow
from attn_guard.probe.hygiene import preserved
from attn_guard.probe.order import Order
from attn_guard.probe.places import raised_at
from attn_guard.probe.short_caches import ShortCache, short_cache
from attn_guard.probe.sites import traces
from attn_guard.probe.tape import Op


@dataclass(frozen=True)
class Mismatch:
    """Positions ``start`` to ``end`` (exclusive), decoded after ``start`` cached ones, differ from the full pass.

    ``difference`` is the largest one, ``spread`` the largest number of the full pass; ``error`` is what decoding
    raised, if it did.
    """

    decoder: Decoder
    start: int
    end: int
    lengths: tuple[int, ...]
    difference: float
    spread: float
    error: Exception | None = None

    @cached_property
    def alignment(self) -> Alignment:
        """The full pass and the chunk, both recorded."""
        decoder = self.decoder
        with preserved(decoder.xray.module, decoder.xray.seed):
            full = decoder.recorded(decoder.module(), decoder.cut(0, decoder.total, cached=False))
            part = decoder.recorded(*decoder.before(self.lengths, self.start, self.end))
        return Alignment(full, part, self.start, self.end, decoder.total)

    @cached_property
    def misaligned(self) -> Order | None:
        """The first attention of the chunk whose queries see what the first ones of the sequence would: a triangle that
        starts at the top left."""
        if self.error is not None or not self.start:
            return None
        xray = self.decoder.xray
        triangle = torch.ones(self.end - self.start, self.end, dtype=torch.bool).tril()
        for trace in traces(Flow.of(self.alignment.part)):
            order = Order(Anatomy(trace, xray.module, xray.contract.scale, xray.seed))
            seen = order.seen
            if seen is not None and seen.shape[1:] == triangle.shape and bool((seen == triangle).all()):
                return order
        return None

    @property
    def schedule(self) -> str:
        """How the tokens were handed over: "1 + 1 + 1"."""
        return " + ".join(str(length) for length in self.lengths)

    @property
    def what(self) -> str:
        """Which outputs: "output 3", "outputs 2 to 4"."""
        return f"outputs {self.start} to {self.end - 1}" if self.end - self.start > 1 else f"output {self.start}"

    @property
    def when(self) -> str:
        """At which step: "with 3 positions in the cache"."""
        return f"with {self.start or 'no'} position{'' if self.start == 1 else 's'} in the cache"

    @cached_property
    def short(self) -> ShortCache | None:
        """What makes the cache shorter than what was decoded; None where it is not."""
        return short_cache(self)

    @property
    def location(self) -> Location:
        """Where a cache is made that is too short, or else the first operation of the chunk that computes something
        else than the full pass; of a product with keys from the cache, what put them together with the new ones."""
        if self.short is not None and self.short.location is not None:
            return self.short.location
        found = self.alignment.first_difference
        if found is None:
            return Location("<probe>", 0)
        return (self._joined(found[0]) if found[0] is found[1] else found[1]).location

    def _joined(self, op: Op) -> Op:
        """The operation that joins the cache with what an operation reads; itself where there is none."""
        tape, joined = self.alignment.part, op
        for read in op.inputs:
            maker = tape.maker(read)
            while maker is not None and maker.name in LAYOUT and maker.name != "cat":
                maker = tape.maker(maker.inputs[0])
            if maker is not None and maker.name == "cat" and self.alignment.counterpart(maker) is None:
                joined = maker
        return joined

    @property
    def failed_at(self) -> Location:
        return raised_at(self.error)
