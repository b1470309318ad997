"""What each structural check says about sites built by hand: flagged with this code, severity and place, or silent.

Steps stand on the line that their order in the site gives them, unless a test says otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from attn_guard.anatomy import ONE, Factor, Site, Size, Stage, Step, StepKind
from attn_guard.findings import Finding, Location, Severity
from attn_guard.gotchas.registry import entries

ROOT = Factor(0.3780, Size.HEAD_DIM, -0.5, "self.scale")
SIZES = {Size.HEAD_DIM: 7, Size.D_MODEL: 21, Size.HEADS: 3, Size.ALL_HEADS: 21, Size.KEYS: 5}


def step(kind: StepKind, stage: Stage, **attributes: Any) -> Step:
    return Step(kind, stage, Location("model.py", 0), **attributes)


SCORES = step(StepKind.SCORES, Stage.SCORES)
SOFTMAX = step(StepKind.SOFTMAX, Stage.WEIGHTS)
CONTEXT = step(StepKind.CONTEXT, Stage.CONTEXT)
MASK = step(StepKind.MASK, Stage.SCORES)
LATE_MASK = step(StepKind.MASK, Stage.WEIGHTS)
BIAS = step(StepKind.BIAS, Stage.SCORES)
DROPOUT = step(StepKind.DROPOUT, Stage.WEIGHTS)
RENORMALISED = step(StepKind.NORM, Stage.WEIGHTS)


def dropped(mask: Step) -> Step:
    return replace(mask, used=False)


def filled(fill: float | None) -> Step:
    return replace(MASK, fill=fill)


def scaled(factor: Factor | None, stage: Stage = Stage.SCORES) -> Step:
    return step(StepKind.SCALE, stage, factor=factor)


def site(*steps: Step, **attributes: Any) -> Site:
    """A site whose steps stand on lines 1, 2, 3 …, or on the line that they already have."""
    placed = [
        one if one.location.line else replace(one, location=Location("model.py", line))
        for line, one in enumerate(steps, start=1)
    ]
    return Site("attention", tuple(placed), **attributes)


def findings(code: str, checked: Site) -> list[Finding]:
    """What the check of a gotcha yields, with the conventions of every message checked on the way."""
    check = entries()[code].check
    assert check is not None
    found = list(check(checked))
    for finding in found:
        assert finding.code == code
        assert finding.name == entries()[code].gotcha.name
        assert finding.message[0].islower()
        assert finding.help
        assert finding.help not in finding.message
    return found


def only(code: str, checked: Site) -> Finding:
    (finding,) = findings(code, checked)
    return finding


class TestMissingScale:
    def test_scores_without_any_factor(self) -> None:
        finding = only("ATN101", site(SCORES, SOFTMAX, CONTEXT, scale=ONE))
        assert finding.severity is Severity.ERROR
        assert finding.location == Location("model.py", 1)
        assert finding.related == ((Location("model.py", 2), "softmax over the unscaled scores"),)
        assert (finding.expected, finding.found) == ("head_dim**-0.5", "no scale")

    def test_numbers_where_a_run_shows_them(self) -> None:
        finding = only("ATN101", site(SCORES, SOFTMAX, scale=ONE, sizes=SIZES))
        assert (finding.expected, finding.found) == ("head_dim**-0.5 = 0.378", "1")

    @pytest.mark.parametrize(
        "silent",
        [
            pytest.param(site(SCORES, SOFTMAX, scale=None), id="unknown scale"),
            pytest.param(site(SCORES, scaled(ROOT), SOFTMAX, scale=ROOT), id="scaled"),
            pytest.param(site(SCORES, SOFTMAX, scale=ONE, normalised=True), id="query and key normalised"),
            pytest.param(site(SCORES, CONTEXT, scale=ONE), id="linear attention, no softmax"),
            pytest.param(site(SOFTMAX, CONTEXT, scale=ONE), id="weights that are no product of query and key"),
            pytest.param(site(SCORES, SOFTMAX, scale=Factor(value=0.5)), id="some other number"),
            pytest.param(
                site(SCORES, SOFTMAX, scale=Factor(1.0, Size.HEAD_DIM, -0.5), sizes={Size.HEAD_DIM: 1}), id="1"
            ),
        ],
    )
    def test_silent(self, silent: Site) -> None:
        assert findings("ATN101", silent) == []


class TestWrongScale:
    @pytest.mark.parametrize(
        ("size", "power", "message"),
        [
            (Size.D_MODEL, -0.5, "scores are divided by √d_model"),
            (Size.D_MODEL, -1, "scores are divided by d_model"),
            (Size.ALL_HEADS, -0.5, "scores are divided by √(heads * head_dim)"),
            (Size.KEYS, -0.5, "scores are divided by √keys"),
            (Size.HEADS, -0.5, "scores are divided by √heads"),
            (Size.HEAD_DIM, -1, "scores are divided by head_dim without the root"),
            (Size.HEAD_DIM, -0.25, "scores are divided by head_dim**0.25"),
            (Size.HEAD_DIM, 0.5, "scores are multiplied by √head_dim"),
            (Size.HEAD_DIM, 1, "scores are multiplied by head_dim"),
        ],
    )
    @pytest.mark.parametrize("sizes", [{}, SIZES], ids=["source", "run"])
    def test_another_size_or_power_is_named(
        self, size: Size, power: float, message: str, sizes: dict[Size, int]
    ) -> None:
        scale = Factor(sizes[size] ** power if sizes else None, size, power, "self.scale")
        finding = only("ATN102", site(SCORES, scaled(scale), SOFTMAX, scale=scale, sizes=sizes))
        assert finding.severity is Severity.ERROR
        assert finding.message == message
        assert finding.location == Location("model.py", 2)
        assert finding.expected == ("head_dim**-0.5 = 0.378" if sizes else "head_dim**-0.5")
        assert finding.found == str(scale)

    def test_a_number_that_nothing_explains_is_a_warning(self) -> None:
        scale = Factor(value=0.5)
        finding = only("ATN102", site(SCORES, scaled(scale), SOFTMAX, scale=scale, sizes=SIZES))
        assert finding.severity is Severity.WARNING
        assert finding.message == "scores are scaled by a number that matches no size"
        assert (finding.expected, finding.found) == ("head_dim**-0.5 = 0.378", "0.5")

    def test_the_step_with_the_wrong_size_is_blamed(self) -> None:
        scale = Factor(None, Size.D_MODEL, -0.5)
        unknown = scaled(None, Stage.QUERY)
        finding = only("ATN102", site(unknown, SCORES, scaled(scale), SOFTMAX, scale=scale))
        assert finding.location.line == 3

    def test_the_product_is_blamed_where_no_step_scales(self) -> None:
        scale = Factor(None, Size.D_MODEL, -0.5)
        assert only("ATN102", site(MASK, SCORES, SOFTMAX, scale=scale)).location.line == 2

    def test_a_forgotten_root_is_seen_where_no_step_is(self) -> None:
        scale = Factor(1 / 7, Size.HEAD_DIM, -1)
        assert only("ATN102", site(SCORES, SOFTMAX, scale=scale)).found == "head_dim**-1 = 0.1429"

    def test_a_scale_on_the_query_is_blamed_there(self) -> None:
        scale = Factor(None, Size.D_MODEL, -0.5)
        assert only("ATN102", site(scaled(scale, Stage.QUERY), SCORES, SOFTMAX, scale=scale)).location.line == 1

    @pytest.mark.parametrize(
        ("scale", "attributes"),
        [
            pytest.param(None, {}, id="unknown"),
            pytest.param(ONE, {}, id="no scale at all is another gotcha"),
            pytest.param(ROOT, {"sizes": SIZES}, id="right"),
            pytest.param(Factor(None, Size.HEAD_DIM, -0.5), {}, id="right in source"),
            pytest.param(Factor(None, Size.D_MODEL, -0.5), {"normalised": True}, id="learned temperature"),
            pytest.param(Factor(0.0625, text="self.scaling"), {"sizes": SIZES}, id="a design that an attribute states"),
            pytest.param(Factor(0.125), {}, id="a literal, and the head dimension is unknown"),
            pytest.param(Factor(0.37796), {"sizes": SIZES}, id="a literal that is right"),
            pytest.param(Factor(text="self.scale"), {"sizes": SIZES}, id="an attribute of unknown value"),
            pytest.param(Factor(None, Size.D_MODEL, None), {}, id="unknown power"),
            pytest.param(
                Factor(None, Size.D_MODEL, -0.5), {"sizes": {Size.D_MODEL: 7, Size.HEAD_DIM: 7}}, id="one head"
            ),
        ],
    )
    def test_silent(self, scale: Factor | None, attributes: dict[str, Any]) -> None:
        assert findings("ATN102", site(SCORES, scaled(scale), SOFTMAX, scale=scale, **attributes)) == []

    def test_silent_for_the_fourth_root_on_query_and_key(self) -> None:
        quarter = Factor(None, Size.HEAD_DIM, -0.25)
        steps = (scaled(quarter, Stage.QUERY), scaled(quarter, Stage.KEY), SCORES, SOFTMAX)
        assert findings("ATN102", site(*steps, scale=Factor(None, Size.HEAD_DIM, -0.5))) == []

    def test_silent_for_a_scale_applied_twice_which_is_another_mistake(self) -> None:
        root = Factor(None, Size.HEAD_DIM, -0.5)
        steps = (scaled(root, Stage.QUERY), SCORES, scaled(root), SOFTMAX)
        assert findings("ATN102", site(*steps, scale=Factor(None, Size.HEAD_DIM, -1))) == []

    def test_silent_without_a_softmax(self) -> None:
        assert findings("ATN102", site(SCORES, scale=Factor(None, Size.D_MODEL, -0.5))) == []


class TestMaskAfterSoftmax:
    def test_a_mask_on_the_weights_alone(self) -> None:
        finding = only("ATN201", site(SCORES, SOFTMAX, LATE_MASK, CONTEXT))
        assert finding.severity is Severity.ERROR
        assert finding.location == Location("model.py", 3)
        assert finding.related == ((Location("model.py", 2), "normalised here"),)
        assert finding.consequences == ("ATN212", "ATN214")

    def test_several_late_masks_are_one_finding_at_the_first(self) -> None:
        assert only("ATN201", site(SCORES, SOFTMAX, LATE_MASK, LATE_MASK, CONTEXT)).location.line == 3

    def test_a_dropped_mask_on_the_scores_does_not_excuse_it(self) -> None:
        assert only("ATN201", site(SCORES, dropped(MASK), SOFTMAX, LATE_MASK)).location.line == 4

    def test_rows_normalised_once_more_are_a_warning(self) -> None:
        finding = only("ATN201", site(SCORES, SOFTMAX, LATE_MASK, RENORMALISED, CONTEXT))
        assert finding.severity is Severity.WARNING
        assert finding.message == "mask applied after the softmax, and the rows normalised once more"
        assert finding.consequences == ()

    @pytest.mark.parametrize(
        "norm",
        [
            pytest.param((RENORMALISED, LATE_MASK), id="normalised before the mask"),
            pytest.param((LATE_MASK, RENORMALISED, LATE_MASK), id="masked again after it"),
            pytest.param((LATE_MASK, replace(RENORMALISED, used=False)), id="a result that is thrown away"),
            pytest.param((LATE_MASK, step(StepKind.NORM, Stage.CONTEXT)), id="a norm of the context"),
        ],
    )
    def test_another_norm_does_not_mend_it(self, norm: tuple[Step, ...]) -> None:
        assert only("ATN201", site(SCORES, SOFTMAX, *norm, CONTEXT)).severity is Severity.ERROR

    @pytest.mark.parametrize(
        "silent",
        [
            pytest.param(site(SCORES, MASK, SOFTMAX, CONTEXT), id="masked before"),
            pytest.param(site(SCORES, MASK, SOFTMAX, LATE_MASK, CONTEXT), id="zeroed after as well as before"),
            pytest.param(site(SCORES, SOFTMAX, CONTEXT), id="an encoder without a mask"),
            pytest.param(site(SCORES, SOFTMAX, DROPOUT, CONTEXT), id="dropout on the weights"),
            pytest.param(site(SCORES, SOFTMAX, dropped(LATE_MASK), CONTEXT), id="a late mask that is thrown away"),
            pytest.param(site(SCORES, LATE_MASK, CONTEXT), id="linear attention, no softmax"),
            pytest.param(
                site(SCORES, SOFTMAX, CONTEXT, step(StepKind.MASK, Stage.CONTEXT)),
                id="outputs of padded queries zeroed",
            ),
        ],
    )
    def test_silent(self, silent: Site) -> None:
        assert findings("ATN201", silent) == []


class TestMaskWithoutEffect:
    def test_a_mask_of_the_scores_that_is_thrown_away(self) -> None:
        finding = only("ATN202", site(SCORES, dropped(MASK), SOFTMAX, CONTEXT))
        assert finding.severity is Severity.ERROR
        assert finding.message == "result of the mask is thrown away; no key is blocked"
        assert finding.location == Location("model.py", 2)
        assert finding.consequences == ("ATN212", "ATN214")

    def test_a_mask_of_the_weights_that_is_thrown_away_is_not_helped_by_keeping_it(self) -> None:
        finding = only("ATN202", site(SCORES, SOFTMAX, dropped(LATE_MASK), CONTEXT))
        assert finding.severity is Severity.ERROR
        assert finding.help == "mask the scores before the softmax, and keep the result"

    def test_scores_masked_after_the_softmax_has_read_them(self) -> None:
        finding = only("ATN202", site(SCORES, SOFTMAX, dropped(MASK), CONTEXT))
        assert finding.severity is Severity.ERROR
        assert finding.message == "scores are masked after the softmax has read them; no key is blocked"
        assert finding.related == ((Location("model.py", 2), "softmax over the unmasked scores"),)
        assert finding.help == "move the mask before the softmax"

    def test_lines_of_two_files_are_not_compared(self) -> None:
        elsewhere = replace(dropped(MASK), location=Location("masks.py", 99))
        finding = only("ATN202", site(SCORES, elsewhere, SOFTMAX))
        assert finding.message == "result of the mask is thrown away; no key is blocked"

    @pytest.mark.parametrize("other", [MASK, filled(float("-inf"))])
    def test_beside_a_mask_that_takes_effect_it_is_only_a_remark(self, other: Step) -> None:
        finding = only("ATN202", site(SCORES, other, SOFTMAX, dropped(LATE_MASK), CONTEXT))
        assert finding.severity is Severity.INFO
        assert finding.message == "result of this mask is unused"
        assert finding.location.line == 4
        assert finding.related == ((Location("model.py", 2), "the mask that takes effect"),)
        assert finding.help == "delete the statement, if the other mask blocks all that it should"
        assert finding.consequences == ()

    def test_each_dropped_mask_is_a_finding(self) -> None:
        found = findings("ATN202", site(SCORES, dropped(MASK), dropped(MASK), SOFTMAX))
        assert [finding.location.line for finding in found] == [2, 3]

    @pytest.mark.parametrize(
        "silent",
        [
            pytest.param(site(SCORES, MASK, SOFTMAX), id="used"),
            pytest.param(site(SCORES, SOFTMAX), id="no mask"),
            pytest.param(site(SCORES, replace(BIAS, used=False), SOFTMAX), id="something else that is unused"),
        ],
    )
    def test_silent(self, silent: Site) -> None:
        assert findings("ATN202", silent) == []


class TestWeakMaskFill:
    @pytest.mark.parametrize("fill", [0.0, 1e-9, -1e-9, -1e-12, 1.0, 1e9, float("inf"), -10.0, -19.9])
    def test_a_fill_among_ordinary_scores_is_an_error(self, fill: float) -> None:
        finding = only("ATN203", site(SCORES, filled(fill), SOFTMAX, CONTEXT))
        assert finding.severity is Severity.ERROR
        assert finding.location == Location("model.py", 2)
        assert (finding.expected, finding.found) == ("-inf", f"{fill:g}")
        assert f"mask fill {fill:g} " in finding.message
        assert finding.consequences == ("ATN212", "ATN214")

    @pytest.mark.parametrize("fill", [-20.0, -30.0, -49.9])
    def test_a_fill_within_reach_is_a_warning(self, fill: float) -> None:
        finding = only("ATN203", site(SCORES, filled(fill), SOFTMAX, CONTEXT))
        assert finding.severity is Severity.WARNING
        assert finding.consequences == ()

    @pytest.mark.parametrize("fill", [-51.0, -100.0, -1e4])
    def test_a_finite_fill_far_below_is_a_remark(self, fill: float) -> None:
        assert only("ATN203", site(SCORES, filled(fill), SOFTMAX, CONTEXT)).severity is Severity.INFO

    @pytest.mark.parametrize("fill", [None, -10001.0, -1e5, -65504.0, -1e9, -3.4028e38, float("-inf"), float("nan")])
    def test_silent_for_strong_and_unknown_fills(self, fill: float | None) -> None:
        assert findings("ATN203", site(SCORES, filled(fill), SOFTMAX, CONTEXT)) == []

    def test_silent_where_the_weights_meet_no_value(self) -> None:
        assert findings("ATN203", site(SCORES, filled(0.0), SOFTMAX)) == []

    @pytest.mark.parametrize("second", [filled(-1e10), filled(None), BIAS])
    def test_silent_for_a_product_that_an_addition_completes(self, second: Step) -> None:
        assert findings("ATN203", site(SCORES, filled(0.0), second, SOFTMAX, CONTEXT)) == []

    @pytest.mark.parametrize(
        "others",
        [
            pytest.param((filled(-1e9), filled(0.0)), id="the strong one comes before"),
            pytest.param((filled(0.0), dropped(filled(-1e9))), id="the strong one is thrown away"),
            pytest.param((filled(0.0), LATE_MASK), id="the other works on the weights"),
        ],
    )
    def test_a_product_that_nothing_completes(self, others: tuple[Step, ...]) -> None:
        (finding,) = findings("ATN203", site(SCORES, *others, SOFTMAX, CONTEXT))
        assert finding.found == "0"

    def test_a_weak_fill_beside_a_strong_one_is_judged_by_itself(self) -> None:
        assert only("ATN203", site(SCORES, filled(1e-9), filled(-1e9), SOFTMAX, CONTEXT)).location.line == 2

    @pytest.mark.parametrize(
        "silent",
        [
            pytest.param(site(SCORES, MASK, SOFTMAX, replace(LATE_MASK, fill=0.0)), id="weights set to 0"),
            pytest.param(
                site(step(StepKind.MASK, Stage.KEY, fill=0.0), SCORES, SOFTMAX, CONTEXT), id="padded keys set to 0"
            ),
            pytest.param(site(SCORES, SOFTMAX, step(StepKind.MASK, Stage.CONTEXT, fill=0.0)), id="outputs set to 0"),
            pytest.param(
                site(SCORES, dropped(filled(0.0)), SOFTMAX, CONTEXT), id="thrown away, which is another gotcha"
            ),
            pytest.param(site(SCORES, BIAS, SOFTMAX, CONTEXT), id="a relative bias"),
        ],
    )
    def test_silent(self, silent: Site) -> None:
        assert findings("ATN203", silent) == []


@pytest.mark.parametrize(
    ("code", "kind", "stage"),
    [("ATN303", StepKind.SPLIT, Stage.QUERY), ("ATN304", StepKind.MERGE, Stage.CONTEXT)],
)
class TestScrambledHeads:
    HOW = "score (i, j) depends on positions other than i and j"

    def test_a_step_that_scrambles(self, code: str, kind: StepKind, stage: Stage) -> None:
        checked = site(step(kind, stage), step(kind, stage, scrambles=self.HOW), SCORES, SOFTMAX)
        finding = only(code, checked)
        assert finding.severity is Severity.ERROR
        assert finding.location == Location("model.py", 2)
        assert finding.notes == (self.HOW,)
        assert finding.consequences == ("ATN212", "ATN214")

    def test_one_line_that_serves_query_key_and_value_is_one_finding(
        self, code: str, kind: StepKind, stage: Stage
    ) -> None:
        helper = Location("model.py", 40, 16)
        steps = [Step(kind, part, helper, scrambles=self.HOW) for part in (Stage.QUERY, Stage.KEY, Stage.VALUE)]
        assert only(code, site(*steps, SCORES)).location == helper

    def test_each_line_is_a_finding(self, code: str, kind: StepKind, stage: Stage) -> None:
        wrong = step(kind, stage, scrambles=self.HOW)
        assert [finding.location.line for finding in findings(code, site(wrong, wrong, SCORES))] == [1, 2]

    def test_silent_for_clean_and_unused_steps(self, code: str, kind: StepKind, stage: Stage) -> None:
        clean, unused = step(kind, stage), step(kind, stage, scrambles=self.HOW, used=False)
        assert findings(code, site(clean, unused, SCORES, SOFTMAX)) == []

    def test_silent_for_the_step_of_the_other_gotcha(self, code: str, kind: StepKind, stage: Stage) -> None:
        other = StepKind.MERGE if kind is StepKind.SPLIT else StepKind.SPLIT
        assert findings(code, site(step(other, stage, scrambles=self.HOW))) == []


def test_a_sound_site_is_clean_under_every_check() -> None:
    sound = site(
        step(StepKind.SPLIT, Stage.QUERY),
        step(StepKind.SPLIT, Stage.KEY),
        SCORES,
        scaled(ROOT),
        BIAS,
        filled(float("-inf")),
        SOFTMAX,
        DROPOUT,
        CONTEXT,
        step(StepKind.MERGE, Stage.CONTEXT),
        scale=ROOT,
        sizes=SIZES,
    )
    assert [found for code, entry in entries().items() if entry.check for found in findings(code, sound)] == []


def test_nothing_is_known_and_nothing_is_said() -> None:
    assert [found for code, entry in entries().items() if entry.check for found in findings(code, site())] == []
