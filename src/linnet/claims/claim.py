"""What a claim, an erratum and a verdict are, and the registry that holds them."""

import abc
import inspect
import math
import time
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, ValidationError, create_model
from scipy.special import stdtr

from linnet import _check
from linnet._check import InputError
from linnet._schema import Part, sentence
from linnet.papers import admit, blamed, enlist, import_papers, place, subjects, unknown

KINDS = ("exact", "bound", "asymptotic", "statistical", "refuted")
GRADES = ("error", "misprint", "clarification")
SIZES = ("quick", "full")
THREE = "three standard deviations over ten seeds"  # at quick size: how a band was set


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
        """The unused share of what is allowed, from 1 (all of it) over 0 (it just holds) to -1: negative fails.

        1 - measured/most for a size that may be at most so much, 1 - least/measured for one that must be at least so
        much, and of two bounds the distance from the nearer one over half of the range.
        """
        slack, both = self.slack, math.isfinite(self.low) and math.isfinite(self.high)
        whole = (self.high - self.low) / 2 if both else max(abs(self.measured), abs(self.required))
        if not math.isfinite(self.measured) or abs(slack) >= whole:  # NaN too
            return 0.0 if slack == 0 else 1.0 if self.holds else -1.0
        return slack / whole

    @property
    def tightness(self) -> tuple[float, float]:
        """What tells the tightest of many: the margin, and the slack where that is the same."""
        return self.margin, self.slack

    @property
    def slack(self) -> float:
        """The distance from the nearer bound; negative outside, and NaN is outside of everything."""
        return -math.inf if math.isnan(self.measured) else min(self.measured - self.low, self.high - self.measured)

    def __str__(self) -> str:
        if math.isinf(self.low) or math.isinf(self.high):
            return f"{self.measured:.4g} {'<=' if math.isinf(self.low) else '>='} {self.required:.4g}"
        return f"{self.measured:.4g} in {self.low:.4g} ... {self.high:.4g}"


def at_most(measured: Any, required: float, **case: Any) -> Finding:
    """The finding that `measured`, or the largest number of an array, is at most `required`, with what was run."""
    return Finding(float(np.asarray(measured).max()), -math.inf, float(required), case)


def at_least(measured: Any, required: float, **case: Any) -> Finding:
    """The finding that `measured`, or the smallest number of an array, is at least `required`, with what was run."""
    return Finding(float(np.asarray(measured).min()), float(required), math.inf, case)


def within(measured: Any, low: float, high: float, **case: Any) -> Finding:
    """The finding that `low` <= `measured` <= `high`, with what was run."""
    return Finding(float(measured), float(low), float(high), case)


def near(measured: Any, center: float, radius: float, **case: Any) -> Finding:
    """The finding that `measured` lies within `radius` of `center`, with what was run."""
    return within(measured, center - radius, center + radius, **case)


def close(
    measured: Any, expected: Any, *, rtol: float | None = None, atol: float | None = None, **case: Any
) -> Finding:
    """The finding that arrays (or numbers) agree: the largest |measured / expected - 1| is at most `rtol`, or the
    largest |measured - expected| at most `atol`, whichever is given.
    """
    if rtol is not None:
        return at_most(np.abs(measured / expected - 1), rtol, **case)
    assert atol is not None
    return at_most(np.abs(measured - expected), atol, **case)


def as_printed(finding: Finding, reading: str = "") -> Finding:
    """Marks a finding as the printed form of an erratum, which ought to fail.

    `reading` names a reading of the sentence other than the literal one; the printed form must fail in each.
    """
    return replace(finding, printed=True, case={**finding.case, "reading": reading} if reading else finding.case)


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds: its tightest finding, the margin and what was run."""

    holds: bool
    measured: float
    required: float
    margin: float
    seconds: float
    detail: str


class Measured(NamedTuple):
    """All findings of a check, and how long they took."""

    findings: list[Finding]
    seconds: float


def two_sided(errors: float, freedom: float = math.inf) -> float:
    """The probability that a normal estimate is further than so many standard errors from its mean, or by Student's law
    that of one whose standard error has so many degrees of freedom.
    """
    if math.isinf(freedom):
        return math.erfc(errors / math.sqrt(2))
    return 2 * float(stdtr(freedom, -errors))


def one_sided(errors: float, freedom: float = math.inf) -> float:
    """Half of `two_sided`: the probability of an estimate that lies so many standard errors above its mean, or more."""
    return two_sided(errors, freedom) / 2


Check = Callable[..., Iterator[Finding]]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Dimension = Annotated[int, Field(ge=10, le=1000)]


class _Entry(abc.ABC):
    """What claims and errata do alike."""

    id: str
    check: Check | None
    hypotheses: Mapping[str, Callable[[Any], bool]]
    negative_control: Mapping[str, Any]

    @property
    def paper(self) -> str:
        """The short name of the paper."""
        return self.id.split("/")[0]

    @property
    def parameters(self) -> dict[str, Any]:
        """What may be changed, with its default."""
        if self.check is None:
            return {}
        given = inspect.signature(self.check).parameters.values()
        return {p.name: p.default for p in given if p.default is not p.empty and p.name not in self.negative_control}

    def measure(self, size: str = "quick", **subject: Any) -> Measured:
        """Runs the check at a size; `subject` replaces what is checked, or changes parameters."""
        _check.choice("size", size, SIZES)
        if self.check is None:
            raise InputError(
                f"{self.id} is recorded as text, a slip of notation or of an argument: no computation decides it."
            )
        began = time.perf_counter()
        with blamed(self.id):
            findings = list(self.check(size, **subject))
            outside = [
                (words, finding)
                for finding in findings
                for words, predicate in self.hypotheses.items()
                if not predicate(finding.case)
            ]
        if not findings:
            raise InputError(f"{self.id} found nothing: a check must measure something.")
        for words, finding in outside[:1]:
            raise InputError(f"{self.id} was checked outside its hypothesis {words!r}: {dict(finding.case)}")
        return Measured(findings, time.perf_counter() - began)

    @abc.abstractmethod
    def judge(self, measured: Measured) -> Verdict:
        """The verdict on what was measured."""

    def verify(self, size: str = "quick", **subject: Any) -> Verdict:
        """Measures and judges."""
        return self.judge(self.measure(size, **subject))


@dataclass(frozen=True)
class Claim(_Entry):
    """A statement of a paper made executable.

    `hypotheses` are predicates on a finding's case, by their descriptions: a finding outside them is an error of the
    check. `negative_control` are arguments that make the check's subject wrong: with them it must not hold. All other
    arguments of the check that have a default are its `parameters`, which may be changed.

    A statistical claim has `tests` significance tests at quick size, each of which errs with a probability of at most
    `level`: it rejects an equality that holds, or takes chance for an effect. `band` is the bound of the other
    findings, and how it was set.
    """

    id: str
    statement: str
    place: str
    kind: str
    check: Check
    hypotheses: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)
    negative_control: Mapping[str, Any] = field(default_factory=dict)
    level: float | None = None
    tests: int = 0
    band: str = ""

    @property
    def expected(self) -> bool:
        """Whether the statement ought to hold."""
        return self.kind != "refuted"

    @property
    def error(self) -> float:
        """A bound on the probability that any of its significance tests errs: their number times their level."""
        return min(1.0, self.tests * (self.level or 0.0))

    @property
    def significance(self) -> str:
        """The tests and the band in words; nothing if the claim is not statistical."""
        words = f"{self.tests} test{'s' if self.tests > 1 else ''} at level {self.level:.2g}" if self.level else ""
        return "; ".join(filter(None, (words, self.band)))

    def judge(self, measured: Measured) -> Verdict:
        """It holds if every finding does."""
        findings, seconds = measured
        worst = min(findings, key=lambda f: f.tightness)
        return _verdict(all(f.holds for f in findings), worst, len(findings), seconds)


@dataclass(frozen=True)
class Erratum(_Entry):
    """A place where the print (or its extracted text) differs from what holds; slips of notation have no check.

    `reading` is the most charitable reading of the sentence, with what is right about it.
    """

    id: str
    place: str
    grade: str
    printed: str
    corrected: str
    evidence: str
    check: Check | None
    reading: str = ""
    hypotheses: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)
    negative_control: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "erratum"
    expected: bool = True

    @property
    def statement(self) -> str:
        """What is printed and what holds, in one sentence."""
        return f"{self.printed} -> {self.corrected}"

    def judge(self, measured: Measured) -> Verdict:
        """The corrected form holds everywhere and the printed form fails somewhere, in each of its readings.

        The margin is that of the correction's tightest finding or of the print's clearest failure, whichever is less: a
        failure's share counts for the erratum.
        """
        findings, seconds = measured
        right = [f for f in findings if not f.printed]
        printed = [f for f in findings if f.printed]
        readings: dict[str, list[Finding]] = {}
        for f in printed:
            readings.setdefault(f.case.get("reading", ""), []).append(f)
        clearest = [min(found, key=lambda f: f.tightness) for found in readings.values()]
        holds = all(f.holds for f in right) and bool(printed) and all(not f.holds for f in clearest)
        deciding = [(f.margin, f) for f in right] + [(-f.margin, f) for f in clearest]
        margin, shown = min(deciding, key=lambda pair: pair[0])
        verdict = _verdict(holds, shown, len(findings), seconds)
        return replace(verdict, margin=margin if printed else -1.0)  # nothing printed, nothing shown


_REGISTRY: dict[str, Claim | Erratum] = enlist({})


def settle(entries: Sequence[Claim | Erratum], changes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The changes of each entry, by id: of those parameters that it has. One that no entry has is refused."""
    for name in changes:
        if not any(name in entry.parameters for entry in entries):
            raise InputError(f"set = {name!r} is not allowed: {_settable(entries)}.")
    return {
        entry.id: _changed(entry, {name: value for name, value in changes.items() if name in entry.parameters})
        for entry in entries
    }


def _changed(entry: Claim | Erratum, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes of parameters, held to the annotations of the entry's check, or else to the types of the defaults."""
    if not changes or entry.check is None:
        return {}
    given = inspect.signature(entry.check, eval_str=True).parameters
    kinds = {name: given[name].annotation for name in changes}
    untyped = inspect.Parameter.empty
    fields: Any = {n: (type(given[n].default) if kind is untyped else kind, ...) for n, kind in kinds.items()}
    try:
        checked = create_model("Parameters", __base__=Part, **fields)(**changes)
    except ValidationError as error:
        raise InputError(f"{entry.id}: {sentence(error)}") from None
    return {name: getattr(checked, name) for name in changes}


def _settable(entries: Sequence[Claim | Erratum]) -> str:
    """What can be set, in words."""
    having = {entry.id: ", ".join(entry.parameters) for entry in entries if entry.parameters}
    if not having:
        return f"{entries[0].id} has no parameters" if len(entries) == 1 else "these claims have no parameters"
    return "; ".join(f"{name} has {words}" for name, words in having.items())


def _verdict(holds: bool, shown: Finding, count: int, seconds: float) -> Verdict:
    case = ", ".join(f"{name}={_check.show(value)}" for name, value in shown.case.items())
    detail = f"{count} finding{'s' if count > 1 else ''}; tightest: {shown}"
    return Verdict(
        holds, shown.measured, shown.required, shown.margin, seconds, f"{detail} ({case})" if case else detail
    )


def _register(entry: Claim | Erratum, letter: str) -> None:
    admit(entry.id, rf"{letter}\d+", f"{letter}<number>", _REGISTRY)
    _REGISTRY[entry.id] = entry


def claim(
    id: str,  # noqa: A002
    kind: str,
    place: str,
    *,
    hypotheses: Mapping[str, Callable[[Any], bool]] | None = None,
    negative_control: Mapping[str, Any],
    level: float | None = None,
    tests: int = 0,
    band: str = "",
) -> Callable[[Check], Claim]:
    """Registers a check as a claim. Its docstring is the statement, one sentence.

    A statistical claim has a `level` and a number of `tests`, a `band`, or both; see `Claim`.
    """

    def register(check: Check) -> Claim:
        if kind not in KINDS:
            raise InputError(f"{id}: kind = {kind!r} must be one of {', '.join(KINDS)}.")
        _tested(id, kind, level, tests, band)
        given = (hypotheses or {}, negative_control, level, tests, band)
        entry = Claim(id, _sentence(check), place, kind, check, *given)
        _register(entry, "C")
        return entry

    return register


def _tested(id: str, kind: str, level: float | None, tests: int, band: str) -> None:  # noqa: A002
    """Refuses a statistical claim that does not say how it is tested, and any other that does."""
    if (level is None) != (tests == 0) or tests < 0 or (level is not None and not 0 < level < 1):
        raise InputError(f"{id}: level = {level!r} and tests = {tests!r} belong together: a level in (0, 1) of each.")
    if (kind == "statistical") != bool(tests or band):
        raise InputError(f"{id}: level and tests, or a band, are what a statistical claim has, and no other one.")


def erratum(
    id: str,  # noqa: A002
    grade: str,
    place: str,
    *,
    printed: str,
    corrected: str,
    reading: str = "",
    negative_control: Mapping[str, Any] | None = None,
) -> Callable[[Check], Erratum]:
    """Registers a check as an erratum that a computation decides. Its docstring is the evidence.

    `reading` is the most charitable reading of the sentence, which an entry of grade "error" must have.
    """

    def register(check: Check) -> Erratum:
        control = negative_control or {}
        given = (place, _grade(id, grade, reading), printed, corrected, _sentence(check), check, reading)
        entry = Erratum(id, *given, negative_control=control)
        _register(entry, "E")
        return entry

    return register


def evidence(id: str, *, negative_control: Mapping[str, Any]) -> Callable[[Check], Erratum]:  # noqa: A002
    """Registers a check as the computation that decides an erratum of `errata.toml`; see `erratum`."""
    return erratum(**_papers_errata()[id], negative_control=negative_control)


def record_erratum(
    id: str,  # noqa: A002
    grade: str,
    place: str,
    *,
    printed: str,
    corrected: str,
    evidence: str = "",
    reading: str = "",
) -> Erratum:
    """Registers an erratum that no computation decides: a slip of notation, or of an argument."""
    words = evidence or "Recorded as text."
    entry = Erratum(id, place, _grade(id, grade, reading), printed, corrected, words, None, reading)
    _register(entry, "E")
    return entry


@cache
def _papers_errata() -> dict[str, dict[str, str]]:
    """The rows of `errata.toml` by id."""
    text = (files("linnet.claims") / "errata.toml").read_text(encoding="utf-8")
    return {row["id"]: row for row in tomllib.loads(text)["erratum"]}


def _grade(id: str, grade: str, reading: str) -> str:  # noqa: A002
    if grade not in GRADES:
        raise InputError(f"{id}: grade = {grade!r} must be one of {', '.join(GRADES)}.")
    if grade == "error" and not reading:
        raise InputError(f"{id}: an error needs its reading, the most charitable one of the sentence.")
    return grade


def _sentence(check: Check) -> str:
    return " ".join((inspect.getdoc(check) or "").split())


def _order(id: str) -> tuple[int, str, int]:  # noqa: A002
    number = id.split("/")[1]
    return place(id), number[0], int(number[1:])


_MODULES = {  # of this package, by paper
    "mixed": ("mixed", "mixed_networks", "mixed_alignment"),
    "spectral": ("spectral", "spectral_data", "spectral_noise"),
    "nonlocal": ("landscape", "convergence", "depths"),
    "stability": ("stability", "edge", "sharpening", "networks", "adapters"),
    "feature": ("feature", "neurons"),
    "balance": ("balance",),
    "optimizers": ("optimizers",),
    "flows": ("flows",),
}


def registry(papers: Collection[str] | None = None) -> dict[str, Claim | Erratum]:
    """All claims and errata by id, or those of some papers, whose modules alone are imported: the papers in their
    order, then users' own subjects.
    """
    import_papers("linnet.claims", _MODULES, papers)
    for name, row in _papers_errata().items():
        if (papers is None or name.split("/")[0] in papers) and name not in _REGISTRY:
            record_erratum(**row)
    names = (name for name in _REGISTRY if papers is None or name.split("/")[0] in papers)
    return {name: _REGISTRY[name] for name in sorted(names, key=_order)}


def find(ids: list[str], paper: str | None = None) -> list[Claim | Erratum]:
    """The entries with these ids (all that can be computed if none are given), of one paper if asked."""
    if paper is not None:
        _check.choice("paper", paper, list(subjects()))
    entries = registry({name.split("/")[0] for name in ids} or (None if paper is None else {paper}))
    for name in ids:
        if name not in entries:
            raise unknown("id", name, registry())
    chosen = [entries[name] for name in ids] if ids else [e for e in entries.values() if e.check is not None]
    return [entry for entry in chosen if paper is None or entry.paper == paper]
