"""How much curvature steps bear: the one formula of descent with momentum and decay (`optimisers/C1` to C4)."""

from typing import Any


def counted(beta: Any, *, nesterov: bool, average: bool) -> Any:
    """n: how much of a curvature counts, of 2(1 + b)/eta."""
    return (1 + 2 * beta if nesterov else 1.0) * (1 - beta if average else 1.0)


def limit(lr: Any, beta: Any, decay: Any, *, nesterov: bool, average: bool, decoupled: bool) -> Any:
    """The curvature of the cost alone below which a step is stable, of numbers or arrays."""
    n = counted(beta, nesterov=nesterov, average=average)
    return (1 + beta) * (2 / lr - decay) / n if decoupled else 2 * (1 + beta) / (n * lr) - decay
