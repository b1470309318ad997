import math

import torch
from torch import nn

import attn_guard


@attn_guard.contract(causal=True)
class DecoderAttention(nn.Module):
    def __init__(self, d_model: int, n_head: int) -> None:
        super().__init__()
        if d_model % n_head:
            raise ValueError(f"d_model={d_model} does not divide by n_head={n_head}")
        self.n_head = n_head
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def split(self, tensor: torch.Tensor) -> torch.Tensor:
        batch, length, d_model = tensor.size()
        return tensor.view(batch, length, self.n_head, d_model // self.n_head).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, d_model = x.size()
        q, k, v = self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x))

        score = q @ k.transpose(2, 3) / math.sqrt(q.size(-1))
        mask = torch.tril(torch.ones(length, length, device=x.device))
        score = score.masked_fill(mask == 0, float("-inf"))
        out = torch.softmax(score, dim=-1) @ v
        return self.w_o(out.transpose(1, 2).reshape(batch, length, d_model))


def build() -> nn.Module:
    return DecoderAttention(d_model=33, n_head=3)
