"""Grouped-query attention with rotary positions and a cache, as in Llama: written out for weights, fused otherwise."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attn_guard import contract

Cache = tuple[Tensor, Tensor]


def rotary_table(positions: Tensor, head_dim: int, base: float = 10000.0) -> Cache:
    frequencies = base ** (-torch.arange(0, head_dim, 2, device=positions.device) / head_dim)
    angles = positions[:, None] * frequencies
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate_half(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return x * cos + rotate_half(x) * sin


def repeat_kv(x: Tensor, groups: int) -> Tensor:
    batch, kv_heads, time, head_dim = x.shape
    x = x[:, :, None].expand(batch, kv_heads, groups, time, head_dim)
    return x.reshape(batch, kv_heads * groups, time, head_dim)


@contract(causal=True, masks={"attention_mask": "attend"}, cache="past_key_value")
class GroupedAttention(nn.Module):
    def __init__(self, hidden_size: int, num_heads: int, num_kv_heads: int) -> None:
        super().__init__()
        assert hidden_size % num_heads == 0 and num_heads % num_kv_heads == 0
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.head_dim = hidden_size // num_heads
        self.groups = num_heads // num_kv_heads
        self.scaling = self.head_dim**-0.5
        self.q_proj = nn.Linear(hidden_size, num_heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(hidden_size, num_kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden_size, num_kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(num_heads * self.head_dim, hidden_size, bias=False)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        past_key_value: Cache | None = None,
        use_cache: bool = False,
        output_attentions: bool = False,
    ) -> Any:
        batch, time, _ = hidden_states.shape
        q = self.q_proj(hidden_states).view(batch, time, self.num_heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(hidden_states).view(batch, time, self.num_kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(hidden_states).view(batch, time, self.num_kv_heads, self.head_dim).transpose(1, 2)

        past = past_key_value[0].shape[2] if past_key_value is not None else 0
        positions = torch.arange(past, past + time, device=hidden_states.device)
        cos, sin = rotary_table(positions, self.head_dim)
        q = apply_rotary(q, cos.to(q.dtype), sin.to(q.dtype))
        k = apply_rotary(k, cos.to(k.dtype), sin.to(k.dtype))
        if past_key_value is not None:
            k = torch.cat((past_key_value[0], k), dim=2)
            v = torch.cat((past_key_value[1], v), dim=2)
        present = (k, v)

        keys = torch.arange(k.shape[2], device=q.device)
        keep = (keys[None, :] <= positions[:, None])[None, None]
        if attention_mask is not None:
            keep = keep & attention_mask.bool()[:, None, None, :]
        weights = None
        if output_attentions:
            k, v = repeat_kv(k, self.groups), repeat_kv(v, self.groups)
            scores = torch.matmul(q, k.transpose(2, 3)) * self.scaling
            scores = scores.masked_fill(~keep, torch.finfo(scores.dtype).min)
            weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
            context = torch.matmul(weights, v)
        else:
            context = F.scaled_dot_product_attention(q, k, v, attn_mask=keep, enable_gqa=True)

        output = self.o_proj(context.transpose(1, 2).reshape(batch, time, -1))
        if output_attentions:
            return output, weights
        return (output, present) if use_cache else output


WEIGHTS = {"output_attentions": True}


def build() -> nn.Module:
    torch.manual_seed(0)
    return GroupedAttention(hidden_size=48, num_heads=6, num_kv_heads=2)


def inputs(batch: int = 3, time: int = 7) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (torch.randn(batch, time, 48, generator=torch.Generator().manual_seed(1)),), {}


def padded(keep: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, _ = inputs(*keep.shape)
    return args, {"attention_mask": keep.long()}


def decode(module: nn.Module, steps: tuple[int, ...], keep: Tensor | None = None) -> Tensor:
    """The outputs of a batch, handed over in pieces of these lengths; ``keep`` (batch, time) is True at real tokens."""
    (x,), _ = inputs(time=sum(steps))
    cache, outputs, seen = None, [], 0
    for piece in x.split(steps, dim=1):
        seen += piece.shape[1]
        mask = keep[:, :seen].long() if keep is not None else None
        output, cache = module(piece, attention_mask=mask, past_key_value=cache, use_cache=True)
        outputs.append(output)
    return torch.cat(outputs, dim=1)
