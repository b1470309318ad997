"""Which axis a softmax runs along, and which one the product with the value sums over."""

from __future__ import annotations

import pytest

from attn_guard.anatomy import Axis
from attn_guard.lint.judge import sites_of
from attn_guard.lint.run import lint_source
from tests.lint.sources import forward


def codes(source: str) -> list[str]:
    return [finding.code for finding in lint_source(source, "attention.py")]


def core(scores: str, weights: str, context: str) -> str:
    return forward(f"scores = ({scores}) * self.scale\nweights = {weights}\nreturn self.o({context})")


PLAIN = "q @ k.transpose(-2, -1)"


@pytest.mark.parametrize(
    ("scores", "weights", "context"),
    [
        (PLAIN, "scores.softmax(dim=-2)", "weights @ v"),
        (PLAIN, "scores.softmax(2)", "weights @ v"),
        (PLAIN, "F.softmax(scores, dim=-2)", "torch.matmul(weights, v)"),
        (PLAIN, "torch.softmax(scores.masked_fill(mask, -torch.inf), 2)", "self.drop(weights) @ v"),
        (PLAIN, "nn.functional.softmax(scores, dim=-2, dtype=torch.float32)", "weights.to(v.dtype) @ v"),
        (PLAIN, "nn.Softmax(dim=2)(scores)", "weights @ v"),
        ("einsum('bhid,bhjd->bhij', q, k)", "scores.softmax(2)", "einsum('bhij,bhjd->bhid', weights, v)"),
        ("einsum('bhid,bhjd->bijh', q, k)", "scores.softmax(dim=1)", "einsum('bijh,bhjd->bhid', weights, v)"),
        ("einsum('b h i d, b h j d -> b h i j', q, k)", "scores.softmax(-2)", "weights @ v"),
        ("einsum('...id,...jd->...ij', q, k)", "scores.softmax(-2)", "weights @ v"),
        (
            "torch.bmm(q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2))",
            "scores.softmax(1)",
            "torch.bmm(weights, v.flatten(0, 1))",
        ),
    ],
)
def test_softmax_over_the_queries_is_found(scores: str, weights: str, context: str) -> None:
    (site,) = sites_of(core(scores, weights, context))
    assert (site.softmax_over, site.summed_over) == (Axis.QUERIES, Axis.KEYS)
    assert codes(core(scores, weights, context)) == ["ATN104"]


@pytest.mark.parametrize(
    ("weights", "over"),
    [
        ("scores.softmax(1)", Axis.HEADS),
        ("scores.softmax(dim=-3)", Axis.HEADS),
        ("scores.softmax(0)", Axis.BATCH),
        ("F.softmax(scores)", Axis.HEADS),  # torch takes axis 1 of four
        ("nn.Softmax()(scores)", Axis.HEADS),
    ],
)
def test_softmax_over_heads_or_samples_is_found(weights: str, over: Axis) -> None:
    source = core(PLAIN, weights, "weights @ v")
    (site,) = sites_of(source)
    assert site.softmax_over is over
    assert codes(source) == ["ATN104"]


@pytest.mark.parametrize(
    ("scores", "over"),
    [
        ("apply(q) @ apply(k).transpose(1, 2)", "over the batch"),
        ("torch.matmul(apply(q), apply(k).transpose(2, 3))", "over the heads"),
    ],
)
def test_the_transpose_shows_how_many_axes_there_are(scores: str, over: str) -> None:
    (finding,) = lint_source(core(scores, "F.softmax(scores)", "weights @ apply(v)"), "attention.py")
    assert (finding.code, finding.found) == ("ATN104", over)


def test_softmax_without_dim_over_three_axes_runs_over_the_batch() -> None:
    source = core("torch.bmm(q.flatten(0, 1), k.flatten(0, 1).mT)", "F.softmax(scores)", "weights @ v.flatten(0, 1)")
    (finding,) = lint_source(source, "attention.py")
    assert (finding.code, finding.found) == ("ATN104", "over the batch")


@pytest.mark.parametrize(
    ("scores", "weights", "context"),
    [
        (PLAIN, "scores.softmax(dim=-1)", "weights @ v"),
        (PLAIN, "scores.softmax(3)", "weights @ v"),
        (PLAIN, "nn.Softmax(-1)(scores)", "weights @ v"),
        ("einsum('bihd,bjhd->bijh', q, k)", "scores.softmax(dim=2)", "einsum('bijh,bjhd->bihd', weights, v)"),
        # key · queryᵀ, down its columns
        ("k @ q.transpose(-2, -1)", "scores.softmax(dim=-2)", "weights.transpose(-2, -1) @ v"),
        ("k @ q.mT", "scores.softmax(dim=2)", "v.mT @ weights"),
        # both ways, as in co-attention: each meets the value over the axis that its softmax ran along
        (PLAIN, "scores.softmax(dim=-2).transpose(-2, -1)", "weights @ v"),
        (PLAIN, "scores.transpose(2, 3).softmax(dim=-1)", "weights.mT.transpose(2, 3) @ v"),
        # slot attention: over the queries first, then normalised over the keys
        (PLAIN, "scores.softmax(dim=-2)\nweights = weights / weights.sum(dim=-1, keepdim=True)", "weights @ v"),
        (PLAIN, "F.normalize(scores.softmax(dim=-2) + 1e-8, p=1, dim=-1)", "weights @ v"),
        # values that hold their positions last
        (PLAIN, "scores.softmax(dim=-1)", "v.transpose(-2, -1) @ weights.transpose(-2, -1)"),
        # the number of axes is not known
        ("apply(q) @ apply(k).transpose(1, 2).contiguous()", "F.softmax(scores)", "weights @ apply(v)"),
        ("apply(q) @ apply(k).mT", "scores.softmax(dim=1)", "weights @ apply(v)"),
        ("apply(q) @ apply(k).mT", "F.softmax(scores)", "weights @ apply(v)"),
        (PLAIN, "apply(scores).softmax(dim=-2)", "weights @ v"),
        (PLAIN, "scores[..., 0].softmax(dim=-2)", "weights @ v"),
        (PLAIN, "scores.flatten(1).softmax(dim=-2)", "weights @ v"),
        (PLAIN, "scores.softmax(dim=mask)", "weights @ v"),
        (PLAIN, "Sparse(dim=-2)(scores)", "weights @ v"),
    ],
)
def test_softmax_that_may_run_over_the_keys_is_left_alone(scores: str, weights: str, context: str) -> None:
    assert codes(core(scores, weights, context)) == []


@pytest.mark.parametrize("loss", ["scores.softmax(dim=1)", "scores.softmax(dim=0).log().mean()", "F.softmax(scores)"])
def test_softmax_that_meets_no_value_is_left_alone(loss: str) -> None:
    assert codes(forward(f"scores = q @ k.mT * self.scale\nreturn {loss}")) == []


@pytest.mark.parametrize(
    ("scores", "context"),
    [
        (PLAIN, "weights.transpose(-2, -1) @ v"),
        (PLAIN, "weights.mT @ v"),
        (PLAIN, "torch.einsum('bhkq,bhkd->bhqd', weights, v)"),
        (PLAIN, "v.transpose(-2, -1) @ weights"),
        (PLAIN, "v.permute(0, 1, 3, 2) @ weights.permute(0, 1, 2, 3)"),
        ("torch.einsum('bhqd,bhkd->bhqk', q, k)", "torch.einsum('b h k q, b h k d -> b h q d', weights, v)"),
    ],
)
def test_weights_that_meet_the_value_transposed_are_found(scores: str, context: str) -> None:
    source = core(scores, "scores.softmax(dim=-1)", context)
    (finding,) = lint_source(source, "attention.py")
    assert (finding.code, finding.found) == ("ATN107", "a sum over the queries")
    assert finding.related[0][1] == "softmax over the keys"


def test_the_left_operand_is_the_query_where_the_names_do_not_say() -> None:
    source = core("q @ k.mT", "scores.softmax(dim=-1)", "weights.mT @ v").replace("q, k, v =", "a, b, v =")
    source = source.replace("q @ k.mT", "a @ b.mT")
    assert codes(source) == ["ATN107"]
