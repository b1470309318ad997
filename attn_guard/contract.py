"""What a module promises, declared by its author.

A promise comes from the arguments of `attn_guard.check`, from the class decorator `contract`, or is inferred by
the probe (`attn_guard.probe.intent`), in this order. A declared promise that fails is an error; an inferred one
is a warning and is printed as an assumption.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeVar

from attn_guard.errors import UsageError

MaskMeaning = Literal["ignore", "attend", "additive"]
MASK_MEANINGS: tuple[MaskMeaning, ...] = ("ignore", "attend", "additive")

CONTRACT_ATTRIBUTE = "__attn_guard_contract__"
ALLOW_ATTRIBUTE = "__attn_guard_allow__"

T = TypeVar("T", bound=type)


@dataclass(frozen=True, slots=True)
class Contract:
    """The promises of an attention module; None means that nothing is promised.

    causal: output position t depends on inputs at positions up to t only.
    cross: the queries come from one input and keys and values from another.
    masks: name of each mask argument, and what True (or 1) means in it: "ignore" (`nn.MultiheadAttention`), "attend"
        (`F.scaled_dot_product_attention`), "additive" (added to the scores).
    scale: the factor the scores are multiplied by, where it is not 1/√head_dim on purpose.
    window: how many positions a query sees, itself included.
    segments: name of the argument that holds document ids.
    batch_first: inputs are (batch, time, features); False says (time, batch, features).
    padding_side: "left" or "right".
    positions: the module knows the order of its inputs.
    cache: name of the argument that holds past keys and values.
    """

    causal: bool | None = None
    cross: bool | None = None
    masks: Mapping[str, MaskMeaning] | None = None
    scale: float | None = None
    window: int | None = None
    segments: str | None = None
    batch_first: bool | None = None
    padding_side: Literal["left", "right"] | None = None
    positions: bool | None = None
    cache: str | None = None

    def __post_init__(self) -> None:
        for name, meaning in (self.masks or {}).items():
            if meaning not in MASK_MEANINGS:
                raise UsageError(
                    f"masks={{{name!r}: {meaning!r}}}: say what True means in the mask: "
                    f"{', '.join(repr(known) for known in MASK_MEANINGS)}"
                )
        if self.padding_side not in (None, "left", "right"):
            raise UsageError(f"padding_side={self.padding_side!r}: expected 'left' or 'right'")

    def over(self, other: Contract) -> Contract:
        """This contract, completed by the promises of ``other`` where it makes none."""
        return replace(
            self,
            **{field.name: getattr(other, field.name) for field in fields(self) if getattr(self, field.name) is None},
        )


def contract(**promises: Any) -> Callable[[T], T]:
    """Class decorator that declares what the modules of a class promise; see `Contract` for the promises.

    >>> @contract(causal=True, masks={"key_padding_mask": "ignore"})
    ... class Attention: ...
    """
    known = {field.name for field in fields(Contract)}
    for name in promises:
        if name not in known:
            raise UsageError(f"contract({name}=...): no such promise; there are {', '.join(sorted(known))}")
    declared = Contract(**promises)

    def mark(cls: T) -> T:
        setattr(cls, CONTRACT_ATTRIBUTE, declared)
        return cls

    return mark


def declared_contract(module: object) -> Contract:
    """The contract that a module's class declares; an empty one where it declares none."""
    found = getattr(type(module), CONTRACT_ATTRIBUTE, None)
    return found if isinstance(found, Contract) else Contract()


def allow(code: str, reason: str) -> Callable[[T], T]:
    """Class decorator that silences one gotcha for the modules of a class, with the reason why.

    >>> @allow("ATN102", "muP: scores are divided by head_dim")
    ... class Attention: ...
    """
    if not reason.strip():
        raise UsageError(f"allow({code!r}, ...): say why in the reason")

    def mark(cls: T) -> T:
        setattr(cls, ALLOW_ATTRIBUTE, {**getattr(cls, ALLOW_ATTRIBUTE, {}), code: reason})
        return cls

    return mark


def allowed_codes(module: object) -> Mapping[str, str]:
    """Code → reason, for the gotchas that a module's class allows."""
    found = getattr(type(module), ALLOW_ATTRIBUTE, {})
    return found if isinstance(found, dict) else {}
