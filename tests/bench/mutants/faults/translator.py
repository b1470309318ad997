"""Mistakes in `styles/translator.py`."""

from tests.bench.mutants.fault import Fault

SCORES = "scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)"
FILL = "scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)"
SOFTMAX = "p_attn = scores.softmax(dim=-1)"
CONTEXT = "return torch.matmul(dropout(p_attn), value)"
UNSQUEEZE = "mask = mask.unsqueeze(1)"
SPLIT = "linear(x).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)"
ZIP = "for linear, x in zip(self.linears, (query, key, value), strict=False)"
CALL = "x = attention(query, key, value, mask, self.dropout)"
MERGE = "x = x.transpose(1, 2).contiguous().view(nbatches, -1, self.h * self.d_k)"
ENCODE = "x = self.norms[0](x + self.self_attn(x, x, x, src_mask))"
DECODE = "x = self.norms[0](x + self.self_attn(x, x, x, tgt_mask))"
CROSS = "x = self.norms[1](x + self.src_attn(x, memory, memory, src_mask))"
SRC_MASK = "src_mask = ~src_key_padding_mask.unsqueeze(-2)"
TGT_MASK = "tgt_mask = torch.ones(1, tgt.size(1), tgt.size(1), dtype=torch.bool, device=tgt.device).tril()"
TGT_PADDING = "tgt_mask = tgt_mask & ~tgt_key_padding_mask.unsqueeze(-2)"
OUT = "return self.linears[-1](x)"
DECODER = "return self.decoder(tgt, memory, src_mask, tgt_mask)"
D_K = "    d_k = query.size(-1)\n"

FAULTS = (
    Fault("ATN101", SCORES, "scores = torch.matmul(query, key.transpose(-2, -1))", blame=(SOFTMAX,)),
    Fault("ATN102", D_K, "    d_k = query.size(-1) * query.size(1)\n", blame=(SCORES,)),
    Fault("ATN102", SCORES, "scores = torch.matmul(query, key.transpose(-2, -1)) / d_k"),
    Fault("ATN102", D_K, "    d_k = query.size(1)\n", blame=(SCORES,)),
    Fault("ATN103", SCORES, "scores = torch.matmul(query / math.sqrt(d_k), key.transpose(-2, -1)) / math.sqrt(d_k)"),
    Fault("ATN104", SOFTMAX, "p_attn = scores.softmax(dim=1)"),
    Fault("ATN104", SOFTMAX, "p_attn = scores.softmax(dim=-2)"),
    Fault("ATN106", SOFTMAX, "p_attn = scores.softmax(dim=-1).softmax(dim=-1)"),
    Fault(
        "ATN201",
        FILL,
        "pass",
        also=((SOFTMAX, SOFTMAX + "\n    if mask is not None:\n        p_attn = p_attn.masked_fill(mask == 0, 0.0)"),),
    ),
    Fault("ATN202", FILL, FILL.removeprefix("scores = ")),
    Fault("ATN203", FILL, FILL.replace("torch.finfo(scores.dtype).min", "1e-9")),
    Fault("ATN203", FILL, FILL.replace("torch.finfo(scores.dtype).min", "-2.0")),
    Fault("ATN204", FILL, FILL.replace("torch.finfo(scores.dtype).min", "-1e9")),
    Fault("ATN205", FILL, FILL.replace("mask == 0", "mask")),
    Fault("ATN205", SRC_MASK, "src_mask = src_key_padding_mask.unsqueeze(-2)", blame=(FILL,)),
    Fault("ATN206", FILL, "scores = scores + mask.float()"),
    Fault("ATN207", UNSQUEEZE, "mask = mask", sizes={"batch": 4}, blame=(FILL,)),
    Fault("ATN212", DECODER, "return self.decoder(tgt, memory, None, tgt_mask)", blame=(CROSS, SOFTMAX)),
    Fault("ATN212", CROSS, "x = self.norms[1](x + self.src_attn(x, memory, memory))", blame=(SOFTMAX,)),
    Fault("ATN212", ENCODE, "x = self.norms[0](x + self.self_attn(x, x, x))", blame=(SOFTMAX,)),
    Fault("ATN212", "memory = self.encoder(src, src_mask)", "memory = self.encoder(src, None)", blame=(SOFTMAX,)),
    Fault(
        "ATN213",
        ENCODE,
        "x = self.norms[0](x + self.self_attn(x, x, x, None if src_mask is None else src_mask.mT))",
        blame=(FILL,),
    ),
    Fault("ATN214", DECODE, "x = self.norms[0](x + self.self_attn(x, x, x))", blame=(SOFTMAX,)),
    Fault("ATN215", TGT_MASK, TGT_MASK.replace(".tril()", ".tril(1)"), blame=(FILL,)),
    Fault(
        "ATN221",
        TGT_PADDING,
        "tgt_mask = tgt_mask | ~tgt_key_padding_mask.unsqueeze(-2)",
        situation="padded target",
        blame=(FILL,),
    ),
    Fault(
        "ATN222",
        DECODER,
        "memory_mask = None if tgt_key_padding_mask is None else ~tgt_key_padding_mask.unsqueeze(-2)"
        "\n        return self.decoder(tgt, memory, memory_mask, tgt_mask)",
        sizes={"source": 7, "target": 7},
        blame=(CROSS, FILL),
    ),
    Fault(
        "ATN222",
        CROSS,
        "x = self.norms[1](x + self.src_attn(x, memory, memory, tgt_mask))",
        sizes={"source": 7, "target": 7},
        blame=(FILL,),
    ),
    Fault("ATN303", SPLIT, "linear(x).view(nbatches, self.h, -1, self.d_k)", blame=(CALL,)),
    Fault("ATN304", MERGE, "x = x.contiguous().view(nbatches, -1, self.h * self.d_k)"),
    Fault("ATN302", MERGE, "x = x.transpose(1, 2).view(nbatches, -1, self.h * self.d_k)"),
    Fault("ATN401", CROSS, "x = self.norms[1](memory + self.src_attn(memory, x, x, None))"),
    Fault(
        "ATN401",
        CROSS,
        "x = self.norms[1](x + self.src_attn(memory, x, x, src_mask))",
        sizes={"source": 7, "target": 7},
    ),
    Fault("ATN402", CROSS, "x = self.norms[1](x + self.src_attn(x, x, x, tgt_mask))"),
    Fault("ATN402", DECODER, "return self.decoder(tgt, tgt, None, tgt_mask)"),
    Fault("ATN403", ZIP, "for linear, x in zip([self.linears[0]] * 3, (query, key, value), strict=False)"),
    Fault("ATN403", CALL, "x = attention(query, key, key, mask, self.dropout)"),
    Fault(
        "ATN406",
        CROSS,
        "self.src_attn(x, memory, memory, src_mask)\n        x = self.norms[1](x)",
        blame=("return torch.matmul", OUT),
    ),
    Fault("ATN406", OUT, "return x"),
    Fault("ATN501", CONTEXT, "return torch.matmul(nn.functional.dropout(p_attn, 0.1), value)"),
    Fault(
        "ATN502",
        SOFTMAX,
        "p_attn = dropout(scores).softmax(dim=-1)",
        also=((CONTEXT, "return torch.matmul(p_attn, value)"),),
    ),
)
