"""The gradient flow from I_gamma at 1000 inputs and 10,000 neurons, against what one would write otherwise.

    pip install -c constraints.txt '.[bench]'
    python benchmarks/flow.py

From I_gamma only the span of the samples moves, so 20 samples make it a network of 20 inputs and 20 neurons, whatever
the inputs and the width (`Regression.project`). The others carry all ten million weights: PyTorch by descent at a
quarter of the largest stable learning rate, SciPy by the same kind of Runge-Kutta method with the same tolerance.
"""

import argparse
import time

import jax
import numpy as np
import torch
from scipy.integrate import solve_ivp
from timing import table, timed

import linnet as ln
from linnet.theory import spectral


def main() -> None:
    """Runs the three and prints a table with their distances."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--width", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=20)
    given = parser.parse_args()
    d, w, n, outputs, gamma, rtol = given.inputs, given.width, given.samples, 3, 1e-2, 1e-8
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(n, d)) / np.sqrt(n), rng.normal(size=(n, outputs)) / np.sqrt(n)
    problem = ln.regression(x, y)
    least = np.linalg.svd(x, compute_uv=False)[-1]
    horizon = float(spectral.hitting_time(0.999, np.linalg.svd(problem.target, compute_uv=False), gamma, least).max())

    def ours() -> np.ndarray:
        small, basis = ln.regression(x, y).project()
        run = ln.simulate(
            small,
            ln.init.i_gamma(small, gamma),
            ln.optim.GradientFlow(rtol=rtol),
            time=horizon,
            record=ln.record.linear(2),
        )
        return np.asarray(run.final.matrix) @ np.asarray(basis)

    here = timed(ours)
    right = ours()
    size = np.linalg.norm(right)

    frame = np.asarray(ln.init.i_gamma(problem, gamma, width=w, key=jax.random.key(0)).layers[0])
    lr = spectral.largest_lr(x, problem.target, gamma) / 4
    steps = int(np.ceil(horizon / lr))
    inputs, labels = torch.tensor(x), torch.tensor(y)
    w1, w2 = torch.tensor(frame), torch.zeros((outputs, w), dtype=torch.float64)
    began = time.perf_counter()
    for _ in range(steps):
        force = (labels - inputs @ (w2 @ w1).T).T @ inputs
        w1, w2 = w1 + horizon / steps * (w2.T @ force), w2 + horizon / steps * (force @ w1.T)
    descent = time.perf_counter() - began
    gap_descent = np.linalg.norm((w2 @ w1).numpy() - right) / size

    def velocity(_: float, weights: np.ndarray) -> np.ndarray:
        first, second = weights[: w * d].reshape(w, d), weights[w * d :].reshape(outputs, w)
        force = (y - x @ (second @ first).T).T @ x
        return np.concatenate([(second.T @ force).ravel(), (force @ first.T).ravel()])

    start = np.concatenate([frame.ravel(), np.zeros(outputs * w)])
    began = time.perf_counter()
    end = solve_ivp(velocity, (0, horizon), start, "DOP853", t_eval=[horizon], rtol=rtol, atol=rtol * gamma)
    solved = time.perf_counter() - began
    final = end.y[:, -1]
    gap_solved = np.linalg.norm(final[w * d :].reshape(outputs, w) @ final[: w * d].reshape(w, d) - right) / size

    print(f"{d} inputs, {w:,} neurons, {n} samples, {outputs} outputs, gamma = {gamma:g}, to t = {horizon:.3g}\n")
    rows = [
        (
            "Linnet, in the span of the samples",
            f"{here.best * 1e3:.1f} ms",
            "",
            f"compile {here.first - here.best:.1f} s",
        ),
        (
            f"PyTorch, {steps} steps of descent",
            f"{descent:.1f} s",
            f"**{descent / here.best:,.0f}x**",
            f"{gap_descent:.1e}",
        ),
        (f"SciPy, {end.nfev} velocities", f"{solved:.1f} s", f"**{solved / here.best:,.0f}x**", f"{gap_solved:.1e}"),
    ]
    print(table(rows, ("what", "time", "ratio", "relative distance to Linnet's A")))


if __name__ == "__main__":
    main()
