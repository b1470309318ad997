"""How to call a module that nobody told us how to call.

The signature of ``forward``, the shapes of the parameters and the contract suggest calls; the first that runs and
shows attention is used. Sizes are small and do not coincide, so that mistakes cannot hide behind equal numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from torch import nn

from attn_guard.contract import Contract
from attn_guard.probe.arguments import FLAT, IDS, KNOWN, MEMORY, forms_of, is_mask, value_of
from attn_guard.probe.calling import Call, parameters_of
from attn_guard.probe.dimensions import Dimensions, dimensions
from attn_guard.probe.libraries import of_library
from attn_guard.probe.pictures import of_pictures

Parameters = list[inspect.Parameter]


def suggested(module: nn.Module, contract: Contract, seed: int = 0) -> Iterator[Call]:
    """Calls worth trying, the likeliest first: what is required alone, then with what else has a known name."""
    parameters = parameters_of(module)
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    plain = [p for p in parameters.values() if p.kind not in variable]
    required = [p for p in plain if p.default is p.empty or (contract.cross and p.name in MEMORY)]
    yield from of_library(module, contract, seed)
    if not required:
        named = [p for p in plain if p.name in IDS or p.kind is p.POSITIONAL_OR_KEYWORD]
        required = named[:1]
    if not required and any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
        required = [inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY)]
    yield from of_pictures(module, required, seed)
    yield from _filled(module, contract, required, seed)
    known = [p for p in plain if p not in required and (p.name in KNOWN or p.name in MEMORY)]
    if known:
        yield from _filled(module, contract, [*required, *known], seed)


def _filled(module: nn.Module, contract: Contract, wanted: Parameters, seed: int) -> Iterator[Call]:
    """Every way of filling these parameters: widths, ids or features, forms of known names, masks."""
    forms = max((forms_of(parameter.name) for parameter in wanted), default=1)
    masks = 3 if any(is_mask(parameter.name, contract) for parameter in wanted) else 1
    for sizes in dimensions(module, contract, seed):
        for ids in _ids_or_features(wanted, sizes):
            for form in range(forms):
                for mask in range(masks):
                    yield _call(module, contract, wanted, sizes, ids=ids, masks=mask, form=form)


def _ids_or_features(wanted: Parameters, sizes: Dimensions) -> tuple[bool, ...]:
    if sizes.vocabulary == 0:
        return (False,)
    return (True, False) if wanted and wanted[0].name in IDS else (False, True)


def _call(
    module: nn.Module, contract: Contract, wanted: Parameters, sizes: Dimensions, *, ids: bool, masks: int, form: int
) -> Call:
    values: dict[str, object] = {}
    for position, parameter in enumerate(wanted):
        values[parameter.name] = value_of(
            parameter, position, values, module, contract, sizes, ids=ids, masks=masks, form=form
        )
    if any(parameter.name in FLAT for parameter in wanted):
        values[wanted[0].name] = sizes.flat()
    by_place = [
        p.name for n, p in enumerate(wanted) if p.kind is not p.KEYWORD_ONLY and (n == 0 or p.default is p.empty)
    ]
    how = f"{', '.join(values)} by the signature of forward, width {sizes.width} by the parameters"
    return Call(
        tuple(values[name] for name in by_place),
        {name: value for name, value in values.items() if name not in by_place},
        how,
        sizes.batch_first,
    )
