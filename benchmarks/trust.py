"""What `predict network` says of random networks, against their exact descent.

    python benchmarks/trust.py [--situations 200] [--seed 0]

Depths 1 to 4, bottlenecks, correlated inputs of condition 1 to 1e4, rank-deficient data and fewer samples than inputs,
the loss as a sum, as a mean and with a scale of the outputs, starts Gaussian, balanced and with a zero last layer.
Prints the table of docs/trust.md: the largest stable learning rate against the Hessian where descent ends, every stated
time against the step of exact descent, and what was said to converge against what did.
"""

import argparse
import math
from typing import Any, NamedTuple

import numpy as np
from rich.progress import track

import linnet as ln
from linnet import prediction
from linnet.prediction.theories.network.objective import Objective

HELD = 1 + 1e-9  # with one layer the stated error is what happens, to rounding
LONGEST = 40_000  # steps of descent that are made to check a prediction; what is told to come later is not checked


class Case(NamedTuple):
    """A situation, and what there is to say about it in a word each."""

    situation: prediction.Situation
    problem: ln.problems.Regression
    depth: int
    start: str
    condition: float
    bottleneck: bool


class Outcome(NamedTuple):
    """Of one situation: relative errors of the largest stable lr and of the times in units of what was stated."""

    case: Case
    step: float  # NaN: the end was not reached by descent within the longest run
    times: list[float]
    unknown: int
    refuted: bool
    settles: bool


def drawn(rng: np.random.Generator, index: int) -> Case:
    """A random situation."""
    d_in, d_out, depth = int(rng.integers(1, 9)), int(rng.integers(1, 6)), int(rng.integers(1, 5))
    n = int(rng.integers(1, 40))
    rank = min(n, d_in) if rng.random() < 0.7 else int(rng.integers(1, min(n, d_in) + 1))
    condition = 10 ** rng.uniform(0, 4) if rank > 1 else 1.0
    left, right = (np.linalg.qr(rng.normal(size=(size, rank)))[0] for size in (n, d_in))
    x = left * np.geomspace(1, 1 / condition, rank) @ right.T * 10 ** rng.uniform(-1, 1)
    y = x @ rng.normal(size=(d_in, d_out)) + 0.1 * np.linalg.norm(x) / math.sqrt(n) * rng.normal(size=(n, d_out))
    loss: dict[str, Any] = [{}, {"average": True}, {"output_scale": 10 ** rng.uniform(-0.5, 0.5)}][rng.integers(3)]
    problem = ln.regression(x, y, **loss)
    kind = ["gaussian", "zero last layer", "balanced"][rng.integers(3)] if depth > 1 else "gaussian"
    width = int(rng.integers(1, 4)) if rng.random() < 0.4 else int(rng.integers(4, 40))
    size = float(np.linalg.svd(problem.optimum(min(rank, d_out)).matrix, compute_uv=False)[0])
    alpha = (10 ** rng.uniform(-2, 0.3) * size) ** (1 / depth) / (1 if kind == "balanced" else math.sqrt(width))
    scale = [alpha] * (depth - 1) + [0.0] if kind == "zero last layer" else alpha
    init = {"kind": "balanced" if kind == "balanced" else "gaussian", "scale": scale, "seed": index}
    layers = {"depth": depth} if depth == 1 else {"depth": depth, "width": width}
    lr = {} if rng.random() < 0.7 else {"lr": "edge"}
    asked = prediction.Situation(network=layers, init=init)
    if lr:  # near the largest that is said to be stable
        said = asked.predict(problem)
        most = min(said.largest_stable_lr, said.largest_stable_lr_at_start)
        asked = prediction.Situation(network=layers, init=init, training={"lr": rng.uniform(0.5, 0.98) * most})
    return Case(asked, problem, depth, kind, condition, depth > 1 and width < min(rank, d_out))


def checked(case: Case) -> Outcome:
    """Its prediction beside exact descent of the network itself, in NumPy and at full length."""
    said = case.situation.predict(case.problem)
    objective = said.data["training"].objective
    modes = said.data["analysis"].times.modes
    last = said.learned.step if said.learned.step is not None and math.isfinite(said.learned.step) else LONGEST
    seen, weights, lost = followed(objective, modes, said.lr, int(min(LONGEST, max(2 * last, 3000))))
    settled = seen[-1][-1] <= 1e-3 * seen[0][-1]
    away = seen[:, -1] / max(seen[0][-1], 1e-300)
    moments = [(mode.half_learned, crossed(seen[:, i] / mode.value, 0.5)) for i, mode in enumerate(said.modes)]
    moments.append((said.learned, crossed(-np.log(np.maximum(away, 1e-300)), math.log(100))))
    known = [told for told, _ in moments if told.error is not None and math.isfinite(told.step)]
    times = [error for told, step in moments if (error := weighed(told, step, len(seen) - 1)) is not None]
    step = abs(said.largest_stable_lr * objective.sharpness(weights) / 2 - 1) if settled else math.nan
    return Outcome(case, step, times, len(moments) - len(known), said.converges and lost, said.converges)


def weighed(told: Any, step: float, made: int) -> float | None:
    """A stated time against descent, its error over what was stated; None where it is unknown or told for later."""
    if told.error is None or not math.isfinite(told.step):
        return None
    if math.isnan(step):  # it has not come in the steps that were made: infinitely wrong if it was told to
        return math.inf if told.step * (1 + told.error) < made else None
    if told.step == 0 or step == 0:
        return 0.0 if told.step == step else math.inf
    return abs(told.step - step) / (step * told.error)


def followed(objective: Objective, modes: Any, lr: float, steps: int) -> tuple[np.ndarray, np.ndarray, bool]:
    """Exact descent: u_i^T A v_i and |A - A_end| at every step, the weights in the end, and whether it diverged."""
    weights, seen, goal = objective.start, [], modes.matrix
    for _ in range(steps + 1):
        matrix = objective.matrix(weights)
        away = float(np.linalg.norm(matrix - goal))
        seen.append([*np.einsum("oi,oj,ji->i", modes.left, matrix, modes.right), away])
        if not away < 1e8 * max(seen[0][-1], 1e-300):
            return np.array(seen), weights, True
        if away <= 1e-6 * seen[0][-1]:
            break
        weights = weights - lr * objective.gradient(weights)
    return np.array(seen), weights, False


def crossed(curve: np.ndarray, level: float) -> float:
    """The step at which a curve first rises through a level, by a line between two steps; NaN if it does not."""
    above = np.flatnonzero(curve >= level)
    if not above.size:
        return math.nan
    k = int(above[0])
    return 0.0 if k == 0 else k - 1 + float((level - curve[k - 1]) / (curve[k] - curve[k - 1]))


def table(outcomes: list[Outcome]) -> str:
    """Markdown: a row for each kind of situation, and one for all."""
    kinds: dict[str, list[Outcome]] = {"all": outcomes}
    for depth in range(1, 5):
        kinds[f"depth {depth}"] = [one for one in outcomes if one.case.depth == depth]
    for start in ("gaussian", "zero last layer", "balanced"):
        kinds[f"{start} start"] = [one for one in outcomes if one.case.start == start]
    kinds["bottleneck"] = [one for one in outcomes if one.case.bottleneck]
    kinds["condition above 100"] = [one for one in outcomes if one.case.condition > 100]
    lines = [
        "| situations | | largest stable lr: worst, within 2 % | times stated, unknown | within their error | "
        "worst, in errors | said to converge, refuted |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, some in kinds.items():
        steps = [one.step for one in some if not math.isnan(one.step)]
        times = [time for one in some for time in one.times]
        worst = f"{100 * max(steps, default=0):.2g} %, {sum(x <= 0.02 for x in steps)} of {len(steps)}"
        held = f"{100 * np.mean(np.array(times) <= HELD):.1f} %" if times else "–"
        said = f"{sum(one.converges for one in some)}, {sum(one.refuted for one in some)}"
        stated = f"{len(times)}, {sum(one.unknown for one in some)}"
        lines.append(f"| {name} | {len(some)} | {worst} | {stated} | {held} | {max(times, default=0):.2g} | {said} |")
    return "\n".join(lines)


def main() -> None:
    """Draws, predicts, descends and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--situations", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    outcomes = []
    for index in track(range(asked.situations), description="situations"):
        rng = np.random.default_rng([asked.seed, index])
        outcomes.append(checked(drawn(rng, index)))
        one = outcomes[-1]
        if one.refuted or one.step > 0.02 or max(one.times, default=0) > HELD:
            print(f"{index}: lr {one.step:.2g}, times {one.times}, refuted {one.refuted}; {one.case.situation!r}")
    print(table(outcomes))


if __name__ == "__main__":
    main()
