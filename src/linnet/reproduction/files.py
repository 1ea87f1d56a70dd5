"""What a folder of results holds: a `result.json` for each experiment, and `claims.json` with all verdicts."""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from linnet._check import InputError
from linnet._files import dumps, locked, machine, put, ready, versions, writing
from linnet.claims import Claim, Erratum, Finding, Verdict
from linnet.papers import fingerprint

_T = TypeVar("_T")


@dataclass(frozen=True)
class Requirement:
    """What must hold of an experiment's data: what was measured, the bound or both of them, and the same in words."""

    name: str
    holds: bool
    measured: float
    required: float | list[float]
    text: str

    @classmethod
    def of(cls, name: str, finding: Finding) -> Self:
        """A finding of `accept`; `band` of its case states how its bound was set."""
        low, high = finding.low, finding.high
        band = f"; {finding.case['band']}" if finding.case.get("band") else ""
        if math.isfinite(low) and math.isfinite(high):
            return cls(name, finding.holds, finding.measured, [low, high], f"{low:.4g} to {high:.4g}{band}")
        side = "least" if math.isfinite(low) else "most"
        return cls(name, finding.holds, finding.measured, finding.required, f"at {side} {finding.required:.4g}{band}")


@dataclass(frozen=True)
class Result:
    """An experiment that was made: what `result.json` beside its data says."""

    id: str
    title: str
    place: str
    caption: str
    size: str
    parameters: Mapping[str, Any]
    seed: int
    seconds: float
    device: str
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    again: str
    data: str
    verdicts: Sequence[Requirement]

    @property
    def holds(self) -> bool:
        """Whether all is as required."""
        return all(verdict.holds for verdict in self.verdicts)

    @staticmethod
    def read(file: Path) -> "Result":
        """What a file says."""

        def made(found: dict[str, Any]) -> Result:
            return Result(**{**found, "verdicts": [Requirement(**_numbers(v)) for v in found["verdicts"]]})

        return _read(file, made)

    def write(self, file: Path) -> None:
        """Puts it in place."""
        put(file, dumps(dataclasses.asdict(self)))


@dataclass(frozen=True)
class Verified:
    """The verdict about a claim or an erratum, with what was verified."""

    id: str
    paper: str
    kind: str
    statement: str
    holds: bool
    measured: float
    required: float
    margin: float
    seconds: float
    detail: str

    @classmethod
    def of(cls, entry: Claim | Erratum, verdict: Verdict) -> Self:
        """A verdict just found."""
        seconds = round(verdict.seconds, 3)
        about = (entry.id, entry.paper, entry.kind, entry.statement)
        return cls(*about, verdict.holds, verdict.measured, verdict.required, verdict.margin, seconds, verdict.detail)

    @property
    def as_stated(self) -> bool:
        """Whether it holds, or fails where the statement is refuted."""
        return self.holds == (self.kind != "refuted")


@dataclass(frozen=True)
class Verdicts:
    """Verdicts found at one size: what `claims.json` says. `sources` are hashes of users' code, by subject."""

    size: str
    claims: Sequence[Verified]
    machine: Mapping[str, str] = dataclasses.field(default_factory=machine)
    versions: Mapping[str, str] = dataclasses.field(default_factory=versions)
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def failed(self) -> int:
        """How many are not as stated."""
        return sum(not verdict.as_stated for verdict in self.claims)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "size": self.size,
            "claims": [dataclasses.asdict(verdict) for verdict in self.claims],
            "failed": self.failed,
        }


def results(out: Path) -> list[Result]:
    """All results below a folder."""
    return [Result.read(path) for path in sorted(out.glob("*/*/result.json"))]


def verdicts(out: Path) -> Verdicts | None:
    """The verdicts in a folder; None if there are none."""

    def made(found: dict[str, Any]) -> Verdicts:
        known = {name: found.get(name, {}) for name in ("machine", "versions", "sources")}
        return Verdicts(found["size"], [Verified(**_numbers(verdict)) for verdict in found["claims"]], **known)

    file = out / "claims.json"
    return _read(file, made) if file.exists() else None


def good(out: Path, size: str) -> dict[str, Verified]:
    """The verdicts in a folder by id that were found at this size, with these versions and this code of users."""
    before = verdicts(out)
    if before is None or before.size != size or before.versions != versions():
        return {}
    return {
        verdict.id: verdict
        for verdict in before.claims
        if fingerprint(verdict.paper) in (None, before.sources.get(verdict.paper))
    }


def store(out: Path, new: Verdicts) -> None:
    """Puts verdicts into `claims.json`, with those of other entries that are still good."""
    with locked(out, out, wait=True):  # another process may put its own there
        _store(out, new)


def _store(out: Path, new: Verdicts) -> None:
    names = {verdict.id for verdict in new.claims}
    before = verdicts(out)
    others = [verdict for name, verdict in good(out, new.size).items() if name not in names]
    claims = [*others, *new.claims]
    papers = {verdict.paper for verdict in claims}
    hashes = {**(before.sources if before else {}), **{name: fingerprint(name) for name in papers if fingerprint(name)}}
    every = dataclasses.replace(new, claims=claims)
    about = {
        "machine": every.machine,
        "versions": every.versions,
        "sources": {name: value for name, value in hashes.items() if name in papers},
    }
    put(out / "claims.json", dumps({**every.to_dict(), **about}))


def prepare_folder(out: Path) -> None:
    """Makes the folder of results, and refuses one that cannot be written, or with files that cannot be read."""
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    ready(out / "index.html")
    for read in (results, verdicts):
        read(out)


def _numbers(found: dict[str, Any]) -> dict[str, Any]:
    """JSON has no word for what is not finite."""
    return {**found, **{k: math.nan for k in ("measured", "required", "margin") if k in found and found[k] is None}}


def _read(file: Path, made: Callable[[dict[str, Any]], _T]) -> _T:
    try:
        return made(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        raise InputError(
            f"{str(file)!r} cannot be read: it is damaged, or not what this version of Linnet writes there; delete it "
            "and give the same command again."
        ) from None
