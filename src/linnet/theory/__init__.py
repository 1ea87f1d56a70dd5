"""Theory: the papers' formulas in numerically stable form, one module for each subject. No simulation."""

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
    "spectral",
    "stability",
]
