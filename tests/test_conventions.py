"""The conventions of docs/conventions.md, each held everywhere."""

import inspect
import re
from functools import partial
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import shapes
from jaxtyping import Float, TypeCheckError, jaxtyped

import linnet as ln
from linnet import linalg, observe
from linnet.problems import KEPT_SAMPLES, Problem
from linnet.theory import balance, convergence, feature, landscape, mixed, spectral, stability

# Samples -------------------------------------------------------------------------------------------------------------


def samples(n, d, rank, outputs, seed=0):
    """Inputs of a given rank and labels that are not in their range."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, d))
    return x, rng.normal(size=(n, outputs))


SAMPLES = [(5, 9, 5, 1), (9, 5, 5, 1), (6, 6, 3, 1), (7, 4, 2, 3), (3, 8, 2, 2), (1, 4, 1, 1), (4, 1, 1, 2)]


@pytest.mark.parametrize("shape", SAMPLES)
def test_what_is_said_of_samples_is_in_their_order(shape):
    x, y = samples(*shape)
    n, d, _, outputs = shape
    rng = np.random.default_rng(1)
    problem = ln.regression(x, y, output_scale=0.3)
    kept = problem.sampled()
    np.testing.assert_allclose(kept.inputs, x, atol=1e-13)
    np.testing.assert_array_equal(kept.labels, y)
    first, second = rng.normal(size=(6, d)), rng.normal(size=(outputs, 6))
    hidden = x @ first.T
    theta = 0.09 * (np.kron(second @ second.T, x @ x.T) + np.kron(np.eye(outputs), hidden @ hidden.T))
    np.testing.assert_allclose(observe.sample_kernel(ln.Weights((first, second)), problem), theta, atol=1e-12)
    projection = problem.project()
    seen = ln.Weights((first, second)).project(projection.basis)
    np.testing.assert_allclose(observe.sample_kernel(seen, projection.problem), theta, atol=1e-12)
    # in the order given: another order of the samples gives the same kernel in that order
    order = rng.permutation(n)
    turned = ln.regression(x[order], y[order], output_scale=0.3)
    kernel = np.asarray(observe.sample_kernel(ln.Weights((first, second)), turned)).reshape(outputs, n, outputs, n)
    np.testing.assert_allclose(kernel, theta.reshape(outputs, n, outputs, n)[:, order][:, :, :, order], atol=1e-12)


def test_whitened_samples_keep_their_order():
    x, y = samples(7, 3, 3, 2)
    u, _, vt = np.linalg.svd(x, full_matrices=False)
    white = ln.regression(x, y).whiten().problem.sampled()
    np.testing.assert_allclose(white.inputs, np.sqrt(7) * u @ vt, atol=1e-13)
    np.testing.assert_array_equal(white.labels, y)


@pytest.mark.parametrize("shape", [shape for shape in SAMPLES if shape[3] == 1])
def test_feature_learning_speaks_of_samples_in_their_order(shape):
    x, y = samples(*shape)
    task = feature.task(ln.problems.mean_field_regression(x, y[:, 0], width=11))
    np.testing.assert_allclose(task.gram, x @ x.T, atol=1e-13 * np.sum(x**2))
    np.testing.assert_array_equal(task.labels, y[:, 0])
    # the end: f = X X^+ y, and the kernel of the weights that have it
    for v0, sigma0 in ((None, 0.0), (0.5, 0.3)):
        end = feature.end_state(task, v0, sigma0)
        f = x @ np.linalg.pinv(x, rcond=1e-12) @ y[:, 0]
        v = np.linalg.norm(np.linalg.pinv(x, rcond=1e-12) @ y[:, 0])
        size = 0.0 if v0 is None else v0**2 + sigma0**2
        weight = (size + np.hypot(size, 2 * v)) / 2
        kernel = (weight * x @ x.T + np.outer(f, f) / weight) / 11
        np.testing.assert_allclose(end.fitted(x), f, atol=1e-12)
        np.testing.assert_allclose(end.kernel(x), kernel, atol=1e-12 * np.linalg.norm(kernel))
        found = np.linalg.eigvalsh(kernel)[::-1][: len(end.values)]
        np.testing.assert_allclose(end.values, found, atol=1e-12 * found[0])
        np.testing.assert_allclose(np.linalg.eigvalsh(end.kernel(task.root))[-1], found[0], rtol=1e-12)


def test_batches_and_drawn_samples_keep_their_order(key):
    drawn = ln.problems.gaussian_samples(key, 6, [(1.0, 9), (0.5, 40)], teacher=[1.0, 0.5])
    problem = ln.problems.mean_field_regression(drawn.inputs, drawn.labels, width=3)
    np.testing.assert_allclose(problem.sampled().inputs, drawn.inputs, atol=1e-13)
    x = np.random.default_rng(2).normal(size=(3, 5, 4))
    state = ln.Weights((np.ones((2, 4)), np.ones((1, 2))))

    @jax.vmap
    def kernel(inputs):
        return observe.sample_kernel(state, ln.regression(inputs, inputs[:, 0]))

    one = [observe.sample_kernel(state, ln.regression(inputs, inputs[:, 0])) for inputs in x]
    np.testing.assert_allclose(kernel(x), np.stack(one), rtol=1e-12)


def test_training_does_not_touch_the_samples():
    """Their frame is no argument of the compiled step: full-batch training costs what it did."""
    x, y = samples(7, 4, 4, 1)
    problem, state = ln.regression(x, y), ln.Weights((np.ones((3, 4)), np.ones((1, 3))))
    step = jax.jit(lambda problem, state: state.descend(problem, 0.1)).lower(problem, state).compile()
    assert "f64[4,4]" in step.as_text()  # the root
    assert "f64[7,4]" not in step.as_text()  # the frame


def test_too_many_samples_are_not_kept():
    n = KEPT_SAMPLES + 1
    problem = ln.regression(np.ones((n, 2)), np.arange(n))
    assert problem.frame is None
    assert problem.project().problem.frame is None
    state = ln.Weights((np.ones((3, 2)), np.ones((1, 3))))
    assert jnp.isfinite(observe.target_distance(state, problem))
    for ask in (
        lambda: observe.sample_kernel(state, problem),
        lambda: feature.task(problem).gram,
        lambda: feature.task(problem).labels,
    ):
        with pytest.raises(ln.InputError, match=f"second moments of its {n} samples: build it with samples=True"):
            ask()
    kept = ln.regression(np.ones((n, 2)), np.arange(n), samples=True).sampled()
    np.testing.assert_allclose(kept.inputs, np.ones((n, 2)), atol=1e-13)
    np.testing.assert_array_equal(kept.labels[:, 0], np.arange(n))
    assert ln.regression(np.eye(2), np.ones(2), samples=False).frame is None


# The sign of the imbalance -------------------------------------------------------------------------------------------


def test_the_imbalance_is_the_layer_below_less_the_layer_above():
    """D_l = W_l W_l^T - W_{l+1}^T W_{l+1}, whoever speaks of it; a heavy first layer has a positive one."""
    rng = np.random.default_rng(3)
    layers = [rng.normal(size=shape) for shape in ((4, 3), (5, 4), (2, 5))]
    state = ln.Weights(layers)
    for below, above, found in zip(layers, layers[1:], state.imbalance(), strict=False):
        np.testing.assert_allclose(found, below @ below.T - above.T @ above, atol=1e-13)
    problem = ln.factorization(np.zeros((2, 3)))
    np.testing.assert_allclose(
        observe.imbalance(state, problem), [np.linalg.norm(d) for d in state.imbalance()], rtol=1e-12
    )
    values = np.array([[3.0, 2.0], [1.0, 1.5]])
    vector = ln.factorization(np.ones(2))
    np.testing.assert_allclose(observe.layer_gaps(ln.Modes(values), vector), values[:1] ** 2 - values[1:] ** 2)

    heavy = ln.Weights((3 * rng.normal(size=(4, 3)), 0.1 * rng.normal(size=(2, 4))))
    (d,) = heavy.imbalance()
    top = np.linalg.eigvalsh(d)[-1]
    assert top > 1
    # D of `sandwich`: the upper bound of C1 knows the heavy layer, that of C2 does not
    first, second = mixed.sandwich(heavy.matrix, d)
    c1, c2 = observe.grams(heavy)
    assert np.linalg.eigvalsh(first.high - c1)[0] > -1e-10 * top
    assert np.linalg.eigvalsh(second.high - c2)[0] > -1e-10 * top
    assert np.linalg.eigvalsh(mixed.sandwich(heavy.matrix, -d)[0].high - c1)[0] < -0.1
    # the spectrum of Q J, a descent step, and the starts that are balanced up to a multiple of the identity
    np.testing.assert_allclose(feature.boost_spectrum(*heavy.layers).max(), top, rtol=1e-10)
    one = ln.Weights((rng.normal(size=(4, 3)), rng.normal(size=(1, 4))))
    goal = ln.factorization(np.ones((1, 3)))
    moved = one.descend(goal, 0.1).imbalance()[0] - one.imbalance()[0]
    force = -goal.gradient(one.matrix)
    np.testing.assert_allclose(feature.imbalance_step(*one.layers, force, 0.1), moved, atol=1e-12)
    for sign in (1, -1):
        (d,) = ln.init.two_c_balanced(rng.normal(size=(2, 3)), 0.4, sign=sign).imbalance()
        np.testing.assert_allclose(d, sign * 0.8 * np.eye(len(d)), atol=1e-13)
    (d,) = ln.init.i_gamma(problem, 0.7).imbalance()
    np.testing.assert_allclose(d, 1.4 * np.eye(3), atol=1e-13)
    # `NoisyFlow` keeps it in its geometric scheme
    noise = ln.optim.NoisyFlow(0.01, 0.0, scheme="geometric")
    end = ln.simulate(goal, one, noise, steps=20, key=jax.random.key(0)).final
    np.testing.assert_allclose(end.imbalance()[0], one.imbalance()[0], atol=1e-12)


# Times ---------------------------------------------------------------------------------------------------------------

ROWS = 3  # modes, neurons, rows and columns: as many as there are times in two of the shapes below
A0, GOAL = (np.random.default_rng(seed).normal(size=(ROWS, ROWS)) for seed in (4, 5))
MODES = np.array([0.5, 1.0, 2.5])
LAYERS = ln.init.two_c_balanced(A0, 0.3)
START = convergence.coordinates(0.4, A0[0], A0[1], GOAL)[0]
SIZES = feature.Amplitudes(jnp.asarray(0.3), jnp.asarray(0.2))
RATES = convergence.Envelope(jnp.asarray(2.0), jnp.asarray(0.5), jnp.asarray(1.0), True)
TIMED = {
    "mixed.lazy": lambda t: mixed.lazy(t, A0, GOAL, 0.3, 2.0),
    "mixed.mode": lambda t: mixed.mode(t, 0.1 * MODES, MODES, 0.3, 2.0),
    "mixed.matrix": lambda t: mixed.matrix(t, A0, GOAL, 0.3, 2.0),
    "mixed.recovery_error": lambda t: mixed.recovery_error(40 * t, [1.0, 0.5, 0.2], 9.0, 0.3, nodes=3, spiked=True),
    "mixed.descent_bound": lambda t: mixed.descent_bound(t, 0.1, MODES, 0.5),
    "spectral.loss_bound": lambda t: spectral.loss_bound(t, MODES, 0.3, 0.2),
    "spectral.whitened": lambda t: spectral.whitened(t, MODES, 0.3, MODES),
    "spectral.jump": lambda t: spectral.jump(t, MODES),
    "spectral.rate": lambda t: spectral.rate(t + 1, MODES, 0.3),
    "spectral.noise_moments": lambda t: spectral.noise_moments(t, MODES, 0.3, MODES),
    "spectral.commutator_mean": lambda t: spectral.commutator_mean(t, A0, MODES, MODES),
    "spectral.commutator_moments": lambda t: spectral.commutator_moments(t, MODES, MODES),
    "balance.flow": lambda t: balance.flow(t, LAYERS, GOAL),
    "balance.neuron": lambda t: balance.neuron(t, ln.Weights((A0[:1], A0[:, :1])), GOAL, lr_multipliers=(2.0, 0.5)),
    "balance.mode": lambda t: balance.mode(t, 0.1 * MODES, MODES, 0.3, 2.0),
    "balance.lazy": lambda t: balance.lazy(t, LAYERS, GOAL),
    "convergence.modes": lambda t: convergence.modes(t, START, 3),
    "convergence.rank_one": lambda t: convergence.rank_one(t, 0.4, A0[0], A0[1], GOAL, 3),
    "convergence.aligned": lambda t: convergence.aligned(t, 0.1 * MODES, MODES, 3),
    "convergence.two_layers": lambda t: convergence.two_layers(t, A0, GOAL),
    "convergence.scaled_time": lambda t: convergence.scaled_time(t, MODES, 3),
    "convergence.envelope_bound": lambda t: convergence.envelope_bound(t, MODES, RATES, 0.3),
    "convergence.alignment_bound": lambda t: convergence.alignment_bound(t, 0.2 * MODES, 2.0, 0.5),
    "feature.growth": lambda t: feature.growth(t, 0.1 * MODES),
    "feature.flow_growth": feature.flow_growth,
    "feature.stage_one": lambda t: feature.stage_one(feature.flow_growth(t), MODES, 0.1 * MODES[::-1], 2.0),
    "feature.slope": lambda t: feature.slope(feature.flow_growth(t), MODES, 0.2),
    "feature.cubic_flow": lambda t: feature.cubic_flow(t, 0.1 * MODES),
    "feature.aligned_flow": lambda t: feature.aligned_flow(t, SIZES, MODES),
    "feature.Aligned.neurons": lambda t: feature.aligned_flow(t, SIZES, 1.5).neurons(MODES, MODES[::-1], 2.0),
}
STEPPED = {
    "feature.cubic_map": lambda steps: feature.cubic_map(0.1 * MODES, 0.2, steps),
    "feature.aligned_descent": lambda steps: feature.aligned_descent(SIZES, 0.1 * MODES, 1.5, steps),
    "feature.mean_field": lambda steps: feature.mean_field(MODES, MODES[::-1], TASK, 0.1, steps),
    "feature.pair_map": lambda steps: feature.pair_map(MODES, MODES[::-1], TASK, 0.1, steps),
}
TASK = feature.task(ln.problems.mean_field_regression(A0, MODES, width=5))


@pytest.mark.parametrize("name", TIMED)
def test_times_come_first(name):
    """Any shape of times, also as many as there are modes or rows: each time as it is alone."""
    function = TIMED[name]
    times = np.array([[0.0, 0.3, 1.1], [0.7, 2.0, 0.05]])
    alone = [[jax.tree.map(np.asarray, function(t)) for t in row] for row in times]
    for given, right in (
        (times, jax.tree.map(lambda *parts: np.stack(parts).reshape(2, 3, *parts[0].shape), *alone[0], *alone[1])),
        (times[0], jax.tree.map(lambda *parts: np.stack(parts), *alone[0])),
    ):
        jax.tree.map(
            lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12), function(given), right
        )


@pytest.mark.parametrize("name", STEPPED)
def test_steps_come_first(name):
    short, long = STEPPED[name](2), STEPPED[name](4)
    for few, many in zip(jax.tree.leaves(short), jax.tree.leaves(long), strict=True):
        assert few.shape == (3, ROWS)
        np.testing.assert_allclose(many[:3], few, rtol=1e-14)


def test_every_function_of_time_is_in_the_table():
    for module in (balance, mixed, spectral, convergence, feature, stability, landscape):
        for name, thing in vars(module).items():
            own = getattr(thing, "__module__", None) == module.__name__ and not name.startswith("_")
            if own and callable(thing) and not inspect.isclass(thing):
                short = f"{module.__name__.rpartition('.')[2]}.{name}"
                parameters = inspect.signature(thing).parameters
                first = next(iter(parameters), None)
                assert (first in ("time", "theta", "steps", "grown")) == (short in TIMED), short
                assert ("steps" in parameters and first != "steps") == (short in STEPPED), short


# Losses --------------------------------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[1] / "docs" / "conventions.md").read_text(encoding="utf-8")
COSTS = re.findall(r"^\| `(\w+\(.*)` \| `(.*)` \|$", PAGE, flags=re.MULTILINE)


@pytest.mark.parametrize(("call", "formula"), COSTS)
def test_costs_are_those_of_the_page(call, formula, key):
    rng = np.random.default_rng(6)
    names = {
        "M": rng.normal(size=(3, 4)),
        "X": rng.normal(size=(5, 4)),
        "Y": rng.normal(size=(5, 1 if "mean_field" in call else 3)),
        "y": rng.normal(size=5),
        "n": 5,
        "observed": rng.integers(0, 2, size=(3, 4)),
        "signs": rng.choice([-1.0, 1.0], size=(3, 4)),
        "classes": np.array([0, 2, 1, 2, 2]),
        "key": key,
    }
    problem = eval(call, {**vars(ln.problems), **names})
    matrix = rng.normal(size=problem.shape)
    known = {name: getattr(np, name) for name in ("sum", "log", "exp", "sqrt")}
    right = eval(formula, {**known, **names, "A": matrix, "b": matrix, "problem": problem})
    assert float(problem.cost(jnp.asarray(matrix))) == pytest.approx(float(right), rel=1e-12)


def test_every_public_problem_is_on_the_page():
    named = {call.split("(")[0] for call, _ in COSTS}
    makers = {name for name, thing in vars(ln.problems).items() if not name.startswith("_") and makes_problems(thing)}
    assert named == makers


def makes_problems(thing):
    kind = inspect.signature(thing).return_annotation if inspect.isfunction(thing) else None
    return inspect.isclass(kind) and issubclass(kind, Problem)


# Shapes and widths ---------------------------------------------------------------------------------------------------


def test_shapes_are_outputs_then_inputs_and_widths_go_with_the_data(key):
    problem = ln.factorization(np.random.default_rng(7).normal(size=(2, 5)))  # two outputs, five inputs
    assert problem.shape == (2, 5)
    assert ln.low_rank_recovery(key, (2, 5), 1).shape == ln.custom(jnp.sum, (2, 5)).shape == (2, 5)
    assert ln.regression(np.ones((7, 5)), np.ones((7, 2))).shape == (2, 5)
    for state, hidden in (
        (ln.init.gaussian(key, problem, (3, 4), 1.0), (3, 4)),
        (ln.init.balanced(problem.target, (3, 4)), (3, 4)),
        (ln.init.critical(problem, (3, 4), (1,)), (3, 4)),
        (ln.init.i_gamma(problem, 0.1), (5,)),
    ):
        widths = (5, *hidden, 2)
        assert state.widths == widths
        assert [w.shape for w in state.layers] == [(above, below) for below, above in pairwise(widths)]
        assert state.matrix.shape == (2, 5)
    # widths of the landscape: as many parameters as the network has, and the Hessian of that network
    values = np.linalg.svd(problem.target, compute_uv=False)
    network = ln.init.critical(problem, (3, 4), (1, 2))
    spectrum = landscape.spectrum(values, network.widths, (1, 2)).all()
    np.testing.assert_allclose(observe.hessian_spectrum(network, problem), spectrum, atol=1e-10)
    assert len(convergence.near_rates(values, problem.shape, 3, rank=2)) == 2 * (5 + 2 - 2)
    first = ln.Modes(np.array([[2.0], [3.0]])).weights(np.eye(2, 1), np.eye(5, 1)).layers[0]
    assert first.shape == (1, 5)
    assert float(first[0, 0]) == 2.0


# Spectra -------------------------------------------------------------------------------------------------------------


def spectra():
    """Every public function that returns a spectrum."""
    rng = np.random.default_rng(8)
    problem = ln.factorization(rng.normal(size=(3, 4)))
    state = ln.Weights((rng.normal(size=(5, 4)), rng.normal(size=(3, 5))))
    deep = ln.Weights([rng.normal(size=(4, 4)) for _ in range(3)])
    modes = ln.Modes(rng.normal(size=(3, 4)))
    vector = ln.factorization(rng.normal(size=4))
    z = np.array([3.0, 2.0, 0.5])
    task = feature.task(ln.problems.mean_field_regression(rng.normal(size=(6, 4)), rng.normal(size=6), width=5))
    regression = ln.regression(rng.normal(size=(6, 4)), rng.normal(size=(6, 3)))
    return {
        "linalg.singular_values": linalg.singular_values(state.matrix),
        "linalg.singular_values, vector": linalg.singular_values(vector.target),
        "observe.singular_values": observe.singular_values(state, problem),
        "observe.layer_singular_values": observe.layer_singular_values(1)(state, problem),
        "observe.kernel_spectrum": observe.kernel_spectrum(state, problem),
        "observe.kernel_spectrum, deep": observe.kernel_spectrum(deep, problem),
        "observe.hessian_spectrum": observe.hessian_spectrum(state, problem),
        "observe.top_hessian": observe.top_hessian(4)(state, problem),
        "observe.aligned_spectrum": observe.aligned_spectrum(modes, vector),
        "Factorization.fit": problem.fit().values,
        "Regression.fit": regression.fit().values,
        "Factorization.aligned": problem.aligned().target,
        "spectral.layer_values, first": spectral.layer_values(z, 0.1, 5).first,
        "spectral.layer_values, second": spectral.layer_values(z, 0.1, 5).second,
        "spectral.lyapunov": spectral.lyapunov(4),
        "balance.eigenvectors": balance.eigenvectors(problem.target, 0.3).values,
        "convergence.coordinates": convergence.coordinates(1.0, np.ones(3), np.ones(4), problem.target)[0].z,
        "convergence.near_rates": convergence.near_rates(z, (3, 4), 3, rank=2),
        "landscape.spectrum": landscape.spectrum(z, (4, 3, 3), (1, 3)).values,
        "landscape.Spectrum.all": landscape.spectrum(z, (4, 3, 3), (1, 3)).all(),
        "landscape.critical_points": landscape.critical_points(regression, (3,)).values,
        "feature.end_state": feature.end_state(task).values,
        "feature.boost_spectrum": feature.boost_spectrum(*state.layers),
        "stability.minimum_spectrum": np.array([x.value for x in stability.minimum_spectrum(z, 3, 5, 0.1)]),
        "stability.cross_multipliers": np.abs(stability.cross_multipliers(0.8, 3, 2.2)),
        "stability.cross_multipliers_two_layers": np.abs(stability.cross_multipliers_two_layers(1.1, 0.9)),
        "dynamics.floquet": np.abs(ln.maps.floquet(rng.normal(size=(2, 4, 4)))),
    }


def test_spectra_descend():
    for name, values in spectra().items():
        assert values.ndim == 1, name
        assert len(values) > 2, name
        assert np.all(np.diff(values) <= 1e-12), name


# Types and shapes ----------------------------------------------------------------------------------------------------


def core():
    """Problems, starts, states, observables and a flow, once each."""
    rng, key = np.random.default_rng(9), jax.random.key(0)
    matrix = rng.normal(size=(3, 4))
    problem, data = ln.factorization(matrix), ln.regression(rng.normal(size=(6, 4)), rng.normal(size=(6, 3)))
    state = ln.Weights((rng.normal(size=(5, 4)), rng.normal(size=(3, 5))))
    masked = ln.problems.masked(matrix, rng.integers(0, 2, size=(3, 4)))
    classes = ln.classification(rng.normal(size=(6, 4)), [0, 1, 2, 2, 1, 0])
    for cost in (
        problem,
        data,
        classes,
        masked,
        ln.problems.logistic(np.sign(matrix)),
        ln.problems.pseudo_huber(matrix),
    ):
        cost.cost(state.matrix)
        state.descend(cost, 0.1)
    for start in (
        ln.init.gaussian(key, problem, 100, 0.1),
        ln.init.gaussian(key, problem, (5, 5), 0.1),
        ln.init.balanced(matrix, (4, 4)),
        ln.init.two_c_balanced(matrix, 0.3),
        ln.init.mixed_manifold(matrix, 0.3),
        ln.init.lambda_balanced(key, problem, 0.3, 2),
        ln.init.i_gamma(problem, 0.3),
        ln.init.critical(problem, (3,), (1,)),
        ln.EndToEnd(matrix, ln.states.Mixed(0.3)),
        ln.EndToEnd(matrix, ln.states.Balanced(3)),
        ln.RankOne.balanced(0.1, np.ones(3), np.ones(4), 3),
    ):
        start.velocity(problem)
    for name in (
        "modes",
        "layer_modes",
        "effective_rank",
        "imbalance",
        "hidden_alignment",
        "hessian_spectrum",
        "sharpness",
        "gauss_newton_sharpness",
        "residual_extremes",
    ):
        observe.named(name)(state, problem)
    for cost in (data, classes):
        observe.gradient_noise(state, cost), observe.gradient_noise_top(state, cost)
    observe.accuracy(state, classes)
    wide = ln.Weights((rng.normal(size=(30, 4)), rng.normal(size=(3, 30))))
    for look in (observe.hessian_density([0.0, 1.0], 0.1), observe.preconditioned_sharpness(2.0)):
        look(wide, data)
    data.fresh(key, 3)
    observe.sample_kernel(state, data)
    data.fit(), data.project(), data.whiten(), data.target
    ln.simulate(problem, state, ln.optim.GradientFlow(), time=0.1, record=ln.record.linear(2))
    optimizers = (
        ln.optim.SGD(0.01),
        ln.optim.SGD(
            lambda k: 0.01 / (1.0 + k.astype(np.float64)),
            momentum=0.9,
            nesterov=True,
            weight_decay=0.1,
            lr_multipliers=(1, 0.5),
        ),
        ln.optim.Adam(0.01),
        ln.optim.AdamW(0.01),
        ln.optim.RMSprop(0.01),
        ln.optim.RMSprop(0.01, momentum=0.5, scalar=True),
        ln.optim.SignSGD(0.01),
        ln.optim.Muon(0.01, weight_decay=0.0, ns_steps=None, adjust_lr_fn="none"),
        ln.optim.Muon(0.01, ns_steps=3, adjust_lr_fn="original", weight_decay=0.0),
        ln.optim.LabelNoiseSGD(0.01, 0.1),
        ln.optim.NoisyFlow(0.01, power=0.5, weight_decay=0.1),
    )
    for optimizer in optimizers:
        ln.simulate(
            data, ln.init.gaussian(jax.random.key(0), data, (5,), 0.1), optimizer, steps=40, key=jax.random.key(1)
        )


@pytest.mark.parametrize("name", ["core", "spectra", *TIMED, *STEPPED])
def test_no_number_changes_its_type_on_the_way(name):
    """Strict promotion: nothing here adds whole numbers or truth values to real ones and leaves the type to JAX."""
    with jax.numpy_dtype_promotion("strict"):
        if name in TIMED:
            TIMED[name](np.array([0.0, 0.3]))
        else:
            {"core": core, "spectra": spectra, **{key: partial(f, 2) for key, f in STEPPED.items()}}[name]()


def test_annotations_are_executed():
    """Without the hook of conftest.py these would pass, or fail later and elsewhere."""
    state = ln.Weights((np.ones((5, 4)), np.ones((3, 5))))
    with pytest.raises(TypeCheckError, match="product"):
        linalg.product(jnp.ones((2, 3)), jnp.ones((4, 5)))
    with pytest.raises(TypeCheckError, match="force"):
        state.vjp(jnp.ones(3))


def test_annotations_are_executed_whenever_shapes_change():
    """Calls of the same looks are checked a few times; arguments or results of other looks are, however late."""

    @jaxtyped(typechecker=shapes.checked)  # as the hook of conftest.py puts it
    def first(values: Float[np.ndarray, " n"], many: int) -> Float[np.ndarray, " n"]:
        return values[:many]

    assert first.spared
    for _ in range(100):
        assert first(np.ones(3), 3).shape == (3,)
    with pytest.raises(TypeCheckError, match="return value"):
        first(np.ones(3), 2)
    for wrong in (np.ones((3, 3)), np.ones(3, int), [1.0]):
        with pytest.raises(TypeCheckError, match="parameters"):
            first(wrong, 3)
        with pytest.raises(TypeCheckError, match="parameters"):
            first(many=3, values=wrong)


# Optimizers ----------------------------------------------------------------------------------------------------------


def test_momentum_is_dampened_only_if_asked_and_times_are_those_of_the_flow():
    """At small steps all of them are the flow at the times that they say."""
    problem, state = ln.factorization(np.diag([2.0, 1.0])), ln.Weights([0.5 * np.eye(2), 0.4 * np.eye(2)])
    for optimizer in (
        ln.optim.SGD(1e-3),
        ln.optim.SGD(1e-4, 0.9),
        ln.optim.SGD(1e-4, 0.9, nesterov=True),
        ln.optim.SGD(1e-3, 0.9, 0.9),
    ):
        run = ln.simulate(problem, state, optimizer, steps=1000)
        flow = ln.simulate(problem, state, ln.optim.GradientFlow(), time=float(run.times[-1]))
        np.testing.assert_allclose(run.times[-1], 1.0)
        np.testing.assert_allclose(run.final.matrix, flow.final.matrix, atol=0.02)
        assert np.abs(state.matrix - flow.final.matrix).max() > 0.5


def test_both_kinds_of_decay_are_one_without_momentum_and_two_with_it():
    problem, state = ln.factorization(np.diag([2.0, 1.0])), ln.Weights([0.5 * np.eye(2), 0.4 * np.eye(2)])

    def end(beta, decoupled):
        optimizer = ln.optim.SGD(0.01, beta, weight_decay=0.3, decoupled=decoupled)
        return ln.simulate(problem, state, optimizer, steps=5000).final.matrix

    np.testing.assert_allclose(end(0.0, True), end(0.0, False), rtol=1e-12)
    np.testing.assert_allclose(np.diagonal(end(0.9, False)), [1.7, 0.7], rtol=1e-9)  # s - mu
    np.testing.assert_allclose(np.diagonal(end(0.9, True)), [1.97, 0.97], rtol=1e-9)  # s - (1 - beta) mu
