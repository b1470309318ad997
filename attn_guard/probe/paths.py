"""Other ways through a module that should give the same: switches that choose how attention is computed.

A switch is looked for in the arguments of ``forward``, in attributes that some method reads, and in the configuration
of a model of transformers. What a switch is about is told by its name, since only its author knows.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from torch import nn

from attn_guard.contract import MaskMeaning
from attn_guard.probe.anatomist import upwards
from attn_guard.probe.calling import Call, arguments, as_mask
from attn_guard.probe.hygiene import preserved
from attn_guard.probe.record import record
from attn_guard.probe.tape import Tape

# Arguments that ask for the weights, and all that decide how they are returned.
ASKING = frozenset(
    """
    need_weights return_weights output_weights need_attn return_attn output_attn with_attn return_attention
    return_attentions output_attention output_attentions return_attention_weights return_attn_weights
    """.split()
)
WEIGHTS_ARGUMENTS = ASKING | {"average_attn_weights", "need_head_weights"}
# Parts of the names of attributes that choose between implementations: flags, and texts.
SWITCHES = ("flash", "sdpa", "fused", "xformers", "memory_efficient", "mem_efficient", "eager", "naive")
CHOICES = ("impl", "implementation", "backend", "attn_type", "attention_type")
CHECKPOINTING = "checkpoint"
IMPLEMENTATIONS = frozenset("eager sdpa flash math torch xformers naive manual einsum fused native".split())

_STATISTICS = nn.modules.batchnorm._NormBase
_LIBRARY = "torch."

Setting = tuple[Any, str, Any]


@dataclass(frozen=True)
class Path:
    """One other way through a module: ``text`` says which, ``settings`` are the attributes (owner, name, value) that
    choose it."""

    text: str
    call: Call
    settings: tuple[Setting, ...] = ()
    training: bool = False

    def run(self, module: nn.Module, seed: int) -> Tape:
        """The recording of this way; afterwards everything is set as before."""
        with preserved(module, seed), _set(self.settings):
            for child in module.modules():
                child.training = self.training and not isinstance(child, _STATISTICS)
            return record(module, self.call.args, self.call.kwargs, self.call.names(module))


@contextmanager
def _set(settings: Sequence[Setting]) -> Iterator[None]:
    with ExitStack() as undo:
        for owner, name, value in settings:
            undo.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield


def has_code_of_its_own(module: nn.Module) -> bool:
    """Whether some class of a module is not one of torch's own, whose paths are taken to agree."""
    return any(not type(child).__module__.startswith(_LIBRARY) for child in module.modules())


def switched(module: nn.Module, call: Call, sites: Sequence[str]) -> Iterator[Path]:
    """The ways that switches open, of a module whose attention is computed in the submodules ``sites``.

    Training mode is tried with checkpointing where there is such a switch.
    """
    by_attribute = list(_by_attribute(module, call, sites))
    yield from _by_argument(module, call)
    yield from by_attribute
    yield from _by_configuration(module, call)
    if not any(path.training for path in by_attribute):
        yield from _by_mode(module, call)


def with_and_without(module: nn.Module, call: Call, name: str, keep: Any, meaning: MaskMeaning) -> Iterator[Path]:
    """The same call with a mask that blocks nothing, where it has none."""
    given = arguments(module, call)
    if name in given and given[name] is None:
        mask = as_mask(keep, meaning, keep.float().dtype)
        yield Path(f"{name} that blocks nothing", call.with_argument(module, name, mask))


def _by_argument(module: nn.Module, call: Call) -> Iterator[Path]:
    for name, value in arguments(module, call).items():
        if name in WEIGHTS_ARGUMENTS and (value is None or isinstance(value, bool)):
            yield Path(f"{name}={not value}", call.with_argument(module, name, not value))


def _by_attribute(module: nn.Module, call: Call, sites: Sequence[str]) -> Iterator[Path]:
    """Attributes of one name and value are switched together, in all modules that hold an attention."""
    owners = {path: module.get_submodule(path) for site in sites for path in upwards(site)}
    found: dict[tuple[str, Any, Any], list[nn.Module]] = {}
    for owner in owners.values():
        read = _names_read(type(owner))
        for name, value in vars(owner).items():
            if name in read and not name.startswith("_"):
                for other in _others(type(owner), name, value):
                    found.setdefault((name, value, other), []).append(owner)
    for (name, _, other), holders in found.items():
        settings = tuple((owner, name, other) for owner in holders)
        if CHECKPOINTING in name:
            yield Path(f"{name}={other!r} in training", call, settings + _no_dropout(module), training=True)
        else:
            yield Path(f"{name}={other!r}", call, settings)


def _others(owner: type, name: str, value: Any) -> list[Any]:
    """The values that a switch may be set to instead; none for an attribute that is no switch."""
    words = name.lower()
    if isinstance(value, bool):
        is_switch = any(word in words for word in SWITCHES) or (CHECKPOINTING in words and not value)
        return [not value] if is_switch else []
    if isinstance(value, str) and any(word in words for word in CHOICES) and value in IMPLEMENTATIONS:
        return sorted((_texts(owner) & IMPLEMENTATIONS) - {value})
    return []


def _by_configuration(module: nn.Module, call: Call) -> Iterator[Path]:
    """Whole models of transformers choose by their configuration; a part of one gets its mask from the whole."""
    if not hasattr(module, "main_input_name"):
        return
    name = "_attn_implementation_internal"
    configurations = [getattr(child, "config", None) for child in module.modules()]
    holders = [config for config in {id(one): one for one in configurations}.values() if hasattr(config, name)]
    present = {getattr(config, name) for config in holders}
    for now, other in (("sdpa", "eager"), ("eager", "sdpa")):
        if present == {now} and (other == "eager" or getattr(module, "_supports_sdpa", False)):
            yield Path(f"{other} attention", call, tuple((config, name, other) for config in holders))


def _by_mode(module: nn.Module, call: Call) -> Iterator[Path]:
    """Training mode without dropout, where some code of the user's asks for the mode."""
    classes = {type(child) for child in module.modules() if not type(child).__module__.startswith(_LIBRARY)}
    if any("training" in _names_read(cls) for cls in classes):
        yield Path("training mode and no dropout", call, _no_dropout(module), training=True)


def _no_dropout(module: nn.Module) -> tuple[Setting, ...]:
    found = []
    for child in module.modules():
        for name, value in vars(child).items():
            named = "drop" in name.lower() or (name == "p" and "drop" in type(child).__name__.lower())
            if named and isinstance(value, float) and value:
                found.append((child, name, 0.0))
    return tuple(found)


def _names_read(cls: type) -> frozenset[str]:
    """The names that the methods of a class read, but for its constructor."""
    return frozenset(name for code in _codes(cls) for name in code.co_names)


def _texts(cls: type) -> frozenset[str]:
    """The strings that stand in the methods of a class."""
    return frozenset(text for code in _codes(cls) for text in _flat(code.co_consts) if isinstance(text, str))


def _codes(cls: type) -> Iterator[CodeType]:
    for owner in inspect.getmro(cls):
        if owner in (nn.Module, object):
            continue
        for name, method in vars(owner).items():
            if isinstance(method, FunctionType) and name != "__init__":
                yield from _nested(method.__code__)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _flat(constants: Sequence[Any]) -> Iterator[Any]:
    for constant in constants:
        if isinstance(constant, tuple | frozenset):
            yield from _flat(tuple(constant))
        else:
            yield constant
