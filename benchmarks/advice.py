"""Whether it helps to do what the probe advises: twice the learning rate for 100 steps, against going on as before.

    python benchmarks/advice.py [--steps 500] [--only mlp] [--seed 1] [--encoder FOLDER]

Twenty trainings on the 8 x 8 digits of scikit-learn with a tenth of the labels wrong: an MLP, a CNN, and a small
transformer, each by SGD, momentum, and AdamW with batches of 32 and with full batches; and LoRA by peft on that
transformer by AdamW with both batches, after 300 steps on the digits upside down. With `--encoder`, a pre-trained BERT
of transformers such as MiniLM in a folder, two more: LoRA on its queries and values and a linear head on the mean of
its last layer, by AdamW with batches of 16 and with 64 pairs, on scores of pairs of sentences of at most 24 tokens
(STS-B, in the folder that LINNET_DATA names). After each hundred steps from the second on the probe is asked. Where it
says that twice the lr is worth a trial, the training is continued for 100 steps from there with the same lr and with
twice the lr, each with the same batches, in three orders for small ones. Compared is the loss on the samples that are
trained on. Better: lower by two standard errors of the orders, or by 1 % for full batches; worse: higher by as much;
else equal. Diverged: not finite, or above 1.5 times the loss at the beginning of the trial. Since the first run nothing
is advised with SGD and momentum (docs/trust.md). Learning rates were set once, to small round
numbers, and not changed after a result was seen. The budget is 0.3, ten times the default, so that the probe can say
something often. One thread; about 5 minutes of a processor, and 20 more with an encoder.
"""

import argparse
import copy
import math
import statistics
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from sklearn.datasets import load_digits
from timing import table
from torch import nn

import linnet as ln
from linnet.probe import Probe

BATCH, FULL, HELD, CLASSES, SIDE, TRIAL, ORDERS = 32, 256, 256, 10, 8, 100, 3
ADVISED = "Twice the lr is worth a trial"
RATES = {"SGD": 0.05, "momentum": 0.01, "AdamW": 5e-4}
PAIRS, TOKENS = 320, 24  # of sentences, and of them at most


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


class Encoder(nn.Module):
    """LoRA on the queries and values of a pre-trained encoder, and a head on the mean of its last layer."""

    def __init__(self, folder: str, mean: float):
        super().__init__()
        import peft
        from transformers import AutoModel

        config = peft.LoraConfig(r=8, lora_alpha=16, target_modules=["query", "value"])
        self.inner = peft.get_peft_model(AutoModel.from_pretrained(folder, dtype=torch.float32), config)
        self.head = nn.Linear(self.inner.config.hidden_size, 1)
        nn.init.constant_(self.head.bias, mean)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = x[:, 1]
        hidden = self.inner(input_ids=x[:, 0], attention_mask=mask).last_hidden_state * mask[..., None]
        return self.head(hidden.sum(1) / mask.sum(1, keepdim=True)).squeeze(1)


MODELS = {"mlp": perceptron, "cnn": Convolutions, "transformer": Transformer}


def samples(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    digits = load_digits()
    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(digits.target), generator=draw)
    x, y = torch.tensor(digits.images, dtype=torch.float32)[order] / 8 - 1, torch.tensor(digits.target)[order]
    wrong = torch.rand(len(y), generator=draw) < 0.1
    return x, torch.where(wrong, torch.randint(CLASSES, (len(y),), generator=draw), y)


def sentences(folder: str, seed: int, part: str = "train") -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens with their mask, and scores."""
    from transformers import AutoTokenizer

    pairs, tokens = ln.data.pairs(part), AutoTokenizer.from_pretrained(folder)
    found: list[tuple[Any, float]] = []
    for i in torch.randperm(len(pairs), generator=torch.Generator().manual_seed(seed)).tolist():
        encoded = tokens(pairs.first[i], pairs.second[i])
        if len(encoded["input_ids"]) <= TOKENS and len(found) < PAIRS:
            found.append((encoded, float(pairs.scores[i])))
    padded = tokens.pad([one for one, _ in found], padding="max_length", max_length=TOKENS, return_tensors="pt")
    return torch.stack([padded["input_ids"], padded["attention_mask"]], 1), torch.tensor([y for _, y in found])


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Cross-entropy of classes, the mean square of scores."""
    criterion = nn.functional.mse_loss if batch[1].is_floating_point() else nn.functional.cross_entropy
    return criterion(model(batch[0]), batch[1])


def optimizer_of(name: str, model: nn.Module) -> torch.optim.Optimizer:
    weights, lr = [weight for weight in model.parameters() if weight.requires_grad], RATES[name]
    if name == "AdamW":
        return torch.optim.AdamW(weights, lr)
    return torch.optim.SGD(weights, lr, momentum=0.9 if name == "momentum" else 0.0)


class Case(NamedTuple):
    """A training: its model, optimizer, batch (None: all samples), and the folder of a pre-trained encoder."""

    model: str
    optimizer: str
    batch: int | None
    folder: str | None = None

    @property
    def sizes(self) -> tuple[int, int]:
        """Of the probe's batch, and of a full one."""
        return (HELD, FULL) if self.folder is None else (64, 64)

    def made(self, x: torch.Tensor, y: torch.Tensor, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        if self.folder is not None:
            return Encoder(self.folder, float(y.mean())).eval()
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


def cases(encoder: str | None) -> Iterator[Case]:
    for batch in (BATCH, None):
        for name in MODELS:
            for optimizer in RATES:
                yield Case(name, optimizer, batch)
        yield Case("LoRA", "AdamW", batch)
        if encoder is not None:
            yield Case(f"LoRA on {Path(encoder).name}", "AdamW", None if batch is None else 16, encoder)


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
    some, full = case.sizes
    held, (x, y) = (x[:some], y[:some]), (x[some:], y[some:])
    x, y = (x[:full], y[:full]) if case.batch is None else (x, y)
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


def main(steps: int, only: list[str], seed: int, encoder: str | None) -> None:
    digits, texts = samples(seed), None if encoder is None else sentences(encoder, seed)
    rows, every, silent, total = list[tuple[str, ...]](), list[Outcome](), 0, 0
    for case in cases(encoder):
        if only and not {case.model, case.optimizer} & set(only):
            continue
        x, y = digits if case.folder is None or texts is None else texts
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
    parser.add_argument("--encoder", help="a folder with a pre-trained encoder and its tokenizer")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main(given.steps, given.only, given.seed, given.encoder)
