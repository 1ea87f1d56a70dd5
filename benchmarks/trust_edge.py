"""What `prediction.edge` says of random linear networks, against exact training by a program of its own.

    python benchmarks/trust_edge.py [--situations 50] [--seed 0]

Samples of any rank and condition with three normalizations of the loss; depths 2 to 4, initializations Gaussian,
balanced, and with a zero last layer; plain descent with 1 to 1.4 times the largest learning rate that is stable where
gradient flow ends. Training is the loop in NumPy of `trust.py`, for as many steps as the prediction took, and the
averages are those over its last 200 steps.

Prints a line for each situation, and the tables of docs/trust.md.
"""

import argparse
import math
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from trust import Samples, _samples, trained

from linnet import prediction

WINDOW = 200
PLAIN = {"momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False, "decoupled": False}
NAMES = ("mean_loss", "amplitude", "mean_predictor_norm", "distance")
ROUNDING = 1e-6  # of the initial value: errors of smaller values are compared with that


class Answer(NamedTuple):
    """Why nothing is predicted, or where descent settles with the errors of the prediction by name."""

    unmet: str
    settles_at: str
    errors: dict[str, float]


def drawn(rng: np.random.Generator, index: int) -> tuple[Samples, tuple[Any, Any, Any], str]:
    """A random triple beyond the edge, the samples of its problem, and a name."""
    while True:
        samples, condition = _samples(rng)
        top = float(np.linalg.svd(np.linalg.pinv(samples.stretch * samples.x) @ samples.y, compute_uv=False)[0])
        depth, width = int(rng.integers(2, 5)), int(rng.integers(2, 20))
        kind = str(rng.choice(["gaussian", "zero last layer", "balanced"]))
        size = (10 ** rng.uniform(-2, 0) * top) ** (1 / depth) / (1 if kind == "balanced" else math.sqrt(width))
        init: dict[str, Any] = {
            "gaussian": {"scale": size},
            "zero last layer": {"scale": [size] * (depth - 1) + [0.0]},
            "balanced": {"kind": "balanced", "scale": size},
        }[kind]
        tables: dict[str, Any] = {"network": {"depth": depth, "width": width}, "init": init | {"seed": index}}
        said = prediction.Situation(**tables).predict(samples.problem)
        if math.isfinite(said.largest_stable_lr):
            break
    factor = float(rng.uniform(1.0, 1.4))
    situation = prediction.Situation(**tables, training={"lr": factor * said.largest_stable_lr})
    name = f"depth {depth}, {kind}, lr {factor:.3f} of the largest stable one, condition {condition:.2g}"
    return samples, situation.triple(samples.problem), name


def answer(samples: Samples, triple: tuple[Any, Any, Any]) -> Answer:
    """The prediction, and training beside it."""
    try:
        said = prediction.edge(*triple)
    except prediction.NotApplicable as error:
        return Answer(error.assumption.name.split(" (")[0], "", {})
    start = [np.asarray(w) for w in triple[1].layers]
    run = trained(start, samples, said.lr, PLAIN, said.steps - WINDOW)
    if run.diverged:
        return Answer("", said.settles_at, dict.fromkeys(NAMES, math.inf))
    late, layers = [], run.layers
    for _ in range(WINDOW):
        layers = trained(layers, samples, said.lr, PLAIN, 0).layers
        late.append(layers)
    matrices = [np.linalg.multi_dot(some[::-1]) for some in late]
    weights = np.array([np.concatenate([w.ravel() for w in some]) for some in late])
    first = np.concatenate([w.ravel() for w in start])
    losses = [_loss(samples, matrix) for matrix in matrices]
    measured = {
        "mean_loss": float(np.mean(losses)),
        "amplitude": float(np.sqrt(np.sum(np.var(weights, axis=0)))),
        "mean_predictor_norm": float(np.linalg.norm(np.mean(matrices, axis=0))),
        "distance": float(np.linalg.norm(np.mean(weights, axis=0) - first)),
    }
    scales = dict.fromkeys(NAMES, float(np.linalg.norm(first)))
    scales |= {"mean_loss": _loss(samples, np.linalg.multi_dot(start[::-1])), "mean_predictor_norm": 0.0}
    errors = {
        name: abs(said[name].value - value) / max(value, ROUNDING * scales[name]) for name, value in measured.items()
    }
    return Answer("", said.settles_at, errors)


def _loss(samples: Samples, matrix: np.ndarray) -> float:
    return float(samples.scale / 2 * np.sum((samples.stretch * samples.x @ matrix.T - samples.y) ** 2))


def table(found: list[Answer]) -> str:
    """Markdown: errors by where descent settles, and what was not predicted."""
    titles = ("mean loss", "amplitude", "norm of the mean predictor", "distance of the mean weights")
    lines = ["| relative error: median, 90 %, worst | " + " | ".join(titles) + " |", "|---" * (len(NAMES) + 1) + "|"]
    for kind in ("2-cycle", "minimum"):
        some = [one for one in found if one.settles_at == kind]
        if some:
            cells = []
            for name in NAMES:
                errors = [one.errors[name] for one in some]
                cells.append(", ".join(f"{np.quantile(errors, q, method='higher'):.1g}" for q in (0.5, 0.9, 1.0)))
            lines.append(
                f"| {len(some)} that settle {'on' if kind == '2-cycle' else 'at'} a {kind} | "
                + " | ".join(cells)
                + " |"
            )
    lines += ["", "| nothing is predicted: it needs | situations |", "|---|---|"]
    lines += [f"| {name} | {count} |" for name, count in Counter(one.unmet for one in found if one.unmet).most_common()]
    return "\n".join(lines)


def main() -> None:
    """Draws, predicts, trains, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--situations", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    found = []
    for index in range(asked.situations):
        samples, triple, name = drawn(np.random.default_rng([asked.seed, index]), index)
        one = answer(samples, triple)
        shown = one.unmet or f"{one.settles_at}: " + ", ".join(
            f"{key} {value:.1g}" for key, value in one.errors.items()
        )
        print(f"{index}: {name}: {shown}", flush=True)
        found.append(one)
    print(table(found))


if __name__ == "__main__":
    main()
