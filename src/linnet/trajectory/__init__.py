"""Trajectories: what was recorded of a run, and how it ended."""

from linnet.trajectory.store import load
from linnet.trajectory.trajectory import RESERVED, Label, RecordedPoint, Trajectory

__all__ = ["RESERVED", "Label", "RecordedPoint", "Trajectory", "load"]
