"""Scores are scaled, but not by 1/√head_dim.

What it does
------------
Finds scores whose factor is made of another size than the head dimension (`d_model`, all heads together, the number
of heads or of keys), of the head dimension in another power (the root forgotten, or multiplied where a division is
due), or of a number that fits none of them and that the module states nowhere.

Why is this bad
---------------
The factor is there to give the scores a variance of 1 (Vaswani et al. 2017, section 3.2.1), and a score is a sum over
the components of one head. Dividing by √d_model makes the scores too small by √heads, dividing by `head_dim` itself
by √head_dim: the weights start out almost uniform, and each head averages its values where it should choose among
them. Multiplying does the opposite and saturates the softmax. A literal is right for one width of head and wrong for
the next. With one head `d_model` and `head_dim` are the same number, so tests with `heads=1` cannot see the mistake.

A scale that is applied twice, or divided by where it is an inverse already, is ATN103.

It stays silent for a factor that a module states in an attribute and that fits no size (a design, such as Gemma's
`query_pre_attn_scalar`), for normalised queries and keys, and for a `scale` that the contract declares (μP).

Example
-------
{broken}

Use instead
-----------
{fixed}
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose
from typing import TYPE_CHECKING

from attn_guard.anatomy import Factor, Site, Size, Step, StepKind
from attn_guard.findings import Finding, Fix, Severity
from attn_guard.gotchas import Gotcha, unsafe

if TYPE_CHECKING:
    from attn_guard.lint.fixes import Blamed

GOTCHA = Gotcha(
    code="ATN102",
    name="wrong-scale",
    summary="scores are scaled by something other than the root of the head dimension",
    fix="multiply the scores by head_dim ** -0.5",
    explains=("ATN704",),
)


def check(site: Site) -> Iterator[Finding]:
    scale = site.scale
    if scale is None or scale.is_one or site.softmax is None or site.normalised:
        return
    if _is_right(scale, site) or site.scale_twice or site.inverse_scale:
        return
    message = _message(scale, site)
    if message:
        yield GOTCHA.at(
            _blamed(scale, site),
            message,
            severity=GOTCHA.severity if scale.size else Severity.WARNING,
            expected=str(site.right_scale),
            found=str(scale),
        )


def _message(scale: Factor, site: Site) -> str:
    """What is wrong with the scale; "" where that is not known, or where the module states the number on purpose."""
    if scale.size is None:
        unexplained = scale.value is not None and not scale.text and Size.HEAD_DIM in site.sizes
        return "scores are scaled by a number that matches no size" if unexplained else ""
    if scale.power is None:
        return ""
    if scale.power > 0:
        return f"scores are multiplied by {_power(scale.size, scale.power)}"
    if scale.size is Size.HEAD_DIM and scale.power == -1:
        return "scores are divided by head_dim without the root"
    return f"scores are divided by {_power(scale.size, -scale.power)}"


def _power(size: Size, power: float) -> str:
    if power == 1:
        return str(size)
    return f"√{size}" if power == 0.5 else f"{size}**{power:g}"


def _is_right(scale: Factor, site: Site) -> bool:
    """Right in form, or in number: with one head, d_model is the head dimension."""
    right = site.right_scale
    if scale.is_right:
        return True
    value = scale.value
    if value is None and scale.size and scale.power is not None and scale.size in site.sizes:
        value = site.sizes[scale.size] ** scale.power
    return value is not None and right.value is not None and isclose(value, right.value, rel_tol=1e-3)


def _blamed(scale: Factor, site: Site) -> Step:
    steps = site.before_softmax(StepKind.SCALE)
    same = [step for step in steps if step.factor and step.factor.size is scale.size]
    found = next(iter(same or steps), None) or site.scores or site.softmax
    assert found is not None, "a site with a scale has a step"
    return found


def fix(blamed: Blamed) -> Fix | None:
    """The factor beside the product of query and key. Unsafe: another scale may be meant."""
    if blamed.sides is None:
        return None
    product, sign, factor = blamed.sides
    width = blamed.width_of(product)
    return unsafe(blamed.replacing(factor, f"{width} ** {0.5 if sign == '/' else -0.5}")) if width else None
