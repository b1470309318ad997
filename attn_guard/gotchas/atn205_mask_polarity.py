"""A mask that is upside down: it blocks what it should keep.

What it does
------------
Finds masks that reach an attention call whose convention is the opposite of theirs. What True (or 1) means depends on
who is asked:

- `F.scaled_dot_product_attention(attn_mask=...)` and the `attention_mask` of Hugging Face models: True = attend;
- what a `mask_mod` of `flex_attention` returns: True = attend;
- `nn.MultiheadAttention` and `nn.Transformer*` (`attn_mask`, `key_padding_mask`, `src_key_padding_mask`): True =
  ignore.

A mask made by `ids == pad` or `triu(1)` says "ignore", one made by `ids != pad` or `tril()` says "attend".

Why is this bad
---------------
Both conventions take a boolean tensor of the same shape, so nothing raises. With a padding mask upside down, no real
token has any influence on another, and what each of them gets is a mixture of padding; with a causal mask upside down,
each position sees only its future. The mistake comes in when code moves from `nn.MultiheadAttention` to
`F.scaled_dot_product_attention`.

The probe changes one position at a time: a real token without influence on others beside a padded one with influence is
the evidence. What True means in an argument of a module of your own is declared by its contract:
`@attn_guard.contract(masks={"key_padding_mask": "ignore"})`.

In source, an argument of unknown meaning that hides a key in one place and keeps it in another of the same function
is told as well, unless the function chooses between the two. In a test it is a remark: two kernels can be held against
each other under any mask.

Example
-------
{broken}

Use instead
-----------
{fixed}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from attn_guard.anatomy import Step, StepKind
from attn_guard.findings import Location, Severity
from attn_guard.gotchas import Gotcha, unsafe

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.function import Function
    from attn_guard.probe.anatomist import Anatomy
    from attn_guard.probe.padding import PaddedRun
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN205",
    name="mask-polarity",
    summary="mask is upside down: it blocks what should be seen and keeps what should be hidden",
    fix="invert the mask: ~mask",
    explains=("ATN209", "ATN211", "ATN212", "ATN214", "ATN218", "ATN219", "ATN503"),
)


def lint(function: Function) -> Iterator[Finding]:
    severity = Severity.INFO if function.is_test else None
    for mask in function.misread_masks:
        yield GOTCHA.at(mask.location, mask.text, severity=severity, help=mask.help, related=mask.related)


def probe(xray: XRay) -> Iterator[Finding]:
    for run in xray.padded:
        if run.upside_down:
            meant = "to ignore" if run.meaning == "ignore" else "to attend to"
            arrival = next(iter(run.delivery.arrivals), None)
            yield GOTCHA.at(
                arrival.op.location if arrival else _where(run.sites),
                f"{run.name} works upside down: {_seen(run)}",
                severity=Severity.ERROR if xray.promised(run.name) else Severity.WARNING,
                expected=f"True in {run.name} marks keys {meant}" if run.meaning != "additive" else "-inf hides a key",
                found="the opposite",
            )
    for delivery in xray.handed.over:
        for arrival in delivery.contradictions if delivery.meaning is None else ():
            yield GOTCHA.at(
                arrival.op.location,
                f"True in {delivery.name} {'hides' if arrival.hides_marked else 'keeps'} a key here only",
                severity=Severity.WARNING,
                expected=f"what True in {delivery.name} does in the other attention of the module",
                found="the opposite",
            )
    for anatomy in xray.sites:
        if anatomy.hides_past or (xray.contract.causal and anatomy.keeps_only_later):
            yield GOTCHA.at(
                _where((anatomy,)),
                "mask blocks the past and keeps the future",
                expected="keys up to the query",
                found="keys after it",
            )


def _seen(run: PaddedRun) -> str:
    return "it hides the real tokens" if run.others_matter else "only padded tokens have influence"


def _where(anatomies: Sequence[Anatomy]) -> Step | Location:
    """The mask's own line, or that of the softmax it should have reached."""
    for anatomy in anatomies:
        masks = anatomy.site.before_softmax(StepKind.MASK)
        if masks:
            return masks[0]
    softmax = anatomies[0].site.softmax if anatomies else None
    return softmax or Location("<probe>", 0)


def fix(blamed: Blamed) -> Fix | None:
    """The only mask of the call, inverted. Unsafe: it may be its name that is wrong."""
    places = {"masked_fill": (1, "mask"), "masked_fill_": (1, "mask"), "scaled_dot_product_attention": (3, "attn_mask")}
    if blamed.called in places:
        mask = blamed.argument(*places[blamed.called])
    else:
        masks = [
            blamed.argument(99, name) for name in ("key_padding_mask", "src_key_padding_mask", "attn_mask", "mask")
        ]
        given = [mask for mask in masks if mask is not None]
        mask = given[0] if len(given) == 1 else None
    return unsafe(blamed.replacing(mask, mask.inverted)) if mask else None
