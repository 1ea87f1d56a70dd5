"""Fine-tuning a pre-trained BERT by low-rank adapters, on pairs of sentences with a score, measured by the probe.

W = W_0 + B A on all matrices of attention and of the feed-forward layers, trained by AdamW. Initially all entries of A
and B are alpha N(0, 1), or those of A are N(0, 1) and B is zero. A regression head N(0, 0.02^2) on the first token's
pooled output is frozen, or trained from there.
"""

import copy
import dataclasses
import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from linnet import data as sets
from linnet._input import InputError
from linnet.probe.probe import Probe

_ADAPTED = r".*encoder\.layer\..*\.(query|key|value|dense)"
_AT_ONCE = 100  # pairs of the development set


@dataclasses.dataclass(frozen=True)
class FineTuningSetting:
    """The model, the pairs, and the initialization."""

    model: str  # a folder, or a hub's name
    n: int
    batch: int
    longest: int  # tokens of a pair; longer ones are excluded
    alpha: float
    last_zero: bool  # the first factor N(0, 1) and the last 0, in place of alpha N(0, 1) for both
    dropout: bool
    development: int
    seed: int


class Run(NamedTuple):
    """One fine-tuning: the loss of each batch before its step, the scores on the development set, the measurements."""

    loss: np.ndarray
    labels: np.ndarray  # of each batch
    scores: np.ndarray  # step by (Pearson, mean output, its spread, loss)
    measurements: list[dict[str, Any]]


class AdapterRegression(NamedTuple):
    """A model with adapters below a linear head."""

    module: Any
    head: Any
    bias: Any

    @property
    def weights(self) -> list[Any]:
        """The trainable parameters."""
        return [weight for weight in (*self.module.parameters(), self.head, self.bias) if weight.requires_grad]

    def outputs(self, module: Any, batch: tuple[dict[str, Any], Any]) -> Any:
        """One output for each pair."""
        return module(**batch[0]).pooler_output @ self.head + self.bias

    def squares(self, module: Any, batch: tuple[dict[str, Any], Any]) -> Any:
        """The mean of (f - y)^2."""
        return ((self.outputs(module, batch) - batch[1]) ** 2).mean()


class FineTuning:
    """A pre-trained model and encoded pairs, for repeated fine-tuning from the same weights."""

    def __init__(self, setting: FineTuningSetting):
        self.setting = setting
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        transformers = importlib.import_module("transformers")
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        try:
            self.tokens = transformers.AutoTokenizer.from_pretrained(setting.model)
            self.model = transformers.AutoModel.from_pretrained(setting.model).float()
        except (OSError, ValueError, KeyError):
            raise InputError(
                f"model = {setting.model!r} is not allowed: it is neither a folder with a pre-trained model nor a "
                "hub's model; --set model=FOLDER names a folder with its config.json, tokenizer and weights."
            ) from None
        if not hasattr(self.model, "pooler") or not hasattr(self.model, "encoder"):
            raise InputError(f"model = {setting.model!r} is not allowed: it must be a BERT with a pooler.")
        self.train = self._encoded("train", setting.n)
        self.development = self._encoded("dev", setting.development)
        self.mean = float(np.mean([score for _, score in self.train]))

    def _encoded(self, part: str, count: int) -> list[tuple[Any, float]]:
        """`count` pairs of at most `longest` tokens, drawn by the seed."""
        pairs = sets.pairs(part)
        order = np.random.default_rng(self.setting.seed).permutation(len(pairs))
        found = []
        for i in order:
            encoded = self.tokens(pairs.first[i], pairs.second[i])
            if len(encoded["input_ids"]) <= self.setting.longest:
                found.append((encoded, float(pairs.scores[i])))
            if len(found) == count:
                return found
        raise InputError(f"only {len(found)} pairs of STS-B have at most {self.setting.longest} tokens, not {count}.")

    def collated(self, chosen: Sequence[tuple[Any, float]]) -> tuple[dict[str, Any], Any]:
        """A batch, padded to its longest pair."""
        encoded = self.tokens.pad([dict(one) for one, _ in chosen], return_tensors="pt")
        labels = torch.tensor([score for _, score in chosen])
        return {name: part.to(self.device) for name, part in encoded.items()}, labels.to(self.device)

    def adapted(self, rank: int, bias: float, train_head: bool) -> Any:
        """A copy of the model with fresh adapters, and a head."""
        peft = importlib.import_module("peft")
        torch.manual_seed(self.setting.seed)
        kind = peft.LoraConfig(r=rank, lora_alpha=rank, target_modules=_ADAPTED, lora_dropout=0.0)
        tuned = peft.get_peft_model(copy.deepcopy(self.model), kind).to(self.device)
        draw = torch.Generator().manual_seed(self.setting.seed)
        head = 0.02 * torch.randn(self.model.config.hidden_size, generator=draw)
        for name, weight in tuned.named_parameters():
            if "lora_" in name:
                scale = float("lora_A" in name) if self.setting.last_zero else self.setting.alpha
                weight.data = (scale * torch.randn(weight.shape, generator=draw)).to(self.device)
        parts = (part.to(self.device).requires_grad_(train_head) for part in (head, torch.tensor(bias)))
        return AdapterRegression(tuned, *parts)

    def fine_tune(
        self,
        progress: Callable[[int], None],
        *,
        steps: int,
        rank: int,
        lr: float,
        bias: float = 0.0,
        train_head: bool = False,
        fixed: bool = False,
        evaluate_at: Sequence[int] = (),
        measure_at: Sequence[int] = (),
    ) -> Run:
        """Steps of AdamW on shuffled batches, or on one fixed batch without dropout, where nothing is sampled."""
        setting = self.setting
        tuned = self.adapted(rank, bias, train_head)
        adam = torch.optim.AdamW(tuned.weights, lr=lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0)
        order = np.random.default_rng(setting.seed + 1)
        first = self.collated(self.train[: setting.batch])
        probe = Probe(tuned.module, tuned.squares, first, optimizer=adam, every=2, tol=1e-3) if measure_at else None
        losses, labels, scores, queue = [], [], [], list[int]()
        for step in range(steps + 1):
            if probe is not None and step in measure_at:
                probe.update(step)
            if step in evaluate_at:
                scores.append(self._evaluated(tuned))
            if step == steps:
                break
            if len(queue) < setting.batch:
                queue = order.permutation(setting.n).tolist()
            chosen, queue = queue[: setting.batch], queue[setting.batch :]
            batch = first if fixed else self.collated([self.train[i] for i in chosen])
            tuned.module.train(setting.dropout and not fixed)
            adam.zero_grad()
            loss = tuned.squares(tuned.module, batch)
            loss.backward()
            adam.step()
            losses.append(float(loss.detach()))
            labels.append(batch[1].cpu().numpy())
            progress(step + 1)
        lines = [] if probe is None else probe.record.measurements
        return Run(np.array(losses), np.array(labels), np.array(scores), lines)

    def _evaluated(self, tuned: "AdapterRegression") -> list[float]:
        """Pearson's correlation on the development set, mean and spread of the outputs, and the loss there."""
        tuned.module.eval()
        labels = np.array([score for _, score in self.development])
        with torch.no_grad():
            parts = [self.collated(self.development[i : i + _AT_ONCE]) for i in range(0, len(labels), _AT_ONCE)]
            outputs = np.concatenate([tuned.outputs(tuned.module, part).cpu().numpy() for part in parts]).astype(float)
        spread = outputs.std()
        pearson = np.corrcoef(outputs, labels)[0, 1] if spread > 1e-6 * abs(outputs.mean()) else 0.0
        return [float(pearson), float(outputs.mean()), float(spread), float(np.mean((outputs - labels) ** 2))]
