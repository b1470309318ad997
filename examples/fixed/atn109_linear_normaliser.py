import torch
import torch.nn.functional as F
from torch import nn


class NearAndFar(nn.Module):
    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        if d_model % heads != 0:
            raise ValueError(f"d_model={d_model} does not divide by heads={heads}")
        self.heads, self.head_dim = heads, d_model // heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def window(self, time: int) -> torch.Tensor:
        steps = torch.arange(time)
        return (steps[:, None] - steps).abs() <= 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, d_model = x.shape
        qkv = self.qkv(x).view(batch, time, 3, self.heads, self.head_dim)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)

        near = F.scaled_dot_product_attention(query, key, value, attn_mask=self.window(time).to(x.device))
        query, key = F.elu(query) + 1, F.elu(key) + 1
        far = query @ (key.transpose(-2, -1) @ value)
        far = far / (query * key.sum(dim=-2, keepdim=True)).sum(dim=-1, keepdim=True)
        context = near + far
        return self.out(context.transpose(1, 2).reshape(batch, time, d_model))


def build() -> nn.Module:
    return NearAndFar(d_model=21, heads=3)
