"""A network that is not linear, on the same road: what it says about its samples takes the place of the matrix."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from linnet import _check
from linnet._check import InputError
from linnet.linalg import product, transposed_product
from linnet.states.state import State
from linnet.states.weights import scaled_layers


class ReluNetwork(State):
    """f(x) = W_2 relu(W_1 x), both layers trained; `matrix` holds f on the samples, d_out x n.

    With `factorisation(Y.T)` as its problem the cost is 1/2 |f(X) - Y|^2. Samples and labels divided by sqrt(n) make it
    the mean over n: relu is homogeneous. The samples are part of the state and do not move.
    """

    still: ClassVar[tuple[str, ...]] = ("inputs",)
    layers: tuple[Float[Array, "w d_in"], Float[Array, "d_out w"]]
    inputs: Float[Array, "n d_in"]

    def __init__(self, first: Any, second: Any, inputs: Any):
        self.layers = (_check.array("first", first, ndim=2), _check.array("second", second, ndim=2))
        self.inputs = _check.array("inputs", inputs, ndim=2)

    def __check_init__(self) -> None:
        (w, d_in), (_, above) = (layer.shape for layer in self.layers)
        if above != w:
            raise InputError(f"second has {above} columns: it must have one for each of the {w} neurons of first.")
        if self.inputs.shape[1] != d_in:
            raise InputError(f"inputs have {self.inputs.shape[1]} columns: they must have d_in = {d_in}, as first has.")

    def by_layer(self, factors: Any) -> "ReluNetwork":
        return eqx.tree_at(lambda s: s.layers, self, scaled_layers(self.layers, factors))

    def _hidden(self) -> Float[Array, "w n"]:
        return product(self.layers[0], self.inputs.T)

    @property
    def matrix(self) -> Float[Array, "d_out n"]:
        return product(self.layers[1], jax.nn.relu(self._hidden()))

    def change(self, force: Float[Array, "d_out n"]) -> "ReluNetwork":
        """W_2 gets F relu(W_1 X^T)^T, W_1 gets (W_2^T F where the neuron is active) X."""
        hidden = self._hidden()
        back = jnp.where(hidden > 0, transposed_product(self.layers[1], force), 0.0)
        moved = (product(back, self.inputs), product(force, jax.nn.relu(hidden).T))
        return eqx.tree_at(lambda s: (s.layers, s.inputs), self, (moved, jnp.zeros_like(self.inputs)))

    @property
    def size(self) -> Float[Array, ""]:
        """The smaller of the layers' largest entries."""
        return jnp.min(jnp.stack([jnp.max(jnp.abs(w)) for w in self.layers]))
