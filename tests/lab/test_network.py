"""One network: what is seen, against the engine's own observables and the lines that are taken away."""

import jax
import numpy as np
import pytest

import linnet as ln
from linnet.lab.control import Slider
from linnet.lab.rooms.network import Network

CASES = {
    "first": {},
    "deep": {"depth": 3, "start": "balanced", "scale": 0.1},
    "deep Gaussian": {"depth": 3, "width": 20, "scale": 0.5, "inputs": 5},
    "one layer": {"depth": 1},
    "momentum": {"optimiser": "nesterov", "lr": 0.01},
    "last layer zero": {"start": "one-zero", "scale": 0.5},
    "in two legs": {"inputs": 50, "steps": 700, "width": 10**6},
}


def seen(values):
    room = Network()
    columns, said = {}, {}
    for sight in room.look(room.checked(values)):
        columns |= sight.columns
        said |= {"sentence": sight.sentence or said.get("sentence"), "numbers": sight.numbers or said.get("numbers")}
    return columns, said


@pytest.mark.parametrize("moved", CASES.values(), ids=CASES)
def test_what_is_seen_is_the_engines(moved):
    room, names = Network(), {"print": lambda *_: None}
    columns, _ = seen(moved)
    exec(room.code(room.checked(moved)), names)
    data = names["data"]
    np.testing.assert_array_equal(columns["loss"]["step"], data["step"])
    np.testing.assert_allclose(columns["loss"]["loss"], data["loss"], rtol=1e-9, atol=1e-25)
    for i, line in enumerate(columns["seen"]["value"]):
        np.testing.assert_allclose(line, data["modes"][:, i], rtol=1e-9, atol=1e-12)
    some = np.isin(data["step"], columns["sharp"]["step"])
    np.testing.assert_allclose(columns["sharp"]["sharpness"], data["sharpness"][some], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(columns["kernel"]["drift"], data["kernel_drift"][some][1:], rtol=1e-6, atol=1e-9)


def test_layers_are_those_of_the_run():
    room = Network()
    values = room.checked({"inputs": 5, "width": 10})
    columns, _ = seen(values)
    problem, start = ln.predict.network_start(room.situation(values))
    names = {"first": ln.observe.layer_singular_values(1), "last": ln.observe.layer_singular_values(-1)}
    at = ln.at(columns["layers"]["step"][0])
    run = ln.simulate(problem, start, ln.GradientDescent(values["lr"]), steps=300, record=at, observe=names)
    for name in names:
        np.testing.assert_allclose(np.stack(columns["layers"][name], 1), run[name][:, :5], rtol=1e-8)


@pytest.mark.parametrize("moved", Network.presets.values(), ids=Network.presets)
def test_presets_show_what_they_say(moved):
    columns, said = seen(moved)
    assert all(np.isfinite(line).any() for line in columns["seen"]["value"])
    if "lazy" in said["numbers"]["regime"]:
        assert columns["kernel"]["drift"][-1] < 1


def test_ends_of_every_slider_are_seen():
    room = Network()
    for control in room.controls:
        # the deepest networks take long to predict, and depths are among the cases above
        slides = isinstance(control, Slider) and control.name != "depth"
        for end in (control.low, control.high) if slides else ():
            columns, said = seen({control.name: end})
            assert np.isfinite(columns["loss"]["loss"]).all()
            assert said["sentence"]


def test_other_numbers_do_not_recompile():
    compiled = []
    seen({})
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append(event) if "backend_compile" in event else None
    )
    jax.jit(lambda x: x + 1.2346)(1.0)
    assert compiled  # the listener listens
    compiled.clear()
    seen({"lr": 0.02, "scale": 0.1, "spectrum": [4.0, 3.0, 2.0, 1.0, 0.5], "seed": 3, "steps": 250, "width": 10**6})
    assert not compiled
