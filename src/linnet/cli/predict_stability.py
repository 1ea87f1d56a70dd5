"""`linnet predict stability`: what descent at one step size makes of each mode of a deep factorisation."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from linnet import _check, dynamics
from linnet._check import InputError
from linnet._random import haar
from linnet.cli.bar import bar
from linnet.cli.typed import numbers, picture
from linnet.initial import identity, one_zero, orthogonal
from linnet.motion import GradientDescent
from linnet.observe import Observable
from linnet.problems import factorisation
from linnet.record import at
from linnet.simulation import simulate
from linnet.theory import mode_fate
from linnet.theory import stability as theory

STARTS = ("one-zero", "balanced", "orthogonal")
_MOST_RUN = 50_000  # of the matrices
_MOST_MODES = 50


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
    escape = mode_fate.escape_steps(s, scale, depth, start, step)
    fates, points = mode_fate.mode_fates(s, depth, kappas, scale, start, escape)
    null = d > len(s) and start != "balanced"
    cross = mode_fate.cross_fate(s, depth, step, points, fates, escape, scale, null)
    modes = _told(s, fates)
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
        "cross": _cross(cross, unit),
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
    onset = theory.cross_threshold(float(s[1] / s[0]), depth) if len(s) > 1 else math.inf
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


def _told(s: np.ndarray, fates: list[mode_fate.ModeFate]) -> list[dict[str, Any]]:
    out = []
    for value, fate in zip(s, fates, strict=True):
        row = {"s": float(value), "outcome": str(fate.outcome) + (", now near 0 for long" if fate.lingers else "")}
        names = ("curvature", "kappa", "period", "low", "high", "lyapunov")
        row |= {name: getattr(fate, name) for name in names}
        out.append(row | {"diverges_after_steps": fate.diverges_after})
    return out


def _cross(cross: mode_fate.Cross | None, unit: float) -> dict[str, Any] | None:
    if cross is None:
        return None
    return {
        "lr_at_which_the_minimum_is_unstable": cross.minimum_lr / unit,
        "lr_at_which_the_orbit_is_unstable": cross.orbit_lr / unit,
        "pair": cross.pair and [cross.pair.first, "null" if cross.pair.second is None else cross.pair.second],
        "growth_a_step": cross.growth,
        "visible_after_steps": cross.visible_after and cross.visible_after._asdict(),
        "state": str(cross.state),
    }


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
        answer["gap_left"] = mode_fate.gaps_left(s, depth, kappas, alpha)
    return answer


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
    points = np.unique(
        np.concatenate([np.linspace(0, steps, 800).round(), np.arange(max(0, steps - mode_fate.KEEP), steps)])
    )
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
    broken = (
        None if off is None or not np.any(off > mode_fate.VISIBLE) else int(taken[np.argmax(off > mode_fate.VISIBLE)])
    )
    count = min(len(modes), len(beside["modes"]))
    before = np.arange(count) if broken is None else np.flatnonzero(taken[:count] < broken)
    gaps = np.max(np.abs(modes[before] - np.asarray(beside["modes"])[before, :rank]), axis=0) / s
    last = taken >= max(0, taken[-1] - mode_fate.KEEP)
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
    if slow > mode_fate.MOST_STEPS / 2:
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
    say(
        f"{run['steps']} steps, {word}"
        + ("." if broken is None else f", above {mode_fate.VISIBLE:.0%} from step {broken} on.")
    )
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
