"""Mistakes in `styles/separate.py`."""

from tests.bench.mutants.fault import Fault

SCORES = "scores = torch.matmul(query, key.transpose(-1, -2)) * self.scaling"
SOFTMAX = "probs = nn.functional.softmax(scores, dim=-1)"
ADD = "scores = scores + self.extended(attention_mask, scores.dtype)"
FILL = "return (1.0 - mask) * torch.finfo(dtype).min"
MASK = "mask = attention_mask[:, None, None, :].to(dtype)"
CONTEXT = "context = self.merge_heads(torch.matmul(dropped, value))"
DROPPED = "dropped = self.dropout(probs)"
SPLIT = """        x = x.view(*x.shape[:-1], self.num_heads, self.head_size)
        return x.permute(0, 2, 1, 3)
"""
MERGE = """        x = x.permute(0, 2, 1, 3).contiguous()
        return x.view(*x.shape[:-2], self.num_heads * self.head_size)
"""
SCALING = "self.scaling = self.head_size**-0.5"
OUTPUT = "output = self.norm(self.dense(context) + hidden_states)"

FAULTS = (
    # scores and softmax
    Fault("ATN101", SCORES, "scores = torch.matmul(query, key.transpose(-1, -2))", blame=(SOFTMAX,)),
    Fault("ATN102", SCALING, "self.scaling = hidden_size**-0.5", blame=("scores = torch",)),
    Fault("ATN102", SCALING, "self.scaling = 1.0 / self.head_size", blame=("scores = torch",)),
    Fault("ATN102", SCALING, "self.scaling = num_heads**-0.5", blame=("scores = torch",)),
    Fault("ATN102", SCORES, "scores = torch.matmul(query, key.transpose(-1, -2)) / key.size(-2) ** 0.5"),
    Fault("ATN103", SCALING, "self.scaling = self.head_size**0.5", blame=("scores = torch",), or_code="ATN102"),
    Fault("ATN103", SCORES, "scores = torch.matmul(query, key.transpose(-1, -2)) / self.scaling"),
    Fault("ATN103", SCORES, "scores = torch.matmul(query * self.scaling, key.transpose(-1, -2)) * self.scaling"),
    Fault("ATN104", SOFTMAX, "probs = nn.functional.softmax(scores, dim=-2)"),
    Fault("ATN104", SOFTMAX, "probs = nn.functional.softmax(scores, dim=1)"),
    Fault(
        "ATN105",
        SCORES,
        "scores = torch.matmul(query, key.transpose(-1, -2))",
        also=((SOFTMAX, "probs = nn.functional.softmax(scores, dim=-1) * self.scaling"),),
    ),
    Fault("ATN106", DROPPED, "dropped = self.dropout(probs).softmax(dim=-1)"),
    Fault("ATN106", SOFTMAX, "probs = scores", blame=(DROPPED, CONTEXT)),
    Fault("ATN107", CONTEXT, "context = self.merge_heads(torch.matmul(dropped.transpose(-1, -2), value))"),
    Fault("ATN108", SOFTMAX, "exp = torch.exp(scores)\n        probs = exp / exp.sum(-1, keepdim=True)"),
    # masks
    Fault(
        "ATN201",
        ADD,
        "pass",
        also=(
            (
                DROPPED,
                "dropped = self.dropout(probs)\n        if attention_mask is not None:\n"
                "            dropped = dropped * attention_mask[:, None, None, :]",
            ),
        ),
    ),
    Fault("ATN202", ADD, "scores.add(self.extended(attention_mask, scores.dtype))"),
    Fault("ATN202", ADD, "masked_scores = scores + self.extended(attention_mask, scores.dtype)", blame=(SOFTMAX,)),
    Fault("ATN203", FILL, "return (1.0 - mask) * -1e-9", blame=(ADD,)),
    Fault("ATN203", FILL, "return (1.0 - mask) * -10.0", blame=(ADD,)),
    Fault("ATN203", FILL, "return (1.0 - mask) * torch.finfo(dtype).tiny", blame=(ADD,)),
    Fault("ATN203", ADD, "scores = scores * attention_mask[:, None, None, :]"),
    Fault("ATN204", FILL, "return torch.zeros_like(mask).masked_fill(mask == 0, -1e9)", blame=(ADD,)),
    Fault(
        "ATN204",
        ADD,
        f"{ADD}\n            scores = scores + self.extended(attention_mask, scores.dtype)",
        blame=(SOFTMAX,),
        situation="empty",
    ),
    Fault("ATN205", FILL, "return mask * torch.finfo(dtype).min", blame=(ADD,)),
    Fault("ATN205", ADD, "scores = scores.masked_fill(attention_mask[:, None, None, :].bool(), float('-inf'))"),
    Fault("ATN206", ADD, "scores = scores + attention_mask[:, None, None, :]"),
    Fault("ATN206", FILL, "return mask", blame=(ADD,)),
    Fault("ATN207", MASK, "mask = attention_mask[:, None, :].to(dtype)", sizes={"batch": 4}, blame=(ADD,)),
    Fault("ATN207", MASK, "mask = attention_mask.to(dtype)", sizes={"batch": 7}, blame=(ADD,)),
    Fault("ATN207", MASK, "mask = attention_mask[None, :, None, :].to(dtype)", sizes={"batch": 4}, blame=(ADD,)),
    Fault(
        "ATN209", "if attention_mask is not None:", "if attention_mask is not None and self.training:", blame=(SOFTMAX,)
    ),
    Fault(
        "ATN209",
        "if attention_mask is not None:",
        "if attention_mask is not None and not output_attentions:",
        blame=(SOFTMAX,),
        situation="padded weights",
    ),
    Fault(
        "ATN210",
        FILL,
        "mask = attention_mask[:, None, None, :]\n        mask -= 1\n"
        "        return -mask.to(dtype) * torch.finfo(dtype).min",
    ),
    Fault("ATN211", FILL, "return torch.zeros_like(mask).masked_fill(mask == 0, float('-inf'))", blame=(ADD, SOFTMAX)),
    Fault("ATN212", ADD, "pass", blame=(SOFTMAX,)),
    Fault("ATN212", FILL, "return (1.0 - torch.ones_like(mask)) * torch.finfo(dtype).min", blame=(ADD, SOFTMAX)),
    Fault("ATN213", MASK, "mask = attention_mask[:, None, :, None].to(dtype)", blame=(ADD,)),
    # heads
    Fault(
        "ATN302",
        MERGE,
        "        x = x.permute(0, 2, 1, 3)\n        return x.view(*x.shape[:-2], self.num_heads * self.head_size)\n",
    ),
    Fault("ATN303", SPLIT, "        return x.view(x.shape[0], self.num_heads, x.shape[1], self.head_size)\n"),
    Fault(
        "ATN303",
        SPLIT,
        "        x = x.reshape(x.shape[0] * self.num_heads, -1, self.head_size)\n"
        "        return x.view(-1, self.num_heads, x.shape[1], self.head_size)\n",
    ),
    Fault(
        "ATN303",
        "value = self.split_heads(self.value(hidden_states))",
        "value = self.value(hidden_states).view(query.shape)",
    ),
    Fault("ATN304", MERGE, "        return x.reshape(x.shape[0], x.shape[2], self.num_heads * self.head_size)\n"),
    Fault(
        "ATN304",
        "x = x.permute(0, 2, 1, 3).contiguous()",
        "x = x.contiguous().view(x.shape[0], x.shape[2], self.num_heads, self.head_size)",
        or_code="ATN310",
    ),
    Fault(
        "ATN309",
        CONTEXT,
        CONTEXT + "\n        context = torch.nn.functional.pad(context[..., : -self.head_size], (0, self.head_size))",
    ),
    Fault(
        "ATN309",
        DROPPED,
        "head_mask = torch.ones(self.num_heads, 1, 1)\n        head_mask[-1] = 0\n"
        "        dropped = self.dropout(probs) * head_mask",
    ),
    # wiring
    Fault("ATN403", "value = self.split_heads(self.value(", "value = self.split_heads(self.key("),
    Fault("ATN403", "key = self.split_heads(self.key(", "key = self.split_heads(self.query("),
    Fault("ATN403", "query = self.split_heads(self.query(", "query = self.split_heads(self.key("),
    Fault("ATN406", OUTPUT, "output = self.norm(self.dense(hidden_states) + hidden_states)", blame=("context =",)),
    Fault("ATN406", OUTPUT, "output = self.norm(context + hidden_states)"),
    Fault(
        "ATN406",
        OUTPUT,
        "context = self.dense(context)\n        output = self.norm(hidden_states)",
        blame=("context =",),
    ),
    # dropout and weights
    Fault("ATN501", DROPPED, "dropped = nn.functional.dropout(probs, p=self.dropout.p)"),
    Fault(
        "ATN502",
        SOFTMAX,
        "probs = nn.functional.softmax(self.dropout(scores), dim=-1)",
        also=((DROPPED, "dropped = probs"),),
    ),
    Fault("ATN601", "return (output, probs) if", "return (output, probs.mean(1)) if"),
    Fault("ATN602", "return (output, probs) if", "return (output, dropped) if"),
    Fault("ATN603", "return (output, probs) if", "return (output, scores) if", blame=("scores = ",)),
    Fault("ATN603", "return (output, probs) if", "return (output, probs.transpose(1, 2)) if"),
)
