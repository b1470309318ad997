"""The parts of a model that hold its attention: one of each class and configuration stands for all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torch import nn

from attn_guard.anatomy import Site
from attn_guard.probe.calling import is_of_torch
from attn_guard.probe.observe import configuration

NAMED = re.compile("attention|attn", re.IGNORECASE)
MOST = 8  # kinds of attention in one model that are looked at by themselves


def parts(module: nn.Module, sites: Iterable[Site]) -> dict[str, nn.Module]:
    """Path → the first submodule of each class and configuration that an attention computation lies in, or else that is
    called attention.

    Left out are the module itself, layers of torch, and what the model puts together from several submodules.
    """
    found: dict[str, nn.Module] = {}
    known: set[str] = set()
    called = (path for path, part in module.named_modules() if NAMED.search(type(part).__name__))
    for path in dict.fromkeys([*(site.name for site in sites), *called]):
        part = module.get_submodule(path)
        if part is module or is_of_torch(part) or isinstance(part, nn.ModuleList | nn.ModuleDict):
            continue
        kind = configuration(part)
        if kind not in known and len(found) < MOST:
            known.add(kind)
            found[path] = part
    return found
