"""Mistakes in `styles/sdpa.py`."""

from tests.bench.mutants.fault import Fault

SPLIT = "qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)"
UNBIND = "q, k, v = qkv.unbind(0)"
CAUSAL = "x = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout_p, is_causal=True)"
MASKED = "x = F.scaled_dot_product_attention(q, k, v, attn_mask=keep, dropout_p=dropout_p)"
TRIANGLE = "keep = torch.ones(N, N, dtype=torch.bool, device=x.device).tril()"
PADDING = "keep = keep & mask[:, None, None, :]"
MERGE = "x = x.transpose(1, 2).reshape(B, N, C)"
DROPOUT = "dropout_p = self.attn_drop if self.training else 0.0"
BOTH = (CAUSAL, MASKED)

FAULTS = (
    Fault("ATN101", UNBIND, "q, k, v = qkv.unbind(0)\n        q = q * self.head_dim**0.5", blame=BOTH),
    Fault(
        "ATN101",
        CAUSAL,
        CAUSAL.replace("is_causal=True", "is_causal=True, scale=1.0"),
        also=((MASKED, MASKED.replace("attn_mask=keep", "attn_mask=keep, scale=1.0")),),
    ),
    Fault(
        "ATN102",
        CAUSAL,
        CAUSAL.replace("is_causal=True", "is_causal=True, scale=C**-0.5"),
        also=((MASKED, MASKED.replace("attn_mask=keep", "attn_mask=keep, scale=C**-0.5")),),
    ),
    Fault(
        "ATN102",
        CAUSAL,
        CAUSAL.replace("is_causal=True", "is_causal=True, scale=1 / self.head_dim"),
        also=((MASKED, MASKED.replace("attn_mask=keep", "attn_mask=keep, scale=1 / self.head_dim")),),
    ),
    Fault("ATN103", UNBIND, "q, k, v = qkv.unbind(0)\n        q = q * self.head_dim**-0.5", blame=BOTH),
    Fault("ATN103", UNBIND, "q, k, v = qkv.unbind(0)\n        k = k / self.head_dim**0.5", blame=BOTH),
    Fault(
        "ATN103",
        CAUSAL,
        CAUSAL.replace("is_causal=True", "is_causal=True, scale=self.head_dim**0.5"),
        also=((MASKED, MASKED.replace("attn_mask=keep", "attn_mask=keep, scale=self.head_dim**0.5")),),
        or_code="ATN102",
    ),
    Fault("ATN203", MASKED, MASKED.replace("attn_mask=keep", "attn_mask=(~keep).to(q.dtype) * -5.0")),
    Fault(
        "ATN204", MASKED, MASKED.replace("attn_mask=keep", "attn_mask=q.new_zeros(keep.shape).masked_fill(~keep, -1e9)")
    ),
    Fault("ATN205", MASKED, MASKED.replace("attn_mask=keep", "attn_mask=~keep")),
    Fault("ATN205", PADDING, "keep = keep & ~mask[:, None, None, :]", blame=(MASKED,)),
    Fault("ATN206", MASKED, MASKED.replace("attn_mask=keep", "attn_mask=keep.to(q.dtype)")),
    Fault("ATN206", MASKED, MASKED.replace("attn_mask=keep", "attn_mask=keep.float()"), padded=True),
    Fault("ATN207", PADDING, "keep = keep & mask", sizes={"batch": 7}, blame=(MASKED,)),
    Fault("ATN207", PADDING, "keep = keep & mask[:, None, :]", sizes={"batch": 4}, blame=(MASKED,)),
    Fault("ATN207", PADDING, "keep = keep & mask.unsqueeze(1)", sizes={"batch": 4}, padded=True, blame=(MASKED,)),
    Fault(
        "ATN209",
        f"            {TRIANGLE}\n            {PADDING}\n",
        "            keep = mask[:, None, None, :]\n",
        blame=(MASKED,),
    ),
    Fault("ATN209", "if mask is None:", "if mask is None or not self.training:", blame=(CAUSAL,)),
    Fault("ATN212", PADDING, "keep = keep[None, None]", blame=(MASKED,)),
    Fault("ATN212", MASKED, CAUSAL.replace("x = ", "x = 1.0 * ")),
    Fault("ATN213", PADDING, "keep = keep & mask[:, None, :, None]", blame=(MASKED,)),
    Fault("ATN209", CAUSAL, CAUSAL.replace(", is_causal=True", ""), or_code="ATN214"),
    Fault("ATN209", CAUSAL, CAUSAL.replace("is_causal=True", "is_causal=self.training"), or_code="ATN214"),
    Fault(
        "ATN209",
        CAUSAL,
        CAUSAL.replace("is_causal=True", "attn_mask=torch.ones(N, N, dtype=torch.bool)"),
        or_code="ATN214",
    ),
    Fault("ATN209", TRIANGLE, TRIANGLE.replace(".tril()", ""), blame=(MASKED,)),
    Fault("ATN215", CAUSAL, CAUSAL.replace("is_causal=True", "attn_mask=torch.ones(N, N).tril(1).bool()")),
    Fault(
        "ATN215", CAUSAL, CAUSAL.replace("is_causal=True", "attn_mask=torch.ones(N, N).triu().bool()"), or_code="ATN205"
    ),
    Fault("ATN205", CAUSAL, CAUSAL.replace("is_causal=True", "attn_mask=torch.ones(N, N).triu(1).bool()")),
    Fault("ATN206", CAUSAL, CAUSAL.replace("is_causal=True", "attn_mask=torch.ones(N, N).tril()")),
    Fault("ATN215", TRIANGLE, TRIANGLE.replace(".tril()", ".tril(diagonal=1)"), blame=(MASKED,), or_code="ATN209"),
    Fault("ATN221", PADDING, "keep = keep | mask[:, None, None, :]", blame=(MASKED,)),
    Fault("ATN302", MERGE, "x = x.contiguous().transpose(1, 2).view(B, N, C)"),
    Fault("ATN303", SPLIT, "qkv = self.qkv(x).reshape(B, 3, self.num_heads, N, self.head_dim).transpose(0, 1)"),
    Fault(
        "ATN303",
        SPLIT,
        "qkv = self.qkv(x).reshape(B, N, 3, C).permute(2, 0, 1, 3).reshape(3, B, self.num_heads, N, self.head_dim)",
    ),
    Fault("ATN304", MERGE, "x = x.reshape(B, N, C)"),
    Fault("ATN304", MERGE, "x = x.transpose(2, 3).reshape(B, N, C)", or_code="ATN310"),
    Fault(
        "ATN305",
        SPLIT,
        "qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, self.head_dim).permute(2, 1, 3, 0, 4)",
        also=(
            (MERGE, "x = x.permute(2, 0, 1, 3).reshape(B, N, C)"),
            (TRIANGLE, TRIANGLE.replace("N, N", "B, B")),
            (PADDING, "keep = keep & mask.T[:, None, None, :]"),
        ),
        blame=BOTH,
    ),
    Fault(
        "ATN306",
        SPLIT,
        "qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, self.head_dim).permute(2, 0, 1, 3, 4)",
        also=(
            (MERGE, "x = x.reshape(B, N, C)"),
            (TRIANGLE, "keep = torch.ones(self.num_heads, self.num_heads, dtype=torch.bool, device=x.device)"),
            (PADDING, "keep = keep & mask[:, :, None, None]"),
        ),
        blame=BOTH,
    ),
    Fault("ATN403", CAUSAL, CAUSAL.replace("(q, k, v,", "(q, q, v,")),
    Fault("ATN403", CAUSAL, CAUSAL.replace("(q, k, v,", "(q, k, k,")),
    Fault("ATN406", "return self.proj(x)", "return x"),
    Fault("ATN501", DROPOUT, "dropout_p = self.attn_drop", blame=BOTH),
    Fault("ATN501", CAUSAL, CAUSAL.replace("dropout_p=dropout_p", "dropout_p=self.attn_drop")),
    Fault("ATN802", MASKED, MASKED.replace("attn_mask=keep", "attn_mask=keep, is_causal=True"), situation="math"),
)
