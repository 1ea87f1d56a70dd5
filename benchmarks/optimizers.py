"""What momentum and mini-batches cost a step, and PyTorch beside them, as ratios measured in one run.

    pip install -c constraints.txt '.[bench]'
    python benchmarks/optimizers.py [--quick]

Regression with n samples, d inputs and outputs, two layers, double precision. Linnet trains the compressed network;
PyTorch has all neurons, autograd, its own optimizer and batches from one permutation a pass, the whole on one device.
"""

import argparse
import time
from collections.abc import Iterator

import jax
import numpy as np
import torch
from timing import table, timed

import linnet as ln

BATCH = 32
SIZES = ((2, 50, 256), (5, 50, 256), (10, 100, 512), (50, 2500, 2048), (200, 40_000, 2048))


def passes(n: int) -> Iterator[torch.Tensor]:
    """Batches of one pass after the other, as a shuffling loader that leaves out the rest."""
    while True:
        order = torch.randperm(n)
        yield from order[: n - n % BATCH].split(BATCH)


def in_torch(x: np.ndarray, y: np.ndarray, width: int, steps: int, *, batches: bool) -> float:
    """Seconds a step of PyTorch's SGD with momentum."""
    inputs, labels = torch.tensor(x), torch.tensor(y)
    d_in, d_out = x.shape[1], y.shape[1]
    first = torch.nn.Parameter(torch.randn(width, d_in, dtype=torch.float64) / width)
    second = torch.nn.Parameter(torch.randn(d_out, width, dtype=torch.float64) / width)
    optimizer = torch.optim.SGD([first, second], 1e-3, momentum=0.9)
    rows = passes(len(x))

    def descend(count: int) -> None:
        for _ in range(count):
            chosen = next(rows) if batches else slice(None)
            out = inputs[chosen] @ first.T @ second.T
            loss = 0.5 * ((out - labels[chosen]) ** 2).sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    descend(3)
    began = time.perf_counter()
    descend(steps)
    return (time.perf_counter() - began) / steps


def row(d: int, width: int, n: int, ours: int, theirs: int) -> tuple[str, ...]:
    rng, key = np.random.default_rng(0), jax.random.key(0)
    x, y = rng.normal(size=(n, d)), rng.normal(size=(n, d))
    problem = ln.regression(x, y, average=True, samples=True)
    start = ln.init.gaussian(key, problem, width, 1 / width**2)

    def seconds(optimizer: ln.optim.Dynamics) -> float:
        asked = {"steps": ours, "record": ln.record.linear(2), "key": key if optimizer.random else None}
        return timed(lambda: ln.simulate(problem, start, optimizer, **asked).final, repeats=5).best / ours

    batches = ln.optim.MiniBatch(BATCH)
    plain = seconds(ln.optim.SGD(1e-3))
    heavy, nesterov = seconds(ln.optim.SGD(1e-3)), seconds(ln.optim.SGD(1e-3, nesterov=True))
    small = seconds(ln.optim.SGD(1e-3, batches=batches))
    there = in_torch(x, y, width, theirs, batches=True)
    return (
        f"d = {d}, width {width:,}, n = {n:,}",
        f"{plain * 1e6:.2f} us",
        f"{heavy / plain:.2f}",
        f"{nesterov / plain:.2f}",
        f"{small * 1e6:.2f} us",
        f"{there * 1e6:.0f} us",
        f"**{there / small:.1f}x**",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the three small sizes only")
    given = parser.parse_args()
    rows = []
    for d, width, n in SIZES[: 3 if given.quick else None]:
        ours, theirs = {2: (20_000, 500), 5: (20_000, 500), 10: (10_000, 500), 50: (1000, 200)}.get(d, (60, 20))
        rows.append(row(d, width, n, ours, theirs))
    names = ("network", "descent", "momentum / descent", "Nesterov / descent")
    print(table(rows, (*names, f"momentum, batches of {BATCH}", "PyTorch's", "ratio")))


if __name__ == "__main__":
    main()
