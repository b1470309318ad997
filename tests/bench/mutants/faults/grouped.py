"""Mistakes in `styles/grouped.py`."""

from tests.bench.mutants.fault import Fault

REPEAT = "x = x[:, :, None].expand(batch, kv_heads, groups, time, head_dim)"
RESHAPE = "return x.reshape(batch, kv_heads * groups, time, head_dim)"
BOTH_REPEATED = "k, v = repeat_kv(k, self.groups), repeat_kv(v, self.groups)"
SCORES = "scores = torch.matmul(q, k.transpose(2, 3)) * self.scaling"
FILL = "scores = scores.masked_fill(~keep, torch.finfo(scores.dtype).min)"
FUSED = "context = F.scaled_dot_product_attention(q, k, v, attn_mask=keep, enable_gqa=True)"
KEEP = "keep = (keys[None, :] <= positions[:, None])[None, None]"
PADDING = "keep = keep & attention_mask.bool()[:, None, None, :]"
POSITIONS = "positions = torch.arange(past, past + time, device=hidden_states.device)"
ROTATE_Q = "q = apply_rotary(q, cos.to(q.dtype), sin.to(q.dtype))"
ROTATE_K = "k = apply_rotary(k, cos.to(k.dtype), sin.to(k.dtype))"
CAT_K = "k = torch.cat((past_key_value[0], k), dim=2)"
CAT_V = "v = torch.cat((past_key_value[1], v), dim=2)"
TABLE = "angles = torch.cat((angles, angles), dim=-1)"
HALVES = """    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)
"""
Q = "q = self.q_proj(hidden_states).view(batch, time, self.num_heads, self.head_dim).transpose(1, 2)"
K = "k = self.k_proj(hidden_states).view(batch, time, self.num_kv_heads, self.head_dim).transpose(1, 2)"
V = "v = self.v_proj(hidden_states).view(batch, time, self.num_kv_heads, self.head_dim).transpose(1, 2)"
OUTPUT = "output = self.o_proj(context.transpose(1, 2).reshape(batch, time, -1))"
PAST = "past = past_key_value[0].shape[2] if past_key_value is not None else 0"
PRESENT = "present = (k, v)"
SOFTMAX = "weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)"

FAULTS = (
    # the fused path
    Fault(
        "ATN102",
        FUSED,
        FUSED.replace("enable_gqa=True", "enable_gqa=True, scale=hidden_states.shape[-1] ** -0.5"),
        also=((SCORES, "scores = torch.matmul(q, k.transpose(2, 3)) * hidden_states.shape[-1] ** -0.5"),),
    ),
    Fault("ATN103", ROTATE_Q, f"{ROTATE_Q} * self.scaling", blame=(FUSED,)),
    Fault("ATN203", FUSED, FUSED.replace("attn_mask=keep", "attn_mask=(~keep).to(q.dtype) * -10.0")),
    Fault("ATN205", PADDING, "keep = keep & ~attention_mask.bool()[:, None, None, :]", blame=(FUSED,)),
    Fault("ATN206", FUSED, FUSED.replace("attn_mask=keep", "attn_mask=keep.to(q.dtype)")),
    Fault(
        "ATN209",
        "if attention_mask is not None:",
        "if attention_mask is not None and output_attentions:",
        blame=(FUSED,),
    ),
    Fault("ATN209", PADDING, "keep = attention_mask.bool()[:, None, None, :]", blame=(FUSED,)),
    Fault("ATN209", KEEP, KEEP + " | (past_key_value is not None)", situation="decode", blame=(FUSED,)),
    Fault("ATN212", PADDING, "pass", blame=(FUSED,)),
    Fault("ATN213", PADDING, "keep = keep & attention_mask.bool()[:, None, -time:, None]", blame=(FUSED,)),
    Fault("ATN214", FUSED, FUSED.replace("attn_mask=keep, ", ""), or_code="ATN209"),
    Fault("ATN214", KEEP, KEEP.replace("<=", ">=") + " | True", blame=(FUSED,)),
    Fault("ATN215", KEEP, KEEP.replace("<=", "<"), blame=(FUSED,)),
    Fault("ATN215", KEEP, KEEP.replace("positions[:, None]", "positions[:, None] + 1"), blame=(FUSED,)),
    Fault("ATN216", FUSED, FUSED.replace("attn_mask=keep", "is_causal=True"), situation="decode"),
    Fault(
        "ATN216",
        KEEP,
        "keep = torch.ones(time, k.shape[2], dtype=torch.bool, device=q.device).tril()[None, None]",
        situation="decode",
        blame=(FUSED,),
    ),
    Fault("ATN221", PADDING, "keep = keep | attention_mask.bool()[:, None, None, :]", blame=(FUSED,)),
    Fault("ATN303", Q, "q = self.q_proj(hidden_states).view(batch, self.num_heads, time, self.head_dim)"),
    Fault(
        "ATN303",
        K,
        "k = self.k_proj(hidden_states).view(batch, self.num_kv_heads, time, self.head_dim)",
        also=((V, "v = self.v_proj(hidden_states).view(batch, self.num_kv_heads, time, self.head_dim)"),),
    ),
    Fault("ATN304", OUTPUT, "output = self.o_proj(context.reshape(batch, time, -1))"),
    Fault("ATN308", REPEAT, "x = x[:, None].expand(batch, groups, kv_heads, time, head_dim)", blame=(BOTH_REPEATED,)),
    Fault(
        "ATN308",
        BOTH_REPEATED,
        "k, v = k.repeat(1, self.groups, 1, 1), v.repeat(1, self.groups, 1, 1)",
        blame=(SCORES, "context = torch.matmul"),
    ),
    Fault(
        "ATN308",
        FUSED,
        "k, v = k.repeat(1, self.groups, 1, 1), v.repeat(1, self.groups, 1, 1)\n            "
        + FUSED.replace(", enable_gqa=True", ""),
    ),
    Fault(
        "ATN308",
        FUSED,
        "k = torch.cat([k] * self.groups, dim=1)\n            v = torch.cat([v] * self.groups, dim=1)"
        "\n            " + FUSED.replace(", enable_gqa=True", ""),
    ),
    Fault(
        "ATN308",
        BOTH_REPEATED,
        "k, v = repeat_kv(k, self.groups), v.repeat(1, self.groups, 1, 1)",
        blame=("context = torch.matmul",),
    ),
    Fault("ATN403", V, V.replace("v_proj", "k_proj")),
    Fault("ATN403", FUSED, FUSED.replace("(q, k, v,", "(q, k, k,")),
    Fault("ATN309", OUTPUT, "context = context.clone()\n        context[:, -1] = 0\n        " + OUTPUT),
    # the written path, for weights
    Fault("ATN503", SCORES, "scores = torch.matmul(q, k.transpose(2, 3))"),
    Fault("ATN503", "self.scaling = self.head_dim**-0.5", "self.scaling = hidden_size**-0.5", blame=(SCORES,)),
    Fault("ATN209", f"            {FILL}\n", "", blame=(SOFTMAX,)),
    Fault("ATN603", "return output, weights", "return output, scores", blame=("scores = ",)),
    Fault("ATN601", "return output, weights", "return output, weights.mean(dim=1)"),
    # cache and positions
    Fault(
        "ATN701",
        CAT_K,
        "k = torch.cat((k, past_key_value[0]), dim=2)",
        also=((CAT_V, "v = torch.cat((v, past_key_value[1]), dim=2)"),),
        blame=(FUSED,),
    ),
    Fault("ATN701", PRESENT, "present = (k[:, :, -time:], v[:, :, -time:])"),
    Fault("ATN701", PRESENT, "present = (k[:, :, 1:], v[:, :, 1:])"),
    Fault(
        "ATN701",
        PRESENT,
        "present = (k, v)\n        if past_key_value is not None:\n            present = past_key_value",
    ),
    Fault(
        "ATN701",
        f"        {ROTATE_K}\n",
        "",
        also=(
            (
                PRESENT,
                f"{PRESENT}\n        cos, sin = rotary_table("
                f"torch.arange(k.shape[2], device=k.device) + past, self.head_dim)\n        {ROTATE_K}",
            ),
        ),
    ),
    Fault(
        "ATN702",
        POSITIONS,
        "positions = torch.arange(time, device=hidden_states.device)",
        also=((KEEP, KEEP.replace("positions[:", "(positions + past)[:")),),
        blame=(ROTATE_Q, ROTATE_K),
    ),
    Fault(
        "ATN702",
        PAST,
        "past = past_key_value[0].shape[1] if past_key_value is not None else 0",
        also=((KEEP, KEEP.replace("positions[:", "keys[-time:][:")),),
        blame=(POSITIONS, ROTATE_Q, ROTATE_K),
    ),
    Fault(
        "ATN702",
        ROTATE_Q,
        "q = apply_rotary(q.transpose(0, 2), *rotary_table(torch.arange(batch), self.head_dim)).transpose(0, 2)",
        also=(
            (
                ROTATE_K,
                "k = apply_rotary(k.transpose(0, 2), *rotary_table(torch.arange(batch), "
                "self.head_dim)).transpose(0, 2)",
            ),
        ),
    ),
    Fault(
        "ATN702",
        ROTATE_Q,
        "q = apply_rotary(q.mT.mT, *(t[:, None] for t in rotary_table(torch.arange(self.num_heads), self.head_dim)))",
        also=(
            (
                ROTATE_K,
                "k = apply_rotary(k, *(t[:, None] for t in rotary_table("
                "torch.arange(self.num_kv_heads), self.head_dim)))",
            ),
        ),
    ),
    Fault(
        "ATN706", TABLE, "angles = angles.repeat_interleave(2, dim=-1)", blame=("return x * cos", ROTATE_Q, ROTATE_K)
    ),
    Fault(
        "ATN706",
        HALVES,
        "    first, second = x[..., ::2], x[..., 1::2]\n    return torch.stack((-second, first), dim=-1).flatten(-2)\n",
        blame=("return x * cos", ROTATE_Q, ROTATE_K),
    ),
    Fault(
        "ATN706",
        HALVES,
        "    first, second = x.chunk(2, dim=-1)\n    return torch.cat((second, first), dim=-1)\n",
        blame=("return x * cos", ROTATE_Q, ROTATE_K),
    ),
    Fault(
        "ATN706",
        ROTATE_K,
        f"{ROTATE_K}\n        v = apply_rotary(v, cos.to(v.dtype), sin.to(v.dtype))",
        blame=("return x * cos",),
    ),
    Fault("ATN706", f"        {ROTATE_K}\n", "", blame=("return x * cos", ROTATE_Q)),
    Fault("ATN706", ROTATE_K, "k = apply_rotary(k, cos.to(k.dtype), -sin.to(k.dtype))", blame=("return x * cos",)),
)
