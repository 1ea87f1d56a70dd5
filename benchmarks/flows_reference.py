"""The central flow against a plain implementation of it, and both against descent, over windows of 100 steps.

    python benchmarks/flows_reference.py [--seed 2] [--steps 600] [--substeps 4]

The swish network of `flows_draws.py` at lr 0.1, of whose ten draws seed 2 has the largest errors. The reference forms
the Hessian, takes its highest eigenpair from LAPACK, and makes Euler steps of dc/dt = -lr (grad C + X T/2) with
X = max(0, -A/B): it is for one critical direction, and stops where there are two. It takes 0.2 s a step.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from flows_draws import case, means
from jax.flatten_util import ravel_pytree
from timing import table

import linnet as ln
from linnet.optim.averaged import cost


def reference(problem, state, lr: float, steps: int, substeps: int) -> np.ndarray:
    """The predicted mean loss at each step."""
    weights, back = ravel_pytree(state.trained())
    value = jax.jit(lambda w: cost(problem, state, back(w)))
    gradient, hessian = jax.jit(jax.grad(value)), jax.jit(jax.hessian(value))
    third = jax.jit(jax.grad(lambda w, u: u @ jax.jvp(jax.grad(value), (w,), (u,))[1]))
    length, predicted = lr / substeps, [float(value(weights))]
    for _ in range(steps):
        for _ in range(substeps):
            last = [weights.size - 2, weights.size - 1]
            (second, top), vectors = scipy.linalg.eigh(np.asarray(hessian(weights)), subset_by_index=last)
            if second * lr / 2 > 0.98:
                raise SystemExit("two directions are critical: choose another draw.")
            force, held = gradient(weights), 0.0
            if top * lr / 2 > 0.95:
                t = third(weights, jnp.asarray(vectors[:, 1]))
                held = max(0.0, -float(2 / lr - top + length * t @ force) / float(length / 2 * t @ t))
                force = force + held / 2 * t
            weights = weights - length * force
        predicted.append(float(value(weights)) + held * top / 2)
    return np.array(predicted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--substeps", type=int, default=4)
    given = parser.parse_args()
    problem, state, lr, _ = case("swish", given.seed)
    runs = {"descent": (ln.optim.SGD(lr), "loss"), "central": (ln.optim.CentralFlow(lr), "predicted_loss")}
    losses = {
        name: np.asarray(ln.simulate(problem, state, optimizer, steps=given.steps, observe=[loss])[loss])
        for name, (optimizer, loss) in runs.items()
    }
    losses["reference"] = reference(problem, state, lr, given.steps, given.substeps)
    averaged = {name: means(values[1:], 100) for name, values in losses.items()}
    rows = []
    for name, other in (("reference", "descent"), ("central", "descent"), ("central", "reference")):
        off = 100 * (averaged[name] / averaged[other] - 1)
        rows.append((f"{name} over {other} - 1", *(f"{x:.2g} %" for x in off)))
    ends = [str(100 * (i + 1)) for i in range(len(averaged["descent"]))]
    print(table(rows, ("100 steps up to", *ends)))


if __name__ == "__main__":
    main()
