"""Mistakes in `styles/lm.py`."""

from tests.bench.mutants.fault import Fault

Q = "q = self.query(x).view(B, T, self.heads, d).transpose(1, 2)"
K = "k = self.key(x).view(B, T, self.heads, d).transpose(1, 2)"
V = "v = self.value(x).view(B, T, self.heads, d).transpose(1, 2)"
SCORES = "att = (q @ k.mT) / math.sqrt(d)"
FUTURE = "future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)"
FILL = "att = att.masked_fill(future, -torch.inf)"
SOFTMAX = "att = self.drop(F.softmax(att, dim=-1))"
MERGE = "y = (att @ v).transpose(1, 2).reshape(B, T, C)"
POSITIONS = "positions = torch.arange(T, device=ids.device)"
EMBED = "x = self.embed(ids) + self.position(positions)"
ATTEND = "x = x + self.drop(self.attn(self.norm1(x)))"
MLP = "x = x + self.drop(self.mlp(self.norm2(x)))"
NORM = "        x = self.norm(x)\n"

FAULTS = (
    Fault("ATN101", SCORES, "att = q @ k.mT", blame=("att = self.drop",)),
    Fault("ATN102", SCORES, "att = (q @ k.mT) / math.sqrt(C)"),
    Fault("ATN102", SCORES, "att = (q @ k.mT) / d"),
    Fault("ATN103", SCORES, "att = (q / math.sqrt(d)) @ k.mT / math.sqrt(d)"),
    Fault(
        "ATN104", SOFTMAX, "att = self.drop(F.softmax(att, dim=1))", also=((FILL, FILL.replace("-torch.inf", "-1e9")),)
    ),
    Fault("ATN106", SOFTMAX, "att = self.drop(F.softmax(att, dim=-1)).softmax(dim=-1)"),
    Fault("ATN201", f"        {FILL}\n", "", also=((SOFTMAX, SOFTMAX + ".masked_fill(future, 0.0)"),)),
    Fault("ATN202", FILL, "att.masked_fill(future, -torch.inf)"),
    Fault("ATN203", FILL, "att = att.masked_fill(future, 0.0)"),
    Fault("ATN203", FILL, "att = att.masked_fill(future, -5.0)"),
    Fault("ATN203", FILL, "att = att * ~future"),
    Fault("ATN206", FILL, "att = att + (~future).float()"),
    Fault("ATN209", FILL, f"if self.training:\n            {FILL}", blame=("att = self.drop",)),
    Fault("ATN214", f"        {FILL}\n", "", blame=("att = self.drop", "y = (att")),
    Fault("ATN214", FILL, "att = att.masked_fill(torch.zeros_like(future), -torch.inf)", blame=("att = self.drop",)),
    Fault("ATN215", FUTURE, FUTURE.replace("triu(1)", "triu(2)"), blame=(FILL,)),
    Fault("ATN215", FILL, "att = att.masked_fill(future.mT, -torch.inf)", or_code="ATN205"),
    Fault("ATN302", MERGE, "y = (att @ v).transpose(1, 2).view(B, T, C)"),
    Fault(
        "ATN303",
        Q,
        "q = self.query(x).view(B, self.heads, T, d)",
        also=((K, "k = self.key(x).view(B, self.heads, T, d)"), (V, "v = self.value(x).view(B, self.heads, T, d)")),
    ),
    Fault("ATN303", K, "k = self.key(x).view(B, self.heads, T, d)"),
    Fault("ATN304", MERGE, "y = (att @ v).reshape(B, T, C)"),
    Fault("ATN304", MERGE, "y = (att @ v).permute(0, 3, 2, 1).reshape(B, T, C)", or_code="ATN310"),
    Fault("ATN403", V, V.replace("self.value", "self.key")),
    Fault("ATN404", NORM, "        x = self.norm(x - x.mean(dim=0))\n"),
    Fault("ATN404", EMBED, EMBED + "\n        x = x + x.flip(0)"),
    Fault("ATN405", NORM, "        x = F.layer_norm(x, x.shape[1:])\n"),
    Fault("ATN405", NORM, "        x = self.norm(x + x.mean(dim=1, keepdim=True))\n"),
    Fault("ATN405", MLP, "x = x + self.drop(self.mlp(F.layer_norm(x, x.shape[-2:])))"),
    Fault("ATN405", EMBED, EMBED + "\n        x = F.avg_pool1d(x.mT, 3, stride=1, padding=1).mT"),
    Fault("ATN405", EMBED, EMBED + "\n        x = x + torch.fft.fft(x, dim=1).real"),
    Fault("ATN405", EMBED, EMBED + "\n        x = x.roll(-1, dims=1)"),
    Fault("ATN405", MLP, "h = self.norm2(x)\n        x = x + self.drop(self.mlp(h + F.max_pool1d(h.mT, 5, 1, 2).mT))"),
    Fault("ATN406", ATTEND, "self.drop(self.attn(self.norm1(x)))", blame=("y = (att", "return self.proj")),
    Fault("ATN406", ATTEND, "h = x + self.drop(self.attn(self.norm1(x)))", blame=(MLP, "y = (att", "return self.proj")),
    Fault("ATN406", "return self.proj(y)", "return self.proj(x)", blame=("y = (att",)),
    Fault("ATN501", SOFTMAX, "att = F.dropout(F.softmax(att, dim=-1), self.drop.p)"),
    Fault("ATN502", SOFTMAX, "att = F.softmax(self.drop(att), dim=-1)"),
    Fault("ATN703", EMBED, "x = self.embed(ids)"),
    Fault("ATN703", EMBED, "self.position(positions)\n        x = self.embed(ids)"),
    Fault("ATN707", POSITIONS, "positions = torch.arange(B, device=ids.device)[:, None]", blame=(EMBED,)),
    Fault("ATN707", EMBED, "x = self.embed(ids) + self.position.weight[T]"),
    Fault("ATN707", POSITIONS, "positions = torch.zeros(T, dtype=torch.long)", blame=(EMBED,)),
    Fault("ATN707", EMBED, "x = self.embed(ids) + self.position.weight[:B].unsqueeze(1)"),
)
