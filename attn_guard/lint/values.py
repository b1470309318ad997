"""What an expression of attention code can stand for.

The walk (`attn_guard.lint.trace`) gives every expression one of these values. `Unknown` is a value of its own: what
comes from outside, or from an operation that is not understood, is unknown, and nothing is ever reported about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from attn_guard.anatomy import Size, Stage, StepKind

if TYPE_CHECKING:
    from attn_guard.lint import nodes as cst
    from attn_guard.lint.grid import Grid
    from attn_guard.lint.orders import Order
    from attn_guard.lint.place import Call
    from attn_guard.lint.regions import Class, Region


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something from outside, or from an operation that is not understood.

    ``parameter`` marks an argument, and ``default`` is the number that it has where nobody gives it. ``terms`` are the
    sizes that it is the sum of, ``order`` the comparison that it came out of, ``either`` the two numbers of which it
    is one. ``timed`` is as that of a `Tensor`. ``rows``: it was made of the keys of each row; True: it still has an
    axis of one column for them, False: it has none.
    """

    name: str = ""
    parameter: bool = False
    default: float | None = None
    terms: tuple[Scalar, ...] = ()
    order: Order | None = None
    either: tuple[float, ...] = ()
    timed: tuple[int, Draft] | None = None
    rows: bool | None = None


@dataclass(frozen=True, slots=True)
class Nothing:
    """``None``."""


@dataclass(frozen=True, slots=True)
class Flag:
    """``True`` or ``False``."""

    truth: bool


@dataclass(frozen=True, slots=True)
class Text:
    """A string."""

    text: str


@dataclass(frozen=True, slots=True)
class Atom:
    """One size that the source has a name for; ``size`` is what it stands for, where its name says so.

    ``axis`` is the axis of a tensor that it was read from.
    """

    name: str
    size: Size | None = None
    axis: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number times powers of sizes: ``2``, ``head_dim ** -0.5``, ``d_model / heads``.

    ``parts`` are the axes that an axis of this size was joined of, in their order.
    """

    number: float = 1.0
    powers: tuple[tuple[Atom, float], ...] = ()
    text: str = field(default="", compare=False)
    parts: tuple[Scalar | None, ...] = field(default=(), compare=False)

    def times(self, other: Scalar) -> Scalar:
        if not other.powers:
            return Scalar(self.number * other.number, self.powers)
        if not self.powers:
            return Scalar(self.number * other.number, other.powers)
        powers = dict(self.powers)
        for atom, power in other.powers:
            powers[atom] = powers.get(atom, 0.0) + power
        kept = sorted(((a, p) for a, p in powers.items() if p), key=lambda pair: pair[0].name)
        return Scalar(self.number * other.number, tuple(kept))

    def to_power(self, power: float) -> Scalar | None:
        if self.number < 0 and not float(power).is_integer():
            return None
        if self.number == 0 and power < 0:
            return None
        try:
            number = float(self.number**power)
        except OverflowError:
            return None
        return Scalar(number, tuple((atom, exponent * power) for atom, exponent in self.powers if power))

    def means(self, other: Scalar) -> bool:
        """Whether both are the same power of the same size of an attention, whatever the source calls it."""
        return self == other or (self.number == other.number and self.size is not None and self.size == other.size)

    @property
    def is_number(self) -> bool:
        return not self.powers

    @property
    def size(self) -> tuple[Size, float] | None:
        """The size that this is a power of, and the power: ``(d_model / heads) ** -0.5`` is (HEAD_DIM, -0.5)."""
        totals: dict[Size, float] = {}
        for atom, power in self.powers:
            if atom.size is None:
                return None
            totals[atom.size] = totals.get(atom.size, 0.0) + power
        heads, width = totals.get(Size.HEADS, 0.0), totals.get(Size.D_MODEL, 0.0)
        if heads and width == -heads:  # d_model / heads is head_dim
            totals[Size.HEAD_DIM] = totals.get(Size.HEAD_DIM, 0.0) + width
            totals[Size.HEADS] = totals[Size.D_MODEL] = 0.0
        elif heads and totals.get(Size.HEAD_DIM) == heads:
            totals[Size.D_MODEL] = width + heads
            totals[Size.HEADS] = totals[Size.HEAD_DIM] = 0.0
        left = [(size, power) for size, power in totals.items() if power]
        return left[0] if len(left) == 1 else None


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A step whose place is still a node of a region; see `attn_guard.anatomy.Step`."""

    kind: StepKind
    node: cst.CSTNode
    region: Region
    stage: Stage | None = None
    factor: Scalar | None = None
    fill: float | None = None
    text: str = ""
    scrambles: str = ""
    divides: bool = False

    @property
    def identity(self) -> tuple[cst.CSTNode, StepKind, Stage | None]:
        """What tells this step from all others, whichever walk has seen it."""
        return self.node, self.kind, self.stage


Branch: TypeAlias = "tuple[cst.CSTNode, int]"  # a statement with alternatives, and which of them


@dataclass(frozen=True, slots=True, eq=False)
class Grown:
    """Keys that a cache was put in front of: where, and in which branches."""

    draft: Draft
    branches: frozenset[Branch]


class Role(StrEnum):
    """Where in the anatomy a tensor is."""

    ACTIVATION = "activation"
    PARAMETER = "parameter"
    SCORES = "scores"
    WEIGHTS = "weights"
    CONTEXT = "context"


MASKABLE = (Role.SCORES, Role.WEIGHTS)

Axes: TypeAlias = "tuple[Scalar | None, ...]"


@dataclass(frozen=True, eq=False)  # without slots, so that it is copied in one step
class Tensor:
    """A tensor and how it came about.

    steps: what it went through since its projection, with its operands' steps where it is a product.
    traced: every operation since the projection is understood, so that no factor can hide.
    opaque: something that is not understood may have masked it.
    bounded: it passed a norm or a learned temperature.
    axes: its sizes, where its rank is known. last: the size of its last axis.
    order: for each axis, its place in memory; () is contiguous, None unknown. transposed: the step that made it so.
    core: the SCORES step of scores, weights and contexts; width: what the product in it sums over; grid: what the axes
    of scores and weights count. grown: a cache was put in front of it, or of the keys of the scores.
    before_last: the size of the axis before it, where the rank is not known.
    raised: the ``exp`` that these scores went through, where nothing kept them small.
    pads: the embedding that looked it up, where that knows of padding among its ids.
    zeroed: the product with a mask that logits of no query and key, and what a softmax makes of them, have gone
    through.
    timed: the axis of its positions, and where that is seen, as a rule because they are added there. ran: the layer
    that it came out of, if that ran along its first axis.
    """

    role: Role = Role.ACTIVATION
    steps: tuple[Draft, ...] = ()
    traced: bool = False
    opaque: bool = False
    bounded: bool = False
    axes: Axes | None = None
    last: Scalar | None = None
    order: tuple[int, ...] | None = None
    transposed: Draft | None = None
    core: Draft | None = None
    width: Scalar | None = None
    grid: Grid | None = None
    name: str = ""
    grown: Grown | None = None
    timed: tuple[int, Draft] | None = None
    ran: Draft | None = None
    before_last: Scalar | None = None
    raised: Draft | None = None
    zeroed: Draft | None = None
    pads: Draft | None = None

    def changed(self, **changes: Any) -> Tensor:
        """The same with other values for some fields. Walks do little else, and `dataclasses.replace` takes five times
        as long."""
        made = object.__new__(Tensor)
        made.__dict__.update(self.__dict__)
        made.__dict__.update(changes)
        return made

    def after(self, *steps: Draft, **changes: Any) -> Tensor:
        """This tensor after further steps."""
        return self.changed(steps=(*self.steps, *steps), **changes)

    def shaped(self, axes: Axes | None, order: tuple[int, ...] | None) -> Tensor:
        """This tensor with other axes; what they count is not known any more."""
        last = axes[-1] if axes else None
        return self.changed(axes=axes, last=last, order=order, timed=None, ran=None, grid=None, before_last=None)


class Meaning(StrEnum):
    """What True (or 1) says in a mask, or that the mask holds numbers to be added."""

    BLOCKS = "blocks"
    KEEPS = "keeps"
    ADDED = "added"


@dataclass(frozen=True, slots=True)
class Triangle:
    """The cells (query i, key j) with j - i >= diagonal, or with j - i <= diagonal where it is not ``upper``.

    square: whether there are as many queries as keys; None where nobody can know.
    """

    upper: bool
    diagonal: int
    square: bool | None = None

    @property
    def complement(self) -> Triangle:
        return Triangle(not self.upper, self.diagonal - 1 if self.upper else self.diagonal + 1, self.square)

    @property
    def transposed(self) -> Triangle:
        return Triangle(not self.upper, -self.diagonal, self.square)


class Kind(StrEnum):
    """What the numbers of a mask are stored as, as far as it matters for what is done with them."""

    BOOL = "bool"
    FLOAT = "float"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Mask:
    """A mask over keys. ``fill`` is the number that blocked positions hold in an added mask.

    triangle: the cells that are True, or that hold the fill. made: where the triangle was drawn.
    flags: it is sure to hold nothing but True and False, or 1 and 0. kind: how these are stored, None if unknown.
    padding: it speaks of padded keys. origin: the argument that it was made of, ``negated`` if True there is False
    here. rank: how many axes it has, None if unknown; per_sample: the first of them is the batch.
    flipped: where the keys that it keeps were given a fill that blocks.
    split: where masks were joined so that one of them loses. tiled: where it was copied for each head, sample by
    sample.
    """

    meaning: Meaning | None = None
    fill: float | None = None
    causal: bool = False
    name: str = ""
    triangle: Triangle | None = None
    made: Draft | None = None
    flags: bool = False
    kind: Kind | None = None
    padding: bool = False
    origin: str = ""
    negated: bool = False
    rank: int | None = None
    per_sample: bool = False
    split: Draft | None = None
    tiled: Draft | None = None
    flipped: Draft | None = None

    def inverted(self) -> Mask:
        flipped = {Meaning.BLOCKS: Meaning.KEEPS, Meaning.KEEPS: Meaning.BLOCKS}
        return replace(
            self,
            meaning=flipped.get(self.meaning) if self.meaning else None,
            fill=None,
            negated=not self.negated,
            triangle=self.triangle.complement if self.triangle and self.meaning is not Meaning.ADDED else None,
        )


@dataclass(frozen=True, slots=True)
class Filled:
    """A tensor that holds one number everywhere: ``torch.ones(...)``.

    square: whether its last two axes are of one size; None where nobody can know.
    """

    number: float
    square: bool | None = None
    kind: Kind | None = None


@dataclass(frozen=True, slots=True)
class Positions:
    """``row * i + column * j + shift`` for every query i and key j: what ``torch.arange`` begins, one axis at a time.

    shift is None where it is not known. length: how many there are; square: whether there are as many queries as keys.
    axes: how many it has.
    """

    row: int = 0
    column: int = 1
    shift: int | None = 0
    length: Scalar | None = None
    square: bool | None = None
    axes: int = 1


@dataclass(frozen=True, slots=True)
class Rate:
    """A dropout rate that a module holds, which is the same in training and evaluation, unless it is ``guarded``."""

    guarded: bool = False


@dataclass(frozen=True, slots=True)
class AttentionMap:
    """Weights that are made to be looked at; ``draft`` is what made them, ``averaged`` says over the heads."""

    draft: Draft
    averaged: bool = False


@dataclass(frozen=True, slots=True)
class Sequence:
    """A tuple or list; with ``endless``, one of unknown length whose items are all alike."""

    items: tuple[Value, ...]
    endless: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """``x.shape``."""

    tensor: Value


@dataclass(frozen=True, slots=True)
class Dotted:
    """A name of another module, such as ``torch.nn.functional``."""

    path: str


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """A built-in layer, such as ``nn.Linear(d_model, d_model)``: its class name and what it was made with.

    ``plain`` says that it is one of torch and that all its arguments are in sight. ``home`` is the function that
    it was made in, ``path`` the dotted name that its class is imported by, where all its
    arguments are in sight.
    """

    kind: str
    args: tuple[Value, ...] = ()
    kwargs: Mapping[str, Value] = field(default_factory=dict)
    children: tuple[Value, ...] = ()
    plain: bool = False
    home: Region | None = None
    path: str = ""


@dataclass(slots=True, eq=False)
class Instance:
    """An object of a class in the same file.

    Its constructor is walked when an attribute is first asked for; ``made`` is the call that gives the arguments, None
    where nothing is known of them.
    """

    type: Class
    made: Call | None = None
    attributes: dict[str, Value] = field(default_factory=dict)
    ready: bool = False

    @property
    def identity(self) -> tuple[object, ...]:
        """What it is made of: objects with equal ones have equal attributes."""
        made = self.made
        return self.type, made and (made.args, tuple(made.kwargs.items()), made.spread, made.firm)

    def copy(self) -> Instance:
        """The same object for another walk, which may set attributes of its own."""
        return Instance(self.type, self.made, dict(self.attributes), self.ready)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One of several objects or functions: which, is decided by arguments that nobody knows."""

    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ClassReference:
    """A class of the same file, not called yet."""

    type: Class


@dataclass(frozen=True, slots=True, eq=False)
class Closure:
    """A function that can be walked: of the file, a method of ``instance``, an inner function or a lambda."""

    region: Region
    inner: cst.FunctionDef | cst.Lambda | None = None
    instance: Instance | None = None
    scope: Mapping[str, Value] = field(default_factory=dict)

    @property
    def node(self) -> cst.FunctionDef | cst.Lambda | None:
        """Its tree, which is parsed only when it is walked; None if its text does not parse."""
        return self.inner or self.region.tree


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """A method of a value, not called yet: ``x.transpose``."""

    receiver: Value
    name: str


Value: TypeAlias = (
    Unknown
    | Nothing
    | Flag
    | Text
    | Scalar
    | Tensor
    | Mask
    | Filled
    | Positions
    | Rate
    | AttentionMap
    | Sequence
    | Shape
    | Dotted
    | Layer
    | Instance
    | Choice
    | ClassReference
    | Closure
    | Bound
)

Option: TypeAlias = "Instance | Closure"

UNKNOWN = Unknown()
_MOST_OPTIONS = 6  # each is walked where one of them is called


def join(left: Value, right: Value) -> Value:
    """What a name stands for where two branches meet."""
    if left is right or left == right:
        return left
    if isinstance(left, Nothing):
        return right
    if isinstance(right, Nothing):
        return left
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return _join_tensors(left, right)
    if isinstance(left, Mask) and isinstance(right, Mask):
        return _join_masks(left, right)
    if isinstance(left, Sequence) and isinstance(right, Sequence) and len(left.items) == len(right.items):
        items = tuple(join(*pair) for pair in zip(left.items, right.items, strict=True))
        return Sequence(items, left.endless or right.endless)
    if isinstance(left, Scalar) and isinstance(right, Scalar):
        numbers = (left.number, right.number) if left.is_number and right.is_number else ()
        return left if left.means(right) else Unknown(either=numbers)
    if isinstance(left, Instance | Closure | Choice) and isinstance(right, Instance | Closure | Choice):
        return _either(left, right)
    for known, other in ((left, right), (right, left)):
        if isinstance(known, Closure) and isinstance(other, Unknown | Dotted):
            return known  # one of several functions, of which this one is in the file
        if isinstance(known, Scalar) and known.powers and isinstance(other, Unknown) and other.parameter:
            return known  # what an argument is by default, though somebody may give another
        if isinstance(known, Tensor):
            return replace(known, traced=False, opaque=True, axes=None, last=None, order=None, grid=None)
        if isinstance(known, Mask):
            return Mask(name=known.name, split=known.split)
        if isinstance(known, Layer | Closure) and isinstance(other, Layer | Closure):
            return UNKNOWN
    return UNKNOWN


def _either(left: Option | Choice, right: Option | Choice) -> Value:
    sides = [side.options if isinstance(side, Choice) else (side,) for side in (left, right)]
    options = {_identity(option): option for side in sides for option in side}
    if len(options) == 1:
        return left
    return Choice(tuple(options.values())) if len(options) <= _MOST_OPTIONS else UNKNOWN


def _identity(option: Option) -> tuple[object, ...]:
    """What tells an object or function from others; each look-up makes a closure anew."""
    return (option.region, option.inner, option.instance) if isinstance(option, Closure) else (option,)


def join_named(name: str, left: Value, right: Value) -> Value:
    """As `join`, for what stands in a name: one of two sizes is a size of that name."""
    if left is right:
        return left
    if isinstance(left, Scalar) and isinstance(right, Scalar) and left.powers and right.powers and left != right:
        sizes = {left.size, right.size}
        size, power = (sizes.pop() if len(sizes) == 1 else None) or (None, 0.0)
        return Scalar(powers=((Atom(name, size if power == 1.0 else None), 1.0),))
    return join(left, right)


def _join_masks(left: Mask, right: Mask) -> Mask:
    same_cells = left.triangle == right.triangle
    return Mask(
        left.meaning if left.meaning == right.meaning else None,
        left.fill if left.fill == right.fill else None,
        name=left.name,
        triangle=left.triangle if same_cells else None,
        made=left.made if same_cells else None,
        flags=left.flags and right.flags,
        kind=left.kind if left.kind is right.kind else None,
        padding=left.padding and right.padding,
        origin=left.origin if left.origin == right.origin and left.negated is right.negated else "",
        negated=left.negated,
        rank=left.rank if left.rank == right.rank else None,
        per_sample=left.per_sample and right.per_sample,
        split=left.split or right.split,
    )


_LATER = {role: place for place, role in enumerate(Role)}


def _join_tensors(left: Tensor, right: Tensor) -> Tensor:
    ahead = left if _LATER[left.role] >= _LATER[right.role] else right
    same_role = left.role == right.role
    is_even = same_factors(left, right)
    steps = united(left.steps, _unscaled(right) if is_even else right.steps) if same_role else ahead.steps
    return ahead.changed(
        steps=steps,
        traced=left.traced and right.traced and same_role and is_even,
        opaque=left.opaque or right.opaque or not same_role,
        bounded=left.bounded or right.bounded,
        timed=left.timed or right.timed,
        ran=left.ran or right.ran,
        zeroed=left.zeroed or right.zeroed,
        pads=left.pads or right.pads,
        axes=_join_axes(left.axes, right.axes),
        last=left.last if left.last == right.last else None,
        width=left.width if left.width == right.width or _mean_the_same(left.width, right.width) else None,
        order=left.order if left.order == right.order else None,
        grown=left.grown or right.grown,
        grid=left.grid if left.grid == right.grid else None,
    )


def _join_axes(left: Axes | None, right: Axes | None) -> Axes | None:
    """What is known of each axis whichever side it comes from."""
    if left is None or right is None or len(left) != len(right):
        return None
    return tuple(axis if axis == other else None for axis, other in zip(left, right, strict=True))


def united(left: tuple[Draft, ...], right: tuple[Draft, ...]) -> tuple[Draft, ...]:
    """The steps of two flows, each once; a step that two walks have seen is one step, with the fill that one knows."""
    others = {step.identity: step for step in right}
    kept = tuple(others.get(step.identity, step) if step.fill is None else step for step in left)
    known = {step.identity for step in left}
    return (*kept, *(step for step in right if step.identity not in known))


def _mean_the_same(left: Scalar | None, right: Scalar | None) -> bool:
    return left is not None and right is not None and left.means(right)


def _unscaled(tensor: Tensor) -> tuple[Draft, ...]:
    return tuple(step for step in tensor.steps if step.kind is not StepKind.SCALE)


def same_factors(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors were scaled by the same factors."""
    first, second = ([step.factor for step in tensor.steps if step.kind is StepKind.SCALE] for tensor in (left, right))
    return len(first) == len(second) and all(
        one == other or (one is not None and other is not None and one.means(other))
        for one, other in zip(first, second, strict=True)
    )
