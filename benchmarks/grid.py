"""The 35 x 35 phase diagram of figure 2 (mixed dynamics) as batches of descent runs on whatever device JAX finds.

    PYTHONPATH=src python benchmarks/grid.py [--d 200] [--grid 35] [--batch 256] [--json FILE]

Every run goes on for at least k_H steps, until the strongest noise mode is learned, records test and training error at
every step and keeps the state of the smallest test error, all in float64. Runs are sorted by length and batched;
narrow networks are filled up with neurons of weight zero, which stay zero. Compilation is timed apart. Needs NumPy,
SciPy, JAX, Equinox, diffrax, Optimistix, jaxtyping and xarray only.
"""

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import linnet as ln
from linnet.theory import mixed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--d", type=int, default=200)
    parser.add_argument("--grid", type=int, default=35)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    given = parser.parse_args()
    d, c_lr, key = given.d, 50.0, jax.random.key(0)
    problem = ln.low_rank_recovery(key, d, 5)
    values = np.linalg.svd(np.asarray(problem.target), compute_uv=False)
    top, noise = np.linalg.norm(np.asarray(problem.truth), 2), values[5]

    gamma_s, gamma_w = np.linspace(-3, 0, given.grid), np.linspace(0, 2.8, given.grid)
    widths = np.maximum(1, np.round(d**gamma_w))
    bases, sizes = [], []
    for w in widths:  # a start scales with the root of its variance
        state = ln.init.gaussian(key, problem, w, 1.0)
        sizes.append(float(jnp.linalg.norm(state.matrix, 2)))
        first, second = (np.asarray(layer) for layer in state.layers)
        missing = 2 * d - first.shape[0]
        bases.append((np.pad(first, ((0, missing), (0, 0))), np.pad(second, ((0, 0), (0, missing)))))
    first, second = (jnp.asarray(np.stack(layer)) for layer in zip(*bases, strict=True))

    exponent, index = (x.ravel() for x in np.meshgrid(gamma_s, np.arange(given.grid), indexing="ij"))
    index = index.astype(int)
    variance, width = d**exponent, widths[index]
    c = variance * width
    lr = mixed.step_size(d, c, top, lazy=exponent + gamma_w[index] > 1, c_lr=c_lr)
    learned = np.asarray(jax.jit(mixed.mode_time)(0.0, 0.95 * noise, noise, c, 2 / d**2)) / lr
    steps = np.ceil(learned + c_lr / 4 * np.log1p(variance * np.array(sizes)[index] / values[0])).astype(int)

    def run(cap: int) -> Any:
        def one(number: Any, variance: Any, lr: Any, steps: Any) -> Any:
            state = ln.Weights([jnp.sqrt(variance) * layers[number] for layers in (first, second)])
            done = ln.simulate(
                problem,
                state,
                ln.optim.SGD(lr),
                steps=steps,
                record=ln.record.at(range(cap + 1)),
                observe=["test_error", "loss"],
                checkpoint=["lowest test_error"],
            )
            best = done.checkpoints["lowest test_error"]
            return best.value, best.step, ln.observe.loss(done.final, problem), done.code

        return jax.jit(jax.vmap(one))

    # batches of one size, the last one filled up with copies of its last run
    cells = np.argsort(steps)
    cells = np.append(cells, np.repeat(cells[-1], -len(cells) % given.batch)).reshape(-1, given.batch)
    caps = [int(steps[batch].max()) for batch in cells]
    arguments = [[jnp.asarray(x[batch]) for x in (index, variance, lr, steps)] for batch in cells]
    began = time.perf_counter()
    lowered = {cap: run(cap).lower(*arguments[i]) for i, cap in enumerate(caps)}
    # large products are the library's on a GPU, and to try others is most of a compilation; small ones would be slower
    options = {"xla_gpu_enable_triton_gemm": False} if jax.default_backend() == "gpu" else {}
    with ThreadPoolExecutor() as threads:  # a compiler keeps one core busy
        programs = dict(
            zip(lowered, threads.map(lambda one: one.compile(compiler_options=options), lowered.values()), strict=True)
        )
    compiling = time.perf_counter() - began
    out = np.zeros((4, steps.size))
    computing, taken = 0.0, 0
    for batch, cap, given_to in zip(cells, caps, arguments, strict=True):
        began = time.perf_counter()
        found = jax.block_until_ready(programs[cap](*given_to))
        computing += time.perf_counter() - began
        taken += cap * len(batch)
        out[:, batch] = np.stack([np.asarray(x) for x in found])
    device = jax.devices()[0].device_kind
    rate = steps.sum() / computing
    print(
        f"{device}, JAX {jax.__version__}, float64: {steps.size} runs at d = {d}, {steps.min()} to {steps.max()} steps."
    )
    print(f"{steps.sum():,} steps in all, {taken:,} with the batches' padding.")
    print(f"Compute {computing:.2f} s ({rate:,.0f} run-steps a second), {len(programs)} programs in {compiling:.1f} s.")
    print(f"Smallest test errors {out[0].min():.4f} to {out[0].max():.4f}; diverged: {np.sum(out[3] != 0):.0f}.")
    if given.json is not None:
        figures = {"device": device, "compute": computing, "compile": compiling, "steps": steps.tolist()}
        given.json.write_text(json.dumps({**figures, "test": out[0].tolist(), "step": out[1].tolist()}))


if __name__ == "__main__":
    main()
