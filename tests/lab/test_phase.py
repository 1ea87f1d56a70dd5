"""The page of the phase diagram: what it shows against other ways to compute it."""

import itertools

import jax
import numpy as np
import pytest

import linnet as ln
from linnet import sweep
from linnet.lab.pages.phase import _VARIANCES, _WIDTHS, PhasePage, _levels, _plane
from linnet.theory import mixed

PAGE = PhasePage()
SMALL = {"d": 20, "rank": 2, "steps": 250}


def shown(**moved):
    """All that is shown in the end."""
    columns, headline, quantities = {}, "", {}
    for update in PAGE.updates(PAGE.checked(SMALL | moved)):
        columns |= update.columns
        headline = headline if update.headline is None else update.headline
        quantities |= {quantity.name: quantity.value for quantity in update.quantities or ()}
    return columns, headline, quantities


@pytest.mark.quick(2)
@pytest.mark.parametrize(("gamma_w", "gamma_sigma2"), [(2.2, -2.1), (0.7, -2.0), (2.6, -1.4)])
def test_the_lines_make_what_is_shown(gamma_w, gamma_sigma2):
    values = PAGE.checked(SMALL | {"gamma_w": gamma_w, "gamma_sigma2": gamma_sigma2, "seed": 3})
    columns, *_ = shown(gamma_w=gamma_w, gamma_sigma2=gamma_sigma2, seed=3)
    made = {"print": lambda *_: None}
    exec(PAGE.code(values), made)
    run = made["run"]
    for name, column in (("test_error", "test"), ("loss", "train")):
        np.testing.assert_allclose(columns["run"][column], run[name], rtol=1e-9)
    best = int(np.argmin(run["test_error"]))
    assert columns["best"]["step"] == [run.steps[best]]
    strongest = columns["values"]["value"][0]
    np.testing.assert_allclose(
        strongest, np.interp(columns["values"]["step"][0], run.steps, run["singular_values"][:, 0])
    )
    assert set(made["data"]) >= {"loss", "test_error", "singular_values"}
    assert len(made["figure"].axes) == 3


def test_theory_and_training_agree_where_it_holds():
    # a wide network from a small initialization: the mixed flow is the training, and the plane says what it reaches
    columns, _, quantities = shown(d=50, rank=3, gamma_w=2.6, gamma_sigma2=-2.4, steps=400)
    flow, values = (np.array(columns[name]["value"]) for name in ("flow", "values"))
    assert np.max(np.abs(flow[:3] - values[:3])) < 0.03 * np.max(values)
    assert float(columns["best"]["test"][0]) == pytest.approx(quantities["test_error"], rel=0.1)
    plane = columns["plane"]
    x, y = (round(30 * (-2.4 + 3) / 3), round(28 * 2.6 / 2.8))
    assert plane["image"][0][y, x] == pytest.approx(quantities["test_error"], rel=0.01)
    # the picture's first cell lies around the first exponents
    assert plane["x"][0] + plane["dw"][0] / 62 == pytest.approx(-3)
    assert plane["y"][0] + plane["dh"][0] / 58 == pytest.approx(0)


def test_the_signal_has_the_size_that_was_asked_for():
    for rank, signal in itertools.product((1, 2, 5), (0.4, 3.0)):
        levels = _levels(PAGE.checked({"rank": rank, "signal": signal}))
        assert np.linalg.norm(levels) == pytest.approx(signal, rel=1e-5)
        problem = ln.low_rank_recovery(jax.random.key(0), 20, rank, levels=levels)
        assert np.sqrt(np.mean(np.asarray(problem.truth) ** 2)) == pytest.approx(signal, rel=1e-5)


def test_few_neurons_have_few_singular_values():
    columns, *_ = shown(gamma_w=0.0, gamma_sigma2=-1.0)
    values = np.array(columns["values"]["value"])
    assert np.all(np.isfinite(values[0]))
    assert np.all(np.isnan(values[1:]))


def test_a_click_is_two_sliders():
    first = PAGE.first()
    moved = PAGE.on_click("plane", -1.234, 0.567, first)
    assert moved == first | {"gamma_sigma2": -1.23, "gamma_w": 0.57}
    edge = PAGE.checked(PAGE.on_click("plane", 0.03, -0.02, first))
    assert (edge["gamma_sigma2"], edge["gamma_w"]) == (0.0, 0.0)
    assert PAGE.on_click("plane", -1.0, -0.4, first) == first  # beside the plane


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", PAGE.presets)
def test_presets_say_something(name):
    values = PAGE.checked(PAGE.presets[name])
    moved = {key: value for key, value in values.items() if key not in ("d", "steps")}
    columns, words, _ = shown(**moved)
    assert words.startswith(("rich", "lazy", "infinite noise", "underparametrized"))
    assert np.all(np.isfinite(columns["run"]["test"]))


def _phase(values):
    exponents = {name: values[name] for name in ("d", "gamma_w", "gamma_sigma2")}
    return ln.prediction.phase(**exponents, levels=_levels(values)).phase


def test_what_a_preset_promises():
    found = {name: _phase(PAGE.checked(moved)) for name, moved in PAGE.presets.items()}
    assert found["rich: signals first, one after the other"] == mixed.Phase.RICH
    assert found["lazy: signal and noise together"] == mixed.Phase.LAZY
    assert found["the initial matrix is larger than the signal"] == mixed.Phase.INFINITE_NOISE
    assert found["fewer neurons than dimensions"] == mixed.Phase.UNDERPARAMETRIZED
    _, words, _ = shown(**PAGE.presets["a signal that the noise hides"] | {"steps": 250})
    assert "hides" in words


@pytest.mark.quick(2)
@pytest.mark.parametrize("gamma_w", [0.0, 2.8])
@pytest.mark.parametrize("gamma_sigma2", [-3.0, 0.0])
@pytest.mark.parametrize("signal", [0.2, 4.0])
def test_corners(gamma_w, gamma_sigma2, signal):
    columns, words, quantities = shown(gamma_w=gamma_w, gamma_sigma2=gamma_sigma2, signal=signal, d=10)
    assert words
    assert quantities
    for column in (
        columns["run"]["test"],
        columns["run"]["train"],
        columns["predicted"]["test"],
        columns["plane"]["image"][0],
    ):
        assert np.all(np.isfinite(column))


def test_other_numbers_compile_nothing():
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, **__: compiled.append(event) if "backend_compile" in event else None
    )
    _plane.cache_clear()
    jax.clear_caches()
    shown()
    assert compiled  # the listener listens
    compiled.clear()
    shown(gamma_w=0.5, gamma_sigma2=-1.5, seed=7, signal=2.5, steps=1000)
    shown(gamma_w=0.9, gamma_sigma2=-0.3, seed=8, signal=0.5, steps=251)
    shown(gamma_w=2.8, gamma_sigma2=-2.9)
    assert not compiled


def test_the_plane_is_computed_once(monkeypatch):
    _plane.cache_clear()
    shown()
    shown(gamma_w=1.0, seed=5)
    assert _plane.cache_info().misses == 1
    shown(signal=2.0)
    assert _plane.cache_info().misses == 2


def test_the_sweep_of_the_plane(tmp_path):
    values = PAGE.checked({"d": 10, "rank": 2, "signal": 2.0, "seed": 4})
    spec = sweep.parse(PAGE.toml(values))
    assert (spec.seed, spec.let["d"], spec.let["rank"]) == (4, 10, 2)
    assert spec.problem.arguments["levels"] == _levels(values)
    assert {name: (axis.start, axis.stop) for name, axis in spec.axes.items()} == {
        "gamma_sigma2": _VARIANCES,
        "gamma_w": _WIDTHS,
    }
    # one cell of it, wide and from a small initialization, is the training that is shown
    axes = {"gamma_sigma2": [-2.0], "gamma_w": [2.4]}
    sweep.run(spec.model_copy(update={"axes": axes}), tmp_path / "cell.zarr")
    import xarray

    cell = xarray.open_zarr(tmp_path / "cell.zarr").load()
    columns, *_ = shown(**values | {"gamma_sigma2": -2.0, "gamma_w": 2.4, "steps": 250})
    assert cell["test"].item() == pytest.approx(float(columns["best"]["test"][0]), rel=0.1)
