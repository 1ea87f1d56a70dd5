"""What linear theory says about a layer of a given network, and how far that is true of it.

Let W be a layer, all else at rest, f(W) the outputs on the samples (d_out x n), J = df/dW at the start W_0, C the cost.
Exact at the start, for every network:

- the gradient dC/dW = J^T dC/df, which for a dense layer is sum_i g_i h_i^T with its inputs h_i and the gradients g_i
  in its outputs;
- the layer's block of the Hessian, J^T C'' J + sum_j (dC/df_j) d^2 f_j / dW^2. The second part is 0 where f is linear
  in the layer, piece by piece (relu, max): then the block is the Gauss-Newton block, and for a dense layer that is
  sum_i (B_i^T C_i'' B_i) (x) h_i h_i^T with B_i = df_i / d(W h_i);
- a block has no larger eigenvalue than the whole matrix, so the network bears no step that the layer does not bear; and
  a Gauss-Newton matrix has at most the sum of what its blocks have.

Linear theory replaces f by f_lin = f_0 + J (W - W_0) (`Network.linearised`). With squares, descent on it is solved by
the eigenvectors v of J^T C'' J: (1 - lr k)^t, with (v . gradient)^2 / (2 k) of the loss in each. It is exact for all
steps where f is linear in the layer: every layer of a linear network alone, and the last layer of any network;
elsewhere as long as no activation switches. How wrong it is can be seen before anyone trains: f itself at the weights
to which linear theory leads is one forward pass (`nonlinearity`, `bent`, `loss_there`, `kernel_change`).
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from linnet import _check, observe
from linnet._check import InputError
from linnet.motion import GradientDescent
from linnet.observe.hessian import gauss_newton_product, hessian_product
from linnet.predict.answer import Holds, Hypothesis, Loss, Source, When
from linnet.predict.layer_result import Curves, LayerMode, LayerPrediction
from linnet.problems import Problem
from linnet.record import Record, at
from linnet.simulation import simulate
from linnet.states import Network, State
from linnet.theory.regime import LAZY_BELOW, RICH_ABOVE, Regime

_DENSE = 500  # weights up to which curvatures are those of a matrix
_RECORDS = 64
_SHARED = 0.1  # of the largest stable step, where none is given
_ROUNDINGS = 1000  # units of rounding by which outputs must differ to be called different


def layer(
    network: Network,
    problem: Problem,
    layer: int | None = None,
    *,
    lr: float | None = None,
    steps: int = 100,
    modes: int = 8,
) -> LayerPrediction:
    """What linear theory says about a layer of this network, and how far that is true of it (W_1 is `layer` = 1).

    The step that the layer bears, the modes that it learns first and how fast, the loss after `steps` steps of descent,
    whether its training is lazy or rich; told as if all else rested, or with `layer=None` about all that moves.
    `measure()` runs the network itself, with the layer alone and with everything moving. `problem` is a cost on the
    outputs (`supervised`); where it is not of squares, modes are those of its curvature at the start, and the loss is
    that of linear outputs under the cost itself. By default lr is a tenth of the largest that the network bears.
    """
    moving, gradient, total = _asked(network, problem, layer)
    count, wanted = (_check.integer(name, value, least=1) for name, value in (("steps", steps), ("modes", modes)))
    sharp = float(top(network, problem, hessian_product, 1)[0][0])
    rate = _SHARED * _bears(sharp) if lr is None else _check.real("lr", lr, above=0)
    if math.isinf(rate):
        raise InputError("lr is missing: no curvature of the cost is positive at this start, so no step can be chosen.")
    values, vectors = top(moving, problem, gauss_newton_product, min(wanted, gradient.size))
    curves, ends = _followed(moving, problem, rate, count)
    diverges = not np.isfinite(curves.loss[-1])
    rounding = max(1e-9, 1e4 * float(np.finfo(gradient.dtype).eps))
    told = {
        "outputs are linear in what moves, on the way (|f - f_lin| / |f_lin - f_0|)": ends.nonlinearity,
        "the cost is quadratic on the way (error of its gradient)": ends.cost,
    }
    needs = tuple(Hypothesis.of(text, number, exact=rounding) for text, number in told.items())
    exact = all(need.holds is Holds.EXACTLY for need in needs)
    block = sharp if layer is None else float(top(moving, problem, hessian_product, 1)[0][0])
    apart = abs(block - values[0]) / max(abs(block), abs(values[0]))
    same = Hypothesis.of("the Hessian's block is its Gauss-Newton block (largest eigenvalue)", apart, exact=rounding)
    return LayerPrediction(
        layer=layer,
        shape=None if layer is None else moving.layers[0].shape,
        samples=network.inputs.shape[0],
        outputs=int(moving.matrix.shape[0]),
        weights=gradient.size,
        weights_in_all=total.size,
        lr=rate,
        lr_chosen=lr is None,
        steps=count,
        gradient_share=float(np.sum(gradient**2) / np.sum(total**2)),
        gradient_values=None if layer is None else _values(gradient.reshape(moving.layers[0].shape), wanted),
        sharpness=block,
        gauss_newton_sharpness=float(values[0]),
        network_sharpness=sharp,
        largest_stable_lr=_bears(values[0]),
        network_largest_stable_lr=_bears(sharp),
        modes=tuple(
            _mode(float(value) if value > rounding * values[0] else 0.0, float(slope), curves.loss[0], rate, exact)
            for value, slope in zip(values, gradient @ vectors, strict=True)
        ),
        loss=Loss(float(curves.loss[0]), math.inf if diverges else float(curves.loss[-1])),
        loss_there=math.inf if diverges else float(curves.there[-1]),
        nonlinearity=ends.nonlinearity,
        bent=ends.bent,
        kernel_change=ends.kernel,
        regime=None if diverges else Regime.of_growth(1 + ends.kernel),
        theory=_theory(() if diverges else needs, same),
        curves=curves,
        linear_outputs=ends.outputs,
        network=network,
        problem=problem,
    )


def _asked(
    network: Any, problem: Any, layer: int | None
) -> tuple[Network, Float[np.ndarray, " weights"], Float[np.ndarray, " weights_in_all"]]:
    """The network in which only this layer moves, and the gradients of the cost in it and in all."""
    if not isinstance(network, Network):
        raise InputError(f"network = {_check.show(network)} is not allowed: use a Network, such as ln.mlp makes.")
    if not isinstance(problem, Problem):
        raise InputError(f"problem = {_check.show(problem)} is not allowed: use a cost such as supervised(labels).")
    if _check.traced((network, problem)):
        raise InputError("network is traced: predictions are made for known numbers.")
    moving = network if layer is None else network.alone(layer)
    gradient, total = flat_gradient(moving, problem), flat_gradient(network, problem)
    size = float(np.linalg.norm(gradient))
    if not size > 0 or not math.isfinite(size):
        found = "0" if size == 0 else "not finite"
        raise InputError(f"layer = {layer} is not allowed: the gradient of the cost in it is {found} at this start.")
    return moving, gradient, total


def _theory(needs: tuple[Hypothesis, ...], same: Hypothesis) -> tuple[Source, ...]:
    """Where each figure is from, and how far what it needs is true here."""
    words = f"lazy below {LAZY_BELOW:g}, rich above {RICH_ABOVE:g}"
    return (
        Source("gradients and sharpness", "derivatives at the start, exact"),
        Source("largest_stable_lr", "2 over the Gauss-Newton block's largest eigenvalue", (), (same,)),
        Source("modes", "eigenvectors of the Gauss-Newton block, with the cost's curvature at the start", (), needs),
        Source("loss", "descent on outputs linear in the layer, with the cost itself", (), needs[:1]),
        Source("regime", f"1 + change of the kernel where linear theory leads: {words}"),
    )


def _bears(curvature: float) -> float:
    return 2 / float(curvature) if curvature > 0 else math.inf


def _mode(curvature: float, slope: float, loss: float, lr: float, exact: bool) -> LayerMode:
    share = slope**2 / (2 * curvature) / loss if curvature > 0 and loss > 0 else 0.0
    steps = _half(lr * curvature)
    return LayerMode(curvature=curvature, share=share, half_learned=When(steps * lr, steps, 0.0 if exact else None))


def _half(step: float) -> float:
    """When |1 - step|^t = 1/2."""
    if not 0 < step < 2:
        return math.inf
    if step == 1:
        return 0.0
    return math.log(2) / -(math.log1p(-step) if step < 1 else math.log(step - 1))


def _values(gradient: Float[np.ndarray, "rows columns"], count: int) -> tuple[float, ...]:
    return tuple(map(float, np.linalg.svd(gradient, compute_uv=False)[:count]))


# Curvature -----------------------------------------------------------------------------------------------------------


def flat_gradient(state: State, problem: Problem) -> Float[np.ndarray, " weights"]:
    """dC/dtheta of what moves, as one vector."""
    return np.asarray(_gradient(state, problem))


@eqx.filter_jit
def _gradient(state: State, problem: Problem) -> Float[Array, " weights"]:
    return -ravel_pytree(state.velocity(problem).trained())[0]


@eqx.filter_jit
def _product(state: State, problem: Problem, product: Callable[..., Any], vector: Array) -> Array:
    back = ravel_pytree(state.trained())[1]
    return ravel_pytree(product(state, problem, back(vector)).trained())[0]


@eqx.filter_jit
def _dense(state: State, problem: Problem, product: Callable[..., Any]) -> Float[Array, "weights weights"]:
    flat, back = ravel_pytree(state.trained())
    act = lambda v: ravel_pytree(product(state, problem, back(v)).trained())[0]  # noqa: E731
    matrix = jax.lax.map(act, jnp.eye(flat.size, dtype=flat.dtype))
    return (matrix + matrix.T) / 2


def top(
    state: State, problem: Problem, product: Callable[..., Any], count: int
) -> tuple[Float[np.ndarray, " count"], Float[np.ndarray, "weights count"]]:
    """The largest eigenvalues of a part of the Hessian, descending, with their vectors as columns."""
    flat = ravel_pytree(state.trained())[0]
    if flat.size <= max(_DENSE, 2 * count):
        values, vectors = np.linalg.eigh(np.asarray(_dense(state, problem, product)))
    else:
        from scipy.sparse.linalg import LinearOperator, eigsh  # slow to load

        act = lambda v: np.asarray(_product(state, problem, product, jnp.asarray(np.ravel(v))))  # noqa: E731
        operator = LinearOperator((flat.size, flat.size), matvec=act, dtype=flat.dtype)
        # a fixed generic start: curvature must not depend on a seed; residuals go into eigenvalues squared
        first = np.random.default_rng(0).normal(size=flat.size).astype(flat.dtype)
        tol = float(np.sqrt(np.finfo(flat.dtype).eps))
        values, vectors = eigsh(operator, count, which="LA", v0=first, tol=tol)
        order = np.argsort(values)
        values, vectors = values[order], vectors[:, order]
    return values[::-1][:count], vectors[:, ::-1][:, :count]


# Linear theory's way -------------------------------------------------------------------------------------------------


class _Ends(NamedTuple):
    """What is true of the network where linear theory leads, and the linear outputs there."""

    nonlinearity: float
    bent: float
    cost: float  # how far it is from quadratic
    kernel: float  # by how much it has changed
    outputs: Float[np.ndarray, "d_out n"] | None


def moments(steps: int) -> Record:
    """Steps to look at: all of few, else evenly in the logarithm."""
    if steps <= _RECORDS:
        return at(range(steps + 1))
    return at([0, *np.unique(np.rint(np.geomspace(1, steps, _RECORDS)).astype(int)).tolist()])


def _followed(moving: Network, problem: Problem, lr: float, steps: int) -> tuple[Curves, _Ends]:
    """Descent of the linear network, and the network itself at the same weights."""
    linear = moving.linearised()
    looks: dict[str, Any] = {"loss": observe.loss, "there": _there}
    run = simulate(problem, linear, GradientDescent(lr), steps=steps, record=moments(steps), observe=looks)
    loss, there = (np.asarray(run[name], dtype=float) for name in looks)
    if run.status == "diverged":
        loss = np.append(loss[:-1], math.inf)
        return Curves(np.asarray(run.steps), loss, there), _Ends(math.nan, math.nan, math.nan, math.nan, None)
    final: Any = run.final
    ended = eqx.tree_at(lambda s: s.parameters, moving, final.parameters[0])
    off, bent, cost, kernel, outputs = _compared(moving, ended, final, problem)
    ends = _Ends(float(off), float(bent), float(cost), float(kernel), np.asarray(outputs))
    return Curves(np.asarray(run.steps), loss, there), ends


def _there(state: Any, problem: Problem) -> Float[Array, ""]:
    """The loss of the network itself at the weights of its linearisation"""
    moved, _, frozen = eqx.combine(state.parameters, state.frozen)
    there = Network(state.function.function, eqx.combine(moved, frozen), state.inputs, together=state.together)
    return problem.cost(there.matrix)


@eqx.filter_jit
def _compared(start: Network, end: Network, linear: Network, problem: Problem) -> tuple[Array, ...]:
    """How far outputs, the cost's curvature and the kernel are not what they were at the start."""
    before, after, straight = start.matrix, end.matrix, linear.matrix
    off, moved = after - straight, straight - before
    rounding = _ROUNDINGS * float(np.finfo(before.dtype).eps)
    size = jnp.linalg.norm(after, axis=0) + jnp.linalg.norm(before, axis=0)
    force = problem.gradient(before)
    curved = problem.curvature(before, moved)
    apart = over(problem.gradient(straight) - force - curved, curved)
    kernels = [state.tangent(force) for state in (start, end)]
    bent = jnp.mean(jnp.linalg.norm(off, axis=0) > rounding * size, dtype=before.dtype)
    return over(off, moved), bent, apart, over(kernels[1] - kernels[0], kernels[0]), straight


def over(part: Any, whole: Any) -> Float[Array, ""]:
    """The size of one over that of the other; 0 where nothing moves."""
    size = jnp.linalg.norm(whole)
    return jnp.linalg.norm(part) / jnp.where(size > 0, size, jnp.inf)
