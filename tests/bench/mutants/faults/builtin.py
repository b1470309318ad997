"""Mistakes in `styles/builtin.py`."""

from tests.bench.mutants.fault import Fault

BUILD = "self.attn = nn.MultiheadAttention(embed_dim, num_heads, dropout=dropout, batch_first=True)"
FUTURE = "future = torch.triu(torch.ones(time, time, dtype=torch.bool, device=x.device), diagonal=1)"
TIME = "time = x.size(1)"
ATTN_MASK = "            attn_mask=future,\n"
PADDING = "key_padding_mask=key_padding_mask,"
ADD = "x = x + self.dropout(y)"
CALL = ("y, weights = self.attn",)

FAULTS = (
    Fault("ATN203", FUTURE, "future = torch.triu(torch.full((time, time), -10.0), diagonal=1)", blame=CALL),
    Fault("ATN203", FUTURE, "future = torch.triu(torch.full((time, time), -1e-9), diagonal=1)", blame=CALL),
    Fault("ATN203", FUTURE, "future = torch.triu(torch.full((time, time), float('inf')), diagonal=1)", blame=CALL),
    Fault("ATN205", FUTURE, "future = torch.tril(torch.ones(time, time, dtype=torch.bool))", blame=CALL),
    Fault("ATN205", FUTURE, "future = torch.tril(torch.ones(time, time, dtype=torch.bool), diagonal=-1)", blame=CALL),
    Fault("ATN205", PADDING, "key_padding_mask=None if key_padding_mask is None else ~key_padding_mask,", blame=CALL),
    Fault("ATN206", FUTURE, "future = torch.triu(torch.ones(time, time), diagonal=1)", blame=CALL),
    Fault(
        "ATN206",
        PADDING,
        "key_padding_mask=None if key_padding_mask is None else key_padding_mask.float(),",
        also=((ATTN_MASK, "            attn_mask=future.float().masked_fill(future, float('-inf')),\n"),),
        blame=CALL,
    ),
    Fault("ATN206", FUTURE, "future = torch.tril(torch.ones(time, time))", blame=CALL),
    Fault(
        "ATN208",
        PADDING,
        "key_padding_mask=None,",
        also=(
            (
                ATTN_MASK,
                "            attn_mask=future if key_padding_mask is None\n"
                "            else (future | key_padding_mask[:, None, :]).repeat(self.attn.num_heads, 1, 1),\n",
            ),
        ),
        blame=CALL,
    ),
    Fault(
        "ATN208",
        PADDING,
        "key_padding_mask=None,",
        also=(
            (
                ATTN_MASK,
                "            attn_mask=future if key_padding_mask is None\n"
                "            else torch.cat([future | key_padding_mask[:, None, :]] * self.attn.num_heads),\n",
            ),
        ),
        blame=CALL,
    ),
    Fault("ATN209", PADDING, "key_padding_mask=key_padding_mask if need_weights else None,", blame=CALL),
    Fault("ATN209", ATTN_MASK, "            attn_mask=future if key_padding_mask is None else None,\n", blame=CALL),
    Fault("ATN209", ATTN_MASK, "            attn_mask=None if need_weights else future,\n", blame=CALL),
    Fault("ATN212", f"            {PADDING}\n", "", blame=CALL),
    Fault("ATN214", ATTN_MASK, "", blame=CALL),
    Fault("ATN214", FUTURE, "future = torch.zeros(time, time, dtype=torch.bool, device=x.device)", blame=CALL),
    Fault("ATN215", FUTURE, FUTURE.replace("diagonal=1", "diagonal=2"), blame=CALL),
    Fault("ATN215", FUTURE, FUTURE.replace(", diagonal=1", ""), blame=CALL),
    Fault(
        "ATN305",
        BUILD,
        BUILD.replace(", batch_first=True", ""),
        also=((TIME, "time = x.size(0)"), (PADDING, "key_padding_mask=None,")),
        blame=CALL,
    ),
    Fault("ATN305", BUILD, BUILD.replace("batch_first=True", "batch_first=False"), sizes={"batch": 7}, blame=CALL),
    Fault("ATN406", f"        {ADD}\n", "", blame=CALL),
    Fault("ATN406", ADD, "x = x + self.dropout(h)", blame=CALL),
    Fault("ATN601", "average_attn_weights=False", "average_attn_weights=True", blame=(*CALL, "return")),
    Fault("ATN601", "            average_attn_weights=False,\n", "", blame=(*CALL, "return")),
    Fault("ATN404", ADD, "x = x + self.dropout(y - y.mean(dim=0))", blame=()),
    Fault("ATN405", ADD, "x = x + self.dropout(y - y.mean(dim=1, keepdim=True))", blame=()),
    Fault(
        "ATN405",
        "self.norm2 = nn.LayerNorm(embed_dim)",
        "self.norm2 = nn.GroupNorm(1, embed_dim)",
        also=(("self.mlp(self.norm2(x))", "self.mlp(self.norm2(x.mT).mT)"),),
    ),
)
