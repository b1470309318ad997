"""What the axes of scores and weights count, and over which of them a softmax and the product with the value run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from attn_guard.anatomy import Axis
from attn_guard.lint import layout, names
from attn_guard.lint import nodes as cst
from attn_guard.lint.values import Axes, Scalar, Tensor


@dataclass(frozen=True, slots=True)
class Grid:
    """The axes of scores or weights, as far as they are known.

    axes: what the last of them count. whole: there are no others. over: what the softmax ran along; summed: what the
    product with the value summed over. pixels: the keys are the pixels of one image, of which none is later.
    """

    axes: tuple[Axis | None, ...]
    whole: bool = False
    over: Axis | None = None
    summed: Axis | None = None
    pixels: bool = False

    def at(self, axis: int | None) -> Axis | None:
        place = self._from_the_end(axis)
        return None if place is None else self.axes[place]

    def _from_the_end(self, axis: int | None) -> int | None:
        count = len(self.axes)
        if axis is None or axis < -count or (axis >= 0 and not (self.whole and axis < count)):
            return None
        return axis if axis < 0 else axis - count

    def swapped(self, first: int, second: int) -> Grid | None:
        """The grid with two axes exchanged; None where they are not both known."""
        one, other = self._from_the_end(first), self._from_the_end(second)
        if one is None or other is None:
            return None
        axes = list(self.axes)
        axes[one], axes[other] = axes[other], axes[one]
        return replace(self, axes=tuple(axes))

    def permuted(self, order: Sequence[int]) -> Grid | None:
        count = len(order)
        if sorted(axis % count for axis in order) != list(range(count)) or (self.whole and count != len(self.axes)):
            return None
        known = (None,) * (count - len(self.axes)) + self.axes
        return replace(self, axes=tuple(known[axis % count] for axis in order), whole=True)

    def of_rank(self, rank: int) -> Grid:
        """The same when the number of axes is learned."""
        if self.whole or rank < len(self.axes):
            return self
        outer = (Axis.BATCH, Axis.HEADS, None)[: rank - len(self.axes)] if rank <= _USUAL else (None,)
        missing = (None,) * (rank - len(self.axes) - len(outer))
        return replace(self, axes=(*outer, *missing, *self.axes), whole=True)


_USUAL = 4  # (batch, heads, queries, keys)


def of_product(query: Tensor, key: Tensor, axes: Axes | None) -> Grid:
    """The grid of ``query @ key``, whose axes have these sizes."""
    grid = Grid(_rows_and_columns(query, key), pixels=layout.is_plane(key.axes[-1] if key.axes else None))
    if axes is None:
        return grid
    outer = tuple(_counted(index, size) for index, size in enumerate(axes[:-2]))
    return replace(grid, axes=(*outer, *grid.axes), whole=True)


def _rows_and_columns(left: Tensor, right: Tensor) -> tuple[Axis, Axis]:
    """The left operand is the query, unless the names of both say otherwise."""
    swapped = names.is_key(left.name) and names.is_query(right.name)
    return (Axis.KEYS, Axis.QUERIES) if swapped else (Axis.QUERIES, Axis.KEYS)


def _counted(index: int, size: Scalar | None) -> Axis | None:
    if layout.is_heads(size):
        return Axis.HEADS
    return Axis.BATCH if index == 0 else None


def rank_shown(product: cst.CSTNode) -> int | None:
    """The number of axes that ``q @ k.transpose(1, 2)`` shows: those two must be the last ones."""
    key: cst.CSTNode | None = None
    if isinstance(product, cst.BinaryOperation):
        key = product.right
    elif isinstance(product, cst.Call) and product.args:
        key = product.args[-1].value
    if not isinstance(key, cst.Call) or not isinstance(key.func, cst.Attribute):
        return None
    given = [arg.value.evaluated_value for arg in key.args if isinstance(arg.value, cst.Integer)]
    swaps = key.func.attr.value in ("transpose", "swapaxes", "swapdims") and len(given) == len(key.args) == 2
    return max(given) + 1 if swaps and abs(given[0] - given[1]) == 1 else None


def of_letters(query: Tensor, key: Tensor, letters: Sequence[Sequence[str]]) -> Grid:
    """The grid of an einsum of two operands: ``letters`` of the left one, the right one and the result."""
    left, right, result = letters
    rows, columns = _rows_and_columns(query, key)
    axes: list[Axis | None] = []
    for index, letter in enumerate(result):
        if letter in left and letter in right:
            heads = letter in ("h", "heads", "head")
            axes.append(Axis.HEADS if heads else Axis.BATCH if index == 0 and letter != "." else None)
        else:
            axes.append(rows if letter in left else columns if letter in right else None)
    whole = "." not in result
    if not whole:
        axes = axes[list(result).index(".") + 1 :]
    sizes = zip(right, key.axes or (), strict=False)
    pixels = any(layout.is_plane(size) for letter, size in sizes if letter in result and letter not in left)
    return Grid(tuple(axes), whole, pixels=pixels)


def viewed(tensor: Tensor, target: Axes | None) -> Grid | None:
    """The grid after a view: it stays where the view leaves the last two axes as they are."""
    grid, axes = tensor.grid, tensor.axes
    if grid is None or target is None or axes is None or min(len(axes), len(target), len(grid.axes)) < 2:
        return None
    if None in axes[-2:] or axes[-2:] != target[-2:]:
        return None
    return replace(grid, axes=grid.axes[-2:], whole=False).of_rank(len(target))


def softmaxed(grid: Grid | None, axis: int | None) -> Grid | None:
    return replace(grid, over=grid.at(axis)) if grid else None


def summed(grid: Grid | None, axis: int) -> Grid | None:
    """The grid of weights that meet the value in a product over one of their axes."""
    return replace(grid, summed=grid.at(axis)) if grid else None


def summed_letters(grid: Grid | None, weights: Sequence[str], letters: set[str]) -> Grid | None:
    """The same for an einsum, by the letters of the weights and those that are summed over."""
    gone = [index for index, letter in enumerate(weights) if letter in letters]
    if grid is None or len(gone) != 1 or "." in weights[1:]:
        return grid
    return replace(grid, summed=grid.at(gone[0] - len(weights)))


def directions(grid: Grid | None) -> tuple[Axis | None, Axis | None]:
    """What the softmax runs along, and what the product with the value sums over.

    One axis for both is right, whatever it counts: it is that of the keys by definition.
    """
    if grid is None or grid.over is None or grid.summed is None:
        return None, None
    return (Axis.KEYS, Axis.KEYS) if grid.over is grid.summed else (grid.over, grid.summed)
