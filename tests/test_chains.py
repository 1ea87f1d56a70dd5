"""Chains of tasks: one problem after the other, one record."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linnet as ln

KEY = jax.random.key(0)
FIRST, SECOND = ln.factorization(np.diag([2.0, 1.0])), ln.factorization(np.diag([-2.0, 1.0]))
START = ln.Weights([0.3 * np.eye(2), 0.4 * np.eye(2)])


@pytest.mark.parametrize(
    ("optimizer", "horizon"),
    [(ln.optim.SGD(0.05), {"steps": [60, 40]}), (ln.optim.SGD(0.02, 0.9), {"steps": 50}),
     (ln.optim.GradientFlow(1e-9), {"time": [3.0, 2.0]})],
    ids=["descent", "momentum", "flow"],
)  # fmt: skip
def test_a_chain_is_its_runs_joined(optimizer, horizon):
    run = ln.simulate([FIRST, SECOND], START, optimizer, **horizon, observe=["loss", "losses", "forgetting"])
    ((word, given),) = horizon.items()
    each = given if isinstance(given, list) else [given, given]
    one = ln.simulate(FIRST, START, optimizer, **{word: each[0]})
    two = ln.simulate(SECOND, one.final, optimizer, **{word: each[1]})
    n = one.times.shape[0]
    np.testing.assert_array_equal(run["loss"], np.concatenate([one["loss"], two["loss"]]))
    np.testing.assert_array_equal(run["task"], np.repeat([0, 1], [n, two.times.shape[0]]))
    np.testing.assert_allclose(run.times, np.concatenate([one.times, one.times[-1] + two.times]), rtol=1e-15)
    np.testing.assert_array_equal(run.final.layers[0], two.final.layers[0])
    np.testing.assert_array_equal(run["losses"][:n, 0], one["loss"])
    np.testing.assert_array_equal(run["losses"][n:, 1], two["loss"])
    forgetting = run["losses"][:, 0] - one["loss"][-1]
    np.testing.assert_array_equal(run["forgetting"][:, 0], np.where(np.arange(len(forgetting)) < n, 0.0, forgetting))
    assert not np.any(run["forgetting"][:, 1])
    assert run["forgetting"][-1, 0] > 1  # the second task undoes the first
    assert run.to_xarray()["losses"].dims[-1] == "task"


def test_a_balanced_network_cannot_be_reversed():
    """`balance/C10`: the flow on -Y ends at 0; with an imbalance it goes through."""
    goal = np.diag([2.0, 1.0])
    tasks = [ln.factorization(goal), ln.factorization(-goal)]
    ends = {}
    for lam in (0.0, 1.0):
        start = ln.init.lambda_balanced(KEY, tasks[0], lam, 2, scale=0.1, aligned=True)
        run = ln.simulate(tasks, start, ln.optim.GradientFlow(), time=[30.0, 10.0], observe=["matrix"])
        ends[lam] = np.asarray(run["matrix"][-1])
    np.testing.assert_allclose(ends[0.0], 0, atol=1e-3)
    np.testing.assert_allclose(ends[1.0], -goal, atol=1e-3)


def test_chains_of_batches_of_runs_and_of_noise():
    optimizer = ln.optim.LabelNoiseSGD(0.05, 0.1)

    def end(key):
        return ln.simulate([FIRST, SECOND], START, optimizer, steps=20, key=key, observe=["losses"])

    keys = jax.random.split(KEY, 3)
    many = jax.vmap(end)(keys)
    for i, key in enumerate(keys):
        alone = end(key)
        np.testing.assert_allclose(many["losses"][i], alone["losses"], rtol=1e-12)
    assert not np.allclose(many["losses"][0], many["losses"][1])


def test_a_task_that_is_lost_ends_the_chain():
    run = ln.simulate([FIRST, SECOND], START, ln.optim.SGD(5.0), steps=30, observe=["loss", "forgetting"])
    assert run.status == "diverged"
    assert set(np.asarray(run["task"])) == {0}
    told = jax.vmap(lambda lr: ln.simulate([FIRST, SECOND], START, ln.optim.SGD(lr), steps=30))(jnp.array([5.0, 0.05]))
    assert list(told.status) == ["diverged", "horizon"]
    assert int(told.ended[0]) == int(run.ended)


def test_another_chain_of_the_same_shapes_compiles_nothing():
    traced = []

    def look(state, problem):
        traced.append(1)
        return problem.cost(state.matrix)

    for x in (1.0, 2.0):
        tasks = [ln.factorization(x * np.eye(2)), ln.factorization(-x * np.eye(2))]
        ln.simulate(tasks, START, ln.optim.SGD(0.1), steps=5, observe={"look": look, "losses": "losses"})
        before = len(traced) if x == 1.0 else before
    assert traced
    assert len(traced) == before


def test_progress_counts_all_tasks():
    seen = []
    ln.simulate([FIRST, SECOND], START, ln.optim.SGD(0.1), steps=[3, 5], progress=lambda *x: seen.append(x))
    assert seen[-1] == (10, 10)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_chains_that_cannot_be_are_refused():
    descent = ln.optim.SGD(0.1)
    for problems in ([], [FIRST, 3]):
        with pytest.raises(ln.InputError, match="a chain needs problems"):
            ln.simulate(problems, START, descent, steps=5)
    with pytest.raises(ln.InputError, match="steps has 3 numbers: it must be one, or one for each of 2 problems"):
        ln.simulate([FIRST, SECOND], START, descent, steps=[1, 2, 3])
    with pytest.raises(ln.InputError, match="of a chain only checkpoint='states'"):
        ln.simulate([FIRST, SECOND], START, descent, steps=3, checkpoint="lowest loss")
    with pytest.raises(ln.InputError, match="a chain records the number of the problem by this name"):
        ln.simulate([FIRST, SECOND], START, descent, steps=3, observe={"task": "loss"})
    with pytest.raises(ln.InputError, match=r"optimizer = 0\.1 is not allowed"):
        ln.simulate([FIRST, SECOND], START, 0.1, steps=3)
    other = ln.factorization(np.ones((2, 3)))
    with pytest.raises(ln.InputError, match="it must have the problem's shape"):
        ln.simulate([FIRST, other], START, descent, steps=3)
