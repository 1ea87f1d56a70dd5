"""The linear theory of one layer of a network, and how far it holds.

Let W be a layer, all other weights fixed, f(W) the outputs on the samples (d_out x n), J = df/dW at the initialization
W_0, C the cost. Exact at initialization, for every network:

- the gradient dC/dW = J^T dC/df, which for a dense layer is sum_i g_i h_i^T with its inputs h_i and the gradients g_i
  in its outputs;
- the layer's block of the Hessian, J^T C'' J + sum_j (dC/df_j) d^2 f_j / dW^2. The second part is 0 where f is linear
  in the layer, piece by piece (relu, max): then the block is the Gauss-Newton block, and for a dense layer that is
  sum_i (B_i^T C_i'' B_i) (x) h_i h_i^T with B_i = df_i / d(W h_i);
- a block has no larger eigenvalue than the whole matrix, so no learning rate is stable for the network that is not
  stable for the layer; and a Gauss-Newton matrix has at most the sum of what its blocks have.

Linear theory replaces f by f_lin = f_0 + J (W - W_0) (`Network.linearized`). With squares, descent on it is solved by
the eigenvectors v of J^T C'' J: (1 - lr k)^t, with (v . gradient)^2 / (2 k) of the loss in each. It is exact for all
steps where f is linear in the layer: every layer of a linear network alone, and the last layer of any network;
elsewhere as long as no activation switches. Its error is known before training: f itself at the weights to which
linear theory leads is one forward pass (`nonlinearity`, `bent`, `loss_there`, `kernel_change`).
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from linnet import _check
from linnet._check import InputError
from linnet.linalg import DENSE_SPECTRUM
from linnet.observe import gauss_newton_product, hessian_product
from linnet.optim import SGD
from linnet.prediction.assumption import Assumption, Holds, Source
from linnet.prediction.numbers import number, plural
from linnet.prediction.prediction import Column, Prediction, Quantity, Row, Time, facts
from linnet.prediction.theories.gradient_flow import descent_lr, require
from linnet.prediction.theories.layer_run import experiment, linear_run, panels
from linnet.problems import Problem
from linnet.states import Network, State
from linnet.theory.regime import LAZY_BELOW, RICH_ABOVE, Regime

_SHARE = 0.1  # of the largest stable learning rate, where none is given


_SAME = "the Hessian's block is its Gauss-Newton block (largest eigenvalue)"


def layer(
    problem: Problem,
    network: Network,
    layer: int | None = None,
    *,
    lr: float | None = None,
    steps: int = 100,
    modes: int = 8,
) -> Prediction:
    """Linear theory of a layer of this network, and how far it holds (W_1 is `layer` = 1).

    The largest stable learning rate of the layer, the modes that it learns first and how fast, the loss after `steps`
    steps of descent, and whether training is lazy or rich, with all other weights fixed; with `layer=None` for all
    weights. `measure()` trains the network itself, with this layer alone moving and with everything moving.

    - `problem`: a cost on the outputs (`supervised`); where it is not of squares, modes are those of its curvature at
      initialization, and the loss is that of linear outputs under the cost itself.
    - `lr`: by default a tenth of the largest stable one of the network.
    - `modes`: how many are computed.

    Raises an InputError where the gradient in the layer is zero or not finite.
    """
    moving, gradient, total = _checked(problem, network, layer)
    count, wanted = (_check.integer(name, value, least=1) for name, value in (("steps", steps), ("modes", modes)))
    sharp = float(top(network, problem, hessian_product, 1)[0][0])
    rate = _rate(lr, sharp)
    values, vectors = top(moving, problem, gauss_newton_product, min(wanted, gradient.size))
    curves, end = linear_run(moving, problem, rate, count)
    diverges = not np.isfinite(curves.loss[-1])
    rounding = max(1e-9, 1e4 * float(np.finfo(gradient.dtype).eps))
    needed = end.assumptions(rounding)
    block = sharp if layer is None else float(top(moving, problem, hessian_product, 1)[0][0])
    apart = abs(block - values[0]) / max(abs(block), abs(values[0]))
    same = Assumption.of(_SAME, apart, exact=rounding)
    derivatives, stability, eigenvectors, descent, kernel = _sources(() if diverges else needed, same)
    largest, initial = _stable_lr(values[0]), float(curves.loss[0])
    final, there = (math.inf if diverges else float(losses[-1]) for losses in (curves.loss, curves.there))
    rows = _modes(np.where(values > rounding * values[0], values, 0.0), gradient @ vectors, initial, rate, needed)
    shape = None if layer is None else moving.layers[0].shape
    samples, outputs = network.inputs.shape[0], int(moving.matrix.shape[0])
    share = float(np.sum(gradient**2) / np.sum(total**2))
    gradient_values = None if shape is None else _values(gradient.reshape(shape), wanted)
    return Prediction(
        topic="layer",
        headline=_headline(layer, largest, _stable_lr(sharp)),
        setting=(
            f"{_size(shape, gradient.size, total.size, share)}; {plural(samples, 'sample')}, "
            f"{plural(outputs, 'output')}.\nlr = {rate:.4g}{' (chosen here)' * (lr is None)}: "
            + _loss(initial, final, count)
        ),
        quantities=(
            Quantity("layer", layer),  # None: all weights
            Quantity("shape", shape),  # of the layer's matrix
            *facts(samples=samples, outputs=outputs, weights=gradient.size, weights_in_all=total.size),
            *facts(lr=rate, lr_chosen=lr is None, steps=count),
            # |dC/dW_l|^2 over |dC/dtheta|^2: the layer's part in the first fall of the loss
            Quantity("gradient_share", share, source=derivatives),
            Quantity("gradient_values", gradient_values),
            Quantity("sharpness", block, "largest eigenvalue of the Hessian's block", source=derivatives),
            Quantity("gauss_newton_sharpness", float(values[0]), "of the Gauss-Newton block", source=derivatives),
            Quantity("network_sharpness", sharp, "of the whole Hessian", source=derivatives),
            Quantity("largest_stable_lr", largest, source=stability),
            Quantity("network_largest_stable_lr", _stable_lr(sharp)),
            Quantity("settles", rate < largest),
            Quantity("modes", rows, source=eigenvectors, rows=len(rows), columns=_columns(rate)),
            Quantity("loss", Row(initial=initial, final=final), source=descent),
            # the network itself at the weights that linear theory leads to
            Quantity("loss_there", there, "loss of the network at the weights that linear theory leads to"),
            Quantity("nonlinearity", end.nonlinearity, "difference of its outputs from linear, over their change"),
            Quantity("bent", end.bent, "share of samples whose outputs differ", format=".1%"),
            Quantity("kernel_change", end.kernel, "relative change of the tangent kernel", source=kernel),
            Quantity("regime", None if diverges else Regime.of_growth(1 + end.kernel), "regime", source=kernel),
        ),
        problem=problem,
        network=network,
        optimizer=SGD(rate),
        panels=panels,
        experiment=experiment(problem, network, layer, rate, count, curves, end.outputs, _gauss_newton_sharpness),
        data={"curves": curves},
    )


def _rate(lr: float | None, sharpness: float) -> float:
    rate = _SHARE * _stable_lr(sharpness) if lr is None else _check.real("lr", lr, above=0)
    if math.isinf(rate):
        raise InputError("lr is missing: no curvature of the cost is positive at this initialization.")
    return rate


def for_triple(problem: Any, network: Any, optimizer: Any) -> Prediction:
    """`layer` of all weights of a `Network`, for gradient descent on all samples; raises NotApplicable elsewhere."""
    require("layer", "a Network, such as ln.networks.mlp makes", float(not isinstance(network, Network)))
    return layer(problem, network, lr=descent_lr("layer", optimizer))


def _checked(
    problem: Any, network: Any, layer: int | None
) -> tuple[Network, Float[np.ndarray, " weights"], Float[np.ndarray, " weights_in_all"]]:
    """The network in which only this layer moves, and the gradients of the cost in it and in all."""
    if not isinstance(network, Network):
        raise InputError(
            f"network = {_check.show(network)} is not allowed: use a Network, such as ln.networks.mlp makes."
        )
    if not isinstance(problem, Problem):
        raise InputError(f"problem = {_check.show(problem)} is not allowed: use a cost such as supervised(labels).")
    if _check.traced((network, problem)):
        raise InputError("network is traced: predictions are made for known numbers.")
    moving = network if layer is None else network.alone(layer)
    gradient, total = flat_gradient(moving, problem), flat_gradient(network, problem)
    size = float(np.linalg.norm(gradient))
    if not size > 0 or not math.isfinite(size):
        found = "0" if size == 0 else "not finite"
        raise InputError(
            f"layer = {layer} is not allowed: the gradient of the cost in it is {found} at initialization."
        )
    return moving, gradient, total


def _size(shape: tuple[int, ...] | None, weights: int, in_all: int, share: float) -> str:
    if shape is None:
        return plural(weights, "weight")
    return (
        f"{' x '.join(map(str, shape))}, {weights:,} of {plural(in_all, 'weight')}, with {share:.1%} of the squared "
        "gradient (the first fall of the loss)"
    )


def _stable_lr(curvature: float) -> float:
    return 2 / float(curvature) if curvature > 0 else math.inf


def _modes(
    values: np.ndarray, slopes: np.ndarray, loss: float, lr: float, needed: tuple[Assumption, ...]
) -> tuple[Row, ...]:
    exact = all(one.holds is Holds.EXACTLY for one in needed)
    return tuple(_mode(float(k), float(slope), loss, lr, exact) for k, slope in zip(values, slopes, strict=True))


def _mode(curvature: float, slope: float, loss: float, lr: float, exact: bool) -> Row:
    """An eigenvector: its curvature k, what learning it takes off the loss, and when half of it is learned."""
    share = slope**2 / (2 * curvature) / loss if curvature > 0 and loss > 0 else 0.0
    steps = _half(lr * curvature)
    return Row(curvature=curvature, share=share, half_learned=Time(steps * lr, steps, 0.0 if exact else None))


def _half(step: float) -> float:
    """The t with |1 - step|^t = 1/2."""
    if not 0 < step < 2:
        return math.inf
    if step == 1:
        return 0.0
    return math.log(2) / -(math.log1p(-step) if step < 1 else math.log(step - 1))


def _values(gradient: Float[np.ndarray, "rows columns"], count: int) -> tuple[float, ...]:
    return tuple(map(float, np.linalg.svd(gradient, compute_uv=False)[:count]))


def _gauss_newton_sharpness(network: Network, problem: Problem) -> float:
    return float(top(network, problem, gauss_newton_product, 1)[0][0])


# Words ---------------------------------------------------------------------------------------------------------------


def _sources(needed: tuple[Assumption, ...], same: Assumption) -> tuple[Source, Source, Source, Source, Source]:
    """Of derivatives, the largest stable learning rate, the modes, the loss, and the kernel.

    `needed`: that outputs are linear and that the cost is quadratic; empty where linear theory diverges.
    """
    modes = "eigenvectors of the Gauss-Newton block, with the cost's curvature at initialization"
    rule = f"lazy below {LAZY_BELOW:g}, rich above {RICH_ABOVE:g}"
    return (
        Source("derivatives at initialization, exact"),
        Source("2 over the Gauss-Newton block's largest eigenvalue", (), (same,)),
        Source(modes, (), needed),
        Source("descent on outputs linear in the layer, with the cost itself", (), needed[:1]),
        Source(f"1 + change of the kernel where linear theory leads: {rule}"),
    )


def _headline(layer: int | None, largest: float, of_network: float) -> str:
    """Up to which learning rates the layer and the network are stable."""
    return (
        f"[bold]{'All weights are' if layer is None else f'W_{layer} is'} stable for lr < {number(largest)}[/] in "
        f"linear theory{'' if layer is None else ', all other weights fixed'}; the network for lr < "
        f"{number(of_network)} at initialization."
    )


def _loss(initial: float, final: float, steps: int) -> str:
    """Where linear theory leads the loss."""
    if math.isinf(final):
        return f"linear theory [bold]diverges[/] within {plural(steps, 'step')}."
    return f"linear theory leads the loss from {initial:.4g} to {final:.4g} in {plural(steps, 'step')}."


def _columns(lr: float) -> tuple[Column, ...]:
    """Of the table of modes."""
    return (
        Column("curvature", "curvature"),
        Column("curvature", "lr times it", lambda value: f"{lr * value:.3g}", spare=1),
        Column("share", "of the loss", ".2%"),
        Column("half_learned", "half at step"),
    )


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
    if flat.size <= max(DENSE_SPECTRUM, 2 * count):
        values, vectors = np.linalg.eigh(np.asarray(_dense(state, problem, product)))
    else:
        from scipy.sparse.linalg import LinearOperator, eigsh  # slow to load

        act = lambda v: np.asarray(_product(state, problem, product, jnp.asarray(np.ravel(v))))  # noqa: E731
        operator = LinearOperator((flat.size, flat.size), matvec=act, dtype=flat.dtype)
        # a fixed generic vector: curvature must not depend on a seed; residuals enter eigenvalues squared
        first = np.random.default_rng(0).normal(size=flat.size).astype(flat.dtype)
        tol = float(np.sqrt(np.finfo(flat.dtype).eps))
        values, vectors = eigsh(operator, count, which="LA", v0=first, tol=tol)
        order = np.argsort(values)
        values, vectors = values[order], vectors[:, order]
    return values[::-1][:count], vectors[:, ::-1][:, :count]
