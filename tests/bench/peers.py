"""Runs four testing libraries for neural networks on the mutants of `tests/bench/mutants`, and prints what they find.

Run, in an environment that has them (``pip install pytest-torch torchtest2 pangolinn neural-net-checklist``):
``python tests/bench/peers.py [--style STYLE] [--guard FILE] [--json FILE]``; FILE of ``--guard`` is what
``python tests/bench/mutants --json FILE`` wrote, for a column beside theirs. ``--reuse FILE`` prints the table again
from a file that ``--json`` wrote.

Each library is used as its documentation says, with the inputs that help it most: a wrapper turns every style into a
module of one sequence and a mask whose 1 means a real token, features are made from ids where a check wants ids, and
outputs at padding are set to zero where a check wants zeros. A check counts as
having found a mutant if it fails there and passes on the right twin; what fails on a right twin is a false alarm.
Checks that train (overfitting a batch, a baseline without inputs) are left out: broken attention learns, too.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import io
import json
import sys
import time
import unittest
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from tests.bench.mutants import fault
from tests.bench.mutants.experiment import keeps
from tests.bench.mutants.fault import Mutant

NEEDED = {
    "pytest-torch": "pytest_torch",
    "torchtest2": "torchtest2",
    "pangolinn": "pangolinn.seq2seq",
    "neural-net-checklist": "neural_net_checklist.torch_diagnostics",
}
IMAGES = ("window", "pixels")
CAUSAL = ("fused", "einsum", "sdpa", "builtin", "grouped", "lm", "local", "generator", "alibi", "linear")
IDS = ("lm", "generator", "classifier")
ABSOLUTE = ("lm", "classifier")
VOCABULARY = 29

# Words of a failure's message that say what is wrong or list it among a few causes.
CAUSES = {
    "ATN104": ("softmax",),
    "ATN302": ("view size is not compatible",),
    "ATN303": ("view", "reshape"),
    "ATN304": ("view", "reshape"),
    "ATN305": ("batch_first",),
    "ATN310": ("view", "reshape"),
    "ATN404": ("batch",),
    "ATN501": ("dropout",),
    "ATN204": ("overflow",),
}


@dataclass(frozen=True)
class Subject:
    """A right style or a mutant of it, as the libraries see it."""

    style: str
    source: ModuleType
    sizes: tuple[tuple[str, int], ...]

    @property
    def main(self) -> int:
        """Position of the argument that the padding speaks of."""
        return 1 if self.style == "cross" else 0

    def __deepcopy__(self, memo: object) -> Subject:
        return self  # some checks copy the module that holds it

    def module(self, embed: bool = False) -> nn.Module:
        return Face(self.source.build(), self, embed=embed).eval()

    def inputs(self) -> dict[str, Tensor]:
        args, _ = self.source.inputs(**{"batch": 3, **dict(self.sizes)})
        found: dict[str, Tensor] = {"x": args[self.main]}
        if hasattr(self.source, "padded"):
            found["attention_mask"] = torch.ones(found["x"].shape[:2], dtype=torch.long)
            found["attention_mask"][::2, -2:] = 0
        if len(args) > 1:
            found["other"] = args[1 - self.main]
        return found

    def ids(self) -> dict[str, Tensor]:
        """The same call with ids in place of features, padded right, left and inside."""
        found = self.inputs()
        shape = found["x"].shape[:2]
        ids = torch.randint(1, VOCABULARY, shape, generator=torch.Generator().manual_seed(2))
        return {**found, "x": ids, "attention_mask": keeps(*shape).long()}


class Face(nn.Module):
    """A style as a module of one sequence, a mask whose 1 means a real token, and another sequence if it takes two.

    embed: the sequence comes as ids also where the style takes features.
    zero_pads: the output is zero at padding.
    """

    def __init__(self, inner: nn.Module, subject: Subject, embed: bool = False, zero_pads: bool = False) -> None:
        super().__init__()
        self.inner, self.subject, self.embed, self.zero_pads = inner, subject, embed, zero_pads

    def forward(self, x: Tensor, attention_mask: Tensor | None = None, other: Tensor | None = None) -> Tensor:
        source, kwargs = self.subject.source, {}
        if attention_mask is not None:
            _, kwargs = source.padded(attention_mask.bool())
        if self.embed and self.subject.style not in IDS:
            width = self.subject.inputs()["x"].shape[-1]
            x = torch.randn(VOCABULARY, width, generator=torch.Generator().manual_seed(4))[x]
        args = [x]
        if other is None and self.subject.style in ("cross", "translator"):
            (first, second), _ = source.inputs()
            other = (first if self.subject.main else second)[:1].expand(x.shape[0], -1, -1)
        if other is not None:
            args.insert(1 - self.subject.main, other)
        output = tree_flatten(self.inner(*args, **kwargs))[0][0]
        assert isinstance(output, Tensor)
        if self.zero_pads and attention_mask is not None:
            output = output * attention_mask[..., None]
        return output


Checks = Iterator[tuple[str, Callable[[], object]]]


def pytest_torch_checks(subject: Subject) -> Checks:
    library = importlib.import_module("pytest_torch")
    inputs, style = subject.inputs(), subject.style

    def loss(output: Tensor, *_: object) -> Tensor:
        return (output * torch.randn(output.shape, generator=torch.Generator().manual_seed(3))).sum()

    for name in ("finite_outputs", "deterministic", "batch_invariance", "no_state_mutation"):
        yield name, functools.partial(library.check_inference_contract, subject.module(), inputs, checks=[name])
    yield (
        "dtype_parity",
        functools.partial(
            library.check_inference_contract,
            subject.module(),
            inputs,
            checks=["dtype_parity"],
            dtypes=(torch.float16,),
            dtype_rtol=0.1,
            dtype_atol=0.1,
        ),
    )
    yield "layout_invariant", functools.partial(library.assert_layout_invariant, subject.module(), inputs)
    yield "gradients_finite", functools.partial(library.assert_gradients_finite, subject.module(), inputs, loss)
    yield "all_params_grad", functools.partial(library.assert_all_params_receive_grad, subject.module(), inputs, loss)
    if "attention_mask" in inputs:
        ids, module = subject.ids(), subject.module(embed=True)
        whole = {**ids, "attention_mask": torch.ones_like(ids["attention_mask"])}
        for side in ("right",) if style in ABSOLUTE else ("right", "left"):
            padding = functools.partial(library.assert_padding_invariant, module, whole, ids_key="x", side=side)
            yield f"padding_invariant {side}", padding
        yield "mask_invariant", functools.partial(library.assert_mask_invariant, module, ids, ids_key="x")
    if style == "separate":
        yield (
            "permutation_equivariant",
            functools.partial(library.assert_permutation_equivariant, subject.module(), inputs),
        )
    if hasattr(subject.source, "decode"):
        model = subject.source.build().eval()
        cache = {"grouped": "past_key_value", "generator": "past_key_values"}[style]
        extra = {"use_cache": True} if style == "grouped" else {}
        yield (
            "streaming_equivalent",
            functools.partial(
                library.assert_streaming_equivalent,
                lambda x: model(x, **extra)[0],
                lambda x, state: model(x, **{cache: state}, **extra),
                inputs["x"],
                chunk_sizes=(1, 3),
                init_state=lambda: None,
            ),
        )


def torchtest2_checks(subject: Subject) -> Checks:
    library = importlib.import_module("torchtest2")
    report = library.check_model(subject.module(), subject.inputs(), skip=["overfit_batch"])
    for result in report.results:
        status = str(getattr(result.status, "value", result.status)).upper()
        if status in ("PASS", "FAIL", "WARN"):
            yield result.name, functools.partial(_raise_unless, status == "PASS", result.message)


def _raise_unless(fine: bool, message: str) -> None:
    if not fine:
        raise AssertionError(message)


PADDING_TESTS: tuple[str, ...] = ("test_padding_area_is_zero", "test_batch_size_does_not_matter")
CAUSAL_TESTS: tuple[str, ...] = ("test_gradient_not_flowing_from_future", "test_not_looking_at_the_future")


def pangolinn_checks(subject: Subject) -> Checks:
    if subject.style in (*IMAGES, "classifier", "cross"):
        return
    seq2seq = importlib.import_module("pangolinn.seq2seq")
    ids = subject.style in IDS

    class Wrapper(seq2seq.PangolinnSeq2SeqModuleWrapper):  # type: ignore[misc, name-defined]
        input_dtype = torch.long if ids else torch.float
        max_value_allowed = VOCABULARY
        num_input_channels = 1 if ids else subject.inputs()["x"].shape[-1]
        num_output_channels = VOCABULARY if ids else num_input_channels

        def build_module(self) -> nn.Module:
            return Face(subject.source.build(), subject, zero_pads=True)

        def forward(self, x: Tensor, lengths: Tensor) -> Any:
            keep = torch.arange(x.shape[1])[None] < lengths[:, None]
            mask = {"attention_mask": keep.long()} if hasattr(subject.source, "padded") else {}
            return self._module(x.squeeze(-1) if ids else x, **mask)

    suites: list[tuple[Any, tuple[str, ...]]] = []
    if hasattr(subject.source, "padded") and subject.style != "translator":
        suites.append((seq2seq.EncoderPaddingTestCase, PADDING_TESTS))
    if subject.style in CAUSAL:
        names = ("test_not_looking_at_the_future",) if ids else CAUSAL_TESTS
        suites.append((seq2seq.CausalTestCase, names))
    for suite, names in suites:
        case = type("Case", (suite,), {"module_wrapper_class": Wrapper})
        for name in names:
            yield name, functools.partial(_unittest, case(name))


def _unittest(case: unittest.TestCase) -> None:
    result = unittest.TestResult()
    case.run(result)
    for _, trace in (*result.failures, *result.errors):
        raise AssertionError(trace)


def checklist_checks(subject: Subject) -> Checks:
    library = importlib.import_module("neural_net_checklist.torch_diagnostics")
    inputs = subject.inputs()["x"]
    batch = (inputs, torch.zeros(len(inputs)))
    yield "forward_batch", functools.partial(library.assert_forward_batch_independence, subject.module, batch)
    yield "non_zero_gradients", lambda: library.assert_non_zero_gradients(subject.module(), batch)
    if subject.style in CAUSAL:
        yield "forward_causal", functools.partial(library.assert_forward_causal_property, subject.module, batch)
    if subject.style not in IDS:  # they read the shape of their ids, which one-hot vectors do not have
        yield "backward_batch", functools.partial(library.assert_backward_batch_independence, subject.module, batch)
        if subject.style in CAUSAL:
            yield "backward_causal", functools.partial(library.assert_backward_causal_property, subject.module, batch)


PEERS: dict[str, Callable[[Subject], Checks]] = {
    "pytest-torch": pytest_torch_checks,
    "torchtest2": torchtest2_checks,
    "pangolinn": pangolinn_checks,
    "neural-net-checklist": checklist_checks,
}


def failures(peer: str, subject: Subject) -> dict[str, str]:
    """Names of the checks that fail → their messages."""
    failed: dict[str, str] = {}
    torch.manual_seed(0)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            for name, check in PEERS[peer](subject):
                try:
                    check()
                except Exception as error:
                    failed[name] = f"{type(error).__name__}: {error}"
        except Exception as error:
            failed["runs at all"] = f"{type(error).__name__}: {error}"
    return failed


@functools.cache
def alarms(peer: str, style: str, sizes: tuple[tuple[str, int], ...]) -> frozenset[str]:
    return frozenset(failures(peer, Subject(style, fault.right(style), sizes)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/bench/peers.py", description=__doc__)
    parser.add_argument("--style", default="", choices=["", *fault.NAMES])
    parser.add_argument("--guard", metavar="FILE", help="results of python tests/bench/mutants --json FILE")
    parser.add_argument("--json", metavar="FILE", help="write every result")
    parser.add_argument("--reuse", metavar="FILE", help="print the results of an earlier run")
    options = parser.parse_args()
    guard = {one["name"]: one for one in json.loads(Path(options.guard).read_text())} if options.guard else {}
    if options.reuse:
        print_table(json.loads(Path(options.reuse).read_text()), guard)
        return 0
    missing = [name for name, module in NEEDED.items() if not _is_there(module)]
    if missing:
        print(f"not installed: {', '.join(missing)}; pip install {' '.join(missing)}")
        return 2
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    rows = [result(mutant) for mutant in fault.mutants(options.style)]
    print_table(rows, guard)
    print(f"\n{len(rows)} mutants, {time.perf_counter() - start:.0f} s, torch {torch.__version__}, one thread")
    print("\nfalse alarms: checks that fail on the right twin")
    for style in [options.style] if options.style else fault.NAMES:
        for peer in PEERS:
            if names := alarms(peer, style, ()):
                print(f"  {style:12} {peer:22} {', '.join(sorted(names))}")
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0


def _is_there(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


def result(mutant: Mutant) -> dict[str, Any]:
    """What each library finds in a mutant that it does not say of the right twin."""
    sizes = tuple(mutant.fault.sizes.items())
    found = {}
    for peer in PEERS:
        known = alarms(peer, mutant.style, sizes)
        failed = failures(peer, Subject(mutant.style, mutant.module, sizes))
        found[peer] = {name: message[-600:] for name, message in failed.items() if name not in known}
    return {"name": mutant.name, "code": mutant.fault.code, "found": found}


def named(row: dict[str, Any], peer: str) -> bool:
    words = CAUSES.get(row["code"], ())
    return any(word in message for message in row["found"][peer].values() for word in words)


def print_table(rows: list[dict[str, Any]], guard: dict[str, Any]) -> None:
    print(
        f"{'gotcha':8} {'mutants':>7} {'attn-guard':>10} " + " ".join(f"{peer:>20}" for peer in PEERS) + f" {'any':>5}"
    )
    groups = {code: [row for row in rows if row["code"] == code] for code in sorted({row["code"] for row in rows})}
    for code, group in {**groups, "all": rows}.items():
        own = sum(bool(guard.get(row["name"], {}).get("found")) for row in group) if guard else "-"
        counts = [sum(bool(row["found"][peer]) for row in group) for peer in PEERS]
        any_peer = sum(any(row["found"].values()) for row in group)
        print(f"{code:8} {len(group):7} {own:>10} " + " ".join(f"{count:20}" for count in counts) + f" {any_peer:5}")
    causes = [sum(named(row, peer) for row in rows) for peer in PEERS]
    own = sum(bool(one.get("first")) for one in guard.values()) if guard else "-"
    print(f"{'cause':8} {'':7} {own:>10} " + " ".join(f"{count:20}" for count in causes))


if __name__ == "__main__":
    sys.exit(main())
