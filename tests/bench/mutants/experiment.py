"""Shows that a mutant behaves differently from its right twin, in plain torch and without attn-guard.

Both get the same parameters and the same inputs and are put into the situation that matters for the gotcha: a plain
forward, padding, step-by-step decoding, train mode with a seed, half precision, … What they answer, an exception
included, is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten

from tests.bench.mutants.fault import Call, Mutant, right

Answer = list[Tensor] | str

USUAL = ("forward", "padded", "weights")
SITUATIONS: dict[str, tuple[str, ...]] = {
    "ATN203": (*USUAL, "loud"),
    "ATN204": ("half",),
    "ATN210": ("afterwards",),
    "ATN211": ("empty",),
    "ATN216": (*USUAL, "decode"),
    "ATN301": ("forward",),
    "ATN501": ("repeated",),
    "ATN502": ("train",),
    "ATN602": ("train",),
    "ATN108": ("half",),
    "ATN701": ("decode",),
    "ATN702": (*USUAL, "decode"),
}
RAISING = ("ATN204", "ATN207", "ATN301", "ATN302", "ATN802")


def differs(mutant: Mutant) -> str:
    """The situation in which a mutant differs from its right twin; "" where there is none."""
    fault = mutant.fault
    situations = (fault.situation,) if fault.situation else SITUATIONS.get(fault.code, USUAL)
    for situation in situations:
        style = right(mutant.style)
        if situation in AVAILABLE and hasattr(style, AVAILABLE[situation]) is False:
            continue
        sizes = dict(fault.sizes)
        twin = answer(situation, style, sizes, None)
        other = answer(situation, mutant.module, sizes, style.build().state_dict())
        if isinstance(twin, str):
            raise ValueError(f"{mutant.name}: the right twin fails when {situation}: {twin}")
        if isinstance(other, str) and fault.code not in RAISING:
            raise ValueError(f"{mutant.name}: fails when {situation}: {other}")
        if not same(twin, other):
            return situation
    return ""


def answer(situation: str, style: ModuleType, sizes: dict[str, int], state: dict[str, Tensor] | None) -> Answer:
    """What a module says in a situation: tensors, or the name of the exception."""
    try:
        module = style.build().eval()
        if state is not None:
            _adopt(module, state)
        torch.manual_seed(0)
        return ASK[situation](style, module, sizes)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _adopt(module: nn.Module, state: dict[str, Tensor]) -> None:
    own = module.state_dict()
    fitting = {name: value for name, value in state.items() if name in own and own[name].shape == value.shape}
    module.load_state_dict(fitting, strict=False)


def same(first: Answer, second: Answer) -> bool:
    """Equal up to rounding."""
    if isinstance(first, str) or isinstance(second, str) or len(first) != len(second):
        return False
    return all(_close(a, b) for a, b in zip(first, second, strict=True))


def _close(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape:
        return False
    return torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-5, equal_nan=True)


def keeps(batch: int, time: int) -> Tensor:
    """(batch, time) True at real tokens; samples are padded right, left and inside in turn."""
    keep = torch.ones(batch, time, dtype=torch.bool)
    keep[::3, -2:] = False
    keep[1::3, :2] = False
    keep[2::3, time // 2] = False
    return keep


def padded_call(style: ModuleType, sizes: dict[str, int]) -> tuple[Call, Tensor]:
    keep = keeps(sizes.get("batch", 3), sizes.get("memory", sizes.get("source", sizes.get("time", 7))))
    return style.padded(keep), keep


def _tensors(value: Any) -> list[Tensor]:
    return [leaf.detach() for leaf in tree_flatten(value)[0] if isinstance(leaf, Tensor)]


def _forward(style: ModuleType, module: nn.Module, sizes: dict[str, int]) -> list[Tensor]:
    args, kwargs = style.inputs(**sizes)
    return _tensors(module(*args, **kwargs))


def _padded(style: ModuleType, module: nn.Module, sizes: dict[str, int]) -> list[Tensor]:
    """The outputs at real tokens; what stands at padded ones is nobody's business."""
    (args, kwargs), keep = padded_call(style, sizes)
    found = _tensors(module(*args, **kwargs))
    undefined = not hasattr(style, "PADS")
    return [value[keep] if undefined and value.shape[:2] == keep.shape else value for value in found[:1]]


def _math(style: ModuleType, module: nn.Module, sizes: dict[str, int]) -> list[Tensor]:
    """With padding, by the kernel of `F.scaled_dot_product_attention` that is written out."""
    with sdpa_kernel(SDPBackend.MATH):
        return _padded(style, module, sizes)


def _weights(style: ModuleType, module: nn.Module, sizes: dict[str, int]) -> list[Tensor]:
    args, kwargs = style.inputs(**sizes)
    return _tensors(module(*args, **kwargs, **style.WEIGHTS))


def _padded_weights(style: ModuleType, module: nn.Module, sizes: dict[str, int]) -> list[Tensor]:
    """The output at real tokens when the weights are asked for too."""
    (args, kwargs), keep = padded_call(style, sizes)
    found = _tensors(module(*args, **kwargs, **style.WEIGHTS))
    return [found[0][keep] if found[0].shape[:2] == keep.shape else found[0], *found[1:]]


def _decode(style: ModuleType, module: nn.Module, sizes: dict[str, int]) -> list[Tensor]:
    return [style.decode(module, (1,) * 7).detach(), style.decode(module, (3, 1, 3)).detach()]


def _padded_decode(style: ModuleType, module: nn.Module, sizes: dict[str, int]) -> list[Tensor]:
    keep = torch.ones(3, 7, dtype=torch.bool)
    keep[:2, :2] = False
    return [style.decode(module, (3, 1, 3), keep).detach()[keep]]


def _padded_target(style: ModuleType, module: nn.Module, sizes: dict[str, int]) -> list[Tensor]:
    """With padding in the decoder's own sequence."""
    keep = keeps(sizes.get("batch", 3), sizes.get("target", 7))
    args, kwargs = style.padded_target(keep)
    return [_tensors(module(*args, **kwargs))[0][keep]]


def _train(style: ModuleType, module: nn.Module, sizes: dict[str, int]) -> list[Tensor]:
    args, kwargs = style.inputs(**sizes)
    return _tensors(module.train()(*args, **kwargs, **getattr(style, "WEIGHTS", {})))


def _repeated(style: ModuleType, module: nn.Module, sizes: dict[str, int]) -> list[Tensor]:
    """Whether two calls in eval mode agree."""
    first, second = _forward(style, module, sizes), _forward(style, module, sizes)
    return [torch.tensor([torch.equal(a, b) for a, b in zip(first, second, strict=True)])]


def _half(style: ModuleType, module: nn.Module, sizes: dict[str, int]) -> list[Tensor]:
    """Which outputs are finite in float16, with padding and large logits."""
    (args, kwargs), keep = padded_call(style, sizes)
    args = tuple(arg.half() * 4 if arg.is_floating_point() else arg for arg in args)
    found = _tensors(module.half()(*args, **kwargs))[0]
    return [found[keep].isfinite() if found.shape[:2] == keep.shape else found.isfinite()]


def _loud(style: ModuleType, module: nn.Module, sizes: dict[str, int]) -> list[Tensor]:
    """With logits so large that a weak fill is no mask."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(16.0)
    padded = _padded(style, module, sizes) if hasattr(style, "padded") else []
    return _forward(style, module, sizes) + padded


def _empty(style: ModuleType, module: nn.Module, sizes: dict[str, int]) -> list[Tensor]:
    """Which outputs and gradients are finite where one sample is all padding."""
    keep = keeps(3, 7)
    keep[0] = False
    args, kwargs = style.padded(keep)
    found = _outputs(module(*args, **kwargs))
    torch.autograd.backward(found.sum())
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    return [found.isfinite(), *(gradient.isfinite() for gradient in gradients)]


def _outputs(value: Any) -> Tensor:
    output: Tensor = value if isinstance(value, Tensor) else value[0]
    return output


def _afterwards(style: ModuleType, module: nn.Module, sizes: dict[str, int]) -> list[Tensor]:
    """The caller's tensors and the module's buffers after a call in which the last column is padding throughout."""
    keep = keeps(3, 7)
    keep[:, -1] = False
    args, kwargs = style.padded(keep)
    module(*args, **kwargs)
    return _tensors((args, kwargs)) + [buffer.clone() for buffer in module.buffers()]


ASK: dict[str, Callable[[ModuleType, nn.Module, dict[str, int]], list[Tensor]]] = {
    "forward": _forward,
    "padded": _padded,
    "weights": _weights,
    "padded weights": _padded_weights,
    "padded target": _padded_target,
    "decode": _decode,
    "padded decode": _padded_decode,
    "train": _train,
    "repeated": _repeated,
    "half": _half,
    "math": _math,
    "loud": _loud,
    "empty": _empty,
    "afterwards": _afterwards,
}
AVAILABLE = {
    "padded": "padded",
    "weights": "WEIGHTS",
    "padded weights": "WEIGHTS",
    "decode": "decode",
    "half": "padded",
    "math": "padded",
    "empty": "padded",
}
