"""The claims and errata of lambda-balanced two-layer networks.

Places are those of Anguita's thesis, which has the results of the published paper with their proofs. What no text that
we know states is "derived".
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

from linnet import observe
from linnet.claims.claim import Finding, Seed, as_printed, at_least, at_most, claim, evidence, within
from linnet.claims.layers import gradient_flow
from linnet.init import balanced, lambda_balanced, two_c_balanced
from linnet.problems import Factorization, factorization
from linnet.states import Weights
from linnet.theory import balance, mixed

# Cases that several checks share --------------------------------------------------------------------------------------

# d_out, d_in, width: square, bottlenecks, more inputs, more outputs, one neuron, and more neurons than dimensions
_SHAPES = ((3, 3, 3), (4, 4, 2), (2, 4, 2), (4, 2, 3), (2, 4, 3), (3, 2, 1), (2, 3, 7))
_LAMBDAS = (-10.0, -1.0, -1e-8, 0.0, 1e-8, 0.1, 3.0, 10.0)


def _exists(lam: float, d_out: int, d_in: int, width: int) -> bool:
    return lam == 0 or width <= (d_out if lam > 0 else d_in)


def _cases(size: str) -> Iterator[tuple[int, int, int, float]]:
    """Shapes and lambdas for which there are such layers."""
    for d_out, d_in, width in _SHAPES[:4] if size == "quick" else _SHAPES:
        for lam in (-1.0, 0.0, 3.0) if size == "quick" else _LAMBDAS:
            if _exists(lam, d_out, d_in, width):
                yield d_out, d_in, width, lam


def _draw(d_out: int, d_in: int, width: int, lam: float, seed: int, scale: float = 0.7) -> tuple[Any, Weights]:
    """A target and a start of its size; where lambda is next to nothing, on the side from which the target is met."""
    target = np.random.default_rng(seed).normal(size=(d_out, d_in))
    initial = lambda_balanced(jax.random.key(seed), factorization(target), lam, width, scale=scale)
    if d_out == d_in and abs(lam) < 1e-6 and _side(target, initial) < 0:
        target[0] *= -1
    return target, initial


def _side(target: Any, initial: Weights) -> float:
    """The sign of det A det Y."""
    return float(np.sign(np.linalg.det(np.asarray(initial.matrix)) * np.linalg.det(target)))


def _integrated(initial: Weights, target: Any, time: float, *, scale: float = 1.0, **rates: Any) -> Weights:
    """The layers' own gradient flow on (scale/2) |A - Y|^2, by an 8th-order method."""
    layers = [np.asarray(w) for w in initial.layers]
    return Weights(gradient_flow(layers, lambda a: scale * (a - target), [time], atol=1e-14, **rates)[-1])


def _apart(found: Any, right: Any) -> float:
    """The largest difference, in units of the largest entry."""
    one, other = np.asarray(found), np.asarray(right)
    return float(np.max(np.abs(one - other)) / np.max(np.abs(other)))


def _gap(at: balance.Grams, state: Weights) -> float:
    """How far A, C1 and C2 are from those of a network, each in units of its largest entry."""
    return max(_apart(one, other) for one, other in zip(at, (state.matrix, *observe.grams(state)), strict=True))


def _stack(state: Weights) -> Any:
    return np.concatenate([np.asarray(state.layers[0]).T, np.asarray(state.layers[1])])


def _field(target: Any, lam: float) -> Any:
    """F = [[-lambda/2, Y^T], [Y, lambda/2]]."""
    d_out, d_in = target.shape
    return np.block([[-lam / 2 * np.eye(d_in), target.T], [target, lam / 2 * np.eye(d_out)]])


# The flow -------------------------------------------------------------------------------------------------------------


@claim(
    "balance/C1",
    "exact",
    "the definition of balance",
    negative_control={"initial": lambda *given, **more: _stretched(lambda_balanced(*given, **more))},
)
def existence(size: str, initial: Callable[..., Weights] = lambda_balanced, seed: Seed = 0) -> Iterator[Finding]:
    """W_2^T W_2 - W_1 W_1^T = lambda I has solutions if and only if lambda = 0, or lambda > 0 and w <= d_out, or lambda
    < 0 and w <= d_in; all other layers are at least |lambda| away from it.
    """
    for d_out, d_in, width in _SHAPES[2:5] if size == "quick" else _SHAPES:
        problem = factorization(np.random.default_rng(seed).normal(size=(d_out, d_in)))
        for lam in _LAMBDAS:
            case = {"d_out": d_out, "d_in": d_in, "width": width, "lam": lam}
            if _exists(lam, d_out, d_in, width):
                for aligned in (False, True):
                    drawn = initial(jax.random.key(seed), problem, lam, width, scale=0.7, aligned=aligned)
                    away = np.linalg.norm(-drawn.imbalance()[0] - lam * np.eye(width), 2)
                    yield at_most(away / (abs(lam) + 1), 1e-13, aligned=aligned, **case)
                continue
            for draw in range(5):
                rng = np.random.default_rng(seed + draw)
                other = Weights((rng.normal(size=(width, d_in)), rng.normal(size=(d_out, width)) * np.sqrt(abs(lam))))
                away = np.linalg.norm(-other.imbalance()[0] - lam * np.eye(width), 2)
                yield at_least(away / abs(lam), 1.0, **case)


def _stretched(state: Weights) -> Weights:
    return Weights((state.layers[0], 1.01 * state.layers[1]))


@claim("balance/C2", "exact", "Fukumizu 1998", negative_control={"field": lambda target, lam: _field(target, -lam)})
def one_equation(size: str, field: Callable[..., Any] = _field, seed: Seed = 1) -> Iterator[Finding]:
    """The gradient flow of lambda-balanced layers on (kappa/2) |A - Y|^2 is dQ/dt = kappa (F Q - Q Q^T Q / 2) with
    Q = [W_1^T; W_2] and F = [[-lambda/2, Y^T], [Y, lambda/2]].
    """
    for d_out, d_in, width, lam in _cases(size):
        target, initial = _draw(d_out, d_in, width, lam, seed)
        moved: Any = initial.velocity(Factorization(jnp.asarray(target), jnp.asarray(1.7)))
        q = _stack(initial)
        right = 1.7 * (field(target, lam) @ q - q @ q.T @ q / 2)
        yield at_most(_apart(_stack(moved), right), 1e-13, d_out=d_out, d_in=d_in, width=width, lam=lam)


@claim(
    "balance/C3",
    "exact",
    "Theorem 3.3.1",
    negative_control={"solution": lambda time, *given: balance.flow(1.02 * time, *given)},
)
def closed_form(size: str, solution: Callable[..., balance.Grams] = balance.flow, seed: Seed = 2) -> Iterator[Finding]:
    """Q Q^T = e^{F t} Q_0 M^{-1} Q_0^T e^{F t} with M = I + Q_0^T (int_0^t e^{2 F x} dx) Q_0 holds A, C1 and C2 at
    every time, for every width and shape, F singular and starts of low rank included.
    """
    for d_out, d_in, width, lam in _cases(size):
        target, initial = _draw(d_out, d_in, width, lam, seed)
        case = {"d_out": d_out, "d_in": d_in, "width": width, "lam": lam}
        for time in (0.3, 2.0):
            right = _integrated(initial, target, time, scale=1.5)
            yield at_most(_gap(solution(time, initial, target, 1.5), right), 1e-9, time=time, **case)
    rng = np.random.default_rng(seed)
    target = np.outer(rng.normal(size=3), rng.normal(size=4))  # F has zeros
    initial = balanced(np.outer(rng.normal(size=3), rng.normal(size=4)), (3,))
    right = _integrated(initial, target, 1.0)
    yield at_most(_gap(solution(1.0, initial, target, 1.0), right), 1e-9, what="rank one start, rank one target")


@claim(
    "balance/C4",
    "exact",
    "Theorem 3.3.1 (2)",
    negative_control={"eigen": lambda target, lam: balance.eigenvectors(target, -lam)},
)
def one_angle(
    size: str, eigen: Callable[..., balance.Eigen] = balance.eigenvectors, seed: Seed = 3
) -> Iterator[Finding]:
    """With a = atan2(s, -lambda/2)/2, (v cos a, u sin a) and (-v sin a, u cos a) are eigenvectors of F for
    +-hypot(s, lambda/2), and what has no partner for -lambda/2 (inputs) and lambda/2 (outputs): all lambda and s.
    """
    rng = np.random.default_rng(seed)
    for shape in ((3, 3), (2, 4), (4, 2)):
        target = rng.normal(size=shape)
        target[0] = target[1]
        for lam in (-1e3, -1.0, -1e-12, 0.0, 1e-12, 0.1, 1e3):
            values, vectors = (np.asarray(x) for x in eigen(target, lam))
            case = {"d_out": shape[0], "d_in": shape[1], "lam": lam}
            f = _field(target, lam)
            yield at_most(_apart((vectors * values) @ vectors.T, f), 1e-14, **case)
            yield at_most(_apart(vectors.T @ vectors, np.eye(len(f))), 1e-14, what="orthonormal", **case)


def _one_shot(time: float, initial: Weights, target: Any) -> balance.Grams:
    """The same formula at once, with exponents cut where they would overflow."""
    values, vectors = (np.asarray(x) for x in balance.eigenvectors(target, initial.balance() or 0.0))
    p, d_in = vectors.T @ _stack(initial), target.shape[1]
    grown = np.exp(np.minimum(values * time, 300.0))[:, None]
    root = np.sqrt(np.expm1(np.minimum(2 * values * time, 600.0)) / (2 * values))[:, None]
    r: Any = np.linalg.qr(np.concatenate([np.eye(p.shape[1]), root * p]), mode="r")
    q = vectors @ np.linalg.solve(r.T, (grown * p).T).T
    x = q @ q.T
    return balance.Grams(*(jnp.asarray(b) for b in (x[d_in:, :d_in], x[:d_in, :d_in], x[d_in:, d_in:])))


@claim("balance/C5", "exact", "derived", negative_control={"solution": _one_shot})
def who_wins(size: str, solution: Callable[..., balance.Grams] = balance.flow, seed: Seed = 4) -> Iterator[Finding]:
    """Composed steps P <- e^{f dt} P R^{-1}, |f| dt <= 5, are right at any time with fewer neurons than growing modes,
    where one step with its exponents cut ends at modes that did not win.
    """
    for d_out, d_in, width, lam in ((4, 4, 2, 0.0), (5, 3, 2, 1.0), (3, 5, 2, -0.5), (4, 4, 3, 1e-8)):
        target, initial = _draw(d_out, d_in, width, lam, seed, scale=0.3)
        best = factorization(target).optimum(width).matrix
        for time in (300.0, 1e4) if size == "full" else (1e3,):
            found = solution(time, initial, target).matrix
            yield at_most(_apart(found, best), 1e-13, d_out=d_out, d_in=d_in, width=width, lam=lam, time=time)


# What follows from A --------------------------------------------------------------------------------------------------


@claim(
    "balance/C6",
    "exact",
    "derived",
    negative_control={"formula": lambda a, lam, width: balance.grams(a, 1.05 * lam, width)},
)
def grams_from_the_matrix(
    size: str, formula: Callable[..., balance.Grams] = balance.grams, seed: Seed = 5
) -> Iterator[Finding]:
    """C1 = sqrt(A^T A + lambda^2/4) - lambda/2 if lambda >= 0 or w = d_in, C2 = sqrt(A A^T + lambda^2/4) + lambda/2 if
    lambda <= 0 or w = d_out; otherwise the same on the row (column) space of A and 0 outside if rank A = w, and no
    function of A if rank A < w.
    """
    for d_out, d_in, width, lam in ((3, 3, 3, 2.0), (3, 3, 2, -2.0), (4, 2, 2, 0.5), (2, 4, 3, 0.0), (2, 4, 4, -1.0)):
        target, initial = _draw(d_out, d_in, width, lam, seed)
        moved = _integrated(initial, target, 0.5)
        for time, state in ((0.0, initial), (0.5, moved)):
            case = {"d_out": d_out, "d_in": d_in, "width": width, "lam": lam, "time": time}
            yield at_most(_gap(formula(state.matrix, lam, width), state), 1e-13 if time == 0 else 1e-9, **case)
    # four outputs, two inputs, three neurons: the third has no input, and its output is free
    initial = _draw(4, 2, 3, 1.0, seed)[1]
    first, second = (np.asarray(w) for w in initial.layers)
    u = np.linalg.svd(first)[0]
    measured = second @ u[:, :2] @ u[:, :2].T
    free = np.linalg.svd(measured)[0][:, 2:]
    one, other = (Weights((first, measured + free[:, [i]] @ u[:, 2:].T)) for i in (0, 1))
    yield at_most(_apart(one.matrix, other.matrix), 1e-13, what="the same A")
    yield at_most(abs((one.balance() or 0.0) - (other.balance() or 0.0)), 1e-13, what="the same lambda")
    yield at_least(_apart(observe.grams(one)[1], observe.grams(other)[1]), 0.1, what="another C2")


@claim(
    "balance/C7",
    "exact",
    "derived",
    negative_control={"closed": lambda time, a, target, c: mixed.matrix(time, a, target, 1.1 * c)},
)
def mixed_flow(size: str, closed: Callable[..., Any] = mixed.matrix, seed: Seed = 6) -> Iterator[Finding]:
    """A obeys the mixed equation with c = |lambda|/2 if and only if lambda = 0, or lambda > 0 and the range of Y lies
    in that of W_2(0), or lambda < 0 and the row space of Y in that of W_1(0): for every Y if w = d_out, or w = d_in.
    """
    rng = np.random.default_rng(seed)
    for d_out, d_in, width, lam in ((4, 3, 2, 0.0), (3, 4, 3, 1.5), (4, 3, 3, -1.5), (4, 3, 2, 1.5), (3, 4, 2, -1.5)):
        target, initial = _draw(d_out, d_in, width, lam, seed)
        first, second = (np.asarray(w) for w in initial.layers)
        full = lam == 0 or width == (d_out if lam > 0 else d_in)
        inside = second @ rng.normal(size=(width, d_in)) if lam > 0 else rng.normal(size=(d_out, width)) @ first
        for words, goal in (("any", target), ("inside", inside)) if not full else (("any", target),):
            found = closed(1.0, initial.matrix, goal, abs(lam) / 2)
            gap = _apart(found, balance.flow(1.0, initial, goal).matrix)
            case = {"d_out": d_out, "d_in": d_in, "width": width, "lam": lam, "target": words}
            yield at_most(gap, 1e-11, **case) if full or words == "inside" else at_least(gap, 0.05, **case)


@claim(
    "balance/C8",
    "exact",
    "the tangent kernel",
    negative_control={"kernel": lambda at, inputs: at._replace(output_gram=1.1 * at.output_gram).kernel(inputs)},
)
def tangent_kernel(size: str, kernel: Callable[..., Any] = balance.Grams.kernel, seed: Seed = 7) -> Iterator[Finding]:
    """The tangent kernel on inputs X is I x X C1 X^T + C2 x X X^T and the hidden layer's similarity X C1 X^T, so both
    are known at every time.
    """
    inputs = np.random.default_rng(seed).normal(size=(4, 3))
    for width, lam in ((2, -1.0), (3, 0.0), (2, 3.0)):
        target, initial = _draw(2, 3, width, lam, seed)
        state = _integrated(initial, target, 0.7)

        def outputs(layers: Any) -> Any:
            return (layers[1] @ layers[0] @ inputs.T).ravel()

        slopes = jax.jacobian(outputs)(state.layers)
        j = np.concatenate([np.asarray(s).reshape(8, -1) for s in slopes], axis=1)
        at = balance.flow(0.7, initial, target)
        yield at_most(_apart(kernel(at, inputs), j @ j.T), 1e-9, width=width, lam=lam)
        hidden = inputs @ np.asarray(state.layers[0]).T
        yield at_most(_apart(at.similarity(inputs), hidden @ hidden.T), 1e-9, what="similarity", width=width, lam=lam)


@claim(
    "balance/C9",
    "exact",
    "Theorem 3.2.1",
    negative_control={"mode": lambda time, a, s, lam: balance.mode(time, a, s, 1.1 * lam)},
)
def aligned_mode(size: str, mode: Callable[..., Any] = balance.mode) -> Iterator[Finding]:
    """A mode that a hidden neuron carries obeys da/dt = kappa sqrt(lambda^2 + 4 a^2) (s - a), which has a closed form
    for both signs of lambda and of a; it is the mixed flow's with c = |lambda|/2. A mode without a neuron stays zero.
    """
    times = np.array([0.1, 0.5, 2.0])
    for lam in (-100.0, -1.0, 1e-2, 2.0):
        for a, s in ((0.1, 2.0), (-0.8, 2.0), (3.0, 0.5), (0.4, 0.0)):
            run = solve_ivp(
                lambda _, x, lam=lam, s=s: np.sqrt(lam**2 + 4 * x**2) * (s - x),
                (0, 2.0),
                [a],
                t_eval=times,
                method="DOP853",
                rtol=1e-12,
                atol=1e-14,
            )
            gap = np.max(np.abs(np.asarray(mode(times, a, s, lam)) - run.y[0]))
            yield at_most(gap / max(abs(a), s), 1e-10, lam=lam, initialization=a, target=s)
    problem = factorization(np.diag([3.0, 2.0, 1.0]))
    for lam in (0.0, 1e-10, 0.5):
        initial = lambda_balanced(jax.random.key(0), problem, lam, 2, scale=0.3, aligned=True)
        found = balance.flow(0.6, initial, problem.target).matrix
        modes = np.append(np.asarray(mode(0.6, np.diagonal(initial.matrix)[:2], np.array([3.0, 2.0]), lam)), 0.0)
        yield at_most(_apart(found, np.diag(modes)), 1e-12, what="two neurons of three modes", lam=lam)


# Limits ---------------------------------------------------------------------------------------------------------------


@claim(
    "balance/C10",
    "asymptotic",
    "Theorems 4.1.2 and 4.1.3, the smaller widths derived",
    negative_control={"lazy": lambda time, *given: balance.lazy(0.9 * time, *given)},
)
def large_imbalance(size: str, lazy: Callable[..., Any] = balance.lazy, seed: Seed = 8) -> Iterator[Finding]:
    """For |lambda| -> infinity at fixed A_0 and |lambda| t, A = A_0 + P (Y - A_0) (1 - e^{-|lambda| t}), P the
    projection on range W_2(0) (row space of W_1(0) for lambda < 0). With w = d_out (w = d_in) P = I and both Gram
    matrices move by O(1/|lambda|); with fewer neurons the large one moves at order t whatever lambda is.
    """
    for d_out, d_in, width, sign in ((3, 4, 3, 1), (4, 3, 3, -1), (4, 4, 2, 1)):
        full, errors, drifts = width == (d_out if sign > 0 else d_in), [], []
        for large in (1e2, 1e4):
            target = np.random.default_rng(seed).normal(size=(d_out, d_in))
            problem = factorization(target)
            initial = lambda_balanced(jax.random.key(seed), problem, sign * large, width, scale=large**-0.5)
            times = np.array([0.3, 1.0, 3.0]) / large
            at = balance.flow(times, initial, target)
            errors.append(float(np.max(np.abs(at.matrix - lazy(times, initial, target)))))
            measured = at if full else balance.flow(3.0, initial, target)
            drifts.append(max(np.max(np.abs(x - y)) for x, y in zip(measured[1:], observe.grams(initial), strict=True)))
        case = {"d_out": d_out, "d_in": d_in, "width": width, "sign": sign}
        yield at_most(errors[1] / errors[0], 0.02, what="error, at |lambda| = 1e4 over that at 1e2", **case)
        drift = drifts[1] / drifts[0]
        if full:
            yield at_most(drift, 0.02, what="drift of the Gram matrices, the same ratio", **case)
        else:
            yield within(drift, 0.8, 1.25, what="drift of the large Gram matrix at t = 3, the same ratio", **case)


def _saddle(initial: Weights, target: Any) -> bool:
    return balance.end(initial, target).saddle


@claim("balance/C11", "exact", "derived", negative_control={"saddle": lambda initial, target: False})
def wrong_side(size: str, saddle: Callable[..., bool] = _saddle, seed: Seed = 0) -> Iterator[Finding]:
    """lambda = 0, square, w >= d, Y invertible: the sign of det A is conserved, so that half of all starts end at a
    saddle of rank d - 1; a small lambda leaves it after t = ln(1/|lambda|)/s.
    """
    count = 6 if size == "quick" else 40
    for draw in range(seed, seed + count):
        d, width = 2 + draw % 3, 2 + draw % 3 + draw % 2
        target = np.random.default_rng(draw).normal(size=(d, d))
        initial = lambda_balanced(jax.random.key(draw), factorization(target), 0.0, width, scale=0.7)
        s = np.linalg.svd(target, compute_uv=False)
        wrong = _side(target, initial) < 0
        moved = _integrated(initial, target, 12 / s[-1])
        case = {"d": d, "width": width, "seed": draw, "wrong": wrong}
        yield at_least(_side(target, moved) * _side(target, initial), 0.5, what="sign of det A", **case)
        best = factorization(target).optimum(d - 1 if saddle(initial, target) else d).matrix
        yield at_most(_apart(moved.matrix, best), 1e-3, what="distance from the end", **case)
    for lam in (1e-6, 1e-12):
        time = mixed.mode_time(-1.0, 0.5, 1.0, lam / 2)
        yield within(float(time) / np.log(1 / lam), 0.9, 1.15, what="time over ln(1/lambda)/s", lam=lam)


@claim("balance/C12", "exact", "derived", negative_control={"initial": lambda target, lam: two_c_balanced(target, 0.5)})
def reversal(size: str, initial: Callable[..., Weights] | None = None, seed: Seed = 9) -> Iterator[Finding]:
    """A network that has learned Y and is then asked for -Y: with lambda = 0 it ends at zero, a saddle; with every
    other lambda it arrives, and each mode passes through zero at the speed kappa |lambda| s.
    """
    target = np.random.default_rng(seed).normal(size=(3, 3))

    def learned(target: Any, lam: float) -> Weights:
        return balanced(target, (3,)) if lam == 0 else two_c_balanced(target, abs(lam) / 2, sign=-int(np.sign(lam)))

    make = initial or learned
    top = np.max(np.abs(target))
    for lam in (0.0, -1.0, 0.2):
        there = make(target, lam)
        end = balance.end(there, -target)
        right = 0 * target if lam == 0 else -target
        yield at_most(float(np.max(np.abs(end.at.matrix - right))) / top, 1e-12, what="end", lam=lam)
        yield at_most(abs(float(end.saddle) - float(lam == 0)), 0.5, what="saddle", lam=lam)
        moved = _integrated(there, -target, 10.0 if lam == 0 else 40.0 / abs(lam))
        yield at_most(float(np.max(np.abs(moved.matrix - right))) / top, 1e-2, what="the layers' own flow", lam=lam)
    for lam, s in ((0.2, 2.0), (3.0, 0.5)):
        zero = float(mixed.mode_time(s, 0.0, -s, lam / 2))
        step = 1e-4
        speed = (balance.mode(zero + step, s, -s, lam) - balance.mode(zero - step, s, -s, lam)) / (2 * step)
        yield at_most(abs(float(speed) / (-lam * s) - 1), 1e-5, what="speed at zero", lam=lam, target=s)


# One neuron, decay ----------------------------------------------------------------------------------------------------


@claim(
    "balance/C13",
    "exact",
    "Kunin et al. 2024, one neuron; any shape derived",
    negative_control={
        "solution": lambda *given, lr_multipliers: balance.neuron(*given, lr_multipliers=lr_multipliers[::-1])
    },
)
def one_neuron(
    size: str, solution: Callable[..., balance.Neuron] = balance.neuron, seed: Seed = 10
) -> Iterator[Finding]:
    """Every network with one hidden neuron is balanced, and its weights are Q = e^{F t} Q_0 / sqrt(M); learning rates
    eta_1 and eta_2 of the layers are the same flow of W_1/g and g W_2, g = (eta_1/eta_2)^{1/4}, in the time sqrt(eta_1
    eta_2) t, for any width where that is balanced. e^{F t} Q_0 M^{-1/2} is not the weights of more neurons.
    """
    rng = np.random.default_rng(seed)
    for d_out, d_in in ((1, 1), (2, 3), (3, 1)):
        target = rng.normal(size=(d_out, d_in))
        for rates in ((1.0, 1.0), (2.0, 0.5), (0.3, 2.0)):
            initial = Weights((rng.normal(size=(1, d_in)), rng.normal(size=(d_out, 1))))
            found = solution(1.2, initial, target, lr_multipliers=rates)
            w1, w2 = _integrated(initial, target, 1.2, lr_multipliers=rates).layers
            case = {"d_out": d_out, "d_in": d_in, "rates": rates}
            yield at_most(max(_apart(found.first, w1[0]), _apart(found.second, w2[:, 0])), 1e-9, **case)
    target, even = _draw(3, 2, 2, 0.4, seed)
    rates, g = (2.0, 0.5), (2.0 / 0.5) ** 0.25
    initial = Weights((g * even.layers[0], even.layers[1] / g))
    right = _integrated(initial, target, 0.8, lr_multipliers=rates).matrix
    yield at_most(_apart(balance.flow(0.8, even, target).matrix, right), 1e-9, what="two neurons", rates=rates)
    q0, f = _stack(even), _field(target, 0.4)
    values, vectors = np.linalg.eigh(f)
    phi = (vectors * (np.expm1(2 * values * 0.8) / (2 * values))) @ vectors.T
    m, turn = np.linalg.eigh(np.eye(2) + q0.T @ phi @ q0)
    q = (vectors * np.exp(values * 0.8)) @ vectors.T @ q0 @ (turn / np.sqrt(m)) @ turn.T
    yield at_least(_apart(q, _stack(_integrated(even, target, 0.8))), 1e-3, what="weights of two neurons")


@claim(
    "balance/C14",
    "exact",
    "derived",
    negative_control={"solution": lambda *given, weight_decay: balance.flow(*given, weight_decay=1.1 * weight_decay)},
)
def weight_decay(
    size: str, solution: Callable[..., balance.Grams] = balance.flow, seed: Seed = 11
) -> Iterator[Finding]:
    """With (mu/2) (|W_1|^2 + |W_2|^2) added to the cost, the flow of lambda = 0 is the same with F - mu/kappa for F;
    any other lambda decays as e^{-2 mu t}.
    """
    for d_out, d_in, width in ((3, 3, 3), (4, 2, 1), (2, 3, 5)):
        target, initial = _draw(d_out, d_in, width, 0.0, seed)
        for mu in (0.1, 1.0):
            right = _integrated(initial, target, 1.3, scale=2.0, weight_decay=mu)
            case = {"d_out": d_out, "d_in": d_in, "width": width, "mu": mu}
            yield at_most(_gap(solution(1.3, initial, target, 2.0, weight_decay=mu), right), 1e-9, **case)
    target, initial = _draw(3, 4, 3, 2.0, seed)
    left = _integrated(initial, target, 1.3, scale=2.0, weight_decay=0.4).balance(tol=1e-8)
    yield at_most(abs((left or 0.0) / (2.0 * np.exp(-2 * 0.4 * 1.3)) - 1), 1e-9, what="lambda", mu=0.4)


def _soft(s: Any, mu: float) -> Any:
    return np.maximum(s - mu, 0)


@claim("balance/C15", "exact", "derived", negative_control={"learned": lambda s, mu: np.where(s > mu, s, 0)})
def soft_threshold(size: str, learned: Callable[..., Any] = _soft, seed: Seed = 12) -> Iterator[Finding]:
    """Two balanced layers (lambda = 0) with decay end, from almost every start, at the soft threshold max(s - mu/kappa,
    0) of the top w modes; square, w >= d, all s > mu/kappa and the wrong sign of det A: the last mode ends at zero.
    """
    for d_out, d_in, width in ((3, 4, 3), (4, 3, 2), (3, 3, 1), (2, 3, 6)):
        target, initial = _draw(d_out, d_in, width, 0.0, seed)
        u, s, vt = np.linalg.svd(target, full_matrices=False)
        for mu in (0.3 * s[-1], (s[0] + s[1]) / 2):
            kept = learned(s, mu) * (np.arange(len(s)) < width)
            case = {"d_out": d_out, "d_in": d_in, "width": width, "mu": float(mu)}
            end = balance.end(initial, target, 2.0, weight_decay=2.0 * mu)
            yield at_most(_apart(end.at.matrix, (u * kept) @ vt), 1e-12, what="end", **case)
            slowest = np.min(np.append(np.abs(s - mu), -np.diff(s)[width - 1 : width]))
            moved = _integrated(initial, target, 15 / slowest, scale=2.0, weight_decay=2.0 * mu)
            yield at_most(_apart(moved.matrix, (u * kept) @ vt), 1e-6, what="the layers' own flow", **case)
    target, initial = _draw(3, 3, 3, 0.0, seed)
    u, _, vt = np.linalg.svd(target)
    s, mu = np.array([3.0, 2.0, 1.0]), 0.3
    wrong = -(u * s) @ vt  # three signs change that of the determinant
    kept = -learned(s, mu) * np.array([1.0, 1.0, 0.0])
    end = balance.end(initial, wrong, weight_decay=mu)
    yield at_most(_apart(end.at.matrix, (u * kept) @ vt), 1e-12, what="wrong side")
    moved = _integrated(initial, wrong, 12 / (s[-1] - mu), weight_decay=mu)
    yield at_most(_apart(moved.matrix, (u * kept) @ vt), 1e-3, what="wrong side, the layers' own flow")


# Errata ---------------------------------------------------------------------------------------------------------------


def _inverse_form(time: float, initial: Weights, target: Any) -> Any:
    """A by the inverse of the growing part of the start, B = P_+ up to a factor; square, w = d."""
    values, vectors = (np.asarray(x) for x in balance.eigenvectors(target, initial.balance() or 0.0))
    p, d = vectors.T @ _stack(initial), target.shape[0]
    inverse = np.linalg.inv(p[:d])
    up, down = values[:d], values[d:]
    ratio = p[d:] @ inverse * np.exp(down[:, None] * time - up * time)
    middle = np.diag(-np.expm1(-2 * up * time) / (2 * up)) + np.exp(-time * (up[:, None] + up)) * (
        inverse.T @ inverse + (p[d:] @ inverse).T @ (np.expm1(2 * down * time) / (2 * down) * (p[d:] @ inverse).T).T
    )
    z = vectors[:, :d] + vectors[:, d:] @ ratio
    return (z @ np.linalg.solve(middle, z.T))[d:, :d]


@evidence("balance/E1", negative_control={"solution": lambda time, *given: balance.flow(1.05 * time, *given)})
def the_inverse_of_b(size: str, solution: Callable[..., balance.Grams] = balance.flow) -> Iterator[Finding]:
    """Random starts of lambda = 0 on the wrong side against the layers' own flow; on the right side both forms hold."""
    for seed in range(8):
        target = np.random.default_rng(seed).normal(size=(3, 3))
        initial = lambda_balanced(jax.random.key(seed), factorization(target), 0.0, 3, scale=0.7)
        right = _integrated(initial, target, 1.5).matrix
        wrong = _side(target, initial) < 0
        yield at_most(_apart(solution(1.5, initial, target).matrix, right), 1e-9, seed=seed, wrong=wrong)
        inverted = at_most(_apart(_inverse_form(1.5, initial, target), right), 1e-9, seed=seed, wrong=wrong)
        yield as_printed(inverted) if wrong else inverted
