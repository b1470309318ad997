"""The comparison with other libraries says what it needs, and its wrapper does not change what it wraps."""

from __future__ import annotations

import pytest
import torch

from tests.bench import peers
from tests.bench.mutants import fault


def test_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(peers, "_is_there", lambda module: module != "torchtest2")
    monkeypatch.setattr("sys.argv", ["peers.py"])
    assert peers.main() == 2
    assert capsys.readouterr().out == "not installed: torchtest2; pip install torchtest2\n"


@pytest.mark.parametrize("style", fault.NAMES)
def test_the_wrapper_answers_like_the_style(style: str) -> None:
    subject = peers.Subject(style, fault.right(style), ())
    args, kwargs = subject.source.inputs()
    expected = subject.source.build().eval()(*args, **({} if style == "local" else kwargs))
    expected = expected[0] if isinstance(expected, tuple) else expected
    named = {"x": args[subject.main], **({"other": args[1 - subject.main]} if len(args) > 1 else {})}
    torch.testing.assert_close(subject.module()(**named), expected)


@pytest.mark.parametrize("style", ["fused", "separate", "sdpa"])
def test_one_means_a_real_token_in_every_mask(style: str) -> None:
    subject = peers.Subject(style, fault.right(style), ())
    inputs = subject.inputs()
    pads = inputs["attention_mask"] == 0
    changed = {**inputs, "x": inputs["x"].masked_fill(pads[..., None], 7.0)}
    module = subject.module()
    torch.testing.assert_close(module(**changed)[~pads], module(**inputs)[~pads])
