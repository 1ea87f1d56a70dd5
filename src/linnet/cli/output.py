"""JSON that every program can read."""

import json
import math
from typing import Any


def dumps(tree: Any) -> str:
    """JSON text; what is not a finite number becomes null, for which JSON has no other word."""
    return json.dumps(_plain(tree), indent=2, allow_nan=False)


def _plain(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _plain(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_plain(value) for value in tree]
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree
