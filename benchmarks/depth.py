"""The whole flow of a balanced network of rank one in closed form: the compute cost of depth.

    PYTHONPATH=src python benchmarks/depth.py [--width 4] [--times 20] [--most 1000000]

Starts that agree with the target, that hardly do, and that point against it, from 1e-3 of the target. The times end one
unit after the flow has reached nine tenths of the target, or at 1 where that takes longer than the largest number.
Compilation is timed apart: one program serves all depths.
"""

import argparse
import platform

import numpy as np
from timing import table, timed

from linnet.theory import convergence
from linnet.theory.convergence import Coordinates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--most", type=int, default=10**6)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    z = np.linspace(1.0, 0.1, given.width)
    a, b = rng.normal(size=(2, given.width))
    a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
    pull = z * a
    b = b * np.sign(pull @ b)
    hardly = b - (pull @ b - 1e-3) / (pull @ pull) * pull
    starts = {"agrees": b, "hardly": hardly / np.linalg.norm(hardly), "against": -b}
    depths = [depth for depth in (2, 10, 10**2, 10**3, 10**4, 10**5, 10**6) if depth <= given.most]
    rows, compiled = [], 0.0
    for depth in depths:
        row = [f"{depth:,}"]
        for other in starts.values():
            start = Coordinates(np.asarray(1e-3), a, other, z)
            end = float(convergence.passage_time(0.9, start, depth))
            times = np.linspace(0, end + 1 if np.isfinite(end) else 1.0, given.times)

            def run(times: np.ndarray = times, start: Coordinates = start, depth: int = depth) -> convergence.Flow:
                return convergence.modes(times, start, depth)

            seconds = timed(run, repeats=5)
            compiled = max(compiled, seconds.first)
            row.append(f"{1e3 * seconds.best:.1f}")
        rows.append(tuple(row))
    print(f"{given.times} times of a flow of width {given.width}, in ms ({platform.machine()}).\n")
    print(table(rows, ("depth", *starts)))
    print(f"\nThe first call, with compilation: {compiled:.1f} s.")


if __name__ == "__main__":
    main()
