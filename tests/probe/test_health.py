"""What is said of broken trainings: the first sentence is true, and stands in the record."""

import math
import random
import re

import pytest
import torch
from torch import nn

from linnet.probe import Probe, ProbeRecord, read
from linnet.probe.health import HealthStatus, assess
from linnet.probe.summary import verdict

STEPS = 260


def cross_entropy(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def samples(n, seed):
    """Four classes by the sign of two inputs."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=draw)
    return x, (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 4))


def train(kind, folder=None, steps=STEPS, at=200, **options):
    """A training of a small network that something goes wrong with from step `at` on, or from the beginning."""
    model = network()
    if kind == "dead_units":
        with torch.no_grad():
            model[0].bias.fill_(-100.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    given = {"every": 20, "optimizer": optimizer} | options
    probe = Probe(model, cross_entropy, samples(256, 1), folder=folder, **given)
    for step in range(steps):
        x, y = samples(32, 1000 + step)
        if kind == "shuffled":
            y = y[torch.randperm(32, generator=torch.Generator().manual_seed(step))]
        if kind == "bad_batch" and step == at:
            x, y = 40 * x, 3 - y
        if kind == "overflow" and step == at:
            x = x * math.inf
        lr = 0.1 * (100 if kind == "lr" and at <= step < at + 5 else 1)
        optimizer.param_groups[0]["lr"] = lr
        if kind != "no_zero_grad":
            optimizer.zero_grad()
        loss = cross_entropy(model, (x, y))
        loss.backward()
        if kind != "no_step":
            optimizer.step()
        probe.update(step, loss, batch=(x, y))
    probe.close()
    return probe


def test_a_healthy_training_is_healthy():
    probe = train("healthy")
    assert probe.record.alarms == []
    assert probe.verdict()[0].startswith("Healthy: the loss has fallen from 1.")
    assert [line["status"] for line in probe.record.statuses] == ["unknown", "healthy"]


def test_a_learning_rate_that_jumps(tmp_path):
    probe = train("lr", tmp_path / "run", steps=215)
    (alarm,) = probe.record.alarms
    assert alarm["cause"] == "learning_rate"
    assert 200 <= alarm["step"] <= 205
    first = probe.verdict()[0]
    assert first.startswith(("Diverging: the loss is", "Alarm at step 20", "Not finite"))
    assert any("Cause: the learning rate." in sentence for sentence in probe.verdict()[:3])
    assert read(tmp_path / "run").alarms == [alarm]  # a saved run says it later
    assert read(tmp_path / "run").statuses == probe.record.statuses


def test_a_corrupted_batch():
    probe = train("bad_batch", steps=210)
    (alarm,) = probe.record.alarms
    assert (alarm["step"], alarm["trigger"], alarm["cause"]) == (200, "loss", "bad_batch")
    assert "Cause: this batch." in probe.verdict()[0] or probe.verdict()[0].startswith("Diverging")
    assert any("Cause: this batch." in sentence for sentence in probe.verdict()[:3])


def test_an_overflow():
    probe = train("overflow")
    assert next((line["step"], line["cause"]) for line in probe.record.alarms) == (200, "precision")
    assert probe.verdict()[0].startswith("Not finite: the loss at step 259 is NaN or infinite.")
    assert probe.record.statuses[-1]["status"] == "non_finite"


def test_dead_units():
    probe = train("dead_units", steps=100)
    assert probe.verdict()[0].startswith("Dead units: 100% of the units of 0.weight got a gradient of exactly 0")
    assert probe.record.statuses[-1]["status"] == "dead_units"


def test_shuffled_labels_are_not_learned():
    probe = train("shuffled", steps=400)
    assert probe.verdict()[0].startswith("Not learning: the loss began at 1.39")
    assert probe.record.statuses[-1]["status"] == "not_learning"


@pytest.mark.parametrize(
    ("options", "words"),
    [({}, "the optimizer has made no step since step"), ({"optimizer": None, "lr": 0.1}, "the weights have not moved")],
)
def test_no_optimizer_step(options, words):
    probe = train("no_step", steps=60, **options)
    assert probe.verdict()[0].startswith(f"No progress: {words}")
    assert probe.record.statuses[-1]["status"] == "no_progress"
    assert not any("worth a trial" in sentence for sentence in probe.verdict())


def test_gradients_that_are_never_zeroed():
    probe = train("no_zero_grad", steps=60)
    assert probe.verdict()[0].startswith("Gradients add up over all steps: at step")


# What a loop does ----------------------------------------------------------------------------------------------------


def test_clipping_decay_and_accumulation_are_noticed():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, weight_decay=0.01)
    probe = Probe(model, cross_entropy, samples(64, 1), optimizer=optimizer, every=5)
    for step in range(12):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        for part in range(3):
            batch = samples(16, 3 * step + part)
            loss = cross_entropy(model, batch) / 3
            loss.backward()
            if part < 2:
                probe.update(3 * step + part, loss, batch=batch)
        nn.utils.clip_grad_norm_(model.parameters(), 0.02)
        optimizer.step()
        probe.update(3 * step + 2, loss, batch=batch)
    check = [line for line in probe.record.checks if "passes" in line][-1]
    assert (check["passes"], check["kept"], check["weight_decay"]) == (3, False, 0.01)
    assert 0 < check["gradient_scale"] < 0.5
    told = " ".join(probe.verdict())
    assert "Gradients of 3 backward passes make a step." in told
    assert "as clipping does" in told
    assert "Weight decay 0.01 is part of the steps" in told
    assert not [line for line in probe.record.forwards if not line["moved"] > 0]


def test_parts_that_train_later_are_measured_from_then_on():
    model = network()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    probe = Probe(model, cross_entropy, samples(64, 1), optimizer=optimizer, every=10)
    for step in range(60):
        if step == 30:
            model[0].requires_grad_(True)
        optimizer.zero_grad()
        loss = cross_entropy(model, samples(32, step))
        loss.backward()
        optimizer.step()
        probe.update(step, loss)
    assert "2 parameters frozen at first train since step 30" in " ".join(probe.verdict())
    assert len(probe.surface.weights) == 6
    assert [line["step"] for line in probe.record.forwards] == [1, 11, 21, 31, 41, 51]


def test_parameters_in_no_group_of_the_optimizer_are_named():
    """As adapters added after the optimizer was made: without a step of the others their gradients may be 0."""
    model = network()
    nn.init.zeros_(model[4].weight)
    optimizer = torch.optim.SGD(model[4].parameters(), 0.1)
    probe = Probe(model, cross_entropy, samples(256, 1), optimizer=optimizer, every=20)
    for step in range(30):
        optimizer.zero_grad()
        loss = cross_entropy(model, samples(32, step))
        loss.backward()
        optimizer.step()
        probe.update(step, loss)
    told = (
        "4 parameters that require gradients, such as 0.weight, are in no group of the optimizer: what is left out does"
    )
    assert [sentence for sentence in probe.verdict() if sentence.startswith(told)]


# Replayed records ----------------------------------------------------------------------------------------------------


def recorded(losses, *others):
    record = ProbeRecord({"layers": []})
    record.add([{"kind": "step", "step": k, "loss": loss} for k, loss in enumerate(losses)])
    record.add(others)
    return record


def forward(**numbers):
    return {"kind": "forward", "step": 199, "age": 200.0, "parts": 8, "preconditioned": 1.0, **numbers}


@pytest.mark.parametrize(
    ("record", "status"),
    [
        (recorded([]), HealthStatus.UNKNOWN),
        (recorded([1.0, 0.9]), HealthStatus.UNKNOWN),
        (recorded([1 / (1 + k) for k in range(200)]), HealthStatus.HEALTHY),
        (recorded([1 / (1 + k) for k in range(200)] + [None]), HealthStatus.NON_FINITE),
        (recorded([1.0 if k < 150 else 4.0 for k in range(200)]), HealthStatus.DIVERGING),
        (recorded([2.3 + 0.01 * (k % 3) for k in range(400)]), HealthStatus.NOT_LEARNING),
        (
            recorded([2.3 + 0.1 * (k % 3) + 9 * k * math.exp(-k / 3) for k in range(400)]),
            HealthStatus.NOT_LEARNING,
        ),  # rose at once
        (recorded([2.3 / (1 + 0.1 * k) + 9 * k * math.exp(-k / 3) for k in range(400)]), HealthStatus.HEALTHY),
        (recorded([2.3 - 0.001 * k for k in range(400)]), HealthStatus.HEALTHY),  # slowly, but it learns
        (recorded([1 / (1 + k) for k in range(200)], forward(own_low=0.4, own_high=0.44)), HealthStatus.ABOVE_EDGE),
        (
            recorded([1 / (1 + k) for k in range(200)], forward(own_low=0.97, own_high=1.0, flip=-0.99)),
            HealthStatus.AT_EDGE,
        ),
        (
            recorded([1 / (1 + k) for k in range(200)], forward(c_other_low=0.6, c_other_high=1.5)),
            HealthStatus.NOISE_FLOOR,
        ),
        (recorded([1 / (1 + k) for k in range(200)], forward(c_other_low=0.6, c_other_high=2.5)), HealthStatus.HEALTHY),
        (
            recorded([1.0] * 20, {"kind": "check", "step": 9, "dead": 0.95, "dead_layer": "0.weight"}),
            HealthStatus.DEAD_UNITS,
        ),
    ],
)
def test_a_status_follows_from_the_record(record, status):
    found = assess(record)
    assert found.status is status
    assert found.sentence


def advised(losses=200, *, step=199, age=200.0, low=2.9, high=3.3, parts=8, adaptive=1.0, others=()):
    from linnet.probe.advice import advice

    line = forward(c_other=3.0, c_other_low=low, c_other_high=high) | {
        "step": step,
        "age": age,
        "parts": parts,
        "preconditioned": adaptive,
    }
    return advice(recorded([1 / (1 + k) for k in range(losses)], *others, line))


def test_what_is_said_on_a_larger_lr():
    """Only on eight parts, late, long after the lr has grown and after alarms, and never more than twice."""
    (text,) = advised()
    assert "step 199 could have been 2.9 to 3.3 times as long" in text
    assert "Twice the lr is worth a trial" in text
    assert "(60 steps ago)" in advised(260)[0]
    assert advised(adaptive=0.0) == []
    assert advised(low=1.9) == advised(parts=7) == advised(age=99.0) == []
    alarm = {"kind": "alarm", "step": 160, "trigger": "loss", "factor": 2.0, "usual": 0.1, "cause": "bad_batch"}
    assert advised(others=(alarm,)) == []
    assert advised(others=(alarm | {"step": 140},))
    for at, silent in ((160, True), (140, False)):
        lrs = [{"kind": "step", "step": at - 1, "lr": 0.1}, {"kind": "step", "step": at, "lr": 0.2}]
        record = recorded([1 / (1 + k) for k in range(200)], forward(c_other_low=2.9, c_other_high=3.3))
        record.lines = sorted([*record.lines, *lrs], key=lambda line: line["step"])
        from linnet.probe.advice import advice

        assert (advice(record) == []) is silent


# Sentences against their numbers -------------------------------------------------------------------------------------


def drawn(seed):
    """A record of random numbers, such as no training gives."""
    draw = random.Random(seed)
    size, slope, noise = draw.choice([40, 200, 400]), draw.uniform(-0.01, 0.02), draw.choice([0.0, 0.01, 0.3])
    losses = [draw.choice([1.0, 3.0]) * math.exp(-slope * k + draw.gauss(0, noise)) for k in range(size)]
    low, own = (math.exp(draw.gauss(0, 1)) for _ in range(2))
    line = forward(
        own_low=own, own_high=draw.choice([None, own * draw.uniform(1, 1.1)]), flip=draw.uniform(-1, 1), c_other=low,
        c_other_low=low, c_other_high=draw.choice([None, low * draw.uniform(1, 3)]),
        stochastic_edge=draw.uniform(-0.1, 2),
    )  # fmt: skip
    others = [line | {"step": size - 1, "age": float(size)}] * draw.randrange(2)
    if draw.random() < 0.7:
        threshold, ratio = (
            math.exp(draw.gauss(2, 2)),
            draw.choice([draw.uniform(-0.1, 3), 1 + draw.gauss(0, 1e-4), 1.0]),
        )
        measured = {
            "kind": "measurement", "step": size - 1, "lr": 2 / threshold, "threshold": threshold, "ratio": ratio,
            "sharpness": [ratio * threshold], "residual": [0.0], "lowest": -1e-6, "products": 9, "batch_loss": 1.0,
        }  # fmt: skip
        if draw.random() < 0.5:
            measured |= {"adaptive": ratio * threshold, "adaptive_residual": 0.0, "sharpness": [1.0]}
        others.append(measured)
    if draw.random() < 0.3:
        cause = draw.choice([None, "learning_rate", "bad_batch", "data_shift"])
        alarm = {"trigger": "loss", "factor": 2.0, "usual": losses[size // 2] / 2, "cause": cause}
        others.append({"kind": "alarm", "step": size // 2, **alarm})
    return recorded(losses, *others)


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_no_sentence_contradicts_its_numbers(first):
    for seed in range(first, first + 50):
        agree(drawn(seed))


def agree(record):
    state, sentences = assess(record), verdict(record)
    number = r"(-?[\d.]+(?:e[+-]?\d+)?)"
    true = {
        f"^Curvature above its threshold: .*sharpness {number} .* against {number} ": lambda a, b: a >= b,
        f"^Curvature at its threshold: .*sharpness {number} .* against {number} ": lambda a, b: 0.89 * b < a < b,
        f"^Curvature below its threshold: .*sharpness {number} .* against {number} ": lambda a, b: a < 0.91 * b,
        f"^Healthy: the loss has fallen from {number} to {number}\\.$": lambda a, b: a > b,
        f"^Diverging: .* is {number}, {number} times its least, and above the {number} ": lambda a, b, c: (
            a > c and b > 1
        ),
        f"^Diverging: .*, {number} times what it was before": lambda a: a > 1,
        f"^Above the edge: .*; only {number} to {number} of it": lambda a, b: a <= b < 1,
        f"^Above the edge: the curvature is {number} of its threshold": lambda a: a >= 1,
        f"^At the edge since .* is {number} of its threshold": lambda a: a >= 0.9,
        f"^At the edge: .*cosine {number}\\)": lambda a: a <= -0.9,
        f"^Noise floor: .* {number} to {number} of the step at": lambda a, b: 0.4 <= a <= b <= 1.8,
        f"could have been {number} to {number} times as long": lambda a, b: 2 <= a <= b,
        f"^Critical step: .* falls for {number} to {number} times": lambda a, b: a <= b,
    }
    for sentence in sentences:
        for pattern, holds in true.items():
            if found := re.search(pattern, sentence):
                assert holds(*map(float, found.groups())), sentence
    text = " ".join(sentences)
    advised = "Twice the lr is worth a trial" in text
    assert not (advised and state.status is not HealthStatus.HEALTHY)
    assert not (advised and "A larger lr will not help" in text)
    assert not ("Above the edge: the curvature" in text and "Curvature below" in text)
    assert not (state.status is HealthStatus.HEALTHY and "Curvature above" in text)


def test_random_records_have_all_these_sentences():
    told = {verdict(drawn(seed))[0].split(":")[0].split(" since")[0] for seed in range(300)}
    assert {"Healthy", "Diverging", "Above the edge", "At the edge", "Noise floor", "Not learning"} <= told
    assert sum("worth a trial" in " ".join(verdict(drawn(seed))) for seed in range(300)) > 1
