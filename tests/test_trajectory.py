"""What one does with a run: going on with it, looking into it, files, pictures, derivatives."""

import contextlib
import dataclasses
import warnings
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

import linnet as ln

KEY = jax.random.key(3)
PROBLEM = ln.low_rank_recovery(KEY, 4, 2)
STATE = ln.init.gaussian(KEY, PROBLEM, 50, 1e-2)
LOOKS = ["loss", "test_error", "kernel_drift"]


class HeavyBall(ln.optim.DiscreteDynamics):
    lr: jax.Array = eqx.field(converter=jnp.asarray)
    beta: jax.Array = eqx.field(converter=jnp.asarray)

    def time(self, clock):
        return clock * self.lr

    def memory(self, problem, state):
        return jax.tree.map(jnp.zeros_like, state)

    def step(self, problem, state, memory, prepared, key):
        m = jax.tree.map(lambda m, v: self.beta * m + v, memory, state.velocity(problem))
        return jax.tree.map(lambda x, v: x + self.lr * v, state, m), m


class Scaled(ln.states.State):
    """A state of a user's own, with something that no file can hold."""

    inner: jax.Array
    shape: object = eqx.field(static=True)

    @property
    def matrix(self):
        return self.shape(self.inner)

    def vjp(self, force):
        return Scaled(jax.vjp(self.shape, self.inner)[1](force)[0], self.shape)

    @property
    def size(self):
        return jnp.min(jnp.abs(self.inner))


def double(x):
    return 2 * x


def assert_same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()  # signs of zeros too


def heavy_ball(lr, beta, steps):
    w1, w2 = map(np.asarray, STATE.layers)
    m1, m2 = np.zeros_like(w1), np.zeros_like(w2)
    largest, losses = [], []
    for _ in range(steps + 1):
        largest.append(max(np.max(np.abs(w1)), np.max(np.abs(w2))))
        losses.append(float(PROBLEM.cost(jnp.asarray(w2 @ w1))))
        g = np.asarray(PROBLEM.gradient(jnp.asarray(w2 @ w1)))
        m1, m2 = beta * m1 - w2.T @ g, beta * m2 - g @ w1.T
        w1, w2 = w1 + lr * m1, w2 + lr * m2
    return np.array(losses), np.array(largest)


def test_heavy_ball_is_a_small_class():
    expected, _ = heavy_ball(0.3, 0.9, 150)
    for record in (ln.record.every(1), ln.record.every(40)):
        run = ln.simulate(PROBLEM, STATE, HeavyBall(0.3, 0.9), steps=150, record=record, checkpoint="lowest loss")
        np.testing.assert_allclose(run["loss"], expected[np.asarray(run.steps)], rtol=1e-12, atol=1e-12)
        assert run.checkpoints["lowest loss"].step == run.steps[int(np.argmin(run["loss"]))]
    plain = ln.simulate(PROBLEM, STATE, ln.optim.SGD(0.3), steps=150, record=ln.record.every(40))
    assert plain["loss"][1] < run["loss"][1] / 2  # momentum overshoots here


def test_memory_is_restored_when_a_leap_is_walked_again():
    """Divergence inside a leap: the last healthy state and its memory, at the step of a plain loop."""
    with np.errstate(over="ignore", invalid="ignore"):
        _, largest = heavy_ball(1.94, 0.9, 60)
    step = int(np.argmax(~(largest <= 1e9 * max(1.0, largest[0]))))
    assert 16 < step < 60
    run = ln.simulate(PROBLEM, STATE, HeavyBall(1.94, 0.9), steps=500, record=ln.record.every(100))
    assert (run.status, int(run.ended), int(run.steps[-1])) == (ln.Status.DIVERGED, step, step - 1)
    healthy = ln.simulate(PROBLEM, STATE, HeavyBall(1.94, 0.9), steps=step - 1, record=ln.record.linear(2))
    for a, b in zip(jax.tree.leaves(run.memory), jax.tree.leaves(healthy.memory), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    many = jax.vmap(
        lambda lr: ln.simulate(PROBLEM, STATE, HeavyBall(lr, 0.9), steps=100, stop=ln.optim.loss_below(1e-2))
    )(jnp.array([0.3, 8.0]))
    assert many.status.tolist() == ["converged", "diverged"]
    assert many.memory.layers[0].shape == (2, *STATE.layers[0].shape)


def batch():
    return jax.vmap(lambda lr: ln.simulate(PROBLEM, STATE, ln.optim.SGD(lr), steps=3))(jnp.array([0.5, 0.6]))


MOTIONS = {
    "descent": (ln.optim.SGD(0.5), {}),
    "noise": (ln.optim.LabelNoiseSGD(0.1, 0.3), {"key": KEY}),
    "shrinking": (ln.optim.NoisyFlow(0.02, 0.3, power=0.5), {"key": KEY}),
    "memory": (HeavyBall(0.3, 0.9), {}),
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", MOTIONS)
@settings(max_examples=6, deadline=None)
@given(cut=st.integers(1, 99))
def test_a_run_that_goes_on_has_not_been_cut(name, cut):
    optimizer, more = MOTIONS[name]
    more = more | {"observe": LOOKS, "checkpoint": ["states", "lowest test_error"]}
    whole = ln.simulate(PROBLEM, STATE, optimizer, steps=100, **more)
    first = ln.simulate(PROBLEM, STATE, optimizer, steps=cut, **more)
    joined = ln.simulate(PROBLEM, STATE, optimizer, steps=100 - cut, resume_from=first, **more)
    if name == "shrinking":  # the powers in its times are rounded differently along arrays of other lengths
        np.testing.assert_allclose(joined.times, whole.times, rtol=1e-15)
        joined = dataclasses.replace(joined, times=whole.times)
    assert_same(joined, whole)


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(cut=st.integers(1, 31))
def test_a_flow_that_goes_on_has_not_been_cut(cut):
    optimizer, more = (
        ln.optim.GradientFlow(1e-8),
        {"record": ln.record.every(0.5), "observe": LOOKS, "checkpoint": ["states", "lowest test_error"]},
    )
    whole = ln.simulate(PROBLEM, STATE, optimizer, time=16.0, **more)
    first = ln.simulate(PROBLEM, STATE, optimizer, time=cut / 2, **more)
    assert_same(ln.simulate(PROBLEM, STATE, optimizer, time=16.0 - cut / 2, resume_from=first, **more), whole)


def test_runs_that_ended_and_batches_go_on():
    def run(lr, steps, resume_from=None, **more):
        return ln.simulate(PROBLEM, STATE, ln.optim.SGD(lr), steps=steps, resume_from=resume_from, **more)

    gone = run(60.0, 200)
    assert_same(run(60.0, 100, gone), gone)  # diverged at the same step again
    stopped = run(0.5, 200, stop=ln.optim.loss_below(0.05))
    assert_same(run(0.5, 100, stopped, stop=ln.optim.loss_below(0.05)), stopped)
    further = run(0.5, 200 - int(stopped.ended), stopped)
    assert_same(further["loss"], run(0.5, 200)["loss"])

    lrs = jnp.array([0.5, 1.0, 60.0])
    half = jax.vmap(lambda lr: run(lr, 40))(lrs)
    on = jax.vmap(lambda lr, first: run(lr, 60, first))(lrs, half)
    whole = jax.vmap(lambda lr: run(lr, 100))(lrs)
    assert on.status.tolist() == whole.status.tolist()
    np.testing.assert_array_equal(on.steps, whole.steps)
    np.testing.assert_allclose(on["loss"], whole["loss"], rtol=1e-12, atol=1e-18)

    event = ln.simulate(
        PROBLEM, STATE, ln.optim.GradientFlow(), time=20.0, stop=ln.optim.loss_below(0.3), record=ln.record.every(1.0)
    )
    flow = ln.simulate(PROBLEM, STATE, ln.optim.GradientFlow(), time=5.0, resume_from=event, record=ln.record.linear(2))
    straight = ln.simulate(
        PROBLEM, STATE, ln.optim.GradientFlow(), time=float(flow.times[-1]), record=ln.record.linear(2)
    )
    assert jnp.allclose(flow.final.matrix, straight.final.matrix, rtol=1e-8)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"resume_from": 3}, "resume_from = 3"),
        ({"optimizer": ln.optim.GradientFlow(), "time": 1.0, "steps": None}, "runs in time"),
        ({"optimizer": HeavyBall(0.1, 0.9)}, "memory of HeavyBall"),
        ({"observe": ["loss", "modes"]}, "observe asks for loss, modes and resume_from has loss"),
        ({"checkpoint": "states"}, "checkpoint asks for states and resume_from has nothing"),
        ({"checkpoint": "lowest loss"}, "checkpoint asks for lowest loss and resume_from has nothing"),
        ({"state": ln.states.cast(STATE, jnp.float32)}, "other type or shape"),
        (
            {"resume_from": jax.vmap(lambda lr: ln.simulate(PROBLEM, STATE, ln.optim.SGD(lr), steps=3))(jnp.ones(2))},
            "vmap",
        ),
        ({"differentiable": 1}, "differentiable = 1"),
    ],
)
def test_only_the_same_run_goes_on(change, words):
    given = {"state": STATE, "optimizer": ln.optim.SGD(0.5), "steps": 3}
    first = ln.simulate(PROBLEM, **given)
    with pytest.raises(ln.InputError, match=words):
        ln.simulate(PROBLEM, **(given | {"resume_from": first} | change))


def test_other_numbers_of_steps_do_not_recompile():
    traced = []

    def look(state, problem):
        traced.append(1)
        return problem.cost(state.matrix)

    def run(steps, **more):
        return ln.simulate(PROBLEM, STATE, ln.optim.SGD(0.5), steps=steps, observe={"x": look}, **more)

    for more in ({}, {"record": ln.record.every(2)}):
        before = len(traced)
        run(100, **more)
        assert len(traced) > before
        before = len(traced)
        runs = {steps: run(steps, **more) for steps in (101, 90, 100)}
        assert len(traced) == before
        every = 1 if not more else 2
        assert [len(runs[steps].steps) for steps in (90, 100)] == [90 // every + 1, 100 // every + 1]
        assert_same(runs[101]["x"][: 90 // every + 1], runs[90]["x"])
    jitted = jax.jit(lambda: run(20).values["x"])()
    assert jitted.shape == (21,)


def test_kept_states_and_moments():
    for optimizer, horizon in ((ln.optim.SGD(0.5), {"steps": 20}), (ln.optim.GradientFlow(), {"time": 20.0})):
        run = ln.simulate(
            PROBLEM,
            STATE,
            optimizer,
            **horizon,
            record=ln.record.every(5),
            observe=["loss", "matrix"],
            checkpoint=["states", "lowest loss"],
        )
        matrices = jax.vmap(lambda s: s.matrix)(run.states)
        np.testing.assert_allclose(matrices, run["matrix"], rtol=1e-13, atol=1e-15)
        moment = run.at(10)
        assert moment.values["loss"] == run["loss"][2]
        np.testing.assert_array_equal(moment.state.matrix, jax.tree.map(lambda x: x[2], run.states).matrix)
        assert run.at(11, nearest=True).time == moment.time
        assert run.checkpoints["lowest loss"].step == 20
        assert run.checkpoints["lowest loss"].value == run["loss"][-1]
        with pytest.raises(ln.InputError, match=r"nothing was recorded at (step|time) 11: the nearest record is at 10"):
            run.at(11)
    with pytest.raises(ln.InputError, match="many clocks"):
        batch().at(1)
    assert jax.tree.map(lambda x: x[0], batch()).at(1).step == 1


def test_files_give_back_every_bit(tmp_path):
    path = tmp_path / "deep" / "run.zarr"
    pair = ln.states.Pair(ln.EndToEnd(-0.0 * STATE.matrix, ln.states.Balanced(3, rank=2)), STATE)
    runs = [
        ln.simulate(PROBLEM, STATE, HeavyBall(0.3, 0.9), steps=5, observe=LOOKS, checkpoint=["states", "lowest loss"]),
        ln.simulate(PROBLEM, pair, ln.optim.SGD(0.1), steps=2, observe=["closure_error", "matrix"]),
        ln.simulate(
            PROBLEM, ln.states.cast(STATE, jnp.float32), ln.optim.SGD(60.0), steps=90, checkpoint="highest loss"
        ),
        ln.simulate(PROBLEM, STATE, ln.optim.GradientFlow(), time=2.0, record=ln.record.every(0.5)),
        jax.vmap(lambda lr: ln.simulate(PROBLEM, STATE, ln.optim.SGD(lr), steps=5))(jnp.array([0.1, 60.0])),
    ]
    for run in runs:
        run.save(path)
        back = ln.load(path)
        assert_same(back, run)
        assert np.all(back.status == run.status)
        assert [entry.name for entry in path.parent.iterdir()] == ["run.zarr"]  # nothing half done is left
        data = xarray.open_zarr(path)
        np.testing.assert_array_equal(data[next(iter(run.values))].values, run[next(iter(run.values))])
    on = ln.simulate(
        PROBLEM, STATE, ln.optim.GradientFlow(), time=2.0, record=ln.record.every(0.5), resume_from=runs[3]
    )
    runs[3].save(path)
    again = ln.simulate(
        PROBLEM, STATE, ln.optim.GradientFlow(), time=2.0, record=ln.record.every(0.5), resume_from=ln.load(path)
    )
    assert_same(again, on)


def test_files_of_a_users_own_types_and_wrong_files(tmp_path):
    state = Scaled(0.1 * jnp.ones((4, 4)), double)
    run = ln.simulate(PROBLEM, state, ln.optim.SGD(0.1), steps=3)
    run.save(tmp_path / "run")
    assert_same(ln.load(tmp_path / "run", like=state), run)
    with pytest.raises(ln.InputError, match=r"the file holds a .*Scaled: give load\(path, like=\.\.\.\)"):
        ln.load(tmp_path / "run")
    with pytest.raises(ln.InputError, match="there is nothing"):
        ln.load(tmp_path / "absent")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ln.InputError, match="not a run that save wrote"):
        ln.load(tmp_path / "text")
    with pytest.raises(ln.InputError, match="something else than a run"):
        run.save(tmp_path / "text")
    (tmp_path / "run" / "time" / ".zarray").unlink()
    (tmp_path / "run" / ".zmetadata").unlink()
    with pytest.raises(ln.InputError, match="is damaged"):
        ln.load(tmp_path / "run", like=state)
    with pytest.raises(ln.InputError, match="outside of jit"):
        jax.vmap(lambda lr: ln.simulate(PROBLEM, STATE, ln.optim.SGD(lr), steps=1).save(tmp_path / "x"))(jnp.ones(2))


def test_pictures_and_notebooks():
    run = ln.simulate(PROBLEM, STATE, ln.optim.SGD(0.5), steps=20, observe=["loss", "singular_values", "matrix"])
    figure = run.plot()
    assert isinstance(figure, Figure)
    assert [len(axes.lines) for axes in figure.axes] == [1, 4, 16]
    assert figure.axes[0].get_ylabel() == "Training cost C(A)"
    assert figure.axes[0].get_xlabel() == "step"
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_ydata(), run["loss"])
    one = run.plot("loss", log="y", time=True).axes[0]
    assert (one.get_yscale(), one.get_xlabel()) == ("log", "time")
    np.testing.assert_array_equal(one.lines[0].get_xdata(), run.times)
    with pytest.raises(ln.InputError, match="not recorded"):
        run.plot("absent")
    many = jax.vmap(
        lambda lr: ln.simulate(PROBLEM, STATE, ln.optim.SGD(lr), steps=20, observe={"<b>": ln.observe.loss})
    )(jnp.array([0.1, 60.0]))
    assert len(many.plot().axes[0].lines) == 2
    text = many._repr_html_()
    assert "<b></td>" not in text
    assert "&lt;b&gt;" in text
    assert "Batch of 2: 1 diverged, 1 horizon" in text
    assert ln.Status.HORIZON.message in run._repr_html_()


def test_status_is_a_word_with_a_sentence():
    run = ln.simulate(PROBLEM, STATE, ln.optim.SGD(0.5), steps=2)
    assert run.status is ln.Status.HORIZON
    assert run.status == "horizon"
    assert f"{run.status}" == "horizon"
    assert [status.code for status in ln.Status] == [0, 1, 2, 3]
    assert all(status.message.endswith(".") for status in ln.Status)


def final_loss(lr=0.02, scale=1.0, target=1.0, differentiable=False, optimizer=None, **horizon):
    problem = ln.factorization(target * PROBLEM.target)
    state = jax.tree.map(lambda w: scale * w, STATE)
    optimizer = HeavyBall(lr, 0.5) if optimizer is None else optimizer
    return ln.simulate(problem, state, optimizer, observe=["loss"], differentiable=differentiable, **horizon)["loss"][
        -1
    ]


CASES = {
    "sparse": {"steps": 50, "record": ln.record.at([7, 30])},
    "dense": {"steps": 20},
    "flow": {"time": 3.0, "record": ln.record.linear(3), "optimizer": ln.optim.GradientFlow(1e-11)},
}


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("case", "name"),
    [(case, name) for case in CASES for name in ("lr", "scale", "target") if (case, name) != ("flow", "lr")],
)
def test_derivatives_go_forwards_and_backwards(case, name):
    more, x, h = CASES[case], 0.02 if name == "lr" else 1.0, 1e-5
    back = jax.grad(lambda x: final_loss(**{name: x}, differentiable=True, **more))(x)
    forth = jax.jvp(lambda x: final_loss(**{name: x}, **more), (x,), (1.0,))[1]
    differences = (final_loss(**{name: x + h}, **more) - final_loss(**{name: x - h}, **more)) / (2 * h)
    assert back == pytest.approx(float(forth), rel=1e-9)
    assert back == pytest.approx(float(differences), rel=1e-5)
    assert abs(back) > 1e-4
    with pytest.raises(ln.InputError, match="differentiable=True"):
        jax.grad(lambda x: final_loss(**{name: x}, **more))(x)


def test_a_run_that_cannot_be_replaced_stays(tmp_path, monkeypatch):
    problem = ln.factorization(np.diag([2.0, 1.0]))
    run = ln.simulate(problem, ln.Weights([0.1 * np.eye(2)] * 2), ln.optim.SGD(0.1), steps=5)
    run.save(tmp_path / "run.zarr")
    rename = Path.rename

    def full(path, target):
        if path.name.endswith(".new"):
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(ln.InputError, match="no space left on device; make space"):
        run.save(tmp_path / "run.zarr")
    np.testing.assert_array_equal(ln.load(tmp_path / "run.zarr")["loss"], run["loss"])
    assert [path.name for path in tmp_path.iterdir()] == ["run.zarr"]


def test_a_damaged_run_is_found_whatever_was_damaged(tmp_path):
    runs = jax.vmap(lambda lr: ln.simulate(PROBLEM, STATE, ln.optim.SGD(lr), steps=3, checkpoint="states"))(
        jnp.array([0.0, 0.1])
    )
    place = tmp_path / "run.zarr"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # those of zarr are no user's business
        runs.save(place)
        whole = ln.load(place)
    chunks = [path for path in place.rglob("*") if path.is_file() and not path.name.startswith(".z")]
    assert len(chunks) > 8
    for chunk in chunks:
        good = chunk.read_bytes()
        for byte in range(0, len(good), 29):
            chunk.write_bytes(good[:byte] + bytes([good[byte] ^ 0x21]) + good[byte + 1 :])
            with contextlib.suppress(ln.InputError):
                assert eqx.tree_equal(ln.load(place), whole)  # some bits of a compressed file mean nothing
        chunk.unlink()
        with pytest.raises(ln.InputError, match="are lost"):
            ln.load(place)
        chunk.write_bytes(good)
    assert eqx.tree_equal(ln.load(place), whole)
