"""What momentum, weight decay, mini-batches and label noise do to linear networks: stable steps, minima, rates.

S is the curvature of the cost C alone at a minimum, eta = `lr` the step, b = `beta` the momentum, mu = `decay`. A step
of a weight theta with the gradient g, in the conventions of PyTorch:

    v <- b v + g                    (`average`: v <- b v + (1 - b) g)
    u  = v                          (`nesterov`: u = g + b v, or (1 - b) g + b v)
    theta <- theta - eta u          (`decoupled` decay: theta <- (1 - eta mu) theta - eta u; else mu theta stands in g)

Frameworks disagree on where decay stands and on whether momentum averages, so both have names here: SGD does not
average and Adam does, both with mu in g; AdamW and Muon decouple it. Adam with its preconditioner P frozen is averaged
momentum on the curvatures of P^{-1} H: stable below 38/eta at b = 0.9 (`optimisers/C3`).

With decay the cost is (kappa/2)|W_L ... W_1 - A_star|^2 + (mu/2) sum_l |W_l|^2, kappa = `scale`, and s are the singular
values of A_star. Mini-batches and label noise are those of an interpolating minimum: every sample is fitted there.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy  # its parts load when they are first used
from jaxtyping import Array, Float

from linnet import _check
from linnet._check import InputError
from linnet.motion import edge
from linnet.observe.hessian import blocks_of_values
from linnet.theory._formula import evaluate, scan

Number = float | Array | np.ndarray
_DENSE = 24  # dimensions up to which maps of covariances are matrices

# Stable steps --------------------------------------------------------------------------------------------------------


def largest_stable_lr(
    curvature: Number,
    *,
    beta: Number = 0.0,
    nesterov: bool = False,
    average: bool = False,
    decay: Number = 0.0,
    decoupled: bool = False,
) -> Float[Array, "..."]:
    """The step below which a direction of this curvature contracts (`optimisers/C1` to C4).

    Both roots of the characteristic polynomial are inside the unit circle iff eta n S_g < (1 + b)(2 - eta mu_d), with
    n = 1, or 1 + 2b for Nesterov's form, times 1 - b if momentum averages; S_g = S + mu and mu_d = 0 with decay in the
    gradient, S_g = S and mu_d = mu where it is decoupled. So 2(1 + b)/(n (S + mu)) and 2(1 + b)/(n S + (1 + b) mu).
    Infinite where the direction is flat and nothing decays.
    """
    given = {"curvature": _check.numbers("curvature", curvature, least=0)} | _numbers(beta, decay)
    return _limit(_largest_stable_lr, given, nesterov, average, decoupled)


def stability_limit(
    lr: Number,
    *,
    beta: Number = 0.0,
    nesterov: bool = False,
    average: bool = False,
    decay: Number = 0.0,
    decoupled: bool = False,
) -> Float[Array, "..."]:
    """The curvature S of the cost alone below which this step is stable, the inverse of `largest_stable_lr`.

    2(1 + b)/(n eta) - mu, or (1 + b)(2/eta - mu)/n with decoupled decay. It is negative where the decay alone is too
    much for the step.
    """
    given = {"lr": _check.numbers("lr", lr, above=0)} | _numbers(beta, decay)
    return _limit(_stability_limit, given, nesterov, average, decoupled)


def _numbers(beta: Number, decay: Number) -> dict[str, Array]:
    return {"beta": _check.numbers("beta", beta, least=0, below=1), "decay": _check.numbers("decay", decay, least=0)}


def _limit(formula: Any, given: dict[str, Array], nesterov: bool, average: bool, decoupled: bool) -> Array:
    words = {"nesterov": nesterov, "average": average, "decoupled": decoupled}
    flags = {name: _check.flag(name, value) for name, value in words.items()}
    _check.matching(**given)
    return evaluate(formula, *given.values(), **flags)


def _largest_stable_lr(
    xp: Any, curvature: Array, beta: Array, decay: Array, *, nesterov: bool, average: bool, decoupled: bool
) -> Array:
    share = edge.counted(beta, nesterov=nesterov, average=average)
    total = share * curvature + (1 + beta if decoupled else share) * decay
    return xp.where(total > 0, 2 * (1 + beta) / xp.where(total > 0, total, 1.0), math.inf)


def _stability_limit(_: Any, lr: Array, beta: Array, decay: Array, **flags: bool) -> Any:
    return edge.limit(lr, beta, decay, **flags)


def effective_decay(
    decay: Number, *, beta: Number = 0.0, average: bool = False, decoupled: bool = False
) -> Float[Array, "..."]:
    """The mu of the cost whose minimum training with this decay finds (`optimisers/C4`).

    At rest u = g/(1 - b), so decoupled decay is that of (1 - b) mu; with averaged momentum u = g, and it is mu, as
    always where it stands in the gradient. Nesterov's form rests at the same points.
    """
    given = _numbers(beta, decay)
    _check.matching(**given)
    less = _check.flag("decoupled", decoupled) and not _check.flag("average", average)
    return evaluate(_effective_decay, *given.values(), less=less)


def _effective_decay(_: Any, beta: Array, decay: Array, *, less: bool) -> Array:
    return (1 - beta) * decay if less else decay + 0 * beta


def momentum_time(lr: Number, steps: Number, beta: Number, *, average: bool = False) -> Float[Array, "..."]:
    """The time of gradient flow that so many steps with momentum amount to, to first order in lr (`optimisers/C8`).

    eta k/(1 - b), with or without Nesterov's form, or eta k where momentum averages.
    """
    given = {"lr": _check.numbers("lr", lr, above=0), "steps": _check.numbers("steps", steps, least=0)}
    given["beta"] = _check.numbers("beta", beta, least=0, below=1)
    _check.matching(**given)
    return evaluate(_momentum_time, *given.values(), average=_check.flag("average", average))


def _momentum_time(_: Any, lr: Array, steps: Array, beta: Array, *, average: bool) -> Array:
    return lr * steps / (1 - (0 * beta if average else beta))


# Minima with decay ---------------------------------------------------------------------------------------------------


class DecayThresholds(NamedTuple):
    """Target values s from which on a mode has a minimum other than 0, and from which on that one is the lower."""

    exists: Float[Array, "..."]
    wins: Float[Array, "..."]


def decay_thresholds(decay: Number, depth: int, *, scale: Number = 1.0) -> DecayThresholds:
    """From which target value on a mode survives decay (`optimisers/C6`).

    With m = mu/kappa and e = L/(2L - 2): exists = (2L-2)/(L-2) [m (1 - 2/L)]^e, wins = (L-1)/(L-2) [m (L-2)]^e. Both
    are m for two layers, a soft threshold, and 0 for one. From three layers on 0 is a minimum whatever s is, and small
    starts never leave it.
    """
    depth = _check.integer("depth", depth, least=1)
    given = {"decay": _check.numbers("decay", decay, least=0), "scale": _check.numbers("scale", scale, above=0)}
    _check.matching(**given)
    return evaluate(_decay_thresholds, *given.values(), depth=depth)


def _decay_thresholds(_: Any, decay: Array, scale: Array, *, depth: int) -> DecayThresholds:
    if depth == 1:
        return DecayThresholds(0 * decay / scale, 0 * decay / scale)
    power = depth / (2 * depth - 2)
    common = (decay / scale) ** power * float(depth - 2) ** (power - 1)
    return DecayThresholds((2 * depth - 2) * depth**-power * common, (depth - 1) * common)


def decayed_value(
    target: Number, decay: Number, depth: int, *, scale: Number = 1.0, local: bool = False
) -> Float[Array, "..."]:
    """The value sigma that a mode of this target value s has at the global minimum with decay (`optimisers/C6`).

    (s - sigma) sigma^{1-2/L} = mu/kappa, the larger root, where s is at least `decay_thresholds(...).wins`, and else 0;
    with `local` wherever such a root exists: s/(1 + mu/kappa) for one layer, max(s - mu/kappa, 0) for two. A network of
    smaller widths keeps so many of the largest modes, and the others are 0.
    """
    depth = _check.integer("depth", depth, least=1)
    given = {"target": _check.numbers("target", target, least=0), "decay": _check.numbers("decay", decay, least=0)}
    given["scale"] = _check.numbers("scale", scale, above=0)
    _check.matching(**given)
    return evaluate(_decayed_value, *given.values(), depth=depth, local=_check.flag("local", local))


def _decayed_value(xp: Any, target: Array, decay: Array, scale: Array, *, depth: int, local: bool) -> Array:
    if depth == 1:
        return target / (1 + decay / scale)
    if depth == 2:
        return xp.maximum(target - decay / scale, 0.0)
    exists, wins = _decay_thresholds(xp, decay, scale, depth=depth)
    alive = (target >= (exists if local else wins)) & (target > 0)
    s = xp.where(alive, target, 1.0)
    power, last = 1 - 2 / depth, depth / (2 * depth - 2)  # the roots meet where the lost share is `last`
    share = xp.where(alive, decay, 0.0) / scale / s ** (1 + power)

    def newton(lost: Array, _: Any) -> tuple[Array, None]:
        kept = 1 - lost
        slope = kept ** (power - 1) * (kept - power * lost)
        step = (share - lost * kept**power) / xp.where(slope > 0, slope, math.inf)
        return xp.minimum(lost + xp.maximum(step, 0.0), last), None

    # the lost share x = 1 - sigma/s: x (1 - x)^p = share is concave, so that Newton comes from below and never passes
    lost, _ = scan(xp, newton, xp.minimum(share, last), None, length=50)
    return xp.where(alive, s * (1 - lost), 0.0)


def decayed_curvatures(
    targets: Any, decay: float, depth: int, *, scale: float = 1.0, local: bool = False
) -> Float[np.ndarray, " curvatures"]:
    """All L d^2 eigenvalues of the Hessian at the minimum with decay, which counts in them, descending.

    For d x d layers and all d singular values of the target, zeros included; the minimum is that of `decayed_value`
    (`optimisers/C7`). A mode above 0 has kappa L sigma^{2-2/L} - (L-2) mu once and 2 mu L - 1 times; each pair of modes
    adds a block of 2L, whose top is kappa (sigma_i + sigma_j) + 2 mu for two layers and kappa L sigma^{2-2/L} + L mu
    for equal values. The zeros are rotations of hidden neurons.
    """
    values, at = _minimum(targets, decay, depth, scale, local)
    return np.sort(_curvatures(values, **at))[::-1]


def decayed_sharpness(targets: Any, decay: float, depth: int, *, scale: float = 1.0, local: bool = False) -> float:
    """The largest of `decayed_curvatures`, which sets the largest stable step (`optimisers/C7`).

    With decay and close top values it belongs to the pair of them, above the curvature of the top mode itself.
    """
    values, at = _minimum(targets, decay, depth, scale, local)
    # equal targets have equal blocks: two of each know all pairs
    kept, counts = np.unique(values, return_counts=True)
    return float(np.max(_curvatures(np.repeat(kept, np.minimum(counts, 2)), **at)))


def _minimum(targets: Any, decay: Any, depth: Any, scale: Any, local: Any) -> tuple[np.ndarray, dict[str, Any]]:
    values = np.asarray(_check.numbers("targets", targets, ndim=1, least=0))
    depth = _check.integer("depth", depth, least=1)
    _check.fits("targets", targets, 4 * values.size**2 * depth**2, "the blocks of all pairs")
    scale, local = _check.real("scale", scale, above=0), _check.flag("local", local)
    return values, {"decay": _check.real("decay", decay, least=0), "depth": depth, "scale": scale, "local": local}


def _curvatures(goal: Any, decay: float, depth: int, scale: float, local: bool) -> np.ndarray:
    learned = np.asarray(decayed_value(goal, decay, depth, scale=scale, local=local))
    layers: Any = np.broadcast_to(learned ** (1 / depth), (depth, learned.size))
    blocks = blocks_of_values(np, layers, goal)
    return np.concatenate([scale * np.linalg.eigvalsh(block).ravel() + decay for block in blocks])


# Balance -------------------------------------------------------------------------------------------------------------


def decayed_imbalance(time: Number, imbalance: Number, decay: Number) -> Float[Array, "..."]:
    """D_l(t) = e^{-2 mu t} D_l(0), D_l = W_{l+1}^T W_{l+1} - W_l W_l^T, under flow with decay (`optimisers/C5`).

    For any cost and depth; one entry, or a whole matrix at one time.
    """
    given = {"time": _check.numbers("time", time, least=0), "imbalance": _check.numbers("imbalance", imbalance)}
    given["decay"] = _check.numbers("decay", decay, least=0)
    _check.matching(**given)
    return evaluate(_decayed_imbalance, *given.values())


def _decayed_imbalance(xp: Any, time: Array, imbalance: Array, decay: Array) -> Array:
    return imbalance * xp.exp(-2 * decay * time)


def label_noise_rate(lr: Number, noise: Number, curvature: Number) -> Float[Array, "..."]:
    """How fast label noise balances two layers of one neuron near the minimum: |D| ~ e^{-rate t}, t = eta k.

    rate = eta delta^2 2/(2 - eta S), delta = `noise` the standard deviation of the labels' noise, D = w_2^2 - w_1^2 and
    S = w_1^2 + w_2^2: every step multiplies D by 1 - eta^2 r^2 (`optimisers/C11`), and the residual r has the variance
    2 delta^2/(2 - eta S). NaN where lr is not stable.
    """
    given = {"lr": _check.numbers("lr", lr, above=0), "noise": _check.numbers("noise", noise, least=0)}
    given["curvature"] = _check.numbers("curvature", curvature, least=0)
    _check.matching(**given)
    return evaluate(_label_noise_rate, *given.values())


def _label_noise_rate(xp: Any, lr: Array, noise: Array, curvature: Array) -> Array:
    left = 2 - lr * curvature
    return xp.where(left > 0, 2 * lr * noise**2 / xp.where(left > 0, left, 1.0), math.nan)


# Mini-batches --------------------------------------------------------------------------------------------------------


def batch_variance(curvatures: Any, batch: int, *, replacement: bool = False) -> float:
    """Var h_B, the variance of the mean curvature of a batch of B samples drawn of n with these curvatures h_i.

    (n - B)/(B (n - 1)) of sum (h_i - h)^2/n where a batch has no sample twice, 1/B of it with `replacement`.
    """
    values = np.asarray(_check.double("curvatures", curvatures, ndim=1))
    return _drawn(values.size, batch, replacement) * float(np.var(values))


def _drawn(samples: int, batch: int, replacement: bool) -> float:
    """The variance of the mean of a batch, in that of one sample."""
    if _check.flag("replacement", replacement):
        return 1 / _check.integer("batch", batch, least=1)
    batch = _check.integer("batch", batch, least=1, most=samples, reason="the samples there are")
    return (samples - batch) / (batch * (samples - 1)) if samples > 1 else 0.0


def batch_stable_lr(
    mean: Number, variance: Number, *, beta: Number = 0.0, average: bool = False
) -> Float[Array, "..."]:
    """The step below which one direction is stable in mean square, with a fresh batch every step (`optimisers/C10`).

    2(1 - b^2) h/((1 + b) Var h_B + (1 - b) h^2) with heavy-ball momentum, h the mean curvature and Var h_B that of
    `batch_variance`; over 1 - b where momentum averages. Passes over shuffled data are another law:
    without momentum they bear more, with much of it less.
    """
    given = {"mean": _check.numbers("mean", mean, above=0), "variance": _check.numbers("variance", variance, least=0)}
    given["beta"] = _check.numbers("beta", beta, least=0, below=1)
    _check.matching(**given)
    return evaluate(_batch_stable_lr, *given.values(), average=_check.flag("average", average))


def _batch_stable_lr(_: Any, mean: Array, variance: Array, beta: Array, *, average: bool) -> Array:
    share = 1 - beta if average else 1.0
    return 2 * (1 - beta**2) / share / ((1 + beta) * variance / mean + (1 - beta) * mean)


class _Batches(NamedTuple):
    """Curvatures h of the mean Hessian where it is positive, and the samples' deviations from it in its eigenbasis."""

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


def _batches(hessians: Any, batch: int, replacement: bool) -> _Batches:
    given = np.asarray(_check.double("hessians", hessians, ndim=3))
    n, rows, columns = given.shape
    size = float(np.max(np.abs(given)))
    if rows != columns or size == 0 or np.max(np.abs(given - given.swapaxes(1, 2))) > 1e-10 * size:
        raise InputError(
            f"hessians = {_check.show(given)} is not allowed: hessians must be n symmetric matrices, not all zero."
        )
    if np.min(np.linalg.eigvalsh(given)) < -1e-10 * size:
        raise InputError(
            "hessians with negative eigenvalues are not allowed: where every sample is fitted they have none."
        )
    h, vectors = np.linalg.eigh(np.mean(given, axis=0))
    kept = vectors[:, h > 1e-12 * h[-1]]  # directions that are flat for all samples neither grow nor shrink
    turned = kept.T @ given @ kept
    mean = np.mean(turned, axis=0)
    return _Batches(np.diag(mean), turned - mean, _drawn(n, batch, replacement))


def largest_batch_lr(
    hessians: Any, batch: int, *, beta: float = 0.0, replacement: bool = False, average: bool = False
) -> float:
    """`batch_stable_lr` in d dimensions: the step below which descent on fresh batches is stable in mean square.

    Stable means that the covariance map X -> E[T_B X T_B^T], T_B = [[(1+b) - eta H_B, -b], [1, 0]], has a spectral
    radius below 1. In the eigenbasis of the mean Hessian its quiet part is solved entry by entry, and what remains is
    linear in 1/eta, so that one symmetric eigenvalue answers (`optimisers/C10`): 1/eta is the largest eigenvalue of

        X -> [Var(H_B)(X) + ((1-b)^2 h_i h_j - b (h_i - h_j)^2)/(1-b^2) X_ij] / ((1-b)(h_i + h_j))

    with Var(H_B)(X) = E[(H_B - H) X (H_B - H)]. `hessians` are those of the n samples, without negative eigenvalues;
    directions that are flat for all of them are left out.
    """
    found, b = _batches(hessians, batch, replacement), _check.real("beta", beta, least=0, below=1)
    h, other = found.curvatures[:, None], found.curvatures
    without = (b * (h - other) ** 2 - (1 - b) ** 2 * h * other) / (1 - b**2)
    top = found.top(without, 1 / np.sqrt((1 - b) * (h + other)))
    return 1 / (top * (1 - b if _check.flag("average", average) else 1.0))


def largest_online_lr(curvatures: Any, batch: int, *, beta: float = 0.0, average: bool = False) -> float:
    """`largest_batch_lr` of fresh Gaussian samples whose covariance has these eigenvalues h_j (`optimisers/C10`).

    For x ~ N(0, D) the variance of the Hessian x x^T is X -> D X D + D tr(D X), so that with c = 1/B + (1-b)/(1+b) the
    limit is the root of one equation,

        sum_j eta h_j / (2 (1-b) - eta c h_j) = B,

    below eta = 2 (1-b)/(c h_1); over 1 - b where momentum averages. At the balanced minimum of a deep factorisation
    on white inputs every row i of A is such a regression, with h_j = lam_ij (`theory.stability.cross_curvature`): the
    first row bears least.
    """
    given = np.asarray(_check.double("curvatures", curvatures, ndim=1))
    if given.size == 0 or np.min(given) < 0 or np.max(given) == 0:
        raise InputError(
            f"curvatures = {_check.show(given)} is not allowed: curvatures must be 0 or more, and not all zero."
        )
    batch = _check.integer("batch", batch, least=1)
    b, top = _check.real("beta", beta, least=0, below=1), float(np.max(given))
    h, c = given / top, 1 / batch + (1 - b) / (1 + b)

    def excess(p: float) -> float:
        """Above 0 below the root, where 2 (1-b)/(eta h_1) = c + p/B."""
        return float(np.sum(h / (p + batch * c * (1 - h)))) - 1

    # the first term alone is 1 at p = 1, and none is above h_j/p
    root = c + float(scipy.optimize.brentq(excess, 1.0, 2 * float(np.sum(h)), xtol=1e-15, rtol=1e-15)) / batch
    return 2 * (1 - b) / (root * top * (1 - b if _check.flag("average", average) else 1.0))


def batch_spectral_radius(
    hessians: Any, batch: int, lr: float, *, beta: float = 0.0, replacement: bool = False, average: bool = False
) -> float:
    """The spectral radius of X -> E[T_B X T_B^T]: what a step on a fresh batch makes of squares (`optimisers/C10`).

    Below 1 where lr is below `largest_batch_lr`. It is the z above the mean's own radius at which the covariance map of
    T_B/sqrt(z) is critical, found as the root of a symmetric eigenvalue.
    """
    found, b = _batches(hessians, batch, replacement), _check.real("beta", beta, least=0, below=1)
    step = _check.real("lr", lr, above=0) * (1 - b if _check.flag("average", average) else 1.0)
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
        return math.log(noise.top(np.zeros_like(quiet_part), 1 / np.sqrt(quiet_part)))

    # where steps land on the minimum in one there is nothing but noise
    low, high = max(quiet * (1 + 1e-12), 1e-300), max(2 * quiet, 1.0)
    if excess(low) <= 0:
        return quiet
    while excess(high) > 0:
        high *= 2
    return float(scipy.optimize.brentq(excess, low, high, xtol=1e-14, rtol=1e-13))
