"""States of any network: linear ones against `Weights`, others against the same training written out."""

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

import linnet as ln
from linnet import observe
from linnet._compiler import hurried

KEY = jax.random.key(0)


def linear(layers, x):
    for layer in layers:
        x = x @ layer.T
    return x


def both(rng, widths=(4, 6, 3), n=9, scale=1.0, chunk_size=None):
    """A linear network as a function of its samples and as weights, each with the same cost."""
    layers = tuple(scale * rng.normal(size=(b, a)) / np.sqrt(a) for a, b in pairwise(widths))
    x, y = rng.normal(size=(n, widths[0])), rng.normal(size=(n, widths[-1]))
    network = ln.Network(linear, layers, x, chunk_size=chunk_size)
    return (network, ln.supervised(y, "half squares", average="sum")), (ln.Weights(layers), ln.regression(x, y))


MOTIONS = {
    "descent": ln.optim.SGD(0.003),
    "momentum": ln.optim.SGD(0.003, 0.8, weight_decay=0.1),
    "nesterov": ln.optim.SGD(0.003, 0.8, nesterov=True, lr_multipliers=(1.0, 0.5)),
    "batches": ln.optim.SGD(0.001, batch_size=4),
    "shuffled adam": ln.optim.Adam(0.003, batches=ln.optim.MiniBatch(3, draw="replacement")),
}


@pytest.mark.parametrize("chunk_size", [None, 4])
@pytest.mark.parametrize("name", MOTIONS)
def test_a_linear_network_moves_as_its_weights(name, chunk_size):
    runs = [
        ln.simulate(problem, state, MOTIONS[name], steps=60, key=KEY)
        for state, problem in both(np.random.default_rng(1), chunk_size=chunk_size)
    ]
    np.testing.assert_allclose(runs[0]["loss"], runs[1]["loss"], rtol=1e-11)
    for one, other in zip(runs[0].final.layers, runs[1].final.layers, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_a_linear_network_flows_as_its_weights():
    for optimizer in (
        ln.optim.GradientFlow(),
        ln.optim.InertialFlow(2.0),
        ln.optim.GradientFlow(weight_decay=0.2, lr_multipliers=(1.0, 2.0)),
    ):
        runs = [ln.simulate(problem, state, optimizer, time=0.5) for state, problem in both(np.random.default_rng(2))]
        np.testing.assert_allclose(runs[0]["loss"], runs[1]["loss"], rtol=1e-9)


@pytest.mark.parametrize(
    ("optimizer", "names"),
    [
        (ln.optim.RodFlow(0.16), ["predicted_loss", "oscillation"]),
        (ln.optim.CentralFlow(0.16), ["predicted_loss", "oscillation", "critical_directions"]),
    ],
)
def test_averages_over_an_oscillation_are_those_of_the_weights(optimizer, names):
    """From an initialization that sharpens to 2/lr, so that there is an oscillation to average over."""
    runs = [
        ln.simulate(problem, state, optimizer, steps=80, observe=names)
        for state, problem in both(np.random.default_rng(1), scale=0.5)
    ]
    assert np.max(runs[1]["oscillation"]) > 0
    for name in names:
        np.testing.assert_allclose(runs[0][name], runs[1][name], rtol=1e-6, atol=1e-9, err_msg=name)


def by_layers(function):
    """A function of a state and a problem that returns a state, as what moves of it in one vector."""
    return lambda state, problem: jax.flatten_util.ravel_pytree(function(state, problem).trained())[0]


def along(product):
    """A Hessian product in the direction of the state itself."""
    return by_layers(lambda state, problem: product(state, problem, state))


def two(function):
    """A function of consecutive states, a step of descent apart."""

    def look(state, problem):
        after = state.descend(problem, 1e-3)
        given = (state, after, after.descend(problem, 1e-3)) if function is observe.excess else (state, after)
        return jnp.concatenate([jnp.ravel(part) for part in jax.tree.leaves(function(*given, problem))])

    return look


def ends(state, problem):
    """What `curvature` has converged to."""
    seen = observe.curvature(1e-14)(state, problem)
    return [seen[name] for name in ("top", "bottom", "gauss_newton", "gradient")]


# what sees weights and cost alone: on any samples
ANYWHERE = {
    "balance_drift": observe.balance_drift,
    "curvature": ends,
    "excess": two(observe.excess),
    "gauss_newton_product": along(observe.gauss_newton_product),
    "gauss_newton_sharpness": observe.gauss_newton_sharpness,
    "grams": lambda state, problem: jnp.concatenate([jnp.ravel(gram) for gram in observe.grams(state)]),
    "hessian_density": observe.hessian_density(np.linspace(-3, 9, 7), 0.5, matvecs=100),
    "hessian_matrix": observe.hessian_matrix,
    "hessian_product": along(observe.hessian_product),
    "hessian_spectrum": observe.hessian_spectrum,
    "imbalance": observe.imbalance,
    "input_gram": observe.input_gram,
    "layer_alignment": observe.layer_alignment(1),
    "layer_singular_values": observe.layer_singular_values(2),
    "loss": observe.loss,
    "only": observe.only(observe.sharpness, ln.record.every(1)),
    "output_gram": observe.output_gram,
    "path": observe.path,
    "preconditioned_sharpness": observe.preconditioned_sharpness(2.0),
    "residual_extremes": observe.residual_extremes,
    "residual_product": along(observe.residual_product),
    "sharpness": observe.sharpness,
    "step_split": two(observe.step_split),
    "subspace_distance": observe.subspace_distance(1),
    "top_hessian": observe.top_hessian(2),
    "value_shares": observe.value_shares,
}
# what needs samples, beside a regression
SAMPLES = {
    "batch_sharpness": observe.batch_sharpness(2, None),
    "gradient_noise": observe.gradient_noise,
    "gradient_noise_interaction": observe.gradient_noise_interaction(2, None),
    "gradient_noise_top": observe.gradient_noise_top,
    "mean_square_ratio": observe.mean_square_ratio(2),
    "sample_kernel": observe.sample_kernel,
}
# and two layers with one output
ONE = {"label_kernel": observe.label_kernel, "slope": observe.slope, "target_distance": observe.target_distance}
# what is about the matrix: on the unit vectors as samples, whose outputs are its columns
MATRIX = {
    "effective_rank": observe.effective_rank,
    "kernel_drift": observe.kernel_drift,
    "kernel_matrix": lambda state, problem: observe.kernel_matrix(state),
    "kernel_spectrum": observe.kernel_spectrum,
    "matrix": observe.matrix,
    "misalignment": observe.misalignment(2),
    "modes": observe.modes,
    "rotated": observe.rotated,
    "singular_values": observe.singular_values,
    "stable_rank": observe.stable_rank,
}
# what has a test of its own below
OWN = {"accuracy", "adaptive_sharpness", "closure_error", "losses", "on_second", "on", "test_accuracy", "test_error"}
REFUSED = {
    "aligned_blocks": (observe.aligned_blocks, "need Modes"),
    "aligned_sharpness": (observe.aligned_sharpness, "need Modes"),
    "aligned_spectrum": (observe.aligned_spectrum, "need Modes"),
    "classify": (observe.classify, "points of the landscape are Weights"),
    "hidden_alignment": (observe.hidden_alignment, "about the matrix of a linear network, a Network has none"),
    "layer_gaps": (observe.layer_gaps, "need Modes on a diagonal problem, or Weights on a matrix problem"),
    "layer_modes": (observe.layer_modes, "need Modes on a diagonal problem, or Weights on a matrix problem"),
    "refined_distance": (observe.refined_distance(1.0), "the output scale of a regression, a Network has none"),
}
# of an optimizer that averages over oscillations
AVERAGES = {"predicted_loss", "oscillation", "critical_directions"}
NO_STATES = {"kernel_cosine", "kernel_distance", "refined_kernel", "target_kernel"}  # functions of kernels
WORDS = {"Window", "window", "Kind", "Observable", "ObservationContext", "Point", "Split", "named", "observable"}


def test_every_public_observable_is_in_a_table():
    tables = [*ANYWHERE, *SAMPLES, *ONE, *MATRIX, *OWN, *REFUSED, *AVERAGES, *NO_STATES, *WORDS]
    assert len(tables) == len(set(tables))
    assert set(tables) == set(observe.__all__)


def watching(looks):
    """All of these looks in one function, of a state, where it started and a problem."""

    def seen(state, start, problem):
        prepared = {name: [look.prepare(problem, start)] for name, look in looks.items() if getattr(look, "prepare", 0)}
        return {name: look(state, problem, *prepared.get(name, [])) for name, look in looks.items()}

    return seen


def quickly(function):
    return eqx.filter_jit(function, compiler_options=hurried(optimized=False))


def agree(seen, one, other):
    """Two networks look the same at the start and after a step; near 0 in units of the largest."""
    for lr in (0.0, 1e-2):
        found, wanted = (seen(state.descend(problem, lr), state, problem) for state, problem in (one, other))
        for name in wanted:
            values, right = (jax.tree.leaves(of[name]) for of in (found, wanted))
            size = max(np.max(np.abs(value)) for value in right)
            for a, b in zip(values, right, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11 * size, err_msg=name)


SHAPES = [((4, 6, 3), 9, None, 1.0), ((3, 2, 5), 2, 4, 0.1), ((2, 4, 4, 2), 9, 4, 1.0), ((3, 4, 1), 5, None, 0.5)]


@pytest.mark.quick(1)
@pytest.mark.parametrize(("widths", "n", "chunk_size", "scale"), SHAPES)
def test_a_linear_network_looks_like_its_weights(widths, n, chunk_size, scale):
    looks = ANYWHERE | SAMPLES | (ONE if len(widths) == 3 and widths[-1] == 1 else {})
    seen = quickly(watching(looks))
    for seed in range(3):
        agree(seen, *both(np.random.default_rng(seed), widths, n, scale, chunk_size))


@pytest.mark.parametrize(("widths", "n", "chunk_size", "scale"), SHAPES[:3])
def test_a_linear_network_on_unit_vectors_is_its_matrix(widths, n, chunk_size, scale):
    seen = quickly(watching(MATRIX))
    for seed in range(3):
        rng = np.random.default_rng(seed)
        (network, _), (weights, _) = both(rng, widths, scale=scale, chunk_size=chunk_size)
        target = rng.normal(size=(widths[-1], widths[0]))
        problem = ln.supervised(target.T, "half squares", average="sum")
        agree(seen, (network.on(np.eye(widths[0])), problem), (weights, ln.factorization(target)))


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_of_a_network_is_refused(name):
    look, sentence = REFUSED[name]
    (network, outputs), _ = both(np.random.default_rng(0), (4, 3, 1))
    with pytest.raises(ln.InputError, match=sentence):
        look(network, outputs)


def test_optimizers_see_a_linear_network_as_its_weights():
    looks = {"adaptive": observe.adaptive_sharpness, "curvature": observe.curvature(1e-11), "path": observe.path}
    runs = [
        ln.simulate(problem, state, ln.optim.Adam(1e-2), steps=3, observe=looks)
        for state, problem in both(np.random.default_rng(1))
    ]
    for name in ("adaptive", "curvature_top", "curvature_edge", "path_flip", "path_sharpness"):
        np.testing.assert_allclose(runs[0][name], runs[1][name], rtol=1e-10, err_msg=name)
    ratio = np.asarray(runs[0]["adaptive"]) * 1e-2 * (1 - 0.9) / (2 + 2 * 0.9)
    assert np.isnan(runs[0]["curvature_edge"][0])  # no preconditioner before the first step
    np.testing.assert_allclose(runs[0]["curvature_edge"][1:], ratio[1:], rtol=1e-9)


@pytest.mark.parametrize(
    ("optimizer", "edge"),
    [
        (ln.optim.SGD(lambda k: 0.01 / (1 + k)), 0.01 / (1 + np.arange(4)) / 2),
        (ln.optim.SGD(0.01, weight_decay=3.0), 1 / (200 - 3)),
        (ln.optim.SGD(0.01, 0.5), 0.01 / 3),
        (ln.optim.SGD(0.01, 0.5, nesterov=True, weight_decay=2.0, decoupled=True), 1 / (1.5 * (200 - 2) / 2)),
        (ln.optim.SGD(0.01, lr_multipliers=(1.0, 0.5)), np.nan),
        (ln.optim.SignSGD(0.01), np.nan),
        (ln.optim.Adam(0.01, weight_decay=0.1), np.nan),
    ],
)
def test_the_edge_is_that_of_the_optimizer(optimizer, edge):
    (network, outputs), _ = both(np.random.default_rng(1))
    run = ln.simulate(outputs, network, optimizer, steps=3, observe={"c": observe.curvature(1e-6)})
    np.testing.assert_allclose(run["c_edge"], run["c_top"] * edge, rtol=1e-12)


def test_shadows_and_tasks_of_a_linear_network():
    rng = np.random.default_rng(2)
    (network, _), (weights, _) = both(rng)
    targets = rng.normal(size=(2, 3, 4))
    pairs = [
        ln.states.Pair(state, ln.EndToEnd(weights.matrix, ln.states.Mixed(1.0)))
        for state in (network.on(np.eye(4)), weights)
    ]
    outputs, matrices = (
        [ln.supervised(t.T, "half squares", average="sum") for t in targets],
        map(ln.factorization, targets),
    )
    runs = []
    for pair, problems in zip(pairs, (outputs, list(matrices)), strict=True):
        looks = {
            "error": observe.closure_error,
            "shadow": observe.on_second(observe.loss),
            "losses": observe.losses(problems),
        }
        runs.append(ln.simulate(problems[0], pair, ln.optim.SGD(1e-2), steps=3, observe=looks))
    for name in runs[0].values:
        np.testing.assert_allclose(runs[0][name], runs[1][name], rtol=1e-10, atol=1e-16)


def test_held_out_samples_of_a_linear_network():
    rng = np.random.default_rng(3)
    x, y, others, wanted = (rng.normal(size=shape) for shape in ((9, 4), (9, 3), (7, 4), (7, 3)))
    (network, _), (weights, _) = both(rng)
    cost = {"cost": "half squares", "average": "sum"}
    held = observe.on("loss", others, ln.supervised(wanted, "half squares", average="samples"))
    outputs = ln.supervised(y, **cost), {"test_error": held}
    data = ln.regression(x, y, test=(others, wanted)), {"test_error": observe.test_error}
    kinds, own = rng.integers(3, size=9), rng.integers(3, size=7)
    held = observe.on("accuracy", others, ln.supervised(own, "softmax", classes=3, average="sum"))
    names = ln.supervised(kinds, "softmax", classes=3, average="sum"), {"accuracy": observe.accuracy, "test": held}
    classes = ln.classification(x, kinds, classes=3, test=(others, own))
    classified = classes, {"accuracy": observe.accuracy, "test": observe.test_accuracy}
    for one, other in ((outputs, data), (names, classified)):
        given = (network.on(x), one), (weights, other)
        runs = [
            ln.simulate(problem, state, ln.optim.SGD(0.02), steps=30, observe={"loss": observe.loss} | looks)
            for state, (problem, looks) in given
        ]
        for name in runs[1].values:
            np.testing.assert_allclose(runs[0][name], runs[1][name], rtol=1e-10, err_msg=name)


@pytest.mark.slow
def test_both_ends_of_the_hessian_with_their_error():
    (network, outputs), (weights, data) = both(np.random.default_rng(3), (5, 8, 4), 12)
    exact = np.asarray(ln.observe.hessian_spectrum(weights, data))
    seen = {name: float(value) for name, value in ln.observe.curvature(1e-4)(network, outputs).items()}
    assert exact[0] - seen["error"] <= seen["top"] <= exact[0] * (1 + 1e-12)
    assert seen["error"] <= 1e-4 * seen["top"]
    assert seen["bottom"] >= exact[-1] * (1 + 1e-12)
    sharp = ln.observe.curvature(1e-9)(network, outputs)
    values, vectors = np.linalg.eigh(ln.observe.hessian_matrix(weights, data))
    gradient = -np.asarray(jax.flatten_util.ravel_pytree(weights.velocity(data))[0])
    np.testing.assert_allclose(sharp["top"], values[-1], rtol=1e-12)
    share = (gradient @ vectors[:, -1]) ** 2 / (gradient @ gradient)
    np.testing.assert_allclose(sharp["gradient"], share, rtol=1e-5)
    back = jax.flatten_util.ravel_pytree(weights)[1]
    newton = ln.observe.gauss_newton_product(weights, data, back(jnp.asarray(vectors[:, -1])))
    along = vectors[:, -1] @ np.asarray(jax.flatten_util.ravel_pytree(newton)[0])
    np.testing.assert_allclose(sharp["gauss_newton"], along / values[-1], rtol=1e-5)


def test_curvature_begins_where_the_last_look_ended():
    (network, outputs), _ = both(np.random.default_rng(4), (8, 20, 6), 30)
    looks = ["loss", ln.observe.only(ln.observe.curvature(1e-5), ln.record.pairs(20))]
    run = ln.simulate(outputs, network, ln.optim.SGD(1e-3), steps=100, observe=looks)
    seen = np.isfinite(run["curvature_top"])
    assert list(np.flatnonzero(seen)) == [0, 1, 20, 21, 40, 41, 60, 61, 80, 81, 100]
    products = np.asarray(run["curvature_products"])[seen]
    assert max(products[1::2]) < products[0]  # the second of a pair has a start next to its end
    dense = ln.simulate(
        outputs, network, ln.optim.SGD(1e-3), steps=100, record=ln.record.pairs(20), observe=["hessian_spectrum"]
    )
    np.testing.assert_allclose(run["curvature_top"][seen], dense["hessian_spectrum"][:, 0], rtol=1e-9)


def test_what_observables_remember_survives_a_cut():
    (network, outputs), _ = both(np.random.default_rng(5))
    given = {"observe": [ln.observe.path, ln.observe.curvature(1e-3)], "record": ln.record.every(1)}
    optimizer = ln.optim.SGD(1e-3)
    whole = ln.simulate(outputs, network, optimizer, steps=12, **given)
    cut = ln.simulate(outputs, network, optimizer, steps=5, **given)
    cut = ln.simulate(outputs, network, optimizer, steps=7, resume_from=cut, **given)
    for name in whole.values:
        np.testing.assert_array_equal(cut[name], whole[name], err_msg=name)


def test_two_steps_tell_flip_and_curvature():
    (network, outputs), _ = both(np.random.default_rng(6))
    lr, gradients, state = 2e-3, [], network
    for _ in range(4):
        gradients.append(-np.asarray(jax.flatten_util.ravel_pytree(state.velocity(outputs).trained())[0]))
        state = state.descend(outputs, lr)
    run = ln.simulate(outputs, network, ln.optim.SGD(lr), steps=3, observe=["path"])
    assert np.isnan(run["path_flip"][0])
    for k in range(1, 4):
        a, b = gradients[k - 1], gradients[k]
        cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        np.testing.assert_allclose(run["path_flip"][k], cosine, rtol=1e-10)
        np.testing.assert_allclose(run["path_sharpness"][k], (a - b) @ a / (lr * a @ a), rtol=1e-9)
    sparse = ln.simulate(outputs, network, ln.optim.SGD(lr), steps=9, observe=["path"], record=ln.record.every(3))
    assert np.all(np.isnan(sparse["path_flip"]))  # no two records are a step apart


def test_what_is_frozen_stays():
    x = np.random.default_rng(7).normal(size=(6, 3))
    module = eqx.nn.MLP(3, 2, 5, 1, key=KEY)
    only_last = eqx.tree_at(lambda m: m.layers[-1], jax.tree.map(lambda _: False, module), replace=True)
    network = ln.Network.of(module, x, trained=only_last)
    run = ln.simulate(ln.supervised(np.ones((6, 2))), network, ln.optim.SGD(0.1), steps=20)
    after = run.final.module
    np.testing.assert_array_equal(after.layers[0].weight, module.layers[0].weight)
    assert np.all(np.asarray(after.layers[1].weight) != np.asarray(module.layers[1].weight))
    assert np.asarray(jax.flatten_util.ravel_pytree(network.trained())[0]).size == 2 * 5 + 2
    assert float(run["loss"][-1]) < float(run["loss"][0])


def test_other_samples_are_looked_at():
    (network, outputs), _ = both(np.random.default_rng(8))
    x, y = np.random.default_rng(9).normal(size=(5, 4)), np.random.default_rng(10).normal(size=(5, 3))
    look = ln.observe.on("loss", x, ln.supervised(y))
    run = ln.simulate(outputs, network, ln.optim.SGD(1e-3), steps=10, observe={"test": look})
    final = linear(run.final.layers, x)
    np.testing.assert_allclose(run["test"][-1], np.mean((np.asarray(final) - y) ** 2), rtol=1e-12)


def sizes(jaxpr):
    """The sizes of all arrays that a program makes, inner programs included."""
    for equation in jaxpr.eqns:
        yield from (int(np.prod(out.aval.shape)) for out in equation.outvars)
        for inner in jaxprs_in_params(equation.params):
            yield from sizes(inner)


PRODUCTS = [observe.hessian_product, observe.gauss_newton_product, observe.residual_product]


@pytest.mark.parametrize("product", PRODUCTS)
def test_pieces_of_samples_need_the_memory_of_a_piece(product):
    rng, n, width = np.random.default_rng(12), 66, 50
    x, y = rng.normal(size=(n, 3)), ln.supervised(rng.normal(size=(n, 2)))
    whole, pieces = (ln.networks.mlp(KEY, x, (width, 2), activation="tanh", chunk_size=t) for t in (None, 8))
    made = [
        max(sizes(jax.make_jaxpr(lambda s: jax.tree.leaves(product(s, y, s)))(state).jaxpr))
        for state in (whole, pieces)
    ]
    assert made[0] >= n * width
    assert made[1] <= 8 * width
    found = (jax.tree.leaves(product(state, y, state).trained()) for state in (whole, pieces))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-13)


def test_single_precision_stays():
    rng = np.random.default_rng(13)
    target = rng.normal(size=(3, 4))
    (network, outputs), (weights, data) = both(rng)
    one, other = both(rng, (3, 4, 1), 5)
    unit = (network.on(np.eye(4)), ln.supervised(target.T)), (weights, ln.factorization(target))
    cases = [((network, outputs), (weights, data), ANYWHERE | SAMPLES), (one, other, ONE), (*unit, MATRIX)]
    for *pairs, looks in cases:
        for state, problem in ln.states.cast(pairs, jnp.float32):
            for name, value in eqx.filter_eval_shape(watching(looks), state, state, problem).items():
                assert {leaf.dtype for leaf in jax.tree.leaves(value)} == {jnp.dtype("float32")}, name
    run = ln.simulate(
        outputs, ln.states.cast(network, jnp.float32), ln.optim.Adam(1e-2), steps=2, observe=["loss", CURVATURE]
    )
    assert {value.dtype for value in run.values.values()} == {jnp.dtype("float32")}
    assert {leaf.dtype for leaf in jax.tree.leaves(run.final)} == {jnp.dtype("float32")}


CURVATURE = observe.curvature(1e-3)


@pytest.mark.quick(1)
@pytest.mark.parametrize("optimizer", [ln.optim.SGD(0.1), ln.optim.Adam(0.01, batch_size=3)])
def test_runs_of_networks_can_be_kept_and_go_on(optimizer, tmp_path):
    x = np.random.default_rng(14).normal(size=(6, 3))
    network, problem = ln.networks.mlp(KEY, x, (4, 2), bias=True, activation="tanh"), ln.supervised(np.ones((6, 2)))
    given = {"observe": ["loss", "path", CURVATURE], "checkpoint": "states", "key": KEY}
    run = ln.simulate(problem, network, optimizer, steps=5, **given)
    run.save(tmp_path / "run")
    back = ln.load(tmp_path / "run", like=network)
    assert back.final.function == network.function  # so that programs are found again
    on = ln.simulate(problem, network, optimizer, steps=5, resume_from=back, **given)
    whole = ln.simulate(problem, network, optimizer, steps=10, **given)
    for name in whole.values:
        np.testing.assert_array_equal(on[name], whole[name], err_msg=name)
    np.testing.assert_array_equal(back.final.module(x[0]), run.final.module(x[0]))
    with pytest.raises(ln.InputError, match="give load"):
        ln.load(tmp_path / "run")


def test_a_file_cannot_tell_functions_apart(tmp_path):
    class Bent(eqx.Module):
        weight: jax.Array
        bend: object = eqx.field(static=True)

        def __call__(self, x):
            return self.bend(self.weight @ x)

    x = np.random.default_rng(15).normal(size=(6, 3))
    layers = [Bent(jnp.ones((2, 3)), jnp.tanh), Bent(jnp.ones((2, 2)), jnp.sin)]
    network = ln.Network.of(eqx.nn.Sequential([eqx.nn.Lambda(layer) for layer in layers]), x)
    ln.simulate(ln.supervised(np.ones((6, 2))), network, ln.optim.SGD(0.1), steps=2).save(tmp_path / "run")
    with pytest.raises(ln.InputError, match="with another bend each: the file cannot tell them apart"):
        ln.load(tmp_path / "run", like=network)


def student(rng, n=10, d_in=5, width=20, d_out=1, scale=0.5):
    x, y = rng.normal(size=(n, d_in)) / np.sqrt(n), rng.normal(size=(n, d_out)) / np.sqrt(n)
    w1, w2 = scale * rng.normal(size=(width, d_in)), scale * rng.normal(size=(d_out, width))
    return x, y, w1, w2


@pytest.mark.parametrize("d_out", [1, 3])
def test_descent_of_a_relu_network(d_out):
    x, y, w1, w2 = student(np.random.default_rng(d_out), d_out=d_out)
    problem, lr, steps = ln.factorization(y.T), 0.05, 500
    looks = {"loss": ln.observe.loss, "s": ln.observe.layer_singular_values(1)}
    run = ln.simulate(problem, ln.states.ReluNetwork(w1, w2, x), ln.optim.SGD(lr), steps=steps, observe=looks)
    for _ in range(steps):
        hidden = np.maximum(x @ w1.T, 0)
        error = hidden @ w2.T - y
        w1, w2 = w1 - lr * ((error @ w2) * (hidden > 0)).T @ x, w2 - lr * error.T @ hidden
    np.testing.assert_allclose(run.final.layers[0], w1, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(run.final.layers[1], w2, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(run.final.inputs, x)
    np.testing.assert_allclose(run["s"][-1], np.linalg.svd(w1, compute_uv=False), rtol=1e-10)
    assert run["loss"][-1] < 0.5 * run["loss"][0]


def test_its_change_is_the_gradient_and_its_tangent_the_kernel():
    x, y, w1, w2 = student(np.random.default_rng(5), d_out=2)
    state, problem = ln.states.ReluNetwork(w1, w2, x), ln.factorization(y.T)
    gradient = jax.grad(lambda s: problem.cost(s.matrix))(state)
    change = state.vjp(-problem.gradient(state.matrix))
    for one, other in zip(gradient.layers, change.layers, strict=True):
        np.testing.assert_allclose(-one, other, rtol=1e-12, atol=1e-15)
    # coarse: a fine solver creeps over every kink
    flow = ln.simulate(problem, state, ln.optim.GradientFlow(rtol=1e-5), time=1.0)
    assert flow.status == "horizon"
    assert np.all(np.diff(np.asarray(flow["loss"])) <= 0)


def test_shapes_are_checked():
    x, _, w1, w2 = student(np.random.default_rng(0))
    with pytest.raises(ln.InputError, match="second has 19 columns: it must have one for each of the 20 neurons"):
        ln.states.ReluNetwork(w1, w2[:, 1:], x)
    with pytest.raises(ln.InputError, match="inputs have 4 columns: they must have d_in = 5"):
        ln.states.ReluNetwork(w1, w2, x[:, 1:])
    with pytest.raises(ln.InputError, match="first has shape"):
        ln.states.ReluNetwork(w1[0], w2, x)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((3, (np.ones((2, 3)),), np.ones((4, 3))), "function = 3 is not allowed: it must be a function"),
        ((linear, (np.ones((2, 3)),), np.ones((4, 2))), "function cannot be called on these parameters and inputs"),
        ((linear, (np.full((2, 3), np.nan),), np.ones((4, 3))), r"parameters\[0\] holds 6 NaN or infinite entries"),
        ((linear, (np.ones((2, 3)),), np.full((4, 3), np.inf)), "inputs holds 12 NaN or infinite"),
        ((linear, (np.ones((2, 3), dtype=int),), np.ones((4, 3))), "parameters have nothing that moves"),
        ((linear, (np.ones((2, 3), dtype=complex),), np.ones((4, 3))), "complex values"),
        ((linear, ("text",), np.ones((4, 3))), r"parameters\[0\] = 'text' is not allowed"),
        ((lambda p, x: (x @ p[0].T).sum(), (np.ones((2, 3)),), np.ones((4, 3))), "a row for each of 4 samples"),
        ((lambda p, x: x @ p[0].T > 0, (np.ones((2, 3)),), np.ones((4, 3))), "must return real numbers"),
    ],
)
def test_networks_are_checked(given, sentence):
    with pytest.raises(ln.InputError, match=sentence):
        ln.Network(*given)


def test_costs_on_outputs_have_every_normalization():
    rng = np.random.default_rng(11)
    f, y, kinds = rng.normal(size=(5, 3)), rng.normal(size=(5, 3)), rng.integers(3, size=5)
    network = ln.Network(lambda p, x: p[0], (f,), np.zeros((5, 1)))
    square = np.sum((f - y) ** 2)
    for cost, average, wanted in (
        ("squares", None, square / 15),
        ("squares", "samples", square / 5),
        ("half squares", "samples", square / 10),
        ("half squares", "sum", square / 2),
    ):
        value = ln.observe.loss(network, ln.supervised(y, cost, average=average))
        np.testing.assert_allclose(value, wanted, rtol=1e-13)
    entropy = np.mean(np.log(np.exp(f).sum(axis=1)) - f[np.arange(5), kinds])
    problem = ln.supervised(kinds, "softmax", classes=3)
    np.testing.assert_allclose(ln.observe.loss(network, problem), entropy, rtol=1e-13)
    np.testing.assert_allclose(ln.observe.accuracy(network, problem), np.mean(f.argmax(axis=1) == kinds))
    np.testing.assert_allclose(problem.gradient(network.matrix), jax.grad(problem.cost)(network.matrix), atol=1e-15)
    signs = np.sign(y)
    logistic = ln.observe.loss(network, ln.supervised(signs, "logistic"))
    np.testing.assert_allclose(logistic, np.mean(np.log1p(np.exp(-signs * f))), rtol=1e-13)
    with pytest.raises(ln.InputError, match="classes = 3 is not allowed with cost = 'squares'"):
        ln.supervised(y, classes=3)


def test_an_observable_takes_a_problem_in_another_precision():
    (network, outputs), _ = both(np.random.default_rng(12))
    single = ln.states.cast(network, jnp.float32)
    seen = ln.observe.sharpness(single, outputs)
    assert seen.dtype == jnp.float32
    np.testing.assert_allclose(seen, ln.observe.sharpness(network, outputs), rtol=1e-5)


def test_what_cannot_be_looked_at_now_and_then_is_refused():
    with pytest.raises(ln.InputError, match=r"observed = \['loss'\] is not allowed: give an observable"):
        ln.observe.only(["loss"], ln.record.every(2))
    with pytest.raises(ln.InputError, match="record = 3 is not allowed: use every, pairs or at"):
        ln.observe.only("loss", 3)
    with pytest.raises(ln.InputError, match="use every, pairs or at, whose steps are known before"):
        ln.observe.only("loss", ln.record.linear(5))


def test_a_part_and_another_observable_cannot_share_a_name():
    (network, outputs), _ = both(np.random.default_rng(13))
    looks = {"path": ln.observe.path, "path_flip": ln.observe.loss}
    with pytest.raises(ln.InputError, match="observe has 'path_flip' twice"):
        ln.simulate(outputs, network, ln.optim.SGD(1e-3), steps=2, observe=looks)
