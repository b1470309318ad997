"""The ways of decoding that a module's signature and state suggest.

Only where a cache is declared, or plainly recognised: an argument of a usual name that takes what the module returns
(``past_key_values``, ``layer_past``, ``kv_cache`` …), or state of its own that a call with ``start_pos``, ``input_pos``
or ``use_cache`` fills.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from attn_guard.probe.calling import CACHES, STARTS, bound, parameters_of
from attn_guard.probe.decoder import Decoder

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay

FLAGS = ("use_cache", "return_cache", "use_kv_cache", "return_kv_cache", "use_kv")
POSITIONS = ("position_ids", "positions", "pos_ids", "input_pos", "position", "pos")


def may_decode(xray: XRay) -> bool:
    """Whether a cache is declared, or an argument speaks of one."""
    named = {*CACHES, *STARTS, *FLAGS}
    return xray.contract.cache is not None or not named.isdisjoint(parameters_of(xray.module))


def decoders(xray: XRay) -> list[Decoder]:
    """The ways of decoding that a module's signature and state suggest; none where it has no cache."""
    main, known = xray.streams.main, parameters_of(xray.module)
    values = bound(xray.module, xray.call)
    if main is None or main.name not in values or not isinstance(values[main.name], Tensor) or len(main.leading) != 2:
        return []
    declared = xray.contract.cache
    cache = declared if declared is not None else next((name for name in CACHES if name in known), None)
    flag = next((name for name in FLAGS if name in known), None)
    begin = next((name for name in STARTS if name in known), None)
    if cache is not None and cache in known:
        plain = Decoder(xray, main, main.name, cache, flag, _only_numbers(begin, known, values))
    elif flag is not None or begin is not None:
        plain = Decoder(xray, main, main.name, None, flag, begin)
        if not _keeps_state(plain):
            return []
    else:
        return []
    places = next((name for name in POSITIONS if name in known and name != begin and values.get(name) is None), None)
    return [plain] if places is None else [plain, replace(plain, places=places)]


def _only_numbers(begin: str | None, known: Mapping[str, inspect.Parameter], values: Mapping[str, Any]) -> str | None:
    """A begin that is handed over beside a cache: only where it is given, or is a number by default."""
    if begin is None or values.get(begin) is not None:
        return begin
    return begin if isinstance(known[begin].default, int) or known[begin].default is inspect.Parameter.empty else None


def _keeps_state(decoder: Decoder) -> bool:
    """Whether a call leaves something behind in the module."""
    module = decoder.module()
    before = _state(module)
    return decoder.run(module, decoder.cut(0, 1, cached=True)).failure is None and _state(module) != before


def _state(module: nn.Module) -> list[tuple[str, int, int]]:
    held = [(path, part) for path, part in module.named_modules()]
    found = []
    for path, part in held:
        plain = {
            name: value for name, value in vars(part).items() if not name.startswith("_") or isinstance(value, Tensor)
        }
        for name, value in {**plain, **part._buffers}.items():
            version = value._version if isinstance(value, Tensor) and not value.is_inference() else 0
            found.append((f"{path}.{name}", id(value), version))
    return found
