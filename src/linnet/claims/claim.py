"""What a claim, an erratum and a verdict are, and the registry that holds them."""

import inspect
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from linnet import _check
from linnet._check import InputError

PAPERS = {
    "mixed": "Mixed Dynamics In Linear Networks: Unifying the Lazy and Active Regimes",
    "spectral": "On the spectral bias of two-layer linear networks",
    "nonlocal": "Training Linear Neural Networks: Non-Local Convergence and Complexity Results",
    "stability": "Learning Dynamics of Deep Matrix Factorization Beyond the Edge of Stability",
    "feature": "Exact and Rich Feature Learning Dynamics of Two-Layer Linear Networks",
}
AUTHORS = {  # as the texts that we read name them
    "mixed": "Zhenfeng Tu, Santiago Aranguri, Arthur Jacot",
    "spectral": "Aditya Varre, Maria-Luiza Vladarean, Loucas Pillaud-Vivien, Nicolas Flammarion",
    "nonlocal": "Armin Eftekhari",
    "stability": "Anonymous in the version read here, under double-blind review",
    "feature": "Wei Huang, Wuyang Chen, Zhiqiang Xu, Zhangyang Wang, Taiji Suzuki",
}
KINDS = ("exact", "bound", "asymptotic", "statistical", "refuted")
GRADES = ("error", "misprint", "clarification")
SIZES = ("quick", "full")


@dataclass(frozen=True)
class Finding:
    """One measurement and what it must be; `printed` findings test an erratum's printed form and ought to fail."""

    measured: float
    low: float
    high: float
    case: Mapping[str, Any]
    printed: bool = False

    @property
    def holds(self) -> bool:
        """Whether the measurement is as required (NaN is not)."""
        return self.low <= self.measured <= self.high

    @property
    def required(self) -> float:
        """The end of the allowed range that the measurement is closer to."""
        if math.isinf(self.low):
            return self.high
        return self.high if self.high - self.measured < self.measured - self.low else self.low

    @property
    def margin(self) -> float:
        """The unused share of the requirement: 0 just holds, negative fails."""
        if math.isnan(self.measured):
            return -math.inf
        room = min(self.measured - self.low, self.high - self.measured)
        return room / abs(self.required) if self.required else room

    def __str__(self) -> str:
        if math.isinf(self.low) or math.isinf(self.high):
            return f"{self.measured:.4g} {'<=' if math.isinf(self.low) else '>='} {self.required:.4g}"
        return f"{self.measured:.4g} in {self.low:.4g} ... {self.high:.4g}"


def at_most(measured: Any, required: float, **case: Any) -> Finding:
    """The finding that `measured` <= `required`, with what was run."""
    return Finding(float(measured), -math.inf, float(required), case)


def at_least(measured: Any, required: float, **case: Any) -> Finding:
    """The finding that `measured` >= `required`, with what was run."""
    return Finding(float(measured), float(required), math.inf, case)


def within(measured: Any, low: float, high: float, **case: Any) -> Finding:
    """The finding that `low` <= `measured` <= `high`, with what was run."""
    return Finding(float(measured), float(low), float(high), case)


def as_printed(finding: Finding) -> Finding:
    """Marks a finding as the printed form of an erratum, which ought to fail."""
    return replace(finding, printed=True)


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds: its tightest finding, the margin and what was run."""

    holds: bool
    measured: float
    required: float
    margin: float
    seconds: float
    detail: str


Check = Callable[..., Iterator[Finding]]


@dataclass(frozen=True)
class Claim:
    """A statement of a paper made executable.

    `hypotheses` are predicates on a finding's case, by the words that describe them: a finding outside them is an
    error of the check. `broken` are arguments that sabotage the check's subject: with them it must not hold.
    """

    id: str
    statement: str
    place: str
    kind: str
    check: Check
    hypotheses: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)
    broken: Mapping[str, Any] = field(default_factory=dict)

    @property
    def paper(self) -> str:
        """The short name of the paper."""
        return self.id.split("/")[0]

    @property
    def expected(self) -> bool:
        """Whether the statement ought to hold."""
        return self.kind != "refuted"

    def verify(self, size: str = "quick", **subject: Any) -> Verdict:
        """Runs the check at a size; `subject` replaces what is checked."""
        findings, seconds = _run(self, size, subject)
        worst = min(findings, key=lambda f: f.margin)
        return _verdict(all(f.holds for f in findings), worst, len(findings), seconds)


@dataclass(frozen=True)
class Erratum:
    """A place where the print (or its extracted text) differs from what holds; slips of notation have no check."""

    id: str
    place: str
    grade: str
    printed: str
    corrected: str
    evidence: str
    check: Check | None
    hypotheses: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)
    broken: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "erratum"
    expected: bool = True

    @property
    def paper(self) -> str:
        """The short name of the paper."""
        return self.id.split("/")[0]

    @property
    def statement(self) -> str:
        """What is printed and what holds, in one sentence."""
        return f"{self.printed} -> {self.corrected}"

    def verify(self, size: str = "quick", **subject: Any) -> Verdict:
        """The corrected form holds everywhere and the printed form fails somewhere."""
        if self.check is None:
            raise InputError(f"{self.id} is a slip of notation: no computation decides it.")
        findings, seconds = _run(self, size, subject)
        right = [f for f in findings if not f.printed]
        printed = [f for f in findings if f.printed]
        holds = all(f.holds for f in right) and any(not f.holds for f in printed)
        # the correction's tightest finding, or the print's clearest failure where only that was computed
        shown = min(right, key=lambda f: f.margin) if right else min(printed, key=lambda f: f.margin)
        return _verdict(holds, shown, len(findings), seconds)


_REGISTRY: dict[str, Claim | Erratum] = {}


def _run(entry: Claim | Erratum, size: str, subject: Mapping[str, Any]) -> tuple[list[Finding], float]:
    _check.choice("size", size, SIZES)
    assert entry.check is not None
    began = time.perf_counter()
    findings = list(entry.check(size, **subject))
    if not findings:
        raise RuntimeError(f"{entry.id} found nothing: a check must measure something.")
    for finding in findings:
        for words, predicate in entry.hypotheses.items():
            if not predicate(finding.case):
                raise RuntimeError(f"{entry.id} was checked outside its hypothesis {words!r}: {dict(finding.case)}")
    return findings, time.perf_counter() - began


def _verdict(holds: bool, shown: Finding, count: int, seconds: float) -> Verdict:
    case = ", ".join(f"{name}={_check.show(value)}" for name, value in shown.case.items())
    detail = f"{count} finding{'s' if count > 1 else ''}; tightest: {shown}"
    return Verdict(
        holds, shown.measured, shown.required, shown.margin, seconds, f"{detail} ({case})" if case else detail
    )


def _register(entry: Claim | Erratum, letter: str) -> None:
    paper, _, number = entry.id.partition("/")
    if paper not in PAPERS or not re.fullmatch(rf"{letter}\d+", number):
        raise ValueError(f"{entry.id!r} is no id: use <paper>/{letter}<number>, paper one of {', '.join(PAPERS)}.")
    if entry.id in _REGISTRY:
        raise ValueError(f"{entry.id} is registered twice.")
    _REGISTRY[entry.id] = entry


def claim(
    id: str,  # noqa: A002
    kind: str,
    place: str,
    *,
    hypotheses: Mapping[str, Callable[[Any], bool]] | None = None,
    broken: Mapping[str, Any],
) -> Callable[[Check], Claim]:
    """Registers a check as a claim. Its docstring is the statement, one sentence."""

    def register(check: Check) -> Claim:
        if kind not in KINDS:
            raise ValueError(f"{id}: kind = {kind!r} must be one of {', '.join(KINDS)}.")
        entry = Claim(id, _sentence(check), place, kind, check, hypotheses or {}, broken)
        _register(entry, "C")
        return entry

    return register


def erratum(
    id: str,  # noqa: A002
    grade: str,
    place: str,
    *,
    printed: str,
    corrected: str,
    broken: Mapping[str, Any] | None = None,
) -> Callable[[Check], Erratum]:
    """Registers a check as an erratum that a computation decides. Its docstring is the evidence."""

    def register(check: Check) -> Erratum:
        entry = Erratum(id, place, _grade(id, grade), printed, corrected, _sentence(check), check, broken=broken or {})
        _register(entry, "E")
        return entry

    return register


def noted(id: str, grade: str, place: str, *, printed: str, corrected: str, evidence: str = "") -> Erratum:  # noqa: A002
    """Registers an erratum that no computation decides: a slip of notation, or of an argument."""
    entry = Erratum(id, place, _grade(id, grade), printed, corrected, evidence or "Recorded as text.", None)
    _register(entry, "E")
    return entry


def _grade(id: str, grade: str) -> str:  # noqa: A002
    if grade not in GRADES:
        raise ValueError(f"{id}: grade = {grade!r} must be one of {', '.join(GRADES)}.")
    return grade


def _sentence(check: Check) -> str:
    return " ".join((inspect.getdoc(check) or "").split())


def _order(id: str) -> tuple[int, str, int]:  # noqa: A002
    paper, number = id.split("/")
    return list(PAPERS).index(paper), number[0], int(number[1:])


def registry() -> dict[str, Claim | Erratum]:
    """All claims and errata by id, in the order of the papers."""
    import linnet.claims.convergence
    import linnet.claims.feature
    import linnet.claims.landscape
    import linnet.claims.mixed
    import linnet.claims.spectral
    import linnet.claims.stability  # noqa: F401  (they register themselves)

    return {name: _REGISTRY[name] for name in sorted(_REGISTRY, key=_order)}


def find(ids: list[str], paper: str | None = None) -> list[Claim | Erratum]:
    """The entries with these ids (all that can be computed if none are given), of one paper if asked."""
    entries = registry()
    if paper is not None:
        _check.choice("paper", paper, list(PAPERS))
    unknown = [name for name in ids if name not in entries]
    if unknown:
        known = sorted(entries, key=_order)
        raise InputError(
            f"id = {unknown[0]!r} is not known: it must be one of {known[0]} ... {known[-1]}; see linnet list."
        )
    chosen = [entries[name] for name in ids] if ids else [e for e in entries.values() if e.check is not None]
    return [entry for entry in chosen if paper is None or entry.paper == paper]
