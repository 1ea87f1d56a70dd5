"""Claims of what momentum, decay, mini-batches, label noise, Adam and Muon do to linear networks.

The limits of momentum are those of Cohen et al. (2021) and of frozen Adam those of Cohen et al. (2022); what no text
that we know states is "derived". Steps are written out here as frameworks write them, beside the formulas they check.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations, pairwise, product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import minimize

from linnet import observe
from linnet.claims.claim import Finding, Seed, at_least, at_most, claim, close, near, two_sided, within
from linnet.claims.layers import (
    Layers,
    Slope,
    end_to_end,
    flattened,
    gaussian_layers,
    gradient_flow,
    layer_gradients,
    unflattened,
)
from linnet.problems import factorization
from linnet.states import Weights
from linnet.theory import optimizers

# Training, written out ------------------------------------------------------------------------------------------------


class _How(NamedTuple):
    """Momentum and decay of a step, by the names that theory gives them."""

    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    decoupled: bool = False

    @property
    def mu(self) -> float:
        """The decay of the cost whose minimum it finds."""
        how: Any = {"momentum": self.momentum, "dampening": self.dampening, "decoupled": self.decoupled}
        return float(optimizers.effective_decay(self.weight_decay, **how))


def _stepped(theta: Any, v: Any, g: Any, lr: Any, how: _How, precondition: Any = 1.0) -> tuple[Any, Any]:
    """One step of anything that adds up."""
    g = g if how.decoupled else g + how.weight_decay * theta
    share = 1 - how.dampening
    v = how.momentum * v + share * g
    along = share * g + how.momentum * v if how.nesterov else v
    return (1 - lr * how.weight_decay if how.decoupled else 1.0) * theta - lr * along / precondition, v


def _trained(layers: Layers, slope: Slope, lr: float, steps: int, how: _How) -> list[Any]:
    ws, vs = list(layers), [np.zeros(w.shape) for w in layers]
    for _ in range(steps):
        moved = [_stepped(w, v, g, lr, how) for w, v, g in zip(ws, vs, layer_gradients(ws, slope), strict=True)]
        ws, vs = [w for w, _ in moved], [v for _, v in moved]
    return ws


def _target(rng: np.random.Generator, s: Sequence[float]) -> tuple[Any, Any, Any]:
    """A square target of these singular values, with its frames."""
    u, v = np.linalg.qr(rng.normal(size=(2, len(s), len(s))))[0]
    return (u * np.asarray(s)) @ v.T, u, v


def _resting(rng: np.random.Generator, s: Sequence[float], depth: int, mu: float) -> tuple[Any, Layers]:
    """A target, and balanced layers at the minimum with decay, in random frames."""
    target, u, v = _target(rng, s)
    values = np.asarray(optimizers.decayed_value(np.asarray(s), mu, depth)) ** (1 / depth)
    frames = [v, *np.linalg.qr(rng.normal(size=(depth - 1, len(s), len(s))))[0], u]
    return target, [(up * values) @ down.T for down, up in pairwise(frames)]


def _gaps(layers: Layers) -> list[Any]:
    """D_l = W_{l+1}^T W_{l+1} - W_l W_l^T."""
    return [w.T @ w - v @ v.T for v, w in pairwise(layers)]


def _apart(first: Sequence[Any], second: Sequence[Any]) -> float:
    return max(float(np.max(np.abs(a - b))) for a, b in zip(first, second, strict=True))


# Stable rates ---------------------------------------------------------------------------------------------------------


def _one_step(
    flat: Any, target: Any, lr: Any, precondition: Any, shapes: tuple[tuple[int, int], ...], how: _How
) -> Any:
    """All weights and their momenta after one step of training, as one vector."""
    theta, v = jnp.split(flat, 2)

    def cost(theta: Any) -> Any:
        ends = np.cumsum([a * b for a, b in shapes])[:-1]
        a = jnp.eye(target.shape[1])
        for w, shape in zip(jnp.split(theta, ends), shapes, strict=True):
            a = w.reshape(shape) @ a
        return jnp.sum((a - target) ** 2) / 2

    return jnp.concatenate(_stepped(theta, v, jax.grad(cost)(theta), lr, how, precondition))


_slopes = jax.jit(jax.jacfwd(_one_step), static_argnames=("shapes", "how"))


class _Edge(NamedTuple):
    moved: float  # by a step at the resting point
    lowest: float  # real part of an eigenvalue of the step's Jacobian, at the predicted edge
    beyond: float  # largest modulus, a little above it


def _edge(depth: int, how: _How, limit: Callable[..., Any], *, adam: bool = False) -> _Edge:
    """The Jacobian of one step of the whole network, where training rests, at the largest stable learning rate."""
    rng = np.random.default_rng(depth)
    target, layers = _resting(rng, (2.0, 1.9, 0.8), depth, how.mu)
    theta = flattened(layers)
    precondition = rng.uniform(0.5, 2.0, theta.size) if adam else np.ones(theta.size)
    shapes = tuple(w.shape for w in layers)
    at = np.concatenate([theta, -how.weight_decay * theta if how.decoupled else 0 * theta])
    if adam:
        # with b = 0 a step is 1 - lr P^{-1} H
        quiet = np.asarray(_slopes(at, target, 1.0, precondition, shapes, _How()))[: theta.size, : theta.size]
        sharp = float(np.max(np.linalg.eigvals(np.eye(theta.size) - quiet).real))
    else:
        sharp = optimizers.decayed_sharpness([2.0, 1.9, 0.8], how.mu, depth) - how.mu
    lr = float(limit(sharp, **how._asdict()))
    after = np.asarray(_one_step(jnp.asarray(at), target, lr, precondition, shapes, how))
    here, beyond = (
        np.linalg.eigvals(np.asarray(_slopes(at, target, f * lr, precondition, shapes, how))) for f in (1.0, 1.001)
    )
    return _Edge(float(np.max(np.abs(after - at))), float(np.min(here.real)), float(np.max(np.abs(beyond))))


def _edges(size: str, hows: Sequence[_How], limit: Callable[..., Any], *, adam: bool = False) -> Iterator[Finding]:
    for depth in (2, 3) if size == "quick" else (2, 3, 4):
        for how in hows:
            found, case = _edge(depth, how, limit, adam=adam), {"depth": depth, **how._asdict()}
            yield at_most(found.moved, 1e-12, what="a step at the resting point", **case)
            yield at_most(abs(found.lowest + 1), 1e-9, what="lowest eigenvalue + 1 at the largest stable lr", **case)
            yield at_least(found.beyond - 1, 1e-5, what="growth a step at 1.001 of it", **case)


def _wrong(**changed: Any) -> Callable[..., Any]:
    return lambda sharp, **how: optimizers.largest_stable_lr(sharp, **how | changed)


@claim("optimizers/C1", "exact", "Cohen et al. 2021", negative_control={"limit": _wrong(momentum=0.0)})
def heavy_ball(size: str, limit: Callable[..., Any] = optimizers.largest_stable_lr) -> Iterator[Finding]:
    """With heavy-ball momentum v <- b v + g a minimum is stable iff its sharpness is below 2 (1 + b) / lr."""
    yield from _edges(size, [_How(momentum=beta) for beta in (0.0, 0.5, 0.9)], limit)
    # whole matrices, not their linearization
    rng = np.random.default_rng(0)
    for depth in (2, 3):
        target, layers = _resting(rng, (2.0, 1.0), depth, 0.0)
        near = [w + 1e-4 * rng.normal(size=w.shape) for w in layers]
        lr = float(limit(optimizers.decayed_sharpness([2.0, 1.0], 0.0, depth), momentum=0.7))
        for factor in (0.98, 1.02):
            ends = _trained(near, partial(np.add, -target), factor * lr, 1500, _How(momentum=0.7))
            loss = np.sum((end_to_end(ends) - target) ** 2)
            case = {"depth": depth, "beta": 0.7, "what": f"loss after 1500 steps at {factor} of the largest stable"}
            yield at_most(loss, 1e-20, **case) if factor < 1 else at_least(loss, 1e-4, **case)


@claim("optimizers/C2", "exact", "Cohen et al. 2021", negative_control={"limit": _wrong(nesterov=False)})
def nesterov(size: str, limit: Callable[..., Any] = optimizers.largest_stable_lr) -> Iterator[Finding]:
    """With Nesterov's momentum in PyTorch's form, steps along g + b v, a minimum is stable iff its sharpness is below
    2 (1 + b) / ((1 + 2 b) lr).
    """
    yield from _edges(size, [_How(momentum=beta, nesterov=True) for beta in (0.3, 0.9)], limit)


@claim("optimizers/C3", "exact", "Cohen et al. 2022", negative_control={"limit": _wrong(dampening=0.0)})
def averaged(size: str, limit: Callable[..., Any] = optimizers.largest_stable_lr) -> Iterator[Finding]:
    """With averaged momentum, and with Adam whose preconditioner P is frozen, a minimum is stable iff the largest
    eigenvalue of H, or of P^{-1} H, is below 2 (1 + b) / ((1 - b) lr): 38 / lr at b = 0.9.
    """
    hows = [_How(momentum=beta, dampening=beta) for beta in (0.5, 0.9)]
    yield from _edges(size, hows, limit)
    yield from _edges(size, hows, limit, adam=True)
    yield near(float(limit(38.0, **_How(momentum=0.9, dampening=0.9)._asdict())), 1, 1e-12, sharpness=38)


@claim("optimizers/C4", "exact", "derived", negative_control={"limit": _wrong(decoupled=False)})
def decay_and_steps(size: str, limit: Callable[..., Any] = optimizers.largest_stable_lr) -> Iterator[Finding]:
    """With decay mu in the gradient training rests at the minimum of the cost with mu, and S + mu counts for S;
    decoupled it rests at that of (1 - b) mu, or of mu where momentum averages, and is stable iff
    n S + (1 + b) mu < 2 (1 + b) / lr, n = 1, 1 + 2 b with Nesterov's form, times 1 - b where momentum averages.
    """
    mixed = [(0.0, False), (0.6, False), (0.0, True)]  # heavy-ball, averaged, and Nesterov
    hows = [_How(0.6, one, other, 0.3, apart) for one, other in mixed for apart in (False, True)]
    yield from _edges(size, hows, limit)


# Decay ----------------------------------------------------------------------------------------------------------------


@claim("optimizers/C5", "exact", "derived", negative_control={"power": 1})
def decayed_balance(size: str, power: int = 2, seed: Seed = 0) -> Iterator[Finding]:
    """With decay W_{l+1}^T W_{l+1} - W_l W_l^T shrinks as e^{-2 mu t} under flow, and descent makes (1 - lr mu)^2 of it
    plus lr^2 (g_{l+1}^T g_{l+1} - g_l g_l^T), for every cost and depth.
    """
    rng, lr, mu = np.random.default_rng(seed), 0.03, 0.4
    for depth in (2, 3, 4):
        sizes = [3, *rng.integers(2, 5, depth - 1), 2]
        target = rng.normal(size=(2, 3))
        costs = {"quadratic": lambda a, y=target: a - y, "quartic": lambda a, y=target: (a - y) ** 3}
        for name, slope in costs.items():
            layers = gaussian_layers(rng, sizes, 0.5)
            gs = layer_gradients(layers, slope)
            after = [(1 - lr * mu) * w - lr * g for w, g in zip(layers, gs, strict=True)]
            expected = [
                (1 - lr * mu) ** power * gap + lr**2 * (h.T @ h - g @ g.T)
                for gap, (g, h) in zip(_gaps(layers), pairwise(gs), strict=True)
            ]
            yield at_most(_apart(_gaps(after), expected), 1e-13, depth=depth, cost=name, what="one step")
            ends = gradient_flow(layers, slope, [1.5], weight_decay=mu)[-1]
            left = [np.exp(-power * mu * 1.5) * gap for gap in _gaps(layers)]
            yield at_most(_apart(_gaps(ends), left), 1e-9, depth=depth, cost=name, what="flow to t = 1.5")


def _soft(target: Any, decay: float, depth: int) -> Any:
    return np.maximum(target - decay, 0.0)


@claim("optimizers/C6", "exact", "derived", negative_control={"value": _soft})
def decayed_minimum(
    size: str, value: Callable[..., Any] = optimizers.decayed_value, seed: Seed = 0
) -> Iterator[Finding]:
    """The global minimum with decay has singular values sigma with (s - sigma) sigma^{1-2/L} = mu, the larger root, s
    those of the target, for as many of the largest modes as the widths leave room for; a mode is 0 below the target
    value (L-1)/(L-2) [mu (L-2)]^{L/(2L-2)}, and max(s - mu, 0) for two layers.
    """
    rng, mu, s = np.random.default_rng(seed), 0.3, (3.0, 2.0, 0.5)
    for depth, width in ((2, 3), (2, 2), (3, 3), (3, 2), (4, 3)):
        target, _, _ = _target(rng, s)
        lowest, found = np.inf, np.array(s)
        for _ in range(4 if size == "quick" else 12):
            cost, ends = _lowest(gaussian_layers(rng, [3, *[width] * (depth - 1), 3]), target, mu)
            if cost < lowest:
                lowest, found = cost, np.linalg.svd(end_to_end(ends))[1]
        expected = np.array(value(np.array(s), mu, depth))
        expected[width:] = 0
        yield close(found, expected, atol=1e-6, depth=depth, width=width, what="singular values")
    for depth in (3, 5):
        wins = float(optimizers.decay_thresholds(mu, depth).wins)
        for factor in (0.999, 1.001):
            grid, s0 = np.linspace(0, 1.2 * wins, 400_001), factor * wins
            best = grid[np.argmin((s0 - grid) ** 2 / 2 + mu * depth / 2 * grid ** (2 / depth))]
            yield close(float(value(s0, mu, depth)), best, atol=1e-5, depth=depth, what=f"{factor} of the threshold")


def _lowest(layers: Layers, target: Any, mu: float) -> tuple[float, Layers]:
    """A minimum of the whole cost near these layers."""
    shapes = [w.shape for w in layers]

    def both(flat: Any) -> tuple[float, Any]:
        ws = unflattened(flat, shapes)
        left = end_to_end(ws) - target
        slopes = flattened(layer_gradients(ws, lambda a: a - target))
        return float(np.sum(left**2) / 2 + mu / 2 * flat @ flat), slopes + mu * flat

    initial = flattened(layers)
    found = minimize(
        both, initial, jac=True, method="L-BFGS-B", options={"ftol": 1e-16, "gtol": 1e-10, "maxiter": 5000}
    )
    return float(found.fun), unflattened(found.x, shapes)


_hessian = jax.jit(observe.hessian_spectrum)


def _modes_alone(s: Any, decay: float, depth: int) -> Any:
    """What the modes have by themselves, and nothing of their pairs."""
    alone = np.concatenate([optimizers.decayed_curvatures([value], decay, depth) for value in s])
    return np.sort(np.append(alone, np.zeros(depth * len(s) * (len(s) - 1))))[::-1]


@claim("optimizers/C7", "exact", "derived", negative_control={"curvatures": _modes_alone})
def decayed_spectrum(size: str, curvatures: Callable[..., Any] = optimizers.decayed_curvatures) -> Iterator[Finding]:
    """At the minimum with decay a mode has the curvature L sigma^{2-2/L} - (L-2) mu once and 2 mu L - 1 times, each
    pair of modes adds a block of 2 L, and with close top values the pair's top is above the mode's own and sets the
    edge.
    """
    rng = np.random.default_rng(0)
    for depth in (2, 3) if size == "quick" else (2, 3, 4):
        for s in ((2.0, 1.95), (2.0, 2.0, 0.9), (3.0, 0.02, 0.0)):
            target, layers = _resting(rng, s, depth, 0.1)
            measured = np.asarray(_hessian(Weights(layers), factorization(target))) + 0.1  # of the decay
            found = curvatures(s, 0.1, depth)
            yield close(measured, found, atol=1e-10, depth=depth, targets=s, what="whole spectrum")
        sigma = float(optimizers.decayed_value(2.0, 0.1, depth))
        own = depth * sigma ** (2 - 2 / depth) - (depth - 2) * 0.1
        pair, alone = (float(np.max(curvatures(s, 0.1, depth))) for s in ((2.0, 1.95), (2.0,)))
        yield close(alone, own, atol=1e-12, depth=depth, what="one mode")
        yield at_least(pair - own, 0.1, depth=depth, what="what the pair has above it")
    both = float(np.max(curvatures((2.0, 1.95), 0.1, 2)))
    yield close(both, 1.9 + 1.85 + 0.2, atol=1e-12, depth=2, what="sigma_1 + sigma_2 + 2 mu")


# Time and balance -----------------------------------------------------------------------------------------------------


@claim(
    "optimizers/C8",
    "asymptotic",
    "derived",
    negative_control={"time": lambda lr, steps, momentum, *, dampening=0.0: lr * steps},
)
def momentum_is_time(size: str, time: Callable[..., Any] = optimizers.momentum_time) -> Iterator[Finding]:
    """So many steps with heavy-ball or Nesterov's momentum are gradient flow at the time lr steps / (1 - b), and with
    averaged momentum at lr steps, with an error of first order in lr.
    """
    rng = np.random.default_rng(1)
    target, layers = rng.normal(size=(2, 3)), gaussian_layers(rng, [3, 4, 2], 0.5)
    ends = gradient_flow(layers, lambda a: a - target, [2.0])[-1]
    for how in (_How(0.8), _How(0.8, nesterov=True), _How(0.8, dampening=0.8)):
        errors = []
        for steps in (2000, 4000):
            lr = 2.0 / float(time(1.0, steps, how.momentum, dampening=how.dampening))
            errors.append(_apart(_trained(layers, lambda a: a - target, lr, steps, how), ends))
        case = how._asdict()
        yield within(errors[0] / errors[1], 1.98, 2.02, what="distance after 2000 steps over that after 4000", **case)


@claim("optimizers/C9", "exact", "derived", negative_control={"rate": 2.0})
def inertia(size: str, rate: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """Under the inertial flow theta'' + gamma theta' = -grad C the matrix W_l W_l'^T - W_l' W_l^T + W_{l+1}^T W_{l+1}'
    - W_{l+1}'^T W_{l+1} of a hidden layer is e^{-gamma t} of its initialization, and D = W_{l+1}^T W_{l+1} - W_l W_l^T
    is not conserved: D'' + gamma D' = 2 (W_{l+1}'^T W_{l+1}' - W_l' W_l'^T).
    """
    rng, gamma, end = np.random.default_rng(seed), 0.8, 2.0
    for depth in (2, 3):
        sizes = [3, *[4] * (depth - 1), 2]
        target, layers = rng.normal(size=(2, 3)), gaussian_layers(rng, sizes, 0.6)
        for name, slope in (("quadratic", lambda a, y=target: a - y), ("quartic", lambda a, y=target: (a - y) ** 3)):
            before, speeds = layers, gaussian_layers(rng, sizes, 0.5)
            after, speeds_after, sums = _inertial(before, speeds, slope, gamma, end)
            kept = [np.exp(-rate * gamma * end) * m for m in _moments(before, speeds)]
            case = {"depth": depth, "cost": name}
            yield at_most(_apart(_moments(after, speeds_after), kept), 1e-9, what="moments", **case)
            rates = [b - a for a, b in zip(_gap_speed(before, speeds), _gap_speed(after, speeds_after), strict=True)]
            moved = [b - a for a, b in zip(_gaps(before), _gaps(after), strict=True)]
            changed = [a + gamma * b for a, b in zip(rates, moved, strict=True)]
            yield at_most(_apart(changed, [2 * rate * x for x in sums]), 1e-9, what="D' + gamma D, changes", **case)
            yield at_least(_apart(_gaps(before), _gaps(after)), 1e-2, what="D is not conserved", **case)


def _moments(ws: Layers, vs: Layers) -> list[Any]:
    return [
        w @ v.T - v @ w.T + up.T @ fast - fast.T @ up
        for (w, up), (v, fast) in zip(pairwise(ws), pairwise(vs), strict=True)
    ]


def _gap_speed(ws: Layers, vs: Layers) -> list[Any]:
    return [
        fast.T @ up + up.T @ fast - v @ w.T - w @ v.T
        for (w, up), (v, fast) in zip(pairwise(ws), pairwise(vs), strict=True)
    ]


def _inertial(
    ws: Layers, vs: Layers, slope: Callable[[Any], Any], gamma: float, end: float
) -> tuple[Layers, Layers, Layers]:
    """Where the inertial flow ends, its speeds there, and the integrals of W_{l+1}'^T W_{l+1}' - W_l' W_l'^T."""
    shapes = [w.shape for w in ws]
    inner = [(v.shape[0], v.shape[0]) for v in ws[:-1]]
    all_of_it = [*shapes, *shapes, *inner]

    def velocity(_: float, flat: Any) -> Any:
        parts = unflattened(flat, all_of_it)
        here, speed = parts[: len(ws)], parts[len(ws) : 2 * len(ws)]
        force = [-g - gamma * v for g, v in zip(layer_gradients(here, slope), speed, strict=True)]
        return flattened([*speed, *force, *_gaps(speed)])

    initial = flattened([*ws, *vs, *(np.zeros(shape) for shape in inner)])
    found = solve_ivp(velocity, (0, end), initial, rtol=1e-12, atol=1e-13, method="DOP853").y[:, -1]
    parts = unflattened(found, all_of_it)
    return parts[: len(ws)], parts[len(ws) : 2 * len(ws)], parts[2 * len(ws) :]


# Noise ----------------------------------------------------------------------------------------------------------------


def _squares(hessians: Any, batch: int, lr: float, beta: float, replacement: bool) -> float:
    """The spectral radius of E[T (x) T] over every batch there is."""
    n, d, _ = hessians.shape
    draws = product(range(n), repeat=batch) if replacement else combinations(range(n), batch)
    steps = []
    for draw in draws:
        h = hessians[list(draw)].mean(axis=0)
        steps.append(np.block([[(1 + beta) * np.eye(d) - lr * h, -beta * np.eye(d)], [np.eye(d), np.zeros((d, d))]]))
    return float(np.max(np.abs(np.linalg.eigvals(np.mean([np.kron(t, t) for t in steps], axis=0)))))


@claim("optimizers/C10", "exact", "derived", negative_control={"more": 1.05})
def batches(size: str, more: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """Where every sample is fitted, heavy-ball momentum on a fresh batch each step is stable in mean square iff
    lr < 2 (1 - b^2) h / ((1 + b) Var h_B + (1 - b) h^2) in one dimension; in d dimensions iff 1 / lr is above the
    largest eigenvalue of one symmetric map, which is where the spectral radius of E[T (x) T] reaches 1. On fresh
    Gaussian samples of covariance D that is sum_j lr h_j / (2 (1 - b) - lr c h_j) < B, c = 1/B + (1 - b)/(1 + b).
    """
    rng = np.random.default_rng(seed)
    for beta, replacement in ((0.0, False), (0.9, False), (0.5, True)):
        for batch in (1, 2):
            h = rng.uniform(0.2, 3.0, 5)
            variance = optimizers.batch_variance(h, batch, replacement=replacement)
            lr = more * float(optimizers.batch_stable_lr(h.mean(), variance, momentum=beta))
            case = {"beta": beta, "replacement": replacement, "batch": batch}
            found = _squares(h[:, None, None], batch, lr, beta, replacement)
            yield close(found, 1, atol=1e-10, what="spectral radius - 1, one dimension", **case)
            for d in (2,) if size == "quick" else (2, 3):
                a = rng.normal(size=(4, d, 2))
                hessians = a @ a.swapaxes(1, 2)
                lr = more * optimizers.largest_batch_lr(hessians, batch, momentum=beta, replacement=replacement)
                found = _squares(hessians, batch, lr, beta, replacement)
                yield close(found, 1, atol=1e-9, what=f"spectral radius - 1, {d} dimensions", **case)
                below = optimizers.batch_spectral_radius(
                    hessians, batch, 0.7 * lr, momentum=beta, replacement=replacement
                )
                again = _squares(hessians, batch, 0.7 * lr, beta, replacement)
                yield close(below, again, atol=1e-7, what=f"spectral radius at 0.7, {d} dimensions", **case)
    # six points with the first five moments of a Gaussian: the squares of a step see no more than four
    points = np.array(list(product([0, 0, 0, 0, math.sqrt(3), -math.sqrt(3)], repeat=2)))
    for beta in (0.0, 0.9):
        h = rng.uniform(0.1, 3.0, 2)
        inputs = points * np.sqrt(h)
        for batch in (1, 2):
            lr = more * optimizers.largest_online_lr(h, batch, momentum=beta)
            found = _squares(inputs[:, :, None] * inputs[:, None, :], batch, lr, beta, True)
            yield close(found, 1, atol=1e-10, what="spectral radius - 1, Gaussian samples", beta=beta, batch=batch)
    # shuffled passes are another law: without momentum each takes (1 - lr h_i)^2 of all samples, and its limit is
    # larger
    h = np.array([0.1, 0.2, 0.3, 0.4, 1.5])
    lr = more * float(optimizers.batch_stable_lr(h.mean(), optimizers.batch_variance(h, 1)))
    yield at_most(np.prod((1 - 1.1 * lr * h) ** 2), 0.5, what="a shuffled pass at 1.1 of the largest stable", batch=1)
    # with much momentum its limit is smaller; here are passes of two batches
    h = np.linspace(0.5, 1.5, 6) ** 2
    lr = more * float(optimizers.batch_stable_lr(h.mean(), optimizers.batch_variance(h, 3), momentum=0.9))
    means = [h[list(half)].mean() for half in combinations(range(6), 3)]
    steps = [[np.array([[1.9 - 0.9 * lr * x, -0.9], [1, 0]]) for x in (m, 2 * h.mean() - m)] for m in means]
    squares = np.mean([np.kron(second @ first, second @ first) for first, second in steps], axis=0)
    grown = np.max(np.abs(np.linalg.eigvals(squares))) - 1
    yield at_least(grown, 0.01, what="growth of a shuffled pass at 0.9 of the largest stable", batch=3, beta=0.9)


@claim(
    "optimizers/C11",
    "statistical",
    "derived",
    negative_control={"rate": lambda lr, noise, curvature: lr * noise**2},
    level=two_sided(4, 399),
    tests=1,
    band="one step to rounding",
)
def label_noise(size: str, rate: Callable[..., Any] = optimizers.label_noise_rate, seed: Seed = 0) -> Iterator[Finding]:
    """With label noise a step multiplies D = w_j^2 - w_i^2 of two layers of one neuron by 1 - lr^2 r^2 p^2, r the
    residual with its noise and p the product of the other layers; near the minimum of two layers |D| falls as
    e^{-rate t}, t = lr steps, rate = lr delta^2 2/(2 - lr S), delta^2 the variance of the noise.
    """
    rng = np.random.default_rng(seed)
    for depth in (2, 3, 4):
        w, lr, y = rng.normal(size=depth), 0.1, 1.3
        r = np.prod(w) - y - rng.normal()
        after = w - lr * r * np.prod(w) / w
        rest = [np.prod(np.delete(w, [i, j])) for i, j in combinations(range(depth), 2)]
        predicted = [
            (w[j] ** 2 - w[i] ** 2) * (1 - (lr * r * x) ** 2)
            for (i, j), x in zip(combinations(range(depth), 2), rest, strict=True)
        ]
        found = [after[j] ** 2 - after[i] ** 2 for i, j in combinations(range(depth), 2)]
        yield close(np.array(found), predicted, atol=1e-13, depth=depth, what="one step")
    lr, noise, steps, runs = 0.2, 0.05, 20_000, 400 if size == "quick" else 2000
    first, second = np.full(runs, 1.5), np.full(runs, 1.5 + 1e-6)
    logs = np.zeros(runs)
    for _ in range(steps):
        r = second * first - 2.25 - noise * rng.normal(size=runs)
        logs += np.log1p(-((lr * r) ** 2))
        first, second = first - lr * r * second, second - lr * r * first
    measured = -logs / (lr * steps)
    expected, error = float(rate(lr, noise, 4.5)), float(measured.std() / np.sqrt(runs))
    # what S feels of the noise and log(1 - x) + x are of second order in it
    yield close(measured.mean(), expected, rtol=0.01 + 4 * error / expected, what="rate, relative", runs=runs)


# Compression ----------------------------------------------------------------------------------------------------------


def _polar(v: Any) -> Any:
    """U V^T of the compact singular value decomposition: nothing of what is zero."""
    u, s, vt = np.linalg.svd(v, full_matrices=False)
    kept = s > 1e-10 * s[0]
    return u[:, kept] @ vt[kept]


def _whole_polar(v: Any) -> Any:
    u, _, vt = np.linalg.svd(v, full_matrices=False)
    return u @ vt


def _runs(polar: Callable[[Any], Any]) -> dict[str, Callable[[Layers, Any, Any], Layers]]:
    """Thirty steps of each optimizer on 5 samples."""
    hows = {
        "heavy ball": _How(0.9),
        "Nesterov": _How(0.9, nesterov=True),
        "decay": _How(0.5, weight_decay=0.2),
        "decoupled decay": _How(0.5, weight_decay=0.2, decoupled=True),
    }
    plain = {name: lambda ws, x, y, how=how: _on_batches(ws, x, y, how, None) for name, how in hows.items()}
    return {
        **plain,
        "mini-batches": lambda ws, x, y: _on_batches(ws, x, y, _How(0.9), 2),
        "Muon": lambda ws, x, y: _muon(ws, x, y, polar),
        "Adam": _adam,
    }


def _slope_of(x: Any, y: Any) -> Callable[[Any], Any]:
    return lambda a: (a @ x - y) @ x.T / x.shape[1]


def _on_batches(ws: Layers, x: Any, y: Any, how: _How, batch: int | None) -> Layers:
    rng, vs = np.random.default_rng(0), [np.zeros(w.shape) for w in ws]
    for _ in range(30):
        chosen = np.arange(x.shape[1]) if batch is None else rng.choice(x.shape[1], batch, replace=False)
        gs = layer_gradients(ws, _slope_of(x[:, chosen], y[:, chosen]))
        moved = [_stepped(w, v, g, 0.005, how) for w, v, g in zip(ws, vs, gs, strict=True)]
        ws, vs = [w for w, _ in moved], [v for _, v in moved]
    return ws


def _muon(ws: Layers, x: Any, y: Any, polar: Callable[[Any], Any]) -> Layers:
    vs = [np.zeros(w.shape) for w in ws]
    for _ in range(30):
        vs = [0.9 * v + g for v, g in zip(vs, layer_gradients(ws, _slope_of(x, y)), strict=True)]
        ws = [w - 0.01 * polar(v) for w, v in zip(ws, vs, strict=True)]
    return ws


def _adam(ws: Layers, x: Any, y: Any) -> Layers:
    ms, vs = [np.zeros(w.shape) for w in ws], [np.zeros(w.shape) for w in ws]
    for k in range(1, 31):
        gs = layer_gradients(ws, _slope_of(x, y))
        ms = [0.9 * m + 0.1 * g for m, g in zip(ms, gs, strict=True)]
        vs = [0.999 * v + 0.001 * g**2 for v, g in zip(vs, gs, strict=True)]
        ws = [
            w - 0.02 * (m / (1 - 0.9**k)) / (np.sqrt(v / (1 - 0.999**k)) + 1e-8)
            for w, m, v in zip(ws, ms, vs, strict=True)
        ]
    return ws


@claim("optimizers/C12", "exact", "derived", negative_control={"polar": _whole_polar})
def compression(size: str, polar: Callable[[Any], Any] = _polar, seed: Seed = 0) -> Iterator[Finding]:
    """A network whose hidden neurons are cut to the span of the weights on both sides stays the same under heavy
    ball, Nesterov's momentum, decay of both kinds, mini-batches and Muon with the compact polar factor, and is not
    under Adam, which works coordinate by coordinate.
    """
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(3, 5)), rng.normal(size=(2, 5))
    for sizes in ((3, 16, 2), (3, 24, 12, 2)):
        layers = gaussian_layers(rng, sizes, 0.2)
        small = [np.asarray(w) for w in Weights(layers).compress().layers]
        # a polar factor of small singular values amplifies rounding: an initialization changed by that is the measure
        nudged = [w * (1 + 1e-15 * rng.normal(size=w.shape)) for w in layers]
        for name, run in _runs(polar).items():
            whole, cut = (end_to_end(run(ws, x, y)) for ws in (layers, small))
            one, other = (end_to_end(_runs(_polar)[name](ws, x, y)) for ws in (layers, nudged))
            case = {"optimizer": name, "depth": len(layers), "what": "distance after 30 steps"}
            off, allowed = np.max(np.abs(whole - cut)), 1e-12 + 100 * float(np.max(np.abs(one - other)))
            yield at_least(off, 1e-3, **case) if name == "Adam" else at_most(off, allowed, **case)
