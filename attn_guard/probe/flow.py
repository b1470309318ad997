"""What the operations on a tape do: which move data, which multiply matrices, which values carry content.

Names are those of the ATen operators that a dispatch mode sees.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from torch import Tensor

from attn_guard.probe.tape import Op, Ref, Tape

LAYOUT = frozenset(
    """
    view _unsafe_view reshape _reshape_alias transpose t permute expand unsqueeze squeeze select slice narrow
    split split_with_sizes chunk unbind clone contiguous _to_copy alias detach lift_fresh cat stack unfold flip
    roll repeat repeat_interleave index_select gather index as_strided movedim constant_pad_nd flatten unflatten
    copy_ overwrite im2col diagonal
    """.split()
)
MATMUL = frozenset(
    """
    mm bmm addmm baddbmm linear matmul convolution mv addbmm
    """.split()
)
SOFTMAX = frozenset(
    """
    _softmax _safe_softmax softmax
    """.split()
)
NORM = frozenset(
    """
    native_layer_norm _fused_rms_norm native_group_norm rsqrt linalg_vector_norm norm native_batch_norm
    _native_batch_norm_legit_no_training cudnn_batch_norm _cdist_forward
    """.split()
)
PRODUCT = frozenset(
    """
    mul mul_ div div_ true_divide
    """.split()
)
SUM = frozenset(
    """
    add add_ sub sub_ rsub
    """.split()
)
SELECTION = frozenset(
    """
    masked_fill masked_fill_ where index_put_ index_put masked_scatter masked_scatter_ fill_
    """.split()
)
DROPOUT = frozenset(
    """
    native_dropout _fused_dropout dropout
    """.split()
)
# Their result depends on the shape of what they are given, not on its numbers.
SHAPE_ONLY = frozenset(
    """
    zeros_like ones_like empty_like full_like rand_like randn_like new_zeros new_ones new_empty new_full
    sym_size
    """.split()
)


@dataclass(frozen=True)
class Flow:
    """A tape with what is known of its values.

    ``content`` are the values computed from what the module was given to work on (features, or embeddings of ids);
    ``learned`` those computed from parameters alone.
    """

    tape: Tape
    content: frozenset[int]
    learned: frozenset[int]

    @classmethod
    def of(cls, tape: Tape, masks: Collection[str] = ()) -> Flow:
        """``masks`` are inputs that are no content, besides those that are masks by their name."""
        content = {
            value
            for name, value in tape.inputs().items()
            if tape.values[value].is_floating_point() and name not in masks and "mask" not in name.split("_")
        }
        learned = {value for value in tape.leaves if tape.is_parameter(value)}
        for op in tape.ops:
            if op.name in SHAPE_ONLY:
                continue
            if op.name == "embedding" or not content.isdisjoint(op.inputs):
                content.update(op.outputs)
            elif not learned.isdisjoint(op.inputs):
                learned.update(op.outputs)
        return cls(tape, frozenset(content), frozenset(learned))

    def projection(self, op: Op) -> Projection | None:
        """An operation that multiplies content by a learned matrix; None for any other."""
        if op.name not in MATMUL:
            return None
        left, right = operands(op)
        for activation, weight in ((left, right), (right, left)):
            if activation in self.content and weight in self.learned:
                return Projection(op, activation, weight)
        return None

    def projection_of_learned(self, op: Op) -> Projection | None:
        """Learned queries times the matrix that projects them; None for any other operation."""
        if op.name not in MATMUL:
            return None
        left, right = operands(op)
        return Projection(op, left, right) if left in self.learned and right in self.learned else None

    def product(self, op: Op) -> tuple[int, int] | None:
        """The two operands of a product of content with content; None for any other operation."""
        if op.name not in MATMUL or op.name in {"linear", "convolution"}:
            return None
        left, right = operands(op)
        return (left, right) if left in self.content and right in self.content else None

    def is_projected(self, value: int) -> bool:
        """Whether a learned value is itself a product of learned ones: learned queries that went through their
        projection."""
        return any(
            (op := self.tape.maker(step)) is not None and op.name in MATMUL for step in self.tape.ancestors(value)
        )

    def between(self, source: int, target: int) -> list[Op]:
        """The operations on any way from a value to a value computed from it, in order."""
        return self.tape.on_the_way(source, target)

    def chain(self, source: int, target: int) -> list[Op]:
        """One way from a value to a value computed from it: at each operation, its first operand that lies on a way."""
        behind = self.tape.descendants([source])
        found: list[Op] = []
        current = target
        while current != source:
            op = self.tape.maker(current)
            if op is None:
                break
            found.append(op)
            current = next((read for read in ordered_inputs(op) if read in behind), source)
        return found[::-1]


@dataclass(frozen=True)
class Projection:
    """content × learned matrix: the operation, the content going in and the matrix."""

    op: Op
    activation: int
    weight: int


def operands(op: Op) -> tuple[int, int]:
    """The two matrices of a MATMUL operation, in the order in which they are multiplied."""
    refs = [arg.index for arg in op.args if isinstance(arg, Ref)]
    if op.name in {"addmm", "baddbmm", "addbmm"}:
        return refs[1], refs[2]
    return refs[0], refs[1]


def ordered_inputs(op: Op) -> tuple[int, ...]:
    """The inputs of an operation, matrices before what is added to them."""
    if op.name in {"addmm", "baddbmm", "addbmm"}:
        return (*operands(op), *op.inputs)
    return op.inputs


def moves_only(ops: list[Op]) -> bool:
    return all(op.name in LAYOUT for op in ops)


def stacked(value: Tensor) -> Tensor:
    """A matrix or a stack of matrices, as a 3-D stack."""
    return value.unsqueeze(0) if value.dim() == 2 else value
