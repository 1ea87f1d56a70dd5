"""A ReLU network at the edge of stability, and PyTorch beside it, as ratios measured in one run.

    pip install -c constraints.txt '.[bench]'
    python benchmarks/networks.py [--quick] [--float64] [--steps N]

784 - 1000 - 1000 - 10 on 5000 images (--quick: width 200 on 1000), mean squares over all entries, lr 4, on the device
that JAX and PyTorch find. PyTorch makes steps and Hessian products by autograd, one by one from Python; its time
for the whole run is that of as many steps and products, without any record. The images are MNIST's where they are there
(`linnet data`), else Gaussian classes of their size.
"""

import argparse
import time
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.flatten_util import ravel_pytree
from timing import table, timed

import linnet as ln
from linnet import observe
from linnet.data import load, missing

EVERY = 25


def samples(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and their classes in rows of ten."""
    if missing("mnist") is None:
        chosen = load("mnist").subset(n)
        return chosen.scaled(), chosen.one_hot()
    rng = np.random.default_rng(0)
    kind = rng.integers(10, size=n)
    pixels = np.clip(rng.normal(size=(10, 784))[kind] + rng.normal(size=(n, 784)), 0, 1)
    return 0.5 * pixels, np.eye(10)[kind]


class Torch:
    """The same network, data and cost in PyTorch."""

    def __init__(self, network: ln.Network, labels: np.ndarray):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.inputs, self.labels = (torch.tensor(np.asarray(x), device=self.device) for x in (network.inputs, labels))
        self.layers = [torch.tensor(np.array(w), device=self.device, requires_grad=True) for w in network.layers]

    def loss(self) -> torch.Tensor:
        h = self.inputs
        for i, layer in enumerate(self.layers):
            h = h @ layer.T
            h = torch.relu(h) if i < len(self.layers) - 1 else h
        return torch.nn.functional.mse_loss(h, self.labels)

    def step(self, lr: float) -> None:
        gradients = torch.autograd.grad(self.loss(), self.layers)
        with torch.no_grad():
            for layer, gradient in zip(self.layers, gradients, strict=True):
                layer -= lr * gradient

    def products(self) -> Callable[[], None]:
        """Hessian products at one point, whose gradient is kept."""
        gradients = torch.autograd.grad(self.loss(), self.layers, create_graph=True)
        direction = [torch.randn_like(layer) for layer in self.layers]

        def product() -> None:
            torch.autograd.grad(gradients, self.layers, direction, retain_graph=True)

        return product

    def seconds(self, function: Callable[[], None], repeats: int) -> float:
        for _ in range(3):
            function()
        self.wait()
        began = time.perf_counter()
        for _ in range(repeats):
            function()
        self.wait()
        return (time.perf_counter() - began) / repeats

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def product_seconds(network: ln.Network, problem: ln.problems.Problem, repeats: int) -> float:
    """Of one of many Hessian products at one point, as a Lanczos iteration makes them."""
    flat, back = ravel_pytree(network.trained())

    @eqx.filter_jit
    def many(start: jax.Array, network: ln.Network, problem: ln.problems.Problem) -> jax.Array:
        force = jax.linearize(lambda v: eqx.combine(back(v), network).velocity(problem).trained(), flat)[1]
        return jax.lax.fori_loop(0, repeats, lambda _, v: ravel_pytree(force(v / jnp.linalg.norm(v)))[0], start)

    start = jax.random.normal(jax.random.key(1), flat.shape, dtype=flat.dtype)
    with jax.default_matmul_precision("highest"):  # as Linnet's own runs are
        return timed(lambda: many(start, network, problem), repeats=3).best / repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="width 200 on 1000 images, 300 steps")
    parser.add_argument("--float64", action="store_true", help="in double precision")
    parser.add_argument("--steps", type=int, help="steps of the run; 1500, or 300 with --quick")
    asked = parser.parse_args()
    n, width, steps, lr = (1000, 200, 300, 4.0) if asked.quick else (5000, 1000, 1500, 4.0)
    steps = asked.steps or steps
    deviation = 0.316 / np.sqrt(200) if asked.quick else 0.01
    x, y = (part.astype(np.float64 if asked.float64 else np.float32) for part in samples(n))
    network = ln.networks.mlp(jax.random.key(0), x, (width, width, 10), deviation=deviation)
    problem = ln.supervised(y)

    def run(observed: list[object], record: object = None) -> ln.Trajectory:
        return ln.simulate(problem, network, ln.optim.SGD(lr), steps=steps, observe=observed, record=record)

    observed = ["loss", observe.path, observe.only(observe.curvature(), ln.record.pairs(EVERY))]
    whole = timed(lambda: run(observed), repeats=2)
    products = int(np.nansum(np.asarray(run(observed)["curvature_products"])))
    step = timed(lambda: run(["loss"], ln.record.linear(2)), repeats=2).best / steps
    product = product_seconds(network, problem, 20)
    torch.backends.cuda.matmul.allow_tf32 = False
    there = Torch(network, y)
    repeats = min(steps, 30 if asked.quick else 100)
    one = there.seconds(lambda: there.step(lr), repeats)
    double = there.seconds(there.products(), repeats)
    total = steps * one + products * double
    device = jax.devices()[0].device_kind
    print(f"{n} images, width {width}, {steps} steps, {x.dtype}, on {device}: {products} Hessian products")
    rows = [
        ("a step", f"{step * 1e3:.3f} ms", f"{one * 1e3:.3f} ms", f"**{one / step:.2f}x**"),
        ("a Hessian product", f"{product * 1e3:.3f} ms", f"{double * 1e3:.3f} ms", f"**{double / product:.2f}x**"),
        ("the whole run", f"{whole.best:.2f} s", f"{total:.2f} s", f"**{total / whole.best:.2f}x**"),
        ("the first time, with compilation", f"{whole.first:.2f} s", "", ""),
    ]
    print(table(rows, ("", "Linnet", "PyTorch", "PyTorch / Linnet")))


if __name__ == "__main__":
    main()
