"""Attention among the pixels of an image, as in diffusion models: 1x1 convolutions, values on the left."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class AttnBlock(nn.Module):
    def __init__(self, channels: int, heads: int, groups: int = 3) -> None:
        super().__init__()
        assert channels % heads == 0
        self.heads = heads
        self.norm = nn.GroupNorm(groups, channels)
        self.q = nn.Conv2d(channels, channels, kernel_size=1)
        self.k = nn.Conv2d(channels, channels, kernel_size=1)
        self.v = nn.Conv2d(channels, channels, kernel_size=1)
        self.proj_out = nn.Conv2d(channels, channels, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        h_ = self.norm(x)
        q = self.q(h_).reshape(b * self.heads, c // self.heads, h * w)
        k = self.k(h_).reshape(b * self.heads, c // self.heads, h * w)
        v = self.v(h_).reshape(b * self.heads, c // self.heads, h * w)

        w_ = torch.bmm(q.permute(0, 2, 1), k)
        w_ = w_ * (c // self.heads) ** -0.5
        w_ = torch.softmax(w_, dim=2)
        h_ = torch.bmm(v, w_.permute(0, 2, 1))

        h_ = h_.reshape(b, c, h, w)
        return x + self.proj_out(h_)


def build() -> nn.Module:
    torch.manual_seed(0)
    return AttnBlock(channels=21, heads=3)


def inputs(batch: int = 2, height: int = 4, width: int = 5) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (torch.randn(batch, 21, height, width, generator=torch.Generator().manual_seed(1)),), {}
