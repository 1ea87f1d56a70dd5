"""Linnet against what one would write otherwise, as ratios measured in one run on one machine.

    pip install -c constraints.txt '.[bench]'
    python benchmarks/speed.py [--quick]

Prints the table of the README. PyTorch runs the same descent at full width, on the GPU if there is one.
"""

import argparse
import platform
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from timing import table, timed

import linnet as ln


def width_against_torch(d: int, width: int, ours: int, theirs: int) -> tuple[str, ...]:
    """Descent on noisy low-rank recovery: compressed here, full width in PyTorch, seconds a step each."""
    import torch

    key = jax.random.key(0)
    problem = ln.low_rank_recovery(key, d, 5)
    start = ln.init.gaussian(key, problem, width, d**-1.85)
    lr = d**2 / (50 * float(jnp.linalg.norm(problem.truth, 2)))
    here = timed(lambda: ln.simulate(problem, start, ln.optim.SGD(lr), steps=ours, record=ln.record.linear(2)).final)

    device = "cuda" if torch.cuda.is_available() else "cpu"
    target = torch.tensor(np.array(problem.target), device=device)
    w1 = torch.randn(width, d, dtype=torch.float64, device=device) * d**-0.925
    w2 = torch.randn(d, width, dtype=torch.float64, device=device) * d**-0.925

    def descend(steps: int) -> None:
        nonlocal w1, w2
        for _ in range(steps):
            g = 2 / d**2 * (w2 @ w1 - target)
            w1, w2 = w1 - lr * (w2.T @ g), w2 - lr * (g @ w1.T)
        if device == "cuda":
            torch.cuda.synchronize()

    descend(2)
    began = time.perf_counter()
    descend(theirs)
    there = (time.perf_counter() - began) / theirs
    mine = here.best / ours
    return (
        f"descent, d = {d}, width {width:,}",
        f"{mine * 1e3:.3g} ms a step",
        f"PyTorch at full width: {there * 1e3:.3g} ms",
        f"**{there / mine:,.0f}x**",
        f"{here.first - here.best:.1f} s",
    )


def small_against_numpy(d: int, width: int, steps: int) -> tuple[str, ...]:
    """A small network for many steps: a compiled loop here, a NumPy loop at the user's width there."""
    rng = np.random.default_rng(0)
    target = np.diag(np.linspace(2, 1, d))
    w1, w2 = 0.1 * rng.normal(size=(width, d)), 0.1 * rng.normal(size=(d, width))
    problem, start = ln.factorization(target), ln.Weights((w1, w2)).compress()
    here = timed(lambda: ln.simulate(problem, start, ln.optim.SGD(0.01), steps=steps, record=ln.record.linear(2)).final)
    began = time.perf_counter()
    sample = 20_000
    for _ in range(sample):
        g = w2 @ w1 - target
        w1, w2 = w1 - 0.01 * (w2.T @ g), w2 - 0.01 * (g @ w1.T)
    there = (time.perf_counter() - began) / sample
    mine = here.best / steps
    return (
        f"{steps:,} steps, d = {d}, width {width}",
        f"{mine * 1e6:.2f} us a step",
        f"NumPy loop: {there * 1e6:.1f} us",
        f"**{there / mine:.0f}x**",
        f"{here.first - here.best:.1f} s",
    )


def modes_against_numpy(depth: int, modes: int, steps: int) -> tuple[str, ...]:
    """An aligned deep network, mode by mode."""
    target = np.linspace(2, 1, modes)
    values = np.full((depth, modes), 0.5)
    problem, start = ln.factorization(target), ln.Modes(values)
    here = timed(lambda: ln.simulate(problem, start, ln.optim.SGD(0.01), steps=steps, record=ln.record.linear(2)).final)
    began = time.perf_counter()
    sample = 5000
    for _ in range(sample):
        others = np.stack([np.prod(np.delete(values, i, axis=0), axis=0) for i in range(depth)])
        values = values - 0.01 * (np.prod(values, axis=0) - target) * others
    there = (time.perf_counter() - began) / sample
    mine = here.best / steps
    return (
        f"{steps:,} steps, {modes} modes of depth {depth}",
        f"{mine * 1e6:.2f} us a step",
        f"NumPy loop: {there * 1e6:.1f} us",
        f"**{there / mine:.0f}x**",
        f"{here.first - here.best:.1f} s",
    )


def batch_against_one(runs: int, d: int, steps: int) -> tuple[str, ...]:
    """Independent runs together against the same number of runs one by one."""
    problem = ln.low_rank_recovery(jax.random.key(0), d, 5)
    starts = jax.vmap(lambda k: ln.init.gaussian(k, problem, 2500, d**-1.85))(jax.random.split(jax.random.key(1), runs))
    first = jax.tree.map(lambda x: x[0], starts)

    def run(start: ln.states.State) -> ln.states.State:
        return ln.simulate(problem, start, ln.optim.SGD(1.0), steps=steps, record=ln.record.linear(2)).final

    together, one = timed(lambda: jax.vmap(run)(starts)), timed(lambda: run(first))
    return (
        f"{runs} runs at d = {d} in one batch",
        f"{together.best / steps / runs * 1e6:.1f} us a step and run",
        f"one run alone: {one.best / steps * 1e6:.1f} us a step",
        f"**{one.best * runs / together.best:.2f}x**",
        f"{together.first - together.best:.1f} s",
    )


def enormous(d: int, steps: int) -> tuple[str, ...]:
    """The width that no computer holds, with all singular values at every step; in a process of its own for memory.

    Its peak memory is the kernel's VmHWM: `getrusage` of a child would start at the size of this process.
    """
    script = (
        "import jax, linnet as ln, re, time\n"
        f"d, key = {d}, jax.random.key(0)\n"
        "began = time.perf_counter()\n"
        "problem = ln.low_rank_recovery(key, d=d, rank=5)\n"
        "state = ln.init.gaussian(key, problem, width=round(d**2.25), variance=d**-1.85)\n"
        f"run = ln.simulate(problem, state, ln.optim.SGD(lr=20.5 * (d / 500)), steps={steps},\n"
        "    observe={'s': ln.observe.singular_values, 'test': ln.observe.test_error})\n"
        "run['s'].block_until_ready()\n"
        "memory = re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]\n"
        "print(time.perf_counter() - began, memory, float(run['test'].min()))\n"
    )
    out = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    seconds, kilobytes, best = float(out[0]), int(out[1]), float(out[2])
    width = round(d**2.25)
    return (
        f"d = {d}, width {width:,}, {steps} steps, all singular values at each",
        f"{seconds:.0f} s, {kilobytes / 2**20:.2f} GiB",
        f"the weights alone: {2 * width * d * 8 / 2**30:.1f} GiB",
        f"best test error {best:.3f}",
        "included",
    )


def main() -> None:
    """Runs the benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="leave out what takes more than half a minute")
    quick = parser.parse_args().quick
    gpu = jax.default_backend() != "cpu"
    print(f"{platform.processor() or platform.machine()}, {jax.devices()[0].device_kind}, JAX {jax.__version__}\n")
    rows = [
        width_against_torch(50, 2_500, 2000, 200),
        width_against_torch(200, 40_000, 400 if gpu else 100, 50 if gpu else 5),
        small_against_numpy(2, 50, 100_000),
        small_against_numpy(5, 50, 100_000),
        small_against_numpy(10, 100, 100_000),
        modes_against_numpy(3, 10, 100_000),
        batch_against_one(64, 50, 200),
    ]
    if not quick:
        rows.append(enormous(500, 420))
    print(table(rows, ("what", "Linnet", "otherwise", "ratio", "compile")))


if __name__ == "__main__":
    main()
