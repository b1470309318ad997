import torch
from torch import nn
from torch.nn import functional as F

import attn_guard


@attn_guard.contract(causal=True)
class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd: int, n_head: int) -> None:
        super().__init__()
        assert n_embd % n_head == 0, f"n_embd={n_embd} does not divide by n_head={n_head}"
        self.n_embd = n_embd
        self.n_head = n_head
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, _ = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q = q.view(batch, time, self.n_head, self.n_embd // self.n_head).transpose(1, 2)
        k = k.view(batch, time, self.n_head, self.n_embd // self.n_head).transpose(1, 2)
        v = v.view(batch, time, self.n_head, self.n_embd // self.n_head).transpose(1, 2)

        y = F.scaled_dot_product_attention(q, k, v)  # <- ATN214
        y = y.transpose(1, 2).contiguous().view(batch, time, self.n_embd)
        return self.c_proj(y)


def build() -> nn.Module:
    return CausalSelfAttention(n_embd=22, n_head=2)
