import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from adapted import adapted_net  # noqa: E402

from linnet._check import InputError  # noqa: E402
from linnet.probe import Probe  # noqa: E402
from linnet.probe.layers import layers_of  # noqa: E402
from linnet.probe.saddle import share  # noqa: E402
from linnet.probe.surface import Surface  # noqa: E402


def squares(model, batch):
    x, y = batch
    return ((model(x) - y) ** 2).sum(1).mean()


def last_measurement(probe, step=0):
    probe.update(step)
    return [line for line in probe.record.lines if line["kind"] == "measurement"][-1]


# The saddle of fresh adapters ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_saddle_of_fresh_adapters_is_exact(seed):
    model, batch = adapted_net(seed, 0.0, torch.float64, scale=0.5 + seed)
    seen = last_measurement(Probe(model, squares, batch, lr=0.01, tol=1e-12, every=2))
    assert seen["saddle"] == pytest.approx(seen["sharpness"][0], rel=1e-9)
    assert seen["lowest"] == pytest.approx(-seen["saddle"], rel=1e-9)
    assert seen["saddle_share"] == pytest.approx(1, rel=1e-9)
    assert seen["escape"] is None  # nothing moves where both factors are 0


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_saddle_of_small_adapters(seed):
    model, batch = adapted_net(seed, 1e-3)
    seen = last_measurement(Probe(model, squares, batch, lr=0.01, tol=1e-4, every=2))
    assert seen["saddle"] == pytest.approx(seen["sharpness"][0], rel=5e-3)
    assert seen["lowest"] == pytest.approx(-seen["saddle"], rel=5e-3)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_step_at_which_descent_leaves(seed):
    products = []
    for grown in (0.03, 0.1, 0.3):
        model, batch = adapted_net(seed, 1e-3)
        unit = last_measurement(Probe(model, squares, batch, lr=1.0, every=2))["saddle"]
        lr = grown / unit
        told = last_measurement(Probe(model, squares, batch, lr=lr, every=2))
        descent = torch.optim.SGD([w for w in model.parameters() if w.requires_grad], lr=lr)
        losses = []
        while not losses or losses[-1] > 0.95 * losses[0]:
            descent.zero_grad()
            loss = squares(model, batch)
            loss.backward()
            descent.step()
            losses.append(float(loss.detach()))
        steps = len(losses) - 1
        products.append(steps * math.log1p(grown))
        assert abs(told["escape"] - steps) < 1 + 0.05 * steps  # to first order: curvature slows the last of it
    assert max(products) < 1.1 * min(products)


def test_the_share_that_is_the_products_own():
    # d^T H d = 2 s <G, dB dA> + <dW, H_W dW> with dW = s (dB A + B dA), at factors of order 1
    model, batch = adapted_net(0, 0.3, torch.float64, scale=2.0)
    surface = Surface(model, squares, batch)
    layers = layers_of(surface)
    slopes = surface.slopes([layer.base for layer in layers])
    parts = {id(weight): torch.randn_like(weight) for weight in surface.weights}
    direction = torch.cat([parts[id(weight)].reshape(-1) for weight in surface.weights])
    curvature = float(direction @ surface.here().product(direction))
    moved = {}
    for layer in layers:
        (first, second), (da, db) = layer.matrices(), (parts[id(factor.weight)] for factor in layer.factors)
        moved[id(layer.base)] = 2.0 * (db @ first + second @ da)
    for name, weight in model.named_parameters():
        weight.requires_grad_("base_layer.weight" in name)
    bases = Surface(model, squares, batch)
    along = torch.cat([moved[id(weight)].reshape(-1) for weight in bases.weights])
    rest = float(along @ bases.here().product(along))
    assert share(layers, slopes, parts) == pytest.approx(curvature - rest, rel=1e-9)
    assert abs(rest) > 0.1 * abs(curvature)


def test_what_is_said_of_adapters_that_have_grown():
    model, batch = adapted_net(0, 0.3)
    probe = Probe(model, squares, batch, lr=0.01, every=2)
    assert "escape" not in last_measurement(probe)
    assert "away from A = B = 0" in " ".join(probe.verdict())


def test_what_is_said_of_fresh_adapters():
    model, batch = adapted_net(0, 1e-3)
    training = [w for w in model.parameters() if w.requires_grad]
    probe = Probe(model, squares, batch, lr=1e-2, every=2)
    probe.update(0)
    told = " ".join(probe.verdict())
    assert "Adapters are at the saddle of their initialization" in told
    measurement = probe.record.measurements[0]
    steps = float(f"{measurement['escape']:.2g}")
    assert f"by a factor 1 + {1e-2 * measurement['saddle']:.2g} a step, after {steps:,.0f} steps" in told
    adam = torch.optim.Adam(training, lr=1e-4)
    probe = Probe(model, squares, batch, optimizer=adam, every=2)
    squares(model, batch).backward()
    adam.step()
    probe.update(0)
    told = " ".join(probe.verdict())
    assert "% of its own threshold" in told


def test_adapters_train_as_without_the_probe():
    """Gradients in frozen matrices and the model's outputs leave nothing behind: dropout, batch norm and weights."""

    def trained(probed):
        model, batch = adapted_net(0, 1e-3)
        model = torch.nn.Sequential(*model, torch.nn.Dropout(0.2), torch.nn.BatchNorm1d(3))
        adam = torch.optim.Adam([w for w in model.parameters() if w.requires_grad], lr=1e-2)
        told = {"outputs": lambda model, batch: (model(batch[0]), batch[1]), "training": True, "every": 2}
        probe = Probe(model, squares, batch, optimizer=adam, **told) if probed else None
        torch.manual_seed(3)
        for step in range(6):
            adam.zero_grad()
            squares(model, batch).backward()
            adam.step()
            if probe is not None:
                probe.update(step)
        assert probe is None or len(probe.record.measurements) == 6
        return [*model.state_dict().values(), *(w.grad for w in model.parameters() if w.grad is not None)]

    for one, other in zip(trained(True), trained(False), strict=True):
        assert torch.equal(one, other)


def test_a_base_that_trains_has_no_such_saddle():
    model, batch = adapted_net(0, 1e-3)
    model[0].base_layer.requires_grad_(True)
    layers = layers_of(Surface(model, squares, batch))
    assert [layer.base is None for layer in layers if len(layer.factors) == 2] == [True, False, False]


# peft ----------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_adapters_of_peft():
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).double()
    config = peft.LoraConfig(r=2, lora_alpha=6, target_modules=["0", "2"], lora_dropout=0.1)
    model = peft.get_peft_model(plain, config)
    for name, weight in model.named_parameters():
        if "lora_" in name:
            weight.data = torch.zeros_like(weight)
    batch = (torch.randn(20, 6, dtype=torch.float64), torch.randn(20, 2, dtype=torch.float64))
    probe = Probe(model, squares, batch, lr=0.1, tol=1e-12, every=2)
    assert [layer.scale for layer in probe.layers] == [3.0, 3.0]
    seen = last_measurement(probe)
    assert seen["saddle"] == pytest.approx(seen["sharpness"][0], rel=1e-9)
    assert seen["lowest"] == pytest.approx(-seen["saddle"], rel=1e-9)


# Pairs ---------------------------------------------------------------------------------------------------------------


def by_name(model, batch=None, pairs=()):
    loss = lambda model, batch: sum((w**2).sum() for w in model.parameters())  # noqa: E731
    return {layer.name: layer for layer in layers_of(Surface(model, loss, batch), pairs)}


def test_heads_of_torch_attention():
    torch.manual_seed(0)
    model = torch.nn.MultiheadAttention(6, 2, batch_first=True).double()
    torch.nn.init.normal_(model.in_proj_bias)
    found = by_name(model)
    assert [len(layer.factors) for layer in found.values()] == [2, 2, 2, 2]
    x = torch.randn(3, 6, dtype=torch.float64)
    one = torch.cat([x, torch.ones(3, 1, dtype=torch.float64)], dim=1)
    weights, biases = model.in_proj_weight.detach(), model.in_proj_bias.detach()
    query, key, value = (x @ weights[6 * j : 6 * j + 6].T + biases[6 * j : 6 * j + 6] for j in range(3))
    keys, queries = found[", head 2: queries and keys"].matrices()
    torch.testing.assert_close(one @ queries @ keys @ one.T, query[:, 3:] @ key[:, 3:].T)
    values, outputs = found[", head 2: values and outputs"].matrices()
    torch.testing.assert_close(one @ (outputs @ values).T, value[:, 3:] @ model.out_proj.weight.detach()[:, 3:].T)


def test_heads_are_balanced_by_gradient_flow():
    # what is called a constant of gradient flow is one, biases and all: its time derivative vanishes
    torch.manual_seed(1)
    model = torch.nn.MultiheadAttention(6, 2, batch_first=True).double()
    torch.nn.init.normal_(model.in_proj_bias)
    x = torch.randn(4, 5, 6, dtype=torch.float64)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        (model(x, x, x)[0] ** 3).sum().backward()
    for layer in by_name(model).values():
        before = layer.imbalance()
        moves = []
        for h in (1e-6, -1e-6):
            with torch.no_grad():
                for weight in model.parameters():
                    weight -= h * weight.grad
                moves.append(layer.imbalance() - before)
                for weight in model.parameters():
                    weight += h * weight.grad
        assert float((moves[0] - moves[1]).norm()) / 2e-6 < 1e-6 * float(model.in_proj_weight.grad.norm())


def test_a_chain_is_balanced_with_its_bias():
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)).double()
    (layer,) = by_name(model).values()
    x = torch.randn(7, 3, dtype=torch.float64)
    (model(x) ** 3).sum().backward()
    grad = torch.cat([model[0].weight.grad, model[0].bias.grad[:, None]], dim=1)
    first, second = layer.matrices()
    rate = grad @ first.T + first @ grad.T - model[1].weight.grad.T @ second - second.T @ model[1].weight.grad
    assert float(rate.norm()) < 1e-12 * float(grad.norm())


def test_heads_of_bert():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    model = transformers.BertModel(config).double()
    found = [layer for layer in by_name(model).values() if len(layer.factors) == 2]
    assert len(found) == 2 * 2 * 2
    block = model.encoder.layer[1].attention
    values, outputs = next(x for x in found if "layer.1" in x.name and "head 2: values" in x.name).matrices()
    torch.testing.assert_close(outputs, block.output.dense.weight.detach()[:, 4:])
    torch.testing.assert_close(values[:, :-1], block.self.value.weight.detach()[4:])
    rotated = transformers.LlamaConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    names = [name for name, layer in by_name(transformers.LlamaModel(rotated)).items() if len(layer.factors) == 2]
    assert len(names) == 2
    assert all("values and outputs" in name for name in names)  # rotations stand between queries and keys


def test_a_pair_that_is_named():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
    batch = (torch.randn(9, 5), torch.randn(9, 3))
    probe = Probe(model, squares, batch, lr=0.1, pairs=[("0.weight", "2.weight")], every=2)
    assert [layer.name for layer in probe.layers] == ["0.weight and 2.weight"]
    seen = last_measurement(probe)
    product = (model[2].weight @ model[0].weight).detach().double()
    values = torch.linalg.svdvals(product)
    np.testing.assert_allclose(seen["singular_values"][0], values, rtol=1e-6)
    norms = [float(torch.linalg.matrix_norm(model[i].weight.detach().double(), 2)) for i in (0, 2)]
    assert seen["alignment"][0] == pytest.approx(float(values[0]) / (norms[0] * norms[1]))
    assert seen["growth"] == [pytest.approx(1)]
    assert seen["drift"] == [pytest.approx(0, abs=1e-15)]
    with torch.no_grad():
        for i in (0, 2):
            model[i].weight *= 4
    assert last_measurement(probe, 1)["growth"] == [pytest.approx(16)]
    assert "1 rich" in " ".join(probe.verdict())


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([("0.weight", "3.weight")], "'3.weight' is not a matrix of the model"),
        ([("0.weight", "0.bias")], "'0.bias' is not a matrix"),
        ([("2.weight", "0.weight")], "the second must follow the first"),
        (["0.weight"], "give pairs of names"),
        (7, "give pairs of names"),
    ],
)
def test_pairs_that_are_refused(pairs, words):
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
    with pytest.raises(InputError, match=words):
        Probe(model, squares, (torch.randn(9, 5), torch.randn(9, 3)), pairs=pairs)


# Collapse ------------------------------------------------------------------------------------------------------------


def test_constant_outputs_are_reported():
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 1)
    batch = (torch.randn(9, 5), torch.randn(9, 1))
    probe = Probe(model, squares, batch, lr=0.1, outputs=lambda model, batch: (model(batch[0]), batch[1]), every=2)
    seen = last_measurement(probe)
    given = model(batch[0]).detach()
    assert seen["output_spread"] == pytest.approx(float(given.std(correction=0)), rel=1e-5)
    assert seen["label_spread"] == pytest.approx(float(batch[1].std(correction=0)), rel=1e-5)
    assert "Collapsed" not in " ".join(probe.verdict())
    torch.nn.init.zeros_(model.weight)
    probe.update(1)
    assert "Collapsed" in " ".join(probe.verdict())


def test_outputs_that_are_refused():
    model, batch = torch.nn.Linear(5, 1), (torch.randn(9, 5), torch.randn(9, 1))
    with pytest.raises(InputError, match="function of"):
        Probe(model, squares, batch, outputs=3)
    with pytest.warns(UserWarning, match="outputs must give two tensors"):
        Probe(model, squares, batch, outputs=lambda model, batch: model(batch[0]), every=2).update(0)
