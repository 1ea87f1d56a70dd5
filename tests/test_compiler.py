"""What the compiler is told: small loops become one kernel, and nothing else is changed by it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linnet as ln
from linnet._compiler import hurried, in_one_kernel

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


@pytest.mark.parametrize(
    "motion",
    [
        ln.GradientDescent(lambda k: 0.1 / (1 + k), rates=[1, 2]),
        ln.Momentum(0.05, 0.9, nesterov=True, decay=0.1),
        ln.Adam(0.01),
        ln.Sign(0.01),
        ln.Muon(0.01),
    ],
    ids=lambda motion: type(motion).__name__,
)
def test_a_run_in_one_kernel_is_the_run_in_many(motion):
    """A run that JAX traces is left to the kernels that its caller compiles."""
    problem = ln.factorisation(np.diag([2.0, 1.0, 0.5]))
    start = ln.gaussian(jax.random.key(0), problem, 4, 0.3)
    if isinstance(motion, ln.Adam | ln.Sign):
        start = ln.Weights(start.layers)

    def run(state):
        return ln.simulate(problem, state, motion, steps=200, record=ln.linear(3)).final.matrix

    np.testing.assert_allclose(run(start), jax.jit(run)(start), rtol=1e-10)
