"""Gradient noise: how the gradients of single samples scatter around that of the whole cost.

The gradient g_i of sample i alone, scaled so that the mean of all g_i is the gradient of the cost, is J^T of the force
e_i x_i^T: one row of errors e_i = n dC/d(A x_i) and one of inputs. So neither n gradients nor their covariance is
formed: what acts on the samples is the tangent kernel J J^T, and the layers of a linear network see rank one.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from linnet.linalg import below_and_above
from linnet.observe.hessian import eigenvalues
from linnet.observe.observables import ObservationContext, context_observable
from linnet.problems import Problem, Samples
from linnet.states import Network, State, Weights

_CHUNK = 64  # samples whose forces are formed at once


def _samples(problem: Problem, initial: State) -> Samples:
    return initial.sampled(problem)


def _outputs(inputs: Float[Array, "n d_in"], matrix: Float[Array, "*d_out d_in"]) -> Float[Array, "n *d_out"]:
    return inputs @ (matrix if matrix.ndim == 1 else matrix.T)


def _errors(state: State, problem: Problem, samples: Samples) -> Float[Array, "n *d_out"]:
    """e_i, from the problem of one sample whose input is 1."""
    unit = jnp.ones((1, 1), dtype=samples.inputs.dtype)
    outputs = _outputs(samples.inputs, state.matrix)
    return jax.vmap(lambda z, y: problem.on_samples(unit, y[None]).gradient(z[..., None])[..., 0])(
        outputs, samples.labels
    )


def _spread(
    errors: Float[Array, "n *m"], inputs: Float[Array, "n k"], square: Callable[[Array], Array]
) -> Float[Array, ""]:
    """The mean over samples of the `square` of e_i x_i^T less its mean: differences first, so nothing cancels."""
    mean = errors.T @ inputs / inputs.shape[0]
    squares = jax.lax.map(lambda one: square(one[0][..., None] * one[1] - mean), (errors, inputs), batch_size=_CHUNK)
    return jnp.mean(squares)


@context_observable(preparation=_samples)
def gradient_noise(context: ObservationContext) -> Float[Array, ""]:
    """Trace of the covariance of the samples' gradients, mean |g_i - g|^2 with the mean g the gradient of the cost"""
    state, problem, samples = context.state, context.problem, context.prepared
    if isinstance(state, Network):
        mean = state.velocity(problem).trained()
        squares = _each(state, problem, samples, lambda g: _total(jax.tree.map(lambda a, b: (a - b) ** 2, g, mean)))
        return jnp.mean(squares)
    errors, inputs = _errors(state, problem, samples), samples.inputs
    if not isinstance(state, Weights):  # |J^T F|^2 = <F, J J^T F>
        return _spread(errors, inputs, lambda force: jnp.sum(force * state.tangent(force)))
    d_in, d_out = (jnp.eye(d, dtype=inputs.dtype) for d in (state.widths[0], state.widths[-1]))
    parts = zip(*below_and_above(state.layers, d_in, d_out), strict=True)
    return sum(
        (_spread(errors @ _short(above.T).T, inputs @ _short(below).T, _square) for below, above in parts),
        start=jnp.zeros((), dtype=inputs.dtype),
    )


def _square(force: Float[Array, "m k"]) -> Float[Array, ""]:
    return jnp.sum(force**2)


def _short(factor: Float[Array, "m k"]) -> Float[Array, "r k"]:
    """A matrix with the same products of columns and no more rows than columns: the width drops out of the cost."""
    return jnp.linalg.qr(factor, mode="r") if factor.shape[0] > factor.shape[1] else factor


@context_observable(preparation=_samples)
def gradient_noise_top(context: ObservationContext) -> Float[Array, ""]:
    """Largest eigenvalue of the covariance of the samples' gradients, whose mean is the gradient of the cost"""
    state, problem, samples = context.state, context.problem, context.prepared
    if isinstance(state, Network):
        return _network_top(state, problem, samples)
    errors, inputs = _errors(state, problem, samples), samples.inputs
    n = inputs.shape[0]

    def product(t: Float[Array, " n"]) -> Float[Array, " n"]:
        """The matrix of all <g_i - g, g_j - g> / n, which has the same eigenvalues beside zeros."""
        force = (errors.T * (t - jnp.mean(t))) @ inputs
        products = jnp.sum((errors * _outputs(inputs, state.tangent(force))).reshape(n, -1), axis=1)
        return (products - jnp.mean(products)) / n

    return eigenvalues(product, jnp.zeros(n, dtype=inputs.dtype))[0]


# Networks: their samples' gradients have no short form, and are made some at a time


def _each(state: Network, problem: Problem, samples: Samples, function: Callable[[Any], Array]) -> Float[Array, " n"]:
    """A function of each sample's -g_i, scaled so that their mean is that of the cost."""

    def one(sample: Samples) -> Array:
        view, own = state.on_samples(problem, sample.inputs[None], sample.labels[None])
        return function(view.velocity(own).trained())

    return jax.lax.map(one, samples, batch_size=_CHUNK)


def _total(tree: Any) -> Float[Array, ""]:
    return jnp.sum(jnp.stack([jnp.sum(leaf) for leaf in jax.tree.leaves(tree)]))


def _network_top(state: Network, problem: Problem, samples: Samples) -> Float[Array, ""]:
    """By products with the matrix of all <g_i - g, g_j - g> / n, of which each passes twice through the samples."""
    n = samples.inputs.shape[0]

    def product(t: Float[Array, " n"]) -> Float[Array, " n"]:
        centered = t - jnp.mean(t)

        def weigh(total: Any, given: Any) -> tuple[Any, None]:
            sample, weight = given
            view, own = state.on_samples(problem, sample.inputs[None], sample.labels[None])
            return jax.tree.map(lambda a, g: a + weight * g, total, view.velocity(own).trained()), None

        zero = jax.tree.map(jnp.zeros_like, state.trained())
        sums = jax.lax.scan(weigh, zero, (samples, centered))[0]
        products = _each(state, problem, samples, lambda g: _total(jax.tree.map(jnp.multiply, g, sums)))
        return (products - jnp.mean(products)) / n

    return eigenvalues(product, jnp.zeros(n, dtype=samples.inputs.dtype))[0]
