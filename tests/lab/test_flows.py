"""The page at the edge: what it shows against plain runs, its lines, its corners."""

import time
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linnet as ln
from linnet.lab.export import execute
from linnet.lab.pages.flows import FlowsPage, setup

PAGE = FlowsPage()


def shown(**changed):
    """All that is shown for these values: columns, headline, values of quantities."""
    columns, headline, quantities = {}, None, {}
    for update in PAGE.updates(PAGE.checked(changed)):
        columns |= update.columns
        headline = update.headline or headline
        quantities |= {quantity.name: quantity.value for quantity in update.quantities or ()}
    return columns, headline, quantities


@pytest.mark.slow
def test_the_dots_are_plain_descent():
    _, network = setup("sine", 4)
    columns, *_ = shown(lr=0.45, target="sine", seed=4)
    flat, back = jax.flatten_util.ravel_pytree(network.trained())
    x = np.linspace(-1, 1, 20)[:, None]
    y = np.sin(4 * x)
    first, second, third = (jax.tree.leaves(network.trained())[i : i + 2] for i in (0, 2, 4))
    assert [leaf.shape for leaf in (*first, *second, *third)] == [(8, 1), (8,), (8, 8), (8,), (1, 8), (1,)]

    def cost(flat):
        (a, p), (b, q), (c, r) = (jax.tree.leaves(back(flat))[i : i + 2] for i in (0, 2, 4))
        out = jnp.tanh(jnp.tanh(x @ a.T + p) @ b.T + q) @ c.T + r
        return jnp.sum((out - y) ** 2) / 40

    value, top = jax.jit(jax.value_and_grad(cost)), jax.jit(lambda w: jnp.linalg.eigvalsh(jax.hessian(cost)(w))[-1])
    losses, sharpness = [], {}
    for step in range(241):
        loss, gradient = value(flat)
        losses.append(float(loss))
        if step % 8 < 2:
            sharpness[step] = float(top(flat))
        flat = flat - 0.45 * gradient
    np.testing.assert_allclose(columns["descent_loss"]["loss"][:40], losses[:40], rtol=1e-9)
    measured = columns["descent_sharpness"]
    assert set(sharpness) <= set(measured["step"].tolist())
    early = measured["step"] < 40  # beyond the edge rounding errors grow
    wanted = [sharpness[step] for step in measured["step"][early].tolist()]
    np.testing.assert_allclose(measured["sharpness"][early], wanted, rtol=1e-8)
    np.testing.assert_allclose(columns["edge"]["edge"], 2 / 0.45)


@pytest.mark.parametrize("lr", [0.12, 0.4])
def test_the_lines_are_plain_runs(lr):
    problem, network = setup("cubic", 1)
    columns, *_ = shown(lr=lr)
    for name, flow in (("rod", ln.optim.RodFlow(lr)), ("central", ln.optim.CentralFlow(lr, directions=3))):
        run = ln.simulate(problem, network, flow, steps=240, observe=["predicted_loss"])
        np.testing.assert_allclose(columns[f"{name}_loss"]["loss"], run["predicted_loss"], rtol=1e-6)
    central = columns["central_sharpness"]["sharpness"] * lr / 2
    assert np.max(central) < 1.005  # descent is 0.2 and more beyond it
    assert (np.max(columns["descent_sharpness"]["sharpness"]) * lr / 2 > 1.1) == (lr == 0.4)


def test_below_the_edge_all_are_descent():
    columns, headline, quantities = shown(lr=0.12)
    assert "below the edge" in headline
    assert quantities["edge"] == "not within these steps"
    for name in ("rod", "central"):
        assert abs(quantities[f"{name}_error"]) < 0.01
        np.testing.assert_allclose(
            columns[f"{name}_loss"]["loss"][100:], columns["descent_loss"]["loss"][100:], rtol=0.01
        )


def test_numbers_at_the_edge_are_means_of_what_is_drawn():
    columns, headline, quantities = shown()
    measured = columns["descent_sharpness"]
    first = int(measured["step"][measured["sharpness"] > 2 / 0.3][0])
    assert quantities["edge"] == f"at step {first}"
    loss = columns["descent_loss"]["loss"]
    share = np.mean(np.diff(loss[first:]) > 0)
    assert f"from step {first} on: the loss rises at {100 * share:.0f} % of the steps" in headline
    assert f"{np.mean(loss[-40:]) / loss[0]:.2g} of the initial" in headline
    for name in ("descent", "rod", "central"):
        loss = np.mean(columns[f"{name}_loss"]["loss"][first:])
        assert quantities[f"{name}_loss"] == pytest.approx(loss)
        late = columns[f"{name}_sharpness"]["step"] >= first
        mean = np.mean(columns[f"{name}_sharpness"]["sharpness"][late]) * 0.3 / 2
        assert quantities[f"{name}_sharpness"] == pytest.approx(mean)
    assert quantities["central_error"] == pytest.approx(quantities["central_loss"] / quantities["descent_loss"] - 1)


@pytest.mark.parametrize("moved", [{}, {"lr": 0.2, "target": "square", "seed": 3}])
def test_the_code_makes_the_same_numbers(moved):
    columns, *_ = shown(**moved)
    names = execute(PAGE, PAGE.checked(moved))
    np.testing.assert_array_equal(names["data"]["loss"], columns["descent_loss"]["loss"])
    for name in ("rod", "central"):
        np.testing.assert_array_equal(names["data"][f"{name}_loss"], columns[f"{name}_loss"]["loss"])
        sharpness = names["data"][f"{name}_sharpness"].values
        np.testing.assert_array_equal(sharpness[np.isfinite(sharpness)], columns[f"{name}_sharpness"]["sharpness"])
    assert len(names["figure"].axes) == 2


def test_corners_and_presets_are_shown():
    corners = [
        {"lr": lr, "target": target, "seed": seed}
        for lr in (0.1, 0.5)
        for target in ("cubic", "sine", "square")
        for seed in (0, 9)
    ]
    for moved in [*PAGE.presets.values(), *corners]:
        columns, headline, quantities = shown(**moved)
        assert headline, moved
        assert len(quantities) == 9
        for name, parts in columns.items():
            assert all(np.all(np.isfinite(column)) for column in parts.values()), (moved, name)


def test_what_is_not_allowed_is_a_sentence():
    for given, words in (
        ({"lr": 2.0}, "lr = 2.0 is not allowed: give a number from 0.1 to 0.5."),
        ({"target": "step"}, "target = 'step' is not allowed: give one of cubic, sine, square."),
        ({"seed": 1.5}, "seed = 1.5 is not allowed: give a whole number."),
    ):
        with pytest.raises(ln.InputError) as refused:
            PAGE.checked(given)
        assert str(refused.value) == words


def test_the_file_has_the_values():
    values = PAGE.checked({"lr": 0.35, "seed": 2})
    assert tomllib.loads(PAGE.toml(values)) == {"page": "flows", "controls": values}


def test_other_numbers_do_not_recompile():
    compiled = []
    shown()
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append(event) if "backend_compile" in event else None
    )
    jax.jit(lambda x: x + 1.2345)(1.0)
    assert compiled  # the listener listens
    shown(target="sine")
    shown(target="square")
    compiled.clear()
    for moved in ({"lr": 0.41}, {"lr": 0.17, "seed": 7}, {"target": "sine"}, {"target": "square", "seed": 3}):
        shown(**moved)
    assert not compiled


def test_a_move_takes_a_few_runs_of_descent():
    shown()
    shares = []
    for lr in (0.15, 0.2, 0.25, 0.35, 0.4, 0.45):
        begun, parts = time.perf_counter(), []
        for _ in PAGE.updates(PAGE.checked({"lr": lr})):
            parts.append(time.perf_counter() - begun)
        assert len(parts) == 3
        shares.append(parts[-1] / parts[0])
    assert min(shares) < 12  # about 5, whatever the machine; a program that is compiled again takes 100
