"""Mistakes in `styles/alibi.py`."""

from tests.bench.mutants.fault import Fault

SLOPES = "return 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)"
DISTANCE = "distance = j - i"
PRODUCT = "return slopes(heads)[:, None, None] * distance"
SCALE = "logits = logits * self.dim_head**-0.5"
BIAS = "logits = logits + alibi(T, self.heads).to(x)"
FUTURE = "hide = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)"
PADDING = "hide = hide | key_padding_mask[:, None, None, :]"
FILL = "logits = logits.masked_fill(hide, torch.finfo(logits.dtype).min)"
SOFTMAX = "weights = torch.softmax(logits, dim=-1)"
LOGITS = 'logits = torch.einsum("bhqd,bhkd->bhqk", q, k)'
CONTEXT = 'y = torch.einsum("bhqk,bhkd->bqhd", weights, v)'
Q = "q = q.reshape(B, T, self.heads, self.dim_head).transpose(1, 2)"

FAULTS = (
    Fault("ATN101", f"        {SCALE}\n", "", blame=(LOGITS, SOFTMAX)),
    Fault("ATN102", SCALE, "logits = logits * D**-0.5"),
    Fault("ATN102", SCALE, "logits = logits / 3.0"),
    Fault("ATN103", SCALE, "logits = logits * self.dim_head**0.5", or_code="ATN102"),
    Fault("ATN104", SOFTMAX, "weights = torch.softmax(logits, dim=-2)"),
    Fault("ATN106", SOFTMAX, SOFTMAX + "\n        weights = torch.softmax(weights, dim=-1)"),
    Fault("ATN107", CONTEXT, CONTEXT.replace("bhqk,bhkd->bqhd", "bhkq,bhkd->bqhd")),
    Fault("ATN201", f"        {FILL}\n", "", also=((SOFTMAX, SOFTMAX + ".masked_fill(hide, 0.0)"),)),
    Fault("ATN202", FILL, FILL.removeprefix("logits = ")),
    Fault("ATN203", FILL, FILL.replace("torch.finfo(logits.dtype).min", "-4.0")),
    Fault("ATN205", FILL, FILL.replace("(hide,", "(~hide,")),
    Fault("ATN207", PADDING, "hide = hide | key_padding_mask[:, None]", sizes={"batch": 4}, blame=(FILL,)),
    Fault("ATN212", PADDING, "pass", blame=(FILL, SOFTMAX)),
    Fault("ATN213", PADDING, "hide = hide | key_padding_mask[:, None, :, None]", blame=(FILL,)),
    Fault("ATN215", FUTURE, FUTURE.replace("triu(1)", "triu(2)"), blame=(FILL,)),
    Fault("ATN215", FUTURE, FUTURE.replace("triu(1)", "tril(-1)"), blame=(FILL,), or_code="ATN205"),
    Fault("ATN221", PADDING, "hide = hide & key_padding_mask[:, None, None, :]", blame=(FILL,)),
    Fault("ATN223", f"        {SCALE}\n        {BIAS}\n", f"        {BIAS}\n        {SCALE}\n", blame=(BIAS,)),
    Fault("ATN705", DISTANCE, "distance = i - j", blame=(PRODUCT, BIAS)),
    Fault("ATN705", DISTANCE, "distance = (j - i).clamp(min=-2) * (j % 2)", blame=(PRODUCT, BIAS)),
    Fault("ATN705", DISTANCE, "distance = j * i - i", blame=(PRODUCT, BIAS)),
    Fault("ATN705", SLOPES, "return -(2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads))", blame=(PRODUCT, BIAS)),
    Fault("ATN303", Q, "q = q.reshape(B, self.heads, T, self.dim_head)"),
    Fault("ATN304", CONTEXT, CONTEXT.replace("bqhd", "bhqd"), blame=("return self.out",)),
    Fault("ATN307", LOGITS, LOGITS.replace("bhkd->", "bgkd->")),
)
