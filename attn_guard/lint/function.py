"""What a gotcha's ``lint(function)`` sees: one function of the source, its sites, and what is in it besides sites."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import libcst as cst

from attn_guard.anatomy import Site, StepKind
from attn_guard.findings import Location
from attn_guard.lint import names
from attn_guard.lint.decorators import decorator_arguments
from attn_guard.lint.paths import first_mask, masked_beside
from attn_guard.lint.record import Event, Record, SiteDraft, Trouble, softmax_of
from attn_guard.lint.regions import Class, Region
from attn_guard.lint.sites import exactly, make_site


@dataclass(frozen=True)
class Fault:
    """Something at a place: what it is about, how it is mended where that differs, and a second place with a label."""

    location: Location
    text: str = ""
    help: str = ""
    related: tuple[Location, str] | None = None


@dataclass(eq=False)
class Function:
    """A function or method.

    record: what its walk has seen. reached: the complete sites in itself or in what it calls in the file.
    family: its class and the bases of that in the file.
    """

    region: Region
    record: Record
    reached: tuple[SiteDraft, ...] = ()
    family: tuple[Class, ...] = ()

    @property
    def name(self) -> str:
        return self.region.name

    @property
    def class_name(self) -> str:
        """Name of the class that it is a method of, or ""."""
        return self.region.owner.name if self.region.owner else ""

    @cached_property
    def promises(self) -> Mapping[str, Any]:
        """What the class declares with ``@contract(...)``, as far as it is written out."""
        return decorator_arguments(self.region.owner, "contract") if self.region.owner else {}

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        """The complete sites that it reaches."""
        return tuple(make_site(draft, (), exactly) for draft in self.reached)

    @cached_property
    def own_sites(self) -> tuple[Site, ...]:
        """Those that stand in its own body."""
        return tuple(make_site(draft, (), exactly) for draft in self.reached if draft.region is self.region)

    @property
    def location(self) -> Location:
        """The name of the function, in its first line."""
        return self.region.location(self._tree.name)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of its arguments, ``*args`` and ``**kwargs`` included."""
        params = self._tree.params
        plain = [*params.posonly_params, *params.params, *params.kwonly_params]
        stars = [star for star in (params.star_arg, params.star_kwarg) if isinstance(star, cst.Param)]
        return tuple(param.name.value for param in (*plain, *stars))

    @property
    def misread_masks(self) -> Iterator[Fault]:
        """Masks that reach something in which True means the opposite."""
        return map(_fault, self.record.misread)

    @property
    def wide_triangles(self) -> Iterator[Fault]:
        """Causal masks that show the key after the query's own."""
        return map(_fault, self.record.noted.get(Trouble.SEES_NEXT, ()))

    @property
    def narrow_triangles(self) -> Iterator[Fault]:
        """Causal masks that hide the query's own key, unless rows without keys are zeroed after the softmax."""
        cleaned = any(site.after_softmax(StepKind.MASK) for site in self.sites)
        return map(_fault, () if cleaned else self.record.noted.get(Trouble.HIDES_OWN, ()))

    @property
    def added_flags(self) -> Iterator[Fault]:
        """Masks of True and False, or 1 and 0, that are added to the scores."""
        return map(_fault, self.record.noted.get(Trouble.ADDED_FLAGS, ()))

    @property
    def misaligned_triangles(self) -> Iterator[Fault]:
        """Causal masks that start at the first key, although a cache comes first."""
        return map(_fault, self.record.noted.get(Trouble.MISALIGNED, ()))

    @property
    def maskless_paths(self) -> Iterator[Fault]:
        """Attention without a mask on one side of a switch, where there is one on the other."""
        own = [site for site in self.reached if site.region is self.region]
        for site in own:
            masked = next((other for other in own if masked_beside(site, other)), None)
            softmax, mask = softmax_of(site.value), first_mask(masked) if masked else None
            if softmax and mask:
                yield Fault(exactly(softmax), related=(exactly(mask), "the mask of the other path"))

    @property
    def plain_masks(self) -> Iterator[Fault]:
        """Masks that a constructor keeps as plain attributes, which stay behind when the module moves."""
        return map(_fault, self.record.noted.get(Trouble.PLAIN_ATTRIBUTE, ()) if self.name == "__init__" else ())

    @property
    def illegal_views(self) -> Iterator[Fault]:
        """``.view`` calls that must fail on the transposed tensor that they get."""
        return map(_fault, self.record.illegal_views)

    @property
    def stray_masks(self) -> Iterator[Fault]:
        """Masked copies that are thrown away, of tensors that belong to no site."""
        return (Fault(exactly(draft)) for draft, core in self.record.dropped if core is None)

    @property
    def unchecked_heads(self) -> Iterator[Fault]:
        """Where a constructor first divides its width by its heads, if its class never checks the remainder."""
        if self.name == "__init__" and not any(_CHECKS_HEADS.search(cls.text) for cls in self.family):
            divisions = [event for event in self.record.unchecked_heads if self._divides_arguments(event.draft.node)]
            yield from map(_fault, divisions[:1])

    def _divides_arguments(self, node: cst.CSTNode) -> bool:
        """Sizes that come from a config object may have been checked there."""
        if not isinstance(node, cst.BinaryOperation):
            return False
        names_used = [side.value for side in (node.left, node.right) if isinstance(side, cst.Name)]
        return len(names_used) == 2 and set(names_used) <= set(self.parameters)

    @property
    def unread_padding_masks(self) -> Iterator[tuple[str, Location]]:
        """Padding masks among the arguments that the body never reads."""
        params = self._tree.params
        for param in (*params.posonly_params, *params.params, *params.kwonly_params):
            name = param.name.value
            if (names.is_padding_mask(name) or self.declares_mask(name)) and not _reads(self._tree.body, name):
                yield name, self.region.location(param.name)

    def declares_mask(self, name: str) -> bool:
        """Whether the contract of the class says what True means in this argument."""
        promised = self.promises.get("masks")
        return isinstance(promised, Mapping) and name in promised

    @property
    def _tree(self) -> cst.FunctionDef:
        assert self.region.tree is not None
        return self.region.tree


_CHECKS_HEADS = re.compile(r"%\s*(?:self\.|config\.)?\w*(?:head|\bh\b)|divmod\(|divisible", re.IGNORECASE)


def _fault(event: Event) -> Fault:
    related = (exactly(event.related), event.label) if event.related else None
    return Fault(exactly(event.draft), event.text, event.help, related)


def _reads(node: cst.CSTNode, name: str) -> bool:
    if isinstance(node, cst.Name):
        return node.value == name
    return any(_reads(child, name) for child in node.children)
