"""Mistakes in `styles/linear.py`."""

from tests.bench.mutants.fault import Fault

KV = 'kv = torch.einsum("bhtd,bhte->bhtde", k, v).cumsum(dim=2)'
NORMALISER = 'normaliser = torch.einsum("bhtd,bhtd->bht", q, k.cumsum(dim=2))'
QUOTIENT = "out = numerator / (normaliser[..., None] + 1e-6)"
NUMERATOR = 'numerator = torch.einsum("bhtd,bhtde->bhte", q, kv)'
OUT = "return self.to_out(out.transpose(1, 2).reshape(B, T, D))"

FAULTS = (
    Fault("ATN109", QUOTIENT, "out = numerator", blame=(NUMERATOR,)),
    Fault("ATN109", NORMALISER, 'normaliser = torch.einsum("bhtd,bhd->bht", q, k.sum(dim=2))', blame=(QUOTIENT,)),
    Fault("ATN109", NORMALISER, 'normaliser = torch.einsum("bhtd,bhtd->bht", q, k.cumsum(dim=1))', blame=(QUOTIENT,)),
    Fault("ATN109", NORMALISER, 'normaliser = torch.einsum("bhtd,bhtd->bht", q, k)', blame=(QUOTIENT,)),
    Fault("ATN109", QUOTIENT, "out = numerator / T", blame=(NUMERATOR,)),
    Fault("ATN406", OUT, "return out.transpose(1, 2).reshape(B, T, D)"),
)
