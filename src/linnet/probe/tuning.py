"""Fine-tuning a pre-trained BERT by low-rank adapters, on pairs of sentences with a score, under the probe.

W = W_0 + B A on all matrices of attention and of the feed-forward layers, all entries of A and B alpha N(0, 1), trained
by AdamW. A regression head stands on the first token's pooled output, N(0, 0.02^2), and does not train.
"""

import copy
import dataclasses
import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from linnet import data as sets
from linnet._check import InputError
from linnet.probe.probe import Probe

_ADAPTED = r".*encoder\.layer\..*\.(query|key|value|dense)"
_AT_ONCE = 100  # pairs of the development set


@dataclasses.dataclass(frozen=True)
class Setting:
    """Which model, pairs and start."""

    model: str  # a folder, or a hub's name
    n: int
    batch: int
    longest: int  # tokens of a pair; longer ones are left out
    alpha: float
    dropout: bool
    development: int
    seed: int


class Run(NamedTuple):
    """One fine-tuning: the loss of each batch before its step, what was seen of the development set, the looks."""

    loss: np.ndarray
    labels: np.ndarray  # of each batch
    seen: np.ndarray  # step by (Pearson, mean output, its spread, loss)
    looks: list[dict[str, Any]]


class Regression(NamedTuple):
    """A model with adapters below a head that does not train."""

    module: Any
    head: Any
    bias: float

    @property
    def weights(self) -> list[Any]:
        """What trains."""
        return [weight for weight in self.module.parameters() if weight.requires_grad]

    def outputs(self, module: Any, batch: tuple[dict[str, Any], Any]) -> Any:
        """A number for each pair."""
        return module(**batch[0]).pooler_output @ self.head + self.bias

    def squares(self, module: Any, batch: tuple[dict[str, Any], Any]) -> Any:
        """The mean of (f - y)^2."""
        return ((self.outputs(module, batch) - batch[1]) ** 2).mean()


class Bench:
    """A pre-trained model and encoded pairs, ready to be tuned again and again from the same weights."""

    def __init__(self, asked: Setting):
        self.asked = asked
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        transformers = importlib.import_module("transformers")
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        try:
            self.tokens = transformers.AutoTokenizer.from_pretrained(asked.model)
            self.model = transformers.AutoModel.from_pretrained(asked.model).float()
        except (OSError, ValueError, KeyError):
            raise InputError(
                f"model = {asked.model!r} is not allowed: it is neither a folder with a pre-trained model nor one that "
                "a hub gives; --set model=FOLDER names a folder with its config.json, tokenizer and weights."
            ) from None
        if not hasattr(self.model, "pooler") or not hasattr(self.model, "encoder"):
            raise InputError(f"model = {asked.model!r} is not allowed: it must be a BERT with a pooler.")
        self.train = self._encoded("train", asked.n)
        self.development = self._encoded("dev", asked.development)
        self.mean = float(np.mean([score for _, score in self.train]))

    def _encoded(self, part: str, count: int) -> list[tuple[Any, float]]:
        """That many pairs of at most so many tokens, drawn by the seed."""
        told = sets.pairs(part)
        order = np.random.default_rng(self.asked.seed).permutation(len(told))
        found = []
        for i in order:
            given = self.tokens(told.first[i], told.second[i])
            if len(given["input_ids"]) <= self.asked.longest:
                found.append((given, float(told.scores[i])))
            if len(found) == count:
                return found
        raise InputError(f"only {len(found)} pairs of STS-B have at most {self.asked.longest} tokens, not {count}.")

    def collated(self, chosen: Sequence[tuple[Any, float]]) -> tuple[dict[str, Any], Any]:
        """A batch, padded to its longest pair."""
        given = self.tokens.pad([dict(one) for one, _ in chosen], return_tensors="pt")
        labels = torch.tensor([score for _, score in chosen])
        return {name: part.to(self.device) for name, part in given.items()}, labels.to(self.device)

    def adapted(self, rank: int, bias: float) -> Any:
        """A copy of the model with fresh adapters, and a head."""
        peft = importlib.import_module("peft")
        torch.manual_seed(self.asked.seed)
        kind = peft.LoraConfig(r=rank, lora_alpha=rank, target_modules=_ADAPTED, lora_dropout=0.0)
        tuned = peft.get_peft_model(copy.deepcopy(self.model), kind).to(self.device)
        draw = torch.Generator().manual_seed(self.asked.seed)
        head = 0.02 * torch.randn(self.model.config.hidden_size, generator=draw)
        for name, weight in tuned.named_parameters():
            if "lora_" in name:
                weight.data = (self.asked.alpha * torch.randn(weight.shape, generator=draw)).to(self.device)
        return Regression(tuned, head.to(self.device), bias)

    def tune(
        self,
        progress: Callable[[int], None],
        *,
        steps: int,
        rank: int,
        lr: float,
        bias: float = 0.0,
        fixed: bool = False,
        checks: Sequence[int] = (),
        looks: Sequence[int] = (),
    ) -> Run:
        """Steps of AdamW on shuffled batches, or on one fixed batch without dropout, where nothing is sampled."""
        asked = self.asked
        tuned = self.adapted(rank, bias)
        adam = torch.optim.AdamW(tuned.weights, lr=lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0)
        order = np.random.default_rng(asked.seed + 1)
        first = self.collated(self.train[: asked.batch])
        probe = Probe(tuned.module, tuned.squares, first, optimiser=adam, every=2, tol=1e-3) if looks else None
        losses, labels, seen, queue = [], [], [], list[int]()
        for step in range(steps + 1):
            if probe is not None and step in looks:
                probe.look(step)
            if step in checks:
                seen.append(self._checked(tuned))
            if step == steps:
                break
            if len(queue) < asked.batch:
                queue = order.permutation(asked.n).tolist()
            chosen, queue = queue[: asked.batch], queue[asked.batch :]
            batch = first if fixed else self.collated([self.train[i] for i in chosen])
            tuned.module.train(asked.dropout and not fixed)
            adam.zero_grad()
            loss = tuned.squares(tuned.module, batch)
            loss.backward()
            adam.step()
            losses.append(float(loss.detach()))
            labels.append(batch[1].cpu().numpy())
            progress(step + 1)
        lines = [] if probe is None else probe.record.looks
        return Run(np.array(losses), np.array(labels), np.array(seen), lines)

    def _checked(self, tuned: "Regression") -> list[float]:
        """Pearson's correlation on the development set, mean and spread of the outputs, and the loss there."""
        tuned.module.eval()
        wanted = np.array([score for _, score in self.development])
        with torch.no_grad():
            parts = [self.collated(self.development[i : i + _AT_ONCE]) for i in range(0, len(wanted), _AT_ONCE)]
            given = np.concatenate([tuned.outputs(tuned.module, part).cpu().numpy() for part in parts]).astype(float)
        spread = given.std()
        pearson = np.corrcoef(given, wanted)[0, 1] if spread > 1e-6 * abs(given.mean()) else 0.0
        return [float(pearson), float(given.mean()), float(spread), float(np.mean((given - wanted) ** 2))]
