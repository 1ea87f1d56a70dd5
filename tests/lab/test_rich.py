"""The page from lazy to rich: what it shows against other ways to compute it."""

import time

import jax
import numpy as np
import pytest

import linnet as ln
from linnet.lab.pages.rich import RichPage, _given, _training, setup
from linnet.lab.panel import COLORS
from linnet.theory import feature

PAGE = RichPage()
SMALL = {"samples": 10, "width": 50}
WORDS = ("Stage one", "Stage two", "Learned", "Lazy", "Between")


def shown(**moved):
    """All that is shown in the end."""
    columns, headline, quantities = {}, "", {}
    for update in PAGE.updates(PAGE.checked(SMALL | moved)):
        columns |= update.columns
        headline = headline if update.headline is None else update.headline
        quantities |= {quantity.name: quantity.value for quantity in update.quantities or ()}
    return columns, headline, quantities


@pytest.mark.parametrize("moved", [{}, {"time": 0}, {"init": "balanced", "time": 77}, {"v0": 5.0, "time": 200}])
def test_the_lines_make_what_is_shown(moved):
    columns, *_ = shown(**moved)
    values = PAGE.checked(SMALL | moved)
    made = {"print": lambda *_: None}
    exec(PAGE.code(values), made)
    run, at = made["run"], values["time"]
    np.testing.assert_allclose(columns["measured"]["loss"], run["loss"] / run["loss"][0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(columns["measured"]["slope"], run["slope"], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(columns["measured"]["distance"], run["target_distance"], rtol=1e-7)
    np.testing.assert_allclose(columns["neurons"]["w"], run["neurons"][at, 0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(columns["neurons"]["v"], run["neurons"][at, 1], rtol=1e-9, atol=1e-12)
    # the picture is the kernel in the order of the labels, in other units
    order = np.argsort(np.asarray(feature.task(made["problem"]).labels))
    kernel = np.asarray(made["data"]["kernel"])[np.ix_(order, order)]
    picture = columns["kernel"]["image"][0]
    np.testing.assert_allclose(picture / picture[0, 0], kernel / kernel[0, 0], rtol=1e-8)
    assert np.max(np.abs(picture - np.diag(np.diag(picture)))) == pytest.approx(1)
    assert float(columns["here"]["growth"][0]) == pytest.approx(float(run["label_kernel"][-1] / run["label_kernel"][0]))
    assert made["figure"].axes


def test_theory_and_training_agree():
    # many inputs: X X^T is near a multiple of the identity, where the two numbers are all there is
    for moved in ({}, {"init": "balanced", "lam": 1e-3}, {"v0": 3.0, "sigma0": 0.01}):
        columns, *_ = shown(inputs=10**5, **moved)
        for name in ("loss", "slope"):
            assert np.max(np.abs(columns["predicted"][name] - columns["measured"][name])) < 0.02, moved
        richness, growth = (float(columns["here"][name][0]) for name in ("richness", "growth"))
        assert growth == pytest.approx(np.hypot(1, richness), rel=0.15)


def test_units_of_the_initialization():
    values = PAGE.checked(SMALL | {"v0": 0.3, "sigma0": 0.7, "lam": 0.01})
    problem, network, _ = setup(**_given(values))
    task = feature.task(problem)
    unit = float(np.sqrt(task.vstar2))
    drawn = ln.init.readout(jax.random.key(0), problem, [50], sigma0=0.7 * unit, v0=0.3 * unit)
    for layer, wanted in zip(network.layers, drawn.layers, strict=True):
        np.testing.assert_allclose(layer, wanted, rtol=1e-12)
    balanced = _given(values | {"init": "balanced"})
    problem, network, _ = setup(**balanced)
    width = network.widths[1]
    assert network.balance() == pytest.approx(-0.01 * width * float(feature.task(problem).vstar2), rel=1e-4)
    assert _training(**balanced).richness == pytest.approx(2 / 0.01, rel=0.01)


def test_stages_follow_one_another():
    stages = [shown(v0=1e-3, sigma0=1e-3, time=at)[1].split(":")[0] for at in (0, 20, 80, 200)]
    assert stages == ["Stage one", "Stage one", "Stage two", "Learned"]
    assert shown(v0=5.0, sigma0=0.01, time=10)[1].startswith("Lazy")
    assert shown(v0=0.5, sigma0=0.5, time=20)[1].startswith("Between")


def test_features_are_learned_before_the_loss_falls():
    columns, *_ = shown(v0=1e-3, sigma0=1e-3)
    t1 = int(columns["aligned"]["step"][0])
    assert columns["measured"]["slope"][t1] >= 0.95 > columns["measured"]["slope"][t1 - 1]
    assert columns["measured"]["loss"][t1] > 0.9
    lazy, *_ = shown(v0=5.0, sigma0=0.01)
    assert len(lazy["aligned"]["step"]) == 0


def test_the_late_sign_decides_the_color():
    columns, *_ = shown(time=200, v0=1e-3, sigma0=0.01)
    up = np.array([color == COLORS[0] for color in columns["neurons"]["color"]])
    grown = np.abs(columns["neurons"]["v"]) > 0.1 * np.max(np.abs(columns["neurons"]["v"]))
    assert np.any(up[grown])
    assert np.any(~up[grown])
    np.testing.assert_array_equal(up[grown], columns["neurons"]["v"][grown] > 0)


@pytest.mark.parametrize("name", PAGE.presets)
def test_presets_say_something(name):
    columns, words, quantities = shown(**PAGE.presets[name])
    assert words.startswith(WORDS)
    wanted = next((word for word in ("rich", "lazy") if word in name), None)
    assert wanted is None or quantities["regime"] == wanted
    assert np.all(np.isfinite(columns["kernel"]["image"][0]))


@pytest.mark.parametrize("v0", [1e-4, 10.0])
@pytest.mark.parametrize("sigma0", [1e-4, 10.0])
@pytest.mark.parametrize("inputs", [50, 10**5])
def test_corners_of_the_readout(v0, sigma0, inputs):
    columns, words, _ = shown(v0=v0, sigma0=sigma0, inputs=inputs, time=200)
    assert words.startswith(WORDS)
    for name in ("predicted", "measured"):
        assert all(np.all(np.isfinite(column)) for column in columns[name].values())
    assert columns["measured"]["loss"][-1] < 0.1


@pytest.mark.parametrize("lam", [1e-6, 100.0])
@pytest.mark.parametrize("samples", [10, 40])
def test_corners_of_the_imbalance(lam, samples):
    columns, words, _ = shown(init="balanced", lam=lam, samples=samples, time=200)
    assert words.startswith(WORDS)
    for name in ("predicted", "measured"):
        assert all(np.all(np.isfinite(column)) for column in columns[name].values())
    assert columns["measured"]["loss"][-1] < 0.1


def test_a_frame_costs_nothing():
    shown()
    begun = time.perf_counter()
    for at in range(0, 201, 4):
        shown(time=at)
    assert (time.perf_counter() - begun) / 51 < 0.03


def test_other_numbers_compile_nothing():
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, **__: compiled.append(event) if "backend_compile" in event else None
    )
    _training.cache_clear()
    jax.clear_caches()
    shown()
    shown(init="balanced")
    assert compiled  # the listener listens
    compiled.clear()
    shown(v0=0.3, sigma0=0.02, seed=5, inputs=321)
    shown(v0=8.0, sigma0=1e-3)
    shown(init="balanced", lam=3.0, seed=6)
    assert not compiled


def test_the_other_start_is_left_alone():
    # the width and the sizes of one initialization do not make the other anew
    _training.cache_clear()
    shown(init="balanced")
    shown(init="balanced", v0=1.0, sigma0=1.0, width=100)
    assert _training.cache_info().misses == 1
    shown(lam=0.1)
    shown(lam=0.2)
    assert _training.cache_info().misses == 2
