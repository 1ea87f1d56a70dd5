"""Any network as a state: its outputs on its samples take the place of the matrix."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from linnet import _check
from linnet._check import InputError
from linnet.problems import Problem, Samples
from linnet.states.state import State
from linnet.states.weights import imbalances


class Network(State):
    """f(theta, x) for any differentiable `function` of parameters theta and samples; `matrix` holds f, d_out x n.

    - `function(parameters, inputs)` takes all samples, the first axis of `inputs`, and returns a row of outputs for
      each (of any shape: an image counts as a row). Flax's `model.apply` is such a function; for an Equinox module,
      which takes one sample, use `Network.of(module, inputs)`. It is part of the compiled program: give the same
      function again, not a new one like it.
    - `parameters`: any tree of arrays. `trained` selects what is trained: a filter of Equinox, a tree of True and
      False in its shape (or of whole branches) or a function of an array; by default all real arrays. The rest is
      `frozen`.
    - `chunk_size`: how many samples are computed at once, by default all of them. Outputs, gradients, and Hessian
      products then need the memory of so many samples, and a third more time.

    `supervised(labels)` is the problem to give it. The samples are part of the state and do not move.
    """

    still: ClassVar[tuple[str, ...]] = ("frozen", "inputs")
    parameters: PyTree
    frozen: PyTree
    inputs: Float[Array, "n ..."]
    function: Callable[[Any, Any], Any] = eqx.field(static=True)
    chunk_size: int | None = eqx.field(static=True)

    def __init__(
        self,
        function: Callable[[Any, Any], Any],
        parameters: PyTree,
        inputs: Any,
        *,
        trained: Any = None,
        chunk_size: int | None = None,
    ):
        if not callable(function):
            raise InputError(
                f"function = {_check.show(function)} is not allowed: it must be a function of (parameters, inputs)."
            )
        self.function = function
        self.inputs = _check.array("inputs", inputs, ndim=tuple(range(1, 9)))
        self.chunk_size = None if chunk_size is None else _check.integer("chunk_size", chunk_size, least=1)
        self.parameters, self.frozen = _parted(parameters, trained)

    @classmethod
    def of(cls, module: Any, inputs: Any, *, trained: Any = None, chunk_size: int | None = None) -> "Network":
        """The network of an Equinox module, a function of one sample; `state.module` is the module again."""
        if not isinstance(module, eqx.Module) or not callable(module):
            raise InputError(f"module = {_check.show(module)} is not allowed: give an Equinox module with a __call__.")
        parameters, rest = eqx.partition(module, eqx.is_array)
        return Network(_Applied(rest), parameters, inputs, trained=trained, chunk_size=chunk_size)

    def __check_init__(self) -> None:
        if not jax.tree.leaves(self.parameters):
            raise InputError("parameters have nothing that moves: there must be an array of real numbers to train.")
        n = self.inputs.shape[0]
        try:
            with _check.traceable("function"):
                answer: Any = jax.eval_shape(self.function, self._all(self.parameters), self.inputs)
        except InputError:
            raise
        except Exception as error:  # whatever the user's function meets
            text = " ".join(str(error).split())
            shape = self.inputs.shape
            raise InputError(f"function cannot be called on these parameters and inputs of {shape}: {text}") from error
        rows: Any = getattr(answer, "shape", ())
        if rows[:1] != (n,) or not jnp.issubdtype(answer.dtype, jnp.floating):
            got = f"{answer.dtype} of shape {rows}" if hasattr(answer, "dtype") else _check.show(answer)
            raise InputError(f"function returns {got}: it must return real numbers, a row for each of {n} samples.")

    def _all(self, parameters: Any) -> Any:
        return eqx.combine(parameters, self.frozen)

    @property
    def module(self) -> Any:
        """The Equinox module, with the parameters of this state."""
        if not isinstance(self.function, _Applied):
            raise InputError("this network is a function of parameters: it was not made of an Equinox module.")
        return eqx.combine(self._all(self.parameters), self.function.rest)

    @property
    def layers(self) -> tuple[Float[Array, "_ _"], ...]:
        """The matrices among the parameters that move, in their order."""
        found = tuple(leaf for leaf in jax.tree.leaves(self.parameters) if leaf.ndim == 2)
        if not found:
            raise InputError("this network has no layers that are matrices.")
        return found

    def imbalance(self) -> tuple[Float[Array, "_ _"], ...]:
        """W_l W_l^T - W_{l+1}^T W_{l+1} of neighboring `layers`; with relu between them a flow keeps the diagonals."""
        return imbalances(self.layers)

    def with_layers(self, layers: Sequence[Float[Array, "_ _"]]) -> Self:
        """The network with these matrices in the place of its `layers`."""
        leaves, structure = jax.tree.flatten(self.parameters)
        given = iter(layers)
        new = [next(given) if leaf.ndim == 2 else leaf for leaf in leaves]
        return eqx.tree_at(lambda s: s.parameters, self, jax.tree.unflatten(structure, new))

    def alone(self, layer: int) -> Self:
        """The network in which W_layer alone moves, the first of its `layers` is 1; all else is `frozen`."""
        count = _check.integer("layer", layer, least=1, most=len(self.layers), reason="its matrices")
        leaves, structure = jax.tree.flatten(self.parameters)
        which = [i for i, leaf in enumerate(leaves) if leaf.ndim == 2][count - 1]
        chosen = jax.tree.unflatten(structure, [i == which for i in range(len(leaves))])
        moving, rest = eqx.partition(self.parameters, chosen)
        parts = moving, eqx.combine(rest, self.frozen)
        return eqx.tree_at(lambda s: (s.parameters, s.frozen), self, parts, is_leaf=lambda x: x is None)

    def linearized(self) -> "Network":
        """The network f(theta_0) + J (theta - theta_0), J = df/dtheta at these parameters: linear in what moves.

        Trained by the same optimizer it is the lazy theory of this network: outputs change with the tangent kernel of
        the start. Its parameters are (theta, nothing, nothing), and theta_0 and the frozen ones are `frozen`.
        """
        parts = self.parameters, self.parameters, self.frozen
        return Network(
            _Linear(self.function), parts, self.inputs, trained=(True, False, False), chunk_size=self.chunk_size
        )

    @property
    def whole(self) -> bool:
        return self.chunk_size is None

    def on(self, inputs: Any) -> Self:
        """The same network on other samples."""
        rows = _check.array("inputs", inputs, ndim=self.inputs.ndim)
        if rows.shape[1:] != self.inputs.shape[1:]:
            raise InputError(f"inputs have shape {rows.shape}: a sample of this network has {self.inputs.shape[1:]}.")
        return eqx.tree_at(lambda s: s.inputs, self, rows.astype(self.inputs.dtype))

    def sampled(self, problem: Problem) -> Samples:
        return Samples(self.inputs, problem.output_labels())

    def on_samples(
        self, problem: Problem, inputs: Float[Array, "b ..."], labels: Float[Array, "b ..."]
    ) -> tuple[Self, Problem]:
        return eqx.tree_at(lambda s: s.inputs, self, inputs), problem.with_output_labels(labels)

    def by_layer(self, factors: Any) -> Self:
        """Each array of the parameters that move multiplied by its factor, in their order."""
        leaves, structure = jax.tree.flatten(self.parameters)
        if len(factors) != len(leaves):
            raise InputError(
                f"lr_multipliers has {len(factors)} numbers: it must have one for each of {len(leaves)} arrays."
            )
        scaled = [factor * leaf for factor, leaf in zip(factors, leaves, strict=True)]
        return eqx.tree_at(lambda s: s.parameters, self, jax.tree.unflatten(structure, scaled))

    def _outputs(self, parameters: Any, inputs: Float[Array, "b ..."]) -> Float[Array, "d_out b"]:
        return self.function(self._all(parameters), inputs).reshape(inputs.shape[0], -1).T

    def _pieces(self) -> tuple[int, int]:
        """How many samples make whole pieces, and how many such pieces there are."""
        assert self.chunk_size is not None
        count = self.inputs.shape[0] // self.chunk_size
        return count * self.chunk_size, count

    @property
    def matrix(self) -> Float[Array, "d_out n"]:
        if self.chunk_size is None:
            return self._outputs(self.parameters, self.inputs)
        main, count = self._pieces()
        parts = []
        if count:
            pieces = self.inputs[:main].reshape(count, self.chunk_size, *self.inputs.shape[1:])
            rows = jax.lax.map(lambda piece: self._outputs(self.parameters, piece).T, pieces)
            parts.append(rows.reshape(main, -1).T)
        if main < self.inputs.shape[0]:
            parts.append(self._outputs(self.parameters, self.inputs[main:]))
        return jnp.concatenate(parts, axis=1)

    def _pulled(self, inputs: Float[Array, "b ..."], force: Float[Array, "d_out b"]) -> Any:
        """J^T force for some samples."""
        return jax.vjp(lambda parameters: self._outputs(parameters, inputs), self.parameters)[1](force)[0]

    def _changed(self, moved: Any) -> Self:
        """A change of the parameters in the shape of a state."""
        rest = jax.tree.map(jnp.zeros_like, (self.frozen, self.inputs))
        return eqx.tree_at(_fields, self, (moved, *rest), is_leaf=lambda x: x is None)

    def vjp(self, force: Float[Array, "d_out n"]) -> Self:
        """The vector-Jacobian product of the outputs."""
        if self.chunk_size is None:
            return self._changed(self._pulled(self.inputs, force))
        main, count = self._pieces()
        total = jax.tree.map(jnp.zeros_like, self.parameters)
        if count:
            pieces = self.inputs[:main].reshape(count, self.chunk_size, *self.inputs.shape[1:])
            forces = force[:, :main].reshape(-1, count, self.chunk_size).swapaxes(0, 1)

            def add(sums: Any, piece: Any) -> Any:
                return jax.tree.map(jnp.add, sums, self._pulled(*piece)), None

            total = jax.lax.scan(add, total, (pieces, forces))[0]
        if main < self.inputs.shape[0]:
            total = jax.tree.map(jnp.add, total, self._pulled(self.inputs[main:], force[:, main:]))
        return self._changed(total)

    def velocity(self, problem: Problem) -> Self:
        if self.chunk_size is not None:
            return super().velocity(problem)
        matrix, pull = jax.vjp(lambda parameters: self._outputs(parameters, self.inputs), self.parameters)
        return self._changed(pull(-self._asked(problem, matrix))[0])

    @property
    def size(self) -> Float[Array, ""]:
        """The smallest of the arrays' largest entries that are not 0."""
        largest = jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(self.parameters)])
        return jnp.min(jnp.where(largest > 0, largest, jnp.inf))


class ReluNetwork(Network):
    """f(x) = W_2 relu(W_1 x), both layers trained; `matrix` holds f on the samples, d_out x n.

    With `factorization(Y.T)` as its problem the cost is 1/2 |f(X) - Y|^2. Samples and labels divided by sqrt(n) make it
    the mean over n: relu is homogeneous.
    """

    def __init__(self, first: Any, second: Any, inputs: Any):
        layers = (_check.array("first", first, ndim=2), _check.array("second", second, ndim=2))
        rows = _check.array("inputs", inputs, ndim=2)
        (w, d_in), (_, above) = (layer.shape for layer in layers)
        if above != w:
            raise InputError(f"second has {above} columns: it must have one for each of the {w} neurons of first.")
        if rows.shape[1] != d_in:
            raise InputError(f"inputs have {rows.shape[1]} columns: they must have d_in = {d_in}, as first has.")
        super().__init__(_relu, layers, rows)


def _relu(layers: Any, inputs: Any) -> Any:
    first, second = layers
    return jax.nn.relu(inputs @ first.T) @ second.T


@dataclasses.dataclass(frozen=True)
class _Linear:
    """A network's function as a linear one of its parameters, around those that are given with them."""

    function: Callable[[Any, Any], Any]

    def __call__(self, parameters: Any, inputs: Any) -> Any:
        moved, initial, frozen = parameters
        step = jax.tree.map(jnp.subtract, moved, initial)
        outputs, change = jax.jvp(lambda at: self.function(eqx.combine(at, frozen), inputs), (initial,), (step,))
        return outputs + change


class _Applied(eqx.Module):
    """An Equinox module without its arrays, as a function of them and of all samples."""

    rest: Any

    def __call__(self, parameters: Any, inputs: Any) -> Any:
        return jax.vmap(eqx.combine(parameters, self.rest))(inputs)


def _fields(state: Network) -> tuple[Any, Any, Any]:
    return state.parameters, state.frozen, state.inputs


def _parted(parameters: Any, trained: Any) -> tuple[Any, Any]:
    """What moves and what does not, each with None in the place of the other."""

    def held(path: Any, leaf: Any) -> Any:
        name = f"parameters{jax.tree_util.keystr(path)}"
        if not eqx.is_array_like(leaf) and not hasattr(leaf, "__array__"):
            raise InputError(f"{name} = {_check.show(leaf)} is not allowed: parameters must be arrays of numbers.")
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.inexact):
            return jnp.asarray(leaf)  # whole numbers and flags are no weights
        return _check.array(name, leaf, ndim=tuple(range(9)))

    tree = jax.tree_util.tree_map_with_path(held, parameters)
    try:
        moving, rest = eqx.partition(tree, eqx.is_inexact_array if trained is None else trained)
    except (TypeError, ValueError):
        raise InputError(
            f"trained = {_check.show(trained)} is not allowed: it must be True or False for each branch of the "
            "parameters, or a function of an array."
        ) from None
    whole, moving = eqx.partition(moving, lambda leaf: not eqx.is_inexact_array(leaf))
    return moving, eqx.combine(rest, whole)
