"""Arithmetic that users type: numbers, names, comparisons and a few functions; nothing else can be called."""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

from linnet._check import InputError


def _power(a: Any, b: Any) -> float:
    """In floating point: whole numbers would grow without end."""
    value = float(a) ** float(b)
    if isinstance(value, complex):
        raise ArithmeticError(f"{a} ** {b} is not real")
    return value


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "ceil": math.ceil,
    "exp": math.exp,
    "floor": math.floor,
    "hypot": math.hypot,
    "log": math.log,
    "log10": math.log10,
    "max": max,
    "min": min,
    "round": round,
    "sqrt": math.sqrt,
}


def evaluate(text: str, name: Callable[[str], Any], functions: Mapping[str, Callable[..., Any]]) -> Any:
    """The value of an expression; `name` gives the values of names, `functions` what may be called."""

    def visit(node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return value
            case ast.Name(id=known):
                return name(known)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _BINARY[type(op)](visit(left), visit(right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
                return _UNARY[type(op)](visit(operand))
            case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(op) in _COMPARE for op in ops):
                values = [visit(left), *map(visit, rights)]
                return all(_COMPARE[type(op)](*pair) for op, pair in zip(ops, pairwise(values), strict=True))
            case ast.BoolOp(op=ast.And(), values=parts):
                return all(visit(part) for part in parts)
            case ast.BoolOp(op=ast.Or(), values=parts):
                return any(visit(part) for part in parts)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return visit(body) if visit(test) else visit(orelse)
            case ast.Call(func=ast.Name(id=called), args=arguments, keywords=[]):
                if called not in functions:
                    raise InputError(f"{text!r} calls {called}: it may call {', '.join(sorted(functions))}.")
                return functions[called](*map(visit, arguments))
        raise InputError(
            f"{text!r} is not arithmetic: use numbers, names, + - * / **, comparisons, if-else and functions."
        )

    try:
        return visit(_parsed(text))
    except RecursionError:
        raise InputError(f"{text[:40]!r}... has no value: it is nested too deeply.") from None
    except (ArithmeticError, ValueError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{text!r} has no value: {error}.") from None


@lru_cache(maxsize=1024)
def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(f"{text!r} is not arithmetic: it cannot be read.") from None
