"""Annotations that carry shapes, executed while tests run: `conftest.py` puts `checked` on every function of Linnet.

Only hints made of jaxtyping arrays are checked. A word or a key that a user gets wrong is Linnet's own to refuse, in a
sentence, and tests give it such on purpose. Arguments may be NumPy's where JAX's are named: JAX takes both. Where
an array may have no axis a number will do.
"""

import inspect
import types
import typing

import beartype
import jax
import jaxtyping
import numpy as np

_CONTAINERS = (tuple, list, dict, typing.Union, types.UnionType)


def carries_shapes(hint):
    """Whether a hint is an array with a shape, or made of such and nothing else but None."""
    if inspect.isclass(hint):
        return issubclass(hint, jaxtyping.AbstractArray) and hint.dtype is not jaxtyping.Key
    parts = [part for part in typing.get_args(hint) if part not in (types.NoneType, Ellipsis)]
    return typing.get_origin(hint) in _CONTAINERS and bool(parts) and all(map(carries_shapes, parts))


def eased(hint, *, given):
    """The hint with numbers for arrays of no axis, and for arguments with NumPy's arrays beside JAX's."""
    if not inspect.isclass(hint):
        return hint
    whole = hint.dtype[jax.Array | np.ndarray, hint.dim_str] if given and hint.array_type is jax.Array else hint
    if hint.dim_str.strip() not in ("", "..."):
        return whole
    return whole | np.number | int | float if given else whole | np.inexact if hint.array_type is np.ndarray else whole


def checked(function):
    """The function with its shapes checked, and nothing else."""
    hints = {
        name: eased(hint, given=name != "return")
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
