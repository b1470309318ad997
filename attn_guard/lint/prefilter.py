"""Drops files and pieces of files that cannot hold attention, by a search over their text.

The words come first, as plain substrings, and the patterns after them begin with plain letters: both are searched
tens of times faster than a pattern that begins with a boundary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_BUILT_IN = (
    r"MultiheadAttention\b(?<=\bMultiheadAttention)",
    r"nn\.Transformer(?<=\bnn\.Transformer)",
    r"Transformer(?<=\bTransformer)(?:En|De)coder(?:Layer)?\(",
)
BUILT_IN_LAYERS = "|".join(_BUILT_IN)

_SOFTMAX = r"oftmax(?<=[sS]oftmax)(?<!log_softmax)(?=[\s\w]*[(,)])"
CORE_LAYERS = r"DotProduct\w*Attention\("  # which may be of another file


def _compiled(words: dict[str, tuple[str, ...]]) -> tuple[tuple[str, tuple[re.Pattern[str], ...]], ...]:
    return tuple((word, tuple(map(re.compile, patterns))) for word, patterns in words.items())


_FUSED = {
    "scaled_dot_product_attention": ("scaled_dot_product_attention",),
    "flash_attn": (r"flash_attn_\w*func\(",),
    "dropout_p": (r"dropout_p ?= ?self\.\w",),
    "memory_efficient_attention": (r"memory_efficient_attention\((?<=\Wmemory_efficient_attention\()",),
    "flex_attention": (r"flex_attention\(",),
    "create_block_mask": (r"create_block_mask\(",),
    "sdp_kernel": (r"sdp_kernel\b(?<=\bsdp_kernel)",),
    "MultiheadAttention": _BUILT_IN[:1],
    "Transformer": _BUILT_IN[1:],
}
_WRITTEN_SOFTMAX = r"\.exp\((?s:.){0,600}?sum\("
_CAUSAL_MASK = _compiled({word: (rf"{word}\w*(?:Mask|Bias)\w*\(\s*\w",) for word in ("Causal", "Triangular")})
_BUILT = _compiled({"oftmax": (_SOFTMAX,), **_FUSED})
_CORE = (*_BUILT, *_compiled({".exp(": (_WRITTEN_SOFTMAX,)}))
_ADDED_TABLE = r"\+ self\.\w+\[[:,. ]*\w+\.(?:size\(|shape\[)"
_HEAD = 2000  # where imports stand: a word that few files hold is searched only in those that import torch
_TABLE, _TABLE_IN_BYTES = re.compile(_ADDED_TABLE), re.compile(_ADDED_TABLE.encode())
_RAISED = re.compile(rf"torch{_WRITTEN_SOFTMAX}".encode())
_PRODUCT = _compiled(
    {
        "matmul": ("matmul",),
        "mm": (r"mm\b(?<=\bmm)", r"mm\b(?<=\bbmm)", r"mm\b(?<=\bbaddbmm)"),
        "einsum": ("einsum",),
        "dot": (r"dot\b(?<=\bdot)",),
        "@": (r"@[ \t]", r"@(?<=[\w)\]]@)", r"@(?<=[\w)\]] @)"),  # not that of a decorator
        **_FUSED,
    }
)
_MASKED_LOGITS = re.compile(
    r"(?:mask\w*[ \t]*\*|\*=?[ \t]*[\w.]*mask|mul_?\([^\n)]*mask)[^\n]*\n?(?:[^\n]*\n){0,4}?[^\n]*oftmax"
    r"|oftmax\([^\n]*(?:mask\w*[ \t]*\*|\*[ \t]*[\w.]*mask)"
)
_IN_BYTES = tuple(
    (word.encode(), tuple(re.compile(pattern.pattern.encode()) for pattern in patterns))
    for word, patterns in (*_BUILT, *_CAUSAL_MASK, *_compiled({"DotProduct": (CORE_LAYERS,)}))
)


def may_matter(content: bytes) -> bool:
    """Whether a file can hold an attention computation."""
    if any(word in content and any(p.search(content) for p in patterns) for word, patterns in _IN_BYTES):
        return True
    if content.find(b"import torch", 0, _HEAD) < 0:
        return False
    raised = b"torch.exp(" in content and _RAISED.search(content) is not None
    return raised or (b"+ self." in content and _TABLE_IN_BYTES.search(content) is not None)


def adds_table(text: str) -> bool:
    """Whether a piece of source adds a table that is cut to the length of a tensor, as positions are."""
    return "+ self." in text and _TABLE.search(text) is not None


def holds_core(text: str) -> bool:
    """Whether a piece of source can itself hold a softmax or call a built-in attention."""
    return _holds(text, _CORE)


def holds_product(text: str) -> bool:
    """Whether a piece of source multiplies tensors so that it could make scores or a context."""
    return _holds(text, _PRODUCT)


def holds_masked_logits(text: str) -> bool:
    """Whether a piece of source multiplies something by a mask shortly before a softmax."""
    return "mask" in text and _MASKED_LOGITS.search(text) is not None


def _holds(text: str, words: Iterable[tuple[str, tuple[re.Pattern[str], ...]]]) -> bool:
    return any(word in text and any(pattern.search(text) for pattern in patterns) for word, patterns in words)
