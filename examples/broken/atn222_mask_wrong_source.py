import torch
from torch import nn


class PairReader(nn.Module):
    """Source and target ids in, target features out; 0 is padding in both."""

    def __init__(self, vocabulary: int, d_model: int, heads: int) -> None:
        super().__init__()
        self.source = nn.Embedding(vocabulary, d_model)
        self.target = nn.Embedding(vocabulary, d_model)
        self.self_attention = nn.MultiheadAttention(d_model, heads, batch_first=True)
        self.cross_attention = nn.MultiheadAttention(d_model, heads, batch_first=True)

    def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        memory, x = self.source(src), self.target(tgt)
        tgt_padding = tgt == 0
        x = x + self.self_attention(x, x, x, key_padding_mask=tgt_padding, need_weights=False)[0]
        y, _ = self.cross_attention(x, memory, memory, key_padding_mask=tgt_padding, need_weights=False)  # <- ATN222
        return x + y


def build() -> nn.Module:
    return PairReader(vocabulary=29, d_model=14, heads=2)


def inputs() -> tuple[tuple[torch.Tensor, torch.Tensor], dict[str, object]]:
    src = torch.tensor([[4, 7, 9, 5, 0], [3, 8, 6, 0, 0], [5, 5, 2, 7, 8]])
    tgt = torch.tensor([[6, 2, 0, 0, 0], [9, 4, 3, 8, 0], [1, 7, 7, 2, 3]])
    return (src, tgt), {}
