"""The linear theory of a layer against networks written out: exact where it must be, and its error told elsewhere."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import linnet as ln
from linnet import prediction
from linnet._check import InputError
from linnet.prediction.assumption import Holds, NotApplicable
from linnet.prediction.theories.layer import for_triple
from linnet.theory.regime import Regime


def relu(layers, x):
    for layer in layers[:-1]:
        x = jax.nn.relu(x @ layer.T)
    return x @ layers[-1].T


def linear(layers, x):
    for layer in layers:
        x = x @ layer.T
    return x


def drawn(seed, widths=(4, 6, 5, 3), n=9):
    rng = np.random.default_rng(seed)
    layers = tuple(rng.normal(size=(b, a)) / np.sqrt(a) for a, b in pairwise(widths))
    return layers, rng.normal(size=(n, widths[0])), rng.normal(size=(n, widths[-1]))


def around(layers, x, which, gates=False):
    """What a layer is given, a row for each sample, and what the outputs make of its own: h_i and B_i."""
    h, rest = x, None
    for i, layer in enumerate(layers):
        out = h @ layer.T
        gate = (out > 0).astype(float) if gates and i < len(layers) - 1 else np.ones_like(out)
        if i == which:
            inputs, rest = h, np.einsum("no,op->nop", gate, np.eye(out.shape[1]))
        elif rest is not None:
            rest = gate[:, :, None] * (layer @ rest)
        h = gate * out
    return inputs, rest


@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    widths=st.sampled_from([(4, 6, 5, 3), (3, 2, 5), (2, 4, 4, 2), (3, 2)]),
    n=st.sampled_from([2, 9]),
    data=st.data(),
)
def test_a_layer_of_a_linear_network_is_exact(seed, widths, n, data):
    """Curvature by its Kronecker form, every mode, and descent written out in NumPy."""
    layers, x, y = drawn(seed, widths, n)
    which = data.draw(st.integers(0, len(layers) - 1))
    said = prediction.layer(
        ln.supervised(y, "half squares", average="sum"), ln.Network(linear, layers, x), which + 1, steps=30, modes=1000
    )
    h, rest = around(layers, x, which)
    b = rest[0]
    unit = np.linalg.eigvalsh(b.T @ b)[-1] * np.linalg.eigvalsh(h.T @ h)[-1]
    assert said.gauss_newton_sharpness == pytest.approx(unit, rel=1e-11)
    assert said.sharpness == pytest.approx(unit, rel=1e-11)
    assert said.largest_stable_lr == pytest.approx(2 / unit, rel=1e-11)
    products = np.sort(np.outer(np.linalg.eigvalsh(b.T @ b), np.linalg.eigvalsh(h.T @ h)).ravel())[::-1]
    found = [mode.curvature for mode in said.modes]
    np.testing.assert_allclose(found, products, atol=1e-9 * unit)
    w, losses = layers[which].copy(), []
    for _ in range(31):
        residual = h @ w.T @ b.T - y
        losses.append(np.sum(residual**2) / 2)
        w -= said.lr * b.T @ residual.T @ h
    np.testing.assert_allclose(said.data["curves"].loss, losses, rtol=1e-10)
    assert tuple(said.loss.values()) == (said.data["curves"].loss[0], said.data["curves"].loss[-1])
    np.testing.assert_allclose(said.data["curves"].there, losses, rtol=1e-10)
    # what the modes take off is all that is ever learned
    shares, rates = np.array([(mode.share, 1 - said.lr * mode.curvature) for mode in said.modes]).T
    steps = np.arange(31)[:, None]
    np.testing.assert_allclose(1 - (shares * (1 - rates ** (2 * steps))).sum(axis=1), losses / losses[0], atol=1e-9)
    for mode, rate in zip(said.modes, rates, strict=True):
        if mode.share > 0:
            assert rate**mode.half_learned.step == pytest.approx(0.5)
    seen = said.measure()
    assert seen.alone.error == 0
    assert seen.alone.output_error < 1e-10
    assert seen.alone.right_until == 30
    assert seen.alone.gauss_newton_sharpness == pytest.approx(unit, rel=1e-9)
    assert (said.bent, said.regime) == (0, Regime.LAZY)
    assert said.nonlinearity < 1e-9
    assert said.kernel_change < 1e-12
    assert {need.holds for quantity in said.quantities if quantity.source for need in quantity.source.assumptions} == {
        Holds.EXACTLY
    }


@pytest.mark.quick(1)
@pytest.mark.parametrize("which", [0, 1, 2])
def test_at_the_start_all_is_exact_for_relu(which):
    """Gradient and both blocks, from the layer's inputs, its outputs' Jacobians, and by differentiation."""
    layers, x, y = drawn(3)
    network, problem = ln.Network(relu, layers, x), ln.supervised(y)

    def cost(w):
        return jnp.mean((relu([w if i == which else layers[i] for i in range(3)], x) - y) ** 2)

    w = jnp.asarray(layers[which])
    h, b = around(layers, x, which, gates=True)
    residual = relu(layers, x) - y
    gradient = np.einsum("no,nop,nq->pq", 2 * residual / y.size, b, h)
    np.testing.assert_allclose(gradient, jax.grad(cost)(w), atol=1e-14)
    block = 2 / y.size * np.einsum("nop,nor,nq,ns->pqrs", b, b, h, h).reshape(w.size, w.size)
    np.testing.assert_allclose(block, jax.hessian(cost)(w).reshape(w.size, w.size), atol=1e-14)
    said = prediction.layer(problem, network, which + 1, modes=3)
    values = np.linalg.eigvalsh(block)[::-1]
    assert said.gauss_newton_sharpness == pytest.approx(values[0], rel=1e-12)
    assert said.sharpness == pytest.approx(values[0], rel=1e-12)
    np.testing.assert_allclose([mode.curvature for mode in said.modes], values[:3], rtol=1e-10)
    np.testing.assert_allclose(said.gradient_values, np.linalg.svd(gradient, compute_uv=False)[:3], rtol=1e-10)
    whole = np.sum(np.asarray(jax.flatten_util.ravel_pytree(network.velocity(problem).trained())[0]) ** 2)
    assert said.gradient_share == pytest.approx(np.sum(gradient**2) / whole, rel=1e-12)
    assert said.network_sharpness == pytest.approx(float(ln.observe.sharpness(network, problem)), rel=1e-10)
    assert (said.shape, said.weights, said.weights_in_all) == (w.shape, w.size, 4 * 6 + 6 * 5 + 5 * 3)
    assert (said.samples, said.outputs, said.layer) == (9, 3, which + 1)
    assert said.loss.initial == pytest.approx(float(cost(w)), rel=1e-14)


def test_layers_are_stable_at_larger_lr_than_the_network():
    for seed in range(5):
        layers, x, y = drawn(seed, (4, 8, 8, 3), 12)
        network, problem = ln.Network(relu, layers, x), ln.supervised(y)
        parts = [prediction.layer(problem, network, i, steps=1) for i in (1, 2, 3)]
        whole = prediction.layer(problem, network, steps=1)
        assert whole.network_sharpness == whole.sharpness
        assert all(part.sharpness <= whole.sharpness * (1 + 1e-12) for part in parts)
        assert all(part.largest_stable_lr >= part.network_largest_stable_lr * (1 - 1e-12) for part in parts)
        newton = [part.gauss_newton_sharpness for part in parts]
        assert max(newton) <= whole.gauss_newton_sharpness <= sum(newton)
        assert sum(part.gradient_share for part in parts) == pytest.approx(1, rel=1e-12)
        assert whole.gradient_share == 1


@pytest.mark.slow
def test_bent_samples_are_those_whose_activations_switch():
    """Patterns counted by hand at the weights to which linear theory leads."""
    layers, x, y = drawn(7, (4, 8, 6, 3), 40)
    network, problem = ln.Network(relu, layers, x), ln.supervised(y)
    shares = []
    for steps in (1, 4, 16, 64):
        said = prediction.layer(problem, network, 1, lr=0.1, steps=steps)
        run = ln.simulate(problem, network.alone(1).linearized(), ln.optim.SGD(0.1), steps=steps)
        moved = (np.asarray(run.final.layers[0]), *layers[1:])
        patterns = []
        for weights in (layers, moved):
            first = x @ weights[0].T
            second = np.maximum(first, 0) @ weights[1].T
            patterns.append(np.concatenate([first > 0, second > 0], axis=1))
        switched = np.any(patterns[0] != patterns[1], axis=1)
        assert said.bent == pytest.approx(np.mean(switched), abs=1e-12)
        truth, straight = relu(moved, x), np.asarray(run.final.matrix).T
        off = np.linalg.norm(truth - straight) / np.linalg.norm(straight - relu(layers, x))
        assert said.nonlinearity == pytest.approx(off, rel=1e-9, abs=1e-13)
        assert said.loss_there == pytest.approx(float(np.mean((truth - y) ** 2)), rel=1e-12)
        force = jnp.asarray(2 * (relu(layers, x) - y).T / y.size)
        before, after = (ln.Network(relu, w, x).alone(1).tangent(force) for w in (layers, moved))
        changed = np.linalg.norm(after - before) / np.linalg.norm(before)
        assert said.kernel_change == pytest.approx(changed, rel=1e-10, abs=1e-14)
        shares.append(said.bent)
    assert shares[0] < shares[-1]
    assert 0 < shares[-1] < 1


def test_before_any_switch_linear_theory_is_exact_and_after_it_says_so():
    layers, x, y = drawn(5, (4, 8, 6, 3), 10)
    network, problem = ln.Network(relu, layers, x), ln.supervised(y)
    short = prediction.layer(problem, network, 2, lr=1e-5, steps=5)
    assert short.bent == 0
    assert short.nonlinearity < 1e-9
    assert short.measure().alone.error == 0
    assert short.measure().alone.output_error < 1e-9
    long = prediction.layer(problem, network, 2, steps=400)
    seen = long.measure().alone
    assert long.bent > 0.3
    assert long.nonlinearity > 0.05
    assert seen.error > 0.01
    assert seen.output_error > 0.05
    real = ln.simulate(problem, network.alone(2), ln.optim.SGD(long.lr), steps=400)
    assert seen.loss.final == real["loss"][-1]
    straight = ln.simulate(problem, network.alone(2).linearized(), ln.optim.SGD(long.lr), steps=400)
    moved = np.linalg.norm(straight.final.matrix - network.matrix)
    assert seen.output_error == pytest.approx(np.linalg.norm(real.final.matrix - straight.final.matrix) / moved)


@pytest.mark.quick(2)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("cost", ["squares", "softmax"])
def test_the_last_layer_is_exact_for_all_steps(activation, cost):
    _, x, y = drawn(2)
    network = ln.networks.mlp(jax.random.key(1), x, (7, 6, 3), activation=activation)
    labels = np.arange(9) % 3 if cost == "softmax" else y
    said = prediction.layer(ln.supervised(labels, cost), network, 3, steps=200)
    seen = said.measure()
    assert seen.alone.error == 0
    assert seen.alone.output_error < 1e-10
    assert seen.everything.output_error > 0.01
    assert [need.holds is Holds.EXACTLY for need in said["modes"].source.assumptions] == [True, cost == "squares"]
    assert (said.modes[0].half_learned.error == 0) == (cost == "squares")


def test_the_largest_stable_lr_of_a_layer_is_where_it_begins_to_diverge():
    _, x, y = drawn(2)
    network, problem = ln.networks.mlp(jax.random.key(1), x, (7, 3)), ln.supervised(y)
    most = prediction.layer(problem, network, 2).largest_stable_lr
    below, above = (prediction.layer(problem, network, 2, lr=factor * most, steps=4000) for factor in (0.99, 1.01))
    assert below.settles
    assert below.loss.final < below.loss.initial
    assert below.measure().alone.status == "horizon"
    assert not above.settles
    assert above.loss.final == np.inf
    assert above.regime is None
    assert above.modes[0].half_learned.step == np.inf
    assert above.measure().alone.status == "diverged"
    assert "diverges" in str(above)
    assert "diverged" in str(above.measure())
    above.measure().plot()


@pytest.mark.slow
def test_curvature_of_many_weights_is_that_of_the_matrix():
    """Products and Lanczos against the dense block, in both precisions and in pieces of samples."""
    _, x, y = drawn(4, (12, 5), 30)
    for activation in ("relu", "tanh"):
        network, problem = ln.networks.mlp(jax.random.key(0), x, (40, 30, 5), activation=activation), ln.supervised(y)
        said = prediction.layer(problem, network, 2, modes=4, steps=10)
        assert said.weights == 1200
        dense = ln.observe.hessian_spectrum(network.alone(2), problem)
        assert said.sharpness == pytest.approx(float(dense[0]), rel=1e-9)
        apart = abs(said.sharpness - said.gauss_newton_sharpness) / said.sharpness
        assert (apart < 1e-9) == (activation == "relu")
        (same,) = said["largest_stable_lr"].source.assumptions
        assert same.measured == pytest.approx(apart, abs=1e-12)
        assert said.gauss_newton_sharpness == pytest.approx(
            float(ln.observe.gauss_newton_sharpness(network.alone(2), problem)), rel=1e-9
        )
        pieces = ln.Network.of(network.module, x, chunk_size=7)
        single = ln.networks.mlp(jax.random.key(0), jnp.asarray(x, jnp.float32), (40, 30, 5), activation=activation)
        single = single.with_layers([w.astype(jnp.float32) for w in network.layers])
        for other, rel in ((pieces, 1e-9), (single, 1e-4)):
            again = prediction.layer(
                ln.states.cast(problem, other.inputs.dtype), other, 2, modes=4, steps=10, lr=said.lr
            )
            assert again.sharpness == pytest.approx(said.sharpness, rel=rel)
            assert again.loss.final == pytest.approx(said.loss.final, rel=rel)
            assert again.nonlinearity == pytest.approx(said.nonlinearity, rel=100 * rel)


def test_a_small_adapter_escapes_as_the_gradient_says():
    """W_0 + A B^T near A = B = 0: the ends of its Hessian are plus and minus the gradient's largest singular value."""
    layers, x, y = drawn(6, (8, 12, 3), 20)
    network, problem = ln.Network(relu, layers, x), ln.supervised(y)
    rng = np.random.default_rng(0)
    pair = tuple(1e-6 * rng.normal(size=(size, 2)) for size in layers[1].shape)

    def adapted(parameters, inputs):
        a, b = parameters
        return relu((layers[0], layers[1] + a @ b.T), inputs)

    spectrum = ln.observe.hessian_spectrum(ln.Network(adapted, pair, x), problem)
    value = prediction.layer(problem, network, 2).gradient_values[0]
    np.testing.assert_allclose([spectrum[0], -spectrum[-1]], value, rtol=1e-4)


def test_regimes_of_all_that_moves():
    """A wide network whose outputs are far smaller than its labels is rich, one with small labels lazy."""
    _, x, y = drawn(1, (4, 2), 8)
    small = ln.networks.mlp(jax.random.key(0), x, (50, 2), scale=0.1)
    rich = prediction.layer(ln.supervised(y), small, steps=3000)
    assert rich.regime is Regime.RICH
    assert rich.measure().everything is None
    wide = ln.networks.mlp(jax.random.key(0), x, (50, 2))
    lazy = prediction.layer(ln.supervised(np.asarray(wide.matrix).T + 1e-4 * y), wide, steps=3000)
    assert lazy.regime is Regime.LAZY
    assert lazy.measure().alone.right_until == 3000
    assert rich.measure().alone.right_until < 10  # in the end both have learned all labels


def test_words_and_progress():
    layers, x, y = drawn(3)
    said, heard = prediction.layer(ln.supervised(y), ln.Network(relu, layers, x), 2, steps=80), []
    text = str(said)
    for words in ("W_2 is stable for lr <", "5 x 6", "30 of 69 weights", "half at step", "chosen here"):
        assert words in text
    seen = said.measure(progress=lambda done, total: heard.append((done, total)))
    assert heard[-1][0] == heard[-1][1]
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)
    assert "W_2 alone" in str(seen)
    assert "right until step" in str(seen)
    assert "All weights are stable" in str(prediction.layer(ln.supervised(y), ln.Network(relu, layers, x), steps=5))
    assert seen.to_dict()["run"]["alone"]["loss"]["final"] == seen.alone.loss.final


def test_what_cannot_be_asked_is_one_sentence():
    layers, x, y = drawn(3)
    network, problem = ln.Network(relu, layers, x), ln.supervised(y)
    zero = ln.Network(relu, (*layers[:-1], 0 * layers[-1]), x)
    cases = [
        (lambda: prediction.layer(problem, layers, 1), "use a Network"),
        (lambda: prediction.layer(y, network, 1), "use a cost such as supervised"),
        (lambda: prediction.layer(problem, network, 4), "layer must be a whole number from 1 to 3"),
        (lambda: prediction.layer(problem, network, 0), "layer must be a whole number from 1 to 3"),
        (lambda: prediction.layer(problem, network, 1, lr=-1.0), "lr = -1"),
        (lambda: prediction.layer(problem, network, 1, steps=0), "steps = 0"),
        (lambda: prediction.layer(problem, network, 1, modes=0), "modes = 0"),
        (lambda: prediction.layer(ln.supervised(y[:5]), network, 1), "the problem has shape"),
        (lambda: prediction.layer(problem, zero, 1), "layer = 1 is not allowed: the gradient of the cost in it is 0"),
    ]
    for ask, words in cases:
        with pytest.raises(InputError) as error:
            ask()
        assert words in str(error.value)
        assert "\n" not in str(error.value)


def test_a_triple_is_all_weights_of_a_network():
    layers, x, y = drawn(3)
    network, problem = ln.Network(relu, layers, x), ln.supervised(y)
    told = for_triple(problem, network, ln.optim.SGD(0.1))
    assert told.to_dict() == {**prediction.layer(problem, network, lr=0.1).to_dict()}
    measured = told.measure()
    run = ln.simulate(problem, network, ln.optim.SGD(0.1), steps=100)  # another record
    compared = told.compare(run).alone
    assert compared.loss == measured.alone.loss
    assert compared.error == pytest.approx(measured.alone.error, rel=1e-9)
    assert compared.output_error == pytest.approx(measured.alone.output_error, rel=1e-9)
    momentum, weights = ln.optim.SGD(0.1, momentum=0.9), ln.Weights(layers)
    for triple, words in (
        ((problem, network, momentum), "gradient descent on all samples"),
        ((ln.regression(x, y), weights, ln.optim.SGD(0.1)), "a Network"),
    ):
        with pytest.raises(NotApplicable) as error:
            for_triple(*triple)
        assert words in error.value.assumption.name
