import torch
from torch import nn
from torch.nn import functional as F

import attn_guard

Cache = tuple[torch.Tensor, torch.Tensor]


@attn_guard.contract(causal=True, cache="past")
class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd: int, n_head: int) -> None:
        super().__init__()
        assert n_embd % n_head == 0, f"n_embd={n_embd} does not divide by n_head={n_head}"
        self.n_head = n_head
        self.head_dim = n_embd // n_head
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)

    def forward(self, x: torch.Tensor, past: Cache | None = None) -> tuple[torch.Tensor, Cache]:
        q, k, v = (
            part.unflatten(-1, (self.n_head, self.head_dim)).transpose(1, 2) for part in self.c_attn(x).chunk(3, dim=-1)
        )
        if past is not None:
            k = torch.cat((k, past[0]), dim=2)  # <- ATN701
            v = torch.cat((v, past[1]), dim=2)
        mask = torch.ones(q.size(2), k.size(2), dtype=torch.bool).tril(diagonal=k.size(2) - q.size(2))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.c_proj(y.transpose(1, 2).flatten(2)), (k, v)


def build() -> nn.Module:
    return CausalSelfAttention(n_embd=22, n_head=2)
