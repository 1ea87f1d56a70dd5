"""simulate: recording, stopping, divergence, batches, precision, recompilation, bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linnet as ln
from linnet.simulation.single import run_one

TARGET = np.diag([2.0, 1.0, 0.5])


@pytest.fixture
def problem():
    return ln.factorization(TARGET)


@pytest.fixture
def state(problem):
    return ln.init.gaussian(jax.random.key(1), problem, 30, 0.01)


def test_the_example_of_the_readme(key):
    problem = ln.low_rank_recovery(key, d=30, rank=2)
    state = ln.init.gaussian(key, problem, width=1_180_000, variance=30**-2.5)
    run = ln.simulate(
        problem,
        state,
        ln.optim.SGD(lr=1.0),
        steps=50,
        observe={"s": ln.observe.singular_values, "test": ln.observe.test_error},
    )
    data = run.to_xarray()
    assert dict(data.sizes) == {"step": 51, "s_index": 30}
    assert data["test"].dims == ("step",)
    assert data.attrs["status"] == "horizon"
    assert data["s"].attrs["long_name"].startswith("Singular values")


def test_spectra_of_different_lengths_share_a_dataset(problem, state):
    names = ["singular_values", "kernel_spectrum", "layer_modes", "layer_gaps", ln.observe.layer_singular_values(1)]
    data = ln.simulate(problem, state, ln.optim.SGD(0.05), steps=2, observe=names).to_xarray()
    assert data["kernel_spectrum"].shape == (3, 9)
    assert data["layer_gaps"].dims == ("step", "lower_layer", "mode")


def test_batches_of_decompositions_finish():
    """Many singular value decompositions in one batched program."""
    problem = ln.low_rank_recovery(jax.random.key(0), 50, 2)
    runs = jax.vmap(
        lambda k: ln.simulate(
            problem, ln.init.gaussian(k, problem, 10**4, 1e-3), ln.optim.SGD(0.5), steps=5, observe=["singular_values"]
        )
    )(jax.random.split(jax.random.key(1), 8))
    assert runs["singular_values"].shape == (8, 6, 50)


def test_recording_points(problem, state):
    def steps(record, horizon=1000):
        run = ln.simulate(problem, state, ln.optim.SGD(0.01), steps=horizon, record=record)
        return np.asarray(run.steps).tolist()

    assert steps(ln.record.every(300)) == [0, 300, 600, 900, 1000]
    assert steps(ln.record.at([7, 3, 3])) == [0, 3, 7, 1000]
    assert steps(ln.record.linear(3)) == [0, 500, 1000]
    assert steps(ln.record.logarithmic(4)) == [0, 1, 10, 100, 1000]
    assert steps(None, horizon=5) == [0, 1, 2, 3, 4, 5]
    assert len(steps(None, horizon=5000)) == 1001


def test_recorded_values_do_not_depend_on_when_one_looks(problem, state):
    fine = ln.simulate(problem, state, ln.optim.SGD(0.05), steps=120)
    coarse = ln.simulate(problem, state, ln.optim.SGD(0.05), steps=120, record=ln.record.at([40]))
    np.testing.assert_allclose(coarse["loss"], fine["loss"][jnp.array([0, 40, 120])], rtol=1e-12)
    assert jnp.allclose(fine.times, 0.05 * jnp.arange(121))


def test_flow_times_are_hit_exactly(problem, state):
    one = ln.simulate(
        problem, state, ln.optim.GradientFlow(), time=3.0, record=ln.record.at([1.0, 2.5]), observe=["matrix"]
    )
    two = ln.simulate(problem, state, ln.optim.GradientFlow(), time=2.5, record=ln.record.linear(2), observe=["matrix"])
    assert np.asarray(one.times).tolist() == [0, 1.0, 2.5, 3.0]
    assert jnp.allclose(one["matrix"][2], two["matrix"][-1], rtol=1e-9, atol=1e-11)
    assert jnp.allclose(one["matrix"][0], state.matrix, rtol=1e-13)


def test_stopping(problem, state):
    optimizer = ln.optim.SGD(0.05)
    whole = ln.simulate(problem, state, optimizer, steps=3000, record=ln.record.every(1))
    first = int(jnp.argmax(whole["loss"] < 1e-3))
    run = ln.simulate(problem, state, optimizer, steps=3000, record=ln.record.every(50), stop=ln.optim.loss_below(1e-3))
    assert run.status == "converged"
    assert run.ended == first
    assert run.steps[-1] == first
    assert run.steps[-2] == first - first % 50
    assert run["loss"][-1] == whole["loss"][first]

    run = ln.simulate(problem, state, optimizer, steps=20_000, stop=ln.optim.change_below(1e-6))
    assert run.status == "converged"
    assert run["loss"][-1] < 1e-10

    run = ln.simulate(problem, state, optimizer, steps=3000, stop=lambda s, p: s.matrix[0, 0] > 1.0)
    assert run.status == "converged"
    assert run.final.matrix[0, 0] > 1.0

    flow = ln.simulate(problem, state, ln.optim.GradientFlow(), time=100.0, stop=ln.optim.loss_below(1e-3))
    assert flow.status == "converged"
    assert flow["loss"][-1] == pytest.approx(1e-3, rel=1e-8)  # located inside a step of the solver
    assert flow["loss"][-2] > 1e-3
    assert flow.times[-1] == flow.ended < 100.0

    at_once = ln.simulate(problem, state, ln.optim.GradientFlow(), time=5.0, stop=lambda s, p: True)
    assert (at_once.status, float(at_once.ended)) == ("converged", 0.0)
    assert jnp.allclose(at_once["loss"], problem.cost(state.matrix))
    times = [
        float(
            ln.simulate(
                problem, state, ln.optim.GradientFlow(), time=5.0, record=r, stop=ln.optim.loss_below(2.0)
            ).ended
        )
        for r in (ln.record.linear(2), ln.record.linear(101))
    ]
    assert abs(times[0] - times[1]) < 1e-5  # where the loss passes the value, not where the solver steps

    done = ln.simulate(problem, state, optimizer, steps=5, stop=lambda s, p: True)
    assert (done.status, int(done.ended), done["loss"].shape) == ("converged", 0, (1,))


def test_divergence_is_an_outcome(problem, state):
    run = ln.simulate(problem, state, ln.optim.SGD(3.0), steps=500)
    assert run.status == "diverged"
    # the step that a plain loop sees blow up
    w1, w2 = state.layers
    limit = 1e9 * max(1.0, float(jnp.max(jnp.abs(w1))), float(jnp.max(jnp.abs(w2))))
    step = 0
    while max(jnp.max(jnp.abs(w1)), jnp.max(jnp.abs(w2))) <= limit:
        g = w2 @ w1 - TARGET
        w1, w2 = w1 - 3.0 * w2.T @ g, w2 - 3.0 * g @ w1.T
        step += 1
    assert int(run.ended) == step
    assert int(run.steps[-1]) == step - 1
    assert np.all(np.isfinite(run["loss"]))
    assert all(np.all(np.isfinite(w)) for w in run.final.layers)
    assert "diverged at step" in repr(run)

    nan = ln.custom(lambda a: jnp.sum(jnp.sqrt(1.0 - a**2)), (3, 3))  # leaves its domain
    run = ln.simulate(nan, ln.Weights([0.9 * np.eye(3)]), ln.optim.SGD(5.0), steps=50)
    assert run.status == "diverged"
    assert np.all(np.isfinite(run["loss"]))

    shrinking = ln.custom(lambda a: jnp.sum(jnp.log(a)), (1, 1))  # the cost is lost before the state is
    ends = []
    for record in (ln.record.every(1), ln.record.every(100)):
        run = ln.simulate(shrinking, ln.Weights([np.eye(1)]), ln.optim.SGD(0.03), steps=200, record=record)
        assert run.status == "diverged"
        assert np.all(np.isfinite(run["loss"]))
        assert run.final.matrix[0, 0] > 0
        ends.append(int(run.ended))
    assert ends[0] == ends[1] < 30  # whenever one looks

    for record in (ln.record.every(1), ln.record.every(400)):  # a small limit is met at its step, not at the next look
        low = ln.simulate(
            ln.factorization([[1.0]]),
            ln.Weights([[[0.05]], [[0.05]]]),
            ln.optim.SGD(1.3),
            steps=400,
            divergence_limit=1.15,
            record=record,
        )
        assert (low.status, int(low.ended)) == ("diverged", 6)

    growing = ln.custom(lambda a: -jnp.sum(a**4), (2, 2))  # flow explodes in finite time
    flow = ln.simulate(growing, ln.Weights([np.eye(2)]), ln.optim.GradientFlow(max_steps=1000), time=10.0)
    assert flow.status in ("diverged", "stalled")
    assert flow.ended < 0.2  # 1/8
    assert np.all(np.isfinite(flow["loss"]))


@pytest.mark.slow
def test_batches_over_everything(problem, state):
    lrs = jnp.array([0.01, 0.05, 3.0, 0.1])
    alone = [ln.simulate(problem, state, ln.optim.SGD(lr), steps=200, record=ln.record.every(20)) for lr in lrs]

    def one(lr):
        return ln.simulate(problem, state, ln.optim.SGD(lr), steps=200, record=ln.record.every(20))

    for many in (jax.vmap(one)(lrs), jax.jit(jax.vmap(one))(lrs)):
        assert many.status.tolist() == ["horizon", "horizon", "diverged", "horizon"]
        for i, run in enumerate(alone):
            kept = run["loss"].shape[0]
            assert jnp.allclose(many["loss"][i, :kept], run["loss"], rtol=1e-10, atol=1e-14)
            assert int(many.ended[i]) == int(run.ended)
        data = many.to_xarray(lr=lrs)
        assert data["loss"].dims == ("lr", "record")
        assert data["status"].values.tolist() == many.status.tolist()

    keys = jax.random.split(jax.random.key(0), 3)
    by_key = jax.vmap(
        lambda k: ln.simulate(problem, ln.init.gaussian(k, problem, 9, 0.1), ln.optim.SGD(0.1), steps=10)
    )(keys)
    assert by_key["loss"].shape == (3, 11)
    assert len(set(np.asarray(by_key["loss"][:, 0]).tolist())) == 3

    by_width = jax.vmap(
        lambda w: ln.simulate(problem, ln.init.gaussian(keys[0], problem, w, 0.1), ln.optim.SGD(0.1), steps=10)
    )(jnp.array([1.0, 4.0, 1e6]))
    assert by_width["loss"].shape == (3, 11)

    targets = jnp.stack([jnp.asarray(TARGET), 2 * jnp.asarray(TARGET)])
    by_target = jax.vmap(
        lambda t: ln.simulate(
            ln.factorization(t), state, ln.optim.GradientFlow(), time=40.0, record=ln.record.linear(3)
        )
    )(targets)
    assert jnp.all(by_target["loss"][:, -1] < 1e-8)
    twice = jax.vmap(jax.vmap(one, 0), 0)(lrs.reshape(2, 2))
    assert twice.to_xarray(a=[0, 1], b=[0, 1])["status"].shape == (2, 2)


def test_other_numbers_do_not_recompile(problem):
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append(event) if "backend_compile" in event else None
    )

    def run(seed, width, variance, lr, steps, goal):
        problem = ln.factorization(goal * np.eye(3))
        start = ln.init.gaussian(jax.random.key(seed), problem, width, variance)
        optimizer = ln.optim.SGD(lr)
        return ln.simulate(
            problem, start, optimizer, steps=steps, record=ln.record.linear(11), stop=ln.optim.loss_below(lr)
        )

    run(0, 100, 0.01, 0.1, 1000, 1.0)
    assert compiled  # the listener listens
    compiled.clear()
    run(1, 10**6, 1e-6, 0.2, 2000, 2.0)
    run(2, 7, 1, 1, 500, np.float32(3.0))
    run(3, np.asarray(9.0), np.float32(0.1), np.float64(0.1), 500, 3)
    assert not compiled
    # nor does another number of steps and of records, which are padded
    for optimizer, length in ((ln.optim.SGD(0.1), "steps"), (ln.optim.GradientFlow(), "time")):
        problem, start = ln.factorization(np.eye(3)), ln.Weights([0.1 * np.eye(3)] * 2)
        ln.simulate(problem, start, optimizer, **{length: 100})
        compiled.clear()
        ln.simulate(problem, start, optimizer, **{length: 101})
        assert not compiled


def test_the_same_seed_gives_the_same_numbers(problem, state, key):
    optimizer = ln.optim.LabelNoiseSGD(0.05, 0.3)
    a, b = (ln.simulate(problem, state, optimizer, steps=100, key=key) for _ in range(2))
    assert jnp.array_equal(a["loss"], b["loss"])
    c = ln.simulate(problem, state, optimizer, steps=100, key=jax.random.key(99))
    assert not jnp.array_equal(a["loss"], c["loss"])
    assert not np.array_equal(np.diff(a["loss"])[1:], np.diff(a["loss"])[:-1])


def test_progress_is_told(problem, state):
    told = []
    ln.simulate(
        problem, state, ln.optim.SGD(0.05), steps=100, record=ln.record.every(10), progress=lambda *x: told.append(x)
    )
    assert told == [(i, 11) for i in range(1, 12)]
    told.clear()
    ln.simulate(problem, state, ln.optim.GradientFlow(), time=1.0, progress=lambda *x: told.append(x))
    assert told[0] == (1, 201)
    assert told[-1] == (201, 201)
    assert {done for done, _ in told} == set(range(1, 202))


def test_single_precision_is_single_precision(problem, state):
    single = ln.simulate(problem, ln.states.cast(state, jnp.float32), ln.optim.SGD(0.05), steps=400)
    double = ln.simulate(problem, state, ln.optim.SGD(0.05), steps=400)
    assert single.final.matrix.dtype == jnp.float32
    error = jnp.max(jnp.abs(single.final.matrix - double.final.matrix))
    assert 1e-9 < error < 1e-4
    flow = ln.simulate(problem, ln.states.cast(state, jnp.float32), ln.optim.GradientFlow(), time=1.0)
    assert flow.final.matrix.dtype == jnp.float64  # said in the docstring


def test_observables_by_name_object_and_function(problem, state):
    run = ln.simulate(
        problem,
        state,
        ln.optim.SGD(0.05),
        steps=3,
        observe={"mine": lambda s, p: s.layers[0], "named": "stable_rank", "object": ln.observe.loss},
    )
    assert run["mine"].shape == (4, 6, 3)
    assert run.to_xarray()["mine"].dims == ("step", "mine_0", "mine_1")
    assert set(ln.simulate(problem, state, ln.optim.SGD(0.1), steps=1, observe="loss").values) == {"loss"}
    with pytest.raises(ln.InputError, match="not recorded"):
        run["absent"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": None}, "runs in steps"),
        ({"steps": None, "time": 1.0}, "runs in steps"),
        ({"steps": 0}, "steps = 0"),
        ({"steps": 1.5}, "steps = 1.5"),
        ({"observe": ["los"]}, "did you mean 'loss'"),
        ({"observe": {"x": 3}}, "observe['x'] = 3"),
        ({"record": 5}, "record = 5"),
        ({"record": ln.record.at([20])}, "must not exceed the horizon"),
        ({"record": ln.record.at([1.5])}, "fractions of a step"),
        ({"stop": 1e-3}, "stop = 0.001"),
        ({"divergence_limit": 0.0}, "divergence_limit = 0.0"),
        ({"problem": TARGET}, "problem = an array"),
        ({"state": TARGET}, "state = an array"),
        ({"optimizer": 0.1}, "optimizer = 0.1"),
        ({"state": ln.Weights([np.ones((2, 3))])}, "must have the problem's shape (3, 3)"),
        ({"optimizer": ln.optim.GradientFlow()}, "runs in time"),
        ({"optimizer": ln.optim.GradientFlow(), "steps": None, "time": -1.0}, "time = -1.0"),
        ({"optimizer": ln.optim.LabelNoiseSGD(0.1, 1.0)}, "key is missing"),
        ({"optimizer": ln.optim.LabelNoiseSGD(0.1, 1.0), "key": -1}, "key = -1"),
        ({"observe": 5}, "observe = 5"),
        ({"observe": ["misalignment"]}, "takes arguments"),
        ({"observe": {"time": ln.observe.loss}}, "observe['time']"),
        ({"stop": lambda s, p: p.cost(s.matrix)}, "must return one boolean"),
        ({"progress": 3}, "progress = 3"),
        ({"observe": ["test_error"]}, "no test problem"),
        ({"observe": [ln.observe.layer_singular_values(3)]}, "layer = 3"),
    ],
)
def test_bad_input_is_one_sentence(change, words, problem, state):
    given = {"problem": problem, "state": state, "optimizer": ln.optim.SGD(0.1), "steps": 10} | change
    with pytest.raises(ln.InputError) as caught:
        ln.simulate(given.pop("problem"), given.pop("state"), given.pop("optimizer"), **given)
    assert words in str(caught.value)
    assert str(caught.value).endswith((".", "?"))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ln.optim.SGD(0.0), "lr = 0.0"),
        (lambda: ln.optim.SGD(-1), "lr = -1"),
        (lambda: ln.optim.SGD(float("inf")), "lr = inf"),
        (lambda: ln.optim.SGD("fast"), "lr = 'fast'"),
        (lambda: ln.optim.SGD(True), "lr = True"),
        (lambda: ln.optim.SGD(np.array([0.1, 0.2])), "lr = an array of shape (2,)"),
        (lambda: ln.optim.LabelNoiseSGD(0.1, -1.0), "delta = -1.0"),
        (lambda: ln.optim.NoisyFlow(0.1, scheme="milstein"), "'euler', 'geometric'"),
        (lambda: ln.optim.GradientFlow(rtol=0.0), "rtol = 0.0"),
        (lambda: ln.states.Lazy(0.0), "c = 0.0"),
        (lambda: ln.states.Mixed(-1.0), "c = -1.0"),
        (lambda: ln.states.Balanced(0), "depth = 0"),
        (lambda: ln.EndToEnd(TARGET, "lazy"), "closure = 'lazy'"),
        (lambda: ln.Weights([]), "layers is empty"),
        (lambda: ln.Weights([np.ones((2, 3)), np.ones((2, 3))]), "layer 2 has shape (2, 3)"),
        (lambda: ln.Weights([np.array([[np.inf]])]), "layer 1 holds 1 NaN or infinite"),
        (lambda: ln.Modes(np.ones(3)), "values has shape (3,)"),
        (lambda: ln.record.every(0), "interval = 0"),
        (lambda: ln.record.linear(1), "count = 1"),
        (lambda: ln.record.at([-1.0]), "points"),
        (lambda: ln.optim.loss_below(-1.0), "value = -1.0"),
        (lambda: ln.observe.layer_singular_values(0), "layer = 0"),
        (lambda: ln.record.every(2.5).points(10, True), "interval = 2.5"),
        (lambda: ln.record.at("abc"), "points = 'abc'"),
        (lambda: ln.optim.GradientFlow(solver="dopri5"), "solver = 'dopri5'"),
        (lambda: ln.optim.NoisyFlow(0.1, drift="no"), "drift = 'no'"),
        (lambda: ln.Weights(5), "layers = 5"),
        (lambda: ln.Weights([np.eye(3)] * 2).descend(ln.factorization(np.ones(3)), 0.1), "shape (3, 3)"),
        (lambda: ln.Modes(np.ones((3, 3))).descend(ln.factorization(np.eye(3)), 0.1), "shape (3,)"),
        (lambda: ln.optim.SGD(np.array("a")), "lr ="),
        (lambda: ln.optim.SGD(jnp.asarray(True)), "lr ="),
    ],
)
def test_wrong_things_fail_where_they_are_built(call, words):
    with pytest.raises(ln.InputError) as caught:
        call()
    assert words in str(caught.value)


def test_kept_states_are_those_of_the_extreme_records(key):
    problem = ln.low_rank_recovery(key, 12, 2)
    state = ln.init.gaussian(key, problem, 100, 1e-4)
    for record in (ln.record.every(1), ln.record.every(7)):  # looking at every step, and leaping between looks
        run = ln.simulate(
            problem,
            state,
            ln.optim.SGD(1.5),
            steps=400,
            observe=["test_error", "loss"],
            record=record,
            checkpoint=["lowest test_error", "highest loss"],
        )
        best = int(np.argmin(run["test_error"]))
        assert 0 < best < len(run.steps) - 1
        kept = run.checkpoints["lowest test_error"]
        assert kept.step == run.steps[best]
        assert kept.value == run["test_error"][best]
        np.testing.assert_allclose(ln.observe.test_error(kept.state, problem), kept.value, rtol=1e-14)
        assert run.checkpoints["highest loss"].step == run.steps[int(np.argmax(run["loss"]))]


def test_a_batch_may_have_its_own_number_of_steps(problem, state):
    def run(steps, record):
        return ln.simulate(problem, state, ln.optim.SGD(0.1), steps=steps, record=record)

    for record in (ln.record.at(range(26)), ln.record.at([0, 5, 17, 25]), ln.record.at(range(6))):
        runs = jax.vmap(lambda k, record=record: run(k, record))(jnp.asarray([3, 25, 11]))
        assert runs.ended.tolist() == [3, 25, 11]
        assert runs.steps[:, -1].tolist() == [3, 25, 11]
        for i, steps in enumerate((3, 25, 11)):
            alone = run(steps, ln.record.every(1))
            np.testing.assert_allclose(runs["loss"][i, -1], alone["loss"][-1], rtol=1e-13)
            np.testing.assert_allclose(runs.final.layers[0][i], alone.final.layers[0], rtol=1e-12)
    with pytest.raises(ln.InputError, match="record is missing"):
        jax.vmap(lambda k: run(k, None))(jnp.asarray([3, 4]))


def test_a_look_at_every_step_stands_in_the_program_once(problem, state):
    def run(lr):
        look = {"marked": lambda s, p: jnp.arctan2(p.cost(s.matrix), 2.0)}
        return ln.simulate(problem, state, ln.optim.SGD(lr), steps=9, observe=look)["marked"]

    assert str(jax.make_jaxpr(run)(0.1)).count("atan2") == 1


def test_a_pair_moves_each_state_as_if_alone(key):
    problem = ln.low_rank_recovery(key, 8, 2)
    state = ln.init.gaussian(key, problem, 50, 1e-2)
    closure = ln.EndToEnd(state.matrix, ln.states.Mixed(0.5))
    names = {"a": ln.observe.matrix, "gap": ln.observe.closure_error, "balance": ln.observe.imbalance}
    alone = [
        ln.simulate(problem, s, ln.optim.SGD(0.7), steps=40, observe=["matrix"])["matrix"] for s in (state, closure)
    ]
    both = ln.simulate(problem, ln.states.Pair(state, closure), ln.optim.SGD(0.7), steps=40, observe=names)
    np.testing.assert_allclose(both["a"], alone[0], atol=1e-12)
    np.testing.assert_allclose(both["gap"], np.mean((alone[0] - alone[1]) ** 2, axis=(1, 2)), rtol=1e-9, atol=1e-20)
    assert both["gap"][0] < 1e-30 < both["gap"][-1]
    # on its own manifold the closure is exact under flow
    twin = ln.states.Pair(closure, ln.init.two_c_balanced(state.matrix, 0.5))
    flow = ln.simulate(problem, twin, ln.optim.GradientFlow(), time=30.0, observe=["closure_error", "loss"])
    assert flow["closure_error"].max() < 1e-16
    for wrong, words in (
        (lambda: ln.states.Pair(state, 3), "second = 3"),
        (lambda: ln.states.Pair(state, ln.EndToEnd(np.eye(3), ln.states.Mixed(1.0))), "shape"),
        (lambda: ln.observe.closure_error(state, problem), "compares two states"),
        (lambda: ln.simulate(problem, twin, ln.optim.LabelNoiseSGD(0.1, 1.0), steps=2, key=key), "two forces"),
        (
            lambda: ln.simulate(problem, state, ln.optim.SGD(0.1), steps=2, checkpoint="lowest x"),
            "checkpoint = 'lowest x'",
        ),
        (
            lambda: ln.simulate(
                problem, state, ln.optim.SGD(0.1), steps=2, observe=["modes"], checkpoint="lowest modes"
            ),
            "not one number",
        ),
    ):
        with pytest.raises(ln.InputError, match=words):
            wrong()


def test_runs_that_go_together_end_with_the_longest_and_record_as_others_do():
    problem = ln.factorization(np.diag([2.0, 1.0, 0.5]))
    start = ln.init.gaussian(jax.random.key(0), problem, 10, 0.1)
    given = {
        "time": None,
        "observe": ["loss", "stable_rank"],
        "record": ln.record.at(range(65)),
        "stop": ln.optim.loss_below(1e-3),
    }
    given |= {
        "checkpoint": ["lowest loss", "highest loss"],
        "divergence_limit": 1e9,
        "key": None,
        "progress": None,
        "resume_from": None,
    }

    def runs(together, steps, lr):
        def one(steps, lr):
            run = run_one(
                problem,
                start,
                ln.optim.SGD(lr),
                steps=steps,
                differentiable=False,
                batch_axis=together,
                **given,
            )
            return run.values, run.steps, run.code, run.ended, run.checkpoints, run.final

        return jax.jit(jax.vmap(one, axis_name="runs"))(jnp.array(steps), jnp.array(lr))

    several = (1, 3, 17, 40, 22, 60), (0.1, 0.1, 0.2, 0.05, 9.0, 0.5)  # one diverges, one stops
    one, other = runs(None, *several), runs("runs", *several)
    assert set(one[2].tolist()) == {0, 1, 2}
    for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True):
        np.testing.assert_array_equal(a, b)


def norm(state, problem):
    return jnp.linalg.norm(state.matrix)


def norm_max(state, problem):
    return jnp.max(jnp.abs(state.matrix))


def test_values_have_the_names_and_the_order_in_which_they_were_asked_for():
    problem, state, optimizer = (
        ln.factorization(np.diag([2.0, 1.0])),
        ln.Weights([0.1 * np.eye(2)] * 2),
        ln.optim.SGD(0.1),
    )
    observe = [norm_max, norm, "stable_rank", "loss", norm, "path"]
    names = ["norm_max", "norm", "stable_rank", "loss", "norm_2", "path_flip", "path_sharpness"]
    run = ln.simulate(problem, state, optimizer, steps=3, observe=observe)
    assert list(run.values) == names
    assert list(run.to_xarray().data_vars) == names
    batch = jax.vmap(lambda lr: ln.simulate(problem, state, ln.optim.SGD(lr), steps=3, observe=observe))(jnp.ones(2))
    assert list(batch.values) == names
    assert list(jax.tree.map(lambda x: x[0], batch).values) == names
    assert list(ln.simulate(problem, state, optimizer, steps=2, observe=observe, resume_from=run).values) == names


def test_a_checkpoint_of_a_flow_stores_one_state():
    problem, state = ln.factorization(np.eye(7)), ln.Weights([0.1 * np.eye(7)] * 2)

    def run(problem, state):
        return ln.simulate(
            problem,
            state,
            ln.optim.GradientFlow(1e-6),
            time=3.0,
            record=ln.record.linear(33),
            checkpoint=["lowest loss", "highest loss"],
        )

    program = str(jax.make_jaxpr(run)(problem, state))
    assert "[33]" in program
    assert "[33,7,7]" not in program
    found, every = (
        run(problem, state),
        ln.simulate(
            problem, state, ln.optim.GradientFlow(1e-6), time=3.0, record=ln.record.linear(33), checkpoint="states"
        ),
    )
    assert found.checkpoints["lowest loss"].step == every.times[-1]
    assert found.checkpoints["highest loss"].step == 0
    np.testing.assert_array_equal(found.checkpoints["lowest loss"].state.layers[0], every.states.layers[0][-1])
    np.testing.assert_array_equal(found.checkpoints["highest loss"].value, every["loss"][0])


@pytest.mark.quick(1)
@pytest.mark.parametrize("optimizer", [ln.optim.Adam(0.01), ln.optim.SGD(0.05, 0.5)])
def test_all_observables_can_be_measured_on_both_members_of_a_pair(optimizer):
    problem = ln.factorization(np.diag([2.0, 1.0]))
    first, second = (ln.Weights([size * np.eye(2), size * np.ones((2, 2))]) for size in (0.3, 0.5))
    names = {
        "path": ln.observe.path,
        "adaptive": ln.observe.adaptive_sharpness,
        "curvature": ln.observe.curvature(),
        "modes": ln.observe.modes,
    }
    both = names | {f"{name}_second": ln.observe.on_second(one) for name, one in names.items()}
    pair = ln.simulate(problem, ln.states.Pair(first, second), optimizer, steps=4, observe=both)
    for state, suffix in ((first, ""), (second, "_second")):
        alone = ln.simulate(problem, state, optimizer, steps=4, observe=names)
        for name in alone.values:
            base, _, part = name.partition("_")
            other = pair[f"{base}{suffix}_{part}" if part else f"{base}{suffix}"]
            np.testing.assert_allclose(other, alone[name], rtol=1e-8, atol=1e-12)


def test_an_event_ends_a_flow_at_its_root():
    problem, state = ln.factorization(np.diag([2.0, 1.0])), ln.Weights([0.1 * np.eye(2)] * 2)

    def entry(state, problem):
        return 1.0 - state.matrix[0, 0]

    flow = ln.optim.GradientFlow()
    exact = ln.simulate(problem, state, flow, time=20.0, stop=ln.Event(root=entry))
    assert exact.status == "converged"
    assert exact.final.matrix[0, 0] == pytest.approx(1.0, abs=1e-9)
    late = ln.simulate(problem, state, flow, time=20.0, stop=ln.Event(lambda s, p: s.matrix[0, 0] > 1.0))
    assert late.ended > exact.ended
    steps = [
        ln.simulate(problem, state, ln.optim.SGD(0.1), steps=200, stop=stop).ended
        for stop in (ln.Event(root=entry), lambda s, p: s.matrix[0, 0] > 1.0)
    ]
    assert steps[0] == steps[1] < 200
    for wrong, words in (
        (lambda: ln.Event(), "condition and root are both missing"),
        (lambda: ln.Event(3), "condition = 3"),
        (
            lambda: ln.simulate(problem, state, flow, time=1.0, stop=ln.Event(root=lambda s, p: s.matrix)),
            "root returns",
        ),
        (lambda: ln.simulate(problem, state, flow, time=1.0, stop=3), "stop = 3"),
    ):
        with pytest.raises(ln.InputError, match=words):
            wrong()
