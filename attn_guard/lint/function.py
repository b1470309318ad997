"""What a gotcha's ``lint(function)`` sees: one function of the source, its sites, and what is in it besides sites."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from attn_guard.anatomy import Site, Stage, StepKind
from attn_guard.findings import Location
from attn_guard.lint import copies, grouping, names, time_convolutions, wiring, written_softmax
from attn_guard.lint import nodes as cst
from attn_guard.lint.decorators import decorator_arguments
from attn_guard.lint.fused_call import fused_call
from attn_guard.lint.idle_dropout import idle_dropouts
from attn_guard.lint.optional_masks import lost_without_caller
from attn_guard.lint.paths import first_mask, masked_beside
from attn_guard.lint.record import Event, Record, SiteDraft, Trouble, softmax_of
from attn_guard.lint.regions import Class, Region
from attn_guard.lint.roots import calls
from attn_guard.lint.sites import Locate, exactly, make_site, roughly
from attn_guard.lint.unread import is_unread
from attn_guard.lint.values import AttentionMap, Draft, Instance, Layer, Role, Sequence, Tensor

if TYPE_CHECKING:
    from attn_guard.findings import Finding


@dataclass(frozen=True)
class Fault:
    """Something at a place: what it is about, how it is mended where that differs, and a second place with a label."""

    location: Location
    text: str = ""
    help: str = ""
    related: tuple[Location, str] | None = None


@dataclass(frozen=True)
class Mixup:
    """The part of an attention that is made wrongly, the part whose projection it takes (None: it has none), and its
    own projection, which lies idle."""

    location: Location
    wrong: Stage
    other: Stage | None
    idle: str


@dataclass(eq=False)
class Function:
    """A function or method.

    record: what its walk has seen. reached: the complete sites in itself or in what it calls in the file.
    family: its class and the bases of that in the file. instance: the object that it is a method of.
    is_called: the file calls it where it walks. file: all its text. classes: those of the file.
    """

    region: Region
    record: Record
    reached: tuple[SiteDraft, ...] = ()
    family: tuple[Class, ...] = ()
    instance: Instance | None = None
    is_called: bool = False
    file: str = ""
    classes: tuple[Class, ...] = ()
    locate: Locate = roughly

    @property
    def exact(self) -> Function:
        """The same function with the places of everything. They cost more than all else, so a gotcha is first asked
        about one that gives no more than the place of the function itself."""
        return replace(self, locate=exactly)

    @property
    def name(self) -> str:
        return self.region.name

    @property
    def is_test(self) -> bool:
        """Whether test runners collect it."""
        return self.name.startswith("test")

    @property
    def class_name(self) -> str:
        """Name of the class that it is a method of, or ""."""
        return self.region.owner.name if self.region.owner else ""

    @property
    def is_called_causal(self) -> bool:
        """Whether the name of its class says that it is causal in time."""
        owner = self.region.owner
        return owner is not None and names.is_causal(owner.name) and not names.speaks_of_causes(owner.text)

    @cached_property
    def promises(self) -> Mapping[str, Any]:
        """What the class declares with ``@contract(...)``, as far as it is written out."""
        return decorator_arguments(self.region.owner, "contract") if self.region.owner else {}

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        """The complete sites that it reaches."""
        return tuple(make_site(draft, (), self.locate) for draft in self.reached)

    @cached_property
    def own_sites(self) -> tuple[Site, ...]:
        """Those that stand in its own body."""
        return tuple(make_site(draft, (), self.locate) for draft in self.reached if draft.region is self.region)

    @cached_property
    def unmasked_sites(self) -> tuple[Site, ...]:
        """Those of them whose scores are surely under no mask."""
        open_ones = (draft for draft in self.reached if draft.region is self.region and not draft.value.opaque)
        sites = (make_site(draft, (), self.locate) for draft in open_ones)
        return tuple(site for site in sites if not site.find(StepKind.MASK))

    def judged(self, check: Callable[[Site], Iterable[Finding]]) -> Iterator[Finding]:
        """What ``check`` says of the sites in its own body."""
        for site in self.own_sites:
            yield from check(site)

    @property
    def location(self) -> Location:
        """The name of the function, in its first line."""
        return self._place(self._tree.name)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of its arguments, ``*args`` and ``**kwargs`` included."""
        params = self._tree.params
        stars = [star for star in (params.star_arg, params.star_kwarg) if isinstance(star, cst.Param)]
        return tuple(param.name.value for param in (*params.single, *stars))

    @property
    def misread_masks(self) -> Iterator[Fault]:
        """Masks that reach something in which True means the opposite."""
        return map(self._fault, self.record.misread)

    @property
    def wide_triangles(self) -> Iterator[Fault]:
        """Causal masks that show the key after the query's own."""
        return self._noted(Trouble.SEES_NEXT)

    @property
    def narrow_triangles(self) -> Iterator[Fault]:
        """Causal masks that hide the query's own key, unless rows without keys are zeroed after the softmax."""
        hiding = self.record.noted.get(Trouble.HIDES_OWN, ())
        kinds = (StepKind.MASK, StepKind.ROWS)
        cleaned = hiding and any(site.after_softmax(kind) for site in self.sites for kind in kinds)
        return map(self._fault, () if cleaned else hiding)

    @property
    def added_flags(self) -> Iterator[Fault]:
        """Masks of True and False, or 1 and 0, that are added to the scores."""
        return self._noted(Trouble.ADDED_FLAGS)

    @property
    def misaligned_triangles(self) -> Iterator[Fault]:
        """Causal masks that start at the first key, although a cache comes first."""
        return self._noted(Trouble.MISALIGNED)

    @property
    def split_joins(self) -> Iterator[Fault]:
        """Where two masks are joined so that what one of them hides is seen after all."""
        return self._noted(Trouble.SPLIT)

    @property
    def flat_masks(self) -> Iterator[Fault]:
        """Masks of samples that have fewer axes than the scores they meet. What callers bring may have more."""
        return iter(()) if self.is_called else self._noted(Trouble.TOO_FEW_AXES)

    @property
    def foreign_masks(self) -> Iterator[Fault]:
        """Masks that are built from another input than the one whose positions they hide."""
        return self._noted(Trouble.FOREIGN)

    @property
    def tiled_masks(self) -> Iterator[Fault]:
        """Masks copied for all heads of all samples in the wrong order."""
        return self._noted(Trouble.TILED)

    @property
    def open_rows(self) -> Iterator[Fault]:
        """Fills of -inf under a causal mask joined with padding, where nobody takes care of NaN."""
        cared_for = "nan" in self.region.text.lower() or any(site.find(StepKind.ROWS) for site in self.sites)
        return iter(()) if cared_for else self._noted(Trouble.EMPTY_ROW)

    @property
    def overflows(self) -> Iterator[Fault]:
        """Sums of two masks that are each as low as a number can be."""
        return self._noted(Trouble.OVERFLOW)

    @property
    def is_half(self) -> bool:
        """Whether the file makes an object of the class and turns it into float16."""
        if not self.class_name or f"{self.class_name}(" not in self.file or not _HALF.search(self.file):
            return False
        return re.search(rf"\b{self.class_name}\([^\n]*{_HALF.pattern}", self.file) is not None

    @property
    def masks_lost_without_caller(self) -> Iterator[Fault]:
        """Where a mask of the function's own is joined to one that may be left out, and used nowhere else."""
        if "is_causal" not in self.region.text:
            for statement, own, given in lost_without_caller(self._tree, self.region.text):
                yield Fault(self._place(statement), f"{own} is lost where no {given} is given")

    @property
    def maskless_paths(self) -> Iterator[Fault]:
        """Attention without a mask on one side of a switch, where there is one on the other."""
        own = [site for site in self.reached if site.region is self.region]
        for site in own:
            masked = next((other for other in own if masked_beside(site, other)), None)
            softmax, mask = softmax_of(site.value), first_mask(masked) if masked else None
            if softmax and mask:
                yield Fault(self.locate(softmax), related=(self.locate(mask), "the mask of the other path"))

    @property
    def plain_masks(self) -> Iterator[Fault]:
        """Masks that a constructor keeps as plain attributes, which stay behind when the module moves."""
        return map(self._fault, self.record.noted.get(Trouble.PLAIN_ATTRIBUTE, ()) if self.name == "__init__" else ())

    @property
    def illegal_views(self) -> Iterator[Fault]:
        """``.view`` calls that must fail on the transposed tensor that they get."""
        return map(self._fault, self.record.illegal_views)

    def _noted(self, trouble: Trouble) -> Iterator[Fault]:
        return map(self._fault, self.record.noted.get(trouble, ()))

    @property
    def convolutions_ahead(self) -> Iterator[Fault]:
        """Convolutions over time that are padded on both sides; the text is the causal model that uses them."""
        makes_one = self.name == "__init__" and "Conv1d(" in self.region.text
        for constructor, model in time_convolutions.looking_ahead(self.classes) if makes_one else ():
            if constructor is self.region:
                for made in time_convolutions.padded_on_both_sides(self._tree):
                    yield Fault(self._place(made), model.name)

    @property
    def norms_over_time(self) -> Iterator[Fault]:
        """Norms over time as well as features, in a function that is meant to be causal."""
        is_causal = self.promises.get("causal") is True or self.is_called_causal
        return self._noted(Trouble.NORM_OVER_TIME) if is_causal else iter(())

    @property
    def lossy_copies(self) -> Iterator[Fault]:
        """Where it copies its own object as one of its class, although a causal subclass inherits it."""
        is_copy = bool(self.class_name) and f"return {self.class_name}(" in self.region.text
        for method, derived in copies.lossy(self.classes) if is_copy else ():
            if method is self.region:
                for made in copies.copies(self._tree, self.class_name):
                    yield Fault(self._place(made), derived.name)

    @property
    def single_cells(self) -> Iterator[Fault]:
        """Causal masks of one query and one key."""
        return self._noted(Trouble.SINGLE_CELL)

    @property
    def unmasked_padding(self) -> Iterator[Fault]:
        """Calls of built-in layers whose input holds padding, without any mask."""
        return self._noted(Trouble.PADS_SEEN)

    @property
    def zeroed_logits(self) -> Iterator[Fault]:
        """Products with a mask that a softmax takes for logits, of which the weights go on to a value."""
        return self._noted(Trouble.ZEROED_LOGITS)

    @property
    def batch_attention(self) -> Iterator[Fault]:
        """Layers that run along the first axis, where the source shows that it is the batch."""
        return self._noted(Trouble.OVER_BATCH)

    @property
    def head_attention(self) -> Iterator[Fault]:
        """Scores of heads with heads."""
        return self._noted(Trouble.OVER_HEADS)

    @property
    def lost_letters(self) -> Iterator[Fault]:
        """Letters of an einsum that nothing else in it has."""
        return self._noted(Trouble.LOST_LETTER)

    @property
    def moving_reshapes(self) -> Iterator[Fault]:
        """Reshapes after which an axis has other sizes in front of it."""
        return self._noted(Trouble.MOVED_AXIS)

    @property
    def positions_on_batch(self) -> Iterator[Fault]:
        """Tables of positions that are added along what the next layer takes for the batch."""
        return self._noted(Trouble.POSITIONS_ON_BATCH)

    @property
    def misplaced_positions(self) -> Iterator[Fault]:
        """Tables of positions that are cut to the length of one axis and added along another."""
        return self._noted(Trouble.POSITIONS_ELSEWHERE)

    @property
    def angles_over_heads(self) -> Iterator[Fault]:
        """Positions of rotary angles that are counted along the heads."""
        return self._noted(Trouble.ANGLES_OVER_HEADS)

    @property
    def contradicted_spreads(self) -> Iterator[Fault]:
        """Heads of keys that are spread in one order and queries that lie in the other."""
        for spread, other in grouping.contradictions(self.record.head_orders):
            yield Fault(self.locate(spread), related=(self.locate(other), "heads lie in the other order here"))

    @property
    def unequal_thirds(self) -> Iterator[Fault]:
        """Fused projections with fewer heads of keys that are cut in equal thirds."""
        attributes = self.instance.attributes if self.instance else {}
        for cut, projection in self.record.thirds:
            layer = attributes.get(wiring.layer_called(projection))
            if isinstance(layer, Layer) and grouping.makes_fewer_keys(layer):
                yield Fault(self.locate(cut))

    @cached_property
    def idle_projections(self) -> dict[Stage, str]:
        """The projections of its class that no method uses, by the part that they are named after."""
        return wiring.idle_projections(self.family, self.instance) if self.instance else {}

    @property
    def mixups(self) -> Iterator[Mixup]:
        """Parts of an attention made with the projection of another part, or with none, while their own lies idle."""
        for operands in self.record.operands:
            if operands.core.region.owner in self.family:
                for draft, wrong, other, idle in wiring.mixed_up(operands, self.idle_projections):
                    yield Mixup(self.locate(draft), wrong, other, idle)
        yield from self._unread_values

    @property
    def _unread_values(self) -> Iterator[Mixup]:
        """Contexts of a bare input, where a value was made beside query and key."""
        bare = [operands.core for operands in self.record.operands if operands.is_value_bare]
        own = [core for core in bare if core.region is self.region]
        unread = wiring.unread_value(self.region.text) if own else ""
        if unread:
            yield Mixup(self.locate(own[0]), Stage.VALUE, None, unread)

    @cached_property
    def memory(self) -> str:
        """The argument that its cross attention asks, as the contract or its name says; "" where nothing does."""
        return wiring.memory_of(self._inputs, self.promises.get("cross") is True)

    @property
    def asking_memories(self) -> Iterator[Location]:
        """Queries made of the memory whose keys come from the stream that should read it."""
        if self.memory:
            yield from map(self.locate, wiring.swapped(self.record.operands, self.memory, self._inputs))

    @property
    def unread_memory(self) -> Location | None:
        """Where it asks its own stream although it must be given a memory, which it never reads."""
        tree = self._tree
        required = [param for param in tree.params.params if param.default is None]
        is_asked_for = any(param.name.value == self.memory for param in required)
        if not self.memory or not is_asked_for or tree.body.holds_name(self.memory):
            return None
        own = [draft for draft in self.record.attended if draft.region is self.region]
        crossing = [draft for draft in own if re.search("cross|enc.*dec|dec.*enc", wiring.layer_called(draft))]
        cores = [o.core for o in self.record.operands if o.core.region is self.region]
        is_decoder = re.search("cross|decoder", self.class_name, re.IGNORECASE)
        chosen = crossing or (own or cores if is_decoder else [])
        return self.locate(chosen[-1]) if chosen else None

    @property
    def unused_attention(self) -> Iterator[Location]:
        """Calls of an attention whose result nothing reads."""
        owner = self.region.owner
        if owner is None or "forward" not in owner.methods:
            return
        for draft in self.record.attended:
            if draft.region is self.region and wiring.layer_called(draft) and is_unread(self._tree.body, draft.node):
                yield self.locate(draft)

    @property
    def _inputs(self) -> tuple[str, ...]:
        """Names of its arguments without the module itself."""
        return self.parameters[1:] if self.region.owner else self.parameters

    @property
    def drops_in_eval(self) -> Iterator[Fault]:
        """Dropout that knows of no mode, on what is named by the text of the fault."""
        return self._noted(Trouble.DROPS_IN_EVAL)

    @property
    def rates_handed_on(self) -> Iterator[Fault]:
        """Rates of the module for the attention of a function that is not in sight."""
        return self._noted(Trouble.HANDS_RATE_ON)

    @property
    def idle_dropouts(self) -> Iterator[Fault]:
        """Dropout that the class of an attention keeps and that nothing reads."""
        owner = self.region.owner
        if owner and any(site.region.owner is owner for site in self.reached):
            for constructor, target, name in idle_dropouts(owner, self.classes, self.file):
                yield Fault(self.locate(Draft(StepKind.DROPOUT, target, constructor)), name)

    @property
    def masked_and_causal(self) -> Iterator[Fault]:
        """Calls of the fused attention that are given a mask and ``is_causal=True``."""
        return self._noted(Trouble.MASK_AND_IS_CAUSAL)

    @property
    def deprecated_contexts(self) -> Iterator[Fault]:
        """Uses of ``torch.backends.cuda.sdp_kernel``, unless the file knows its successor, too, and chooses."""
        knows_successor = "sdpa_kernel" in self.file and re.search(r"\bsdpa_kernel\b", self.file)
        return iter(()) if knows_successor else self._noted(Trouble.DEPRECATED_CONTEXT)

    @property
    def unread_maps(self) -> Iterator[Fault]:
        """Calls of ``nn.MultiheadAttention`` that make weights which nobody reads."""
        return self._noted(Trouble.UNREAD_MAP)

    @property
    def second_softmaxes(self) -> Iterator[Fault]:
        """Softmaxes of weights, along the axis that these are normalised over already."""
        return self._noted(Trouble.SECOND_SOFTMAX)

    @property
    def unsafe_softmaxes(self) -> Iterator[Fault]:
        """Exponentials of scores that are summed and meet the value, with nothing taken off the scores."""
        for raised, total in written_softmax.unsafe(self.record):
            yield Fault(self.locate(raised), related=(self.locate(total), "summed here"))

    @property
    def fused_calls(self) -> Iterator[Fault]:
        """Attention written step by step in its own body, with the fused call that computes it."""
        if any(isinstance(value, Sequence) for value in self.record.returned):
            return
        for draft in self.reached:
            site = make_site(draft, (), self.locate)
            call = fused_call(draft, site, self.instance) if draft.region is self.region else None
            if call and site.scores and site.context:
                yield Fault(site.scores.location, help=call, related=(site.context.location, "up to here"))

    @property
    def unused_softmaxes(self) -> Iterator[Fault]:
        """Softmaxes of scores that stand as statements of their own."""
        return self._noted(Trouble.UNUSED_SOFTMAX)

    @property
    def bare_contexts(self) -> Iterator[Fault]:
        """Products of masked scores with the value."""
        return self._noted(Trouble.NO_SOFTMAX)

    @property
    def dropped_maps(self) -> Iterator[Location]:
        """Dropout of its own on weights that it returns beside something else."""
        for value in self.record.returned:
            items = value.items if isinstance(value, Sequence) and not value.endless else ()
            maps = [item for item in items if isinstance(item, Tensor) and item.role is Role.WEIGHTS]
            steps = [step for item in maps if len(items) > 1 for step in item.steps if step.kind is StepKind.DROPOUT]
            yield from (exactly(step) for step in steps if step.stage is Stage.WEIGHTS and step.region is self.region)

    @property
    def returned_means(self) -> Iterator[Location]:
        """Where weights are averaged over the heads that it returns."""
        for value in self.record.returned:
            items = value.items if isinstance(value, Sequence) else (value,)
            yield from (exactly(item.draft) for item in items if isinstance(item, AttentionMap) and item.averaged)

    @property
    def stray_masks(self) -> Iterator[Fault]:
        """Masked copies that are thrown away, of tensors that belong to no site."""
        dropped = (draft for draft, core in self.record.dropped if core is None)
        return (Fault(self.locate(draft)) for draft in dropped if draft.fill is None or draft.fill < 0)

    @property
    def unchecked_heads(self) -> Iterator[Fault]:
        """Where a constructor first divides its width by its heads, if its class never checks the remainder."""
        if self.name == "__init__" and not any(_CHECKS_HEADS.search(cls.text) for cls in self.family):
            divisions = [event for event in self.record.unchecked_heads if self._divides_arguments(event.draft.node)]
            yield from map(self._fault, divisions[:1])

    def _divides_arguments(self, node: cst.CSTNode) -> bool:
        """Sizes that come from a config object may have been checked there."""
        if not isinstance(node, cst.BinaryOperation):
            return False
        names_used = [side.value for side in (node.left, node.right) if isinstance(side, cst.Name)]
        return len(names_used) == 2 and set(names_used) <= set(self.parameters)

    @property
    def unread_padding_masks(self) -> Iterator[tuple[str, Location]]:
        """Padding masks among the arguments that the body never reads."""
        for param in self._tree.params.single:
            name = param.name.value
            is_promised = self.declares_mask(name)
            is_unread = (is_promised or names.is_padding_mask(name)) and not self._tree.body.holds_name(name)
            if is_unread and (is_promised or not self._is_shaped_by_a_stack):
                yield name, self._place(param.name)

    @cached_property
    def _is_shaped_by_a_stack(self) -> bool:
        """Whether it is a layer that has to take the masks of ``nn.TransformerDecoder`` or the like, reads none of
        them, and is given none in the file."""
        is_handed_over = _STACK.search(self.file) is not None and calls(self.file, self.class_name) > 1
        masks = [name for name in self.parameters if names.is_mask(name)]
        reads = any(self._tree.body.holds_name(name) for name in masks)
        return bool(self.class_name) and is_handed_over and not reads and not _GIVES_PADDING.search(self.file)

    def declares_mask(self, name: str) -> bool:
        """Whether the contract of the class says what True means in this argument."""
        promised = self.promises.get("masks")
        return isinstance(promised, Mapping) and name in promised

    def _fault(self, event: Event) -> Fault:
        related = (self.locate(event.related), event.label) if event.related else None
        return Fault(self.locate(event.draft), event.text, event.help, related)

    def _place(self, node: cst.CSTNode) -> Location:
        return self.locate(Draft(StepKind.OUTPUT, node, self.region))

    @property
    def _tree(self) -> cst.FunctionDef:
        assert self.region.tree is not None
        return self.region.tree


_STACK = re.compile(r"Transformer(?:En|De)coder\(")
_GIVES_PADDING = re.compile(r"key_padding_mask=(?!None)\S")
_HALF = re.compile(r"\)\.(?:half\(\)|to\((?:dtype=)?torch\.(?:half|float16)\))")
_CHECKS_HEADS = re.compile(r"%\s*(?:self\.|config\.)?\w*(?:head|\bh\b)|divmod\(|divisible", re.IGNORECASE)
