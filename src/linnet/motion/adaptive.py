"""Optimisers that rescale the gradient: Adam, signs, Muon, and whatever optax has."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Num

from linnet import _check
from linnet._check import InputError
from linnet.linalg import RANK_TOLERANCE
from linnet.motion.batches import Batches
from linnet.motion.optimiser import Optimiser, Seeing
from linnet.problems import Problem
from linnet.states import State, Weights

if TYPE_CHECKING:
    import optax

_QUINTIC = (3.4445, -4.7750, 2.0315)  # of the Newton-Schulz steps that Muon's implementations make


def _optax() -> Any:
    try:
        import optax
    except ImportError:
        raise InputError("Adam, AdamW and Optax need optax: pip install optax.") from None
    return optax


class Adam(Optimiser):
    """m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g^2, theta <- theta - lr m^ / (sqrt(v^) + eps), from m = v = 0.

    m^ = m / (1 - b1^k) and v^ = v / (1 - b2^k) at the k-th step, as in PyTorch; the computation is optax's. `decay`
    stands inside g (PyTorch's Adam) unless `decoupled` (`AdamW`). Adam sees each weight by itself, so it needs every
    neuron: a compressed network is refused.
    """

    beta1: Float[Array, ""]
    beta2: Float[Array, ""]
    eps: Float[Array, ""]

    def __init__(
        self,
        lr: Any = 1e-3,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        eps: Any = 1e-8,
        *,
        decay: Any = 0.0,
        decoupled: bool = False,
        rates: Sequence[float] | None = None,
        batch: Batches | int | None = None,
    ):
        super().__init__(lr, decay=decay, decoupled=decoupled, rates=rates, batch=batch)
        self.beta1 = _check.number("beta1", beta1, least=0, below=1)
        self.beta2 = _check.number("beta2", beta2, least=0, below=1)
        self.eps = _check.number("eps", eps, least=0)

    @property
    def isotropic(self) -> bool:
        return False

    def _rule(self) -> "optax.GradientTransformation":
        return _optax().scale_by_adam(self.beta1, self.beta2, self.eps)

    def past(self, weights: Any) -> Any:
        return self._rule().init(weights)

    def direction(self, gradient: Any, past: Any) -> tuple[Any, Any]:
        with jax.numpy_dtype_promotion("standard"):  # which optax needs
            return self._rule().update(gradient, past)

    def threshold(self, step: Any) -> Float[Array, ""] | None:
        """That of averaged momentum, 2 (1 + beta1) / ((1 - beta1) lr); decay in the gradient is no number beside P."""
        return None if self.decay is not None and not self.decoupled else self.bears(step, self.beta1, average=True)

    def preconditioner(self, memory: Any) -> Any:
        """sqrt(v^) + eps after the steps that made this memory: what divides m^, in the shape of the state."""
        past = memory[0]
        correction = 1 - self.beta2 ** past.count.astype(self.beta2.dtype)
        return jax.tree.map(lambda v: jnp.sqrt(v / correction) + self.eps, past.nu)


class AdamW(Adam):
    """Adam with decoupled weight decay, theta <- theta - lr (m^ / (sqrt(v^) + eps) + decay theta), 0.01 by default."""

    def __init__(
        self,
        lr: Any = 1e-3,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        eps: Any = 1e-8,
        *,
        decay: Any = 0.01,
        rates: Sequence[float] | None = None,
        batch: Batches | int | None = None,
    ):
        super().__init__(lr, beta1, beta2, eps, decay=decay, decoupled=True, rates=rates, batch=batch)


class Sign(Optimiser):
    """theta <- theta - lr sign(v), v <- beta v + (1 - beta) g: sign descent (beta = 0) and signum.

    It sees each weight by itself and needs every neuron.
    """

    beta: Float[Array, ""]

    def __init__(
        self,
        lr: Any,
        beta: Any = 0.0,
        *,
        decay: Any = 0.0,
        decoupled: bool = False,
        rates: Sequence[float] | None = None,
        batch: Batches | int | None = None,
    ):
        super().__init__(lr, decay=decay, decoupled=decoupled, rates=rates, batch=batch)
        self.beta = _check.number("beta", beta, least=0, below=1)

    @property
    def isotropic(self) -> bool:
        return False

    def preconditioner(self, memory: Any) -> Any:
        raise InputError("Sign has no preconditioner: its step does not depend on the size of the gradient.")

    def past(self, weights: Any) -> Any:
        return jax.tree.map(jnp.zeros_like, weights)

    def direction(self, gradient: Any, past: Any) -> tuple[Any, Any]:
        speed = jax.tree.map(lambda v, g: self.beta * v + (1 - self.beta) * g, past, gradient)
        return jax.tree.map(jnp.sign, speed), speed


class Muon(Optimiser):
    """W <- W - lr polar(v), v <- beta v + g: all singular values of a layer's step are lr; Nesterov: polar(g + beta v).

    polar(v) = U V^T over the singular values that are not zero; with `iterations` it is approached by so many
    Newton-Schulz steps with the coefficients of PyTorch's Muon, in the precision of the run. `adjust` is PyTorch's
    `adjust_lr_fn`: "original" multiplies lr by sqrt(max(1, rows/columns)), "match_rms_adamw" by
    0.2 sqrt(max(rows, columns)); the shapes are those of the whole network, so a compressed one needs its `widths`
    (d_in, ..., d_out). `decay` is decoupled, as in PyTorch. Neurons are treated alike, so compression is exact.
    """

    beta: Float[Array, ""]
    nesterov: bool = eqx.field(static=True)
    iterations: int | None = eqx.field(static=True)
    adjust: str | None = eqx.field(static=True)
    widths: Float[Array, " layers"] | None

    def __init__(
        self,
        lr: Any = 1e-3,
        beta: Any = 0.95,
        *,
        nesterov: bool = True,
        iterations: int | None = None,
        adjust: str | None = None,
        widths: Sequence[float] | None = None,
        decay: Any = 0.0,
        rates: Sequence[float] | None = None,
        batch: Batches | int | None = None,
    ):
        super().__init__(lr, decay=decay, decoupled=True, rates=rates, batch=batch)
        self.beta = _check.number("beta", beta, least=0, below=1)
        self.nesterov = _check.flag("nesterov", nesterov)
        self.iterations = None if iterations is None else _check.integer("iterations", iterations, least=1)
        known = ("original", "match_rms_adamw")
        self.adjust = None if adjust is None else _check.choice("adjust", adjust, known)
        self.widths = None if widths is None else _check.array("widths", widths, ndim=1)

    def check(self, problem: Problem, state: State) -> None:
        super().check(problem, state)
        if not isinstance(state, Weights):
            raise InputError(f"{type(state).__name__} has no layers that are matrices: Muon needs Weights.")
        if self.adjust is None:
            return
        if self.widths is None and state.turned:
            raise InputError(
                f"adjust = {self.adjust!r} depends on the shapes of the whole network, and this one is compressed: "
                "give its widths=(d_in, ..., d_out), or adjust=None."
            )
        if self.widths is not None and self.widths.shape[0] != state.depth + 1:
            raise InputError(
                f"widths has {self.widths.shape[0]} numbers: it must have {state.depth + 1}, d_in to d_out."
            )

    def preconditioner(self, memory: Any) -> Any:
        raise InputError("Muon has no preconditioner by weights: its step does not depend on the size of the gradient.")

    def past(self, weights: Any) -> Any:
        return jax.tree.map(jnp.zeros_like, weights)

    def direction(self, gradient: Any, past: Any) -> tuple[Any, Any]:
        speed = jax.tree.map(lambda v, g: self.beta * v + g, past, gradient)
        ahead = jax.tree.map(lambda v, g: self.beta * v + g, speed, gradient) if self.nesterov else speed
        polar = _polar if self.iterations is None else _newton_schulz(self.iterations)
        turned = jax.tree.map(polar, ahead)
        return (turned if self.adjust is None else turned.by_layer(self._factors(turned))), speed

    def _factors(self, state: Weights) -> list[Any]:
        widths: Any = state.widths if self.widths is None else self.widths
        shapes = [(widths[i + 1], widths[i]) for i in range(state.depth)]
        if self.adjust == "original":
            return [jnp.sqrt(jnp.maximum(1.0, rows / columns)) for rows, columns in shapes]
        return [0.2 * jnp.sqrt(jnp.maximum(rows, columns) * 1.0) for rows, columns in shapes]


def _polar(matrix: Float[Array, "m n"]) -> Float[Array, "m n"]:
    """U V^T of the compact SVD: null vectors are no direction."""
    u, s, vt = jnp.linalg.svd(matrix, full_matrices=False)
    return jnp.where(s > RANK_TOLERANCE * s[0], u, 0.0) @ vt


def _newton_schulz(count: int) -> Callable[[Array], Array]:
    """X <- a X + (b X X^T + c (X X^T)^2) X from the matrix divided by its Frobenius norm."""
    a, b, c = _QUINTIC

    def turn(matrix: Float[Array, "m n"]) -> Float[Array, "m n"]:
        wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
        x = wide / jnp.maximum(jnp.linalg.norm(wide), 1e-7)

        def once(x: Array, _: None) -> tuple[Array, None]:
            gram = x @ x.T
            return a * x + (b * gram + c * gram @ gram) @ x, None

        x = jax.lax.scan(once, x, length=count)[0]
        return x if matrix.shape[0] <= matrix.shape[1] else x.T

    return turn


class Optax(Seeing):
    """Any `optax.GradientTransformation` as a motion: theta <- theta + its update.

    `Optax(optax.lion(1e-3))`; optax makes new functions in each such call, and each is compiled anew. With the maker
    and its numbers, `Optax(optax.lion, learning_rate=1e-3)`, other numbers find the program, and `jax.vmap` may go over
    them. Loss, gradient and the loss as a function of the weights are there for transformations that ask for them.

    What a transformation does to a network in other axes is not known, so a compressed one is refused unless you say
    that it treats neurons alike, `isotropic=True`. Times are steps times the `learning_rate`, or steps where it is not
    a number given by this name.
    """

    make: Any
    given: dict[str, Any]
    alike: bool = eqx.field(static=True)

    def __init__(self, make: Any, *, isotropic: bool = False, batch: Batches | int | None = None, **given: Any):
        given = {name: _argument(name, value) for name, value in given.items()}
        super().__init__(batch)
        self.make, self.given, self.alike = make, given, _check.flag("isotropic", isotropic)
        if not (callable(getattr(make, "init", None)) and callable(getattr(make, "update", None))):
            if not callable(make):
                raise InputError(
                    f"make = {_check.show(make)} is not allowed: give a transformation such as optax.adam(1e-3), or "
                    "its maker with numbers, Optax(optax.adam, learning_rate=1e-3)."
                )
            self._rule()
        elif given:
            raise InputError(
                f"{', '.join(given)} is not allowed beside a transformation that is made: give its maker instead."
            )

    @property
    def isotropic(self) -> bool:
        return self.alike

    def _rule(self) -> "optax.GradientTransformationExtraArgs":
        optax = _optax()
        if callable(getattr(self.make, "update", None)):
            return optax.with_extra_args_support(self.make)
        try:
            made = self.make(**self.given)
        except TypeError as error:
            raise InputError(f"make cannot be called with {', '.join(self.given) or 'nothing'}: {error}.") from None
        if not callable(getattr(made, "update", None)):
            raise InputError(f"make returns {_check.show(made)}: it must return an optax.GradientTransformation.")
        return optax.with_extra_args_support(made)

    def past(self, weights: Any) -> Any:
        return self._rule().init(weights)

    def preconditioner(self, memory: Any) -> Any:
        raise InputError("what a transformation of optax divides by is not known: Adam and AdamW know it.")

    def advance(self, problem: Problem, state: Any, past: Any, key: Key[Array, ""] | None) -> tuple[Any, Any]:
        weights = state.trained()

        def cost(weights: Any) -> Array:
            return problem.cost(eqx.combine(weights, state).matrix)

        gradient = jax.tree.map(jnp.negative, state.velocity(problem).trained())
        asked = {"value": cost(weights), "grad": gradient, "value_fn": cost}
        with jax.numpy_dtype_promotion("standard"):  # which optax needs
            update, past = self._rule().update(gradient, past, weights, **asked)
        return eqx.combine(jax.tree.map(jnp.add, weights, update), state), past

    def time(self, clock: Num[Array, "*n"]) -> Float[Array, "*n"]:
        rate = self.given.get("learning_rate")
        return clock * (jnp.ones(()) if rate is None or callable(rate) else rate)


def _argument(name: str, value: Any) -> Any:
    """A number as an array, so that it is none of the program; words, functions and the like as they are."""
    return value if value is None or isinstance(value, bool | str) or callable(value) else _check.number(name, value)
