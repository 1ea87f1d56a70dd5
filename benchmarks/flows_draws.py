"""How far the flows of averages are from descent at the edge, over ten draws of two networks.

    python benchmarks/flows_draws.py [--seeds 10] [--cases tanh swish]

- tanh: 100 samples N(0, 4/j^2) in 20 coordinates, three classes by linear and quadratic scores, 20-32-3, half mean
  squares, lr 0.25, 1600 steps.
- swish: 128 samples with random labels, 8-16-16-1, mean square error, lr 0.1, 1000 steps.

Errors are those of the mean loss over windows of 200 steps, averaged over windows, and of the mean loss of the whole
run; distances are between mean weights of the last 200 steps, over that of gradient flow. In the last row of each table
descent itself begins 1e-6 away.
"""

import argparse
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from timing import table

import linnet as ln
from linnet.data import scored_classes

WINDOW = 200


def case(name: str, seed: int) -> tuple[Any, Any, float, int]:
    rng = np.random.default_rng(seed)
    if name == "tanh":
        inputs, labels = scored_classes(rng, 100, 20, 3)
        problem = ln.problems.supervised(labels, "half squares", average="samples")
        return problem, ln.networks.mlp(seed, inputs, (32, 3), activation="tanh", bias=True), 0.25, 1600
    inputs, labels = rng.normal(size=(128, 8)), rng.normal(size=(128, 1))
    network = ln.networks.mlp(seed, inputs, (16, 16, 1), activation=jax.nn.swish, bias=True)
    return ln.problems.supervised(labels), network, 0.1, 1000


def weights(state: Any, problem: Any) -> Any:
    return ravel_pytree(state.trained())[0]


def beside(state: Any) -> Any:
    flat, back = ravel_pytree(state.trained())
    direction = np.random.default_rng(5).normal(size=flat.size)
    return eqx.combine(back(flat + 1e-6 * direction / np.linalg.norm(direction)), state)


def measured(name: str, seed: int) -> dict[str, np.ndarray]:
    """Of every run: error over windows, error of the whole mean, and distance, in units of gradient flow's."""
    problem, state, lr, steps = case(name, seed)
    by_step: dict[str, Any] = {"steps": steps, "record": ln.record.every(1)}
    by_time: dict[str, Any] = {"time": lr * steps, "record": ln.record.linear(steps + 1)}
    runs: dict[str, tuple[Any, Any, str, dict[str, Any]]] = {
        "descent": (state, ln.optim.SGD(lr), "loss", by_step),
        "gradient flow": (state, ln.optim.GradientFlow(1e-6), "loss", by_time),
        "central": (state, ln.optim.CentralFlow(lr), "predicted_loss", by_step),
        "rod": (state, ln.optim.RodFlow(lr), "predicted_loss", by_step),
        "descent, 1e-6 away": (beside(state), ln.optim.SGD(lr), "loss", by_step),
    }
    found = {}
    for kind, (start, dynamics, loss, horizon) in runs.items():
        run = ln.simulate(problem, start, dynamics, observe=[loss, weights], **horizon)
        means = np.asarray(run[loss])[1:].reshape(-1, WINDOW).mean(axis=1)
        found[kind] = (means, np.asarray(run["weights"])[-WINDOW:].mean(axis=0))
    means, center = found.pop("descent")
    far = np.linalg.norm(found["gradient flow"][1] - center)
    return {
        kind: np.array(
            [
                np.mean(np.abs(other / means - 1)),
                abs(other.mean() / means.mean() - 1),
                np.linalg.norm(end - center) / far,
            ]
        )
        for kind, (other, end) in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--cases", nargs="+", default=["tanh", "swish"], choices=["tanh", "swish"])
    given = parser.parse_args()
    for name in given.cases:
        draws = [measured(name, seed) for seed in range(given.seeds)]
        rows = []
        for kind in draws[0]:
            values = np.array([draw[kind] for draw in draws])
            cells = []
            for column, scale, unit in ((0, 100, " %"), (1, 100, " %"), (2, 1, "")):
                one = scale * values[:, column]
                cells += [f"{np.median(one):.2g}{unit}, {one.max():.2g}{unit}"]
            above = int(np.sum(values[:, 0] > 0.06))
            rows.append((kind, cells[0], str(above), cells[1], cells[2]))
        header = (
            "median, worst",
            "loss over windows of 200",
            "above 6 %",
            "loss of the whole run",
            "distance at the end",
        )
        print(f"{name}, {given.seeds} draws\n\n{table(rows, header)}\n", flush=True)


if __name__ == "__main__":
    main()
