"""What the probe says of fine-tunings of a pre-trained encoder by LoRA, and how they end.

    LINNET_DATA=FOLDER python benchmarks/lora.py ENCODER [--steps 250] [--budget 0.03] [--only "one bad batch"]

A BERT of transformers such as MiniLM in the folder ENCODER, with LoRA on its queries and values and a linear head on
the mean of its last layer, by AdamW with batches of 16, on scores of pairs of sentences of at most 24 tokens (STS-B).
Four learning rates, and two mistakes at the third of them: an optimizer that got none of the adapters, and one bad
batch (its scores times 100). Reported: the loss on the training's pairs before and afterwards, Pearson's correlation
with the scores on 320 pairs of the development set, and what `verdict` says at the end. One thread; about 8 minutes.
"""

import argparse
import textwrap
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import torch
import transformers
from advice import Encoder, loss_of, sentences, step
from torch import nn

from linnet.probe import Probe

BATCH, HELD, RATE = 16, 64, 5e-4
RATES = 1e-6, 1e-4, RATE, 3e-2


class Case(NamedTuple):
    """A fine-tuning: its name, lr, and what is wrong."""

    name: str
    lr: float = RATE
    mistake: str = ""


def cases() -> Iterator[Case]:
    for lr in RATES:
        yield Case(f"lr {lr:g}", lr)
    for mistake in ("no adapter in the optimizer", "one bad batch"):
        yield Case(mistake, mistake=mistake)


def evaluated(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
    """The mean square, and Pearson's correlation."""
    with torch.no_grad():
        outputs = torch.cat([model(part) for part in x.split(64)])
    return float(nn.functional.mse_loss(outputs, y)), float(torch.corrcoef(torch.stack([outputs, y]))[0, 1])


def run(case: Case, folder: str, steps: int, budget: float) -> None:
    (x, y), development = sentences(folder, 0), sentences(folder, 0, "dev")
    held, x, y = (x[:HELD], y[:HELD]), x[HELD:], y[HELD:]
    torch.manual_seed(0)
    model = Encoder(folder, float(y.mean())).eval()
    trained = model.head.parameters() if case.mistake == "no adapter in the optimizer" else model.parameters()
    optimizer = torch.optim.AdamW([weight for weight in trained if weight.requires_grad], case.lr)
    draw, before = torch.Generator().manual_seed(2), evaluated(model, x, y)[0]
    with Probe(model, loss_of, held, optimizer=optimizer, budget=budget) as probe:
        for k in range(steps):
            rows = torch.randint(len(x), (BATCH,), generator=draw)
            worse = 100 if case.mistake == "one bad batch" and k == steps - 20 else 1
            batch = x[rows], worse * y[rows]
            probe.update(k, step(model, optimizer, batch), batch=batch)
    after, (_, pearson) = evaluated(model, x, y)[0], evaluated(model, *development)
    print(f"{case.name}: loss {before:.3g} -> {after:.3g}, correlation on the development set {pearson:.2f}")
    for sentence in probe.verdict():
        print(textwrap.fill(sentence, 116, initial_indent="  - ", subsequent_indent="    "))
    print(flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder", help="a folder with a pre-trained encoder and its tokenizer")
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--budget", type=float, default=0.03)
    parser.add_argument("--only", action="append", help="the name of a case, or of several")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    for case in cases():
        if given.only is None or case.name in given.only:
            run(case, given.encoder, given.steps, given.budget)
