"""Encoder self-attention as BERT has it: three projections, helpers for the heads, a 0/1 mask made additive."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from attn_guard import contract


@contract(masks={"attention_mask": "attend"})
class BertAttention(nn.Module):
    def __init__(self, hidden_size: int, num_heads: int, dropout: float = 0.1) -> None:
        super().__init__()
        if hidden_size % num_heads != 0:
            raise ValueError(f"hidden size {hidden_size} is not a multiple of the number of heads {num_heads}")
        self.num_heads = num_heads
        self.head_size = hidden_size // num_heads
        self.scaling = self.head_size**-0.5
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size)
        self.dropout = nn.Dropout(dropout)

    def split_heads(self, x: Tensor) -> Tensor:
        x = x.view(*x.shape[:-1], self.num_heads, self.head_size)
        return x.permute(0, 2, 1, 3)

    def merge_heads(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 1, 3).contiguous()
        return x.view(*x.shape[:-2], self.num_heads * self.head_size)

    def extended(self, attention_mask: Tensor, dtype: torch.dtype) -> Tensor:
        """0 where a key may be attended to, the lowest number of the dtype where not."""
        mask = attention_mask[:, None, None, :].to(dtype)
        return (1.0 - mask) * torch.finfo(dtype).min

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, output_attentions: bool = False
    ) -> tuple[Tensor, ...]:
        query = self.split_heads(self.query(hidden_states))
        key = self.split_heads(self.key(hidden_states))
        value = self.split_heads(self.value(hidden_states))

        scores = torch.matmul(query, key.transpose(-1, -2)) * self.scaling
        if attention_mask is not None:
            scores = scores + self.extended(attention_mask, scores.dtype)
        probs = nn.functional.softmax(scores, dim=-1)
        dropped = self.dropout(probs)
        context = self.merge_heads(torch.matmul(dropped, value))

        output = self.norm(self.dense(context) + hidden_states)
        return (output, probs) if output_attentions else (output,)


WEIGHTS = {"output_attentions": True}


def build() -> nn.Module:
    torch.manual_seed(0)
    return BertAttention(hidden_size=20, num_heads=4)


def inputs(batch: int = 3, time: int = 7) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (torch.randn(batch, time, 20, generator=torch.Generator().manual_seed(1)),), {}


def padded(keep: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, _ = inputs(*keep.shape)
    return args, {"attention_mask": keep.long()}
