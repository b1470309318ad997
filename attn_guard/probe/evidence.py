"""What speaks for a module being meant as causal, where nobody declared it.

A module that is called without the mask which its parent would hand over looks ahead and need not be wrong. So where
an argument for a mask was left empty, flags and names count only for whole models, which make their masks themselves; a
triangle that is there, or ``is_causal=True`` where attention is computed, always counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from attn_guard.probe.anatomist import Anatomy, upwards
from attn_guard.probe.streams import Streams
from attn_guard.probe.tape import Tape

FLAGS = ("is_causal", "causal", "is_decoder", "autoregressive", "is_autoregressive")
# Words in the names of classes; the second group only speaks for models of token ids.
NAMES = ("causal",)
NAMES_OF_MODELS = ("gpt", "decoder")

# Diagonals of the triangle to hide: at the own key, after it (right), and one later.
DIAGONALS = (0, 1, 2)


@dataclass(frozen=True)
class CausalEvidence:
    """What speaks for causality in one recorded call. ``arguments`` are those of the call, by parameter name."""

    module: nn.Module
    tape: Tape
    sites: Sequence[Anatomy]
    streams: Streams
    arguments: Mapping[str, Any]

    @property
    def text(self) -> str:
        """Why the module is taken for causal; "" where some attention over its own positions does not say so."""
        reasons = [self._of_site(site) for site in self.own]
        return "; ".join(dict.fromkeys(reasons[:2])) if reasons and all(reasons) else ""

    @property
    def own(self) -> list[Anatomy]:
        """The attention of the main stream to itself: of an encoder–decoder, that of the decoder."""
        main = self.streams.main
        behind = self.tape.descendants([main.rows.value]) if main is not None else None
        return [
            site
            for site in self.sites
            if site.influence.is_self is not False and (behind is None or site.influence.query_origin.source in behind)
        ]

    def _of_site(self, site: Anatomy) -> str:
        return next(self._reasons(site), "")

    def _reasons(self, site: Anatomy) -> Iterator[str]:
        if self._makes_its_mask:
            yield from self._flags(site)
        yield from self._buffers(site)
        place = triangular_mask(site)
        if place:
            yield f"a triangular mask is applied at {place}"
        yield from self._forgotten(site)
        trace = site.trace
        for call in self.tape.fused:
            if call.causal and call.first <= trace.scores.index and call.place == trace.scores.place:
                yield f"is_causal=True is passed at {call.location}"
        if self._makes_its_mask and not self._says_no(site):
            yield from self._class_names(site)

    @cached_property
    def _makes_its_mask(self) -> bool:
        """Whether no mask is missing that a parent would have handed over."""
        if self._of_ids:
            return True
        missing = (value is None for name, value in self.arguments.items() if "mask" in name or "bias" in name)
        return not any(missing)

    @cached_property
    def _of_ids(self) -> bool:
        """Whether the main stream are embeddings of token ids."""
        main = self.streams.main
        maker = None if main is None else self.tape.maker(main.rows.value)
        return maker is not None and maker.name == "embedding"

    def _says_no(self, site: Anatomy) -> bool:
        """Whether the attention itself states that it is not causal; a class name says less."""
        return any(getattr(self.module.get_submodule(site.trace.module), name, None) is False for name in FLAGS)

    def _flags(self, site: Anatomy) -> Iterator[str]:
        for path in upwards(site.trace.module):
            for name in FLAGS:
                if getattr(self.module.get_submodule(path), name, None) is True:
                    yield f"{path + '.' if path else ''}{name} is True"

    def _buffers(self, site: Anatomy) -> Iterator[str]:
        for value, name in self.tape.leaves.items():
            held = name.removeprefix("buffer ").rpartition(".")[0]
            serves = name.startswith("buffer ") and f"{site.trace.module}.".startswith(f"{held}." if held else "")
            if serves and is_triangle(self.tape.values[value]):
                yield f"{name} is a triangle"

    def _forgotten(self, site: Anatomy) -> Iterator[str]:
        """A triangle over the positions of a site that the run makes and nothing that is returned depends on."""
        queries, keys = site.influence.queries.shape[-1], site.influence.keys.shape[-1]
        for op in self.tape.ops if queries == keys > 2 else ():
            made = op.name in {"tril", "triu"} and self.tape.alive.isdisjoint(op.outputs)
            value = self.tape.values[op.output] if made else None
            if value is not None and value.shape[-1] == keys and is_triangle(value):
                yield f"a triangle is made at {op.location} and used nowhere"

    def _class_names(self, site: Anatomy) -> Iterator[str]:
        words = NAMES + NAMES_OF_MODELS if self._of_ids else NAMES
        for path in upwards(site.trace.module):
            name = type(self.module.get_submodule(path)).__name__
            if any(word in name.lower() for word in words):
                yield f"a class is called {name}"


def is_triangle(value: Tensor) -> bool:
    """Whether all square faces are 0/1, bool or 0/blocking, with a border along the diagonal."""
    if value.dim() < 2 or value.shape[-1] != value.shape[-2] or value.shape[-1] < 2 or value.is_complex():
        return False
    size = value.shape[-1]
    faces = value.reshape(-1, size, size)
    return bool(faces.shape[0] <= 64 and any(_is_border(faces == faces[:, :1, -1:], diagonal) for diagonal in (0, 1)))


def triangular_mask(site: Anatomy) -> str:
    """The place of a mask, used or dropped, that blocks every later key and no earlier one, give or take one; "" for
    none."""
    for found in site.all_masks:
        faces = found.blocked.reshape(-1, *found.blocked.shape[-2:])
        queries, keys = faces.shape[-2:]
        if queries == keys and queries > 2 and any(_is_border(faces, d) for d in DIAGONALS if d < keys - 1):
            return str(found.op.location)
    return ""


def _is_border(cells: Tensor, diagonal: int) -> bool:
    triangle = torch.ones(cells.shape[-2:], dtype=torch.bool, device=cells.device).triu(diagonal)
    return bool((cells == triangle).all())
