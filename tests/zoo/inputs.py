"""Tiny inputs for models of `transformers`, by the names of what their ``forward`` takes."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from tests.zoo.shrink import VOCABULARY, nested

BATCH, TIME, TARGET, FRAMES = 2, 7, 5, 3


def stated(config: Any, *names: str, default: Any = None) -> Any:
    """The first value that a configuration or one inside it states under one of these names."""
    for part in nested(config):
        for name in names:
            value = vars(part).get(name)
            if value is not None:
                return value
    return default


def inputs(model: Any, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Keyword arguments to try, the likeliest first."""
    parameters = inspect.signature(model.forward).parameters
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [p.name for p in parameters.values() if p.default is p.empty and p.kind not in kinds]
    main = getattr(model, "main_input_name", "input_ids")
    names = list(dict.fromkeys([*required, *([main] if main in parameters or not parameters else [])]))
    if not names:
        names = [name for name in parameters if name in _FACTS][:1]
    both = getattr(model.config, "is_encoder_decoder", False) and "decoder_input_ids" in parameters
    if both and "decoder_input_ids" not in names:
        names.append("decoder_input_ids")
    optional = [name for name in _COMPANIONS if name in parameters and name not in names]
    generator = torch.Generator().manual_seed(seed)
    plain: list[dict[str, Any]] = [{}, {"use_cache": False}] if "use_cache" in parameters else [{}]
    for extra, without in itertools.product(
        ([], optional, *([[name] for name in optional] if len(optional) > 1 else [])), plain
    ):
        for form in range(4):
            filled = {name: _value(name, model.config, form, generator) for name in [*names, *extra]}
            if form and all(value is None or _same_form(name, form) for name, value in filled.items()):
                continue
            yield _with_masks({name: value for name, value in filled.items() if value is not None} | without)


def _with_masks(filled: dict[str, Any]) -> dict[str, Any]:
    """Masks of features are as long as the features."""
    features = filled.get("input_features")
    if features is not None and features.dim() == 3:
        for name in filled:
            if name.endswith("features_mask") or (name == "attention_mask" and "input_ids" not in filled):
                time = (
                    features.shape[2]
                    if features.shape[2] in (24, 48) and features.shape[1] != 24
                    else features.shape[1]
                )
                filled[name] = torch.ones(features.shape[0], time, dtype=torch.long)
    return filled


def _same_form(name: str, form: int) -> bool:
    return name not in _FORMS or form >= _FORMS[name]


def _value(name: str, config: Any, form: int, generator: torch.Generator) -> Any:
    make = _FACTS.get(name)
    if make is None:
        if name.endswith("_ids"):
            return torch.zeros(BATCH, TIME, dtype=torch.long)
        return torch.ones(BATCH, TIME, dtype=torch.long) if name.endswith("mask") else None
    return make(config, form, generator)


def _ids(time: int) -> Callable[..., Tensor]:
    def make(config: Any, form: int, generator: torch.Generator) -> Tensor:
        highest = min(VOCABULARY, int(stated(config, "vocab_size", default=VOCABULARY))) - 31
        return torch.randint(3, max(5, highest), (BATCH, time), generator=generator)

    return make


def _side(config: Any) -> tuple[int, int]:
    size = stated(config, "image_size", "img_size", default=64)
    if isinstance(size, dict):
        size = (size.get("height", 64), size.get("width", 64))
    if isinstance(size, int):
        return size, size
    return int(size[0]), int(size[-1])


def _image(config: Any, form: int, generator: torch.Generator) -> Tensor:
    channels = stated(config, "num_channels", "in_channels", "in_chans", default=3)
    channels = channels if isinstance(channels, int) else 3
    height, width = _side(config)
    patch = stated(config, "patch_size", default=16)
    patch = patch if isinstance(patch, int) else patch[-1]
    temporal = stated(config, "temporal_patch_size", default=1)
    frames = stated(config, "num_frames", default=FRAMES)
    shapes = (
        (BATCH, channels, height, width),
        (16, channels * temporal * patch * patch),
        (BATCH, frames, channels, height, width),
        (BATCH, channels, frames, height, width),
    )
    return torch.randn(shapes[form % 4], generator=generator)


def _video(config: Any, form: int, generator: torch.Generator) -> Tensor:
    channels = stated(config, "num_channels", "in_channels", default=3)
    height, width = _side(config)
    frames = stated(config, "num_frames", "frames_per_clip", default=FRAMES)
    return torch.randn(BATCH, frames, channels, height, width, generator=generator)


def _spectrogram(config: Any, form: int, generator: torch.Generator) -> Tensor:
    bins = stated(
        config, "num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim", "n_mels", "mel_dim",
        "input_dim", default=80,
    )  # fmt: skip
    time = stated(config, "max_source_positions", default=12)
    shapes = ((BATCH, bins, 2 * time), (BATCH, 24, bins), (BATCH, 1, 64, bins), (BATCH, bins, time))
    return torch.randn(shapes[form % 4], generator=generator)


def _sound(config: Any, form: int, generator: torch.Generator) -> Tensor:
    bins = stated(config, "num_mel_bins", default=80)
    shapes = (
        (BATCH, 3200),
        (BATCH, 1, 3200),
        (BATCH, stated(config, "max_length", default=64), bins),
        (BATCH, 24, bins),
    )
    return torch.randn(shapes[form % 4], generator=generator)


def _features(time: int, *names: str) -> Callable[..., Tensor]:
    def make(config: Any, form: int, generator: torch.Generator) -> Tensor:
        width = stated(config, *(names or ("hidden_size", "d_model", "hidden_dim", "embed_dim", "n_embd")), default=64)
        temporal, patch = stated(config, "temporal_patch_size", default=1), stated(config, "patch_size", default=16)
        patch = patch if isinstance(patch, int) else patch[-1]
        channels = stated(config, "in_channels", "num_channels", "in_chans", default=3)
        forms = ((BATCH, time, width), (16, channels * temporal * patch * patch), (16, width), (BATCH, width, 8, 8))
        return torch.randn(forms[form % 4], generator=generator)

    return make


def _of(shape: tuple[int, ...]) -> Callable[..., Tensor]:
    return lambda config, form, generator: torch.randn(shape, generator=generator)


def _grid(config: Any, form: int, generator: torch.Generator) -> Tensor:
    return torch.tensor([[1, 4, 4]])


def _series(config: Any, form: int, generator: torch.Generator) -> Tensor:
    lags = vars(config).get("lags_sequence") or [0]
    length = stated(config, "context_length", default=16) + max(lags)
    channels = stated(config, "num_input_channels", "input_size", default=1)
    shape = (BATCH, length) if channels == 1 and form == 0 else (BATCH, length, channels)
    return torch.rand(shape, generator=generator)


def _boxes(config: Any, form: int, generator: torch.Generator) -> Tensor:
    box = torch.tensor([1, 2, 5, 8])
    return box.expand(BATCH, TIME, 4).contiguous()


def _history(features: str, kind: str) -> Callable[..., Tensor]:
    def make(config: Any, form: int, generator: torch.Generator) -> Tensor:
        lags = max(vars(config).get("lags_sequence") or [0])
        length = stated(config, "context_length", default=16) + lags
        if kind == "future":
            length = stated(config, "prediction_length", default=4)
        width = stated(config, features, default=0)
        return torch.rand(BATCH, length, width, generator=generator)

    return make


# How many forms a value of this name can take.
_FORMS = {
    "pixel_values": 4,
    "input_features": 4,
    "input_values": 4,
    "hidden_states": 4,
    "audio_values": 2,
    "past_values": 2,
}

# Optional inputs that some models want beside their main one.
_COMPANIONS = (
    "pixel_values",
    "input_features",
    "bbox",
    "grid_thw",
    "image_grid_thw",
    "input_ids",
    "attention_mask",
    "encoder_hidden_states",
)

_FACTS: dict[str, Callable[..., Any]] = {
    "input_ids": _ids(TIME),
    "decoder_input_ids": _ids(TARGET),
    "inputs_embeds": _features(TIME),
    "pixel_values": _image,
    "pixel_values_videos": _video,
    "pixel_values_images": _image,
    "input_features": _spectrogram,
    "input_values": _sound,
    "audio_values": _sound,
    "input_waveforms": _sound,
    "hidden_states": _features(TIME),
    "encoder_hidden_states": _features(TIME, "encoder_hidden_size", "hidden_size", "d_model"),
    "query_embeds": _features(TIME, "hidden_size"),
    "grid_thw": _grid,
    "image_grid_thw": _grid,
    "bbox": _boxes,
    "past_values": _series,
    "past_time_features": _history("num_time_features", "past"),
    "future_time_features": _history("num_time_features", "future"),
    "past_observed_mask": lambda config, form, generator: torch.ones_like(_series(config, form, generator)),
    "static_categorical_features": lambda config, form, generator: torch.zeros(BATCH, 1, dtype=torch.long),
}
