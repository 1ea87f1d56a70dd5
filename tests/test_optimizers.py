"""Optimizers: against PyTorch, against plain loops, and compressed against whole networks."""

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import linnet as ln

KEY = jax.random.key(0)


def data(d_in=4, d_out=3, n=12, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d_in)), rng.normal(size=(n, d_out))


def network(widths=(4, 6, 5, 3), seed=1, scale=0.4):
    rng = np.random.default_rng(seed)
    return ln.Weights([scale * rng.normal(size=(b, a)) for a, b in pairwise(widths)])


def torch_run(make, state, x, y, steps, order=None, loss=None):
    """The same network and data in PyTorch: the mean over samples of half the squared error by default."""
    layers = [torch.nn.Parameter(torch.tensor(np.array(w))) for w in state.layers]
    inputs, labels = torch.tensor(x), torch.tensor(y)
    optimizer = make(layers)
    for k in range(steps):
        rows = slice(None) if order is None else torch.tensor(order[k % len(order)])
        out = inputs[rows]
        for w in layers:
            out = out @ w.T
        cost = loss(out, labels[rows]) if loss else 0.5 * ((out - labels[rows]) ** 2).sum(1).mean()
        optimizer.zero_grad()
        cost.backward()
        optimizer.step()
    return [w.detach().numpy() for w in layers]


SGD, PLAIN = torch.optim.SGD, ln.optim.SGD
PAIRS = {
    "descent": (PLAIN(0.02), lambda p: SGD(p, 0.02)),
    "decay": (PLAIN(0.02, weight_decay=0.3), lambda p: SGD(p, 0.02, weight_decay=0.3)),
    "heavy ball": (ln.optim.SGD(0.01, 0.9), lambda p: SGD(p, 0.01, momentum=0.9)),
    "nesterov": (ln.optim.SGD(0.01, 0.8, nesterov=True), lambda p: SGD(p, 0.01, momentum=0.8, nesterov=True)),
    "dampening": (ln.optim.SGD(0.05, 0.9, 0.8), lambda p: SGD(p, 0.05, momentum=0.9, dampening=0.8)),
    "momentum and decay": (
        ln.optim.SGD(0.01, 0.9, weight_decay=0.1, nesterov=True),
        lambda p: SGD(p, 0.01, momentum=0.9, weight_decay=0.1, nesterov=True),
    ),
    "adam": (ln.optim.Adam(0.01), lambda p: torch.optim.Adam(p, 0.01)),
    "adam, other numbers": (
        ln.optim.Adam(0.002, (0.8, 0.99), 1e-3, weight_decay=0.1),
        lambda p: torch.optim.Adam(p, 0.002, betas=(0.8, 0.99), eps=1e-3, weight_decay=0.1),
    ),
    "adamw": (ln.optim.AdamW(0.01), lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.01)),
    "rmsprop": (ln.optim.RMSprop(2e-4), lambda p: torch.optim.RMSprop(p, 2e-4)),
    "rmsprop, other numbers": (
        ln.optim.RMSprop(2e-4, 0.9, 1e-3, 0.1, 0.7, True),
        lambda p: torch.optim.RMSprop(p, 2e-4, alpha=0.9, eps=1e-3, weight_decay=0.1, momentum=0.7, centered=True),
    ),
    "rates": (
        PLAIN(0.02, lr_multipliers=(1, 0.5, 0.1)),
        lambda p: SGD([{"params": [w], "lr": 0.02 * r} for w, r in zip(p, (1, 0.5, 0.1), strict=True)]),
    ),
    "a maker with numbers": (
        ln.optim.Optax(optax.rmsprop, learning_rate=2e-4, decay=0.9, eps=1e-3, eps_in_sqrt=False),
        lambda p: torch.optim.RMSprop(p, 2e-4, alpha=0.9, eps=1e-3),
    ),
    "a transformation that is made": (ln.optim.Optax(optax.adamax(0.002)), lambda p: torch.optim.Adamax(p, 0.002)),
}


@pytest.mark.quick(7)
@pytest.mark.parametrize("name", PAIRS)
def test_a_thousand_steps_are_pytorchs(name):
    optimizer, make = PAIRS[name]
    (x, y), state = data(), network()
    ours = ln.simulate(
        ln.regression(x, y, average=True), state, optimizer, steps=1000, record=ln.record.linear(2)
    ).final
    theirs = torch_run(make, state, x, y, 1000)
    for one, other, begin in zip(ours.layers, theirs, state.layers, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10 * np.abs(other).max())
        assert np.abs(other - begin).max() > 0.01


def test_rmsprop_has_pytorchs_defaults_and_a_scalar_form():
    """The scalar form against a loop; its preconditioner is what divided the gradient."""
    ours, theirs = ln.optim.RMSprop(), torch.optim.RMSprop([torch.zeros(1)]).defaults
    for name in ("lr", "alpha", "eps"):
        assert float(getattr(ours, name)) == theirs[name]
    with pytest.raises(ln.InputError, match="centered = True is not allowed beside scalar"):
        ln.optim.RMSprop(centered=True, scalar=True)
    (x, y), state = data(), network()
    problem, optimizer = ln.regression(x, y, average=True), ln.optim.RMSprop(0.02, 0.9, 1e-3, scalar=True)
    run = ln.simulate(problem, state, optimizer, steps=50, observe=["adaptive_sharpness", "sharpness"])
    now, square = state, 0.0
    for _ in range(50):
        velocity = now.velocity(problem)
        square = 0.9 * square + 0.1 * sum(float(jnp.sum(leaf**2)) for leaf in velocity.layers)
        divisor = np.sqrt(square) + 1e-3
        now = ln.Weights([w + 0.02 * v / divisor for w, v in zip(now.layers, velocity.layers, strict=True)])
    for one, other in zip(run.final.layers, now.layers, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)
    np.testing.assert_allclose(run["adaptive_sharpness"][-1], run["sharpness"][-1] / divisor, rtol=1e-8)
    assert np.isnan(run["adaptive_sharpness"][0])
    np.testing.assert_allclose(optimizer.stability_threshold(jnp.zeros((), jnp.int64)), 100)


def test_muon_is_pytorchs_in_double_precision(monkeypatch):
    """PyTorch makes Newton and Schulz' steps in bfloat16; here its optimizer is given the same steps in double."""

    def steps_in_double(gradient, coefficients, count, eps):
        a, b, c = coefficients
        x = gradient if gradient.size(0) <= gradient.size(1) else gradient.T
        x = x / x.norm().clamp(min=eps)
        for _ in range(count):
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        return x if gradient.size(0) <= gradient.size(1) else x.T

    from torch.optim import _muon

    monkeypatch.setattr(_muon, "_zeropower_via_newtonschulz", steps_in_double)
    (x, y), state = data(), network()
    for adjust in ("original", "match_rms_adamw"):
        optimizer = ln.optim.Muon(1e-3, momentum=0.9, ns_steps=5, adjust_lr_fn=adjust, weight_decay=0.1)
        ours = ln.simulate(ln.regression(x, y, average=True), state, optimizer, steps=200).final
        theirs = torch_run(
            lambda p, adjust=adjust: torch.optim.Muon(p, 1e-3, 0.1, momentum=0.9, adjust_lr_fn=adjust), state, x, y, 200
        )
        for one, other in zip(ours.layers, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("nesterov", [False, True])
def test_muon_steps_along_the_polar_factor(nesterov):
    (x, y), state = data(), network()
    problem = ln.regression(x, y, average=True)
    run = ln.simulate(
        problem,
        state,
        ln.optim.Muon(0.01, momentum=0.9, nesterov=nesterov, weight_decay=0.0, ns_steps=None, adjust_lr_fn="none"),
        steps=60,
    ).final
    layers, speed = [np.array(w) for w in state.layers], [0.0, 0.0, 0.0]
    for _ in range(60):
        gradient = [-np.asarray(g) for g in ln.Weights(layers).velocity(problem).layers]
        speed = [0.9 * v + g for v, g in zip(speed, gradient, strict=True)]
        ahead = [g + 0.9 * v if nesterov else v for v, g in zip(speed, gradient, strict=True)]
        for i, v in enumerate(ahead):
            u, s, vt = np.linalg.svd(v, full_matrices=False)
            keep = s > 1e-12 * s[0]
            layers[i] = layers[i] - 0.01 * u[:, keep] @ vt[keep]
    for one, other in zip(run.layers, layers, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


ALIKE = {
    "decay": ln.optim.SGD(0.02, weight_decay=0.2, lr_multipliers=(1, 0.3, 0.5)),
    "heavy ball": ln.optim.SGD(0.01, 0.9, weight_decay=0.1),
    "nesterov": ln.optim.SGD(0.01, 0.9, nesterov=True, weight_decay=0.1, decoupled=True),
    "dampening": ln.optim.SGD(0.01, 0.5, dampening=0.5),
    "mini-batches": ln.optim.SGD(0.01, 0.5, batches=ln.optim.MiniBatch(3)),
    "subsets": ln.optim.SGD(0.02, batches=ln.optim.MiniBatch(3, draw="subset")),
    "online": ln.optim.SGD(0.02, batches=ln.optim.Online(5)),
    "label noise": ln.optim.LabelNoiseSGD(0.02, 0.1, weight_decay=0.1, batches=ln.optim.MiniBatch(4)),
    "an equivariant transformation": ln.optim.Optax(
        optax.sgd, learning_rate=0.01, momentum=0.9, rotation_equivariant=True
    ),
    "scalar rmsprop": ln.optim.RMSprop(0.02, 0.95, weight_decay=0.1, momentum=0.3, scalar=True),
    "muon": ln.optim.Muon(0.002, momentum=0.9, ns_steps=4, weight_decay=0.0, adjust_lr_fn="none"),
    "muon, whole shapes": ln.optim.Muon(
        0.002, momentum=0.9, ns_steps=4, adjust_lr_fn="original", widths=(4, 40, 30, 3), weight_decay=0.0
    ),
}


@pytest.mark.quick(6)
@pytest.mark.parametrize("name", ALIKE)
def test_compressed_networks_move_as_the_whole_ones(name):
    x, y = data()
    problem, state = ln.regression(x, y, average=True), network((4, 40, 30, 3), scale=0.15)
    small = state.compress()
    assert small.compressed
    assert small.widths[1] < 40
    runs = [ln.simulate(problem, s, ALIKE[name], steps=150, key=KEY, observe=["matrix"]) for s in (state, small)]
    moved = np.abs(runs[0]["matrix"][-1] - runs[0]["matrix"][0]).max()
    np.testing.assert_allclose(runs[1]["matrix"], runs[0]["matrix"], rtol=0, atol=1e-10 * max(1.0, moved))
    assert moved > 0.01


def test_muons_exact_polar_factor_compresses():
    """A fixed step makes 1e-15 large: the whole network, changed by rounding, is the measure."""
    x, y = data()
    problem, state = ln.regression(x, y, average=True), network((4, 40, 30, 3), scale=0.15)
    near = ln.Weights([w * (1 + 1e-15) for w in state.layers])
    optimizer = ln.optim.Muon(0.002, momentum=0.9, weight_decay=0.0, ns_steps=None, adjust_lr_fn="none")
    starts = (state, near, state.compress())
    whole, control, small = (
        ln.simulate(problem, s, optimizer, steps=150, observe=["matrix"])["matrix"] for s in starts
    )
    assert np.abs(small - whole).max() < 1e-10
    assert np.abs(small - whole).max() < 10 * np.abs(control - whole).max()


@pytest.mark.parametrize(
    "optimizer",
    [ln.optim.Adam(), ln.optim.AdamW(), ln.optim.RMSprop(), ln.optim.SignSGD(0.01), ln.optim.Optax(optax.lion(1e-3))],
    ids=lambda m: type(m).__name__,
)
def test_what_sees_single_weights_refuses_compressed_networks(optimizer):
    x, y = data()
    problem = ln.regression(x, y)
    drawn = ln.init.gaussian(KEY, problem, 100, 0.1)
    for state in (drawn, network((4, 20, 3)).compress(), network((4, 20, 3)).project(np.eye(4))):
        with pytest.raises(ln.InputError, match=f"{type(optimizer).__name__} does not treat all neurons alike"):
            ln.simulate(problem, state, optimizer, steps=1)
    whole = ln.init.gaussian(KEY, problem, (10,), 0.1)
    assert ln.simulate(problem, whole, optimizer, steps=3).status == "horizon"
    assert not whole.compressed


def test_adam_on_a_compressed_network_would_be_another_optimizer():
    """Why it is refused."""
    x, y = data()
    problem, state = ln.regression(x, y, average=True), network((4, 40, 3), scale=0.2)
    small = ln.Weights(state.compress().layers)  # without its mark
    ways = [
        ln.simulate(problem, s, ln.optim.Adam(0.01), steps=100, observe=["matrix"])["matrix"] for s in (state, small)
    ]
    assert np.abs(ways[0] - ways[1]).max() > 0.02


def test_modes_and_rank_one_move_as_their_networks():
    problem = ln.factorization(np.diag([2.0, 1.0]))
    modes = ln.Modes([[0.3, 0.2], [0.5, 0.1], [0.4, 0.3]])
    optimizer = ln.optim.SGD(0.01, 0.8, weight_decay=0.05, nesterov=True)
    by_modes = ln.simulate(problem.aligned(), modes, optimizer, steps=300)["loss"]
    by_weights = ln.simulate(problem, modes.weights(np.eye(2), np.eye(2)), optimizer, steps=300)["loss"]
    np.testing.assert_allclose(by_modes, by_weights, rtol=1e-12)
    one = ln.RankOne.balanced(0.1, [1.0, 2.0], [1.0, -0.5], 4)
    by_rank, by_weights = (ln.simulate(problem, s, optimizer, steps=300)["loss"] for s in (one, one.weights()))
    np.testing.assert_allclose(by_rank, by_weights, rtol=1e-12)


def test_decay_leaves_the_samples_of_a_relu_network():
    x, y = data()
    state = ln.states.ReluNetwork(np.ones((5, 4)), np.ones((3, 5)), x)
    run = ln.simulate(ln.factorization(y.T), state, ln.optim.SGD(1e-3, 0.9, weight_decay=0.5), steps=20)
    assert jnp.array_equal(run.final.inputs, x)
    assert run.memory[0].momentum.inputs is None


def test_states_without_weights_are_refused():
    problem = ln.factorization(np.eye(2))
    closed = ln.EndToEnd(0.1 * np.eye(2), ln.states.Mixed(0.1))
    assert ln.simulate(problem, closed, ln.optim.SGD(0.1), steps=2).status == "horizon"
    for optimizer in (ln.optim.SGD(0.1, 0.9), ln.optim.SGD(0.1, weight_decay=0.1), ln.optim.Adam()):
        with pytest.raises(ln.InputError, match="EndToEnd has no weights"):
            ln.simulate(problem, closed, optimizer, steps=2)
    with pytest.raises(ln.InputError, match="Muon needs Weights"):
        ln.simulate(
            problem.aligned(),
            ln.Modes(np.ones((2, 2))),
            ln.optim.Muon(weight_decay=0.0, ns_steps=None, adjust_lr_fn="none"),
            steps=2,
        )
    with pytest.raises(ln.InputError, match="lr_multipliers has 3 numbers: it must have one for each of the 2 layers"):
        ln.simulate(problem, network((2, 2, 2)), ln.optim.SGD(0.1, lr_multipliers=(1, 1, 1)), steps=2)


# Schedules -----------------------------------------------------------------------------------------------------------


def test_schedules_are_functions_of_the_step():
    (x, y), state = data(), network()
    problem, schedule = ln.regression(x, y, average=True), optax.cosine_decay_schedule(0.05, 300)
    run = ln.simulate(problem, state, ln.optim.SGD(schedule, 0.9), steps=200, record=ln.record.every(50))
    with jax.enable_x64():
        sizes = np.array([schedule(jnp.asarray(k)) for k in range(200)])
    times = np.concatenate([[0.0], np.cumsum(sizes)])[::50] / (1 - 0.9)
    np.testing.assert_allclose(run.times, times, rtol=1e-12)
    layers, speed = [np.array(w) for w in state.layers], [0.0, 0.0, 0.0]
    for size in sizes:
        moved = ln.Weights(layers).velocity(problem).layers
        speed = [0.9 * v - np.asarray(g) for v, g in zip(speed, moved, strict=True)]
        layers = [w - size * v for w, v in zip(layers, speed, strict=True)]
    for one, other in zip(run.final.layers, layers, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)


def test_schedules_that_cannot_be_are_refused():
    with pytest.raises(ln.InputError, match="lr returns float64 of shape"):
        ln.optim.SGD(lambda k: jnp.ones(2))
    with pytest.raises(ln.InputError, match="lr"):
        ln.optim.SGD(lambda k: 0.1 if k < 10 else 0.01)
    with pytest.raises(ln.InputError, match="lr = -1 is not allowed"):
        ln.optim.SGD(-1)


# Batches -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["heavy ball", "adam", "decay"])
def test_mini_batches_in_a_given_order_are_pytorchs(name):
    optimizer, make = PAIRS[name]
    (x, y), state = data(n=20), network()
    order = np.random.default_rng(0).permuted(np.tile(np.arange(20), (7, 1)), axis=1)[:, :6]
    optimizer = eqx.tree_at(
        lambda m: m.batches, optimizer, ln.optim.MiniBatch(order=order), is_leaf=lambda b: b is None
    )
    ours = ln.simulate(
        ln.regression(x, y, average=True), state, optimizer, steps=1000, record=ln.record.linear(2)
    ).final
    for one, other in zip(ours.layers, torch_run(make, state, x, y, 1000, order), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


def test_cross_entropy_by_mini_batches_is_pytorchs():
    rng = np.random.default_rng(0)
    x, classes, state = rng.normal(size=(30, 4)), rng.integers(0, 3, 30), network()
    order = rng.permuted(np.tile(np.arange(30), (5, 1)), axis=1)[:, :8]
    optimizer = ln.optim.SGD(0.01, 0.9, batches=ln.optim.MiniBatch(order=order))
    ours = ln.simulate(
        ln.classification(x, classes, average=True), state, optimizer, steps=1000, record=ln.record.linear(2)
    ).final
    theirs = torch_run(
        lambda p: SGD(p, 0.01, momentum=0.9), state, x, classes, 1000, order, torch.nn.CrossEntropyLoss()
    )
    for one, other in zip(ours.layers, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


def rows_of(batch, steps, n=10):
    """The samples that each step saw: labels are powers of two, and the first gradient tells which were there."""
    problem, state = ln.regression(np.ones((n, 1)), 2.0 ** np.arange(n)), ln.Weights((np.ones((1, 1)),))
    prepared, memory, out = batch.prepare(problem, state), batch.memory(problem, state), []
    for k in range(steps):
        samples, memory = batch.at(jnp.asarray(k)).select(prepared, memory, jax.random.fold_in(KEY, k))
        seen = state.on_samples(problem, *samples)[1]
        assert float(seen.scale) == pytest.approx(n / seen.samples)
        out.append(np.rint(np.log2(np.asarray(seen.labels)[0])).astype(int))
    return np.array(out)


def test_passes_show_every_sample_once():
    rows = rows_of(ln.optim.MiniBatch(5), 8)
    passes = rows.reshape(4, 10)
    assert (np.sort(passes, axis=1) == np.arange(10)).all()
    assert len({tuple(p) for p in passes}) == 4
    left = rows_of(ln.optim.MiniBatch(4), 6).reshape(3, 8)  # two are left out of each pass
    assert all(len(set(p)) == 8 for p in left)


def test_subsets_and_replacement_have_their_law():
    draws = 400
    subsets = rows_of(ln.optim.MiniBatch(3, draw="subset"), draws)
    assert all(len(set(batch)) == 3 for batch in subsets)
    replaced = rows_of(ln.optim.MiniBatch(3, draw="replacement"), draws)
    twice = np.mean([len(set(batch)) < 3 for batch in replaced])
    share = 1 - 0.9 * 0.8
    assert abs(twice - share) < 4 * np.sqrt(share * (1 - share) / draws)
    for rows in (subsets, replaced):  # every sample as often as any other, within five deviations
        counts = np.bincount(rows.ravel(), minlength=10) / draws
        assert np.abs(counts - 0.3).max() < 5 * np.sqrt(0.3 / draws)


def test_one_batch_of_all_samples_is_descent():
    (x, y), state = data(), network()
    problem = ln.regression(x, y)
    whole = ln.simulate(problem, state, ln.optim.SGD(1e-3), steps=100)["loss"]
    for draw in ("shuffled", "subset"):
        optimizer = ln.optim.SGD(1e-3, batches=ln.optim.MiniBatch(12, draw=draw))
        np.testing.assert_allclose(
            ln.simulate(problem, state, optimizer, steps=100, key=KEY)["loss"], whole, rtol=1e-12
        )


def test_the_mean_of_many_online_steps_is_descent_on_the_moments():
    (x, y), state = data(), network((4, 3))
    problem = ln.regression(x, y, average=True)
    many = jax.vmap(
        lambda key: (
            ln.simulate(
                problem,
                state,
                ln.optim.SGD(0.1, batches=ln.optim.Online(2)),
                steps=1,
                key=key,
                record=ln.record.linear(2),
            ).final.matrix
        )
    )(jax.random.split(KEY, 4000))
    mean = state.descend(problem, 0.1).matrix
    error = np.std(many, axis=0) / np.sqrt(4000)
    assert (np.abs(np.mean(many, axis=0) - mean) < 5 * error).all()
    assert error.max() < 0.02


def test_samples_of_ones_own_law():
    teacher = np.array([[1.0, -2.0]])

    def draw(key, size):
        x = jax.random.normal(key, (size, 2))
        return x, x @ teacher.T

    problem = ln.regression(np.eye(2), teacher.T)
    optimizer = ln.optim.SGD(0.1, batches=ln.optim.Online(3, draw=draw))
    run = ln.simulate(problem, ln.Weights([np.zeros((1, 2))]), optimizer, steps=1000, key=KEY)
    assert run["loss"][-1] < 1e-12


def test_batches_that_cannot_be_are_refused():
    x, y = data()
    problem, state = ln.regression(x, y), network()
    with pytest.raises(ln.InputError, match="size = 13 is not allowed: there are 12 samples"):
        ln.simulate(problem, state, ln.optim.SGD(0.1, batches=ln.optim.MiniBatch(13)), steps=1, key=KEY)
    with pytest.raises(ln.InputError, match="order names sample 12: there are 12 samples"):
        ln.simulate(problem, state, ln.optim.SGD(0.1, batches=ln.optim.MiniBatch(order=[[0, 12]])), steps=1)
    goal = ln.factorization(np.ones((3, 4)))
    with pytest.raises(ln.InputError, match="Factorization has no samples"):
        ln.simulate(goal, state, ln.optim.SGD(0.1, batches=ln.optim.MiniBatch(1)), steps=1, key=KEY)
    with pytest.raises(ln.InputError, match="key is missing"):
        ln.simulate(problem, state, ln.optim.SGD(0.1, batches=ln.optim.MiniBatch(2)), steps=1)
    with pytest.raises(ln.InputError, match="batches = 'all' is not allowed: give MiniBatch or Online"):
        ln.optim.SGD(0.1, batches="all")
    assert ln.optim.SGD(0.1, batch_size=5).batches.size == 5
    with pytest.raises(ln.InputError, match="size = 3 is not allowed beside order"):
        ln.optim.MiniBatch(3, order=[[0, 1]])
    many = ln.regression(np.ones((5000, 4)), np.ones((5000, 3)))
    with pytest.raises(ln.InputError, match="samples=True"):
        ln.simulate(many, state, ln.optim.SGD(0.1, batches=ln.optim.MiniBatch(2)), steps=1, key=KEY)


# Optax ---------------------------------------------------------------------------------------------------------------


def test_transformations_that_ask_for_the_loss_get_it():
    x, y = data()
    problem = ln.regression(x, y, average=True)
    floor = float(problem.optimum(3).cost)
    for make in (optax.lbfgs(), optax.polyak_sgd(f_min=floor)):
        run = ln.simulate(problem, network(), ln.optim.Optax(make), steps=300)
        assert float(run["loss"][-1]) - floor < 1e-6 * (float(run["loss"][0]) - floor)


def test_what_is_no_transformation_is_refused():
    with pytest.raises(ln.InputError, match="make = 3 is not allowed: give a transformation"):
        ln.optim.Optax(3)
    with pytest.raises(ln.InputError, match="make cannot be called with rate"):
        ln.optim.Optax(optax.sgd, rate=0.1)
    with pytest.raises(ln.InputError, match="learning_rate is not allowed beside a transformation"):
        ln.optim.Optax(optax.sgd(0.1), learning_rate=0.1)


def test_step_sizes_of_transformations_may_be_batched():
    (x, y), state = data(), network()
    problem = ln.regression(x, y, average=True)
    rates = jnp.array([0.001, 0.01])

    def end(lr):
        return ln.simulate(problem, state, ln.optim.Optax(optax.adam, learning_rate=lr), steps=50)["loss"][-1]

    alone = [ln.simulate(problem, state, ln.optim.Adam(lr), steps=50)["loss"][-1] for lr in rates]
    np.testing.assert_allclose(jax.vmap(end)(rates), alone, rtol=1e-12)


# What every optimizer can
# -----------------------------------------------------------------------------------------------


@given(cut=st.integers(1, 59))
def test_runs_that_were_cut_go_on_as_if_not(cut):
    (x, y), state = data(), network()
    problem = ln.regression(x, y, average=True)
    for optimizer in (
        ln.optim.SGD(0.01, batches=ln.optim.MiniBatch(5)),
        ln.optim.Adam(0.01),
        ln.optim.Muon(0.01, ns_steps=2, weight_decay=0.0, adjust_lr_fn="none"),
    ):
        whole = ln.simulate(problem, state, optimizer, steps=60, key=KEY)
        begun = ln.simulate(problem, state, optimizer, steps=cut, key=KEY)
        done = ln.simulate(problem, state, optimizer, steps=60 - cut, key=KEY, resume_from=begun)
        assert jnp.array_equal(done["loss"], whole["loss"])


def test_memories_of_optimizers_are_saved(tmp_path):
    (x, y), state = data(), network()
    problem = ln.regression(x, y, average=True)
    for optimizer in (ln.optim.SGD(0.01), ln.optim.Adam(0.01), ln.optim.SGD(0.01, batches=ln.optim.MiniBatch(5))):
        run = ln.simulate(problem, state, optimizer, steps=20, key=KEY)
        run.save(tmp_path / "run.zarr")
        again = ln.load(tmp_path / "run.zarr")
        one, other = (
            ln.simulate(problem, state, optimizer, steps=5, key=KEY, resume_from=r)["loss"] for r in (run, again)
        )
        assert jnp.array_equal(one, other)


def test_momentum_can_be_differentiated():
    (x, y), state = data(), network()
    problem = ln.regression(x, y, average=True)

    def end(lr, back):
        return ln.simulate(problem, state, ln.optim.SGD(lr, 0.9), steps=30, differentiable=back)["loss"][-1]

    slope = (end(0.01 + 1e-6, False) - end(0.01 - 1e-6, False)) / 2e-6
    np.testing.assert_allclose(jax.grad(lambda lr: end(lr, True))(0.01), slope, rtol=1e-6)
    np.testing.assert_allclose(jax.jvp(lambda lr: end(lr, False), (0.01,), (1.0,))[1], slope, rtol=1e-6)


def test_adaptive_sharpness_is_the_hessian_in_adams_metric():
    (x, y), state = data(), network()
    problem, optimizer = ln.regression(x, y, average=True), ln.optim.Adam(0.01)
    run = ln.simulate(
        problem, state, optimizer, steps=7, observe=["adaptive_sharpness", "loss"], checkpoint="highest loss"
    )
    assert np.isnan(run["adaptive_sharpness"][0])
    second = [np.zeros(w.shape) for w in state.layers]
    now = state
    for k in range(7):
        gradient = [np.asarray(g) for g in now.velocity(problem).layers]
        second = [0.999 * v + 0.001 * g**2 for v, g in zip(second, gradient, strict=True)]
        now = ln.simulate(problem, state, optimizer, steps=k + 1).final
    scale = np.concatenate([np.sqrt(v / (1 - 0.999**7)).ravel() + 1e-8 for v in second])
    hessian = np.asarray(ln.observe.hessian_matrix(now, problem))
    top = np.linalg.eigvals(hessian / scale[:, None]).real.max()
    np.testing.assert_allclose(run["adaptive_sharpness"][-1], top, rtol=1e-9)
    plain = ln.simulate(problem, state, ln.optim.SGD(0.01), steps=3, observe=["adaptive_sharpness", "sharpness"])
    np.testing.assert_allclose(plain["adaptive_sharpness"], plain["sharpness"], rtol=1e-12)
    with pytest.raises(ln.InputError, match="Muon has no preconditioner"):
        ln.simulate(
            problem,
            state,
            ln.optim.Muon(0.01, weight_decay=0.0, ns_steps=None, adjust_lr_fn="none"),
            steps=3,
            observe=["adaptive_sharpness"],
        )
    with pytest.raises(ln.InputError, match="observe it in simulate"):
        ln.observe.adaptive_sharpness(state, problem)


# Flows ---------------------------------------------------------------------------------------------------------------


def test_imbalance_fades_in_a_flow_with_decay():
    (x, y), state = data(), network()
    end = ln.simulate(ln.regression(x, y, average=True), state, ln.optim.GradientFlow(weight_decay=0.3), time=2.0).final
    for before, after in zip(state.imbalance(), end.imbalance(), strict=True):
        np.testing.assert_allclose(after, np.exp(-2 * 0.3 * 2.0) * before, rtol=0, atol=1e-9)


def test_rates_of_layers_rescale_a_flow():
    """W_l = sqrt(r_l) V_l: layers with rates r_l on C are layers V_l with rate 1 on C of the rescaled product."""
    (x, y), state, rates = data(), network((4, 6, 3)), (2.0, 0.5)
    ours = ln.simulate(
        ln.regression(x, y, average=True),
        state,
        ln.optim.GradientFlow(lr_multipliers=rates),
        time=1.0,
        observe=["matrix"],
    )
    scaled = ln.Weights([w / np.sqrt(r) for w, r in zip(state.layers, rates, strict=True)])
    factor = np.sqrt(np.prod(rates))
    problem = ln.regression(x, y, average=True, output_scale=factor)
    other = ln.simulate(problem, scaled, ln.optim.GradientFlow(), time=1.0, observe=["matrix"])
    np.testing.assert_allclose(ours["matrix"], factor * other["matrix"], rtol=0, atol=1e-9)


def test_inertial_flow_solves_its_equation():
    """One layer is a damped oscillator in each direction, with a solution that everybody knows."""
    problem, friction = ln.factorization([[0.0, 0.0]]), 0.4
    state, optimizer = ln.Weights([[[1.0, -2.0]]]), ln.optim.InertialFlow(friction, velocity=ln.Weights([[[0.5, 0.0]]]))
    run = ln.simulate(problem, state, optimizer, time=9.0, observe=["matrix"])
    omega, t = np.sqrt(1 - friction**2 / 4), np.asarray(run.times)[:, None]
    a, b = np.array([[1.0, -2.0]]), np.array([[0.5, 0.0]])
    swing = a * np.cos(omega * t) + (b + friction * a / 2) / omega * np.sin(omega * t)
    solution = np.exp(-friction * t / 2) * swing
    np.testing.assert_allclose(run["matrix"][:, 0], solution, atol=1e-8)
    begun = ln.simulate(problem, state, optimizer, time=4.0, record=ln.record.linear(3), observe=["matrix"])
    done = ln.simulate(
        problem, state, optimizer, time=5.0, record=ln.record.linear(2), observe=["matrix"], resume_from=begun
    )
    np.testing.assert_allclose(done["matrix"][-1, 0], solution[-1], atol=1e-8)


def test_the_heavy_ball_follows_the_inertial_flow():
    (x, y), state = data(), network()
    problem, friction = ln.regression(x, y, average=True), 1.5
    end = ln.simulate(problem, state, ln.optim.InertialFlow(friction), time=2.0).final.matrix
    errors = []
    for step in (0.02, 0.01):
        optimizer = ln.optim.SGD(step**2, 1 - friction * step)
        errors.append(np.abs(ln.simulate(problem, state, optimizer, steps=round(2 / step)).final.matrix - end).max())
    assert 1.8 < errors[0] / errors[1] < 2.2


def test_flows_that_cannot_be_are_refused():
    problem = ln.factorization(np.eye(2))
    closed, state = ln.EndToEnd(0.1 * np.eye(2), ln.states.Mixed(0.1)), network((2, 3, 2))
    with pytest.raises(ln.InputError, match="EndToEnd has no weights for weight_decay or lr_multipliers"):
        ln.simulate(problem, closed, ln.optim.GradientFlow(weight_decay=0.1), time=1.0)
    with pytest.raises(ln.InputError, match="EndToEnd has no weights that could have inertia"):
        ln.simulate(problem, closed, ln.optim.InertialFlow(0.1), time=1.0)
    with pytest.raises(ln.InputError, match="velocity is a Weights of shapes"):
        ln.simulate(problem, state, ln.optim.InertialFlow(0.1, velocity=network((2, 2))), time=1.0)
    with pytest.raises(ln.InputError, match="lr_multipliers = "):
        ln.optim.GradientFlow(lr_multipliers=(1, -1))


def test_runs_on_a_cost_of_ones_own_go_on_too():
    """A problem may hold a function, which is no array."""
    problem = ln.custom(lambda a: jnp.sum((a - 1) ** 2), (2, 2))
    state, optimizer = network((2, 3, 2)), ln.optim.SGD(0.01)
    begun = ln.simulate(problem, state, optimizer, steps=5)
    done = ln.simulate(problem, state, optimizer, steps=5, resume_from=begun)
    assert jnp.array_equal(done["loss"], ln.simulate(problem, state, optimizer, steps=10)["loss"])


def test_schedules_keep_single_precision():
    (x, y), state = data(), ln.states.cast(network(), jnp.float32)
    problem = ln.regression(x, y, average=True)
    for optimizer in (ln.optim.SGD(optax.linear_schedule(0.05, 0.0, 50)), ln.optim.SGD(lambda k: jnp.asarray(0.01))):
        run = ln.simulate(problem, state, optimizer, steps=50)
        assert run.final.layers[0].dtype == jnp.float32
        assert run["loss"][-1] < run["loss"][0]


def test_networks_that_come_from_compressed_ones_are_compressed():
    x, y = data()
    problem = ln.regression(x, y, average=True)
    small = ln.init.gaussian(KEY, problem, 100, 0.1)
    phi = ln.init.propagator(problem)
    for other in (ln.init.gauge(KEY, small, spread=2.0), small.propagated(phi), small.compress()):
        assert other.compressed
    full = network((4, 20, 3))
    assert full.compress().compressed
    assert not full.compress().expand(full).compressed
    assert not network((4, 2, 3)).compress().compressed  # nothing was cut


def test_a_motion_may_make_its_states_anew():
    """Weights that a user's step builds have no mark; those of a compressed start keep it."""

    class Plain(ln.optim.DiscreteDynamics):
        def time(self, clock):
            return clock

        def step(self, problem, state, memory, prepared, key):
            moved = state.descend(problem, 0.1)
            return ln.Weights(moved.layers), memory

    problem = ln.factorization(np.diag([2.0, 1.0]))
    start = ln.init.gaussian(KEY, problem, 100, 0.01)
    run = ln.simulate(problem, start, Plain(), steps=30)
    assert run.final.compressed
    assert jnp.array_equal(run["loss"], ln.simulate(problem, start, ln.optim.SGD(0.1), steps=30)["loss"])


def test_the_velocity_of_a_flow_does_not_move_samples():
    x, y = data()
    state = ln.states.ReluNetwork(np.ones((5, 4)), np.ones((3, 5)), x)
    optimizer = ln.optim.InertialFlow(1.0, velocity=ln.states.ReluNetwork(np.ones((5, 4)), np.ones((3, 5)), x))
    assert jnp.array_equal(ln.simulate(ln.factorization(y.T), state, optimizer, time=0.01).final.inputs, x)


def test_muon_trains_a_network_whose_arrays_are_all_matrices():
    x, y = data()
    problem, optimizer = ln.supervised(y), ln.optim.Muon(0.02, weight_decay=0.0)
    run = ln.simulate(problem, ln.networks.mlp(KEY, x, (8, 3)), optimizer, steps=60)
    assert run["loss"][-1] < 0.5 * run["loss"][0]
    with pytest.raises(ln.InputError, match=r"trains an array of shape \(8,\), and Muon moves matrices only"):
        ln.simulate(problem, ln.networks.mlp(KEY, x, (8, 3), bias=True), optimizer, steps=2)
