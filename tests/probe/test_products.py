"""Hessian products by differences of gradients against those by double backward."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from linnet.probe.lanczos import ends, inner, norm
from linnet.probe.products import Differences, largest
from linnet.probe.surface import Surface

WORDS, LENGTH, WIDTH = 40, 12, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        parts = self.attention(self.before(x)).unflatten(-1, (3, 2, WIDTH // 2)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(-2))
        return x + self.mlp(self.after(x))


class Gpt(nn.Module):
    """A small GPT, its embeddings tied to the head or not."""

    def __init__(self, checkpointed=False, tied=True):
        super().__init__()
        self.head = None if tied else nn.Linear(WIDTH, WORDS, bias=False)
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks, self.last = nn.ModuleList([Block(), Block()]), nn.LayerNorm(WIDTH)
        self.checkpointed = checkpointed
        nn.init.normal_(self.words.weight, std=0.2)

    def forward(self, tokens):
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.last(x) @ (self.words if self.head is None else self.head).weight.T


def next_word(model, tokens):
    return nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten())


def trained(steps=30, **options):
    """A small GPT after some steps of AdamW, and its last step."""
    torch.manual_seed(0)
    model = Gpt(**options)
    tokens = (torch.randint(WORDS, (6, LENGTH + 1)) ** 2) // WORDS  # few words are frequent
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(steps):
        before = [weight.detach().clone() for weight in model.parameters()]
        optimizer.zero_grad()
        next_word(model, tokens).backward()
        optimizer.step()
    update = torch.cat([(w.detach() - b).reshape(-1) for w, b in zip(model.parameters(), before, strict=True)])
    return model, tokens, update


def directions(surface, point, update):
    """Five vectors along which curvature is of interest."""
    held = torch.cat([torch.full((w.numel(),), float("words" not in n)) for n, w in surface.model.named_parameters()])
    first = point.gradient
    return {
        "update": update,
        "gradient": first,
        "top": ends(point.product, first, good=1, matvecs=40, tol=1e-3).vector,
        "matrices": ends(lambda v: held * point.product(held * v), first, good=1, matvecs=40, tol=1e-3).vector,
        "random": torch.randn(first.shape, generator=torch.Generator().manual_seed(1)),
    }


def test_products_are_those_of_double_backward():
    model, tokens, update = trained()
    surface = Surface(model, next_word, tokens)
    point, differences = surface.here(), Differences(surface, update=update)
    assert differences.loss == pytest.approx(point.loss, rel=1e-6)
    for name, v in directions(surface, point, update).items():
        exact = point.product(v)
        assert float(norm(differences.product(v) - exact) / norm(exact)) < 1e-3, name
        assert differences.change(v) < 1e-3, name
    assert differences.gradients < 1 + 5 * 2 * 4  # the displacement fits at once, but for a few


def test_a_direction_of_one_rare_row_is_found_out():
    """A word that makes a thousandth of the loss: what changes the whole gradient by half a percent is too far."""
    model, tokens, update = trained(tied=False)
    rare = tokens[:1].clone()
    rare[0, 3] = WORDS - 1
    surface = Surface(model, lambda m, b: next_word(m, b[0]) + 1e-3 * next_word(m, b[1]), (tokens, rare))
    point, row = surface.here(), torch.randn(WIDTH, generator=torch.Generator().manual_seed(0))
    v = torch.zeros_like(point.gradient)
    surface.parted(v)[id(model.words.weight)][-1] = row
    exact = float(inner(v, point.product(v)))
    far, capped = Differences(surface), Differences(surface, update=update)
    assert float(inner(v, far.product(v))) / exact < 0.9
    assert far.change(v) > 0.05
    assert float(inner(v, capped.product(v))) == pytest.approx(exact, rel=0.01)
    assert capped.change(v) < 0.01


def test_the_cap_is_a_tenth_of_the_update_in_the_norm_of_the_preconditioner():
    model, tokens, update = trained()
    surface, size = Surface(model, next_word, tokens), update.numel()
    root = torch.linspace(0.5, 2, size)
    root[::7] = 0  # does not move
    unit = root * torch.randn(size, generator=torch.Generator().manual_seed(1))
    differences = Differences(surface, update=1e-3 * update, root=root)
    lengths = []
    change = differences._difference
    differences._difference = lambda v, e: (
        lengths.append(e * float(torch.where(root > 0, v / root, 0).norm())),
        change(v, e),
    )[1]
    differences.product(unit)
    moved = torch.where(root > 0, 1e-3 * update / root, 0)
    assert lengths == [pytest.approx(0.1 * float(moved.norm()), rel=1e-4)]


def test_checkpointed_modules_see_the_displacement():
    plain, tokens, update = trained()
    checkpointed = Gpt(checkpointed=True)
    checkpointed.load_state_dict(plain.state_dict())
    found = [
        Differences(Surface(model, next_word, tokens), update=update).product(update) for model in (plain, checkpointed)
    ]
    assert float(norm(found[0] - found[1]) / norm(found[0])) < 1e-5


def test_several_batches_are_averaged():
    model, tokens, _ = trained()
    surface = Surface(model, next_word, tokens)
    whole, mean = Differences(surface), Differences(surface, batches=[tokens[:3], tokens[3:]])
    assert mean.loss == pytest.approx(whole.loss, rel=1e-6)
    products = [one.product(whole.gradient) for one in (whole, mean)]
    assert float(norm(products[0] - products[1]) / norm(products[0])) < 1e-3
    assert mean.gradients == 2 * whole.gradients


def test_weights_in_half_precision_are_displaced_in_single():
    model, tokens, _ = trained()
    half = copy.deepcopy(model).bfloat16()
    model.load_state_dict(half.state_dict())  # the same numbers in single precision
    found = [Differences(Surface(one, next_word, tokens)) for one in (model, half)]
    v = found[0].gradient
    assert torch.equal(found[0].product(v), found[1].product(v))


def test_under_autocast_displacements_are_larger():
    model, tokens, update = trained()

    def halved(model, tokens):
        with torch.autocast("cpu", torch.bfloat16):
            return next_word(model, tokens)

    single, half = (Differences(Surface(model, loss, tokens), update=update) for loss in (next_word, halved))
    assert (single._share, half._share) == (5e-3, 5e-2)
    v = single.gradient
    exact, curvature = single.product(v), float(inner(v, single.product(v)))
    off = []
    for share in (5e-2, 5e-3):
        half._share = share
        found = half.product(v)
        off.append(float(norm(found - exact) / norm(exact)))
        assert abs(float(inner(v, found)) / curvature - 1) <= half.change(v)
    assert 0.01 < off[0] < 0.4 * off[1]


def test_a_direction_of_one_batch_has_no_curvature_on_others():
    """Under Adam the rows of a word that only one batch has are preconditioned by almost nothing."""
    model, tokens, update = trained(tied=False)
    rare = tokens.clone()
    rare[0, 3] = WORDS - 1
    surface = Surface(model, next_word, rare)
    root = torch.ones_like(update)
    surface.parted(root)[id(model.words.weight)][-1] = 100.0
    found = largest(Differences(surface, update=update, root=root), root=root)
    own, fresh = (Differences(surface, batches=[b], update=update, root=root) for b in (rare, tokens))
    direction = root * found.vector
    assert float(inner(direction, own.product(direction))) == pytest.approx(found.value, rel=0.02)
    assert abs(float(inner(direction, fresh.product(direction)))) < 0.1 * found.value


class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.4), nn.Linear(8, 6))

    def forward(self, x):
        return self.layers(x) + 0 * (random.random() + np.random.rand())  # noqa: NPY002  as losses of users may


@pytest.mark.parametrize("training", [False, True])
def test_nothing_is_changed(training):
    torch.manual_seed(0)
    model, x = Dropped(), torch.randn(20, 6)
    model(x).square().mean().backward()

    def state():
        numbers = [copy.deepcopy(model.state_dict()), [w.grad.clone() for w in model.parameters()]]
        return [*numbers, torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()]  # noqa: NPY002

    before, modes = state(), [module.training for module in model.modules()]
    surface = Surface(model, lambda m, b: m(b).square().mean(), x, training=training)
    found = largest(Differences(surface))
    assert found.products >= 6
    assert found.change < 1e-3  # dropout is the same at all gradients
    for a, b in zip(before, state(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert modes == [module.training for module in model.modules()]


class Last(nn.Module):
    """The last output of a recurrent network."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.out = layer, nn.Linear(10, 4)

    def forward(self, x):
        return self.out(self.layer(x.unflatten(1, (4, 4)))[0][:, -1])


class Product(nn.Module):
    """Adapters beside a frozen matrix."""

    def __init__(self):
        super().__init__()
        self.frozen, self.a, self.b = nn.Linear(16, 12), nn.Linear(16, 3, bias=False), nn.Linear(3, 12, bias=False)
        self.out = nn.Linear(12, 4)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        return self.out(torch.tanh(self.frozen(x) + self.b(self.a(x))))


def image():
    return nn.Unflatten(1, (1, 4, 4))


MODELS = {
    "linear": lambda: nn.Sequential(nn.Linear(16, 8), nn.Linear(8, 4)),
    "tanh": lambda: nn.Sequential(nn.Linear(16, 20), nn.Tanh(), nn.Linear(20, 4)),
    "gelu": lambda: nn.Sequential(nn.Linear(16, 12), nn.GELU(), nn.Linear(12, 12), nn.GELU(), nn.Linear(12, 4)),
    "softplus": lambda: nn.Sequential(nn.Linear(16, 20), nn.Softplus(), nn.Linear(20, 20), nn.ELU(), nn.Linear(20, 4)),
    "layer norm": lambda: nn.Sequential(nn.Linear(16, 12), nn.LayerNorm(12), nn.SiLU(), nn.Linear(12, 4)),
    "convolution": lambda: nn.Sequential(image(), nn.Conv2d(1, 6, 3), nn.GELU(), nn.Flatten(), nn.Linear(24, 4)),
    "group norm": lambda: nn.Sequential(
        image(), nn.Conv2d(1, 6, 3), nn.GroupNorm(2, 6), nn.Tanh(), nn.Flatten(), nn.Linear(24, 4)
    ),
    "recurrent": lambda: Last(nn.GRU(4, 10, batch_first=True)),
    "adapters": Product,
    "gpt": None,
}


def classifier(make, n=30, seed=2):
    """The surface of a classifier after some steps."""
    torch.manual_seed(seed)
    model, loss = make(), lambda m, b: nn.functional.cross_entropy(m(b[0]), b[1])
    batch = torch.randn(n, 16), torch.randint(4, (n,))
    optimizer = torch.optim.SGD([w for w in model.parameters() if w.requires_grad], 0.1)
    for _ in range(20):
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()
    return Surface(model, loss, batch)


def exact_top(surface):
    point = surface.here()
    return float(ends(point.product, point.gradient, good=1, matvecs=200, tol=1e-5).values[0])


@pytest.mark.parametrize("kind", MODELS)
def test_the_largest_eigenvalue_is_exact_to_a_percent_and_its_error_bar_holds(kind):
    if kind == "gpt":
        model, batch, update = trained()
        surface = Surface(model, next_word, batch)
    else:
        surface, update = classifier(MODELS[kind]), None
    exact, found = exact_top(surface), largest(Differences(surface, update=update), tol=0.02)
    assert found.value == pytest.approx(exact, rel=0.01)
    assert abs(found.value - exact) <= found.error <= 0.03 * found.value
    assert found.change < 0.01
    assert found.products <= 40


def test_gradients_that_jump_are_found_out():
    """With ReLU the search finds directions in which a sample crosses a kink: the check fires wherever it did."""
    wrong = 0
    for seed in range(6):
        surface = classifier(lambda: nn.Sequential(nn.Linear(16, 20), nn.ReLU(), nn.Linear(20, 4)), 30, seed)
        exact, found = exact_top(surface), largest(Differences(surface), tol=0.02)
        wrong += (off := abs(found.value - exact)) > 0.05 * exact
        assert (found.change > 0.05) is (off > 0.05 * exact)
    assert wrong >= 3


def test_the_scaled_matrix_of_an_optimizer():
    model, tokens, update = trained()
    surface = Surface(model, next_word, tokens)
    root, decay = torch.linspace(0, 2, update.numel()), torch.full_like(update, 0.3)
    point = surface.here()
    exact = ends(
        lambda v: root * point.product(root * v) + decay * v, root * point.gradient, good=1, matvecs=200, tol=1e-5
    )
    found = largest(Differences(surface, update=update, root=root), root=root, decay=decay, tol=0.02)
    assert abs(found.value - float(exact.values[0])) <= found.error <= 0.03 * found.value
    assert float(norm(found.vector)) == pytest.approx(1.0, rel=1e-5)
