"""Attention along the batch: seen, and told from layouts that only look like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import attn_guard
from attn_guard.findings import Report, Severity
from tests.probe.modules import STYLES, D, H, features, later, seeded
from tests.probe.silent_modules import TimeFirst


def found(report: Report) -> list[tuple[str, Severity]]:
    return [(finding.code, finding.severity) for finding in report]


WARNING, ERROR, INFO = [[("ATN305", severity)] for severity in (Severity.WARNING, Severity.ERROR, Severity.INFO)]


class TimeFirstLayer(nn.Module):
    """`nn.MultiheadAttention` in its default layout, and something before and after it."""

    def __init__(
        self, before: Callable[[Tensor], Tensor] = lambda x: x, after: Callable[[Tensor], Tensor] = lambda x: x
    ) -> None:
        super().__init__()
        self.before, self.after, self.attention = before, after, nn.MultiheadAttention(D, H)

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        return self.after(x + self.attention(x, x, x, need_weights=False)[0])


TABLE = torch.randn(31, D)


class TestEvidence:
    def test_none_is_a_remark(self) -> None:
        assert found(attn_guard.check(seeded(TimeFirstLayer))) == INFO
        assert found(attn_guard.check(seeded(TimeFirst))) == INFO

    def test_a_declared_layout_is_an_error(self) -> None:
        assert found(attn_guard.check(seeded(TimeFirstLayer), batch_first=True)) == ERROR
        assert found(attn_guard.check(seeded(TimeFirstLayer), batch_first=False)) == []

    def test_the_other_way_round(self) -> None:
        module = seeded(STYLES["fused qkv"])
        assert found(attn_guard.check(module, batch_first=False)) == ERROR
        assert found(attn_guard.check(module, batch_first=True)) == []

    @pytest.mark.parametrize(
        "options",
        [
            {"before": lambda x: x + TABLE[: x.shape[1]]},
            {"before": lambda x: x + TABLE[None, : x.shape[1]]},
            {"after": lambda x: x.mean(dim=1)},
            {"after": lambda x: x[:, -1]},
            {"after": lambda x: x.amax(-2)},
        ],
    )
    def test_the_other_axis_is_time(self, options: dict[str, Any]) -> None:
        (finding,) = attn_guard.check(seeded(TimeFirstLayer, **options))
        assert (finding.code, finding.severity) == ("ATN305", Severity.WARNING)
        assert "axis 1" in finding.notes[0]

    @pytest.mark.parametrize(
        "options",
        [
            {"before": lambda x: x + TABLE[: x.shape[0], None]},
            {"after": lambda x: x.mean(dim=0)},
            {"after": lambda x: x[-1]},
        ],
    )
    def test_the_first_axis_is_time_after_all(self, options: dict[str, Any]) -> None:
        assert found(attn_guard.check(seeded(TimeFirstLayer, **options))) == []

    def test_a_masked_order_is_time(self) -> None:
        class Masked(TimeFirstLayer):
            def forward(self, x: Tensor) -> Tensor:
                return self.attention(x, x, x, attn_mask=later(len(x)), need_weights=False)[0]

        assert found(attn_guard.check(seeded(Masked))) == []

    def test_another_layer_knows_the_batch(self) -> None:
        class Mixed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second = STYLES["fused qkv"](), nn.MultiheadAttention(D, H)

            def forward(self, x: Tensor) -> Tensor:
                x = self.first(x)
                return self.second(x, x, x)[0]

        (finding,) = attn_guard.check(seeded(Mixed))
        assert (finding.code, finding.severity) == ("ATN305", Severity.WARNING)
        assert finding.notes == ("other attention runs along axis 1",)

    def test_ids(self) -> None:
        model = nn.Sequential(nn.Embedding(29, D), TimeFirstLayer())
        assert found(attn_guard.check(model.eval())) == WARNING

    @pytest.mark.parametrize("promise", [None, True])
    def test_a_refused_mask(self, promise: bool | None) -> None:
        class Causal(TimeFirstLayer):
            def forward(self, x: Tensor) -> Tensor:
                return self.attention(x, x, x, attn_mask=later(x.shape[1]), need_weights=False)[0]

        class Padded(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.attention = nn.MultiheadAttention(D, H)

            def forward(self, x: Tensor, key_padding_mask: Tensor) -> Tensor:
                return self.attention(x, x, x, key_padding_mask=key_padding_mask)[0]

        for build in (Causal, Padded):
            assert found(attn_guard.check(seeded(build), batch_first=promise)) == (ERROR if promise else WARNING)


class Folded(nn.Module):
    """Attention along the columns of tables, or what runs along the batch and the rows where time comes first."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(29, D)
        self.layer = nn.TransformerEncoderLayer(D, H, D, batch_first=batch_first)

    def forward(self, ids: Tensor) -> Tensor:
        return self.layer(self.embedding(ids).flatten(0, 1)).unflatten(0, ids.shape[:2])


class Frames(nn.Module):
    """Attention over the pixels of every frame of a video (batch, channels, time, height, width)."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(D, H, batch_first=batch_first)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.permute(0, 2, 3, 4, 1).flatten(2, 3).flatten(0, 1)
        out = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        return x + out.unflatten(0, (len(x), -1)).unflatten(2, x.shape[3:]).permute(0, 4, 1, 2, 3)


class TestFoldedBatch:
    TABLES = torch.randint(29, (3, 7, 5), generator=torch.Generator().manual_seed(0))
    VIDEO = torch.randn(3, D, 2, 5, 3, generator=torch.Generator().manual_seed(0))

    @pytest.mark.parametrize("promise", [None, True])
    def test_time_first_layers_run_over_the_batch_as_well(self, promise: bool | None) -> None:
        expected = ERROR if promise else WARNING
        assert found(attn_guard.check(seeded(Folded, False), (self.TABLES,), batch_first=promise)) == expected
        assert found(attn_guard.check(seeded(Frames, False), (self.VIDEO,), batch_first=promise)) == expected

    def test_right_layers(self) -> None:
        assert found(attn_guard.check(seeded(Folded, True), (self.TABLES,))) == []
        assert found(attn_guard.check(seeded(Frames, True), (self.VIDEO,))) == []

    def test_time_that_really_comes_first(self) -> None:
        class Agents(nn.Module):
            """(time, batch, agents, features): each agent attends over time."""

            def __init__(self) -> None:
                super().__init__()
                self.attention = nn.MultiheadAttention(D, H)

            def forward(self, x: Tensor) -> Tensor:
                tokens = x.flatten(1, 2)
                return self.attention(tokens, tokens, tokens, need_weights=False)[0].view(x.shape)

        x = torch.randn(5, 3, 2, D, generator=torch.Generator().manual_seed(0))
        assert found(attn_guard.check(seeded(Agents), (x,))) == []

    def test_one_sample(self) -> None:
        assert found(attn_guard.check(seeded(Folded, False), (self.TABLES[:1],))) == []


class TestNotTheBatch:
    def test_layers_of_torch_say_what_they_take(self) -> None:
        for batch_first in (True, False):
            for layer in (
                nn.MultiheadAttention(D, H, batch_first=batch_first),
                nn.TransformerEncoderLayer(D, H, D, batch_first=batch_first),
                nn.TransformerDecoderLayer(D, H, D, batch_first=batch_first),
            ):
                assert "ATN305" not in attn_guard.check(layer.eval()).codes

    @pytest.mark.parametrize("batch", [2, 5])
    def test_ids_that_are_transposed_before_they_are_looked_up(self, batch: int) -> None:
        class Transposed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embedding, self.attention = nn.Embedding(29, D), nn.MultiheadAttention(D, H)

            def forward(self, ids: Tensor) -> Tensor:
                x = self.embedding(ids.transpose(0, 1).contiguous())
                return self.attention(x, x, x)[0].transpose(0, 1)

        ids = torch.randint(29, (batch, 5))
        assert list(attn_guard.check(seeded(Transposed), ids)) == []

    @settings(max_examples=16, deadline=None, derandomize=True)
    @given(st.sampled_from(sorted(STYLES)), st.integers(1, 7), st.integers(1, 7))
    def test_sizes_that_coincide(self, style: str, batch: int, time: int) -> None:
        report = attn_guard.check(seeded(STYLES[style]), features(batch, time), preview=True)
        assert list(report) == [], str(report)

    def test_samples_laid_end_to_end_under_a_mask_of_blocks(self) -> None:
        class Packed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.attention = nn.MultiheadAttention(D, H, batch_first=True)

            def forward(self, x: Tensor) -> Tensor:
                batch, time, width = x.shape
                own = torch.arange(batch).repeat_interleave(time)
                x = x.reshape(1, batch * time, width)
                return self.attention(x, x, x, attn_mask=own[:, None] != own)[0].view(batch, time, width)

        assert "ATN305" not in attn_guard.check(seeded(Packed)).codes
