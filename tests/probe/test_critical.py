"""The critical step by forward passes: against parabolas, gradients, and trainings at the edge."""

import math

import pytest
import torch
from torch import nn

from linnet.probe import Probe
from linnet.probe.critical import FORWARDS, MOST, WIDTH, Parabola, bracket, together
from linnet.probe.reversal import before
from linnet.probe.surface import Surface


def mse(model, batch):
    return nn.functional.mse_loss(model(batch[0]), batch[1])


@pytest.mark.parametrize("true", [0.1, 0.5, 0.9, 1.0, 1.05, 1.9, 3.0, 5.4, 10.0, 30.0, 63.0])
@pytest.mark.parametrize("cubic", [0.0, 0.3])
def test_a_bracket_holds_the_critical_step(true, cubic):
    found = bracket(lambda c: 1 - 0.1 * c * (1 - c / true) * (1 + cubic * c / true))
    assert found.low <= true * (1 + 1e-9)
    assert found.high >= true * (1 - 1e-9)
    assert found.forwards <= FORWARDS
    assert found.high / found.low < (WIDTH if cubic == 0 and true >= 0.5 else 1.5) * (1 + 1e-9)


def test_a_step_far_below_its_limit_has_no_upper_bound():
    found = bracket(lambda c: 1 - 1e-4 * c)
    assert (found.low, found.high) == (MOST, math.inf)
    assert bracket(lambda c: 1 + c).low == 0.0  # uphill
    assert math.isnan(bracket(lambda c: math.nan).low)
    assert bracket(lambda c: math.nan if c > 3 else 1 - 0.01 * c).high < 8


def test_a_parabola_is_exact_and_an_interval_holds_it():
    parts = [Parabola.of(*(1 - 0.3 * c * (1 - c / true) for c in (0.0, 1.0, 2.0))) for true in (1.0, 2.0, 4.0, 3.0)]
    assert [-part.slope / part.half for part in parts] == pytest.approx([1, 2, 4, 3])
    found = together(parts)
    assert found.value == pytest.approx(4 / (1 + 1 / 2 + 1 / 4 + 1 / 3))
    assert found.low < found.value < found.high
    assert together([Parabola(0.1, 1.0)] * 8) == (0.0, 0.0, 0.0)  # uphill
    assert together([Parabola(-0.1, -1.0)] * 8) == (math.inf,) * 3  # no curvature upwards


def net(dtype=torch.float64):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 2)).to(dtype)


def test_a_measurement_is_that_of_gradients():
    """Slope and curvature along the step of SGD on a batch: -lr |g|^2 and lr^2 g.Hg, so c is 2 |g|^2 / (lr g.H g)."""
    torch.manual_seed(3)
    batch, other = ((torch.randn(16, 5).double(), torch.randn(16, 2).double()) for _ in range(2))
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    probe = Probe(model, mse, other, optimizer=optimizer, every=2)
    for step in range(2):
        surface = Surface(model, mse, batch)
        point = surface.here()
        g, curved = point.gradient, point.product(point.gradient)
        optimizer.zero_grad()
        loss = mse(model, batch)
        loss.backward()
        optimizer.step()
        probe.update(step, loss, batch=batch)
    (line,) = probe.record.forwards
    assert line["stochastic_edge"] == pytest.approx(float(1e-3 * (g @ curved) / (g @ g) / 2), rel=0.01)
    assert line["path_sharpness"] == pytest.approx(float((g @ curved) / (g @ g)), rel=0.01)
    assert line["moved"] == pytest.approx(1e-3 * float(g.norm()), rel=1e-9)
    assert line["own_high"] is None  # above 64: that far the loss is no parabola
    assert line["own_low"] == MOST
    assert line["c_other_low"] <= line["c_other"] <= line["c_other_high"]
    (check,) = [line for line in probe.record.checks if "kept" in line]
    assert (check["kept"], check["passes"], check["gradient_scale"]) == (False, 1, pytest.approx(1.0))


def test_an_orbit_of_period_two_has_a_critical_step_of_one():
    """Full batch: the probe's batch is that of the training, by its loss."""
    torch.manual_seed(0)
    batch = torch.randn(40, 5).double(), torch.randn(40, 2).double()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 1.2)
    probe = Probe(model, mse, batch, optimizer=optimizer, every=40)
    for step in range(3000):
        optimizer.zero_grad()
        loss = mse(model, batch)
        loss.backward()
        optimizer.step()
        probe.update(step, loss)
    last = probe.record.forwards[-10:]
    assert all(line["flip"] < -0.9 for line in last)
    assert sum(line["stochastic_edge"] for line in last) / 10 == pytest.approx(1, abs=0.03)
    assert "c_other" not in last[-1]  # there is no other batch
    assert probe.verdict()[0].startswith("At the edge: at step ")


@pytest.mark.parametrize(
    "make",
    [
        lambda w: torch.optim.SGD(w, 0.1),
        lambda w: torch.optim.SGD(w, 0.1, weight_decay=0.3),
        lambda w: torch.optim.SGD(w, 0.1, momentum=0.9, weight_decay=0.3),
        lambda w: torch.optim.SGD(w, 0.1, momentum=0.9, dampening=0.4),
        lambda w: torch.optim.SGD(w, 0.1, momentum=0.9, nesterov=True, weight_decay=0.3),
        lambda w: torch.optim.SGD(w, 0.1, maximize=True),
        lambda w: torch.optim.Adam(w, 0.1, weight_decay=0.3),
        lambda w: torch.optim.AdamW(w, 0.1, weight_decay=0.3),
        lambda w: torch.optim.AdamW(w, 0.1, amsgrad=True),
    ],
)
def test_the_weights_before_a_step_follow_from_the_optimizers_state(make):
    model, batch = net(), (torch.randn(16, 5).double(), torch.randn(16, 2).double())
    weights = list(model.parameters())
    optimizer = make(weights)
    for _ in range(3):
        kept = [weight.detach().clone() for weight in weights]
        optimizer.zero_grad()
        mse(model, batch).backward()
        optimizer.step()
        found = before([optimizer], weights, [[0.1]], [1])
        for a, b in zip(found, kept, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    optimizer.zero_grad()
    if type(optimizer) is torch.optim.SGD and not optimizer.param_groups[0]["momentum"]:
        assert before([optimizer], weights, [[0.1]], [1]) is None
    assert before([torch.optim.Adagrad(weights)], weights, [[0.01]], [1]) is None
