"""Evaluates calls: torch functions and methods, layers, and functions of the same file, which are walked in place."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from attn_guard.anatomy import StepKind
from attn_guard.lint import cores, expressions, fillings, memory_efficient, modes, ops, single_cells, sizes
from attn_guard.lint import nodes as cst
from attn_guard.lint.flash_attention import flash_attention, is_flash_attention
from attn_guard.lint.flex_attention import create_block_mask, flex_attention
from attn_guard.lint.inherited_layers import inherit
from attn_guard.lint.layers import call_layer, make_layer
from attn_guard.lint.place import Call
from attn_guard.lint.prefilter import holds_core, holds_product
from attn_guard.lint.record import Event, Trouble
from attn_guard.lint.rotary_libraries import note_counted
from attn_guard.lint.values import (
    MASKABLE,
    UNKNOWN,
    Bound,
    Choice,
    ClassReference,
    Closure,
    Dotted,
    Instance,
    Layer,
    Mask,
    Role,
    Scalar,
    Sequence,
    Shape,
    Tensor,
    Text,
    Unknown,
    Value,
    join,
)

if TYPE_CHECKING:
    from attn_guard.lint.frame import Frame

_FLEX = {"flex_attention": flex_attention, "create_block_mask": create_block_mask}
_STACKS = {"TransformerEncoder": 1, "TransformerDecoder": 2}  # how many sequences they take
_FAMILIES = ("torch", "numpy", "math", "einops", "opt_einsum")


def evaluate_call(frame: Frame, node: cst.Call) -> Value:
    if isinstance(node.func, cst.Attribute) and _is_super(node.func.value):
        return _super_call(frame, node, node.func.attr.value)
    function = expressions.evaluate(frame, node.func)
    call = _arguments(frame, node)
    single_cells.check(frame, node)
    if isinstance(function, Bound):
        return _method(frame, node, function, call)
    if isinstance(function, Dotted):
        result = _dotted(frame, function, call)
        _put_out(frame, node, result)
        return result
    if isinstance(function, Layer | Instance):
        return _module(frame, function, call)
    if isinstance(function, Closure):
        result = frame.walk.call(function, call, frame)
        _take_back(frame, node)
        return result
    if isinstance(function, ClassReference):
        return Instance(function.type, call)
    if isinstance(function, Choice):
        return _any_of(frame, function, call)
    if is_flash_attention(name := _name_of(node.func)):
        return flash_attention(call, name)
    modes.note_handed_on(call, function)
    if isinstance(node.func, cst.Name):
        return _builtin(frame, node.func.value, call)
    return _unknown_method(name, call)


def _name_of(func: cst.BaseExpression) -> str:
    """The name, or the last of several, that a function is called by."""
    last = func.attr if isinstance(func, cst.Attribute) else func
    return last.value if isinstance(last, cst.Name) else ""


def _module(frame: Frame, module: Value, call: Call) -> Value:
    """``module(...)``, of torch or of a class in the file."""
    if isinstance(module, Instance):
        return _forward(frame, module, call)
    if not isinstance(module, Layer):
        return Tensor()
    if module.kind in _STACKS and module.args and isinstance(module.args[0], Instance):
        return _stacked(frame, module, module.args[0], call)
    note_counted(module.path, call)
    if context := cores.context_of(module, call):
        return context
    return _in_turn(frame, module, call) if module.kind == "Sequential" else call_layer(module, call)


def _take_back(frame: Frame, node: cst.Call) -> None:
    """Gives names the values that a call has left in them by changing its arguments in place."""
    for index, name, value in frame.walk.changed:
        positional = [arg.value for arg in node.args if arg.keyword is None and not arg.star]
        named = [arg.value for arg in node.args if arg.keyword is not None and arg.keyword.value == name]
        for given in named or positional[index : index + 1]:
            frame.rebind(given, value)


def written_into(node: cst.Call) -> cst.Name | cst.Attribute | None:
    """What a call is given as ``out=``."""
    given = next((arg.value for arg in node.args if arg.keyword is not None and arg.keyword.value == "out"), None)
    return given if isinstance(given, cst.Name | cst.Attribute) and cst.code(given) != "None" else None


def _put_out(frame: Frame, node: cst.Call, result: Value) -> None:
    """Gives the result of ``torch.where(..., out=scores)`` to the name that it is written into."""
    target = written_into(node)
    if target is not None:
        frame.rebind(target, result)


def _stacked(frame: Frame, stack: Layer, layer: Instance, call: Call) -> Value:
    """A call of ``TransformerEncoder(layer, depth)``, of torch or called like it, with a layer of the file: it runs
    that on what it is given, under masks that it may have changed."""
    call_layer(stack, call)
    inputs = call.args[: _STACKS[stack.kind]]
    return _forward(frame, layer, replace(call, args=inputs, kwargs={}, spread=True))


def _forward(frame: Frame, module: Instance, call: Call) -> Value:
    forward = frame.walk.attribute(module, "forward")
    if not isinstance(forward, Closure):
        return opaque(call)
    result = frame.walk.call(forward, call, frame)
    if any(site.region.owner is module.type for site in frame.walk.record.sites.values()):
        frame.walk.record.attended.append(call.place.draft(StepKind.CONTEXT))
    return result


def _any_of(frame: Frame, choice: Choice, call: Call) -> Value:
    """A call of one of several modules or functions; those that only norm, activate and the like are not worth a
    walk."""
    texts = [one.region.text if isinstance(one, Closure) else one.type.text for one in choice.options]
    if not any(holds_core(text) or holds_product(text) for text in texts):
        return opaque(call)
    results: list[Value] = []
    for index, one in enumerate(choice.options):
        with frame.walk.record.inside(call.place.node, index):
            results.append(_handed_on(frame, one, call))
    return reduce(join, results)


def _is_core(function: Value) -> bool:
    """Whether a function of the file attends itself. Others that somebody else calls are walked for themselves."""
    return isinstance(function, Closure) and function.inner is None and holds_core(function.region.text)


def _handed_on(frame: Frame, function: Value, call: Call) -> Value:
    """A call by somebody else, such as ``map`` or ``checkpoint``, who is given the function."""
    if isinstance(function, Closure):
        return frame.walk.call(function, call, frame)
    return _any_of(frame, function, call) if isinstance(function, Choice) else _module(frame, function, call)


def _in_turn(frame: Frame, layer: Layer, call: Call) -> Value:
    """A call of ``nn.Sequential``."""
    value = call.arg(0, "input")
    for child in layer.children:
        value = _module(frame, child, replace(call, args=(value,), kwargs={}))
    return value if layer.children else Tensor()


def _items(value: Value) -> tuple[Value, ...]:
    return value.items if isinstance(value, Sequence) else ()


def _is_super(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "super"


def _super_call(frame: Frame, node: cst.Call, name: str) -> Value:
    call = _arguments(frame, node)
    method = frame.walk.inherited(frame, name)
    if method:
        return frame.walk.call(method, call, frame)
    for path in frame.walk.foreign_bases(frame.region.owner):
        if name == "forward":
            note_counted(path, call)
        elif name == "__init__" and frame.instance is not None:
            inherit(frame.instance, path, call)
    return UNKNOWN


def _arguments(frame: Frame, node: cst.Call) -> Call:
    args: list[Value] = []
    kwargs: dict[str, Value] = {}
    spread, firm = False, None
    for arg in node.args:
        value = expressions.evaluate(frame, arg.value)
        if arg.keyword is not None:
            kwargs[arg.keyword.value] = value
        elif arg.star == "*" and isinstance(value, Sequence) and not value.endless:
            args.extend(value.items)
        elif arg.star:
            spread = True
            firm = len(args) if arg.star == "*" and firm is None else firm
            args.extend(item for item in _items(value) if isinstance(item, Instance | Layer))
        else:
            args.append(value)
    return Call(frame.place(node), tuple(args), kwargs, spread, firm)


def _method(frame: Frame, node: cst.Call, method: Bound, call: Call) -> Value:
    receiver = method.receiver
    if isinstance(receiver, Sequence | Shape) and method.name in ("append", "extend"):
        return UNKNOWN
    op = ops.METHODS.get(method.name)
    firm = None if call.firm is None else call.firm + 1
    call = Call(call.place, (receiver, *call.args), call.kwargs, call.spread, firm)
    if op is None and isinstance(receiver, Layer):
        note_counted(f"{receiver.path}.{method.name}", call)
    if op is None:
        if method.name.endswith("_") and isinstance(node.func, cst.Attribute) and isinstance(receiver, Mask):
            frame.rebind(node.func.value, Mask(name=receiver.name))
        return opaque(call)
    result = _untimed(method.name, op(call))
    if method.name.endswith("_") and isinstance(node.func, cst.Attribute):
        frame.rebind(node.func.value, result)
        if isinstance(result, Tensor):
            frame.walk.record.note_late_mask(result)
    return result


_KEEPS_AXES = frozenset({"to", "type", "long", "int", "float", "half", "cuda", "cpu", "clone", "detach", "contiguous"})


def _untimed(operation: str, value: Value) -> Value:
    """What is not known to be a tensor yet, after an operation that may have moved its axes."""
    moves = isinstance(value, Unknown) and value.timed and operation not in _KEEPS_AXES
    return replace(value, timed=None) if isinstance(value, Unknown) and moves else value


def _unknown_method(name: str, call: Call) -> Value:
    """A method of something that is not known: a cache gives keys and values back, a look-up may give its default."""
    given = [value for value in call.args if isinstance(value, Tensor)]
    if name == "update" and len(given) >= 2 and all(value.role is Role.ACTIVATION for value in given):
        return Sequence(tuple(value.shaped(None, None) for value in given[:2]))
    return _looked_up(name, call)


def _looked_up(name: str, call: Call) -> Value:
    default = call.args[-1] if len(call.args) >= 2 else None
    return default if name.startswith("get") and isinstance(default, Closure) else opaque(call)


def _dotted(frame: Frame, function: Dotted, call: Call) -> Value:
    module, _, name = function.path.rpartition(".")
    if is_flash_attention(name):
        return flash_attention(call, function.path)
    if name == memory_efficient.NAME:
        return memory_efficient.memory_efficient_attention(call)
    if function.path == "torch.utils.checkpoint.checkpoint" and _is_core(call.arg(0, "function")):
        return _handed_on(frame, call.arg(0, "function"), replace(call, args=call.args[1:]))
    if name in _FLEX and module.startswith("torch."):
        return _FLEX[name](call, lambda inner, arguments: frame.walk.call(inner, arguments, frame))
    if module.split(".")[0] in _FAMILIES:
        if module == "torch.nn" and name == "Parameter":
            made = call.arg(0, "data")
            axes = made.axes if isinstance(made, Tensor) else None
            return Tensor(Role.PARAMETER, axes=axes, last=axes[-1] if axes else None)
        if module.startswith("torch.nn.modules") or module == "torch.nn":
            return make_layer(name, call, plain=not call.spread)
        if name == "sdp_kernel":
            call.place.record.note(Trouble.DEPRECATED_CONTEXT, Event(call.place.draft(StepKind.CONTEXT)))
        op = ops.FUNCTIONS.get(name)
        return _untimed(name, op(call)) if op else opaque(call)
    if name == "generate_square_subsequent_mask":
        return fillings.square_subsequent_mask(call)
    if function.path in ("copy.copy", "copy.deepcopy"):
        return call.arg(0, "x")
    if name[:1].isupper():
        return make_layer(name, call, path="" if call.spread else function.path)
    note_counted(function.path, call)
    modes.note_handed_on(call, function)
    return _looked_up(name, call)


def _builtin(frame: Frame, name: str, call: Call) -> Value:
    if name in ("float", "int", "abs"):
        return sizes.to_float(call)
    if name == "map" and len(call.args) == 2 and isinstance(call.args[0], Closure | Choice):
        function, over = call.args
        results = tuple(
            _handed_on(frame, function, replace(call, args=(item,), kwargs={})) for item in expressions.items_of(over)
        )
        return Sequence(results, endless=not isinstance(over, Sequence) or over.endless)
    if name in ("list", "tuple") and call.args:
        return call.args[0]
    if name == "getattr" and len(call.args) >= 2 and isinstance(call.args[1], Text):
        known = expressions.named(call.args[1].text)
        return known if len(call.args) == 2 or isinstance(known, Scalar) else UNKNOWN
    if name in ("enumerate", "zip"):
        return _paired(name, call)
    return opaque(call)


def _paired(name: str, call: Call) -> Value:
    columns = [expressions.items_of(arg) for arg in call.args]
    if name == "enumerate":
        columns = [(UNKNOWN,) * len(columns[0]), *columns[:1]] if columns else []
    rows = tuple(Sequence(row) for row in zip(*columns, strict=False))
    endless = not all(isinstance(arg, Sequence) and not arg.endless for arg in call.args)
    return Sequence(rows, endless=endless) if rows else UNKNOWN


def opaque(call: Call) -> Value:
    """A call that is not understood: scores that go in come out as scores, but nothing is sure about them any more."""
    for value in (*call.args, *call.kwargs.values()):
        if isinstance(value, Tensor) and value.role in MASKABLE:
            return replace(value, traced=False, opaque=True, axes=None, last=None, order=None, grid=None)
    return UNKNOWN
