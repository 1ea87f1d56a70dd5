"""The weights of a linear network, in full or compressed width."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from linnet import _check
from linnet._check import InputError, namespace, numpy_if_known
from linnet.linalg import product, smallest_singular_value, transposed_product
from linnet.problems import Problem
from linnet.states.state import State


class Weights(State):
    """A = W_L ... W_1; `layers` holds W_1 first, W_l of shape d_l x d_{l-1}.

    `compressed` says that these layers stand for a wider network, in a basis of what its neurons span: exact for
    all that treats neurons alike, and refused by what does not, such as `Adam`.
    """

    layers: tuple[Float[Array, "_ _"], ...] = eqx.field(converter=tuple)
    compressed: bool = eqx.field(static=True, default=False)

    def __init__(self, layers: Sequence[Any], *, compressed: bool = False):
        self.compressed = _check.flag("compressed", compressed)
        if not isinstance(layers, Sequence):
            raise InputError(f"layers = {_check.show(layers)} is not allowed: layers must be a sequence of matrices.")
        self.layers = tuple(_check.array(f"layer {i + 1}", w, ndim=2) for i, w in enumerate(layers))

    def __check_init__(self) -> None:
        if not self.layers:
            raise InputError("layers is empty: a network needs at least one layer.")
        for i, (below, above) in enumerate(pairwise(self.layers), start=1):
            if above.shape[1] != below.shape[0]:
                raise InputError(
                    f"layer {i + 1} has shape {above.shape} above layer {i} of shape {below.shape}: "
                    f"it must have {below.shape[0]} columns."
                )

    @property
    def rotated(self) -> bool:
        return self.compressed

    @numpy_if_known
    def by_layer(self, factors: Sequence[Any] | Float[Array, " depth"]) -> "Weights":
        return self.with_layers(scaled_layers(self.layers, factors))

    @property
    def depth(self) -> int:
        """The number of layers L."""
        return len(self.layers)

    @property
    def widths(self) -> tuple[int, ...]:
        """(d_0, ..., d_L), input and output included."""
        return (self.layers[0].shape[1], *(w.shape[0] for w in self.layers))

    def with_layers(self, layers: Sequence[Float[Array, "_ _"]]) -> "Weights":
        """The network with these matrices in the place of its `layers`."""
        return eqx.tree_at(lambda s: s.layers, self, tuple(layers))

    @numpy_if_known
    def prefixes(self) -> list[Float[Array, "_ d_in"]]:
        """[W_1, W_2 W_1, ..., A]."""
        out = [self.layers[0]]
        for w in self.layers[1:]:
            out.append(product(w, out[-1]))
        return out

    @property
    def matrix(self) -> Float[Array, "d_out d_in"]:
        return self.prefixes()[-1]

    @numpy_if_known
    def vjp(self, force: Float[Array, "d_out d_in"]) -> "Weights":
        """Layer l gets (W_L ... W_{l+1})^T F (W_{l-1} ... W_1)^T: one sweep forward, one back."""
        below = self.prefixes()[:-1]
        out: list[Array] = []
        for level in range(self.depth - 1, 0, -1):
            out.append(product(force, below[level - 1].T))
            force = transposed_product(self.layers[level], force)
        return self.with_layers((force, *reversed(out)))

    @numpy_if_known
    def velocity(self, problem: Problem) -> "Weights":
        return super().velocity(problem)

    @numpy_if_known
    def descend(self, problem: Problem, lr: Float[Array, ""] | float) -> "Weights":
        return super().descend(problem, lr)

    @property
    @numpy_if_known
    def size(self) -> Float[Array, ""]:
        """The smallest singular value of a layer that is not rounding of its largest."""
        xp = namespace(self.layers)
        return xp.min(xp.stack([smallest_singular_value(w) for w in self.layers]))

    @numpy_if_known
    def imbalance(self) -> tuple[Float[Array, "_ _"], ...]:
        """D_l = W_l W_l^T - W_{l+1}^T W_{l+1} for l = 1..L-1: the constants of every gradient flow."""
        return imbalances(self.layers) if self.depth > 1 else ()

    def balance(self, *, tol: float = 1e-10) -> float | None:
        """lambda if these two layers are lambda-balanced, W_2^T W_2 - W_1 W_1^T = lambda I; None if they are not.

        The literature's lambda: `imbalance` is -lambda I. Balanced means up to `tol` times |W_1|^2 + |W_2|^2 (Frobenius
        norms, of the difference too); lambda is the mean that was measured, and 0 if that is rounding.
        `theory.balance` has the flow of such layers in closed form.
        """
        tol = _check.real("tol", tol, least=0, below=1)
        if self.depth != 2:
            raise InputError(f"this network has {self.depth} layers: lambda is a number of two layers.")
        if _check.traced(self.layers):
            raise InputError("whether layers are balanced depends on their numbers: balance() cannot be traced.")
        found = measured_balance(*self.layers)
        return float(found.lam) if found.defect <= tol else None

    @numpy_if_known
    def compress(self, *, tol: float | None = None) -> "Weights":
        """A network that trains in the same way, with every hidden layer cut to the neurons that matter.

        Training acts on layer l's neurons only through span[W_l, W_{l+1}^T], so a basis of it replaces them: at most
        d_{l-1} + d_{l+1} neurons (two layers: d_in + d_out whatever the width). Exact for descent, momentum, decay,
        mini-batches, Muon, flow and noise, and not for Adam, which treats each weight separately.
        `tol` also drops directions below tol times the largest, which makes a balanced start of rank k a network of
        width k.
        """
        layers = list(self.layers)
        xp = namespace(layers)
        cut, shorter = True, self.compressed
        while cut:  # a cut layer lets its neighbors be cut further
            cut = False
            for i in range(len(layers) - 1):
                both = xp.concatenate([layers[i], layers[i + 1].T], axis=1)
                basis = _span(both, tol)
                if basis is not None and basis.shape[1] < both.shape[0]:
                    layers[i], layers[i + 1] = basis.T @ layers[i], layers[i + 1] @ basis
                    cut = shorter = True
        return Weights(tuple(layers), compressed=shorter)

    @numpy_if_known
    def expand(self, initial: "Weights") -> "Weights":
        """Inverse of `compress`, for two layers: every neuron of `initial`, where this network has taken it.

        [W_1, W_2^T] = Z R with orthonormal Z, and training moves R only: the neurons are the rows of Z R.
        `self` is a network that has started at `initial.compress()`.
        """
        if not isinstance(initial, Weights) or initial.depth != 2:
            raise InputError(
                f"initial = {_check.show(initial)} is not allowed: initial must be the two layers before compress."
            )
        frame = _span(_stack(initial), None)
        d_in, w, d_out = initial.widths
        small = (d_in, w if frame is None else frame.shape[1], d_out)
        if self.depth != 2 or self.widths != small:
            raise InputError(f"this network has widths {self.widths}: what initial compresses to has {small}.")
        if frame is None:
            return self
        return Weights((product(frame, self.layers[0]), product(self.layers[1], frame.T)))

    @numpy_if_known
    def propagated(self, phi: "Weights") -> "Weights":
        """The network after the flow map `phi` (see `init.propagator`): S = Phi S(0), two layers."""
        if self.depth != 2 or not isinstance(phi, Weights) or phi.depth != 2:
            raise InputError("propagated needs two networks of two layers: this one, and a propagator that has moved.")
        d_in, _, d_out = self.widths
        if phi.widths != (d_in, d_in + d_out, d_out):
            raise InputError(f"phi has widths {phi.widths}: it must have {(d_in, d_in + d_out, d_out)}.")
        stack = _stack(self)
        layers = product(stack, phi.layers[0]), product(phi.layers[1], stack.T)
        return Weights(layers, compressed=self.compressed)

    @numpy_if_known
    def project(self, basis: Float[Array, "r d_in"]) -> "Weights":
        """The network on the span of the samples (`Regression.project`): W_1 becomes W_1 basis^T."""
        first, *rest = self.layers
        _, (basis,) = _check.known(_check.array("basis", basis, ndim=2))
        if first.shape[1] != basis.shape[1]:
            raise InputError(f"basis has {basis.shape[1]} columns: it must have d_in = {first.shape[1]}.")
        return Weights((product(first, basis.T), *rest), compressed=True)

    @numpy_if_known
    def lift(self, basis: Float[Array, "r d_in"], initial: "Weights") -> "Weights":
        """Inverse of `project`: what the samples do not span keeps the value it had in `initial`."""
        if not isinstance(initial, Weights):
            raise InputError(
                f"initial = {_check.show(initial)} is not allowed: initial must be the Weights before project."
            )
        first, *rest = self.layers
        frozen = initial.layers[0]
        if first.shape[1] != basis.shape[0] or frozen.shape != (first.shape[0], basis.shape[1]):
            raise InputError(
                f"W_1 has shape {first.shape} here and {frozen.shape} in initial: they must have {basis.shape[0]} and "
                f"{basis.shape[1]} columns and the same neurons."
            )
        return Weights((frozen + (first - frozen @ basis.T) @ basis, *rest), compressed=initial.compressed)


def imbalances(layers: Sequence[Float[Array, "_ _"]]) -> tuple[Float[Array, "_ _"], ...]:
    """W_l W_l^T - W_{l+1}^T W_{l+1} at each junction."""
    return tuple(product(below, below.T) - product(above.T, above) for below, above in junctions(layers))


def junctions(layers: Sequence[Array]) -> list[tuple[Array, Array]]:
    """Neighboring layers, the lower one first; refused where the neurons of one are not the inputs of the next."""
    pairs = list(pairwise(layers))
    if not pairs or any(above.shape[-1] != below.shape[0] for below, above in pairs):
        shapes = ", ".join(str(layer.shape) for layer in layers)
        raise InputError(f"layers of shapes {shapes} do not follow each other: they have no junctions.")
    return pairs


def scaled_layers(layers: Sequence[Array], factors: Any) -> tuple[Array, ...]:
    """Each layer times its factor."""
    if len(factors) != len(layers):
        raise InputError(
            f"lr_multipliers has {len(factors)} numbers: it must have one for each of the {len(layers)} layers."
        )
    return tuple(factor * layer for factor, layer in zip(factors, layers, strict=True))


class Balance(NamedTuple):
    """The mean lambda of two layers, what W_2^T W_2 - W_1 W_1^T - lambda I is in units of `size`, |W_1|^2 + |W_2|^2."""

    lam: Any
    defect: Any
    size: Any


def measured_balance(first: Any, second: Any) -> Balance:
    """How far two layers are from W_2^T W_2 - W_1 W_1^T = lambda I, in NumPy where they are known."""
    xp, (first, second) = _check.known(first, second)
    first, second = first.astype(np.float64), second.astype(np.float64)
    (w, d_in), both = first.shape, xp.concatenate([first, second.T], axis=1)
    if w > both.shape[1]:  # neurons beyond d_in + d_out have nothing in either layer, after a rotation
        both = xp.linalg.qr(both, mode="r")
    one, two = both[:, :d_in], both[:, d_in:]
    gap = two @ two.T - one @ one.T
    lam, size = xp.trace(gap) / w, xp.sum(both**2)
    lam = xp.where(xp.abs(lam) > np.finfo(np.float64).eps * size, lam, 0.0)  # less is rounding
    apart = xp.sum((gap - lam * np.eye(len(both))) ** 2) + (w - len(both)) * lam**2
    return Balance(lam, xp.sqrt(apart) / xp.where(size > 0, size, 1.0), size)


def balance_exists(lam: Any, width: int, shape: tuple[int, int]) -> None:
    """Refuses a lambda that no layers of this width have: lambda > 0 needs w <= d_out, lambda < 0 needs w <= d_in."""
    if _check.traced(lam) or lam == 0:
        return
    (name, most), sign = (("d_out", shape[0]), ">") if lam > 0 else (("d_in", shape[1]), "<")
    if width > most:
        raise InputError(
            f"width = {width} is not allowed: lambda {sign} 0 needs a width of at most "
            f"{name} = {most} (lambda = {lam:g})."
        )


def _stack(weights: Weights) -> Float[Array, "w d_in_and_d_out"]:
    """[W_1, W_2^T]."""
    first, second = weights.layers
    return namespace(first).concatenate([first, second.T], axis=1)


def _span(columns: Any, tol: float | None) -> Any:
    """An orthonormal basis of the column space, or None where it cannot be smaller than the whole space."""
    xp = namespace(columns)
    if tol is None:
        return xp.linalg.qr(columns)[0] if columns.shape[0] > columns.shape[1] else None
    tol_value = _check.real("tol", tol, least=0, most=1)
    if _check.traced(columns):
        raise InputError("tol makes the width depend on the numbers: compress(tol=...) cannot be traced.")
    u, s, _ = np.linalg.svd(columns, full_matrices=False)
    return u[:, : max(1, int(np.sum(s > tol_value * s[0])))]
