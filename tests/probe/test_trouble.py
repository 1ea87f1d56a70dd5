"""What cannot be probed is one sentence, and the training goes on."""

import errno
import json
import os
import time
import warnings

import pytest
import torch
from torch import nn

import linnet as ln
from linnet.probe import Probe, ProbeWarning, read
from linnet.probe.schedule import Schedule

X, Y = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.zeros(8, 2)


def mse(model, batch):
    return nn.functional.mse_loss(model(batch[0]), batch[1])


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))


class Once(torch.autograd.Function):
    """A function whose derivative has none."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return 2 * g * ctx.saved_tensors[0]


class Odd(nn.Module):
    """A model with one parameter beside a layer."""

    def __init__(self, parameter):
        super().__init__()
        self.layer, self.odd = nn.Linear(4, 2), parameter

    def forward(self, x):
        return self.layer(x)


def still():
    return net().requires_grad_(False)


def whole_numbers():
    model = Odd(nn.Parameter(torch.ones(3, dtype=torch.int8), requires_grad=False))
    model.layer.requires_grad_(False)
    return model


UNSUITABLE = {
    "frozen": (still, mse, (X, Y), "model has no parameters that train"),
    "integers": (whole_numbers, mse, (X, Y), "model has no parameters that train"),
    "none": (nn.Identity, mse, (X, Y), "model has no parameters that train"),
    "complex": (lambda: Odd(nn.Parameter(torch.ones(3) * 1j)), mse, (X, Y), "odd is torch.complex64: parameters"),
    "lazy": (lambda: nn.Sequential(nn.LazyLinear(2)), mse, (X, Y), "0.weight has no shape yet"),
    "once": (net, lambda m, b: Once.apply(m(b[0])).mean(), (X, Y), "the loss cannot be differentiated twice"),
}


@pytest.mark.parametrize("name", UNSUITABLE)
def test_a_model_that_cannot_be_measured_is_one_warning(name):
    make, loss_fn, batch, words = UNSUITABLE[name]
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        probe = Probe(make(), loss_fn, batch, lr=0.1, every=2)
        for step in range(30):
            probe.update(step, 1.0 + step)
    (told,) = [str(one.message) for one in heard]
    assert heard[0].category is ProbeWarning
    assert told.startswith("the probe has stopped measuring")
    assert words in told
    assert "\n" not in told
    assert [line["loss"] for line in probe.record.steps] == [1.0 + step for step in range(30)]
    first = "No progress" if name == "once" else "Diverging: the loss is 25.5, 4.6 times its least"
    assert probe.verdict()[0].startswith(first)
    probe.plot()
    probe.to_xarray()


REFUSED = {
    "several": (lambda m, b: m(b[0]), (X, Y), "loss_fn returns torch.float32 of shape (8, 2): it must return one"),
    "nothing": (lambda m, b: None, (X, Y), "loss_fn returns None"),
    "words": (lambda m, b: "low", (X, Y), "loss_fn returns 'low'"),
    "detached": (lambda m, b: mse(m, b).detach(), (X, Y), "a number that does not depend on the parameters"),
    "broken": (lambda m, b: 1 / 0, (X, Y), "on the probe's batch: ZeroDivisionError: division by zero"),
    "shapes": (mse, (X[:, :3], Y), "on the probe's batch: RuntimeError: mat1 and mat2"),
    "kind": (mse, [X], "on the probe's batch: IndexError"),
    "outputs and labels": (nn.functional.mse_loss, (X, Y), "the loss cannot be computed on the probe's batch: "),
    "three arguments": (lambda m, x, y: mse(m, (x, y)), (X, Y), "of (model, batch), but missing a required argument"),
    "one argument": (lambda m: mse(m, (X, Y)), (X, Y), "of (model, batch), but too many positional arguments"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_loss_or_batch_is_refused_at_construction(name):
    loss_fn, batch, words = REFUSED[name]
    with pytest.raises(ln.InputError) as refused:
        Probe(net(), loss_fn, batch, lr=0.1)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_construction_has_no_side_effects():
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 2)).train()
    seen = []

    def loss_fn(model, batch):
        seen.append(model.training)
        return mse(model, batch) + 0 * torch.rand(())

    before = {name: value.clone() for name, value in model.state_dict().items()}
    generator = torch.get_rng_state()
    Probe(model, loss_fn, (X, Y), lr=0.1)
    assert set(seen) == {False}
    assert model.training
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())


class Slow(nn.Linear):
    """One layer that takes a tenth of a second for ten rows."""

    def forward(self, x):
        time.sleep(0.01 * len(x))
        return super().forward(x)


def test_construction_is_quick_where_the_loss_is_slow():
    x, y = torch.zeros(400, 4), torch.zeros(400, 2)
    began = time.perf_counter()
    Probe(Slow(4, 2), mse, (x, y), lr=0.1)
    assert time.perf_counter() - began < 1  # the whole batch takes 4 s
    with pytest.raises(ln.InputError, match="RuntimeError: mat1 and mat2"):
        Probe(Slow(4, 2), mse, (x[:, :3], y), lr=0.1)
    labels = torch.zeros(400, dtype=torch.int64)
    labels[-1] = 7  # where all rows are quick they are all checked
    with pytest.raises(ln.InputError, match="IndexError: Target 7 is out of bounds"):
        Probe(net(), lambda m, b: nn.functional.cross_entropy(m(b[0]), b[1]), (x, labels), lr=0.1)


def test_a_loss_that_needs_many_rows_is_checked_on_all():
    x, y = torch.randn(40, 4), torch.zeros(40, 2)

    def loss_fn(model, batch):
        assert len(batch[0]) > 10
        return mse(model, batch)

    Probe(net(), loss_fn, (x, y), lr=0.1)


def test_a_large_model_is_checked_by_its_arguments_alone(monkeypatch):
    monkeypatch.setattr("linnet.probe.surface._CHECKED", 10)
    with pytest.raises(ln.InputError, match=r"it must be a function of \(model, batch\)"):
        Probe(net(), lambda m: 0, (X, Y))
    probe = Probe(net(), mse, (X[:, :3], Y), every=2)
    with pytest.warns(ProbeWarning, match="the loss cannot be computed on the probe's batch: RuntimeError: mat1"):
        probe.update(0)


def train(model, optimizer, probe, steps, change=lambda step: None):
    for step in range(steps):
        change(step)
        loss = mse(model, (X, Y + 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        probe.update(step, loss)
        del loss  # with it goes the graph, which knows the shapes


def test_a_loss_that_becomes_nan_is_an_alarm_and_ends_nothing():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    probe = Probe(model, mse, (X, Y), optimizer=optimizer, every=2)

    def spoil(step):
        if step == 10:
            with torch.no_grad():
                model[0].weight[0, 0] = torch.nan

    train(model, optimizer, probe, 20, spoil)
    assert [measurement["step"] for measurement in probe.record.measurements] == list(range(10))
    assert len(probe.record.steps) == 20
    assert probe.record.steps[-1]["loss"] is None
    assert [(alarm["step"], alarm["trigger"]) for alarm in probe.record.alarms] == [(10, "non_finite")]
    assert probe.record.statuses[-1]["status"] == "non_finite"


@pytest.mark.parametrize(
    "loss_fn", [lambda model, batch: mse(model, batch) * torch.nan, lambda model, batch: mse(model, batch) / 0]
)
def test_a_batch_on_which_the_loss_is_not_finite_is_an_alarm(loss_fn):
    probe = Probe(net(), loss_fn, (X, Y), lr=0.1, every=2)
    for step in range(5):
        probe.update(step, 1.0)
    assert probe.record.measurements == []
    assert [(alarm["step"], alarm["trigger"]) for alarm in probe.record.alarms] == [(0, "non_finite")]


@pytest.mark.parametrize("how", ["replaced", "resized"])
def test_other_parameters_end_the_looks_and_not_the_training(how):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    probe = Probe(model, mse, (X, Y), optimizer=optimizer, every=2)

    def change(step):
        if step == 6 and how == "replaced":
            model[0] = nn.Linear(4, 5)
        elif step == 6:
            model[0].weight.data, model[0].bias.data = torch.ones(7, 4), torch.ones(7)
            model[2].weight.data = torch.ones(2, 7)
            for weight in model.parameters():
                weight.grad = None

    with pytest.warns(ProbeWarning, match=r"0\.weight was replaced or resized since the probe was made"):
        train(model, optimizer, probe, 12, change)
    assert [measurement["step"] for measurement in probe.record.measurements] == list(range(6))
    assert len(probe.record.steps) == 12


def test_an_optimizer_of_another_model_is_refused():
    model = net()
    own, other = (torch.optim.SGD(one.parameters(), 0.1) for one in (model, net()))
    for optimizer in (other, [own, other]):
        with pytest.raises(ln.InputError, match="it has none of the model's parameters; give the one that trains it"):
            Probe(model, mse, (X, Y), optimizer=optimizer)
    own.param_groups[0]["params"] = own.param_groups[0]["params"][:1]
    Probe(model, mse, (X, Y), optimizer=own)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lr": -1.0}, "lr = -1.0 is not allowed: lr must be a finite number greater than 0"),
        ({"momentum": 1.0}, "momentum = 1.0 is not allowed"),
        ({"budget": 0.0}, "budget = 0.0 is not allowed"),
        ({"every": 1}, "every = 1 is not allowed: every must be a whole number of at least 2"),
        ({"eigenvalues": 0}, "eigenvalues = 0 is not allowed"),
        ({"tol": 2.0}, "tol = 2.0 is not allowed"),
        ({"products": "fast"}, "products = 'fast' is not allowed: products must be one of 'exact', 'differences'"),
        ({"matvecs": 1}, "matvecs = 1 is not allowed"),
        ({"live": "yes"}, "live = 'yes' is not allowed: live must be True or False"),
        ({"training": 1}, "training = 1 is not allowed: training must be True or False"),
        ({"optimizer": 3}, "optimizer = 3 is not allowed: give a torch.optim optimizer"),
        ({"lr": 0.1, "optimizer": torch.optim.SGD(net().parameters(), 0.1)}, "lr and momentum are not allowed beside"),
        ({"model": 3}, "model = 3 is not allowed: model must be a torch.nn.Module"),
        ({"loss_fn": 3}, "loss_fn = 3 is not allowed: it must be a function of (model, batch)"),
        ({"folder": __file__}, "there is a file where a folder should be"),
    ],
)
def test_arguments_are_refused_in_a_sentence(options, words):
    given = {"model": net(), "loss_fn": mse, "batch": (X, Y), **options}
    with pytest.raises(ln.InputError) as refused:
        Probe(**given)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("step", "loss", "words"),
    [(-1, None, "step = -1"), (1.5, None, "step = 1.5"), (0, "low", "loss = 'low'"), (0, X, "loss = tensor(")],
)
def test_looks_are_refused_in_a_sentence(step, loss, words):
    with pytest.raises(ln.InputError, match=words.replace("(", r"\(")):
        Probe(net(), mse, (X, Y)).update(step, loss)


# The record -----------------------------------------------------------------------------------------------------------


def recorded(folder, steps=30, **options):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    probe = Probe(model, mse, (X, Y), optimizer=optimizer, every=5, folder=folder, **options)
    train(model, optimizer, probe, steps)
    return probe


def test_the_record_is_on_the_disk_at_every_moment(tmp_path):
    probe = recorded(tmp_path / "deep" / "run")
    found = read(tmp_path / "deep" / "run")  # it was not closed
    assert found.about == probe.record.about
    assert found.lines == probe.record.lines
    assert len(found.steps) == 30
    assert [measurement["step"] for measurement in found.measurements] == [0, 1, 5, 6, 10, 11, 15, 16, 20, 21, 25, 26]
    assert found.about["layers"] == ["0.weight", "2.weight"]
    data = ln.probe.dataset(found)
    assert data["sharpness"].dims == ("measurement", "eigenvalue")
    assert data["singular_values"].dims == ("measurement", "layer", "value")
    assert data["sharpness"].values[3].tolist() == found.measurements[3]["sharpness"]
    assert data.identical(probe.to_xarray())


@pytest.mark.parametrize("cut", [1, 2, 30, 200])
def test_a_last_line_that_was_cut_short_is_left_out(tmp_path, cut):
    probe = recorded(tmp_path)
    file = tmp_path / "record.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-cut])
    found = read(tmp_path)
    lost = whole[-cut - 1 : -1].count(b"\n") + (cut > 1)  # without its end alone a line is whole
    assert found.lines == probe.record.lines[: len(probe.record.lines) - lost]


def test_records_that_are_damaged_or_strange_are_refused(tmp_path):
    with pytest.raises(ln.InputError, match="there is no record of a probe"):
        read(tmp_path)
    recorded(tmp_path)
    with pytest.raises(ln.InputError, match="it has the record of another training, with other parameters or another"):
        Probe(nn.Linear(4, 2), mse, (X, Y), folder=tmp_path)
    with pytest.raises(ln.InputError, match="it has the record of another training"):
        Probe(net(), lambda model, batch: mse(model, batch), (X, Y), folder=tmp_path)
    lines = (tmp_path / "record.jsonl").read_text()
    (tmp_path / "record.jsonl").write_text(lines.replace('"kind": "step"', '"kind: "step"', 1))
    with pytest.raises(ln.InputError, match="is damaged: line 1 cannot be read"):
        read(tmp_path)
    about = json.loads((tmp_path / "probe.json").read_text()) | {"format": 99}
    (tmp_path / "probe.json").write_text(json.dumps(about))
    with pytest.raises(ln.InputError, match="is not of format 3"):
        read(tmp_path)


@pytest.mark.parametrize("cut", [0, 1, 30])
def test_a_record_is_continued_after_a_restart(tmp_path, cut):
    first = recorded(tmp_path, steps=30).record
    file = tmp_path / "record.jsonl"
    file.write_bytes(file.read_bytes()[: -cut or None])
    kept = len(read(tmp_path).lines)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Probe(model, mse, (X, Y), optimizer=optimizer, every=5, folder=tmp_path) as probe:
        assert probe.record.lines == first.lines[:kept]
        for step in range(20, 40):  # from a checkpoint before its end
            optimizer.zero_grad()
            loss = mse(model, (X, Y + 1))
            loss.backward()
            optimizer.step()
            probe.update(step, loss)
    found = read(tmp_path)
    assert found.lines == probe.record.lines
    assert [line["step"] for line in found.steps] == list(range(40))
    assert found.lines[:kept] == first.lines[:kept]
    assert [line["step"] for line in found.lines if line["kind"] == "resumed"] == [20]
    assert {line["step"] for line in found.measurements} >= {0, 15, 20, 21, 25}


def test_own_steps_are_counted_on_after_a_restart(tmp_path):
    for begin in (0, 5):
        with Probe(net(), mse, (X, Y), lr=0.1, folder=tmp_path) as probe:
            for _ in range(5):
                probe.step(1.0)
        assert [line["step"] for line in read(tmp_path).steps] == list(range(begin + 5))


class Full:
    """A file on a disk that has room for so many bytes."""

    def __init__(self, file, room):
        self.file, self.room, self.name = file, room, file.name

    def write(self, data):
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self.file.write(data[: self.room])
        self.room -= written
        return written

    def close(self):
        self.file.close()


def test_a_full_disk_is_told_once_and_ends_nothing(tmp_path):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    probe = Probe(model, mse, (X, Y), optimizer=optimizer, every=5, folder=tmp_path)
    probe._record._file = Full(probe._record._file, 3000)
    with pytest.warns(ProbeWarning, match=r"record.jsonl' cannot be written: no space left on device\. Later") as heard:
        train(model, optimizer, probe, 30)
    assert len(heard) == 1
    assert len(probe.record.steps) == 30
    assert len(probe.record.measurements) == 12
    found = read(tmp_path)
    assert 0 < len(found.lines) < len(probe.record.lines)
    assert found.lines == probe.record.lines[: len(found.lines)]


# The schedule ---------------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


COSTS = {"anchor": 0.4, "forward": 6.0, "curvature": 90.0}


def paced(steps, *, budget=0.03, every=None, step=1.0, passing=0.0, costs=COSTS):
    """At which steps such a training is measured, by kind, and the share of its time that this took."""
    clock = Clock()
    schedule, made, spent, worst = Schedule(budget, every, clock), {kind: [] for kind in costs}, 0.0, 0.0
    for t in range(steps):
        clock.now += step
        checks = schedule.passed()
        if passing and schedule.compares:
            clock.now += passing
            spent += passing
        schedule.read(passing if schedule.compares else 0.0)
        if not checks:
            continue
        for kind in [kind for kind in costs if schedule.due(kind, t)]:
            clock.now += costs[kind]
            spent += costs[kind]
            schedule.measured(kind, t, costs[kind])
            made[kind].append(t)
            worst = max(worst, spent / (clock.now - spent))
    return made, spent / (clock.now - spent), worst


def test_measurements_are_spread_over_the_run_and_keep_to_the_budget_from_the_first():
    made, share, worst = paced(8000)
    assert 0.015 < share <= 0.03  # what curvature does not take is not given to others
    assert worst <= 0.03  # at every moment, the first one included
    assert len(made["forward"]) == 15
    assert made["forward"][-1] > 7000
    gaps = [b - a for a, b in zip(made["forward"], made["forward"][1:], strict=False)]
    assert max(gaps) <= 600  # the second one waits until both keep to the share
    assert len(made["anchor"]) > 100
    assert made["curvature"] == []  # before it is known, that a search takes 90 steps is not assumed
    made, _, worst = paced(60000)
    gaps = [b - a for a, b in zip(made["curvature"], made["curvature"][1:], strict=False)]
    assert len(gaps) == 5
    assert min(gaps) >= 5000  # what it has saved until the first one is not spent at once
    assert worst <= 0.03


@pytest.mark.parametrize("budget", [0.02, 0.05, 0.3])
def test_what_is_done_at_every_step_counts_too(budget):
    made, share, _ = paced(20000, budget=budget, passing=0.01)
    assert 0.4 * budget < share <= budget
    assert made["forward"][-1] > 18000


def test_what_is_too_slow_is_not_measured():
    made, share, _ = paced(5000, costs={"anchor": 0.4, "forward": 6.0, "curvature": 1e4})
    assert made["forward"]
    assert not made["curvature"]
    assert share <= 0.03


def test_an_alarm_may_borrow_half_of_the_budget():
    clock = Clock()
    schedule = Schedule(0.03, None, clock)
    clock.now = 100.0
    schedule.measured("anchor", 0, 0.7)
    schedule.read(2.9)  # whatever the steps and other kinds took
    for _ in range(2):  # of 0.75 s
        assert schedule.may_borrow()
        schedule.spent("alarm", 0.7)
    assert not schedule.may_borrow()
    assert Schedule(0.03, 10, clock).may_borrow()


def test_every_so_many_steps():
    made, _, _ = paced(60, every=25, costs={"anchor": 1e3, "forward": 1e3, "curvature": 1e3})
    assert made["curvature"] == [0, 1, 25, 26, 50, 51]
    assert made["forward"] == [0, 25, 50]


def test_costs_are_judged_by_their_median():
    """A step or a measurement that other processes have delayed is no reason to measure less."""
    clock = Clock()
    schedule = Schedule(0.03, None, clock)
    for step in range(1000):
        clock.now += 1.0
        seconds = 50.0 if step == 5 else 0.001
        clock.now += seconds
        schedule.passed()
        schedule.read(seconds)
    assert schedule.compares
    for _ in range(5):
        schedule.measured("anchor", 0, 0.1)
    assert schedule.affordable("anchor")
    clock.now += 100.0
    schedule.measured("anchor", 0, 100.0)
    assert schedule.affordable("anchor")


def test_the_first_anchors_come_in_advance_and_ever_more_seldom():
    clock = Clock()
    schedule, made = Schedule(0.03, None, clock), []
    for step in range(1000):
        clock.now += 1e-4
        if schedule.passed() and schedule.due("anchor", step):
            clock.now += 2e-4
            schedule.measured("anchor", step, 2e-4)
            made.append(step)
    assert made[:6] == [9, 29, 49, 69, 89, 119]
    assert len(made) <= 5e-3 / 2e-4 + 0.25 * 0.03 * 0.1 / 2e-4
    slow = Schedule(0.03, None, clock)
    clock.now += 1.0
    assert not slow.due("anchor", 0)
