"""Every number of rates against the layers' own flow, by another solver, and against descent."""

import dataclasses
import math
from itertools import pairwise

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import linnet as ln
from linnet import prediction
from linnet._check import InputError
from linnet.prediction import coerce
from linnet.prediction.assumption import Holds, NotApplicable
from linnet.prediction.theories.rates import measured_curves


def predicted(problem, *, depth, scale=0.01, alignment=None, seed=0, optimizer=None):
    """The prediction for an initialization of rank one; a spectrum stands for white data."""
    problem = coerce.regression(problem)
    network = ln.init.rank_one(jax.random.key(seed), problem, scale, depth, alignment=alignment)
    return prediction.rates(problem, network, optimizer)


def brute(said, horizon):
    """Layers of width one, as the prediction starts them: solution with events, and A at a state."""
    z, depth, c = np.asarray(said.problem.target), said.depth, said.curvature
    d_in = z.shape[1]
    first = said.spectrum[0]
    u, _, vt = np.linalg.svd(z)
    goal = first * np.outer(u[:, 0], vt[0])

    def layers(state):
        return state[:d_in], state[d_in], state[d_in + 1 :]

    def matrix(state):
        x, w, y = layers(state)
        return w ** (depth - 2) * np.outer(y, x)

    def velocity(_, state):
        x, w, y = layers(state)
        g = c * (matrix(state) - z)
        inner = w ** (depth - 3) * (y @ g @ x) if depth > 2 else 0.0
        return -np.concatenate([w ** (depth - 2) * y @ g, [inner], w ** (depth - 2) * g @ x])

    def learned(_, state):
        return np.linalg.norm(matrix(state) - goal) / first - 0.01

    def half(_, state):
        return np.linalg.norm(matrix(state)) / first - 0.5

    def far(_, state):
        return np.linalg.norm(matrix(state)) / first - 1.5

    x, y = np.asarray(said.network.x), np.asarray(said.network.y)
    start = np.concatenate([x, [np.linalg.norm(x)], y])
    options = {"method": "DOP853", "rtol": 1e-12, "atol": 1e-14, "events": [learned, half, far]}
    return solve_ivp(velocity, (0, horizon), start, **options), lambda state: np.linalg.norm(matrix(state) - goal)


CASES = {
    "small start": ([0.6, 2.0], {"depth": 4, "scale": 1e-3, "alignment": 0.49}),
    "small start, random directions": ([2.0, 0.6, 0.1], {"depth": 3, "scale": 0.02, "seed": 5}),
    "large start": ([1.5, 0.4], {"depth": 3, "scale": 6.0, "alignment": 0.9}),
    "one input": ([1.2], {"depth": 3, "scale": 0.1, "alignment": 0.7}),
    "two layers": ([0.7, 0.2], {"depth": 2, "scale": 0.3, "alignment": -0.4}),
}


@pytest.mark.parametrize("samples", [None, 5])
@pytest.mark.parametrize("case", CASES)
def test_times_are_those_of_the_layers(case, samples):
    spectrum, options = CASES[case]
    said = predicted(prediction.whitened(spectrum, outputs=3, samples=samples), **options)
    c = samples or 1
    assert said.curvature == pytest.approx(c)
    assert said.spectrum == pytest.approx(sorted(spectrum, reverse=True))
    assert said.ratio == pytest.approx(sorted([*spectrum, 0])[-2] / max(spectrum))
    assert said.initialization.size == pytest.approx(options["scale"] * said.spectrum[0])
    cosines = [side[0] / np.linalg.norm(side) for side in (said.network.x, said.network.y)]
    assert said.initialization.alignment == pytest.approx(np.prod(cosines))
    assert said.initialization.alignment == pytest.approx(options.get("alignment", said.initialization.alignment))
    assert said.initialization.scale == pytest.approx(options["scale"])
    solution, gap = brute(said, 3 * said.learned.time)
    learned, half, far = solution.t_events
    assert said.learned.time == pytest.approx(learned[-1], rel=1e-7)
    assert (said.half_grown is None) == (options["scale"] > 0.5)
    if said.half_grown is not None:
        assert said.half_grown.time == pytest.approx(half[0], rel=1e-7)
    assert said.far_phase_ends.time == (pytest.approx(far[0], rel=1e-7) if options["scale"] > 1.5 else 0.0)
    assert (said.learned.exact, said.far_phase_ends.exact) == (True, True)
    assert said.reaches_the_best_rank_one_fit
    assert said.limit == pytest.approx(said.spectrum[0])
    assert gap(solution.y[:, -1]) < 1e-3 * said.spectrum[0]


@pytest.mark.parametrize("case", CASES)
def test_rates_are_slopes_of_the_distance(case):
    """At the start and in the end, by differences of what another solver finds; one layer more likewise."""
    spectrum, options = CASES[case]
    problem = prediction.whitened(spectrum, outputs=3, samples=3)
    said = predicted(problem, **options)
    step = 1e-4 * said.data["closed_form"].unit / max(1.0, options["scale"] ** 2)
    solution, gap = brute(said, step)
    assert -np.log(gap(solution.y[:, -1]) / gap(solution.y[:, 0])) / step == pytest.approx(said.far_rate, rel=3e-3)
    more = predicted(problem, **{**options, "depth": options["depth"] + 1})
    for one, rate in ((said, said.near_rate), (more, said.near_rate_of_one_layer_more)):
        late = one.learned.time + np.array([6.0, 7.0]) / rate
        before, after = one.data["closed_form"].curves(late).distance
        assert np.log(before / after) / np.diff(late)[0] == pytest.approx(rate, rel=0.02)
    assert more.near_rate == said.near_rate_of_one_layer_more


def test_a_start_with_equal_cosines_may_excite_less():
    """Of two modes one sign of the second direction leaves out the slowest way: z_1 + z_2 and not z_1 - z_2."""
    found = set()
    for seed in range(8):
        said = predicted([2.0, 0.6], depth=3, scale=0.1, alignment=0.49, seed=seed)
        late = said.learned.time + np.array([6.0, 7.0]) / said.near_rate
        before, after = said.data["closed_form"].curves(late).distance
        assert np.log(before / after) / np.diff(late)[0] == pytest.approx(said.near_rate, rel=0.02)
        found.add(round(said.near_rate / 2 ** (1 / 3), 9))
    assert found == {1.4, 2.6}


def test_the_law_of_small_starts():
    """The smaller the start, the nearer the time of escape to that of half growth."""
    errors = []
    for scale in (1e-2, 1e-5, 1e-8):
        said = predicted([2.0, 0.5], depth=4, scale=scale, alignment=0.3)
        assert said.escape.error is None
        errors.append(abs(said.escape.time / said.half_grown.time - 1))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-3
    assert predicted([2.0, 0.5], depth=4, scale=0.2).escape is None
    assert predicted([2.0, 0.5], depth=2, scale=0.01).escape is None  # leaves in logarithmic time


def test_proved_rates_are_proved():
    """The exact run is nowhere slower, and a larger rate would be refuted by it."""
    said = predicted([3.0, 0.1], depth=3, scale=6.0, alignment=0.95)
    seen = said.measure()
    curves = measured_curves(said.data["closed_form"], seen.run)
    slope = -np.diff(np.log(curves.distance)) / np.diff(curves.time)
    early = curves.time[1:] <= said.far_phase_ends.time
    assert early.sum() > 20
    assert np.min(slope[early]) >= said.proved_fast_rate
    assert np.min(slope) >= said.proved_slow_rate
    assert np.min(slope) < 5 * said.proved_slow_rate
    assert np.min(slope[early]) < 5 * said.proved_fast_rate
    assert 0 < said.proved_slow_rate < said.near_rate
    assert predicted([3.0, 2.0], depth=3, scale=6.0, alignment=0.9).proved_slow_rate is None  # the gap is too small


@pytest.mark.parametrize("depth", [2, 3, 6])
def test_the_largest_step_is_the_edge_of_descent(depth):
    """Beside the end a step below the edge falls back, one above it leaves."""
    problem = prediction.whitened([1.7, 0.4], samples=4)
    said = predicted(problem, depth=depth)
    first = np.eye(2)[0]
    start = ln.RankOne.balanced(1.7 * (1 + 1e-6), first, first, depth)
    before = abs(float(start.matrix[0, 0]) - 1.7)
    for lr, grows in ((0.97 * said.largest_stable_lr, False), (1.03 * said.largest_stable_lr, True)):
        run = ln.simulate(problem, start, ln.optim.SGD(lr), steps=100, observe={})
        after = abs(float(run.final.matrix[0, 0]) - 1.7)
        assert (after > 10 * before) if grows else (after < before / 10)


def test_data_of_ones_own_are_whitened_first():
    """Times are those of the same regression on inputs of unit covariance; the mean is 1/n of the sum."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 4)) * [3, 1, 1, 0.2]
    y = x @ rng.normal(size=(4, 2)) + rng.normal(size=(30, 2))
    given = ln.regression(x, y)
    said = predicted(given.whiten().problem, depth=3)
    u, _, vt = np.linalg.svd(x, full_matrices=False)
    white = math.sqrt(30) * u @ vt
    same = predicted(ln.regression(white, y), depth=3)
    np.testing.assert_allclose(said.problem.target, y.T @ white / 30, atol=1e-12)
    np.testing.assert_allclose(said.spectrum, np.linalg.svd(y.T @ white / 30, compute_uv=False))
    assert (said.inputs, said.outputs, said.samples, said.normalization) == (4, 2, 30, "sum")
    assert said.curvature == pytest.approx(30)
    assert said.learned.time == pytest.approx(same.learned.time, rel=1e-9)
    mean = predicted(ln.regression(x, y, average=True).whiten().problem, depth=3)
    assert mean.normalization == "mean"
    assert mean.learned.time == pytest.approx(30 * said.learned.time, rel=1e-9)
    assert mean.largest_stable_lr == pytest.approx(30 * said.largest_stable_lr)
    # white inputs of another size stay what they are
    assert predicted(ln.regression(2 * white, y), depth=3).curvature == pytest.approx(120)
    assert said["learned"].source.assumptions[0].holds is Holds.EXACTLY
    with pytest.raises(NotApplicable, match="white inputs") as refused:
        prediction.rates(given, said.network)
    scales = np.linalg.svd(x, compute_uv=False)
    assert refused.value.assumption.measured == pytest.approx(1 - (scales[-1] / scales[0]) ** 2)


@pytest.mark.parametrize("case", ["small start", "large start"])
def test_measured_numbers(case):
    spectrum, options = CASES[case]
    done = []
    said = predicted(spectrum, **options)
    seen = said.measure(progress=lambda now, total: done.append((now, total)))
    assert done
    assert seen.status == "horizon"
    assert seen.ended == pytest.approx(1.5 * said.learned.time)
    assert seen.learned.time == pytest.approx(said.learned.time, rel=1e-5)
    if said.half_grown is None:
        assert seen.half_grown is None
        assert seen.far_phase_ends.time == pytest.approx(said.far_phase_ends.time, rel=1e-4)
    else:
        assert seen.half_grown.time == pytest.approx(said.half_grown.time, rel=1e-5)
        assert seen.far_phase_ends.time == 0
    assert seen.largest_gap_in_distance < 1e-8
    assert seen.largest_relative_gap_in_size < 1e-7
    solution, gap = brute(said, seen.ended)
    closed = said.data["closed_form"]
    curves = measured_curves(closed, seen.run)
    assert gap(solution.y[:, -1]) / said.spectrum[0] == pytest.approx(curves.distance[-1], rel=1e-6)
    wrong = dataclasses.replace(closed, curvature=1.01 * said.curvature).curves(curves.time)
    assert np.max(np.abs(wrong.distance - curves.distance)) > 1e-3  # the gap would show it


def test_starts_that_rest_or_never_arrive():
    twice = predicted([1.0, 1.0], depth=2, scale=1e-6)
    assert twice.near_rate == pytest.approx(2)  # along the fits that are equally good nothing moves
    assert twice.learned.time == pytest.approx(np.log(1e6 * 100) / 2, rel=0.1)
    assert twice.far_rate is None
    rest = predicted([3.0, 1.0], depth=2, alignment=1, scale=1)
    assert (rest.far_rate, rest.learned.time) == (None, 0)
    assert rest.measure().learned.time == 0
    never = predicted([0.5], depth=4, alignment=-1)
    assert (never.reaches_the_best_rank_one_fit, never.limit, never.learned.time) == (False, 0, math.inf)
    assert (never.half_grown, never.near_rate, never.near_rate_of_one_layer_more) == (None, None, None)
    assert measured_curves(never.data["closed_form"], never.measure().run).size[-1] < never.initialization.scale
    assert "ends at size 0" in str(never)
    assert never.plot().axes


def test_the_picture_shows_both():
    said = predicted([3.0, 1.0], depth=3, scale=0.05)
    left, right = said.measure().plot().axes
    closed, run, law = left.lines
    np.testing.assert_allclose(run.get_ydata(), closed.get_ydata(), atol=1e-7)
    time, distance = law.get_data()
    assert -np.diff(np.log(distance)) / np.diff(time) == pytest.approx(said.near_rate)
    places = [line.get_xdata()[0] for line in right.lines if line.get_label() in ("half grown",)]
    assert places == [said.half_grown.time]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"depth": 1}, "depth = 1"),
        ({"depth": 3, "scale": 0}, "scale = 0"),
        ({"depth": 3, "scale": 1e-200}, "scale = 1e-200"),
        ({"depth": 3, "alignment": 2}, "alignment = 2"),
    ],
)
def test_mistakes_are_one_sentence(options, words):
    with pytest.raises(InputError, match=words):
        predicted([2.0, 1.0], **options)


def test_steps_of_descent_are_those_of_the_flow():
    """With a small learning rate descent is where the flow is, and the prediction says at which step."""
    said = predicted([2.0, 0.6], depth=3, scale=0.05, alignment=0.5, optimizer=ln.optim.SGD(1e-3))
    seen = said.measure()
    assert (said.lr, said.learned.error) == (1e-3, None)
    assert said.learned.step == pytest.approx(said.learned.time / 1e-3)
    assert said.learned.step == pytest.approx(seen.learned.step, rel=2e-3)
    assert said.half_grown.step == pytest.approx(seen.half_grown.step, rel=2e-3)
    short = said["learned"].source.assumptions[-1]
    assert short.measured == pytest.approx(1e-3 / said.largest_stable_lr)
    assert short not in said["largest_stable_lr"].source.assumptions


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_layers_of_any_widths_are_recognized(depth):
    """Balanced layers of rank one, turned and wide, are the same network."""
    problem = prediction.whitened([2.0, 0.6], inputs=4, outputs=3)
    small = ln.init.rank_one(jax.random.key(1), problem, 0.05, depth)
    rng = np.random.default_rng(0)
    units = [rng.normal(size=6 + i) for i in range(depth - 1)]
    units = [unit / np.linalg.norm(unit) for unit in units]
    x, y = np.asarray(small.x), np.asarray(small.y)
    inner = [float(np.linalg.norm(x)) * np.outer(after, before) for before, after in pairwise(units)]
    wide = ln.Weights([np.outer(units[0], x), *inner, np.outer(y, units[-1])])
    one, other = prediction.rates(problem, small), prediction.rates(problem, wide)
    assert other.depth == depth
    for name in ("learned", "half_grown"):
        assert other[name].value.time == pytest.approx(one[name].value.time, rel=1e-9)
    assert other.near_rate == pytest.approx(one.near_rate)
    assert other.measure().learned.time == pytest.approx(one.learned.time, rel=1e-5)


def test_what_it_does_not_hold_for_is_named_with_its_measure():
    problem = prediction.whitened([2.0, 0.6])
    network = ln.init.rank_one(jax.random.key(0), problem, 0.1, 3)
    x, y = np.asarray(network.x), np.asarray(network.y)
    for other, optimizer, words in (
        (ln.init.balanced(np.diag([0.2, 0.1]), [2]), None, "rank one"),
        (ln.RankOne(2 * x, 1.0, y, 3), None, "a balanced initialization"),
        (ln.Weights([x[None], 2 * np.linalg.norm(x) * np.ones((1, 1)), y[:, None]]), None, "a balanced initialization"),
        (ln.Modes(np.ones((3, 2))), None, "linear network of two layers"),
        (network, ln.optim.SGD(0.01, momentum=0.9), "plain gradient descent"),
        (network, ln.optim.Adam(0.01), "gradient flow or plain"),
        (network, ln.optim.GradientFlow(weight_decay=0.1), "gradient flow or plain"),
        (network, ln.optim.SGD(1.0), "steps are short"),
    ):
        with pytest.raises(NotApplicable, match=words) as refused:
            prediction.rates(problem, other, optimizer)
        assert refused.value.theory == "rates"
        assert refused.value.assumption.measured > 0.01
    with pytest.raises(InputError, match="the problem needs"):
        prediction.rates(prediction.whitened([1.0]), network)
