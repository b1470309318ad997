"""Dropout that a constructor keeps and that nothing in the file reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from attn_guard.lint import names
from attn_guard.lint import nodes as cst
from attn_guard.lint.attributes import assigned
from attn_guard.lint.regions import Class, Region

_LAYER = re.compile(r"Dropout\w*\(")
_COMMENT = re.compile(r"#[^\n]*")
_SELF_AS_ARGUMENT = re.compile(r"(?:[(,]\s*|[=*]\s*)self\s*[,)]")
_HARMLESS_SELF = re.compile(r"\bdef \w+\(\s*self\b|\bsuper\([^)]*\)")
_BY_NAME = re.compile(r"\b(?:getattr|vars|modules|children|named_\w+|eval)\(|__dict__|__getattr|_modules\b")
_PLAIN_BASES = frozenset({"Module", "object", "ABC", "LightningModule"})


def idle_dropouts(owner: Class, classes: Iterable[Class], file: str) -> Iterator[tuple[Region, cst.Attribute, str]]:
    """(constructor, ``self.name``, name) for every dropout layer or rate that the constructor of a class keeps, and
    that no class related to it reads; none where a reader may be out of sight."""
    constructor = owner.methods.get("__init__")
    if constructor is None or "rop" not in constructor.text:
        return
    related = _related(owner, list(classes))
    texts = [_COMMENT.sub("", cls.text) for cls in related]
    if not all(_is_known(base, related) for cls in related for base in cls.bases) or any(map(_is_handed_on, texts)):
        return
    rest = _COMMENT.sub("", file)
    for target, value in assigned(constructor):
        name = target.attr.value
        if not _is_read(name, texts, rest) and _drops(name, value, texts):
            yield constructor, target, name


def _related(owner: Class, classes: Sequence[Class]) -> list[Class]:
    """A class with its bases in the file, what is made of them, and the bases of these."""
    found = [owner]
    for cls in found:
        bases = {base.rpartition(".")[2] for base in cls.bases}
        heirs = (other for other in classes if any(base.rpartition(".")[2] == cls.name for base in other.bases))
        near = [*(other for other in classes if other.name in bases), *heirs]
        found.extend(other for other in near if other not in found)
    return found


def _is_known(base: str, related: Iterable[Class]) -> bool:
    plain = base.partition("[")[0].rpartition(".")[2]
    return not base or plain in _PLAIN_BASES or any(cls.name == plain for cls in related)


def _is_handed_on(text: str) -> bool:
    """Whether a class gives its objects to others, or reads attributes by names that are not written out."""
    return bool(_BY_NAME.search(text) or _SELF_AS_ARGUMENT.search(_HARMLESS_SELF.sub("", text)))


def _drops(name: str, value: cst.BaseExpression, texts: Iterable[str]) -> bool:
    """Whether an attribute is a dropout layer, or a rate that goes nowhere else either."""
    written = cst.code(value)
    if _LAYER.search(written):
        return True
    given = re.fullmatch(r"(?:\w+\.)*(\w+)", written)
    if not given or written in ("None", "True", "False") or given[1][0].isdigit() or not names.is_dropout_rate(name):
        return False
    return not any(_is_used(given[1], text) for text in texts)


def _is_used(name: str, text: str) -> bool:
    """Whether a name stands anywhere but among parameters, before a colon or ``=``, or as the value of an attribute."""
    kept = re.sub(rf"\bself\.\w+\s*(?::[^=\n]+)?=\s*(?:\w+\.)*{name}[ \t]*(?=[\n;]|$)", "", text)
    plain = re.sub(r"\bdef \w+\([^)]*\)", "", re.sub(r'"""(?s:.*?)"""', "", kept))
    return re.search(rf"\b{name}\b", plain) is not None


def _is_read(name: str, texts: Iterable[str], file: str) -> bool:
    """Whether a class of these reads an attribute of its own, or anybody in the file that of another object."""
    own = re.compile(rf"\bself\s*\.\s*{name}\b(?!\s*(?::[^=\n]+)?=[^=])")
    other = re.compile(rf"(?<!\bself)\.{name}\b(?!\s*=[^=])|[\"']{name}[\"']")
    if any(own.search(text) for text in texts):
        return True
    return other.search(file) is not None
