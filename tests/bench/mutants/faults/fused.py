"""Mistakes in `styles/fused.py`."""

from tests.bench.mutants.fault import Fault

SCALE = "scores = scores / math.sqrt(self.head_dim)"
CAUSAL = 'scores = scores.masked_fill(self.triangle[:time, :time] == 0, float("-inf"))'
PADDING = "scores = scores.masked_fill(key_padding_mask[:, None, None, :], torch.finfo(scores.dtype).min)"
SOFTMAX = "weights = F.softmax(scores, dim=-1)"
QUERY = "q = q.view(batch, time, self.heads, self.head_dim).transpose(1, 2)"
KEY = "k = k.view(batch, time, self.heads, self.head_dim).transpose(1, 2)"
VALUE = "v = v.view(batch, time, self.heads, self.head_dim).transpose(1, 2)"
MERGE = "y = y.transpose(1, 2).contiguous().view(batch, time, width)"
BUFFER = 'self.register_buffer("triangle", torch.tril(torch.ones(max_time, max_time)), persistent=False)'
PRODUCT = "y = self.attn_dropout(weights) @ v"
SCORES = "scores = q @ k.transpose(-2, -1)\n"

FAULTS = (
    # scores and softmax
    Fault("ATN101", f"        {SCALE}\n", "", blame=("scores = q", SOFTMAX)),
    Fault("ATN102", SCALE, "scores = scores / math.sqrt(width)"),
    Fault("ATN102", SCALE, "scores = scores / self.head_dim"),
    Fault("ATN102", SCALE, "scores = scores / math.sqrt(time)"),
    Fault("ATN102", SCALE, "scores = scores / math.sqrt(self.heads)"),
    Fault("ATN102", SCALE, "scores = scores * 0.125"),
    Fault("ATN103", SCALE, "scores = scores / math.sqrt(self.head_dim) / math.sqrt(self.head_dim)"),
    Fault("ATN103", SCALE, "scores = scores / self.head_dim**-0.5"),
    Fault("ATN103", SCORES, "scores = (q / math.sqrt(self.head_dim)) @ k.transpose(-2, -1)\n", blame=(SCALE,)),
    Fault("ATN104", SOFTMAX, "weights = F.softmax(scores, dim=-2)"),
    Fault("ATN104", SOFTMAX, "weights = F.softmax(scores, dim=1)"),
    Fault("ATN104", SOFTMAX, "weights = F.softmax(scores, dim=0)"),
    Fault("ATN105", f"        {SCALE}\n", "", also=((SOFTMAX, f"{SOFTMAX} / math.sqrt(self.head_dim)"),)),
    Fault("ATN106", SOFTMAX, "weights = F.softmax(F.softmax(scores, dim=-1), dim=-1)"),
    Fault("ATN106", SOFTMAX, "weights = scores.masked_fill(scores == float('-inf'), 0.0)", blame=(PRODUCT,)),
    Fault("ATN107", PRODUCT, "y = self.attn_dropout(weights).transpose(-2, -1) @ v"),
    Fault("ATN108", SOFTMAX, "weights = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)", situation="half"),
    # masks
    Fault(
        "ATN201",
        f"        {CAUSAL}\n",
        "",
        also=((SOFTMAX, f"{SOFTMAX}\n        weights = weights * self.triangle[:time, :time]"),),
    ),
    Fault(
        "ATN201",
        f"        {CAUSAL}\n",
        "",
        also=((SOFTMAX, f"{SOFTMAX}\n        weights = weights.masked_fill(self.triangle[:time, :time] == 0, 0.0)"),),
    ),
    Fault(
        "ATN201",
        PADDING,
        "pass",
        also=(
            (
                SOFTMAX,
                f"{SOFTMAX}\n        if key_padding_mask is not None:\n"
                "            weights = weights.masked_fill(key_padding_mask[:, None, None, :], 0.0)",
            ),
        ),
    ),
    Fault("ATN202", CAUSAL, CAUSAL.removeprefix("scores = ")),
    Fault("ATN202", PADDING, PADDING.removeprefix("scores = ")),
    Fault("ATN202", CAUSAL, CAUSAL.replace("scores =", "masked ="), blame=(SOFTMAX,)),
    Fault("ATN203", CAUSAL, CAUSAL.replace('float("-inf")', "1e-9")),
    Fault("ATN203", CAUSAL, CAUSAL.replace('float("-inf")', "-10.0")),
    Fault("ATN203", CAUSAL, "scores = scores * self.triangle[:time, :time]"),
    Fault("ATN203", CAUSAL, CAUSAL.replace('float("-inf")', "-50.0")),
    Fault("ATN203", PADDING, PADDING.replace("torch.finfo(scores.dtype).min", "-1e-12")),
    Fault("ATN203", PADDING, PADDING.replace("torch.finfo(scores.dtype).min", "0.0")),
    Fault("ATN203", PADDING, PADDING.replace("torch.finfo(scores.dtype).min", "torch.finfo(scores.dtype).tiny")),
    Fault("ATN204", PADDING, PADDING.replace("torch.finfo(scores.dtype).min", "-1e9")),
    Fault("ATN205", CAUSAL, CAUSAL.replace("== 0", "== 1")),
    Fault("ATN205", PADDING, PADDING.replace("key_padding_mask[", "~key_padding_mask[")),
    Fault(
        "ATN206",
        PADDING,
        "scores = scores + key_padding_mask[:, None, None, :].to(scores.dtype)",
    ),
    Fault("ATN207", PADDING, PADDING.replace("[:, None, None, :]", ""), sizes={"batch": 7}),
    Fault("ATN207", PADDING, PADDING.replace("[:, None, None, :]", "[:, None, :]"), sizes={"batch": 4}),
    Fault("ATN207", PADDING, PADDING.replace("[:, None, None, :]", "[None, :, None, :]"), sizes={"batch": 4}),
    Fault(
        "ATN209",
        "        if key_padding_mask is not None:\n",
        "        if key_padding_mask is not None and need_weights:\n",
        blame=(PADDING, SOFTMAX),
    ),
    Fault(
        "ATN209",
        CAUSAL,
        f"if key_padding_mask is None:\n            {CAUSAL}",
        blame=(SOFTMAX,),
        situation="padded",
    ),
    Fault(
        "ATN209",
        CAUSAL,
        f"if not need_weights:\n            {CAUSAL}",
        blame=(SOFTMAX,),
        situation="weights",
    ),
    Fault(
        "ATN210",
        PADDING,
        "keep = key_padding_mask.logical_not_()[:, None, None, :]\n"
        "            scores = scores.masked_fill(~keep, torch.finfo(scores.dtype).min)",
    ),
    Fault(
        "ATN210",
        CAUSAL,
        "triangle = self.triangle[:time, :time]\n"
        "        if key_padding_mask is not None:\n"
        "            triangle[:, key_padding_mask.all(dim=0)] = 0\n"
        '        scores = scores.masked_fill(triangle == 0, float("-inf"))',
    ),
    Fault("ATN211", PADDING, PADDING.replace("torch.finfo(scores.dtype).min", 'float("-inf")'), blame=(SOFTMAX,)),
    Fault("ATN212", PADDING, "pass", blame=(SOFTMAX,)),
    Fault("ATN212", PADDING, "key_padding_mask = key_padding_mask[:, None, None, :]", blame=(SOFTMAX,)),
    Fault("ATN213", PADDING, PADDING.replace("[:, None, None, :]", "[:, None, :, None]")),
    Fault("ATN214", f"        {CAUSAL}\n", "", blame=(SOFTMAX, PRODUCT)),
    Fault(
        "ATN214",
        BUFFER,
        BUFFER.replace("torch.tril(torch.ones(max_time, max_time))", "torch.ones(max_time, max_time)"),
        blame=(CAUSAL, SOFTMAX),
    ),
    Fault(
        "ATN215",
        BUFFER,
        BUFFER.replace("torch.ones(max_time, max_time)", "torch.ones(max_time, max_time), diagonal=1"),
        blame=(CAUSAL, SOFTMAX),
    ),
    Fault(
        "ATN215",
        BUFFER,
        BUFFER.replace("torch.ones(max_time, max_time)", "torch.ones(max_time, max_time), diagonal=-1"),
        blame=(CAUSAL, SOFTMAX),
    ),
    Fault("ATN215", BUFFER, BUFFER.replace("torch.tril", "torch.triu"), blame=(CAUSAL, SOFTMAX), or_code="ATN205"),
    # heads
    Fault(
        "ATN301",
        'raise ValueError(f"d_model {d_model} does not divide by {heads} heads")',
        "pass",
        also=(("CausalSelfAttention(d_model=20, heads=4)", "CausalSelfAttention(d_model=20, heads=3)"),),
        blame=(QUERY,),
    ),
    Fault("ATN302", MERGE, "y = y.transpose(1, 2).view(batch, time, width)"),
    Fault("ATN303", QUERY, "q = q.reshape(batch, self.heads, time, self.head_dim)"),
    Fault("ATN303", KEY, "k = k.reshape(batch, self.heads, time, self.head_dim)"),
    Fault("ATN303", VALUE, "v = v.reshape(batch, self.heads, time, self.head_dim)"),
    Fault(
        "ATN303",
        QUERY,
        "q = q.reshape(batch, self.heads, time, self.head_dim)",
        also=(
            (KEY, "k = k.reshape(batch, self.heads, time, self.head_dim)"),
            (VALUE, "v = v.reshape(batch, self.heads, time, self.head_dim)"),
        ),
    ),
    Fault("ATN304", MERGE, "y = y.contiguous().view(batch, time, width)"),
    Fault("ATN304", MERGE, "y = y.transpose(0, 1).reshape(batch, time, width)", or_code="ATN310"),
    Fault(
        "ATN306",
        QUERY,
        "q = q.view(batch, time, self.heads, self.head_dim)",
        also=(
            (KEY, "k = k.view(batch, time, self.heads, self.head_dim)"),
            (VALUE, "v = v.view(batch, time, self.heads, self.head_dim)"),
            (f"        {CAUSAL}\n", ""),
            (PADDING, "pass"),
            (MERGE, "y = y.contiguous().view(batch, time, width)"),
        ),
        blame=("scores = q",),
    ),
    # wiring
    Fault(
        "ATN403",
        "q, k, v = self.c_attn(x).split(width, dim=2)",
        "q, k, v = self.c_attn(x).split(width, dim=2)\n        v = k",
    ),
    Fault("ATN403", SCORES, "scores = q @ q.transpose(-2, -1)\n"),
    Fault("ATN403", PRODUCT, "y = self.attn_dropout(weights) @ k"),
    Fault(
        "ATN404",
        "        y = self.resid_dropout(self.c_proj(y))\n",
        "        y = y - y.mean(dim=0, keepdim=True)\n        y = self.resid_dropout(self.c_proj(y))\n",
    ),
    Fault(
        "ATN405",
        "        y = self.resid_dropout(self.c_proj(y))\n",
        "        y = y - y.mean(dim=1, keepdim=True)\n        y = self.resid_dropout(self.c_proj(y))\n",
    ),
    Fault(
        "ATN406",
        "y = self.resid_dropout(self.c_proj(y))",
        "y = self.resid_dropout(self.c_proj(x))",
        blame=(PRODUCT, MERGE),
    ),
    Fault("ATN406", "y = self.resid_dropout(self.c_proj(y))", "y = self.resid_dropout(y)"),
    # dropout and weights
    Fault("ATN501", PRODUCT, "y = F.dropout(weights, 0.1) @ v"),
    Fault("ATN501", PRODUCT, "y = F.dropout(weights, self.attn_dropout.p, training=True) @ v"),
    Fault(
        "ATN502",
        SOFTMAX,
        "weights = F.softmax(self.attn_dropout(scores), dim=-1)",
        also=((PRODUCT, "y = weights @ v"),),
    ),
    Fault(
        "ATN602",
        SOFTMAX,
        "weights = self.attn_dropout(F.softmax(scores, dim=-1))",
        also=((PRODUCT, "y = weights @ v"),),
    ),
    Fault("ATN601", "return (y, weights) if", "return (y, weights.mean(dim=1)) if"),
    Fault("ATN603", "return (y, weights) if", "return (y, scores) if", blame=("scores = ",)),
    Fault("ATN603", "return (y, weights) if", "return (y, F.softmax(q @ k.transpose(-2, -1), dim=-1)) if"),
    Fault("ATN603", "return (y, weights) if", "return (y, weights.transpose(-2, -1)) if"),
)
