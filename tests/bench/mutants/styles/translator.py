"""An encoder–decoder in the manner of the annotated transformer: one attention class in three places."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from attn_guard import contract


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: nn.Module) -> Tensor:
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)
    p_attn = scores.softmax(dim=-1)
    return torch.matmul(dropout(p_attn), value)


class MultiHeadedAttention(nn.Module):
    def __init__(self, h: int, d_model: int, dropout: float) -> None:
        super().__init__()
        assert d_model % h == 0
        self.d_k = d_model // h
        self.h = h
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))
        self.dropout = nn.Dropout(dropout)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            mask = mask.unsqueeze(1)
        nbatches = query.size(0)
        query, key, value = (
            linear(x).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)
            for linear, x in zip(self.linears, (query, key, value), strict=False)
        )
        x = attention(query, key, value, mask, self.dropout)
        x = x.transpose(1, 2).contiguous().view(nbatches, -1, self.h * self.d_k)
        return self.linears[-1](x)


class EncoderLayer(nn.Module):
    def __init__(self, d_model: int, h: int, dropout: float) -> None:
        super().__init__()
        self.self_attn = MultiHeadedAttention(h, d_model, dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(2))
        self.feed_forward = nn.Sequential(nn.Linear(d_model, 40), nn.ReLU(), nn.Linear(40, d_model))

    def forward(self, x: Tensor, src_mask: Tensor | None) -> Tensor:
        x = self.norms[0](x + self.self_attn(x, x, x, src_mask))
        return self.norms[1](x + self.feed_forward(x))


class DecoderLayer(nn.Module):
    def __init__(self, d_model: int, h: int, dropout: float) -> None:
        super().__init__()
        self.self_attn = MultiHeadedAttention(h, d_model, dropout)
        self.src_attn = MultiHeadedAttention(h, d_model, dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3))
        self.feed_forward = nn.Sequential(nn.Linear(d_model, 40), nn.ReLU(), nn.Linear(40, d_model))

    def forward(self, x: Tensor, memory: Tensor, src_mask: Tensor | None, tgt_mask: Tensor) -> Tensor:
        x = self.norms[0](x + self.self_attn(x, x, x, tgt_mask))
        x = self.norms[1](x + self.src_attn(x, memory, memory, src_mask))
        return self.norms[2](x + self.feed_forward(x))


@contract(masks={"src_key_padding_mask": "ignore", "tgt_key_padding_mask": "ignore"})
class Translator(nn.Module):
    def __init__(self, d_model: int, h: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.encoder = EncoderLayer(d_model, h, dropout)
        self.decoder = DecoderLayer(d_model, h, dropout)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        src_mask = None
        if src_key_padding_mask is not None:
            src_mask = ~src_key_padding_mask.unsqueeze(-2)
        tgt_mask = torch.ones(1, tgt.size(1), tgt.size(1), dtype=torch.bool, device=tgt.device).tril()
        if tgt_key_padding_mask is not None:
            tgt_mask = tgt_mask & ~tgt_key_padding_mask.unsqueeze(-2)
        memory = self.encoder(src, src_mask)
        return self.decoder(tgt, memory, src_mask, tgt_mask)


def build() -> nn.Module:
    torch.manual_seed(0)
    return Translator(d_model=20, h=4)


def inputs(batch: int = 3, source: int = 11, target: int = 7) -> tuple[tuple[Any, ...], dict[str, Any]]:
    generator = torch.Generator().manual_seed(1)
    src = torch.randn(batch, source, 20, generator=generator)
    return (src, torch.randn(batch, target, 20, generator=generator)), {}


def padded(keep: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, _ = inputs(keep.shape[0], source=keep.shape[1])
    return args, {"src_key_padding_mask": ~keep}


def padded_target(keep: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, _ = inputs(keep.shape[0], target=keep.shape[1])
    return args, {"tgt_key_padding_mask": ~keep}


PADS = "src"
