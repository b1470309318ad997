from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, lengths_mask, randn, seeded

PROMISES: dict[str, Any] = {"masks": {"attention_mask": "attend"}}


class Pretrained(nn.Module):
    """The little that the file needs of its base class."""

    dtype = torch.float32

    def __init__(self, config: object) -> None:
        super().__init__()

    def init_weights(self, module: nn.Module) -> None:
        return None


def build(files: Files) -> nn.Module:
    given = {"PreTrainedModel": Pretrained, "LayerNorm": nn.LayerNorm, "PretrainedConfig": object}
    module = files.load("modules/module_cross.py", given=given)
    config = module.CrossConfig(
        17, hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=H, max_position_embeddings=11
    )
    return seeded(lambda: module.CrossModel(config))


def inputs() -> Call:
    return (randn(B, T, WIDTH),), {"attention_mask": lengths_mask(3, 5, 4).long()}
