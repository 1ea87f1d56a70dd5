"""The matrices of a model: its layers, and pairs of factors whose product is one matrix."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from linnet import _input
from linnet._input import InputError
from linnet.probe.surface import Surface

_VALUES = 3  # singular values that are recorded of each
_SMALL = 1e-3  # of the largest: smaller ones are not taken from a Gram matrix, where they lose six digits and more


class Factor(NamedTuple):
    """A trainable matrix, or some of its rows or columns (a head's), with the bias that is added to its output."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None
    rows: slice = slice(None)
    columns: slice = slice(None)
    transposed: bool = False

    def matrix(self, given: Mapping[int, torch.Tensor] | None = None) -> torch.Tensor:
        """Its current values in double precision; a bias is a last column, as of an input that is always 1.

        With `given` it is made of these tensors instead, such as gradients, by the id of their parameter; 0 where there
        is none.
        """

        def numbers(parameter: torch.Tensor) -> torch.Tensor:
            if given is None:
                return parameter.detach()
            return given[id(parameter)] if id(parameter) in given else torch.zeros_like(parameter)

        with torch.no_grad():
            found = numbers(self.weight)[self.rows, self.columns].double()
            if self.bias is not None:
                found = torch.cat([found, numbers(self.bias)[self.rows, None].double()], dim=1)
            return found.T if self.transposed else found

    def put(self, matrix: torch.Tensor, into: Mapping[int, torch.Tensor]) -> None:
        """Adds a matrix of its shape to tensors by the id of their parameter: the inverse of `matrix`."""
        whole = matrix.T if self.transposed else matrix
        if self.bias is not None:
            whole, last = whole[:, :-1], whole[:, -1]
            if id(self.bias) in into:
                into[id(self.bias)][self.rows] += last.to(into[id(self.bias)])
        into[id(self.weight)][self.rows, self.columns] += whole.to(into[id(self.weight)])


class Layer(NamedTuple):
    """One trainable matrix, or a product of two, the first one first.

    Two factors are those of an adapter (peft's `lora_A` and `lora_B`, times `scale`, beside a frozen `base`), of
    adjacent linear layers, of an attention head (queries and keys, values and outputs), or a pair named by the user.
    """

    name: str
    factors: tuple[Factor, ...]
    scale: float = 1.0
    base: torch.Tensor | None = None

    def matrices(self) -> list[torch.Tensor]:
        """Its factors in double precision."""
        return [factor.matrix() for factor in self.factors]

    def imbalance(self) -> torch.Tensor | None:
        """W_1 W_1^T - W_2^T W_2 of two factors: a constant of gradient flow, if W_1 has its bias as a column."""
        if len(self.factors) != 2:
            return None
        first, second = self.matrices()
        return first @ first.T - second.T @ second

    def kernel(self) -> float | None:
        """|W_1|^2 + |W_2|^2 of two factors: the largest eigenvalue of the product's tangent kernel."""
        return sum(spectral_norm(part) ** 2 for part in self.matrices()) if len(self.factors) == 2 else None

    def reference(self) -> tuple[torch.Tensor | None, float | None]:
        """What later measurements are compared with."""
        return self.imbalance(), self.kernel()

    def measure(self, reference: tuple[torch.Tensor | None, float | None]) -> dict[str, Any]:
        """Top singular values; of two factors the imbalance and its drift, relative to their squares, the alignment
        |W_2 W_1| / (|W_2| |W_1|), 1 where their top singular vectors agree, and the growth of the kernel.
        """
        parts = self.matrices()
        if len(parts) == 1:
            values = _padded(singular_values(parts[0]))
            return {"singular_values": values, "imbalance": None, "drift": None, "alignment": None, "growth": None}
        # B A = Q_b (R_b R_a^T) Q_a^T
        first, second = torch.linalg.qr(parts[0].T)[1].T, torch.linalg.qr(parts[1])[1]
        values = torch.linalg.svdvals(second @ first)
        norms = [spectral_norm(part) for part in (first, second)]
        unit = sum(float((part**2).sum()) for part in parts) or 1.0
        now, (then, kernel) = first @ first.T - second.T @ second, reference
        return {
            "singular_values": _padded(self.scale * values),
            "imbalance": float(now.norm()) / unit,
            "drift": None if then is None else float((now - then).norm()) / unit,
            "alignment": float(values[0]) / (norms[0] * norms[1]) if norms[0] * norms[1] > 0 else None,
            "growth": sum(norm**2 for norm in norms) / kernel if kernel else None,
        }


def singular_values(matrix: torch.Tensor) -> torch.Tensor:
    """The largest few, descending, as roots of the smaller Gram matrix's eigenvalues, which takes a half to a fifth of
    the time. That has an error of eps (s_1/s)^2 in s: where one of them is below 1e-3 s_1, an SVD computes all.
    """
    values = _squares(matrix)[-_VALUES:].flip(0).sqrt()
    return values if not len(values) or values[-1] > _SMALL * values[0] else torch.linalg.svdvals(matrix)


def spectral_norm(matrix: torch.Tensor) -> float:
    """The largest singular value."""
    return float(_squares(matrix)[-1].sqrt())


def _squares(matrix: torch.Tensor) -> torch.Tensor:
    """Squares of the singular values, ascending, by the smaller side."""
    small = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    return torch.linalg.eigvalsh(small).clamp(min=0)


def _matrix(module: Any, name: str = "weight") -> torch.Tensor | None:
    """A module's own parameter: not what a parametrization computes for its name, and changes buffers by it."""
    found: torch.Tensor | None = module._parameters.get(name) if isinstance(module, torch.nn.Module) else None
    return found if found is not None and found.ndim == 2 else None


def _padded(values: torch.Tensor) -> list[float]:
    found = values[:_VALUES].tolist()
    return found + [0.0] * (_VALUES - len(found))


# Finding them --------------------------------------------------------------------------------------------------------


def layers_of(surface: Surface, named: Sequence[tuple[str, str]] = ()) -> list[Layer]:
    """The layers of a model: named pairs, factorized layers that are found, and all other trainable matrices."""
    model = surface.model
    training = {id(weight) for weight in surface.weights}
    pairs, used = list[Layer](), set[int]()
    own = [_named(model, pair) for pair in _pairs(named)]
    for pair in own:
        for factor in pair.factors:
            if id(factor.weight) not in training:
                raise InputError(f"pairs: {pair.name} has a matrix that does not train.")
    for found in (own, _adapters(model), _sequential_pairs(model), _attention(model)):
        fresh = [
            pair
            for pair in found
            if all(id(factor.weight) in training and id(factor.weight) not in used for factor in pair.factors)
        ]
        pairs += fresh
        used |= {id(factor.weight) for pair in fresh for factor in pair.factors}
    alone = [
        Layer(name, (Factor(weight),))
        for name, weight in model.named_parameters()
        if weight.ndim == 2 and id(weight) in training and id(weight) not in used
    ]
    return pairs + alone


def tokens(surface: Surface) -> torch.Tensor | None:
    """0 for each parameter of an embedding and 1 for the others, as one vector; None without embeddings."""
    kinds = torch.nn.Embedding | torch.nn.EmbeddingBag
    held = {id(part.weight) for part in surface.model.modules() if isinstance(part, kinds)}
    if not any(id(weight) in held for weight in surface.weights):
        return None
    sizes = [(weight.numel(), float(id(weight) not in held)) for weight in surface.weights]
    return torch.cat([torch.full((size,), moves, device=surface.device) for size, moves in sizes])


def _pairs(named: Any) -> list[tuple[str, str]]:
    try:
        return [(str(first), str(second)) for first, second in named]
    except (TypeError, ValueError):
        raise InputError(
            f"pairs = {_input.show(named)} is not allowed: give pairs of names of parameters, the first one first."
        ) from None


def _named(model: torch.nn.Module, names: tuple[str, str]) -> Layer:
    """Two matrices named by the user."""
    known = dict(model.named_parameters())
    for name in names:
        if name not in known or known[name].ndim != 2:
            raise InputError(f"pairs: {name!r} is not a matrix of the model: use a name of model.named_parameters().")
    first, second = (known[name] for name in names)
    if second.shape[1] != first.shape[0]:
        shapes = " and ".join(str(tuple(weight.shape)) for weight in (first, second))
        raise InputError(
            f"pairs: {names[0]!r} and {names[1]!r} have shapes {shapes}: the second must follow the first."
        )
    return Layer(" and ".join(names), (Factor(first), Factor(second)))


def _adapters(model: torch.nn.Module) -> Iterator[Layer]:
    """Low-rank adapters as peft keeps them: two dictionaries of linear layers, and a factor."""
    for name, module in model.named_modules():
        first, second = getattr(module, "lora_A", None), getattr(module, "lora_B", None)
        if not isinstance(first, torch.nn.ModuleDict) or not isinstance(second, torch.nn.ModuleDict):
            continue
        base = _matrix(getattr(module, "base_layer", None))
        for kind in first:
            below, above = _matrix(first[kind]), _matrix(second[kind]) if kind in second else None
            if below is None or above is None:
                continue
            scale = float(getattr(module, "scaling", {}).get(kind, 1.0))
            plain = base is not None and base.is_floating_point() and not base.requires_grad
            changed = getattr(module, "use_dora", {}).get(kind, False) or getattr(module, "merged", False)
            label = name if len(first) == 1 else f"{name} ({kind})"
            yield Layer(label, (Factor(below), Factor(above)), scale, base if plain and not changed else None)


def _sequential_pairs(model: torch.nn.Module) -> Iterator[Layer]:
    """Two adjacent linear layers in a `Sequential`."""
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Sequential):
            continue
        inner = list(module.named_children())
        i = 0
        while i < len(inner) - 1:
            (below, first), (above, second) = inner[i], inner[i + 1]
            if isinstance(first, torch.nn.Linear) and isinstance(second, torch.nn.Linear):
                weights = _matrix(first), _matrix(second)
                if weights[0] is not None and weights[1] is not None:
                    factors = (Factor(weights[0], first.bias), Factor(weights[1]))
                    yield Layer(f"{name}.{below} and {above}".lstrip("."), factors)
                    i += 1
            i += 1


# Attention -----------------------------------------------------------------------------------------------------------


def _attention(model: torch.nn.Module) -> Iterator[Layer]:
    """Two products for each head: queries with keys, and values with outputs."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.MultiheadAttention):
            yield from _torch_heads(name, module)
            continue
        for query, key, value in (("query", "key", "value"), ("q_proj", "k_proj", "v_proj")):
            parts = [getattr(module, part, None) for part in (query, key, value)]
            if all(isinstance(part, torch.nn.Linear) and _matrix(part) is not None for part in parts):
                yield from _linear_heads(model, name, module, parts)


def _torch_heads(name: str, module: torch.nn.MultiheadAttention) -> Iterator[Layer]:
    """Heads of PyTorch's own module; with three matrices only without biases, which are one vector."""
    width, bias = module.embed_dim, module.in_proj_bias
    whole, outputs = _matrix(module, "in_proj_weight"), _matrix(module.out_proj)
    apart = [_matrix(module, f"{letter}_proj_weight") for letter in "qkv"]
    for i in range(module.num_heads):
        own = slice(i * module.head_dim, (i + 1) * module.head_dim)
        if whole is not None:
            shifts = [slice(j * width + own.start, j * width + own.stop) for j in range(3)]
            query, key, value = (Factor(whole, bias, rows) for rows in shifts)
        elif bias is None and all(weight is not None for weight in apart):
            query, key, value = (Factor(weight, None, own) for weight in apart if weight is not None)
        else:
            return
        after = None if outputs is None else Factor(outputs, columns=own)
        yield from _head(f"{name}, head {i + 1}", query, key, value, after)


def _linear_heads(model: torch.nn.Module, name: str, module: Any, parts: Any) -> Iterator[Layer]:
    """Heads of a module with three linear layers, where each query has its own key."""
    size = getattr(module, "head_dim", None) or getattr(module, "attention_head_size", None)
    heads = getattr(module, "num_heads", None) or getattr(module, "num_attention_heads", None)
    whole = parts[0].out_features
    if not isinstance(size, int):
        size = whole // heads if isinstance(heads, int) and heads else None
    if not size or whole % size or any(part.out_features != whole for part in parts):
        return
    # with positions or normalization in between, queries and keys are no product of two matrices
    config = getattr(module, "config", None)
    between = any(getattr(config, word, None) for word in ("rope_parameters", "rope_theta", "rope_scaling"))
    between = between or any(hasattr(module, word) for word in ("q_norm", "k_norm", "rotary_emb", "q_layernorm"))
    outputs = _outputs(model, name, module)
    for i in range(whole // size):
        own = slice(i * size, (i + 1) * size)
        query, key, value = (Factor(part.weight, part.bias, own) for part in parts)
        after = None if outputs is None or outputs.in_features != whole else Factor(outputs.weight, columns=own)
        yield from _head(f"{name}, head {i + 1}", None if between else query, key, value, after)


def _outputs(model: torch.nn.Module, name: str, module: Any) -> torch.nn.Linear | None:
    """The linear layer after the values: the module's own, or that beside it (BERT's `output.dense`)."""
    above = name.rpartition(".")[0]
    beside = getattr(model.get_submodule(above), "output", None) if name else None
    for found in (*(getattr(module, word, None) for word in ("o_proj", "out_proj")), getattr(beside, "dense", None)):
        if isinstance(found, torch.nn.Linear) and _matrix(found) is not None:
            return found
    return None


def _head(name: str, query: Factor | None, key: Factor, value: Factor, outputs: Factor | None) -> Iterator[Layer]:
    if query is not None:
        yield Layer(f"{name}: queries and keys", (key, query._replace(transposed=True)))
    if outputs is not None:
        yield Layer(f"{name}: values and outputs", (value, outputs))
