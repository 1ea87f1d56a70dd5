"""Descent and flow with noise on the labels."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, Num

from linnet import _check
from linnet._check import InputError
from linnet.linalg import product
from linnet.optim.batches import Batches
from linnet.optim.discrete import DiscreteDynamics
from linnet.optim.optimizer import Optimizer, optional
from linnet.problems import Problem
from linnet.states import State, Weights


class LabelNoiseSGD(Optimizer):
    """Gradient descent with fresh N(0, delta^2) noise on every label at every step (spectral bias, section 4.1).

    The noise is drawn in the range of the data, equal in law and at a compute cost that does not depend on the number
    of samples. With average=True the labels are the raw ones: delta here is sqrt(n) times that on labels divided by
    sqrt(n).
    """

    delta: Float[Array, ""]

    def __init__(
        self,
        lr: Any,
        delta: Any,
        *,
        weight_decay: Any = 0.0,
        lr_multipliers: Sequence[float] | None = None,
        batch_size: int | None = None,
        batches: Batches | None = None,
    ):
        super().__init__(
            lr,
            weight_decay=weight_decay,
            lr_multipliers=lr_multipliers,
            batch_size=batch_size,
            batches=batches,
        )
        self.delta = _check.number("delta", delta, least=0)

    @property
    def random(self) -> bool:
        return True

    @property
    def acts_on_weights(self) -> bool:
        return self.weight_decay is not None or self.lr_multipliers is not None

    def gradient(self, problem: Problem, state: State, key: Key[Array, ""] | None) -> Any:
        assert key is not None
        return state.vjp(problem.gradient(state.matrix) - self.delta * problem.label_noise(key)).trained()

    def direction(self, gradient: Any, past: Any) -> tuple[Any, Any]:
        return gradient, past


class NoisyFlow(DiscreteDynamics):
    """The label-noise SDE: the force -G dt + delta dB, dB the Brownian noise of the labels through the data.

    For one output and unit inputs dW_1 = a dB^T, da = W_1 dB (spectral bias, section 4.1). `drift=False` leaves pure
    noise. `scheme`: "euler" is Euler-Maruyama; "geometric" (two layers) makes an exact boost between two halves of the
    Ito correction and keeps W_1 W_1^T - W_2^T W_2 free of step-size growth. Use d_in dt << 1. With `power` p the k-th
    Euler step takes dt / k^p. `weight_decay` mu adds -mu theta dt, and the geometric scheme makes it exactly.
    """

    dt: Float[Array, ""]
    delta: Float[Array, ""]
    drift: bool = eqx.field(static=True)
    scheme: str = eqx.field(static=True)
    power: Float[Array, ""] | None  # None where all steps are alike
    weight_decay: Float[Array, ""] | None  # None where there is none

    def __init__(
        self,
        dt: Any,
        delta: Any = 1.0,
        *,
        drift: bool = True,
        scheme: str = "euler",
        power: float = 0.0,
        weight_decay: Any = 0.0,
    ):
        self.dt = _check.number("dt", dt, above=0)
        self.delta = _check.number("delta", delta, least=0)
        self.drift = _check.flag("drift", drift)
        self.scheme = _check.choice("scheme", scheme, ("euler", "geometric"))
        self.weight_decay = optional(_check.number("weight_decay", weight_decay, least=0))
        shrinking = _check.real("power", power, least=0, most=1)
        self.power = _check.number("power", shrinking) if shrinking else None
        if shrinking and self.scheme != "euler":
            raise InputError(f"power = {shrinking:g} is not allowed with scheme = {scheme!r}: use 'euler'.")

    @property
    def random(self) -> bool:
        return True

    def time(self, clock: Num[Array, "*n"]) -> Float[Array, "*n"]:
        return self.dt * (clock if self.power is None else _power_sum(clock, self.power))

    def at(self, step: Int[Array, ""]) -> "NoisyFlow":
        if self.power is None:
            return self
        return eqx.tree_at(
            lambda optimizer: optimizer.dt, self, self.dt * jnp.astype(step + 1, self.dt.dtype) ** -self.power
        )

    def check(self, problem: Problem, state: State) -> None:
        if self.weight_decay is not None and not state.weighted:
            raise InputError(f"{type(state).__name__} has no weights for weight_decay to act on: use Weights or Modes.")

    def prepare(self, problem: Problem, state: State) -> Any:
        if self.scheme == "euler":
            return None
        if not isinstance(state, Weights) or state.depth != 2:
            raise InputError("scheme = 'geometric' is not allowed here: it needs Weights of two layers; use 'euler'.")
        # Ito to Stratonovich: -1/2 delta^2 E[N^2], N = [[0, f^T], [f, 0]], so diag(d_out S, tr S) for rows ~ N(0, S)
        covariance, d_out = problem.noise_covariance()
        rates, basis = jnp.linalg.eigh(covariance)
        quarter = self.dt * self.delta**2 / 4
        first = (basis * jnp.exp(-quarter * d_out * rates)) @ basis.T
        # one half before the boost, one after
        kept = 1.0 if self.weight_decay is None else jnp.exp(-self.dt * self.weight_decay / 2)
        return kept * first, kept * jnp.exp(-quarter * jnp.sum(rates))

    def step(
        self, problem: Problem, state: Any, memory: Any, prepared: Any, key: Key[Array, ""] | None
    ) -> tuple[Any, Any]:
        assert key is not None
        if self.scheme == "euler":
            moved = state.step_along(self._force(problem, state, key), 1.0)
            if self.weight_decay is not None:
                lost = self.dt * self.weight_decay
                moved = eqx.combine(jax.tree.map(lambda x, w: x - lost * w, moved.trained(), state.trained()), moved)
            return moved, memory
        first, second = prepared
        state = _scaled(state, first, second)
        return _scaled(_boost(state, self._force(problem, state, key)), first, second), memory

    def _force(self, problem: Problem, state: State, key: Key[Array, ""]) -> Array:
        force = jnp.sqrt(self.dt) * self.delta * problem.label_noise(key)
        return force - self.dt * problem.gradient(state.matrix) if self.drift else force


def _power_sum(count: Num[Array, "*n"], power: Float[Array, ""]) -> Float[Array, "*n"]:
    """1 + 2^-p + ... + n^-p for 0 < p <= 1, to rounding: some terms, then Euler and Maclaurin."""
    head = 48
    n = jnp.maximum(count, head).astype(jnp.float64)
    terms = jnp.arange(1.0, head + 1) ** -power
    first = jnp.where(jnp.arange(1.0, head + 1) <= jnp.asarray(count)[..., None], terms, 0.0).sum(-1)

    def tail(x: Any) -> Any:
        left = jnp.where(power == 1, 1.0, 1 - power)
        area = jnp.where(power == 1, jnp.log(x), jnp.expm1(left * jnp.log(x)) / left)  # up to a constant
        slope, third = -power / x, -power * (power + 1) * (power + 2) / x**3
        fifth = third * (power + 3) * (power + 4) / x**2
        return area + x**-power * (0.5 + slope / 12 - third / 720 + fifth / 30240)

    return first + tail(n) - tail(float(head))


def _scaled(state: Weights, first: Array, second: Array) -> Weights:
    w1, w2 = state.layers
    return eqx.tree_at(lambda s: s.layers, state, (product(w1, first), second * w2))


def _boost(state: Weights, force: Float[Array, "d_out d_in"]) -> Weights:
    """[W_1, W_2^T] exp([[0, F^T], [F, 0]]), by the singular triplets of F."""
    w1, w2 = state.layers
    if force.shape[0] == 1:  # one triplet, no SVD
        rho = jnp.linalg.norm(force)
        u, s, vt = jnp.ones((1, 1)), rho[None], force / jnp.where(rho > 0, rho, 1.0)
    else:
        u, s, vt = jnp.linalg.svd(force, full_matrices=False)
    cosh1, sinh = 2 * jnp.sinh(s / 2) ** 2, jnp.sinh(s)  # cosh - 1 without cancellation
    along1, along2 = product(w1, vt.T), product(w2.T, u)
    new1 = w1 + product(along1 * cosh1 + along2 * sinh, vt)
    new2 = w2.T + product(along2 * cosh1 + along1 * sinh, u.T)
    return eqx.tree_at(lambda s: s.layers, state, (new1, new2.T))
