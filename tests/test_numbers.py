"""Numbers are arrays in every program: another one, in any public constructor, compiles nothing anew."""

import inspect

import jax
import numpy as np
import optax
import pytest

import linnet as ln

EYE, ONES = np.eye(2), np.ones((2, 2))
INPUTS = np.array([[1.0, 0.5], [0.2, 2.0], [0.3, 0.1]])
KEY = jax.random.key(3)


def problem():
    return ln.factorisation(np.diag([2.0, 1.0]))


def layers(x=0.3):
    return ln.Weights([x * EYE, 2 * x * EYE])


def linear(parameters, inputs):
    return inputs @ parameters[0].T


def network():
    return ln.Network(linear, (EYE,), INPUTS)


# what is run for a number x, beside the defaults of `ask`
PROBLEMS = {
    "Factorisation": lambda x: ln.Factorisation(x * EYE, x),
    "Regression": lambda x: ln.Regression(x * EYE, x * EYE, x, x, x, 2),
    "factorisation": lambda x: ln.factorisation(x * EYE),
    "low_rank_recovery": lambda x: ln.low_rank_recovery(KEY, 2, 1, levels=[x]),
    "regression": lambda x: ln.regression(x * INPUTS, x * INPUTS),
    "Classification": lambda x: ln.Classification(x * INPUTS, np.eye(3)[:, :2], x),
    "classification": lambda x: ln.classification(x * INPUTS, [0, 1, 0]),
    "masked": lambda x: ln.masked(x * EYE, EYE, scale=x),
    "logistic": lambda x: ln.logistic(np.sign(EYE - 0.5), scale=x),
    "pseudo_huber": lambda x: ln.pseudo_huber(x * EYE, delta=x, scale=x),
}
STATES = {
    "Weights": layers,
    "EndToEnd": lambda x: ln.EndToEnd(x * EYE, ln.Mixed(x)),
    "Mixed": lambda x: ln.EndToEnd(EYE, ln.Mixed(x)),
    "Lazy": lambda x: ln.EndToEnd(EYE, ln.Lazy(x)),
    "Balanced": lambda x: ln.EndToEnd(x * EYE, ln.Balanced(2)),
    "Pair": lambda x: ln.Pair(layers(x), layers(2 * x)),
    "RankOne": lambda x: ln.RankOne([x, 1.0], x, [1.0, x], 3),
    "RankOne.balanced": lambda x: ln.RankOne.balanced(x, [x, 1.0], [1.0, x], 3),
    "SpectralMirror": lambda x: ln.SpectralMirror(np.diag([x, 2 * x]), x),
    "gaussian": lambda x: ln.gaussian(KEY, problem(), 100 * x, x),
    "i_gamma": lambda x: ln.i_gamma(problem(), x),
    "balanced": lambda x: ln.balanced(x * EYE, (2,)),
    "identity": lambda x: ln.identity(problem(), x, 2),
    "one_zero": lambda x: ln.one_zero(problem(), x, 2),
    "orthogonal": lambda x: ln.orthogonal(KEY, problem(), x, 2),
    "random_one_zero": lambda x: ln.random_one_zero(KEY, problem(), x, 2),
    "aligned": lambda x: ln.aligned(problem(), [[x, 1.0], [1.0, x]]),
    "mixed_manifold": lambda x: ln.mixed_manifold(x * EYE, x),
    "two_c_balanced": lambda x: ln.two_c_balanced(x * EYE, x),
    "lambda_balanced": lambda x: ln.lambda_balanced(KEY, problem(), x, 2, scale=x),
    "gauge": lambda x: ln.gauge(KEY, layers(x), spread=2 + x),
}
OTHERS = {
    "Modes": lambda x: {"problem": ln.factorisation([2.0, 1.0]), "state": ln.Modes([[x, x], [1.0, x]])},
    "ScalarMirror": lambda x: {"problem": ln.factorisation([[2.0, 1.0]]), "state": ln.ScalarMirror([[x, 1.0]], x)},
    "ReluNetwork": lambda x: {
        "problem": ln.supervised(INPUTS[:, :1]),
        "state": ln.ReluNetwork(x * ONES, x * ONES[:1], INPUTS),
    },
    "Network": lambda x: {
        "problem": ln.supervised(x * INPUTS),
        "state": ln.Network(linear, (x * EYE,), x * INPUTS),
    },
    "supervised": lambda x: {"problem": ln.supervised(x * INPUTS, "half squares"), "state": network()},
    "Softmax": lambda x: {"problem": ln.Softmax(np.eye(3)[:, :2], x), "state": network()},
    "mlp": lambda x: {"problem": ln.supervised(INPUTS), "state": ln.mlp(KEY, INPUTS, (3, 2), scale=x)},
    "conv": lambda x: {
        "problem": ln.supervised(INPUTS),
        "state": ln.conv(KEY, x * np.ones((3, 1, 2, 2)), (1,), 2, scale=x),
    },
    "unet": lambda x: {
        "problem": ln.supervised(x * np.ones((1, 1, 2, 2))),
        "state": ln.unet(KEY, np.ones((1, 1, 2, 2)), channels=1, levels=1, scale=x),
    },
    "reduced": lambda x: {
        "problem": ln.supervised(INPUTS),
        "state": ln.reduced(ln.mlp(KEY, x * INPUTS, (3, 2)))[0],
    },
    "pairs": lambda x: {"record": ln.pairs(1 + round(2 * x)), "steps": 8},
    "readout": lambda x: {
        "problem": (one := ln.mean_field_regression(INPUTS, INPUTS[:, 0], width=5)),
        "state": ln.readout(KEY, one, 100 * x, sigma0=x, v0=x),
    },
    "mean_field_regression": lambda x: {
        "problem": ln.mean_field_regression(x * INPUTS, INPUTS[:, 0], width=10 * x),
        "state": ln.Weights([EYE, ONES[:1]]),
    },
    "diagonal_regression": lambda x: {
        "problem": ln.diagonal_regression(x * INPUTS, x * INPUTS[:, 0]),
        "state": ln.Modes(ONES),
    },
    "GradientDescent": lambda x: {"motion": ln.GradientDescent(x / 10)},
    "GradientDescent, decay": lambda x: {"motion": ln.GradientDescent(x / 10, decay=x, rates=(x, 1))},
    "Momentum": lambda x: {"motion": ln.Momentum(x / 10, x / 2, decay=x)},
    "Adam": lambda x: {"motion": ln.Adam(x / 10, x / 2, x / 2, x)},
    "AdamW": lambda x: {"motion": ln.AdamW(x / 10, x / 2, x / 2, x, decay=x)},
    "Sign": lambda x: {"motion": ln.Sign(x / 10, x / 2)},
    "Muon": lambda x: {"motion": ln.Muon(x / 10, x / 2, adjust="original", widths=(2, 10 * x, 2))},
    "Optax": lambda x: {"motion": ln.Optax(optax.adam, learning_rate=x / 10, b1=x / 2)},
    "MiniBatch": lambda x: {
        "problem": ln.regression(INPUTS, INPUTS),
        "motion": ln.GradientDescent(0.1, batch=ln.MiniBatch(order=[[round(x), 0], [1, 2]])),
    },
    "Online": lambda x: {
        "problem": ln.regression(x * INPUTS, INPUTS),
        "motion": ln.GradientDescent(0.1, batch=ln.Online(2)),
        "key": KEY,
    },
    "LabelNoiseDescent": lambda x: {"motion": ln.LabelNoiseDescent(x / 10, x), "key": KEY},
    "NoisyFlow": lambda x: {"motion": ln.NoisyFlow(x / 10, x), "key": KEY},
    "NoisyFlow, power": lambda x: {"motion": ln.NoisyFlow(x / 10, x, power=x / 2, decay=x), "key": KEY},
    "GradientFlow": lambda x: {"motion": ln.GradientFlow(1e-6 * x, 1e-7 * x), "time": x},
    "GradientFlow, decay": lambda x: {"motion": ln.GradientFlow(1e-6, decay=x, rates=(x, 1)), "time": x},
    "InertialFlow": lambda x: {"motion": ln.InertialFlow(x, speed=layers(x), rtol=1e-6), "time": x},
    "change_below": lambda x: {"stop": ln.change_below(x * 1e-3)},
    "loss_below": lambda x: {"stop": ln.loss_below(x * 1e-3)},
    "at": lambda x: {"motion": ln.GradientFlow(1e-6), "time": 3.0, "record": ln.at([0.0, x])},
    "every": lambda x: {"record": ln.every(round(2 * x))},
    "linear": lambda x: {"record": ln.linear(2), "steps": round(10 * x)},
    "logarithmic": lambda x: {"motion": ln.GradientFlow(1e-6), "time": 3.0, "record": ln.logarithmic(3, x)},
    "simulate, blowup": lambda x: {"blowup": 1e7 * x},
}
WITHOUT = {"critical", "propagator", "custom", "gaussian_samples", "cast"}  # no number, or no run of its own


def ask(given):
    """A short run; how often its observable was traced, which is once for each program."""
    traced = []

    def look(state, problem):
        traced.append(1)
        return problem.cost(state.matrix)

    def run(x):
        return ln.simulate(
            **{"problem": problem(), "state": layers(), "motion": ln.GradientDescent(0.1)}
            | ({} if "time" in given(x) else {"steps": 4})
            | given(x)
            | {"observe": {"look": look}}
        )

    run(1.0)
    assert traced
    before = len(traced)
    run(1.5)
    return len(traced) - before


CASES = (
    {name: lambda x, make=make: {"problem": make(x)} for name, make in PROBLEMS.items()}
    | {name: lambda x, make=make: {"state": make(x)} for name, make in STATES.items()}
    | OTHERS
)


@pytest.mark.parametrize("name", CASES)
def test_another_number_compiles_nothing(name):
    assert ask(CASES[name]) == 0


def test_every_public_constructor_is_asked():
    rooms = {"problems", "initial", "networks", "motion", "record", "states"}
    frames = {"Problem", "State", "Closure", "Motion", "Optimiser", "Stepping", "Record", "Task"}
    results = {"Fit", "Optimum", "Projection", "Sampler", "Samples", "Whitening"}
    public = {
        name
        for name in dir(ln)
        if inspect.isfunction(found := getattr(ln, name, None)) or inspect.isclass(found)
        if found.__module__.split(".")[1] in rooms
    }
    assert public - frames - results - WITHOUT == {name.split(",")[0].split(".")[0] for name in CASES} - {"simulate"}
