"""`linnet reproduce`: figures of the papers with data, verdicts and one page about it all."""

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.markup import escape

from linnet import _check, report
from linnet._check import InputError
from linnet._pool import cores
from linnet.claims import Finding
from linnet.cli.bar import bar
from linnet.cli.output import dumps
from linnet.experiments import Experiment, find
from linnet.experiments.experiment import SIZES, put, versions


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


def run(ids: Sequence[str], size: str, out: Path, settings: Sequence[str], *, quiet: bool) -> dict[str, Any]:
    """Reproduces the experiments into `out`; returns what `--json` prints."""
    _check.choice("size", size, SIZES)
    chosen = find(ids)
    changed = changes(settings, chosen)
    console = Console(quiet=quiet)
    made = [kind.of_size(size, {k: v for k, v in changed.items() if k in kind.model_fields}) for kind in chosen]
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"out = {str(out)!r} is not allowed: {error.strerror}.") from None
    results, skipped = [], []
    for experiment in made:
        lacks = experiment.missing()
        if lacks is not None:
            if ids:
                raise InputError(f"{experiment.id}: {lacks}")
            skipped.append({"id": experiment.id, "reason": lacks})
            console.print(f"[bold]{experiment.id}[/] is left out: {escape(lacks)}", highlight=False)
            continue
        expected = _duration(60 * experiment.minutes[size])
        console.print(f"[bold]{experiment.id}[/] {escape(experiment.title)} ({size}; about {expected} on two cores)")
        result = _one(experiment, size, out / experiment.id, quiet)
        results.append(result)
        report.write(out)  # after each: an interrupted evening leaves a page
        for verdict in result["verdicts"]:
            mark = "[green]holds[/]" if verdict["holds"] else "[bold red]fails[/]"
            console.print(
                f"  {mark} {escape(verdict['name'])}: {verdict['measured']:.4g} ({escape(verdict['text'])})",
                highlight=False,
            )
        kept = " (data kept from an earlier run)" if result["kept"] else ""
        console.print(f"  {_duration(result['seconds'])}{kept}, {out / experiment.id / 'figure.png'}", highlight=False)
    failed = sum(not all(v["holds"] for v in result["verdicts"]) for result in results)
    left_out = f", {len(skipped)} left out" if skipped else ""
    console.print(
        f"{len(results)} reproduced, {failed} not as required{left_out}. Page: {out / 'index.html'}",
        highlight=False,
    )
    return {
        "out": str(out),
        "experiments": [
            {
                "id": result["id"],
                "size": result["size"],
                "seconds": result["seconds"],
                "verdicts": [{k: v[k] for k in ("name", "holds", "measured", "required")} for v in result["verdicts"]],
            }
            for result in results
        ],
        "failed": failed,
        "skipped": skipped,
    }


def _one(experiment: Experiment, size: str, folder: Path, quiet: bool) -> dict[str, Any]:
    began = time.perf_counter()
    before = folder / "result.json"
    with bar(experiment.id, quiet=quiet) as progress:
        data, kept = experiment.data(folder, progress, workers=cores())
    seconds = time.perf_counter() - began
    device = jax.devices()[0]
    made_on = device.device_kind if device.platform != "cpu" else f"a CPU with {cores()} cores"
    if kept and before.exists():
        old = json.loads(before.read_text(encoding="utf-8"))
        seconds, made_on = old["seconds"], old["device"]
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
        "seconds": round(seconds, 2),
        "device": made_on,
        "versions": versions(),
        "again": _again(experiment, size),
        "data": "data.zarr" if (folder / "data.zarr").exists() else "data.nc",
        "verdicts": [
            {"name": name, "holds": f.holds, "measured": f.measured, "required": _required(f), "text": _text(f)}
            for name, f in experiment.accept(data).items()
        ],
    }
    put(before, dumps(result))
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


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
