"""A finding and a site to write reports about."""

from __future__ import annotations

from typing import Any

from attn_guard.anatomy import Factor, Site, Size, Stage, Step, StepKind
from attn_guard.findings import Finding, Location, Severity

SOURCE = """\
def attention(query, key, value, mask):
    scores = query @ key.transpose(-2, -1)
    weights = scores.softmax(-1)

    weights = weights.masked_fill(mask, 0.0)
    return weights @ value
"""


def finding(path: str = "model.py", **changes: Any) -> Finding:
    values: dict[str, Any] = {
        "code": "ATN201",
        "name": "mask-after-softmax",
        "severity": Severity.ERROR,
        "message": "mask applied after the softmax",
        "location": Location(path, 5, 15, 5, 45),
        "help": "fill the scores with -inf",
        **changes,
    }
    return Finding(**values)


def site(name: str = "h.0.attn", **changes: Any) -> Site:
    place = Location("model.py", 2)
    values: dict[str, Any] = {
        "steps": (
            Step(StepKind.SCORES, Stage.SCORES, place, shape=(2, 8, 5, 5)),
            Step(StepKind.MASK, Stage.SCORES, place, fill=float("-inf")),
        ),
        "scale": Factor(0.3536, Size.HEAD_DIM, -0.5),
        "sizes": {Size.HEAD_DIM: 8},
        **changes,
    }
    return Site(name, **values)
