"""What the compiler is told: small loops become one kernel, and nothing else is changed by it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linnet as ln
from linnet._compiler import hurried, in_one_kernel, one_by_one

MARK = "inlineable"  # ours: XLA marks the smallest loops itself, without it


def text(function, *arguments):
    """The program that XLA made of it."""
    marked = jax.jit(lambda *given: in_one_kernel(function, *given), compiler_options=hurried())
    assert jnp.allclose(marked(*arguments), function(*arguments), rtol=1e-14)
    return marked.lower(*arguments).compile().as_text()


def many(step):
    return lambda x: jax.lax.fori_loop(0, 16, lambda _, now: step(now), x)


def test_little_arithmetic_is_one_kernel():
    if "xla_cpu_use_fusion_emitters" not in hurried():
        pytest.skip("XLA has no older kernels here")
    small, large = np.full((3, 3), 0.1), np.full((100, 100), 1e-3)
    assert MARK in text(many(lambda x: x - 0.1 * jnp.sum(x[:, None] * x.T[None], -1)), small)
    assert MARK not in text(many(lambda x: x - 0.1 * x), large), "it would not share its work among the cores"
    assert MARK not in text(many(lambda x: x - 0.1 * x @ x), small), "a product for a library"
    assert MARK not in text(many(lambda x: x - 0.1 * jnp.linalg.svd(x, compute_uv=False)), small)


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "optimizer",
    [
        ln.optim.SGD(lambda k: 0.1 / (1 + k), lr_multipliers=[1, 2]),
        ln.optim.SGD(0.05, 0.9, nesterov=True, weight_decay=0.1),
        ln.optim.Adam(0.01),
        ln.optim.RMSprop(0.01),
        ln.optim.SignSGD(0.01),
        ln.optim.Muon(0.01, weight_decay=0.0, ns_steps=None, adjust_lr_fn="none"),
    ],
    ids=lambda optimizer: type(optimizer).__name__,
)
def test_a_run_in_one_kernel_is_the_run_in_many(optimizer):
    """A run that JAX traces is left to the kernels that its caller compiles."""
    problem = ln.factorization(np.diag([2.0, 1.0, 0.5]) + 0.3)  # no entry ends at rounding of the others
    start = ln.init.gaussian(jax.random.key(0), problem, 4, 0.3)
    if isinstance(optimizer, ln.optim.Adam | ln.optim.RMSprop | ln.optim.SignSGD):
        start = ln.Weights(start.layers)

    def run(state):
        return ln.simulate(problem, state, optimizer, steps=200, record=ln.record.linear(3)).final.matrix

    np.testing.assert_allclose(run(start), jax.jit(run)(start), rtol=1e-10)


def test_members_of_a_batch_one_by_one():
    """Also where they differ in what the function closes over; each makes its own iterations."""

    def halved(x, times):
        return one_by_one(lambda x: jax.lax.fori_loop(0, times, lambda _, y: y / 2, x), x)

    x, times = jnp.arange(1.0, 4.0), jnp.array([3, 0, 1])
    np.testing.assert_array_equal(jax.vmap(halved)(x, times), x / 2**times)
    np.testing.assert_array_equal(jax.vmap(halved, (None, 0))(8.0, times), 8 / 2**times)
    np.testing.assert_array_equal(jax.vmap(halved, (0, None))(x, 2), x / 4)
    np.testing.assert_array_equal(halved(x, 2), x / 4)
    if jax.default_backend() == "cpu":
        together = str(jax.make_jaxpr(jax.vmap(lambda x: jax.lax.fori_loop(0, x, lambda _, y: y + 1, 0)))(times))
        assert "scan" not in together
        assert "scan" in str(jax.make_jaxpr(jax.vmap(halved))(x, times))
