"""Curvature as the probe sees it: Linnet's own networks, and dense Hessians."""

import jax
import numpy as np
import pytest
import torch

import linnet as ln
from linnet.probe import Probe
from linnet.probe.lanczos import ends
from linnet.probe.surface import Surface

TYPES = {torch.float32: 1e-5, torch.float64: 1e-9}


def mse(model, batch):
    return torch.nn.functional.mse_loss(model(batch[0]), batch[1])


def twins(dtype, widths=(12, 10, 3), activation="tanh", n=40):
    """The same network on the same samples in JAX and in PyTorch."""
    rng = np.random.default_rng(4)
    kind = {torch.float32: np.float32, torch.float64: np.float64}[dtype]
    x, y = rng.normal(size=(n, 6)).astype(kind), rng.normal(size=(n, widths[-1])).astype(kind)
    network = ln.networks.mlp(jax.random.key(3), x, widths, activation=activation, scale=1.5, bias=True)
    linear = {"tanh": torch.nn.Tanh, "gelu": lambda: torch.nn.GELU("tanh")}[activation]
    parts = []
    for below, above in zip((6, *widths), widths, strict=False):
        parts += [linear()] * bool(parts) + [torch.nn.Linear(below, above, dtype=dtype)]
    model = torch.nn.Sequential(*parts)
    own = [layer for layer in network.module.layers if hasattr(layer, "weight")]
    with torch.no_grad():
        for layer, twin in zip([part for part in model if hasattr(part, "weight")], own, strict=True):
            layer.weight.copy_(torch.tensor(np.array(twin.weight)))
            layer.bias.copy_(torch.tensor(np.array(twin.bias)))
    return network, model, x, y


def dense(model, batch):
    """The whole Hessian, by twice the reverse mode of torch.func."""
    names = [name for name, weight in model.named_parameters() if weight.requires_grad]
    weights = dict(model.named_parameters())
    sizes, shapes = [weights[n].numel() for n in names], [weights[n].shape for n in names]
    held = {name: value.detach() for name, value in (*model.named_parameters(), *model.named_buffers())}

    def loss(flat):
        parts = {n: p.reshape(s) for n, p, s in zip(names, flat.split(sizes), shapes, strict=True)}
        outputs = torch.func.functional_call(model, held | parts, (batch[0],))
        return torch.nn.functional.mse_loss(outputs, batch[1])

    flat = torch.cat([weights[n].detach().reshape(-1) for n in names])
    return torch.func.jacrev(torch.func.jacrev(loss))(flat)


@pytest.mark.parametrize("activation", ["tanh", "gelu"])
@pytest.mark.parametrize("dtype", TYPES)
def test_the_largest_eigenvalues_are_those_of_linnets_own_network(dtype, activation):
    network, model, x, y = twins(dtype, activation=activation)
    problem = ln.supervised(y)
    run = ln.simulate(
        problem,
        network,
        ln.optim.SGD(0.1),
        steps=1,
        observe={"all": ln.observe.hessian_spectrum, "top": ln.observe.sharpness},
    )
    spectrum, top = np.asarray(run["all"][0]), float(run["top"][0])
    cost = float(problem.cost(network.matrix))
    batch = (torch.tensor(x), torch.tensor(y))
    probe = Probe(model, mse, batch, eigenvalues=5, tol=1e-8, matvecs=150, every=2)
    probe.update(0)
    (measurement,) = probe.record.measurements
    tol = TYPES[dtype]
    assert measurement["batch_loss"] == pytest.approx(cost, rel=tol)
    np.testing.assert_allclose(measurement["sharpness"], spectrum[:5], rtol=tol)
    assert measurement["sharpness"][0] == pytest.approx(top, rel=tol)
    assert all(0 < residual < 1e-4 * measurement["sharpness"][0] for residual in measurement["residual"])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("matvecs", [3, 8, 20, 60])
def test_a_residual_is_a_bound(dtype, matvecs):
    _, model, x, y = twins(dtype)
    batch = (torch.tensor(x), torch.tensor(y))
    model[0].requires_grad_(False)  # frozen parts have no curvature
    exact = torch.linalg.eigvalsh(dense(model.double(), tuple(part.double() for part in batch)))
    model.to(dtype)
    probe = Probe(model, mse, batch, tol=1e-9, matvecs=matvecs, every=2)
    for step in range(4):
        probe.update(step)
    for measurement in probe.record.measurements:
        assert measurement["products"] <= matvecs
        for value, residual in zip(measurement["sharpness"], measurement["residual"], strict=True):
            assert float((exact - value).abs().min()) <= residual  # some eigenvalue is so near
        assert measurement["lowest"] >= float(exact[0]) - 1e-5 * float(exact[-1])


def test_products_and_gradients_are_exact():
    _, model, x, y = twins(torch.float64)
    batch = (torch.tensor(x), torch.tensor(y))
    point = Surface(model, mse, batch).here()
    matrix = dense(model, batch)
    direction = torch.randn(len(matrix), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(point.product(direction), matrix @ direction, rtol=1e-11, atol=1e-12)
    loss = mse(model, batch)
    gradient = torch.autograd.grad(loss, list(model.parameters()))
    torch.testing.assert_close(point.gradient, torch.cat([g.reshape(-1) for g in gradient]), rtol=1e-12, atol=1e-14)
    assert point.loss == pytest.approx(float(loss.detach()), rel=1e-14)


@pytest.mark.parametrize("size", [1, 2, 7, 40])
def test_lanczos_finds_the_ends_of_any_symmetric_matrix(size):
    rng = torch.Generator().manual_seed(size)
    matrix = torch.randn((size, size), generator=rng, dtype=torch.float64)
    matrix = matrix + matrix.T
    exact = torch.linalg.eigvalsh(matrix).flip(0)
    start = torch.randn(size, generator=rng, dtype=torch.float64)
    found = ends(lambda v: matrix @ v, start, good=min(3, size), count=3, matvecs=80, tol=1e-9)
    torch.testing.assert_close(found.values, exact[:3], rtol=1e-10, atol=1e-10)
    residual = torch.linalg.vector_norm(matrix @ found.vector - found.values[0] * found.vector)
    assert float(residual) <= float(found.residuals[0])
    assert found.products <= size


def test_millions_of_parameters_lose_nothing_in_single_precision():
    """Norms and products summed in single precision were wrong by a thousandth, and eigenvalues by a hundredth."""
    size = 3_000_000
    curvature = torch.linspace(-1, 1, size)
    curvature[5], curvature[size // 2] = 3.0, 2.0
    start = torch.randn(size, generator=torch.Generator().manual_seed(0))
    start[5] = start[size // 2] = 100.0
    found = ends(lambda v: curvature * v, start, good=2, count=2, matvecs=12, tol=1e-4)
    assert found.values.tolist() == pytest.approx([3.0, 2.0], rel=3e-6)
    assert float((found.values - torch.tensor([3.0, 2.0])).abs().max()) <= float(found.residuals.min())
    assert float(found.vector.double().norm()) == pytest.approx(1, rel=1e-6)


def test_lanczos_stops_where_the_krylov_space_ends():
    found = ends(lambda v: 2 * v, torch.ones(30), good=1, count=5, matvecs=20, tol=1e-3)
    assert (found.products, found.values.tolist()) == (1, [pytest.approx(2.0)])
    flat = ends(torch.zeros_like, torch.zeros(30), good=1, count=5, matvecs=20, tol=1e-3)
    assert (flat.products, flat.values.tolist(), flat.lowest) == (1, [0.0], 0.0)


def test_an_eigenvalue_that_overtakes_is_found():
    """Two parts that do not touch each other; the sharper one changes between measurements."""

    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = (torch.nn.Parameter(torch.linspace(0.1, 1, 20)) for _ in range(2))
            self.weigh = torch.tensor([9.0, 1.0])

    def loss(model, batch):
        return model.weigh[0] * (batch * model.a**2).sum() + model.weigh[1] * (batch * model.b**2).sum()

    model, batch = Two(), torch.linspace(0.5, 1, 20)
    probe = Probe(model, loss, batch, every=2)
    for step in range(2):
        probe.update(step)
    assert probe.record.measurements[-1]["sharpness"][0] == pytest.approx(18, rel=1e-4)
    model.weigh = torch.tensor([1.0, 9.5])
    for step in range(2, 4):
        probe.update(step)
    assert probe.record.measurements[-1]["sharpness"][0] == pytest.approx(19, rel=1e-4)


@pytest.mark.parametrize("kind", ["sgd", "momentum", "nesterov", "adam", "adamw", "amsgrad", "rates"])
def test_the_threshold_is_the_optimizers(kind):
    _, model, x, y = twins(torch.float64)
    batch = (torch.tensor(x), torch.tensor(y))
    weights = list(model.parameters())
    groups = [{"params": weights[:2], "lr": 0.02}, {"params": weights[2:], "lr": 0.08}]
    optimizer = {
        "sgd": lambda: torch.optim.SGD(weights, 0.1),
        "momentum": lambda: torch.optim.SGD(weights, 0.1, momentum=0.9),
        "nesterov": lambda: torch.optim.SGD(weights, 0.1, momentum=0.9, nesterov=True),
        "adam": lambda: torch.optim.Adam(weights, 0.01),
        "adamw": lambda: torch.optim.AdamW(weights, 0.01),
        "amsgrad": lambda: torch.optim.Adam(weights, 0.01, amsgrad=True),
        "rates": lambda: torch.optim.SGD(groups),
    }[kind]()
    limit = {"sgd": 20, "momentum": 38, "nesterov": 38 / 2.8, "rates": 25}.get(kind, 3800)
    probe = Probe(model, mse, batch, optimizer=optimizer, every=2, tol=1e-6)
    for step in range(2):
        loss = mse(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        probe.update(step)
    measurement, matrix = probe.record.measurements[-1], dense(model, batch)
    assert measurement["threshold"] == pytest.approx(limit)
    if kind in ("sgd", "momentum", "nesterov"):
        assert "adaptive" not in measurement
        assert measurement["ratio"] == pytest.approx(float(torch.linalg.eigvalsh(matrix)[-1]) / limit, rel=1e-8)
        return
    if kind == "rates":
        scale = torch.cat([torch.full((w.numel(),), 0.25 if i < 2 else 1.0) for i, w in enumerate(weights)]).double()
    else:  # as Adam divides: its own update without momentum
        found = []
        for weight in weights:
            state = optimizer.state[weight]
            square = state["max_exp_avg_sq" if kind == "amsgrad" else "exp_avg_sq"] / (1 - 0.999 ** int(state["step"]))
            found.append(1 / (square.sqrt() + 1e-8).reshape(-1))
        scale = torch.cat(found)
    exact = torch.linalg.eigvals(scale[:, None] * matrix).real.max()  # P^{-1} H: the same eigenvalues
    exact += 19 * 0.01 * (kind == "adamw")  # its default decay d is d (1 + b)/(1 - b) in these units
    assert abs(measurement["adaptive"] - float(exact)) <= measurement["adaptive_residual"]
    assert measurement["ratio"] == pytest.approx(float(exact) / limit, rel=1e-5)


def quadratic(curvatures):
    """A model whose loss is the quadratic with these curvatures."""
    model = torch.nn.Linear(len(curvatures), 1, bias=False).double()
    model.weight.data = torch.ones_like(model.weight)
    return model, lambda model, batch: (batch * model.weight[0] ** 2).sum() / 2, torch.tensor(curvatures).double()


DECAYED = {
    "sgd": lambda w, lr: torch.optim.SGD(w, lr, weight_decay=1.0),
    "dampened": lambda w, lr: torch.optim.SGD(w, lr, momentum=0.8, dampening=0.3, weight_decay=0.5),
    "nesterov": lambda w, lr: torch.optim.SGD(w, lr, momentum=0.8, nesterov=True, weight_decay=0.5),
    "groups": lambda w, lr: torch.optim.SGD([{"params": w, "weight_decay": 0.5, "lr": lr / 4}], lr),
}


@pytest.mark.parametrize("kind", DECAYED)
def test_the_edge_is_where_descent_with_decay_and_dampening_diverges(kind):
    """From just below the lr at which the ratio is 1 weights shrink, from just above they grow."""
    ratios = []
    for lr in (0.1, None, None):
        if lr is None:  # lr in proportion to the ratio, 2 % below and above 1
            lr = 0.1 / ratios[0] * (0.98 if len(ratios) == 1 else 1.02)
        model, loss_fn, batch = quadratic([3.5, 1.0])
        optimizer = DECAYED[kind](list(model.parameters()), lr)
        probe = Probe(model, loss_fn, batch, optimizer=optimizer, every=2)
        probe.update(0)
        ratios.append(probe.record.measurements[0]["ratio"])
        for _ in range(1000):
            optimizer.zero_grad()
            loss_fn(model, batch).backward()
            optimizer.step()
        if len(ratios) > 1:
            assert ratios[-1] == pytest.approx(0.98 if len(ratios) == 2 else 1.02)
            assert (float(model.weight.detach().norm()) > 1) is (ratios[-1] > 1)


def test_decay_alone_can_be_above_the_edge():
    model, loss_fn, batch = quadratic([3.5])
    probe = Probe(model, loss_fn, batch, optimizer=torch.optim.SGD(model.parameters(), 0.5, weight_decay=1.0), every=2)
    probe.update(0)
    assert probe.record.measurements[0]["ratio"] == pytest.approx(1.125)  # the step multiplies by -1.25
    first, second = probe.verdict()[:2]
    assert first.startswith("Above the edge: the curvature is 1.12 of its threshold (step 0).")
    assert second.startswith("Curvature above its threshold: sharpness 3.5 ±")
    assert "+ weight decay 1 against 4 at lr 0.5" in second


@pytest.mark.parametrize("decoupled", [False, True])
def test_decay_of_some_weights_enters_the_edge_of_adam(decoupled):
    """Against the top eigenvalue of the frozen step's own matrix at -1."""
    _, model, x, y = twins(torch.float64)
    batch, weights = (torch.tensor(x), torch.tensor(y)), list(model.parameters())
    groups = [{"params": weights[:2], "weight_decay": 3.0}, {"params": weights[2:], "weight_decay": 0.0}]
    optimizer = (torch.optim.AdamW if decoupled else torch.optim.Adam)(groups, 0.01)
    probe = Probe(model, mse, batch, optimizer=optimizer, every=2, tol=1e-6)
    for step in range(2):
        optimizer.zero_grad()
        mse(model, batch).backward()
        optimizer.step()
        probe.update(step)
    square = [optimizer.state[w]["exp_avg_sq"] / (1 - 0.999**2) for w in weights]
    p = torch.cat([(v.sqrt() + 1e-8).reshape(-1) for v in square])
    mu = torch.cat([torch.full((w.numel(),), 3.0 if i < 2 else 0.0) for i, w in enumerate(weights)]).double()
    matrix, gain = dense(model, batch), 0.1 / 1.9
    # w_{k+1} = -w_k: 2 w = lr gain (H w + m w) / P + lr d w
    inner, beside = (0, mu) if decoupled else (torch.diag(mu), 0 * mu)
    step = 0.01 * gain * (matrix + inner) / p[:, None] + torch.diag(0.01 * beside)
    assert probe.record.measurements[-1]["ratio"] == pytest.approx(float(torch.linalg.eigvals(step).real.max()) / 2)


@pytest.mark.parametrize("kind", ["rprop", "uphill"])
def test_an_optimizer_that_is_not_understood_has_no_edge(kind):
    _, model, x, y = twins(torch.float32)
    optimizer = {
        "rprop": lambda: torch.optim.Rprop(model.parameters()),
        "uphill": lambda: torch.optim.SGD(model.parameters(), 0.1, maximize=True),
    }[kind]()
    probe = Probe(model, mse, (torch.tensor(x), torch.tensor(y)), optimizer=optimizer, every=2)
    probe.update(0)
    assert "ratio" not in probe.record.measurements[0]
    words = "There is no stability threshold to compare it with", "has no stability threshold: "
    assert any(one in probe.verdict()[1] for one in words)


@pytest.mark.parametrize("adaptive", [False, True])
def test_differences_of_gradients_give_the_same_curvature(adaptive):
    _, model, x, y = twins(torch.float64)
    batch, weights = (torch.tensor(x), torch.tensor(y)), list(model.parameters())
    optimizer = torch.optim.AdamW(weights, 0.01) if adaptive else torch.optim.SGD(weights, 0.05)
    probes = [
        Probe(model, mse, batch, optimizer=optimizer, every=2, products=products)
        for products in ("exact", "differences")
    ]
    for step in range(2):
        optimizer.zero_grad()
        mse(model, batch).backward()
        optimizer.step()
        for probe in probes:
            probe.update(step)
    exact, found = (probe.record.measurements[-1] for probe in probes)
    assert abs(found["sharpness"][0] - exact["sharpness"][0]) <= found["residual"][0] + exact["residual"][0]
    assert found["sharpness"][0] == pytest.approx(exact["sharpness"][0], rel=0.02)
    assert found["change"] < 1e-3
    assert found["threshold"] == exact["threshold"]
    if adaptive:
        assert 0 < found["fresh"] < 2  # searched on five parts of the batch, and found on three others
    else:
        assert found["ratio"] == pytest.approx(exact["ratio"], rel=0.02)
    assert probes[1].record.pairs == []


def test_an_embedding_is_held_constant_for_an_adaptive_optimizer():
    """A token that is in one sample alone has so small a P that it would be the sharpest direction."""
    torch.manual_seed(0)
    tokens, target = torch.randint(9, (24, 3)), torch.randn(24, 2)
    tokens[0, 0] = 9
    model = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Flatten(), torch.nn.Linear(12, 2))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    probe = Probe(model, mse, (tokens, target), optimizer=optimizer, every=2)
    for step in range(2):
        optimizer.zero_grad()
        mse(model, (tokens, target)).backward()
        optimizer.step()
        probe.update(step)
    matrix = dense(model, (tokens, target)).double()
    kept = torch.arange(len(matrix)) >= 40
    squares = [optimizer.state[w]["exp_avg_sq"] / (1 - 0.999**2) for w in model.parameters()]
    root = torch.cat([square.sqrt().add(1e-8).reshape(-1) for square in squares]).double().sqrt()
    scaled = (matrix / root.outer(root))[kept][:, kept]
    exact = float(torch.linalg.eigvalsh(scaled)[-1])
    assert probe.record.measurements[-1]["adaptive"] == pytest.approx(exact, rel=0.01)
