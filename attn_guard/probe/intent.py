"""What a module promises that nobody declared, and the evidence for it.

An inferred promise is printed as an assumption, and a fault against it is a warning, not an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from attn_guard.contract import Contract, MaskMeaning
from attn_guard.probe.anatomist import Anatomy, upwards
from attn_guard.probe.calling import known_meaning, mask_parameters
from attn_guard.probe.tape import Tape

CAUSAL_ATTRIBUTES = ("is_causal", "causal")


@dataclass(frozen=True)
class Intent:
    """The promises of a module: ``contract`` is what was declared, completed by what was inferred; ``evidence`` says
    why."""

    contract: Contract
    declared: Contract
    evidence: dict[str, str] = field(default_factory=dict)

    @property
    def assumptions(self) -> tuple[str, ...]:
        return tuple(f"{promise}: {why}" for promise, why in self.evidence.items())


def infer(module: nn.Module, declared: Contract, tape: Tape, anatomies: Sequence[Anatomy]) -> Intent:
    evidence: dict[str, str] = {}
    inferred = Contract(causal=_causal(module, tape, anatomies, evidence), masks=_masks(module, declared, evidence))
    if declared.causal is not None:
        evidence.pop("causal", None)
    masks = {**(inferred.masks or {}), **(declared.masks or {})}
    contract = declared.over(inferred)
    return Intent(_with_masks(contract, masks), declared, evidence)


def _with_masks(contract: Contract, masks: dict[str, MaskMeaning]) -> Contract:
    return Contract(masks=masks or None).over(contract)


def _causal(module: nn.Module, tape: Tape, anatomies: Sequence[Anatomy], evidence: dict[str, str]) -> bool | None:
    """A module is taken for causal if each of its self-attentions says so, or holds or applies a triangular mask."""
    own = [anatomy for anatomy in anatomies if anatomy.influence.is_self is not False]
    reasons = [_reason(module, tape, anatomy) for anatomy in own]
    if not reasons or not all(reasons):
        return None
    evidence["causal"] = "; ".join(dict.fromkeys(reason for reason in reasons[:2] if reason))
    return True


def _reason(module: nn.Module, tape: Tape, anatomy: Anatomy) -> str:
    """Why a site is taken for causal; "" where nothing says so."""
    path = anatomy.trace.module
    for holder in upwards(path):
        for name in CAUSAL_ATTRIBUTES:
            if getattr(module.get_submodule(holder), name, None) is True:
                return f"{holder + '.' if holder else ''}{name} is True"
    for value, name in tape.leaves.items():
        held = name.removeprefix("buffer ").rpartition(".")[0]
        serves = name.startswith("buffer ") and f"{path}.".startswith(f"{held}." if held else "")
        if serves and is_triangle(tape.values[value]):
            return f"{name} is a triangle"
    place = _triangular_mask(anatomy)
    return f"a triangular mask is applied at {place}" if place else ""


def is_triangle(value: Tensor) -> bool:
    """Whether all square faces are 0/1, bool or 0/blocking, with a border along the diagonal."""
    if value.dim() < 2 or value.shape[-1] != value.shape[-2] or value.shape[-1] < 2 or value.is_complex():
        return False
    size = value.shape[-1]
    faces = value.reshape(-1, size, size)
    return bool(faces.shape[0] <= 64 and any(_is_border(faces == faces[:, :1, -1:], diagonal) for diagonal in (0, 1)))


def _is_border(cells: Tensor, diagonal: int) -> bool:
    triangle = torch.ones(cells.shape[-2:], dtype=torch.bool, device=cells.device).triu(diagonal)
    return bool((cells == triangle).all())


def _triangular_mask(anatomy: Anatomy) -> str | None:
    """The place of a mask that blocks every later key and no earlier one; used or dropped."""
    for found in anatomy.all_masks:
        faces = found.blocked.reshape(-1, *found.blocked.shape[-2:])
        queries, keys = faces.shape[-2:]
        if queries == keys and queries > 2 and _is_border(faces, 1):
            return str(found.op.location)
    return None


def _masks(module: nn.Module, declared: Contract, evidence: dict[str, str]) -> dict[str, MaskMeaning]:
    """What True means in the mask arguments whose names follow torch.nn or transformers."""
    found: dict[str, MaskMeaning] = {}
    for name in mask_parameters(module):
        if name in (declared.masks or {}):
            continue
        meaning = known_meaning(name)
        if meaning is not None:
            evidence[name] = "True means ignore, as its name has it in torch.nn"
        elif name == "attention_mask" and hasattr(module, "main_input_name"):
            meaning = "attend"
            evidence[name] = "1 means attend, as in transformers"
        if meaning is not None:
            found[name] = meaning
    return found
