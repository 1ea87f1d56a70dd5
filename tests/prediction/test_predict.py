"""`ln.predict`: which theories apply to a triple, what is unmet, and predictions beside a user's own run."""

import json
import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import linnet as ln
from linnet import prediction
from linnet._check import InputError
from linnet._files import dumps
from linnet.prediction.assumption import Holds

TOPICS = {"network", "stability", "balance", "bias", "phase", "rates", "landscape", "features", "layer", "edge"}


def samples(n, d_in, d_out, seed=0, *, noise=0.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d_in))
    y = x @ rng.normal(size=(d_in, d_out)) / math.sqrt(d_in) + noise * rng.normal(size=(n, d_out))
    return x, y


def regression(n, d_in, d_out, seed=0, *, noise=0.0):
    return ln.regression(*samples(n, d_in, d_out, seed, noise=noise))


def weights(problem, hidden, seed=0, scale=0.4):
    d_out, d_in = problem.shape
    return ln.init.gaussian(seed, problem, list(hidden), scale**2) if hidden else _one_layer(d_out, d_in, seed, scale)


def _one_layer(d_out, d_in, seed, scale):
    return ln.Weights([scale * np.random.default_rng(seed).normal(size=(d_out, d_in))])


def topics_of(said):
    return {said.topic, *(part.topic for part in said.parts)}


def unmet_of(said):
    return {name: assumption.name for name, assumption in said.unmet}


# Which theories apply ------------------------------------------------------------------------------------------------


@settings(max_examples=12)
@given(
    hidden=st.lists(st.integers(1, 5), max_size=3),
    d_in=st.integers(1, 5),
    d_out=st.integers(1, 4),
    n=st.integers(1, 7),
    seed=st.integers(0, 1000),
    noise=st.sampled_from([0.0, 0.3]),
    optimizer=st.sampled_from([None, ln.optim.SGD(1e-3), ln.optim.SGD(1e-3, momentum=0.5)]),
)
def test_any_weights_are_predicted_and_every_theory_is_asked(hidden, d_in, d_out, n, seed, noise, optimizer):
    x, y = samples(n, d_in, d_out, seed, noise=noise)
    problem = ln.regression(x, y)
    network = weights(problem, hidden, seed)
    said = ln.predict(problem, network, optimizer)
    assert said.topic == "network"
    assert (said.inputs, said.outputs, said.depth, said.hidden) == (d_in, d_out, len(hidden) + 1, tuple(hidden))
    assert (said.problem, said.network) == (problem, network)
    assert not topics_of(said) & set(unmet_of(said))
    assert topics_of(said) | set(unmet_of(said)) == TOPICS
    assert all(assumption.name and assumption.holds is Holds.NOT for _, assumption in said.unmet)
    # the loss at initialization, and the best fit of the rank that the widths allow
    assert said.loss.initial == pytest.approx(float(problem.cost(network.matrix)), rel=1e-9)
    fitted = x @ np.linalg.lstsq(x, y)[0]
    lost = np.linalg.svd(fitted, compute_uv=False)[min([*hidden, d_in, d_out]) :]
    best = (np.sum((y - fitted) ** 2) + np.sum(lost**2)) / 2
    assert said.loss.final == pytest.approx(best, rel=1e-6, abs=1e-9 * np.sum(y**2))
    assert said.lr > 0
    assert said.lr_chosen == (optimizer is None)
    told = json.loads(dumps(said.to_dict()))
    assert set(told.get("parts", {})) == topics_of(said) - {"network"}
    assert {one["theory"] for one in told["unmet"]} == set(unmet_of(said))
    for name in unmet_of(said):
        assert f"{name} does not apply:" in str(said)


def test_theories_of_special_initializations_are_parts():
    white = prediction.whitened([3.0, 1.0])
    balanced = ln.predict(white, ln.Weights([0.1 * np.eye(2)] * 2), ln.optim.SGD(0.01))
    assert topics_of(balanced) >= {"network", "stability", "balance", "landscape"}
    assert "bias" in unmet_of(balanced)
    one_zero = ln.predict(white, ln.init.i_gamma(white, 0.1), ln.optim.SGD(0.01))
    assert topics_of(one_zero) >= {"network", "bias", "balance"}
    (bias,) = (part for part in one_zero.parts if part.topic == "bias")
    for mode, other in zip(one_zero.modes, bias.modes, strict=True):
        assert mode.value == pytest.approx(other.value, rel=1e-9)
    rank_one = ln.predict(white, ln.init.rank_one(0, white, 0.1, 3), ln.optim.SGD(0.001))
    assert "rates" in topics_of(rank_one)


def test_a_factorization_is_predicted_as_the_regression_that_it_is():
    goal = np.diag([3.0, 1.0, 0.5])[:2]
    network = ln.init.gaussian(3, (2, 3), [4], 0.01)
    one = ln.predict(ln.factorization(goal), network, ln.optim.SGD(0.05))
    other = ln.predict(ln.regression(np.eye(3), goal.T), network, ln.optim.SGD(0.05))
    scale = float(ln.factorization(goal).scale)
    assert one.loss.initial == pytest.approx(scale * other.loss.initial, rel=1e-12)
    assert [mode.value for mode in one.modes] == pytest.approx([mode.value for mode in other.modes], rel=1e-12)


def test_one_regression_is_decomposed_three_times_at_most(monkeypatch):
    """By an SVD of anything as large as the inputs, the samples' own included; points of the landscape are others."""
    x, y = samples(60, 20, 3, noise=0.1)
    count, svd = [], np.linalg.svd

    def counted(matrix, *arguments, **options):
        count.append(max(matrix.shape[-2:]) >= 20)
        return svd(matrix, *arguments, **options)

    wide, zero = ln.init.gaussian(0, (3, 20), 30, 1e-3), ln.init.i_gamma(ln.regression(x, y), 0.1)
    monkeypatch.setattr(np.linalg, "svd", counted)
    for ask in (
        lambda problem: ln.predict(problem, wide, ln.optim.SGD(1e-3)),
        lambda problem: prediction.network(problem, wide),
        lambda problem: prediction.bias(problem, zero),
        lambda problem: prediction.Situation(network={"width": 30}).predict(problem),
    ):
        count.clear()
        ask(ln.regression(x, y))
        assert 1 <= sum(count) <= 3


# What does not apply -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "optimizer",
    [ln.optim.GradientFlow(), ln.optim.Adam(0.01), ln.optim.SGD(lambda step: 0.1 / (1 + step))],
    ids=["flow", "adam", "schedule"],
)
def test_other_optimizers_are_unmet_by_name(optimizer):
    problem = regression(6, 4, 3)
    said = ln.predict(problem, weights(problem, [5]), optimizer)
    assert said.topic == "landscape"  # about the loss alone
    assert unmet_of(said)["network"] == "SGD with one constant learning rate"
    assert topics_of(said) | set(unmet_of(said)) == TOPICS
    flow = isinstance(optimizer, ln.optim.GradientFlow)
    for name in ("stability", "balance", "bias", "phase", "rates", "features", "layer", "edge"):
        assert name in unmet_of(said)
    with pytest.raises(InputError, match="SGD with one constant learning rate"):
        prediction.network(problem, weights(problem, [5]), optimizer)
    white = prediction.whitened([3.0, 1.0])
    again = ln.predict(white, ln.Weights([0.1 * np.eye(2)] * 2), optimizer)
    assert ("balance" in topics_of(again)) == flow  # a theory of gradient flow


def test_nonlinear_networks_have_linear_theory_under_descent_alone():
    x = np.random.default_rng(0).normal(size=(6, 3))
    problem, network = ln.supervised(x[:, :2]), ln.networks.mlp(jax.random.key(0), x, (5, 2))
    said = ln.predict(problem, network, ln.optim.SGD(0.01))
    assert topics_of(said) == {"layer"}
    assert set(unmet_of(said)) == TOPICS - {"layer"}
    assert unmet_of(said)["network"] == "the weights of a linear network"
    with pytest.raises(InputError, match="no theory applies") as error:
        ln.predict(problem, network, ln.optim.Adam(0.01))
    assert "layer needs plain gradient descent on all samples at a constant learning rate" in str(error.value)
    assert "network needs the weights of a linear network" in str(error.value)


@pytest.mark.parametrize("given", [("lora", "lora"), (np.eye(2), ln.Weights([np.eye(2)])), (None, None)])
def test_what_is_no_triple_is_one_sentence(given):
    with pytest.raises(InputError, match="predict takes a problem and a network"):
        ln.predict(*given)


# A user's own run ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hidden", "shape", "optimizer"),
    [
        ((), (7, 3, 2), {"lr": 0.02}),
        ((4,), (5, 7, 3), {"lr": 0.02}),  # fewer samples than inputs
        ((5, 4), (9, 3, 4), {"lr": 0.01}),
        ((4,), (6, 4, 2), {"lr": 0.005, "momentum": 0.8}),
    ],
)
def test_a_users_run_reads_as_the_measurement(hidden, shape, optimizer):
    """A run of the triple as it was given, in its own coordinates, which recorded loss and matrix at the same steps."""
    problem, descent = regression(*shape, seed=1, noise=0.1), ln.optim.SGD(**optimizer)
    network = weights(problem, hidden, seed=2)
    said = ln.predict(problem, network, descent)
    assert said.converges
    measured = said.measure()
    steps = np.asarray(measured.run.steps)
    run = ln.simulate(
        problem, network, descent, steps=int(steps[-1]), record=ln.record.at(steps), observe=["loss", "matrix"]
    )
    mine = said.compare(run)
    assert set(mine) == set(measured)
    for one, other in zip(mine.modes, measured.modes, strict=True):
        assert one.half_learned.step == pytest.approx(other.half_learned.step, rel=1e-6)
    assert mine.fit.step == pytest.approx(measured.fit.step, rel=1e-6)
    assert mine.learned.step == pytest.approx(measured.learned.step, rel=1e-6)
    assert mine.predictor_error == pytest.approx(measured.predictor_error, rel=1e-6, abs=1e-9)
    assert mine.excess_loss_left == pytest.approx(measured.excess_loss_left, abs=1e-9)
    assert abs(said.learned.step / mine.learned.step - 1) <= said.learned.error + 1e-3
    # of the loss alone the fit is known, and nothing else
    loss = ln.simulate(problem, network, descent, steps=int(steps[-1]), record=ln.record.at(steps), observe=["loss"])
    alone = said.compare(loss)
    assert alone.fit.step == pytest.approx(measured.fit.step, rel=1e-6)
    assert math.isnan(alone.learned.step)
    assert math.isnan(alone.modes[0].half_learned.step)
    assert mine.plot().axes


@pytest.mark.parametrize("flow", [False, True])
@pytest.mark.parametrize("start", ["one-zero", "identity", "gaussian", "balanced", "rank one"])
def test_every_theory_reads_a_run_that_observed_what_it_asks_for(start, flow):
    problem, key = ln.factorization(np.diag([4.0, 2.0, 1.0, 0.5])), jax.random.key(0)
    network = {
        "one-zero": lambda: ln.init.one_zero(problem, alpha=0.1, depth=2),
        "identity": lambda: ln.init.identity(problem, 0.1, 3),
        "gaussian": lambda: ln.init.gaussian(key, problem, width=(16,), variance=0.01),
        "balanced": lambda: ln.init.lambda_balanced(key, problem, lam=0.5, width=4),
        "rank one": lambda: ln.init.rank_one(key, problem, 0.1, 3),
    }[start]()
    optimizer = ln.optim.GradientFlow() if flow else ln.optim.SGD(0.02)
    said = ln.predict(problem, network, optimizer)
    how, read = {"time": 6.0} if flow else {"steps": 300}, 0
    bare = ln.simulate(problem, network, optimizer, **how)
    for one in (said, *said.parts):
        if one.topic == "landscape":
            with pytest.raises(ln.InputError, match=r"landscape is not read from a run: measure\(\)"):
                one.compare(bare)
            continue
        run = ln.simulate(problem, network, optimizer, **how, observe=one.observables)
        compared = one.compare(run)
        assert set(compared) & set(one)  # something is beside what was predicted
        if "ended" in compared:
            assert compared.ended == pytest.approx(6.0)
        if set(one.observables) - {*one.experiment.optional, *bare.values}:
            with pytest.raises(ln.InputError, match=r"has not recorded [a-z_, ]+: give simulate observe=pred"):
                one.compare(bare)
        read += 1
    assert read or flow


def test_a_run_of_another_triple_is_refused():
    problem, descent = regression(7, 3, 2, seed=1), ln.optim.SGD(0.02)
    network = weights(problem, (4,), seed=2)
    said = ln.predict(problem, network, descent)

    def refused(match, run):
        with pytest.raises(ln.InputError, match=match):
            said.compare(run)

    def run(problem, network, optimizer, **how):
        return ln.simulate(problem, network, optimizer, **({"steps": 5} | how), observe=["loss", "matrix"])

    refused("run = NoneType is not allowed: compare takes what simulate returns", None)
    refused("run = str is not allowed", "run")
    other = ln.factorization(np.diag([3.0, 1.0]))
    drawn = weights(other, (4,), seed=2)
    refused(r"a matrix of shape \(2, 2\): that of this prediction has shape \(2, 3\)", run(other, drawn, descent))
    refused("begins with another network", run(problem, weights(problem, (4,), seed=3), descent))
    refused("has another learning rate: its 5 steps take", run(problem, network, ln.optim.SGD(0.01)))
    batch = jax.vmap(lambda lr: run(problem, network, ln.optim.SGD(lr)))(np.array([0.01, 0.02]))
    refused("a batch of runs cannot be compared", batch)
    assert said.compare(run(problem, network, ln.optim.GradientFlow(), steps=None, time=1.0)).status == "horizon"


@pytest.mark.parametrize("optimizer", [0.1, ln.optim.SGD, "sgd"])
def test_what_is_no_optimizer_is_named(optimizer):
    problem = regression(7, 3, 2, seed=1)
    with pytest.raises(ln.InputError, match=r"optimizer = .* is not allowed: use an optimizer such as"):
        ln.predict(problem, weights(problem, (4,), seed=2), optimizer)


def test_a_network_of_another_shape_is_named():
    problem, other = regression(7, 3, 2, seed=1), regression(7, 4, 2, seed=1)
    with pytest.raises(ln.InputError, match=r"shape \(2, 4\), and the problem needs \(2, 3\)"):
        ln.predict(problem, weights(other, (4,), seed=2), ln.optim.SGD(0.1))


# Triples of situations -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", [{"width": 6}, {"width": 10**6}, {"depth": 3, "width": [6, 5]}])
def test_the_triple_of_a_situation_has_the_weights_of_the_initializer(network):
    """With the same seed, for a spectrum and for samples; its prediction is that of the situation."""
    depth = network.get("depth", 2)
    scale = [0.3, 0.2, 0.25][:depth]
    tables = {"network": network, "init": {"scale": scale, "seed": 7}, "training": {"lr": 0.01}}
    own = regression(8, 4, 2, seed=3)
    for data, given_problem in (({"spectrum": [3.0, 1.0], "inputs": 4, "outputs": 2}, None), (None, own)):
        situation = prediction.Situation(**({"data": data} if data else {}), **tables)
        problem, drawn, optimizer = situation.triple(given_problem)
        width = network["width"]
        expected = ln.init.gaussian(jax.random.key(7), problem, width, [x**2 for x in scale])
        assert drawn.compressed == expected.compressed
        for mine, theirs in zip(drawn.layers, expected.layers, strict=True):
            np.testing.assert_array_equal(mine, theirs)
        said, asked = ln.predict(problem, drawn, optimizer), situation.predict(given_problem)
        assert float(optimizer.lr) == said.lr == asked.lr == 0.01
        for name in ("largest_stable_lr", "largest_stable_lr_at_initialization", "predictor_norm"):
            assert getattr(said, name) == pytest.approx(getattr(asked, name), rel=1e-6)
        for one, other in zip(said.modes, asked.modes, strict=True):
            assert one.half_learned.step == pytest.approx(other.half_learned.step, rel=1e-6)


@pytest.mark.parametrize(
    ("network", "init"),
    [
        ({"width": 10**6}, {"scale": 0.001}),
        ({"width": 50}, {"kind": "one-zero", "scale": 0.1}),
        ({"width": 50}, {"kind": "balanced", "scale": 0.1}),
        ({"depth": 3, "width": [9, 2]}, {"kind": "balanced", "scale": 0.3}),
    ],
)
def test_a_wide_network_is_marked_compressed_and_adam_refuses_it(network, init):
    situation = prediction.Situation(data={"spectrum": [3.0, 1.0]}, network=network, init=init, training={"lr": 0.01})
    problem, drawn, optimizer = situation.triple()
    said = situation.predict()
    assert drawn.compressed
    assert said.network.compressed
    for task, state in ((problem, drawn), (said.problem, said.network)):
        with pytest.raises(InputError, match="this network is compressed"):
            ln.simulate(task, state, ln.optim.Adam(0.01), steps=2)
    # what the neurons that are left out add to the curvature is counted
    triple = ln.predict(problem, drawn, optimizer)
    assert triple.compressed
    assert triple.largest_stable_lr_at_initialization == pytest.approx(
        said.largest_stable_lr_at_initialization, rel=1e-9
    )
    assert unmet_of(triple)["landscape"] == "layers that are not compressed"


def test_a_network_that_has_all_its_neurons_is_not_marked():
    for init in ({"kind": "one-zero", "scale": 0.1}, {"kind": "balanced", "scale": 0.1}):
        situation = prediction.Situation(data={"spectrum": [3.0, 1.0]}, network={"width": 2}, init=init)
        problem, drawn, _ = situation.triple()
        assert not drawn.compressed
        assert ln.simulate(problem, drawn, ln.optim.Adam(0.01), steps=2).status == "horizon"
