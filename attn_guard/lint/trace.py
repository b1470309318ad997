"""The walk: follows values through one function, and through what it calls in the same file."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from attn_guard.lint import expressions, modes, names
from attn_guard.lint import nodes as cst
from attn_guard.lint.arithmetic import as_mask
from attn_guard.lint.building import expression
from attn_guard.lint.calls import opaque
from attn_guard.lint.decorators import decorator_arguments
from attn_guard.lint.frame import Frame
from attn_guard.lint.inherited_layers import inherit
from attn_guard.lint.loaders import loop_over
from attn_guard.lint.masks import argument
from attn_guard.lint.place import Call
from attn_guard.lint.record import Record
from attn_guard.lint.regions import Class, Region, Source
from attn_guard.lint.statements import run_body
from attn_guard.lint.values import (
    UNKNOWN,
    Atom,
    ClassReference,
    Closure,
    Flag,
    Instance,
    Meaning,
    Nothing,
    Scalar,
    Unknown,
    Value,
    join,
)
from attn_guard.lint.zero_rates import is_without_dropout

_DEPTH = 6
_BUDGET = 4000  # statements of one walk, those of called functions included
_ALIASES = {
    "F": "torch.nn.functional",
    "einops": "einops",
    "einsum": "torch.einsum",
    "math": "math",
    "nn": "torch.nn",
    "np": "numpy",
    "rearrange": "einops.rearrange",
    "torch": "torch",
}
_COMPILED = re.compile(r"torch\.compile\((\w+)")
_SIMPLE = re.compile(r"[-+*/().\w\s]+")


@dataclass(eq=False)
class Shared:
    """What the walks of one file share: the functions that they start from, and the objects that they have made.

    ``plain`` are those of which no argument is known, with what was seen while they were constructed; ``made`` are the
    attributes of the others.
    """

    roots: Collection[Region]
    plain: dict[Class, tuple[Instance, Record]] = field(default_factory=dict)
    made: dict[tuple[object, ...], dict[str, Value]] = field(default_factory=dict)


class Walk:
    """One walk from a function of a file. What it sees goes into its ``record``."""

    def __init__(self, source: Source, shared: Shared) -> None:
        self.source = source
        self.record = Record()
        self.budget = _BUDGET
        self.changed: list[tuple[int, str, Value]] = []  # arguments that the latest call has changed in place
        self.instance: Instance | None = None
        self._shared = shared
        self._stack: list[cst.CSTNode] = []

    def start(self, region: Region) -> None:
        """Walks a function with nothing known of its arguments."""
        self.instance = self.plain_instance(region.owner).copy() if region.owner else None
        self._walk(Closure(region, instance=self.instance), None)
        self.record.drop_late_masks()

    def plain_instance(self, owner: Class) -> Instance:
        """An object of a class, with nothing known of the arguments of its constructor."""
        if owner not in self._shared.plain:
            instance = Instance(owner)
            self._shared.plain[owner] = instance, Record()
            outer, self._stack = self._stack, []  # what is kept for all walks must not depend on how deep this one is
            try:
                self._shared.plain[owner] = instance, self._constructed(instance)
            finally:
                self._stack = outer
        return self._shared.plain[owner][0]

    def _initialise(self, instance: Instance) -> None:
        """Gives an object its attributes. Of those that are made of equal arguments, only the first is constructed."""
        instance.ready = True
        key = instance.identity
        made = self._shared.made.get(key)
        if made is None:
            model = Instance(instance.type, instance.made)
            self._constructed(model)
            made = model.attributes
            if len(self._stack) < _DEPTH - 2:  # deeper down, not all that the constructor calls was walked
                self._shared.made[key] = made
        for name, value in made.items():
            instance.attributes.setdefault(name, value)

    def _constructed(self, instance: Instance) -> Record:
        """Walks the constructor for the attributes that it sets; what it sees goes into a record of its own."""
        instance.ready = True
        constructor = self._method(instance.type, "__init__")
        outer, self.record = self.record, Record()
        budget, self.budget = self.budget, _BUDGET
        if constructor is not None:
            self._walk(Closure(constructor, instance=instance), instance.made)
        elif instance.made is not None:
            for path in self.foreign_bases(instance.type):
                inherit(instance, path, instance.made)
        seen, self.record, self.budget = self.record, outer, budget
        return seen

    def _method(self, owner: Class, name: str) -> Region | None:
        return next((cls.methods[name] for cls in self.family(owner) if name in cls.methods), None)

    def family(self, owner: Class) -> tuple[Class, ...]:
        """A class and those of its bases that are in the file."""
        return self.source.family(owner)

    def inherited(self, frame: Frame, name: str) -> Closure | None:
        """The method that ``super().name`` means in a frame, where it is in the file."""
        owner = frame.region.owner
        if owner is None or frame.instance is None:
            return None
        region = next((cls.methods[name] for cls in self.family(owner)[1:] if name in cls.methods), None)
        return Closure(region, instance=frame.instance) if region else None

    def foreign_bases(self, owner: Class | None) -> list[str]:
        """The dotted names of the bases of a class that are imported."""
        bases = [base.partition(".") for cls in self.family(owner) for base in cls.bases] if owner else []
        return [self.source.imports[first] + dot + rest for first, dot, rest in bases if first in self.source.imports]

    def attribute(self, instance: Instance, name: str) -> Value:
        """``self.name``: as the constructor left it, a method, or a value of the class body."""
        if not instance.ready:
            self._initialise(instance)
        if name in instance.attributes:
            value = instance.attributes[name]
            if not self._is_set_later(instance, name):
                return modes.held(name, value)
            return Unknown(name) if isinstance(value, Scalar) else value  # a number that may be another one later
        region = self._method(instance.type, name)
        if region is not None:
            method = Closure(region, instance=instance)
            return self._walk(method, None) if "@property" in region.text.split("def ", 1)[0] else method
        for cls in self.family(instance.type):
            if name in cls.constants and name not in cls.attributes:
                return self._constant(cls.constants[name])
        return expressions.named(name)

    def _is_set_later(self, instance: Instance, name: str) -> bool:
        """Whether a method besides the constructor sets an attribute."""
        return any(name in cls.changed_later for cls in self.family(instance.type))

    def global_value(self, name: str) -> Value:
        """A name of the file: function, class, import or constant."""
        if name in self.source.functions:
            return Closure(self.source.functions[name])
        if name in self.source.classes:
            return ClassReference(self.source.classes[name])
        if name in self.source.imports:
            return expressions.dotted_value(self.source.imports[name])
        if name in self.source.constants:
            compiled = _COMPILED.match(self.source.constants[name])
            return self.global_value(compiled[1]) if compiled else self._constant(self.source.constants[name])
        return expressions.dotted_value(_ALIASES[name]) if name in _ALIASES else Unknown(name)

    def _constant(self, text: str) -> Value:
        """The value of a constant: only numbers, and sums and products of numbers, are read."""
        text = text.strip()
        if not _SIMPLE.fullmatch(text) or len(text) > 80:
            return UNKNOWN
        try:
            node = expression(text)
        except SyntaxError:
            return UNKNOWN
        region = Region(self.source.path, "", 1, "")
        value = expressions.evaluate(Frame(self, region, {}), node)
        return value if isinstance(value, Scalar) else UNKNOWN

    def call(self, function: Closure, call: Call, frame: Frame) -> Value:
        """The value of a call of a function in the file, which is walked with these arguments."""
        self.changed = []
        if len(self._stack) >= _DEPTH or self.budget <= 0 or function.node in self._stack:
            return opaque(call)
        return self._walk(function, call, frame)

    def _walk(self, function: Closure, call: Call | None, outer: Frame | None = None) -> Value:
        node, region = function.node, function.region
        if node is None or node in self._stack or len(self._stack) > _DEPTH:
            return UNKNOWN
        frame = Frame(self, region, {}, function.instance, function.scope, outer)
        self._bind(frame, node, call)
        self._stack.append(node)
        branches, calls, before = self.record.branches, self.record.calls, self.record.extent
        self.record.calls = [*calls, call] if call else calls
        comes_from_outside = call is not None and call.place.region is not region
        if comes_from_outside:
            self.record.walked.add(node)
        is_whole = call is not None and comes_from_outside and self._sees_all(frame, function, call)
        try:
            if isinstance(node, cst.Lambda):
                return expressions.evaluate(frame, node.body)
            run_body(frame, node.body)
        finally:
            self._stack.pop()
            self.record.branches, self.record.calls = branches, calls
            self.record.mode_tests -= frame.mode_tests
        if len(self._stack) == 0:
            self.record.returned = frame.returned
        elif is_whole and self.budget > 0:
            self.record.visits.setdefault(region, self.record.since(before, function.instance, frame.returned))
        self.changed = [(at, name, frame.names[name]) for name, at in frame.borrowed.items() if name in frame.changed]
        for name, (step, core) in frame.masked.items():
            if len(re.findall(rf"\b{name}\b", region.text)) == 1:
                self.record.drop(step, core)
        result: Value = frame.returned[0] if frame.returned else Nothing()
        for other in frame.returned[1:]:
            result = join(result, other)
        return result

    def _sees_all(self, frame: Frame, function: Closure, call: Call) -> bool:
        """Whether a call leads through all that a walk from the function itself would see: what it calls is walked,
        nothing that is only known here decides a branch or excuses anything, and no argument loses what its name says.
        """
        region, text = frame.region, frame.region.text
        return (
            region in self._shared.roots
            and region.name != "__init__"
            and function.inner is None
            and len(self._stack) < _DEPTH - 2
            and self.record.mode_tests == 0
            and not any(_is_fixed(name, value, text) for name, value in frame.names.items())
            and not (frame.instance and self._is_known_better(frame.instance, text))
            and self._means_the_same(frame, function)
            and not any(map(is_without_dropout, (call.place, frame.place(call.place.node))))
        )

    def _is_known_better(self, instance: Instance, text: str) -> bool:
        """Whether an attribute of an object is fixed that is open as long as nothing is known of its arguments."""
        usual = self.plain_instance(instance.type).attributes
        return any(
            _is_fixed(name, value, text) and usual.get(name) != value for name, value in instance.attributes.items()
        )

    def _means_the_same(self, frame: Frame, function: Closure) -> bool:
        """Whether each argument whose name says something about it is given under this name."""
        node = function.node
        assert node is not None
        params = node.params.single
        names_given = [param.name.value for param in params]
        promised = _promised_masks(frame.region.owner) if frame.region.owner else {}
        for param in params:
            name = param.name.value
            own = promised.get(name) or _argument(param, constructor=False)
            is_bare = names.is_value(name) and frame.region.owner is not None
            if (as_mask(own) or is_bare or names.is_memory(name, names_given)) and frame.names.get(name) != own:
                return False
        return True

    def _bind(self, frame: Frame, node: cst.FunctionDef | cst.Lambda, call: Call | None) -> None:
        """Gives the parameters their values."""
        params = [*node.params.posonly_params, *node.params.params]
        plain = isinstance(node, cst.Lambda) or not any(_is_decorator(d, "staticmethod") for d in node.decorators)
        is_method = (
            frame.instance is not None and isinstance(node, cst.FunctionDef) and plain and frame.region.tree is node
        )
        if is_method and params:
            assert frame.instance is not None
            frame.names[params[0].name.value] = frame.instance
            params = params[1:]
        constructor = isinstance(node, cst.FunctionDef) and node.name.value == "__init__"
        promised = _promised_masks(frame.region.owner) if call is None and frame.region.owner else {}
        for index, param in enumerate([*params, *node.params.kwonly_params]):
            name = param.name.value
            frame.borrowed[name] = index if index < len(params) else 10_000
            given = call.given(frame.borrowed[name], name) if call else None
            if given is not None:
                frame.names[name] = given
            elif call is not None and not call.spread and param.default is not None:
                frame.names[name] = expressions.evaluate(frame, param.default)
            elif call is not None:
                frame.names[name] = Unknown(name)
            else:
                frame.names[name] = promised.get(name) or _argument(param, constructor)
                if index == 0 and frame.region.name == "forward":
                    frame.names[name] = self._as_loaded(frame.region.owner, frame.names[name])
        for star in (node.params.star_arg, node.params.star_kwarg):
            if isinstance(star, cst.Param):
                frame.names[star.name.value] = UNKNOWN

    def _as_loaded(self, owner: Class | None, value: Value) -> Value:
        """The first input of a module, of which a training loop in the file may show that the batch comes first."""
        loop = loop_over(self.source, owner) if owner and isinstance(value, Unknown) else None
        return replace(value, timed=(1, loop)) if loop and isinstance(value, Unknown) else value


def _is_fixed(name: str, value: Value, text: str) -> bool:
    """Whether a value may decide what runs in a text: None, true, false, a number, or a size that may be None."""
    if isinstance(value, Scalar) and not value.is_number:
        return f"{name} is None" in text or f"{name} is not None" in text
    return isinstance(value, Nothing | Flag | Scalar)


def _is_decorator(decorator: cst.Decorator, name: str) -> bool:
    return isinstance(decorator.decorator, cst.Name) and decorator.decorator.value == name


def _argument(param: cst.Param, constructor: bool) -> Value:
    """What stands for an argument that nobody gave: in a constructor, sizes go by their names."""
    name = param.name.value
    if constructor and (names.is_size(name) or (_is_whole(param) and not names.is_pad(name))):
        return Scalar(powers=((Atom(name, names.size_called(name)), 1.0),))
    default = param.default
    number = float(default.evaluated_value) if isinstance(default, cst.Float | cst.Integer) else None
    return Unknown(name, parameter=True, default=number)


def _is_whole(param: cst.Param) -> bool:
    """Whether an argument is annotated as ``int``."""
    return isinstance(param.annotation, cst.Name) and param.annotation.value == "int"


def _promised_masks(owner: Class) -> dict[str, Value]:
    """The mask arguments whose meaning the class declares with ``@contract(masks=...)``."""
    meanings = {"ignore": Meaning.BLOCKS, "attend": Meaning.KEEPS, "additive": Meaning.ADDED}
    declared = decorator_arguments(owner, "contract").get("masks")
    masks = declared.items() if isinstance(declared, dict) else ()
    return {name: argument(name, meanings.get(meaning)) for name, meaning in masks if isinstance(name, str)}
