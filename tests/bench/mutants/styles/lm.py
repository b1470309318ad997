"""A tiny language model: ids in, logits out; learned positions, several causal layers, dropout."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attn_guard import contract


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.proj = nn.Linear(width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.shape
        d = C // self.heads
        q = self.query(x).view(B, T, self.heads, d).transpose(1, 2)
        k = self.key(x).view(B, T, self.heads, d).transpose(1, 2)
        v = self.value(x).view(B, T, self.heads, d).transpose(1, 2)
        att = (q @ k.mT) / math.sqrt(d)
        future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        att = att.masked_fill(future, -torch.inf)
        att = self.drop(F.softmax(att, dim=-1))
        y = (att @ v).transpose(1, 2).reshape(B, T, C)
        return self.proj(y)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attn = Attention(width, heads, dropout)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attn(self.norm1(x)))
        x = x + self.drop(self.mlp(self.norm2(x)))
        return x


@contract(causal=True, positions=True)
class LanguageModel(nn.Module):
    def __init__(self, vocabulary: int, width: int, heads: int, layers: int, context: int, dropout: float) -> None:
        super().__init__()
        assert width % heads == 0
        self.embed = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.drop = nn.Dropout(dropout)
        self.layers = nn.ModuleList(Layer(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        B, T = ids.shape
        positions = torch.arange(T, device=ids.device)
        x = self.embed(ids) + self.position(positions)
        x = self.drop(x)
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        return self.head(x)


def build() -> nn.Module:
    torch.manual_seed(0)
    return LanguageModel(vocabulary=29, width=20, heads=4, layers=3, context=32, dropout=0.1)


def inputs(batch: int = 3, time: int = 7) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (torch.randint(1, 29, (batch, time), generator=torch.Generator().manual_seed(1)),), {}
