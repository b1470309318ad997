"""Mistakes in `styles/local.py`."""

from tests.bench.mutants.fault import Fault

FUTURE = "future = distance < 0"
OLD = "too_old = distance >= self.window"
HIDE = "hide = future | too_old"
OTHER = "other = segment_ids[:, :, None] != segment_ids[:, None, :]"
JOIN = "hide = hide | other[:, None]"
SDPA = "out = F.scaled_dot_product_attention(q, k, v, attn_mask=~hide)"
SPLIT = "q, k, v = self.qkv(x).view(B, T, 3, self.heads, -1).unbind(2)"
TURN = "q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)"
MERGE = "out = out.transpose(1, 2).flatten(2)"
HIDDEN = "hide = self.hidden(T, segment_ids).to(x.device)"
AT = ("out = F.scaled", "hide = ", "return hide")

FAULTS = (
    Fault("ATN103", TURN, TURN + "\n        q = q * q.shape[-1] ** -0.5", blame=AT),
    Fault("ATN205", SDPA, SDPA.replace("~hide", "hide"), blame=AT),
    Fault("ATN214", OLD, "too_old = distance.abs() >= self.window", also=((HIDE, "hide = too_old"),), blame=AT),
    Fault("ATN215", FUTURE, "future = distance < -1", blame=AT),
    Fault("ATN215", FUTURE, "future = distance <= 0", blame=AT),
    Fault("ATN218", OLD, "too_old = distance > self.window", blame=AT),
    Fault("ATN218", OLD, "too_old = distance >= self.window - 1", blame=AT),
    Fault("ATN218", OLD, "too_old = distance < -self.window", blame=AT),
    Fault("ATN218", HIDE, "hide = future", blame=AT),
    Fault(
        "ATN218",
        OLD,
        "too_old = torch.ones(time, time).tril().tril(self.window).bool() & future",
        blame=AT,
        or_code="ATN221",
    ),
    Fault("ATN221", HIDE, "hide = future & too_old", blame=AT),
    Fault("ATN221", JOIN, "hide = hide & other[:, None]", blame=AT),
    Fault("ATN219", JOIN, "pass", blame=AT),
    Fault("ATN219", HIDDEN, "hide = self.hidden(T, None).to(x.device)", blame=AT),
    Fault(
        "ATN219",
        OTHER,
        "other = (segment_ids[:, :, None] < segment_ids[:, None, :]) & future",
        blame=AT,
        or_code="ATN221",
    ),
    Fault(
        "ATN219", OTHER, "other = (segment_ids[:, :, None] != segment_ids[:, None, :]).all(0, keepdim=True)", blame=AT
    ),
    Fault("ATN219", OTHER, "other = segment_ids[:1, :, None] != segment_ids[:1, None, :]", blame=AT),
    Fault("ATN303", SPLIT, "q, k, v = self.qkv(x).view(B, 3, T, self.heads, -1).unbind(1)", blame=(TURN, SDPA)),
    Fault("ATN304", MERGE, "out = out.reshape(B, T, -1)"),
    Fault("ATN406", "return self.out(out)", "return out"),
)
