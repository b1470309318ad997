"""Every model type of `transformers` that can be built small: its class, a small instance, and a call that runs."""

from __future__ import annotations

import importlib
import inspect
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tests.zoo.inputs import inputs
from tests.zoo.shrink import shrink

LARGEST = 120_000_000  # parameters; what stays larger than this was not understood by the shrinker
SECONDS = 8  # of processor time after which no other way of building a model is tried

# Ways of shrinking, one after another until a model runs.
_SIZES: tuple[dict[str, Any], ...] = (
    {"image": 64},
    {"image": 64, "sections": True},
    {"image": 64, "widths": False},
    {"image": 32},
    {"image": 224, "widths": False},
)


class NotBuiltError(Exception):
    """A model type that does not get as far as a run, and why."""


@dataclass(frozen=True)
class Example:
    """A small model and a call that it takes."""

    kind: str
    model: nn.Module
    kwargs: dict[str, Any]


def kinds() -> list[str]:
    from transformers import CONFIG_MAPPING

    return sorted(CONFIG_MAPPING)


def example(kind: str) -> Example:
    """A small model of a type with a call that runs. Raises `NotBuiltError`, whose text begins with how far it got."""
    start = time.process_time()
    failures: list[str] = []
    hopeless: set[type[nn.Module]] = set()
    tried: list[dict[str, Any]] = []
    reached = "configuration"
    for size in _SIZES:
        try:
            config = configuration(kind, **size)
        except Exception as error:
            raise NotBuiltError(f"configuration: {brief(error)}") from error
        if (values := config.to_dict()) in tried:
            continue
        tried.append(values)
        classes = list(model_classes(kind, config))
        if not classes:
            raise NotBuiltError("configuration: no model class is known for it")
        for model_class in classes[:3]:
            if model_class in hopeless or (failures and time.process_time() - start > SECONDS):
                continue
            try:
                model = built(model_class, config)
            except Exception as error:
                failures.append(f"{model_class.__name__}: {brief(error)}")
                continue
            reached = "instance"
            for kwargs in inputs(model):
                try:
                    with torch.no_grad():
                        model(**kwargs)
                except Exception as error:
                    shapes = {name: list(getattr(value, "shape", ())) for name, value in kwargs.items()}
                    failures.append(f"{model_class.__name__}({shapes}): {brief(error)}")
                    if "missing" in str(error) and "argument" in str(error):
                        hopeless.add(model_class)
                        break
                    continue
                return Example(kind, model, kwargs)
    raise NotBuiltError(f"{reached}: " + " | ".join(dict.fromkeys(failures)))


def configuration(kind: str, **size: Any) -> Any:
    from transformers import CONFIG_MAPPING

    config = CONFIG_MAPPING[kind]()
    shrink(config, **size)
    return config


def model_classes(kind: str, config: Any) -> Iterator[type[nn.Module]]:
    """The bare model of a type first, then others of its module that take this configuration."""
    from transformers import PreTrainedModel
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    found: Any = MODEL_MAPPING[type(config)] if type(config) in MODEL_MAPPING.keys() else ()  # noqa: SIM118
    first = list(found) if isinstance(found, tuple | list) else [found]
    yield from first
    name = type(config).__module__.replace(".configuration_", ".modeling_")
    try:
        module = importlib.import_module(name)
    except ImportError:
        return
    own = [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, PreTrainedModel)
        and value not in first
        and getattr(value, "config_class", None) is type(config)
        and "forward" in vars(value)
    ]
    yield from sorted(own, key=lambda value: (not value.__name__.endswith("Model"), len(value.__name__)))


def built(model_class: Any, config: Any) -> nn.Module:
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in model_class(config).parameters())
    if size > LARGEST:
        raise NotBuiltError(f"{size / 1e6:.0f} million parameters after shrinking")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: nn.Module = model_class(config).eval()
    return model


def brief(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
