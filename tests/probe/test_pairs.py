"""What two-layer theory tells of pairs of factors from their start, held against trainings."""

import math

import pytest

torch = pytest.importorskip("torch")

from adapted import Adapted, adapted_net  # noqa: E402

from linnet.probe import Probe, dataset, read  # noqa: E402
from linnet.probe.layers import layers_of, singular_values  # noqa: E402
from linnet.probe.pairs import predicted  # noqa: E402
from linnet.probe.surface import Surface  # noqa: E402


def squares(model, batch):
    return ((model(batch[0]) - batch[1]) ** 2).sum() / (2 * len(batch[0]))


def two_layers(seed, width, first, second, target=2.0, curvature=1.7, d_in=5, d_out=3):
    """Two linear layers on white inputs, Y of rank 1; first and second are what their matrices are multiplied by."""
    draw = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=draw, dtype=torch.float64)  # noqa: E731
    model = torch.nn.Sequential(
        torch.nn.Linear(d_in, width, bias=False), torch.nn.Linear(width, d_out, bias=False)
    ).double()
    model[0].weight.data, model[1].weight.data = first * normal(width, d_in), second * normal(d_out, width)
    x = math.sqrt(40 * curvature) * torch.linalg.qr(normal(40, d_in))[0]
    u, v = (vector / vector.norm() for vector in (normal(d_out), normal(d_in)))
    return model, (x, target * x @ torch.outer(v, u))


def heavy(model, size):
    """W_1 W_1^T or W_1^T W_1 a multiple of the identity, W_2 = 0."""
    weight = model[0].weight.data
    u, _, v = torch.linalg.svd(weight, full_matrices=False)
    model[0].weight.data, model[1].weight.data = size * u @ v, torch.zeros_like(model[1].weight)


def descend(model, batch, lr, steps=4000):
    for step in range(steps):
        loss = squares(model, batch)
        if not 1e-22 < float(loss.detach()) < 1e10:
            return step
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for weight, gradient in zip(model.parameters(), gradients, strict=True):
                weight -= lr * gradient
    return steps


def predicted_pairs(model, batch, loss=squares, matvecs=60, **options):
    probe = Probe(model, loss, batch, lr=0.01, every=2, matvecs=matvecs, **options)
    probe.update(0)
    return probe, probe.record.pairs


def block(model, batch):
    """The dense Hessian in all parameters."""
    surface = Surface(model, squares, batch)
    point = surface.here()
    return torch.stack([point.product(row) for row in torch.eye(len(point.gradient), dtype=torch.float64)])


# White inputs: all of it is exact ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "size", "target", "regime"),
    [(5, 4.0, 2.0, "lazy"), (7, 1.0, 2.0, "mixed"), (5, 0.3, 2.0, "rich"), (9, 0.02, 0.5, "rich")],
)
def test_the_end_is_as_predicted(width, size, target, regime):
    model, batch = two_layers(0, width, 1.0, 1.0, target)
    heavy(model, size)
    probe, (pair,) = predicted_pairs(model, batch)
    assert pair["curvature"] == pytest.approx(1.7, rel=1e-9)
    assert pair["imbalance"] == pytest.approx(size**2 / 2, rel=1e-9)  # |lambda| / 2
    assert pair["end"] == pytest.approx(target, rel=1e-9)
    assert pair["growth"] == pytest.approx(math.sqrt(1 + (2 * target / size**2) ** 2), rel=1e-9)
    assert pair["regime"] == regime
    assert max(pair["assumptions"].values()) < 1e-6
    descend(model, batch, 0.02 * pair["largest_lr"])
    probe.update(1)
    seen = probe.record.measurements[-1]
    assert seen["mode_value"] == [pytest.approx(pair["end"], rel=1e-6)]
    assert seen["mode_growth"] == [pytest.approx(pair["growth"], rel=5e-3)]  # descent is not flow
    assert seen["sharpness"][0] == pytest.approx(pair["sharpness_end"], rel=5e-3)


@pytest.mark.parametrize("size", [0.02, 1.0, 4.0])
def test_the_largest_step_is_the_largest(size):
    """At the largest stable lr of the pair: below it descent ends at the minimum, above it does not stay there."""
    for factor, stays in ((0.97, True), (1.03, False)):
        model, batch = two_layers(1, 5, 1.0, 1.0)
        heavy(model, size)
        _, (pair,) = predicted_pairs(model, batch)
        descend(model, batch, 0.02 * pair["largest_lr"])  # where gradient flow ends
        model[0].weight.data += 1e-6 * torch.randn(
            5, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64
        )
        before = float(squares(model, batch).detach())
        descend(model, batch, factor * pair["largest_lr"], steps=300)
        assert (float(squares(model, batch).detach()) < before) is stays


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_small_random_layers_of_any_width(seed):
    model, batch = two_layers(seed, 4 + seed, 1e-3, 1e-3)
    probe, (pair,) = predicted_pairs(model, batch)
    assert pair["end"] == pytest.approx(2.0, rel=1e-5)
    assert pair["sharpness_end"] == pytest.approx(2 * 1.7 * 2.0, rel=1e-5)
    assert pair["sharpness"] == pytest.approx(1.7 * 2.0, rel=1e-4)  # the saddle's
    assert pair["regime"] == "rich"
    descend(model, batch, 0.1 * pair["largest_lr"])
    probe.update(1)
    seen = probe.record.measurements[-1]
    assert seen["mode_value"] == [pytest.approx(pair["end"], rel=1e-4)]
    assert seen["mode_growth"] == [pytest.approx(pair["growth"], rel=1e-2)]
    assert seen["sharpness"][0] == pytest.approx(pair["sharpness_end"], rel=1e-3)


def test_wide_layers_are_lazy():
    model, batch = two_layers(0, 600, 1.0, 1.0)
    probe, (pair,) = predicted_pairs(model, batch)
    assert pair["regime"] == "lazy"
    descend(model, batch, 0.2 * pair["largest_lr"], steps=300)
    probe.update(1)
    seen = probe.record.measurements[-1]
    assert seen["mode_growth"] == [pytest.approx(pair["growth"], abs=0.02)]
    assert 2 / seen["sharpness"][0] == pytest.approx(pair["largest_lr"], rel=0.1)
    assert "lazy" in " ".join(probe.verdict())


# The block of a pair -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_curvature_and_sharpness_are_those_of_the_block(seed):
    """A pair inside a network that is not linear, with a bias: against the dense Hessian of its own entries."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3), torch.nn.Linear(3, 2)
    ).double()
    batch = torch.randn(30, 4, dtype=torch.float64), torch.randn(30, 2, dtype=torch.float64)
    names = [name for name, _ in model.named_parameters()]
    sizes = [w.numel() for w in model.parameters()]
    own = torch.cat(
        [
            torch.full((size,), name in ("2.weight", "2.bias", "3.weight"))
            for name, size in zip(names, sizes, strict=True)
        ]
    )
    dense = torch.linalg.eigvalsh(block(model, batch)[own][:, own])
    probe, pairs = predicted_pairs(model, batch)
    (pair,) = [pair for pair in pairs if probe.layers[pair["layer"]].name == "2 and 3"]
    assert abs(pair["sharpness"] - float(dense[-1])) <= pair["residual"] + 1e-12
    assert pair["residual"] < 0.1 * pair["sharpness"]
    assert pair["assumptions"]["product"] < 1e-12
    assert pair["reach"] == 1.0
    # along u v^T in the product, by differences of the loss: the first layer can make it alone
    mode = probe._modes[pair["layer"]]
    first, second = probe.layers[pair["layer"]].matrices()
    move = torch.outer(torch.linalg.pinv(second) @ mode.left, mode.right)
    torch.testing.assert_close(second @ move, torch.outer(mode.left, mode.right))
    losses = []
    for h in (-1e-4, 0.0, 1e-4):
        model[2].weight.data, model[2].bias.data = (first + h * move)[:, :-1], (first + h * move)[:, -1]
        losses.append(float(squares(model, batch).detach()))
    assert pair["slope"] == pytest.approx((losses[0] - losses[2]) / 2e-4, rel=1e-5)
    assert pair["curvature"] == pytest.approx((losses[0] - 2 * losses[1] + losses[2]) / 1e-8, rel=1e-5)


def test_heads_of_attention_are_pairs():
    torch.manual_seed(0)
    model = torch.nn.MultiheadAttention(6, 2, batch_first=True).double()
    torch.nn.init.normal_(model.in_proj_bias)
    x = torch.randn(4, 5, 6, dtype=torch.float64)
    loss = lambda model, batch: ((model(batch, batch, batch)[0] - 1) ** 2).mean()  # noqa: E731
    probe, pairs = predicted_pairs(model, x, loss)
    assert len(pairs) == 4
    assert max(pair["assumptions"]["product"] for pair in pairs) < 1e-10
    top = probe.record.measurements[0]["sharpness"][0]
    assert all(pair["sharpness"] <= top * (1 + 1e-3) for pair in pairs)  # no block curves more than the whole


def test_a_loss_that_sees_more_than_the_product():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
    batch = torch.randn(9, 5), torch.randn(9, 3)
    for scale in (1.0, 3.0):
        model[0].weight.data *= scale
    probe, (pair,) = predicted_pairs(model, batch, pairs=[("0.weight", "2.weight")])
    assert pair["assumptions"]["product"] > 0.05
    assert "that the loss depends on the product alone, which it assumes, fails by" in " ".join(probe.verdict())


# Adapters ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_adapters_know_their_reach(scale):
    """B = 0: A's rows are all that is reached, and the lazy end is the least squares in B, to second order."""
    model, batch = adapted_net(0, 0.0, torch.float64, scale)
    for part in (0, 2, 4):
        model[part].lora_A["default"].weight.data = torch.nn.init.orthogonal_(
            torch.empty_like(model[part].lora_A["default"].weight)
        )
    probe, pairs = predicted_pairs(model, batch)
    surface = Surface(model, squares, batch)
    for pair in pairs:
        layer = probe.layers[pair["layer"]]
        (whole,) = surface.slopes([layer.base])
        rows = layer.matrices()[0]
        assert pair["reach"] == pytest.approx(float(((whole @ rows.T) ** 2).sum() / (whole**2).sum()), rel=1e-9)
        assert pair["imbalance"] == pytest.approx(scale / 2, rel=1e-9)
        assert pair["slope"] == pytest.approx(float(torch.linalg.matrix_norm(whole @ rows.T, 2)), rel=1e-9)


@pytest.mark.parametrize(("scale", "size", "regime"), [(0.5, 3.0, "lazy"), (2.0, 1.0, "mixed"), (2.0, 0.2, "rich")])
def test_an_adapter_trains_as_predicted(scale, size, regime):
    """A frozen linear layer that lacks a matrix of rank 1 whose rows A has: exact, with the factor s."""
    torch.manual_seed(0)
    model = Adapted(torch.nn.Linear(6, 4), 3, 0.0, scale).double()
    model.lora_A["default"].weight.data = size * torch.linalg.qr(torch.randn(6, 3, dtype=torch.float64))[0].T
    x = math.sqrt(40) * torch.linalg.qr(torch.randn(40, 6, dtype=torch.float64))[0]
    u, v = torch.randn(4, dtype=torch.float64), model.lora_A["default"].weight.data.sum(0)
    lacks = torch.outer(u / u.norm(), v / v.norm())
    batch = x, (model.base_layer(x) + x @ lacks.T).detach()
    probe, (pair,) = predicted_pairs(model, batch)
    assert pair["reach"] == pytest.approx(1, abs=1e-9)
    assert pair["end"] == pytest.approx(1, rel=1e-9)
    assert pair["regime"] == regime
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    descent = torch.optim.SGD(trained, 0.02 * pair["largest_lr"])
    for _ in range(3000):
        descent.zero_grad()
        squares(model, batch).backward()
        descent.step()
    probe.update(1)
    seen = probe.record.measurements[-1]
    assert seen["mode_value"] == [pytest.approx(1, rel=1e-4)]
    assert seen["mode_growth"] == [pytest.approx(pair["growth"], rel=1e-2)]
    assert seen["sharpness"][0] == pytest.approx(pair["sharpness_end"], rel=1e-2)
    x = torch.randn(6, dtype=torch.float64)  # what A maps to zero is out of reach
    _, (other,) = predicted_pairs(*_fresh(model, batch, x))
    assert other["reach"] < 0.99


def _fresh(model, batch, row):
    """The adapter at B = 0 again, and a matrix that it lacks with other rows than A's."""
    model.lora_B["default"].weight.data.zero_()
    return model, (
        batch[0],
        (model.base_layer(batch[0]) + torch.outer(batch[0] @ row, torch.ones(4).double())).detach(),
    )


def test_scaled_factors_are_one_problem():
    """s B A and B' A' with sqrt(s) in each are one product: the same end and kernel, s times the step."""
    found = []
    for scale, alpha in ((4.0, 0.1), (1.0, 0.2)):
        model, batch = adapted_net(3, alpha, torch.float64, scale)
        found.append({pair["layer"]: pair for pair in predicted_pairs(model, batch, matvecs=100)[1]})
    for layer, pair in found[0].items():
        other = found[1][layer]
        for name in ("value", "imbalance", "curvature", "slope"):
            assert pair[name] == pytest.approx(other[name], rel=1e-6), name
        if pair["end"] is not None:
            assert pair["growth"] == pytest.approx(other["growth"], rel=1e-6)
            assert pair["sharpness_end"] == pytest.approx(4 * other["sharpness_end"], rel=1e-6)


# What is kept and said -----------------------------------------------------------------------------------------------


def test_predicted_once(tmp_path):
    model, batch = two_layers(0, 5, 1.0, 1.0)
    probe = Probe(model, squares, batch, lr=0.01, momentum=0.9, every=2, folder=tmp_path / "run")
    for step in range(4):
        descend(model, batch, 0.01, steps=1)
        probe.update(step)
    probe.close()
    again = read(tmp_path / "run")
    assert [line["kind"] for line in again.lines].count("pairs") == 1
    assert again.pairs == probe.record.pairs
    (pair,) = again.pairs
    most = max(pair["sharpness"] + pair["residual"], pair["sharpness_end"])
    assert pair["largest_lr"] == pytest.approx(2 * 1.9 / most)
    data = dataset(again)
    assert float(data["pair_largest_lr"].sel(layer="0 and 1")) == pair["largest_lr"]
    assert data["mode_growth"].dims == ("measurement", "layer")
    assert pair["largest_lr"] > 0.01
    assert "stable up to" not in " ".join(probe.verdict())  # which is recorded, and promised nowhere


def test_a_loss_that_curves_downwards_has_no_end_in_sight(tmp_path):
    model, batch = two_layers(0, 5, 0.1, 0.1)
    for wide, seen in ((100.0, False), (0.3, True)):  # a well of this width, seen from within or from outside
        loss = lambda model, batch, wide=wide: -torch.exp(-squares(model, batch) / wide)  # noqa: E731
        probe, (pair,) = predicted_pairs(model, batch, loss)
        assert (pair["curvature"] < 0) is seen
        assert (pair["end"] is None) is seen
        assert ("no predicted end" in " ".join(probe.verdict())) is seen
        page = probe.report(tmp_path).read_text()
        assert ("<td>no predicted end</td>" in page) is seen
        assert "Pairs of factors, predicted at initialization" in page


def test_no_learning_rate_is_predicted_where_the_optimizer_has_its_own_units():
    model, batch = two_layers(0, 5, 1.0, 1.0)
    adam = torch.optim.Adam(model.parameters(), 1e-3)
    uneven = torch.optim.SGD([{"params": model[0].parameters(), "lr": 0.1}, {"params": model[1].parameters()}], 0.2)
    for optimizer in (adam, uneven):
        probe = Probe(model, squares, batch, optimizer=optimizer, every=2)
        probe.update(0)
        assert probe.record.pairs[0]["largest_lr"] is None


def test_many_pairs_keep_to_the_products():
    model, batch = adapted_net(0, 0.1)
    surface = Surface(model, squares, batch)
    layers = layers_of(surface)
    for matvecs, count in ((1, 1), (7, 2), (60, 3)):
        predictions, modes = predicted(surface, surface.here(), layers, matvecs, None)
        assert len(predictions) == len(modes) == count


def test_singular_values_keep_their_digits():
    torch.manual_seed(0)
    u, v = (torch.linalg.qr(torch.randn(n, 6, dtype=torch.float64))[0] for n in (40, 9))
    for values in ([3.0, 2.0, 1.0, 0.5, 0.1, 0.0], [1.0, 1e-6, 1e-9, 0, 0, 0]):
        found = singular_values((u * torch.tensor(values, dtype=torch.float64)) @ v.T)[:3]
        torch.testing.assert_close(found, torch.tensor(values[:3], dtype=torch.float64), rtol=1e-6, atol=0)
