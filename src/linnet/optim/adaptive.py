"""Optimizers that rescale the gradient: Adam, RMSprop, signs, Muon, and whatever optax has."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Num

from linnet import _check
from linnet._check import InputError
from linnet.linalg import RANK_TOLERANCE
from linnet.optim.batches import Batches
from linnet.optim.optimizer import BatchedDynamics, Optimizer, optional
from linnet.problems import Problem
from linnet.states import Network, State, Weights

if TYPE_CHECKING:
    import optax

_QUINTIC = (3.4445, -4.7750, 2.0315)  # of the Newton-Schulz steps that Muon's implementations make


def _optax() -> Any:
    try:
        import optax
    except ImportError:
        raise InputError("Adam, AdamW and Optax need optax: pip install optax.") from None
    return optax


class Adam(Optimizer):
    """m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g^2, theta <- theta - lr m^ / (sqrt(v^) + eps), from m = v = 0.

    m^ = m / (1 - b1^k) and v^ = v / (1 - b2^k) at the k-th step, as in PyTorch; the computation is optax's.
    `weight_decay` is added to g (PyTorch's Adam) unless `decoupled` (`AdamW`). Adam treats each weight separately, so
    it needs every neuron: a compressed network is refused.
    """

    betas: tuple[Float[Array, ""], Float[Array, ""]]
    eps: Float[Array, ""]

    def __init__(
        self,
        lr: Any = 1e-3,
        betas: Sequence[Any] = (0.9, 0.999),
        eps: Any = 1e-8,
        *,
        weight_decay: Any = 0.0,
        decoupled: bool = False,
        lr_multipliers: Sequence[float] | None = None,
        batch_size: int | None = None,
        batches: Batches | None = None,
    ):
        super().__init__(
            lr,
            weight_decay=weight_decay,
            decoupled=decoupled,
            lr_multipliers=lr_multipliers,
            batch_size=batch_size,
            batches=batches,
        )
        if not isinstance(betas, Sequence) or len(betas) != 2:
            raise InputError(f"betas = {_check.show(betas)} is not allowed: give two numbers, such as (0.9, 0.999).")
        first, second = (_check.number(f"betas[{i}]", beta, least=0, below=1) for i, beta in enumerate(betas))
        self.betas = (first, second)
        self.eps = _check.number("eps", eps, least=0)

    @property
    def rotation_equivariant(self) -> bool:
        return False

    def _rule(self) -> "optax.GradientTransformation":
        return _optax().scale_by_adam(*self.betas, self.eps)

    def initial_past(self, weights: Any) -> Any:
        return self._rule().init(weights)

    def direction(self, gradient: Any, past: Any) -> tuple[Any, Any]:
        with jax.numpy_dtype_promotion("standard"):  # which optax needs
            return self._rule().update(gradient, past)

    def stability_threshold(self, step: Any) -> Float[Array, ""] | None:
        """That of averaged momentum, 2 (1 + beta1) / ((1 - beta1) lr); decay in the gradient is no number beside P."""
        return (
            None
            if self.weight_decay is not None and not self.decoupled
            else self.momentum_threshold(step, self.betas[0], self.betas[0])
        )

    def preconditioner(self, memory: Any) -> Any:
        """sqrt(v^) + eps after the steps that made this memory: what divides m^, in the shape of the state."""
        past = memory[0]
        beta2 = self.betas[1]
        correction = 1 - beta2 ** past.count.astype(beta2.dtype)
        return jax.tree.map(lambda v: jnp.sqrt(v / correction) + self.eps, past.nu)


class AdamW(Adam):
    """Adam with decoupled weight decay, theta <- theta - lr (m^ / (sqrt(v^) + eps) + decay theta), 0.01 by default."""

    def __init__(
        self,
        lr: Any = 1e-3,
        betas: Sequence[Any] = (0.9, 0.999),
        eps: Any = 1e-8,
        *,
        weight_decay: Any = 0.01,
        lr_multipliers: Sequence[float] | None = None,
        batch_size: int | None = None,
        batches: Batches | None = None,
    ):
        super().__init__(
            lr,
            betas,
            eps,
            weight_decay=weight_decay,
            decoupled=True,
            lr_multipliers=lr_multipliers,
            batch_size=batch_size,
            batches=batches,
        )


class MeanSquare(NamedTuple):
    """What `RMSprop` remembers: v, the mean gradient where `centered`, and the buffer where there is momentum."""

    square: Any
    mean: Any
    momentum: Any


class RMSprop(Optimizer):
    """v <- alpha v + (1 - alpha) g^2, theta <- theta - lr g / (sqrt(v) + eps), from v = 0.

    The arguments, their defaults, and the steps are those of `torch.optim.RMSprop`: with `centered` v - m^2 for v under
    the root, m <- alpha m + (1 - alpha) g; with `momentum` b the step is lr u, u <- b u + g / (sqrt(v) + eps);
    `weight_decay` is added to g unless `decoupled`. It treats each weight separately, so it needs every neuron: a
    compressed network is refused.

    - `scalar`: one v for all weights, of |g|^2 (PyTorch has no such option). It treats neurons alike, so compression is
      exact; `centered` is refused beside it.
    """

    alpha: Float[Array, ""]
    eps: Float[Array, ""]
    momentum: Float[Array, ""] | None  # None where it is 0
    centered: bool = eqx.field(static=True)
    scalar: bool = eqx.field(static=True)

    def __init__(
        self,
        lr: Any = 1e-2,
        alpha: Any = 0.99,
        eps: Any = 1e-8,
        weight_decay: Any = 0.0,
        momentum: Any = 0.0,
        centered: bool = False,
        *,
        scalar: bool = False,
        decoupled: bool = False,
        lr_multipliers: Sequence[float] | None = None,
        batch_size: int | None = None,
        batches: Batches | None = None,
    ):
        super().__init__(
            lr,
            weight_decay=weight_decay,
            decoupled=decoupled,
            lr_multipliers=lr_multipliers,
            batch_size=batch_size,
            batches=batches,
        )
        self.alpha = _check.number("alpha", alpha, least=0, below=1)
        self.eps = _check.number("eps", eps, least=0)
        self.momentum = optional(_check.number("momentum", momentum, least=0, below=1))
        self.centered, self.scalar = _check.flag("centered", centered), _check.flag("scalar", scalar)
        if self.centered and self.scalar:
            raise InputError("centered = True is not allowed beside scalar = True, which has no mean gradient.")

    @property
    def rotation_equivariant(self) -> bool:
        return self.scalar

    def initial_past(self, weights: Any) -> MeanSquare:
        def zeros() -> Any:
            return jax.tree.map(jnp.zeros_like, weights)

        square = jnp.zeros((), self.precision(weights)) if self.scalar else zeros()
        return MeanSquare(square, zeros() if self.centered else None, None if self.momentum is None else zeros())

    def direction(self, gradient: Any, past: MeanSquare) -> tuple[Any, MeanSquare]:
        def averaged(old: Any, new: Any) -> Any:
            return jax.tree.map(lambda v, g: self.alpha * v + (1 - self.alpha) * g, old, new)

        squares = jax.tree.map(jnp.square, gradient)
        if self.scalar:
            squares = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(squares))
        square = averaged(past.square, squares)
        mean = averaged(past.mean, gradient) if self.centered else None
        divisor = self._divisor(MeanSquare(square, mean, None))
        if self.scalar:
            along = jax.tree.map(lambda g: g / divisor, gradient)
        else:
            along = jax.tree.map(jnp.divide, gradient, divisor)
        if self.momentum is None:
            return along, MeanSquare(square, mean, None)
        along = jax.tree.map(lambda u, d: self.momentum * u + d, past.momentum, along)
        return along, MeanSquare(square, mean, along)

    def _divisor(self, past: MeanSquare) -> Any:
        """sqrt(v) + eps, or sqrt(v - m^2) + eps."""
        if past.mean is None:
            return jax.tree.map(lambda v: jnp.sqrt(v) + self.eps, past.square)
        return jax.tree.map(lambda v, m: jnp.sqrt(v - m**2) + self.eps, past.square, past.mean)

    def stability_threshold(self, step: Any) -> Float[Array, ""] | None:
        """2 (1 + momentum) / lr; decay in the gradient is no number beside P."""
        if self.weight_decay is not None and not self.decoupled:
            return None
        return self.momentum_threshold(step, 0.0 if self.momentum is None else self.momentum)

    def preconditioner(self, memory: Any) -> Any:
        """sqrt(v) + eps after the steps that made this memory, one number where `scalar`; NaN before the first."""
        past = memory[0]
        updated = jnp.any(jnp.stack([jnp.any(v > 0) for v in jax.tree.leaves(past.square)]))
        return jax.tree.map(lambda divisor: jnp.where(updated, divisor, jnp.nan), self._divisor(past))


class SignSGD(Optimizer):
    """theta <- theta - lr sign(v), v <- b v + (1 - b) g with momentum b: sign descent (b = 0) and signum.

    It treats each weight separately and needs every neuron.
    """

    momentum: Float[Array, ""]

    def __init__(
        self,
        lr: Any,
        momentum: Any = 0.0,
        *,
        weight_decay: Any = 0.0,
        decoupled: bool = False,
        lr_multipliers: Sequence[float] | None = None,
        batch_size: int | None = None,
        batches: Batches | None = None,
    ):
        super().__init__(
            lr,
            weight_decay=weight_decay,
            decoupled=decoupled,
            lr_multipliers=lr_multipliers,
            batch_size=batch_size,
            batches=batches,
        )
        self.momentum = _check.number("momentum", momentum, least=0, below=1)

    @property
    def rotation_equivariant(self) -> bool:
        return False

    def preconditioner(self, memory: Any) -> Any:
        raise InputError("SignSGD has no preconditioner: its step does not depend on the size of the gradient.")

    def initial_past(self, weights: Any) -> Any:
        return jax.tree.map(jnp.zeros_like, weights)

    def direction(self, gradient: Any, past: Any) -> tuple[Any, Any]:
        speed = jax.tree.map(lambda v, g: self.momentum * v + (1 - self.momentum) * g, past, gradient)
        return jax.tree.map(jnp.sign, speed), speed


class Muon(Optimizer):
    """W <- W - lr c polar(v) with v <- b v + g for every weight matrix; with `nesterov` polar(g + b v) (b: momentum).

    The arguments, their defaults, and their meanings are those of `torch.optim.Muon`: `weight_decay` is decoupled,
    polar(v) is approximated by `ns_steps` Newton-Schulz steps (in the precision of the run), and `adjust_lr_fn`
    chooses the factor c of a matrix: "original" (or None) is sqrt(max(1, rows / columns)), "match_rms_adamw" is 0.2
    sqrt(max(rows, columns)). Beyond PyTorch's, `ns_steps=None` takes the exact polar factor U V^T over the singular
    values that are not zero, and `adjust_lr_fn="none"` takes c = 1, so that all singular values of a step are lr.

    Neurons are treated alike, so compression is exact; the factors c need the shapes of the whole network, so that a
    compressed one needs its `widths` (d_in, ..., d_out). Every array that moves must be a matrix, as in PyTorch.
    """

    momentum: Float[Array, ""]
    nesterov: bool = eqx.field(static=True)
    ns_steps: int | None = eqx.field(static=True)
    adjust_lr_fn: str = eqx.field(static=True)
    widths: Float[Array, " layers"] | None

    def __init__(
        self,
        lr: Any = 1e-3,
        weight_decay: Any = 0.1,
        momentum: Any = 0.95,
        nesterov: bool = True,
        *,
        ns_steps: int | None = 5,
        adjust_lr_fn: str | None = None,
        widths: Sequence[float] | None = None,
        lr_multipliers: Sequence[float] | None = None,
        batch_size: int | None = None,
        batches: Batches | None = None,
    ):
        super().__init__(
            lr,
            weight_decay=weight_decay,
            decoupled=True,
            lr_multipliers=lr_multipliers,
            batch_size=batch_size,
            batches=batches,
        )
        self.momentum = _check.number("momentum", momentum, least=0, below=1)
        self.nesterov = _check.flag("nesterov", nesterov)
        self.ns_steps = None if ns_steps is None else _check.integer("ns_steps", ns_steps, least=1)
        chosen = "original" if adjust_lr_fn is None else adjust_lr_fn
        self.adjust_lr_fn = _check.choice("adjust_lr_fn", chosen, ("original", "match_rms_adamw", "none"))
        self.widths = None if widths is None else _check.array("widths", widths, ndim=1)

    def check(self, problem: Problem, state: State) -> None:
        super().check(problem, state)
        shapes = [leaf.shape for leaf in jax.tree.leaves(state.trained())]
        if not isinstance(state, Weights | Network):
            raise InputError(f"{type(state).__name__} has no weight matrices: Muon needs Weights or Network.")
        if any(len(shape) != 2 for shape in shapes):
            other = next(shape for shape in shapes if len(shape) != 2)
            raise InputError(
                f"this network trains an array of shape {other}, and Muon moves matrices only: freeze biases and "
                "kernels with Network(..., trained=...), or use Adam or SGD."
            )
        if self.adjust_lr_fn == "none":
            return
        if self.widths is None and state.rotated:
            raise InputError(
                f"adjust_lr_fn = {self.adjust_lr_fn!r} depends on the shapes of the whole network, and this one is "
                "compressed: give its widths=(d_in, ..., d_out), or adjust_lr_fn='none'."
            )
        if self.widths is not None and self.widths.shape[0] != len(shapes) + 1:
            raise InputError(
                f"widths has {self.widths.shape[0]} numbers: it must have {len(shapes) + 1}, d_in to d_out."
            )

    def preconditioner(self, memory: Any) -> Any:
        raise InputError("Muon has no preconditioner by weights: its step does not depend on the size of the gradient.")

    def initial_past(self, weights: Any) -> Any:
        return jax.tree.map(jnp.zeros_like, weights)

    def direction(self, gradient: Any, past: Any) -> tuple[Any, Any]:
        buffer = jax.tree.map(lambda v, g: self.momentum * v + g, past, gradient)
        ahead = jax.tree.map(lambda v, g: self.momentum * v + g, buffer, gradient) if self.nesterov else buffer
        polar = _polar if self.ns_steps is None else _newton_schulz(self.ns_steps)
        rotation = jax.tree.map(polar, ahead)
        return (rotation if self.adjust_lr_fn == "none" else rotation.by_layer(self._factors(rotation))), buffer

    def _factors(self, state: State) -> list[Any]:
        """c of every matrix."""
        shapes: list[Any] = [leaf.shape for leaf in jax.tree.leaves(state)]
        if self.widths is not None:
            shapes = [(self.widths[i + 1], self.widths[i]) for i in range(len(shapes))]
        if self.adjust_lr_fn == "original":
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


class Optax(BatchedDynamics):
    """Any `optax.GradientTransformation` as a optimizer: theta <- theta + its update.

    `Optax(optax.lion(1e-3))`; optax makes new functions in each such call, and each is compiled again. With the maker
    and its numbers, `Optax(optax.lion, learning_rate=1e-3)`, other numbers find the program, and `jax.vmap` may go over
    them. Loss, gradient and the loss as a function of the weights are there for transformations that ask for them.

    What a transformation does to a network in other axes is not known, so a compressed one is refused unless you say
    that it treats neurons alike, `rotation_equivariant=True`. Times are steps times the `learning_rate`, or steps
    where it is not a number given by this name.
    """

    make: Any
    given: dict[str, Any]
    alike: bool = eqx.field(static=True)

    def __init__(
        self,
        make: Any,
        *,
        rotation_equivariant: bool = False,
        batch_size: int | None = None,
        batches: Batches | None = None,
        **given: Any,
    ):
        given = {name: _argument(name, value) for name, value in given.items()}
        super().__init__(batch_size, batches)
        self.make, self.given, self.alike = make, given, _check.flag("rotation_equivariant", rotation_equivariant)
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
    def rotation_equivariant(self) -> bool:
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

    def initial_past(self, weights: Any) -> Any:
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
