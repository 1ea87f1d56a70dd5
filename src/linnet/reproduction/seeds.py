"""Requirements of experiments, and findings of claims, over several seeds: which fail, and how many standard deviations
the others have.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from linnet import _check
from linnet._check import InputError
from linnet._files import dumps, machine, put, versions
from linnet._pool import Call, as_completed, cores
from linnet.claims import THREE, Claim, Erratum, Finding, settle
from linnet.claims import find as find_claims
from linnet.experiments import Experiment, find
from linnet.papers import blamed, reload, sources

ENOUGH = 3.0  # standard deviations over the seeds that a requirement should have left
APART = 1000  # between the seeds of a claim: its check may take several that follow each other
_DRAWS = ("draw", "seed")  # keys of a case that tell draws apart
_Case = Mapping[str, str]


@dataclass(frozen=True)
class Spread:
    """A requirement of an experiment or a finding of a claim, what was measured with each seed, and between what it
    must lie.
    """

    id: str
    name: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    measured: tuple[float, ...]
    band: str = ""  # how the bounds were set

    @property
    def failed(self) -> int:
        """With how many seeds it does not hold."""
        pairs = zip(self.low, self.measured, self.high, strict=True)
        return sum(not low <= value <= high for low, value, high in pairs)

    @property
    def margin(self) -> float:
        """The mean distance from the nearer bound over the standard deviation of that distance among the seeds.

        What is positive and has a positive lower bound is compared with its bounds by factors: the distance is then the
        logarithm of their ratio. Infinite where it is always the same; NaN with one seed or where a measurement is
        none.
        """
        pairs = list(zip(self.low, self.measured, self.high, strict=True))
        if all(low > 0 and value > 0 for low, value, _ in pairs):
            pairs = [(math.log(low), math.log(value), math.log(high)) for low, value, high in pairs]
        left = [min(value - low, high - value) for low, value, high in pairs]
        if len(left) < 2 or any(math.isnan(value) for value in left):
            return math.nan
        mean = statistics.fmean(left)
        if not math.isfinite(mean):
            return mean
        spread = statistics.stdev(left)
        if spread <= 1e-9 * max(abs(mean), max(map(abs, self.measured))):  # rounding
            return math.copysign(math.inf, mean)
        return mean / spread

    @property
    def close(self) -> bool:
        """Whether it holds with every seed but has too little left, and its bounds are not derived from theory."""
        return self.failed == 0 and self.margin < ENOUGH and self.band in ("", THREE)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {**dataclasses.asdict(self), "failed": self.failed, "margin": self.margin, "close": self.close}


def over_seeds(
    experiments: Sequence[Experiment],
    seeds: int,
    out: Path,
    progress: Callable[[float, float], None] = lambda done, total: None,
) -> Iterator[list[Spread]]:
    """The requirements of each experiment with its own seed and the `seeds` - 1 that follow it.

    Data are kept in `out`/seeds/SEED, and the table is in `out`/seeds.json when all are made. On a CPU each
    core has a process of its own.
    """
    count = _check.integer("seeds", seeds, least=2)
    variants = [
        experiment.model_copy(update={"seed": experiment.seed + k}) for experiment in experiments for k in range(count)
    ]
    if any(experiment.seed + count > 2**63 for experiment in experiments):
        raise InputError(f"seeds = {count} is not allowed: the seeds that follow that of the experiments end at 2^63.")
    workers = cores() if jax.default_backend() == "cpu" else 1
    calls: list[Call] = [
        (_findings, (sources(), one.id, one.model_dump(), out.absolute() / "seeds" / str(one.seed) / one.id))
        for one in variants
    ]
    found: dict[int, Mapping[str, Finding]] = {}
    spreads: list[Spread] = []
    progress(0, len(calls))
    for number, findings in as_completed(calls, workers):
        found[number] = findings
        progress(len(found), len(calls))
        first = count * (number // count)
        mine = [found[k] for k in range(first, first + count) if k in found]
        if len(mine) == count:
            spreads += (made := _spreads(variants[first].id, mine))
            yield made
    about = {"seeds": count, "versions": versions(), "machine": machine(), "enough": ENOUGH}
    put(out / "seeds.json", dumps({**about, "requirements": [spread.to_dict() for spread in spreads]}))


def claims_over_seeds(
    entries: Sequence[Claim | Erratum],
    seeds: int,
    size: str = "quick",
    changes: Mapping[str, Any] | None = None,
    progress: Callable[[float, float], None] = lambda done, total: None,
) -> Iterator[list[Spread]]:
    """The findings of each claim with its own seed and `seeds` - 1 others, each `APART` from the one before.

    Of findings that differ by the draw only the tightest one counts. Only entries whose check has a seed can be asked,
    and what an erratum's printed form yields is left out. `size` is that of the checks, `changes` changed parameters,
    and `progress` is called with (done, total). On a CPU each core has a process of its own.
    """
    count = _check.integer("seeds", seeds, least=2)
    for entry in entries:
        if "seed" not in entry.parameters:
            raise InputError(f"seeds = {count} is not allowed: {entry.id} has no seed.")
    changed = settle(entries, changes or {})
    calls: list[Call] = []
    for entry in entries:
        first = int(changed[entry.id].get("seed", entry.parameters["seed"]))
        several = [first + APART * k for k in range(count)]
        settle([entry], {"seed": several[-1]})  # refuses what is too large for its check
        calls += [(_tightest, (sources(), entry.id, size, {**changed[entry.id], "seed": seed})) for seed in several]
    found: dict[int, list[tuple[_Case, Finding]]] = {}
    progress(0, len(calls))
    for number, findings in as_completed(calls, cores() if jax.default_backend() == "cpu" else 1):
        found[number] = findings
        progress(len(found), len(calls))
        first = count * (number // count)
        mine = [found[k] for k in range(first, first + count) if k in found]
        if len(mine) == count:
            yield _spreads(entries[number // count].id, _named(mine))


def _tightest(own: Mapping[str, str], name: str, size: str, changes: Mapping[str, Any]) -> list[tuple[_Case, Finding]]:
    """What a claim finds, in any process: the cases in words, which are of any type."""
    reload(own)
    entry = find_claims([name])[0]
    measured = entry.measure(size, **changes)
    jax.clear_caches()
    return [
        ({key: _check.show(value) for key, value in one.case.items()}, dataclasses.replace(one, case={}))
        for one in measured.findings
        if not one.printed
    ]


def _named(found: Sequence[Sequence[tuple[_Case, Finding]]]) -> list[dict[str, Finding]]:
    """The findings of each seed by what tells them apart: that part of the case which is the same with every seed."""

    def values(key: str, some: Sequence[tuple[_Case, Finding]]) -> set[str]:
        return {case[key] for case, _ in some if key in case}

    keys = dict.fromkeys(key for some in found for case, _ in some for key in case)
    apart = [key for key in keys if key not in _DRAWS and all(values(key, s) == values(key, found[0]) for s in found)]
    named: list[dict[str, Finding]] = []
    for some in found:
        groups: dict[str, list[Finding]] = {}
        for case, one in some:
            side = "at most" if math.isinf(one.low) else "at least" if math.isinf(one.high) else "within"
            words = ", ".join([side, *(f"{key}={case[key]}" for key in apart if key in case)])
            groups.setdefault(words, []).append(one)
        named.append({words: min(them, key=lambda one: one.tightness) for words, them in groups.items()})
    return named


def _spreads(name: str, found: Sequence[Mapping[str, Finding]]) -> list[Spread]:
    requirements = list(dict.fromkeys(key for findings in found for key in findings))
    rows = []
    for key in requirements:
        each = [findings[key] for findings in found if key in findings]  # some names tell sizes that were drawn
        rows.append(
            Spread(
                name,
                key,
                tuple(float(one.low) for one in each),
                tuple(float(one.high) for one in each),
                tuple(float(one.measured) for one in each),
                str(each[0].case.get("band", "")),
            )
        )
    return rows


def _findings(own: Mapping[str, str], name: str, parameters: Mapping[str, Any], folder: Path) -> Mapping[str, Finding]:
    """What must hold of one experiment, in any process."""
    reload(own)
    experiment = find([name])[0](**parameters)
    data, _ = experiment.data(folder, lambda done, total: None)
    with blamed(name):
        found = experiment.accept(data)
    data.close()
    jax.clear_caches()
    # the cases are of any type, and only the numbers are asked for, and how they were set
    return {key: dataclasses.replace(one, case={"band": one.case.get("band", "")}) for key, one in found.items()}
