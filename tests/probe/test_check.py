"""`check` as a whole: the twins, severities, selection, silencing, and modules that cannot be called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from attn_guard.errors import UsageError
from attn_guard.findings import Detector, Finding, Report, Severity
from attn_guard.gotchas.registry import entries
from attn_guard.reference import MultiHeadAttention
from tests.gotchas.twins import NAMES, build, inputs, marked_lines, source
from tests.probe.modules import CAUSAL_STYLES, STYLES, Block, D, Decoder, FusedQkv, features, later, seeded
from tests.probe.silent_modules import Core, Encoder, Parts

HERE = Path(__file__)


def failing(report: Report) -> list[Finding]:
    return [finding for finding in report if finding.fails]


def of_twin(report: Report, code: str) -> list[Finding]:
    """What a broken twin is reported for: findings that fail, or all of them where its own is only a remark."""
    return list(report) if entries()[code].gotcha.severity is Severity.INFO else failing(report)


PROBED = [name for name in NAMES if Detector.PROBE in entries()[name[:6].upper()].detectors]


def checked(kind: str, name: str, seed: int = 0) -> Report:
    select = ["ALL", name[:6].upper()]  # its own also where it only runs on request
    return attn_guard.check(build(kind, name), *inputs(kind, name), select=select, preview=True, seed=seed)


class TestTwins:
    @pytest.mark.parametrize("name", PROBED)
    def test_the_broken_one_has_one_finding_on_a_marked_line(self, name: str) -> None:
        code = name[:6].upper()
        report = checked("broken", name)
        (found,) = of_twin(report, code)
        assert found.code == code
        assert marked_lines(source("broken", name)).get(found.location.line) == code
        assert Path(found.location.path).name == f"{name}.py"
        assert found.detector is Detector.PROBE
        assert found.reproduce
        assert code not in found.consequences
        assert report.ok is (entries()[code].gotcha.severity is Severity.INFO)

    @pytest.mark.parametrize("name", PROBED)
    def test_the_fixed_one_is_clean(self, name: str) -> None:
        report = checked("fixed", name)
        assert list(report) == [], str(report)
        assert report.ok
        assert report.sites

    @pytest.mark.parametrize("name", PROBED)
    @pytest.mark.parametrize("seed", [1, 2, 3])
    @pytest.mark.slow
    def test_any_seed_gives_the_same(self, name: str, seed: int) -> None:
        code = name[:6].upper()
        assert [found.code for found in of_twin(checked("broken", name, seed), code)] == [code]
        assert checked("fixed", name, seed).ok


class Leaking(Encoder):
    """No mask, whatever was promised."""


class Unscaled(Core):
    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT  # marked unscaled


class UnscaledAndOpen(Unscaled):
    def hide(self, scores: Tensor) -> Tensor:
        return scores


class TestSelection:
    def test_select(self) -> None:
        module = seeded(UnscaledAndOpen)
        assert set(attn_guard.check(module, causal=True).codes) == {"ATN101", "ATN214"}
        assert set(attn_guard.check(module, causal=True, select=["ATN101"]).codes) == {"ATN101"}
        assert set(attn_guard.check(module, causal=True, select=["ATN2"]).codes) == {"ATN214"}
        assert set(attn_guard.check(module, causal=True, select=["ALL"]).codes) == {"ATN101", "ATN214"}

    def test_ignore(self) -> None:
        module = seeded(UnscaledAndOpen)
        assert set(attn_guard.check(module, causal=True, ignore=["ATN1"]).codes) == {"ATN214"}
        assert attn_guard.check(module, causal=True, ignore=["ATN101", "ATN214"]).ok

    @pytest.mark.parametrize("argument", ["select", "ignore"])
    def test_an_unknown_code(self, argument: str) -> None:
        options: dict[str, Any] = {argument: ["ATN999"]}
        with pytest.raises(UsageError, match="ATN999"):
            attn_guard.check(seeded(FusedQkv), **options)


class TestSeverity:
    def test_a_broken_declared_promise_is_an_error(self) -> None:
        (found,) = attn_guard.check(seeded(Leaking), causal=True)
        assert (found.code, found.severity) == ("ATN214", Severity.ERROR)

    def test_a_broken_inferred_promise_is_a_warning_with_its_evidence(self) -> None:
        module = seeded(Leaking)
        module.is_causal = True  # type: ignore[assignment]
        report = attn_guard.check(module)
        (found,) = report
        assert (found.code, found.severity) == ("ATN214", Severity.WARNING)
        assert any("is_causal is True" in note for note in report.assumptions)

    def test_a_declared_contradiction_of_the_evidence_wins(self) -> None:
        module = seeded(Leaking)
        module.is_causal = True  # type: ignore[assignment]
        report = attn_guard.check(module, causal=False)
        assert list(report) == []
        assert not any(note.startswith("causal") for note in report.assumptions)

    def test_the_contract_of_the_class_is_declared(self) -> None:
        @attn_guard.contract(causal=True)
        class Promising(Encoder):
            pass

        (found,) = attn_guard.check(seeded(Promising))
        assert (found.code, found.severity) == ("ATN214", Severity.ERROR)
        assert attn_guard.check(seeded(Promising), causal=False).ok

    def test_a_declared_scale_is_right(self) -> None:
        class MuP(Core):
            def scores(self, q: Tensor, k: Tensor) -> Tensor:
                return q @ k.mT / q.shape[-1]

        (found,) = attn_guard.check(seeded(MuP), causal=True)
        assert found.code == "ATN102"
        assert attn_guard.check(seeded(MuP), causal=True, scale=1 / 7).ok
        assert not attn_guard.check(seeded(MuP), causal=True, scale=1 / 5).ok

    def test_a_leak_is_drawn(self) -> None:
        (found,) = attn_guard.check(seeded(Leaking), features(time=3), causal=True)
        assert found.leak_map == ((1, 2, 2), (1, 1, 2), (1, 1, 1))


class TestSilenced:
    def test_by_a_comment_on_the_blamed_line(self) -> None:
        class Commented(Core):
            def scores(self, q: Tensor, k: Tensor) -> Tensor:
                return q @ k.mT  # attn-guard: ignore[ATN101] a test of the comment

        report = attn_guard.check(seeded(Commented), causal=True)
        assert report.ok
        assert [found.code for found in report.suppressed] == ["ATN101"]

    def test_not_by_a_comment_for_another_code(self) -> None:
        class Commented(Core):
            def scores(self, q: Tensor, k: Tensor) -> Tensor:
                return q @ k.mT  # attn-guard: ignore[ATN201] another code

        assert set(attn_guard.check(seeded(Commented), causal=True).codes) == {"ATN101"}

    def test_by_the_class(self) -> None:
        @attn_guard.allow("ATN101", "a test of the decorator")
        class Allowed(Unscaled):
            pass

        report = attn_guard.check(seeded(Allowed), causal=True)
        assert report.ok
        assert [found.code for found in report.suppressed] == ["ATN101"]


class TestWholeModels:
    def test_each_site_has_its_module_path(self) -> None:
        report = attn_guard.check(seeded(Decoder, layers=3))
        assert [site.name for site in report.sites] == [f"blocks.{layer}.attn" for layer in range(3)]

    def test_a_finding_names_the_module_that_is_to_blame(self) -> None:
        model = seeded(Decoder, layers=3)
        model.get_submodule("blocks.1").attn = seeded(Unscaled)
        (found,) = attn_guard.check(model)
        assert (found.code, found.location.module) == ("ATN101", "blocks.1.attn")

    def test_a_leak_is_placed_at_the_first_site_that_looks_ahead(self) -> None:
        model = nn.Sequential(*(Block(seeded(build)) for build in (CAUSAL_STYLES["fused qkv"], Leaking, Core)))
        (found,) = attn_guard.check(model, causal=True)
        assert (found.code, found.location.module) == ("ATN214", "1.attn")

    def test_a_leak_outside_attention_is_placed_where_it_enters(self) -> None:
        class Shifting(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.attn = Core()

            def forward(self, x: Tensor) -> Tensor:
                x = x + x.roll(-1, dims=1)  # marked shift
                attended: Tensor = self.attn(x)
                return attended

        (found,) = attn_guard.check(seeded(Shifting), causal=True)
        assert found.code == "ATN405"
        marked = [n for n, line in enumerate(HERE.read_text().splitlines(), 1) if line.endswith("# marked shift")]
        assert found.location.line == marked[0]


class TestCannotBeCalled:
    @pytest.mark.parametrize("thing", [nn.Linear, "model", None, lambda x: x])
    def test_what_is_no_module(self, thing: Any) -> None:
        with pytest.raises(UsageError, match=r"check\(\) takes a torch.nn.Module, got .+; build the module first"):
            attn_guard.check(thing)

    def test_a_note_says_what_was_tried(self) -> None:
        class Picky(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = nn.Linear(D, D)

            def forward(self, x: Tensor) -> Tensor:
                raise RuntimeError("only ever at night")

        report = attn_guard.check(Picky())
        (note,) = report
        assert (note.code, note.severity) == ("ATN903", Severity.INFO)
        assert report.ok
        assert any("float32[3, 5, 21]" in line and "only ever at night" in line for line in note.notes)
        assert "args=" in note.help

    def test_a_module_that_takes_nothing_is_called_with_nothing(self) -> None:
        class Closed(nn.Module):
            def forward(self) -> Tensor:
                return torch.ones(1)

        report = attn_guard.check(Closed())
        assert report.sites == ()
        assert report.ok

    def test_given_arguments_that_do_not_fit(self) -> None:
        (note,) = attn_guard.check(seeded(FusedQkv), features(width=D + 1))
        assert note.code == "ATN903"
        assert any("float32[2, 5, 22]" in line for line in note.notes)

    def test_a_module_without_attention_is_clean(self) -> None:
        report = attn_guard.check(nn.Sequential(nn.Linear(D, D), nn.ReLU()))
        assert report.ok
        assert report.sites == ()


class TestReport:
    def test_ok_and_title(self) -> None:
        report = attn_guard.check(seeded(FusedQkv))
        assert report.ok
        assert report.title == "FusedQkv"
        assert "FusedQkv" in str(report)

    def test_the_reproduce_line_shows_the_call(self) -> None:
        (found,) = attn_guard.check(seeded(Unscaled), features(2, 5), causal=True, seed=3)
        assert found.reproduce == "Unscaled(float32[2, 5, 21]), float32 on cpu, eval mode, seed 3"

    def test_the_same_seed_gives_the_same_report(self) -> None:
        module = seeded(UnscaledAndOpen)
        assert attn_guard.check(module, causal=True) == attn_guard.check(module, causal=True)

    def test_every_style_of_calling(self) -> None:
        module = seeded(STYLES["fused qkv"])
        x = features()
        calls: list[tuple[Any, Any]] = [(x, None), ((x,), None), ([x], None), (None, {"x": x})]
        for args, kwargs in calls:
            assert len(attn_guard.check(module, args, kwargs).sites) == 1


class TestAssertSound:
    def test_raises_with_the_report(self) -> None:
        with pytest.raises(attn_guard.AttentionFault, match="ATN214") as raised:
            attn_guard.assert_sound(seeded(Leaking), causal=True)
        assert raised.value.report.codes == {"ATN214": 1}

    def test_passes_what_is_right(self) -> None:
        attn_guard.assert_sound(seeded(Core), causal=True)

    def test_passes_a_module_that_cannot_be_called(self) -> None:
        attn_guard.assert_sound(seeded(FusedQkv), features(width=2))


class TestMaskPromises:
    """``key_padding_mask`` reaches the scores in one of three forms, or not at all."""

    def module(self, use: str) -> nn.Module:
        class Padded(Parts):
            def forward(self, x: Tensor, pads: Tensor) -> Tensor:
                q, k, v = self.heads(x)
                scores = self.scores(q, k)
                if use != "never":
                    hidden = pads if use == "ignore" else ~pads
                    scores = scores.masked_fill(hidden[:, None, None], -torch.inf)
                return self.merge(scores.softmax(-1) @ v)

        return seeded(Padded)

    @pytest.mark.parametrize(
        ("use", "promise", "code"),
        [
            ("ignore", "ignore", None),
            ("attend", "attend", None),
            ("ignore", "attend", "ATN205"),
            ("attend", "ignore", "ATN205"),
            ("never", "ignore", "ATN212"),
            ("never", "attend", "ATN212"),
        ],
    )
    def test_use_against_promise(self, use: str, promise: Any, code: str | None) -> None:
        report = attn_guard.check(self.module(use), masks={"pads": promise})
        assert [found.code for found in failing(report)] == ([code] if code else [])

    def test_a_causal_mask_upside_down(self) -> None:
        class UpsideDown(Core):
            def hide(self, scores: Tensor) -> Tensor:
                return scores.masked_fill(later(scores.shape[-1]).mT, -torch.inf)

        (found,) = failing(attn_guard.check(seeded(UpsideDown), causal=True))
        assert found.code == "ATN205"


def test_a_module_on_the_meta_device_is_a_note() -> None:
    report = attn_guard.check(MultiHeadAttention(64, 8).to("meta"))
    assert [finding.code for finding in report] == ["ATN903"]
    assert "meta device" in report.findings[0].notes[0]


def test_a_compiled_module_is_probed_as_it_is_written() -> None:
    attention = MultiHeadAttention(64, 8)
    compiled = torch.compile(attention, backend="eager")
    assert isinstance(compiled, nn.Module)
    report = attn_guard.check(compiled, (torch.randn(2, 5, 64),), causal=True)
    assert [finding.code for finding in report] == ["ATN214"]
    assert report.findings[0].location.path.endswith("reference.py")
