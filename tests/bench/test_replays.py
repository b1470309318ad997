"""The table of public faults agrees with the targets, and files are loaded as they stand."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import nn

from attn_guard.gotchas import registry
from tests.bench.replays import targets
from tests.bench.replays.faults import FAULTS, Fault
from tests.bench.replays.kit import Files, trained

RUNS = [fault for fault in FAULTS if not fault.declined]
BENCH = Path(__file__).parent / "replays"

SOURCE = """
from collections import namedtuple
import not_installed
from .neighbour import Linear, helper

Sizes = namedtuple("Sizes", ["width"])
not_installed.start()
raise_when_run = open("no such file")

class Layer(not_installed.Base):
    def __init__(self):
        super().__init__()
        self.sizes = Sizes(3)
        self.linear = Linear(3, 3)

    def forward(self, x):
        return self.linear(x)

class Layer(nothing.at.all):
    pass
"""


def test_every_fault_is_pinned_once() -> None:
    assert len({fault.id for fault in FAULTS}) == len(FAULTS)
    assert all(len(fault.commit) == 40 and fault.files for fault in FAULTS)


@pytest.mark.parametrize("fault", RUNS, ids=lambda fault: fault.id)
def test_every_fault_that_runs_has_a_target_and_a_code_of_ours(fault: Fault) -> None:
    target = import_module(f"{targets.__name__}.{fault.id.lower()}")
    args, kwargs = target.inputs()
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    assert tensors
    assert all(value.numel() for value in tensors)
    assert set(fault.codes) <= set(registry.entries())
    assert fault.lines


def test_every_target_belongs_to_a_fault() -> None:
    assert {path.stem.upper() for path in (BENCH / "targets").glob("b*.py")} == {fault.id for fault in RUNS}


def test_lines() -> None:
    fault = Fault("B000", "kind", "owner/name", "0" * 40, ("a.py",), ("ATN101",), "3,7-9")
    assert [line for line in range(12) if fault.points_to(line)] == [3, 7, 8, 9]


def test_definitions_run_and_scripts_do_not(tmp_path: Path) -> None:
    (tmp_path / "layer.py").write_text(SOURCE, encoding="utf-8")
    module = Files(tmp_path).load("layer.py", given={"Linear": nn.Linear}, first=True)
    layer = module.Layer()
    assert layer(torch.ones(2, 3)).shape == (2, 3)
    assert layer.sizes.width == 3
    assert layer.forward.__code__.co_filename == str(tmp_path / "layer.py")
    assert layer.forward.__code__.co_firstlineno == SOURCE[: SOURCE.index("def forward")].count("\n") + 1


def test_the_cells_of_a_notebook(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Attention"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "SIZE = 3"]},
        {"cell_type": "code", "source": ["def size():\n", "    return SIZE"]},
    ]
    (tmp_path / "notebook.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    module = Files(tmp_path).load("notebook.ipynb")
    assert module.size() == 3
    assert module.size.__code__.co_firstlineno == 6


def test_trained_parameters_are_not_zero() -> None:
    layer = nn.Linear(3, 3)
    nn.init.zeros_(layer.weight)
    bias = layer.bias.clone()
    trained(layer, "weight")
    assert bool((layer.weight != 0).all())
    assert torch.equal(layer.bias, bias)


def test_the_list_says_what_to_fetch() -> None:
    shown = subprocess.run(
        [sys.executable, str(BENCH), "--list", "B005"], capture_output=True, text=True, check=True
    ).stdout
    assert shown.split()[:2] == ["B005", "facebookresearch/xformers"]
