"""The time of a probe's measurement in training steps, and of other methods for a top eigenvalue, as ratios of one run.

    pip install -c constraints.txt '.[bench]' hessian-eigenthings
    python benchmarks/probe.py [--model FOLDER] [--train 40] [--steps 8000]

First an MLP of 8,000 short steps with the default budget, in turns with the same training without a probe:
construction of the probe, the overhead, and at which steps it measured. Then measurements of curvature one by one,
each with the top eigenvalue to a residual of 2e-3, five values, the layers' spectra and balance; the first one also
predicts pairs of factors. Beside it, at the same residual and from a random start: its top eigenvalue alone; power
iteration with a double backward for each product, as pytorch-hessian-eigenthings makes it; and that package's
Lanczos, given beforehand the number of products that it will need. Fused attention is switched off for them,
since it has no second derivative. `--model`: a pre-trained encoder of transformers, such as MiniLM, on 16 sentences
of 16 tokens.
Computing time on one core: OMP_NUM_THREADS=1.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from timing import table
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from linnet.probe import Probe
from linnet.probe.lanczos import Ends, ends

try:
    from hessian_eigenthings import HessianOperator, lanczos
    from hessian_eigenthings.algorithms.power_iteration import power_iteration_one
except ImportError:
    HessianOperator = None
TOL, MOST = 2e-3, 100


def mse(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.mse_loss(model(batch[0]), batch[1])


class Encoder(nn.Module):
    """A small transformer on vectors, with the mean of its last layer."""

    def __init__(self, width: int = 64, layers: int = 2):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.inner, self.last = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False), nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.inner(x).mean(1))


class Pretrained(nn.Module):
    """An encoder from a folder, with the mean of its last layer."""

    def __init__(self, folder: str):
        super().__init__()
        from transformers import AutoModel

        self.inner = AutoModel.from_pretrained(folder, attn_implementation="eager")
        self.last = nn.Linear(self.inner.config.hidden_size, 1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.last(self.inner(tokens).last_hidden_state.mean(1))


def cases(folder: str | None) -> dict[str, tuple[nn.Module, Any]]:
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))
    found: dict[str, tuple[nn.Module, Any]] = {
        "MLP 784-200-200-10, 2000 samples": (wide, (torch.rand(2000, 784), torch.randn(2000, 10))),
        "transformer, 2 layers of 64, 64 x 32": (Encoder(), (torch.randn(64, 32, 64), torch.randn(64, 1))),
    }
    if folder is not None:
        found[folder] = (Pretrained(folder), (torch.randint(1000, 20000, (16, 16)), torch.randn(16, 1)))
    return found


def seconds(call: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """The computing time of the best of a few repetitions, and what the last one returned."""
    best, value = float("inf"), None
    for _ in range(repeats):
        began = time.process_time()
        value = call()
        best = min(best, time.process_time() - began)
    return best, value


def eigenvalue(probe: Probe) -> Ends:
    """The measurement's search for the top eigenvalue, from a random vector as the others."""
    point = probe.surface.here()
    start = torch.randn(point.gradient.shape, generator=torch.Generator().manual_seed(0))
    return ends(point.product, start, good=1, count=1, matvecs=MOST, tol=TOL)


def power(model: nn.Module, batch: Any) -> tuple[float, float, int]:
    """Value, relative residual and products of power iteration, with a new gradient for each product."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    sizes = [weight.numel() for weight in weights]
    v = torch.randn(sum(sizes), generator=torch.Generator().manual_seed(0))
    for made in range(1, MOST + 1):  # noqa: B007  printed at the end
        v = v / v.norm()
        gradients = torch.autograd.grad(mse(model, batch), weights, create_graph=True, materialize_grads=True)
        parts = [part.reshape(w.shape) for part, w in zip(v.split(sizes), weights, strict=True)]
        bent = [(g, part) for g, part in zip(gradients, parts, strict=True) if g.requires_grad]
        image = torch.autograd.grad([g for g, _ in bent], weights, [part for _, part in bent], materialize_grads=True)
        found = torch.cat([part.reshape(-1) for part in image])
        value = float(v @ found)
        residual = float((found - value * v).norm()) / abs(value)
        if residual < TOL:
            break
        v = found
    return value, residual, made


def package(model: nn.Module, batch: Any, products: int) -> dict[str, tuple[float, tuple[float, float, int]]]:
    """The same by the package, where it is there: seconds, value, relative residual and products."""
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    used = torch.autograd.grad(mse(model, batch), trained, allow_unused=True)
    if HessianOperator is None or any(g is None for g in used):  # it knows no parameters without a gradient
        return {}
    operator = HessianOperator(model, [batch], mse)
    spent, (value, _, residual, made, _) = seconds(
        lambda: power_iteration_one(operator, max_iter=MOST, tol=TOL, seed=0), 1
    )
    found = {"the package's power iteration": (spent, (value, residual / abs(value), made))}
    for steps in range(products, MOST, max(1, products // 10)):  # the least with which it gets there, or nearly
        spent, result = seconds(lambda steps=steps: lanczos(operator, k=1, max_iter=steps, which="LA", seed=0), 1)
        top, residual = float(result.eigenvalues[0]), float(result.residuals[0])
        if residual <= TOL * top:
            break
    return found | {"the package's Lanczos": (spent, (top, residual / top, steps))}


def compare(name: str, model: nn.Module, batch: Any, train: int) -> list[tuple[str, ...]]:
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step() -> None:
        optimizer.zero_grad()
        mse(model, batch).backward()
        optimizer.step()

    model.eval()  # without dropout, as it is measured
    for _ in range(train):
        step()
    unit, _ = seconds(step)
    rows = []

    def row(what: str, spent: float, value: float, residual: float, products: int) -> None:
        rows.append((name, what, f"{spent / unit:.1f}", f"{value:.4g}", f"{residual:.1e}", str(products)))

    def measure() -> dict[str, Any]:
        probe = Probe(model, mse, batch, every=2, tol=TOL, matvecs=MOST)
        probe.update(0)
        return probe.record.measurements[0]

    repeats = 2 if unit > 0.2 else 3
    spent, cold = seconds(measure, repeats)
    probe = Probe(model, mse, batch, every=2, tol=TOL, matvecs=MOST)
    probe.update(0)
    step()
    second, _ = seconds(lambda: probe.update(1), 1)
    alone, top = seconds(lambda: eigenvalue(probe), repeats)
    row("its top eigenvalue alone", alone, float(top.values[0]), float(top.residuals[0] / top.values[0]), top.products)
    for what, time_, line in (
        ("a measurement", spent, cold),
        ("a second measurement, with one along the step", second, probe.record.measurements[-1]),
    ):
        row(what, time_, line["sharpness"][0], line["residual"][0] / line["sharpness"][0], line["products"])
    with sdpa_kernel(SDPBackend.MATH):
        spent, found = seconds(lambda: power(model, batch), 1)
        row("power iteration", spent, *found)
        for what, (time_, told) in package(model, batch, cold["products"]).items():
            row(what, time_, *told)
    rows.append((name, "a training step", "1.0", f"{1e3 * unit:.3g} ms", "", ""))
    return rows


def short(steps: int, repeats: int = 3) -> list[tuple[str, ...]]:
    """An MLP of short steps with and without a probe, in turns: the medians of their computing times."""

    def train(probed: bool) -> tuple[float, Probe | None, float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
        x, y = torch.randn(4096, 20), torch.randn(4096, 3)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        probe, made = None, 0.0
        if probed:
            began = time.perf_counter()
            probe = Probe(model, mse, (x[:256], y[:256]), optimizer=optimizer)
            made = time.perf_counter() - began
        began = time.process_time()
        for step in range(steps):
            rows = slice(step % 64 * 64, step % 64 * 64 + 64)
            batch = x[rows], y[rows]
            optimizer.zero_grad()
            loss = mse(model, batch)
            loss.backward()
            optimizer.step()
            if probe is not None:
                probe.update(step, loss, batch=batch)
        return time.process_time() - began, probe, made

    pairs = [(train(False)[0], *train(True)) for _ in range(repeats)]
    ratio = statistics.median(probed / plain for plain, probed, _, _ in pairs)
    plain, _, probe, made = pairs[-1]
    assert probe is not None
    record = probe.record
    kinds = {"forward passes": record.forwards, "curvature": record.measurements, "its batch": record.anchors}
    rows = [(f"{name}, at steps", ", ".join(str(line["step"]) for line in found)) for name, found in kinds.items()]
    return [
        ("construction", f"{made:.3g} s"),
        ("a training step", f"{1e6 * plain / steps:.0f} microseconds"),
        ("overhead of computing time", f"{ratio - 1:.1%}"),
        ("steps whose loss was read", f"{len(record.steps)} of {steps}"),
        *rows,
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder with a pre-trained encoder")
    parser.add_argument("--train", type=int, default=40, help="steps before the measurements")
    parser.add_argument("--steps", type=int, default=8000, help="of the training of short steps")
    given = parser.parse_args()
    print(table(short(given.steps), ("short steps", "")), end="\n\n")
    rows = [row for name, case in cases(given.model).items() for row in compare(name, *case, given.train)]
    print(table(rows, ("model", "what", "training steps", "value", "relative residual", "products")))
