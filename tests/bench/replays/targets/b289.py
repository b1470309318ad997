from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import B, Call, Files, randn, seeded

PROMISES: dict[str, Any] = {}


def build(files: Files) -> nn.Module:
    given = {"conv2d": lambda width, out, size, scale=1: nn.Conv2d(width, out, size)}
    module = files.load("lib/model.py", given=given, only={"SelfAttention"})
    module.conv2d = given["conv2d"]
    return seeded(lambda: module.SelfAttention(32))


def inputs() -> Call:
    return (randn(B, 32, 5, 3),), {}
