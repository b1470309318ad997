"""What is imported when: ``import attn_guard`` and ``attn-guard lint`` never import torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from attn_guard.gotchas.registry import examples

LINT = """
from attn_guard.cli import main
main(["lint", sys.argv[1]])
"""


def loaded(program: str, *arguments: str) -> set[str]:
    """The modules that are loaded when a program ends."""
    code = f"import sys\n{program}\nprint('loaded', *sys.modules)"
    run = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return set(run.stdout.rpartition("loaded ")[2].split())


def test_importing_the_package_is_light() -> None:
    modules = loaded("import attn_guard; attn_guard.contract; attn_guard.lint; attn_guard.Contract")
    assert modules.isdisjoint({"torch", "libcst", "numpy", "attn_guard.gotchas", "attn_guard.report"})


def test_linting_needs_no_torch() -> None:
    modules = loaded(LINT, str(examples() / "broken"))
    assert "libcst" in modules
    assert modules.isdisjoint({"torch", "numpy"})


def test_linting_sound_attention_needs_no_libcst() -> None:
    assert loaded(LINT, str(examples() / "fixed" / "atn201_mask_after_softmax.py")).isdisjoint(
        {"libcst", "torch", "numpy"}
    )


def test_linting_nothing_relevant_needs_no_parser(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("x = 1\n")
    assert "torch" not in loaded(LINT, str(tmp_path))


@pytest.mark.parametrize("command", [["--help"], ["rules"], ["explain", "ATN201"]])
def test_commands_that_only_tell_are_light(command: list[str]) -> None:
    program = f"from attn_guard.cli import main\ntry:\n    main({command!r})\nexcept SystemExit:\n    pass"
    assert loaded(program).isdisjoint({"torch", "libcst"})


def test_every_public_name_can_be_reached() -> None:
    import attn_guard

    for name in attn_guard.__all__:
        assert getattr(attn_guard, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        attn_guard.nothing  # noqa: B018
