"""What authors of big libraries do on purpose and state elsewhere than in the attention itself."""

from __future__ import annotations

from math import isclose

from torch import nn

from attn_guard.contract import Contract

# Fields of a configuration that state the scale: as it is, or as the number whose inverse root it is.
SCALE_FIELDS = ("query_pre_attn_scalar", "attention_multiplier")

# Families that promise what no attribute states, by where their classes live.
PROMISES = {
    "transformers.models.gpt_neo.": Contract(scale=1.0),  # its first weights were trained without a scale
}

# A kind of layer, as configurations call it, that keeps a prompt whole and a window of what was decoded after it: what
# is decoded then depends on where the prompt ended.
WINDOW_AFTER_PROMPT = "reference_sliding_attention"


def known_contract(module: nn.Module) -> Contract:
    """What the library that a module comes from is known to promise; an empty contract where nothing is known."""
    home = type(module).__module__
    return next((promises for prefix, promises in PROMISES.items() if home.startswith(prefix)), Contract())


def decodes_by_prompt(module: nn.Module) -> bool:
    """Whether the configuration of a module, or of a part of it, states that decoding is no pass over the whole."""
    configs = (getattr(part, "config", None) for part in module.modules())
    return any(WINDOW_AFTER_PROMPT in (getattr(config, "layer_types", None) or ()) for config in configs)


def configured(owner: nn.Module, scale: float) -> str:
    """The field of a module's configuration that states its scale; "" where none does."""
    config = getattr(owner, "config", None)
    for name in SCALE_FIELDS:
        number = getattr(config, name, None)
        forms = (number, number**-0.5) if isinstance(number, int | float) and number > 0 else ()
        if any(isclose(scale, form, rel_tol=2e-3) for form in forms):
            return f"config.{name}"
    return ""
