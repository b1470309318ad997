import torch
from torch import nn


class SentenceEncoder(nn.Module):
    """Token ids (batch, time) → one vector per sentence."""

    def __init__(self, vocabulary: int, d_model: int, nhead: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, d_model)
        self.positions = nn.Parameter(torch.randn(64, d_model) * 0.02)
        self.norm = nn.LayerNorm(d_model)
        self.attention = nn.MultiheadAttention(d_model, nhead)  # <- ATN305

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids) + self.positions[: ids.size(1)]
        attended, _ = self.attention(x, x, x, need_weights=False)  # <- ATN305
        return self.norm(x + attended).mean(dim=1)


def build() -> nn.Module:
    return SentenceEncoder(vocabulary=29, d_model=26, nhead=2)
