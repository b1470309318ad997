"""``attn-guard check`` and ``attn-guard xray``: targets, promises and exit codes."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attn_guard.cli import main
from attn_guard.gotchas.registry import examples

BROKEN = (examples() / "broken" / "atn101_missing_scale.py").read_text()
FIXED = (examples() / "fixed" / "atn101_missing_scale.py").read_text()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a model; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    (tmp_path / "model.py").write_text(BROKEN)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that says why a command could not run."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err.removeprefix("attn-guard: error: ").rstrip()


def test_a_broken_module_exits_with_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "model.py:Attention(22, 2)"]) == 1
    shown = capsys.readouterr().out
    assert "error[ATN101] missing-scale" in shown
    assert "--> model.py:19" in shown
    assert "reproduce: " in shown
    assert shown.endswith("1 error in 1 attention site\n")


def test_a_correct_module_exits_with_zero(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "model.py").write_text(FIXED)
    assert main(["check", "model.py:build()"]) == 0
    assert capsys.readouterr().out.endswith("no mistakes found in 1 attention site\n")


def test_a_factory_or_class_without_required_arguments_is_called(folder: Path) -> None:
    assert main(["check", "model.py:build", "--ignore", "ATN101"]) == 0


def test_a_target_can_be_a_module_by_name() -> None:
    assert main(["check", "model:Attention(22, 2)"]) == 1
    assert main(["check", "torch.nn:MultiheadAttention(14, 2, batch_first=True)"]) == 0


def test_a_file_of_a_package_keeps_its_relative_imports(folder: Path) -> None:
    package = folder / "src" / "pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "layers.py").write_text(BROKEN)
    (package / "model.py").write_text("from .layers import Attention\n")
    assert main(["check", "src/pkg/model.py:Attention(22, 2)"]) == 1


def test_a_file_named_like_a_library_does_not_take_its_place(folder: Path) -> None:
    (folder / "types.py").write_text(BROKEN)
    library = sys.modules["types"]
    assert main(["check", "types.py:build()"]) == 1
    assert sys.modules["types"] is library


def test_a_file_imports_what_stands_beside_it(folder: Path) -> None:
    inner = folder / "inner"
    inner.mkdir()
    (inner / "beside_model.py").write_text(BROKEN)
    (inner / "entry.py").write_text("from beside_model import Attention\n")
    assert main(["check", "inner/entry.py:Attention(22, 2)"]) == 1


def test_what_the_users_code_prints_stays_out_of_the_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "model.py").write_text(BROKEN + "\nprint('hello from the model')\n")
    assert main(["check", "model.py:build()", "--output-format", "json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["counts"]["error"] == 1
    assert "hello from the model" in captured.err


def test_promises_reach_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    import attn_guard.probe.check
    from attn_guard.findings import Report

    seen: dict[str, Any] = {}

    def recorded(module: object, **promises: Any) -> Report:
        seen.update(promises)
        return Report()

    monkeypatch.setattr(attn_guard.probe.check, "check", recorded)
    options = ["--no-causal", "--mask", "m=ignore", "--mask", "bias=additive", "--scale", "0.5", "--no-batch-first"]
    options += [
        "--cross",
        "--window",
        "5",
        "--segments",
        "docs",
        "--padding-side",
        "left",
        "--positions",
        "--cache",
        "kv",
    ]
    options += ["--seed", "7", "--fuzz", "9", "--select", "ATN1", "--preview"]
    main(["check", "model.py:build()", *options])
    assert seen == {
        "causal": False,
        "masks": {"m": "ignore", "bias": "additive"},
        "scale": 0.5,
        "batch_first": False,
        "cross": True,
        "window": 5,
        "segments": "docs",
        "padding_side": "left",
        "positions": True,
        "cache": "kv",
        "seed": 7,
        "fuzz": 9,
        "select": ("ATN1",),
        "ignore": (),
        "preview": True,
    }


def test_a_declared_promise_changes_the_verdict() -> None:
    target = "torch.nn:MultiheadAttention(14, 2, batch_first=True)"
    assert main(["check", target]) == 0
    assert main(["check", target, "--causal"]) == 1


def test_a_module_that_cannot_be_called_exits_with_two(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "model.py").write_text(
        "from torch import nn\n\nclass Odd(nn.Module):\n    def forward(self, x):\n        raise RuntimeError('no')\n"
    )
    assert main(["check", "model.py:Odd()"]) == 2
    assert "ATN903" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("model.py", "'model.py': expected \"FILE.py:EXPRESSION\""),
        ("nowhere.py:x", "nowhere.py: no such file"),
        ("no.such.module:x", "no.such.module: no such module"),
        ("model.py:Attention(", "'Attention(' is not an expression"),
        ("model.py:Attenton(22, 2)", "name 'Attenton' is not defined; did you mean 'Attention'?"),
        ("model.py:Attention(22, 3)", "model.py:9: ValueError: d_model=22 does not divide by heads=3"),
        ("model.py:Attention", 'Attention is a class, not a module; call it: "model.py:Attention(d_model, heads)"'),
        ("model.py:torch.ones(2)", "torch.ones(2) gives Tensor, not a torch.nn.Module"),
    ],
)
@pytest.mark.parametrize("command", ["check", "xray"])
def test_a_bad_target_is_refused_in_one_line(
    command: str, target: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused([command, target], capsys)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(:\n", "model.py:1: SyntaxError: "),
        ("x = 1\nimport no_such_library\n", "model.py:2: ModuleNotFoundError: No module named 'no_such_library'"),
        ("x = 1\n\nx.y\n", "model.py:3: AttributeError: 'int' object has no attribute 'y'"),
        ("import sys\nsys.exit('bye')\n", "model.py:2: SystemExit: bye"),
    ],
)
def test_a_file_that_fails_on_import_is_told_with_its_line(
    folder: Path, source: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "model.py").write_text(source)
    assert message in refused(["check", "model.py:Attention(22, 2)"], capsys)


def test_without_torch_the_extra_to_install_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else find(name, *rest))
    for command in ("check", "xray"):
        assert "pip install 'attn-guard[torch]'" in refused([command, "model.py:build()"], capsys)


@pytest.mark.parametrize("value", ["mask", "mask=", "=ignore", "mask=hide"])
def test_a_bad_mask_promise_is_refused(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "expected NAME=MEANING" in refused(["check", "model.py:build()", "--mask", value], capsys)


def test_xray_draws_the_chain(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "model.py").write_text(FIXED)
    assert main(["xray", "model.py:build()"]) == 0
    shown = capsys.readouterr().out
    assert "scores" in shown
    assert "softmax" in shown
