"""Mistakes in `styles/generator.py`."""

from tests.bench.mutants.fault import Fault

SPLIT = "query, key, value = self.c_attn(x).view(batch, time, 3, self.n_head, -1).permute(2, 0, 3, 1, 4)"
CAT_K = "key = torch.cat((past[0], key), dim=-2)"
CAT_V = "value = torch.cat((past[1], value), dim=-2)"
SCORES = "scores = query @ key.transpose(-1, -2) / key.shape[-1] ** 0.5"
BIAS = "scores = scores + bias"
CONTEXT = "context = scores.softmax(dim=-1) @ value"
MERGE = "context = context.transpose(1, 2).reshape(batch, time, width)"
RETURN = "return self.c_proj(context), (key, value)"
IDS = "position_ids = (attention_mask.long().cumsum(-1) - 1).clamp(min=0)[:, -time:]"
EMBED = "x = self.wte(input_ids) + self.wpe(position_ids)"
KEEP = "keep = keys[None, :] <= keys[-time:, None]"
PADDING = "keep = keep[None, None] & attention_mask.bool()[:, None, None, :]"
FILL = "masked_fill(~keep, torch.finfo(x.dtype).min)"
PAST = "past_key_values[index] if past_key_values is not None else None"
ADD = "        x = x + attended\n"

FAULTS = (
    Fault("ATN101", SCORES, "scores = query @ key.transpose(-1, -2)", blame=(CONTEXT,)),
    Fault("ATN102", SCORES, "scores = query @ key.transpose(-1, -2) / key.shape[-2] ** 0.5"),
    Fault("ATN103", SCORES, SCORES.replace("query @", "query * key.shape[-1] ** -0.5 @")),
    Fault("ATN104", CONTEXT, "context = scores.softmax(dim=1) @ value"),
    Fault(
        "ATN201", f"        {BIAS}\n", "", also=((CONTEXT, "context = scores.softmax(dim=-1) * (bias == 0) @ value"),)
    ),
    Fault("ATN202", BIAS, "scores.add(bias)"),
    Fault("ATN203", FILL, "masked_fill(~keep, -3.0)", blame=(BIAS,)),
    Fault("ATN204", FILL, "masked_fill(~keep, -1e9)", blame=(BIAS,), situation="half"),
    Fault("ATN205", FILL, "masked_fill(keep, torch.finfo(x.dtype).min)", blame=(BIAS,)),
    Fault("ATN206", FILL, "masked_fill(keep, 1.0)", blame=(BIAS,)),
    Fault("ATN212", PADDING, "keep = keep[None, None]", blame=(BIAS, CONTEXT)),
    Fault("ATN209", BIAS, "if past is None:\n            scores = scores + bias", situation="decode", blame=(CONTEXT,)),
    Fault(
        "ATN209",
        PADDING,
        "keep = keep[None, None] & (attention_mask.bool()[:, None, None, :] | (past > 0))",
        situation="padded decode",
        blame=(BIAS,),
    ),
    Fault("ATN213", PADDING, "keep = keep[None, None] & attention_mask.bool()[:, None, -time:, None]", blame=(BIAS,)),
    Fault("ATN214", KEEP, "keep = keys[None, :] < past + time + 0 * keys[-time:, None]", blame=(BIAS, CONTEXT)),
    Fault("ATN215", KEEP, "keep = keys[None, :] < keys[-time:, None]", blame=(BIAS,)),
    Fault("ATN216", KEEP, "keep = keys[None, :] <= keys[:time, None]", situation="decode", blame=(BIAS,)),
    Fault("ATN303", SPLIT, "query, key, value = self.c_attn(x).view(batch, 3, self.n_head, time, -1).transpose(0, 1)"),
    Fault("ATN304", MERGE, "context = context.reshape(batch, time, width)"),
    Fault("ATN406", ADD, "", blame=("context =", "return self.c_proj")),
    Fault("ATN406", ADD, "        x = x + self.ln_1(x)\n", blame=("context =", "return self.c_proj")),
    Fault(
        "ATN701",
        CAT_K,
        "key = torch.cat((key, past[0]), dim=-2)",
        also=((CAT_V, "value = torch.cat((value, past[1]), dim=-2)"),),
        blame=(BIAS,),
    ),
    Fault("ATN701", PAST, "past_key_values[0] if past_key_values is not None else None"),
    Fault("ATN701", PAST, "past_key_values[-1] if past_key_values is not None else None"),
    Fault(
        "ATN701",
        EMBED,
        "position_ids = torch.arange(time, device=x.device) if past_key_values else position_ids\n"
        "        x = self.wte(input_ids) + self.wpe(position_ids)".replace("device=x.device", "device=keys.device"),
    ),
    Fault(
        "ATN701", RETURN, "return self.c_proj(context), (key[:, :, -time:], value[:, :, -time:])", situation="decode"
    ),
    Fault("ATN701", "presents.append(present)", "presents.insert(0, present)"),
    Fault(
        "ATN704",
        IDS,
        "position_ids = torch.arange(past, past + time, device=input_ids.device).expand(batch, time)",
        blame=(EMBED,),
    ),
    Fault(
        "ATN704",
        IDS,
        "position_ids = torch.arange(past + time, device=input_ids.device)[None, -time:] "
        "+ (1 - attention_mask).sum(-1, keepdim=True)",
        blame=(EMBED,),
    ),
    Fault("ATN703", EMBED, "x = self.wte(input_ids)", blame=(IDS,)),
    Fault("ATN703", EMBED, "self.wpe(position_ids)\n        x = self.wte(input_ids)"),
    Fault("ATN707", IDS, "position_ids = torch.arange(batch, device=input_ids.device)[:, None]", blame=(EMBED,)),
    Fault("ATN405", "logits = self.ln_f(x)", "logits = self.ln_f(x + x.mean(dim=1, keepdim=True))"),
    Fault("ATN404", "logits = self.ln_f(x)", "logits = self.ln_f(x - x.mean(dim=0))"),
)
