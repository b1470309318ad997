"""Builds the small attention modules that the tests read."""

from __future__ import annotations

import textwrap

HEAD = """\
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from einops import rearrange
from torch import einsum


class Attention(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        assert d_model % heads == 0
        self.heads, self.d_model, self.head_dim = heads, d_model, d_model // heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.softmax = nn.Softmax(dim=-1)
        self.drop = nn.Dropout(0.1)
        self.norm = nn.LayerNorm(d_model // heads)
        self.temperature = nn.Parameter(torch.ones(1))
        self.register_buffer("keep", torch.tril(torch.ones(64, 64)))
        self.scale = self.head_dim ** -0.5

    def dropped(self, x):
        return self.drop(x)

    def split(self, x):
        b, t, _ = x.shape
        return x.view(b, t, self.heads, self.head_dim).transpose(1, 2)

    def forward(self, x, mask=None):
        b, t, _ = x.shape
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
"""

LINES_BEFORE = HEAD.count("\n")


def forward(body: str) -> str:
    """A module whose forward goes on with ``body`` after the split into q, k, v of shape (b, heads, t, head_dim)."""
    return HEAD + textwrap.indent(textwrap.dedent(body).strip("\n") + "\n", " " * 8)


def attention(scores: str = "q @ k.transpose(-2, -1) * self.scale", then: str = "") -> str:
    """A whole module: scores, further statements, softmax, context, merge."""
    return forward(
        f"scores = {scores}\n{textwrap.dedent(then)}\n"
        "weights = scores.softmax(dim=-1)\n"
        "return self.o((weights @ v).transpose(1, 2).reshape(b, t, -1))"
    )
