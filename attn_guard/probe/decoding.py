"""Decodes with a cache, step by step and in chunks, and compares with the full pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from attn_guard.probe.calling import parameters_of
from attn_guard.probe.copies import NotCopiedError
from attn_guard.probe.decoder import Decoder
from attn_guard.probe.designs import decodes_by_prompt
from attn_guard.probe.hygiene import preserved
from attn_guard.probe.mismatch import Mismatch
from attn_guard.probe.ways_of_decoding import decoders, may_decode

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay

# Relative to the largest number of the output: rounding of another order of summation stays below.
SINGLE = 1e-4
DOUBLE = 1e-6
UNSURE = 1e-2


def mismatch(xray: XRay) -> Mismatch | None:
    """The first chunk that a module decodes otherwise than the full pass computes it; None where all agree.

    A module whose full pass looks ahead, or gives a beginning of the input other numbers than the whole of it, cannot
    be decoded to the same end, and a module that draws random numbers never is: nothing is known of these.
    """
    if xray.tape.failure is not None or not xray.sites or decodes_by_prompt(xray.module) or not may_decode(xray):
        return None
    with preserved(xray.module, xray.seed):
        try:
            ways = decoders(xray)
            return _in_every_way(ways) if ways and not _looks_ahead(ways[0]) else None
        except (NotCopiedError, _Undecided):
            return None
        except Exception:  # a copy that cannot be made or called: nothing is known
            return None


def _looks_ahead(decoder: Decoder) -> bool:
    """Whether an output of the pass without a cache depends on a later input, or may do so for all that is known."""
    xray, cache = decoder.xray, decoder.cache
    if cache is not None and decoder.arguments.get(cache) is not None:
        xray = xray.again(xray.call.with_argument(xray.module, cache, None))
    influence = xray.streams.influence if xray.tape.failure is None else None
    return influence is None or bool(influence.triu(1).any())


def _in_every_way(ways: Sequence[Decoder]) -> Mismatch | None:
    found = None
    for decoder in ways:
        seen = _first(decoder)
        if seen is None:
            return None
        found = found or seen
    return found


class _Undecided(Exception):
    """The module cannot be decoded in this way."""


def _first(decoder: Decoder) -> Mismatch | None:
    """The first mismatch of one way of decoding that float64, and the pass over the beginning alone, confirm."""
    whole = decoder.output(decoder.full(), decoder.total)
    if whole is None:
        raise _Undecided
    for lengths in _schedules(decoder):
        found = _compared(decoder, whole, lengths, SINGLE)
        if found is not None:
            return found if _confirmed(decoder, found, whole) else None
    return None


def _schedules(decoder: Decoder) -> Iterator[tuple[int, ...]]:
    """Token by token; a prompt and then token by token; in chunks; all at once with the cache attached."""
    total = decoder.total
    yield (1,) * total
    prompt = max(2, total // 2)
    yield (prompt, *(1,) * (total - prompt))
    if _masks_itself(decoder):
        yield (2, total - 2)
    yield (total,)


def _masks_itself(decoder: Decoder) -> bool:
    """Whether chunks need no mask from the caller: none was left out, or the cache is declared."""
    masks = [name for name in parameters_of(decoder.xray.module) if "mask" in name]
    whole_model = not decoder.arguments[decoder.main].is_floating_point()
    given = (leaf for name in masks for leaf in tree_leaves(decoder.arguments.get(name)))
    return whole_model or decoder.xray.promised("cache") or all(leaf is not None for leaf in given)


def _compared(decoder: Decoder, whole: Tensor, lengths: tuple[int, ...], tolerance: float) -> Mismatch | None:
    spread = float(whole.abs().max()) or 1.0
    tolerance = max(tolerance, 8 * torch.finfo(whole.dtype).eps)
    done = 0
    for start, end, run in decoder.steps(lengths):
        done = end
        if run.failure is not None:
            if decoder.xray.promised("cache"):
                return Mismatch(decoder, start, end, lengths, 0.0, spread, run.failure)
            raise _Undecided
        part = decoder.output(run, end - start)
        if part is None:
            raise _Undecided
        difference = float((part - whole[start:end]).abs().nan_to_num(torch.inf).max())
        if difference > tolerance * spread:
            return Mismatch(decoder, start, end, lengths, difference, spread)
    if done < decoder.total:
        raise _Undecided
    return None


def _confirmed(decoder: Decoder, found: Mismatch, whole: Tensor) -> bool:
    if found.error is not None:
        return True
    beginning = decoder.output(decoder.full(found.end), found.end)
    again = decoder.output(decoder.full(), decoder.total)
    rounding = UNSURE * found.spread
    if beginning is None or again is None or not torch.equal(again, whole):
        return False
    apart = float((beginning - whole[: found.end]).abs().max())
    if apart > min(rounding, 0.1 * found.difference):
        return False
    twin = replace(decoder, exact=True)
    try:
        dtype = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        exact = twin.output(twin.full(), twin.total)
        if exact is None or exact.dtype != torch.float64:
            raise _Undecided
        return _compared(twin, exact, found.lengths, DOUBLE) is not None
    except Exception:  # no float64: only what rounding cannot explain counts
        return found.difference > rounding
    finally:
        torch.set_default_dtype(dtype)
