"""The probe in company: other people's loops, event files, the terminal, pictures and pages."""

import io
import sys

import pytest
import torch
from torch import nn

import linnet as ln
from linnet.probe import Probe, ProbeCallback

X = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
Y = X[:, :1].clone()


def mse(model, batch):
    return nn.functional.mse_loss(model(batch["x"])["logits"], batch["labels"])


class Model(nn.Module):
    """As a `Trainer` wants it: the loss among what it returns."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))

    def forward(self, x, labels=None):
        logits = self.layers(x)
        loss = None if labels is None else nn.functional.mse_loss(logits, labels)
        return {"loss": loss, "logits": logits} if loss is not None else {"logits": logits}


@pytest.mark.filterwarnings("ignore")  # of the libraries
def test_in_the_trainer_of_hugging_face(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    def trained(*callbacks):
        model = Model()
        told = [make(model) for make in callbacks]
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path), max_steps=12, per_device_train_batch_size=8, gradient_accumulation_steps=2,
            learning_rate=0.01, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True, seed=3,
        )  # fmt: skip
        rows = [{"x": x, "labels": y} for x, y in zip(X, Y, strict=True)]
        transformers.Trainer(model, arguments, train_dataset=rows, callbacks=told).train()
        return model

    probes = []

    def probe(model):
        probes.append(Probe(model, mse, {"x": X, "labels": Y}, every=5, folder=tmp_path / "run"))
        return ProbeCallback(probes[0])

    watched, plain = trained(probe), trained()
    assert all(torch.equal(a, b) for a, b in zip(watched.parameters(), plain.parameters(), strict=True))
    record = probes[0].record
    assert [line["step"] for line in record.steps] == list(range(1, 13))
    assert [measurement["step"] for measurement in record.measurements] == [1, 2, 6, 7, 11, 12]
    assert 0 == record.measurements[-1]["lr"] < record.measurements[0]["lr"] <= 0.01  # as its schedule has it
    (curvature,) = [sentence for sentence in probes[0].verdict() if sentence.startswith("Curvature")]
    assert "(step 11, 1 step ago)" in curvature  # at step 12 the lr is 0
    assert "preconditioned sharpness" in curvature
    assert "Too early to judge: the preconditioner averages over 1000 steps" in curvature
    assert "adaptive" in record.measurements[-2]  # AdamW's
    assert ln.probe.read(tmp_path / "run").lines == record.lines


def test_libraries_that_are_not_there_are_one_sentence(monkeypatch):
    for name in ("transformers", "lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ln.InputError, match="neither transformers nor lightning is installed: pip install one of them"):
        ProbeCallback(Probe(Model(), mse, {"x": X, "labels": Y}))


def run(steps=25, **options):
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    probe = Probe(model, mse, {"x": X, "labels": Y}, optimizer=optimizer, every=10, **options)
    for step in range(steps):
        loss = model(X, Y)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        probe.update(step, loss)
    probe.close()
    return probe


@pytest.mark.filterwarnings("ignore")  # of the libraries
def test_event_files(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    probe = run(tensorboard=tmp_path)
    events = EventAccumulator(str(tmp_path)).Reload()
    losses = events.Scalars("probe/loss")
    assert [event.step for event in losses] == list(range(25))
    sharpness = [event.value for event in events.Scalars("probe/sharpness")]
    assert sharpness == pytest.approx([measurement["sharpness"][0] for measurement in probe.record.measurements])
    assert {"probe/flip", "probe/ratio", "probe/lowest"} <= set(events.Tags()["scalars"])


def test_a_live_line(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    run(live=True)
    assert screen.getvalue() == ""  # no terminal
    screen.isatty = lambda: True
    monkeypatch.setenv("COLUMNS", "130")
    monkeypatch.setenv("TERM", "xterm")
    run(live=True)
    last = screen.getvalue().split("\r")[-2]
    assert last.startswith("step 24 · unknown · loss ")
    assert "of the edge" in last
    assert all(len(line) < 130 for line in screen.getvalue().split("\r"))
    assert screen.getvalue().endswith("\n")


def test_words_pictures_and_pages(tmp_path):
    probe = run()
    assert str(probe).splitlines() == probe.verdict()
    assert probe.verdict()[0].startswith("Unknown: the loss was 0.3 and is 0.0264 after 25 steps.")
    assert probe._repr_html_().startswith("<p>Unknown: the loss")
    titles = [axes.get_title() for axes in probe.plot().axes]
    assert titles == [
        "loss",
        "curvature",
        "cosine of a step with the one before",
        "largest singular value of each layer",
    ]
    page = probe.report(tmp_path / "new")
    assert page == tmp_path / "new" / "index.html"
    assert "Curvature below its threshold" in page.read_text(encoding="utf-8")


def test_only_the_first_of_many_processes_looks(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    probe = run(folder=tmp_path / "run")
    assert not probe.record.measurements
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    assert run(folder=tmp_path / "run").record.measurements
