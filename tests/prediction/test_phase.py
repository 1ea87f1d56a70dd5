"""`prediction.phase`: every number beside an integration, a draw or the exact run."""

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import linnet as ln
from linnet import claims, prediction
from linnet.prediction.assumption import NotApplicable
from linnet.prediction.theories.phase import for_triple
from linnet.theory.mixed import Phase, phase

D, LEVELS, GAMMA_W, GAMMA_SIGMA2 = 60, (1.0, 0.6), 2.2, -2.0


@pytest.fixture(scope="module")
def told():
    return prediction.phase(d=D, gamma_w=GAMMA_W, gamma_sigma2=GAMMA_SIGMA2, levels=LEVELS)


@pytest.fixture(scope="module")
def run(told):
    return told.measure()


@pytest.fixture(scope="module")
def problem():
    return ln.low_rank_recovery(jax.random.key(0), D, 2, levels=LEVELS)


def integrated(share, target, c):
    """When s' = 2 kappa hypot(s, c) (target - s) from 0 passes a share of its target."""

    def passed(_, s):
        return s[0] - share * target

    passed.terminal = True
    kappa = 2 / D**2
    way = solve_ivp(
        lambda _, s: 2 * kappa * np.hypot(s, c) * (target - s), (0, 1e4), [0.0], events=passed, rtol=1e-10, atol=1e-12
    )
    return way.t_events[0][0]


def test_the_network_that_is_meant(told, problem):
    assert (told.d, told.rank, told.gamma_w, told.gamma_sigma2) == (D, 2, GAMMA_W, GAMMA_SIGMA2)
    assert (told.c_lr, told.seed) == (50, 0)
    start = ln.init.gaussian(jax.random.key(0), problem, told.width, told.variance)
    truth = np.linalg.norm(problem.truth, 2)
    assert told.width == round(D**2.2)
    assert told.c == pytest.approx(float(np.sum(start.layers[0] ** 2)) / D, rel=0.02)
    assert told.variance == pytest.approx(told.c / told.width)
    assert told.c_over_signal == pytest.approx(told.c / truth)
    assert told.initial_mean_square == pytest.approx(float(np.mean(start.matrix**2)), rel=0.1)
    assert told.lr == pytest.approx(D**2 / (50 * truth))
    sources = {told[name].source for name in ("phase", "signals", "stop", "largest_stable_lr")}
    measured = {part.name.split(" (")[0]: part.measured for source in sources for part in source.assumptions}
    assert measured == {
        "the network is wide": pytest.approx(np.sqrt(D / told.width)),
        "the initial matrix is small": pytest.approx(np.linalg.norm(start.matrix, 2) / truth, rel=0.1),
        "steps are short": pytest.approx(told.lr / told.largest_stable_lr),
        "signals stand out of the noise": pytest.approx(1 / (0.36 * D)),
    }
    assert all(name in claims.registry() for source in sources for name in source.claims)


def test_the_transition_is_where_the_phase_changes(told):
    assert told.phase is Phase.RICH
    assert told.exponent_from_transition == pytest.approx(
        np.log(told.variance / told.variance_at_transition) / np.log(D), rel=1e-12
    )
    there = np.log(told.variance_at_transition) / np.log(D)
    assert (phase(GAMMA_W, there - 1e-3), phase(GAMMA_W, there + 1e-3)) == (Phase.RICH, Phase.LAZY)


def test_times_are_those_of_the_mode_equation(told):
    for mode in (*told.signals, told.first_noise):
        for share, when in ((0.5, mode.half_learned), (0.9, mode.learned)):
            assert when.time == pytest.approx(integrated(share, mode.value, told.c), rel=1e-6)
            assert when.step == pytest.approx(when.time / told.lr, rel=1e-12)
    assert told.stop.step == pytest.approx(told.stop.time / told.lr, rel=1e-12)


def test_the_exact_run(told, run, problem):
    values = np.linalg.svd(np.asarray(problem.target), compute_uv=False)
    assert [signal.level for signal in told.signals] == list(LEVELS)
    pairs = zip((*told.signals, told.first_noise), (*run.signals, run.first_noise), values, strict=False)
    for mode, seen, value in pairs:
        assert seen.value == pytest.approx(value, rel=1e-12)
        assert mode.value == pytest.approx(value, rel=0.05)
        assert mode.half_learned.step == pytest.approx(seen.half_learned.step, rel=0.06)
        if seen is not run.first_noise:  # which is not learned before the end
            assert mode.learned.step == pytest.approx(seen.learned.step, rel=0.05)
            assert seen.learned.time == pytest.approx(told.lr * seen.learned.step)
        assert seen.half_learned.time == pytest.approx(told.lr * seen.half_learned.step)
        assert seen.half_learned.exact
    assert told.stop.step == pytest.approx(run.stop.step, rel=0.05)
    assert run.stop.time == pytest.approx(told.lr * run.stop.step)
    assert told.test_error == pytest.approx(run.test_error, rel=0.1)
    test_errors = np.asarray(run.run["test"])
    assert (run.status, run.steps) == ("horizon", len(test_errors) - 1)
    assert run.test_error == min(test_errors) == test_errors[run.stop.step]
    # the same run, made by hand
    start = ln.init.gaussian(jax.random.key(0), problem, told.width, told.variance)
    half = run.signals[1].half_learned.step
    same = ln.simulate(problem, start, ln.optim.SGD(told.lr), steps=run.stop.step, observe=["matrix", "test_error"])
    assert float(same["test_error"][-1]) == pytest.approx(run.test_error, rel=1e-9)
    u, s, vt = np.linalg.svd(np.asarray(problem.target))
    shares = [u[:, 1] @ np.asarray(same["matrix"][k]) @ vt[1] / s[1] for k in (half - 1, half)]
    assert shares[0] < 0.5 <= shares[1]


def test_the_predicted_curve_is_that_of_the_run(told, run):
    predicted = told.data["flow"].test_errors(told.lr * np.arange(run.steps + 1))
    assert np.max(np.abs(predicted - np.asarray(run.run["test"]))) < 0.05
    assert np.min(predicted) == pytest.approx(told.test_error, rel=1e-3)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_beyond_the_largest_stable_step_the_minimum_is_left(factor, told, problem):
    start = ln.init.gaussian(jax.random.key(0), problem, told.width, told.variance)
    near = ln.simulate(problem, start, ln.optim.SGD(8 * told.lr), steps=300).final
    after = ln.simulate(
        problem, near, ln.optim.SGD(factor * told.largest_stable_lr), steps=300, record=ln.record.at([0, 300])
    )
    assert bool(after["loss"][-1] > after["loss"][0]) == (factor > 1)


def test_signals_that_the_noise_hides():
    told = prediction.phase(d=D, gamma_w=GAMMA_W, gamma_sigma2=GAMMA_SIGMA2, levels=[1, 0.08])
    run = told.measure()
    assert told.test_error == pytest.approx(run.test_error, rel=0.15)
    assert told.signals[1].value == pytest.approx(run.signals[1].value, rel=0.05)
    assert told.notes == (
        "Levels 0.08 are below d^-1/2: the noise hides these signals from singular values altogether.",
    )
    assert (
        prediction.phase(d=D, gamma_w=2, gamma_sigma2=-2, levels=[0.01])
        .notes[1]
        .startswith("The learning rate 120 is not")
    )


def test_levels_that_are_drawn():
    told = prediction.phase(d=D, gamma_w=GAMMA_W, gamma_sigma2=GAMMA_SIGMA2, rank=3, seed=7)
    truth = ln.low_rank_recovery(jax.random.key(7), D, 3).truth
    drawn = np.linalg.svd(np.asarray(truth), compute_uv=False)[:3] / D
    assert [signal.level for signal in told.signals] == pytest.approx(drawn.tolist(), rel=1e-12)
    far = prediction.phase(d=10**6, gamma_w=1.5, gamma_sigma2=-1, rank=4)
    assert [signal.level for signal in far.signals] == [0.5] * 4
    assert far["stop"].source.assumptions[2].measured == pytest.approx(4e-6)


def test_a_lazy_network_and_a_signal_of_full_rank():
    told = prediction.phase(d=6, gamma_w=3, gamma_sigma2=-1.7, rank=6)
    assert told.phase is Phase.LAZY
    assert told.lr == pytest.approx(36 / (50 * told.c))
    run = told.measure()
    assert (run.status, len(run.signals)) == ("horizon", 6)
    assert told.first_noise is run.first_noise is None


def targets(d=24, seed=3):
    """One matrix of each kind of `mixed/C32`."""
    rng = np.random.default_rng(seed)
    frame, _ = np.linalg.qr(rng.normal(size=(d, d)))
    return {
        "full rank": rng.normal(size=(d, d)),
        "low rank": np.outer(*rng.normal(size=(2, d))),
        "rectangular": 1e-3 * rng.normal(size=(d // 2, d)),
        "power law": frame * (d / np.arange(1.0, d + 1)),
    }


@pytest.mark.parametrize("kind", ["full rank", "low rank", "rectangular", "power law"])
def test_the_transition_of_a_given_matrix_is_where_it_is_told(kind):
    """There c is the norm, and an exact run ends with a Gram matrix sqrt 2 as large; off it, by hypot(1, norm / c)."""
    target = targets()[kind]
    d, norm = 24, np.linalg.norm(target, 2)
    gamma_w = np.log(400 * d) / np.log(d)
    found = prediction.phase(target=target, gamma_w=gamma_w, gamma_sigma2=-2)
    assert found.c_at_transition == pytest.approx(norm)
    assert found.variance_at_transition * found.width == pytest.approx(norm)
    line = found.gamma_sigma2_at_transition
    assert line == pytest.approx(np.log(norm) / np.log(d) - gamma_w)
    assert found.exponent_from_transition == pytest.approx(-2 - line)
    for shift, ratio, kinds in ((-1e-6, 1.0, Phase.RICH), (1e-6, 1.0, Phase.LAZY), (-0.5, d**0.5, Phase.RICH)):
        told = prediction.phase(target=target, gamma_w=gamma_w, gamma_sigma2=line + shift)
        assert told.phase is kinds
        assert told.gram_growth == pytest.approx(np.hypot(1, ratio), rel=1e-4)
        seen = told.measure()
        assert seen.status == "horizon"
        assert seen.gram_growth == pytest.approx(told.gram_growth, rel=0.05)
        assert told.modes[0].half_learned.step == pytest.approx(seen.modes[0].half_learned.step, rel=0.1)
        for mode, run in zip(told.modes, seen.modes, strict=False):
            assert mode.growth == pytest.approx(run.growth, rel=0.12)


def test_a_given_matrix_counts_its_modes_above_c():
    target = np.diag([30.0, 10.0, 0.5, 0.0]) @ np.eye(4, 6)
    told = prediction.phase(target=target, gamma_w=4, gamma_sigma2=np.log(2.0) / np.log(6) - 4)
    assert (told.d_out, told.d_in, told.rank, told.rich_modes) == (4, 6, 3, 2)
    assert told.c == pytest.approx(2)
    assert [mode.regime for mode in told.modes] == ["rich", "mixed", "lazy"]
    assert [mode.growth for mode in told.modes] == pytest.approx(np.hypot(1, np.array([30, 10, 0.5]) / 2))
    assert told.headline.startswith("[bold]rich[/]: 2 of 3 singular values are above c")
    end = told.modes[1].learned.time
    way = solve_ivp(lambda _, s: 4 / 24 * np.hypot(s, 2) * (10 - s), (0, end), [0.0], rtol=1e-9)
    assert way.y[0, -1] == pytest.approx(9, rel=1e-5)
    assert prediction.phase(target=1e-9 * target, gamma_w=4, gamma_sigma2=-4).phase is Phase.INFINITE_NOISE
    assert prediction.phase(target=target, gamma_w=0.5, gamma_sigma2=-1).phase is Phase.UNDERPARAMETRIZED


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"target": np.zeros((3, 4))}, "target is zero everywhere: one of its entries must differ from 0."),
        ({"target": np.ones(3)}, "target has shape (3,): it must be a matrix"),
        ({"target": np.ones((3, 1))}, "target has shape (3, 1): it must have two rows and two columns at least"),
        ({"target": [[1.0, np.nan], [0.0, 1.0]]}, "row 1, column 2 holds nan, and a finite number is needed"),
        ({"target": [[1.0, 2.0], [3.0]]}, "target cannot be used"),
        ({"target": "none.csv"}, "target = 'none.csv' cannot be used: there is no such file."),
        ({"target": "none.xls"}, "target = 'none.xls' is not allowed: it must end in .csv"),
        ({"target": 1e-60 * np.eye(2)}, "target reaches 1e-60 only"),
        ({"target": np.eye(2), "d": 2}, "d = 2 is not allowed with target"),
        ({"target": np.eye(2), "levels": [1]}, "levels = [1] is not allowed with target"),
        ({"target": np.eye(2), "rank": 2}, "rank = 2 is not allowed with target"),
        ({"target": np.eye(2), "gamma_sigma2": 20, "gamma_w": 20}, "gamma_sigma2 = 20 is not allowed here"),
        ({}, "d is missing: give the dimension d of the matrix to recover, or a matrix as target."),
    ],
)
def test_a_matrix_that_cannot_be_learned_is_refused_in_a_sentence(given, words):
    with pytest.raises(ln.InputError) as refused:
        prediction.phase(**{"gamma_w": 2, "gamma_sigma2": -1, **given})
    assert words in str(refused.value)


def test_the_picture_of_a_given_matrix():
    told = prediction.phase(target=targets()["power law"], gamma_w=2.5, gamma_sigma2=-2)
    run = told.measure()
    left, right = (axes for axes in run.plot().axes if axes.get_title())
    assert len(left.lines) == 2 * 8 + 1
    assert left.lines[1].get_ydata() == pytest.approx(24 * np.asarray(run.run["shares"])[:, 0])
    assert right.get_yscale() == "log"


@pytest.mark.slow
def test_the_picture(told, run):
    figure = run.plot()
    left, right = (axes for axes in figure.axes if axes.get_title())
    steps, errors = left.lines[0].get_data()
    assert np.allclose(errors, told.data["flow"].test_errors(told.lr * steps))
    assert left.lines[1].get_ydata() == pytest.approx(np.asarray(run.run["test"]))
    assert left.lines[2].get_data() == ([told.stop.step], [told.test_error])
    # this network is the node 22, 10 of the plane
    values = right.collections[0].get_array().reshape(29, 31)
    assert values[22, 10] == pytest.approx(told.test_error, rel=1e-9)
    assert right.get_title() == "Where it lies: rich"


def test_a_given_triple_is_the_network_it_is(told, run, problem):
    """c, signals, and the initial size are measured; the quantities are those of the exponents it was drawn with."""
    network = ln.init.gaussian(jax.random.key(0), problem, told.width, told.variance)
    found = for_triple(problem, network, ln.optim.SGD(told.lr))
    assert found.phase is told.phase
    assert found.c == pytest.approx(told.c, rel=0.02)
    assert found["width"].error == pytest.approx(np.sqrt(2) / D)
    assert found.width == pytest.approx(told.width, rel=3 * found["width"].error)
    assert found.gamma_w == pytest.approx(GAMMA_W, abs=0.02)
    assert [signal.level for signal in found.signals] == pytest.approx(list(LEVELS))
    assert found.initial_mean_square == pytest.approx(float(np.mean(network.matrix**2)))
    for name in ("stop", "largest_stable_lr", "test_error"):
        value, same = (getattr(answer[name].value, "time", answer[name].value) for answer in (found, told))
        assert value == pytest.approx(same, rel=0.02), name
    assert found.stop.step == pytest.approx(run.stop.step, rel=0.05)
    seen = found.measure()
    assert (seen.stop.step, seen.test_error) == (run.stop.step, pytest.approx(run.test_error))


def test_a_given_triple_in_full_under_gradient_flow():
    problem = ln.low_rank_recovery(jax.random.key(1), 20, 2)
    rng = np.random.default_rng(0)
    network = ln.Weights([0.05 * rng.normal(size=(200, 20)), 0.05 * rng.normal(size=(20, 200))])
    found = for_triple(problem, network, ln.optim.GradientFlow(rtol=1e-8))
    assert (found.width, found["width"].error, found.lr, found.stop.step) == (200, None, None, None)
    assert found.variance == pytest.approx(0.05**2, rel=0.05)
    seen = found.measure()
    assert seen.stop.time == pytest.approx(found.stop.time, rel=0.3)
    assert seen.signals[0].half_learned.time == pytest.approx(found.signals[0].half_learned.time, rel=0.15)


def test_what_it_does_not_hold_for_is_named_with_its_measure():
    problem = ln.low_rank_recovery(jax.random.key(1), 20, 2)
    network = ln.init.gaussian(jax.random.key(0), problem, 400, 1e-3)
    quiet = ln.problems.Factorization(
        problem.truth + 0.1 * (problem.target - problem.truth), problem.scale, test=problem.test
    )
    for triple, words in (
        ((ln.factorization(np.eye(20)), network, None), "a known truth"),
        ((ln.low_rank_recovery(jax.random.key(1), (20, 10), 2), network, None), "a square matrix"),
        ((quiet, network, None), "noise of unit variance"),
        ((problem, ln.init.gaussian(jax.random.key(0), problem, 20, 1e-3), None), "as in a wide network"),
        ((problem, ln.init.gaussian(jax.random.key(0), problem, 400, [1e-3, 4e-3]), None), "as in a wide network"),
        ((problem, ln.init.one_zero(problem, 0.1, 3), None), "two layers"),
        ((problem, network, ln.optim.SGD(0.1, momentum=0.9)), "plain gradient descent"),
        ((problem, network, ln.optim.SGD(1e4)), "a stable learning rate"),
    ):
        with pytest.raises(NotApplicable, match=words) as refused:
            for_triple(*triple)
        assert refused.value.theory == "phase"
