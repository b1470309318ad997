"""What an attention computation is made of: the one vocabulary that both readers fill.

Every attention computation has the same anatomy, however it is written::

    projections → split into heads → scores (q·kᵀ) → scale → mask/bias → softmax → dropout
                → value product (context) → merge → output projection

A `Site` is one such computation; it is made of `Step`s in the order in which data flows. The lint reader
fills a site from source, the probe from a run; a gotcha that only looks at a site works for both.
What a reader could not find out stays ``None`` or empty: unknown is never a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from attn_guard.findings import Location


class StepKind(StrEnum):
    """What a step does to the tensor that flows through it."""

    PROJECTION = "projection"
    SPLIT = "split"
    NORM = "norm"
    SCORES = "scores"
    SCALE = "scale"
    BIAS = "bias"
    MASK = "mask"
    ROWS = "rows"
    SOFTMAX = "softmax"
    DROPOUT = "dropout"
    CONTEXT = "context"
    MERGE = "merge"
    OUTPUT = "output"


class Stage(StrEnum):
    """Which tensor of the anatomy a step works on."""

    QUERY = "query"
    KEY = "key"
    VALUE = "value"
    SCORES = "scores"
    WEIGHTS = "weights"
    CONTEXT = "context"


class Size(StrEnum):
    """The sizes of a site that a scale can be made of."""

    HEAD_DIM = "head_dim"
    D_MODEL = "d_model"
    HEADS = "heads"
    ALL_HEADS = "(heads * head_dim)"
    KEYS = "keys"


class Axis(StrEnum):
    """What is counted along an axis of the scores or weights; ``SINGLE`` is an axis of one, along which nothing is."""

    KEYS = "keys"
    QUERIES = "queries"
    HEADS = "heads"
    BATCH = "batch"
    SINGLE = "single"


@dataclass(frozen=True, slots=True)
class Factor:
    """What the scores are multiplied by: ``size ** power``, a number, or both when both are known.

    ``value`` is None when only the form is known (source), ``size`` is None when the number matches no
    size. ``text`` is the expression or attribute that states it ("self.scale"), "" when none does.
    """

    value: float | None = None
    size: Size | None = None
    power: float | None = None
    text: str = ""

    @property
    def is_one(self) -> bool:
        return self.size is None and self.value is not None and abs(self.value - 1.0) < 1e-6

    @property
    def is_right(self) -> bool:
        """1/√d_k, Vaswani et al. 2017, section 3.2.1."""
        return self.size is Size.HEAD_DIM and self.power == -0.5

    @property
    def is_a_scale(self) -> bool:
        """Whether it may have been meant for 1/√d_k."""
        return self.size in (Size.HEAD_DIM, Size.D_MODEL) and self.power in (-0.5, -1.0)

    def __str__(self) -> str:
        form = f"{self.size}**{self.power:g}" if self.size and self.power is not None else self.text
        number = f"{self.value:.4g}" if self.value is not None else ""
        return " = ".join(part for part in (form, number) if part) or "unknown"


ONE = Factor(value=1.0)


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a site.

    ``shape`` is the shape it gives, where known. ``factor`` is set on SCALE steps; it is what they multiply by, and
    ``divides`` says that it is written as a division. On MASK steps ``fill`` is
    the number that blocked scores get (or that is added to them), 0.0 for ``scores * mask``; None if unknown. ROWS
    steps change whole rows, as a rule those whose every key is hidden, and hide no key of any other.
    ``used`` is False when the step's result never reaches the output. ``scrambles`` is set on SPLIT and MERGE
    steps that mix positions or heads, and says how.
    """

    kind: StepKind
    stage: Stage
    location: Location
    shape: tuple[int, ...] | None = None
    text: str = ""
    factor: Factor | None = None
    fill: float | None = None
    used: bool = True
    scrambles: str = ""
    divides: bool = False


@dataclass(frozen=True)
class Site:
    """One attention computation, as far as a reader could recover it.

    ``scale`` is the product of all factors between the projections and the softmax (None: unknown).
    ``normalised`` says that query or key pass a norm after their projection, or that the scale is a learned
    temperature: then the size of the scores is bounded some other way and 1/√d_k is not expected.
    ``causal`` says whether every query depends on no later key (None: unknown); ``cross`` whether queries and
    keys come from different tensors. ``softmax_over`` is the axis that the softmax runs along and ``summed_over``
    the one
    that the product with the value sums over: both the keys, where all is right (None: unknown). ``sizes`` holds the
    numbers a run shows.
    """

    name: str
    steps: tuple[Step, ...]
    scale: Factor | None = None
    normalised: bool = False
    cross: bool | None = None
    causal: bool | None = None
    softmax_over: Axis | None = None
    summed_over: Axis | None = None
    sizes: Mapping[Size, int] = field(default_factory=dict)

    def find(self, kind: StepKind, *stages: Stage) -> tuple[Step, ...]:
        """The steps of a kind whose result is used, in the order of the flow."""
        return tuple(
            step for step in self.steps if step.kind is kind and step.used and (not stages or step.stage in stages)
        )

    def before_softmax(self, kind: StepKind) -> tuple[Step, ...]:
        return self.find(kind, Stage.QUERY, Stage.KEY, Stage.SCORES)

    def after_softmax(self, kind: StepKind) -> tuple[Step, ...]:
        return self.find(kind, Stage.WEIGHTS, Stage.CONTEXT)

    def dropped(self, kind: StepKind) -> tuple[Step, ...]:
        """The steps of a kind whose result is thrown away."""
        return tuple(step for step in self.steps if step.kind is kind and not step.used)

    @property
    def right_scale(self) -> Factor:
        """1/√head_dim, with its value where the head dimension is known."""
        head_dim = self.sizes.get(Size.HEAD_DIM)
        return Factor(head_dim**-0.5 if head_dim else None, Size.HEAD_DIM, -0.5)

    @property
    def scale_twice(self) -> tuple[Step, Step] | None:
        """Two steps of which either would be the scale by itself; head_dim**-0.25 on query and on key is one."""
        steps = [step for step in self.before_softmax(StepKind.SCALE) if step.factor and step.factor.power]
        quarters = [step for step in steps if step.factor and step.factor.power == -0.25]
        halves = [step for step in steps if step.factor and step.factor.power in (-0.5, 0.5)]
        halves += quarters[: len(quarters) // 2]
        right = [step for step in halves if step in quarters or (step.factor and step.factor.is_right)]
        if self.scale is None or self.scale.is_right or self.scale.is_one or not right or len(halves) < 2:
            return None
        first, *_, last = sorted(halves, key=self.steps.index)
        return first, last

    @property
    def inverse_scale(self) -> Step | None:
        """The only scale step, where it divides by what is an inverse root already."""
        steps = self.before_softmax(StepKind.SCALE)
        if len(steps) != 1 or self.scale is None or self.scale.power != 0.5:
            return None
        return steps[0] if steps[0].divides else None

    @property
    def late_scale(self) -> Step | None:
        """A scale after the softmax, where none is before it."""
        if self.before_softmax(StepKind.SCALE) or self.scale is None or not self.scale.is_one:
            return None
        late = (step for step in self.after_softmax(StepKind.SCALE) if step.factor and step.factor.is_a_scale)
        return next(late, None)

    @property
    def scores(self) -> Step | None:
        return self._only(StepKind.SCORES)

    @property
    def softmax(self) -> Step | None:
        return self._only(StepKind.SOFTMAX)

    @property
    def context(self) -> Step | None:
        return self._only(StepKind.CONTEXT)

    def placed(self, place: Callable[[Location], Location]) -> Site:
        """This site with the places of its steps changed."""
        return replace(self, steps=tuple(replace(step, location=place(step.location)) for step in self.steps))

    def _only(self, kind: StepKind) -> Step | None:
        return next(iter(self.find(kind)), None)
