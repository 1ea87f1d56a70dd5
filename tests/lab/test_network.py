"""One network: what is seen, against the engine's own observables and the lines that are taken away."""

import jax
import numpy as np
import pytest

import linnet as ln
from linnet.lab.control import Slider
from linnet.lab.pages.network import NetworkPage
from linnet.prediction import situation

CASES = {
    "first": {},
    "deep": {"depth": 3, "init": "balanced", "scale": 0.1},
    "deep Gaussian": {"depth": 3, "width": 20, "scale": 0.5, "inputs": 5},
    "one layer": {"depth": 1},
    "momentum": {"optimizer": "nesterov", "lr": 0.01},
    "last layer zero": {"init": "one-zero", "scale": 0.5},
    "in two legs": {"inputs": 50, "steps": 700, "width": 10**6},
}


def shown(values):
    page = NetworkPage()
    columns, headline, quantities = {}, "", {}
    for update in page.updates(page.checked(values)):
        columns |= update.columns
        headline = headline if update.headline is None else update.headline
        quantities |= {quantity.name: quantity.value for quantity in update.quantities or ()}
    return columns, headline, quantities


@pytest.mark.quick(4)
@pytest.mark.parametrize("moved", CASES.values(), ids=CASES)
def test_what_is_shown_is_the_engines(moved):
    page, names = NetworkPage(), {"print": lambda *_: None}
    columns, *_ = shown(moved)
    exec(page.code(page.checked(moved)), names)
    data = names["data"]
    np.testing.assert_array_equal(columns["loss"]["step"], data["step"])
    np.testing.assert_allclose(columns["loss"]["loss"], data["loss"], rtol=1e-9, atol=1e-25)
    for i, line in enumerate(columns["measured"]["value"]):
        np.testing.assert_allclose(line, data["modes"][:, i], rtol=1e-9, atol=1e-12)
    some = np.isin(data["step"], columns["sharp"]["step"])
    np.testing.assert_allclose(columns["sharp"]["sharpness"], data["sharpness"][some], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(columns["kernel"]["drift"], data["kernel_drift"][1:], rtol=1e-9)


def test_small_drifts_of_the_kernel_keep_their_digits():
    """A lazy network moves its kernel by less than the rounding of a difference of squared norms."""
    columns, *_ = shown({"width": 10**7, "scale": 3.0, "lr": 1e-3, "spectrum": [0.1] * 5, "steps": 50})
    page = NetworkPage()
    names = {"print": lambda *_: None}
    exec(page.code(page.checked({"width": 10**7, "scale": 3.0, "lr": 1e-3, "spectrum": [0.1] * 5, "steps": 50})), names)
    np.testing.assert_allclose(columns["kernel"]["drift"], names["run"]["kernel_drift"][1:], rtol=1e-9)


def test_layers_are_those_of_the_run():
    page = NetworkPage()
    values = page.checked({"inputs": 5, "width": 10})
    columns, *_ = shown(values)
    predicted = ln.prediction.Situation(**page.tables(values)).predict()
    names = {"first": ln.observe.layer_singular_values(1), "last": ln.observe.layer_singular_values(-1)}
    at = ln.record.at(columns["layers"]["step"][0])
    problem, network = predicted.problem, predicted.network
    run = ln.simulate(problem, network, ln.optim.SGD(values["lr"]), steps=300, record=at, observe=names)
    for name in names:
        np.testing.assert_allclose(np.stack(columns["layers"][name], 1), run[name][:, :5], rtol=1e-8)


@pytest.mark.parametrize("moved", NetworkPage.presets.values(), ids=NetworkPage.presets)
def test_presets_show_what_they_say(moved):
    columns, headline, quantities = shown(moved)
    assert "[" not in headline  # of the terminal's markup
    assert all(np.isfinite(line).any() for line in columns["measured"]["value"])
    if "lazy" in quantities["regime"]:
        assert columns["kernel"]["drift"][-1] < 1


@pytest.mark.slow
def test_ends_of_every_slider_are_seen():
    page = NetworkPage()
    for control in page.controls:
        # the deepest networks take long to predict, and depths are among the cases above
        slides = isinstance(control, Slider) and control.name != "depth"
        for end in (control.low, control.high) if slides else ():
            columns, headline, _ = shown({control.name: end})
            assert np.isfinite(columns["loss"]["loss"]).all()
            assert headline


@pytest.mark.parametrize("moved", [{}, {"depth": 3, "width": 20, "scale": 0.5}, {"init": "balanced"}])
def test_a_move_draws_one_network(moved, monkeypatch):
    """The network of the exact training is that of the prediction, not a second one."""
    calls = []

    def counted(module, name):
        function = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, **given: (calls.append(name), function(*args, **given))[1])

    counted(ln.init, "gaussian")
    counted(situation, "_setup")
    shown(moved)
    assert calls.count("_setup") == 1
    assert calls.count("gaussian") == (0 if "init" in moved else 1)


def test_other_numbers_do_not_recompile():
    compiled = []
    shown({})
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append(event) if "backend_compile" in event else None
    )
    jax.jit(lambda x: x + 1.2346)(1.0)
    assert compiled  # the listener listens
    compiled.clear()
    shown({"lr": 0.02, "scale": 0.1, "spectrum": [4.0, 3.0, 2.0, 1.0, 0.5], "seed": 3, "steps": 250, "width": 10**6})
    assert not compiled
