"""What a probe notices within its default budget: broken trainings of short steps, and measurements until the end."""

import itertools
import math

import pytest
import torch
from torch import nn

from linnet.probe import Probe
from linnet.probe.outlets import Transfer

OPTIMIZERS = {
    "sgd": lambda w: torch.optim.SGD(w, 0.05, momentum=0.9),
    "adamw": lambda w: torch.optim.AdamW(w, 1e-3),
}


class Clock:
    """Time that passes by events alone: a training step takes 1 ms, a forward pass of the probe 0.3."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(Probe, "_clocks", (found, found))
    return found


def cross_entropy(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def train(clock, kind, optimizer, *, steps=400, at=200, seen=None, **options):
    """A training in which something goes wrong at step `at`, or from the beginning."""
    torch.manual_seed(0)
    draw = torch.Generator().manual_seed(5)
    mix = torch.randn(20, 5, generator=draw)
    x = torch.randn(2048, 20, generator=draw)
    y = (x @ mix + torch.randn(2048, 5, generator=draw)).argmax(1)
    if kind == "shuffled labels":
        y = y[torch.randperm(2048, generator=draw)]
    layers = nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5)
    model = nn.Sequential(*layers)
    if kind == "dead units":
        with torch.no_grad():
            model[2].bias.fill_(-100.0)
    made = OPTIMIZERS[optimizer](model.parameters())
    lr = made.param_groups[0]["lr"]

    def loss_fn(model, batch):
        clock.now += 3e-4
        return cross_entropy(model, batch)

    probe = Probe(model, loss_fn, (x[:256], y[:256]), optimizer=made, **options)
    for step in range(steps):
        rows = 256 + torch.randint(1792, (32,), generator=draw)
        a, b = x[rows], y[rows]
        made.param_groups[0]["lr"] = lr * (100 if kind == "learning rate" and at <= step < at + 5 else 1)
        if kind == "corrupted batch" and step == at:
            a = 20 * a + 10 * torch.randn(a.shape, generator=draw)
            b = b[torch.randperm(32, generator=draw)]
        if kind != "no zero_grad":
            made.zero_grad()
        loss = cross_entropy(model, (a, b)) * (math.inf if kind == "overflow" and step == at else 1.0)
        loss.backward()
        if kind != "no step":
            made.step()
        clock.now += 1e-3
        probe.update(step, loss, batch=(a, b))
        if seen is not None:
            seen(probe, step)
    return probe


FIRST = {
    "healthy": "Healthy: the loss has fallen from 1.5",
    "learning rate": "the loss rose to {} times its median. Cause: the learning rate. The weights were worse before",
    "corrupted batch": "the loss rose to {} times its median. Cause: this batch. The weights were good before it",
    "overflow": "Not finite: the loss at step 209 is NaN or infinite.",
    "dead units": "Dead units: 100% of the units of 0.weight got a gradient of exactly 0 at step ",
    "shuffled labels": "Not learning what holds for other samples: the loss has fallen from 1.5",
    "no step": "No progress: the optimizer has made no step since step 160",
    "no zero_grad": "Gradients add up over all steps: at step 10 the optimizer took the new gradient plus that of the",
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", FIRST)
def test_the_first_sentence_on_a_broken_training_is_true(clock, kind, optimizer):
    probe = train(clock, kind, optimizer, steps=210)
    first = probe.verdict()[0]
    before, found, after = FIRST[kind].partition("{}")
    assert before in first
    assert after in first
    if found:
        assert first.startswith("Alarm at step 20")
    assert probe.record.statuses  # though it was not closed
    expected = {
        "dead units": "dead_units", "shuffled labels": "not_learning", "no step": "no_progress", "healthy": "healthy",
        "overflow": "non_finite",
    }  # fmt: skip
    if kind in expected:
        assert probe.record.statuses[-1]["status"] == expected[kind]


@pytest.mark.parametrize("schedule", [False, True])
def test_every_loss_is_read(clock, schedule):
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 500)
    batch = torch.randn(64, 4), torch.randn(64, 1)

    def mse(model, batch):
        clock.now += 1e-4
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    probe = Probe(model, mse, batch, optimizer=optimizer)
    for step in range(500):
        optimizer.zero_grad()
        loss = mse(model, batch)
        loss.backward()
        optimizer.step()
        if schedule:
            rates.step()
        probe.update(step, loss, batch=batch)
        if step % 50 == 7:
            probe.values()
    assert [line["step"] for line in probe.record.steps] == list(range(500))
    assert probe.verdict()


def test_gradients_are_compared_early_and_with_each_anchor(clock):
    probe = train(clock, "healthy", "sgd", steps=300)
    steps = [line["step"] for line in probe.record.checks if "passes" in line]
    assert {10, 100} <= set(steps)
    assert set(steps) >= {line["step"] + 1 for line in probe.record.anchors if line["step"] < 299}


@pytest.mark.slow
def test_measurements_until_the_end_of_a_run_of_short_steps(clock):
    probe = train(clock, "healthy", "adamw", steps=8000)
    record = probe.record
    for lines, gap in ((record.anchors, 400), (record.forwards, 2000)):
        steps = [0, *(line["step"] for line in lines), 8000]
        assert max(b - a for a, b in itertools.pairwise(steps)) <= gap
    spent = sum(line["seconds"] for line in record.lines if "seconds" in line)
    assert spent <= 0.03 * 8 + 5e-3


def test_losses_on_an_accelerator_are_read_together_and_none_is_left_out(clock, monkeypatch):
    """As on an accelerator, by tensors that stay where they are until several are transferred."""
    monkeypatch.setattr(Probe, "_on_host", False)
    monkeypatch.setattr("linnet.probe.probe._loss", lambda loss: loss.detach().clone())
    monkeypatch.setattr("linnet.probe.probe._LATE", 100.0)
    transfers = []
    made = Transfer.__init__

    def counted(self, lines):
        transfers.append(len(lines))
        made(self, lines)

    monkeypatch.setattr(Transfer, "__init__", counted)
    probe = train(clock, "corrupted batch", "sgd", steps=300)
    assert [line["step"] for line in probe.record.steps] == list(range(300))
    assert max(transfers) >= 8
    (alarm,) = probe.record.alarms
    assert alarm["step"] == 200
    assert alarm["cause"] in (None, "bad_batch")  # the weights before it are gone: what is not known is not told


# Several optimizers ---------------------------------------------------------------------------------------------------


def several(clock, kinds, *, idle=False, bad=None, steps=320):
    torch.manual_seed(0)
    draw = torch.Generator().manual_seed(0)
    mix, x = torch.randn(20, 5, generator=draw), torch.randn(5256, 20, generator=draw)
    y = (x @ mix + 2 * torch.randn(5256, 5, generator=draw)).argmax(1)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5))
    made = [kind(part.parameters()) for kind, part in zip(kinds, (model[0], model[2]), strict=True)]

    def loss_fn(model, batch):
        clock.now += 3e-4
        return cross_entropy(model, batch)

    probe = Probe(model, loss_fn, (x[5000:], y[5000:]), optimizer=made)
    for step in range(steps):
        rows = torch.randint(5000, (32,), generator=draw)
        batch = x[rows], y[rows]
        if step == bad:
            batch = 30 * x[rows], y[rows][torch.randperm(32, generator=draw)]
        for one in made:
            one.zero_grad()
        loss = cross_entropy(model, batch)
        loss.backward()
        for one in made[: 1 if idle else 2]:
            one.step()
        clock.now += 1e-3
        probe.update(step, loss, batch=batch)
    return probe


def sgd(weights):
    return torch.optim.SGD(weights, 0.1)


def adamw(weights):
    return torch.optim.AdamW(weights, 3e-3)


def test_an_optimizer_of_several_that_never_steps_is_noticed(clock):
    first = several(clock, (sgd, adamw), idle=True, steps=60).verdict()[0]
    assert first == "No progress: AdamW, number 2 of the optimizers, has made no step until step 59."
    assert several(clock, (sgd, adamw), steps=60).verdict()[0].startswith("Healthy")


def test_the_cause_of_an_alarm_with_several_optimizers(clock):
    """The steps of both are reversed; where that is not possible the cause is unknown or the true one."""
    (alarm,) = several(clock, (sgd, adamw), bad=300).record.alarms
    assert (alarm["step"], alarm["cause"]) == (300, "bad_batch")
    (alarm,) = several(clock, (sgd, lambda w: torch.optim.RMSprop(w, 3e-3)), bad=300).record.alarms
    assert alarm["cause"] in (None, "bad_batch")
