"""Stability thresholds of optimizers against the spectral radius of their own steps."""

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import optim

import linnet as ln
from linnet.probe.optimizers import known
from linnet.probe.rule import Rule, TorchOptimizers

SMALL = 1e-10  # weights at which squares of gradients change no preconditioner
STEP = 700.0


class ScheduleFree(optim.Optimizer):
    """As the package schedulefree defines them: y, where gradients are computed, and z; of SGD or AdamW."""

    def __init__(self, weights, lr, **settings):
        common = {"k": 0, "weight_sum": 0.0, "lr_max": -1.0, "r": 0.0, "weight_lr_power": 2.0, "warmup_steps": 0}
        super().__init__(weights, {"lr": lr, "weight_decay": 0.0, **common, **settings})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b, b2 = group["betas"] if "betas" in group else (group["momentum"], None)
            lr = group["lr"] * (min(1.0, (group["k"] + 1) / group["warmup_steps"]) if group["warmup_steps"] else 1.0)
            lr *= np.sqrt(1 - b2 ** (group["k"] + 1)) if b2 else 1.0
            group["lr_max"] = max(lr, group["lr_max"])
            share = (group["k"] + 1) ** group["r"] * group["lr_max"] ** group["weight_lr_power"]
            group["weight_sum"] += share
            c, group["k"] = share / group["weight_sum"], group["k"] + 1
            for y in group["params"]:
                state, direction = self.state[y], y.grad
                if not state:
                    state |= {"z": y.clone(), "exp_avg_sq": torch.zeros_like(y)}
                if b2:
                    state["exp_avg_sq"].mul_(b2).addcmul_(y.grad, y.grad, value=1 - b2)
                    direction = y.grad / (state["exp_avg_sq"].sqrt() + group["eps"])
                direction = direction + group["weight_decay"] * y
                z = state["z"] - lr * direction
                x = (y - (1 - b) * state["z"]) / b
                y.copy_((1 - b) * z + b * ((1 - c) * x + c * z))
                state["z"] = z


class SGDScheduleFree(ScheduleFree):
    pass


class AdamWScheduleFree(ScheduleFree):
    pass


# what makes the optimizer, the state that its linear map has beside the weight, and what else is in the state
ADAM = {"step": STEP, "exp_avg_sq": 4.0}
ADAPTIVE = {"lr": 0.03, "betas": (0.8, 0.99), "eps": 0.1}
FREE = {"exp_avg_sq": 4.0}
CASES = {
    "sgd": (lambda w: optim.SGD(w, 0.1), None, {}),
    "momentum": (lambda w: optim.SGD(w, 0.1, momentum=0.9), "momentum_buffer", {}),
    "dampened": (
        lambda w: optim.SGD(w, 0.1, momentum=0.8, dampening=0.3, weight_decay=0.5), "momentum_buffer", {},
    ),
    "nesterov": (
        lambda w: optim.SGD(w, 0.1, momentum=0.8, nesterov=True, weight_decay=0.5), "momentum_buffer", {},
    ),
    "asgd": (
        lambda w: optim.ASGD(w, 0.1, lambd=0.3, alpha=0.0, weight_decay=0.2), None, {"step": STEP},
    ),
    "adam": (lambda w: optim.Adam(w, **ADAPTIVE, weight_decay=0.3), "exp_avg", ADAM),
    "amsgrad": (
        lambda w: optim.Adam(w, **ADAPTIVE, amsgrad=True), "exp_avg", ADAM | {"max_exp_avg_sq": 9.0},
    ),
    "adamw": (lambda w: optim.AdamW(w, **ADAPTIVE, weight_decay=3.0), "exp_avg", ADAM),
    "nadam": (lambda w: optim.NAdam(w, **ADAPTIVE, weight_decay=0.3), "exp_avg", ADAM | {"mu_product": 0.0}),
    "nadamw": (
        lambda w: optim.NAdam(w, **ADAPTIVE, weight_decay=3.0, decoupled_weight_decay=True),
        "exp_avg", ADAM | {"mu_product": 0.0},
    ),
    "radam": (lambda w: optim.RAdam(w, **ADAPTIVE | {"betas": (0.8, 0.999)}, weight_decay=0.3), "exp_avg", ADAM),
    "radam, not yet preconditioned": (
        lambda w: optim.RAdam(w, **ADAPTIVE | {"betas": (0.001, 0.999)}), "exp_avg", ADAM | {"step": 4.0},
    ),
    "adamax": (lambda w: optim.Adamax(w, **ADAPTIVE, weight_decay=0.3), "exp_avg", {"step": STEP, "exp_inf": 2.0}),
    "rmsprop": (lambda w: optim.RMSprop(w, 0.03, eps=0.1, weight_decay=0.3), None, {"step": STEP, "square_avg": 4.0}),
    "rmsprop, momentum": (
        lambda w: optim.RMSprop(w, 0.03, momentum=0.7, centered=True, alpha=0.9),
        "momentum_buffer", {"step": STEP, "square_avg": 4.0, "grad_avg": 0.5},
    ),
    "adadelta": (
        lambda w: optim.Adadelta(w, 0.5, rho=1 - 1e-14, eps=0.01, weight_decay=0.1), None,
        {"step": STEP, "square_avg": 4.0, "acc_delta": 0.3},
    ),
    "adagrad": (
        lambda w: optim.Adagrad(w, 0.1, lr_decay=0.01, eps=0.1, weight_decay=0.3), None, {"step": STEP, "sum": 4.0},
    ),
    "adafactor": (
        lambda w: optim.Adafactor(w, 0.01, weight_decay=3.0), None, {"step": STEP, "variance": 4.0},
    ),
    "adafactor, late": (lambda w: optim.Adafactor(w, 0.5), None, {"step": STEP, "variance": 4.0}),
    "schedule-free": (lambda w: SGDScheduleFree(w, 0.1, momentum=0.9, weight_decay=0.3), "z", {}),
    "schedule-free, warm-up": (
        lambda w: SGDScheduleFree(w, 0.1, momentum=0.6, r=1.0, warmup_steps=900), "z", {},
    ),
    "schedule-free adamw": (lambda w: AdamWScheduleFree(w, **ADAPTIVE, weight_decay=0.3), "z", FREE),
}  # fmt: skip


def frozen_step(case, h):
    """The linear map of (weight, moment) that a step at curvature h is, and the optimizer after it. A second entry of
    the weight is 1: the size of the whole parameter is constant.
    """
    make, moment, entries = CASES[case]
    columns = []
    for start in [(SMALL, 0.0), (0.0, SMALL)][: 2 if moment else 1]:
        weight = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
        optimizer = make([weight])
        weight.grad = torch.zeros_like(weight)
        for _ in range(30 if moment == "z" else 1):  # makes the state
            optimizer.step()
        state = optimizer.state[weight]
        with torch.no_grad():
            weight[0], weight[1], weight.grad[0] = start[0], 1.0, h * start[0]
        for name, value in entries.items():
            state[name] = torch.full_like(state[name], value) if torch.is_tensor(state[name]) else value
        if moment:
            state[moment][0] = start[1]
        optimizer.step()
        columns.append([float(part[0]) for part in [weight.detach(), *([state[moment]] if moment else [])]])
    with torch.no_grad():
        weight[1] = 1.0
    return np.array(columns).T / SMALL, optimizer, weight


def radius(case, h):
    return np.abs(np.linalg.eigvals(frozen_step(case, h)[0])).max()


def curvature_at_the_edge(stepper):
    """The second derivative along the first entry of the only weight at which the rule is unstable."""
    rule = stepper.rule()
    root = stepper.root(rule, torch.float64)
    if root is None:
        return rule.threshold - rule.weight_decay
    return float((rule.threshold - root[1][0]) / root[0][0] ** 2)


@pytest.mark.parametrize("case", CASES)
def test_the_threshold_is_where_the_spectral_radius_of_a_step_is_one(case):
    _, optimizer, weight = frozen_step(case, 1.0)
    stepper = TorchOptimizers(optimizer, [weight])
    found = curvature_at_the_edge(stepper)
    exact = scipy.optimize.brentq(lambda h: radius(case, h) - 1, 0.9 * found, 1.1 * found, xtol=1e-13, rtol=1e-13)
    assert found == pytest.approx(exact, rel=1e-9)
    assert all(radius(case, share * exact) < 1 for share in (0.01, 0.3, 0.6, 0.9))
    rule = stepper.rule()
    assert rule.reason is None
    assert rule.adaptive is bool({"exp_avg_sq", "exp_inf", "square_avg", "sum", "variance"} & CASES[case][2].keys())
    if rule.adaptive:
        assert rule.age == {"radam, not yet preconditioned": 5, "schedule-free adamw": 31}.get(case, STEP + 1)


def test_a_direction_between_parameters_of_several_optimizers():
    """Two parameters whose loss has one direction of curvature, one moved by SGD with momentum, one by Adam: the edge
    is where the spectral radius of both steps together is 1.
    """

    def steps(h):
        columns = []
        for start in range(4):  # two weights and their moments
            weights = [torch.nn.Parameter(torch.zeros(1, dtype=torch.float64)) for _ in range(2)]
            pair = [
                optim.SGD(weights[:1], 0.05, momentum=0.6, weight_decay=0.4),
                optim.Adam(weights[1:], 0.03, betas=(0.9, 0.99), eps=1e-8),
            ]
            for optimizer, weight in zip(pair, weights, strict=True):
                weight.grad = torch.zeros_like(weight)
                optimizer.step()
            adam, moment = pair[1].state[weights[1]], pair[0].state[weights[0]]
            adam["step"].fill_(3000.0)
            adam["exp_avg_sq"].fill_(0.01)
            parts = [weights[0].detach(), moment["momentum_buffer"], weights[1].detach(), adam["exp_avg"]]
            parts[start].fill_(SMALL)
            along = h * float(0.6 * parts[0] + 0.8 * parts[2])
            for optimizer, weight, share in zip(pair, weights, (0.6, 0.8), strict=True):
                weight.grad.fill_(along * share)
                optimizer.step()
            columns.append([float(part[0]) for part in (*parts[:1], moment["momentum_buffer"], *parts[2:])])
        return np.abs(np.linalg.eigvals(np.array(columns).T / SMALL)).max(), pair, weights

    _, pair, weights = steps(1.0)
    stepper = TorchOptimizers(pair, weights)
    rule = stepper.rule()
    assert (rule.name, rule.lr, rule.adaptive, rule.age) == ("SGD + Adam", 0.05, True, 3001)
    root, decay = stepper.root(rule, torch.float64)
    direction = torch.tensor([0.6, 0.8], dtype=torch.float64)

    def top(h):
        return float(torch.linalg.eigvalsh(h * torch.outer(root * direction, root * direction) + torch.diag(decay))[-1])

    found = scipy.optimize.brentq(lambda h: top(h) - rule.threshold, 1e-3, 1e3, xtol=1e-13, rtol=1e-13)
    exact = scipy.optimize.brentq(lambda h: steps(h)[0] - 1, 0.9 * found, 1.1 * found, xtol=1e-13, rtol=1e-13)
    assert found == pytest.approx(exact, rel=1e-9)


class Lion8bit(optim.SGD):
    pass


class FusedThing(optim.Adam):
    pass


WITHOUT = {
    "Lion8bit has no stability threshold: its steps are signs": lambda w: Lion8bit(w, 0.1),
    "Rprop has no stability threshold: its steps are signs": lambda w: optim.Rprop(w, 0.1),
    "Muon has no stability threshold: all singular values of its steps are equal": lambda w: optim.Muon(w, 0.1),
    "LBFGS has no stability threshold: its steps use a model of the curvature": lambda w: optim.LBFGS(w, 0.1),
    "SparseAdam has no stability threshold: rows without a gradient": lambda w: optim.SparseAdam(w, 0.1),
    "SGD has no stability threshold: it maximizes.": lambda w: optim.SGD(w, 0.1, maximize=True),
    "FusedThing has no known stability threshold.": lambda w: FusedThing(w, 0.1),
}


@pytest.mark.parametrize("sentence", WITHOUT)
def test_where_there_is_no_threshold_one_sentence_says_why(sentence):
    weights = [torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2, 2))]
    alone, mixed = [weights[:1]], [WITHOUT[sentence](weights[:1]), optim.Adam(weights[1:])]
    for stepper in (TorchOptimizers(WITHOUT[sentence](*alone), weights[:1]), TorchOptimizers(mixed, weights)):
        rule = stepper.rule()
        assert (rule.lr, rule.threshold) == (None, None)
        assert rule.reason.startswith(sentence)
        assert rule.reason.count(".") == 1


def test_every_optimizer_of_torch_is_known_or_has_a_reason():
    weight = torch.nn.Parameter(torch.ones(2, 2))
    for name in dir(optim):
        kind = getattr(optim, name)
        if isinstance(kind, type) and issubclass(kind, optim.Optimizer) and kind is not optim.Optimizer:
            found = known(kind([weight]) if name != "SGD" else kind([weight], 0.1))
            assert not isinstance(found, str) or ": " in found, name


def test_what_is_no_optimizer_is_refused_in_a_sentence():
    weight = torch.nn.Parameter(torch.ones(2))
    for given in (3, [optim.SGD([weight], 0.1), None]):
        with pytest.raises(ln.InputError, match=r"is not allowed: give a torch.optim optimizer, or a list of such"):
            TorchOptimizers(given, [weight])
    assert Rule.sgd(0.1).reason is None


@pytest.mark.parametrize("products", ["exact", "differences"])
def test_a_direction_is_checked_on_fresh_samples_and_displacements_are_short(products, monkeypatch):
    """A preconditioned direction of AdamW is compared on other rows; differences know the optimizer's last change."""
    from linnet.probe import curvature

    given = []
    made = curvature.Differences

    def noted(*arguments, update=None, **options):
        given.append(update)
        return made(*arguments, update=update, **options)

    monkeypatch.setattr(curvature, "Differences", noted)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    x = torch.randn(64, 5)
    batch = x, torch.stack([x[:, 0] * x[:, 1], x[:, 2].sin()], 1)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, betas=(0.9, 0.9))

    def loss_fn(model, batch):
        return torch.nn.functional.mse_loss(model(batch[0]), batch[1])

    probe = ln.probe.Probe(model, loss_fn, batch, optimizer=optimizer, every=10, products=products)
    before = []
    for step in range(12):
        before = [weight.detach().clone() for weight in model.parameters()]
        optimizer.zero_grad()
        loss = loss_fn(model, batch)
        loss.backward()
        optimizer.step()
        probe.update(step, loss)
    last = probe.record.measurements[-1]
    assert 0 < last["fresh"] < 3
    assert last["step"] == 11
    if products == "exact":
        assert given == []
        return
    update = torch.cat([(w.detach() - b).reshape(-1) for w, b in zip(model.parameters(), before, strict=True)])
    torch.testing.assert_close(given[-1], update, rtol=1e-3, atol=1e-7)
