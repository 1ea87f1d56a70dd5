"""Sweeps: a grid of runs into one labelled store, resumable after a kill at any moment."""

from linnet.sweep.spec import Call, Sweep, parse, read
from linnet.sweep.sweep import run

__all__ = ["Call", "Sweep", "parse", "read", "run"]
