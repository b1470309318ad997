import torch
from torch import nn


class DecoderLayer(nn.Module):
    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.self_attn = nn.MultiheadAttention(d_model, heads, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(d_model, heads, batch_first=True)

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        x = x + self.self_attn(y, y, y, need_weights=False)[0]
        y = self.norm2(x)
        return x + self.cross_attn(y, memory, memory, need_weights=False)[0]


def build() -> nn.Module:
    return DecoderLayer(d_model=26, heads=2)
