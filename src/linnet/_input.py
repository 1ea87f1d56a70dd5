"""Checks of single values that users give, without loading JAX: one sentence with the argument and what is allowed."""

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np


class InputError(ValueError):
    """Something given to Linnet cannot be used; the message names it, its value and what is allowed."""


def traced(value: Any) -> bool:
    """Whether JAX is tracing any part of `value`, so that its numbers are not known."""
    jax = sys.modules.get("jax")
    return jax is not None and any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value))


def show(value: Any) -> str:
    """A short text for a value in an error message."""
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(value, jax.core.Tracer):
        return f"a traced value of shape {value.shape}"
    if isinstance(value, np.ndarray) or (jax is not None and isinstance(value, jax.Array)):
        return f"{value.item()!r}" if value.ndim == 0 else f"an array of shape {tuple(value.shape)}"
    text = " ".join(repr(value).split())  # arrays inside would break the line
    return text if len(text) <= 60 else text[:57] + "..."


def _is_number(value: Any) -> bool:
    """Whether it is a number or an array of numbers of Python, NumPy, or JAX."""
    jax = sys.modules.get("jax")
    known = isinstance(value, int | float | np.integer | np.floating | np.ndarray)
    return known or (jax is not None and isinstance(value, jax.Array))


def inside(
    value: Any, above: float | None, least: float | None, below: float | None, most: float | None
) -> np.ndarray | bool:
    """Where `value` is finite and inside the range."""
    inside = np.isfinite(value)
    for limit, holds in ((above, np.greater), (least, np.greater_equal), (below, np.less), (most, np.less_equal)):
        if limit is not None:
            inside = inside & holds(value, limit)
    return inside


def allowed_range(above: float | None, least: float | None, below: float | None, most: float | None) -> str:
    """The range in words."""
    bounds = ((above, "greater than"), (least, "of at least"), (below, "less than"), (most, "of at most"))
    if least is not None and most is not None:
        return f"a number from {least:g} to {most:g}"
    return " ".join(["a finite number", " and ".join(f"{word} {x:g}" for x, word in bounds if x is not None)]).strip()


def real(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> float:
    """`value` as a Python number inside the given range; it may not be traced."""
    refused = InputError(
        f"{name} = {show(value)} is not allowed: {name} must be {allowed_range(above, least, below, most)}."
    )
    truth = isinstance(value, bool) or str(getattr(value, "dtype", "")) == "bool"
    if truth or traced(value) or not _is_number(value) or np.ndim(value) != 0:
        raise refused
    try:
        x = float(value)
    except (TypeError, ValueError, OverflowError):
        raise refused from None
    if not inside(x, above, least, below, most):
        raise refused
    return x


def integer(name: str, value: Any, *, least: int, most: int | None = None, reason: str = "") -> int:
    """`value` as a Python integer inside the given range."""
    allowed = f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most}"
    if reason:
        allowed += f" ({reason})"
    whole = (
        _is_number(value)
        and not isinstance(value, bool)
        and not traced(value)
        and np.ndim(value) == 0
        and (isinstance(value, int) or (math.isfinite(float(value)) and float(value).is_integer()))
    )
    if not whole or int(value) < least or (most is not None and int(value) > most):
        raise InputError(f"{name} = {show(value)} is not allowed: {name} must be {allowed}.")
    return int(value)


def flag(name: str, value: Any) -> bool:
    """`value` if it is True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{name} = {show(value)} is not allowed: {name} must be True or False.")
    return value


def choice(name: str, value: Any, options: Sequence[str]) -> str:
    """`value` if it is one of `options`."""
    if value not in options:
        listed = ", ".join(repr(option) for option in options)
        raise InputError(f"{name} = {show(value)} is not allowed: {name} must be one of {listed}.")
    return str(value)
