"""Curvature and gradients of mini-batches: batch sharpness, gradient-noise interaction, mean-square ratio.

A batch is B of the n samples, none twice; g_B and H_B are gradient and Hessian of its cost, whose mean over batches is
the whole cost (`Problem.on_samples`), g and H those of all samples. Each observable is a ratio of means over batches,
and has the means among its parts, since a mean over steps is again a ratio of means.
"""

import itertools
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key

from linnet import _check
from linnet._check import InputError
from linnet.observe.hessian import hessian_product
from linnet.observe.noise import gradient_noise
from linnet.observe.observables import Observable, ObservationContext
from linnet.problems import Problem, Samples
from linnet.states import State

_ALL = 4096  # batches up to which all of them are taken


class _Sums(NamedTuple):
    """Numerators and denominators of single batches."""

    above: Float[Array, " batches"]
    below: Float[Array, " batches"]


@lru_cache
def batch_sharpness(batch_size: int, draws: int | None = 64, seed: int = 0) -> Observable:
    """E[g_B^T H_B g_B] / E|g_B|^2, the curvature of the batches' own costs along their gradients.

    To second order a step of SGD lowers the cost of its own batch, on average, iff this is below 2/lr (Andreyev and
    Beneventano 2024). It is the ratio of the means over `draws` batches, other ones at each step, and `error` its
    standard error: about the spread of single ratios over sqrt(draws). None takes all batches where they are at most
    4096, and has no error. A batch takes a gradient and a Hessian product on B samples. Parts: `ratio`, `error`,
    `numerator`, `denominator`.
    """
    size, count, first = _numbers(batch_size, draws, seed)

    def function(context: ObservationContext) -> dict[str, Array]:
        """Curvature of a batch's cost along its gradient"""
        rows = _rows(context, size, count, first)
        sums = jax.lax.map(lambda chosen: _along_gradient(context, chosen), rows)
        above, below = jnp.mean(sums.above), jnp.mean(sums.below)
        error = jnp.zeros_like(above)
        if count is not None:
            left = sums.above - above / below * sums.below
            error = jnp.sqrt(jnp.sum(left**2) / (count * (count - 1))) / below
        return {"ratio": above / below, "error": error, "numerator": above, "denominator": below}

    texts = "mean g_B^T H_B g_B", "mean |g_B|^2"
    return _ratio(f"batch_sharpness_{size}", function, _checked(size), *texts)


@lru_cache
def gradient_noise_interaction(batch_size: int, draws: int | None = 64, seed: int = 0) -> Observable:
    """E[g_B^T H g_B] / |g|^2, the curvature of the whole cost along the gradients of batches.

    The mean over batches is exactly g^T H g + (n-B)/(B(n-1)) mean_i (g_i - g)^T H (g_i - g), so that single samples are
    drawn instead of batches, `draws` of them, other ones at each step; all of them, and no error, where there are no
    more, or with None. Each takes a Hessian product on all samples. In stationarity with label noise the mean of
    `numerator` over steps is 2/lr times that of `denominator` for quadratic costs at every lr (`flows/C7`). Parts:
    `ratio`, `error`, `numerator`, `denominator`.
    """
    size, count, first = _numbers(batch_size, draws, seed)

    def function(context: ObservationContext) -> dict[str, Array]:
        """Curvature of the whole cost along a batch's gradient"""
        state, problem, samples = context.state, context.problem, context.prepared
        n = samples.inputs.shape[0]
        whole = state.velocity(problem)
        drawn = samples
        if count is not None and count < n:
            chosen = jax.random.choice(_key(context, first), n, (count,), replace=False)
            drawn = Samples(samples.inputs[chosen], samples.labels[chosen])
        some = drawn.inputs.shape[0]

        def square(direction: Any) -> Float[Array, ""]:
            return _dot(direction, hessian_product(state, problem, eqx.combine(direction, state)).trained())

        def one(sample: Samples) -> Float[Array, ""]:
            view, own = state.on_samples(problem, sample.inputs[None], sample.labels[None])
            return square(jax.tree.map(jnp.subtract, view.velocity(own).trained(), whole.trained()))

        noise = jax.lax.map(one, drawn)
        share, below = _share(n, size), _dot(whole.trained(), whole.trained())
        above = square(whole.trained()) + share * jnp.mean(noise)
        error = jnp.zeros_like(above)
        if some < n:
            error = share * jnp.std(noise, ddof=1) * math.sqrt((1 - some / n) / some) / below
        return {"ratio": above / below, "error": error, "numerator": above, "denominator": below}

    return _ratio(f"gradient_noise_interaction_{size}", function, _checked(size), "mean g_B^T H g_B", "|g|^2")


@lru_cache
def mean_square_ratio(batch_size: int) -> Observable:
    """Q = E|g_B|^2 / (2 C): below 2/lr the distance from a minimum that fits every sample shrinks in mean square.

    For a quadratic cost with such a minimum w*, 2 C is E<g_B, w - w*>, and E|w' - w*|^2 - |w - w*|^2 =
    lr E<g_B, w - w*> (lr Q - 2); other costs of squares are such a one close to a minimum of cost 0. Batch sharpness is
    never below it there (`flows/C6`). The numerator is exact, |g|^2 + (n-B)/(B(n-1)) (mean |g_i|^2 - |g|^2), from one
    pass through the gradients of single samples, and nothing is drawn. Parts: `ratio`, `numerator`, `denominator`.
    """
    size = _check.integer("batch_size", batch_size, least=1)

    def function(context: ObservationContext) -> dict[str, Array]:
        """Mean square of a batch's gradient over twice the cost"""
        state, problem = context.state, context.problem
        gradient = state.velocity(problem).trained()
        noise = gradient_noise.function(context)
        above = _dot(gradient, gradient) + _share(context.prepared.inputs.shape[0], size) * noise
        below = 2 * problem.cost(state.matrix)
        return {"ratio": above / below, "numerator": above, "denominator": below}

    name = f"mean_square_ratio_{size}"
    return _ratio(name, function, _checked(size), "mean |g_B|^2", "twice the cost", error=False)


def _ratio(
    name: str, function: Callable[..., Any], prepare: Callable[..., Any], above: str, below: str, *, error: bool = True
) -> Observable:
    parts: list[tuple[str, tuple[str, ...], str]] = [("ratio", (), f"{above} over {below}")]
    if error:
        parts.append(("error", (), "Standard error of `ratio`"))
    parts += [("numerator", (), above), ("denominator", (), below)]
    return Observable(name, function, (), prepare, parts=tuple(parts))


def _numbers(batch_size: Any, draws: Any, seed: Any) -> tuple[int, int | None, int]:
    size = _check.integer("batch_size", batch_size, least=1)
    count = None if draws is None else _check.integer("draws", draws, least=2)
    return size, count, _check.integer("seed", seed, least=0, most=2**32 - 1)


def _checked(size: int) -> Callable[[Problem, State], Samples]:
    def prepare(problem: Problem, initial: State) -> Samples:
        samples = initial.sampled(problem)
        n = samples.inputs.shape[0]
        _check.integer("batch_size", size, least=1, most=n, reason="the samples there are")
        return samples

    return prepare


def _share(n: int, size: int) -> float:
    """The variance of the mean of a batch, in that of one sample."""
    return (n - size) / (size * (n - 1)) if n > 1 else 0.0


def _key(context: ObservationContext, seed: int) -> Key[Array, ""]:
    """Another one at each step or time."""
    clock = jax.lax.bitcast_convert_type(jnp.asarray(context.clock).astype(jnp.float32), jnp.uint32)
    return jax.random.fold_in(jax.random.key(seed), clock)


def _rows(context: ObservationContext, size: int, count: int | None, seed: int) -> Array:
    """The samples of each batch."""
    n = context.prepared.inputs.shape[0]
    if count is not None:
        keys = jax.random.split(_key(context, seed), count)
        return jax.lax.map(lambda key: jax.random.choice(key, n, (size,), replace=False), keys)
    if math.comb(n, size) > _ALL:
        raise InputError(f"draws = None is not allowed: {n} samples have more than {_ALL} batches of {size}.")
    return jnp.asarray(np.array(list(itertools.combinations(range(n), size))))


def _along_gradient(context: ObservationContext, rows: Array) -> _Sums:
    """g_B^T H_B g_B and |g_B|^2."""
    samples = context.prepared
    view, own = context.state.on_samples(context.problem, samples.inputs[rows], samples.labels[rows])
    gradient = view.velocity(own).trained()
    product = hessian_product(view, own, eqx.combine(gradient, view)).trained()
    return _Sums(_dot(gradient, product), _dot(gradient, gradient))


def _dot(one: Any, other: Any) -> Float[Array, ""]:
    return jnp.vdot(ravel_pytree(one)[0], ravel_pytree(other)[0])
