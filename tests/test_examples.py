"""The walkthroughs run, and print what the text beside them promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"

CHAIN = (
    "x (2,5,64) → qkv (2,5,192) → heads (2,8,5,8) → scores (2,8,5,5) ·0.3536 → mask -inf → softmax "
    "→ context (2,8,5,8) → merge (2,5,64) → out (2,5,64)"
)


def test_the_shapes_walkthrough_prints_staircase_shapes_and_chain() -> None:
    script = EXAMPLES / "walkthroughs" / "shapes.py"
    run = subprocess.run(
        [sys.executable, str(script)], capture_output=True, encoding="utf-8", env=_utf8(), timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "[1, 0, 0, 0, 0],\n        [1, 1, 0, 0, 0]" in run.stdout
    assert "output  (2, 5, 64)" in run.stdout
    assert "weights (2, 8, 5, 5)" in run.stdout
    assert CHAIN in run.stdout
    assert "no mistakes found in 1 attention site" in run.stdout


def _utf8() -> dict[str, str]:
    return {**os.environ, "PYTHONIOENCODING": "utf-8"}
