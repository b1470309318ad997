"""Shifted-window attention over images (batch, channels, height, width) with a relative position bias, as in Swin."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def partition(x: Tensor, window: int) -> Tensor:
    """(B, H, W, C) → (windows·B, window², C)."""
    B, H, W, C = x.shape
    x = x.view(B, H // window, window, W // window, window, C)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, window * window, C)


def reverse(windows: Tensor, window: int, H: int, W: int) -> Tensor:
    """(windows·B, window², C) → (B, H, W, C)."""
    x = windows.view(-1, H // window, W // window, window, window, windows.shape[-1])
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, H, W, windows.shape[-1])


class WindowAttention(nn.Module):
    def __init__(self, dim: int, num_heads: int, window: int, shift: int = 0, attn_drop: float = 0.1) -> None:
        super().__init__()
        assert dim % num_heads == 0
        self.num_heads, self.window, self.shift = num_heads, window, shift
        self.scale = (dim // num_heads) ** -0.5
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)
        self.attn_drop = nn.Dropout(attn_drop)
        self.bias_table = nn.Parameter(torch.randn((2 * window - 1) ** 2, num_heads))
        grid = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        offsets = (grid[:, :, None] - grid[:, None, :]).permute(1, 2, 0)
        offsets = offsets + window - 1
        self.bias_index: Tensor
        self.register_buffer("bias_index", offsets[..., 0] * (2 * window - 1) + offsets[..., 1], persistent=False)

    def shift_mask(self, H: int, W: int) -> Tensor:
        """(windows, window², window²): blocks pixels that the shift brought together from afar."""
        regions = torch.zeros(1, H, W, 1)
        slices = (slice(0, -self.window), slice(-self.window, -self.shift), slice(-self.shift, None))
        count = 0
        for rows in slices:
            for columns in slices:
                regions[:, rows, columns, :] = count
                count += 1
        ids = partition(regions, self.window).squeeze(-1)
        return torch.zeros(1).where(ids[:, None, :] == ids[:, :, None], float("-inf"))

    def forward(self, x: Tensor) -> Tensor:
        B, C, H, W = x.shape
        x = x.permute(0, 2, 3, 1)
        if self.shift > 0:
            x = torch.roll(x, shifts=(-self.shift, -self.shift), dims=(1, 2))
        x = partition(x, self.window)

        N = x.shape[1]
        qkv = self.qkv(x).reshape(-1, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        attn = (q * self.scale) @ k.transpose(-2, -1)
        bias = self.bias_table[self.bias_index.view(-1)].view(N, N, -1)
        attn = attn + bias.permute(2, 0, 1)
        if self.shift > 0:
            mask = self.shift_mask(H, W).to(x)
            attn = attn.view(B, -1, self.num_heads, N, N) + mask[None, :, None]
            attn = attn.view(-1, self.num_heads, N, N)
        attn = self.attn_drop(attn.softmax(dim=-1))
        x = (attn @ v).transpose(1, 2).reshape(-1, N, C)
        x = self.proj(x)

        x = reverse(x, self.window, H, W)
        if self.shift > 0:
            x = torch.roll(x, shifts=(self.shift, self.shift), dims=(1, 2))
        return x.permute(0, 3, 1, 2)


def build() -> nn.Module:
    torch.manual_seed(0)
    return WindowAttention(dim=20, num_heads=4, window=3, shift=1)


def inputs(batch: int = 2, height: int = 6, width: int = 9) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (torch.randn(batch, 20, height, width, generator=torch.Generator().manual_seed(1)),), {}
