"""Mild sharpening at toy size: it runs, draws, says what it stands on, and can fail."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linnet as ln
from linnet.curves import rise_count
from linnet.data import gaussian_classes, rescale_contrast, synthetic_image
from linnet.data.synthetic import PATTERNS
from linnet.experiments.stability_mild import KINDS, StabilityFig9

pytestmark = [pytest.mark.computes, pytest.mark.slow]  # convolutions

TOY = {
    "samples": (4, 60),
    "d": 4,
    "width": 8,
    "classes": 3,
    "lr": 0.1,
    "steps": 120,
    "picture_steps": 200,
    "large_steps": 200,  # as many as of pictures: one program
    "picture_draws": 1,
    "draws": 1,
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    figure = StabilityFig9.of_size("quick", TOY)
    return figure, figure.data(tmp_path_factory.mktemp("toy"), lambda done, total: None)[0]


def fails(figure, data, **changes):
    return {name for name, finding in figure.accept(data.assign(**changes)).items() if not finding.holds}


def test_it_runs_and_draws(toy):
    figure, data = toy
    assert data["picture_sharpness"].shape == data["large_sharpness"].shape == (len(KINDS), 1, 100, 2)
    np.testing.assert_array_equal(data["picture_record"][:3], [[0, 1], [2, 3], [4, 5]])  # pairs of consecutive steps
    assert np.all(np.isfinite(data["sharpness"]))
    axes = figure.draw(data).axes
    assert len(axes) == 8  # two of the UNet, four places for images, two of the samples
    assert "synthetic stand-in" in axes[-2].get_title()
    contrasts = data["picture"].std(("y", "x")).values
    np.testing.assert_allclose(contrasts, 0.25)


def test_what_must_hold_can_fail(toy):
    figure, data = toy
    names = set(figure.accept(data))
    assert any(name.startswith("synthetic, 4 samples") for name in names)
    assert not any("CIFAR" in name for name in names)  # nothing of CIFAR-10 is told of a stand-in
    mild = {"bumps: share of the draws whose loss never rises", "checkerboard: rises of the loss, most"}
    jagged = data["picture_loss"] + np.arange(data.sizes["picture_step"]) % 2
    assert mild <= fails(figure, data, picture_loss=jagged)
    assert not mild & fails(figure, data)
    level = 2 / figure.lr
    plateau = "synthetic, 4 samples: plateau / (2 / lr), highest draw"
    assert plateau in fails(figure, data, sharpness=data["sharpness"] * 0 + level)
    assert plateau not in fails(figure, data, sharpness=data["sharpness"] * 0 + level / 2)


def test_the_sentence_on_images_can_fail(toy):
    """Made curves: a smooth image below 2/lr, a texture that comes to it, and a checkerboard far below."""
    figure, data = toy
    level, pairs = 2 / figure.picture_lr, data.sizes["picture_pair"]
    climb = np.minimum(np.arange(pairs) / 50, 1)[None, None, :, None]
    shares = np.array([0.6, 1.0, 0.2])[:, None, None, None]
    sharpness = data["picture_sharpness"] * 0 + level * shares * climb
    fall = np.exp(-np.arange(data.sizes["picture_step"]) / 50)
    loss = data["picture_loss"] * 0 + fall
    loss[1] = loss[1] * (1 + 0.5 * (np.arange(data.sizes["picture_step"]) % 2))
    made = {"picture_sharpness": sharpness, "picture_loss": loss}
    own = {name for name in figure.accept(data) if not name.startswith(("lr", "synthetic"))}
    assert not own & fails(figure, data, **made)
    swapped = {name: part.copy(data=part.values[[1, 0, 2]]) for name, part in made.items()}
    assert len(own & fails(figure, data, **swapped)) >= 5
    bumps = {"picture_sharpness": sharpness.copy(data=sharpness.values[[0, 0, 2]])}
    assert {"sharpness in the end, texture / bumps, median"} < own & fails(figure, data, **(made | bumps))


def test_the_bands_of_cifar10_can_fail():
    """The bands are asked of made curves: mild ones for few images, ones at the edge for many."""
    import xarray

    figure = StabilityFig9(draws=1)
    steps, record = figure.steps, np.stack([np.arange(0, figure.steps, 25), np.arange(1, figure.steps, 25)], axis=1)
    fall = 0.1 * np.exp(-np.arange(steps + 1) / 150)
    ends = np.array([13.5, 19.0, 30.2, 42.7])
    climb = np.minimum(ends[:, None, None] * np.minimum(record / 2000, 1), 25.5)
    shaky = fall * (1 + 0.4 * (np.arange(steps + 1) > 1500) * (np.arange(steps + 1) % 2))
    data = xarray.Dataset(
        {
            "loss": (("samples", "draw", "step"), np.stack([fall, fall, shaky, shaky])[:, None]),
            "sharpness": (("samples", "draw", "pair", "side"), climb[:, None]),
            "record": (("pair", "side"), record),
            "end": (("samples", "draw"), ends[:, None]),
        },
        coords={"samples": list(figure.samples)},
    )

    def failed(data):
        return {name for name, finding in figure._cifar10(data).items() if not finding.holds}

    assert not failed(data)
    turned = data.isel(samples=slice(None, None, -1)).assign_coords(samples=data["samples"].values)
    assert len(failed(turned)) >= 8
    assert len(failed(data.assign(end=data["end"] * 1.2))) == 1


def test_sharpness_is_that_of_the_dense_hessian(toy):
    figure, data = toy
    x, y = figure._samples(60, 0)
    initial = ln.networks.mlp(jax.random.key(0), x.astype(np.float32), (8, 3), scale=0.3)
    first, second = (np.asarray(layer, np.float64) for layer in initial.layers)

    def cost(flat):
        a, b = flat[:32].reshape(8, 4), flat[32:].reshape(3, 8)
        return jnp.mean((b @ jax.nn.relu(a @ x.T) - y.T) ** 2)

    dense = jax.jit(jax.hessian(cost))(jnp.concatenate([first.ravel(), second.ravel()]))
    assert float(data["sharpness"][1, 0, 0, 0]) == pytest.approx(float(np.linalg.eigvalsh(dense)[-1]), rel=3e-3)


def test_images_are_as_they_are_called():
    rng = np.random.default_rng(0)
    for kind in PATTERNS:
        image = synthetic_image(kind, 0.2, rng)
        assert image.shape == (32, 32)
        assert image.mean() == pytest.approx(0.5)
        assert image.std() == pytest.approx(0.2)
    power = {kind: np.abs(np.fft.fft2(synthetic_image(kind, 0.2, rng) - 0.5)) ** 2 for kind in PATTERNS}
    waves = np.abs(np.fft.fftfreq(32, 1 / 32))
    cycles = np.hypot(waves[:, None], waves)
    mean = {kind: np.sum(cycles * power[kind]) / np.sum(power[kind]) for kind in PATTERNS}
    assert mean["bumps"] < 2 < mean["texture"] < 6 < 10 < mean["checkerboard"]
    assert power["texture"][(cycles < 3) | (cycles > 6)].max() < 1e-20
    np.testing.assert_allclose(rescale_contrast(np.array([0.0, 1.0, 2.0, 3.0]), 0.1).std(), 0.1)
    with pytest.raises(ln.InputError, match="kind = 'stripes' is not allowed"):
        synthetic_image("stripes", 0.2, rng)
    x, y = gaussian_classes(rng, 3000, 2, 3, 0.1)
    within = [x[y[:, c] == 1].std(axis=0) for c in range(3)]
    np.testing.assert_allclose(within, 0.1, rtol=0.1)


def test_rises_are_counted_down_to_rounding():
    loss = np.array([[1.0, 0.5, 0.6, 0.4], [1.0, 1e-13, 3e-13, 2e-13]])
    assert rise_count(loss.astype(np.float32)).tolist() == [1, 0]
    assert rise_count(loss).tolist() == [1, 1]


def test_parameters_and_data(monkeypatch, tmp_path):
    with pytest.raises(ln.InputError, match=r"samples = \(30, 10\) must ascend"):
        StabilityFig9.of_size("paper", {"samples": (30, 10)})
    with pytest.raises(ln.InputError, match=r"large_lr = 0.01 must be above picture_lr = 0.04"):
        StabilityFig9.of_size("paper", {"large_lr": 0.01})
    assert StabilityFig9().at_paper_size
    assert not StabilityFig9.of_size("quick", {}).at_paper_size
    monkeypatch.setenv("LINNET_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert StabilityFig9.of_size("quick", {}).missing() is None
    words = StabilityFig9().missing()
    assert "cifar10" in words
    assert words.endswith("images = synthetic needs none.")
