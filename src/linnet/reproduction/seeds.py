"""Requirements of experiments over several seeds: which fail, and how many standard deviations the others have."""

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
from linnet._pool import Call, cores, finished
from linnet.claims import Finding
from linnet.claims.papers import blamed, reload, sources
from linnet.experiments import Experiment, find

ENOUGH = 3.0  # standard deviations over the seeds that a requirement should have left


@dataclass(frozen=True)
class Spread:
    """A requirement of an experiment, what was measured with each seed, and between what it must lie."""

    id: str
    name: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    measured: tuple[float, ...]

    @property
    def failed(self) -> int:
        """With how many seeds it does not hold."""
        pairs = zip(self.low, self.measured, self.high, strict=True)
        return sum(not low <= value <= high for low, value, high in pairs)

    @property
    def margin(self) -> float:
        """The mean distance from the nearer bound over the standard deviation of that distance among the seeds.

        Infinite where it is always the same; NaN with one seed or where a measurement is none.
        """
        pairs = zip(self.low, self.measured, self.high, strict=True)
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

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {**dataclasses.asdict(self), "failed": self.failed, "margin": self.margin}


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
    for number, findings in finished(calls, workers):
        found[number] = findings
        progress(len(found), len(calls))
        first = count * (number // count)
        mine = [found[k] for k in range(first, first + count) if k in found]
        if len(mine) == count:
            spreads += (made := _spreads(variants[first].id, mine))
            yield made
    about = {"seeds": count, "versions": versions(), "machine": machine(), "enough": ENOUGH}
    put(out / "seeds.json", dumps({**about, "requirements": [spread.to_dict() for spread in spreads]}))


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
    # the cases are of any type, and only the numbers are asked for
    return {key: dataclasses.replace(one, case={}) for key, one in found.items()}
