"""The registry loads what is complete, refuses what is not in words, and selects what a run asks for."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import attn_guard.gotchas as package
from attn_guard.errors import UsageError
from attn_guard.findings import Detector, Finding
from attn_guard.gotchas import Gotcha, registry
from attn_guard.gotchas.registry import SECTIONS, Entry, IncompleteGotcha, entries, examples, read
from tests.gotchas.twins import NAMES

NAME = "atn299_mask_made_of_cheese"
KINDS = ("check", "lint", "probe")
GOTCHA = Gotcha(code="ATN299", name="mask-made-of-cheese", summary="mask is edible", fix="take another one")
PAGE = "One sentence.\n\n" + "\n\n".join(f"{section}\n{'-' * len(section)}\ntext" for section in SECTIONS)


def nothing(_: Any) -> Iterator[Finding]:
    yield from ()


def module(name: str = NAME, **attributes: object) -> ModuleType:
    """A complete gotcha file, but for what ``attributes`` change; None takes an attribute away."""
    made = ModuleType(f"attn_guard.gotchas.{name}", PAGE)
    for key, value in {"GOTCHA": GOTCHA, "check": nothing, **attributes}.items():
        if value is not None:
            setattr(made, key, value)
    return made


@pytest.fixture
def twins(tmp_path: Path) -> Path:
    for kind in ("broken", "fixed"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / f"{NAME}.py").touch()
    return tmp_path


class TestTheGotchasThatShip:
    def test_all_are_found_in_the_order_of_their_codes(self) -> None:
        assert list(entries()) == sorted(name[:6].upper() for name in NAMES)

    def test_every_code_and_name_is_used_once(self) -> None:
        gotchas = [entry.gotcha for entry in entries().values()]
        assert len({gotcha.code for gotcha in gotchas}) == len({gotcha.name for gotcha in gotchas}) == len(gotchas)

    def test_no_twin_is_left_without_a_gotcha(self) -> None:
        for kind in ("broken", "fixed"):
            files = {path.stem for path in (examples() / kind).glob("*.py")}
            assert files == {entry.broken.stem for entry in entries().values()}

    def test_they_load_without_torch_and_libcst_and_without_docstrings(self) -> None:
        script = (
            "import sys; from attn_guard.gotchas.registry import entries; print(len(entries()));"
            "print([heavy for heavy in ('torch', 'libcst', 'numpy') if heavy in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-OO", "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.split("\n")[:2] == [str(len(NAMES)), "[]"]


class TestReading:
    def test_a_complete_file(self, twins: Path) -> None:
        entry = read(module(), twins)
        assert entry.gotcha is GOTCHA
        assert entry.page == PAGE
        assert (entry.broken, entry.fixed) == (twins / "broken" / f"{NAME}.py", twins / "fixed" / f"{NAME}.py")
        assert entry.check is nothing
        assert entry.lint is entry.probe is None

    @pytest.mark.parametrize(
        ("functions", "detectors"),
        [
            (["check"], (Detector.LINT, Detector.PROBE)),
            (["lint"], (Detector.LINT,)),
            (["probe"], (Detector.PROBE,)),
            (["lint", "probe"], (Detector.LINT, Detector.PROBE)),
        ],
    )
    def test_its_functions_say_which_readers_find_it(
        self, twins: Path, functions: list[str], detectors: tuple[Detector, ...]
    ) -> None:
        changes: dict[str, Any] = {kind: nothing if kind in functions else None for kind in KINDS}
        entry = read(module(**changes), twins)
        assert entry.detectors == detectors

    @pytest.mark.parametrize("constant", [None, "ATN299"])
    def test_a_file_without_its_constant_is_refused(self, twins: Path, constant: object) -> None:
        with pytest.raises(IncompleteGotcha, match=f"{NAME}: has no GOTCHA"):
            read(module(GOTCHA=constant), twins)

    @pytest.mark.parametrize(
        "name", ["atn298_mask_made_of_cheese", "atn299_mask_of_cheese", "atn299-mask-made-of-cheese"]
    )
    def test_a_file_under_another_name_is_refused_and_told_the_right_one(self, twins: Path, name: str) -> None:
        with pytest.raises(IncompleteGotcha, match=rf"{name}: .*ATN299.* belongs in {NAME}\.py"):
            read(module(name), twins)

    @pytest.mark.parametrize("section", SECTIONS)
    def test_a_missing_section_is_named(self, twins: Path, section: str) -> None:
        made = module()
        made.__doc__ = PAGE.replace(section, "Remarks")
        with pytest.raises(IncompleteGotcha, match=rf"docstring lacks the section\(s\) {section}$"):
            read(made, twins)

    def test_a_section_without_its_underline_is_missing(self, twins: Path) -> None:
        made = module()
        made.__doc__ = PAGE.replace("Example\n-------", "Example")
        with pytest.raises(IncompleteGotcha, match=r"lacks the section\(s\) Example$"):
            read(made, twins)

    def test_all_missing_sections_are_named_at_once(self, twins: Path) -> None:
        made = module()
        made.__doc__ = None
        with pytest.raises(IncompleteGotcha, match=", ".join(SECTIONS)):
            read(made, twins)

    def test_a_file_without_any_check_is_refused(self, twins: Path) -> None:
        with pytest.raises(IncompleteGotcha, match=f"{NAME}: has none of check"):
            read(module(check=None), twins)

    @pytest.mark.parametrize("kind", ["broken", "fixed"])
    def test_a_missing_twin_is_named(self, twins: Path, kind: str) -> None:
        (twins / kind / f"{NAME}.py").unlink()
        with pytest.raises(IncompleteGotcha, match=f"twin example {kind}/{NAME}.py is missing"):
            read(module(), twins)

    def test_a_code_that_is_taken_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = [info for info in pkgutil.iter_modules(package.__path__) if info.name.startswith("atn")]
        monkeypatch.setattr(pkgutil, "iter_modules", lambda _: [*found, found[0]])
        with pytest.raises(IncompleteGotcha, match=r"code ATN101 is taken by missing-scale"):
            entries.__wrapped__()


class TestSelecting:
    @pytest.fixture(autouse=True)
    def _some_gotchas(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def entry(code: str, *functions: str, preview: tuple[Detector, ...] = (), on_request: bool = False) -> Entry:
            gotcha = Gotcha(code, code.lower(), "wrong", "right it", preview=preview, on_request=on_request)
            check, lint, probe = (nothing if kind in functions else None for kind in KINDS)
            return Entry(gotcha, PAGE, Path("broken.py"), Path("fixed.py"), check, lint, probe)

        known: Mapping[str, Entry] = {
            "ATN101": entry("ATN101", "check"),
            "ATN201": entry("ATN201", "check"),
            "ATN204": entry("ATN204", "lint", "probe", preview=(Detector.LINT,)),
            "ATN210": entry("ATN210", "probe"),
            "ATN220": entry("ATN220", "lint"),
            "ATN801": entry("ATN801", "lint", on_request=True),
        }
        monkeypatch.setattr(registry, "entries", lambda: known)

    @staticmethod
    def codes(*select: str, ignore: tuple[str, ...] = (), preview: bool = False, detector: str = "lint") -> list[str]:
        chosen = registry.select(select, ignore, preview=preview, detector=Detector(detector))
        return [entry.gotcha.code for entry in chosen]

    def test_by_default_each_reader_runs_all_that_is_stable_and_its_own(self) -> None:
        assert self.codes() == ["ATN101", "ATN201", "ATN220"]
        assert self.codes(detector="probe") == ["ATN101", "ATN201", "ATN204", "ATN210"]

    def test_a_full_code(self) -> None:
        assert self.codes("ATN201") == ["ATN201"]
        assert self.codes("ATN220", "ATN101") == ["ATN101", "ATN220"]

    def test_a_code_of_the_other_reader_is_known_and_selects_nothing(self) -> None:
        assert self.codes("ATN210") == []

    def test_a_prefix_stands_for_its_group(self) -> None:
        assert self.codes("ATN2") == ["ATN201", "ATN220"]
        assert self.codes("ATN20", detector="probe") == ["ATN201", "ATN204"]

    def test_all(self) -> None:
        assert self.codes("ALL") == ["ATN101", "ATN201", "ATN220"]
        assert self.codes(ignore=("ALL",)) == []

    def test_ignore_wins_over_select(self) -> None:
        assert self.codes("ATN2", ignore=("ATN201",)) == ["ATN220"]
        assert self.codes("ATN201", ignore=("ATN2",)) == []
        assert self.codes(ignore=("ATN2",)) == ["ATN101"]

    def test_preview_turns_on_what_is_not_proven_yet(self) -> None:
        assert self.codes(preview=True) == ["ATN101", "ATN201", "ATN204", "ATN220"]
        assert self.codes("ATN2", preview=True) == ["ATN201", "ATN204", "ATN220"]

    def test_only_a_full_code_selects_a_gotcha_in_preview(self) -> None:
        assert self.codes("ATN204") == ["ATN204"]
        assert self.codes("ATN2") == self.codes("ATN2", "ALL", ignore=("ATN1",)) == ["ATN201", "ATN220"]

    def test_only_a_full_code_selects_advice(self) -> None:
        assert self.codes("ATN801") == self.codes("ATN8", "ATN801") == ["ATN801"]
        assert self.codes("ATN8", preview=True) == []
        assert self.codes("ATN801", ignore=("ATN8",)) == []

    def test_codes_of_the_tool_itself_are_known(self) -> None:
        assert self.codes("ATN900") == self.codes("ATN9") == []
        assert self.codes(ignore=("ATN903",)) == ["ATN101", "ATN201", "ATN220"]

    @pytest.mark.parametrize(
        "unknown", ["ATN999", "ATN5", "AT", "A", "", "E501", "atn201", "ATN2011", "mask-after-softmax"]
    )
    def test_an_unknown_code_is_the_users_error(self, unknown: str) -> None:
        for select, ignore in (([unknown], ()), ((), [unknown]), (["ATN201", unknown], ())):
            with pytest.raises(UsageError, match=rf"unknown code '{unknown}'; `attn-guard rules` lists"):
                registry.select(select, ignore, detector=Detector.LINT)
