"""Linnet: the training dynamics of linear networks, predicted and simulated.

The public names are listed in `__init__.pyi` and load on first use, so that `import linnet` takes a millisecond.
JAX's 64-bit floats are switched on: at once where it is loaded, else when it is, by whomever. A process that never
loads JAX keeps its environment.
"""

import ast
import importlib
import os
import sys
from pathlib import Path
from typing import Any


class _DoublePrecision:
    """Switches 64-bit floats on before JAX is loaded, and finds nothing."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "jax":
            sys.meta_path.remove(self)
            os.environ["JAX_ENABLE_X64"] = "1"


if "jax" in sys.modules:
    sys.modules["jax"].config.update("jax_enable_x64", True)
else:
    sys.meta_path.insert(0, _DoublePrecision())


def _exports() -> dict[str, tuple[str, str]]:
    """Public name -> (module, name there), read from the stub."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: (node.module or "", alias.name) for node in imports for alias in node.names}


_EXPORTS = _exports()
__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'linnet' has no attribute {name!r}")
    module, attribute = _EXPORTS[name]
    if module == "linnet":
        return importlib.import_module(f"linnet.{attribute}")
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__name__"]
