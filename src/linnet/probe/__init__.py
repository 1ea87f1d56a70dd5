"""A probe for PyTorch trainings: what theory speaks about, recorded while they go on. Needs PyTorch.

pip install 'linnet[torch]'
"""

try:
    import torch as _torch  # noqa: F401
except ImportError:
    from linnet._check import InputError

    raise InputError("linnet.probe needs PyTorch: pip install 'linnet[torch]' (or pip install torch).") from None

from linnet.probe.probe import Probe, ProbeWarning, Rule
from linnet.probe.record import Record, dataset, read

__all__ = ["Probe", "ProbeWarning", "Record", "Rule", "dataset", "read"]
