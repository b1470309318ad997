"""How low the scores of hidden keys lie, measured by replaying the tape with larger scores.

A bias that hides later keys may hold numbers of all sizes (a distance penalty and a fill added up), so that no
number in it says whether it is a mask. What says so is that a hidden key has weight again once the scores have grown.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from attn_guard.anatomy import Stage, Step, StepKind
from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.replay import Replay

# Scores of a trained model can be this many times those of a fresh one.
GROWTH = 30.0


@dataclass(frozen=True)
class WeakFill:
    """Keys that are hidden now and have ``weight`` once the scores are larger by `GROWTH`; ``fill`` is what hides
    them, at its highest."""

    step: Step
    fill: float
    weight: float


def weak_fill(anatomy: Anatomy) -> WeakFill | None:
    """How later keys are hidden by a bias, where growing scores uncover them; None where nothing does, where that is
    not known, or where a mask hides them, whose fill is known."""
    later, site = anatomy.influence.later, anatomy.site
    steps = site.find(StepKind.BIAS, Stage.SCORES)
    if site.causal is not True or later is None or not steps or site.before_softmax(StepKind.MASK):
        return None
    grown, empty = _entering(anatomy, GROWTH), _entering(anatomy, 0.0)
    if grown is None or empty is None or grown.shape != later.shape:
        return None
    weights = grown.float().softmax(dim=-1).cpu()
    weight = float(weights[later].nan_to_num(0.0).max())
    if weight <= 0:
        return None
    return WeakFill(steps[-1], float(empty.cpu()[later].max()), weight)


def _entering(anatomy: Anatomy, factor: float) -> Tensor | None:
    """What enters the softmax, (slices, queries, keys), where the scores are multiplied by a factor."""
    trace = anatomy.trace
    scores, entering = trace.scores.output, trace.softmax.inputs[0]
    values = Replay(trace.flow.tape, [scores], [entering])({scores: trace.flow.tape.values[scores] * factor})
    return anatomy.stacked(trace.before, values[entering])
