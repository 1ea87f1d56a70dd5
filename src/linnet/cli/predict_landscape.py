"""`linnet predict landscape`: the critical points of a given network, by the modes they have learned."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from linnet import _check
from linnet._check import InputError
from linnet.cli.typed import numbers
from linnet.initial import critical
from linnet.observe import classify
from linnet.predict.data import read_regression
from linnet.problems import Regression, regression
from linnet.theory import landscape as theory

_WORDS = {
    "global_min": ("global minimum", "green"),
    "strict_saddle": ("strict saddle", ""),
    "degenerate_sosp": ("degenerate", "yellow"),
}


def landscape(problem: Regression, hidden: tuple[int, ...], most: int, *, quiet: bool) -> dict[str, Any]:
    """The critical points of a network with these hidden widths on `problem`; returns what `--json` prints."""
    found = theory.critical_points(problem, hidden, most=_check.integer("most", most, least=1, most=10_000))
    d_out, d_in = problem.shape
    answer: dict[str, Any] = {
        "widths": [d_in, *hidden, d_out],
        "depth": len(hidden) + 1,
        "bottleneck": found.bottleneck,
        "samples": problem.samples,
        "whitened": found.whitened,
        "modes": [float(z) for z in found.values],
        "critical_sets": found.total,
        "shown": len(found.points),
        "points": [
            {
                "kept": list(point.kept),
                "loss": point.loss,
                "excess": point.excess,
                "label": point.label,
                "negative_eigenvalues": point.negative,
                "smallest_eigenvalue": _smallest(problem, hidden, point),
            }
            for point in found.points
        ],
    }
    _show(answer, Console(quiet=quiet))
    return answer


def _smallest(problem: Regression, hidden: tuple[int, ...], point: theory.CriticalPoint) -> float:
    """In closed form for whitened data, else from the balanced point's Hessian; changes of basis make 0 the least."""
    if not math.isnan(point.smallest) or not point.negative:
        return 0.0 if math.isnan(point.smallest) else point.smallest
    room = len(point.kept) + 1  # one neuron without a mode stands for all of them
    return classify(critical(problem, tuple(min(w, room) for w in hidden), point.kept), problem).smallest


def regression_of(
    data: Path | None, spectrum: str | None, inputs: int | None, outputs: int | None, samples: int | None
) -> Regression:
    """The user's own data, or whitened data with a given spectrum."""
    if data is None and spectrum is not None:
        return whitened(spectrum, inputs, outputs, samples)
    if data is None or spectrum is not None:
        raise InputError("data or spectrum: give one of them, --data FILE or --spectrum 3,2,1.")
    for name, value in (("inputs", inputs), ("samples", samples)):
        if value is not None:
            raise InputError(f"{name} = {value} is not allowed with --data: the file has its own.")
    return regression(*read_regression(data, outputs=outputs))


def whitened(spectrum: str, inputs: int | None, outputs: int | None, samples: int | None) -> Regression:
    """Whitened data whose target has these singular values, with labels that can be fitted."""
    z = numbers("spectrum", spectrum)
    if np.any(z < 0):
        raise InputError(f"spectrum = {spectrum!r} is not allowed: singular values must not be negative.")
    z = np.sort(z)[::-1]
    d_in, d_out = (
        _check.integer(name, len(z) if value is None else value, least=len(z), most=2000, reason="the modes given")
        for name, value in (("inputs", inputs), ("outputs", outputs))
    )
    n = _check.integer(
        "samples", d_in if samples is None else samples, least=d_in, most=10**6, reason="whitened data need n >= d_in"
    )
    if n * d_in > 10**7:
        raise InputError(
            f"samples = {n} is not allowed: samples times inputs must be at most 1e7, and it is {n * d_in}."
        )
    x = np.sqrt(n) * np.eye(n, d_in)
    target = np.zeros((d_out, d_in))
    np.fill_diagonal(target[: len(z), : len(z)], z)
    return regression(x, x @ target.T)


def hidden_widths(depth: int | None, width: str) -> tuple[int, ...]:
    """The hidden widths from what was typed: one number for all of them, or one for each."""
    given = [_check.integer("width", w, least=1, most=10**6) for w in numbers("width", width).tolist()]
    if depth is None:
        return tuple(given)
    depth = _check.integer("depth", depth, least=2, most=1000)
    if len(given) == 1:
        return tuple(given * (depth - 1))
    if len(given) != depth - 1:
        raise InputError(
            f"width = {width!r} is not allowed: a network of depth {depth} has {depth - 1} hidden "
            f"width{'s' if depth > 2 else ''}; give that many, or one for all."
        )
    return tuple(given)


def _show(answer: dict[str, Any], console: Console) -> None:
    total, shown, modes = answer["critical_sets"], answer["shown"], answer["modes"]
    which = "." if shown == total else f"; here are 1 ... k and those of the smallest loss, {shown} in all."
    console.print(
        f"{_layers(answer['widths'])} neurons, bottleneck {answer['bottleneck']}: "
        f"{total:,} set{'s' if total > 1 else ''} of modes{which}\n"
        f"Modes: {', '.join(f'{z:.4g}' for z in modes[:12])}{' ...' if len(modes) > 12 else ''} "
        f"({'whitened data' if answer['whitened'] else 'singular values of the projected labels'}).",
        highlight=False,
    )
    table = Table(box=None, pad_edge=False)
    for column in ("modes kept", "loss", "excess", "kind", "index", "lambda_min"):
        table.add_column(column, justify="left" if column in ("modes kept", "kind") else "right")
    for point in answer["points"]:
        word, style = _WORDS[point["label"]]
        table.add_row(
            _set(point["kept"]),
            f"{point['loss']:.5g}",
            f"{point['excess']:.5g}",
            Text(word, style),
            str(point["negative_eigenvalues"]),
            f"{point['smallest_eigenvalue'] + 0.0:.5g}",
        )
    console.print(table, highlight=False)
    console.print("index: how many Hessian eigenvalues are negative; lambda_min: the smallest.", highlight=False)
    if any(point["label"] == "degenerate_sosp" for point in answer["points"]):
        console.print(
            "Degenerate points are no minima and have no second-order descent: training slows down near them."
        )
    else:
        console.print("Every critical point but the global minima has a descent direction of second order.")


def _layers(widths: list[int]) -> str:
    """The widths with arrows, those of very deep networks shortened."""
    names = [str(w) for w in widths]
    return " -> ".join(names if len(names) <= 12 else [*names[:5], "...", *names[-2:]])


def _set(kept: list[int]) -> str:
    """{1 2 3}, with long runs shortened."""
    if not kept:
        return "none"
    runs: list[list[int]] = []
    for mode in kept:
        if runs and runs[-1][-1] == mode - 1:
            runs[-1].append(mode)
        else:
            runs.append([mode])
    return " ".join(" ".join(map(str, run)) if len(run) < 4 else f"{run[0]}-{run[-1]}" for run in runs)
