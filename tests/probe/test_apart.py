"""A training notices nothing of its probe: weights, gradients, buffers, generators, modes are the same to the bit."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn

from linnet.probe import Probe

STEPS, EVERY = 200, 23


class Tied(nn.Module):
    """Encoder and decoder share a matrix; some of it is frozen, some in evaluation mode for ever."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3)
        self.still = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.BatchNorm1d(8))
        self.last = nn.Linear(8, 6, bias=False)
        self.last.weight = nn.Parameter(self.first.weight.detach().T.clone())
        self.again = nn.Linear(8, 6, bias=False)
        self.again.weight = self.last.weight
        for weight in self.still.parameters():
            weight.requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        self.still.eval()
        return self

    def forward(self, x):
        hidden = self.drop(torch.tanh(self.norm(self.first(x))))
        return self.last(hidden) + self.again(self.still(hidden))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.1, batch_first=True)

    def forward(self, x):
        return self.layer(x[:, None, :].expand(-1, 3, -1))[:, 0]


MODELS = {
    "plain": lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6)),
    "dropout": lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.4), nn.Linear(8, 6)),
    "norm": lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 6)),
    "tied": Tied,
    "attention": Attention,
    "spectral": lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 8)), nn.Linear(8, 6)),
}
OPTIMIZERS = {
    "sgd": lambda w: torch.optim.SGD(w, 0.1),
    "momentum": lambda w: torch.optim.SGD(w, 0.05, momentum=0.9),
    "adam": lambda w: torch.optim.Adam(w, 0.01),
}


def loss_of(model, batch):
    drawn = random.random() + np.random.rand()  # noqa: NPY002  as losses of users may
    return nn.functional.mse_loss(model(batch[0]).float(), batch[1].float()) + 0 * drawn


def train(
    kind, optimizer, *, probed, dtype=torch.float32, autocast=False, parts=1, frozen=False, device="cpu", **options
):
    """A training from fixed seeds: everything that it leaves behind."""
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    model = MODELS[kind]().to(device, dtype).train()
    if frozen:
        next(model.parameters()).requires_grad_(False)
    step_by = OPTIMIZERS[optimizer]([w for w in model.parameters() if w.requires_grad])
    batch = (torch.randn(16, 6).to(device, dtype), torch.randn(16, 6).to(device, dtype))
    kept, given = [part.clone() for part in batch], {"every": EVERY} | options
    probe = Probe(model, loss_of, batch, optimizer=step_by, **given) if probed else None
    losses, modes = [], []
    for step in range(STEPS):
        step_by.zero_grad()
        for _ in range(parts):  # gradients are accumulated over several batches, with measurements between them
            noisy = (batch[0] + 0.1 * torch.randn_like(batch[0]), batch[1])
            with torch.autocast(device, torch.bfloat16, enabled=autocast):
                loss = loss_of(model, noisy) / parts
                if probe is not None and parts > 1:
                    probe.update(step, loss)
            loss.backward()
        step_by.step()
        if probe is not None:
            probe.update(step, loss, batch=noisy)
        losses.append(float(loss.detach()))
        modes.append([module.training for module in model.modules()])
    if probe is not None:
        assert not given["every"] or len(probe.record.measurements) >= 2 * (STEPS // EVERY)
        assert probe.record.forwards
        assert probe.record.anchors
        assert [torch.equal(a, b) for a, b in zip(batch, kept, strict=True)] == [True, True]
    return {
        "losses": losses,
        "modes": modes,
        "state": copy.deepcopy(model.state_dict()),
        "gradients": [None if w.grad is None else w.grad.clone() for w in model.parameters()],
        "leaves": [(w.requires_grad, w.is_leaf, w.dtype) for w in model.parameters()],
        "optimizer": copy.deepcopy(step_by.state_dict()),
        "generator": torch.get_rng_state(),
        "device": torch.cuda.get_rng_state() if device == "cuda" else None,
        "others": (random.getstate(), np.random.get_state()[1].tolist()),  # noqa: NPY002
        "default": (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_default_dtype()),
    }


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def both(kind, optimizer, **options):
    known = ("dtype", "autocast", "parts", "frozen", "device")
    training = {name: options.pop(name) for name in known if name in options}
    without = train(kind, optimizer, probed=False, **training)
    probed = train(kind, optimizer, probed=True, **training, **options)
    return without, probed


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    ("kind", "optimizer"),
    [
        *((kind, "adam") for kind in MODELS),
        *((kind, rule) for kind in ("plain", "tied") for rule in ("sgd", "momentum")),
    ],
)
def test_the_training_is_the_same_to_the_bit(kind, optimizer):
    without, probed = both(kind, optimizer)
    for name in without:
        assert same(without[name], probed[name]), name


@pytest.mark.quick(5)
@pytest.mark.parametrize("kind", ["dropout", "tied"])
@pytest.mark.parametrize(
    "options",
    [
        {"autocast": True},
        {"parts": 3},
        {"frozen": True},
        {"dtype": torch.bfloat16},
        {"dtype": torch.float64},
        {"training": True},
        {"autocast": True, "parts": 2, "training": True},
    ],
    ids=lambda options: "-".join(options) + str(options.get("dtype", "")),
)
def test_so_it_is_in_other_ways_to_train(kind, options):
    without, probed = both(kind, "adam", **options)
    for name in without:
        assert same(without[name], probed[name]), name


@pytest.mark.parametrize("kind", ["tied", "norm"])
def test_so_it_is_within_a_budget(kind):
    without, probed = both(kind, "momentum", every=None, budget=1.0)
    for name in without:
        assert same(without[name], probed[name]), name


def test_the_comparison_can_fail():
    """A look that leaves anything behind would be seen."""
    without, probed = both("tied", "sgd")
    for spoil in (
        lambda found: found["state"]["norm.running_mean"].add_(1e-7),
        lambda found: found["gradients"][0].add_(1e-9),
        lambda found: found["generator"].bitwise_xor_(1),
        lambda found: found["modes"][-1].__setitem__(0, False),
    ):
        spoilt = copy.deepcopy(probed)
        spoil(spoilt)
        assert not all(same(without[name], spoilt[name]) for name in without)


def test_looks_see_the_model_in_the_mode_that_was_asked_for():
    seen = []

    def loss(model, batch):
        seen.append((model.training, model.still.training))
        return model(batch).square().mean()

    model = Tied().train()
    Probe(model, loss, torch.randn(5, 6), every=2).update(0)
    Probe(model, loss, torch.randn(5, 6), training=True, every=2).update(0)
    modes = [(False, False), (True, False)]
    assert [mode for mode, before in zip(seen, [None, *seen], strict=False) if mode != before] == modes


def test_dropout_is_the_same_at_all_looks():
    torch.manual_seed(0)
    model = MODELS["dropout"]()
    probe = Probe(model, loss_of, (torch.randn(9, 6), torch.randn(9, 6)), every=2, training=True, tol=1e-4)
    for step in range(4):
        torch.rand(3)  # the training draws on
        probe.update(step)
    measurements = probe.record.measurements
    assert len({measurement["batch_loss"] for measurement in measurements}) == 1
    assert all(
        measurement["sharpness"][0] == pytest.approx(measurements[0]["sharpness"][0], rel=1e-5)
        for measurement in measurements
    )


def test_a_bfloat16_model_is_seen_in_single_precision():
    torch.manual_seed(1)
    model = MODELS["plain"]().bfloat16()
    twin = copy.deepcopy(model).float()
    batch = (torch.randn(9, 6).bfloat16(), torch.randn(9, 6).bfloat16())
    seen = []
    for one in (model, twin):
        probe = Probe(one, loss_of, batch, every=2)
        probe.update(0)
        seen.append(probe.record.measurements[0])
    assert seen[0]["sharpness"] == seen[1]["sharpness"]
    assert seen[0]["batch_loss"] == seen[1]["batch_loss"]


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda model: torch.compile(model, backend="eager")])
def test_parallel_and_compiled_models_are_seen_through(wrap):
    torch.manual_seed(1)
    model, batch = MODELS["plain"](), (torch.randn(9, 6), torch.randn(9, 6))
    seen = []
    for one in (model, wrap(model)):
        probe = Probe(one, loss_of, batch, every=2)
        probe.update(0)
        seen.append(probe.record.measurements[0]["sharpness"])
    assert seen[0] == seen[1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that PyTorch knows")
@pytest.mark.parametrize("kind", ["plain", "dropout", "norm", "tied", "attention"])
@pytest.mark.parametrize("options", [{}, {"dtype": torch.bfloat16}, {"autocast": True}], ids=["single", "half", "auto"])
def test_on_a_gpu_too(kind, options):
    without, probed = both(kind, "adam", device="cuda", **options)
    assert same(without, probed)
