"""`linnet predict rates`: how fast a balanced deep network of bottleneck one learns, from its start to its end."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from linnet import _check
from linnet._check import InputError
from linnet.cli.bar import bar
from linnet.cli.files import read_regression
from linnet.cli.typed import numbers, picture
from linnet.linalg import RANK_TOLERANCE
from linnet.motion import GradientFlow
from linnet.observe import Observable
from linnet.problems import factorisation, regression
from linnet.record import at
from linnet.simulation import simulate
from linnet.states import RankOne
from linnet.theory import convergence
from linnet.theory.convergence import Coordinates

_NEAR = 0.01  # learned: |A - Z_1| is this share of |Z_1|
_RECORDS = 400


def rates(
    depth: int,
    spectrum: str | None,
    data: Path | None,
    outputs: int | None,
    scale: float,
    cosine: float | None,
    samples: int | None,
    seed: int,
    *,
    run: bool,
    plot: Path | None,
    quiet: bool,
) -> dict[str, Any]:
    """Rates, times and the largest step of the flow from a balanced start of rank one; what `--json` prints."""
    depth = _check.integer("depth", depth, least=2, most=1000)
    scale = _check.real("scale", scale, above=0)
    if not 1e-100 <= scale <= 1e100:
        raise InputError(f"scale = {scale:g} is not allowed: scale must be from 1e-100 to 1e100.")
    picture(plot)
    if run and not 1e-10 <= scale <= 1e4:
        raise InputError(f"scale = {scale:g} is not allowed with --run: a solver follows starts from 1e-10 to 1e4.")
    z, n, told = _target(spectrum, data, outputs, samples)
    values, shape = np.linalg.svd(z, compute_uv=False), z.shape
    start, u, v = _start(z, scale, cosine, _check.integer("seed", seed, least=0, most=2**63 - 1))
    z1 = float(values[0])
    gamma = float(values[1] / z1) if len(values) > 1 else 0.0
    goal = convergence.limit(start)
    reaches = bool(abs(float(goal.s) - z1) <= 1e-9 * z1)
    level = 1.5  # the far phase ends here at the latest: the sharper form of the theorem
    gap = jax.jit(lambda at: _gap(at, goal, gamma) / z1)
    learned = _learned(start, depth, n, z1, gap) if reaches else math.inf
    escape = None
    if depth > 2 and scale < 0.1 and reaches:
        escape = convergence.escape_time(start, depth, n)
    near, more = (_slowest(values, shape, layers, n) for layers in (depth, depth + 1))
    here = float(gap(start))
    ab = float(start.a[0] * start.b[0])
    alpha, beta = min(0.999 * min(ab, scale + gamma), 0.999), 1.001 * max(1.0, scale)
    proved = convergence.envelope(start, alpha, beta, depth, n, form="sharpest") if ab > gamma else None
    answer: dict[str, Any] = {
        "depth": depth,
        "d_in": shape[1],
        "d_out": shape[0],
        "samples": n,
        "data": told,
        "modes": [float(x) for x in values],
        "gamma": gamma,
        "start": {"size": scale * z1, "over_target": scale, "alignment": ab},
        "reaches_the_best_rank_one_fit": reaches,
        "limit": float(goal.s),
        "far_rate": float(convergence.far_rate(start, depth, n)) if gamma < 1 - 1e-9 and here > 1e-9 else None,
        "far_phase_ends": float(convergence.transition_time(start, depth, n, level)) if scale > level else 0.0,
        "half_grown": float(convergence.passage_time(z1 / 2, start, depth, n)) if scale < 0.5 and reaches else None,
        "escape_time_of_a_small_start": escape,
        "learned": learned,
        "near_rate": near,
        "near_rate_of_one_layer_more": more,
        "largest_stable_lr": float(convergence.largest_lr(z1, depth, n)),
        "proved_rates": {"fast": float(proved.fast) / 2, "slow": float(proved.slow) / 2}
        if proved is not None and bool(proved.applies)
        else None,
    }
    curves = None
    if run or plot is not None:
        unit = 1 / (n * z1 ** (2 - 2 / depth))
        horizon = max(1.5 * learned, unit) if math.isfinite(learned) else 20 * unit / min(1.0, scale)
        times = np.linspace(0, horizon, _RECORDS)
        predicted = convergence.modes(times, start, depth, n)
        curves = (times, np.asarray(gap(predicted.at)), np.asarray(predicted.at.s) / z1)
    measured = None
    if run:
        assert curves is not None
        measured = _measure(z, goal, n, depth, scale * z1, u, v, curves, quiet)
        answer["run"] = {name: value for name, value in measured.items() if name != "curve"}
    _show(answer, Console(quiet=quiet))
    if plot is not None:
        from linnet.plot.convergence import flow as draw

        assert curves is not None
        draw(answer, curves, None if measured is None else measured["curve"], plot)
        answer["figure"] = str(plot)
    return answer


def _target(
    spectrum: str | None, data: Path | None, outputs: int | None, samples: int | None
) -> tuple[np.ndarray, float, str]:
    """Z, n and a word about them."""
    if (data is None) == (spectrum is None):
        raise InputError("data or spectrum: give one of them, --data FILE or --spectrum 3,1.")
    if data is None:
        assert spectrum is not None
        if outputs is not None:
            raise InputError(f"outputs = {outputs} is not allowed with --spectrum: there are no columns.")
        values = np.sort(numbers("spectrum", spectrum))[::-1]
        if np.any(values < 0) or values[0] <= 0:
            raise InputError(f"spectrum = {spectrum!r} is not allowed: give singular values, the largest above 0.")
        n = _check.integer("samples", 1 if samples is None else samples, least=1)
        return np.diag(values), float(n), "a spectrum"
    if samples is not None:
        raise InputError(f"samples = {samples} is not allowed with --data: the file has its own.")
    inputs, labels = read_regression(data, outputs=outputs)
    if inputs.shape[0] < inputs.shape[1]:
        raise InputError(
            f"data = {str(data)!r} cannot be whitened: {inputs.shape[0]} samples for {inputs.shape[1]} inputs; give at "
            "least as many samples as inputs, or fewer columns."
        )
    scales = np.linalg.svd(inputs, compute_uv=False)
    rank = int(np.sum(scales > RANK_TOLERANCE * scales[0]))
    if rank < inputs.shape[1]:
        raise InputError(
            f"data = {str(data)!r} cannot be whitened: its {inputs.shape[1]} inputs have rank {rank}; leave out "
            "columns that depend on others."
        )
    problem = regression(inputs, labels).whiten().problem
    n = problem.samples
    whitened = scales[0] - scales[-1] <= 1e-9 * scales[0]
    return np.asarray(problem.cross) / n, float(n), "whitened data" if whitened else "your data, whitened first"


def _start(
    z: np.ndarray, scale: float, alignment: float | None, seed: int
) -> tuple[Coordinates, np.ndarray, np.ndarray]:
    """A start of rank one: random directions, or a given product of both cosines with the largest mode."""
    rng = np.random.default_rng(seed)
    p, values, qt = np.linalg.svd(z)
    sides: list[np.ndarray] = [rng.normal(size=(d,)) for d in z.shape]
    if alignment is not None:
        c = _check.real("alignment", alignment, least=-1, most=1)
        one = [d == 1 for d in z.shape]
        if all(one) and abs(c) < 1:
            raise InputError(f"alignment = {c:g} is not allowed here: one input and one output are aligned by +-1.")
        # both cosines equal would be the exceptional start for c <= 0, which never gets there: split it unevenly
        first = 1.0 if one[0] else abs(c) if one[1] else math.sqrt(c) if c > 0 else abs(c) ** (1 / 3)
        for side, cosine in zip(sides, (math.copysign(first, c), abs(c) / first if first else 0.5), strict=True):
            side[0] = 0.0
            size = float(np.linalg.norm(side))
            side *= math.sqrt(max(0.0, 1 - cosine**2)) / (size or 1.0)
            side[0] = cosine
    u, v = p @ sides[0], qt.T @ sides[1]
    start, _ = convergence.coordinates(scale * float(values[0]), u, v, z)
    return start, u, v


def _gap(at: Coordinates, goal: Coordinates, gamma: float) -> Any:
    """|A - A_end|: the distance to the best fit, or to the one of several that the flow chooses."""
    if gamma < 1 - 1e-9:
        return jnp.sqrt(2 * convergence.distance(at))
    inner = jnp.sum(at.a * goal.a, axis=-1) * jnp.sum(at.b * goal.b, axis=-1)
    return jnp.sqrt(jnp.maximum(at.s**2 + goal.s**2 - 2 * at.s * goal.s * inner, 0.0))


def _slowest(values: np.ndarray, shape: tuple[int, int], depth: int, n: float) -> float:
    """The slowest rate in the end; among several best fits nothing moves, and these directions do not count."""
    rates = convergence.near_rates(values, shape, depth, n)
    return float(np.min(rates[rates > 1e-9 * np.max(rates)]))


def _learned(start: Coordinates, depth: int, n: float, z1: float, gap: Callable[[Coordinates], Any]) -> float:
    """When A has come within a share of its end, by bisection in the closed form."""
    unit = 1 / (n * z1 ** (2 - 2 / depth))

    def far(t: float) -> bool:
        return float(gap(convergence.modes(t, start, depth, n).at)) > _NEAR

    high = unit
    while far(high):
        high *= 2
        if high > 1e250:
            return math.inf
    if high == unit and not far(0.0):
        return 0.0
    low = 0.0 if high == unit else high / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if far(middle) else (low, middle)
    return high


def _measure(
    z: np.ndarray,
    goal: Coordinates,
    n: float,
    depth: int,
    strength: float,
    u: np.ndarray,
    v: np.ndarray,
    curves: tuple[np.ndarray, np.ndarray, np.ndarray],
    quiet: bool,
) -> dict[str, Any]:
    """The layers' own flow, by an adaptive solver."""
    times, closed, size = curves
    p, values, qt = np.linalg.svd(z)
    top = values[0]
    aim = goal if float(goal.s) > 0 else Coordinates(top, np.eye(len(goal.a))[0], np.eye(len(goal.b))[0], goal.z)
    best = float(aim.s) * np.outer(p @ np.asarray(aim.a)[: len(p)], qt.T @ np.asarray(aim.b)[: len(qt)])
    looks = {
        "distance": Observable("distance", lambda s, _: jnp.linalg.norm(s.matrix - best) / top, ()),
        "s": Observable("s", lambda s, _: jnp.linalg.norm(s.matrix) / top, ()),
    }
    with bar("exact flow", quiet=quiet) as progress:
        run = simulate(
            factorisation(z),
            RankOne.balanced(strength, u, v, depth),
            GradientFlow(rtol=1e-10),
            time=float(n * times[-1]),
            record=at(n * times),
            observe=looks,
            progress=progress,
        )
    seen = np.asarray(run["distance"])
    count = len(seen)
    gap = float(np.max(np.abs(seen - closed[:count])))
    return {
        "status": run.status,
        "largest_gap_in_distance": gap,
        "largest_relative_gap_in_size": float(np.max(np.abs(np.asarray(run["s"]) / size[:count] - 1))),
        "curve": (times[:count], seen),
    }


def _show(answer: dict[str, Any], console: Console) -> None:
    say = partial(console.print, highlight=False)
    depth, start, near = answer["depth"], answer["start"], answer["near_rate"]
    z1 = answer["modes"][0]
    if answer["reaches_the_best_rank_one_fit"]:
        say(f"[bold]It gets there:[/] the flow ends at the best fit of rank one, of size {z1:.4g}.")
    else:
        say(f"[bold]It does not get there:[/] the flow ends at size {answer['limit']:.4g}, not at {z1:.4g}.")
    say(
        f"{answer['d_in']} inputs, {answer['d_out']} outputs, {depth} balanced layers, {answer['data']}, "
        f"n = {answer['samples']:g}; start of rank one and size {start['size']:.4g}, {start['over_target']:.3g} of the "
        f"target's, alignment {start['alignment']:+.3f}."
    )
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")

    def row(name: str, value: float | None) -> None:
        if value is not None:
            table.add_row(name, "never" if math.isinf(value) else f"{value:.4g}")

    row("rate of |A - Z_1| at the start", answer["far_rate"])  # none at the target itself
    if answer["far_phase_ends"]:
        row("far phase ends (size 1.5 of the target's) at time", answer["far_phase_ends"])
    row("half grown at time", answer["half_grown"])
    row("  by the law of small starts", answer["escape_time_of_a_small_start"])
    row(f"within {_NEAR:.0%} of the target at time", answer["learned"])
    if answer["reaches_the_best_rank_one_fit"]:
        row("rate of |A - Z_1| in the end", near)
        if answer["proved_rates"]:
            row("  proved: at least, in the fast phase", answer["proved_rates"]["fast"])
            row("  proved: at least, in the slow phase", answer["proved_rates"]["slow"])
        row("gradient descent settles there below lr =", answer["largest_stable_lr"])
    console.print(table)
    more = answer["near_rate_of_one_layer_more"]
    word = "faster" if more > near * (1 + 1e-9) else "slower" if more < near * (1 - 1e-9) else "no different"
    if answer["reaches_the_best_rank_one_fit"]:
        say(f"With one layer more the end would be {word} (rate {more:.4g}).")
    if "run" in answer:
        run = answer["run"]
        say(
            f"Exact flow of the layers ({run['status']}): distance / |Z_1| within {run['largest_gap_in_distance']:.1e} "
            f"of the closed form, size within {run['largest_relative_gap_in_size']:.1e}."
        )
        if run["status"] == "stalled":
            say("[yellow]Caution:[/] the solver gave up on the way; the closed form needs none.")
