"""The page of the edge: what it shows against plain iteration and theory, its lines, its corners."""

import math
import tomllib

import jax
import numpy as np
import pytest

import linnet as ln
from linnet.lab.export import execute
from linnet.lab.pages.edge import EdgePage
from linnet.theory import stability

PAGE = EdgePage()


def shown(**changed):
    """All that is shown for these values: columns, headline, values of quantities, ranges."""
    columns, headline, quantities, ranges = {}, None, {}, {}
    for update in PAGE.updates(PAGE.checked(changed)):
        columns |= update.columns
        ranges |= update.ranges
        headline = update.headline or headline
        quantities |= {quantity.name: quantity.value for quantity in update.quantities or ()}
    return columns, headline, quantities, ranges


def lit(columns):
    return np.asarray(columns["diagram"]["image"][0]) > 0


@pytest.mark.parametrize(("depth", "init"), [(2, "one-zero"), (3, "balanced"), (4, "one-zero")])
def test_the_orbit_is_plain_descent(depth, init):
    s, alpha, kappa = 4.0, 0.6, 2.3
    columns, *_ = shown(depth=depth, init=init, target=s, alpha=alpha, kappa=kappa, steps=60)
    y = np.full(depth, alpha)
    if init == "one-zero":
        y[-1] = 0.0
    lr = kappa / (depth * s ** (2 - 2 / depth))
    curved = jax.jit(jax.hessian(lambda y: (jax.numpy.prod(y) - s) ** 2 / 2))
    modes, sharpness = [], []
    for _ in range(61):
        modes.append(np.prod(y))
        sharpness.append(np.linalg.eigvalsh(np.asarray(curved(y)))[-1])
        y = y - lr * (np.prod(y) - s) * np.array([np.prod(np.delete(y, i)) for i in range(depth)])
    np.testing.assert_allclose(columns["orbit"]["value"], modes, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(columns["sharp"]["sharpness"], sharpness, rtol=1e-9)
    assert columns["edge"]["edge"][0] == pytest.approx(2 / lr)


def test_the_diagram_is_that_of_the_theory():
    for depth in (2, 3):
        window = {"left": 1.5, "right": 2.45, "bottom": 0.0, "top": 2.0}
        columns, *_ = shown(depth=depth, kappa=2.2, **window)
        picture = lit(columns)
        kappas = np.linspace(1.5, 2.45, picture.shape[1])
        found = stability.orbit(10.0, depth, kappas / stability.curvature(10.0, depth))
        height = 20.0 / picture.shape[0]
        for column in range(0, len(kappas), 37):
            if abs(kappas[column] - 2) < 0.02:  # settles too slowly there
                continue
            values = (np.flatnonzero(picture[:, column]) + 0.5) * height
            both = np.array([found.bottom[column], found.top[column]])
            assert np.min(np.abs(values[:, None] - both), axis=0).max() <= height
            assert np.min(np.abs(values[:, None] - both), axis=1).max() <= height
        # the line of the theory lies on it, up to where it repels
        ends = [float(line[-1]) for line in columns["cycle"]["value"]]
        assert ends == pytest.approx([float(found.bottom[-1]), float(found.top[-1])], rel=1e-6)
        assert not columns["unstable"]["kappa"]


def test_numbers_are_those_of_the_cycle():
    _, headline, quantities, _ = shown(kappa=2.3)
    theory = stability.orbit(10.0, 3, 2.3 / float(stability.curvature(10.0, 3)))
    assert quantities["multipliers"] == f"{float(theory.gap):.3f} (2 times), {float(theory.multiplier):.3f}"
    assert quantities["period"] == quantities["fate"] == "period 2"
    assert quantities["lyapunov_exponent"] == pytest.approx(math.log(abs(float(theory.multiplier))) / 2, abs=2e-3)
    assert "2 values" in headline


def test_what_it_says():
    words = {1.9: "converges", 2.55: "4 values", 2.9: "Chaos", 3.75: "saddle", 4.6: "diverges"}
    for kappa, word in words.items():
        columns, headline, *_ = shown(kappa=kappa)
        assert word in headline, (kappa, headline)
        assert np.nanmax(np.abs(columns["orbit"]["value"])) <= 30


@pytest.mark.parametrize("moved", [{"kappa": 2.3}, {"kappa": 2.9, "init": "one-zero", "left": 2.5, "right": 3.0}])
def test_the_lines_make_the_same_numbers(moved):
    values = PAGE.checked(moved)
    columns, *_ = shown(**moved)
    names = execute(PAGE, values)
    np.testing.assert_array_equal(np.asarray(names["run"]["modes"])[:, 0], columns["orbit"]["value"])
    np.testing.assert_array_equal(np.asarray(names["run"]["sharpness"]), columns["sharp"]["sharpness"])
    diagram, picture = names["data"]["diagram"].values, lit(columns)
    assert names["data"]["kappa"].values.tolist() == np.linspace(values["left"], values["right"], 800).tolist()
    rows = np.floor((diagram / 10.0 - values["bottom"]) / (values["top"] - values["bottom"]) * len(picture))
    again = np.zeros_like(picture)
    for column, hit in enumerate(rows):
        inside = hit[(hit >= 0) & (hit < len(picture))].astype(int)
        again[inside, column] = True
    assert np.mean(again != picture) < 1e-4  # a value on the border of two rows
    assert names["figure"].axes


def test_the_file_is_the_same_network():
    for init in ("balanced", "one-zero"):
        values = PAGE.checked({"init": init, "kappa": 2.4})
        situation = ln.prediction.Situation.model_validate(tomllib.loads(PAGE.toml(values)))
        problem, state, _ = situation.triple()
        assert float(np.asarray(problem.target).item()) == 10.0
        layers = [float(np.asarray(w).item()) for w in state.layers]
        assert np.abs(layers) == pytest.approx([0.5, 0.5, 0.5 if init == "balanced" else 0.0])


def test_clicks_and_windows_move_the_controls():
    values = PAGE.first()
    assert PAGE.on_click("diagram", 2.34567, 3.0, values)["kappa"] == 2.34567
    assert PAGE.on_click("diagram", 99.0, 3.0, values)["kappa"] == 5.5
    near = PAGE.on_zoom("diagram", (2.5, 2.75, 5.0, 12.0), values)
    assert [near[side] for side in ("left", "right", "bottom", "top")] == [2.5, 2.75, 0.5, 1.2]
    assert PAGE.checked(near) == near
    *_, ranges = shown(**near)
    assert ranges["diagram"] == (2.5, 2.75, 5.0, 12.0)
    assert PAGE.on_zoom("diagram", (math.nan,) * 4, near) == values
    assert PAGE.on_zoom("diagram", (2.5, 2.5 + 1e-10, 5.0, 12.0), values) == values  # nothing but rounding is there
    with pytest.raises(ln.InputError, match="left = 3 and right = 2 are not allowed"):
        shown(left=3.0, right=2.0)


def test_a_move_within_the_window_keeps_the_picture():
    first, second = (shown(kappa=kappa)[0]["diagram"] for kappa in (2.2, 2.7))
    assert first is second


@pytest.mark.slow
def test_corners_and_presets_are_shown():
    corners = [{c.name: end} for c in PAGE.controls if hasattr(c, "low") for end in (c.low, c.high)]
    for moved in [*PAGE.presets.values(), *corners, {"depth": 6, "alpha": 0.2, "init": "one-zero", "kappa": 5.5}]:
        values = PAGE.checked(moved)
        if values["left"] >= values["right"] or values["bottom"] >= values["top"]:
            with pytest.raises(ln.InputError, match="not allowed"):
                shown(**moved)
            continue
        columns, headline, quantities, ranges = shown(**moved)
        assert headline, moved
        assert set(quantities) >= {"period", "lyapunov_exponent", "multipliers"}
        assert all(np.isfinite(side) for window in ranges.values() for side in window), moved
        for name in ("here", "points", "curve", "edge", "exponent"):
            for column in columns[name].values():
                assert not np.any(np.isnan(np.asarray(column))), (moved, name)


def test_other_numbers_do_not_recompile():
    compiled = []
    shown()
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append(event) if "backend_compile" in event else None
    )
    jax.jit(lambda x: x + 1.2345)(1.0)
    assert compiled  # the listener listens
    compiled.clear()
    for moved in ({"kappa": 2.9}, {"target": 3.0}, {"alpha": 0.9}, {"left": 2.2, "top": 1.5}, {"init": "one-zero"}):
        shown(**moved)
    assert not compiled
