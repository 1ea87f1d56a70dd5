"""What momentum, weight decay, mini-batches and label noise do to linear networks: stable learning rates, minima.

S is the curvature of the cost C alone at a minimum, eta = `lr`, b = `momentum`, t = `dampening`, mu = `weight_decay`.
A step of a weight theta with the gradient g, in the conventions of PyTorch:

    v <- b v + (1 - t) g            (v = g at the first step)
    u  = v                          (`nesterov`: u = (1 - t) g + b v)
    theta <- theta - eta u          (`decoupled` decay: theta <- (1 - eta mu) theta - eta u; else mu theta stands in g)

Frameworks differ in where decay stands and in the dampening: SGD has none by default, Adam averages gradients, which is
t = b; both have mu in g, and AdamW and Muon decouple it. Adam with its preconditioner P frozen is SGD with momentum and
dampening b on the curvatures of P^{-1} H: stable below 38/eta at b = 0.9 (`optimizers/C3`).

With decay the cost is (kappa/2)|W_L ... W_1 - A_star|^2 + (mu/2) sum_l |W_l|^2, kappa = `scale`, and s are the singular
values of A_star. Mini-batches and label noise are those of an interpolating minimum: every sample is fitted there.

Arguments: `targets` are the s, `local` as in `decayed_value`, `hessians` is n x d x d, `replacement` draws the samples
of a batch with replacement.
"""

import math
import sys
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy  # its parts load when they are first used
from jaxtyping import Array, Float

from linnet import _check
from linnet import _update as update
from linnet._check import InputError, namespace
from linnet.linalg import blocks_of_values
from linnet.theory._formula import FLAG, NUMBERS, TIMES, Number, above, at_least, formula, integer, scan
from linnet.theory._times import leading

_SMALLEST, _LARGEST = sys.float_info.min, 1e145  # of a variance; of lr times a curvature whose square is a number
_DENSE = 24  # dimensions up to which maps of covariances are matrices
_MOMENTUM = {"momentum": at_least(0, below=1), "dampening": at_least(0, below=1)}
_SLOWEST = 1e-9  # a step: rounding decides how a direction moves that is slower
_UPDATE = _MOMENTUM | {"nesterov": FLAG, "weight_decay": at_least(0), "decoupled": FLAG}

# Stable rates --------------------------------------------------------------------------------------------------------


@formula(curvature=at_least(0), **_UPDATE)
def largest_stable_lr(
    curvature: Number,
    *,
    momentum: Number = 0.0,
    dampening: Number = 0.0,
    nesterov: bool = False,
    weight_decay: Number = 0.0,
    decoupled: bool = False,
) -> Float[Array, "..."]:
    """The step below which a direction of this curvature contracts (`optimizers/C1` to C4).

    Both roots of the characteristic polynomial are inside the unit circle iff eta n S_g < (1 + b)(2 - eta mu_d), with
    n = 1, or 1 + 2b for Nesterov's form, times 1 - t; S_g = S + mu and mu_d = 0 with decay in the
    gradient, S_g = S and mu_d = mu where it is decoupled. So 2(1 + b)/(n (S + mu)) and 2(1 + b)/(n S + (1 + b) mu).
    Infinite where the direction is flat and nothing decays.

    >>> from linnet.theory import optimizers
    >>> print(f"{optimizers.largest_stable_lr(2.0):.2f} {optimizers.largest_stable_lr(2.0, momentum=0.9):.2f}")
    1.00 1.90
    """
    n = update.curvature_factor(momentum, dampening, nesterov=nesterov)
    total = n * curvature + (1 + momentum if decoupled else n) * weight_decay
    xp = namespace(curvature)
    return xp.where(total > 0, 2 * (1 + momentum) / xp.where(total > 0, total, 1.0), math.inf)


@formula(lr=above(0), **_UPDATE)
def stability_limit(
    lr: Number,
    *,
    momentum: Number = 0.0,
    dampening: Number = 0.0,
    nesterov: bool = False,
    weight_decay: Number = 0.0,
    decoupled: bool = False,
) -> Float[Array, "..."]:
    """The curvature S of the cost alone below which this step is stable, the inverse of `largest_stable_lr`.

    2(1 + b)/(n eta) - mu, or (1 + b)(2/eta - mu)/n with decoupled decay. It is negative where the decay alone is too
    much for the step.
    """
    return update.stability_threshold(lr, momentum, dampening, weight_decay, nesterov=nesterov, decoupled=decoupled)


@formula(curvature=at_least(0), **_UPDATE)
def largest_monotone_lr(
    curvature: Number,
    *,
    momentum: Number = 0.0,
    dampening: Number = 0.0,
    nesterov: bool = False,
    weight_decay: Number = 0.0,
    decoupled: bool = False,
) -> Float[Array, "..."]:
    """The learning rate up to which a direction of this curvature, and all flatter ones, shrink without oscillating.

    The characteristic polynomial z^2 - (1 + b - eta p) z + b (1 - eta q) has two roots of at least 0 up to there, with
    p = (1 - t) h and q = 0, or p = (1 - t)(1 + b) h and q = (1 - t) h for Nesterov's form. h = S + mu with decay in the
    gradient; where it is decoupled h = S, and mu is added to p and q. Infinite where the direction is flat and nothing
    decays.
    """
    xp = namespace(curvature)
    h = (1 - dampening) * (curvature if decoupled else curvature + weight_decay)
    beside = weight_decay if decoupled else 0.0
    p = h * (1 + momentum if nesterov else 1.0) + beside
    half = (1 + momentum) * p - 2 * momentum * (beside + (h if nesterov else 0.0))
    least = (1 - momentum) * p  # sqrt(half^2 - least^2) in two factors: squares have no double
    total = half + xp.sqrt(xp.maximum(half - least, 0.0)) * xp.sqrt(xp.maximum(half + least, 0.0))
    return xp.where(total > 0, (1 - momentum) ** 2 / xp.where(total > 0, total, 1.0), math.inf)


@formula(weight_decay=at_least(0), **_MOMENTUM, nesterov=FLAG, decoupled=FLAG)
def effective_decay(
    weight_decay: Number,
    *,
    momentum: Number = 0.0,
    dampening: Number = 0.0,
    nesterov: bool = False,
    decoupled: bool = False,
) -> Float[Array, "..."]:
    """The mu of the cost whose minimum training with this decay finds (`optimizers/C4`).

    At rest u = (1 - t) g/(1 - b), so decoupled decay is that of mu (1 - b)/(1 - t); it is mu where it stands in the
    gradient. Nesterov's form rests at the same points.
    """
    return update.effective_decay(momentum, dampening, weight_decay, decoupled=decoupled)


@formula(lr=above(0), steps=at_least(0), **_MOMENTUM)
def momentum_time(lr: Number, steps: Number, momentum: Number, *, dampening: Number = 0.0) -> Float[Array, "..."]:
    """The time of gradient flow that so many steps with momentum amount to, to first order in lr (`optimizers/C8`).

    eta k (1 - t)/(1 - b), with or without Nesterov's form.
    """
    return lr * steps * (1 - dampening) / (1 - momentum)


class ModifiedEquation(NamedTuple):
    """The flow that small steps follow to second order: dtheta/dk = -rate ((1 + shift) s + bend H s), k counts steps.

    s is the gradient of the cost with decay in it, H its Hessian. The default is gradient flow.
    """

    rate: float = 1.0
    bend: float = 0.0
    shift: float = 0.0


def modified_equation(
    lr: float,
    *,
    momentum: float = 0.0,
    dampening: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    decoupled: bool = False,
) -> ModifiedEquation:
    """The modified equation of steps with this lr, once the initial buffer is forgotten, as b^k.

    Put theta(k + 1) = theta + f + f' f/2 into (1 - b S^-1)(theta_{k+1} - (1 - lr mu) theta_k) = -lr g, S a shift by
    one step: (1 - b) f + (1 + b)/2 f' f = -lr s without decay beside the gradient. Nesterov's form has
    (1 + b) g_k - b g_{k-1} = g + b g' f in place of g.
    """
    lr, weight_decay = _check.real("lr", lr, above=0), _check.real("weight_decay", weight_decay, least=0)
    b, dampening = (_check.real(n, x, least=0, below=1) for n, x in (("momentum", momentum), ("dampening", dampening)))
    nesterov, decoupled = _check.flag("nesterov", nesterov), _check.flag("decoupled", decoupled)
    rate = lr * (1 - dampening) / (1 - b)
    mu = update.effective_decay(b, dampening, weight_decay, decoupled=decoupled)
    bend = (1 + b) / (2 * (1 - b)) - (b if nesterov else 0.0)
    shift = 0.0
    if decoupled:
        shift = b * ((rate * mu if nesterov else 0.0) - lr * weight_decay / (1 - b))
    return ModifiedEquation(rate, rate * bend, shift)


def modified_equation_error(
    lr: float,
    curvature: float,
    *,
    momentum: float = 0.0,
    dampening: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    decoupled: bool = False,
) -> float:
    """The relative error of `modified_equation` in a direction of this curvature of the cost alone.

    That of the rate at which the direction shrinks, against the slower root of a step's characteristic polynomial;
    infinite where the direction oscillates.
    """
    curvature = _check.real("curvature", curvature, least=0)
    how: dict[str, Any] = {"momentum": momentum, "dampening": dampening, "nesterov": nesterov}
    how |= {"weight_decay": weight_decay, "decoupled": decoupled}
    equation = modified_equation(lr, **how)
    units = (1.0, 0.0, curvature), (0.0, 1.0, 0.0)  # weight, buffer, and gradient
    columns = [update.sgd_step(*unit, lr, **how) for unit in units]
    roots = np.linalg.eigvals(np.array(columns).T)
    if np.any(np.imag(roots)) or np.max(np.real(roots)) <= 0:
        return math.inf
    total = curvature + update.effective_decay(momentum, dampening, weight_decay, decoupled=decoupled)
    predicted = equation.rate * ((1 + equation.shift) * total + equation.bend * total * total)
    if not math.isfinite(predicted):  # so curved a direction oscillates, whatever rounding makes of its roots
        return math.inf
    if predicted < _SLOWEST:
        return 0.0
    return abs(-math.log(np.max(np.real(roots))) / predicted - 1)


# Minima with decay ---------------------------------------------------------------------------------------------------


class DecayThresholds(NamedTuple):
    """Target values s from which on a mode has a minimum other than 0, and from which on that one is the lower."""

    exists: Float[Array, "..."]
    wins: Float[Array, "..."]


@formula(weight_decay=at_least(0), depth=integer(1), scale=above(0))
def decay_thresholds(weight_decay: Number, depth: int, *, scale: Number = 1.0) -> DecayThresholds:
    """From which target value on a mode survives decay (`optimizers/C6`).

    With m = mu/kappa and e = L/(2L - 2): exists = (2L-2)/(L-2) [m (1 - 2/L)]^e, wins = (L-1)/(L-2) [m (L-2)]^e. Both
    are m for two layers, a soft threshold, and 0 for one. From three layers on 0 is a minimum whatever s is, and small
    starts never leave it.
    """
    if depth == 1:
        none = 0.0 * weight_decay * scale
        return DecayThresholds(none, none)
    power = depth / (2 * depth - 2)
    common = weight_decay**power / scale**power * float(depth - 2) ** (power - 1)
    return DecayThresholds((2 * depth - 2) * depth**-power * common, (depth - 1) * common)


@formula(target=at_least(0), weight_decay=at_least(0), depth=integer(1), scale=above(0), local=FLAG)
def decayed_value(
    target: Number, weight_decay: Number, depth: int, *, scale: Number = 1.0, local: bool = False
) -> Float[Array, "..."]:
    """The value sigma that a mode of this target value s has at the global minimum with decay (`optimizers/C6`).

    (s - sigma) sigma^{1-2/L} = mu/kappa, the larger root, where s is at least `decay_thresholds(...).wins`, and else 0;
    with `local` wherever such a root exists: s/(1 + mu/kappa) for one layer, max(s - mu/kappa, 0) for two. A network of
    smaller widths keeps so many of the largest modes, and the others are 0.
    """
    xp = namespace(target)
    if depth == 1:
        return target / (1 + weight_decay / scale)
    if depth == 2:
        return xp.maximum(target - weight_decay / scale, 0.0)
    exists, wins = decay_thresholds.raw(weight_decay, depth, scale=scale)
    alive = (target >= (exists if local else wins)) & (target > 0)
    s = xp.where(alive, target, 1.0)
    power, last = 1 - 2 / depth, depth / (2 * depth - 2)  # the roots meet where the lost share is `last`
    share = xp.where(alive, weight_decay, 0.0) / scale / s ** (1 + power)

    def newton(lost: Array, _: Any) -> tuple[Array, None]:
        rest = 1 - lost
        slope = rest ** (power - 1) * (rest - power * lost)
        step = (share - lost * rest**power) / xp.where(slope > 0, slope, math.inf)
        return xp.minimum(lost + xp.maximum(step, 0.0), last), None

    # the lost share x = 1 - sigma/s: x (1 - x)^p = share is concave, so that Newton comes from below and never passes
    lost, _ = scan(xp, newton, xp.minimum(share, last), None, length=50)
    return xp.where(alive, s * (1 - lost), 0.0)


def decayed_curvatures(
    targets: Any, weight_decay: float, depth: int, *, scale: float = 1.0, local: bool = False
) -> Float[np.ndarray, " curvatures"]:
    """All L d^2 eigenvalues of the Hessian at the minimum with decay, which counts in them, descending.

    For d x d layers and all d singular values of the target, zeros included; the minimum is that of `decayed_value`
    (`optimizers/C7`). A mode above 0 has kappa L sigma^{2-2/L} - (L-2) mu once and 2 mu L - 1 times; each pair of modes
    adds a block of 2L, whose top is kappa (sigma_i + sigma_j) + 2 mu for two layers and kappa L sigma^{2-2/L} + L mu
    for equal values. The zeros are rotations of hidden neurons.
    """
    values, at = _minimum(targets, weight_decay, depth, scale, local)
    return np.sort(_curvatures(values, **at))[::-1]


def decayed_sharpness(
    targets: Any, weight_decay: float, depth: int, *, scale: float = 1.0, local: bool = False
) -> float:
    """The largest of `decayed_curvatures`, which sets the largest stable learning rate (`optimizers/C7`).

    With decay and close top values it belongs to the pair of them, above the curvature of the top mode itself.
    """
    values, at = _minimum(targets, weight_decay, depth, scale, local)
    # equal targets have equal blocks: two of each know all pairs
    distinct, counts = np.unique(values, return_counts=True)
    return float(np.max(_curvatures(np.repeat(distinct, np.minimum(counts, 2)), **at)))


def _minimum(targets: Any, decay: Any, depth: Any, scale: Any, local: Any) -> tuple[np.ndarray, dict[str, Any]]:
    values = np.asarray(_check.numbers("targets", targets, ndim=1, least=0))
    depth = _check.integer("depth", depth, least=1)
    _check.fits("targets", targets, 4 * values.size**2 * depth**2, "the blocks of all pairs")
    scale, local = _check.real("scale", scale, above=0), _check.flag("local", local)
    return values, {
        "decay": _check.real("weight_decay", decay, least=0),
        "depth": depth,
        "scale": scale,
        "local": local,
    }


def _curvatures(goal: Any, decay: float, depth: int, scale: float, local: bool) -> np.ndarray:
    learned = np.asarray(decayed_value(goal, decay, depth, scale=scale, local=local))
    layers: Any = np.broadcast_to(learned ** (1 / depth), (depth, learned.size))
    blocks = blocks_of_values(np, layers, goal)
    return np.concatenate([scale * np.linalg.eigvalsh(block).ravel() + decay for block in blocks])


# Balance -------------------------------------------------------------------------------------------------------------


@formula(time=TIMES, imbalance=NUMBERS, weight_decay=at_least(0))
def decayed_imbalance(time: Number, imbalance: Number, weight_decay: Number) -> Float[Array, "..."]:
    """D_l(t) = e^{-2 mu t} D_l(0), D_l = W_l W_l^T - W_{l+1}^T W_{l+1}, under flow with decay (`optimizers/C5`).

    For any cost and depth. `imbalance` is one entry of D_l(0) or all of it (`Weights.imbalance`); the axes of `time`
    come first in the result.
    """
    return imbalance * namespace(time).exp(-2 * weight_decay * leading(time, imbalance, weight_decay))


@formula(lr=above(0), noise=at_least(0), curvature=at_least(0))
def label_noise_rate(lr: Number, noise: Number, curvature: Number) -> Float[Array, "..."]:
    """How fast label noise balances two layers of one neuron near the minimum: |D| ~ e^{-rate t}, t = eta k.

    rate = eta delta^2 2/(2 - eta S), delta = `noise` the standard deviation of the labels' noise, D = w_2^2 - w_1^2 and
    S = w_1^2 + w_2^2: every step multiplies D by 1 - eta^2 r^2 (`optimizers/C11`), and the residual r has the variance
    2 delta^2/(2 - eta S). NaN where lr is not stable.
    """
    xp, left = namespace(lr), 2 - lr * curvature
    return xp.where(left > 0, 2 * noise * (lr * noise) / xp.where(left > 0, left, 1.0), math.nan)


# Mini-batches --------------------------------------------------------------------------------------------------------


def batch_variance(curvatures: Any, batch_size: int, *, replacement: bool = False) -> float:
    """Var h_B, the variance of the mean curvature of a batch of B samples drawn of n with these curvatures h_i.

    (n - B)/(B (n - 1)) of sum (h_i - h)^2/n where a batch has no sample twice, 1/B of it with `replacement`.
    """
    values = np.asarray(_check.double("curvatures", curvatures, ndim=1))
    share, size = batch_share(values.size, batch_size, replacement=replacement), float(np.max(np.abs(values)))
    variance = float(np.var(values / size)) if size > 0 else 0.0
    if share * variance > 0 and not _SMALLEST < share * variance * size * size < math.inf:
        raise InputError(
            f"curvatures = {_check.show(values)} is not allowed: their variance is no number in double precision."
        )
    return share * variance * size * size


def batch_share(samples: int, batch_size: int, *, replacement: bool = False) -> float:
    """The variance of the mean of a batch, in that of one sample: (n - B)/(B (n - 1)), 1/B with `replacement`."""
    samples = _check.integer("samples", samples, least=1)
    if _check.flag("replacement", replacement):
        return 1 / _check.integer("batch_size", batch_size, least=1)
    batch = _check.integer("batch_size", batch_size, least=1, most=samples, reason="the samples there are")
    return (samples - batch) / (batch * (samples - 1)) if samples > 1 else 0.0


@formula(mean=above(0), variance=at_least(0), **_MOMENTUM)
def batch_stable_lr(
    mean: Number, variance: Number, *, momentum: Number = 0.0, dampening: Number = 0.0
) -> Float[Array, "..."]:
    """The step below which one direction is stable in mean square, with a fresh batch every step (`optimizers/C10`).

    2(1 - b^2) h/((1 + b) Var h_B + (1 - b) h^2) with heavy-ball momentum, h the mean curvature and Var h_B that of
    `batch_variance`; over 1 - t with dampening. Passes over shuffled data follow
    another law: without momentum they are stable up to a larger lr, with much of it up to a smaller one.

    `curvature` is h and `variance` Var h_B.
    """
    total = (1 + momentum) * variance / mean + (1 - momentum) * mean
    return 2 * (1 - momentum**2) / (1 - dampening) / total


class _Batches(NamedTuple):
    """Curvatures h of the mean Hessian where it is positive, and the samples' deviations from it in its eigenbasis.

    Both are in units of `size`, the largest entry of all Hessians.
    """

    size: float

    curvatures: Float[np.ndarray, " d"]
    deviations: Float[np.ndarray, "n d d"]
    drawn: float  # the share of their covariance that a batch has

    @property
    def noisy(self) -> bool:
        """Whether batches differ."""
        return self.drawn > 0 and bool(np.any(self.deviations))

    def top(self, without: Float[np.ndarray, "d d"], unit: Float[np.ndarray, "d d"]) -> float:
        """The largest eigenvalue of X -> unit o (drawn mean_i D_i (unit o X) D_i - without o unit o X)."""
        d = self.curvatures.size
        if d <= _DENSE:
            flat = self.deviations.reshape(-1, d * d)
            # sum_i D_i[a, c] D_i[b, d] as a matrix of (a, b) and (c, d)
            both = (flat.T @ flat / len(flat)).reshape(d, d, d, d).swapaxes(1, 2).reshape(d * d, d * d)
            scaled = unit.ravel()[:, None] * (self.drawn * both - np.diag(without.ravel())) * unit.ravel()
            return float(scipy.linalg.eigvalsh(scaled, subset_by_index=[d * d - 1] * 2)[0])
        product = partial(self._product, without, unit)
        operator = scipy.sparse.linalg.LinearOperator((d * d, d * d), matvec=product, dtype=float)
        return float(scipy.sparse.linalg.eigsh(operator, k=1, which="LA", v0=np.eye(d).ravel())[0][0])

    def _product(self, without: np.ndarray, unit: np.ndarray, x: np.ndarray) -> np.ndarray:
        inner, d = unit * x.reshape(unit.shape), len(unit)
        # sum_i D_i inner D_i as one product
        spread = (self.deviations @ inner).swapaxes(0, 1).reshape(d, -1) @ self.deviations.reshape(-1, d)
        spread /= len(self.deviations)
        return (unit * (self.drawn * spread - without * inner)).ravel()


def _batches(hessians: Any, batch_size: int, replacement: bool) -> _Batches:
    given = np.asarray(_check.double("hessians", hessians, ndim=3))
    n, rows, columns = given.shape
    size = float(np.max(np.abs(given)))
    if rows != columns or size == 0 or np.max(np.abs(given - given.swapaxes(1, 2))) > 1e-10 * size:
        raise InputError(
            f"hessians = {_check.show(given)} is not allowed: hessians must be n symmetric matrices, not all zero."
        )
    given = given / size
    if np.min(np.linalg.eigvalsh(given)) < -1e-10:
        raise InputError(
            "hessians with negative eigenvalues are not allowed: where every sample is fitted they have none."
        )
    h, vectors = np.linalg.eigh(np.mean(given, axis=0))
    curved = vectors[:, h > 1e-12 * h[-1]]  # directions that are flat for all samples neither grow nor shrink
    rotated = curved.T @ given @ curved
    mean = np.mean(rotated, axis=0)
    return _Batches(size, np.diag(mean), rotated - mean, batch_share(n, batch_size, replacement=replacement))


def largest_batch_lr(
    hessians: Any, batch_size: int, *, momentum: float = 0.0, dampening: float = 0.0, replacement: bool = False
) -> float:
    """`batch_stable_lr` in d dimensions: the step below which descent on fresh batches is stable in mean square.

    Stable means that the covariance map X -> E[T_B X T_B^T], T_B = [[(1+b) - eta H_B, -b], [1, 0]], has a spectral
    radius below 1. In the eigenbasis of the mean Hessian its quiet part is solved entry by entry, and what remains is
    linear in 1/eta, so that one symmetric eigenvalue answers (`optimizers/C10`): 1/eta is the largest eigenvalue of

        X -> [Var(H_B)(X) + ((1-b)^2 h_i h_j - b (h_i - h_j)^2)/(1-b^2) X_ij] / ((1-b)(h_i + h_j))

    with Var(H_B)(X) = E[(H_B - H) X (H_B - H)]. `hessians` are those of the n samples, without negative eigenvalues;
    directions that are flat for all of them are left out.
    """
    found, b = _batches(hessians, batch_size, replacement), _check.real("momentum", momentum, least=0, below=1)
    h, other = found.curvatures[:, None], found.curvatures
    without = (b * (h - other) ** 2 - (1 - b) ** 2 * h * other) / (1 - b**2)
    top = found.top(without, 1 / np.sqrt((1 - b) * (h + other)))
    largest = 1 / (top * (1 - _check.real("dampening", dampening, least=0, below=1)))
    if not largest < found.size * sys.float_info.max:
        raise InputError(f"hessians of at most {found.size:g} are not allowed: the lr is beyond double precision.")
    return largest / found.size


def largest_online_lr(curvatures: Any, batch_size: int, *, momentum: float = 0.0, dampening: float = 0.0) -> float:
    """`largest_batch_lr` of fresh Gaussian samples whose covariance has these eigenvalues h_j (`optimizers/C10`).

    For x ~ N(0, D) the variance of the Hessian x x^T is X -> D X D + D tr(D X), so that with c = 1/B + (1-b)/(1+b) the
    limit is the root of one equation,

        sum_j eta h_j / (2 (1-b) - eta c h_j) = B,

    below eta = 2 (1-b)/(c h_1); over 1 - dampening. At the balanced minimum of a deep factorization
    on white inputs every row i of A is such a regression, with h_j = lam_ij (`theory.stability.cross_curvature`): the
    first row has the lowest threshold.
    """
    given = np.asarray(_check.double("curvatures", curvatures, ndim=1))
    if given.size == 0 or np.min(given) < 0 or np.max(given) == 0:
        raise InputError(
            f"curvatures = {_check.show(given)} is not allowed: curvatures must be 0 or more, and not all zero."
        )
    batch = _check.integer("batch_size", batch_size, least=1)
    b, top = _check.real("momentum", momentum, least=0, below=1), float(np.max(given))
    h, c = given / top, 1 / batch + (1 - b) / (1 + b)

    def excess(p: float) -> float:
        """Above 0 below the root, where 2 (1-b)/(eta h_1) = c + p/B."""
        return float(np.sum(h / (p + batch * c * (1 - h)))) - 1

    # the first term alone is 1 at p = 1, and none is above h_j/p
    root = c + float(scipy.optimize.brentq(excess, 1.0, 2 * float(np.sum(h)), xtol=1e-15, rtol=1e-15)) / batch
    return 2 * (1 - b) / (root * top * (1 - _check.real("dampening", dampening, least=0, below=1)))


def batch_spectral_radius(
    hessians: Any,
    batch_size: int,
    lr: float,
    *,
    momentum: float = 0.0,
    dampening: float = 0.0,
    replacement: bool = False,
) -> float:
    """The spectral radius of X -> E[T_B X T_B^T]: what a step on a fresh batch makes of squares (`optimizers/C10`).

    Below 1 where lr is below `largest_batch_lr`. It is the z above the mean's own radius at which the covariance map of
    T_B/sqrt(z) is critical, found as the root of a symmetric eigenvalue.
    """
    found, b = _batches(hessians, batch_size, replacement), _check.real("momentum", momentum, least=0, below=1)
    given = _check.real("lr", lr, above=0)
    step = given * (1 - _check.real("dampening", dampening, least=0, below=1)) * found.size
    if not step < _LARGEST:
        raise InputError(
            f"lr = {given:g} is not allowed: with curvatures of {found.size:g} the radius is beyond double precision."
        )
    a = 1 + b - step * found.curvatures
    root = np.sqrt(a.astype(complex) ** 2 - 4 * b)
    quiet = float(np.max(np.abs([a + root, a - root]))) ** 2 / 4
    noise = found._replace(deviations=step * found.deviations)
    if not noise.noisy:
        return quiet

    def excess(z: float) -> float:
        """Above 0 below the radius."""
        ratio, scaled = b / z, a / math.sqrt(z)
        apart, alike = (scaled[:, None] - scaled) ** 2, (1 + ratio) ** 2 - scaled[:, None] * scaled
        quiet_part = z * (ratio * apart / (1 - ratio**2) + (1 - ratio) / (1 + ratio) * alike)
        top = noise.top(np.zeros_like(quiet_part), 1 / np.sqrt(quiet_part))
        return math.log(top) if top > 0 else -math.inf

    # where steps land on the minimum in one there is nothing but noise
    low, high = max(quiet * (1 + 1e-12), 1e-300), max(2 * quiet, 1.0)
    if excess(low) <= 0:
        return quiet
    while excess(high) > 0:
        high *= 2
    return float(scipy.optimize.brentq(excess, low, high, xtol=1e-14, rtol=1e-13))
