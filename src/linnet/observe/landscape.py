"""Classification of points of the landscape: not critical, strict saddle, degenerate, or global minimum."""

import enum
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from linnet import _check
from linnet._check import InputError
from linnet.linalg import DENSE_SPECTRUM, below_and_above, layers_hessian
from linnet.observe.hessian import DENSE_HESSIAN, hessian_product
from linnet.problems import Factorization, Problem, Regression
from linnet.states import State, Weights

# relative to what rounding does to each quantity (measured: 1e-13, 1e-13 and 1e-15)
GRADIENT, CURVATURE, EXCESS, RANK = 1e-8, 1e-10, 1e-12, 1e-12


class Kind(enum.StrEnum):
    """What a point of the landscape is (nonlocal, Definitions 1-3).

    STRICT_SADDLE is critical with negative curvature; DEGENERATE_SOSP is critical without negative curvature and no
    global minimum (a second-order stationary point).
    """

    NOT_CRITICAL = "not_critical"
    STRICT_SADDLE = "strict_saddle"
    DEGENERATE_SOSP = "degenerate_sosp"
    GLOBAL_MIN = "global_min"


class Point(NamedTuple):
    """A classified point of the landscape."""

    label: Kind
    """What kind of point it is."""
    gradient: float
    """The norm of all gradients together."""
    smallest: float
    """The smallest eigenvalue of the Hessian."""
    rank: int
    """The rank of A."""
    excess: float
    """The cost above that of the best matrix of the bottleneck's rank."""


def classify(state: State, problem: Problem) -> Point:
    """What kind of point `state` is for the cost of a regression or a factorization (nonlocal, Definitions 1-3).

    Any depth, widths and data (n < d_in allowed). Tested in the order gradient, curvature, excess, with tolerances that
    follow the scales of data and weights. For the label alone the layers are first multiplied by positive numbers of
    product 1 that make their norms equal: at a critical point that is a congruence of the Hessian and keeps all signs.
    Between layers whose bases are skew by condition numbers of hundreds a saddle can still hide in the tolerance.
    The smallest eigenvalue is that of the whole Hessian up to 500 parameters and Lanczos' beyond. It cannot be traced.
    """
    if not isinstance(state, Weights):
        raise InputError(f"state = {_check.show(state)} is not allowed: points of the landscape are Weights.")
    if not isinstance(problem, Factorization | Regression):
        raise InputError(f"problem = {type(problem).__name__} is not allowed: give a factorization or a regression.")
    if _check.traced((state, problem)):
        raise InputError("`classify` returns a string and cannot be used under jit or vmap: call it on the numbers.")
    shape = (state.widths[-1], state.widths[0])
    if shape != problem.shape:
        raise InputError(f"the state's matrix has shape {shape}: the problem has shape {problem.shape}.")
    layers, data = [np.asarray(w, dtype=float) for w in state.layers], _data(problem)
    norms = [float(np.linalg.norm(w, 2)) for w in layers]
    here = _Local(layers, data)
    smallest = here.smallest(problem)
    fit = problem.fit()
    excess = here.cost - float(fit.floor) - float(np.sum(np.asarray(fit.gains)[min(state.widths) :]))
    rank = int(np.sum(np.linalg.svd(here.matrix, compute_uv=False) > RANK * math.prod(norms)))

    even, curvature = here, smallest
    if min(norms) > 1e-12 * max(norms):
        mean = math.exp(sum(map(math.log, norms)) / len(norms))
        even = _Local([w * (mean / norm) for w, norm in zip(layers, norms, strict=True)], data)
        norms = [mean]
    w, depth = max(norms), len(layers)
    gram, force = data.root.T @ data.root, float(np.linalg.norm(data.labels @ data.root))
    g = float(np.linalg.norm(even.matrix @ gram)) + force
    label = Kind.NOT_CRITICAL
    if even.gradient <= GRADIENT * g * w ** (depth - 1):
        curvature = smallest if even is here else even.smallest(problem)
        residual = g * w ** (depth - 2) if depth > 1 else 0.0
        flat = -CURVATURE * (float(np.linalg.norm(gram, 2)) * w ** (2 * depth - 2) + residual)
        square = float(np.sum(data.labels**2)) + data.unexplained
        least = excess <= EXCESS * square / 2
        label = Kind.STRICT_SADDLE if curvature < flat else Kind.GLOBAL_MIN if least else Kind.DEGENERATE_SOSP
    return Point(label, here.gradient, smallest, rank, excess)


# In NumPy: every architecture has shapes of its own, and compiling would cost more than the numbers ------------------


class _Data(NamedTuple):
    """The cost as 1/2 |A root^T - labels|^2 + unexplained / 2."""

    root: Float[np.ndarray, "k d_in"]
    labels: Float[np.ndarray, "d_out k"]
    unexplained: float


def _data(problem: Factorization | Regression) -> _Data:
    weight = math.sqrt(float(problem.scale))
    if isinstance(problem, Factorization):
        goal = np.asarray(problem.goal, dtype=float)
        return _Data(weight * np.eye(goal.shape[1]), weight * goal, 0.0)
    root, labels = (np.asarray(x, dtype=float) for x in (problem.root, problem.labels))
    stretch = weight * float(problem.output_scale)
    return _Data(stretch * root, weight * labels, weight**2 * float(problem.unexplained))


class _Local:
    """Cost, gradient and curvature at some weights, by their formulas in the layers above and below each."""

    def __init__(self, layers: list[np.ndarray], data: _Data):
        self.layers, self.data = layers, data
        self.below, self.above = below_and_above(layers, np.eye(layers[0].shape[1]), np.eye(layers[-1].shape[0]))
        self.matrix = layers[-1] @ self.below[-1]
        residual = self.matrix @ data.root.T - data.labels
        self.cost = (float(np.sum(residual**2)) + data.unexplained) / 2
        self.force = residual @ data.root
        self.gradient = math.sqrt(
            sum(float(np.sum((a.T @ self.force @ b.T) ** 2)) for a, b in zip(self.above, self.below, strict=True))
        )

    def hessian(self) -> Float[np.ndarray, "parameters parameters"]:
        """The dense Hessian; the layers one after another, each by rows."""
        return layers_hessian(self.layers, self.force, self.data.root.T @ self.data.root)

    def smallest(self, problem: Problem) -> float:
        """The smallest eigenvalue of the Hessian."""
        if sum(w.size for w in self.layers) <= DENSE_SPECTRUM:
            return float(np.linalg.eigvalsh(self.hessian())[0])
        return _lanczos(self, problem)


@eqx.filter_jit
def _product(state: Weights, problem: Problem, direction: Float[Array, " parameters"]) -> Float[Array, " parameters"]:
    back = ravel_pytree(state)[1]
    return ravel_pytree(hessian_product(state, problem, back(direction)))[0]


def _lanczos(point: _Local, problem: Problem) -> float:
    """The smallest eigenvalue by Lanczos with restarts (ARPACK), until its residual is 1e-12 of the largest.

    `top_hessian`'s fixed number of products is not enough at this end: the many zeros of a Hessian hide a small
    negative eigenvalue, and its sign is the question.
    """
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    state = Weights([jnp.asarray(w) for w in point.layers])
    size = sum(w.size for w in point.layers)

    def product(v: Any) -> np.ndarray:
        return np.asarray(_product(state, problem, jnp.asarray(np.ravel(v))))

    vector = np.random.default_rng(0).normal(size=size)  # generic and fixed: curvature must not depend on a seed
    if not np.any(product(vector)):
        return 0.0
    hessian = LinearOperator((size, size), matvec=product, dtype=float)
    top = abs(float(eigsh(hessian, 1, which="LM", tol=1e-2, v0=vector, return_eigenvectors=False)[0]))
    # seen from the top, so that the tolerance is relative to the largest eigenvalue and not to one near zero
    shifted = LinearOperator((size, size), matvec=lambda v: top * np.ravel(v) - product(v), dtype=float)
    try:
        most = eigsh(shifted, 1, which="LA", tol=1e-12, ncv=60, v0=vector, maxiter=200, return_eigenvectors=False)[0]
    except ArpackNoConvergence:
        if size > DENSE_HESSIAN:
            raise InputError(
                f"the state has {size} parameters and a Hessian too ill-conditioned for Lanczos: use a smaller network."
            ) from None
        return float(np.linalg.eigvalsh(point.hessian())[0])
    return top - float(most)
