"""`linnet demo`: noisy low-rank recovery by a network of any width."""

import math
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console

from linnet import _check, observe
from linnet._check import InputError
from linnet.cli.bar import bar
from linnet.initial import gaussian
from linnet.motion import GradientDescent
from linnet.problems import low_rank_recovery
from linnet.simulation import simulate
from linnet.theory import mixed

SUFFIXES = (".png", ".svg", ".pdf")


def run(
    d: int, rank: int, gamma_w: float, gamma_sigma2: float, steps: int, seed: int, out: Path, *, quiet: bool
) -> dict[str, Any]:
    """Runs the demonstration, draws it to `out` and returns what was found."""
    if out.suffix.lower() not in SUFFIXES:
        raise InputError(f"out = {str(out)!r} is not allowed: it must end in {', '.join(SUFFIXES)}.")
    if not out.parent.is_dir():
        raise InputError(f"out = {str(out)!r} is not allowed: the folder {str(out.parent)!r} does not exist.")
    d = _check.integer("d", d, least=2, most=5000)
    steps = _check.integer("steps", steps, least=1)
    gamma_w = _check.real("gamma_w", gamma_w, least=0, most=100)
    variance = float(d) ** _check.real("gamma_sigma2", gamma_sigma2, least=-50, most=50)
    if gamma_w * math.log10(d) > 15:
        raise InputError(f"gamma_w = {gamma_w:g} is not allowed: the width d^gamma_w must be at most 1e15.")
    width = float(round(d**gamma_w))
    c = variance * width
    key = jax.random.key(_check.integer("seed", seed, least=0, most=2**63 - 1))
    problem = low_rank_recovery(key, d, rank)
    signal = float(jnp.linalg.norm(problem.truth, 2))
    lr = float(mixed.step_size(d, c, signal, lazy=gamma_sigma2 + gamma_w > 1))
    console = Console(quiet=quiet)
    console.print(
        f"Two layers, {d} -> {width:,.0f} -> {d}: {2 * d * width:,.0f} weights, trained as {min(width, 2 * d):,.0f} "
        f"neurons. {steps} steps of gradient descent, all {d} singular values at each."
    )
    began = time.perf_counter()
    with bar("training", quiet=quiet) as progress:
        result = simulate(
            problem,
            gaussian(key, problem, width, variance),
            GradientDescent(lr),
            steps=steps,
            observe={
                "singular values": observe.singular_values,
                "train": observe.loss,
                "test": observe.test_error,
                "stable rank": observe.stable_rank,
            },
            progress=progress,
        )
    seconds = time.perf_counter() - began
    from linnet.plot.recovery import recovery

    recovery(result, c, rank, out)
    best = int(jnp.argmin(result["test"]))
    steps_taken = jnp.asarray(result.steps)
    found = {
        "d": d,
        "rank": rank,
        "width": width,
        "variance": variance,
        "c": c,
        "lr": lr,
        "seed": seed,
        "status": result.status,
        "ended": int(result.ended),
        "best_step": int(steps_taken[best]),
        "best_test_error": float(result["test"][best]),
        "stable_rank_there": float(result["stable rank"][best]),
        "final_test_error": float(result["test"][-1]),
        "seconds": round(seconds, 2),
        "figure": str(out),
    }
    how = "" if result.status == "horizon" else f" The run {result.status} at step {found['ended']}."
    console.print(
        f"{seconds:.1f} s.{how} Test error {found['best_test_error']:.3f} at step {found['best_step']} (stable rank "
        f"{found['stable_rank_there']:.1f}), {found['final_test_error']:.3f} at the end. Picture: {out}"
    )
    return found
