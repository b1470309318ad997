"""A small GPT-2 for generation: left-padded prompts, positions from the mask, a cache of keys and values by layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from attn_guard import contract

Cache = tuple[tuple[Tensor, Tensor], ...]


class Attention(nn.Module):
    def __init__(self, n_embd: int, n_head: int) -> None:
        super().__init__()
        self.n_head = n_head
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)

    def forward(
        self, x: Tensor, bias: Tensor, past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        batch, time, width = x.shape
        query, key, value = self.c_attn(x).view(batch, time, 3, self.n_head, -1).permute(2, 0, 3, 1, 4)
        if past is not None:
            key = torch.cat((past[0], key), dim=-2)
            value = torch.cat((past[1], value), dim=-2)
        scores = query @ key.transpose(-1, -2) / key.shape[-1] ** 0.5
        scores = scores + bias
        context = scores.softmax(dim=-1) @ value
        context = context.transpose(1, 2).reshape(batch, time, width)
        return self.c_proj(context), (key, value)


class Block(nn.Module):
    def __init__(self, n_embd: int, n_head: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd)
        self.attn = Attention(n_embd, n_head)
        self.ln_2 = nn.LayerNorm(n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x: Tensor, bias: Tensor, past: tuple[Tensor, Tensor] | None) -> Any:
        attended, present = self.attn(self.ln_1(x), bias, past)
        x = x + attended
        return x + self.mlp(self.ln_2(x)), present


@contract(causal=True, positions=True, masks={"attention_mask": "attend"}, padding_side="left", cache="past_key_values")
class Generator(nn.Module):
    def __init__(self, vocabulary: int, n_embd: int, n_head: int, n_layer: int, n_positions: int = 32) -> None:
        super().__init__()
        assert n_embd % n_head == 0
        self.wte = nn.Embedding(vocabulary, n_embd)
        self.wpe = nn.Embedding(n_positions, n_embd)
        self.h = nn.ModuleList(Block(n_embd, n_head) for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(n_embd)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, past_key_values: Cache | None = None
    ) -> tuple[Tensor, Cache]:
        batch, time = input_ids.shape
        past = past_key_values[0][0].shape[-2] if past_key_values is not None else 0
        if attention_mask is None:
            attention_mask = torch.ones(batch, past + time, dtype=torch.long, device=input_ids.device)
        position_ids = (attention_mask.long().cumsum(-1) - 1).clamp(min=0)[:, -time:]

        keys = torch.arange(past + time, device=input_ids.device)
        keep = keys[None, :] <= keys[-time:, None]
        keep = keep[None, None] & attention_mask.bool()[:, None, None, :]
        x = self.wte(input_ids) + self.wpe(position_ids)
        bias = torch.zeros(keep.shape, dtype=x.dtype, device=x.device).masked_fill(~keep, torch.finfo(x.dtype).min)

        presents = []
        for index, block in enumerate(self.h):
            x, present = block(x, bias, past_key_values[index] if past_key_values is not None else None)
            presents.append(present)
        logits = self.ln_f(x) @ self.wte.weight.T
        return logits, tuple(presents)


def build() -> nn.Module:
    torch.manual_seed(0)
    return Generator(vocabulary=29, n_embd=20, n_head=4, n_layer=2)


def inputs(batch: int = 3, time: int = 7) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (torch.randint(1, 29, (batch, time), generator=torch.Generator().manual_seed(1)),), {}


def padded(keep: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, _ = inputs(*keep.shape)
    return args, {"attention_mask": keep.long()}


def decode(module: nn.Module, steps: tuple[int, ...], keep: Tensor | None = None) -> Tensor:
    """The outputs of a batch, handed over in pieces of these lengths; ``keep`` (batch, time) is True at real tokens."""
    (ids,), _ = inputs(time=sum(steps))
    cache, outputs, seen = None, [], 0
    for piece in ids.split(steps, dim=1):
        seen += piece.shape[1]
        mask = keep[:, :seen].long() if keep is not None else None
        output, cache = module(piece, attention_mask=mask, past_key_values=cache)
        outputs.append(output)
    return torch.cat(outputs, dim=1)
