"""The trees that `ast` makes are those that libcst makes, for every kind of statement and expression."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_guard.gotchas.registry import examples
from attn_guard.lint import building, newer_syntax
from attn_guard.lint import nodes as cst
from attn_guard.lint.parsing import parse
from attn_guard.lint.regions import cut
from attn_guard.lint.run import lint_source
from tests.lint.sources import attention

EVERYTHING = '''
@decorated(1)
async def attend(self, q, /, k: Tensor = None, *rest, value=1.5, mask, **more) -> Tensor:
    """Docstring."""
    first, *others = rest
    x: int = 0x10
    x += 1_000 if q else -2j
    scores = q @ k.transpose(-2, -1) / (d ** 0.5) * ~mask
    scores[..., None, 1:2, ::3] = float("-inf")
    if not mask and x or y is not None: return (q, [k], {1, 2}, {"a": 1, **more})
    elif a < b <= c:
        pass
    else:
        if other:
            raise ValueError("bad") from error
    for i, layer in enumerate(self.layers):
        continue
    else:
        x = 1; y = 2
    while (n := next(it)) not in seen:
        break
    try:
        async with torch.no_grad() as grad, other():
            await run(*a, key=k, **b)
    except (TypeError, ValueError) as problem:
        assert x, "message"
    finally:
        del x
    f = lambda a, b=1: [g(a) for a in b if a if b for c in a]
    text = "a" "b" + f"{x!r:>{width}} {y}" + b"c".decode()
    yield (a for a in b), {c for c in d}, {k: v for k, v in e}
    def inner(*, only): yield from only
    class Inner(Base, metaclass=M):
        attribute = True
    return x
'''


def test_every_construct_has_the_same_tree() -> None:
    assert building.module(EVERYTHING).deep_equals(newer_syntax.module(EVERYTHING))


def test_names_of_attributes_arguments_and_functions_stand_where_libcst_sees_them() -> None:
    own = [(name.value, *name.at[:4]) for name in building.module(EVERYTHING).names() if isinstance(name.at, cst.Span)]
    assert len(own) > 15
    assert {*own} <= {(name.value, *name.at[:4]) for name in newer_syntax.module(EVERYTHING).names()}


@pytest.mark.parametrize("side", ["broken", "fixed"])
def test_twins_have_the_same_trees(side: str) -> None:
    for file in sorted(Path(examples() / side).glob("*.py"))[::6]:
        for region in cut(file.name, file.read_text(encoding="utf-8")).regions:
            assert building.module(region.parsed).deep_equals(newer_syntax.module(region.parsed)), region


def test_trees_differ_where_the_source_does() -> None:
    one = building.module("x = a.b(1)[0] + c")
    for other in ("x = a.b(2)[0] + c", "x = a.b(1)[0] - c", "x = a.b(1, 1)[0] + c", "x = a.d(1)[0] + c"):
        assert not one.deep_equals(building.module(other))
    assert one.deep_equals(building.module("x = (a . b( 1 ) [0]  + c)  # the same"))


def test_source_of_a_node_is_known_to_both() -> None:
    for read in (building.module, newer_syntax.module):
        (statement,) = read("if mask is not None:\n    pass").body
        assert isinstance(statement, cst.If)
        assert cst.code(statement.test) == "mask is not None"


def test_columns_count_characters() -> None:
    source = cut("a.py", "class A:\n    def f(self):\n        return 'é…' + softmax(ß)\n")
    region = source.classes["A"].methods["f"]
    assert region.tree is not None
    (call,) = (node for node in _all(region.tree) if isinstance(node, cst.Call))
    place = region.location(call)
    assert (place.line, place.column, place.end_line, place.end_column) == (3, 23, 3, 33)


def test_syntax_that_is_newer_than_the_interpreter_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    code = attention("q @ k.mT")
    (known,) = lint_source(code, "attention.py")

    def too_old(text: str) -> cst.Module:
        raise SyntaxError("newer")

    monkeypatch.setattr(building, "module", too_old)
    (found,) = lint_source(code.replace("class Attention", "class  Attention"), "attention.py")
    assert (found.code, found.location) == (known.code, known.location)
    assert parse("def f(:") is None


def test_warnings_of_the_parser_stay_silent(recwarn: pytest.WarningsRecorder) -> None:
    assert parse(r"x = '\d' is 1") is not None
    assert not recwarn.list


def test_expression_of_a_thousand_terms_hides_only_its_own_function() -> None:
    long = "def f(x):\n    return " + " + ".join(["softmax(x @ x)"] * 1500) + "\n\n\n"
    report = lint_source(long + attention("q @ k.mT"), "attention.py")
    assert [finding.code for finding in report] == ["ATN101"]


def _all(node: cst.CSTNode) -> list[cst.CSTNode]:
    return [node, *(below for child in node.children for below in _all(child))]
