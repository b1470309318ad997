"""What counts as a class of attention: what its run computes says so, and not its name."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from attn_guard.contract import Contract
from attn_guard.probe.calling import given
from tests.zoo.probing import holds_attention

D = 12


class ChannelGate(nn.Module):
    """Channels are multiplied by a sigmoid of their means."""

    def __init__(self) -> None:
        super().__init__()
        self.squeeze = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        return x + x * torch.sigmoid(self.squeeze(x.mean(dim=1, keepdim=True)))


class PositionGate(ChannelGate):
    """Positions are multiplied by a sigmoid of what stands beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.near = nn.Conv1d(2, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        pooled = torch.cat([x.mean(dim=-1, keepdim=True), x.amax(dim=-1, keepdim=True)], dim=-1)
        return x * torch.sigmoid(self.near(pooled.mT)).mT


class Smooth(ChannelGate):
    """An activation, and a projection after it."""

    def forward(self, x: Tensor) -> Tensor:
        projected: Tensor = self.squeeze(x * torch.sigmoid(1.7 * x))
        return projected


class Linear(ChannelGate):
    """Keys meet values, and then queries."""

    def forward(self, x: Tensor) -> Tensor:
        query: Tensor = self.squeeze(x).relu()
        return query @ (query.mT @ x)


class Recurrent(ChannelGate):
    """Exponentials of the keys weigh the values, and both are summed up step by step."""

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.exp(self.squeeze(x))
        total, context, outputs = torch.zeros(()), torch.zeros(()), []
        for time in range(x.shape[1]):
            total, context = total + weights[:, time], context + weights[:, time] * x[:, time]
            outputs.append(context / total)
        return torch.stack(outputs, dim=1)


class StateSpace(ChannelGate):
    """A state is read by a product that is summed."""

    def forward(self, x: Tensor) -> Tensor:
        state, outputs = torch.zeros(()), []
        for time in range(x.shape[1]):
            state = 0.9 * state + x[:, time, :, None] * self.squeeze(x[:, time])[:, None]
            outputs.append((state * x[:, time, None]).sum(dim=-1))
        return torch.stack(outputs, dim=1)


class Predicted(ChannelGate):
    """A softmax over places that each position chooses by itself."""

    def forward(self, x: Tensor) -> Tensor:
        weights: Tensor = self.squeeze(x)[..., :2].softmax(-1)
        return weights[..., :1] * x + weights[..., 1:] * x.roll(1, 1)


@pytest.mark.parametrize("build", [Linear, Recurrent, StateSpace, Predicted])
def test_weights_and_contractions_count(build: type[nn.Module]) -> None:
    assert _holds(build)


@pytest.mark.parametrize("build", [ChannelGate, PositionGate, Smooth])
def test_gates_do_not(build: type[nn.Module]) -> None:
    assert not _holds(build)


def _holds(build: type[nn.Module]) -> bool:
    torch.manual_seed(0)
    module = build()
    return holds_attention(module, given(torch.randn(2, 5, D), None, Contract(), module))
