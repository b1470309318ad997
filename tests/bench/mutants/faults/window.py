"""Mistakes in `styles/window.py`."""

from tests.bench.mutants.fault import Fault

PARTITION = "return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, window * window, C)"
PARTITION_VIEW = "x = x.view(B, H // window, window, W // window, window, C)"
REVERSE = "return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, H, W, windows.shape[-1])"
INDEX = "offsets[..., 0] * (2 * window - 1) + offsets[..., 1]"
QKV = "qkv = self.qkv(x).reshape(-1, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)"
ATTN = "attn = (q * self.scale) @ k.transpose(-2, -1)"
SCALE = "self.scale = (dim // num_heads) ** -0.5"
BIAS = "attn = attn + bias.permute(2, 0, 1)"
MASK = "attn = attn.view(B, -1, self.num_heads, N, N) + mask[None, :, None]"
SOFTMAX = "attn = self.attn_drop(attn.softmax(dim=-1))"
MERGE = "x = (attn @ v).transpose(1, 2).reshape(-1, N, C)"
SHIFT_MASK = 'return torch.zeros(1).where(ids[:, None, :] == ids[:, :, None], float("-inf"))'
FIRST = "        x = x.permute(0, 2, 3, 1)\n"
LAST = "return x.permute(0, 3, 1, 2)"
UNPACK = "q, k, v = qkv[0], qkv[1], qkv[2]"

FAULTS = (
    Fault("ATN101", ATTN, "attn = q @ k.transpose(-2, -1)", blame=("attn = self.attn_drop",)),
    Fault("ATN102", SCALE, "self.scale = dim**-0.5", blame=(ATTN,)),
    Fault("ATN102", SCALE, "self.scale = num_heads**-0.5", blame=(ATTN,)),
    Fault("ATN103", ATTN, "attn = (q * self.scale) @ (k * self.scale).transpose(-2, -1)"),
    Fault("ATN103", ATTN, "attn = (q / self.scale) @ k.transpose(-2, -1)"),
    Fault("ATN104", SOFTMAX, "attn = self.attn_drop(attn.softmax(dim=1))"),
    Fault("ATN104", SOFTMAX, "attn = self.attn_drop(attn.softmax(dim=-2))"),
    Fault(
        "ATN105",
        ATTN,
        "attn = q @ k.transpose(-2, -1)",
        also=((SOFTMAX, "attn = self.attn_drop(attn.softmax(dim=-1) * self.scale)"),),
    ),
    Fault("ATN106", SOFTMAX, "attn = self.attn_drop(attn.softmax(dim=-1).softmax(dim=-1))"),
    Fault("ATN107", MERGE, "x = (attn.transpose(-2, -1) @ v).transpose(1, 2).reshape(-1, N, C)"),
    Fault(
        "ATN201",
        MASK,
        "attn = attn.view(B, -1, self.num_heads, N, N)",
        also=(
            (
                SOFTMAX,
                SOFTMAX + "\n        if self.shift > 0:\n            attn = attn.view(B, -1, self.num_heads, N, N) * "
                "mask.isfinite()[None, :, None]\n            attn = attn.view(-1, self.num_heads, N, N)",
            ),
        ),
    ),
    Fault("ATN206", SHIFT_MASK, "return (ids[:, None, :] == ids[:, :, None]).float()", blame=(MASK,)),
    Fault("ATN203", SHIFT_MASK, SHIFT_MASK.replace('float("-inf")', "-1.0"), blame=(MASK,)),
    Fault("ATN205", SHIFT_MASK, SHIFT_MASK.replace("==", "!="), blame=(MASK,), or_code="ATN211"),
    Fault(
        "ATN223",
        ATTN,
        "attn = q @ k.transpose(-2, -1)",
        also=(
            (SOFTMAX, "attn = self.attn_drop((attn * self.scale).softmax(dim=-1))"),
            ('ids[:, :, None], float("-inf"))', "ids[:, :, None], -100.0)"),
        ),
        blame=(BIAS, MASK),
    ),
    Fault("ATN302", MERGE, "x = (attn @ v).transpose(1, 2).view(-1, N, C)"),
    Fault("ATN303", QKV, "qkv = self.qkv(x).reshape(-1, 3, self.num_heads, N, C // self.num_heads).transpose(0, 1)"),
    Fault(
        "ATN303",
        QKV,
        "qkv = self.qkv(x).reshape(-1, N, 3, C).permute(2, 0, 1, 3)"
        ".reshape(3, -1, self.num_heads, N, C // self.num_heads)",
    ),
    Fault("ATN304", MERGE, "x = (attn @ v).reshape(-1, N, C)"),
    Fault("ATN304", MERGE, "x = (attn @ v).transpose(2, 3).reshape(-1, N, C)", or_code="ATN310"),
    Fault(
        "ATN306",
        QKV,
        QKV.replace("permute(2, 0, 3, 1, 4)", "permute(2, 0, 1, 3, 4)"),
        also=(
            ("bias.permute(2, 0, 1)", "bias.permute(2, 0, 1)[:, :1].mean()"),
            (MASK, "attn = attn + 0 * mask.isinf().sum()"),
            ("attn = attn.view(-1, self.num_heads, N, N)", "pass"),
            (MERGE, "x = (attn @ v).reshape(-1, N, C)"),
        ),
        blame=(ATTN,),
    ),
    Fault("ATN310", PARTITION, "return x.reshape(-1, window * window, C)", blame=("x = partition",)),
    Fault("ATN310", REVERSE, "return x.reshape(-1, H, W, windows.shape[-1])", blame=("x = reverse",)),
    Fault("ATN310", FIRST, "        x = x.reshape(B, H, W, C)\n"),
    Fault("ATN310", LAST, "return x.reshape(B, C, H, W)"),
    Fault("ATN310", FIRST, "        x = x.view(B, H, W, C)\n", also=((LAST, "return x.reshape(B, C, H, W)"),)),
    Fault("ATN705", INDEX, "offsets[..., 0] + offsets[..., 1]", blame=("bias =", BIAS)),
    Fault("ATN705", INDEX, "offsets[..., 0] * window + offsets[..., 1]", blame=("bias =", BIAS)),
    Fault(
        "ATN705", INDEX, "(offsets[..., 0] * (2 * window - 1) + offsets[..., 1]).abs() % window", blame=("bias =", BIAS)
    ),
    Fault("ATN403", UNPACK, "q, k, v = qkv[0], qkv[1], qkv[1]"),
    Fault("ATN403", UNPACK, "q, k, v = qkv[0], qkv[0], qkv[2]"),
    Fault("ATN406", MERGE, "x = v.transpose(1, 2).reshape(-1, N, C)"),
    Fault("ATN406", "        x = self.proj(x)\n", ""),
    Fault("ATN501", "self.attn_drop(attn.softmax(dim=-1))", "nn.functional.dropout(attn.softmax(dim=-1), 0.1)"),
    Fault("ATN502", "self.attn_drop(attn.softmax(dim=-1))", "self.attn_drop(attn).softmax(dim=-1)"),
)
