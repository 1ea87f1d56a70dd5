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
    return ln.factorization(np.diag([2.0, 1.0]))


def layers(x=0.3):
    return ln.Weights([x * EYE, 2 * x * EYE])


def linear(parameters, inputs):
    return inputs @ parameters[0].T


def network():
    return ln.Network(linear, (EYE,), INPUTS)


# what is run for a number x, beside the defaults of `ask`
PROBLEMS = {
    "Factorization": lambda x: ln.problems.Factorization(x * EYE, x),
    "Regression": lambda x: ln.problems.Regression(x * EYE, x * EYE, x, x, x, 2),
    "factorization": lambda x: ln.factorization(x * EYE),
    "low_rank_recovery": lambda x: ln.low_rank_recovery(KEY, 2, 1, levels=[x]),
    "regression": lambda x: ln.regression(x * INPUTS, x * INPUTS),
    "Classification": lambda x: ln.problems.Classification(x * INPUTS, np.eye(3)[:, :2], x),
    "classification": lambda x: ln.classification(x * INPUTS, [0, 1, 0]),
    "masked": lambda x: ln.problems.masked(x * EYE, EYE, scale=x),
    "logistic": lambda x: ln.problems.logistic(np.sign(EYE - 0.5), scale=x),
    "pseudo_huber": lambda x: ln.problems.pseudo_huber(x * EYE, delta=x, scale=x),
}
STATES = {
    "Weights": layers,
    "EndToEnd": lambda x: ln.EndToEnd(x * EYE, ln.states.Mixed(x)),
    "Mixed": lambda x: ln.EndToEnd(EYE, ln.states.Mixed(x)),
    "Lazy": lambda x: ln.EndToEnd(EYE, ln.states.Lazy(x)),
    "Balanced": lambda x: ln.EndToEnd(x * EYE, ln.states.Balanced(2)),
    "Pair": lambda x: ln.states.Pair(layers(x), layers(2 * x)),
    "RankOne": lambda x: ln.RankOne([x, 1.0], x, [1.0, x], 3),
    "RankOne.balanced": lambda x: ln.RankOne.balanced(x, [x, 1.0], [1.0, x], 3),
    "SpectralMirror": lambda x: ln.states.SpectralMirror(np.diag([x, 2 * x]), x),
    "gaussian": lambda x: ln.init.gaussian(KEY, problem(), 100 * x, x),
    "i_gamma": lambda x: ln.init.i_gamma(problem(), x),
    "balanced": lambda x: ln.init.balanced(x * EYE, (2,)),
    "identity": lambda x: ln.init.identity(problem(), x, 2),
    "one_zero": lambda x: ln.init.one_zero(problem(), x, 2),
    "orthogonal": lambda x: ln.init.orthogonal(KEY, problem(), x, 2),
    "random_one_zero": lambda x: ln.init.random_one_zero(KEY, problem(), x, 2),
    "aligned": lambda x: ln.init.aligned(problem(), [[x, 1.0], [1.0, x]]),
    "mixed_manifold": lambda x: ln.init.mixed_manifold(x * EYE, x),
    "two_c_balanced": lambda x: ln.init.two_c_balanced(x * EYE, x),
    "rank_one": lambda x: ln.init.rank_one(KEY, problem(), x, 2),
    "lambda_balanced": lambda x: ln.init.lambda_balanced(KEY, problem(), x, 2, scale=x),
    "gauge": lambda x: ln.init.gauge(KEY, layers(x), spread=2 + x),
}
OTHERS = {
    "Modes": lambda x: {"problem": ln.factorization([2.0, 1.0]), "state": ln.Modes([[x, x], [1.0, x]])},
    "ScalarMirror": lambda x: {
        "problem": ln.factorization([[2.0, 1.0]]),
        "state": ln.states.ScalarMirror([[x, 1.0]], x),
    },
    "ReluNetwork": lambda x: {
        "problem": ln.supervised(INPUTS[:, :1]),
        "state": ln.states.ReluNetwork(x * ONES, x * ONES[:1], INPUTS),
    },
    "Network": lambda x: {
        "problem": ln.supervised(x * INPUTS),
        "state": ln.Network(linear, (x * EYE,), x * INPUTS),
    },
    "supervised": lambda x: {"problem": ln.supervised(x * INPUTS, "half squares"), "state": network()},
    "Softmax": lambda x: {"problem": ln.problems.Softmax(np.eye(3)[:, :2], x), "state": network()},
    "mlp": lambda x: {"problem": ln.supervised(INPUTS), "state": ln.networks.mlp(KEY, INPUTS, (3, 2), scale=x)},
    "conv": lambda x: {
        "problem": ln.supervised(INPUTS),
        "state": ln.networks.conv(KEY, x * np.ones((3, 1, 2, 2)), (1,), 2, scale=x),
    },
    "unet": lambda x: {
        "problem": ln.supervised(x * np.ones((1, 1, 2, 2))),
        "state": ln.networks.unet(KEY, np.ones((1, 1, 2, 2)), channels=1, levels=1, scale=x),
    },
    "reduced": lambda x: {
        "problem": ln.supervised(INPUTS),
        "state": ln.networks.reduced(ln.networks.mlp(KEY, x * INPUTS, (3, 2)))[0],
    },
    "pairs": lambda x: {"record": ln.record.pairs(1 + round(2 * x)), "steps": 8},
    "readout": lambda x: {
        "problem": (one := ln.problems.mean_field_regression(INPUTS, INPUTS[:, 0], width=5)),
        "state": ln.init.readout(KEY, one, 100 * x, sigma0=x, v0=x),
    },
    "mean_field_regression": lambda x: {
        "problem": ln.problems.mean_field_regression(x * INPUTS, INPUTS[:, 0], width=10 * x),
        "state": ln.Weights([EYE, ONES[:1]]),
    },
    "diagonal_regression": lambda x: {
        "problem": ln.problems.diagonal_regression(x * INPUTS, x * INPUTS[:, 0]),
        "state": ln.Modes(ONES),
    },
    "SGD": lambda x: {"optimizer": ln.optim.SGD(x / 10)},
    "SGD, decay": lambda x: {"optimizer": ln.optim.SGD(x / 10, weight_decay=x, lr_multipliers=(x, 1))},
    "SGD, momentum": lambda x: {"optimizer": ln.optim.SGD(x / 10, x / 2, x / 3, weight_decay=x)},
    "Adam": lambda x: {"optimizer": ln.optim.Adam(x / 10, (x / 2, x / 2), x)},
    "AdamW": lambda x: {"optimizer": ln.optim.AdamW(x / 10, (x / 2, x / 2), x, weight_decay=x)},
    "RMSprop": lambda x: {"optimizer": ln.optim.RMSprop(x / 10, x / 2, x, x, x / 2)},
    "SignSGD": lambda x: {"optimizer": ln.optim.SignSGD(x / 10, x / 2)},
    "Muon": lambda x: {
        "optimizer": ln.optim.Muon(
            x / 10, momentum=x / 2, adjust_lr_fn="original", widths=(2, 10 * x, 2), weight_decay=0.0, ns_steps=None
        )
    },
    "Optax": lambda x: {"optimizer": ln.optim.Optax(optax.adam, learning_rate=x / 10, b1=x / 2)},
    "MiniBatch": lambda x: {
        "problem": ln.regression(INPUTS, INPUTS),
        "optimizer": ln.optim.SGD(0.1, batches=ln.optim.MiniBatch(order=[[round(x), 0], [1, 2]])),
    },
    "Online": lambda x: {
        "problem": ln.regression(x * INPUTS, INPUTS),
        "optimizer": ln.optim.SGD(0.1, batches=ln.optim.Online(2)),
        "key": KEY,
    },
    "LabelNoiseSGD": lambda x: {"optimizer": ln.optim.LabelNoiseSGD(x / 10, x), "key": KEY},
    "CentralFlow": lambda x: {"optimizer": ln.optim.CentralFlow(x / 10)},
    "RodFlow": lambda x: {"optimizer": ln.optim.RodFlow(x / 10)},
    "NoisyFlow": lambda x: {"optimizer": ln.optim.NoisyFlow(x / 10, x), "key": KEY},
    "NoisyFlow, power": lambda x: {"optimizer": ln.optim.NoisyFlow(x / 10, x, power=x / 2, weight_decay=x), "key": KEY},
    "GradientFlow": lambda x: {"optimizer": ln.optim.GradientFlow(1e-6 * x, 1e-7 * x), "time": x},
    "GradientFlow, decay": lambda x: {
        "optimizer": ln.optim.GradientFlow(1e-6, weight_decay=x, lr_multipliers=(x, 1)),
        "time": x,
    },
    "InertialFlow": lambda x: {"optimizer": ln.optim.InertialFlow(x, velocity=layers(x), rtol=1e-6), "time": x},
    "change_below": lambda x: {"stop": ln.optim.change_below(x * 1e-3)},
    "loss_below": lambda x: {"stop": ln.optim.loss_below(x * 1e-3)},
    "at": lambda x: {"optimizer": ln.optim.GradientFlow(1e-6), "time": 3.0, "record": ln.record.at([0.0, x])},
    "every": lambda x: {"record": ln.record.every(round(2 * x))},
    "linear": lambda x: {"record": ln.record.linear(2), "steps": round(10 * x)},
    "logarithmic": lambda x: {
        "optimizer": ln.optim.GradientFlow(1e-6),
        "time": 3.0,
        "record": ln.record.logarithmic(3, x),
    },
    "simulate, divergence_limit": lambda x: {"divergence_limit": 1e7 * x},
}
WITHOUT = {
    "critical",
    "propagator",
    "custom",
    "gaussian_samples",
    "cast",
    "precision",
    "samples_and_teacher",
    "balance_exists",
    "junctions",
    "measured_balance",
}  # no number, or no run of its own


def ask(given):
    """A short run; how often its observable was traced, which is once for each program."""
    traced = []

    def look(state, problem):
        traced.append(1)
        return problem.cost(state.matrix)

    def run(x):
        return ln.simulate(
            **{"problem": problem(), "state": layers(), "optimizer": ln.optim.SGD(0.1)}
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
    packages = (ln.problems, ln.init, ln.networks, ln.optim, ln.record, ln.states)
    bases = {"Batches", "Closure", "DiscreteDynamics", "Dynamics", "Optimizer", "Problem", "Record", "State"}
    bases |= {"AveragedDescent", "Event", "Flow", "Stepper"}
    results = {"Averages", "CentralMemory", "Fit", "Optimum", "Projection", "Sampler", "Samples", "Whitening"}
    # classes that a public function builds, and that have a case under its name
    by_function = {"At", "Custom", "Every", "Linear", "Logarithmic", "Logistic", "Masked"}
    by_function |= {"Pairs", "PseudoHuber"}
    public = {
        name
        for package in packages
        for name in getattr(package, "__all__", vars(package))
        if not name.startswith("_")
        if inspect.isfunction(found := getattr(package, name)) or inspect.isclass(found)
        if found.__module__.startswith(package.__name__)
    }
    assert public - bases - results - by_function - WITHOUT == {name.split(",")[0].split(".")[0] for name in CASES} - {
        "simulate"
    }
