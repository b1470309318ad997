"""What attn-guard says about a mutant, against what it should say."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType

from attn_guard import Finding, Report, check
from tests.bench.mutants.experiment import padded_call
from tests.bench.mutants.fault import Fault, Mutant

ABOUT_WEIGHTS = ("ATN601", "ATN602", "ATN603")
INFOS = ("ATN601",)  # never fails a run, by its catalogue: an info is all there is to find


@dataclass(frozen=True)
class Score:
    """A mutant, the situation in which it differs from its twin, and the report on it."""

    mutant: Mutant
    situation: str
    report: Report

    @cached_property
    def failing(self) -> list[Finding]:
        return [finding for finding in self.report if finding.fails or finding.code in INFOS]

    @property
    def code(self) -> str:
        return self.mutant.fault.code

    @property
    def found(self) -> bool:
        return any(finding.code in self.mutant.fault.codes for finding in self.failing)

    @property
    def first(self) -> bool:
        return bool(self.failing) and self.failing[0].code in self.mutant.fault.codes

    @property
    def alone(self) -> bool:
        """Nothing else fails beside the right code."""
        return self.first and len({finding.code for finding in self.failing}) == 1

    @property
    def blamed(self) -> bool:
        lines = self.mutant.faulty_lines
        codes = self.mutant.fault.codes
        return any(finding.code in codes and finding.location.line in lines for finding in self.failing)

    @property
    def instead(self) -> str:
        """What was found, one code with its line after the other."""
        shown = [f"{finding.code}:{finding.location.line}" for finding in self.report]
        return ", ".join(dict.fromkeys(shown)) or "nothing"


def report(style: ModuleType, fault: Fault | None = None) -> Report:
    """The report on a style as a user would ask for it: the module, a call, and the contract of its class.

    Who wants to know about the weights asks for them, and who runs a module in float16 checks it in float16.
    """
    sizes = dict(fault.sizes) if fault else {}
    args, kwargs = style.inputs(**sizes)
    if fault and fault.padded:
        (args, kwargs), _ = padded_call(style, sizes)
    if fault and fault.code in ABOUT_WEIGHTS:
        kwargs = {**kwargs, **style.WEIGHTS}
    module = style.build()
    if fault and fault.code == "ATN204" and fault.situation in ("", "half"):
        module = module.half()
        args = tuple(arg.half() if arg.is_floating_point() else arg for arg in args)
    return check(module, args, kwargs, preview=True)
