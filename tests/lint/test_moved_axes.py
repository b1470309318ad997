"""Which axis a reshape moves."""

from __future__ import annotations

import pytest

from attn_guard.anatomy import Size
from attn_guard.lint.moved_axes import REST, joined_axis, moved_axis
from attn_guard.lint.values import Atom, Scalar


def axis(name: str, size: Size | None = None) -> Scalar:
    return Scalar(powers=((Atom(name, size), 1.0),))


B, T, H, D, W = (
    axis("b"),
    axis("t"),
    axis("n_head", Size.HEADS),
    axis("d_k", Size.HEAD_DIM),
    axis("d_model", Size.D_MODEL),
)
N, P = axis("n"), axis("p")


@pytest.mark.parametrize(
    ("source", "target", "moved"),
    [
        ((B, T, W), (B, H, T, D), T),
        ((B, T, W), (B, H, REST, D), T),
        ((B, H, T, D), (B, T, W), T),
        ((B, H, T, D), (B, REST, W), T),
        ((B, H, None, D), (B, T, W), T),
        ((B.times(H), T, D), (B, T, W), T),
        ((B, T, N), (B, N, T), T),
        ((B, T, N), (T, B, N), B),
        ((B, N, T, P), (B, T.times(P), N), N),
        ((B, joined_axis((N, T)), P), (B, T, REST), T),
    ],
)
def test_axis_that_keeps_its_size_and_not_its_place_has_moved(
    source: tuple[Scalar | None, ...], target: tuple[Scalar | None, ...], moved: Scalar
) -> None:
    assert moved_axis(source, target) is not None
    assert moved_axis(target, source) is not None or None in source or REST in target
    found = moved_axis(source, target)
    assert found == moved or (found is not None and found.powers[0][0].name == "the same unknown")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ((B, T, W), (B, T, H, D)),
        ((B, T, W), (B, REST, H, D)),
        ((B, T, H, D), (B, T, W)),
        ((B, H, T, D), (B.times(H), T, D)),
        ((B, T, N), (B.times(T), N)),
        ((B, T, N), (B, T.times(Scalar(0.5)), N.times(Scalar(2.0)))),  # two frames stacked
        ((B, T, N), (P, T, N)),  # the batch under another name
        ((B, T, T), (B, T, T)),
        ((B, T, N), (B, None, None)),
        ((B, N, P), (B, N, REST)),
        ((Scalar(2.0), Scalar(3.0)), (Scalar(3.0), Scalar(2.0))),  # numbers alone are no names of axes
    ],
)
def test_split_joined_and_unknown_axes_stay_where_they_are(
    source: tuple[Scalar | None, ...], target: tuple[Scalar | None, ...]
) -> None:
    assert moved_axis(source, target) is None
