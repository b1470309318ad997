"""Attention from scratch, its causal mask, and the run that shows whether all is wired up.

Two sequences of five tokens, d_model 64, eight heads: (2, 5, 64) goes in and comes out, and the weights are
(2, 8, 5, 5), one five-by-five map per sequence and head.
"""

import torch

import attn_guard
from attn_guard.reference import MultiHeadAttention, causal_mask


def main() -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(d_model=64, heads=8)
    x = torch.randn(2, 5, 64)

    mask = causal_mask(5)
    print("the causal mask, a staircase:")
    print(mask.int())

    output, weights = attention(x, mask)
    print("output ", tuple(output.shape))
    print("weights", tuple(weights.shape))
    print("where the last token of the first sequence looks, head 0:")
    print(weights[0, 0, -1].detach())

    print("\nthe chain of shapes:")
    print(attn_guard.xray(attention, (x, mask)))

    print("\nwhat attn-guard says of it:")
    print(attn_guard.check(attention, (x, mask), causal=True))


if __name__ == "__main__":
    main()
