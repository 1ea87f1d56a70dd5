"""What a newcomer types first, from the habits of PyTorch and optax, works as typed."""

import jax
import numpy as np
import pytest

import linnet as ln


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 4))
    return x, x @ rng.normal(size=(4, 3)) + 0.1 * rng.normal(size=(50, 3))


@pytest.fixture(scope="module")
def problem(samples):
    return ln.regression(*samples, average=True)


@pytest.fixture(scope="module")
def network():
    rng = np.random.default_rng(1)
    return ln.Weights([0.3 * rng.normal(size=(8, 4)), 0.3 * rng.normal(size=(3, 8))])


def test_a_problem_from_arrays(samples):
    x, y = samples
    problem = ln.regression(x, y)
    assert problem.shape == (3, 4)
    assert ln.regression(x.tolist(), y.tolist()).shape == (3, 4)
    assert ln.regression(x, y[:, 0]).shape == (1, 4)  # labels as a vector
    assert ln.factorization(np.diag([3.0, 1.0])).shape == (2, 2)


def test_own_weights(problem):
    rng = np.random.default_rng(2)
    network = ln.Weights([rng.normal(size=(5, 4)), rng.normal(size=(6, 5)), rng.normal(size=(3, 6))])
    assert network.matrix.shape == problem.shape
    assert network.depth == 3


def test_a_run(problem, network):
    run = ln.simulate(problem, network, ln.optim.SGD(lr=0.1), steps=200)
    assert run.status == "horizon"
    assert isinstance(run.final, ln.Weights)


def test_a_curve(problem, network):
    run = ln.simulate(problem, network, ln.optim.SGD(lr=0.1), steps=200, observe=["loss", "sharpness"])
    loss = np.asarray(run["loss"])
    assert loss.shape == (201,)
    assert loss[-1] < 0.1 * loss[0]
    assert list(run.values) == ["loss", "sharpness"]
    assert run.to_xarray()["loss"].sel(step=200) == loss[-1]


def test_momentum_and_weight_decay_are_torchs(problem, network, samples):
    torch = pytest.importorskip("torch")
    x, y = (torch.tensor(part) for part in samples)
    layers = [torch.tensor(np.asarray(w), requires_grad=True) for w in network.layers]
    how = {"momentum": 0.9, "dampening": 0.2, "weight_decay": 1e-2}
    theirs = torch.optim.SGD(layers, lr=0.05, **how)
    for _ in range(100):
        theirs.zero_grad()
        (0.5 * ((x @ layers[0].T @ layers[1].T - y) ** 2).sum(1).mean()).backward()
        theirs.step()
    ours = ln.simulate(problem, network, ln.optim.SGD(lr=0.05, **how), steps=100).final
    for one, other in zip(ours.layers, layers, strict=True):
        np.testing.assert_allclose(one, other.detach().numpy(), rtol=1e-10)


def test_adam_on_a_wide_network(problem):
    key = jax.random.key(0)
    wide = ln.init.gaussian(key, problem, (512,), 1 / 512)
    optimizer = ln.optim.Adam(lr=1e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=1e-4)
    run = ln.simulate(problem, wide, optimizer, steps=300)
    assert run["loss"][-1] < 0.05 * run["loss"][0]
    compressed = ln.init.gaussian(key, problem, 512, 1 / 512)  # SGD on it is exact, Adam would not be
    with pytest.raises(ln.InputError, match="compressed"):
        ln.simulate(problem, compressed, optimizer, steps=3)


def test_a_prediction_of_the_triple(problem, network):
    prediction = ln.predict(problem, network, ln.optim.SGD(0.1))
    assert prediction.outcome == "converges"
    assert prediction["largest_stable_lr"].source.claims
    assert 0 < prediction.learned.step < 1000
    assert "lr" in str(prediction)
    assert set(prediction.to_dict()) >= {"largest_stable_lr", "learned", "modes", "sources"}


def test_a_comparison_with_a_run(problem, network):
    prediction = ln.predict(problem, network, ln.optim.SGD(0.1))
    measured = prediction.measure()
    assert measured.learned.step == pytest.approx(prediction.learned.step, rel=0.02)
    run = ln.simulate(problem, network, ln.optim.SGD(0.1), steps=1000, observe=["loss", "matrix"])
    assert prediction.compare(run).learned.step == pytest.approx(measured.learned.step, rel=0.02)


def test_networks_drawn_at_random(problem):
    key = jax.random.key(0)
    for network in (
        ln.init.gaussian(key, problem, width=64, variance=1e-2),
        ln.init.gaussian(key, problem, width=(64, 32), variance=1e-2),
        ln.init.i_gamma(problem, gamma=0.1),
        ln.init.lambda_balanced(key, problem, width=3, lam=-0.1),
    ):
        run = ln.simulate(problem, network, ln.optim.SGD(1e-3), steps=5, observe="sharpness")
        assert run["sharpness"].shape == (6,)


def test_the_arguments_of_sgd_are_those_of_torch_in_order(problem, network):
    same = ln.optim.SGD(0.05, 0.9, 0.2, 1e-2), ln.optim.SGD(lr=0.05, momentum=0.9, dampening=0.2, weight_decay=1e-2)
    first, second = (ln.simulate(problem, network, optimizer, steps=20)["loss"] for optimizer in same)
    np.testing.assert_array_equal(first, second)


def test_sharpness(problem, network):
    sharpness = float(ln.observe.sharpness(network, problem))
    hessian = jax.hessian(lambda layers: problem.cost(layers[1] @ layers[0]))(tuple(map(np.asarray, network.layers)))
    sizes = [w.size for w in network.layers]
    dense = np.block([[np.asarray(hessian[i][j]).reshape(sizes[i], sizes[j]) for j in range(2)] for i in range(2)])
    assert sharpness == pytest.approx(np.linalg.eigvalsh(dense)[-1], rel=1e-9)


def test_save_and_load(problem, network, tmp_path):
    run = ln.simulate(problem, network, ln.optim.SGD(0.1), steps=20)
    run.save(tmp_path / "run.zarr")
    again = ln.load(tmp_path / "run.zarr")
    np.testing.assert_array_equal(again["loss"], run["loss"])
    np.testing.assert_array_equal(again.final.matrix, run.final.matrix)
