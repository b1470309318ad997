"""`flex_attention` shows its scores, masks and softmax like attention that is written out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("torch.nn.attention.flex_attention")
from torch.nn.attention import flex_attention as of_torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

import attn_guard
from attn_guard.probe import flex
from attn_guard.probe.record import record, uncompiled, unfused
from tests.probe.modules import HEAD_DIM, D, H, features, seeded

pytestmark = pytest.mark.skipif(not flex.is_readable(), reason="this torch is too old")

Mod = Callable[..., Tensor]


def earlier(sample: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key


class Flex(nn.Module):
    """Query, key and value through `flex_attention`; what is passed on to it is said by those that inherit."""

    heads_of_keys = H

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.o_proj = nn.Linear(D, D), nn.Linear(D, D)
        self.k_proj, self.v_proj = (nn.Linear(D, self.heads_of_keys * HEAD_DIM) for _ in range(2))
        self.slopes = nn.Parameter(torch.rand(H))

    def forward(self, x: Tensor, pads: Tensor | None = None) -> Tensor:
        q, k, v = (
            proj(x).unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2) for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        context = flex_attention(q, k, v, **self.options(x, pads))
        return self.o_proj(context.transpose(1, 2).flatten(2))

    def options(self, x: Tensor, pads: Tensor | None) -> dict[str, Any]:
        return {}


def blocks(x: Tensor, mod: Mod, samples: int | None = None) -> BlockMask:
    return create_block_mask(mod, samples, None, x.shape[1], x.shape[1], device=str(x.device))


class Causal(Flex):
    def options(self, x: Tensor, pads: Tensor | None) -> dict[str, Any]:
        return {"block_mask": blocks(x, earlier)}


class Grouped(Causal):
    heads_of_keys = 1

    def options(self, x: Tensor, pads: Tensor | None) -> dict[str, Any]:
        return {**super().options(x, pads), "enable_gqa": True}


class Sloped(Causal):
    """A bias that grows with the distance, by a slope for each head."""

    def options(self, x: Tensor, pads: Tensor | None) -> dict[str, Any]:
        def bias(score: Tensor, sample: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return score - self.slopes[head] * (query - key)

        return {**super().options(x, pads), "score_mod": bias}


class Padded(Flex):
    """Keys that are pads are hidden."""

    def options(self, x: Tensor, pads: Tensor | None) -> dict[str, Any]:
        if pads is None:
            return {}
        return {"block_mask": blocks(x, lambda sample, head, query, key: ~pads[sample, key], len(x))}


def found(build: type[nn.Module], *args: Any, **promises: Any) -> list[str]:
    report = attn_guard.check(seeded(build), (features(), *args), **promises)
    assert len(report.sites) == 1
    return [finding.code for finding in report if finding.fails]


PADS = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])


class TestRight:
    @pytest.mark.parametrize("build", [Causal, Grouped, Sloped])
    def test_causal(self, build: type[nn.Module]) -> None:
        assert found(build, causal=True) == []

    def test_padding(self) -> None:
        assert found(Padded, PADS, masks={"pads": "ignore"}) == []

    def test_nothing_is_hidden(self) -> None:
        (site,) = attn_guard.xray(seeded(Flex), features()).sites
        assert site.masks == []
        assert site.scale is not None
        assert site.scale.is_right

    def test_compiled_by_its_author(self) -> None:
        compiled = torch.compile(flex_attention, backend="eager")

        class Compiled(Flex):
            def forward(self, x: Tensor, pads: Tensor | None = None) -> Tensor:
                q, k, v = (proj(x)[:, None] for proj in (self.q_proj, self.k_proj, self.v_proj))
                return self.o_proj(compiled(q, k, v)[:, 0])

        assert found(Compiled) == []


LATE = """
import torch
from torch import nn
import attn_guard

class Late(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        from torch.nn.attention import flex_attention as late
        q, k, v = (proj(x)[:, None] for proj in (self.q_proj, self.k_proj, self.v_proj))
        return late.flex_attention(q, k, v)[:, 0]

report = attn_guard.check(Late(), torch.randn(2, 5, 8), causal=True)
print(len(report.sites), [one.code for one in report])
from torch.nn.attention import flex_attention
print(flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG)
"""


def test_imported_by_the_first_call_itself() -> None:
    told = subprocess.run([sys.executable, "-W", "ignore", "-c", LATE], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == ["1 ['ATN214']", "False"]


@pytest.mark.parametrize("lacking", ["noop_mask", "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"])
def test_a_torch_that_lacks_something_is_left_alone(monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    operator = vars(of_torch)["flex_attention_hop"]
    assert flex.is_flex(operator)
    monkeypatch.delattr(of_torch, lacking)
    assert not flex.is_flex(operator)


class TestWrong:
    def test_no_mask(self) -> None:
        (finding,) = (one for one in attn_guard.check(seeded(Flex), features(), causal=True) if one.fails)
        assert finding.code == "ATN214"
        assert finding.location.path.endswith("test_flex.py")

    def test_one_key_too_many(self) -> None:
        class Late(Flex):
            def options(self, x: Tensor, pads: Tensor | None) -> dict[str, Any]:
                return {"block_mask": blocks(x, lambda sample, head, query, key: query >= key - 1)}

        assert found(Late, causal=True) == ["ATN215"]

    def test_upside_down(self) -> None:
        class Inverted(Flex):
            def options(self, x: Tensor, pads: Tensor | None) -> dict[str, Any]:
                return {"block_mask": blocks(x, lambda sample, head, query, key: query <= key)}

        assert found(Inverted, causal=True) == ["ATN205"]

    def test_a_fill_that_hides_nothing(self) -> None:
        class Weak(Flex):
            def options(self, x: Tensor, pads: Tensor | None) -> dict[str, Any]:
                return {"score_mod": lambda score, sample, head, query, key: torch.where(query >= key, score, 0.0)}

        assert found(Weak, causal=True) == ["ATN203"]

    def test_the_scale(self) -> None:
        class Scaled(Causal):
            def options(self, x: Tensor, pads: Tensor | None) -> dict[str, Any]:
                return {**super().options(x, pads), "scale": D**-0.5}

        assert found(Scaled, causal=True) == ["ATN102"]

    def test_pads_of_the_queries(self) -> None:
        class Rows(Flex):
            def options(self, x: Tensor, pads: Tensor | None) -> dict[str, Any]:
                assert pads is not None
                return {"block_mask": blocks(x, lambda sample, head, query, key: ~pads[sample, query], len(x))}

        assert found(Rows, PADS, masks={"pads": "ignore"}) == ["ATN213"]

    def test_pads_upside_down(self) -> None:
        class Kept(Flex):
            def options(self, x: Tensor, pads: Tensor | None) -> dict[str, Any]:
                assert pads is not None
                return {"block_mask": blocks(x, lambda sample, head, query, key: pads[sample, key], len(x))}

        assert found(Kept, PADS, masks={"pads": "ignore"}) == ["ATN205"]


class Given(Flex):
    """The mask is an argument."""

    def forward(self, x: Tensor, mask: BlockMask) -> Tensor:  # type: ignore[override]
        self.mask = mask
        return super().forward(x)

    def options(self, x: Tensor, pads: Tensor | None) -> dict[str, Any]:
        return {"block_mask": self.mask}


class TestBlockMasksThatAreGiven:
    def test_right(self) -> None:
        assert found(Given, blocks(features(), earlier), causal=True) == []

    def test_one_key_too_many(self) -> None:
        late = blocks(features(), lambda sample, head, query, key: query >= key - 1)
        assert found(Given, late, causal=True) == ["ATN215"]


class Packed(Flex):
    """Several documents in a row, which see themselves alone."""

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:  # type: ignore[override]
        self.ids = ids
        return super().forward(x)

    def options(self, x: Tensor, pads: Tensor | None) -> dict[str, Any]:
        ids = self.ids

        def mod(sample: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (query >= key) & (ids[sample, query] == ids[sample, key])

        return {"block_mask": blocks(x, mod, len(x))}


class TestPacking:
    ids = torch.tensor([[0, 0, 0, 1, 1], [0, 1, 1, 1, 2]])

    def test_right(self) -> None:
        assert found(Packed, self.ids, causal=True, segments="ids") == []

    def test_documents_that_see_each_other(self) -> None:
        class Open(Packed):
            def options(self, x: Tensor, pads: Tensor | None) -> dict[str, Any]:
                return {"block_mask": blocks(x, earlier)}

        assert found(Open, self.ids, causal=True, segments="ids") == ["ATN219"]


class TestNumbers:
    def test_those_of_torch(self) -> None:
        torch.manual_seed(0)
        query, key, value = torch.randn(2, 6, 5, 8), torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 4)
        mask = create_block_mask(lambda sample, head, query, key: query + 2 >= key, None, None, 5, 7, device="cpu")

        def mod(score: Tensor, sample: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return score * (head + 1) + (query - key)

        def called() -> tuple[Tensor, Tensor | None]:
            wanted = of_torch.AuxRequest(lse=True)
            context, aux = flex_attention(query, key, value, mod, mask, 0.3, enable_gqa=True, return_aux=wanted)
            return context, aux.lse

        with torch.no_grad(), uncompiled():
            theirs = called()
            with unfused():
                own = called()
        torch.testing.assert_close(own, theirs)

    def test_blocks_that_are_not_listed_are_not_seen(self) -> None:
        """As in the compiled kernel; torch's own plain path looks at ``mask_mod`` alone."""
        counts, indices = torch.tensor([[[1, 2]]]), torch.tensor([[[[0, 0], [1, 0]]]])
        mask = BlockMask.from_kv_blocks(counts.int(), indices.int(), BLOCK_SIZE=4, seq_lengths=(6, 8))
        assert self.seen_with(mask, 6, 8) == [[True] * 4 + [False] * 4] * 4 + [[True] * 8] * 2

    def test_whole_blocks_are_seen_whatever_the_mask_says(self) -> None:
        none, one, at = torch.tensor([[[0]]]), torch.tensor([[[1]]]), torch.tensor([[[[0]]]])
        mask = BlockMask.from_kv_blocks(
            none.int(), at.int(), one.int(), at.int(), BLOCK_SIZE=4, mask_mod=earlier, seq_lengths=(4, 4)
        )
        assert self.seen_with(mask, 4, 4) == [[True] * 4] * 4

    def seen_with(self, mask: BlockMask, queries: int, keys: int) -> list[list[bool]]:
        class Core(nn.Module):
            def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
                context: Tensor = flex_attention(query, key, value, block_mask=mask)
                return context

        torch.manual_seed(0)
        query, key, value = torch.randn(1, 1, queries, 4), torch.randn(1, 1, keys, 4), torch.eye(keys)[None, None]
        tape = record(Core(), (query, key, value), {})
        assert tape.failure is None
        seen: list[list[bool]] = (tape.values[tape.results()[0]][0, 0] > 0).tolist()
        return seen
