"""What the probe passes on to other libraries' loggers, from their loops and from one's own."""

import csv
import sys
import types

import pytest
import torch
from torch import nn

import linnet as ln
from linnet.probe import Probe, ProbeCallback
from linnet.probe.loggers import CsvLog, logger

X = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
Y = X[:, :1] * X[:, 1:2]


def loss_of(model, batch):
    return model(**batch)["loss"]


class Model(nn.Module):
    """As a `Trainer` wants it: the loss among what it returns, over all batches of a step where it gets their size."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
        self.passes = []

    def forward(self, x, labels, **loss_kwargs):
        count = loss_kwargs.get("num_items_in_batch") or labels.numel()
        loss = (self.layers(x) - labels).square().sum() / count
        self.passes.append((self.training, x.shape[0]))
        return {"loss": loss}


def trainer_of(folder, model, **options):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=4, per_device_train_batch_size=8, learning_rate=0.01, report_to=[],
        save_strategy="no", use_cpu=True, disable_tqdm=True, seed=3, logging_steps=2, **options,
    )  # fmt: skip
    rows = [{"x": x, "labels": y} for x, y in zip(X, Y, strict=True)]
    return transformers.Trainer(model, arguments, train_dataset=rows)


@pytest.mark.quick(1)
@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("accumulation", [1, 2])
def test_the_trainers_own_loss_lines_and_the_probes_values_are_logged(tmp_path, accumulation):
    options = {"gradient_accumulation_steps": accumulation}
    plain = trainer_of(tmp_path, Model(), **options)
    plain.train()
    model = Model()
    probe = Probe(model, loss_of, {"x": X, "labels": Y}, every=2, folder=tmp_path / "run")
    trainer = trainer_of(tmp_path, model, **options)
    callback = ProbeCallback(probe).attach(trainer)
    assert callback.attach(trainer) is callback
    assert trainer.callback_handler.callbacks.count(callback) == 1
    trainer.train()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.model.parameters(), strict=True))
    history = trainer.state.log_history
    losses = [line for line in history if "loss" in line]
    assert [(line["step"], line["loss"]) for line in losses] == [
        (line["step"], line["loss"]) for line in plain.state.log_history if "loss" in line
    ]
    assert [line["step"] for line in losses] == [2, 4]
    own = [line for line in history if any(name.startswith("linnet/") for name in line)]
    assert own
    assert any("linnet/sharpness" in line and "linnet/c_other" in line for line in own)
    # the losses of steps are the trainer's, whose lines have means of two
    steps = [line["loss"] for line in probe.record.steps]
    assert len(steps) == 4
    assert losses[0]["loss"] == pytest.approx(sum(steps[:2]) / 2, rel=1e-4)
    assert losses[1]["loss"] == pytest.approx(sum(steps[2:]) / 2, rel=1e-4)
    has_own = any("linnet/c_own" in line for line in own)
    assert has_own is (accumulation == 1)
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_in_lightning(monkeypatch):
    """What Lightning calls, in its order; the library itself need not be there."""
    base = types.ModuleType("lightning.pytorch")
    base.Callback = type("Callback", (), {})
    monkeypatch.setitem(sys.modules, "lightning", types.ModuleType("lightning"))
    monkeypatch.setitem(sys.modules, "lightning.pytorch", base)

    for accumulation in (1, 2):
        model, logged = Model(), {}
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        probe = Probe(model, loss_of, {"x": X, "labels": Y}, every=4)
        callback = ProbeCallback(probe)
        assert isinstance(callback, base.Callback)
        trainer = types.SimpleNamespace(optimizers=[optimizer], global_step=7)

        def log(name, value, *, on_step, on_epoch, trainer=trainer, logged=logged):
            logged.setdefault(name, []).append((trainer.global_step, value))

        module = types.SimpleNamespace(log=log)
        callback.on_train_start(trainer, module)
        for number in range(6 * accumulation):
            batch = {"x": X[number::12], "labels": Y[number::12]}
            loss = loss_of(model, batch)
            loss.backward()
            if (number + 1) % accumulation == 0:
                optimizer.step()
                optimizer.zero_grad()
                trainer.global_step += 1
            callback.on_train_batch_end(trainer, module, {"loss": loss.detach()}, batch, number)
        callback.on_train_end(trainer, module)
        assert [line["step"] for line in probe.record.steps] == list(range(8, 14))
        assert {"linnet/sharpness", "linnet/c_other"} <= set(logged)
        assert ("linnet/c_own" in logged) is (accumulation == 1)
        measured = [(line["step"], line["sharpness"][0]) for line in probe.record.measurements]
        assert logged["linnet/sharpness"] == measured
        assert len(measured) < 6


# Loggers -------------------------------------------------------------------------------------------------------------


def test_a_logger_gets_values_in_the_way_that_it_takes_them():
    seen = []

    class Writer:
        def add_scalar(self, name, value, step):
            seen.append((name, value, step))

    def with_step(values, step=None):
        seen.append((values, step))

    def numbered(values, step=None):
        seen.append(values)

    numbered.__module__ = "wandb.sdk.wandb_run"
    for log in (Writer(), with_step, numbered, seen.append):
        logger(log)({"linnet/anchor": 0.5}, 3)
    assert seen == [
        ("linnet/anchor", 0.5, 3),
        ({"linnet/anchor": 0.5}, 3),
        {"linnet/anchor": 0.5, "linnet/step": 3.0},
        {"linnet/anchor": 0.5, "linnet/step": 3.0},
    ]
    with pytest.raises(ln.InputError, match="log = 3 is not allowed: give a function of a dictionary"):
        logger(3)


def test_a_csv_file_is_continued(tmp_path):
    place = tmp_path / "deep" / "values.csv"
    for step in (1, 2):
        logger(CsvLog(place))({"linnet/anchor": 0.5 / step, "linnet/flip": -1.0}, step)
    with place.open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["step", "name", "value"],
        ["1", "linnet/anchor", "0.5"], ["1", "linnet/flip", "-1.0"],
        ["2", "linnet/anchor", "0.25"], ["2", "linnet/flip", "-1.0"],
    ]  # fmt: skip


def test_the_probe_logs_each_measurement(tmp_path):
    model, seen = Model(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batch = {"x": X, "labels": Y}
    log = types.SimpleNamespace(add_scalar=lambda *scalar: seen.append(scalar))
    with Probe(model, loss_of, batch, optimizer=optimizer, every=5, log=log) as probe:
        for _ in range(12):
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            optimizer.step()
            probe.step(loss, batch=batch)
    measured = {line["step"]: line["sharpness"][0] for line in probe.record.measurements}
    assert [line["step"] for line in probe.record.steps] == list(range(12))
    logged = [(step, value) for name, value, step in seen if name == "linnet/sharpness"]
    assert logged == list(measured.items())
    assert len(logged) < 12


def test_a_logger_that_fails_ends_logging_and_not_the_training():
    def broken(values, step):
        raise ConnectionError("no network")

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batch = {"x": X, "labels": Y}
    probe = Probe(model, loss_of, batch, optimizer=optimizer, every=2, log=broken)

    def train():
        for step in range(6):
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
            probe.update(step)

    with pytest.warns(ln.probe.ProbeWarning, match="log is not called again: ConnectionError: no network") as heard:
        train()
    assert len(heard) == 1
    assert len(probe.record.measurements) > 2
