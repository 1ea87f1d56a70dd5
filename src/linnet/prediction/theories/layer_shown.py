"""Sources, sentences, and columns of a prediction of a layer."""

import math

from linnet.prediction.assumption import Assumption, Source
from linnet.prediction.numbers import number, plural
from linnet.prediction.prediction import Column
from linnet.theory.regime import LAZY_BELOW, RICH_ABOVE


def sources(needed: tuple[Assumption, ...], same: Assumption) -> tuple[Source, Source, Source, Source, Source]:
    """Of derivatives, the largest stable learning rate, the modes, the loss, and the kernel.

    `needed`: that outputs are linear and that the cost is quadratic; empty where linear theory diverges.
    """
    modes = "eigenvectors of the Gauss-Newton block, with the cost's curvature at initialization"
    rule = f"lazy below {LAZY_BELOW:g}, rich above {RICH_ABOVE:g}"
    return (
        Source("derivatives at initialization, exact"),
        Source("2 over the Gauss-Newton block's largest eigenvalue", (), (same,)),
        Source(modes, (), needed),
        Source("descent on outputs linear in the layer, with the cost itself", (), needed[:1]),
        Source(f"1 + change of the kernel where linear theory leads: {rule}"),
    )


def headline(layer: int | None, largest: float, of_network: float) -> str:
    """Up to which learning rates the layer and the network are stable."""
    return (
        f"[bold]{'All weights are' if layer is None else f'W_{layer} is'} stable for lr < {number(largest)}[/] in "
        f"linear theory{'' if layer is None else ', all other weights fixed'}; the network for lr < "
        f"{number(of_network)} at initialization."
    )


def loss(initial: float, final: float, steps: int) -> str:
    """Where linear theory leads the loss."""
    if math.isinf(final):
        return f"linear theory [bold]diverges[/] within {plural(steps, 'step')}."
    return f"linear theory leads the loss from {initial:.4g} to {final:.4g} in {plural(steps, 'step')}."


def columns(lr: float) -> tuple[Column, ...]:
    """Of the table of modes."""
    return (
        Column("curvature", "curvature"),
        Column("curvature", "lr times it", lambda value: f"{lr * value:.3g}", spare=1),
        Column("share", "of the loss", ".2%"),
        Column("half_learned", "half at step"),
    )
