"""`prediction.network`: every number beside an exact run or an independent computation."""

import dataclasses
import math
import re
from itertools import pairwise, product

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

import linnet as ln
from linnet import prediction
from linnet._check import InputError
from linnet.claims import registry
from linnet.curves import crossing
from linnet.prediction.reduced import white
from linnet.prediction.theories.network import analysis
from linnet.prediction.theories.network import modes as network_modes
from linnet.prediction.theories.network.copies import COPIES, copies_lost, follow_copies
from linnet.prediction.theories.network.end import NetworkEnd
from linnet.prediction.theories.network.following import STIFF
from linnet.prediction.theories.network.initialization import Initialization
from linnet.prediction.theories.network.objective import Objective
from linnet.prediction.theories.network.shown import oscillates
from linnet.prediction.theories.network.thresholds import largest_lr, largest_monotone_lr, with_lr
from linnet.prediction.theories.network.times import ClosedFormTimes
from linnet.prediction.theories.network.verdict import NetworkOutcome, NetworkVerdict, followed_verdict
from linnet.theory import optimizers
from linnet.theory.mode_fate import Fate, Outcome
from linnet.theory.regime import Regime


def ask(problem=None, **tables):
    return prediction.Situation(**tables).predict(problem)


def reduction_of(said):
    """The problem in the coordinates of its samples."""
    return said.data["training"].setup.reduction


def source_of(said, name):
    """Where a quantity is from."""
    return said[name].source


def sources_of(said):
    """All sources of a prediction, each once."""
    return [source for source in dict.fromkeys(said[name].source for name in said) if source is not None]


def curves_of(run):
    """Steps of the exact run, and the modes there."""
    steps, shares = run.prediction.data["training"].shares(run.run)
    return steps, shares * np.array([mode.value for mode in run.prediction.modes])


def within(run):
    """Every stated error holds, every certain bound too, and something was stated."""
    said = 0
    for mode, measured in zip(run.prediction.modes, run.modes, strict=True):
        half, seen = mode.half_learned, measured.half_learned
        if half.error is not None:
            assert abs(half.step - seen.step) <= (half.error + 1e-3) * seen.step
            said += 1
        if half.not_before is not None:
            assert half.not_before <= seen.time <= half.not_after
            said += 1
    fit = run.prediction.fit
    if fit.error is not None:
        assert abs(fit.step / run.fit.step - 1) <= fit.error + 1e-3
    assert said


def crossed(*axes):
    """Every value of every axis, each with some of the others; all with all with --slow."""
    names, values = zip(*axes, strict=True)
    longest = max(map(len, values))
    few = [tuple(axis[k % len(axis)] for axis in values) for k in range(longest)]
    rest = [cell for cell in product(*values) if cell not in few]
    return pytest.mark.parametrize(names, [*few, *(pytest.param(*cell, marks=pytest.mark.slow) for cell in rest)])


def random_regression(n=12, d_in=5, d_out=3, average=False):
    rng = np.random.default_rng(7)
    x = rng.normal(size=(n, d_in)) * [3.0, 2, 1, 1, 0.5][:d_in]
    return x, x @ rng.normal(size=(d_in, d_out)) + 0.3 * rng.normal(size=(n, d_out)), average


# What was asked, and where it ends -----------------------------------------------------------------------------------


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("n", [12, 4])
def test_data_losses_and_the_end_are_those_of_least_squares(average, n):
    """From NumPy's own solver, with samples to spare and with fewer samples than inputs."""
    x, y, _ = random_regression(n)
    scale = 1 / n if average else 1.0
    said = ask(ln.regression(x, y, average=average), init={"kind": "one-zero", "scale": 0.1})
    solution, *_ = np.linalg.lstsq(x, y)
    values = np.linalg.svd(x, compute_uv=False)
    assert (said.samples, said.inputs, said.outputs, said.rank) == (n, 5, 3, min(n, 5))
    assert said.normalization == ("mean" if average else "sum")
    assert said.condition == pytest.approx(values[0] / values[-1], rel=1e-9)
    assert said.loss.initial == pytest.approx(scale / 2 * np.sum(y**2), rel=1e-12)
    assert said.loss.final == pytest.approx(scale / 2 * np.sum((x @ solution - y) ** 2), rel=1e-9, abs=1e-12)
    assert said.predictor_norm == pytest.approx(np.linalg.norm(solution), rel=1e-9)
    found = np.linalg.svd(solution, compute_uv=False)
    np.testing.assert_allclose([mode.value for mode in said.modes], found, rtol=1e-9)
    assert (said.depth, said.hidden, said.bottleneck, said.modes_out_of_reach) == (2, (5,), min(n, 3), 0)


def test_narrow_layers_end_at_the_best_fit_of_their_rank():
    x, y, _ = random_regression()
    said = ask(ln.regression(x, y), network={"width": 1}, init={"scale": 0.1})
    q, _, _ = np.linalg.svd(x, full_matrices=False)
    u, s, vt = np.linalg.svd(q.T @ y)
    best = np.linalg.pinv(x) @ q @ (s[0] * np.outer(u[:, 0], vt[0]))
    assert said.predictor_norm == pytest.approx(np.linalg.norm(best), rel=1e-9)
    assert said.loss.final == pytest.approx(np.sum((x @ best - y) ** 2) / 2, rel=1e-9)
    assert (said.bottleneck, said.modes_out_of_reach, len(said.modes)) == (1, 2, 1)


def test_a_loss_that_is_neither_sum_nor_mean_is_a_formula():
    x, y, _ = random_regression()
    said = ask(ln.regression(x, y, output_scale=0.5), init={"kind": "one-zero"})
    assert said.normalization == "1/2 |0.5 X A^T - Y|^2"
    assert said.predictor_norm == pytest.approx(2 * np.linalg.norm(np.linalg.lstsq(x, y)[0]), rel=1e-9)


def test_a_problem_is_the_file_that_holds_it(tmp_path):
    x, y, _ = random_regression()
    np.savez(tmp_path / "d.npz", inputs=x, labels=y)
    for loss, average in ((None, False), ("sum", False), ("mean", True)):
        tables = {"network": {"width": 20}, "init": {"scale": 0.1}}
        by_file = ask(data={"file": tmp_path / "d.npz", "loss": loss}, **tables)
        assert by_file.to_dict() == ask(ln.regression(x, y, average=average), **tables).to_dict()


@pytest.mark.parametrize(
    ("tables", "problem", "said"),
    [
        ({"data": {"spectrum": [1.0]}}, ln.regression(np.eye(2), np.eye(2)), "data and problem: give one of them"),
        ({}, None, "data is missing"),
        ({}, ln.regression(np.eye(2), np.zeros((2, 1))), "nothing to learn"),
        ({}, ln.factorization(np.ones(2)), "problem must be a regression"),
        ({"network": {"depth": 3}, "data": {"spectrum": [1.0]}}, None, "network.width is missing"),
        ({"data": {"spectrum": [3, 1]}, "network": {"width": 9}, "training": {"signal": 3}}, None, "there are 2 modes"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(tables, problem, said):
    with pytest.raises(InputError, match=said):
        ask(problem, **tables)
    with pytest.raises(InputError, match="this theory needs Weights"):
        prediction.network("lora", "lora")


def test_large_data_are_predicted_and_not_measured():
    said = ask(data={"spectrum": [2.0], "inputs": 601}, network={"depth": 1})
    assert len(said.modes) == 1
    with pytest.raises(InputError, match="data of rank 601 cannot be measured"):
        said.measure()


# Kernels and regimes -------------------------------------------------------------------------------------------------


def test_kernels_are_those_of_the_state():
    problem = ln.regression(np.eye(3), np.diag([3.0, 2, 1])[:, :2])
    state = ln.init.gaussian(jax.random.key(0), problem, [4, 5], 0.3)
    reduction = white(np.array([3.0, 2.0]), (2, 3), (2, 3))
    u, s, v = np.eye(2), np.array([3.0, 2.0]), np.eye(3)[:, :2]
    modes = network_modes.modes_of(reduction, [np.asarray(w) for w in state.layers], u, s, v)
    for i in range(2):
        moved = np.asarray(state.tangent(np.outer(u[:, i], v[:, i])))
        assert moved[i, i] == pytest.approx(modes.grams[:, i].sum(), rel=1e-12)
        assert np.linalg.norm(moved - moved[i, i] * np.outer(u[:, i], v[:, i])) == pytest.approx(
            modes.crosstalk[i] * moved[i, i], rel=1e-12
        )


CASES = {
    "one-zero": ({"depth": 2}, {"kind": "one-zero", "scale": 0.5}, 1e-5),
    "one-zero, deep": ({"depth": 3}, {"kind": "one-zero", "scale": 0.5}, 1e-5),
    "balanced, deep": ({"depth": 4}, {"kind": "balanced", "scale": 0.6}, 1e-5),
    "gaussian": ({"width": 10**7}, {"scale": 0.0005, "seed": 2}, 2e-2),  # up to what modes share
}


@pytest.mark.parametrize("name", CASES)
def test_growth_crosstalk_and_layers_are_those_of_the_flow(name):
    """The tangent kernel along each mode at the start and where the flow itself arrives, and its layers there."""
    network, init, close = CASES[name]
    said = ask(data={"spectrum": [3.0, 1.0]}, network=network, init=init)
    flow = ln.simulate(
        said.problem, said.network, ln.optim.GradientFlow(rtol=1e-9), time=60.0, record=ln.record.at([60.0])
    ).final
    modes = said.data["analysis"].times.modes
    values = [np.linalg.svd(np.asarray(w), compute_uv=False) for w in flow.layers]
    for i, mode in enumerate(said.modes):
        pair = np.outer(modes.left[:, i], modes.right[:, i])
        begin, end = (float(np.sum(pair * np.asarray(state.tangent(pair)))) for state in (said.network, flow))
        assert mode.kernel_growth == pytest.approx(end / begin, rel=close)
        assert mode.regime is Regime.of_growth(end / begin)
        np.testing.assert_allclose(mode.layers, [value[i] for value in values], rtol=close)
        moved = np.asarray(said.network.tangent(pair))
        assert mode.crosstalk == pytest.approx(np.linalg.norm(moved - begin * pair) / begin, abs=1e-9)
    assert said.regime is Regime.of_all([mode.regime for mode in said.modes])


# Step sizes ----------------------------------------------------------------------------------------------------------


def top_of_hessian(problem, layers, neurons=0):
    """The largest eigenvalue of the dense Hessian, with neurons that have no weights."""
    first, *between, last = (np.asarray(w) for w in layers)
    if neurons:
        assert not between
        first = np.vstack([first, np.zeros((neurons, first.shape[1]))])
        last = np.hstack([last, np.zeros((last.shape[0], neurons))])
    state = ln.Weights([first, *between, last])
    return np.linalg.eigvalsh(np.asarray(ln.observe.hessian_matrix(state, problem)))[-1]


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("network", "init"),
    [
        ({"depth": 2, "width": 4}, {"kind": "one-zero", "scale": 0.3}),
        ({"depth": 3, "width": 4}, {"kind": "balanced", "scale": 0.3}),
        ({"depth": 2, "width": 1}, {"scale": 0.4}),  # a bottleneck: what is left of the loss has a curvature too
        ({"depth": 3, "width": 2}, {"scale": 0.5, "seed": 3}),
        ({"depth": 2, "width": 50}, {"scale": [0.1, 0.0]}),
    ],
)
def test_the_largest_step_is_that_of_the_whole_hessian_where_the_flow_ends(network, init):
    """Against the dense Hessian of the weights where the flow itself ends, on data with axes of their own."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(9, 4)) * [2, 1, 1, 0.5]
    problem = ln.regression(x, x @ rng.normal(size=(3, 4)).T, average=True)
    said = ask(problem, network=network, init=init, training={"lr": 1e-5})
    flow = ln.simulate(
        said.problem, said.network, ln.optim.GradientFlow(rtol=1e-10), time=1500.0, record=ln.record.at([1500.0])
    ).final
    found = top_of_hessian(said.problem, flow.layers)
    assert said.end is NetworkEnd.REACHED
    assert said.largest_stable_lr == pytest.approx(2 / found, rel=1e-5)
    chosen = ask(problem, network=network, init=init)
    assert chosen.lr_chosen
    assert chosen.lr == pytest.approx(0.1 * min(2 / found, chosen.largest_stable_lr_at_initialization), rel=1e-5)
    assert chosen.largest_stable_lr == pytest.approx(2 / found, rel=0.02)  # descent ends elsewhere than the flow


def test_narrow_layers_bear_less_than_their_kernel_says():
    """One neuron for two outputs: the whole Hessian at the end allows 26 % less than its kernel alone."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 3)) @ rng.normal(size=(3, 3))
    problem = ln.regression(x, x @ rng.normal(size=(3, 2)), average=True)
    tables = {"network": {"width": 1}, "init": {"scale": 0.1}}
    said = ask(problem, **tables)
    weights = said.data["analysis"].times.solution.end
    objective = said.data["training"].objective
    exact = ln.Weights(objective.layers(weights))
    kernel = float(np.max(np.asarray(ln.observe.kernel_spectrum(exact, said.problem))))
    assert said.largest_stable_lr < 0.9 * 2 / kernel
    for share in (0.95, 1.2, 3.0):  # descent may find a flatter end beyond its largest stable step
        run = ask(problem, **tables, training={"lr": share * said.largest_stable_lr}).measure()
        assert (run.prediction.outcome is NetworkOutcome.CONVERGES) == (run.status == "converged")
    assert run.status == "diverged"


def test_steps_at_the_start_and_at_the_flattest_end():
    """The Hessian at the start with all its neurons, and at the balanced minimum of whitened data."""
    x, y, _ = random_regression(average=True)
    said = ask(ln.regression(x, y, average=True), network={"width": 30}, init={"scale": 0.2, "seed": 3})
    found = top_of_hessian(said.problem, said.network.layers, neurons=1)
    assert said.largest_stable_lr_at_initialization == pytest.approx(2 / found, rel=1e-9)
    small = ask(ln.regression(x, y, average=True), network={"width": 30}, init={"scale": 1e-4, "seed": 3})
    # all the curvature there is before anything grew
    gradient = np.asarray(small.problem.gradient(0 * small.network.matrix))
    assert small.largest_stable_lr_at_initialization == pytest.approx(2 / np.linalg.norm(gradient, 2), rel=1e-3)
    s, depth = np.array([3.0, 1.0]), 3
    white = ask(data={"spectrum": s}, network={"depth": depth}, init={"kind": "one-zero", "scale": 2.0})
    flattest = 2 / top_of_hessian(white.problem, [np.diag(s ** (1 / depth))] * depth)
    assert white.largest_stable_lr_at_flattest_end == pytest.approx(flattest, rel=1e-9)
    assert white.largest_stable_lr < 0.95 * flattest  # a large start ends at unequal layers


def test_the_largest_step_divides_what_settles_from_what_does_not():
    tables = {"data": {"spectrum": [3.0, 1.0]}, "init": {"kind": "balanced", "scale": 0.2}}
    edge = ask(**tables).largest_stable_lr
    below, above = (ask(**tables, training={"lr": share * edge}).measure() for share in (0.97, 1.03))
    assert (below.prediction.outcome, below.status) == (NetworkOutcome.CONVERGES, "converged")
    assert (above.prediction.outcome, above.status) == (NetworkOutcome.CYCLE, "horizon")
    assert not above.prediction.lr_chosen
    mode, seen = above.prediction.modes[0], above.modes[0]
    assert (mode.fate, mode.period) == (Fate.CYCLE, 2)
    np.testing.assert_allclose(mode.between, seen.between, rtol=1e-6)
    assert mode.between.high / mode.between.low > 1.1


def test_the_example_beyond_the_edge_oscillates_as_it_says():
    run = prediction.read_situation("edge").predict().measure()
    said = run.prediction
    assert [str(Outcome(mode.fate, mode.period)) for mode in said.modes] == ["period 2", "converges", "converges"]
    assert [oscillates(mode) for mode in said.modes] == [True, False, False]
    for mode, measured in zip(said.modes, run.modes, strict=True):
        np.testing.assert_allclose(mode.between, measured.between, rtol=1e-6)
    assert math.isnan(said.fit.step)  # it never fits
    assert said.modes_mix is None
    assert said.stop is None


def test_beyond_the_edge_nothing_is_promised():
    data = ln.regression(np.diag([10.0, 1.0]), [0.0, 1.0])
    run = ask(data, network={"depth": 1}, training={"lr": 0.5}).measure()
    assert run.prediction.outcome is NetworkOutcome.DIVERGES
    assert run.prediction.modes[0].fate is Fate.DIVERGES
    assert run.prediction.largest_stable_lr_at_flattest_end == pytest.approx(0.02)
    assert run.status == "diverged"
    said = ask(data, init={"kind": "one-zero", "scale": 0.1}, training={"lr": 0.3, "signal": 1})
    assert said.outcome is NetworkOutcome.ELSEWHERE
    assert said.modes[0].fate is Fate.UNKNOWN
    assert said.modes[0].half_learned.error < 0.01  # descent itself was followed
    assert said.stop is None
    drawn = ask(data={"spectrum": [3.0]}, network={"width": 40}, init={"scale": 0.01}, training={"lr": 0.4})
    assert drawn.outcome is NetworkOutcome.CYCLE
    assert "descent comes to a cycle in 4,096 steps" in drawn.explanation
    unseen = prediction.Situation(data={"spectrum": [3.0]}, network={"width": 40}, init={"scale": 0.01},
                                  training={"lr": 0.4}).predict(follow=False)  # fmt: skip
    assert unseen.outcome is NetworkOutcome.MIXED  # what balanced layers would do is no answer
    sharp = ask(data={"spectrum": [1.0]}, init={"kind": "balanced", "scale": 4.0}, training={"lr": 0.1})
    assert sharp.outcome is NetworkOutcome.CONVERGES
    assert "though the start is too sharp for it" in sharp.explanation
    assert sharp.largest_stable_lr_at_initialization < sharp.lr < sharp.largest_stable_lr


def test_modes_mix_when_it_is_said():
    """The same descent in axes of its own, where rounding has something to work on."""
    said = ask(
        data={"spectrum": [10.0, 9.9]},
        network={"depth": 3},
        init={"kind": "balanced", "scale": 0.3},
        training={"lr": 0.0335},
    )
    assert f"modes mix, visibly after about step {said.modes_mix.step:,.0f}" in said.explanation
    assert said.modes_mix.time == pytest.approx(0.0335 * said.modes_mix.step)
    turn, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(2, 2)))
    goal = turn @ np.diag([10.0, 9.9]) @ turn.T
    layers, step = [0.3 * np.eye(2)] * 3, 0
    while abs((turn.T @ layers[2] @ layers[1] @ layers[0] @ turn)[0, 1]) < 0.01 * 10 and step < 5000:
        one, two, three = layers
        force = goal - three @ two @ one
        moves = (three @ two).T @ force, three.T @ force @ one.T, force @ (two @ one).T
        layers = [layer + 0.0335 * move for layer, move in zip(layers, moves, strict=True)]
        step += 1
    assert said.modes_mix.step == pytest.approx(step, rel=0.3)


# Times ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["small-start", "lazy", "lora", "own-data"])
def test_the_examples_agree_with_their_runs(name):
    smaller = {"data": {"spectrum": [4, 2, 1]}} if name == "lora" else {}  # at full size with --slow
    run = prediction.read_situation(name, **smaller).predict().measure()
    within(run)
    assert run.status == "converged"
    assert run.predictor_error < 1e-5
    assert run.layer_error < (0.05 if run.prediction.init.kind == "gaussian" else 1e-3)
    assert run.prediction.regime is (Regime.LAZY if name == "lazy" else Regime.RICH)


@pytest.mark.slow
def test_the_adapter_at_its_size():
    within(prediction.read_situation("lora").predict().measure())


def test_stated_errors_are_of_the_size_of_what_happens():
    """With one layer the error is what descent does to the flow, exactly; else a fifth of it or more is reached."""
    one = ask(data={"spectrum": [3.0, 1.0]}, network={"depth": 1}, init={"kind": "balanced", "scale": 1e-6})
    for mode in one.modes:
        descent = math.log(0.5) / math.log1p(-one.lr) / (math.log(2) / one.lr)
        assert mode.half_learned.error == pytest.approx(1 / descent - 1, rel=1e-9)
    run = ask(data={"spectrum": [3.0, 1.0]}, init={"kind": "one-zero", "scale": 0.01}).measure()
    within(run)
    halves = [
        (mode.half_learned, seen.half_learned) for mode, seen in zip(run.prediction.modes, run.modes, strict=True)
    ]
    reached = [abs(half.step / seen.step - 1) / half.error for half, seen in halves]
    assert run.prediction.fit.error == max(half.error for half, _ in halves)
    assert min(reached) > 0.2


@pytest.mark.parametrize(("depth", "kind"), [(2, "one-zero"), (3, "one-zero"), (4, "balanced")])
def test_aligned_layers_err_by_what_their_steps_are_long(depth, kind):
    """A share x of the gap a step takes -x / ln(1 - x) of the flow's time; x is lr times the mode's kernel."""
    said = ask(data={"spectrum": [3.0, 1.0]}, network={"depth": depth}, init={"kind": kind, "scale": 0.2})
    for mode in said.modes:
        squares = np.square(mode.layers)
        share = said.lr * sum(np.prod(np.delete(squares, layer)) for layer in range(depth))
        assert mode.half_learned.error == pytest.approx(-math.log(1 - share) / share - 1, rel=1e-9)


def test_what_crosstalk_adds_is_the_time_of_a_larger_kernel():
    """By quadrature of da/dt = 2 sqrt(a^2 + c^2) (s - a), with c as it is and larger by the crosstalk."""
    said = ask(
        data={"spectrum": [3.0, 2.0], "inputs": 8, "outputs": 6},
        network={"width": 40},
        init={"scale": [0.05, 0.0], "seed": 1},
        training={"lr": 1e-5},
    )
    modes, how = said.data["analysis"].times.modes, Initialization("gaussian", 2, (40,), (0.05, 0.0))
    clock = ClosedFormTimes(modes, how, np.ones(2), np.sum(modes.grams, axis=0), 1e-5, reduction_of(said))
    for i, mode in enumerate(said.modes):
        s, begin = mode.value, modes.begin[i]
        pair = np.outer(modes.left[:, i], modes.right[:, i])
        kernel = float(np.sum(pair * np.asarray(said.network.tangent(pair))))
        c = math.sqrt(kernel**2 / 4 - begin**2)
        time, less = (
            quad(lambda a, c, s: 1 / (2 * math.hypot(a, c) * (s - a)), begin, s / 2, args=(k, s))[0]
            for k in (c, c * (1 + mode.crosstalk))
        )
        assert mode.crosstalk > 0.2
        half = clock.half(i)
        assert half.time == pytest.approx(time, rel=1e-6)
        assert half.step == pytest.approx(time / 1e-5, rel=1e-6)
        assert half.error == pytest.approx(1 - less / time, rel=1e-3)  # the step is short
        assert abs(mode.half_learned.time / half.time - 1) < half.error  # the network itself was followed
        assert mode.half_learned.error < 0.01


def test_modes_that_begin_beyond_their_target():
    """They are learned from the start on as far as half of it goes, their kernels shrink, and errors know the start."""
    for depth in (1, 2, 3):
        run = ask(
            data={"spectrum": [3.0, 1.0]},
            network={"depth": depth},
            init={"kind": "balanced", "scale": {1: 5.0, 2: 4.0, 3: 2.0}[depth]},
            training={"signal": 1},
        ).measure()
        said = run.prediction
        assert [mode.half_learned.step for mode in said.modes] == [0.0, 0.0]
        assert [mode.half_learned.step for mode in run.modes] == [0.0, 0.0]
        assert said.modes[0].regime == {1: "lazy", 2: "mixed", 3: "mixed"}[depth]
        assert abs(said.fit.step / run.fit.step - 1) <= said.fit.error + 1e-3
        assert said.stop.signal_learned.step > 0
    said = ask(data={"spectrum": [1.0]}, network={"depth": 3}, init={"kind": "balanced", "scale": 1.0})
    assert said.fit.step == 0  # nothing to do


def test_deep_gaussian_layers_are_followed():
    deep = {"data": {"spectrum": [3.0, 1.0]}, "network": {"depth": 4, "width": 10}, "init": {"scale": 0.3}}
    run = ask(**deep, training={"signal": 1}).measure()
    within(run)
    assert run.prediction.stop.open is not None
    assert run.status == "converged"
    assert run.layer_error < 1e-4


def test_data_of_bad_condition_are_followed_to_their_slow_end():
    """Inputs of unlike sizes: the loss is down long before the predictor is there, and both are told."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(60, 4)) * [30.0, 10.0, 3.0, 1.0]
    problem = ln.regression(x, x @ rng.normal(size=(4, 1)), average=True)
    run = ask(problem, network={"width": 30}, init={"scale": 0.05}).measure()
    within(run)
    said = run.prediction
    assert said.learned.step > 20 * said.fit.step
    assert said.learned.step > 4096  # beyond the steps that are made one by one
    assert abs(said.learned.step / run.learned.step - 1) <= said.learned.error
    assert source_of(said, "modes").origin.startswith("descent itself, step by step up to step 4,096, then")


def test_one_layer_ends_with_the_slowest_axis_of_its_start():
    """The target lies on the fast axis of the inputs; what the start has on the slow one goes a hundred times later."""
    problem = ln.regression(np.diag([10.0, 1.0]), np.array([[10.0], [0.0]]))
    run = ask(problem, network={"depth": 1}, init={"scale": 0.3, "seed": 0}).measure()
    within(run)
    said = run.prediction
    assert abs(said.learned.step / run.learned.step - 1) <= said.learned.error
    assert said.learned.step > 50 * said.modes[0].half_learned.step


@pytest.mark.slow
def test_what_costs_too_much_is_unknown():
    """No closed form holds and nobody follows so many weights: no time is better than a wrong one."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 100)) * np.geomspace(1, 0.01, 100)
    problem = ln.regression(x, x @ rng.normal(size=(100, 60)), average=True)
    said = ask(problem, network={"depth": 3, "width": 300}, init={"scale": 0.02})
    assert math.isnan(said.modes[0].half_learned.step)
    assert math.isnan(said.fit.step)
    assert said.end is NetworkEnd.BALANCED
    assert said.modes[0].layers is None


@pytest.mark.slow
def test_many_weights_on_stiff_inputs_are_followed():
    """1,840 weights on inputs of condition 400: the flow after the steps that are made, against all steps."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(30, 4)) * [1, 0.5, 0.2, 0.05]
    problem = ln.regression(x, x @ rng.normal(size=(4, 2)), average=True)
    run = ask(problem, network={"depth": 3, "width": 40}, init={"scale": 0.12}).measure()
    said = run.prediction
    assert said.data["analysis"].times.solution.end.size > STIFF
    assert said.learned.step > said.data["analysis"].times.solution.exact == 4096
    assert said.learned.step == pytest.approx(run.learned.step, rel=1e-4)
    assert said.fit.step == pytest.approx(run.fit.step, rel=1e-4)


def test_the_fit_counts_what_the_start_has_beside_the_modes():
    """The rest of A_0 is a quarter of the loss here; without it the fit would be told at two thirds of its time."""
    run = ask(
        data={"spectrum": [1.0], "inputs": 40, "outputs": 40},
        network={"width": 400},
        init={"scale": math.sqrt(0.3 / 400)},
    ).measure()
    said = run.prediction
    assert said.loss.initial > 0.6  # 1/2 of it is the target's
    assert abs(said.fit.step / run.fit.step - 1) <= said.fit.error
    assert abs(said.learned.step / run.learned.step - 1) <= said.learned.error


def test_the_window_to_stop_in_is_that_of_the_run():
    run = ask(
        data={"spectrum": [3.0, 2.0, 0.3]},
        init={"kind": "one-zero", "scale": 0.05},
        training={"lr": 0.005, "signal": 2},
    ).measure()
    stop, (steps, modes) = run.prediction.stop, curves_of(run)
    learned, begins = (crossing(steps, modes[:, i] / s, share) for i, s, share in ((1, 2, 0.9), (2, 0.3, 0.1)))
    assert (stop.signal, stop.open) == (2, True)
    assert stop.signal_learned.step == pytest.approx(learned, rel=0.02)
    assert stop.noise_begins.step == pytest.approx(begins, rel=0.02)
    assert stop.noise_begins.time == pytest.approx(0.005 * stop.noise_begins.step)
    closed = ask(data={"spectrum": [3.0, 2.9]}, init={"kind": "one-zero", "scale": 0.5}, training={"signal": 1})
    assert closed.stop.open is False
    whole = ask(data={"spectrum": [3.0]}, init={"kind": "one-zero", "scale": 0.5}, training={"signal": 1})
    assert whole.stop.noise_begins.time == math.inf  # there is no noise
    assert whole.stop.open


# The exact run -------------------------------------------------------------------------------------------------------


def test_the_measurement_is_plain_descent():
    """Every number of the run from a loop over the full matrices, layers and inputs as the user has them."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(40, 5))
    y = x @ rng.normal(size=(5, 3)) + 0.1 * rng.normal(size=(40, 3))
    tables = {"network": {"width": 7}, "init": {"kind": "one-zero", "scale": 0.2}}
    run = ask(ln.regression(x, y, average=True), **tables).measure()
    said = run.prediction
    q, _ = np.linalg.qr(rng.normal(size=(7, 5)))
    first, second, n = 0.2 * q, np.zeros((3, 7)), len(x)
    end = np.linalg.lstsq(x, y)[0].T
    u, s, vt = np.linalg.svd(end, full_matrices=False)
    floor = np.sum((x @ end.T - y) ** 2) / (2 * n)
    shares, excess = [], []
    for _ in range(run.steps + 1):
        matrix = second @ first
        shares.append(np.diag(u.T @ matrix @ vt.T) / s)
        excess.append(np.sum((x @ matrix.T - y) ** 2) / (2 * n) - floor)
        last = first, matrix
        force = (y - x @ matrix.T).T @ x / n
        first, second = first + said.lr * second.T @ force, second + said.lr * force @ first.T
    shares, excess = np.array(shares), np.array(excess)
    for i, mode in enumerate(run.modes):
        k = int(np.argmax(shares[:, i] >= 0.5))
        assert k - 1 <= mode.half_learned.step <= k
        assert mode.half_learned.time == pytest.approx(said.lr * mode.half_learned.step)
        assert mode.half_learned.exact
        assert mode.between is None
    k = int(np.argmax(excess <= 0.01 * excess[0]))
    assert run.fit.step == pytest.approx(k - 0.5, abs=0.02 * k)
    assert run.status == "converged"
    assert excess[-1] < 1e-12 * excess[0] < excess[-2]
    assert run.excess_loss_left == pytest.approx(excess[-1] / excess[0], rel=1e-2)
    first, matrix = last
    assert run.predictor_error == pytest.approx(np.linalg.norm(matrix - end) / np.linalg.norm(end), rel=1e-3)
    values = np.linalg.norm(first @ vt.T, axis=0)
    apart = max(abs(value / mode.layers[0] - 1) for value, mode in zip(values, said.modes, strict=True))
    assert apart <= run.layer_error * (1 + 1e-6)
    assert run.layer_error < 0.05
    assert not {"curves", "prediction", "run"} & set(run.to_dict()["run"])


# What is told --------------------------------------------------------------------------------------------------------


def test_every_claim_that_is_named_exists_and_hypotheses_are_measured():
    known = set(registry())
    x, y, _ = random_regression()
    problem = ln.regression(x, y, average=True)
    for network, init in (
        ({"depth": 1}, {}),
        ({"width": 20}, {"scale": 0.1}),
        ({}, {"kind": "one-zero", "scale": 0.1}),
        ({"depth": 3}, {"kind": "balanced", "scale": 0.1}),
        ({"depth": 3, "width": 20}, {"scale": 0.1}),
    ):
        said = ask(problem, network=network, init=init)
        rates = {"end", "outcome", "converges", "largest_stable_lr", "largest_stable_lr_at_initialization"}
        rates |= {"largest_stable_lr_at_flattest_end", "largest_stable_lr_with_batches"}
        assert [{name for name in said if said[name].source == source} for source in sources_of(said)] == [
            {"modes", "fit", "learned", "stop"},
            {"regime"},
            {"predictor_norm"},
            rates,
        ]
        for source in sources_of(said):
            assert set(source.claims) <= known
        assumptions = {one.name: one.measured for source in sources_of(said) for one in source.assumptions}
        end = np.linalg.lstsq(x, y)[0].T
        _, _, vt = np.linalg.svd(end, full_matrices=False)
        gram = x.T @ x / len(x)
        curvature = np.array([v @ gram @ v for v in vt])
        off = max(np.linalg.norm(gram @ v - k * v) / k for v, k in zip(vt, curvature, strict=True))
        assert off > 0.1
        assert not assumptions  # where closed forms do not hold, the network itself is followed
    white = ask(data={"spectrum": [3.0, 1.0]}, init={"kind": "one-zero", "scale": 0.1})
    assumptions = {one.name: one.measured for source in sources_of(white) for one in source.assumptions}
    kernel = max(sum(np.square(mode.layers)) for mode in white.modes)
    assert assumptions["modes are principal axes of the inputs"] == 0
    assert assumptions["steps are short (lr times curvature)"] == pytest.approx(white.lr * kernel)


def test_layers_in_balance_on_white_inputs_are_called_exact():
    """Which the closed form of their lambda is: predict balance has the same times. Others are not called so."""
    for kind, scale, lam in (("one-zero", 0.5, -0.25), ("balanced", 0.1, 0.0)):
        said = ask(data={"spectrum": [3.0, 1.0]}, init={"kind": kind, "scale": scale}, training={"lr": 1e-6})
        source = source_of(said, "modes")
        assert f"lambda = {lam:.4g}) on white inputs: closed form, exact" in source.origin
        assert "balance/C9" in source.claims
        layers = np.eye(2) * scale, np.eye(2) * (0.0 if kind == "one-zero" else scale)
        closed = prediction.balance(prediction.whitened([3, 1]), ln.Weights(layers))
        assert closed.lam == pytest.approx(lam, abs=1e-15)
        for mode, other in zip(said.modes, closed.modes, strict=True):
            assert mode.half_learned.time == pytest.approx(other.half_learned.time, rel=1e-9)
    x = np.diag([2.0, 1.0])
    correlated = ask(ln.regression(x, x @ np.diag([3.0, 1.0])), init={"kind": "one-zero", "scale": 0.1})
    drawn = ask(data={"spectrum": [3.0, 1.0]}, network={"width": 50}, init={"scale": 0.1})
    deep = ask(data={"spectrum": [3.0, 1.0]}, network={"depth": 3}, init={"kind": "balanced", "scale": 0.1})
    for other in (correlated, drawn, deep):
        assert not any("closed form, exact" in source.origin for source in sources_of(other))


def test_answers_show_and_draw_themselves():
    run = prediction.read_situation("small-start").predict().measure()
    for shown in (run.prediction, run):
        assert "Rich: of 4 modes 4 rich" in str(shown)
        assert len(shown.plot().axes) == 2
        assert len(repr(shown)) < 1000
    assert "Exact run: Trajectory(converged at step" in str(run)
    assert "Stop between step 363" in str(run.prediction)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("depth", "width", "d_in", "d_out"), [(2, 30, 3, 2), (2, 2, 9, 8), (3, 3, 12, 2), (2, 4, 3, 11)]
)
def test_starts_have_the_law_of_all_their_weights(depth, width, d_in, d_out):
    """What is left out or turned away changes no mean of what training sees, over 600 draws, to 4 standard errors."""

    def seen(layers):
        """Of the end-to-end matrix along and beside the mode, of both Gram matrices, and their extremes."""
        matrix = np.eye(layers[0].shape[1])
        for layer in layers:
            matrix = layer @ matrix
        first, last = layers[0].T @ layers[0], layers[-1] @ layers[-1].T
        return [
            matrix[0, 0] ** 2,
            np.sum(matrix**2),
            np.linalg.norm(matrix, 2) ** 2,
            first[0, 0],
            np.linalg.norm(first[0]) ** 2,
            np.linalg.norm(first, 2),
            last[0, 0],
            np.linalg.norm(last[0]) ** 2,
            np.linalg.norm(last, 2),
        ]

    hidden = (width,) * (depth - 1)
    tables = {
        "data": {"spectrum": [2.0], "inputs": d_in, "outputs": d_out},
        "network": {"depth": depth, "width": width},
    }
    setups = [prediction.Situation(**tables, init={"scale": 0.5, "seed": i}).setup() for i in range(600)]
    small = [seen(setup.layers) for setup in setups]
    rng = np.random.default_rng(1)
    sizes = [d_in, *hidden, d_out]
    full = [seen([0.5 * rng.normal(size=(b, a)) for a, b in pairwise(sizes)]) for _ in range(600)]
    apart = np.mean(small, axis=0) - np.mean(full, axis=0)
    assert np.all(np.abs(apart) <= 4 * np.sqrt((np.var(small, axis=0) + np.var(full, axis=0)) / 600))
    assert setups[0].reduction.limit.shape == (min(d_out, 1 + width), min(d_in, 1 + width))


# SGD -------------------------------------------------------------------------------------------------------------


def pushed(said, steps):
    """All weights of the start trained as frameworks write it, with momentum and decay: A at every step, and the last
    layers.
    """
    layers = [np.asarray(w) for w in said.network.layers]
    return pushed_from(layers, None, said, said.lr, steps)[:2]


def pushed_from(layers, speeds, said, lr, steps):
    speeds = [None] * len(layers) if speeds is None else list(speeds)
    inside, beside = (0.0, said.weight_decay) if said.decoupled else (said.weight_decay, 0.0)
    share = 1 - said.dampening
    seen = []
    for _ in range(steps):
        below = [np.eye(layers[0].shape[1])]
        for w in layers:
            below.append(w @ below[-1])
        seen.append(below[-1])
        back, moved = (below[-1] - reduction_of(said).limit) * reduction_of(said).scales ** 2, list(layers)
        for i in range(len(layers) - 1, -1, -1):
            whole = back @ below[i].T + inside * layers[i]
            g = share * whole
            speeds[i] = whole if speeds[i] is None else said.momentum * speeds[i] + g  # as torch's first step
            along = g + said.momentum * speeds[i] if said.nesterov else speeds[i]
            moved[i] = (1 - lr * beside) * layers[i] - lr * along
            back = layers[i].T @ back
        layers = moved
    return np.array(seen), layers, speeds


MOMENTA = [{"momentum": 0.9}, {"momentum": 0.7, "nesterov": True}, {"momentum": 0.8, "dampening": 0.9}]


@pytest.mark.quick(5)
@pytest.mark.parametrize("training", MOMENTA)
@pytest.mark.parametrize(
    ("network", "init"),
    [
        ({"depth": 1}, {"scale": 0.1}),
        ({"width": 20}, {"scale": 0.1}),
        ({"depth": 3, "width": 6}, {"scale": 0.4}),
        ({"depth": 3}, {"kind": "balanced", "scale": 0.5}),
    ],
)
def test_momentum_is_followed_and_bears_what_theory_says(network, init, training):
    rng = np.random.default_rng(3)
    x = np.linalg.qr(rng.normal(size=(12, 4)))[0] * [3.0, 2.5, 2.0, 1.5]
    said = ask(ln.regression(x, x @ rng.normal(size=(4, 3))), network=network, init=init, training=training)
    assert said.converges
    seen, layers = pushed(said, 4097)
    modes, clock = said.data["analysis"].times.modes, np.arange(4097.0)
    along = np.einsum("oi,toj,ji->ti", modes.left, seen, modes.right)
    for i, mode in enumerate(said.modes):
        measured = crossing(clock, along[:, i] / mode.value, 0.5, "line")
        assert mode.half_learned.step == pytest.approx(measured, rel=1e-9)
        assert mode.half_learned.time == pytest.approx(said.lr * measured, rel=1e-9)
    away = np.linalg.norm(seen - modes.matrix, axis=(1, 2))
    last = int(np.flatnonzero(away > 0.01 * away[0])[-1])  # then it stays
    between = math.log(away[last] / (0.01 * away[0])) / math.log(away[last] / away[last + 1])
    assert said.learned.step == pytest.approx(last + between, rel=1e-9)
    top = 9.0 if said.depth == 1 else top_of_hessian(said.problem, layers)
    b, share = (
        said.momentum,
        (1 - said.dampening) * (1 + 2 * said.momentum if said.nesterov else 1.0),
    )
    assert said.largest_stable_lr == pytest.approx(2 * (1 + b) / (share * top), rel=1e-4)
    for source in sources_of(said):
        assert all(name in registry() for name in source.claims)
    assert "momentum" in str(said)
    assert said.plot().axes
    run = said.measure()
    within(run)
    assert run.status == "converged"
    assert run.predictor_error < 1e-5
    assert run.learned.step == pytest.approx(said.learned.step, rel=1e-6)
    assert run.fit.step == pytest.approx(said.fit.step, rel=1e-6)
    for mode, measured in zip(said.modes, run.modes, strict=True):
        assert measured.half_learned.step == pytest.approx(mode.half_learned.step, rel=1e-9)
    assert run.layer_error is None or run.layer_error < 1e-4


def test_momentum_beyond_what_is_known():
    data = {"spectrum": [3.0, 1.0]}
    lost = ask(data=data, network={"width": 8}, init={"scale": 0.1}, training={"momentum": 0.9, "lr": 0.5})
    assert lost.lr < lost.largest_stable_lr
    assert (lost.outcome, lost.modes[0].fate) == ("diverges", Fate.DIVERGES)
    assert np.max(np.abs(pushed(lost, 8)[0])) > 1e4
    # the first step is not forgotten when the last one is made: it converges, and nobody says when
    slow = ask(data=data, network={"width": 8}, init={"scale": 0.1}, training={"momentum": 0.999, "lr": 1e-8})
    assert slow.converges
    assert math.isnan(slow.learned.step)
    assert slow.modes[0].half_learned.not_before == pytest.approx(4096e-8)
    # on the way still, and steps that may overshoot: not promised
    doubt = ask(data=data, network={"width": 8}, init={"scale": 1e-4}, training={"momentum": 0.999, "lr": 1e-5})
    assert doubt.outcome == "converges if it survives its start"
    assert doubt.lr < doubt.largest_stable_lr
    assert math.isnan(doubt.learned.step)
    # too large to be followed
    big = ask(data={"spectrum": [3.0, 1.0], "inputs": 400, "outputs": 400}, network={"width": 400},
              init={"kind": "gaussian"}, training={"momentum": 0.9})  # fmt: skip
    assert not big.converges or math.isnan(big.learned.step)
    assert math.isnan(big.modes[0].half_learned.step)


def correlated():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 4)) * [2, 1, 0.5, 0.3]
    return {"problem": ln.regression(x, x @ rng.normal(size=(4, 3)), average=True)}


@crossed(
    (
        "training",
        [
            {"momentum": 0.5, "lr": 1e-3},
            {"momentum": 0.9, "lr": 2e-4},
            {"momentum": 0.9, "lr": 2e-4, "nesterov": True},
            {"momentum": 0.8, "lr": 2e-3, "dampening": 0.8},
            {"momentum": 0.8, "lr": 4e-4, "weight_decay": 0.01},
            {"momentum": 0.8, "lr": 4e-4, "weight_decay": 0.03, "decoupled": True},
            {"momentum": 0.8, "lr": 2e-3, "weight_decay": 0.03, "decoupled": True, "nesterov": True, "dampening": 0.8},
        ],
    ),
    (
        "tables",
        [
            {**correlated(), "network": {"depth": 1}, "init": {"scale": 0.1}},
            {**correlated(), "network": {"width": 5}, "init": {"scale": 0.05}},
            # a seed whose slowest mode comes after the steps that are made, at every one of these learning rates
            {"data": {"spectrum": [1.2, 0.6]}, "network": {"depth": 3, "width": 4}, "init": {"scale": 0.3, "seed": 3}},
        ],
    ),
)
def test_momentum_is_told_beyond_the_steps_that_are_made(tables, training):
    """The flow that takes over after 4096 steps, against all steps of the run: far closer than its error says."""
    said = ask(**tables, training=training)
    run = said.measure()
    assert said.converges
    assert run.steps > 4096 == said.data["analysis"].times.solution.exact
    pairs = [(mode.half_learned, found.half_learned) for mode, found in zip(said.modes, run.modes, strict=True)]
    pairs += [(said.fit, run.fit), (said.learned, run.learned)]
    late = [(told, found.step) for told, found in pairs if told.step > 4096]
    assert late
    for told, found in late:
        assert told.step == pytest.approx(found, rel=1e-4)
        assert 1e-3 <= told.error < 0.2
    assert any("then integrated as the flow that it follows" in source.origin for source in sources_of(said))


@given(
    st.floats(0.05, 0.95), st.booleans(), st.booleans(), st.sampled_from([0.0, 0.3]), st.booleans(), st.floats(0.5, 4.0)
)
def test_the_flow_of_momentum_is_right_to_second_order(beta, nesterov, averaged, decay, decoupled, sharpness):
    """Of the slow root of a step on a quadratic: half the step leaves a quarter of the error."""
    how = {"momentum": beta, "dampening": beta * averaged, "nesterov": nesterov}
    how |= {"weight_decay": decay, "decoupled": decoupled}
    largest = float(optimizers.largest_monotone_lr(sharpness, **how))
    one, two = (optimizers.modified_equation_error(share * largest, sharpness, **how) for share in (0.02, 0.01))
    assert one < 1e-3
    assert two == pytest.approx(one / 4, rel=0.05, abs=1e-9)
    assert optimizers.modified_equation_error(1.01 * largest, sharpness, **how) == math.inf


def test_momentum_that_is_at_rest_where_it_is_sharp():
    """Steps that overshoot in the sharp directions of these inputs have learned them when the flow takes over."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(20, 4)) * [1, 0.5, 0.1, 0.01]
    problem = ln.regression(x, x @ rng.normal(size=(4, 2)), average=True)
    for network in ({"depth": 1}, {"width": 6}):
        said = ask(problem, network=network, init={"scale": 0.3}, training={"momentum": 0.9})
        assert said.lr > 50 * largest_monotone_lr(said.optimizer, 2 * 1.9 / said.largest_stable_lr)
        run = said.measure()
        assert run.status == "converged"
        assert said.learned.step > 4096
        assert said.learned.step == pytest.approx(run.learned.step, rel=1e-4)
        assert said.learned.error < 0.02


def test_steps_that_will_overshoot_are_not_promised():
    """Three layers that leave a small start after the steps that are made: what the flow does then, steps may not."""
    tables = {"data": {"spectrum": [1.0]}, "network": {"depth": 3}, "init": {"kind": "balanced", "scale": 0.02}}
    short = largest_monotone_lr(ln.optim.SGD(momentum=0.97), 3.0)  # the curvature in the end
    for lr, calm in ((0.9 * short, True), (2 * short, False)):
        said = ask(**tables, training={"momentum": 0.97, "lr": lr})
        assert said.lr < said.largest_stable_lr / 100
        assert said.data["analysis"].times.solution.exact == 4096
        assert said.outcome == ("converges" if calm else "converges if it survives its start")
        assert math.isnan(said.modes[0].half_learned.step) != calm
        assert said.measure().modes[0].half_learned.step > 4096


def test_a_flow_is_left_where_it_stands_for_steps_no_more(monkeypatch):
    """The flow of momentum comes to rest on its way out of this start, where its bend outweighs the slope: it is not
    followed up to there, which would take as many systems of equations as are allowed.
    """
    made = []
    hessian = Objective.hessian
    monkeypatch.setattr(Objective, "hessian", lambda self, weights: made.append(1) or hessian(self, weights))
    tables = {"data": {"spectrum": [2.0, 1.0]}, "network": {"depth": 4}, "init": {"kind": "one-zero", "scale": 0.02}}
    said = ask(**tables, training={"momentum": 0.9, "lr": 0.02})
    assert said.outcome == "converges if it survives its start"
    assert said.data["analysis"].times.solution.exact == 4096
    assert len(made) < 200


def test_the_run_goes_on_with_its_momentum():
    """What does not settle is looked at further, with the momentum that it has and not from rest."""
    said = ask(data={"spectrum": [3.0]}, network={"width": 1}, init={"kind": "balanced", "scale": 1.7},
               training={"momentum": 0.3, "lr": 0.45})  # fmt: skip
    assert said.lr > said.largest_stable_lr
    run = said.measure()
    seen = pushed(said, run.steps + 129)[0][-129:, 0, 0]
    assert run.modes[0].between == pytest.approx((seen.min(), seen.max()), rel=1e-6)
    assert np.ptp(seen) > 0.1


# Decay ----------------------------------------------------------------------------------------------------------------


DECAYS = [
    {"weight_decay": 0.1},
    {"weight_decay": 0.1, "momentum": 0.8, "decoupled": True},
    {"weight_decay": 0.1, "momentum": 0.6, "nesterov": True},
    {"weight_decay": 0.1, "momentum": 0.8, "dampening": 0.8, "decoupled": True},
]


@pytest.mark.quick(6)
@pytest.mark.parametrize("training", DECAYS)
@pytest.mark.parametrize(
    ("network", "init"),
    [
        ({"depth": 1}, {"scale": 0.1}),
        ({"width": 20}, {"scale": 0.1}),
        ({}, {"kind": "one-zero", "scale": 0.2}),
        ({"depth": 3, "width": 2}, {"kind": "balanced", "scale": 0.5}),
    ],
)
def test_networks_with_decay_beside_their_runs(network, init, training):
    rng = np.random.default_rng(3)
    x = np.linalg.qr(rng.normal(size=(12, 4)))[0] * [3.0, 2.5, 2.0, 1.5]
    said = ask(ln.regression(x, x @ rng.normal(size=(4, 3))), network=network, init=init, training=training)
    assert said.converges
    assert said.end == "reached"
    run = said.measure()
    within(run)
    assert run.status == "converged"
    assert run.predictor_error < 1e-5
    assert run.learned.step == pytest.approx(said.learned.step, rel=1e-3)
    assert run.fit.step == pytest.approx(said.fit.step, rel=1e-3)
    assert run.layer_error is None or run.layer_error < 1e-4
    # all weights, as frameworks train them: where they end, and which steps they bear there
    seen, layers, speeds = pushed_from([np.asarray(w) for w in said.network.layers], None, said, said.lr, 6000)
    modes, clock = said.data["analysis"].times.modes, np.arange(6000.0)
    assert seen[-1] == pytest.approx(modes.matrix, abs=1e-5)
    assert said.loss.final == pytest.approx(reduction_of(said).loss(seen[-1]), rel=1e-3)
    for i, mode in enumerate(said.modes):
        measured = crossing(
            clock, np.einsum("o,toj,j->t", modes.left[:, i], seen, modes.right[:, i]), mode.value / 2, "line"
        )
        assert mode.half_learned.step == pytest.approx(measured, rel=1e-3)
    for factor, stable in ((0.97, True), (1.03, False)):
        near = [w + 1e-6 * rng.normal(size=w.shape) for w in layers]
        with np.errstate(all="ignore"):
            way = pushed_from(near, speeds, said, factor * said.largest_stable_lr, 600)[0]
            assert (np.max(np.abs(way - modes.matrix)) < 1e-4) == stable  # it may come back to a flatter place
    for source in sources_of(said):
        assert all(name in registry() for name in source.claims)
    assert "decay 0.1" in str(run)
    assert run.plot().axes


@pytest.mark.parametrize("training", DECAYS[:2])
@pytest.mark.parametrize(
    ("network", "init"),
    [({"width": 8}, {"scale": 0.3}), ({"width": 8, "alpha": 16}, {"scale": 0.3}), ({"depth": 3}, {"kind": "balanced"})],
)
def test_white_inputs_with_decay_are_those_of_theory(network, init, training):
    init = {"scale": 0.7, **init}
    said = ask(data={"spectrum": [3.0, 2.9, 1.0]}, network=network, init=init, training=training)
    mu, scaling = (
        float(said.optimizer.effective_decay),
        network.get("alpha", 1) / network["width"] if "alpha" in network else 1.0,
    )
    assert mu == pytest.approx(0.1 if "momentum" not in training else 0.02)
    how = {"weight_decay": mu, "depth": said.depth, "scale": scaling**2, "local": True}
    goal = np.array([3.0, 2.9, 1.0]) / scaling
    learned = np.asarray(optimizers.decayed_value(goal, **how))
    assert [mode.value for mode in said.modes] == pytest.approx(list(learned), rel=1e-9)
    assert [mode.layers for mode in said.modes] == pytest.approx(
        [pytest.approx((value ** (1 / said.depth),) * said.depth, rel=1e-6) for value in learned]
    )
    sharpest = optimizers.decayed_sharpness(goal, **how)
    assert said.largest_stable_lr == pytest.approx(largest_lr(said.optimizer, sharpest), rel=1e-6)
    assert said.loss.final == pytest.approx(scaling**2 * np.sum((goal - learned) ** 2) / 2, rel=1e-6)
    end = source_of(said, "predictor_norm")
    assert end.claims == ("optimizers/C6",)
    assert end.assumptions[0].holds == "exactly"


def test_what_decay_takes_away():
    tables = {"data": {"spectrum": [3.0, 1.0, 0.05]}, "network": {"width": 16}, "init": {"scale": 0.1}}
    said = ask(**tables, training={"weight_decay": 0.1})
    assert [mode.value for mode in said.modes] == pytest.approx([2.9, 0.9])
    assert said.modes_lost_to_decay == 1
    assert "weight decay takes 1 more to 0" in str(said)
    within(said.measure())
    # a start near the saddle does not end there
    tiny = ask(**tables | {"init": {"scale": 1e-8}}, training={"weight_decay": 0.1})
    assert [mode.value for mode in tiny.modes] == pytest.approx([2.9, 0.9])
    # without decay none of it is there
    assert ask(**tables).modes_lost_to_decay == 0
    # three layers: which minimum it is depends on the start, so nothing is said of all of them
    deep = ask(data={"spectrum": [3.0, 1.0]}, network={"depth": 3}, init={"kind": "balanced", "scale": 0.6},
               training={"weight_decay": 0.1})  # fmt: skip
    assert math.isnan(deep.largest_stable_lr_at_flattest_end)
    assert "at the flattest end" not in str(deep)
    assert "at the flattest end" in str(said)


@pytest.mark.parametrize(
    ("network", "training", "words"),
    [
        (
            {"depth": 3, "width": 8},
            {"weight_decay": 0.1},
            "weight_decay = 0.1 is not allowed: from this initialization all weights",
        ),
        (
            {"width": 8},
            {"weight_decay": 5},
            "weight_decay = 5 is not allowed: from this initialization all weights decay to 0",
        ),
        ({"width": 8}, {"weight_decay": -1}, "training.weight_decay = -1"),
        ({"width": 8}, {"weight_decay": 0.5, "signal": 2}, "signal = 2 is not allowed: there are 1 modes"),
    ],
)
def test_decay_that_leaves_nothing_is_one_sentence(network, training, words):
    with pytest.raises(InputError, match=re.escape(words)):
        ask(data={"spectrum": [3.0, 0.4]}, network=network, init={"scale": 0.01}, training=training)


def test_decay_of_networks_that_nobody_follows_is_one_sentence():
    with pytest.raises(InputError, match=r"weight_decay = 0.1 is not allowed here"):
        ask(data={"spectrum": [3.0, 1.0], "inputs": 400, "outputs": 400}, network={"width": 400},
            init={"scale": 0.1}, training={"weight_decay": 0.1})  # fmt: skip


@pytest.mark.parametrize(("lr", "outcome"), [(0.5, "settles elsewhere or not at all"), (5.0, "diverges")])
def test_steps_that_are_too_long_with_decay(lr, outcome):
    said = ask(data={"spectrum": [3.0, 1.0]}, network={"width": 8}, init={"scale": 0.1},
               training={"weight_decay": 0.05, "lr": lr})  # fmt: skip
    assert said.outcome == outcome
    assert math.isnan(said.learned.step)
    assert said.measure().status == ("diverged" if lr == 5 else "horizon")


# Batches --------------------------------------------------------------------------------------------------------------


def every_samples_hessian(problem, layers):
    """n J_i^T J_i of all weights, by automatic differentiation of what the network says to each sample."""
    inputs = np.asarray(problem.sampled().inputs) * math.sqrt(float(problem.scale)) * float(problem.output_scale)

    def says(weights):
        out = inputs.T
        for w in weights:
            out = w @ out
        return out.T

    parts = jax.tree.leaves(jax.jacobian(says)([jax.numpy.asarray(w) for w in layers]))
    jacobians = np.concatenate([np.asarray(part).reshape(*part.shape[:2], -1) for part in parts], axis=2)
    return len(inputs) * np.einsum("ioa,iob->iab", jacobians, jacobians)


@pytest.mark.parametrize(
    ("network", "init", "n", "training"),
    [
        ({"depth": 1}, {"scale": 0.1}, 3, {}),
        ({"depth": 1}, {"scale": 0.1}, 7, {"momentum": 0.6}),
        ({}, {"kind": "one-zero", "scale": 0.5}, 7, {}),
        ({"width": 4}, {"scale": 0.5}, 3, {"momentum": 0.6, "dampening": 0.6}),
        ({"width": 4}, {"scale": 0.5}, 7, {}),
        ({"depth": 3, "width": 3}, {"scale": 0.7}, 7, {"momentum": 0.6}),
    ],
)
def test_batches_bear_what_theory_says_of_all_samples(network, init, n, training):
    rng = np.random.default_rng(11)
    x = np.linalg.qr(rng.normal(size=(n, 3)))[0] * [3.0, 2.5, 2.0]
    problem = ln.regression(x, x @ rng.normal(size=(3, 2)), average=n == 7)
    said = ask(problem, network=network, init=init, training={"batch_size": 2, **training})
    layers = pushed(said, 3000)[1]
    layers = [layers[0] @ reduction_of(said).basis, *layers[1:]]  # as the inputs are given
    hessians = every_samples_hessian(problem, layers)
    how = {"momentum": said.momentum, "dampening": said.dampening}
    limit = said.largest_stable_lr_with_batches
    assert limit == pytest.approx(optimizers.largest_batch_lr(hessians, 2, **how), rel=1e-4)
    assert limit < said.largest_stable_lr
    for factor, stable in ((0.99, True), (1.01, False)):
        assert (optimizers.batch_spectral_radius(hessians, 2, factor * limit, **how) < 1) == stable
    # all samples at once are no batch
    whole = ask(problem, network=network, init=init, training={"batch_size": n, **training})
    assert whole.largest_stable_lr_with_batches == pytest.approx(whole.largest_stable_lr, rel=1e-6)
    assert "with batches of 2" in str(said)
    assert all(name in registry() for source in sources_of(said) for name in source.claims)


def test_batches_without_a_formula_are_unknown():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(12, 3))
    noisy = ln.regression(x, x @ rng.normal(size=(3, 2)) + rng.normal(size=(12, 2)))
    exact = ln.regression(x, x @ rng.normal(size=(3, 2)))
    tables = {"network": {"width": 5}, "init": {"scale": 0.3}}
    for problem, training, why in (
        (noisy, {}, "does not fit every sample"),
        (exact, {"weight_decay": 0.01}, "does not fit every sample"),
        (exact, {"momentum": 0.5, "nesterov": True}, "Nesterov"),
    ):
        said = ask(problem, **tables, training={"batch_size": 4, **training})
        assert math.isnan(said.largest_stable_lr_with_batches)
        assert source_of(said, "largest_stable_lr_with_batches").claims == ()
        assert why in source_of(said, "largest_stable_lr_with_batches").origin
        assert "with batches of 4: unknown" in str(said)
    narrow = ask(exact, network={"width": 1}, init={"scale": 0.3}, training={"batch_size": 4})
    assert math.isnan(narrow.largest_stable_lr_with_batches)
    many = ln.regression(x := rng.normal(size=(1000, 8)), x @ rng.normal(size=(8, 6)))
    large = ask(many, network={"depth": 1}, init={"scale": 0.1}, training={"batch_size": 4})
    assert "too many samples" in source_of(large, "largest_stable_lr_with_batches").origin
    assert ask(exact, **tables).largest_stable_lr_with_batches is None
    for problem, batch, data, why in (
        (exact, 13, None, "batch_size = 13 is not allowed: there are 12 samples"),
        (None, 2, {"spectrum": [2.0, 1.0]}, "batch_size = 2 is not allowed with a spectrum"),
        (exact, 0, None, "training.batch_size = 0"),
    ):
        with pytest.raises(InputError, match=re.escape(why)):
            ask(problem, data=data, **tables, training={"batch_size": batch})
    moments = ln.regression(x := rng.normal(size=(12, 3)), x @ rng.normal(size=(3, 2)), samples=False)
    said = ask(moments, **tables, training={"batch_size": 4})
    assert "only the second moments" in source_of(said, "largest_stable_lr_with_batches").origin
    with pytest.raises(InputError, match="run is not allowed with batch_size = 4: the problem keeps only the second"):
        said.measure()


@pytest.mark.quick(8)
@crossed(
    ("network", [{"depth": 1}, {"width": 5}, {"depth": 3, "width": 3}]),
    (
        "training",
        [
            {},
            {"momentum": 0.5},
            {"momentum": 0.5, "nesterov": True, "weight_decay": 0.02},
            {"weight_decay": 0.02, "lr": 0.01},
        ],
    ),
    ("noise", [0.0, 0.5]),
)
def test_a_run_on_batches_is_that_of_the_samples_as_they_are(network, training, noise):
    """The same batches of the samples as they were given: with all inputs, and labels that may not be fitted."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(7, 9)) @ np.diag([1.5, 1.2, 1, 1, 0, 0, 0, 0, 0])
    y = x @ rng.normal(size=(9, 2)) + noise * rng.normal(size=(7, 2))
    problem = ln.regression(x, y, average=True)
    said = ask(problem, network=network, init={"scale": 0.4, "seed": 5}, training={"batch_size": 5, **training})
    run = said.measure()
    drawn = ln.optim.MiniBatch(5, draw="subset")
    layers = [np.asarray(w) for w in said.network.layers]
    layers[0] = layers[0] @ reduction_of(said).basis
    optimizer = with_lr(said.optimizer, said.lr, drawn)
    steps, values = curves_of(run)
    again = ln.simulate(
        problem, ln.Weights(layers), optimizer, steps=int(steps[-1]), record=ln.record.at(steps),
        observe=["matrix"], key=jax.random.key(5),
    )  # fmt: skip
    modes = said.data["analysis"].times.modes
    right = reduction_of(said).basis.T @ modes.right
    seen = np.einsum("oi,toj,ji->ti", modes.left, np.asarray(again["matrix"]), right)
    assert np.allclose(values, seen, rtol=0, atol=1e-8 * np.max(modes.value))
    fitted = noise == 0 and "weight_decay" not in training
    assert run.status == ("converged" if fitted else "horizon")
    assert "with batches of 5: " in str(run)
    if fitted:
        assert run.predictor_error < 1e-4
        assert run.learned.step == pytest.approx(said.learned.step, rel=0.5)
    else:
        assert 0 < run.excess_loss_left < 0.1
    # another seed draws other batches
    assert ask(problem, network=network, init={"scale": 0.4, "seed": 6}, training={"batch_size": 5}).measure() != run


def test_samples_of_a_file_are_kept_for_batches(tmp_path):
    """However many they are; without batches their second moments are enough."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4200, 2))
    np.savetxt(tmp_path / "many.csv", np.column_stack([x, x @ [1.0, -2.0]]), delimiter=",", header="a,b,y", comments="")
    data = {"file": str(tmp_path / "many.csv"), "loss": "mean"}
    tables = {"data": data, "network": {"depth": 1}, "init": {"scale": 0.1}}
    assert reduction_of(ask(**tables)).units is None
    said = ask(**tables, training={"batch_size": 100})
    assert said.largest_stable_lr_with_batches < said.largest_stable_lr
    assert said.measure().status == "converged"


def test_steps_that_batches_do_not_bear():
    rng = np.random.default_rng(0)
    problem = ln.regression(x := rng.normal(size=(6, 6)), x @ rng.normal(size=(6, 2)))
    tables = {"network": {"depth": 1}, "init": {"scale": 0.1}}
    said = ask(problem, **tables, training={"batch_size": 1})
    limit, whole = said.largest_stable_lr_with_batches, said.largest_stable_lr
    assert 3.5 * limit < 0.9 * whole
    calm, lost = (ask(problem, **tables, training={"batch_size": 1, "lr": lr}) for lr in (0.8 * limit, 3.5 * limit))
    assert calm.measure().status == "converged"
    # all samples bear it, and the answer says that batches do not
    assert lost.outcome == "converges"
    assert "below this lr" in str(lost)
    assert lost.measure().status == "diverged"


@pytest.mark.parametrize("depth", [2, pytest.param(3, marks=pytest.mark.slow), 4])
def test_modes_that_mix_until_descent_diverges(depth):
    """Each mode alone would be chaotic; on rotated data they mix out of rounding, and then descent diverges."""
    rng = np.random.default_rng(1)
    x = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    problem = ln.regression(x, x @ rng.normal(size=(2, 2)))
    tables = {"network": {"depth": depth, "width": 2}, "init": {"kind": "balanced", "scale": 0.3}}
    largest = ask(problem, **tables).largest_stable_lr
    said = ask(problem, **tables, training={"lr": 1.6 * largest})
    assert (said.outcome, {mode.fate for mode in said.modes}) == ("diverges", {Fate.DIVERGES})
    assert "since modes mix" in said.explanation
    run = said.measure()
    assert run.status == "diverged"
    assert said.modes_mix.step < run.steps


def test_no_word_beyond_the_edge_is_contradicted_by_the_run():
    """Orthogonal inputs, three kinds of initialization, up to twice the largest stable learning rate."""
    ends = {NetworkOutcome.DIVERGES: "diverged", NetworkOutcome.CONVERGES: "converged"}
    told = 0
    for seed in range(9):
        rng = np.random.default_rng([11, seed])
        depth, kind = int(rng.integers(2, 5)), ["balanced", "one-zero", "gaussian"][seed % 3]
        x = np.linalg.qr(rng.normal(size=(2, 2)))[0]
        problem = ln.regression(x, x @ rng.normal(size=(2, 2)))
        tables = {"network": {"depth": depth, "width": 2}, "init": {"kind": kind, "scale": 0.3}}
        lr = [1.2, 1.6, 2.0][seed // 3] * ask(problem, **tables).largest_stable_lr
        run = ask(problem, **tables, training={"lr": lr}).measure()
        word = run.prediction.outcome
        if word not in (NetworkOutcome.MIXED, NetworkOutcome.ELSEWHERE):
            told += 1
            assert run.status == ends.get(word, "horizon"), (seed, word)
    assert told >= 7


def test_copies_that_disagree_leave_the_outcome_unknown():
    """Copies of a network that differ by 1e-9 and do not end alike: what descent does depends on rounding."""
    rng = np.random.default_rng(1)
    x = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    problem = ln.regression(x, x @ rng.normal(size=(2, 2)))
    said = ask(problem, network={"depth": 4, "width": 2}, init={"kind": "balanced", "scale": 0.3})
    objective, modes = said.data["training"].objective, said.data["analysis"].times.modes
    seen = follow_copies(objective, modes, 1.6 * said.largest_stable_lr)
    assert seen.lost == COPIES == len(seen.diverged)
    before = NetworkVerdict.alike(NetworkOutcome.CHAOS, "as balanced layers would: beyond", Outcome(Fate.CHAOS), 2)
    assert followed_verdict(before, seen, modes, diverged=True) is before  # all agree
    for copies, diverged in [
        (seen, False),
        (seen._replace(diverged=np.where(np.arange(8) < 3, 100, -1)), False),
        (seen._replace(diverged=np.where(np.arange(8) < 3, 100, -1)), True),
        (None, False),
    ]:
        found = followed_verdict(before, copies, modes, diverged=diverged)
        assert (found.outcome, set(found.modes)) == (NetworkOutcome.MIXED, {Outcome(Fate.UNKNOWN)})
        assert found.between == [None, None]
        assert found.explanation.startswith("beyond")
        if copies is not None:
            itself = "diverges" if diverged else "does not"
            words = f"{copies.lost} of 8 copies whose weights differ by 1e-9 diverge in {copies.steps:,} steps"
            assert f"{words}, and the network itself {itself}" in found.explanation
    # times after they have separated depend on rounding too
    assert 0 < seen.separated < min(seen.diverged)
    late = ask(problem, network={"depth": 4, "width": 2}, init={"kind": "balanced", "scale": 0.3},
               training={"lr": 1.6 * said.largest_stable_lr})  # fmt: skip
    assert late.data["analysis"].times.solution.left == seen.separated
    alone = dataclasses.replace(before, alone=True)
    assert followed_verdict(alone, None, modes) is alone


def test_a_regression_is_decomposed_three_times(monkeypatch):
    """Its inputs, the labels that they explain, and the best fit of the rank that the widths allow."""
    x, y, _ = random_regression()
    problem = ln.regression(x, y)
    network = ln.init.gaussian(jax.random.key(0), problem, 2, 0.1)
    calls, svd = [], np.linalg.svd
    monkeypatch.setattr(np.linalg, "svd", lambda a, *args, **kwargs: calls.append(a.shape) or svd(a, *args, **kwargs))
    assert prediction.network(problem, network).converges
    assert 2 <= len(calls) <= 3  # those of the fit at least


def test_a_network_that_never_moves_is_one_sentence():
    x, y, _ = random_regression()
    zeros = ln.Weights([np.zeros((4, 5)), np.zeros((3, 4))])
    with pytest.raises(InputError, match="its gradient is zero there"):
        prediction.network(ln.regression(x, y), zeros)


def test_momentum_beyond_the_edge_is_followed_in_copies(monkeypatch):
    """Where copies that differ by 1e-9 do not all diverge, or have separated, rounding decides what comes later."""
    x, y, _ = random_regression()
    problem = ln.regression(x, y)
    tables = {"network": {"depth": 2, "width": 6}, "init": {"scale": 0.3}}
    limit = ask(problem, **tables, training={"momentum": 0.9}).largest_stable_lr
    training = {"momentum": 0.9, "lr": 8 * limit}
    said = ask(problem, **tables, training=training)
    assert (said.outcome, said.measure().status) == ("diverges", "diverged")
    objective, modes = said.data["training"].objective, said.data["analysis"].times.modes
    optimizer = ln.optim.SGD(8 * limit, momentum=0.9)
    assert copies_lost(objective, modes, 8 * limit, optimizer, 2000)[0] == COPIES
    monkeypatch.setattr(analysis, "copies_lost", lambda *_: (3, 16.0))
    other = ask(problem, **tables, training=training)
    assert other.outcome == NetworkOutcome.ELSEWHERE
    assert "but 3 of 8 copies whose weights differ by 1e-9 do" in other.explanation
    assert other.data["analysis"].times.solution.left <= 16


def test_what_stays_at_a_saddle_is_not_chaos():
    """Three layers, far beyond the edge: descent is thrown to the saddle, where it moves by 1e-9 of the target."""
    rng = np.random.default_rng(5)
    x = np.linalg.qr(rng.normal(size=(4, 3)))[0]
    problem = ln.regression(x, x @ rng.normal(size=(3, 2)))
    tables = {"network": {"depth": 3, "width": 2}, "init": {"scale": [0.5, 0.5, 0.0]}}
    limit = ask(problem, **tables).largest_stable_lr
    for share in (1.5, 1.8, 1.95, 2.1):
        said = ask(problem, **tables, training={"lr": share * limit})
        if said.outcome in ("chaos", "flips"):
            assert max(mode.between.high - mode.between.low for mode in said.modes) > 1e-3 * said.modes[0].value
