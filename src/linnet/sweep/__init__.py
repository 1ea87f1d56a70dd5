"""Sweeps: a grid of runs into one labelled store, resumable after a kill at any moment."""

from linnet.sweep.spec import Sweep, parse, read
from linnet.sweep.sweep import run

__all__ = ["Sweep", "parse", "read", "run"]
