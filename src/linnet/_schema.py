"""Base class of input models, and validation errors as one sentence."""

import re

from pydantic import BaseModel, ConfigDict, ValidationError


class Part(BaseModel):
    """A table of a TOML file; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def sentence(error: ValidationError) -> str:
    """The first mistake that pydantic found, in one sentence."""
    first = error.errors(include_url=False)[0]
    # pydantic names the alternatives of a union too: Axis, int, list[float], function-after[...]
    place = [str(part) for part in first["loc"]]
    last = place.pop() if first["type"] == "extra_forbidden" else None  # a name as it was written
    known = [part for part in place if not re.match(r"[A-Z]|.*\[|(int|float|str|bool|constrained-\w+)$", part)]
    field = ".".join([*known, *([] if last is None else [last])])
    why = first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        return f"{field} is missing."
    if first["type"] == "extra_forbidden":
        return f"{field} is not known."
    if first["type"] == "value_error":
        return why if why.endswith(".") else f"{why}."
    return f"{field} = {first['input']!r} is not allowed: {why[:1].lower()}{why[1:]}."
