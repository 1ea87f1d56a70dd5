"""What the pages share: templates, their style, and how they print numbers."""

import math
from typing import Any

import jinja2

from linnet._files import duration
from linnet.report.latex import typeset


def environment() -> jinja2.Environment:
    """The environment of this package's templates."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("linnet", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(figure=_figure, typeset=typeset, duration=duration, capitalized=_capitalized, value=_value)
    return made


def _figure(number: float, digits: int = 4) -> Any:
    """A number as it is printed; a dash for what is not finite."""
    return "–" if not math.isfinite(number) else typeset(f"{number:.{digits}g}")


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _value(value: Any) -> str:
    """A parameter's value; long lists in few words."""
    if isinstance(value, list | tuple):
        shown = [_value(part) for part in value]
        return ", ".join(shown if len(shown) <= 12 else [*shown[:6], "...", *shown[-2:]])
    return f"{value:.6g}" if isinstance(value, float) else str(value)
