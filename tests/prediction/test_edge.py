"""`prediction.edge`: where descent settles beyond the edge, against its 2-cycles, exact runs, and other theories."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import linnet as ln
from linnet import maps, prediction
from linnet._check import InputError
from linnet.optim import SGD
from linnet.prediction.assumption import Holds, NotApplicable
from linnet.prediction.theories import edge as module
from linnet.prediction.theories.edge import WINDOW, weights
from linnet.record import every
from linnet.theory import stability


def one_mode(depth, start=0.8):
    """A balanced mode s = 1, whose curvature at the minimum is the depth: lr = kappa / depth."""
    return ln.factorization(np.eye(1)), ln.Weights([np.full((1, 1), start)] * depth)


def part(said, topic):
    (found,) = (one for one in (said, *said.parts) if one.topic == topic)
    return found


@pytest.mark.parametrize(("depth", "kappa"), [(2, 2.2), (3, 2.3)])
def test_it_agrees_with_the_maps_of_modes(depth, kappa):
    said = ln.predict(*one_mode(depth), SGD(kappa / depth))
    edge, mode = part(said, "edge"), part(said, "stability").modes[0]
    low, high = sorted(float(end.matrix[0, 0]) for end in edge.data["ends"])
    np.testing.assert_allclose([low, high], [mode.low, mode.high], rtol=1e-6)
    assert edge.settles_at == "2-cycle"
    np.testing.assert_allclose(edge.mean_loss, ((1 - mode.low) ** 2 + (1 - mode.high) ** 2) / 4, rtol=1e-6)
    values = np.array([mode.low, mode.high]) ** (1 / depth)
    np.testing.assert_allclose(edge.amplitude, np.sqrt(depth) * np.std(values), rtol=1e-6)
    np.testing.assert_allclose(edge.mean_predictor_norm, (mode.low + mode.high) / 2, rtol=1e-6)
    np.testing.assert_allclose(edge.distance, np.sqrt(depth) * abs(np.mean(values) - 0.8), rtol=1e-6)
    assert all(one.holds is Holds.EXACTLY for one in edge["mean_loss"].source.assumptions)


def test_growth_is_the_largest_multiplier():
    """Of Hessians of the cost written out, by `maps.floquet`."""
    lr = 1.1
    said = prediction.edge(*one_mode(2), SGD(lr))
    ends = [ravel_pytree(end.trained())[0] for end in said.data["ends"]]
    jacobians = [np.eye(2) - lr * np.asarray(jax.hessian(lambda w: (1 - w[0] * w[1]) ** 2 / 2)(end)) for end in ends]
    assert said.growth == pytest.approx(abs(maps.floquet(np.array(jacobians))[0]), rel=1e-6)
    assert said.growth < 1


def test_descent_of_a_network_settles_where_predicted():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 4))
    problem = ln.regression(x, x @ rng.normal(size=(4, 3)))
    network = ln.init.gaussian(0, problem, 6, 0.05)
    said = ln.predict(problem, network, SGD(0.0159))
    assert part(said, "network").largest_stable_lr < 0.0159
    said = part(said, "edge")
    measured = said.measure()
    assert said.settles_at == "2-cycle"
    assert said.amplitude > 0.05
    for name in ("mean_loss", "amplitude", "mean_predictor_norm", "distance"):
        assert measured[name].value == pytest.approx(said[name].value, rel=said[name].error), name
    assert set(measured.to_dict()["run"]) >= {"status", "mean_loss", "amplitude", "distance"}


def test_it_converges_where_a_flatter_minimum_is_stable():
    """Gradient flow from here keeps x^2 - y^2 = 2.47 and ends at S = 3.18, beyond the edge; the flattest has S = 2."""
    problem, network = ln.factorization(np.eye(1)), ln.Weights([np.full((1, 1), y) for y in (1.6, 0.3)])
    lr = 2 / 3.1
    assert lr * np.hypot(1.6**2 - 0.3**2, 2) > 2
    edge = prediction.edge(problem, network, SGD(lr))
    assert edge.settles_at == "minimum"
    assert edge.amplitude == 0
    measured = edge.measure()
    assert measured.mean_loss < 1e-20
    ends = [float(ln.observe.sharpness(end, problem)) for end in (edge.data["ends"][0], measured.run.final)]
    assert max(ends) * lr < 0.9 * 2
    assert 2 / lr - ends[0] == pytest.approx(2 / lr - ends[1], rel=0.1)  # the central flow would stop at 0


@pytest.mark.parametrize(
    ("kappa", "needs"),
    [(2.55, "an end that attracts descent"), (2.8, "an end that attracts"), (3.1, "a rod that settles")],
)
def test_nothing_is_predicted_beyond_period_doubling(kappa, needs):
    with pytest.raises(NotApplicable, match=needs):
        prediction.edge(*one_mode(2), SGD(kappa / 2))
    said = ln.predict(*one_mode(2), SGD(kappa / 2))
    assert part(said, "stability").modes[0].low is not None
    assert needs in dict(said.unmet)["edge"].name


def test_nothing_is_predicted_where_modes_mix():
    """The rod stays diagonal, and its 2-cycle is one of descent; entries between modes grow there."""
    onset = float(stability.cross_threshold(0.9, 2))
    problem, network = ln.factorization(np.diag([1.0, 0.9])), ln.Weights([np.diag([0.9, 0.85])] * 2)
    for kappa, grows in (((2 + onset) / 2, False), (onset + 0.05, True)):
        assert 2 < kappa < stability.stages(2).doublings[1]
        if grows:
            with pytest.raises(NotApplicable, match="attracts descent"):
                prediction.edge(problem, network, SGD(kappa / 2))
        else:
            assert prediction.edge(problem, network, SGD(kappa / 2)).settles_at == "2-cycle"


def test_what_it_does_not_apply_to():
    problem, network = one_mode(2)
    x = np.random.default_rng(0).normal(size=(6, 3))
    labels = ln.supervised(x[:, :2])
    relu = ln.networks.mlp(0, x, (5, 2), activation="relu")
    single = ln.Weights([np.full((1, 1), 0.5)])
    for triple, needs in (
        ((problem, network, SGD(1.1, momentum=0.5)), "plain gradient descent"),
        ((problem, network, SGD(lambda step: 1.1)), "plain gradient descent"),
        ((problem, network, None), "plain gradient descent"),
        ((problem, ln.EndToEnd(0.1 * np.eye(1), ln.states.Mixed(0.1)), SGD(1.1)), "weights of one network"),
        ((labels, relu, SGD(0.1)), "three derivatives"),
        ((problem, ln.Weights([np.full((1, 1), y) for y in (2.5, 0.1)]), SGD(1.1)), "not beyond the edge"),
        ((problem, single, SGD(2.05)), "settles"),
    ):
        with pytest.raises(NotApplicable) as error:
            prediction.edge(*triple)
        assert needs in f"{error.value} {error.value.assumption.name}"
        assert error.value.assumption.holds is Holds.NOT
    with pytest.raises(InputError, match="edge takes a problem and a network"):
        prediction.edge(problem, "network", SGD(1.1))


def test_below_the_edge_nothing_is_computed(monkeypatch):
    def computed(*_):
        raise AssertionError

    monkeypatch.setattr(module, "edge", computed)
    x = np.random.default_rng(0).normal(size=(6, 3))
    for triple in (
        (*one_mode(2), SGD(0.9)),
        (ln.supervised(x[:, :2]), ln.networks.mlp(0, x, (5, 2), activation="tanh"), SGD(0.1)),
    ):
        said = ln.predict(*triple)
        assert "edge" in dict(said.unmet)
    with pytest.raises(AssertionError):
        ln.predict(*one_mode(2), SGD(1.1))


@pytest.mark.slow
def test_it_follows_nonlinear_networks_when_asked_by_name():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(5, 2))
    problem = ln.supervised(jnp.asarray(rng.normal(size=(5, 1))), "half squares")
    network = ln.networks.mlp(1, x, (3, 1), activation="tanh")
    lr = 1 / float(ln.observe.sharpness(network, problem))
    said = prediction.edge(problem, network, SGD(lr))
    measured = said.measure()
    assert measured.mean_loss == pytest.approx(said.mean_loss, rel=1e-3)


def test_it_is_compared_with_a_run_of_ones_own():
    problem, network = one_mode(2)
    said = prediction.edge(problem, network, SGD(1.1))
    own = said.compare(ln.simulate(problem, network, SGD(1.1), steps=1500, record=every(1)))
    assert own.mean_loss == pytest.approx(said.mean_loss, rel=1e-9)
    assert "amplitude" not in own
    observed = {"loss": "loss", "weights": weights}
    own = said.compare(ln.simulate(problem, network, SGD(1.1), steps=1500, record=every(1), observe=observed))
    assert own.amplitude == pytest.approx(said.amplitude, rel=1e-9)
    with pytest.raises(InputError, match=f"each of its last {WINDOW} steps"):
        said.compare(ln.simulate(problem, network, SGD(1.1), steps=1500, record=every(3)))
    with pytest.raises(InputError, match="another learning rate"):
        said.compare(ln.simulate(problem, network, SGD(5.0), steps=1500, record=every(1)))
