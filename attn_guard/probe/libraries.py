"""What whole models of the big libraries take, by what their configuration states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn

from attn_guard.contract import Contract
from attn_guard.probe.calling import Call, parameters_of
from attn_guard.probe.dimensions import Dimensions, dimensions


def of_library(module: nn.Module, contract: Contract, seed: int) -> Iterator[Call]:
    """Models of `transformers` say what their main input is called; their configuration says how large it is."""
    config, main = getattr(module, "config", None), str(getattr(module, "main_input_name", ""))
    make = MAIN_INPUTS.get(main)
    if config is None or make is None or main not in parameters_of(module):
        return
    sizes = next(dimensions(module, contract, seed))
    for value in make(config, sizes):
        kwargs: dict[str, Any] = {main: value}
        if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in parameters_of(module):
            kwargs["decoder_input_ids"] = sizes.ids(sizes.memory)
        if "use_cache" in parameters_of(module):
            kwargs["use_cache"] = False
        yield Call((), kwargs, f"{main} of a transformers model")


def _ids(config: Any, sizes: Dimensions) -> Iterator[Tensor]:
    yield sizes.ids(sizes.time)


def _image(config: Any, sizes: Dimensions) -> Iterator[Tensor]:
    side = stated(config, "image_size", default=224)
    height, width = (side, side) if isinstance(side, int) else tuple(side)[:2]
    yield sizes.numbers(sizes.batch, stated(config, "num_channels", default=3), height, width)


def _spectrogram(config: Any, sizes: Dimensions) -> Iterator[Tensor]:
    bins = stated(config, "num_mel_bins", "feature_projection_input_dim", "input_feat_per_channel", default=80)
    frames = 2 * stated(config, "max_source_positions", default=12)
    yield sizes.numbers(sizes.batch, bins, frames)
    yield sizes.numbers(sizes.batch, min(frames, 24), bins)


def _sound(config: Any, sizes: Dimensions) -> Iterator[Tensor]:
    yield sizes.numbers(sizes.batch, 3200)
    yield sizes.numbers(sizes.batch, 1, 3200)


def stated(config: Any, *names: str, default: Any) -> Any:
    """What a configuration, or one inside it, states under one of these names."""
    inner = (value for value in vars(config).values() if hasattr(value, "to_dict"))
    for part in (config, *inner):
        for name in names:
            value = getattr(part, name, None)
            if value is not None:
                return value
    return default


MAIN_INPUTS: dict[str, Callable[[Any, Dimensions], Iterator[Tensor]]] = {
    "input_ids": _ids,
    "pixel_values": _image,
    "input_features": _spectrogram,
    "input_values": _sound,
}
