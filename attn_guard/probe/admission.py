"""Whether attention itself lets padded tokens in, or whether they come in another way: a convolution, a pooling."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.replay import ReplayError


def lets_in(sites: Iterable[Anatomy], keep: Tensor, *, batch_first: bool) -> bool:
    """Whether some attention leaves a padded key open to the query of a real token; ``keep`` (batch, time) is True at
    real tokens.

    An attention whose keys are not the positions of ``keep``, such as pooled ones, has no say.
    """
    real = (keep if batch_first else keep.t()).flatten().cpu()
    return any(_leaves_open(anatomy, real) for anatomy in sites)


def _leaves_open(anatomy: Anatomy, real: Tensor) -> bool:
    try:
        keys, queries = (_real_at(rows, real) for rows in (anatomy.influence.keys, anatomy.influence.queries))
    except ReplayError:
        return False
    if keys is None or len(keys) != len(anatomy.influence.queries):
        return False
    blocked = anatomy.blocked
    if blocked is None or queries is None:
        return blocked is None
    met = queries[:, :, None] & ~keys[:, None, :]
    return blocked.shape == met.shape and bool((~blocked.cpu() & met).any())


def _real_at(rows: Tensor, real: Tensor) -> Tensor | None:
    """Whether there is a real token behind each row; None where rows are not the positions of ``real``."""
    numbers, ranks = torch.unique(rows, return_inverse=True)
    return None if numbers[0] < 0 or len(numbers) != len(real) else real[ranks]
