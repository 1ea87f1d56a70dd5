"""Sweeps: a grid of runs into one labelled store, resumable after a kill at any moment."""

from linnet.sweep.exchange import Merged, export, merge
from linnet.sweep.spec import Call, Sweep, parse, read
from linnet.sweep.sweep import Checked, Damage, check, run

__all__ = ["Call", "Checked", "Damage", "Merged", "Sweep", "check", "export", "merge", "parse", "read", "run"]
