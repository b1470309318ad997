"""Cross attention: which input asks and which one is asked, and what each site really takes from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from attn_guard.contract import Contract
from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.calling import Call, bound, parameters_of
from attn_guard.probe.origins import rows_of
from attn_guard.probe.replay import Replay
from attn_guard.probe.streams import Stream
from attn_guard.probe.tape import Tape, same

# Names of the input that is asked, which say so plainly.
MEMORY = tuple(
    """
    memory mem context encoder_hidden_states encoder_output encoder_outputs encoder_out enc_output enc_out
    """.split()
)
# Source and target of an encoder–decoder: a memory is made of the source on the way.
_SOURCES = ("src", "source", "encoder_input", "encoder_input_ids")
_TARGETS = ("tgt", "trg", "target", "decoder_input", "decoder_input_ids")
_QUERIES = ("query", "q", "queries", "query_states")
_KEYS = ("key", "k", "keys", "key_states", "kv")
_VALUES = ("value", "v", "values", "value_states")


@dataclass(frozen=True)
class Cross:
    """The two inputs of a cross attention, by name: ``own`` asks, ``memory`` is asked.

    ``declared`` says that the module promises to be one; otherwise the name of the memory is the evidence.
    ``required`` says that the module cannot be called without a memory.
    """

    tape: Tape
    streams: Mapping[str, Stream]
    own: str
    memory: str
    declared: bool
    required: bool
    seed: int = 0

    @cached_property
    def memory_matters(self) -> bool:
        """Whether anything that is returned changes with the content of the memory."""
        stream = self.streams.get(self.memory)
        given = self.tape.inputs().get(self.memory) if stream is None else stream.rows.value
        if given is None:
            return False  # no operation has read it
        if not self.tape.values[given].is_floating_point():
            return True  # ids that nobody looked up: they cannot be changed at will
        rows = rows_of(self.tape, given) if stream is None else stream.rows
        results = self.tape.results()
        changed = rows.changed(torch.arange(len(rows)), torch.Generator().manual_seed(self.seed))
        again = Replay(self.tape, [rows.value], results)({rows.value: changed})
        return not all(bool(same(again[result], self.tape.values[result]).all()) for result in results)

    def is_swapped(self, anatomy: Anatomy) -> bool:
        """Whether a site's queries come from the memory alone, and its keys from the other input."""
        query, key = self._inputs(anatomy.trace.query), self._inputs(anatomy.trace.key)
        return query == {self.memory} and key == {self.own}

    def is_right(self, anatomy: Anatomy) -> bool:
        """Whether a site's keys come from the memory and its queries do not."""
        query, key = self._inputs(anatomy.trace.query), self._inputs(anatomy.trace.key)
        return self.memory in key and self.memory not in query

    def _inputs(self, value: int) -> set[str]:
        """Which of the two inputs a value is computed from."""
        ancestors = self.tape.ancestors(value)
        both = ((name, self.streams.get(name)) for name in (self.own, self.memory))
        return {name for name, stream in both if stream is not None and stream.rows.value in ancestors}


def cross(module: nn.Module, call: Call, tape: Tape, contract: Contract, streams: Sequence[Stream]) -> Cross | None:
    """The inputs of a cross attention that is declared, or evident from a name; None for any other module.

    Of two inputs, the second is the memory where neither name tells. A module that takes its memory first is only
    taken for one where it is declared.
    """
    if contract.cross is False:
        return None
    given = _features(module, call)
    source, target = _named(given, _SOURCES), _named(given, _TARGETS)
    if source is not None and target is not None:
        return _of(module, tape, streams, target, source, declared=bool(contract.cross))
    memory = _named(given, MEMORY) or (_named(given, _KEYS) or _ending(given, _KEYS) if contract.cross else None)
    if memory is None and contract.cross and len(given) == 2:
        memory = given[1]
    others = [name for name in given if name != memory and name not in _VALUES]
    if memory is None or not others:
        return None
    own, declared = _named(others, _QUERIES) or _ending(others, _QUERIES) or others[0], bool(contract.cross)
    if not declared and given.index(own) > given.index(memory):
        return None
    return _of(module, tape, streams, own, memory, declared=declared)


def _of(module: nn.Module, tape: Tape, streams: Sequence[Stream], own: str, memory: str, *, declared: bool) -> Cross:
    parameter = parameters_of(module).get(memory)
    required = parameter is not None and parameter.default is parameter.empty
    return Cross(tape, {stream.name: stream for stream in streams}, own, memory, declared, required)


def _features(module: nn.Module, call: Call) -> list[str]:
    """The names of the different tensors that a call hands over to work on, in order: features or ids."""
    found: dict[int, str] = {}
    for name, value in bound(module, call).items():
        if isinstance(value, Tensor) and value.dim() > 1 and "mask" not in name and value.dtype is not torch.bool:
            found.setdefault(id(value), name)
    return list(found.values())


def _named(given: Sequence[str], names: Collection[str]) -> str | None:
    return next((name for name in given if name in names), None)


def _ending(given: Sequence[str], names: Collection[str]) -> str | None:
    """The first whose last word is one of the names, such as ``inputs_kv``."""
    return next((name for name in given if name.rpartition("_")[2] in names), None)
