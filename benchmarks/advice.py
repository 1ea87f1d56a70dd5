"""Whether it helps to do what the probe advises: twice the learning rate for 100 steps, against going on as before.

    python benchmarks/advice.py [--steps 500] [--only mlp] [--seed 1]

Twenty trainings on the 8 x 8 digits of scikit-learn with a tenth of the labels wrong: an MLP, a CNN, and a small
transformer, each by SGD, momentum, and AdamW with batches of 32 and with full batches; and LoRA by peft on that
transformer by AdamW with both batches, after 300 steps on the digits upside down (no pre-trained model of others is
needed). After each hundred steps from the second on the probe is asked. Where it says that twice the lr is worth a
trial, the training is continued for 100 steps from there with the same lr and with twice the lr, each with the same
batches, in three orders for batches of 32. Compared is the loss on the samples that are trained on. Better: lower by
two standard errors of the orders, or by 1 % for full batches; worse: higher by as much; else equal. Diverged: not
finite, or above 1.5 times the loss at the beginning of the trial. Since the first run nothing is advised with SGD and
momentum (docs/trust.md). Learning rates were set once, to small round numbers,
and not changed after a result was seen. The budget is 0.3, ten times the default, so that the probe can say something
often. One thread; about 5 minutes of a processor.
"""

import argparse
import copy
import math
import statistics
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from sklearn.datasets import load_digits
from timing import table
from torch import nn

from linnet.probe import Probe

BATCH, FULL, HELD, CLASSES, SIDE, TRIAL, ORDERS = 32, 256, 256, 10, 8, 100, 3
ADVISED = "Twice the lr is worth a trial"
RATES = {"SGD": 0.05, "momentum": 0.01, "AdamW": 5e-4}


class Block(nn.Module):
    """Attention and an MLP, of linear layers that peft can adapt."""

    def __init__(self, width: int, heads: int = 4):
        super().__init__()
        self.before, self.after, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before(x)
        parts = (one(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (self.query, self.key, self.value))
        x = x + self.out(nn.functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(-2))
        return x + self.down(nn.functional.gelu(self.up(self.after(x))))


class Transformer(nn.Module):
    """Two blocks on the rows of an image."""

    def __init__(self, width: int = 32):
        super().__init__()
        self.first, self.last = nn.Linear(SIDE, width), nn.Linear(width, CLASSES)
        self.places = nn.Parameter(0.1 * torch.randn(SIDE, width))
        self.blocks = nn.Sequential(Block(width), Block(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.blocks(self.first(x) + self.places).mean(1))


class Convolutions(nn.Module):
    """Two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        first, second = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.inner = nn.Sequential(first, nn.ReLU(), nn.MaxPool2d(2), second, nn.ReLU())
        self.last = nn.Linear(16 * (SIDE // 2) ** 2, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.inner(x[:, None]).flatten(1))


def perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(SIDE**2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10)
    )


MODELS = {"mlp": perceptron, "cnn": Convolutions, "transformer": Transformer}


def samples(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    digits = load_digits()
    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(digits.target), generator=draw)
    x, y = torch.tensor(digits.images, dtype=torch.float32)[order] / 8 - 1, torch.tensor(digits.target)[order]
    wrong = torch.rand(len(y), generator=draw) < 0.1
    return x, torch.where(wrong, torch.randint(CLASSES, (len(y),), generator=draw), y)


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def optimizer_of(name: str, model: nn.Module) -> torch.optim.Optimizer:
    weights, lr = [weight for weight in model.parameters() if weight.requires_grad], RATES[name]
    if name == "AdamW":
        return torch.optim.AdamW(weights, lr)
    return torch.optim.SGD(weights, lr, momentum=0.9 if name == "momentum" else 0.0)


class Case(NamedTuple):
    """A training: its model, optimizer, and batch (None: all samples)."""

    model: str
    optimizer: str
    batch: int | None

    def made(self, x: torch.Tensor, y: torch.Tensor, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        if self.model != "LoRA":
            return MODELS[self.model]()
        import peft

        model = Transformer()
        optimizer, draw = torch.optim.AdamW(model.parameters(), 2e-3), torch.Generator().manual_seed(1)
        for _ in range(300):
            rows = torch.randint(len(x), (BATCH,), generator=draw)
            step(model, optimizer, (x[rows].flip(1), y[rows]))
        config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["query", "value", "up", "down"])
        return peft.get_peft_model(model, config)


def cases() -> Iterator[Case]:
    for batch in (BATCH, None):
        for name in MODELS:
            for optimizer in RATES:
                yield Case(name, optimizer, batch)
        yield Case("LoRA", "AdamW", batch)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> float:
    optimizer.zero_grad()
    loss = loss_of(model, batch)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def trial(
    case: Case, model: nn.Module, optimizer: torch.optim.Optimizer, x: Any, y: Any, factor: float, seed: int
) -> float:
    """The loss on all samples after 100 steps with so many times the lr."""
    twin = copy.deepcopy(model)
    other = optimizer_of(case.optimizer, twin)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for group in other.param_groups:
        group["lr"] *= factor
    draw = torch.Generator().manual_seed(1000 + seed)
    for _ in range(TRIAL):
        rows = slice(None) if case.batch is None else torch.randint(len(x), (case.batch,), generator=draw)
        step(twin, other, (x[rows], y[rows]))
    with torch.no_grad():
        return float(loss_of(twin, (x, y)))


class Outcome(NamedTuple):
    """What following one advice gave: the change of the loss relative to the unchanged run, and a word."""

    step: int
    change: float
    word: str


def followed(case: Case, at: int, model: nn.Module, optimizer: torch.optim.Optimizer, x: Any, y: Any) -> Outcome:
    with torch.no_grad():
        start = float(loss_of(model, (x, y)))
    seeds = range(1 if case.batch is None else ORDERS)
    pairs = [[trial(case, model, optimizer, x, y, factor, seed) for factor in (1.0, 2.0)] for seed in seeds]
    if any(not math.isfinite(twice) or twice > 1.5 * start for _, twice in pairs):
        return Outcome(at, math.inf, "diverged")
    changes = [twice / once - 1 for once, twice in pairs]
    change = statistics.fmean(changes)
    error = 0.005 if len(changes) == 1 else statistics.stdev(changes) / math.sqrt(len(changes))
    word = "better" if change < -2 * error else "worse" if change > 2 * error else "equal"
    return Outcome(at, change, word)


def run(case: Case, steps: int, seed: int, x: Any, y: Any) -> tuple[list[Outcome], int, str]:
    """What each advice gave, how often the probe was asked, and its last first sentence."""
    held, (x, y) = (x[:HELD], y[:HELD]), (x[HELD:], y[HELD:])
    x, y = (x[:FULL], y[:FULL]) if case.batch is None else (x, y)
    model = case.made(x, y, seed)
    optimizer, draw = optimizer_of(case.optimizer, model), torch.Generator().manual_seed(2 + seed)
    probe, found, asked = Probe(model, loss_of, held, optimizer=optimizer, budget=0.3), list[Outcome](), 0
    for k in range(steps):
        rows = slice(None) if case.batch is None else torch.randint(len(x), (case.batch,), generator=draw)
        batch = x[rows], y[rows]
        probe.update(k, step(model, optimizer, batch), batch=batch)
        if k >= 2 * TRIAL - 1 and (k + 1) % TRIAL == 0:
            asked += 1
            if any(ADVISED in sentence for sentence in probe.verdict()):
                found.append(followed(case, k + 1, model, optimizer, x, y))
    sentence = probe.verdict()[0]
    probe.close()
    return found, asked, sentence.partition(":")[0]


def main(steps: int, only: list[str], seed: int) -> None:
    x, y = samples(seed)
    rows, every, silent, total = list[tuple[str, ...]](), list[Outcome](), 0, 0
    for case in cases():
        if only and not {case.model, case.optimizer} & set(only):
            continue
        found, asked, status = run(case, steps, seed, x, y)
        every, silent, total = every + found, silent + asked - len(found), total + asked
        told = ", ".join(f"{one.step}: {one.change:+.0%} {one.word}" for one in found) or "silent"
        size = "all" if case.batch is None else str(case.batch)
        rows.append((case.model, case.optimizer, size, f"{len(found)} of {asked}", told, status))
        print(rows[-1], flush=True)
    header = (
        "model",
        "optimizer",
        "batch",
        "advised",
        "step: change of the loss against the same lr",
        "status at the end",
    )
    print(f"\n{table(rows, header)}\n")
    words = [one.word for one in every]
    counts = ", ".join(f"{words.count(word)} {word}" for word in ("better", "equal", "worse", "diverged"))
    good = words.count("better") + words.count("equal")
    print(
        f"{len(words)} advices: {counts}; better or equal {good / max(1, len(words)):.0%} (bound 80 %, none diverged)"
    )
    trainings = sum(row[4] != "silent" for row in rows)
    print(f"silent {silent} of {total} times; {trainings} of {len(rows)} trainings got an advice")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--only", action="append", default=[], help="a model or an optimizer, such as LoRA or AdamW")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main(given.steps, given.only, given.seed)
