"""Trajectories: what was recorded of a run, and how it ended."""

from linnet.trajectory.trajectory import RESERVED, Label, Trajectory

__all__ = ["RESERVED", "Label", "Trajectory"]
