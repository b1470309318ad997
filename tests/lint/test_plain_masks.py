"""Masks that a constructor keeps as plain attributes."""

from __future__ import annotations

import pytest

from tests.lint.sources import attention
from tests.lint.test_masks import codes

READ = "scores = scores.masked_fill(self.keep[:t, :t] == 0, -1e9)"
BUFFER = 'self.register_buffer("keep", torch.tril(torch.ones(64, 64)))'


def kept(statement: str, read: str = READ) -> str:
    """A module whose constructor keeps its mask by ``statement``."""
    return attention(then=read).replace(BUFFER, statement)


@pytest.mark.parametrize(
    "statement",
    [
        "self.keep = torch.tril(torch.ones(64, 64))",
        "self.keep = torch.ones(64, 64).tril().view(1, 1, 64, 64)[0, 0]",
        "keep = torch.ones(64, 64).tril()\n        self.keep = keep.bool()",
        "self.keep = torch.arange(64)[None, :] <= torch.arange(64)[:, None]",
    ],
)
def test_mask_that_stays_behind_is_found(statement: str) -> None:
    assert codes(kept(statement)) == ["ATN220"]


@pytest.mark.parametrize(
    "statement",
    [
        BUFFER,
        "self.register_buffer('keep', torch.tril(torch.ones(64, 64)), persistent=False)",
        "self.keep = nn.Parameter(torch.tril(torch.ones(64, 64)), requires_grad=False)",
        "self.keep = nn.Buffer(torch.tril(torch.ones(64, 64)))",
        "self.keep = torch.tril(torch.ones(64, 64)).to(device)",
        "self.keep = torch.tril(torch.ones(64, 64, device=device))",
        "self.keep = torch.tril(torch.ones(64, 64)).cuda()",
        "self.keep = np.tril(np.ones((64, 64)))",
        "self.keep = keep",
        "self.keep = None",
    ],
)
def test_mask_that_moves_or_has_its_place_is_fine(statement: str) -> None:
    assert "ATN220" not in codes(kept(statement))


@pytest.mark.parametrize(
    "read",
    [
        "scores = scores.masked_fill(self.keep[:t, :t].to(x.device) == 0, -1e9)",
        "keep = self.keep[:t, :t]\nkeep = keep.type_as(scores)\nscores = scores.masked_fill(keep == 0, -1e9)",
        "self.keep = self.keep.cuda()\n" + READ,
        "",
    ],
)
def test_mask_that_is_moved_where_it_is_read_or_never_read_is_fine(read: str) -> None:
    assert "ATN220" not in codes(kept("self.keep = torch.tril(torch.ones(64, 64))", read))


def test_class_that_is_no_module_or_moves_its_masks_itself_is_fine() -> None:
    source = kept("self.keep = torch.tril(torch.ones(64, 64))")
    assert codes(source.replace("(nn.Module)", "")) == []
    moving = "def _apply(self, fn):\n        return super()._apply(fn)\n\n    def forward"
    assert codes(source.replace("def forward", moving)) == []
