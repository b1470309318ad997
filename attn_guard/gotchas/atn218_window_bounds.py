"""A sliding window that is wider or narrower than declared, or open at its border.

What it does
------------
Compares how many positions a query sees with the declared `window`, its own included, and finds windows that give
weight to the filling at the ends of a sequence.

Why is this bad
---------------
Libraries count differently: `distance < window` keeps `window` keys, `distance <= window` one more, and fused kernels
take the number of keys to the left without the own. One key off is invisible in the loss, and a model that was trained
with one window and is run with another is a little wrong everywhere; a cache of the size of the window overwrites what
is still needed. Keys that only fill up the first or last block take a share of the weight where nobody masks them.

The sequence has to be longer than the window for this to show; the probe makes it so where it chooses the inputs. Keys
that all queries see (sinks) do not count, and layers without a window beside others with the right one are a design.

Example
-------
{broken}

Use instead
-----------
{fixed}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.findings import Finding
    from attn_guard.probe.order import Order
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN218",
    name="window-bounds",
    summary="window is not as wide as declared",
    fix="keep the keys with 0 <= query - key < window",
    explains=("ATN701",),
    explained_by=("ATN3",),
)


def probe(xray: XRay) -> Iterator[Finding]:
    declared = xray.contract.window
    if declared is None:
        return
    length = len(xray.streams.influence) if xray.streams.influence is not None else 0
    shown = [order for order in xray.orders if order.window and (order.keys > declared + 1 or order.keys < length)]
    mixed = any(_is_right(order, declared) for order in shown)
    for order in xray.orders:
        open_ended = order.window in (length, 2 * length - 1)
        if order in shown and not _is_right(order, declared) and not (open_ended and mixed):
            yield GOTCHA.at(
                order.place,
                f"a query sees {order.window} positions",
                expected=f"{declared}, its own included",
                found="all" if open_ended else str(order.window),
                leak_map=order.outside(declared),
            )
        elif order.sees_filling:
            yield GOTCHA.at(
                order.place,
                "at the border, keys that only fill up the window have weight",
                help="mask the keys that stand for no position",
                expected="no weight",
                found="some weight",
            )


def _is_right(order: Order, declared: int) -> bool:
    """A window to both sides of an even size may have its own position on top."""
    both_sides = order.anatomy.site.causal is False
    return order.window == declared or (both_sides and declared % 2 == 0 and order.window == declared + 1)
