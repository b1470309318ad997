"""Reads one file: walks from its roots, and brings together what the walks have seen of each site."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from attn_guard.anatomy import Site
from attn_guard.lint import nodes as cst
from attn_guard.lint.decorators import decorator_arguments
from attn_guard.lint.function import Function
from attn_guard.lint.record import Record, SiteDraft, Visit
from attn_guard.lint.regions import Region, Source
from attn_guard.lint.roots import is_called, roots
from attn_guard.lint.sites import Locate, exactly, make_site, roughly
from attn_guard.lint.trace import Shared, Walk
from attn_guard.lint.values import Draft, Instance, Tensor, join


@dataclass(eq=False)
class Reading:
    """What was read of a file. Sites and functions are located roughly until somebody asks for more."""

    drafts: list[SiteDraft]
    dropped: list[tuple[Draft, Draft | None]]
    functions: list[Function]

    def __post_init__(self) -> None:
        self.sites = tuple(self._site(draft, roughly) for draft in self.drafts)

    def let_go(self) -> None:
        """Parts records from the objects in them, which know the record that they were made in, so that both are free
        at once."""
        for function in self.functions:
            function.record.returned.clear()
            function.record.visits.clear()

    def exact_site(self, index: int) -> Site:
        """A site with the places of its steps."""
        return self._site(self.drafts[index], exactly)

    def _site(self, draft: SiteDraft, locate: Locate) -> Site:
        return make_site(draft, _dropped_by(draft, self.dropped), locate)


def _dropped_by(draft: SiteDraft, dropped: Iterable[tuple[Draft, Draft | None]]) -> list[Draft]:
    nodes = {step.node for step in draft.value.steps}
    return [mask for mask, core in dropped if core is not None and core.node in nodes and mask.node not in nodes]


def read(source: Source) -> Reading:
    """Everything that can be read of a file."""
    starts = roots(source)
    shared = Shared(frozenset(starts))
    walks: dict[Region, Walk] = {}
    visits: dict[Region, tuple[Walk, Visit]] = {}
    for region in reversed(starts):  # callers first: what they come through need not be walked again
        walk = Walk(source, shared)
        try:
            if region not in visits:
                walk.start(region)
            elif region.owner:
                walk.plain_instance(region.owner)
        except RecursionError:  # an expression of a thousand terms; no attention is written like that
            continue
        if region not in visits and region.tree is not None:
            walks[region] = walk
            for visited, visit in walk.record.visits.items():
                visits.setdefault(visited, (walk, visit))
    drafts = _joined_sites(source, walks)
    dropped = [pair for walk in walks.values() for pair in walk.record.dropped]
    called = {node for walk in walks.values() for node in walk.record.walked}
    functions = [
        _function(region, walk, walk.record, walk.instance, drafts, region.tree in called)
        for region, walk in walks.items()
    ]
    functions += [
        _function(region, walk, walk.record.within(region, visit), visit.instance, drafts, True)
        for region, (walk, visit) in visits.items()
        if region not in walks
    ]
    for instance, record in shared.plain.values():
        constructor = instance.type.methods.get("__init__")
        if constructor is not None and constructor.tree is not None and walks:
            functions.append(Function(constructor, record, family=source.family(instance.type)))
    return Reading(list(drafts.values()), dropped, functions)


def _joined_sites(source: Source, walks: Mapping[Region, Walk]) -> dict[cst.CSTNode, SiteDraft]:
    """Sites by softmax. A function that others in the file call is known better from there than from its own walk;
    where no walk came from there, what it is given is unknown."""
    seen: dict[cst.CSTNode, list[tuple[bool, SiteDraft]]] = {}
    for region, walk in walks.items():
        for softmax, site in walk.record.sites.items():
            alone = site.region is region and not walk.record.walked & {region.tree}
            if alone and is_called(source, region):
                site = replace(site, value=replace(site.value, traced=False))
            seen.setdefault(softmax, []).append((alone, site))
    return {softmax: _merged(views) for softmax, views in seen.items()}


def _merged(views: list[tuple[bool, SiteDraft]]) -> SiteDraft:
    from_callers = [site for alone, site in views if not alone]
    chosen = from_callers or [site for _, site in views]
    complete = [site for site in chosen if site.is_complete] or chosen
    first = complete[0]
    for other in complete[1:]:
        value = join(first.value, other.value)
        beside = [*first.beside, *(b for b in other.beside if all(b.node is not a.node for a in first.beside))]
        merged = value if isinstance(value, Tensor) else first.value
        first = SiteDraft(merged, first.region, beside, first.declares_scale, first.branches)
    return _as_declared(first)


def _as_declared(site: SiteDraft) -> SiteDraft:
    """A class that declares its scale says that it is meant."""
    owner = site.region.owner
    if owner is not None and "scale" in decorator_arguments(owner, "contract"):
        site.declares_scale = True
    return site


def _function(
    region: Region,
    walk: Walk,
    record: Record,
    instance: Instance | None,
    drafts: dict[cst.CSTNode, SiteDraft],
    is_called: bool,
) -> Function:
    reached = tuple(drafts[softmax] for softmax in record.sites if drafts[softmax].is_complete)
    family = walk.family(region.owner) if region.owner else ()
    source = walk.source
    classes = tuple(source.classes.values())
    return Function(region, record, reached, family, instance, is_called, source.text, classes)
