"""Numbers as sentences and tables show them."""

import math


def number(value: float | None, digits: int = 4) -> str:
    """A number in a table: few digits, a dash where there is none, words for what never comes or is unknown."""
    if value is None:
        return "–"
    if math.isnan(value):
        return "?"
    if math.isinf(value):
        return "never"
    return f"{value:d}" if isinstance(value, int) else f"{value:.{digits}g}"


def percent(error: float | None) -> str:
    """A relative error; empty where it is unknown."""
    return "" if error is None else "0" if error == 0 else f"{max(100 * error, 0.1):.2g}%"


def plural(count: int, word: str) -> str:
    """`1 mode`, `3 modes`."""
    return f"{count:,} {word}{'s' * (count != 1)}"


def step(value: float | None) -> str:
    """A number of steps."""
    if value is None or math.isnan(value):
        return "?"
    if math.isinf(value):
        return "never"
    return f"{value:,.0f}" if 100 <= value < 1e7 else f"{value:.3g}"
