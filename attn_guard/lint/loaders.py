"""What a training loop says of a model's input: a ``DataLoader`` stacks samples along the first axis."""

from __future__ import annotations

import re

from attn_guard.anatomy import StepKind
from attn_guard.lint import nodes as cst
from attn_guard.lint.regions import Class, Region, Source
from attn_guard.lint.values import Draft

_LOOP = re.compile(r"\n[ \t]*for\s+(?P<targets>[^:\n]+?)\s+in\s+[^:\n]*\b\w*loader\b[^\n]*:")
_ARRANGES = re.compile(r"collate|\.transpose\(|\.permute\(|\.t\(\)|\.T\b|swapaxes|movedim|rearrange")


def loop_over(source: Source, owner: Class) -> Draft | None:
    """The loop that hands batches of a ``DataLoader`` to a model of this class as they are; None where there is none,
    or where something in sight may arrange them."""
    if "DataLoader(" not in source.text or "collate" in source.text:
        return None
    if not source.imports.get("DataLoader", "").startswith("torch.utils.data"):
        return None
    models = set(re.findall(rf"\b(\w+)\s*=\s*{owner.name}\(", source.text))
    for region in source.functions.values():
        for loop in _LOOP.finditer(region.text) if not _ARRANGES.search(region.text) else ():
            targets = re.findall(r"\w+", loop["targets"])
            for called, given in re.findall(r"\b(\w+)\(\s*(\w+)", region.text[loop.end() :]):
                if called in models and given in targets:
                    return _draft(region, given)
    return None


def _draft(region: Region, batch: str) -> Draft | None:
    node = _loop(region.tree, batch) if region.tree else None
    return Draft(StepKind.SPLIT, node, region, text="a DataLoader gives the batch first") if node else None


def _loop(node: cst.CSTNode, batch: str) -> cst.BaseExpression | None:
    """What is iterated by the first loop over batches of this name."""
    if isinstance(node, cst.For) and any(name.value == batch for name in node.target.names()):
        return node.iter
    return next((found for child in node.children if (found := _loop(child, batch))), None)
