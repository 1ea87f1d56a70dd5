"""The room from lazy to rich: what it shows against other ways to compute it."""

import time

import jax
import numpy as np
import pytest

from linnet.lab.dress import COLOURS
from linnet.lab.rooms.rich import Rich, _film, _network, _setting
from linnet.theory import feature

ROOM = Rich()
SMALL = {"samples": 10, "width": 50}
WORDS = ("Stage one", "Stage two", "Learned", "Lazy", "Between")


def seen(**moved):
    """All that is shown in the end."""
    columns, words, numbers = {}, None, {}
    for sight in ROOM.look(ROOM.checked(SMALL | moved)):
        columns |= sight.columns
        words, numbers = sight.sentence or words, sight.numbers or numbers
    return columns, words, numbers


@pytest.mark.parametrize("moved", [{}, {"time": 0}, {"start": "balanced", "time": 77}, {"v0": 5.0, "time": 200}])
def test_the_lines_make_what_is_seen(moved):
    columns, *_ = seen(**moved)
    values = ROOM.checked(SMALL | moved)
    made = {"print": lambda *_: None}
    exec(ROOM.code(values), made)
    run, at = made["run"], values["time"]
    np.testing.assert_allclose(columns["seen"]["loss"], run["loss"] / run["loss"][0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(columns["seen"]["slope"], run["slope"], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(columns["seen"]["distance"], run["target_distance"], rtol=1e-7)
    np.testing.assert_allclose(columns["neurons"]["w"], run["neurons"][at, 0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(columns["neurons"]["v"], run["neurons"][at, 1], rtol=1e-9, atol=1e-12)
    # the picture is the kernel in the order of the labels, in other units
    order = np.argsort(np.asarray(made["y"]))
    kernel = np.asarray(made["data"]["kernel"])[np.ix_(order, order)]
    shown = columns["kernel"]["kernel"][0]
    np.testing.assert_allclose(shown / shown[0, 0], kernel / kernel[0, 0], rtol=1e-8)
    assert np.max(np.abs(shown - np.diag(np.diag(shown)))) == pytest.approx(1)
    assert float(columns["here"]["growth"][0]) == pytest.approx(float(run["label_kernel"][-1] / run["label_kernel"][0]))
    assert made["figure"].axes


def test_theory_and_training_agree():
    # many inputs: X X^T is near a multiple of the identity, where the two numbers are all there is
    for moved in ({}, {"start": "balanced", "lam": 1e-3}, {"v0": 3.0, "sigma0": 0.01}):
        columns, *_ = seen(inputs=10**5, **moved)
        for name in ("loss", "slope"):
            assert np.max(np.abs(columns["said"][name] - columns["seen"][name])) < 0.02, moved
        richness, growth = (float(columns["here"][name][0]) for name in ("richness", "growth"))
        assert growth == pytest.approx(np.hypot(1, richness), rel=0.15)


def test_units_of_the_start():
    values = ROOM.checked(SMALL | {"v0": 0.3, "sigma0": 0.7, "lam": 0.01})
    setting = _setting(**_network(values))
    task = feature.task(setting.problem)
    assert float(feature.richness(task.vstar2, setting.v0, setting.sigma0)) == pytest.approx(
        2 / (0.3**2 + 0.7**2), rel=1e-4
    )
    balanced = _setting(**_network(values | {"start": "balanced"}))
    task = feature.task(balanced.problem)
    assert balanced.start.balance() == pytest.approx(balanced.lam)
    assert balanced.lam == pytest.approx(-0.01 * balanced.width * float(task.vstar2), rel=1e-4)
    assert _film(**_network(values | {"start": "balanced"})).richness == pytest.approx(2 / 0.01, rel=0.01)


def test_stages_follow_one_another():
    told = [seen(v0=1e-3, sigma0=1e-3, time=at)[1].split(":")[0] for at in (0, 20, 80, 200)]
    assert told == ["Stage one", "Stage one", "Stage two", "Learned"]
    assert seen(v0=5.0, sigma0=0.01, time=10)[1].startswith("Lazy")
    assert seen(v0=0.5, sigma0=0.5, time=20)[1].startswith("Between")


def test_features_are_learned_before_the_loss_falls():
    columns, *_ = seen(v0=1e-3, sigma0=1e-3)
    t1 = int(columns["aligned"]["step"][0])
    assert columns["seen"]["slope"][t1] >= 0.95 > columns["seen"]["slope"][t1 - 1]
    assert columns["seen"]["loss"][t1] > 0.9
    lazy, *_ = seen(v0=5.0, sigma0=0.01)
    assert len(lazy["aligned"]["step"]) == 0


def test_the_late_sign_is_told_by_the_colour():
    columns, *_ = seen(time=200, v0=1e-3, sigma0=0.01)
    up = np.array([colour == COLOURS[0] for colour in columns["neurons"]["colour"]])
    grown = np.abs(columns["neurons"]["v"]) > 0.1 * np.max(np.abs(columns["neurons"]["v"]))
    assert np.any(up[grown])
    assert np.any(~up[grown])
    np.testing.assert_array_equal(up[grown], columns["neurons"]["v"][grown] > 0)


@pytest.mark.parametrize("name", ROOM.presets)
def test_presets_say_something(name):
    columns, words, numbers = seen(**ROOM.presets[name])
    assert words.startswith(WORDS)
    wanted = next((word for word in ("rich", "lazy") if word in name), None)
    assert wanted is None or numbers["regime"] == wanted
    assert np.all(np.isfinite(columns["kernel"]["kernel"][0]))


@pytest.mark.parametrize("v0", [1e-4, 10.0])
@pytest.mark.parametrize("sigma0", [1e-4, 10.0])
@pytest.mark.parametrize("inputs", [50, 10**5])
def test_corners_of_the_readout(v0, sigma0, inputs):
    columns, words, _ = seen(v0=v0, sigma0=sigma0, inputs=inputs, time=200)
    assert words.startswith(WORDS)
    for name in ("said", "seen"):
        assert all(np.all(np.isfinite(column)) for column in columns[name].values())
    assert columns["seen"]["loss"][-1] < 0.1


@pytest.mark.parametrize("lam", [1e-6, 100.0])
@pytest.mark.parametrize("samples", [10, 40])
def test_corners_of_the_imbalance(lam, samples):
    columns, words, _ = seen(start="balanced", lam=lam, samples=samples, time=200)
    assert words.startswith(WORDS)
    for name in ("said", "seen"):
        assert all(np.all(np.isfinite(column)) for column in columns[name].values())
    assert columns["seen"]["loss"][-1] < 0.1


def test_a_frame_costs_nothing():
    seen()
    begun = time.perf_counter()
    for at in range(0, 201, 4):
        seen(time=at)
    assert (time.perf_counter() - begun) / 51 < 0.03


def test_other_numbers_compile_nothing():
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, **__: compiled.append(event) if "backend_compile" in event else None
    )
    _film.cache_clear()
    _setting.cache_clear()
    jax.clear_caches()
    seen()
    seen(start="balanced")
    assert compiled  # the listener listens
    compiled.clear()
    seen(v0=0.3, sigma0=0.02, seed=5, inputs=321)
    seen(v0=8.0, sigma0=1e-3)
    seen(start="balanced", lam=3.0, seed=6)
    assert not compiled


def test_the_other_start_is_left_alone():
    # the width and the sizes of one start do not make the other anew
    _film.cache_clear()
    seen(start="balanced")
    seen(start="balanced", v0=1.0, sigma0=1.0, width=100)
    assert _film.cache_info().misses == 1
    seen(lam=0.1)
    seen(lam=0.2)
    assert _film.cache_info().misses == 2
