"""A recorded run: every value in single-assignment form, every operation with its line and module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from attn_guard.probe.record import record, unfused
from attn_guard.probe.replay import Replay
from attn_guard.probe.tape import Op, Ref, Tape
from tests.probe.modules import CAUSAL_STYLES, STYLES, BuiltIn, D, Decoder, FusedQkv, features, later, seeded

HERE = Path(__file__)


class Program(nn.Module):
    """Calls a function, so that any piece of code can be recorded."""

    def __init__(self, body: Callable[..., Any], **buffers: Tensor) -> None:
        super().__init__()
        self.body = body
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, *args: Any) -> Any:
        return self.body(*args)


def taped(body: Callable[..., Any], *args: Any) -> Tape:
    return record(Program(body), args, {})


def names(tape: Tape) -> list[str]:
    return [op.name for op in tape.ops]


def only(tape: Tape, name: str) -> Op:
    (op,) = [op for op in tape.ops if op.name == name]
    return op


def line_of(text: str) -> int:
    """The line of this file that holds ``text`` and the word "marked"."""
    (number,) = [
        number
        for number, line in enumerate(HERE.read_text(encoding="utf-8").splitlines(), start=1)
        if line.endswith(f"# marked {text}")
    ]
    return number


class TestNumbering:
    def test_every_value_has_one_maker_or_is_a_leaf(self) -> None:
        tape = record(seeded(FusedQkv), (features(),), {})
        made = [value for op in tape.ops for value in op.outputs]
        assert len(made) == len(set(made))
        assert sorted([*made, *tape.leaves]) == list(range(len(tape.values)))
        for op in tape.ops:
            assert [tape.maker(value) for value in op.outputs] == [op] * len(op.outputs)
            assert all((maker := tape.producer[value]) is None or maker < op.index for value in op.inputs)

    def test_leaves_are_named(self) -> None:
        x = features()
        module = seeded(FusedQkv, causal=True)
        tape = record(module, (x,), {}, {id(x): "x"})
        assert tape.inputs().keys() == {"x"}
        assert set(tape.leaves.values()) == {
            "input x",
            *(f"parameter {name}" for name, _ in module.named_parameters()),
        }
        assert torch.equal(tape.values[tape.inputs()["x"]], x)

    def test_buffers_are_named(self) -> None:
        module = Program(lambda x: x + module.get_buffer("bias"), bias=torch.ones(3))
        tape = record(module, (torch.zeros(3),), {})
        assert "buffer bias" in tape.leaves.values()

    def test_the_result_keeps_its_form(self) -> None:
        tape = taped(lambda x: {"a": x + 1, "b": (x * 2, "text", None)}, torch.ones(2))
        assert isinstance(tape.result["a"], Ref)
        assert tape.result["b"][1:] == ("text", None)
        assert [tape.values[value].tolist() for value in tape.results()] == [[2, 2], [2, 2]]

    def test_consumers_ancestors_descendants(self) -> None:
        tape = taped(lambda x: (x + 1) * (x - 1), torch.ones(2))
        product = only(tape, "mul")
        total, difference = only(tape, "add"), only(tape, "sub")
        x = total.inputs[0]
        assert [op.index for op in tape.consumers(x)] == [total.index, difference.index]
        assert tape.ancestors(product.output) == {x, total.output, difference.output, product.output}
        assert tape.descendants([total.output]) == {total.output, product.output}

    def test_only_what_reaches_the_result_is_alive(self) -> None:
        def body(x: Tensor) -> Tensor:
            x.masked_fill(x > 0, 0.0)
            return x + 1

        tape = taped(body, torch.ones(2))
        assert only(tape, "masked_fill").output not in tape.alive
        assert only(tape, "add").output in tape.alive


class TestWrites:
    def test_a_write_makes_a_new_value(self) -> None:
        x = torch.ones(3)
        tape = taped(lambda x: x.add_(1), x)
        add = only(tape, "add_")
        assert add.writes == add.inputs
        assert tape.values[add.inputs[0]].tolist() == [1, 1, 1]
        assert tape.values[add.output].tolist() == [2, 2, 2]

    def test_a_write_through_a_view_renews_the_base(self) -> None:
        def body(x: Tensor) -> Tensor:
            y = x * 1
            y[1].zero_()
            return y

        tape = taped(body, torch.ones(2, 2))
        (result,) = tape.results()
        assert tape.values[result].tolist() == [[1, 1], [0, 0]]
        maker = tape.maker(result)
        assert maker is not None
        assert maker.name == "overwrite"
        assert tape.values[only(tape, "mul").output].tolist() == [[1, 1], [1, 1]]

    def test_a_write_renews_overlapping_views(self) -> None:
        def body(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            y = x * 1
            left, right = y[:2], y[1:]
            right.mul_(10)
            return y, left, right

        tape = taped(body, torch.tensor([1.0, 2.0, 3.0]))
        assert [tape.values[value].tolist() for value in tape.results()] == [[1, 20, 30], [1, 20], [20, 30]]

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(st.data())
    def test_any_program_of_views_and_writes(self, data: st.DataObject) -> None:
        """The values on the tape are those of plain execution, and replaying it from its input gives them again."""
        steps = data.draw(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 7)), max_size=10))

        def body(x: Tensor) -> list[Tensor]:
            pool = [x * 1]
            for name, seed in steps:
                STEPS[name](pool, seed)
            return pool

        x = torch.arange(12.0).view(3, 4) + 1
        plain = body(x.clone())
        given_x = x.clone()
        tape = record(Program(body), (given_x,), {}, {id(given_x): "x"})
        assert tape.failure is None
        results = tape.results()
        assert [tape.values[value].tolist() for value in results] == [value.tolist() for value in plain]

        source = tape.inputs()["x"]
        other = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
        again = Replay(tape, [source], results)({source: other})
        assert [again[value].tolist() for value in results] == [value.tolist() for value in body(other.clone())]


def _pick(pool: list[Tensor], seed: int) -> Tensor:
    return pool[seed % len(pool)]


def _step(change: Callable[[Tensor], Any]) -> Callable[[list[Tensor], int], None]:
    """A step that changes a tensor of the pool in place."""
    return lambda pool, seed: (change(_pick(pool, seed)), None)[1]


def _grow(make: Callable[[Tensor], Tensor]) -> Callable[[list[Tensor], int], None]:
    """A step that adds a tensor made from one of the pool, often a view."""
    return lambda pool, seed: pool.append(make(_pick(pool, seed)))


def _set_first(value: Tensor) -> None:
    value[..., 0] = 7.0


def _mask(value: Tensor) -> None:
    value[value > 5] = -1.0


STEPS: dict[str, Callable[[list[Tensor], int], None]] = {
    "add_": _step(lambda value: value.add_(1)),
    "copy_": _step(lambda value: value.copy_(value.flip(-1) * 2)),
    "masked_fill_": _step(lambda value: value.masked_fill_(value > 3, -2.0)),
    "set first": _step(_set_first),
    "set masked": _step(_mask),
    "transpose": _grow(lambda value: value.mT if value.dim() > 1 else value[None].mT),
    "row": _grow(lambda value: value[-1:]),
    "column": _grow(lambda value: value[..., :2]),
    "step": _grow(lambda value: value[..., ::2]),
    "detach": _grow(lambda value: value.detach()),
    "copy": _grow(lambda value: value * 3),
    "flat": _grow(lambda value: value.reshape(-1)),
}


class TestRestored:
    def test_arguments_written_in_place(self) -> None:
        x = torch.ones(2, 3)
        mask = torch.zeros(3, dtype=torch.bool)

        def body(x: Tensor, mask: Tensor) -> Tensor:
            mask.logical_not_()
            return x[0].mul_(5)

        tape = taped(body, x, mask)
        assert tape.values[tape.results()[0]].tolist() == [5, 5, 5]
        assert x.tolist() == [[1, 1, 1], [1, 1, 1]]
        assert not mask.any()

    def test_parameters_and_buffers_written_in_place(self) -> None:
        class Counting(nn.Module):
            calls: Tensor

            def __init__(self) -> None:
                super().__init__()
                self.weight = nn.Parameter(torch.ones(3))
                self.register_buffer("calls", torch.zeros(()))

            def forward(self, x: Tensor) -> Tensor:
                self.calls += 1
                self.weight.data.mul_(2)
                with torch.no_grad():
                    self.weight[0] = 9.0
                return x * self.weight + self.calls

        module = Counting()
        tape = record(module, (torch.ones(3),), {})
        assert tape.values[tape.results()[0]].tolist() == [10, 3, 3]
        assert module.weight.tolist() == [1, 1, 1]
        assert module.get_buffer("calls").item() == 0

    def test_a_batch_norm_in_train_mode(self) -> None:
        norm = nn.BatchNorm1d(4).train()
        before = {name: value.clone() for name, value in norm.state_dict().items()}
        record(norm, (torch.randn(8, 4),), {})
        assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())

    def test_after_an_exception(self) -> None:
        x = torch.ones(3)

        def body(x: Tensor) -> Tensor:
            x.add_(1)
            raise KeyError("half-way")

        tape = taped(body, x)
        assert isinstance(tape.failure, KeyError)
        assert x.tolist() == [1, 1, 1]

    @pytest.mark.parametrize("enabled", [True, False])
    @pytest.mark.parametrize("fails", [True, False])
    def test_settings_of_the_kernels(self, enabled: bool, fails: bool) -> None:
        seen = {}

        def body(x: Tensor) -> Tensor:
            seen["fast path"] = torch.backends.mha.get_fastpath_enabled()
            if fails:
                raise RuntimeError("no")
            return x

        before = (torch.backends.mha.get_fastpath_enabled(), sdp_settings())
        torch.backends.mha.set_fastpath_enabled(enabled)
        try:
            tape = taped(body, torch.ones(1))
            assert torch.backends.mha.get_fastpath_enabled() is enabled
        finally:
            torch.backends.mha.set_fastpath_enabled(before[0])
        assert seen == {"fast path": False}
        assert (tape.failure is not None) is fails
        assert sdp_settings() == before[1]

    def test_unfused_by_itself(self) -> None:
        before = (torch.backends.mha.get_fastpath_enabled(), sdp_settings())
        with pytest.raises(ZeroDivisionError), unfused():
            raise ZeroDivisionError
        assert (torch.backends.mha.get_fastpath_enabled(), sdp_settings()) == before

    def test_global_hooks_are_taken_away(self) -> None:
        hooks = torch.nn.modules.module
        before = len(hooks._global_forward_hooks), len(hooks._global_forward_pre_hooks)
        record(seeded(FusedQkv), (features(),), {})
        taped(lambda x: x.no_such_method(), torch.ones(1))
        assert (len(hooks._global_forward_hooks), len(hooks._global_forward_pre_hooks)) == before


def sdp_settings() -> tuple[bool, ...]:
    cuda: Any = torch.backends.cuda
    return cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()


class TestFailures:
    def test_an_operation_that_raises_is_kept(self) -> None:
        def body(x: Tensor) -> Tensor:
            y = x.transpose(0, 1)
            return y.view(-1)  # marked failing view

        tape = taped(body, torch.ones(2, 3))
        assert isinstance(tape.failure, RuntimeError)
        assert tape.failed_op is not None
        assert tape.failed_op.name == "view"
        assert tape.failed_op.location.line == tape.failed_at.line == line_of("failing view")
        assert names(tape) == ["transpose"]
        assert tape.results() == []

    def test_an_exception_of_the_module_itself(self) -> None:
        def body(x: Tensor) -> Tensor:
            assert x.sum() > 100  # marked failing assertion
            return x

        tape = taped(body, torch.ones(2))
        assert isinstance(tape.failure, AssertionError)
        assert tape.failed_op is None
        assert tape.failed_at.line == line_of("failing assertion")

    def test_a_caught_exception_of_an_operation_does_not_end_the_tape(self) -> None:
        def body(x: Tensor) -> Tensor:
            try:
                return x.mT.view(-1)
            except RuntimeError:
                return x.mT.reshape(-1)

        tape = taped(body, torch.ones(2, 3))
        assert tape.failure is None
        assert tape.values[tape.results()[0]].shape == (6,)

    def test_what_ends_the_process_passes(self) -> None:
        def body(x: Tensor) -> Tensor:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            taped(body, torch.ones(1))


class TestPlaces:
    def test_line_and_columns_are_those_of_the_expression(self) -> None:
        def body(x: Tensor) -> Tensor:
            return 1 + x.sin() * x.cos()  # marked expression

        tape = taped(body, torch.ones(2))
        place = only(tape, "cos").location
        source = HERE.read_text(encoding="utf-8").splitlines()[line_of("expression") - 1]
        assert place.line == line_of("expression")
        assert source[place.column - 1 : place.end_column - 1] == "x.cos()"
        assert Path(place.path).name == HERE.name
        product = only(tape, "mul").location
        assert source[product.column - 1 : product.end_column - 1] == "x.sin() * x.cos()"

    def test_a_layer_of_torch_belongs_to_the_line_that_calls_it(self) -> None:
        layer, norm = nn.Linear(3, 3), nn.Sequential(nn.LayerNorm(3), nn.Dropout(0.1))

        def body(x: Tensor) -> Tensor:
            x = norm(x)  # marked norm
            return F.relu(
                layer(x)  # marked layer
            )

        tape = taped(body, torch.ones(2, 3))
        assert only(tape, "native_layer_norm").location.line == line_of("norm")
        assert only(tape, "addmm").location.line == line_of("layer")

    def test_the_lines_inside_sdpa_and_multihead_attention(self) -> None:
        attention = nn.MultiheadAttention(6, 2, batch_first=True)

        def body(x: Tensor) -> Tensor:
            x = F.scaled_dot_product_attention(x, x, x)  # marked sdpa
            return attention(x, x, x)[0]  # marked built-in

        tape = taped(body, torch.ones(2, 5, 6))
        softmaxes = [op.location.line for op in tape.ops if "softmax" in op.name]
        assert softmaxes == [line_of("sdpa"), line_of("built-in")]

    def test_torch_alone_shows_its_own_line(self) -> None:
        x = features()
        tape = record(nn.MultiheadAttention(D, 3, batch_first=True), (x, x, x), {})
        assert {Path(op.location.path).name for op in tape.ops if op.place} == {"functional.py", "activation.py"}

    def test_plumbing_is_skipped(self) -> None:
        from contextlib import contextmanager
        from functools import wraps

        @contextmanager
        def scaled(x: Tensor) -> Any:
            yield x * 2  # marked inside the manager

        def doubled(call: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
            @wraps(call)
            def inner(x: Tensor) -> Tensor:
                return call(x) + 1  # marked inside the wrapper

            return inner

        @doubled
        def body(x: Tensor) -> Tensor:
            with scaled(x) as y:
                return y

        tape = taped(body, torch.ones(2))
        assert only(tape, "mul").location.line == line_of("inside the manager")
        assert only(tape, "add").location.line == line_of("inside the wrapper")

    def test_paths_of_modules(self) -> None:
        tape = record(seeded(Decoder), (torch.ones(2, 5, dtype=torch.long),), {})
        assert only(tape, "embedding").module == "embed"
        assert [op.module for op in tape.ops if "softmax" in op.name] == ["blocks.0.attn", "blocks.1.attn"]
        assert {op.module for op in tape.ops if op.name == "gelu"} == {"blocks.0.ff.1", "blocks.1.ff.1"}
        assert tape.ops[-1].module == "head"
        assert tape.ops[-1].location.module == "head"


class TestDecomposed:
    @pytest.mark.parametrize("style", [*STYLES, *(f"causal {style}" for style in CAUSAL_STYLES)])
    def test_every_style_shows_two_products_and_a_softmax(self, style: str) -> None:
        build = STYLES.get(style) or CAUSAL_STYLES[style.removeprefix("causal ")]
        module = seeded(build)
        x = features()
        tape = record(module, (x,), {})
        with torch.no_grad():
            assert torch.allclose(tape.values[tape.results()[0]], module(x), atol=1e-6)
        found = names(tape)
        assert not [name for name in found if "attention" in name or "multi_head" in name]
        softmax = next(index for index, name in enumerate(found) if "softmax" in name)
        products = {"bmm", "baddbmm"}
        assert products & set(found[:softmax])
        assert products & set(found[softmax:])

    @pytest.mark.parametrize("form", ["none", "bool", "float", "is_causal"])
    @pytest.mark.parametrize("key_heads", [1, 2, 4])
    def test_sdpa(self, form: str, key_heads: int) -> None:
        q, k, v = torch.randn(2, 4, 5, 8), *torch.randn(2, 2, key_heads, 5, 8).unbind(0)
        mask = {"bool": ~later(5), "float": torch.randn(5, 5)}.get(form)

        def body(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=form == "is_causal", enable_gqa=key_heads != 4
            )

        tape = taped(body, q, k, v)
        assert torch.allclose(tape.values[tape.results()[0]], body(q, k, v), atol=1e-6)
        assert names(tape).count("bmm") == 2
        assert len([name for name in names(tape) if "softmax" in name]) == 1

    @pytest.mark.parametrize("need_weights", [True, False])
    @pytest.mark.parametrize("batch_first", [True, False])
    def test_multihead_attention(self, need_weights: bool, batch_first: bool) -> None:
        module = seeded(BuiltIn, batch_first=batch_first, need_weights=need_weights)
        tape = record(module, (features(),), {})
        found = names(tape)
        assert len([name for name in found if "softmax" in name]) == 1
        assert len([name for name in found if name in {"bmm", "baddbmm"}]) == 2

    def test_the_encoder_layer_in_eval_mode(self) -> None:
        layer = seeded(lambda: nn.TransformerEncoderLayer(D, 3, 11, batch_first=True))
        found = names(record(layer, (features(),), {}))
        assert "_transformer_encoder_layer_fwd" not in found
        assert len([name for name in found if "softmax" in name]) == 1

    def test_a_kernel_that_the_module_chooses(self) -> None:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        def body(x: Tensor) -> Tensor:
            with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
                return F.scaled_dot_product_attention(x, x, x)

        assert names(taped(body, torch.randn(2, 4, 5, 8))).count("bmm") == 2
