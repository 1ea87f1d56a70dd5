"""`linnet predict phase`: where a two-layer network lies between lazy and active (mixed dynamics)."""

import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from linnet import _check, observe
from linnet._check import InputError
from linnet.cli.bar import bar
from linnet.cli.typed import numbers, picture
from linnet.initial import gaussian
from linnet.motion import GradientDescent
from linnet.observe import Observable
from linnet.problems import Factorisation, low_rank_recovery
from linnet.simulation import simulate
from linnet.theory import mixed

_DENSE = 3000  # dimensions up to which matrices are made
_WORDS = {
    "active": "active: signals are learned first and alone, so stopping early removes most of the noise",
    "lazy": "lazy: signal and noise are learned at one rate, so stopping early helps little",
    "infinite_noise": "infinite noise: the start itself is larger than the signal",
    "underparametrized": "underparametrized: with fewer neurons than dimensions these figures are a guide only",
}


def phase(
    gamma_w: float,
    gamma_sigma2: float,
    d: int,
    rank: int,
    levels: str | None,
    c_lr: float,
    seed: int,
    *,
    run: bool,
    plot: Path | None,
    quiet: bool,
) -> dict[str, Any]:
    """Where a network lies between lazy and active, and what follows; returns what `--json` prints."""
    d = _check.integer("d", d, least=2, most=10**9)
    gamma_w = _check.real("gamma_w", gamma_w, least=0, most=20)
    gamma_sigma2 = _check.real("gamma_sigma2", gamma_sigma2, least=-20, most=20)
    c_lr = _check.real("c_lr", c_lr, above=1, most=1e6)
    picture(plot)
    if run and d > _DENSE:
        raise InputError(f"d = {d} is not allowed with --run: the exact run needs d <= {_DENSE}.")
    key = jax.random.key(_check.integer("seed", seed, least=0, most=2**63 - 1))
    a = None if levels is None else _levels(levels)
    rank = _check.integer("rank", rank if a is None else len(a), least=1, most=d, reason="the dimension")
    problem = low_rank_recovery(key, d, rank, levels=a) if d <= _DENSE and (run or a is None) else None
    if a is None:
        a = np.full(rank, rank**-0.5)  # what the drawn levels tend to in high dimension
        if problem is not None:
            a = np.asarray(jnp.linalg.svd(problem.truth, compute_uv=False))[:rank] / d
    size = float(d)
    if gamma_w * math.log10(size) > 100:
        raise InputError(f"gamma_w = {gamma_w:g} is not allowed: the width d^gamma_w must be at most 1e100.")
    width, variance = float(max(1, round(size**gamma_w))), size**gamma_sigma2
    c, kappa = variance * width, 2 / size**2
    if not 1e-100 < c < 1e100 or not 1e-100 < variance * c < 1e100:
        raise InputError(
            f"gamma_sigma2 = {gamma_sigma2:g} is not allowed here: variance times width is {c:.3g}, beyond reason."
        )
    top = max(a) * size + 1 / max(a)
    lazy = gamma_sigma2 + gamma_w > 1
    lr = size**2 / (c_lr * (c if lazy else max(a) * size))
    stop = jax.jit(lambda c, start: mixed.early_stopping(a, size, c, start=start))(c, variance * c)
    targets = a * size + 1 / a  # as the noise moves them
    noise = 2 * math.sqrt(size)

    def steps(share: float, target: Any) -> Any:
        return np.asarray(jax.jit(mixed.mode_time)(0.0, share * np.asarray(target), target, c, kappa)) / lr

    label = mixed.phase(gamma_w, gamma_sigma2)
    answer: dict[str, Any] = {
        "d": d,
        "width": width,
        "variance": variance,
        "c": c,
        "phase": label,
        "meaning": _WORDS[label],
        "exponent_from_transition": gamma_sigma2 + gamma_w - 1,
        "variance_at_transition": size ** mixed.transition(gamma_w),
        "c_over_signal": c / (max(a) * size),
        "start_mean_square": variance * c,
        "lr": lr,
        "largest_stable_lr": float(mixed.largest_lr(top, c, kappa)),
        "signals": [
            {"level": float(x), "half_learned_at_step": float(h), "learned_90_percent_at_step": float(n)}
            for x, h, n in zip(a, steps(0.5, targets), steps(0.9, targets), strict=True)
        ],
        "first_noise": {
            "half_learned_at_step": float(steps(0.5, noise)),
            "learned_90_percent_at_step": float(steps(0.9, noise)),
        },
        "stop": {"step": float(stop.time) / lr, "time": float(stop.time), "test_error": float(stop.error)},
    }
    if undetectable := [float(x) for x in a if x * x * size <= 1]:
        answer["caution"] = (
            f"levels {undetectable} are below d^-1/2: the noise hides these signals from singular values altogether"
        )
    measured = None
    if run:
        assert problem is not None
        measured = _measure(problem, key, width, variance, lr, rank, answer, quiet)
        answer["run"] = measured
    _show(answer, Console(quiet=quiet))
    if plot is not None:
        from linnet.plot.phase import phase as draw

        times = np.linspace(0, _horizon(answer), 400)
        errors = jax.vmap(
            lambda k: mixed.recovery_error(k * lr, a, size, c, nodes=64, spiked=True, start=variance * c)
        )(times)
        curve = None if measured is None else measured.pop("curve")
        draw(answer, (gamma_sigma2, gamma_w), times, np.asarray(errors), curve, _map(a, size), plot)
        answer["figure"] = str(plot)
    if measured is not None:
        measured.pop("curve", None)
    return answer


def _levels(text: str) -> np.ndarray:
    values = np.sort(numbers("levels", text, example="1,0.8"))[::-1]
    if np.any(values <= 0):
        raise InputError(f"levels = {text!r} is not allowed: levels must be positive.")
    return values


def _horizon(answer: dict[str, Any]) -> float:
    noise, stop = answer["first_noise"]["learned_90_percent_at_step"], answer["stop"]["step"]
    return max(1.3 * stop, min(noise, 4 * stop), 2.0)


def _measure(
    problem: Factorisation,
    key: Any,
    width: float,
    variance: float,
    lr: float,
    rank: int,
    answer: dict[str, Any],
    quiet: bool,
) -> dict[str, Any]:
    """The exact run, until well after the predicted stop."""
    u, s, vt = jnp.linalg.svd(problem.target, full_matrices=False)
    u, s, vt = u[:, :rank], s[:rank], vt[:rank]
    signals = Observable("signals", lambda state, problem: jnp.einsum("ik,ij,kj->k", u, state.matrix, vt))
    last = max(s["learned_90_percent_at_step"] for s in answer["signals"])
    steps = math.ceil(max(_horizon(answer), 1.1 * last))
    if steps > 100_000:
        raise InputError(f"the run would take {steps} steps: choose a larger start or a smaller --c-lr.")
    with bar("exact run", quiet=quiet) as progress:
        result = simulate(
            problem,
            gaussian(key, problem, width, variance),
            GradientDescent(lr),
            steps=steps,
            observe={"test": observe.test_error, "signals": signals},
            progress=progress,
        )
    test, clock = np.asarray(result["test"]), np.asarray(result.steps)
    best = int(np.argmin(test))
    values = np.asarray(result["signals"])

    def crossing(i: int, share: float) -> float:
        above = values[:, i] >= share * float(s[i])
        return float(clock[int(np.argmax(above))]) if above.any() else math.nan

    return {
        "status": result.status,
        "steps": steps,
        "stop": {"step": int(clock[best]), "test_error": float(test[best])},
        "signals": [
            {"half_learned_at_step": crossing(i, 0.5), "learned_90_percent_at_step": crossing(i, 0.9)}
            for i in range(rank)
        ],
        "curve": (clock, test),
    }


def _map(levels: np.ndarray, d: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The predicted smallest test error over the plane of exponents."""
    x, y = np.linspace(-3, 0, 31), np.linspace(0, 2.8, 29)
    variance, width = np.meshgrid(d**x, np.maximum(1, np.round(d**y)))
    c = variance * width

    def one(pair: tuple[Any, Any]) -> Any:
        return mixed.early_stopping(levels, d, pair[0], start=pair[1]).error

    errors = jax.lax.map(one, (jnp.asarray(c.ravel()), jnp.asarray((variance * c).ravel())), batch_size=64)
    return x, y, np.asarray(errors).reshape(c.shape)


def _show(answer: dict[str, Any], console: Console) -> None:
    run = answer.get("run")
    console.print(
        f"[bold]{answer['phase'].replace('_', ' ')}[/]: {answer['meaning'].split(': ', 1)[1]}.", highlight=False
    )
    console.print(
        f"{answer['d']} -> {answer['width']:,.0f} -> {answer['d']} neurons, variance {answer['variance']:.3g}: "
        f"threshold c = {answer['c']:.3g}, {answer['c_over_signal']:.2g} of the strongest signal.\n"
        f"Exponent {answer['exponent_from_transition']:+.2f} from the transition, which at this width is at variance "
        f"{answer['variance_at_transition']:.3g}.",
        highlight=False,
    )
    console.print(f"Step size {answer['lr']:.4g}; stable below {answer['largest_stable_lr']:.4g}.", highlight=False)
    table = Table(box=None, pad_edge=False)
    for column in ("", "predicted", *(("exact run", "error") if run else ())):
        table.add_column(column, justify="left" if not column else "right")

    def row(name: str, predicted: float, measured: float | None, shape: str) -> None:
        cells = [name, format(predicted, shape)]
        if run:
            assert measured is not None
            cells += [
                format(measured, shape),
                "" if math.isnan(measured) else f"{predicted / measured - 1:+.1%}" if measured else "",
            ]
        table.add_row(*cells)

    for i, signal in enumerate(answer["signals"]):
        seen = run["signals"][i] if run else {}
        name = f"signal {i + 1} (level {signal['level']:.3g})"
        row(f"{name} half learned at step", signal["half_learned_at_step"], seen.get("half_learned_at_step"), ".0f")
    row("stop at step", answer["stop"]["step"], run["stop"]["step"] if run else None, ".0f")
    row("test error there", answer["stop"]["test_error"], run["stop"]["test_error"] if run else None, ".4f")
    console.print(table)
    console.print(
        f"The first noise mode is half learned at step {answer['first_noise']['half_learned_at_step']:.0f}.",
        highlight=False,
    )
    if "caution" in answer:
        console.print(f"[yellow]Caution:[/] {answer['caution']}.", highlight=False)
