"""A text classifier over `nn.TransformerEncoder`: ids and a 0/1 attention mask in, one row of logits a text out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from attn_guard import contract


@contract(masks={"attention_mask": "attend"})
class TextClassifier(nn.Module):
    def __init__(self, vocabulary: int, d_model: int, nhead: int, classes: int, max_time: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, d_model)
        self.positions = nn.Parameter(torch.randn(1, max_time, d_model))
        layer = nn.TransformerEncoderLayer(d_model, nhead, dim_feedforward=40, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.classify = nn.Linear(d_model, classes)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        keep = attention_mask.bool()
        x = self.embedding(input_ids)
        x = x + self.positions[:, : x.size(1)]
        x = self.encoder(x, src_key_padding_mask=~keep)
        x = x.masked_fill(~keep.unsqueeze(-1), 0.0)
        pooled = x.sum(dim=1) / keep.sum(dim=1, keepdim=True)
        return self.classify(pooled)


def build() -> nn.Module:
    torch.manual_seed(0)
    return TextClassifier(vocabulary=29, d_model=20, nhead=4, classes=6)


def inputs(batch: int = 3, time: int = 7) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (torch.randint(1, 29, (batch, time), generator=torch.Generator().manual_seed(1)),), {}


def padded(keep: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, _ = inputs(*keep.shape)
    return args, {"attention_mask": keep.long()}
