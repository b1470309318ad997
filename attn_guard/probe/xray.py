"""The anatomy of a module without judgement: its sites, shapes, scale, masks, weights and influence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from attn_guard.contract import Contract, MaskMeaning, declared_contract
from attn_guard.errors import UsageError
from attn_guard.probe import chain
from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.calling import Call, as_mask, given, suggested
from attn_guard.probe.flow import Flow
from attn_guard.probe.hygiene import one_thread, preserved
from attn_guard.probe.influence import sample
from attn_guard.probe.intent import Intent, infer
from attn_guard.probe.origins import Rows, rows_of
from attn_guard.probe.record import record
from attn_guard.probe.replay import Replay
from attn_guard.probe.sites import traces
from attn_guard.probe.tape import Op, Tape, same


@dataclass(frozen=True)
class PaddedRun:
    """What a call with padding showed. ``keep`` (batch, time) is True at real tokens.

    ``pads_matter``: some output at a real token changes with the content of a padded one. ``others_matter``: some
    output at a real token changes with another real token.
    """

    name: str
    meaning: MaskMeaning
    keep: Tensor
    pads_matter: bool
    others_matter: bool
    call: Call
    anatomies: tuple[Anatomy, ...]


@dataclass(frozen=True, repr=False)
class XRay:
    """One recorded call of a module. ``print(xray)`` draws the chain of shapes of each attention computation.

    ``sites[i].weights`` are the attention weights, ``sites[i].site`` the anatomy with its steps and source lines.
    """

    module: nn.Module
    call: Call
    tape: Tape
    intent: Intent
    sites: tuple[Anatomy, ...]
    seed: int = 0

    def __repr__(self) -> str:
        return f"<XRay of {type(self.module).__name__}{self.call}: {len(self.sites)} attention computations>"

    def __str__(self) -> str:
        return "\n\n".join(chain.draw(anatomy) for anatomy in self.sites) or "no attention found"

    @property
    def contract(self) -> Contract:
        return self.intent.contract

    @property
    def assumptions(self) -> tuple[str, ...]:
        return self.intent.assumptions

    def promised(self, promise: str) -> bool:
        """Whether a promise was declared, not inferred."""
        if promise in (self.intent.declared.masks or {}):
            return True
        return getattr(self.intent.declared, promise, None) is not None

    @cached_property
    def content(self) -> Rows | None:
        """The features (or embeddings of ids) that the module works on, one row per token.

        Of several inputs, the one that a returned tensor lines up with.
        """
        shapes = [tuple(self.tape.values[value].shape) for value in self.tape.results()]
        for rows in self._contents:
            leading = self._leading(rows)
            if any(shape[: len(leading)] == leading for shape in shapes):
                return rows
        return next(iter(self._contents), None)

    @cached_property
    def _contents(self) -> list[Rows]:
        """Every content input as rows of tokens; for ids the rows of their embeddings."""
        tape = self.tape
        found = [rows_of(tape, value) for value in tape.inputs().values() if _is_tokens(tape.values[value])]
        for op in tape.ops:
            if op.name == "embedding" and _reads_input(tape, op):
                found.append(rows_of(tape, op.output))
        return found

    @cached_property
    def output(self) -> int | None:
        """The returned tensor whose leading axes are those of the content."""
        if self.content is None:
            return None
        leading = self._leading(self.content)
        for value in self.tape.results():
            if tuple(self.tape.values[value].shape[: len(leading)]) == leading and value != self.content.value:
                return value
        return None

    def _leading(self, rows: Rows) -> tuple[int, ...]:
        return tuple(self.tape.values[rows.value].shape[:-1])

    @cached_property
    def time_axis(self) -> int:
        if self.content is None or len(self._leading(self.content)) < 2:
            return 0
        is_embedding = not self.tape.is_input(self.content.value)
        return 1 if self.call.batch_first or is_embedding else 0

    @cached_property
    def influence(self) -> Tensor | None:
        """[output position, input position]: whether an output changes with an input of the same position in any
        sample.

        None where inputs and outputs do not line up. Of very many positions a sample is changed.
        """
        if self.content is None or self.output is None or len(self._leading(self.content)) > 2:
            return None
        positions = _positions(self._leading(self.content), self.time_axis)
        time = int(positions.max()) + 1
        found = torch.zeros(time, time, dtype=torch.bool)
        groups = sample([(positions == position).nonzero().flatten() for position in range(time)])
        for group, touched in zip(groups, self._touched(self.content, groups, self.output), strict=True):
            found[positions[touched], positions[group[0]]] = True
        return found

    def _touched(self, source: Rows, groups: Sequence[Tensor], output: int) -> Iterator[Tensor]:
        """For each group of input rows: the rows of an output that change with them."""
        leading = len(self._leading(source))
        replay = Replay(self.tape, [source.value], [output])
        base = replay({source.value: self.tape.values[source.value].clone()})[output]
        generator = torch.Generator().manual_seed(self.seed)
        for group in groups:
            again = replay({source.value: source.changed(group, generator)})[output]
            yield (~same(again, base)).flatten(leading).any(dim=-1).flatten().cpu()

    def first_leak(self) -> Op | None:
        """The first operation at which an earlier position changes with the last one."""
        if self.content is None:
            return None
        leading = self._leading(self.content)
        positions = _positions(leading, self.time_axis)
        last = (positions == positions.max()).nonzero().flatten()
        shaped = [op for op in self.tape.ops if tuple(self.tape.values[op.output].shape[: len(leading)]) == leading]
        outputs = [op.output for op in shaped]
        replay = Replay(self.tape, [self.content.value], outputs)
        base = replay({self.content.value: self.tape.values[self.content.value].clone()})
        again = replay({self.content.value: self.content.changed(last, torch.Generator().manual_seed(self.seed))})
        for op in shaped:
            touched = (~same(again[op.output], base[op.output])).flatten(len(leading)).any(dim=-1).flatten().cpu()
            if (positions[touched] < positions.max()).any():
                return op
        return None

    @cached_property
    def padded(self) -> tuple[PaddedRun, ...]:
        """A run with padding for each mask argument whose meaning is promised and that takes a (batch, time) mask."""
        found = (self._padded(name, meaning) for name, meaning in (self.contract.masks or {}).items())
        return tuple(run for run in found if run is not None)

    def _padded(self, name: str, meaning: MaskMeaning) -> PaddedRun | None:
        for rows in self._masked_by(name):
            leading = self._leading(rows)
            batch, time = leading if self.time_axis == 1 else leading[::-1]
            keep = _holes(batch, time).to(self.tape.values[rows.value].device)
            dtype = self.tape.values[rows.value].dtype
            mask = as_mask(keep, meaning, dtype)
            shapes = (mask, mask.long()) if self.call.kwargs.get("input_ids") is not None else (mask,)
            for form in shapes:
                run = self._run_padded(name, meaning, keep, self.call.with_argument(self.module, name, form), rows)
                if run is not None:
                    return run
        return None

    def _masked_by(self, name: str) -> list[Rows]:
        """The inputs that a mask argument can speak of: those of its own name's stem, or else all that look alike."""
        stems = name.split("_")
        candidates = [rows for rows in self._contents if len(self._leading(rows)) == 2]
        named = [rows for rows in candidates if self._stem(rows) == stems[0]]
        return named or candidates

    def _stem(self, rows: Rows) -> str:
        return self.tape.leaves.get(rows.value, "").removeprefix("input ").split("_")[0]

    def _run_padded(self, name: str, meaning: MaskMeaning, keep: Tensor, call: Call, rows: Rows) -> PaddedRun | None:
        with preserved(self.module, self.seed):
            again = look(self.module, call, self.intent.declared, self.seed)
        if again.tape.failure is not None or again.content is None or again.output is None:
            return None
        source = next((part for part in again._masked_by(name) if again._leading(part) == self._leading(rows)), None)
        leading = again._leading(again.content)
        if source is None or source.value != again.content.value:
            return None
        real = (keep if self.time_axis == 1 else keep.t()).flatten().cpu()
        values = again.tape.values[again.output].flatten(len(leading)).flatten(0, -2).cpu()
        if values[real].isnan().any():
            return None
        pads = (~real).nonzero().flatten()
        others = real.nonzero().flatten()[:1]
        changed_by_pads, changed_by_other = again._touched(source, (pads, others), again.output)
        changed_by_other[others] = False
        return PaddedRun(
            name=name,
            meaning=meaning,
            keep=keep,
            pads_matter=bool((changed_by_pads & real).any()),
            others_matter=bool((changed_by_other & real).any()),
            call=call,
            anatomies=again.sites,
        )


def _is_tokens(value: Tensor) -> bool:
    return value.is_floating_point() and 2 <= value.dim() <= 3 and value.numel() > 0


def _reads_input(tape: Tape, op: Op) -> bool:
    return any(tape.is_input(value) for index in op.inputs[1:] for value in tape.ancestors(index))


def _positions(leading: tuple[int, ...], time_axis: int) -> Tensor:
    """For each row of (batch, time) or (time, batch), its position in time."""
    shape = [1] * len(leading)
    shape[time_axis] = leading[time_axis]
    return torch.arange(leading[time_axis]).view(shape).expand(leading).flatten()


def _holes(batch: int, time: int) -> Tensor:
    """Real tokens of a batch that is padded in the usual ways: right, left, and with a hole inside."""
    keep = torch.ones(batch, time, dtype=torch.bool)
    for row in range(batch):
        if row % 3 == 0:
            keep[row, -2:] = False
        elif row % 3 == 1:
            keep[row, :2] = False
        else:
            keep[row, time // 2] = False
    return keep


def look(module: nn.Module, call: Call, declared: Contract, seed: int = 0) -> XRay:
    """Record a call and recover its anatomy. The caller keeps the module's state (`preserved`)."""
    tape = record(module, call.args, call.kwargs, call.names(module))
    flow = Flow.of(tape)
    sites = tuple(Anatomy(trace, module, declared.scale, seed) for trace in traces(flow))
    return XRay(module, call, tape, infer(module, declared, tape, sites), sites, seed)


def find_call(module: nn.Module, declared: Contract, seed: int = 0) -> tuple[XRay | None, list[str]]:
    """The first suggested call that runs and shows attention (or else the first that runs), and what was tried.

    Where none runs, the recording of the first call is returned with its failure.
    """
    tried: list[str] = []
    ran: XRay | None = None
    failed: XRay | None = None
    for call in suggested(module, declared, seed):
        with preserved(module, seed):
            seen = look(module, call, declared, seed)
        if seen.tape.failure is None:
            if seen.sites:
                return seen, tried
            ran = ran or seen
            tried.append(f"{call}: ran, but showed no attention")
        else:
            failed = failed or seen
            tried.append(f"{call}: {_brief(seen.tape.failure)}")
        if len(tried) >= 24:
            break
    return ran or failed, tried


def _brief(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:160] if text else ''}"


def xray(module: nn.Module, args: Any = None, kwargs: Mapping[str, Any] | None = None, *, seed: int = 0) -> XRay:
    """Run a module once and show what its attention is made of.

    ``args`` is a tuple of positional arguments (or a single tensor), ``kwargs`` the keyword arguments; without
    either the module is
    called as its signature suggests. Raises `UsageError` where that is not possible, and what the module raises on
    given arguments.
    """
    if not isinstance(module, nn.Module):
        raise UsageError(f"xray() takes a torch.nn.Module, got {type(module).__name__}")
    with one_thread():
        return _seen(module, args, kwargs, declared_contract(module), seed)


def _seen(module: nn.Module, args: Any, kwargs: Mapping[str, Any] | None, declared: Contract, seed: int) -> XRay:
    if args is None and kwargs is None:
        found, tried = find_call(module, declared, seed)
        if found is None or found.tape.failure is not None:
            raise UsageError(
                f"{type(module).__name__} could not be called; pass args= and kwargs=. Tried: {'; '.join(tried)}"
            )
        return found
    with preserved(module, seed):
        seen = look(module, given(args, kwargs, declared, module), declared, seed)
    if seen.tape.failure is not None:
        raise seen.tape.failure
    return seen
