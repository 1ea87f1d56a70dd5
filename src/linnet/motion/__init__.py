"""Motions: how a state moves."""

from linnet.motion.descent import GradientDescent
from linnet.motion.flow import GradientFlow
from linnet.motion.motion import Motion, Task
from linnet.motion.noise import LabelNoiseDescent, NoisyFlow
from linnet.motion.stepping import Stepping
from linnet.motion.stop import ChangeBelow, LossBelow, change_below, loss_below

__all__ = [
    "ChangeBelow",
    "GradientDescent",
    "GradientFlow",
    "LabelNoiseDescent",
    "LossBelow",
    "Motion",
    "NoisyFlow",
    "Stepping",
    "Task",
    "change_below",
    "loss_below",
]
