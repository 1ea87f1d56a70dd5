"""The paper's synthetic experiment (feature learning): PyTorch at full size against reduced coordinates.

    pip install -c constraints.txt '.[bench]'
    python benchmarks/features.py [--d 10000] [--width 1024] [--samples 10] [--steps 60] [--draws 400]

Both make the same run from the same data and the same weights and record the same at every step: the loss, the slope of
rho over v, and the relative spectral distance of the tangent kernel from the target-aligned one. What is recorded must
agree, and the weights at the end, before a time is printed. Ours is timed in three ways: the run alone; with the
reduction from full weights before it and every neuron recovered after it; and with data and start drawn from their
exact law, in a batch. Both are warm, the best of several; compilation is timed apart.
"""

import argparse
import math
import platform
import time

import jax
import jax.numpy as jnp
import numpy as np
import torch
from timing import table, timed

import linnet as ln

OBSERVED = ["loss", "slope", "target_distance"]


def with_torch(x: np.ndarray, y: np.ndarray, first: np.ndarray, v: np.ndarray, lr: float, steps: int) -> tuple:
    """Gradient descent as one would write it, with automatic differentiation; recordings and the final weights."""
    n, w = x.shape[0], v.shape[0]
    inputs, labels = torch.tensor(x), torch.tensor(y)
    layer, readout = (torch.tensor(a, requires_grad=True) for a in (first, v))
    gram = inputs @ inputs.T
    feature, pulled = inputs.T @ labels, gram @ labels
    gamma = labels @ pulled
    aligned = gram + torch.outer(pulled, pulled) / gamma
    before = torch.tensor(first) @ feature
    records = []
    for step in range(steps + 1):
        hidden = inputs @ layer.T
        loss = torch.sum((hidden @ readout / w - labels) ** 2) / (2 * n)
        with torch.no_grad():
            square = readout @ readout
            slope = (layer @ feature - before) @ readout / square / torch.sqrt(gamma)
            kernel = (square * gram + hidden @ hidden.T) / w**2
            off = torch.linalg.matrix_norm(kernel - square / w**2 * aligned, 2) / torch.linalg.matrix_norm(kernel, 2)
            records.append((float(loss), float(slope), float(off)))
        if step < steps:
            down = torch.autograd.grad(loss, (layer, readout))
            with torch.no_grad():
                layer -= lr * down[0]
                readout -= lr * down[1]
    return np.array(records), layer.detach().numpy(), readout.detach().numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("d", 10_000), ("width", 1024), ("samples", 10), ("steps", 60), ("draws", 400)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    n, d, w, steps, lr, sigma0, v0, noise2 = given.samples, given.d, given.width, given.steps, 0.1, 0.01, 0.001, 0.01
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d))
    y = x @ rng.normal(size=d) + np.sqrt(noise2) * rng.normal(size=n)
    first, v = sigma0 * rng.normal(size=(w, d)), v0 * rng.choice([-1.0, 1.0], size=w)

    theirs, last, readout = with_torch(x, y, first, v, lr, steps)  # warm
    there, began = math.inf, time.perf_counter()
    while time.perf_counter() - began < 10 or math.isinf(there):
        now = time.perf_counter()
        with_torch(x, y, first, v, lr, steps)
        there = min(there, time.perf_counter() - now)

    def run(problem: ln.problems.Regression, start: ln.Weights) -> ln.Trajectory:
        return ln.simulate(problem, start, ln.optim.SGD(lr), steps=steps, observe=OBSERVED)

    full = ln.Weights((first, v[None]))

    def whole() -> ln.Weights:
        projection = ln.problems.mean_field_regression(x, y, width=w).project()
        seen = full.project(projection.basis)
        return run(projection.problem, seen.compress()).final.expand(seen).lift(projection.basis, full).layers

    projection = ln.problems.mean_field_regression(x, y, width=w).project()
    seen = full.project(projection.basis)
    small = seen.compress()
    found = run(projection.problem, small)
    ours = np.stack([np.asarray(found[name]) for name in OBSERVED], axis=1)
    end = found.final.expand(seen).lift(projection.basis, full)
    gaps = {
        "loss": np.max(np.abs(ours - theirs)[:, 0]) / theirs[0, 0],
        "slope": np.max(np.abs(ours - theirs)[:, 1]),
        "kernel distance": np.max(np.abs(ours - theirs)[:, 2]),
        "W": np.linalg.norm(end.layers[0] - last) / np.linalg.norm(last),
        "v": np.linalg.norm(end.layers[1][0] - readout) / np.linalg.norm(readout),
    }
    assert max(gaps.values()) < 1e-10, gaps

    @jax.jit
    @jax.vmap
    def draws(key: jax.Array) -> dict[str, jax.Array]:
        inputs, labels = ln.problems.gaussian_samples(key, n, d, noise2=noise2)
        problem = ln.problems.mean_field_regression(inputs, labels, width=w)
        return run(problem, ln.init.readout(key, problem, w, sigma0=sigma0, v0=v0)).values

    keys = jax.random.split(jax.random.key(0), given.draws)
    alone = timed(lambda: run(projection.problem, small).values, repeats=20)
    recovered = timed(whole, repeats=5)
    batch = timed(lambda: draws(keys))
    rows = []
    for name, seconds, compiled in (
        ("the run alone", alone.best, None),
        ("reduced before, every neuron after", recovered.best, recovered.first - recovered.best),
        (f"a whole draw, in a batch of {given.draws}", batch.best / given.draws, batch.first - batch.best),
    ):
        extra = "" if compiled is None else f"{compiled:.1f} s"
        rows.append((name, f"{1e3 * seconds:.3g} ms", f"{1e3 * there:,.0f} ms", f"**{there / seconds:,.0f}x**", extra))
    print(f"n = {n}, d = {d:,}, width {w:,}, {steps} steps; {platform.processor() or platform.machine()}, float64,")
    print(f"JAX {jax.__version__}, PyTorch {torch.__version__} on {torch.get_num_threads()} threads.")
    print("Largest differences: " + ", ".join(f"{name} {gap:.1e}" for name, gap in gaps.items()) + ".\n")
    print(table(rows, ("feature learning", "Linnet", "PyTorch", "ratio", "compilation")))
    assert jnp.all(jnp.isfinite(draws(keys)["loss"]))


if __name__ == "__main__":
    main()
