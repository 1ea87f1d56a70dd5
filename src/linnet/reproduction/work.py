"""Experiments and claims on their way into a folder."""

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from linnet import _check, sweep
from linnet._check import InputError
from linnet._files import locked, machine, placed, writing
from linnet._pool import Call, as_completed, cores
from linnet.claims import Claim, Erratum, Verdict
from linnet.claims import find as find_claims
from linnet.experiments import SIZES, Experiment, Progress, find
from linnet.papers import blamed, reload, sources, typed
from linnet.reproduction.files import Requirement, Result, Verdicts, Verified, good, prepare_folder, store
from linnet.reproduction.verification import call

if TYPE_CHECKING:
    from distributed import Client

_CLAIM_SECONDS = 4.0  # of a claim on one core, counted as generously as the experiments' minutes


class Made(NamedTuple):
    """An experiment's result, and whether its data were kept from an earlier run."""

    result: Result
    kept: bool


@dataclass(frozen=True)
class Work:
    """What is to be done in a folder: experiments, and those of the claims asked for that have no good verdict there.

    Experiments that share their work among processes come first, one by one. The others and the claims are mostly
    compilation, which keeps one core busy: on a CPU they run side by side, a process on each core. On a cluster each
    experiment and each claim is one worker's, and workers must reach the folder under the same path.
    """

    experiments: Sequence[Experiment]
    entries: Sequence[Claim | Erratum]
    size: str
    out: Path
    asked: Sequence[Claim | Erratum] = ()
    lacking: Mapping[str, str] = field(default_factory=dict)

    def done(
        self,
        progress: Callable[[float, float], None] = lambda done, total: None,
        *,
        client: "Client | None" = None,
    ) -> Iterator[Made | Verdicts]:
        """Each experiment and each subject's verdicts as they are finished, their files in place; by processes of this
        machine, or by the workers of a Dask `client`'s cluster.
        """
        weights = [self._weight(experiment) for experiment in self.experiments]
        total, done = sum(weights) + _CLAIM_SECONDS * len(self.entries), 0.0
        progress(done, total)
        side_by_side = cores() if jax.default_backend() == "cpu" else 1
        pooled = [e for e in self.experiments if client is not None or (side_by_side > 1 and not e.shared)]
        pooled = sorted(pooled, key=self._weight, reverse=True)  # long ones first: no core waits for them in the end
        if client is None and len(pooled) == 1 and not self.entries:
            pooled = []
        for experiment in self.experiments:
            if experiment in pooled:
                continue
            weight, before = self._weight(experiment), done
            inner = lambda part, whole, w=weight, b=before: progress(b + w * part / max(whole, 1), total)  # noqa: E731
            made = make(experiment, self.size, self.out / experiment.id, _device(cores()), cores(), inner)
            done += weight
            progress(done, total)
            yield made
        made_on = f"one core of {_device(side_by_side)}" if client is None else _worker(client)
        calls = [self._call(experiment, made_on) for experiment in pooled]
        calls += [call(entry, "quick", {}) for entry in self.entries]
        names = [part.id for part in (*pooled, *self.entries)]
        found: dict[str, Verdict] = {}
        team = (
            as_completed(calls, side_by_side)
            if client is None
            else sweep.as_completed(client, calls, names.__getitem__)
        )
        for number, value in team:
            if number < len(pooled):
                done += self._weight(pooled[number])
                progress(done, total)
                yield value
                continue
            entry = self.entries[number - len(pooled)]
            found[entry.id] = value
            done += _CLAIM_SECONDS
            progress(done, total)
            mine = [other for other in self.entries if other.paper == entry.paper]
            if all(other.id in found for other in mine):
                verdicts = Verdicts("quick", [Verified.of(other, found[other.id]) for other in mine])
                store(self.out, verdicts)
                yield verdicts

    def verdicts(self) -> Verdicts | None:
        """What the folder says about the claims asked for; None if none were."""
        known = good(self.out, "quick")
        return Verdicts("quick", [known[entry.id] for entry in self.asked]) if self.asked else None

    def _call(self, experiment: Experiment, made_on: str) -> Call:
        # by its id: the class of a user's own experiment is known in another process once its file is loaded there
        parameters = experiment.model_dump()
        return _made, (sources(), experiment.id, parameters, self.size, self.out.absolute() / experiment.id, made_on)

    def _weight(self, experiment: Experiment) -> float:
        return 60 * experiment.minutes[self.size]


def plan(
    ids: Sequence[str],
    size: str,
    out: Path,
    changes: Mapping[str, Any] | None = None,
    *,
    claims: bool | None = None,
    among: Collection[str] = (),
) -> Work:
    """The work of reproducing experiments into `out`: those with these ids, or all (of the subjects `among`).

    The claims are verified too if asked for; by default if no ids are given. An experiment that this machine lacks
    something for is left out, or refused if it was asked for by its id.

    `changes` are parameters of the experiments by name.
    """
    _check.choice("size", size, SIZES)
    chosen = [kind for kind in find(ids) if ids or not among or kind.id.split("/")[0] in among]
    changed = changes or {}
    known = sorted({field for experiment in chosen for field in experiment.model_fields})
    for name in changed:
        if name not in known:
            raise InputError(f"set = {name!r} is not allowed: fields here are {', '.join(known)}.")
    made = [kind.of_size(size, {k: v for k, v in changed.items() if k in kind.model_fields}) for kind in chosen]
    prepare_folder(out)
    lacking = {experiment.id: lacks for experiment in made if (lacks := experiment.missing()) is not None}
    if ids and lacking:
        name, lacks = next(iter(lacking.items()))
        raise InputError(f"{name}: {lacks}")
    asked = find_claims([]) if (not ids if claims is None else claims) else []
    asked = [entry for entry in asked if not among or entry.paper in among]
    good_there = good(out, "quick")
    return Work(
        [experiment for experiment in made if experiment.id not in lacking],
        [entry for entry in asked if entry.id not in good_there],
        size,
        out,
        asked,
        lacking,
    )


def make(
    experiment: Experiment,
    size: str,
    folder: Path,
    made_on: str,
    workers: int = 1,
    progress: Progress = lambda done, total: None,
) -> Made:
    """Data, figure, verdicts and all about them in the experiment's folder, which is its own meanwhile."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, folder):
        return _make(experiment, size, folder, made_on, workers, progress)


def _make(experiment: Experiment, size: str, folder: Path, made_on: str, workers: int, progress: Progress) -> Made:
    began = time.perf_counter()
    before = folder / "result.json"
    data, kept = experiment.data(folder, progress, workers=workers)
    seconds, device, where = round(time.perf_counter() - began, 2), made_on, machine()
    if kept and before.exists():
        old = Result.read(before)
        seconds, device, where = old.seconds, old.device, dict(old.machine)
    with blamed(experiment.id):
        figure = experiment.draw(data)
        accepted = experiment.accept(data)
    for suffix in ("png", "svg"):
        with placed(folder / f"figure.{suffix}") as partial:
            figure.savefig(partial, metadata={"Date": None} if suffix == "svg" else None)
    result = Result(
        id=experiment.id,
        title=experiment.title,
        place=experiment.place,
        caption=" ".join((type(experiment).__doc__ or "").split()),
        size=size,
        parameters=experiment.model_dump(),
        seed=experiment.seed,
        seconds=seconds,
        device=device,
        machine=where,
        versions=experiment.versions(),
        again=_again(experiment, size),
        data="data.zarr" if (folder / "data.zarr").exists() else "data.nc",
        verdicts=[Requirement.of(name, finding) for name, finding in accepted.items()],
    )
    result.write(before)
    jax.clear_caches()  # no other experiment uses what this one compiled, and all of it together takes gigabytes
    return Made(result, kept)


def _made(
    own: Mapping[str, str], name: str, parameters: Mapping[str, Any], size: str, folder: Path, made_on: str
) -> Made:
    """`make` in another process."""
    reload(own)
    return make(find([name])[0](**parameters), size, folder, made_on)


def _again(experiment: Experiment, size: str) -> str:
    """The command that makes it again."""
    preset = type(experiment).of_size(size, {}).model_dump()
    changed = {k: v for k, v in experiment.model_dump().items() if v != preset[k]}
    source = typed(experiment.id.split("/")[0])
    return " ".join(
        [
            f"linnet reproduce {experiment.id}",
            *([] if source is None else [f"--from {source}"]),
            f"--size {size}",
            *(f"--set {k}={json.dumps(v)}" for k, v in changed.items()),
        ]
    )


def _worker(client: "Client") -> str:
    return f"a worker of a cluster ({', '.join(sorted({worker.device for worker in sweep.workers(client)}))})"


def _device(count: int) -> str:
    device = jax.devices()[0]
    return device.device_kind if device.platform != "cpu" else f"a CPU with {count} core{'s' if count > 1 else ''}"
