"""The same code on whatever device JAX finds: exactness against NumPy on the host, then throughput in float64.

    PYTHONPATH=src python benchmarks/device.py [--json FILE]

Needs NumPy, SciPy, JAX, Equinox, diffrax, Optimistix, jaxtyping and xarray only. Exits with 1 if anything is inexact.
"""

import argparse
import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from timing import table, timed

import linnet as ln

TOLERANCE = 1e-10


def relative(a: Any, b: Any) -> float:
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b))) / np.max(np.abs(np.asarray(b))))


def numpy_descent(target: np.ndarray, layers: list[np.ndarray], lr: float, steps: int) -> np.ndarray:
    for _ in range(steps):
        below = [np.eye(layers[0].shape[1])]
        for w in layers:
            below.append(w @ below[-1])
        force, new = target - below[-1], []
        for w, prefix in zip(reversed(layers), reversed(below[:-1]), strict=True):
            new.append(w + lr * force @ prefix.T)
            force = w.T @ force
        layers = new[::-1]
    out = layers[0]
    for w in layers[1:]:
        out = w @ out
    return out


def exactness() -> list[tuple[str, float]]:
    rng = np.random.default_rng(0)
    out = []
    for name, widths in (
        ("2 layers, w >> d", (7, 300, 5)),
        ("2 layers, w < d", (20, 3, 25)),
        ("2 layers, larger", (60, 400, 50)),
        ("4 layers", (6, 30, 8, 9, 5)),
    ):
        layers = [0.5 * rng.normal(size=(b, a)) / np.sqrt(max(a, b)) for a, b in pairwise(widths)]
        target = rng.normal(size=(widths[-1], widths[0]))
        target /= np.linalg.norm(target, 2)
        state = ln.Weights(layers)
        # in the middle of learning: at the end every coordinate would sit at the same minimum
        for steps in (100, 2000):
            run = ln.simulate(ln.factorization(target), state.compress(), ln.optim.SGD(0.05), steps=steps)
            out.append(
                (f"{name}, {steps} steps", relative(run.final.matrix, numpy_descent(target, layers, 0.05, steps)))
            )
    s, values = np.array([2.0, 1.0, 0.3]), rng.uniform(0.3, 1.0, size=(3, 3))
    problem = ln.factorization(np.diag(s))
    weights = ln.simulate(problem, ln.init.aligned(problem, values), ln.optim.SGD(0.05), steps=2000, observe=["modes"])
    modes = ln.simulate(problem.aligned(), ln.Modes(values), ln.optim.SGD(0.05), steps=2000, observe=["modes"])
    out.append(("modes and matrices", relative(modes["modes"], weights["modes"])))
    a0, c = 0.2 * rng.normal(size=(3, 5)), 0.3
    target = ln.factorization(rng.normal(size=(3, 5)))
    flows = [
        ln.simulate(target, s, ln.optim.GradientFlow(rtol=1e-12), time=5.0).final.matrix
        for s in (ln.EndToEnd(a0, ln.states.Mixed(c)), ln.init.mixed_manifold(a0, c))
    ]
    out.append(("mixed flow on its manifold", relative(*flows)))
    keys = jax.random.split(jax.random.key(0), 8)
    one = [ln.simulate(target, ln.init.gaussian(k, target, 50, 0.01), ln.optim.SGD(0.1), steps=500) for k in keys]
    many = jax.vmap(lambda k: ln.simulate(target, ln.init.gaussian(k, target, 50, 0.01), ln.optim.SGD(0.1), steps=500))(
        keys
    )
    out.append(("batch and single runs", max(relative(many["loss"][i], r["loss"]) for i, r in enumerate(one))))
    return out


def throughput(d: int, runs: int, steps: int) -> dict[str, Any]:
    """Descent of `runs` independent networks of two layers with 2d compressed neurons: 12 d^3 flops a step."""
    problem = ln.low_rank_recovery(jax.random.key(0), d, min(5, d))
    lr = d**2 / (50 * float(jnp.linalg.norm(problem.truth, 2)))
    keys = jax.random.split(jax.random.key(1), runs)
    starts = jax.vmap(lambda k: ln.init.gaussian(k, problem, d**2, d**-1.85))(keys)
    if runs == 1:
        single = jax.tree.map(lambda x: x[0], starts)
        call = lambda: ln.simulate(problem, single, ln.optim.SGD(lr), steps=steps, record=ln.record.linear(2)).final  # noqa: E731
    else:
        many = jax.vmap(
            lambda s: ln.simulate(problem, s, ln.optim.SGD(lr), steps=steps, record=ln.record.linear(2)).final
        )
        call = lambda: many(starts)  # noqa: E731
    time = timed(call, repeats=2)
    rate = runs * steps / time.best
    return {
        "d": d,
        "runs": runs,
        "steps": steps,
        "seconds": time.best,
        "compile": time.first - time.best,
        "run_steps_per_second": rate,
        "gflops": rate * 12 * d**3 / 1e9,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    where = parser.parse_args().json
    gpu = jax.default_backend() != "cpu"
    print(f"{jax.devices()[0].device_kind} ({jax.default_backend()}), JAX {jax.__version__}, float64\n")
    checks = exactness()
    rows = [(name, f"{error:.1e}", "ok" if error < TOLERANCE else "INEXACT") for name, error in checks]
    print(table(rows, ("exactness", "relative error", "")) + "\n", flush=True)
    sizes = [(5, 1, 20_000), (50, 1, 5000), (200, 1, 500), (500, 1, 100), (5, 1000, 2000), (50, 64, 200)]
    if gpu:
        sizes += [(5, 100_000, 2000), (50, 4096, 500), (200, 1225, 1000), (1000, 1, 200), (2000, 1, 50)]
    results = []
    for d, runs, steps in sizes:
        results.append(throughput(d, runs, steps))
        print(".", end="", flush=True)
    rows = [
        (
            f"{r['d']}",
            f"{r['runs']:,}",
            f"{r['run_steps_per_second']:,.0f}",
            f"{r['gflops']:,.1f}",
            f"{r['compile']:.1f} s",
        )
        for r in results
    ]
    print("\n" + table(rows, ("d", "runs", "run-steps a second", "GFLOP/s", "compile")))
    if where is not None:
        where.write_text(json.dumps({"checks": dict(checks), "throughput": results}, indent=2))
    sys.exit(any(error >= TOLERANCE for _, error in checks))


if __name__ == "__main__":
    main()
