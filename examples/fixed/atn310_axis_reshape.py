from typing import Any

import torch
from torch import nn


class TemporalAttention(nn.Module):
    """Each pixel of a video (batch, frames, pixels, channels) attends along the frames."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.attention = nn.MultiheadAttention(channels, heads, batch_first=True)

    def forward(self, video: torch.Tensor) -> torch.Tensor:
        batch, frames, pixels, channels = video.shape
        x = video.transpose(1, 2).reshape(batch * pixels, frames, channels)
        x = self.norm(x)
        x = self.attention(x, x, x, need_weights=False)[0]
        x = x.view(batch, pixels, frames, channels).transpose(1, 2)
        return video + x


def build() -> nn.Module:
    return TemporalAttention(channels=22, heads=2)


def inputs() -> tuple[Any, Any]:
    return (torch.randn(2, 5, 7, 22),), {}
