"""Annotations that carry shapes, executed while tests run: `install` puts `checked` on every function of Linnet.

Only hints made of jaxtyping arrays are checked. A word or a key that a user gets wrong is Linnet's own to refuse, in a
sentence, and tests give it such on purpose. Arguments may be NumPy's where JAX's are named: JAX takes both. Where
an array may have no axis a number will do.

What is right for some arrays is right for all of their types and shapes, so a function checks each combination a few
times and then runs as it was written: loops in NumPy would spend most of their time here otherwise.
"""

import collections
import dataclasses
import functools
import inspect
import operator
import types
import typing

import beartype
import jax
import jaxtyping
import numpy as np

_TIMES = 8  # of a list beartype looks at one entry, drawn at random: a few looks see all kinds
_EITHER = ("linnet.theory.", "linnet.problems", "linnet.states.", "linnet.linalg", "linnet.init", "linnet._random")
_CONTAINERS = (tuple, list, dict, typing.Union, types.UnionType)


def carries_shapes(hint):
    """Whether a hint is an array with a shape, or made of such and nothing else but None."""
    if inspect.isclass(hint):
        return issubclass(hint, jaxtyping.AbstractArray) and hint.dtype is not jaxtyping.Key
    parts = [part for part in typing.get_args(hint) if part not in (types.NoneType, Ellipsis)]
    return typing.get_origin(hint) in _CONTAINERS and bool(parts) and all(map(carries_shapes, parts))


def eased(hint, *, given):
    """The hint with numbers for arrays of no axis, and for arguments with NumPy's arrays beside JAX's."""
    origin = typing.get_origin(hint)
    if origin in _CONTAINERS:
        parts = [eased(part, given=given) if carries_shapes(part) else part for part in typing.get_args(hint)]
        union = origin in (typing.Union, types.UnionType)
        return functools.reduce(operator.or_, parts) if union else origin[tuple(parts)]
    if not inspect.isclass(hint):
        return hint
    whole = hint.dtype[jax.Array | np.ndarray, hint.dim_str] if given and hint.array_type is jax.Array else hint
    if hint.dim_str.strip() not in ("", "..."):
        return whole
    return whole | np.number | int | float if given else whole | np.inexact if hint.array_type is np.ndarray else whole


def checked(function):
    """The function with its shapes checked, and nothing else."""
    # what computes in NumPy where numbers are known returns NumPy's arrays or JAX's
    either = function.__module__.startswith(_EITHER)
    hints = {
        name: eased(hint, given=either or name != "return")
        for name, hint in function.__annotations__.items()
        if carries_shapes(hint)
    }
    if not hints:
        return function
    bare = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    bare.__kwdefaults__, bare.__dict__, bare.__annotations__ = function.__kwdefaults__, function.__dict__, hints
    bare.__qualname__, bare.__module__, bare.__doc__ = function.__qualname__, function.__module__, function.__doc__
    return beartype.beartype(bare)


def looks(value):
    """All that a check can depend on: types and shapes."""
    if isinstance(value, tuple | list):
        return type(value), *map(looks, value)
    if isinstance(value, dict):
        return type(value), *((key, looks(part)) for key, part in value.items())
    return type(value), getattr(value, "shape", None), getattr(value, "dtype", None)


def sparing(function, jaxtyped):
    """The function as `jaxtyped` makes it until it has seen arguments and results of these looks often enough."""
    parameters = inspect.signature(function).parameters
    hinted = {name for name, hint in function.__annotations__.items() if carries_shapes(hint)}
    if not hinted or hasattr(function, "spared"):
        return function
    several = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    if several & {each.kind for each in parameters.values()} or "{" in str(list(function.__annotations__.values())):
        return jaxtyped(function)  # looks would not be all: a shape in braces may name any argument
    spots = [(spot, name) for spot, name in enumerate(parameters) if name in hinted]
    seen, whole, answer = collections.Counter(), jaxtyped(function), None
    judge = jaxtyped(functools.wraps(function)(lambda *_, **__: answer))

    @functools.wraps(function)
    def spared(*given, **named):
        nonlocal answer
        asked = tuple([looks(given[spot] if spot < len(given) else named.get(name, ...)) for spot, name in spots])
        often = seen[asked] >= _TIMES
        out = (function if often else whole)(*given, **named)
        seen[asked] += 1
        if "return" in hinted:
            both = asked, looks(out)
            if often and seen[both] < _TIMES:
                answer = out
                judge(*given, **named)
            seen[both] += 1
        return out

    spared.spared = True
    return spared


def install():
    """From here on, what is imported of Linnet is checked."""
    whole = jaxtyping.jaxtyped

    def jaxtyped(*, typechecker):  # as the hook of jaxtyping calls it
        def decorated(part):
            if not inspect.isclass(part):
                return sparing(part, whole(typechecker=typechecker))
            if dataclasses.is_dataclass(part) and inspect.isfunction(part.__init__):
                part.__init__ = sparing(part.__init__, whole(typechecker=typechecker))
            return part

        return decorated

    jaxtyping.jaxtyped = jaxtyped
    jaxtyping.install_import_hook("linnet", "shapes.checked")
