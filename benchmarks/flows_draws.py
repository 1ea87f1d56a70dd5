"""How far the flows of averages are from descent at the edge, over ten draws of three settings.

    python benchmarks/flows_draws.py [--seeds 10] [--cases tanh forms swish]

- tanh: 100 samples N(0, 4/j^2) in 20 coordinates, three classes by linear scores and scores of squared coordinates,
  20-32-3, half mean squares, lr 0.25, 1600 steps.
- forms: the same, the classes by linear scores and quadratic forms, which also contain the products of coordinates.
- swish: 128 samples with random labels, 8-16-16-1, mean square error, lr 0.1, 1000 steps.

Errors are those of the mean loss over windows of 50 and of 200 steps, averaged over windows, and of the mean loss of
the whole run; distances are between mean weights of the last 200 steps, over that of gradient flow. In the last row of
each table descent itself begins 1e-6 away.
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

WINDOWS = 50, 200
LAST = 200
CASES = "tanh", "forms", "swish"


def case(name: str, seed: int) -> tuple[Any, Any, float, int]:
    rng = np.random.default_rng(seed)
    if name != "swish":
        inputs, labels = scored_classes(rng, 100, 20, 3) if name == "tanh" else quadratic_classes(rng, 100, 20, 3)
        problem = ln.problems.supervised(labels, "half squares", average="samples")
        return problem, ln.networks.mlp(seed, inputs, (32, 3), activation="tanh", bias=True), 0.25, 1600
    inputs, labels = rng.normal(size=(128, 8)), rng.normal(size=(128, 1))
    network = ln.networks.mlp(seed, inputs, (16, 16, 1), activation=jax.nn.swish, bias=True)
    return ln.problems.supervised(labels), network, 0.1, 1000


def quadratic_classes(rng: np.random.Generator, n: int, d: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    inputs = 2 * rng.normal(size=(n, d)) / np.arange(1, d + 1)
    linear, forms = rng.normal(size=(d, classes)), rng.normal(size=(classes, d, d))
    scores = inputs @ linear + np.einsum("ni,cij,nj->nc", inputs, forms, inputs)
    return inputs, np.eye(classes)[np.argmax(scores, axis=1)]


def weights(state: Any, problem: Any) -> Any:
    return ravel_pytree(state.trained())[0]


def beside(state: Any) -> Any:
    flat, back = ravel_pytree(state.trained())
    direction = np.random.default_rng(5).normal(size=flat.size)
    return eqx.combine(back(flat + 1e-6 * direction / np.linalg.norm(direction)), state)


def measured(name: str, seed: int) -> tuple[dict[str, np.ndarray], float]:
    """Of every run: errors over windows, error of the whole mean, and distance, in units of gradient flow's.

    And the largest |S lr/2 - 1| along the central flow while it predicts an oscillation.
    """
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
    off = 0.0
    for kind, (start, dynamics, loss, horizon) in runs.items():
        observed: dict[str, Any] = {loss: loss, "weights": weights}
        if kind == "central":
            observed |= {"top": ln.observe.only(ln.observe.sharpness, ln.record.every(10)), "spread": "oscillation"}
        run = ln.simulate(problem, start, dynamics, observe=observed, **horizon)
        if kind == "central":
            top = np.asarray(run["top"])[np.asarray(run["spread"]) > 0] * lr / 2
            off = float(np.nanmax(np.abs(top - 1)))
        found[kind] = (np.asarray(run[loss])[1:], np.asarray(run["weights"])[-LAST:].mean(axis=0))
    losses, center = found.pop("descent")
    far = np.linalg.norm(found["gradient flow"][1] - center)
    numbers = {}
    for kind, (other, end) in found.items():
        errors = [np.mean(np.abs(means(other, size) / means(losses, size) - 1)) for size in (*WINDOWS, losses.size)]
        numbers[kind] = np.array([*errors, np.linalg.norm(end - center) / far])
    return numbers, off


def means(losses: np.ndarray, size: int) -> np.ndarray:
    return losses.reshape(-1, size).mean(axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    given = parser.parse_args()
    for name in given.cases:
        draws, off = zip(*(measured(name, seed) for seed in range(given.seeds)), strict=True)
        rows = []
        for kind in draws[0]:
            values = np.array([draw[kind] for draw in draws])
            cells = []
            for column, scale, unit in ((0, 100, " %"), (1, 100, " %"), (2, 100, " %"), (3, 1, "")):
                one = scale * values[:, column]
                cells += [f"{np.median(one):.2g}{unit}, {one.max():.2g}{unit}"]
            rows.append((kind, *cells))
        header = ("median, worst", *(f"windows of {size}" for size in WINDOWS), "whole run", "distance at the end")
        print(f"{name}, {given.seeds} draws\n\n{table(rows, header)}\n")
        print(f"Central flow: sharpness within {max(off):.1e} of 2/lr while it oscillates.\n", flush=True)


if __name__ == "__main__":
    main()
