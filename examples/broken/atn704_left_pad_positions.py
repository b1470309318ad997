import torch
from torch import nn
from torch.nn import functional as F

import attn_guard


@attn_guard.contract(causal=True, padding_side="left", masks={"attention_mask": "attend"})
class Decoder(nn.Module):
    def __init__(self, words: int, d_model: int, heads: int, longest: int = 32) -> None:
        super().__init__()
        if d_model % heads != 0:
            raise ValueError(f"d_model={d_model} does not divide by heads={heads}")
        self.heads = heads
        self.words, self.places = nn.Embedding(words, d_model), nn.Embedding(longest, d_model)
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, words)

    def forward(self, ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        time = ids.size(1)
        positions = torch.arange(time, device=ids.device)  # <- ATN704
        x = self.words(ids) + self.places(positions)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        earlier = torch.ones(time, time, dtype=torch.bool, device=ids.device).tril()
        itself = torch.eye(time, dtype=torch.bool, device=ids.device)
        keep = (earlier & attention_mask.bool()[:, None, None, :]) | itself
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        return self.out(context.transpose(1, 2).flatten(2))


def build() -> nn.Module:
    return Decoder(words=29, d_model=22, heads=2)
