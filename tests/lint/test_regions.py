"""How a file is cut into functions and methods, and where their nodes are."""

from __future__ import annotations

from attn_guard.lint import nodes as cst
from attn_guard.lint.regions import cut
from attn_guard.lint.run import lint_source
from tests.lint.sources import attention

SOURCE = '''\
"""def not_a_function(): class NotAClass:

def neither(): pass
"""
import torch as t, numpy
from torch.nn import (
    functional as F,  # a comment
    Linear,
)
LIMIT = 1.5

@decorated
@twice(
    with_arguments
)
def first(x,
          y):
    def inner():
        pass
    return x

class Outer(Base, metaclass=Meta):
    size = 3

    @property
    def value(self): return """
def trap(): pass
"""

    async def later(self):
        pass
    class Nested:
        def deep(self):
            pass

try:
    def guarded():
        return softmax(1)
except ImportError:
    guarded = None
'''


def test_functions_and_methods_are_found_outside_of_strings() -> None:
    source = cut("a.py", SOURCE)
    assert list(source.functions) == ["first", "guarded"]
    assert sorted(source.classes) == ["Nested", "Outer"]
    assert list(source.classes["Outer"].methods) == ["value", "later"]
    assert list(source.classes["Nested"].methods) == ["deep"]


def test_decorators_belong_to_what_they_decorate() -> None:
    source = cut("a.py", SOURCE)
    assert source.functions["first"].text.startswith("@decorated\n@twice(")
    assert source.functions["first"].line == 12


def test_every_region_parses_and_knows_its_place() -> None:
    source = cut("a.py", SOURCE)
    lines = SOURCE.splitlines()
    for region in source.regions:
        assert region.tree is not None, region.name
        place = region.location(region.tree.name)
        assert lines[place.line - 1][place.column - 1 : place.end_column - 1] == region.name


def test_nothing_is_parsed_before_it_is_asked_for() -> None:
    source = cut("a.py", SOURCE)
    assert not any(region.is_parsed for region in source.regions)
    assert isinstance(source.functions["first"].tree, cst.FunctionDef)
    assert [region.name for region in source.regions if region.is_parsed] == ["first"]


def test_imports_and_constants_are_known_by_their_local_names() -> None:
    source = cut("a.py", SOURCE)
    assert source.imports == {
        "t": "torch",
        "numpy": "numpy",
        "F": "torch.nn.functional",
        "Linear": "torch.nn.Linear",
    }
    assert source.constants["LIMIT"].strip() == "1.5"


def test_bases_of_a_class_are_known() -> None:
    assert cut("a.py", SOURCE).classes["Outer"].bases == ("Base",)


def test_windows_line_ends_change_no_place() -> None:
    unix, windows = (cut("a.py", text) for text in (SOURCE, SOURCE.replace("\n", "\r\n")))
    for one, other in zip(unix.regions, windows.regions, strict=True):
        assert one.tree is not None
        assert other.tree is not None
        assert one.location(one.tree.name) == other.location(other.tree.name)


def test_class_that_is_written_anew_later_is_read_as_well() -> None:
    """As in notebooks, which redefine a class from cell to cell."""
    unscaled, right = attention("q @ k.mT"), attention()
    later = right[right.index("class Attention") :]
    report = lint_source(f"{unscaled}\n\n{later}", "cells.py")
    assert [(finding.code, finding.location.line) for finding in report] == [
        ("ATN101", lint_source(unscaled, "cells.py").findings[0].location.line)
    ]
    assert lint_source(f"{right}\n\n{later}", "cells.py").findings == ()


def test_name_of_a_class_means_the_last_of_that_name() -> None:
    source = cut("a.py", "class A:\n    def f(self): pass\n\nclass A:\n    def g(self): pass\n")
    assert list(source.classes["A"].methods) == ["g"]
    assert [list(owner.methods) for owner in source.all_classes] == [["g"], ["f"]]
