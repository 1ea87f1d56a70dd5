"""Theory: the papers' formulas in numerically stable form, one module for each subject. No simulation.

Modules load on first use: what has no need of JAX does not load it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from linnet.theory import (
        balance,
        convergence,
        feature,
        flows,
        landscape,
        mixed,
        mode_fate,
        optimizers,
        rank_one_flow,
        regime,
        spectral,
        stability,
    )

__all__ = [
    "balance",
    "convergence",
    "feature",
    "flows",
    "landscape",
    "mixed",
    "mode_fate",
    "optimizers",
    "rank_one_flow",
    "regime",
    "spectral",
    "stability",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
