"""What a module promises that nobody declared, and the evidence for it.

An inferred promise is printed as an assumption, and a fault against it is a warning, not an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn

from attn_guard.contract import Contract, MaskMeaning
from attn_guard.probe.calling import is_of_torch, known_meaning, mask_parameters
from attn_guard.probe.evidence import CausalEvidence


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


def infer(module: nn.Module, declared: Contract, causal: CausalEvidence) -> Intent:
    evidence: dict[str, str] = {}
    masks = _masks(module, declared, evidence)
    is_causal: bool | None = None
    if declared.causal is None and causal.text:
        evidence["causal"], is_causal = causal.text, True
    inferred = Contract(causal=is_causal, masks=masks)
    masks = {**(inferred.masks or {}), **(declared.masks or {})}
    contract = declared.over(inferred)
    return Intent(_with_masks(contract, masks), declared, evidence)


def _with_masks(contract: Contract, masks: dict[str, MaskMeaning]) -> Contract:
    return Contract(masks=masks or None).over(contract)


def _masks(module: nn.Module, declared: Contract, evidence: dict[str, str]) -> dict[str, MaskMeaning]:
    """What True means in the mask arguments of torch's own layers, and where names follow torch.nn or transformers."""
    found: dict[str, MaskMeaning] = {}
    for name in mask_parameters(module):
        if name in (declared.masks or {}):
            continue
        meaning = known_meaning(name)
        if meaning is not None:
            evidence[name] = "True means ignore, as its name has it in torch.nn"
        elif is_of_torch(module):
            meaning = "ignore"
            evidence[name] = "True means ignore, as torch.nn has it"
        elif name == "attention_mask" and getattr(module, "main_input_name", "") == "input_ids":
            meaning = "attend"
            evidence[name] = "1 means attend, as in transformers"
        if meaning is not None:
            found[name] = meaning
    return found
