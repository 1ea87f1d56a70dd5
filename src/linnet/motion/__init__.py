"""Motions: how a state moves.

Flows load on first use: diffrax takes longer to load than a small network to train.
"""

from typing import TYPE_CHECKING, Any

from linnet.motion.adaptive import Adam, AdamW, Muon, Optax, Sign
from linnet.motion.batches import Batches, MiniBatch, Online
from linnet.motion.descent import GradientDescent, Momentum
from linnet.motion.motion import Motion, Task
from linnet.motion.noise import LabelNoiseDescent, NoisyFlow
from linnet.motion.optimiser import Optimiser
from linnet.motion.stepping import Stepping
from linnet.motion.stop import ChangeBelow, LossBelow, change_below, loss_below

if TYPE_CHECKING:
    from linnet.motion.flow import GradientFlow, InertialFlow

__all__ = [
    "Adam",
    "AdamW",
    "Batches",
    "ChangeBelow",
    "GradientDescent",
    "GradientFlow",
    "InertialFlow",
    "LabelNoiseDescent",
    "LossBelow",
    "MiniBatch",
    "Momentum",
    "Motion",
    "Muon",
    "NoisyFlow",
    "Online",
    "Optax",
    "Optimiser",
    "Sign",
    "Stepping",
    "Task",
    "change_below",
    "loss_below",
]


def __getattr__(name: str) -> Any:
    if name not in ("GradientFlow", "InertialFlow"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from linnet.motion import flow

    return getattr(flow, name)
