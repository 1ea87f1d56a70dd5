"""What the flows of averages cost beside descent, as ratios measured in one run.

    python benchmarks/flows.py [--steps 1000] [--lr 0.1] [--many 64]

The network of the public example of central flows: 128 samples with random labels, 8-16-16-1 with swish, mean square
error, double precision. Compilation apart. The last column is the time of `--many` learning rates in one call by
`jax.vmap`, up to `--lr`, over that of one.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from timing import table, timed

import linnet as ln


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--many", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=(128, 8)), rng.normal(size=(128, 1))
    problem = ln.problems.supervised(labels)
    start = ln.networks.mlp(0, inputs, (16, 16, 1), activation=jax.nn.swish, bias=True)
    rates = jnp.linspace(given.lr / 4, given.lr, given.many)
    record = ln.record.linear(2)

    def train(make, lr):
        return ln.simulate(problem, start, make(lr), steps=given.steps, record=record)

    rows, plain = [], 0.0
    makers = {"descent": ln.optim.SGD, "rod": ln.optim.RodFlow, "central flow": ln.optim.CentralFlow}
    for name, make in makers.items():
        one = timed(lambda make=make: train(make, given.lr).final, given.repeats)
        batch = jax.jit(jax.vmap(lambda lr, make=make: train(make, lr).final.trained()))
        many = timed(lambda batch=batch: batch(rates), 1)
        plain = plain or one.best
        numbers = (one.best / plain, many.best / one.best)
        rows.append(
            (name, f"{one.first:.1f} s", f"{one.best / given.steps * 1e6:.0f} us", *(f"{x:.1f}" for x in numbers))
        )
    observed = ["oscillation", "critical_directions", "sharpness"]
    edge = ln.simulate(problem, start, ln.optim.CentralFlow(given.lr), steps=given.steps, observe=observed)
    counts = np.bincount(np.asarray(edge["critical_directions"]))
    print(f"Records with 0, 1, ... critical directions: {', '.join(str(count) for count in counts)}.\n")
    print(table(rows, ("", "first call", "a step", "over descent", f"{given.many} learning rates over one")))


if __name__ == "__main__":
    main()
