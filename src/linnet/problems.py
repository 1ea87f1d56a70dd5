"""Problems: a cost on the end-to-end matrix A, its gradient, and what theory needs to know about it.

A matrix network has a matrix A (d_out x d_in); a diagonal network has the vector of its diagonal, and every cost
here that makes sense for vectors takes one. Normalizations (1/2, 1/d^2, 1/(2n), 1/width ...) live here only.
"""

import abc
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from linnet import _check
from linnet._check import InputError, KeyLike, known, namespace, numpy_if_known
from linnet._random import bartlett, gamma, keys, normal, sampler, split, with_spectrum
from linnet.linalg import RANK_TOLERANCE, product, singular_values, transposed_product, triplets

KEPT_SAMPLES = 4096  # up to which a regression keeps its samples one by one: a kernel of more has no use as a matrix


class Optimum(NamedTuple):
    """A minimizer and the cost there."""

    matrix: Float[Array, "d_out d_in"]
    cost: Float[Array, ""]


class Fit(NamedTuple):
    """A least-squares fit mode by mode, the most important first: A_I = sum over i in I of values_i left_i right_i.

    The cost at A_I is `floor` plus the `gains` of the modes that are not in I. `left` has orthonormal columns; the
    rows of `right` are orthonormal for a factorization, and in the metric output_scale^2 X^T X for a regression.
    """

    left: Float[Array, "d_out k"]
    values: Float[Array, " k"]
    right: Float[Array, "k d_in"]
    gains: Float[Array, " k"]
    floor: Float[Array, ""]

    @property
    def rank(self) -> int:
        """How many modes are not zero."""
        values = np.asarray(self.values)
        return int(np.sum(values > RANK_TOLERANCE * values[0]))

    @numpy_if_known
    def matrix(self, kept: Sequence[int]) -> Float[Array, "d_out d_in"]:
        """A_I for the kept modes, numbered from 1."""
        chosen = _check.modes("kept", kept, known=self.values.shape[0])
        share = np.array([float(i in chosen) for i in range(1, self.values.shape[0] + 1)])
        return (self.left * (share * self.values)) @ self.right

    @numpy_if_known
    def optimum(self, rank: int) -> Optimum:
        """The best matrix of rank at most `rank` (Eckart and Young)."""
        d_out, d_in = self.left.shape[0], self.right.shape[1]
        rank = _check.integer("rank", rank, least=0, most=min(d_out, d_in), reason="the smaller dimension")
        best = (self.left[:, :rank] * self.values[:rank]) @ self.right[:rank]
        return Optimum(best, self.gains[rank:].sum() + self.floor)


class Problem(eqx.Module):
    """A differentiable cost on the end-to-end matrix; `test`, if given, is the problem whose cost is the test error."""

    finite: ClassVar[bool] = False  # whether the cost of every finite matrix is known to be finite
    test: "Problem | None" = eqx.field(default=None, kw_only=True)

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """(d_out, d_in), or (d,) for a diagonal network."""

    @abc.abstractmethod
    def cost(self, matrix: Float[Array, "..."]) -> Float[Array, ""]:
        """C(A)."""

    def gradient(self, matrix: Float[Array, "..."]) -> Float[Array, "..."]:
        """G = dC/dA."""
        return jax.grad(self.cost)(matrix)

    def curvature(self, matrix: Float[Array, "..."], direction: Float[Array, "..."]) -> Float[Array, "..."]:
        """The second derivative of C at A applied to a direction."""
        return jax.jvp(self.gradient, (matrix,), (direction,))[1]

    def test_error(self, matrix: Float[Array, "..."]) -> Float[Array, ""]:
        """The cost of the test problem."""
        if self.test is None:
            raise InputError(f"{type(self).__name__} has no test problem: build it with test=..., or observe the loss.")
        return self.test.cost(matrix)

    @property
    def target(self) -> Float[Array, "..."]:
        """The matrix that this problem asks for, where there is one."""
        raise InputError(f"{type(self).__name__} has no target matrix: its cost has no single minimizer.")

    @property
    def truth(self) -> Float[Array, "..."]:
        """The matrix to recover: the target of the test problem if there is one, otherwise the target."""
        return self.target if self.test is None else self.test.target

    @numpy_if_known
    def bases(self) -> tuple[Float[Array, "d_out k"], Float[Array, "d_in k"]] | None:
        """Left and right singular vectors (columns) of the truth; None for a diagonal network."""
        truth = self.truth
        if truth.ndim == 1:
            return None
        u, _, vt = namespace(truth).linalg.svd(truth, full_matrices=False)
        return u, vt.T

    def label_noise(self, key: Key[Array, ""]) -> Float[Array, "..."]:
        """The change of the force -dC/dA when every label gets independent standard normal noise."""
        raise InputError(f"{type(self).__name__} has no labels to add noise to: use a regression or factorization.")

    def noise_covariance(self) -> tuple[Float[Array, "d_in d_in"], int]:
        """(S, d_out): rows of `label_noise` are independent with covariance S."""
        raise InputError(f"{type(self).__name__} has no labels to add noise to: use a regression or factorization.")

    def sampled(self) -> "Samples":
        """X and Y, row by row, for a cost that is a sum over samples."""
        raise InputError(f"{type(self).__name__} has no samples: use regression or classification.")

    def on_samples(self, inputs: Float[Array, "b d_in"], labels: Float[Array, "b *d_out"]) -> "Problem":
        """The same cost on these samples alone, rows as `sampled` gives them: a mini-batch.

        Its mean over uniformly drawn batches is the whole cost: a sum over b samples is multiplied by n/b, so
        with average=True it is the batch's mean. It has no test problem.
        """
        raise InputError(f"{type(self).__name__} has no samples: use regression or classification.")

    def output_labels(self) -> Float[Array, "n ..."]:
        """The labels as rows, for a cost on the outputs of a network, whose columns are samples."""
        raise InputError(f"{type(self).__name__} is no cost on a network's outputs, sample by sample: use supervised.")

    def with_output_labels(self, labels: Float[Array, "b ..."]) -> "Problem":
        """The same cost on the outputs for so many samples with these labels, as `on_samples` weighs them."""
        raise InputError(f"{type(self).__name__} is no cost on a network's outputs, sample by sample: use supervised.")

    def sampler(self) -> "Sampler":
        """The law of fresh samples; what all draws share is computed here, once."""
        raise InputError(f"{type(self).__name__} has no law for fresh samples: use regression.")

    def fresh(self, key: Key[Array, ""], size: int) -> "Samples":
        """So many new samples; in a loop, make the `sampler` once."""
        return self.sampler().draw(key, size)

    def __check_init__(self) -> None:
        if self.test is not None and not isinstance(self.test, Problem):
            raise InputError(
                f"test = {_check.show(self.test)} is not allowed: test must be a problem of the same shape."
            )
        if self.test is not None and self.test.shape != self.shape:
            raise InputError(f"test has shape {self.test.shape}: it must have the problem's shape {self.shape}.")


def _held(value: Any) -> Array | None:
    return None if value is None else _check.floating(value)


class Factorization(Problem):
    """C(A) = (scale/2) |A - target|^2."""

    finite: ClassVar[bool] = True
    goal: Float[Array, "..."] = eqx.field(converter=_check.floating)
    scale: Float[Array, ""] = eqx.field(converter=_check.floating)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.goal.shape

    @property
    def target(self) -> Float[Array, "..."]:
        return self.goal

    @numpy_if_known
    def cost(self, matrix: Float[Array, "..."]) -> Float[Array, ""]:
        return self.scale / 2 * ((matrix - self.goal) ** 2).sum()

    @numpy_if_known
    def gradient(self, matrix: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.scale * (matrix - self.goal)

    def output_labels(self) -> Float[Array, "n d_out"]:
        return self.goal.T

    def with_output_labels(self, labels: Float[Array, "b d_out"]) -> "Factorization":
        return Factorization(labels.T, self.scale * (self.goal.shape[-1] / labels.shape[0]))

    def label_noise(self, key: Key[Array, ""]) -> Float[Array, "..."]:
        return self.scale * jax.random.normal(key, self.shape, dtype=self.goal.dtype)

    @numpy_if_known
    def noise_covariance(self) -> tuple[Float[Array, "d_in d_in"], int]:
        d_out, d_in = _matrix_shape(self, "the noise covariance")
        return self.scale**2 * np.eye(d_in, dtype=self.goal.dtype), d_out

    @numpy_if_known
    def fit(self) -> Fit:
        """The target's singular triplets."""
        _matrix_shape(self, "a fit mode by mode")
        u, s, vt = namespace(self.goal).linalg.svd(self.goal, full_matrices=False)
        return Fit(u, s, vt, self.scale / 2 * s**2, 0 * self.scale)

    def optimum(self, rank: int) -> Optimum:
        """The best matrix of rank at most `rank` (Eckart and Young)."""
        return self.fit().optimum(rank)

    @numpy_if_known
    def aligned(self) -> "Factorization":
        """The same problem for a network that shares the target's singular vectors: a vector of min(d) modes."""
        _matrix_shape(self, "aligned modes")
        return Factorization(singular_values(self.goal), self.scale)


class Regression(Problem):
    """C(A) = (scale/2) |output_scale X A^T - Y|^2 with n samples as rows of X and Y.

    Training depends on second moments only: X = Q root with orthonormal Q, `labels` = Y^T Q and the part of |Y|^2
    outside the range of X. So X^T X = root^T root and Y^T X = labels root, at most d_in rows whatever n is, and
    the loss near a perfect fit does not cancel as it does when written with X^T X. `frame` = Q and `outputs` = Y lead
    back to the samples one by one (`sampled`), up to 4096 of them unless `samples=True` keeps all.
    """

    finite: ClassVar[bool] = True
    root: Float[Array, "k d_in"] = eqx.field(converter=_check.floating)
    labels: Float[Array, "*d_out k"] = eqx.field(converter=_check.floating)
    unexplained: Float[Array, ""] = eqx.field(converter=_check.floating)
    scale: Float[Array, ""] = eqx.field(converter=_check.floating)
    output_scale: Float[Array, ""] = eqx.field(converter=_check.floating)
    samples: int = eqx.field(static=True)
    frame: Float[Array, "n k"] | None = eqx.field(default=None, converter=_held)
    outputs: Float[Array, "n *d_out"] | None = eqx.field(default=None, converter=_held)

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.labels.shape[:-1], self.root.shape[1])

    def sampled(self) -> "Samples":
        """X and Y, row by row as they were given; a projected or whitened problem has its own inputs in that order."""
        if self.frame is None or self.outputs is None:
            raise InputError(
                f"the problem keeps only the second moments of its {self.samples} samples: build it with samples=True "
                f"to have them one by one (by default they are kept up to {KEPT_SAMPLES})."
            )
        return Samples(product(self.frame, self.root), self.outputs)

    def on_samples(self, inputs: Float[Array, "b d_in"], labels: Float[Array, "b *d_out"]) -> "Regression":
        # the rows are their own root (Q = I): no factorization in a loop over batches
        b = inputs.shape[0]
        scale = self.scale * (self.samples / b)
        return Regression(inputs, labels.T, jnp.zeros_like(scale), scale, self.output_scale, b)

    def sampler(self) -> "Sampler":
        """Fresh samples x ~ N(0, X^T X / n), y = output_scale A_* x + noise, A_* the least-squares fit (`target`).

        The noise is isotropic and has the variance that the fit leaves, |Y - output_scale X A_*^T|^2 / n in
        all: the mean cost of fresh samples (`on_samples`) is the cost itself, for every A.
        """
        inside = self.residual(self.target) + self.labels
        left = jnp.sum((self.labels - inside) ** 2) + self.unexplained
        outputs = self.labels.size // self.root.shape[0]
        unit = 1 / math.sqrt(self.samples)
        return Sampler(unit * self.root, unit * inside.T, unit * jnp.sqrt(left / outputs))

    @numpy_if_known
    def residual(self, matrix: Float[Array, "*d_out d_in"]) -> Float[Array, "*d_out k"]:
        """The residual inside the range of X, transposed: output_scale A root^T - labels."""
        if matrix.ndim == 1:
            return self.output_scale * (self.root @ matrix) - self.labels
        return self.output_scale * product(matrix, self.root.T) - self.labels

    @numpy_if_known
    def cost(self, matrix: Float[Array, "*d_out d_in"]) -> Float[Array, ""]:
        return self.scale / 2 * ((self.residual(matrix) ** 2).sum() + self.unexplained)

    @numpy_if_known
    def gradient(self, matrix: Float[Array, "*d_out d_in"]) -> Float[Array, "*d_out d_in"]:
        residual = self.residual(matrix)
        factor = self.scale * self.output_scale
        return factor * (residual @ self.root if residual.ndim == 1 else product(residual, self.root))

    @property
    @numpy_if_known
    def gram(self) -> Float[Array, "d_in d_in"]:
        """X^T X."""
        return self.root.T @ self.root

    @property
    @numpy_if_known
    def cross(self) -> Float[Array, "*d_out d_in"]:
        """Y^T X."""
        return self.labels @ self.root

    @property
    @numpy_if_known
    def square(self) -> Float[Array, ""]:
        """|Y|^2."""
        return (self.labels**2).sum() + self.unexplained

    @property
    @numpy_if_known
    def target(self) -> Float[Array, "*d_out d_in"]:
        """The minimum-norm least-squares solution (X^+ Y)^T / output_scale."""
        if namespace(self.root) is not np:
            inverse = jnp.linalg.pinv(self.root, rtol=RANK_TOLERANCE)
            return self.labels @ inverse.T / self.output_scale
        q, s, vt = triplets(self.root)
        return (self.labels @ q / s) @ vt / self.output_scale

    @property
    @numpy_if_known
    def singular_values(self) -> Float[Array, " rank"]:
        """The singular values of X that are not zero, descending."""
        return _range(self.root)[1]

    @property
    def truth(self) -> Float[Array, "*d_out d_in"]:
        """The target: held-out samples measure the error and do not define what should be found."""
        return self.target

    def label_noise(self, key: Key[Array, ""]) -> Float[Array, "*d_out d_in"]:
        """scale output_scale e^T X for e ~ N(0, I): equal in law to standard normals times the root."""
        normals = jax.random.normal(key, self.labels.shape, dtype=self.root.dtype)
        return self.scale * self.output_scale * (normals @ self.root)

    @numpy_if_known
    def noise_covariance(self) -> tuple[Float[Array, "d_in d_in"], int]:
        d_out, _ = _matrix_shape(self, "the noise covariance")
        return (self.scale * self.output_scale) ** 2 * self.gram, d_out

    @numpy_if_known
    def fit(self) -> Fit:
        """The singular triplets of the projection of Y onto the range of X (n < d_in allowed)."""
        _matrix_shape(self, "a fit mode by mode")
        q, s, vt = _range(self.root)
        inside = self.labels @ q
        outside = ((self.labels - inside @ q.T) ** 2).sum()
        u, t, wt = namespace(inside).linalg.svd(inside, full_matrices=False)
        floor = self.scale / 2 * (outside + self.unexplained)
        return Fit(u, t, wt / s @ vt / self.output_scale, self.scale / 2 * t**2, floor)

    def optimum(self, rank: int) -> Optimum:
        """The best matrix of rank at most `rank`: Eckart and Young on the projection of Y (n < d_in allowed)."""
        return self.fit().optimum(rank)

    @numpy_if_known
    def project(self) -> "Projection[Regression]":
        """The same training in the span of the samples: d_in becomes rank X, exactly (without the test problem)."""
        _matrix_shape(self, "a projection onto the samples")
        q, s, vt = _range(self.root)
        return Projection(self._rotated(q, np.diag(s)), vt)

    @numpy_if_known
    def whiten(self) -> "Whitening":
        """The regression on sqrt(n) X (X^T X)^{-1/2}, whose inputs have unit covariance (without the test problem)."""
        _matrix_shape(self, "whitening")
        q, s, vt = _range(self.root)
        n, d_in = self.samples, self.root.shape[1]
        if s.shape[0] < d_in:
            raise InputError(
                f"X has rank {s.shape[0]} and d_in = {d_in}: whitening needs rank X = d_in; call project() first."
            )
        return Whitening(self._rotated(q, np.sqrt(n) * vt), np.sqrt(n) * (vt.T / s) @ vt)

    @numpy_if_known
    def _rotated(self, q: Any, root: Any) -> "Regression":
        """The same labels on inputs Q q root; what of them is outside of that range is in it no more."""
        inside = self.labels @ q
        left = self.unexplained + ((self.labels - inside @ q.T) ** 2).sum()
        rotated = None if self.frame is None else self.frame @ q
        return Regression(root, inside, left, self.scale, self.output_scale, self.samples, rotated, self.outputs)


class Sampler(eqx.Module):
    """Fresh samples of a regression's law: for z ~ N(0, I) the input is z root and the label z fit + noise."""

    root: Float[Array, "k d_in"]
    fit: Float[Array, "k *d_out"]
    noise: Float[Array, ""]

    def draw(self, key: Key[Array, ""], size: int) -> "Samples":
        """So many samples; may be traced."""
        k, outputs = self.root.shape[0], self.fit.shape[1:]
        count = _check.integer("size", size, least=1)
        z = jax.random.normal(key, (count, k + math.prod(outputs)), dtype=self.root.dtype)
        noise = self.noise * z[:, k:].reshape(count, *outputs)
        return Samples(z[:, :k] @ self.root, z[:, :k] @ self.fit + noise)


_Data = TypeVar("_Data", bound=Problem)


class Projection(NamedTuple, Generic[_Data]):
    """A problem in the span of its samples; `basis` (orthonormal rows) leads there and back.

    Only W_1 basis^T moves in training and the rest of W_1 keeps its initial value: `Weights.project(basis)` goes
    there, `Weights.lift(basis, start)` comes back.
    """

    problem: _Data
    basis: Float[Array, "r d_in"]


class Whitening(NamedTuple):
    """A whitened regression; A = A_whitened @ back predicts the same on the original inputs."""

    problem: Regression
    back: Float[Array, "d_in d_in"]


class Masked(Problem):
    """C(A) = (scale/2) sum of mask (A - target)^2 over entries: matrix completion."""

    finite: ClassVar[bool] = True
    goal: Float[Array, "..."] = eqx.field(converter=_check.floating)
    mask: Float[Array, "..."] = eqx.field(converter=_check.floating)
    scale: Float[Array, ""] = eqx.field(converter=_check.floating)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.goal.shape

    def cost(self, matrix: Float[Array, "..."]) -> Float[Array, ""]:
        return self.scale / 2 * jnp.sum(self.mask * (matrix - self.goal) ** 2)

    def gradient(self, matrix: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.scale * self.mask * (matrix - self.goal)


class Logistic(Problem):
    """C(A) = scale sum of log(1 + exp(-Y A)) over entries, labels Y = +-1."""

    finite: ClassVar[bool] = True
    labels: Float[Array, "..."] = eqx.field(converter=_check.floating)
    scale: Float[Array, ""] = eqx.field(converter=_check.floating)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.labels.shape

    def cost(self, matrix: Float[Array, "..."]) -> Float[Array, ""]:
        return self.scale * jnp.sum(jax.nn.softplus(-self.labels * matrix))

    def gradient(self, matrix: Float[Array, "..."]) -> Float[Array, "..."]:
        return -self.scale * self.labels * jax.nn.sigmoid(-self.labels * matrix)

    def output_labels(self) -> Float[Array, "n d_out"]:
        return self.labels.T

    def with_output_labels(self, labels: Float[Array, "b d_out"]) -> "Logistic":
        return Logistic(labels.T, self.scale * (self.labels.shape[-1] / labels.shape[0]))


class Classification(Problem):
    """C(A) = scale sum_i [log sum_c exp(A x_i)_c - (A x_i)_{y_i}]: softmax cross-entropy of n samples, rows of X.

    `labels` holds the classes y_i as rows that are 1 in the place of the class and 0 elsewhere.
    """

    finite: ClassVar[bool] = True
    inputs: Float[Array, "n d_in"] = eqx.field(converter=_check.floating)
    labels: Float[Array, "n classes"] = eqx.field(converter=_check.floating)
    scale: Float[Array, ""] = eqx.field(converter=_check.floating)

    @property
    def shape(self) -> tuple[int, int]:
        return self.labels.shape[1], self.inputs.shape[1]

    def sampled(self) -> "Samples":
        """X and the rows of classes."""
        return Samples(self.inputs, self.labels)

    def on_samples(self, inputs: Float[Array, "b d_in"], labels: Float[Array, "b classes"]) -> "Classification":
        return Classification(inputs, labels, self.scale * (self.inputs.shape[0] / inputs.shape[0]))

    def _outputs(self, matrix: Float[Array, "classes d_in"]) -> Float[Array, "n classes"]:
        return product(self.inputs, matrix.T)

    def cost(self, matrix: Float[Array, "classes d_in"]) -> Float[Array, ""]:
        return self.scale * _cross_entropy(self._outputs(matrix), self.labels)

    def gradient(self, matrix: Float[Array, "classes d_in"]) -> Float[Array, "classes d_in"]:
        """scale (P - Y)^T X with the classes' probabilities P."""
        residual = _softmax_residual(self._outputs(matrix), self.labels)
        return self.scale * transposed_product(residual, self.inputs)

    def project(self) -> "Projection[Classification]":
        """The same training in the span of the samples: d_in becomes rank X, exactly (without the test problem)."""
        basis = _check.floating(_range(self.inputs)[2])
        return Projection(Classification(self.inputs @ basis.T, self.labels, self.scale), basis)

    def accuracy(self, matrix: Float[Array, "classes d_in"]) -> Float[Array, ""]:
        """The share of samples whose largest output is their class; the first of equal outputs counts."""
        return _accuracy(self._outputs(matrix), self.labels)


class Softmax(Problem):
    """C(F) = scale sum_i [log sum_c exp F_ci - F_{y_i i}]: softmax cross-entropy of a network's outputs F, classes x n.

    `labels` holds the classes y_i as rows that are 1 in the place of the class and 0 elsewhere.
    """

    finite: ClassVar[bool] = True
    labels: Float[Array, "n classes"] = eqx.field(converter=_check.floating)
    scale: Float[Array, ""] = eqx.field(converter=_check.floating)

    @property
    def shape(self) -> tuple[int, int]:
        return self.labels.shape[1], self.labels.shape[0]

    def output_labels(self) -> Float[Array, "n classes"]:
        return self.labels

    def with_output_labels(self, labels: Float[Array, "b classes"]) -> "Softmax":
        return Softmax(labels, self.scale * (self.labels.shape[0] / labels.shape[0]))

    def cost(self, matrix: Float[Array, "classes n"]) -> Float[Array, ""]:
        return self.scale * _cross_entropy(matrix.T, self.labels)

    def gradient(self, matrix: Float[Array, "classes n"]) -> Float[Array, "classes n"]:
        """scale (P - Y)^T with the classes' probabilities P."""
        return self.scale * _softmax_residual(matrix.T, self.labels).T

    def accuracy(self, matrix: Float[Array, "classes n"]) -> Float[Array, ""]:
        """The share of samples whose largest output is their class; the first of equal outputs counts."""
        return _accuracy(matrix.T, self.labels)


def _margins(outputs: Float[Array, "n classes"], labels: Float[Array, "n classes"]) -> Float[Array, "n classes"]:
    """Each output less that of the sample's own class; minus infinity for the class itself."""
    own = jnp.sum(labels * outputs, axis=1, keepdims=True)
    return jnp.where(labels > 0, -jnp.inf, outputs - own)


def _cross_entropy(outputs: Float[Array, "n classes"], labels: Float[Array, "n classes"]) -> Float[Array, ""]:
    # log(1 + the others' shares), which keeps its digits where samples are fitted well
    return jnp.sum(jax.nn.softplus(jax.nn.logsumexp(_margins(outputs, labels), axis=1)))


def _softmax_residual(
    outputs: Float[Array, "n classes"], labels: Float[Array, "n classes"]
) -> Float[Array, "n classes"]:
    """P - Y."""
    margins = _margins(outputs, labels)
    others = jnp.exp(margins - jax.nn.softplus(jax.nn.logsumexp(margins, axis=1, keepdims=True)))
    return others - labels * jnp.sum(others, axis=1, keepdims=True)


def _accuracy(outputs: Float[Array, "n classes"], labels: Float[Array, "n classes"]) -> Float[Array, ""]:
    guess = jnp.argmax(outputs, axis=1)
    return jnp.mean(jnp.take_along_axis(labels, guess[:, None], axis=1))


class PseudoHuber(Problem):
    """C(A) = scale delta^2 sum of (sqrt(1 + (R/delta)^2) - 1) over entries, R = A - target."""

    finite: ClassVar[bool] = True
    goal: Float[Array, "..."] = eqx.field(converter=_check.floating)
    delta: Float[Array, ""] = eqx.field(converter=_check.floating)
    scale: Float[Array, ""] = eqx.field(converter=_check.floating)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.goal.shape

    @property
    def target(self) -> Float[Array, "..."]:
        return self.goal

    def cost(self, matrix: Float[Array, "..."]) -> Float[Array, ""]:
        r = matrix - self.goal
        # sqrt(1 + x^2) - 1 without cancellation
        return self.scale * jnp.sum(r**2 / (1 + jnp.sqrt(1 + (r / self.delta) ** 2)))

    def gradient(self, matrix: Float[Array, "..."]) -> Float[Array, "..."]:
        r = matrix - self.goal
        return self.scale * r / jnp.sqrt(1 + (r / self.delta) ** 2)


class Custom(Problem):
    """C(A) = function(A), any differentiable function; the gradient comes from automatic differentiation."""

    function: Callable[[Array], Array]
    dimensions: tuple[int, ...] = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.dimensions

    def cost(self, matrix: Float[Array, "..."]) -> Float[Array, ""]:
        return self.function(matrix)


# What users call -----------------------------------------------------------------------------------------------------


def factorization(target: Any, *, half: bool = True, test: Problem | None = None) -> Factorization:
    """Matrix factorization: C(A) = 1/2 |A - target|^2, or |A - target|^2 with half=False.

    A vector target is the same cost for a diagonal network. `test` is the problem whose cost is the test error.

    >>> import linnet as ln
    >>> import numpy as np
    >>> print(ln.factorization([[2.0, 0.0], [0.0, 1.0]]).cost(np.eye(2)))  # |A - M|^2 / 2
    0.5
    """
    scale = _check.floating(1.0 if _check.flag("half", half) else 2.0)
    return Factorization(_check.array("target", target, ndim=(1, 2)), scale, test=test)


def low_rank_recovery(key: KeyLike, d: int | tuple[int, int], rank: int, *, levels: Any = None) -> Factorization:
    """Noisy low-rank recovery: C(A) = |A - A_obs|^2 / (d_out d_in), A_obs = A_star + E.

    A_star = rank^{-1/2} sum of `rank` outer products of standard normal vectors, E standard normal (mixed dynamics,
    section 1.3). With `levels` a_i the singular values of A_star are a_i sqrt(d_out d_in), in uniformly random
    directions. The test error is the same cost at A_star.
    """
    if isinstance(d, tuple) and len(d) != 2:
        raise InputError(f"d = {_check.show(d)} is not allowed: d must be one number or (d_out, d_in).")
    d_out, d_in = d if isinstance(d, tuple) else (d, d)
    d_out = _check.integer("d", d_out, least=1)
    d_in = _check.integer("d", d_in, least=1)
    rank = _check.integer("rank", rank, least=1, most=min(d_out, d_in), reason="the smaller dimension")
    _check.fits("d", d, 3 * d_out * d_in, f"matrices of {d_out} x {d_in}")
    given = None if levels is None else _check.array("levels", levels, ndim=1)
    if given is not None and given.shape != (rank,):
        raise InputError(f"levels has {given.shape[0]} numbers: it must have rank = {rank}.")
    scale = _check.floating(2.0 / (d_out * d_in))
    truth, observed = _recovery(_check.key("key", key), given, d_out, d_in, rank)
    return Factorization(observed, scale, test=Factorization(truth, scale))


@sampler("d_out", "d_in", "rank")
def _recovery(
    key: Any, levels: Float[Array, " rank"] | None, d_out: int, d_in: int, rank: int
) -> tuple[Float[Array, "d_out d_in"], Float[Array, "d_out d_in"]]:
    """A_star and A_obs."""
    left, right, noise = keys(key, "low_rank_recovery", 3)
    if levels is None:
        truth = normal(left, (d_out, rank)) @ normal(right, (d_in, rank)).T / math.sqrt(rank)
    else:
        truth = with_spectrum(left, right, levels * math.sqrt(d_out * d_in), d_out, d_in).matrix
    return truth, truth + normal(noise, (d_out, d_in))


def regression(
    inputs: Any,
    labels: Any,
    *,
    average: bool = False,
    output_scale: float | Float[Array, ""] = 1.0,
    test: tuple[Any, Any] | None = None,
    samples: bool | None = None,
) -> Regression:
    """Linear regression: C(A) = 1/2 |X A^T - Y|^2, divided by n with average=True; samples are rows.

    `output_scale` multiplies the network's output (1/width in mean-field models). `test` = (X, Y) of held-out samples
    makes their average loss the test error. Training on all samples needs their second moments only; `samples=True`
    keeps them one by one beside these, whatever their number, as mini-batches need them (by default up to 4096).

    >>> import linnet as ln
    >>> problem = ln.regression([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]], [1.0, 2.0, 2.0])
    >>> problem.shape, problem.target.round(6).tolist()  # least squares
    ((1, 2), [[1.0, 1.0]])
    """
    x, y = _check.double("inputs", inputs, ndim=2), _check.double("labels", labels, ndim=(1, 2))
    if y.shape[0] != x.shape[0]:
        raise InputError(f"inputs have {x.shape[0]} rows and labels {y.shape[0]}: they must have one row a sample.")
    y = _check.floating(known(y)[1][0][:, None]) if y.ndim == 1 else y
    held_out = None if test is None else regression(*_pair(test), average=True, output_scale=output_scale)
    return _moments(x, y, average, output_scale, held_out, samples)


def _pair(test: Any) -> tuple[Any, Any]:
    if not isinstance(test, tuple) or len(test) != 2:
        raise InputError(f"test = {_check.show(test)} is not allowed: test must be a pair (inputs, labels).")
    return test


def mean_field_regression(inputs: Any, labels: Any, *, width: float, samples: bool | None = None) -> Regression:
    """Regression for f = (1/width) X W_1^T W_2^T with loss |f - Y|^2 / (2n): the feature-learning scaling.

    The factor 1/width is part of the cost of W_2 W_1, so any start and optimizer applies unchanged.

    `samples=True` keeps every sample, which mini-batches need.
    """
    _, (w,) = known(_check.number("width", width, above=0))
    return regression(inputs, labels, average=True, output_scale=1.0 / w, samples=samples)


class Samples(NamedTuple):
    """Samples as rows, and their labels."""

    inputs: Float[Array, "n k"]
    labels: Float[Array, "n *d_out"]


def gaussian_samples(key: KeyLike, samples: int, groups: Any, *, noise2: Any = 0.0, teacher: Any = None) -> Samples:
    """n samples x ~ N(0, Sigma) with labels y = x^T beta + noise, as at most n inputs with their exact law.

    `groups` is d for Sigma = I, or (eigenvalue, multiplicity) pairs for its distinct eigenvalues. With z_j the samples
    along the teacher's part in group j, X X^T = sum_j lambda_j (z_j z_j^T + Wishart_n(d_j - 1)) and X beta =
    sum_j sqrt(lambda_j) b_j z_j: no cost depends on d. `teacher` holds the norms b_j (one number for one group);
    without it beta is standard normal. Only X X^T and y have the law of the full samples: enough for training
    from a rotation-invariant start.

    `noise2` is the variance of the noise.
    """
    return samples_and_teacher(key, samples, groups, noise2=noise2, teacher=teacher)[0]


def samples_and_teacher(
    key: KeyLike, samples: int, groups: Any, *, noise2: Any = 0.0, teacher: Any = None
) -> tuple[Samples, list[Any]]:
    """`gaussian_samples`, and the norms b_j that were given or drawn."""
    n = _check.integer("samples", samples, least=1)
    parts = _groups(groups)
    _check.fits("samples", n, 4 * n * sum(min(d, n) for _, d in parts), f"{n} samples in their span")
    variance = _check.number("noise2", noise2, least=0)
    sizes = [None] * len(parts)
    if teacher is not None:
        sizes = list(known(_check.double("teacher", teacher, ndim=(0, 1)))[1][0].reshape(-1))
    if len(sizes) != len(parts):
        raise InputError(f"teacher has {len(sizes)} numbers: it must have one for each of the {len(parts)} groups.")
    random, count = _check.key("key", key), len(parts) + 1  # a key for each of them, the first for the noise
    each = enumerate(zip(parts, sizes, strict=True), start=1)
    drawn = [_group(random, j, value, _check.floating(d), b, count, n, min(d - 1, n)) for j, ((value, d), b) in each]
    xp, (drawn, variance) = known(drawn, variance)
    rows, signals, norms = zip(*drawn, strict=True)
    stacked, labels = xp.concatenate(rows), sum(signals)
    inputs = (xp.linalg.qr(stacked, mode="r") if stacked.shape[0] > n else stacked).T
    if _check.traced(variance) or variance > 0:
        labels = labels + xp.sqrt(variance) * _noise(random, count, n)
    return Samples(_check.floating(inputs), _check.floating(labels)), list(norms)


@sampler("index", "count", "n", "rank")
def _group(
    key: Any, index: int, value: Array, d: Array, size: Array | None, count: int, n: int, rank: int
) -> tuple[Float[Array, "m n"], Float[Array, " n"], Float[Array, ""]]:
    """Samples along the teacher's part in a group of d inputs, then across it; its labels of them, and its norm."""
    along, across, norm = split(keys(key, "gaussian_samples", count)[index], 3)
    z = value**0.5 * normal(along, (1, n))
    rows = namespace(z).concatenate([z, value**0.5 * bartlett(across, d - 1, rank, n)]) if rank else z
    # chi2(d) = 2 Gamma(d / 2) is the square of a standard normal teacher's norm
    b = (2 * gamma(norm, d / 2)) ** 0.5 if size is None else size
    return rows, b * z[0], b


@sampler("count", "n")
def _noise(key: Any, count: int, n: int) -> Float[Array, " n"]:
    """Standard normal noise of the labels."""
    return normal(keys(key, "gaussian_samples", count)[0], (n,))


def _groups(groups: Any) -> list[tuple[Array, int]]:
    if not isinstance(groups, Sequence):
        return [(_check.floating(1.0), _check.integer("groups", groups, least=1))]
    if not groups or not all(isinstance(group, Sequence) and len(group) == 2 for group in groups):
        raise InputError(
            f"groups = {_check.show(groups)} is not allowed: groups must be a dimension or pairs (eigenvalue, "
            "multiplicity)."
        )
    return [
        (_check.number("an eigenvalue in groups", v, above=0), _check.integer("a multiplicity in groups", d, least=1))
        for v, d in groups
    ]


def diagonal_regression(inputs: Any, labels: Any, *, average: bool = False, samples: bool | None = None) -> Regression:
    """Regression by a diagonal network: C(b) = 1/2 |X b - y|^2 on the vector b = s_1 * ... * s_L.

    `average` divides by the number of samples; `samples=True` keeps every sample, which mini-batches need.
    """
    x = _check.double("inputs", inputs, ndim=2)
    y = _check.double("labels", labels, ndim=1, shape=(x.shape[0],))
    return _moments(x, y, average, 1.0, None, samples)


def classification(
    inputs: Any,
    labels: Any,
    *,
    classes: int | None = None,
    average: bool = False,
    test: tuple[Any, Any] | None = None,
) -> Classification:
    """Softmax cross-entropy on samples (rows), divided by n with average=True; `labels` are the classes 0, 1, 2, ...

    C(A) = sum_i [log sum_c exp(A x_i)_c - (A x_i)_{y_i}], one output a class: as many as there are in `labels`, or
    `classes`. `test` = (X, classes) of held-out samples makes their average loss the test error.
    """
    x = _check.double("inputs", inputs, ndim=2)
    y = _check.double("labels", labels, ndim=1)
    if y.shape != x.shape[:1]:
        raise InputError(f"inputs have {x.shape[0]} rows and labels {y.shape[0]}: they must have one row a sample.")
    rows = _one_hot(y, classes).astype(x.dtype)
    scale = _check.floating(1.0 / x.shape[0] if _check.flag("average", average) else 1.0)
    held_out = None if test is None else classification(*_pair(test), classes=rows.shape[1], average=True)
    return Classification(x, rows, scale, test=held_out)


def _one_hot(labels: Float[Array, " n"], classes: int | None) -> Float[Array, "n classes"]:
    """Rows that are 1 in the place of the class."""
    if classes is None:
        if _check.traced(labels):
            raise InputError("labels are traced, so their number is not known: give classes=...")
        classes = max(2, math.floor(float(jnp.max(labels))) + 1)
    count = _check.integer("classes", classes, least=2)
    if not _check.traced(labels) and not bool(
        jnp.all((labels == jnp.floor(labels)) & (labels >= 0) & (labels < count))
    ):
        raise InputError(f"labels hold values other than 0, ..., {count - 1}: labels must be whole numbers of classes.")
    _check.fits("classes", count, labels.shape[0] * count, f"{labels.shape[0]} samples of {count} classes")
    return (labels[:, None] == jnp.arange(count, dtype=labels.dtype)).astype(labels.dtype)


def supervised(
    labels: Any, cost: str = "squares", *, average: str | None = None, classes: int | None = None
) -> Factorization | Logistic | Softmax:
    """The cost of a network's outputs f_i on its samples (`Network`), one label a row.

    - cost = "squares": sum |f_i - y_i|^2; "half squares": half of it. A label may have any shape, as outputs may.
    - cost = "softmax": cross-entropy sum [log sum_c exp f_ic - f_{i y_i}] of classes 0, 1, 2, ... (`classes` of them).
    - cost = "logistic": sum log(1 + exp(-y f)) over samples and outputs, labels +1 and -1.
    - `average`: "entries" divides by the number of samples times outputs, "samples" by that of samples, "sum" by 1. By
      default it is the mean that PyTorch takes: over entries (`MSELoss`, `BCEWithLogitsLoss`), over samples for
      softmax (`CrossEntropyLoss`).
    """
    kind = _check.choice("cost", cost, ("squares", "half squares", "softmax", "logistic"))
    if average is not None:
        _check.choice("average", average, ("entries", "samples", "sum"))
    if classes is not None and kind != "softmax":
        raise InputError(f"classes = {_check.show(classes)} is not allowed with cost = {kind!r}: it is for softmax.")
    if kind == "softmax":
        y = _check.array("labels", labels, ndim=1)
        rows = _one_hot(y, classes)
        entries = rows.shape[0]  # a sample is one draw, whatever the number of classes
    else:
        y = _check.array("labels", labels, ndim=tuple(range(1, 9)))
        rows, entries = y.reshape(y.shape[0], -1), y.size
    over = {"entries": entries, "samples": rows.shape[0], "sum": 1}[average or "entries"]
    scale = _check.floating(1.0 / over).astype(rows.dtype)
    if kind == "softmax":
        return Softmax(rows, scale)
    if kind == "logistic":
        return Logistic(_signs(rows).T, scale)
    return Factorization(rows.T, scale if kind == "half squares" else 2 * scale)


def masked(target: Any, mask: Any, *, scale: float = 1.0, test: Problem | None = None) -> Masked:
    """Matrix completion: C(A) = (scale/2) sum over entries with mask 1 of (A - target)^2."""
    goal = _check.array("target", target, ndim=(1, 2))
    observed = _check.array("mask", mask, ndim=goal.ndim, shape=goal.shape)
    if not _check.traced(observed) and not bool(jnp.all((observed == 0) | (observed == 1))):
        raise InputError("mask holds values other than 0 and 1: mask must be boolean.")
    return Masked(goal, observed, _check.number("scale", scale, above=0), test=test)


def logistic(labels: Any, *, scale: float = 1.0, test: Problem | None = None) -> Logistic:
    """Logistic cost on entries: C(A) = scale sum log(1 + exp(-Y A)), Y = +-1."""
    y = _signs(_check.array("labels", labels, ndim=(1, 2)))
    return Logistic(y, _check.number("scale", scale, above=0), test=test)


def _signs(labels: Float[Array, "..."]) -> Float[Array, "..."]:
    if not _check.traced(labels) and not bool(jnp.all(jnp.abs(labels) == 1)):
        raise InputError("labels hold values other than -1 and 1: logistic labels must be -1 or 1.")
    return labels


def pseudo_huber(target: Any, *, delta: float = 1.0, scale: float = 1.0, test: Problem | None = None) -> PseudoHuber:
    """Pseudo-Huber cost on entries: quadratic below delta, linear above.

    The sum of delta^2 (sqrt(1 + (A_ij - M_ij)^2 / delta^2) - 1), times `scale`; M is the `target`.
    """
    goal = _check.array("target", target, ndim=(1, 2))
    delta_, scale_ = _check.number("delta", delta, above=0), _check.number("scale", scale, above=0)
    return PseudoHuber(goal, delta_, scale_, test=test)


def custom(cost: Callable[[Array], Array], shape: tuple[int, ...], *, test: Problem | None = None) -> Custom:
    """Any differentiable cost of the end-to-end matrix. An `equinox.Module` with a `__call__` may carry data.

    `cost` is a function of an array of this `shape`, (d_out, d_in) or (d,), to a number.
    """
    if not callable(cost):
        raise InputError(f"cost = {_check.show(cost)} is not allowed: cost must be a function of the matrix.")
    if not isinstance(shape, tuple) or len(shape) not in (1, 2):
        raise InputError(f"shape = {_check.show(shape)} is not allowed: shape must be (d_out, d_in) or (d,).")
    dimensions = tuple(_check.integer("shape", n, least=1) for n in shape)
    try:
        result = jax.eval_shape(cost, jax.ShapeDtypeStruct(dimensions, jnp.float64))
    except Exception as error:
        text = " ".join(str(error).split())
        raise InputError(f"cost cannot be called on a matrix of shape {dimensions}: {text}") from error
    if getattr(result, "shape", None) != () or not jnp.issubdtype(result.dtype, jnp.floating):
        raise InputError(f"cost returns {result}: it must return one real number.")
    return Custom(cost, dimensions, test=test)


def _moments(
    x: Array, y: Array, average: bool, output_scale: Any, test: Problem | None, samples: bool | None
) -> Regression:
    """The regression with Q, root, Y^T Q and |Y - Q Q^T Y|^2 of X = Q root."""
    n = x.shape[0]
    kept = n <= KEPT_SAMPLES if samples is None else _check.flag("samples", samples)
    if samples:
        _check.fits("samples", samples, n * min(x.shape) + x.size + y.size, f"{n} samples one by one")
    xp, (rows, outputs) = known(x, y)
    q, s, vt = xp.linalg.svd(rows, full_matrices=False)
    inside = outputs.T @ q
    outside = xp.sum((outputs - q @ inside.T) ** 2)
    q, root, labels, outside = (_check.floating(part) for part in (q, s[:, None] * vt, inside, outside))
    scale = _check.floating(1.0 / n if _check.flag("average", average) else 1.0)
    out = _check.number("output_scale", output_scale, above=0)
    return Regression(root, labels, outside, scale, out, n, *((q, y) if kept else (None, None)), test=test)


def _range(root: Float[Array, "k d_in"]) -> tuple[Any, Any, Any]:
    """The singular triplets of the data that are not zero."""
    if _check.traced(root):
        raise InputError("the rank of the data decides shapes: project, whiten and optimum cannot be traced.")
    found = triplets(np.asarray(root))
    if not found[1].size:
        raise InputError("inputs are all zero: there must be at least one non-zero input.")
    return found


def _matrix_shape(problem: Problem, what: str) -> tuple[int, int]:
    if len(problem.shape) != 2:
        raise InputError(f"the problem has shape {problem.shape}: {what} needs a matrix problem.")
    return problem.shape[0], problem.shape[1]
