"""Figures of networks with relu on images: at toy size on made images, and their verdict on real ones."""

import os

import numpy as np
import pytest
from toys import broken, quiet

import linnet as ln
from linnet.experiments.stability_networks import (
    CONTROL,
    SETTLED,
    Case,
    StabilityFig17,
    StabilityFig19,
    _bands,
    _uniform,
)

REAL = os.environ.get("LINNET_DATA")


@pytest.fixture
def made(monkeypatch):
    """Little images in the place of the published ones."""

    def load(name):
        rng = np.random.default_rng(0)
        classes = rng.integers(10, size=80)
        shape = (6, 6) if name == "mnist" else (3, 7, 7)
        d = int(np.prod(shape))
        pixels = np.clip(rng.uniform(40, 200, size=(10, d))[classes] + 30 * rng.normal(size=(80, d)), 0, 255)
        return ln.data.Images(pixels.astype(np.uint8), classes, shape)

    monkeypatch.setattr(ln.data, "load", load)
    monkeypatch.setattr(ln.data, "missing", lambda name: None)


@pytest.mark.slow
def test_two_clocks(made, tmp_path):
    toy = {"n": 40, "width": 12, "deviation": 0.1, "lr": 1.0, "steps": 600, "draws": 2}
    figure = StabilityFig17.of_size("quick", toy)
    data, there = figure.data(tmp_path, quiet)
    assert not there
    assert figure.data(tmp_path, quiet)[1]
    assert data["values"].shape == (2, 3, 601, 5)
    assert np.isfinite(data["sharpness"].values[0]).sum() == 2 * 24 + 1
    assert len(figure.draw(data).axes) == 6
    # what was recorded against the network itself
    images = ln.data.load("mnist").subset(40, seed=0)
    assert data["loss"].values[0, 0] == pytest.approx(0.1, rel=0.05)  # outputs of nearly 0
    singular = data["values"].values[0]
    assert np.all(np.diff(singular, axis=-1) <= 0)
    assert images.scaled().max() <= 1
    # a run as it must be, made by hand: every sentence holds, and each can fail
    step = data["step"].values
    swing = 1 + 0.3 * np.sin(2 * np.pi * step / 64)
    after = step >= SETTLED
    seen = (step % 25 <= 1) & (step > 0)
    sharpness = np.where(seen, 2 * (1.02 + 0.04 * (-1.0) ** step), np.nan)
    loss = np.exp(-0.002 * step) * swing * (1 + 1e-6 * (-1.0) ** step)
    first = data.isel(draw=slice(0, 1)).assign(
        loss=(("draw", "step"), loss[None]),
        sharpness=(("draw", "step"), sharpness[None]),
        flip=(("draw", "step"), np.where(after, -0.99, 0.9)[None]),
        values=(
            ("draw", "layer", "step", "index"),
            np.broadcast_to(2 + 0.01 * (-1.0) ** step[:, None], (1, 3, 601, 5)),
        ),
    )
    one = figure.model_copy(update={"draws": 1})
    assert len(one.accept(first)) == 12
    assert not broken(one, first)
    assert len(broken(one, first.assign(sharpness=1.6 * first["sharpness"]))) == 2
    assert broken(one, first.assign(sharpness=0.4 * first["sharpness"])) == {
        "first record of the sharpness at 2/lr, step"
    }
    assert broken(one, first.assign(flip=-first["flip"])) == {
        "cosine of consecutive steps before the loss first rises, median",
        "cosine of consecutive steps at the edge, median",
    }
    alternating = first.assign(loss=first["loss"] * (1 + 0.5 * (-1.0) ** first["step"]))
    assert {name.split(":")[0] for name in broken(one, alternating)} >= {"period 2", "slow cycle"}
    drifting = first.assign(values=first["values"] * 0 + (1 + 0.1 * np.sin(2 * np.pi * first["step"] / 64)))
    assert broken(one, drifting) == {"period 2: its share of a layer's singular values, smallest"}


def test_uniform_weights_are_the_scaled_default():
    network = _uniform(ln.networks.mlp(0, np.zeros((2, 400), np.float32), (300, 10)), 3)
    for layer in network.layers:
        top = 0.01 / np.sqrt(layer.shape[1])
        assert np.abs(layer).max() <= top
        np.testing.assert_allclose(np.std(layer), top / np.sqrt(3), rtol=0.03)
        assert layer.dtype == np.float32


def test_values_and_rotations(made, tmp_path):
    toy = {"cases": (("mnist", 60, 0.5, 10), ("cifar10", 70, 0.05, 10)), "width": 12, "window": 6, "d": 6, "draws": 2}
    figure = StabilityFig19.of_size("quick", toy)
    data, _ = figure.data(tmp_path, quiet)
    again, there = figure.data(tmp_path, quiet)
    assert there
    assert [str(name) for name in again["case"].values] == ["MNIST, η = 0.5", "CIFAR-10, η = 0.05", CONTROL]
    assert len(figure.draw(again).axes) == 10
    assert data["excess"].shape == (2, 3, 4, 5)
    # the parts of a small step add up to it, and the control is aligned
    change = data["change"].sel(part=["values", "rotations"]).sum("part") - data["change"].sel(part="whole")
    assert float(np.abs(change[:, :2] / data["change"].sel(part="whole")[:, :2]).max()) < 0.2
    assert not any(CONTROL in name for name in broken(figure, data))
    assert len(figure.accept(data)) == 2 * (2 * 10 + 4)
    # with many images fewer bands, the share of the largest values among them
    one = data.isel(draw=0, case=0)
    many = _bands(one, Case("mnist", 20_000, 2.0, 10))
    (largest,) = (finding for name, finding in many.items() if "layers 2 and 3" in name)
    assert largest.measured == float(one["top 10"][1:3].min())
    assert len(many) == 4
    swapped = data.assign({"values share": data["rotations share"], "rotations share": data["values share"]})
    assert sum(CONTROL in name for name in broken(figure, swapped)) == 4
    assert len({name for name in broken(figure, swapped) if "excess loss, share" in name}) >= 8


def test_cases_are_checked():
    for cases, words in (
        ((("mnist", 5, 1.0, 10),), "20 to 60000 images"),
        ((("fashion", 100, 1.0, 10),), "mnist"),
        ((("mnist", 100, 1.0, 10), ("mnist", 200, 1.0, 10)), "differ"),
    ):
        with pytest.raises(ln.InputError, match=words):
            StabilityFig19.of_size("quick", {"cases": cases})


def test_without_data_they_are_left_out(monkeypatch, tmp_path):
    monkeypatch.delenv("LINNET_DATA", raising=False)
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path))
    for kind in (StabilityFig17, StabilityFig19):
        assert "linnet data fetch mnist" in kind().missing()


@pytest.mark.skipif(REAL is None, reason="LINNET_DATA names no folder with data sets")
@pytest.mark.slow
def test_rotations_carry_the_oscillation_on_real_images(tmp_path):
    figure = StabilityFig19.of_size("quick", {"cases": (("mnist", 500, 2.0, 150),), "width": 100, "seed": 5})
    data, _ = figure.data(tmp_path, quiet)
    assert not {name for name in broken(figure, data) if "share of the" in name}
