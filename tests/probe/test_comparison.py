"""Two implementations on the same weights and inputs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attn_guard
from attn_guard.errors import UsageError
from attn_guard.reference import MultiHeadAttention
from tests.probe.modules import HEAD_DIM, Einsum, FusedQkv, H, Sdpa, features, seeded

X = features(batch=2, time=5)


class Scaled(Sdpa):
    """`Sdpa` with another factor on its query."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part(x).unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2) for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        return self.o_proj(F.scaled_dot_product_attention(q * self.factor, k, v).transpose(1, 2).flatten(2))


def test_from_scratch_and_built_in() -> None:
    built_in = nn.MultiheadAttention(64, 8, batch_first=True)
    x = torch.randn(2, 5, 64)
    found = attn_guard.compare(
        MultiHeadAttention(64, 8),
        built_in,
        x,
        other_args=(x, x, x),
        other_kwargs={"average_attn_weights": False},
    )
    assert found.same
    assert [difference.name for difference in found.outputs] == ["output 0", "output 1"]
    assert [difference.name for difference in found.gradients] == [
        "gradient of qkv.weight",
        "gradient of qkv.bias",
        "gradient of out.weight",
        "gradient of out.bias",
        "gradient of input 0",
    ]
    assert found.speed > 0
    assert found.notes == ()


def test_three_projections_and_a_fused_one() -> None:
    found = attn_guard.compare(seeded(Sdpa), FusedQkv(), X)
    assert found.same
    assert found.gradients[0].name == "gradient of q_proj.weight, k_proj.weight, v_proj.weight"
    assert attn_guard.compare(FusedQkv(), seeded(Sdpa), X).same


def test_the_numbers_are_those_of_plain_torch() -> None:
    first, second = seeded(Sdpa), Scaled(1.5)
    found = attn_guard.compare(first, second, X)
    second.load_state_dict(first.state_dict())
    with torch.no_grad():
        apart = float((first(X) - second(X)).abs().max())
    assert not found.same
    assert found.outputs[0].largest == pytest.approx(apart, rel=1e-3)
    assert any(not difference.same for difference in found.gradients)


def test_gradients_of_inputs_count() -> None:
    class Detached(Sdpa):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.detach())

    found = attn_guard.compare(seeded(Sdpa), Detached(), X)
    assert found.outputs[0].same
    assert [difference.name for difference in found.gradients if not difference.same] == ["gradient of input 0"]


def test_modules_that_do_not_correspond_keep_their_weights() -> None:
    found = attn_guard.compare(seeded(Sdpa), nn.Linear(21, 21), X)
    assert not found.same
    assert found.notes == ("the parameters do not correspond, so each keeps its own weights",)


def test_outputs_of_other_shapes() -> None:
    (output,) = attn_guard.compare(seeded(Sdpa), nn.Linear(21, 3), X).outputs
    assert not output.same
    assert "(2, 5, 21) and (2, 5, 3)" in str(output)


def test_nothing_is_changed() -> None:
    first, second = seeded(Sdpa).train(), seeded(Einsum)
    before = [p.clone() for module in (first, second) for p in module.parameters()]
    state, x = torch.get_rng_state(), X.clone()
    attn_guard.compare(first, second, x)
    after = [p for module in (first, second) for p in module.parameters()]
    assert all(torch.equal(a, b) and b.grad is None and b.requires_grad for a, b in zip(before, after, strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    assert first.training
    assert not second.training
    assert torch.equal(x, X)
    assert not x.requires_grad


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(dtype: torch.dtype) -> None:
    assert attn_guard.compare(seeded(Sdpa).to(dtype), FusedQkv().to(dtype), X.to(dtype)).same
    assert not attn_guard.compare(seeded(Sdpa).to(dtype), Scaled(1.5).to(dtype), X.to(dtype)).same


def test_modules_without_parameters() -> None:
    class Core(nn.Module):
        def __init__(self, fused: bool) -> None:
            super().__init__()
            self.fused = fused

        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            if self.fused:
                return F.scaled_dot_product_attention(q, k, v)
            return (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v

    q, k, v = (torch.randn(2, H, 5, HEAD_DIM) for _ in range(3))
    found = attn_guard.compare(Core(False), Core(True), (q, k, v))
    assert found.same
    assert [difference.name for difference in found.gradients] == [f"gradient of input {place}" for place in range(3)]


def test_what_is_printed() -> None:
    text = str(attn_guard.compare(seeded(Sdpa), Scaled(2.0), X))
    assert text.startswith("Sdpa and Scaled: not the same")
    assert "≠ output 0" in text
    assert "times as fast as Sdpa, forward and backward ([2, 5, 21], float32 on cpu)" in text
    assert str(attn_guard.compare(seeded(Sdpa), Sdpa(), X)).startswith("Sdpa and Sdpa: the same but for rounding")


def test_what_is_no_module() -> None:
    with pytest.raises(UsageError, match=r"takes two torch\.nn\.Modules, got function"):
        attn_guard.compare(nn.Linear(2, 2), F.softmax, X)  # type: ignore[arg-type]
