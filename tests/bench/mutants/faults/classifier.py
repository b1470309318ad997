"""Mistakes in `styles/classifier.py`."""

from tests.bench.mutants.fault import Fault

LAYER = "layer = nn.TransformerEncoderLayer(d_model, nhead, dim_feedforward=40, dropout=0.1, batch_first=True)"
MASK = "x = self.encoder(x, src_key_padding_mask=~keep)"
POSITIONS = "x = x + self.positions[:, : x.size(1)]"
ZERO = "x = x.masked_fill(~keep.unsqueeze(-1), 0.0)"
POOL = "pooled = x.sum(dim=1) / keep.sum(dim=1, keepdim=True)"
EMBED = "x = self.embedding(input_ids)"

FAULTS = (
    Fault("ATN205", MASK, "x = self.encoder(x, src_key_padding_mask=keep)"),
    Fault("ATN205", MASK, "x = self.encoder(x, src_key_padding_mask=attention_mask.bool())"),
    Fault("ATN206", MASK, "x = self.encoder(x, src_key_padding_mask=1.0 - attention_mask.float())"),
    Fault("ATN206", MASK, "x = self.encoder(x, src_key_padding_mask=attention_mask.float())"),
    Fault("ATN212", MASK, "x = self.encoder(x)"),
    Fault("ATN212", f"        {ZERO}\n", "", blame=(POOL,)),
    Fault("ATN212", POOL, "pooled = self.encoder(self.embedding(input_ids)).mean(dim=1)"),
    Fault("ATN212", EMBED, EMBED + "\n        x = nn.functional.avg_pool1d(x.mT, 3, 1, 1).mT"),
    Fault(
        "ATN305",
        LAYER,
        LAYER.replace(", batch_first=True", ""),
        also=((MASK, "x = self.encoder(x)"),),
        blame=("x = self.encoder",),
    ),
    Fault(
        "ATN305",
        LAYER,
        LAYER.replace("batch_first=True", "batch_first=False"),
        sizes={"batch": 7},
        blame=("x = self.encoder",),
    ),
    Fault("ATN404", POOL, POOL + "\n        pooled = pooled - pooled.mean(dim=0)"),
    Fault(
        "ATN404",
        POOL,
        POOL.replace("keep.sum(dim=1, keepdim=True)", "keep.sum(dim=1)[:1]") + "\n"
        "        pooled = nn.functional.normalize(pooled, dim=0)",
    ),
    Fault("ATN406", MASK, "self.encoder(x, src_key_padding_mask=~keep)"),
    Fault("ATN707", POSITIONS, "x = x + self.positions[:, : x.size(0)].transpose(0, 1)"),
    Fault("ATN707", POSITIONS, "x = x + self.positions[:, x.size(1)]"),
    Fault("ATN310", MASK, "x = x.reshape(x.size(1), x.size(0), -1).transpose(0, 1)\n        " + MASK),
)
