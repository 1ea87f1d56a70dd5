"""`linnet predict stability`: what descent at one step size makes of each mode of a deep factorisation."""

import math
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from rich.console import Console
from rich.table import Table

from linnet import _check, dynamics, observe
from linnet._check import InputError
from linnet.cli.bar import bar
from linnet.cli.typed import numbers, picture
from linnet.initial import identity, one_zero, orthogonal
from linnet.linalg import haar
from linnet.motion import GradientDescent
from linnet.observe import Observable
from linnet.problems import Factorisation, factorisation
from linnet.record import at
from linnet.simulation import simulate
from linnet.states import Modes
from linnet.theory import stability as theory

STARTS = ("one-zero", "balanced", "orthogonal")
_KEEP = 128  # points of an orbit that are looked at; periods up to half of them are seen
_LONG = 8192  # points of which the lowest and the highest are told
_MOST_STEPS = 500_000  # of the chain of numbers that a mode is
_MOST_RUN = 50_000  # of the matrices
_MOST_MODES = 50
_VISIBLE = 0.01  # a cross component of this share of s_1 is seen


def stability(
    depth: int,
    spectrum: str,
    lr: float | None,
    start: str,
    alpha: float | None,
    d: int | None,
    seed: int,
    *,
    half: bool,
    run: bool,
    plot: Path | None,
    quiet: bool,
) -> dict[str, Any]:
    """Thresholds, orbits, cross instability and balancing at one step size; what `--json` prints."""
    depth = _check.integer("depth", depth, least=1, most=100)
    s, told = _spectrum(spectrum)
    _check.choice("start", start, STARTS)
    d = _check.integer("d", len(s) if d is None else d, least=len(s), most=1000, reason="the modes, or more")
    seed = _check.integer("seed", seed, least=0, most=2**63 - 1)
    picture(plot)
    scale, scaled = _alpha(alpha, s, depth)
    unit = 1.0 if half else 2.0  # a step on |A - A_star|^2 counts twice
    lr, chosen = _lr(lr, s, depth, unit)
    step = unit * lr
    kappas = step * theory.curvature(s, depth)
    escape = escape_times(s, scale, depth, start) / step
    modes, points = modes_at(s, depth, kappas, scale, start, escape)
    for mode, i in zip(modes, range(len(s)), strict=True):
        mode["lr"] = {name: value / (unit * theory.curvature(s[i], depth)) for name, value in _thresholds(depth)}
        mode["leaves_the_start_after_steps"] = float(escape[i])
    flow = float(theory.flow_sharpness(scale, s[0], depth)) if depth > 1 and start != "balanced" else None
    sharp = float(theory.curvature(s[0], depth))
    answer: dict[str, Any] = {
        "depth": depth,
        "spectrum": [float(x) for x in s],
        "spectrum_was": told,
        "d": d,
        "start": start,
        "alpha": scale,
        "alpha_was": scaled,
        "loss": "1/2 |A - A_star|^2" if half else "|A - A_star|^2",
        "lr": lr,
        "lr_was": chosen,
        "kappa": float(kappas[0]),
        "modes": modes,
        "largest_stable_lr": 2 / (unit * sharp),
        "largest_lr_of_the_flows_minimum": None if flow is None else 2 / (unit * flow),
        "sharpness_at_the_minimum": unit * sharp,
        "cross": cross_at(s, depth, step, unit, points, modes, escape, scale, d > len(s) and start != "balanced"),
        "sorting": _sorting(s, depth, unit, modes),
        "balancing": _balancing(s, depth, kappas, scale, start),
    }
    if run:
        answer["run"] = _measure(s, depth, step, scale, start, d, seed, unit, answer, quiet)
    _show(answer, Console(quiet=quiet))
    if plot is not None:
        from linnet.plot.stability_predict import bifurcation

        bifurcation(answer, _diagram(s, depth, lr, unit, modes), plot)
        answer["figure"] = str(plot)
    return answer


# What is asked --------------------------------------------------------------------------------------------------------


def _spectrum(text: str) -> tuple[np.ndarray, str]:
    given = numbers("spectrum", text, example="10,9,6")
    if np.any(given <= 0):
        raise InputError(f"spectrum = {text!r} is not allowed: give positive singular values and leave out zeros.")
    if len(given) > _MOST_MODES:
        raise InputError(f"spectrum has {len(given)} values: give at most {_MOST_MODES}, the largest.")
    s = np.sort(given)[::-1]
    if s[0] > 1e12 or s[-1] < 1e-12:
        raise InputError(f"spectrum = {text!r} is not allowed: singular values must be from 1e-12 to 1e12.")
    return s, "as given" if np.array_equal(s, given) else "sorted, largest first"


def _alpha(alpha: float | None, s: np.ndarray, depth: int) -> tuple[float, str]:
    """A start scale below s_r, and who chose it."""
    if alpha is None:
        # small against the first mode, and not so small that a deep network never leaves the saddle
        return min(s[-1] / 2, 0.1 * s[0] ** (1 / depth)), "chosen here"
    value = _check.real("alpha", alpha, above=0)
    if value >= s[-1]:
        raise InputError(
            f"alpha = {value:g} is not allowed: alpha must be below the smallest singular value, {s[-1]:g}."
        )
    return value, "as given"


def _lr(lr: float | None, s: np.ndarray, depth: int, unit: float) -> tuple[float, str]:
    if lr is not None:
        return _check.real("lr", lr, above=0), "as given"
    sharp = unit * float(theory.curvature(s[0], depth))
    if depth == 1:
        return 1 / sharp, "chosen here: half of what one layer can bear"
    following, what = float(theory.stages(depth).doublings[1]), "the orbit of mode 1 doubles"
    onset = _mixing(float(s[1] / s[0]), depth) if len(s) > 1 else math.inf
    if onset < following:
        following, what = onset, "modes 1 and 2 mix"
    if following < 2.1:  # too narrow a window to see anything in
        return 2.05 / sharp, "chosen here: a little beyond the edge of stability"
    return (1 + following / 2) / sharp, f"chosen here: halfway from the edge of stability to where {what}"


# Each mode for itself -------------------------------------------------------------------------------------------------


def _thresholds(depth: int) -> list[tuple[str, float]]:
    """kappa at which the motion of a mode changes, by name."""
    if depth == 1:
        return [("oscillates", 2.0), ("diverges", 2.0)]
    table = theory.stages(depth)
    return [
        ("oscillates", 2.0),
        ("doubles", float(table.doublings[1])),
        ("chaos", table.accumulation),
        ("leaves", table.leaves),
        ("diverges", table.diverges),
    ]


def escape_times(s: np.ndarray, alpha: float, depth: int, start: str) -> np.ndarray:
    """The time that each mode takes to leave the saddle."""
    if depth == 1:
        return np.zeros(len(s))
    time = theory.escape_time(s, alpha, depth, "balanced" if start == "balanced" else "one_zero")
    return np.maximum(np.broadcast_to(time, s.shape), 0.0)


def _chain(
    s: np.ndarray, depth: int, kappas: np.ndarray, alpha: float, start: str, steps: int, keep: int
) -> tuple[np.ndarray, np.ndarray]:
    """Layer values (y in all layers but the last, x in the last) of every mode at the last steps, in units of s^{1/L},
    and when a mode diverged.
    """
    if depth == 1:
        begin = np.zeros(len(s)) if start != "balanced" else alpha / s
        found = dynamics.orbits(dynamics.balanced(1), begin, kappas, skip=steps, keep=keep)
        both = np.stack([np.ones_like(found.values), found.values], axis=-1)
        return both, np.asarray(found.escaped)
    root = alpha / s ** (1 / depth)
    limit = max(dynamics.LIMIT, 10 * float(root.max()))
    if start == "balanced":
        one = dynamics.orbits(dynamics.balanced(depth), root, kappas, skip=steps, keep=keep, limit=limit)
        return np.stack([one.values, one.values], axis=-1), np.asarray(one.escaped)
    begin = np.stack([np.zeros_like(root), root], axis=-1)
    two = dynamics.orbits(dynamics.one_zero(depth), begin, kappas, skip=steps, keep=keep, limit=limit)
    return np.asarray(two.values)[..., ::-1], np.asarray(two.escaped)


def modes_at(
    s: np.ndarray, depth: int, kappas: np.ndarray, alpha: float, start: str, escape: np.ndarray
) -> tuple[list[dict[str, Any]], np.ndarray]:
    """What becomes of each mode from this start, and its layer values (points, 2, modes) in the end, y then x."""
    steps = int(min(3 * np.ceil(escape.max()) + 20_000, _MOST_STEPS))
    found, escaped = _chain(s, depth, kappas, alpha, start, steps, _LONG)
    both = np.array(found)
    slow = 2 * escape > _MOST_STEPS
    if slow.any():  # the saddle holds these for longer than anyone can iterate: begin where it lets them go
        with_x = np.where(slow, 0.9, 0.5)
        late = dynamics.orbits(dynamics.balanced(depth), with_x, kappas, skip=steps, keep=_LONG)
        both[slow] = np.asarray(late.values)[slow][..., None]
        escaped = np.where(slow, np.asarray(late.escaped), escaped)
    product = both[..., 0] ** (depth - 1) * both[..., 1]
    both = both[:, -_KEEP:]
    periods = dynamics.period(dynamics.Orbits(jnp.asarray(both), jnp.asarray(escaped)), most=_KEEP // 2)
    words = theory.outcome(kappas, depth)
    chaotic = [i for i in range(len(s)) if words[i] in ("chaos", "flips") and periods[i] < 2]
    patient = slow | (kappas < 0.5)  # too slow to be seen to the end, and steps so small that nothing else can happen
    wild = [word in ("chaos", "flips") for word in words]  # with even depth 0 repels, however long they stay near it
    rates = np.full(len(s), np.nan)
    if chaotic:
        rates = np.asarray(dynamics.lyapunov(dynamics.balanced(depth), 0.9, kappas, skip=2000, steps=20_000).exponent)
    cycles = theory.orbit(s, depth, kappas / theory.curvature(s, depth)) if depth > 1 else None
    out = []
    for i, value in enumerate(s):
        low, high = float(value * product[i].min()), float(value * product[i].max())
        mode: dict[str, Any] = {
            "s": float(value),
            "curvature": float(theory.curvature(value, depth)),
            "kappa": float(kappas[i]),
            "outcome": words[i],
            "period": int(periods[i]),
            "diverges_after_steps": None,
            "low": low,
            "high": high,
            "lyapunov": None,
        }
        if escaped[i] >= 0:
            mode |= {"outcome": "diverges", "period": None, "low": None, "high": None}
            mode["diverges_after_steps"] = int(escaped[i])
        elif depth == 1 and words[i] == "diverges":  # slowly: the limit is far
            left = math.log(dynamics.LIMIT) / math.log(kappas[i] - 1)
            mode |= {"period": None, "low": None, "high": None, "diverges_after_steps": math.ceil(left)}
        # theory's digits where the start does lead there: a large one may end elsewhere
        elif words[i] == "converges" and (patient[i] or np.max(np.abs(product[i, -_KEEP:] - 1)) < 0.1):
            mode |= {"period": 1, "low": float(value), "high": float(value)}
        elif words[i] == "period 2" and cycles is not None and _near(low, high, cycles.bottom[i], cycles.top[i]):
            mode |= {"period": 2, "low": float(cycles.bottom[i]), "high": float(cycles.top[i])}
        elif words[i].startswith("period") and words[i] != "period 2":
            mode["period"] = int(words[i].split()[1])
        elif np.max(np.abs(product[i])) < 0.2 and np.ptp(product[i]) < 1e-6 and not (depth % 2 == 0 and wild[i]):
            mode |= {"outcome": "trapped", "period": None, "low": 0.0, "high": 0.0}
        elif periods[i] > 1:
            mode["outcome"] = f"period {periods[i]}"
        else:
            stays = wild[i] and np.max(np.abs(product[i])) < 0.2
            mode |= {"outcome": "chaos, now near 0 for long" if stays else "chaos", "period": None}
            mode["lyapunov"] = float(rates[i]) if math.isfinite(rates[i]) else None
        out.append(mode)
    layers = np.swapaxes(both, 0, 1) * (s ** (1 / depth))[None, :, None]  # point, mode, (y, x)
    return out, np.swapaxes(layers, 1, 2)


def _near(low: float, high: float, bottom: float, top: float) -> bool:
    return abs(low - bottom) + abs(high - top) < 0.1 * top


# Modes with each other ------------------------------------------------------------------------------------------------


_mixing = lru_cache(theory.cross_threshold)


@partial(jax.jit, static_argnums=3)
def _pair_steps(points: Array, goal: Array, step: Array, depth: int) -> Array:
    """I - lr H of every pair of modes at every point of an orbit; `points` holds y and x of every mode."""

    def at_point(both: Array) -> Array:
        state = Modes(jnp.concatenate([jnp.repeat(both[:1], depth - 1, axis=0), both[1:]]))
        blocks = observe.aligned_blocks(state, Factorisation(goal, jnp.ones(())))[1]
        return jnp.eye(2 * depth) - step * blocks

    return jax.vmap(at_point)(points)


def _growth(jacobians: np.ndarray, period: int, depth: int) -> np.ndarray:
    """The rate a step at which cross components of each pair grow, 0 where nothing but rotations is left."""
    if period:
        found = dynamics.free(dynamics.floquet(jacobians[:period]), depth - 1)
        return np.log(np.maximum(np.abs(found[..., 0]), 1e-300)) / period
    # no period: the mean growth of a generic deviation over the points there are, the first part to let it turn
    rng = np.random.default_rng(0)
    vector = rng.normal(size=(*jacobians.shape[1:-1], 1))
    total = np.zeros(jacobians.shape[1])
    rounds, skip = 2, jacobians.shape[0] // 4
    for _ in range(rounds):
        for k, jacobian in enumerate(jacobians):
            vector = jacobian @ vector
            size = np.linalg.norm(vector, axis=(-2, -1), keepdims=True)
            vector = vector / size
            total += np.log(size[..., 0, 0]) if k >= skip else 0.0
    return np.asarray(total / (rounds * (jacobians.shape[0] - skip)))


def cross_at(
    s: np.ndarray,
    depth: int,
    step: float,
    unit: float,
    points: np.ndarray,
    modes: list[dict[str, Any]],
    escape: np.ndarray,
    alpha: float,
    null: bool,
) -> dict[str, Any] | None:
    """Whether and when cross components of two modes grow out of rounding on this orbit.

    With `null` also those between a mode and the directions that the target lacks, where W_l, l < L, keep alpha.
    """
    if (len(s) < 2 and not null) or depth == 1:
        return None
    edge = onset = math.nan
    if len(s) > 1:
        edge = 2 / (unit * float(theory.cross_curvature(s[0], s[1], depth)))
        onset = _mixing(float(s[1] / s[0]), depth)
    answer: dict[str, Any] = {
        "lr_at_which_the_minimum_is_unstable": edge,
        "lr_at_which_the_orbit_is_unstable": onset / (unit * float(theory.curvature(s[0], depth))),
        "pair": None,
        "growth_a_step": None,
        "visible_after_steps": None,
    }
    if any(mode["outcome"] in ("diverges", "trapped") for mode in modes):
        answer["state"] = "no orbit to ask about"
        return answer
    known = [mode["period"] for mode in modes]
    period = math.lcm(*known) if all(known) else 0
    if period > _KEEP:
        period = 0
    exact, goals = _settled(points, s, depth, modes, step), s
    if null:
        rest = np.broadcast_to(np.array([alpha, 0.0])[:, None], (len(exact), 2, 1))
        exact, goals = np.concatenate([exact, rest], axis=2), np.append(s, 0.0)
    rates = _growth(np.asarray(_pair_steps(exact, goals, step, depth)), period, depth)
    rows, columns = np.triu_indices(len(goals), 1)
    worst = int(np.argmax(rates))
    rate = float(rates[worst])
    unstable = rate > (1e-9 if period else 5e-3)
    other = int(columns[worst]) + 1 if columns[worst] < len(s) else "null"
    answer |= {"pair": [int(rows[worst]) + 1, other], "growth_a_step": rate}
    answer["state"] = "unstable" if unstable else "stable"
    if unstable:
        begin = float(escape[min(columns[worst], len(s) - 1)])
        answer["visible_after_steps"] = {
            name: begin + math.log(_VISIBLE / eps) / rate
            for name, eps in (("double", np.finfo(np.float64).eps), ("single", np.finfo(np.float32).eps))
        }
    return answer


def _settled(points: np.ndarray, s: np.ndarray, depth: int, modes: list[dict[str, Any]], step: float) -> np.ndarray:
    """The points with 2-cycles put where theory has them: near a threshold iterates are still on their way."""
    out = np.array(points)
    cycles = theory.orbit(s, depth, step)
    for i, mode in enumerate(modes):
        if mode["outcome"] == "converges":
            continue  # where the layers differ for ever, theirs is the minimum that counts
        if mode["outcome"] == "period 2":
            low = points[:, 0, i] < points[:, 0, i].mean()
            if low[0] == low[1]:  # not yet apart
                low = np.arange(len(points)) % 2 == 0
            out[:, :, i] = np.where(low, cycles.low[i], cycles.high[i])[:, None]
    return out


def _sorting(s: np.ndarray, depth: int, unit: float, modes: list[dict[str, Any]]) -> dict[str, Any] | None:
    """From which step on sorted values of mode 2 alternate although it is at rest."""
    if len(s) < 2 or depth == 1 or s[1] >= s[0]:
        return None
    onset = theory.sorting_onset(s[1] / s[0], depth) / (unit * float(theory.curvature(s[0], depth)))
    crossed = modes[0]["low"] is not None and modes[0]["low"] < s[1] and modes[0]["outcome"] != "trapped"
    return {"lr": onset, "here": bool(crossed and modes[0]["period"] != 1)}


def _balancing(s: np.ndarray, depth: int, kappas: np.ndarray, alpha: float, start: str) -> dict[str, Any] | None:
    """What becomes of the difference between layers, y_l^2 - y_L^2 = alpha^2 at the start."""
    if depth == 1:
        return None
    answer: dict[str, Any] = {"largest_alpha": None, "gap_multiplier_over_the_cycle": None, "gap_left": None}
    if kappas[0] < 2 * math.sqrt(2):
        answer["largest_alpha"] = theory.largest_alpha(s[0], depth, float(kappas[0]))
    if 2 < kappas[0] < theory.stages(depth).doublings[1]:
        found = theory.orbit(s[0], depth, kappas[0] / theory.curvature(s[0], depth))
        answer["gap_multiplier_over_the_cycle"] = float(found.gap)
    if start != "balanced":
        answer["gap_left"] = _gap_left(s, depth, kappas, alpha)
    return answer


def _gap_left(s: np.ndarray, depth: int, kappas: np.ndarray, alpha: float) -> list[float | None]:
    """Final gap over the first, by the product of 1 - q of `gap_loss`, for modes that converge; None for the others."""
    root = alpha / s ** (1 / depth)
    steps = int(
        min(3 * np.ceil(escape_times(s, alpha, depth, "one-zero").max() * depth / kappas.min()) + 5000, 500_000)
    )
    found = np.asarray(_gaps(jnp.asarray(root), jnp.asarray(kappas), depth, steps))
    return [
        float(g) if k <= 2 and math.isfinite(g) and p < 1e-3 else None
        for g, p, k in zip(found[0], found[1], kappas, strict=True)
    ]


@partial(jax.jit, static_argnums=2)
def _gaps(root: Array, kappas: Array, depth: int, steps: int) -> Array:
    """prod (1 - q) along the chain of every mode, and its distance from the target in the end."""

    def walk(_: Any, run: tuple[Array, Array]) -> tuple[Array, Array]:
        point, gap = run
        x, y = point[..., 0], point[..., 1]
        q = (kappas / depth * (x * y ** (depth - 1) - 1) * y ** (depth - 2)) ** 2
        return jax.vmap(dynamics.one_zero(depth))(point, kappas), gap * (1 - q)

    begin = jnp.stack([jnp.zeros_like(root), root], axis=-1)
    point, gap = jax.lax.fori_loop(0, steps, walk, (begin, jnp.ones_like(root)))
    return jnp.stack([gap, jnp.abs(point[..., 0] * point[..., 1] ** (depth - 1) - 1)])


# The exact run --------------------------------------------------------------------------------------------------------


def _measure(
    s: np.ndarray,
    depth: int,
    step: float,
    alpha: float,
    start: str,
    d: int,
    seed: int,
    unit: float,
    answer: dict[str, Any],
    quiet: bool,
) -> dict[str, Any]:
    """Descent of the matrices, with random singular vectors, beside the chains of its modes."""
    left, right, turn = jax.random.split(jax.random.key(seed), 3)
    u, v = haar(left, d, d), haar(right, d, d)
    if start == "balanced":
        v = u  # from alpha I in every layer only a symmetric target is learned mode by mode
    values = np.concatenate([s, np.zeros(d - len(s))])
    problem, chain = factorisation((u * values) @ v.T), factorisation(values)
    maker = identity if start == "balanced" else one_zero
    shadow = maker(chain, alpha, depth)
    begin = orthogonal(turn, problem, alpha, depth) if start == "orthogonal" else maker(problem, alpha, depth)
    wanted = 2 * max(mode["leaves_the_start_after_steps"] for mode in answer["modes"]) + 2000
    seen = (answer["cross"] or {}).get("visible_after_steps")
    if seen:
        wanted = max(wanted, 1.3 * seen["double"])
    steps = int(wanted) if wanted <= _MOST_RUN else _MOST_RUN // 10
    points = np.unique(np.concatenate([np.linspace(0, steps, 800).round(), np.arange(max(0, steps - _KEEP), steps)]))
    rank = len(s)

    def rotated(state: Any, _: Any) -> Any:
        return u.T @ state.matrix @ v

    with bar("exact run", quiet=quiet) as progress:
        run = simulate(
            problem,
            begin,
            GradientDescent(step),
            steps=steps,
            record=at(points),
            observe={"rotated": Observable("rotated", rotated, ("output_mode", "input_mode"))},
            progress=progress,
        )
    beside = simulate(chain, shadow, GradientDescent(step), steps=steps, record=at(points), observe=["modes"])
    inner = np.asarray(run["rotated"])
    taken = np.asarray(run.steps)
    modes = np.diagonal(inner, axis1=1, axis2=2)[:, :rank]
    off = np.max(np.abs(inner - np.einsum("tij,ij->tij", inner, np.eye(d))), axis=(1, 2)) / s[0] if d > 1 else None
    broken = None if off is None or not np.any(off > _VISIBLE) else int(taken[np.argmax(off > _VISIBLE)])
    count = min(len(modes), len(beside["modes"]))
    before = np.arange(count) if broken is None else np.flatnonzero(taken[:count] < broken)
    gaps = np.max(np.abs(modes[before] - np.asarray(beside["modes"])[before, :rank]), axis=0) / s
    last = taken >= max(0, taken[-1] - _KEEP)
    return {
        "status": str(run.status),
        "steps": int(run.ended),
        "long_enough": bool(wanted <= _MOST_RUN),
        "d": d,
        "largest_cross_component": None if off is None else float(off.max()),
        "cross_component_seen_at_step": broken,
        "modes": [
            {"low": float(modes[last, i].min()), "high": float(modes[last, i].max()), "gap": float(gaps[i])}
            for i in range(rank)
        ],
    }


def _diagram(s: np.ndarray, depth: int, lr: float, unit: float, modes: list[dict[str, Any]]) -> dict[str, Any]:
    """Points of the bifurcation diagram of the first modes, from below the edge to beyond this step or divergence."""
    edge = modes[0]["lr"]["oscillates"]
    end = max(1.25 * edge, 1.08 * lr)
    if depth > 1:
        end = min(max(end, modes[0]["lr"]["leaves"]), 1.02 * modes[0]["lr"]["diverges"])
    begin = min(0.9 * edge, 0.95 * lr if lr < edge else edge)
    rates = np.linspace(begin, end, 900)
    shown = s[:6]
    kappas = (unit * rates[:, None] * theory.curvature(shown, depth)).ravel()
    found = dynamics.orbits(dynamics.balanced(depth), 0.9, kappas, skip=4000, keep=96)
    values = np.asarray(found.values) ** depth
    values[np.asarray(found.escaped) >= 0] = np.nan
    return {"lr": rates, "values": values.reshape(len(rates), len(shown), -1) * shown[:, None], "modes": shown}


# In words -------------------------------------------------------------------------------------------------------------


def _headline(answer: dict[str, Any]) -> str:
    modes = answer["modes"]
    lost = [mode["diverges_after_steps"] for mode in modes if mode["diverges_after_steps"] is not None]
    if lost:
        return f"[bold]It diverges[/] after {min(lost)} steps."
    moving = [i + 1 for i, mode in enumerate(modes) if mode["period"] != 1]
    if not moving:
        return "[bold]It converges:[/] every mode comes to rest at its target."
    first = modes[moving[0] - 1]
    rest = (
        "."
        if len(moving) == len(modes)
        else "; " + ("the other comes to rest." if len(modes) - len(moving) == 1 else "the others come to rest.")
    )
    if first["outcome"] == "trapped":
        return f"[bold]It gets stuck:[/] mode {moving[0]} ends at the saddle 0{rest}"
    more = (
        f", and modes {', '.join(map(str, moving[1:]))} move too"
        if len(moving) > 2
        else (f", and mode {moving[1]} moves too" if len(moving) == 2 else "")
    )
    cross = answer["cross"]
    until = ""
    if cross is not None and cross["state"] == "unstable":
        until = (
            f" Until about step {cross['visible_after_steps']['double']:.0f}: then modes mix, and anything may follow."
        )
    return (
        f"[bold]It does not settle:[/] mode {moving[0]} moves between {first['low']:.6g} and {first['high']:.6g} "
        f"({first['outcome']}){more}{rest}{until}"
    )


def _row(mode: dict[str, Any]) -> list[str]:
    if mode["diverges_after_steps"] is not None:
        return [f"diverges after {mode['diverges_after_steps']} steps", "", ""]
    if mode["outcome"] == "converges":
        return ["at rest", f"{mode['s']:.6g}", ""]
    if mode["outcome"] == "trapped":
        return ["trapped at 0", "0", ""]
    told = mode["outcome"] + (f", exponent {mode['lyapunov']:+.2f}" if mode["lyapunov"] is not None else "")
    return [told, f"{mode['low']:.6g} .. {mode['high']:.6g}", f"{mode['high'] - mode['low']:.4g}"]


def _show(answer: dict[str, Any], console: Console) -> None:
    say = partial(console.print, highlight=False)
    depth, modes, unit = answer["depth"], answer["modes"], "layers" if answer["depth"] > 1 else "layer"
    say(_headline(answer))
    say(
        f"{depth} {unit}, loss {answer['loss']}, lr = {answer['lr']:.6g} ({answer['lr_was']}), lr times sharpness at "
        f"the minimum = {answer['kappa']:.4f}; {answer['start']} start, alpha = {answer['alpha']:.4g} "
        f"({answer['alpha_was']})."
    )
    if answer["spectrum_was"] != "as given":
        say(f"The spectrum was {answer['spectrum_was']}.")
    here = Table(box=None, pad_edge=False)
    steps = Table(box=None, pad_edge=False)
    for table in (here, steps):
        for name in ("mode", "target"):
            table.add_column(name, justify="right")
    for name in ("at this lr", "values of u^T A v", "amplitude"):
        here.add_column(name)
    names = {"oscillates": "period 2 from lr =", "doubles": "period 4", "chaos": "chaos", "diverges": "diverges"}
    if depth == 1:
        names = {"diverges": "diverges from lr ="}
    for name in names.values():
        steps.add_column(name, justify="right")
    for i, mode in enumerate(modes):
        here.add_row(str(i + 1), f"{mode['s']:.6g}", *_row(mode))
        steps.add_row(str(i + 1), f"{mode['s']:.6g}", *(f"{mode['lr'][name]:.6g}" for name in names))
    console.print(here)
    say("[bold]Thresholds:[/]")
    console.print(steps)
    say(f"[bold]Largest stable lr[/] at the balanced minimum: {answer['largest_stable_lr']:.6g}", end="")
    of_flow = answer["largest_lr_of_the_flows_minimum"]
    say("." if of_flow is None else f"; at the minimum that gradient flow finds from this start: {of_flow:.6g}.")
    _show_cross(answer, say)
    _show_balance(answer, say)
    slow = max(mode["leaves_the_start_after_steps"] for mode in modes)
    if slow > _MOST_STEPS / 2:
        say(f"The last mode leaves the start only after about {slow:.1e} steps: a larger alpha is quicker.")
    if "run" in answer:
        _show_run(answer, say, console)


def _show_cross(answer: dict[str, Any], say: Any) -> None:
    cross, sorting = answer["cross"], answer["sorting"]
    if sorting is not None and sorting["here"]:
        since = f" (from lr = {sorting['lr']:.4g} on)" if sorting["lr"] <= answer["lr"] else ""
        say(
            f"[bold]Sorted singular values mislead here:[/] mode 1 passes below mode 2{since}, so the second largest "
            "value alternates whatever mode 2 does."
        )
    if cross is None:
        return
    onset = cross["lr_at_which_the_orbit_is_unstable"]
    edge = cross["lr_at_which_the_minimum_is_unstable"]
    told = "" if len(answer["modes"]) < 2 else " Modes 1 and 2: the 2-cycle of mode 1 is safe until it doubles."
    if math.isfinite(onset):
        told = f" Modes 1 and 2: they mix from lr = {onset:.6g} on (around the minimum itself from {edge:.6g})."
    if cross["state"] == "unstable":
        double, single = (cross["visible_after_steps"][name] for name in ("double", "single"))
        one, other = cross["pair"]
        pair = f"Mode {one} and the null space" if other == "null" else f"Modes {one} and {other}"
        say(
            f"[bold]{pair} mix:[/] cross components grow by {math.expm1(cross['growth_a_step']):.2%} a step; out of "
            f"rounding they are seen after about {double:.0f} steps (single precision: {single:.0f}).{told}"
        )
    elif cross["state"] == "stable":
        say(f"[bold]Modes stay apart:[/] cross components do not grow.{told}")
    else:
        say(f"[bold]Each mode for itself:[/] no orbit is left whose cross components could be followed.{told}")


def _show_balance(answer: dict[str, Any], say: Any) -> None:
    balance = answer["balancing"]
    if balance is None:
        return
    parts = []
    shrink = balance["gap_multiplier_over_the_cycle"]
    if shrink is not None and answer["modes"][0]["outcome"] == "period 2":
        parts.append(f"in mode 1 differences vanish, times {abs(shrink):.3f} every two steps")
    left = [(i + 1, g) for i, g in enumerate(balance["gap_left"] or []) if g is not None]
    if left and answer["modes"][0]["outcome"] != "diverges":
        kept = ", ".join(f"{g:.1%} in mode {i}" for i, g in left[:4])
        parts.append(f"of y_l^2 - y_L^2 = alpha^2 there remains {kept}{', ...' if len(left) > 4 else ''}")
    if balance["largest_alpha"] is not None:
        parts.append(f"differences cannot grow for alpha up to {balance['largest_alpha']:.4g}")
    if parts:
        say(f"[bold]Balance of the layers:[/] {'; '.join(parts)}.")


def _show_run(answer: dict[str, Any], say: Any, console: Console) -> None:
    run = answer["run"]
    say(f"[bold]Exact run[/] of {run['d']} x {run['d']} matrices with random singular vectors: ", end="")
    if run["status"] == "diverged":
        say(f"diverged at step {run['steps']}.")
        return
    word = (
        "no cross components"
        if run["largest_cross_component"] is None
        else (f"cross components up to {run['largest_cross_component']:.1e} of s_1")
    )
    broken = run["cross_component_seen_at_step"]
    say(f"{run['steps']} steps, {word}" + ("." if broken is None else f", above {_VISIBLE:.0%} from step {broken} on."))
    if not run["long_enough"]:
        say("It is too short to see where the modes end: a larger alpha leaves the start sooner.")
    table = Table(box=None, pad_edge=False)
    for name in ("mode", "last steps of the run", "predicted", "largest error of the map"):
        table.add_column(name, justify="right")
    for i, (seen, mode) in enumerate(zip(run["modes"], answer["modes"], strict=True)):
        table.add_row(
            str(i + 1),
            f"{seen['low']:.6g} .. {seen['high']:.6g}",
            "diverges" if mode["low"] is None else f"{mode['low']:.6g} .. {mode['high']:.6g}",
            f"{seen['gap']:.1e}" + (" (chaos)" if mode["outcome"] == "chaos" else ""),
        )
    console.print(table)
