"""Mistakes in `styles/cross.py`."""

from tests.bench.mutants.fault import Fault

Q = "q = self.to_q(self.norm(x))"
KV = "k, v = self.to_kv(context).chunk(2, dim=-1)"
HEADS = "q, k, v = self.into_heads(q), self.into_heads(k), self.into_heads(v)"
SPLIT = "return t.view(*t.shape[:2], self.heads, -1).transpose(1, 2)"
SCALE = "q = q * self.scale"
INIT = "self.scale = dim_head**-0.5"
SIM = 'sim = torch.einsum("bhid,bhjd->bhij", q, k)'
MASK = "sim = sim.masked_fill(~context_mask[:, None, None, :], -torch.finfo(sim.dtype).max)"
SOFTMAX = "attn = sim.softmax(dim=-1)"
CONTEXT = 'out = torch.einsum("bhij,bhjd->bhid", self.dropout(attn), v)'
MERGE = "out = out.transpose(1, 2).flatten(2)"
OUT = "out = residual + self.to_out(out)"

FAULTS = (
    Fault("ATN101", f"        {SCALE}\n", "", blame=(SIM, SOFTMAX)),
    Fault("ATN102", INIT, "self.scale = inner_dim**-0.5", blame=(SCALE,)),
    Fault("ATN102", INIT, "self.scale = dim**-0.5", blame=(SCALE,)),
    Fault("ATN102", INIT, "self.scale = 1 / dim_head", blame=(SCALE,)),
    Fault("ATN103", SCALE, "q, k = q * self.scale, k * self.scale"),
    Fault("ATN103", SCALE, "q = q / self.scale"),
    Fault("ATN103", SIM, SIM + " * self.scale", blame=(SCALE,)),
    Fault("ATN104", SOFTMAX, "attn = sim.softmax(dim=-2)"),
    Fault("ATN104", SOFTMAX, "attn = sim.softmax(dim=1)"),
    Fault("ATN105", f"        {SCALE}\n", "", also=((SOFTMAX, SOFTMAX + " * self.scale"),)),
    Fault("ATN106", SOFTMAX, SOFTMAX + ".softmax(dim=-1)"),
    Fault("ATN106", SOFTMAX, "attn = sim", blame=(CONTEXT,)),
    Fault(
        "ATN201",
        MASK,
        "pass",
        also=(
            (
                SOFTMAX,
                SOFTMAX + "\n        if context_mask is not None:\n"
                "            attn = attn.masked_fill(~context_mask[:, None, None, :], 0.0)",
            ),
        ),
    ),
    Fault("ATN202", MASK, MASK.removeprefix("sim = ")),
    Fault("ATN203", MASK, MASK.replace("-torch.finfo(sim.dtype).max", "torch.finfo(sim.dtype).tiny")),
    Fault("ATN203", MASK, MASK.replace("-torch.finfo(sim.dtype).max", "torch.finfo(sim.dtype).max")),
    Fault("ATN203", MASK, MASK.replace("-torch.finfo(sim.dtype).max", "-1.0")),
    Fault("ATN204", MASK, MASK.replace("-torch.finfo(sim.dtype).max", "-1e9")),
    Fault("ATN205", MASK, MASK.replace("~context_mask", "context_mask")),
    Fault("ATN206", MASK, "sim = sim + context_mask[:, None, None, :]"),
    Fault("ATN207", MASK, MASK.replace("[:, None, None, :]", "[:, None, :]"), sizes={"batch": 4}),
    Fault("ATN207", MASK, MASK.replace("[:, None, None, :]", ""), sizes={"batch": 7}),
    Fault(
        "ATN209", "if context_mask is not None:", "if context_mask is not None and return_weights:", blame=(SOFTMAX,)
    ),
    Fault("ATN210", MASK, "context_mask.logical_not_()\n            " + MASK.replace("~context_mask", "context_mask")),
    Fault("ATN211", MASK, MASK.replace("-torch.finfo(sim.dtype).max", 'float("-inf")'), blame=(SOFTMAX,)),
    Fault("ATN212", MASK, "pass", blame=(SOFTMAX,)),
    Fault(
        "ATN217",
        SOFTMAX,
        "future = torch.ones(sim.shape[-2:], dtype=torch.bool).triu(1)\n"
        "        attn = sim.masked_fill(future, -torch.finfo(sim.dtype).max).softmax(dim=-1)",
    ),
    Fault(
        "ATN222",
        MASK,
        "sim = sim.masked_fill(~context_mask[:, None, : x.shape[1], None], -torch.finfo(sim.dtype).max)",
        or_code="ATN213",
    ),
    Fault("ATN303", SPLIT, "return t.reshape(t.shape[0], self.heads, t.shape[1], -1)", blame=(HEADS,)),
    Fault(
        "ATN303",
        SPLIT,
        "return t.unflatten(1, (self.heads, -1)).flatten(2).reshape(t.shape[0], self.heads, t.shape[1], -1)",
        sizes={"time": 8, "memory": 12},
        blame=(HEADS,),
    ),
    Fault("ATN304", MERGE, "out = out.reshape(*x.shape[:2], -1)"),
    Fault("ATN304", MERGE, "out = out.transpose(2, 3).reshape(*x.shape[:2], -1)", or_code="ATN310"),
    Fault("ATN307", CONTEXT, 'out = torch.einsum("bhij,bhkd->bhid", self.dropout(attn), v)'),
    Fault("ATN307", SIM, 'sim = torch.einsum("bhid,bgjd->bhij", q, k)'),
    Fault(
        "ATN401",
        Q,
        "q = self.to_q(self.norm(context))",
        also=((KV, "k, v = self.to_kv(x).chunk(2, dim=-1)"),),
        sizes={"memory": 7},
        blame=(SIM, CONTEXT),
    ),
    Fault(
        "ATN401",
        "        residual = x\n",
        "        residual = x\n        x, context = context, x\n",
        sizes={"memory": 7},
        blame=(Q, KV, SIM),
    ),
    Fault("ATN402", KV, "k, v = self.to_kv(x).chunk(2, dim=-1)", sizes={"memory": 7}, blame=(SIM,)),
    Fault("ATN402", "        residual = x\n", "        residual = context = x\n", sizes={"memory": 7}, blame=(KV, SIM)),
    Fault("ATN403", HEADS, "q, k, v = self.into_heads(q), self.into_heads(k), self.into_heads(k)"),
    Fault("ATN403", HEADS, "q, k, v = self.into_heads(q), self.into_heads(v), self.into_heads(v)"),
    Fault("ATN406", OUT, "out = residual + self.to_out(q.transpose(1, 2).flatten(2))", blame=(CONTEXT, MERGE)),
    Fault("ATN406", OUT, "out = residual"),
    Fault("ATN501", CONTEXT, CONTEXT.replace("self.dropout(attn)", "nn.functional.dropout(attn, self.dropout.p)")),
    Fault(
        "ATN502",
        SOFTMAX,
        "attn = self.dropout(sim).softmax(dim=-1)",
        also=((CONTEXT, CONTEXT.replace("self.dropout(attn)", "attn")),),
    ),
    Fault("ATN601", "return (out, attn) if", "return (out, attn.mean(dim=1)) if"),
    Fault(
        "ATN602",
        SOFTMAX,
        "attn = self.dropout(sim.softmax(dim=-1))",
        also=((CONTEXT, CONTEXT.replace("self.dropout(attn)", "attn")),),
    ),
    Fault("ATN603", "return (out, attn) if", "return (out, attn.softmax(dim=-1)) if"),
)
