import torch
import torch.nn.functional as F
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        if d_model % heads:
            raise ValueError(f"d_model={d_model} does not divide by heads={heads}")
        self.heads = heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.proj = nn.Linear(d_model, d_model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, d_model = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        with torch.backends.cuda.sdp_kernel(enable_flash=False, enable_mem_efficient=False):  # <- ATN803
            context = F.scaled_dot_product_attention(q, k, v)
        return self.proj(context.transpose(1, 2).reshape(batch, time, d_model))


def build() -> nn.Module:
    return SelfAttention(d_model=26, heads=2)
