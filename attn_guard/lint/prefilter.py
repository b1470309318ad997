"""Drops files and pieces of files that cannot hold attention, by a search over their bytes."""

from __future__ import annotations

import re

BUILT_IN_LAYERS = r"\bMultiheadAttention\b|\bnn\.Transformer|\bTransformer(?:En|De)coder(?:Layer)?\("

_WORDS = rf"(?<!log_)[sS]oftmax(?=[\s\w]*[(,)])|scaled_dot_product_attention|{BUILT_IN_LAYERS}"
_FILE = re.compile(_WORDS.encode())
_CORE = re.compile(_WORDS)
_PRODUCT = re.compile(
    rf"matmul|\bbaddbmm\b|\bb?mm\b|einsum|\bdot\b|[\w)\]][ \t]*@|scaled_dot_product_attention|{BUILT_IN_LAYERS}"
)


def may_matter(content: bytes) -> bool:
    """Whether a file can hold an attention computation."""
    return _FILE.search(content) is not None


def holds_core(text: str) -> bool:
    """Whether a piece of source can itself hold a softmax or call a built-in attention."""
    return _CORE.search(text) is not None


def holds_product(text: str) -> bool:
    """Whether a piece of source multiplies tensors so that it could make scores or a context."""
    return _PRODUCT.search(text) is not None
