"""What the twins on torch's own attention claim, measured in plain torch without attn-guard."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from tests.gotchas.twins import build


def test_the_old_choice_of_kernels_warns_at_every_call_and_the_new_one_does_not() -> None:
    x = torch.randn(2, 5, 26)
    broken, fixed = build("broken", "atn803_deprecated_sdp_kernel"), build("fixed", "atn803_deprecated_sdp_kernel")
    broken.load_state_dict(fixed.state_dict())
    with pytest.warns(FutureWarning, match="sdp_kernel"):
        old = broken(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        new = fixed(x)
    torch.testing.assert_close(old, new)


def test_the_old_choice_of_kernels_restricts_nothing_unless_a_kernel_is_turned_off() -> None:
    allowed: Any = torch.backends.cuda
    with pytest.warns(FutureWarning), allowed.sdp_kernel(enable_flash=True):
        assert [allowed.math_sdp_enabled(), allowed.mem_efficient_sdp_enabled()] == [True, True]


def test_weights_that_are_asked_for_turn_the_fused_attention_off_and_change_nothing() -> None:
    x = torch.randn(2, 5, 26)
    broken, fixed = build("broken", "atn604_need_weights_cost"), build("fixed", "atn604_need_weights_cost")
    broken.load_state_dict(fixed.state_dict())
    outputs, fused = [], []
    for module in (broken.train(), fixed.train()):  # in evaluation, the fast path of the layer has a kernel of its own
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            outputs.append(module(x))
        fused.append(any("scaled_dot_product" in event.key for event in seen.key_averages()))
    assert fused == [False, True]
    torch.testing.assert_close(*outputs)
