"""Optimizers and flows, and the events that end a run.

Flows load on first use: diffrax takes longer to load than a small network to train.
"""

from typing import TYPE_CHECKING, Any

from linnet.optim.adaptive import Adam, AdamW, Muon, Optax, RMSprop, SignSGD
from linnet.optim.averaged import AveragedDescent
from linnet.optim.batches import Batches, MiniBatch, Online
from linnet.optim.central import CentralFlow, CentralMemory
from linnet.optim.discrete import DiscreteDynamics
from linnet.optim.dynamics import Averages, Dynamics, Stepper
from linnet.optim.event import Event, change_below, loss_below
from linnet.optim.noise import LabelNoiseSGD, NoisyFlow
from linnet.optim.optimizer import Optimizer
from linnet.optim.rod import RodFlow
from linnet.optim.sgd import SGD

if TYPE_CHECKING:
    from linnet.optim.flow import Flow, GradientFlow, InertialFlow

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "AveragedDescent",
    "Averages",
    "Batches",
    "CentralFlow",
    "CentralMemory",
    "DiscreteDynamics",
    "Dynamics",
    "Event",
    "Flow",
    "GradientFlow",
    "InertialFlow",
    "LabelNoiseSGD",
    "MiniBatch",
    "Muon",
    "NoisyFlow",
    "Online",
    "Optax",
    "Optimizer",
    "RMSprop",
    "RodFlow",
    "SignSGD",
    "Stepper",
    "change_below",
    "loss_below",
]


def __getattr__(name: str) -> Any:
    if name not in ("Flow", "GradientFlow", "InertialFlow"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from linnet.optim import flow

    return getattr(flow, name)
