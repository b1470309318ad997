"""What one walk writes down: sites, and events that are no part of a site."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from attn_guard.anatomy import Stage, StepKind
from attn_guard.lint.values import Branch, Draft, Role, Scalar, Tensor, Value, join

if TYPE_CHECKING:
    from attn_guard.lint import nodes as cst
    from attn_guard.lint.place import Call
    from attn_guard.lint.regions import Region
    from attn_guard.lint.values import Instance


@dataclass(eq=False)
class SiteDraft:
    """A site while it is being recovered: the value that last left it, and steps beside or behind that value."""

    value: Tensor
    region: Region
    beside: list[Draft] = field(default_factory=list)
    declares_scale: bool = False
    branches: frozenset[Branch] = frozenset()

    @property
    def is_complete(self) -> bool:
        return any(step.kind is StepKind.CONTEXT for step in self.value.steps)

    @property
    def is_unmasked(self) -> bool:
        """Whether it is sure that nothing masks this site."""
        hiding = (StepKind.MASK, StepKind.BIAS)
        return self.is_complete and not self.value.opaque and not any(step.kind in hiding for step in self.value.steps)


@dataclass(frozen=True)
class Event:
    """Something at a place that is no step: what it is about, and a second place with a label."""

    draft: Draft
    text: str = ""
    help: str = ""
    related: Draft | None = None
    label: str = ""


@dataclass(frozen=True)
class HeadOrder:
    """An axis of heads made of two factors; ``spreads`` says that it was made by repeating heads of keys."""

    step: Draft
    outer: Scalar
    inner: Scalar
    spreads: bool


class Trouble(StrEnum):
    """What can be wrong with a mask where it is used, with the axes of a tensor, or with how a built-in is called."""

    SEES_NEXT = "sees next"
    HIDES_OWN = "hides own"
    ADDED_FLAGS = "added flags"
    SPLIT = "split"
    TOO_FEW_AXES = "too few axes"
    FOREIGN = "foreign"
    TILED = "tiled"
    EMPTY_ROW = "empty row"
    OVERFLOW = "overflow"
    MISALIGNED = "misaligned"
    PLAIN_ATTRIBUTE = "plain attribute"
    OVER_BATCH = "attention along the batch"
    OVER_HEADS = "attention over the heads"
    LOST_LETTER = "an einsum letter that nothing else has"
    MOVED_AXIS = "a reshape that moves an axis"
    POSITIONS_ON_BATCH = "positions along the batch"
    POSITIONS_ELSEWHERE = "positions of one axis along another"
    DROPS_IN_EVAL = "dropout without a mode"
    HANDS_RATE_ON = "a rate for a function that knows no mode"
    MASK_AND_IS_CAUSAL = "a mask and is_causal"
    DEPRECATED_CONTEXT = "the deprecated choice of kernels"
    UNREAD_MAP = "weights that nobody reads"
    ANGLES_OVER_HEADS = "rotary angles that count the heads"
    SECOND_SOFTMAX = "a softmax of weights"
    UNUSED_SOFTMAX = "a softmax that nobody reads"
    NO_SOFTMAX = "masked scores that meet the value"
    NORM_OVER_TIME = "a norm over time and features"
    SINGLE_CELL = "a causal mask of one cell"
    PADS_SEEN = "a layer that is given padding and no mask"
    ZEROED_LOGITS = "weights of logits that were multiplied by a mask"


@dataclass(eq=False)
class Operands:
    """The projections that query, key and value of one attention came from when a walk met it; None where unknown.

    ``is_value_bare`` says that the value is an argument as it is.
    """

    core: Draft
    query: Draft | None = None
    key: Draft | None = None
    value: Draft | None = None
    is_value_bare: bool = False


@dataclass(slots=True, eq=False)
class Inside:
    """A branch that a record is in as long as this is entered."""

    record: Record
    branch: Branch
    outer: frozenset[Branch] = frozenset()

    def __enter__(self) -> None:
        self.outer = self.record.branches
        self.record.branches = self.outer | {self.branch}

    def __exit__(self, *_: object) -> None:
        self.record.branches = self.outer


@dataclass(frozen=True, eq=False)
class Visit:
    """A walk through a function on the way of another: the object whose method it is, what it returned, and what was
    seen and noted meanwhile, the sites by their softmaxes."""

    instance: Instance | None
    returned: list[Value]
    seen: list[cst.CSTNode]
    noted: dict[Trouble, list[Event]]


@dataclass(eq=False)
class Record:
    """Everything that a walk has seen, sites by the node of their softmax."""

    sites: dict[cst.CSTNode, SiteDraft] = field(default_factory=dict)
    dropped: list[tuple[Draft, Draft | None]] = field(default_factory=list)
    misread: list[Event] = field(default_factory=list)
    illegal_views: list[Event] = field(default_factory=list)
    unchecked_heads: list[Event] = field(default_factory=list)
    noted: dict[Trouble, list[Event]] = field(default_factory=dict)
    late: list[tuple[Draft, Draft]] = field(default_factory=list)
    returned: list[Value] = field(default_factory=list)
    mode_tests: int = 0  # how many tests of training mode the walk stands in
    walked: set[cst.CSTNode] = field(default_factory=set)
    calls: list[Call] = field(default_factory=list)  # those that the walk stands in, the outermost first
    branches: frozenset[Branch] = frozenset()
    operands: list[Operands] = field(default_factory=list)
    attended: list[Draft] = field(default_factory=list)
    reads: dict[str, list[tuple[bool, Draft, frozenset[Branch]]]] = field(default_factory=dict)
    head_orders: list[HeadOrder] = field(default_factory=list)
    thirds: list[tuple[Draft, Draft]] = field(default_factory=list)
    summed: dict[cst.CSTNode, Draft] = field(default_factory=dict)
    met: dict[cst.CSTNode, Draft] = field(default_factory=dict)
    completed: set[cst.CSTNode] = field(default_factory=set)  # products with a mask that a sum or a fill makes whole
    visits: dict[Region, Visit] = field(default_factory=dict)
    seen: list[cst.CSTNode] = field(default_factory=list)  # softmaxes of the sites, whenever one is seen

    @property
    def extent(self) -> tuple[int, dict[Trouble, int]]:
        """How much was seen and noted so far."""
        return len(self.seen), {trouble: len(events) for trouble, events in self.noted.items()}

    def since(self, before: tuple[int, dict[Trouble, int]], instance: Instance | None, returned: list[Value]) -> Visit:
        """The walk of a function that began at this extent."""
        seen, noted = before
        new = {trouble: events[noted.get(trouble, 0) :] for trouble, events in self.noted.items()}
        return Visit(instance, returned, self.seen[seen:], new)

    def within(self, region: Region, visit: Visit) -> Record:
        """What was seen in one of the functions that the walk has come through."""
        return Record(
            sites={softmax: self.sites[softmax] for softmax in visit.seen},
            noted=visit.noted,
            operands=[operands for operands in self.operands if operands.core.region is region],
            attended=[draft for draft in self.attended if draft.region is region],
            thirds=[(cut, projection) for cut, projection in self.thirds if cut.region is region],
            returned=visit.returned,
        )

    def inside(self, node: cst.CSTNode, side: int) -> Inside:
        """While one of the alternatives of a statement or expression is walked."""
        return Inside(self, (node, side))

    def see(self, value: Tensor, region: Region, **facts: Any) -> None:
        """Weights or a context of a site; what several branches see of one site is joined."""
        softmax = softmax_of(value)
        if softmax is None:
            return
        self.seen.append(softmax.node)
        known = self.sites.get(softmax.node)
        if known is None:
            self.sites[softmax.node] = SiteDraft(value, softmax.region, branches=self.branches, **facts)
        elif known.is_complete and value.role != known.value.role:
            return
        elif known.value.role == value.role:
            joined = join(known.value, value)
            known.value = joined if isinstance(joined, Tensor) else value
        else:
            known.value = value

    def note(self, trouble: Trouble, event: Event) -> None:
        self.noted.setdefault(trouble, []).append(event)

    def add(self, value: Tensor, draft: Draft) -> None:
        """A step behind the context, such as the merge of the heads."""
        softmax = softmax_of(value)
        site = self.sites.get(softmax.node) if softmax else None
        if site and all(step.node is not draft.node for step in site.beside):
            site.beside.append(draft)

    def note_late_mask(self, value: Tensor) -> None:
        """Scores that are masked in place when a softmax has already read them."""
        step = last_step(value)
        if value.role is Role.SCORES and value.core and step and step.kind is StepKind.MASK:
            read = any(value.core is known for site in self.sites.values() for known in site.value.steps)
            if read:
                self.late.append((step, value.core))

    def drop_late_masks(self) -> None:
        """Those of the late masks that no softmax has read after all have no effect."""
        effective = {step.node for site in self.sites.values() for step in site.value.steps}
        for step, core in self.late:
            if step.node not in effective:
                self.drop(step, core)

    def drop(self, draft: Draft, core: Draft | None) -> None:
        """A mask whose result is thrown away."""
        if all(known.node is not draft.node for known, _ in self.dropped):
            self.dropped.append((draft, core))


def projection_of(value: Tensor | None) -> Draft | None:
    """The last linear map that a query, key or value has gone through."""
    steps = value.steps if value and value.role is Role.ACTIVATION else ()
    return next((step for step in reversed(steps) if step.kind is StepKind.PROJECTION), None)


def softmax_of(value: Tensor) -> Draft | None:
    return next((step for step in reversed(value.steps) if step.kind is StepKind.SOFTMAX), None)


def mask_stage(value: Tensor) -> Stage:
    return Stage.SCORES if softmax_of(value) is None else Stage.WEIGHTS


def last_step(value: Value) -> Draft | None:
    """The operation that made a tensor."""
    return value.steps[-1] if isinstance(value, Tensor) and value.steps else None
