"""The central flow: the time average of gradient descent at the edge of stability, from third derivatives."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, Key

from linnet import _check
from linnet._check import InputError
from linnet._compiler import one_by_one
from linnet.optim.adaptive import RMSprop
from linnet.optim.averaged import AveragedDescent, gradient
from linnet.optim.complementarity import pairs, smat, solve, svec
from linnet.optim.dynamics import Averages, Dynamics
from linnet.optim.eigenpairs import generic_block, top_eigenpairs
from linnet.optim.sgd import SGD
from linnet.problems import Custom, Problem
from linnet.states import Network, State

_CRITICAL = 0.95  # of the threshold: eigenvalues above it may reach the edge within a step
_BEYOND = 1.05  # of the threshold: a start above it is reported
_CLOSE, _FAR = 1e-4, 5e-2  # residuals of critical and of other eigenpairs, over the threshold
_LARGEST_MOMENTUM = 0.5
_SWEEPS = 24
_OLDEST = 4  # steps for which eigenpairs far below the threshold serve


class Squares(NamedTuple):
    """nu and diag(H Sigma H), by weights or as sums."""

    nu: Float[Array, "*parameters"]
    oscillation: Float[Array, "*parameters"]


class CentralMemory(NamedTuple):
    """The highest eigenpairs of the Hessian, and X of the last step: Sigma = U X U^T.

    - `interval`, `age`: the steps for which the eigenpairs serve, one as soon as they are critical, and those for
      which they have. 0 before the first step, which finds them.
    - `momentum`: the buffer of the averaged gradient, as a vector; None without momentum.
    - `square`: of RMSprop, the mean square of the gradient up to the last step, oscillation included, and what the
      oscillation of that step adds to the next; None otherwise.
    - `most`: the largest number of critical directions so far; `initial`: the initial sharpness over the threshold.
    - `unheld`: whether a step found nothing that holds the sharpness at the threshold; the next one diverges.

    With a preconditioner P the eigenpairs are those of P^{-1/2} H P^{-1/2}, and U = P^{-1/2} `vectors`.
    """

    values: Float[Array, " k"]
    vectors: Float[Array, "k parameters"]
    x: Float[Array, "k k"]
    momentum: Float[Array, " parameters"] | None
    square: "Squares | None"
    most: Int[Array, ""]
    initial: Float[Array, ""]
    unheld: Bool[Array, ""]
    interval: Int[Array, ""]
    age: Int[Array, ""]


class _Step(NamedTuple):
    """What a step takes off the weights, its X, and what the memory keeps of it."""

    move: Float[Array, " parameters"]
    x: Float[Array, "k k"]
    momentum: Float[Array, " parameters"] | None
    oscillation: Float[Array, "*parameters"] | None
    unheld: Bool[Array, ""]


class CentralFlow(AveragedDescent):
    """The averaged weights c of gradient descent at the edge of stability, whose Hessian stays below the threshold.

    With w = c + xi and Sigma = E[xi xi^T], the gradient averaged to third order is that of C + <H, Sigma>/2, and Sigma
    is what keeps the Hessian H at c below 2/lr (Cohen, Damian et al., central flows): Sigma >= 0, 2/lr - H >= 0,
    <Sigma, 2/lr - H> = 0. On the critical directions U, eigenvalues above 0.95 of 2/lr, Sigma = U X U^T. A step is

        c <- c - M (grad C + T[X]/2),  T_ij = grad_c <u_i, H u_j>,  T[X] = sum_ij X_ij T_ij,
        X >= 0,  Y = A + B[X] >= 0,  <X, Y> = 0,  A = 2/lr - lambda + <T, M grad C>,  B = <T, M T>/2,

    where M is lr outside of U, which is descent's own step there, and 1/lambda, Newton's step, inside, where descent
    oscillates. The cost at c never rises on the edge. The mean loss of descent is predicted as C(c) + <H, Sigma>/2.

    - `directions`: the most critical directions. A run in which there were as many warns: give more. Under `jax.vmap`
      and `jax.jit` nothing warns: there the count is `run.memory.most`, the initial sharpness over the threshold
      `run.memory.initial`.
    - `substeps`: None, or the number of Euler steps per step of the flow dc/dt = -lr (grad C + T[X]/2) with M = lr in
      all directions.

    It needs a cost with three derivatives (not relu's: T does not contain the kinks, and its predictions are wrong
    there; `RodFlow` has no such need). At a finite distance beyond the edge its variance is not that of descent's
    2-cycle, not even to leading order: 8/9 of it for a mode of two layers. Where T vanishes and the sharpness exceeds
    2/lr, as for a quadratic cost, nothing holds the sharpness: the run ends as diverged, and says so in a warning
    (`run.memory.unheld`). Derivatives through a run are refused: X has none where it begins and ends.
    """

    directions: int = eqx.field(static=True)
    substeps: int | None = eqx.field(static=True)
    optimizer: SGD | RMSprop

    def __init__(self, lr: Any, *, directions: int = 4, substeps: int | None = None):
        super().__init__(lr)
        self.directions = _check.integer("directions", directions, least=1)
        self.substeps = None if substeps is None else _check.integer("substeps", substeps, least=1)
        self.optimizer = SGD(self.lr)

    @classmethod
    def of(cls, optimizer: Dynamics, *, directions: int = 4, substeps: int | None = None) -> Self:
        """The central flow of SGD, also with momentum up to 0.5, Nesterov's too, and with weight decay, or of RMSprop.

        The averaged gradient goes through the optimizer's own buffer, without its part along the critical directions,
        along which the step is Newton's; the threshold is the optimizer's.

        RMSprop, scalar or not, divides by P = sqrt(nu) + eps. Its critical directions are H U = P U Lambda with
        U^T P U = 1 and Lambda near 2/lr; M is lr P^{-1} outside of them and U Lambda^{-1} U^T inside; and nu averages
        g^2 + diag(H Sigma H), with H U = (2/lr) P U for Sigma's, so that the oscillation also holds the sharpness by
        raising P. Since v begins at 0, RMSprop begins beyond its edge, with many critical directions: give more
        `directions`. `substeps` is for SGD without momentum.

        Measured on three draws of a network with tanh (20-32-3), error of the mean loss after the first 200 steps:
        heavy ball 0.5 at lr 0.29 5 to 11 %, Nesterov 0.5 at 0.15 1 to 4 %, decay 0.002 below 1 %, scalar RMSprop
        (0.03, 0.95) 5 to 7 %, RMSprop (0.004) 0.5 to 9 %. Over single windows of 200 steps momentum is up to 50 % off,
        because its bursts are as long as a window.
        """
        refused = _reason(optimizer)
        if refused:
            raise InputError(f"{type(optimizer).__name__} {refused}: the central flow is that of {_ALLOWED}.")
        assert isinstance(optimizer, SGD | RMSprop)
        if substeps is not None and (isinstance(optimizer, RMSprop) or optimizer.momentum is not None):
            raise InputError("substeps is not allowed here: the central flow has them for SGD without momentum alone.")
        flow = cls(optimizer.lr, directions=directions, substeps=substeps)
        return eqx.tree_at(lambda flow: flow.optimizer, flow, optimizer)

    def check(self, problem: Problem, state: State) -> None:
        super().check(problem, state)
        if isinstance(problem, Custom) and _check.has_kinks(problem.cost, jnp.zeros(problem.shape)):
            raise InputError(
                "the cost has kinks (max, min, abs) and no three derivatives: use RodFlow or a smooth cost."
            )
        if isinstance(state, Network) and _check.has_kinks(
            lambda weights: eqx.combine(weights, state).matrix, state.trained()
        ):
            warnings.warn(
                "CentralFlow ignores the kinks of this network (relu, max, or abs) and is wrong there: use RodFlow.",
                RuntimeWarning,
                stacklevel=2,
            )

    def warn(self, memory: CentralMemory) -> None:
        if bool(memory.unheld):
            warnings.warn(
                "nothing holds the sharpness at the stability threshold: the third derivatives vanish along the "
                "critical directions, as of a quadratic cost, so there is no central flow and the run diverges.",
                RuntimeWarning,
                stacklevel=2,
            )
        # RMSprop begins with a small v, beyond the threshold, and leaves by raising v
        if memory.square is None and float(memory.initial) > _BEYOND:
            warnings.warn(
                f"the initial sharpness is {float(memory.initial):.3g} of the stability threshold: descent first "
                "leaves by a catapult, which CentralFlow does not describe; start below the threshold.",
                RuntimeWarning,
                stacklevel=2,
            )
        if int(memory.most) == self.directions:
            warnings.warn(
                f"directions = {self.directions} critical directions were reached: give CentralFlow more of them.",
                RuntimeWarning,
                stacklevel=2,
            )

    def stability_threshold(self, step: Any) -> Float[Array, ""] | None:
        """That of the optimizer: 2/lr for descent."""
        return self._threshold

    @property
    def rotation_equivariant(self) -> bool:
        return self.optimizer.rotation_equivariant

    @property
    def _threshold(self) -> Float[Array, ""]:
        threshold = self.optimizer.stability_threshold(jnp.zeros((), jnp.int64))
        assert threshold is not None
        return threshold

    def memory(self, problem: Problem, state: Any) -> CentralMemory:
        flat, _ = ravel_pytree(state.trained())
        k = min(self.directions, flat.size)
        buffer = square = None
        if isinstance(self.optimizer, SGD) and self.optimizer.momentum is not None:
            buffer = jnp.zeros_like(flat)
        if isinstance(self.optimizer, RMSprop):
            shape = () if self.optimizer.scalar else flat.shape
            square = Squares(jnp.zeros(shape, flat.dtype), jnp.zeros(shape, flat.dtype))
        # the first step finds the eigenpairs
        values, x, none = jnp.zeros(k, flat.dtype), jnp.zeros((k, k), flat.dtype), jnp.zeros((), jnp.int32)
        initial, unheld = jnp.zeros((), flat.dtype), jnp.zeros((), bool)
        vectors = generic_block(k, flat.size, flat.dtype)
        return CentralMemory(values, vectors, x, buffer, square, none, initial, unheld, none, none)

    def _squared(self, own: Array, square: Squares | None) -> Array | None:
        """nu of a step that begins at the gradient `own`."""
        if square is None:
            return None
        assert isinstance(self.optimizer, RMSprop)
        alpha = self.optimizer.alpha
        return alpha * square.nu + (1 - alpha) * (self._summed(own**2) + square.oscillation)

    def _summed(self, entries: Float[Array, "*n parameters"]) -> Array:
        """Over weights where the optimizer has one nu for all."""
        assert isinstance(self.optimizer, RMSprop)
        return jnp.sum(entries, axis=-1) if self.optimizer.scalar else entries

    def _root(self, flat: Array, nu: Array | None) -> Array:
        """P^{-1/2}; 1 without a preconditioner."""
        if nu is None:
            return jnp.ones((), flat.dtype)
        assert isinstance(self.optimizer, RMSprop)
        return jax.lax.rsqrt(jnp.sqrt(nu) + self.optimizer.eps)

    def step(
        self, problem: Problem, state: Any, memory: CentralMemory, prepared: Any, key: Key[Array, ""] | None
    ) -> tuple[Any, CentralMemory]:
        parts = (self, problem, state, memory)
        arrays, rest = eqx.partition(parts, eqx.is_array)

        def one(arrays: Any) -> tuple[Array, CentralMemory]:
            flow, *given = eqx.combine(arrays, rest)
            moved: tuple[Array, CentralMemory] = flow._moved_often(*given)
            return moved

        # how much there is to do differs between the members of a batch
        flat, memory = one_by_one(one, arrays)
        back = ravel_pytree(state.trained())[1]
        return eqx.combine(back(_without_derivatives(flat)), state), memory

    def _moved_often(self, problem: Problem, state: Any, memory: CentralMemory) -> tuple[Array, CentralMemory]:
        """The weights, as a vector, and the memory after a step."""
        flat, slope = ravel_pytree(state.trained())[0], self._slope(problem, state)

        def once(_: Any, now: tuple[Array, CentralMemory]) -> tuple[Array, CentralMemory]:
            return self._moved(slope, state, *now)

        if self.substeps is None:
            return once(0, (flat, memory))
        return jax.lax.fori_loop(0, self.substeps, once, (flat, memory))

    def averages(self, problem: Problem, state: Any, memory: CentralMemory) -> Averages:
        loss = problem.cost(state.matrix) + jnp.sum(memory.values * jnp.diagonal(memory.x)) / 2
        spread = jnp.trace(memory.x)
        if memory.square is not None:
            u = memory.vectors * self._root(memory.values, memory.square.nu)
            spread = jnp.sum(memory.x * (u @ u.T))
        return Averages(loss, spread, self._count(memory.values))

    def _count(self, values: Float[Array, " k"]) -> Int[Array, ""]:
        return jnp.sum(values > _CRITICAL * self._threshold).astype(jnp.int32)

    def _allowed(self, dtype: Any) -> Callable[[Array], Array]:
        threshold, rounding = self._threshold, 50 * float(np.finfo(dtype).eps)
        return lambda values: threshold * jnp.where(values > _CRITICAL * threshold, max(_CLOSE, rounding), _FAR)

    def _slope(self, problem: Problem, state: Any) -> Callable[[Array], Array]:
        """The gradient of the cost as a function of the weights, vectors both."""
        back = ravel_pytree(state.trained())[1]
        return lambda flat: ravel_pytree(gradient(problem, state, back(flat)))[0]

    def _eigenpairs(
        self, slope: Callable[[Array], Array], state: Any, flat: Array, memory: CentralMemory
    ) -> tuple[Array, Array, Array, Array, Array]:
        """The gradient, the eigenvalues and eigenvectors, for how many steps these serve, and how many they have."""

        def refreshed() -> tuple[Array, Array, Array, Array]:
            own, product = _linear(slope, flat, state)
            root = self._root(flat, self._squared(own, memory.square))
            found = top_eigenpairs(
                lambda v: root * product(root * v),
                memory.vectors,
                self._allowed(flat.dtype),
                sweeps=jnp.where(memory.interval == 0, 5 * _SWEEPS, _SWEEPS),
            )
            return own, *found, self._interval(found.values, memory)

        def kept() -> tuple[Array, Array, Array, Array]:
            return slope(flat), memory.values, memory.vectors, memory.interval

        due = memory.age >= memory.interval
        return *jax.lax.cond(due, refreshed, kept), jnp.where(due, 1, memory.age + 1)

    def _moved(
        self, slope: Callable[[Array], Array], state: Any, flat: Array, memory: CentralMemory
    ) -> tuple[Array, CentralMemory]:
        """The weights and the memory after a step, or a substep."""
        own, values, vectors, interval, age = self._eigenpairs(slope, state, flat, memory)
        nu = self._squared(own, memory.square)
        root = self._root(flat, nu)
        count, threshold, k = self._count(values), self._threshold, values.size
        given = self.optimizer.coefficients if isinstance(self.optimizer, SGD) else _PLAIN
        beta, decay = given["momentum"], given["weight_decay"]
        own = own + decay * flat
        direct, later = (1 + beta, beta**2) if given["nesterov"] else (1.0, beta)  # of gradient and buffer in a step
        rate = self.lr * direct if self.substeps is None else self.lr / self.substeps

        def below() -> _Step:
            """The optimizer's own step."""
            move, pulled = rate * root**2 * own, memory.momentum
            if pulled is not None:
                move, pulled = move + self.lr * later * pulled, beta * pulled + own
            oscillation = None if memory.square is None else jnp.zeros_like(memory.square.oscillation)
            return _Step(move, jnp.zeros_like(memory.x), pulled, oscillation, jnp.zeros((), bool))

        def held() -> _Step:
            critical = np.arange(k) < count
            along = vectors * root  # U, with U^T P U = 1
            third = _third_derivatives(slope, flat, along, count)
            # M less the optimizer's step, along U; Euler steps have none
            newton = jnp.where(critical, 1 / (values + decay) - rate, 0.0)

            def step_along(force: Array) -> Array:
                if self.substeps is not None:
                    return rate * force
                return rate * root**2 * force + (newton * (force @ along.T)) @ along

            def outside(buffer: Array) -> Array:
                return buffer - (jnp.where(critical, vectors @ buffer, 0.0)) @ vectors

            move, pulled = step_along(own), memory.momentum
            if pulled is not None:
                pulled = outside(pulled)
                move = move + self.lr * later * pulled
            diagonal = svec(jnp.diag(threshold - values)) + third @ move
            effect = step_along(third)
            form = third @ effect.T / 2
            if nu is not None:
                grown, shares = self._preconditioned(own, nu, along, count)
                diagonal, form = diagonal + grown, form + shares
            diagonal = smat(diagonal, k)
            x = svec(solve(diagonal, form, count).x)
            # a problem without a solution: c moves without Sigma, and the next step is not finite
            unheld = ~jnp.all(jnp.isfinite(x)) & jnp.all(jnp.isfinite(diagonal)) & jnp.all(jnp.isfinite(form))
            x = jnp.where(unheld, 0.0, x)
            if pulled is not None:
                pulled = outside(beta * pulled + own + x @ third / 2)
            oscillation = None
            if nu is not None:
                pushed = threshold * along / root**2  # H U
                oscillation = self._summed(jnp.sum(pushed * (smat(x, k) @ pushed), axis=0))
            return _Step(move + x @ effect / 2, smat(x, k), pulled, oscillation, unheld)

        done = jax.lax.cond(count > 0, held, below)
        flat = jnp.where(memory.unheld, jnp.nan, flat - done.move)
        square = None if nu is None else Squares(nu, done.oscillation)
        most = jnp.maximum(memory.most, count)
        initial = jnp.where(memory.interval == 0, values[0] / threshold, memory.initial)
        return flat, CentralMemory(
            values, vectors, done.x, done.momentum, square, most, initial, done.unheld, interval, age
        )

    def _interval(self, values: Float[Array, " k"], memory: CentralMemory) -> Int[Array, ""]:
        """For how many steps eigenpairs serve: for a quarter of those in which one may become critical, at most."""
        rise = jnp.abs(values - memory.values) / jnp.maximum(memory.interval, 1)
        steps = jnp.min((_CRITICAL * self._threshold - values) / (4 * rise))
        # none is known at first; not finite where the run has diverged
        steps = jnp.where((memory.interval > 0) & (steps >= 1), jnp.minimum(steps, _OLDEST), 1.0)
        return steps.astype(jnp.int32)

    def _preconditioned(
        self, own: Array, nu: Array, along: Float[Array, "k parameters"], count: Int[Array, ""]
    ) -> tuple[Float[Array, " m"], Float[Array, "m m"]]:
        """What the change of P in a step adds to A and to B: (2/lr) <u_i, dP u_j>."""
        assert isinstance(self.optimizer, RMSprop)
        alpha, threshold = self.optimizer.alpha, self._threshold
        rows, columns = pairs(along.shape[0])
        factors = jnp.where(rows == columns, 1.0, np.sqrt(2.0)).astype(along.dtype) * (columns < count)
        products = factors[:, None] * along[rows] * along[columns]
        divisor = jnp.sqrt(nu) + self.optimizer.eps
        after = jnp.sqrt(alpha * nu + (1 - alpha) * self._summed(own**2))  # of nu, without Sigma
        slope = (1 - alpha) / (2 * jnp.where(after > 0, after, 1.0))  # dP by what Sigma adds to the square
        if self.optimizer.scalar:
            products = jnp.sum(products, axis=-1, keepdims=True)
        grown = products @ jnp.atleast_1d(after - jnp.sqrt(nu))
        return threshold * grown, (products * (threshold**3 * slope * divisor**2)) @ products.T


_PLAIN = {"momentum": 0.0, "weight_decay": 0.0, "nesterov": False}
_ALLOWED = (
    "SGD with momentum up to 0.5, Nesterov's or not, and weight decay in the gradient, and of RMSprop without "
    "momentum, centering, and decay"
)


def _reason(optimizer: Any) -> str:
    """Why an optimizer has no central flow here, as a phrase; empty if it has one."""
    if type(optimizer) not in (SGD, RMSprop):
        return "is not known to be near its central flow"
    if optimizer.batches is not None:
        return "draws batches, and its noise is no oscillation"
    if callable(optimizer.lr):
        return "has a learning rate that changes"
    if isinstance(optimizer, RMSprop):
        if optimizer.momentum is not None or optimizer.centered or optimizer.weight_decay is not None:
            return "has momentum, centering, or weight decay"
        return "" if optimizer.lr_multipliers is None else "has lr_multipliers"
    if optimizer.lr_multipliers is not None or optimizer.dampening is not None:
        return "has lr_multipliers or dampening"
    if optimizer.decoupled and optimizer.weight_decay is not None:
        return "has decoupled weight decay"
    beta = optimizer.momentum
    if beta is not None and not _check.traced(beta) and np.any(np.asarray(beta) > _LARGEST_MOMENTUM):
        return f"has momentum {float(beta):g}, above which its mean loss is not that of a central flow"
    return ""


@jax.custom_jvp
def _without_derivatives(flat: Array) -> Array:
    return flat


@_without_derivatives.defjvp
def _refused(primals: Any, tangents: Any) -> Any:
    raise InputError(
        "CentralFlow has no derivatives: its oscillation begins and ends abruptly; use RodFlow, or differences of runs."
    )


def _linear(slope: Callable[[Array], Array], flat: Array, state: Any) -> tuple[Array, Callable[[Array], Array]]:
    """The gradient, and the Hessian as a map of vectors; what all products share is computed once."""
    if state.whole:
        return jax.linearize(slope, flat)
    return slope(flat), lambda v: jax.jvp(slope, (flat,), (v,))[1]


def _third_derivatives(
    slope: Callable[[Array], Array], flat: Array, vectors: Float[Array, "k parameters"], count: Int[Array, ""]
) -> Float[Array, "m parameters"]:
    """The `svec` of grad <u_i, H u_j>, i <= j, for the first vectors, so many; 0 for the others."""
    rows, columns = (jnp.asarray(part) for part in pairs(vectors.shape[0]))
    total = count * (count + 1) // 2

    def add(now: tuple[Array, Array]) -> tuple[Array, Array]:
        index, found = now
        one, other = vectors[rows[index]], vectors[columns[index]]

        def along(where: Array) -> Array:
            return jax.jvp(slope, (where,), (one,))[1]

        value = jax.jvp(along, (flat,), (other,))[1]
        factor = jnp.where(rows[index] == columns[index], 1.0, np.sqrt(2.0)).astype(flat.dtype)
        return index + 1, found.at[index].set(factor * value)

    begin = jnp.zeros((), count.dtype), jnp.zeros((rows.size, flat.size), flat.dtype)
    return jax.lax.while_loop(lambda now: now[0] < total, add, begin)[1]
