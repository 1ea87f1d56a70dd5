"""How often a probe's alarms are right: failures put into trainings of three models, and trainings without any.

    python benchmarks/health.py [--quick] [--runs 12] [--model mlp] [--schedule budget] [--seed 1000]

Three models (an MLP with momentum, a CNN and a small transformer with AdamW) on synthetic classes that are learned to
some extent. Kinds of failure from a step between 150 and 200 on: a learning rate times 8 to 128 for good, one bad
batch, a loss that overflows, a skipped step of a gradient scaler, and data that shift for good. Reported of each kind:
trainings with an alarm, of these the right cause (an unknown one is not right), and strong failures (the next losses
three times as high or not finite, or a step skipped) with an alarm within five steps; of the trainings without a
failure, which are longer, the false alarms and the steps that can have one, from the hundredth on. Shares have 95 %
intervals (Wilson's; the exact one of a Poisson rate). Both with the default budget,
and with the loss on the probe's batch every 20 steps (`every=`), as the default budget has it where steps take longer.
Seeds are fixed: those from `--seed` on. One thread; 5 to 10 minutes of a processor.
"""

import argparse
import math
import random
import statistics
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from timing import table
from torch import nn

from linnet.probe import Probe

STEPS, CALM, FROM, BATCH, CLASSES, SIDE = 240, 1000, 100, 32, 6, 8
SCHEDULES: dict[str, dict[str, Any]] = {"budget": {}, "every 20 steps": {"every": 10**6}}
KINDS = {
    "learning rate": ("learning_rate",),
    "bad batch": ("bad_batch",),
    "overflow": ("precision",),
    "skipped step": ("precision",),
    "shift": ("data_shift",),
}


class Transformer(nn.Module):
    """Two layers on the rows of an image."""

    def __init__(self, width: int = 32):
        super().__init__()
        self.first, self.last = nn.Linear(SIDE, width), nn.Linear(width, CLASSES)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.inner = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.inner(self.first(x)).mean(1))


class Convolutions(nn.Module):
    """Two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(12, 16, 3, padding=1), nn.ReLU()
        )
        self.last = nn.Linear(16 * (SIDE // 2) ** 2, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.inner(x[:, None]).flatten(1))


def perceptron() -> nn.Module:
    size = SIDE**2
    return nn.Sequential(nn.Flatten(), nn.Linear(size, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 6))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], torch.optim.Optimizer]]] = {
    "mlp": (perceptron, lambda w: torch.optim.SGD(w, 0.02, momentum=0.9)),
    "cnn": (Convolutions, lambda w: torch.optim.AdamW(w, 2e-3)),
    "transformer": (Transformer, lambda w: torch.optim.AdamW(w, 1e-3)),
}


class Classes:
    """Noisy images of six classes, with a tenth of the labels wrong."""

    def __init__(self, seed: int):
        self._draw = torch.Generator().manual_seed(seed)
        self._centers = torch.randn(CLASSES, SIDE, SIDE, generator=torch.Generator().manual_seed(7))

    def __call__(self, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.randint(CLASSES, (n,), generator=self._draw)
        x = 0.6 * self._centers[labels] + torch.randn(n, SIDE, SIDE, generator=self._draw)
        wrong = torch.rand(n, generator=self._draw) < 0.1
        return x, torch.where(wrong, torch.randint(CLASSES, (n,), generator=self._draw), labels)


class Outcome(NamedTuple):
    """The causes that were reported, the steps until the first alarm, and whether the failure was strong."""

    causes: list[str | None]
    delay: int | None
    strong: bool
    steps: int


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def run(name: str, kind: str | None, seed: int, options: dict[str, Any], steps: int = STEPS) -> Outcome:
    """One training, with a failure of a random strength at a random step."""
    torch.manual_seed(seed)
    draw = random.Random(1000 * seed + len(kind or ""))
    make, optimize = MODELS[name]
    model, sample = make(), Classes(seed)
    optimizer = optimize(model.parameters())
    held = Classes(10_000 + seed)(128)
    probe = Probe(model, loss_of, held, optimizer=optimizer, **options)
    at = draw.randrange(150, 200)
    factor, strength = 2 ** draw.uniform(3, 7), draw.uniform(1, 4)
    losses = list[float]()
    for step in range(steps):
        x, y = sample(BATCH)
        failed = kind is not None and step >= at
        if failed and kind == "learning rate" and step == at:
            for group in optimizer.param_groups:
                group["lr"] *= factor
        if failed and kind == "bad batch" and step == at:
            x, y = x + strength * torch.randn(x.shape, generator=sample._draw), y[torch.randperm(BATCH)]
            x = (1 + strength) * x
        if failed and kind == "overflow" and step == at:
            x = x * math.inf
        if failed and kind == "shift":
            x, y = x.flip(1), (y + 1) % CLASSES
        optimizer.zero_grad()
        loss = loss_of(model, (x, y))
        loss.backward()
        if not (kind == "skipped step" and step == at):
            optimizer.step()
        losses.append(float(loss.detach()))
        probe.update(step, loss.detach(), batch=(x, y))
    probe.close()
    alarms = [alarm for alarm in probe.record.alarms if kind is None or alarm["step"] >= at]
    usual = statistics.median(losses[at - 50 : at])
    worst = max((loss if math.isfinite(loss) else math.inf for loss in losses[at : at + 5]), default=0.0)
    strong = kind is not None and (worst > 3 * usual or kind in ("overflow", "skipped step"))
    first = min((alarm["step"] for alarm in alarms), default=None)
    return Outcome([alarm["cause"] for alarm in alarms], None if first is None else first - at, strong, steps - FROM)


def share(good: int, of: int) -> str:
    """A share with Wilson's 95 % interval."""
    if not of:
        return "none"
    p, z = good / of, 1.96
    middle, half = (p + z * z / (2 * of)), z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    low, high = ((middle + sign * half) / (1 + z * z / of) for sign in (-1, 1))
    return f"{good}/{of} = {p:.1%} ({low:.0%} to {high:.0%})"


def rate(count: int, steps: int) -> str:
    """Events in 10,000 steps with a 95 % interval of a Poisson rate (exact by chi-square quantiles)."""
    from scipy.stats import chi2

    low = chi2.ppf(0.025, 2 * count) / 2 if count else 0.0
    high = chi2.ppf(0.975, 2 * count + 2) / 2
    ends = (f"{1e4 * end / steps:.2f}" for end in (low, high))
    return f"{count} in {steps:,} steps = {1e4 * count / steps:.2f} in 10,000 ({' to '.join(ends)})"


def main(models: list[str], runs: int, schedule: str, first: int) -> None:
    rows, alarmed, right, strong, early = list[tuple[str, ...]](), 0, 0, 0, 0
    options = SCHEDULES[schedule]
    for name in models:
        for kind, causes in KINDS.items():
            found = [run(name, kind, first + seed, options) for seed in range(runs)]
            with_alarm = [one for one in found if one.causes]
            good = sum(one.causes[0] in causes for one in with_alarm)
            hard = [one for one in found if one.strong]
            quick = sum(one.delay is not None and one.delay <= 5 for one in hard)
            alarmed, right, strong, early = alarmed + len(with_alarm), right + good, strong + len(hard), early + quick
            others = [str(one.causes[0] or "unknown") for one in with_alarm if one.causes[0] not in causes]
            told = ", ".join(f"{others.count(one)} {one.replace('_', ' ')}" for one in sorted(set(others)))
            row = f"{len(with_alarm)}/{runs}", f"{good}/{len(with_alarm)}", f"{quick}/{len(hard)}", told
            rows.append((name, kind, *row))
    calm = [run(name, None, first + 100 + seed, options, CALM) for name in models for seed in range(runs)]
    steps, false = sum(one.steps for one in calm), sum(len(one.causes) for one in calm)
    print(f"## {schedule}\n")
    print(table(rows, ("model", "failure", "alarms", "right cause", "strong ones within 5 steps", "other causes")))
    print(f"\nright causes among alarms: {share(right, alarmed)}; bound 95 %")
    print(f"strong failures with an alarm within five steps: {share(early, strong)}; bound 85 %")
    print(f"false alarms without a failure: {rate(false, steps)}; bound 1\n", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two runs of each")
    parser.add_argument("--runs", type=int, default=12, help="of each model and kind")
    parser.add_argument("--model", choices=list(MODELS), action="append", help="one of the models, or several")
    parser.add_argument("--schedule", choices=list(SCHEDULES), action="append", help="the default is both")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for one in given.schedule or list(SCHEDULES):
        main(given.model or list(MODELS), 2 if given.quick else given.runs, one, given.seed)
