"""Mistakes in `styles/einsum.py`."""

from tests.bench.mutants.fault import Fault

Q = 'q = einsum("btm,mhd->bthd", x, self.w_q)'
K = 'k = einsum("btm,mhd->bthd", x, self.w_k)'
V = 'v = einsum("btm,mhd->bthd", x, self.w_v)'
SCALE = "q = q * self.scale"
SIM = 'sim = einsum("bihd,bjhd->bhij", q, k)'
LOWEST = "lowest = torch.finfo(sim.dtype).min"
ALLOWED = "allowed = torch.ones(time, time, dtype=torch.bool, device=x.device).tril()"
PADDING = "allowed = allowed & mask[:, None, None, :]"
WHERE = "sim = torch.where(allowed, sim, lowest)"
SOFTMAX = "attn = sim.softmax(dim=-1, dtype=torch.float32).to(v.dtype)"
CONTEXT = 'out = einsum("bhij,bjhd->bihd", self.dropout(attn), v)'
OUT = 'out = einsum("bthd,hdm->btm", out, self.w_o)'
INIT = "self.scale = dim_head**-0.5"

FAULTS = (
    Fault("ATN101", f"        {SCALE}\n", "", blame=(SIM, SOFTMAX)),
    Fault("ATN102", INIT, "self.scale = dim**-0.5", blame=(SCALE,)),
    Fault("ATN102", INIT, "self.scale = (heads * dim_head) ** -0.5", blame=(SCALE,)),
    Fault("ATN102", SCALE, "q = q * q.shape[1] ** -0.5"),
    Fault("ATN102", SCALE, "q = q / q.shape[-1]"),
    Fault("ATN102", SCALE, "q = q * q.shape[-2] ** -0.5"),
    Fault("ATN103", SCALE, "q = q / self.scale"),
    Fault("ATN103", SCALE, "q, k = q * self.scale, k * self.scale"),
    Fault("ATN103", SIM, SIM + " * self.scale", blame=(SCALE,)),
    Fault("ATN104", SOFTMAX, SOFTMAX.replace("dim=-1", "dim=2")),
    Fault(
        "ATN104",
        SIM,
        'sim = einsum("bihd,bjhd->bijh", q, k)',
        also=(
            (ALLOWED, ALLOWED + "[..., None]"),
            (PADDING, "allowed = allowed & mask[:, None, :, None]"),
            (CONTEXT, 'out = einsum("bijh,bjhd->bihd", self.dropout(attn), v)'),
            (SOFTMAX, SOFTMAX.replace("dim=-1", "dim=1")),
        ),
        situation="forward",
    ),
    Fault("ATN104", SOFTMAX, SOFTMAX.replace("dim=-1", "dim=1")),
    Fault("ATN105", f"        {SCALE}\n", "", also=((SOFTMAX, SOFTMAX + " * self.scale"),)),
    Fault("ATN106", SOFTMAX, SOFTMAX + ".softmax(dim=-1)"),
    Fault("ATN106", SOFTMAX, "attn = torch.where(allowed, sim, 0.0)", blame=(CONTEXT,)),
    Fault("ATN107", CONTEXT, 'out = einsum("bhji,bjhd->bihd", self.dropout(attn), v)'),
    Fault("ATN107", CONTEXT, CONTEXT.replace("bhij,bjhd->bihd", "bhij,bihd->bjhd")),
    Fault("ATN201", f"        {WHERE}\n", "", also=((SOFTMAX, SOFTMAX + " * allowed"),)),
    Fault(
        "ATN201",
        f"        {WHERE}\n",
        "",
        also=((SOFTMAX, SOFTMAX + "\n        attn = torch.where(allowed, attn, 0.0)"),),
    ),
    Fault("ATN202", WHERE, "torch.where(allowed, sim, lowest)", blame=(SOFTMAX,)),
    Fault("ATN202", PADDING, "keys = allowed & mask[:, None, None, :]", blame=(WHERE, SOFTMAX)),
    Fault("ATN203", LOWEST, "lowest = torch.finfo(sim.dtype).tiny", blame=(WHERE,)),
    Fault("ATN203", LOWEST, "lowest = torch.finfo(sim.dtype).eps", blame=(WHERE,)),
    Fault("ATN203", LOWEST, "lowest = -20.0", blame=(WHERE,)),
    Fault("ATN203", WHERE, "sim = sim * allowed"),
    Fault("ATN203", LOWEST, "lowest = torch.finfo(sim.dtype).max", blame=(WHERE,)),
    Fault("ATN204", LOWEST, "lowest = -1e10", also=((WHERE, "sim = sim.masked_fill(~allowed, lowest)"),)),
    Fault("ATN205", WHERE, "sim = torch.where(allowed, lowest, sim)"),
    Fault("ATN205", PADDING, "allowed = allowed & ~mask[:, None, None, :]", blame=(WHERE,)),
    Fault("ATN206", WHERE, "sim = sim + allowed.to(sim.dtype)"),
    Fault("ATN206", PADDING, "sim = sim + mask[:, None, None, :].to(sim.dtype)"),
    Fault("ATN207", PADDING, "allowed = allowed & mask", sizes={"batch": 7}, blame=(WHERE,)),
    Fault("ATN207", PADDING, "allowed = allowed & mask[:, None, :]", sizes={"batch": 4}, blame=(WHERE,)),
    Fault("ATN209", "if mask is not None:", "if mask is not None and return_weights:", blame=(WHERE, SOFTMAX)),
    Fault(
        "ATN209",
        "if mask is not None:\n            allowed = allowed & mask",
        "if mask is not None:\n            allowed = mask",
        blame=(WHERE, SOFTMAX),
        situation="padded",
    ),
    Fault("ATN211", LOWEST, "lowest = float('-inf')", blame=(WHERE, SOFTMAX)),
    Fault("ATN212", PADDING, "pass", blame=(WHERE, SOFTMAX)),
    Fault("ATN213", PADDING, "allowed = allowed & mask[:, None, :, None]", blame=(WHERE,)),
    Fault("ATN214", ALLOWED, ALLOWED.replace(".tril()", ""), blame=(WHERE, SOFTMAX, CONTEXT)),
    Fault("ATN215", ALLOWED, ALLOWED.replace(".tril()", ".tril(1)"), blame=(WHERE, SOFTMAX)),
    Fault("ATN215", ALLOWED, ALLOWED.replace(".tril()", ".tril(-1)"), blame=(WHERE, SOFTMAX)),
    Fault("ATN215", ALLOWED, ALLOWED.replace(".tril()", ".triu()"), blame=(WHERE, SOFTMAX), or_code="ATN205"),
    Fault("ATN221", PADDING, "allowed = allowed | mask[:, None, None, :]", blame=(WHERE,)),
    Fault("ATN303", Q, "q = (x @ self.w_q.flatten(1)).view(x.shape[0], -1, time, self.w_q.shape[-1]).transpose(1, 2)"),
    Fault("ATN304", OUT, "out = out.transpose(1, 2).reshape(*x.shape[:2], -1) @ self.w_o.flatten(0, 1)"),
    Fault(
        "ATN306",
        SIM,
        'sim = einsum("bthd,btgd->bthg", q, k)',
        also=(
            (ALLOWED, "allowed = torch.ones(1, time, 1, 1, dtype=torch.bool, device=x.device)"),
            (PADDING, "allowed = allowed & mask[:, :, None, None]"),
            (CONTEXT, 'out = einsum("bthg,btgd->bthd", self.dropout(attn), v)'),
        ),
        blame=(SOFTMAX,),
    ),
    Fault("ATN307", SIM, 'sim = einsum("bihd,bjgd->bhij", q, k)'),
    Fault("ATN307", CONTEXT, 'out = einsum("bhij,bjgd->bihd", self.dropout(attn), v)'),
    Fault("ATN307", CONTEXT, 'out = einsum("bhij,bkhd->bihd", self.dropout(attn), v)'),
    Fault("ATN307", SIM, 'sim = einsum("bihd,bjhe->bhij", q, k)'),
    Fault("ATN307", SIM, 'sim = einsum("bihd,ajhd->bhij", q, k)'),
    Fault("ATN307", CONTEXT, 'out = einsum("bhij,ajhd->bihd", self.dropout(attn), v)'),
    Fault("ATN309", OUT, 'out = einsum("bthd,hdm->btm", out[:, :, :-1], self.w_o[:-1])'),
    Fault("ATN403", V, 'v = einsum("btm,mhd->bthd", x, self.w_k)'),
    Fault("ATN403", K, 'k = einsum("btm,mhd->bthd", x, self.w_q)'),
    Fault("ATN406", OUT, 'out = einsum("bthd,hdm->btm", v, self.w_o)'),
    Fault("ATN501", CONTEXT, CONTEXT.replace("self.dropout(attn)", "nn.functional.dropout(attn, self.dropout.p)")),
    Fault(
        "ATN502",
        SOFTMAX,
        SOFTMAX.replace("sim.", "self.dropout(sim)."),
        also=((CONTEXT, CONTEXT.replace("self.dropout(attn)", "attn")),),
    ),
    Fault(
        "ATN602",
        SOFTMAX,
        SOFTMAX + "\n        attn = self.dropout(attn)",
        also=((CONTEXT, CONTEXT.replace("self.dropout(attn)", "attn")),),
    ),
    Fault("ATN601", "return (out, attn) if", "return (out, attn.mean(dim=1)) if"),
    Fault("ATN603", "return (out, attn) if", "return (out, sim) if", blame=("sim = ",)),
)
