"""Networks whose layers share the singular vectors of the target: each mode is a map of numbers."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from linnet._check import InputError
from linnet.prediction import coerce
from linnet.prediction.theories.gradient_flow import require
from linnet.problems import Factorization, Regression
from linnet.states import Modes, Weights

_MOST_MODES, _SMALLEST, _LARGEST = 50, 1e-12, 1e12
_ROUNDING = 1e-9


class AlignedModes(NamedTuple):
    """The modes of the loss scale/2 |A - A_star|^2 in d x d matrices, and their initialization.

    `s` are the positive singular values of A_star, descending. Layers are alpha, the last one 0 unless `balanced`;
    `init` is "one-zero", "orthogonal" (the same with rotations), or "balanced". `u` and `v` are the singular vectors of
    A_star, all d of them, as columns; None for `Modes`, whose mode i is entry `order[i]`.
    """

    s: Float[np.ndarray, " modes"]
    d: int
    depth: int
    scale: float
    alpha: float
    init: str
    u: Float[np.ndarray, "d d"] | None
    v: Float[np.ndarray, "d d"] | None
    order: np.ndarray

    @property
    def balanced(self) -> bool:
        """Whether all layers begin as alpha."""
        return self.init == "balanced"

    @property
    def null(self) -> bool:
        """Whether there are directions that the target lacks, in which W_l, l < L, keep alpha."""
        return self.d > len(self.s) and not self.balanced


def recognize(topic: str, problem: Any, network: Any) -> AlignedModes:
    """The modes of a problem and a network that share singular vectors, up to rounding.

    Raises:
        NotApplicable: if the problem is no factorization or regression on white inputs, or the layers are no multiples
            of orthogonal matrices that go with the target.
        InputError: for shapes that do not fit, more than 50 modes, or modes outside 1e-12 to 1e12.

    """
    target, scale = _target(topic, problem)
    require(topic, "a network given as Weights or Modes", float(not isinstance(network, Weights | Modes)))
    coerce.same_shape(network, target.shape)
    if isinstance(network, Modes):
        u = v = None
        values, order = target, np.argsort(-target, kind="stable")
        require(topic, "a target of modes of at least 0", -float(np.min(values)))
        alpha, init = _diagonal(topic, np.asarray(network.values))
    else:
        require(topic, "a square target", float(target.shape[0] != target.shape[1]))
        u, values, vt = np.linalg.svd(target)
        v, order = vt.T, np.arange(len(values))
        kept = values > _ROUNDING * values[0]
        alpha, init = _matrices(topic, [np.asarray(w) for w in network.layers], u[:, kept], v[:, kept])
    s = values[order]
    s = _checked(s[s > (0.0 if u is None else _ROUNDING * s[0])])
    if alpha == 0:  # one layer begins at 0, whatever alpha is
        require(topic, "an initialization other than the saddle 0", float(network.depth > 1))
        alpha = small_alpha(s, network.depth)
    if alpha >= s[-1]:
        raise InputError(
            f"alpha = {alpha:g} is not allowed: alpha must be below the smallest singular value, {s[-1]:g}."
        )
    return AlignedModes(s, len(values), network.depth, scale, alpha, init, u, v, order)


def small_alpha(s: Any, depth: int) -> float:
    """An initialization that is small against the first mode, and still leaves the saddle of a deep network."""
    return float(min(s[-1] / 2, 0.1 * s[0] ** (1 / depth)))


def _target(topic: str, problem: Any) -> tuple[np.ndarray, float]:
    """A_star and the scale of |A - A_star|^2 / 2."""
    if isinstance(problem, Regression) and len(problem.shape) == 2:
        require(topic, "white inputs: X^T X is a multiple of the identity", coerce.anisotropy(problem))
        return np.asarray(problem.target), coerce.curvature(problem)
    require(topic, "a factorization, or a regression on white inputs", float(not isinstance(problem, Factorization)))
    return np.asarray(problem.target), float(problem.scale)


def _diagonal(topic: str, layers: np.ndarray) -> tuple[float, str]:
    """alpha and the kind of a diagonal network's initialization."""
    alpha, zero = float(layers[0, 0]), not layers[-1].any()
    inner = layers[:-1] if zero else layers
    off = float(np.max(np.abs(inner - alpha), initial=0.0)) / (abs(alpha) or 1.0)
    require(topic, "alpha > 0 in all layers, or in all but the last, which is zero", off if alpha >= 0 else 1.0)
    return alpha, "one-zero" if zero else "balanced"


def _matrices(topic: str, layers: list[np.ndarray], u: np.ndarray, v: np.ndarray) -> tuple[float, str]:
    """alpha and the kind of the initialization, for these singular vectors of the target."""
    zero = not layers[-1].any()
    inner = layers[:-1] if zero else layers
    if not inner:
        return 0.0, "one-zero"
    eye = np.eye(len(u))
    alpha = float(np.linalg.norm(inner[0]) / np.sqrt(len(u))) if inner[0].shape == eye.shape else 0.0
    name = "layers alpha times orthogonal matrices, or zero in the last"
    square = alpha > 0 and all(w.shape == eye.shape for w in layers)
    require(topic, name, max(float(np.max(np.abs(w.T @ w / alpha**2 - eye))) for w in inner) if square else 1.0)
    if zero:
        same = all(np.max(np.abs(w / alpha - eye)) < _ROUNDING for w in inner)
        return alpha, "one-zero" if same else "orthogonal"
    product = eye
    for w in layers:
        product = w @ product / alpha
    off = float(np.max(np.abs(u.T @ product @ v - np.eye(u.shape[1]))))
    require(topic, "layers that share the singular vectors of the target", off)
    return alpha, "balanced"


def _checked(s: np.ndarray) -> np.ndarray:
    if s.size == 0:
        raise InputError("the target is zero: there is nothing to learn.")
    if len(s) > _MOST_MODES:
        raise InputError(f"spectrum has {len(s)} values: give at most {_MOST_MODES}, the largest.")
    if s[0] > _LARGEST or s[-1] < _SMALLEST:
        worst = s[0] if s[0] > _LARGEST else s[-1]
        raise InputError(f"spectrum holds {worst:g}: its singular values must be from 1e-12 to 1e12.")
    return s
