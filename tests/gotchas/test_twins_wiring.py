"""The twins about wiring, dropout and returned weights have their fault, or not, in plain torch without attn-guard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tests.gotchas.twins import build


@pytest.fixture(autouse=True)
def _quiet_and_repeatable() -> Iterator[None]:
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def influence_in_training(name: str, kind: str, width: int) -> Tensor:
    """(time, time): whether the output at a row changes with the input at a column, under the same draw of dropout."""
    module = build(kind, name).train()
    x = torch.randn(1, 5, width)

    def run(value: Tensor) -> Tensor:
        torch.manual_seed(3)
        output: Tensor = module(value)
        return output

    before, columns = run(x), []
    for position in range(5):
        changed = x.clone()
        changed[:, position] = torch.randn(width)
        columns.append((run(changed) != before).any(dim=-1)[0])
    return torch.stack(columns, dim=-1)


@pytest.mark.parametrize(("kind", "equal"), [("broken", False), ("fixed", True)])
def test_dropout_in_eval(kind: str, equal: bool) -> None:
    module, x = build(kind, "atn501_dropout_in_eval"), torch.randn(3, 11, 26)
    assert not module.training
    assert torch.equal(module(x), module(x)) is equal
    assert not torch.equal(module.train()(x), module(x))


@pytest.mark.parametrize(("kind", "leaks"), [("broken", True), ("fixed", False)])
def test_dropout_before_softmax_opens_the_future(kind: str, leaks: bool) -> None:
    assert bool(influence_in_training("atn502_dropout_before_softmax", kind, 22).triu(1).any()) is leaks
    module, x = build(kind, "atn502_dropout_before_softmax"), torch.randn(1, 5, 22)
    assert torch.equal(module(x)[:, :2], module(torch.cat((x[:, :2], x[:, 3:]), dim=1))[:, :2])


@pytest.mark.parametrize(("kind", "follows"), [("broken", "memory"), ("fixed", "x")])
def test_the_output_of_a_cross_attention_follows_its_queries(kind: str, follows: str) -> None:
    module = build(kind, "atn401_swapped_cross_inputs")
    inputs = {"x": torch.randn(2, 5, 26), "memory": torch.randn(2, 7, 26)}
    output = module(**inputs)
    assert output.shape == inputs[follows].shape
    for name, value in inputs.items():
        order = torch.randperm(value.shape[1])
        again = module(**{**inputs, name: value[:, order]})
        expected = output[:, order] if name == follows else output
        torch.testing.assert_close(again, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("kind", "matters"), [("broken", False), ("fixed", True)])
def test_whether_the_memory_matters(kind: str, matters: bool) -> None:
    module, x = build(kind, "atn402_memory_ignored"), torch.randn(2, 5, 26)
    outputs = [module(x, torch.randn(2, 7, 26)) for _ in range(2)]
    assert torch.equal(*outputs) is not matters


@pytest.mark.parametrize(("kind", "idle"), [("broken", ["w_v.bias", "w_v.weight"]), ("fixed", [])])
def test_projections_without_a_gradient(kind: str, idle: list[str]) -> None:
    module, x = build(kind, "atn403_qkv_mixup"), torch.randn(2, 5, 26)
    with torch.enable_grad():
        module(x, x, x).square().sum().backward()
    assert sorted(name for name, parameter in module.named_parameters() if parameter.grad is None) == idle


@pytest.mark.parametrize(("kind", "mixes"), [("broken", False), ("fixed", True)])
def test_whether_positions_learn_from_each_other(kind: str, mixes: bool) -> None:
    module, x = build(kind, "atn406_output_unused"), torch.randn(2, 5, 26)
    changed = x.clone()
    changed[:, 0] = torch.randn(2, 26)
    assert torch.equal(module(x)[:, 1:], module(changed)[:, 1:]) is not mixes


@pytest.mark.parametrize(("kind", "shape"), [("broken", (2, 5, 5)), ("fixed", (2, 2, 5, 5))])
def test_one_map_for_each_head(kind: str, shape: tuple[int, ...]) -> None:
    module, x = build(kind, "atn601_averaged_weights"), torch.randn(2, 5, 26)
    weights = module(x)[1]
    assert weights.shape == shape
    per_head = build("fixed", "atn601_averaged_weights")
    per_head.load_state_dict(module.state_dict())
    torch.testing.assert_close(weights if kind == "broken" else weights.mean(dim=1), per_head(x)[1].mean(dim=1))


@pytest.mark.parametrize(("kind", "sums_to_one"), [("broken", False), ("fixed", True)])
def test_rows_of_the_returned_weights_in_training(kind: str, sums_to_one: bool) -> None:
    module, x = build(kind, "atn602_weights_after_dropout"), torch.randn(2, 5, 26)
    for mode, expected in ((False, True), (True, sums_to_one)):
        sums = module.train(mode)(x)[1].sum(dim=-1)
        assert torch.allclose(sums, torch.ones_like(sums)) is expected


@pytest.mark.parametrize(("kind", "faithful"), [("broken", False), ("fixed", True)])
def test_the_returned_weights_make_the_output(kind: str, faithful: bool) -> None:
    module, x = build(kind, "atn603_unfaithful_weights"), torch.randn(2, 5, 22)
    output, weights = module(x)
    value = module.qkv(x).view(2, 5, 3, 2, 11)[:, :, 2].transpose(1, 2)  # type: ignore[operator]
    again = module.out((weights @ value).transpose(1, 2).reshape(2, 5, 22))  # type: ignore[operator]
    assert torch.allclose(again, output, atol=1e-5) is faithful
    assert bool((weights.triu(1) > 0).any()) is not faithful


def test_the_fused_call_computes_the_same() -> None:
    by_hand, fused = (build(kind, "atn801_use_fused") for kind in ("broken", "fixed"))
    fused.load_state_dict(by_hand.state_dict())
    x = torch.randn(2, 5, 22)
    torch.testing.assert_close(by_hand(x), fused(x))
