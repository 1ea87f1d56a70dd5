"""Every number of a bias against brute force: full weights, another solver, descent."""

import math

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import linnet as ln
from linnet import prediction
from linnet._check import InputError
from linnet.prediction import coerce
from linnet.prediction.assumption import NotApplicable
from linnet.prediction.theories.bias import for_triple
from linnet.prediction.theories.bias_run import measured_curves, predicted_curves
from linnet.theory.regime import Regime


def predicted(problem, *, gamma, width=None):
    """The prediction for I_gamma of this width; a spectrum stands for white data."""
    problem = coerce.regression(problem)
    key = None if width is None else jax.random.key(0)
    return prediction.bias(problem, ln.init.i_gamma(problem, gamma, width=width, key=key))


def full_flow(x, y, gamma, width, horizon, seed=0, times=None):
    """Gradient flow of all weights: (solution, layers of a flat state); events: half learned modes, the fit."""
    d_in, d_out = x.shape[1], y.shape[1]
    frame = np.linalg.qr(np.random.default_rng(seed).normal(size=(width, d_in)))[0]
    start = np.concatenate([np.sqrt(2 * gamma) * frame.ravel(), np.zeros(d_out * width)])

    def layers(flat):
        return flat[: width * d_in].reshape(width, d_in), flat[width * d_in :].reshape(d_out, width)

    def velocity(_, flat):
        first, second = layers(flat)
        force = (y - x @ (second @ first).T).T @ x
        return np.concatenate([(second.T @ force).ravel(), (force @ first.T).ravel()])

    limit = (np.linalg.pinv(x) @ y).T
    u, s, vt = np.linalg.svd(limit, full_matrices=False)
    floor = np.sum((x @ limit.T - y) ** 2) / 2

    def half(i):
        return lambda _, flat: u[:, i] @ layers(flat)[1] @ layers(flat)[0] @ vt[i] - s[i] / 2

    def fit(_, flat):
        first, second = layers(flat)
        return (np.sum((x @ (second @ first).T - y) ** 2) / 2 - floor) / (np.sum(y**2) / 2 - floor) - 0.01

    solution = solve_ivp(
        velocity,
        (0, horizon),
        start,
        method="DOP853",
        rtol=1e-12,
        atol=1e-13 * np.sqrt(gamma),
        t_eval=times,
        events=[*(half(i) for i in range(len(s))), fit],
    )
    return solution, layers


def samples(n=4, d_in=12, d_out=2, noise=0.0):
    rng = np.random.default_rng(8)
    x = rng.normal(size=(n, d_in))
    y = x @ rng.normal(size=(d_in, d_out)) @ np.diag([1, 0.3, 0.1][:d_out]) / 2
    return x, y + noise * rng.normal(size=y.shape)


@pytest.mark.parametrize("average", [True, False])
def test_every_number_of_data_against_full_weights(average):
    x, y = samples()
    gamma, width = 0.05, 15
    said = predicted(ln.regression(x, y, average=average), gamma=gamma, width=width)
    seen = said.measure()
    assert said.normalization == ("mean" if average else "sum")
    assert (said.samples, said.inputs, said.outputs, said.width, said.gamma) == (4, 12, 2, width, pytest.approx(gamma))
    scales = np.linalg.svd(x, compute_uv=False)
    assert (said.rank, said.whitened) == (4, False)
    assert said.condition == pytest.approx(scales[0] / scales[3])
    n = len(x) if average else 1
    x, y = x / np.sqrt(n), y / np.sqrt(n)
    horizon = 1.2 * max(seen.ended, said.fit.time)
    solution, layers = full_flow(x, y, gamma, width, horizon)
    first, second = layers(solution.y[:, -1])
    end = second @ first
    values = np.linalg.svd(end, compute_uv=False)
    np.testing.assert_allclose([m.value for m in said.modes], values, rtol=1e-6)
    np.testing.assert_allclose([m.over_gamma for m in said.modes], values / gamma, rtol=1e-6)
    assert said.predictor_norm == pytest.approx(np.linalg.norm(end), rel=1e-6)
    assert said.loss.initial == pytest.approx(np.sum(y**2) / 2, rel=1e-12)
    assert said.loss.final == 0
    spectrum = np.linalg.svd(first, compute_uv=False)
    layer = said.first_layer
    assert layer.unmoved == 10
    assert layer.initial == pytest.approx(np.linalg.norm(layers(solution.y[:, 0])[0], 2))
    ends = [*(m.first_layer for m in said.modes), *[layer.initial] * layer.unmoved]
    np.testing.assert_allclose(ends, spectrum, rtol=1e-6)
    np.testing.assert_allclose(
        [m.second_layer for m in said.modes], np.linalg.svd(second, compute_uv=False)[:2], rtol=1e-6
    )
    assert layer.rank == np.sum(spectrum >= 2 * np.sqrt(2 * gamma))
    assert layer.stable_rank == pytest.approx(np.sum(spectrum**2) / spectrum[0] ** 2, rel=1e-6)
    np.testing.assert_allclose(said.predictor, end, rtol=1e-5, atol=1e-6)
    halves = [events[0] for events in solution.t_events[:2]]
    for mode, found, true in zip(said.modes, seen.modes, halves, strict=True):
        when = mode.half_learned
        assert when.not_before < true < when.not_after
        assert when.time == pytest.approx(true, rel=when.error)
        assert when.error < 1e-3
        assert found.half_learned.time == pytest.approx(true, rel=1e-5)
        assert found.half_learned.exact
    fitted = solution.t_events[-1][0]
    assert fitted < said.fit.not_after
    assert said.fit.time == pytest.approx(fitted, rel=said.fit.error)
    assert seen.fit.time == pytest.approx(fitted, rel=1e-5)
    assert seen.status == "converged"
    assert seen.excess_loss_left < 1e-15
    assert seen.ended == measured_curves(said, seen.run).time[-1]
    assert max(seen.predictor_error, seen.first_layer_error, seen.second_layer_error) < 1e-6


def test_the_flow_in_the_frame_of_the_samples_is_the_flow():
    x, y = samples(d_in=40)
    gamma = 0.03
    said = predicted(ln.regression(x, y, average=True), gamma=gamma)
    clock, modes, first = measured_curves(said, said.measure().run)
    x, y = x / np.sqrt(len(x)), y / np.sqrt(len(x))
    pick = np.arange(20, len(clock), 40)
    solution, layers = full_flow(x, y, gamma, 44, clock[pick[-1]], times=clock[pick])
    u, _, vt = np.linalg.svd((np.linalg.pinv(x) @ y).T, full_matrices=False)
    for k, flat in zip(pick, solution.y.T, strict=True):
        one, two = layers(flat)
        scale = np.linalg.norm(one) ** 2
        np.testing.assert_allclose(modes[k], np.diag(u.T @ two @ one @ vt.T), atol=1e-9 * scale)
        np.testing.assert_allclose(first[k], np.linalg.svd(one, compute_uv=False)[: first.shape[1]], rtol=1e-9)


@pytest.mark.parametrize("n", [None, 5])
def test_a_spectrum_is_exact(n):
    gamma, goal, c = 0.2, [2.0, 0.7, 0.1], n or 1
    problem = [0.7, 2.0, 0.1] if n is None else prediction.whitened([0.7, 2.0, 0.1], samples=n)
    said = predicted(problem, gamma=gamma)
    x = math.sqrt(c) * np.eye(3)
    solution, layers = full_flow(x, x @ np.diag(goal), gamma, 3, 60.0 / c)
    assert [m.value for m in said.modes] == pytest.approx(goal, rel=1e-14)
    assert said.order == tuple(1 + np.argsort([events[0] for events in solution.t_events[:3]]))
    for i, mode in enumerate(said.modes):
        when = mode.half_learned
        assert when.exact
        assert when.not_before == when.not_after == when.time
        assert when.time == pytest.approx(solution.t_events[i][0], rel=1e-9)
        assert mode.over_gamma == pytest.approx(goal[i] / gamma)
    assert said.fit.exact
    assert said.fit.time == said.fit.not_after == pytest.approx(solution.t_events[-1][0], rel=1e-9)
    first, _ = layers(solution.y[:, -1])
    np.testing.assert_allclose([m.first_layer for m in said.modes], np.linalg.svd(first, compute_uv=False), rtol=1e-8)
    assert [m.regime for m in said.modes] == ["rich", "rich", "lazy"]
    assert said.regime is Regime.MIXED
    assert said.largest_stable_lr == pytest.approx(1 / (c * np.hypot(2, gamma)), rel=1e-12)
    assert said.whitened
    assert (said.samples, said.condition) == (n or 3, pytest.approx(1))
    assert predicted(problem, gamma=5).regime is Regime.LAZY
    assert predicted(problem, gamma=0.05).regime is Regime.RICH
    assert predicted(problem, gamma=1e-60).first_layer.rank == 3


def test_the_steps_to_the_fit_are_those_of_descent():
    """With a twentieth of the largest step twenty times as many of them lead to 1 % of the excess loss."""
    said = predicted([2.0, 0.5], gamma=1e-4)
    assert said.steps_to_fit == math.ceil(said.fit.time / said.largest_stable_lr)
    lr = said.largest_stable_lr / 20
    first, second, goal = math.sqrt(2e-4) * np.eye(2), np.zeros((2, 2)), np.diag([2.0, 0.5])
    force, steps = goal, 0
    while np.sum(force**2) > 0.01 * np.sum(goal**2):
        first, second = first + lr * second.T @ force, second + lr * force @ first.T
        force, steps = goal - second @ first, steps + 1
    assert steps == pytest.approx(20 * said.steps_to_fit, rel=0.1)


def test_modes_are_learned_in_their_order():
    """A small mode along a strong input comes before a large one along a weak input."""
    x = np.diag([10.0, 1.0])
    said = predicted(ln.regression(x, x @ np.diag([0.5, 2.0])), gamma=0.01)
    assert [m.value for m in said.modes] == pytest.approx([2.0, 0.5])
    assert said.order == (2, 1)
    solution, _ = full_flow(x, x @ np.diag([0.5, 2.0]), 0.01, 2, 20.0)
    times = [events[0] for events in solution.t_events[:2]]
    assert times[1] < times[0]
    assert [m.half_learned.time for m in said.modes] == pytest.approx(times, rel=1e-8)


def test_least_squares_and_labels_that_share_directions():
    x, y = samples(n=30, d_in=3, d_out=2, noise=1.0)
    y = np.hstack([y[:, :1], 2 * y[:, :1], -y[:, :1]])  # three outputs, one mode
    said = predicted(ln.regression(x, y, average=True), gamma=0.1)
    best = np.linalg.lstsq(x, y, rcond=None)[0]
    assert len(said.modes) == 1
    assert said.modes[0].value == pytest.approx(np.linalg.norm(best, 2), rel=1e-9)
    assert said.loss.final == pytest.approx(np.sum((x @ best - y) ** 2) / 60, rel=1e-9)
    assert said.first_layer.unmoved == 2


def test_the_largest_step_is_the_edge_of_descent():
    x, y = samples()
    gamma = 0.3
    lr = predicted(ln.regression(x, y), gamma=gamma).largest_stable_lr

    limit = (np.linalg.pinv(x) @ y).T
    _, s, vt = np.linalg.svd(limit, full_matrices=False)
    root = np.sqrt(np.hypot(s, gamma) + gamma)
    layer = np.sqrt(2 * gamma) * np.eye(12) + (vt.T * (root - np.sqrt(2 * gamma))) @ vt
    settled = (layer, limit @ np.linalg.inv(layer))

    def descend(first, second, lr, steps):
        for _ in range(steps):
            force = (y - x @ (second @ first).T).T @ x
            first, second = first + lr * second.T @ force, second + lr * force @ first.T
        return np.linalg.norm(x @ (second @ first).T - y)

    # beside the end of the flow a step below the edge falls back, one above it leaves
    noise = np.random.default_rng(0).normal(size=(12, 12))
    beside = (settled[0] + 1e-7 * noise, settled[1])
    before = descend(*beside, lr, 0)
    assert descend(*beside, 0.99 * lr, 600) < 1e-3 * before
    assert descend(*beside, 1.01 * lr, 600) > 1e3 * before
    # and from the start descent arrives
    assert descend(np.sqrt(2 * gamma) * np.eye(12), np.zeros((2, 12)), 0.9 * lr, 3000) < 1e-12


def test_inputs_of_many_scales():
    """Stiff: measured by an implicit solver in the mirror coordinate; beside it the closed flow of A by another."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 3)) * [100, 1, 0.3]
    y = x @ [0.02, 1.0, -2.0] + 0.1 * rng.normal(size=40)
    gamma = 0.01
    said = predicted(ln.regression(x, y, average=True), gamma=gamma)
    seen = said.measure()
    x, y = x / np.sqrt(40), y / np.sqrt(40)
    limit = np.linalg.pinv(x) @ y
    norm = np.linalg.norm(limit)

    def velocity(_, a):
        force = (y - x @ a) @ x
        s = np.linalg.norm(a)
        h = np.hypot(s, gamma)
        return (h + gamma) * force + (s / (h + gamma) * (a / max(s, 1e-300) @ force)) * a

    half = solve_ivp(
        velocity,
        (0, 10),
        np.zeros(3),
        method="Radau",
        rtol=1e-9,
        atol=1e-13,
        events=lambda _, a: a @ limit / norm - norm / 2,
    ).t_events[0][0]
    (mode,) = said.modes
    assert mode.half_learned.not_before < half < mode.half_learned.not_after
    assert seen.modes[0].half_learned.time == pytest.approx(half, rel=1e-5)
    assert seen.status == "converged"
    assert seen.predictor_error < 1e-5
    assert (seen.first_layer_error, seen.second_layer_error) == (None, None)
    assert measured_curves(said, seen.run).first_layer[-1, 0] == pytest.approx(mode.first_layer, rel=1e-5)
    assert seen.plot().axes


def test_the_picture_shows_both():
    said = predicted([3.0, 1.0, 0.1], gamma=0.2)
    seen = said.measure()
    left, middle, right = seen.plot().axes
    assert [bar.get_height() for bar in right.patches[:3]] == pytest.approx([m.first_layer for m in said.modes])
    found = measured_curves(said, seen.run)
    _, modes, first = predicted_curves(said, found.time[1:])
    np.testing.assert_allclose(modes, found.modes[1:], atol=1e-7)
    np.testing.assert_allclose(first, found.first_layer[1:], rtol=1e-7)
    for axes in (left, middle):
        lines = [line.get_xdata() for line in axes.lines if len(line.get_xdata()) == 2]
        places = [line[0] for line in lines if line[0] == line[1]]
        assert places == [m.half_learned.time for m in said.modes]


@pytest.mark.parametrize("gamma", [1e-100, 1e-8, 1.0, 1e100])
@pytest.mark.parametrize("scale", [1e-40, 1e-8, 1.0, 1e3, 1e40])
def test_no_scale_breaks_it(gamma, scale):
    rng = np.random.default_rng(0)
    problem = ln.regression(scale * rng.normal(size=(4, 3)), rng.normal(size=4), average=True)
    said = predicted(problem, gamma=gamma)
    numbers = [x for x in jax.tree.leaves(said.to_dict()) if isinstance(x, float)]
    assert all(np.isfinite(x) or x == said.steps_to_fit for x in numbers)
    when = said.modes[0].half_learned
    assert 0 < when.not_before <= when.time <= when.not_after
    assert "minimum norm" in str(said)


@pytest.mark.slow
def test_where_its_quantities_are_from():
    def sources(said):
        return [quantity.source for quantity in said.quantities if quantity.source is not None]

    def holds(said):
        return {assumption.holds for source in sources(said) for assumption in source.assumptions}

    said = predicted([2.0, 1.0], gamma=0.1)
    known = set(ln.claims.registry())
    assert {name for source in sources(said) for name in source.claims} <= known
    assert holds(said) == {"exactly"}
    x, y = samples()
    followed = predicted(ln.regression(x, y), gamma=0.1)
    assert not holds(followed)
    assert followed["modes"].source.origin.startswith("the flow itself, integrated")
    wide = np.random.default_rng(0).normal(size=(500, 400)) * np.geomspace(1, 0.1, 400)
    rough = predicted(ln.regression(wide, wide[:, :300]), gamma=0.1)  # nobody follows so many weights
    assert holds(rough) == {"not"}
    assert rough.fit.error is None
    assert "~ marks estimates" in str(rough)


def test_the_scale_alone_is_enough():
    x, y = samples()
    problem = ln.regression(x, y)
    found, same = prediction.bias(problem, gamma=0.1).to_dict(), predicted(problem, gamma=0.1).to_dict()
    assert found.pop("gamma") == pytest.approx(same.pop("gamma"), rel=1e-12)
    assert (found.pop("width"), same.pop("width")) == (None, 12)
    assert found["predictor_norm"] == same["predictor_norm"]
    assert [mode["value"] for mode in found["modes"]] == [mode["value"] for mode in same["modes"]]


def test_steps_of_descent_are_those_of_the_flow():
    problem = prediction.whitened([2.0, 0.5])
    network = ln.init.i_gamma(problem, 0.01)
    said = for_triple(problem, network, ln.optim.SGD(1e-3))
    run = ln.simulate(problem, network, ln.optim.SGD(1e-3), steps=8000, observe=["modes"], record=ln.record.every(1))
    for i, mode in enumerate(said.modes):
        step = int(np.argmax(np.asarray(run["modes"])[:, i] >= mode.value / 2))
        assert mode.half_learned.step == pytest.approx(step, rel=5e-3)
        assert mode.half_learned.error is None
    assert for_triple(problem, network, ln.optim.GradientFlow()).modes[0].half_learned.step is None


def test_what_it_does_not_hold_for_is_named_with_its_measure():
    problem = prediction.whitened([2.0, 0.5])
    network = ln.init.i_gamma(problem, 0.1)
    first, second = network.layers
    for triple, words in (
        ((problem, ln.Weights([first, second + 0.1]), None), "a second layer of zeros"),
        ((problem, ln.Weights([first + 0.1, second]), None), "W_1.T W_1 = 2 gamma I"),
        ((problem, ln.Weights([0 * first, second]), None), "not zero"),
        ((problem, ln.init.one_zero(ln.factorization(np.eye(2)), 0.1, 3), None), "two layers"),
        ((problem, network, ln.optim.SGD(0.1, weight_decay=0.1)), "plain gradient descent"),
        ((problem, network, ln.optim.SGD(10.0)), "steps are short"),
    ):
        with pytest.raises(NotApplicable, match=words) as refused:
            for_triple(*triple)
        assert refused.value.theory == "bias"
    with pytest.raises(InputError, match="the problem needs"):
        prediction.bias(prediction.whitened([1.0]), network)
    with pytest.raises(InputError, match="network or gamma"):
        prediction.bias(problem, network, gamma=0.1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gamma": 0}, "gamma = 0"),
        ({"gamma": "1"}, "gamma = '1'"),
    ],
)
def test_mistakes_are_one_sentence(options, words):
    with pytest.raises(InputError, match=words):
        prediction.bias([2.0, 1.0], **options)
