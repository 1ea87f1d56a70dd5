"""Two layers in balance as one equation, Q' = F Q - Q Q^T Q / 2: the eigenvectors of F, and its solution by steps.

Q = [W_1^T; W_2], W_2^T W_2 - W_1 W_1^T = lam I and F = [[-lam/2, Y^T], [Y, lam/2]] in units of the cost's curvature. It
is a Riccati equation, so span Q moves linearly: Q Q^T = e^{F t} Q_0 M^{-1} Q_0^T e^{F t}, M = I + Q_0^T (int_0^t
e^{2 F x} dx) Q_0.
"""

from typing import Any

import jax
import numpy as np
import scipy  # its parts load when they are first used
from jaxtyping import Array

from linnet import _check
from linnet.theory._formula import FEW, while_loop

REACH = 5.0  # |F| t of one step: e^10 is the most that a step lets two directions differ by
_MANY = 3000  # steps of all times together from which on a compiler is worth its time


def eigen(xp: Any, target: Any, lam: Any) -> tuple[Any, Any]:
    """Eigenvalues of F, descending, and its eigenvectors as columns: (v cos, u sin) for h, (-v sin, u cos) for -h.

    h = hypot(s, lam/2), and one angle, atan2(s, -lam/2)/2, for all s and lam: nothing is divided. What has no partner
    among the singular vectors has the eigenvalue -lam/2 (an input) or lam/2 (an output).
    """
    d_out, d_in = target.shape
    k = min(d_out, d_in)
    u, s, vt = xp.linalg.svd(target, full_matrices=True)
    v, half = vt.T, xp.arctan2(s, -lam / 2 + xp.zeros_like(s)) / 2
    h, cos, sin = xp.hypot(s, lam / 2), xp.cos(half), xp.sin(half)
    grow = xp.concatenate([v[:, :k] * cos, u[:, :k] * sin])
    shrink = xp.concatenate([-v[:, :k] * sin, u[:, :k] * cos])
    alone = xp.block([[v[:, k:], np.zeros((d_in, d_out - k))], [np.zeros((d_out, d_in - k)), u[:, k:]]])
    rest = xp.full(d_in + d_out - 2 * k, (-1.0 if d_in > d_out else 1.0) * lam / 2)
    return xp.concatenate([h, rest, -h[::-1]]), xp.concatenate([grow, alone, shrink[:, ::-1]], axis=1)


def composed(xp: Any, time: Array, initial: Array, rates: Array) -> Array:
    """P at a time, from P_i' = f_i P_i - (P P^T P)_i / 2, up to a rotation of its columns from the right.

    Steps of |f| dt <= 5, each P <- e^{f dt} P R^{-1} with R^T R = I + P^T D P, D = (e^{2 f dt} - 1) / (2 f): nothing
    overflows, no exponent is cut, and the rank stays what it is. R is a QR factor, whose condition is not squared. With
    one column R is positive and P itself is right.
    """
    width = initial.shape[1]
    solve = (scipy.linalg if xp is np else jax.scipy.linalg).solve_triangular
    steps = xp.maximum(xp.ceil(time * xp.max(xp.abs(rates)) / REACH), 1.0)
    dt = time / steps
    gain = xp.exp(rates * dt)[:, None]
    safe = xp.where(rates != 0, rates, 1.0)
    root = xp.sqrt(xp.where(rates != 0, xp.expm1(2 * safe * dt) / (2 * safe), dt))[:, None]

    def step(now: tuple[Array, Array]) -> tuple[Array, Array]:
        count, p = now
        r = xp.linalg.qr(xp.concatenate([np.eye(width), root * p]), mode="r")
        r = xp.sign(xp.diagonal(r))[:, None] * r
        return count + 1, solve(r, (gain * p).T, trans=1, lower=False).T

    return while_loop(xp, lambda now: now[0] < steps, step, (xp.zeros_like(steps), initial))[1]


def steps(time: Any, scale: Any, target: Any, lam: Any = 0.0, decay: Any = 0.0) -> float:
    """How many steps all times take together; infinite where they are not known."""
    if _check.traced((time, scale, target, lam, decay)):
        return np.inf
    time, scale, target, lam, decay = (np.asarray(x) for x in (time, scale, target, lam, decay))
    rate = scale * np.hypot(np.linalg.norm(target, 2), lam / 2) + decay
    return float(np.sum(np.maximum(np.ceil(time * rate / REACH), 1.0)))


def few(count: float) -> int:
    """What `evaluate` needs to know: few steps are made in NumPy, many are compiled."""
    return FEW if count <= _MANY else -1
