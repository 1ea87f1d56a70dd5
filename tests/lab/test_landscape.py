"""The page of the landscape: its points against whole Hessians, its descents against plain descent, its corners."""

import jax
import numpy as np
import pytest

import linnet as ln
from linnet.lab.export import execute
from linnet.lab.pages.landscape import LandscapePage

PAGE = LandscapePage()


def shown(**moved):
    (update,) = PAGE.updates(PAGE.checked(moved))
    return update.columns, update


@pytest.mark.parametrize(("depth", "width", "point"), [(2, 4, "none"), (2, 2, "1 3"), (3, 3, "2 4"), (3, 4, "1 2")])
def test_points_and_curvatures_are_those_of_the_weights(depth, width, point):
    columns, update = shown(depth=depth, width=width, point=point, steps=500)
    problem = ln.factorization(np.diag([3.0, 2.2, 1.4, 0.7]))
    hidden = (width,) * (depth - 1)
    dense = jax.jit(ln.observe.hessian_matrix)
    for name, negative, loss in zip(*(columns["points"][key] for key in ("name", "negative", "loss")), strict=True):
        kept = tuple(map(int, name.split())) if name != "none" else ()
        state = ln.init.critical(problem, hidden, kept)
        values = np.linalg.eigvalsh(np.asarray(dense(state, problem)))
        assert np.sum(values < -1e-9) == negative
        assert float(problem.cost(state.matrix)) == pytest.approx(loss, abs=1e-12)
        if name == point:
            np.testing.assert_allclose(np.sort(columns["hessian"]["value"]), values, atol=1e-9)
            quantities = {quantity.name: quantity.value for quantity in update.quantities}
            assert quantities["negative_eigenvalues"] == negative
    # a line for each mode of each point
    assert len(columns["edges"]["loss"]) == sum(
        len(name.split()) for name in columns["points"]["name"] if name != "none"
    )


def test_the_descent_is_plain_descent():
    values = PAGE.checked({"depth": 3, "width": 3, "point": "4", "perturbation": 0.01, "steps": 500, "seed": 3})
    columns, _ = shown(**values)
    target, rng = np.diag([3.0, 2.2, 1.4, 0.7]), np.random.default_rng(3)
    saddle = ln.init.critical(ln.factorization(target), (3, 3), (4,))
    layers = [np.asarray(w) + 0.01 * rng.normal(size=w.shape) for w in saddle.layers]
    losses, modes = [], []
    for _ in range(501):
        first, second, third = layers
        gap = third @ second @ first - target
        losses.append(np.sum(gap**2) / 2)
        modes.append(np.diag(third @ second @ first))
        slopes = [second.T @ third.T @ gap, third.T @ gap @ first.T, gap @ first.T @ second.T]
        layers = [w - values["lr"] * g for w, g in zip(layers, slopes, strict=True)]
    steps = columns["loss"]["step"]
    np.testing.assert_allclose(columns["loss"]["loss"], np.array(losses)[steps], rtol=1e-8)
    np.testing.assert_allclose(np.array(columns["modes"]["value"]).T, np.array(modes)[steps], rtol=1e-8, atol=1e-10)


def test_ways_down():
    def way(**moved):
        columns, update = shown(**moved)
        place = dict(zip(columns["points"]["loss"].tolist(), columns["points"]["name"], strict=True))
        return [place[loss] for loss in columns["path"]["loss"].tolist()], update.headline

    ladder, sentence = way()
    assert ladder == ["none", "1", "1 2", "1 2 3", "1 2 3 4"]
    assert "none → 1 → 1 2 → 1 2 3 → 1 2 3 4, a global minimum" in sentence
    assert way(width=2, point="3 4", steps=2000)[0][-1] == "1 2"  # two neurons carry no more
    assert "No direction descends" in way(point="1 2 3 4")[1]
    deep, sentence = way(depth=3, perturbation=1e-8)  # nothing of second order leads down
    assert deep == ["none"]
    assert "waits long" in sentence
    assert "diverged at step" in way(lr=0.5, depth=3, point="1 2 3", perturbation=0.01)[1]


@pytest.mark.parametrize(
    "moved", [{}, {"depth": 3, "point": "1 3", "perturbation": 0.05, "spectrum": [1.0, 3.0, 0.5, 2.0]}]
)
def test_the_lines_make_the_same_numbers(moved, tmp_path):
    columns, _ = shown(**moved)
    names = execute(PAGE, PAGE.checked(moved))
    np.testing.assert_array_equal(np.asarray(names["run"]["loss"]), columns["loss"]["loss"])
    np.testing.assert_array_equal(np.asarray(names["run"]["modes"]).T, columns["modes"]["value"])
    assert names["data"]["point_loss"].values.tolist() == columns["points"]["loss"].tolist()
    assert names["data"]["point_negative"].values.tolist() == columns["points"]["negative"].tolist()
    listed = [" ".join(map(str, point.kept)) or "none" for point in names["prediction"].points]
    assert listed == columns["points"]["name"]
    names["data"].to_netcdf(tmp_path / "way.nc", engine="scipy")
    assert names["figure"].axes


def test_a_click_takes_the_nearest_point():
    columns, _ = shown()
    points = columns["points"]
    for name, x, y in zip(points["name"], points["negative"], points["loss"], strict=True):
        assert PAGE.on_click("graph", x + 0.1, y - 0.02, PAGE.first())["point"] == name


def test_corners_and_presets_are_shown():
    corners = [
        {c.name: end} for c in PAGE.controls if hasattr(c, "low") for end in (c.low, c.high) if c.name != "spectrum"
    ]
    flat = [{"spectrum": [value] * 4} for value in (0.2, 4.0)]
    for moved in [
        *PAGE.presets.values(),
        *corners,
        *flat,
        {"lr": 0.5, "depth": 4, "perturbation": 0.3, "steps": 20_000},
    ]:
        columns, update = shown(**moved)
        assert update.headline.startswith("A network that has learned"), moved
        assert update.quantities
        assert np.any(np.isfinite(columns["loss"]["loss"])), moved
        for name in ("points", "path", "stops"):
            assert np.all(np.isfinite(columns[name]["loss"]))
    with pytest.raises(ln.InputError, match="point = 1 2 3 is not allowed: a layer of width 2"):
        shown(width=2, point="1 2 3")


def test_other_numbers_do_not_recompile():
    compiled = []
    shown()
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append(event) if "backend_compile" in event else None
    )
    jax.jit(lambda x: x + 1.2346)(1.0)
    assert compiled  # the listener listens
    compiled.clear()
    for moved in (
        {"lr": 0.01},
        {"perturbation": 0.1},
        {"seed": 7},
        {"steps": 2000},
        {"point": "2 3"},
        {"spectrum": [4, 3, 2, 1]},
    ):
        shown(**moved)
    assert not compiled
