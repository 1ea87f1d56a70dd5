"""Claims of "Learning Dynamics of Deep Matrix Factorization Beyond the Edge of Stability" at several depths, and about
what the paper says beside its theorems: balance under descent, small last layers, self-stabilization, and curvature at
the minima of networks with relu.

Learning rates are those of the loss 1/2 |A - A_star|^2.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from linnet import observe
from linnet.claims.claim import Finding, Seed, as_printed, at_least, at_most, claim, close, evidence, within
from linnet.claims.layers import Layers, descent, end_to_end, in_frames, layer_gradients
from linnet.init import balanced
from linnet.networks import mlp
from linnet.optim import SGD
from linnet.problems import supervised
from linnet.record import at, every
from linnet.simulation import simulate
from linnet.theory import stability

_SPECTRUM, _D = (10.0, 6.0, 3.0), 5


class _Target(NamedTuple):
    """A target of rank three with its singular vectors."""

    matrix: np.ndarray
    u: np.ndarray
    v: np.ndarray


@lru_cache
def _target(seed: int, *, symmetric: bool = False) -> _Target:
    rng = np.random.default_rng(seed)
    u, v = (np.linalg.qr(part)[0] for part in rng.normal(size=(2, _D, _D)))
    v = u if symmetric else v
    values = np.append(_SPECTRUM, np.zeros(_D - len(_SPECTRUM)))
    return _Target((u * values) @ v.T, u, v)


def _descend(layers: Layers, target: np.ndarray, lr: float, steps: int) -> Iterator[list[np.ndarray]]:
    """The layers at every step on 1/2 |A - A_star|^2, the first included."""
    return descent(layers, lambda a: a - target, lr, steps)


def _one_zero(alpha: float, depth: int, last: float = 0.0) -> list[np.ndarray]:
    return [alpha * np.eye(_D)] * (depth - 1) + [last * np.eye(_D)]


def _frames(target: _Target, depth: int) -> list[np.ndarray]:
    """The frames in which layers of the one-zero start are diagonal."""
    return [target.v] * depth + [target.u]


def _lr(kappa: float, depth: int) -> float:
    return kappa / float(stability.curvature(_SPECTRUM[0], depth))


def _depths(size: str) -> tuple[int, ...]:
    return (2, 4) if size == "quick" else (2, 3, 4, 5)


# Theorem 1 and its tools ---------------------------------------------------------------------------------------------


@claim(
    "stability/C26",
    "exact",
    "Theorem 1, corrected",
    hypotheses={
        "2 < kappa < kappa_4, kappa_c": lambda case: (
            2
            < case["kappa"]
            < min(stability.stages(case["depth"]).doublings[1], stability.cross_threshold(0.6, case["depth"]))
        )
    },
    negative_control={"factor": 3.0},
)
def rank_one_orbit_at_every_depth(size: str, factor: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """At every depth and learning rate of the theorem's range every layer of a matrix network ends on the 2-cycle in
    mode 1 and at s_j^{1/L} in the others, from the one-zero initialization and, with a symmetric target, the balanced
    one.
    """
    steps = 4000 if size == "quick" else 8000
    for depth in _depths(size):
        for kappa in (2.1, 2.3, 2.45):
            lr = _lr(kappa, depth)
            found = stability.orbit(_SPECTRUM[0], depth, factor * lr)
            for symmetric in (False, True):
                target = _target(seed, symmetric=symmetric)
                alpha = 0.3
                initial = [alpha * np.eye(_D)] * depth if symmetric else _one_zero(alpha, depth)
                *_, before, end = _descend(initial, target.matrix, lr, steps)
                both = np.stack([in_frames(layers, _frames(target, depth)) for layers in (before, end)])
                case: dict[str, Any] = {"depth": depth, "kappa": kappa}
                case["initialization"] = "balanced" if symmetric else "one-zero"
                top = np.sort(both[:, :, 0, 0], axis=0)
                yield close(top, [[found.low], [found.high]], atol=1e-9, what="mode 1 of every layer", **case)
                modes = [np.diag(end_to_end(list(layers)))[1:3] for layers in both]
                yield close(np.stack(modes), _SPECTRUM[1:], atol=1e-8, what="modes 2, 3 of A", **case)


@claim("stability/C27", "exact", "Propositions 2 and 3", negative_control={"share": 1.01})
def layers_move_mode_by_mode(size: str, share: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """At every depth, from the one-zero initialization, W_L(1) = lr alpha^{L-1} A_star, all layers keep their singular
    vectors, and their values follow D' = D (I - lr D_L (D_L D^{L-1} - S) D^{L-3}) and D_L' = D_L - lr (D_L D^{L-1} - S)
    D^{L-1}; with a symmetric target and the balanced initialization D' = D - lr (D^L - S) D^{L-1} for all.
    """
    alpha, goal = 0.3, np.append(_SPECTRUM, np.zeros(_D - len(_SPECTRUM)))
    for depth in _depths(size):
        for kappa in (1.8, 2.3):
            for symmetric in (False, True):
                lr, target = _lr(kappa, depth), _target(seed, symmetric=symmetric)
                initial = [alpha * np.eye(_D)] * depth if symmetric else _one_zero(alpha, depth)
                d, last = np.full(_D, alpha), np.full(_D, alpha if symmetric else 0.0)
                off, gap = 0.0, 0.0
                for step, layers in enumerate(_descend(initial, target.matrix, lr, 600)):
                    rotated = in_frames(layers, _frames(target, depth))
                    values = np.einsum("lii->li", rotated)
                    off = max(off, float(np.max(np.abs(rotated - np.einsum("li,ij->lij", values, np.eye(_D))))))
                    gap = max(gap, float(np.max(np.abs(values[:-1] - d))), float(np.max(np.abs(values[-1] - last))))
                    if step == 1 and not symmetric:
                        first = np.max(np.abs(layers[-1] - lr * alpha ** (depth - 1) * target.matrix))
                        yield at_most(first, 1e-14, depth=depth, kappa=kappa, what="W_L(1)")
                    miss = last * d ** (depth - 1) - goal
                    move = share * lr * miss
                    d, last = d - move * last * d ** (depth - 2), last - move * d ** (depth - 1)
                case = {"depth": depth, "kappa": kappa, "initialization": "balanced" if symmetric else "one-zero"}
                yield at_most(off, 1e-11, what="off the diagonal, all steps", **case)
                yield at_most(gap, 1e-10, what="values from their recursion, all steps", **case)


def _compact(matrix: np.ndarray, rank: int, like: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
    """U, s, and V of a matrix of this rank, with the signs of the left vectors `like`."""
    u, s, vt = np.linalg.svd(matrix, full_matrices=False)
    flip = np.ones(rank) if like is None else np.sign(np.sum(u[:, :rank] * like, axis=0))
    return u[:, :rank] * flip, s[:rank], vt[:rank].T * flip


@claim("stability/C28", "exact", "Proposition 1, proof, (21), (22), (23)", negative_control={"sign": -1.0})
def singular_vectors_move(size: str, sign: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """The velocities of the singular vectors and values of a moving matrix of rank r, (21) to (23), are those of its
    compact SVD; and layers whose singular vectors rest make U_l^T G_l V_l diagonal.
    """
    rng, h = np.random.default_rng(seed), 1e-5
    for shape, rank in (((5, 4), 2), ((4, 4), 4), ((3, 6), 3)):
        left, right = rng.normal(size=(shape[0], rank)), rng.normal(size=(rank, shape[1]))
        moved = [rng.normal(size=part.shape) for part in (left, right)]

        u, s, v = _compact(left @ right, rank)
        velocity = moved[0] @ right + left @ moved[1]
        inner = u.T @ velocity @ v
        gaps = s[None, :] ** 2 - s[:, None] ** 2
        h_matrix = np.divide(1.0, gaps, out=np.zeros_like(gaps), where=gaps != 0)
        u_rate = u @ (h_matrix * (inner * s + s[:, None] * inner.T)) + sign * (velocity @ v - u @ inner) / s
        v_rate = v @ (h_matrix * (s[:, None] * inner + inner.T * s)) + sign * (velocity.T @ u - v @ inner.T) / s
        ends = ((left + t * moved[0]) @ (right + t * moved[1]) for t in (-h, h))
        low, high = (_compact(end, rank, u) for end in ends)
        for name, k, rate in (("U", 0, u_rate), ("S", 1, np.diag(inner)), ("V", 2, v_rate)):
            measured = (high[k] - low[k]) / (2 * h)
            gap = np.max(np.abs(measured - rate)) / np.max(np.abs(measured))
            yield at_most(gap, 1e-5, shape=shape, rank=rank, what=f"velocity of {name}")
    target = _target(seed)
    for depth in _depths(size):
        *_, layers = _descend(_one_zero(0.3, depth), target.matrix, _lr(1.5, depth), 5)
        pulled = in_frames(layer_gradients(layers, lambda a: a - target.matrix), _frames(target, depth))
        off = np.max(np.abs(pulled - np.einsum("lij,ij->lij", pulled, np.eye(_D))))
        yield at_most(off / np.max(np.abs(pulled)), 1e-13, depth=depth, what="U_l^T G_l V_l off the diagonal")


# What descent keeps of the flow --------------------------------------------------------------------------------------


@claim("stability/C29", "asymptotic", "section 2, initialization", negative_control={"order": 1})
def balance_under_descent(size: str, order: int = 2, seed: Seed = 0) -> Iterator[Finding]:
    """Zero balance, an invariant of the flow, is left by one step of descent at second order in the learning rate, at
    every depth; the balanced initialization of (3) keeps it to rounding where the target is symmetric.
    """
    rng = np.random.default_rng(seed)
    for depth in _depths(size):
        initial = [np.asarray(w) for w in balanced(rng.normal(size=(_D, _D)), (_D,) * (depth - 1)).layers]

        def imbalance(layers: Sequence[np.ndarray]) -> float:
            return max(float(np.linalg.norm(a @ a.T - b.T @ b)) for a, b in pairwise(layers))

        target = _target(seed)
        drifts = [imbalance(list(_descend(initial, target.matrix, lr, 1))[-1]) for lr in (1e-3, 1e-4)]
        yield within(drifts[0] / drifts[1] / 10**order, 0.9, 1.1, depth=depth, what="drift at ten times the lr")
        even = _target(seed, symmetric=True)
        *_, end = _descend([0.3 * np.eye(_D)] * depth, even.matrix, _lr(1.8, depth), 500)
        yield at_most(imbalance(end), 1e-11, depth=depth, what="imbalance after 500 steps, balanced start of (3)")


@claim("stability/C30", "bound", "introduction", negative_control={"share": 0.5})
def descent_lemma(size: str, share: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """One step lowers the loss by lr (2 - lr beta) / 2 times the squared gradient at least, with beta the largest
    sharpness between both ends of the step, for lr on either side of 2 / beta; and a step beyond 2 / beta may raise it.
    """
    rng = np.random.default_rng(seed)
    goal = np.diag([2.0, 1.0])

    def loss(flat: Any) -> Any:
        a, b, c = flat.reshape(3, 2, 2)
        return jnp.sum((c @ b @ a - goal) ** 2) / 2

    slope = jax.jit(jax.grad(loss))
    top = jax.jit(jax.vmap(lambda flat: jnp.max(jnp.abs(jnp.linalg.eigvalsh(jax.hessian(loss)(flat))))))
    rises = 0
    least = np.stack([np.diag([2.0, 1.0]) ** (1 / 3)] * 3).ravel()
    for draw in range(10 if size == "quick" else 200):
        # every other one close to a minimum
        flat = rng.normal(size=12) if draw % 2 else least + 0.1 * rng.normal(size=12)
        g = np.asarray(slope(flat))
        for scale in (0.5, 1.5, 2.5):
            lr = scale / float(top(flat[None])[0])
            beta = share * float(np.max(np.asarray(top(flat - np.linspace(0, lr, 41)[:, None] * g))))
            change = float(loss(jnp.asarray(flat - lr * g)) - loss(jnp.asarray(flat)))
            rises += change > 0
            allowed = -lr * (2 - lr * beta) / 2 * float(g @ g)
            case = {"draw": draw, "lr": f"{scale} / S"}
            yield at_most((change - allowed) / (lr * float(g @ g)), 1e-9, **case, what="loss less its bound")
    yield at_least(rises, 1, what="steps that raise the loss")


@claim("stability/C31", "asymptotic", "section 2, initialization", negative_control={"power": 0.0})
def zero_layer_as_a_limit(size: str, power: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """A last layer that starts at alpha' I instead of zero changes the run in proportion to alpha' / alpha, below the
    edge at every step, and beyond it descent ends on the same 2-cycle.
    """
    alpha = 0.3
    for depth in (3,) if size == "quick" else (2, 3, 4):
        target = _target(seed)
        below, beyond = _lr(1.8, depth), _lr(2.2, depth)
        path = np.array([end_to_end(layers) for layers in _descend(_one_zero(alpha, depth), target.matrix, below, 400)])
        gaps = []
        for share in (1e-2, 1e-3):
            initial = _one_zero(alpha, depth, alpha * share**power)
            other = np.array([end_to_end(layers) for layers in _descend(initial, target.matrix, below, 400)])
            gaps.append(np.max(np.linalg.norm(other - path, axis=(1, 2))) / _SPECTRUM[0])
            *_, before, end = _descend(initial, target.matrix, beyond, 4000)
            found = stability.orbit(_SPECTRUM[0], depth, beyond)
            tops = np.sort([np.linalg.svd(end_to_end(layers))[1][0] for layers in (before, end)])
            case = {"depth": depth, "alpha' / alpha": share}
            yield close(tops, [found.bottom, found.top], atol=1e-6, **case, what="top value on the 2-cycle")
        yield within(gaps[0] / gaps[1], 7, 14, depth=depth, what="deviation, ten times alpha'")
        yield at_most(gaps[1], 0.01, depth=depth, what="deviation at alpha' = alpha / 1000")


# Self-stabilization, and the minima of networks that are not linear --------------------------------------------------


@claim("stability/C32", "exact", "section 4.2, text on self-stabilization", negative_control={"share": 0.05})
def no_self_stabilization(size: str, share: float = 1.0) -> Iterator[Finding]:
    """On the 2-cycle the sharpness alternates about 2/lr, and the two assumptions of self-stabilization do not hold
    there: in the high phase the gradient is parallel to the top eigenvector u instead of orthogonal to it, and the
    gradient of the sharpness is parallel to u as well instead of in the null space of the Hessian. In the low phase,
    where the top eigenvector may be that of a pair, only the second is left to fail.
    """
    cases: tuple[tuple[int, tuple[float, ...]], ...] = ((3, (10.0, 6.0, 3.0)), (2, (10.0, 6.0, 3.0)))
    for depth, spectrum in cases if size == "quick" else (*cases, (4, (10.0, 2.0, 1.0)), (5, (10.0, 6.0, 3.0))):
        edge = float(stability.curvature(spectrum[0], depth))
        goal, lr = jnp.diag(jnp.asarray(spectrum)), 2.2 / edge
        orbit, rest = stability.orbit(spectrum[0], depth, lr), spectrum[0] ** (1 / depth)

        def loss(flat: Any, depth: int = depth, goal: Any = goal) -> Any:
            return jnp.sum((end_to_end(flat.reshape(depth, 3, 3)) - goal) ** 2) / 2

        hessian = jax.jit(jax.hessian(loss))
        sharpness = jax.jit(jax.grad(lambda flat, hessian=hessian: jnp.linalg.eigvalsh(hessian(flat))[-1]))
        for rho, phase in ((float(orbit.low), "low"), (float(orbit.high), "high")):
            modes = np.array([rest + share * (rho - rest), *np.array(spectrum[1:]) ** (1 / depth)])
            flat = jnp.asarray(np.stack([np.diag(modes)] * depth).ravel())
            matrix = np.asarray(hessian(flat))
            values, vectors = np.linalg.eigh(matrix)
            gradient, turn = np.asarray(jax.grad(loss)(flat)), np.asarray(sharpness(flat))
            case: dict[str, Any] = {"depth": depth, "phase": phase}
            level = values[-1] * lr / 2
            inside = np.linalg.norm(matrix @ turn) / (values[-1] * np.linalg.norm(turn))
            if phase == "high":
                yield at_least(level, 1.2, **case, what="sharpness / (2/lr)")
                cosine = abs(gradient @ vectors[:, -1]) / np.linalg.norm(gradient)
                yield close(cosine, 1.0, atol=1e-9, **case, what="|cos| of the gradient and u")
                yield close(inside, 1.0, atol=1e-9, **case, what="|H grad S| / (S |grad S|)")
            else:
                yield at_most(level, 0.9, **case, what="sharpness / (2/lr)")
                yield at_least(inside, 0.5, **case, what="|H grad S| / (S |grad S|)")


@claim(
    "stability/C33",
    "statistical",
    "section 4.2, text on negative curvature",
    negative_control={"lr": 0.03},
    band="three standard deviations over five seeds",
)
def negative_curvature_of_relu(size: str, lr: float = 0.2, seed: Seed = 0) -> Iterator[Finding]:
    """Where a network with relu trains at the edge the Hessian has negative eigenvalues, by 0.5 % of the largest and
    more; they are those of training, not of the minima: at a sixth of the learning rate, where a wide network fits its
    samples, the lowest one goes to zero with the loss. Linear networks have none where they converge (stability/C17).
    """
    for draw in range(seed, seed + (1 if size == "quick" else 4)):
        rng = np.random.default_rng(draw)
        x, y = rng.normal(size=(40, 5)), rng.normal(size=(40, 2))
        problem = supervised(y)
        shares = []
        for width, rate, steps in ((12, lr, 8000), (40, lr, 8000), (40, 0.03, 8000), (40, 0.03, 24_000)):
            network = mlp(jax.random.key(draw), x, (width, 2), scale=1.0)
            run = simulate(problem, network, SGD(rate), steps=steps, record=at([steps]), observe=["loss"])
            spectrum = np.asarray(observe.hessian_spectrum(run.final, problem))
            shares.append(-spectrum[-1] / spectrum[0])
            case = {"draw": draw, "width": width, "lr": rate, "steps": steps, "what": "- lowest / largest eigenvalue"}
            if rate == lr:
                yield at_least(shares[-1], 0.005, **case)
            else:
                yield at_most(shares[-1], 1e-3, **case)
        yield at_most(shares[-1] / shares[-2], 0.5, draw=draw, what="three times the steps at the small lr, ratio")


@evidence("stability/E36", negative_control={"lr": 0.03})
def oscillation_beside_negative_curvature(size: str, lr: float = 0.2, seed: Seed = 0) -> Iterator[Finding]:
    """Networks with relu at the edge, of widths 12 and 40, the last 1000 of 8000 steps: the Hessian has an eigenvalue
    of -0.5 % of the largest or less, and the loss rises at 41 to 55 % of the steps, by 0.8 to 3.4 % of itself. It is on
    no orbit of period 2, as linear networks are: in two steps the loss changes by 1.6 to 2 times as much as in one.
    """
    for draw in range(seed, seed + (2 if size == "quick" else 4)):
        rng = np.random.default_rng(draw)
        x, y = rng.normal(size=(40, 5)), rng.normal(size=(40, 2))
        problem = supervised(y)
        for width in (12, 40):
            network = mlp(jax.random.key(draw), x, (width, 2), scale=1.0)
            run = simulate(problem, network, SGD(lr), steps=8000, record=every(1), observe=["loss"])
            spectrum, loss = np.asarray(observe.hessian_spectrum(run.final, problem)), np.asarray(run["loss"])[-1001:]
            case = {"draw": draw, "width": width, "lr": lr}
            swing = np.median(np.abs(np.diff(loss)))
            yield at_least(-spectrum[-1] / spectrum[0], 0.005, **case, what="- lowest / largest eigenvalue")
            yield at_least(np.mean(np.diff(loss) > 0), 0.3, **case, what="share of steps at which the loss rises")
            yield at_least(swing / np.median(loss), 0.004, **case, what="change of the loss in a step, over the loss")
            again = np.median(np.abs(loss[2:] - loss[:-2]))
            yield at_least(again / swing, 1.0, **case, what="change in two steps over that in one: no period 2")
            yield as_printed(at_most(swing / np.median(loss), 1e-3, **case, what="change of the loss in a step"))
