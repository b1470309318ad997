from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, ids, seeded

PROMISES: dict[str, Any] = {}


def build(files: Files) -> nn.Module:
    module = files.load("models/hierarchical.py")
    config = SimpleNamespace(vocab_size=13, field_hidden_size=WIDTH, nhead=H, ncols=T, hidden_size=11)
    return seeded(lambda: module.TabFormerEmbeddings(config))


def inputs() -> Call:
    return (ids(B, 7, T),), {}
