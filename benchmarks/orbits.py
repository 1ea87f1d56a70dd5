"""A bifurcation diagram of the balanced map, L = 3: learning rates in one compiled call, against plain loops.

    pip install -c constraints.txt '.[bench]'
    PYTHONPATH=src python benchmarks/orbits.py [--parameters 4000] [--steps 20000] [--keep 500]

NumPy and PyTorch step all parameters at once in a Python loop; all three are in double precision and watch for
divergence at every step. The points are compared where the optimizer is not chaotic.
"""

import argparse

import numpy as np
import torch
from timing import table, timed

from linnet import maps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--keep", type=int, default=500)
    given = parser.parse_args()
    kappas = np.linspace(1.9, 3.66, given.parameters)
    skip, limit = given.steps - given.keep, 1e3
    step = maps.balanced(3)

    def ours() -> maps.Orbits:
        return maps.orbits(step, 0.9, kappas, skip=skip, keep=given.keep, limit=limit)

    def numpy_loop() -> np.ndarray:
        x, seen = np.full(given.parameters, 0.9), np.empty((given.keep, given.parameters))
        for count in range(given.steps):
            if count >= skip:
                seen[count - skip] = x
            new = x + kappas / 3 * (1 - x * x * x) * x * x
            x = np.where(np.abs(new) <= limit, new, x)
        return seen.T

    def torch_loop() -> np.ndarray:
        k = torch.tensor(kappas)
        x, seen = torch.full_like(k, 0.9), torch.empty((given.keep, given.parameters), dtype=torch.float64)
        with torch.no_grad():
            for count in range(given.steps):
                if count >= skip:
                    seen[count - skip] = x
                new = x + k / 3 * (1 - x * x * x) * x * x
                x = torch.where(new.abs() <= limit, new, x)
        return seen.T.numpy()

    right = np.asarray(ours().values)
    tame = kappas < 2.6
    rows = []
    here = timed(ours)
    for name, call in (("linnet", ours), ("NumPy loop", numpy_loop), ("PyTorch loop", torch_loop)):
        seconds = here if name == "linnet" else timed(call, repeats=1)
        points = right if name == "linnet" else np.asarray(call())
        gap = float(np.max(np.abs(points - right)[tame & (np.abs(kappas - 2) > 1e-2)]))
        rows.append((name, f"{seconds.best:.2f}", f"{seconds.best / here.best:.0f}", f"{gap:.0e}"))
    print(f"{given.parameters} learning rates, {given.steps} iterations, {given.keep} points recorded of each.\n")
    print(table(rows, ("", "seconds", "ratio", "largest difference")))


if __name__ == "__main__":
    main()
