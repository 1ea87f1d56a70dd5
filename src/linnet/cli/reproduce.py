"""`linnet reproduce`: figures of the papers with data, verdicts and claims, and one page about it all."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.markup import escape

from linnet import _check, report
from linnet._check import InputError
from linnet._files import dumps, duration, machine, put, versions
from linnet._pool import Call, cores, finished
from linnet.claims import Claim, Erratum, Finding, Verdict
from linnet.claims import find as find_claims
from linnet.cli import verify
from linnet.cli.bar import bar
from linnet.experiments import Experiment, find
from linnet.experiments.experiment import SIZES, Progress

_CLAIM_SECONDS = 4.0  # of a claim on one core, counted as generously as the experiments' minutes


def changes(settings: Sequence[str], chosen: Sequence[type[Experiment]]) -> dict[str, Any]:
    """`field=value` as typed, with lists and numbers understood."""
    out: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name.strip():
            raise InputError(f"set = {setting!r} is not allowed: write field=value.")
        known = sorted({field for experiment in chosen for field in experiment.model_fields})
        if name.strip() not in known:
            raise InputError(f"set = {setting!r} is not allowed: fields here are {', '.join(known)}.")
        try:
            out[name.strip()] = json.loads(text)
        except json.JSONDecodeError:
            out[name.strip()] = text
    return out


def run(
    ids: Sequence[str],
    size: str,
    out: Path,
    settings: Sequence[str],
    *,
    claims: bool | None = None,
    quiet: bool,
) -> dict[str, Any]:
    """Reproduces the experiments into `out`, and verifies the claims too (by default if all experiments are asked for);
    returns what `--json` prints.

    Experiments that share their work among processes come first, one by one. The others and the claims are mostly
    compilation, which keeps one core busy: on a CPU they run side by side, a process on each core.
    """
    _check.choice("size", size, SIZES)
    chosen = find(ids)
    changed = changes(settings, chosen)
    made = [kind.of_size(size, {k: v for k, v in changed.items() if k in kind.model_fields}) for kind in chosen]
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"out = {str(out)!r} is not allowed: {error.strerror}.") from None
    lacking = {experiment.id: lacks for experiment in made if (lacks := experiment.missing()) is not None}
    if ids and lacking:
        name, lacks = next(iter(lacking.items()))
        raise InputError(f"{name}: {lacks}")
    console = Console(quiet=quiet)
    for name, lacks in lacking.items():
        console.print(f"[bold]{name}[/] is left out: {escape(lacks)}", highlight=False)
    made = [experiment for experiment in made if experiment.id not in lacking]
    verdicts = verify.stored(out, "quick")
    asked = find_claims([]) if (not ids if claims is None else claims) else []
    entries = [entry for entry in asked if entry.id not in verdicts]
    for experiment in made if len(made) == 1 else []:
        expected = duration(60 * experiment.minutes[size])
        console.print(f"{escape(experiment.title)} ({size}; about {expected} on two cores)", highlight=False)
    if len(made) + len(entries) > 1:
        what = f"{len(made)} experiments ({size})" + (f" and {len(entries)} claims and errata" if asked else "")
        console.print(f"{what}. Ctrl-C keeps what is finished.", highlight=False)
    results = {}
    work = _Work(made, entries, size, out)
    with bar("reproducing" if ids else "all papers", quiet=quiet, share=True) as progress:
        for result in work.results(progress):
            results[result["id"]] = result
            _show(console, result, out)
    told: dict[str, Any] = {
        "out": str(out),
        "experiments": [
            {
                "id": result["id"],
                "size": result["size"],
                "seconds": result["seconds"],
                "verdicts": [{k: v[k] for k in ("name", "holds", "measured", "required")} for v in result["verdicts"]],
            }
            for result in (results[experiment.id] for experiment in made)
        ],
        "failed": sum(not all(v["holds"] for v in result["verdicts"]) for result in results.values()),
        "skipped": [{"id": name, "reason": lacks} for name, lacks in lacking.items()],
        "claims": None,
    }
    if asked:
        verdicts = verify.stored(out, "quick")
        wrong = [entry for entry in asked if verdicts[entry.id]["holds"] != entry.expected]
        told["claims"] = {"size": "quick", "checked": len(asked), "failed": len(wrong)}
        for entry in wrong:
            console.print(f"[bold red]{entry.id}[/] is not as stated: {escape(verdicts[entry.id]['detail'])}")
        console.print(f"{len(asked)} claims and errata verified, {len(wrong)} not as stated.")
    left_out = f", {len(lacking)} left out" if lacking else ""
    console.print(
        f"{len(results)} reproduced, {told['failed']} not as required{left_out}. Page: {out / 'index.html'}",
        highlight=False,
    )
    return told


def exit_code(result: dict[str, Any]) -> int:
    """1 if anything was not as required, or a claim not as stated."""
    return int(result["failed"] > 0 or (result["claims"] or {}).get("failed", 0) > 0)


@dataclass(frozen=True)
class _Work:
    """Experiments and claims on their way into a folder."""

    experiments: Sequence[Experiment]
    entries: Sequence[Claim | Erratum]
    size: str
    out: Path

    def results(self, progress: Callable[[float, float], None]) -> Iterator[dict[str, Any]]:
        """Each experiment's result as it is finished; the page grows with it, so an interrupted evening leaves one."""
        weights = [self._weight(experiment) for experiment in self.experiments]
        total, done = sum(weights) + _CLAIM_SECONDS * len(self.entries), 0.0
        progress(done, total)
        side_by_side = cores() if jax.default_backend() == "cpu" else 1
        pooled = [e for e in self.experiments if side_by_side > 1 and not e.shared]
        pooled = sorted(pooled, key=self._weight, reverse=True)  # long ones first: no core waits for them in the end
        if len(pooled) == 1 and not self.entries:
            pooled = []
        for experiment in self.experiments:
            if experiment in pooled:
                continue
            weight, before = self._weight(experiment), done
            inner = lambda part, whole, w=weight, b=before: progress(b + w * part / max(whole, 1), total)  # noqa: E731
            result = _one(experiment, self.size, self.out / experiment.id, _device(cores()), cores(), inner)
            done += weight
            progress(done, total)
            report.write(self.out)
            yield result
        calls: list[Call] = [
            (_one, (e, self.size, self.out / e.id, f"one core of {_device(side_by_side)}")) for e in pooled
        ]
        calls += [verify.call(entry, "quick") for entry in self.entries]
        verdicts: dict[str, Verdict] = {}
        for number, value in finished(calls, side_by_side):
            if number < len(pooled):
                done += self._weight(pooled[number])
                progress(done, total)
                report.write(self.out)
                yield value
                continue
            entry = self.entries[number - len(pooled)]
            verdicts[entry.id] = value
            done += _CLAIM_SECONDS
            progress(done, total)
            if all(e.id in verdicts for e in self.entries if e.paper == entry.paper):
                self._store(entry.paper, verdicts)
        report.write(self.out)

    def _store(self, paper: str, verdicts: Mapping[str, Verdict]) -> None:
        mine = [(entry, verdicts[entry.id]) for entry in self.entries if entry.paper == paper]
        verify.store(self.out, verify.told(mine, "quick"))
        report.write(self.out)

    def _weight(self, experiment: Experiment) -> float:
        return 60 * experiment.minutes[self.size]


def _show(console: Console, result: dict[str, Any], out: Path) -> None:
    console.print(f"[bold]{result['id']}[/] {escape(result['title'])}", highlight=False)
    for verdict in result["verdicts"]:
        mark = "[green]holds[/]" if verdict["holds"] else "[bold red]fails[/]"
        console.print(
            f"  {mark} {escape(verdict['name'])}: {verdict['measured']:.4g} ({escape(verdict['text'])})",
            highlight=False,
        )
    kept = " (data kept from an earlier run)" if result["kept"] else ""
    console.print(f"  {duration(result['seconds'])}{kept}, {out / result['id'] / 'figure.png'}", highlight=False)


def _device(count: int) -> str:
    device = jax.devices()[0]
    return device.device_kind if device.platform != "cpu" else f"a CPU with {count} core{'s' if count > 1 else ''}"


def _one(
    experiment: Experiment,
    size: str,
    folder: Path,
    made_on: str,
    workers: int = 1,
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Data, figure, verdicts and all about them in the experiment's folder; in any process."""
    began = time.perf_counter()
    before = folder / "result.json"
    data, kept = experiment.data(folder, progress, workers=workers)
    about = {"seconds": round(time.perf_counter() - began, 2), "device": made_on, "machine": machine()}
    if kept and before.exists():
        old = json.loads(before.read_text(encoding="utf-8"))
        about |= {name: old[name] for name in about if name in old}
    figure = experiment.draw(data)
    for suffix in ("png", "svg"):
        figure.savefig(folder / f"figure.{suffix}", metadata={"Date": None} if suffix == "svg" else None)
    result = {
        "id": experiment.id,
        "title": experiment.title,
        "place": experiment.place,
        "caption": " ".join((type(experiment).__doc__ or "").split()),
        "size": size,
        "parameters": experiment.model_dump(),
        "seed": experiment.seed,
        **about,
        "versions": versions(),
        "again": _again(experiment, size),
        "data": "data.zarr" if (folder / "data.zarr").exists() else "data.nc",
        "verdicts": [
            {"name": name, "holds": f.holds, "measured": f.measured, "required": _required(f), "text": _text(f)}
            for name, f in experiment.accept(data).items()
        ],
    }
    put(before, dumps(result))
    jax.clear_caches()  # no other experiment uses what this one compiled, and all of it together takes gigabytes
    return {**result, "kept": kept}


def _again(experiment: Experiment, size: str) -> str:
    """The command that makes it again."""
    preset = type(experiment).of_size(size, {}).model_dump()
    changed = {k: v for k, v in experiment.model_dump().items() if v != preset[k]}
    return " ".join(
        [f"linnet reproduce {experiment.id} --size {size}", *(f"--set {k}={json.dumps(v)}" for k, v in changed.items())]
    )


def _required(finding: Finding) -> float | list[float]:
    both = math.isfinite(finding.low) and math.isfinite(finding.high)
    return [finding.low, finding.high] if both else finding.required


def _text(finding: Finding) -> str:
    if math.isfinite(finding.low) and math.isfinite(finding.high):
        return f"{finding.low:.4g} to {finding.high:.4g}"
    return f"at {'least' if math.isfinite(finding.low) else 'most'} {finding.required:.4g}"
