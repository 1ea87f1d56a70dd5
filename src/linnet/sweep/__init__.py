"""Sweeps: a grid of runs into one labeled store, resumable after a kill at any moment."""

from linnet.sweep.cluster import Worker, as_completed, connect, workers
from linnet.sweep.exchange import Merged, export, load, merge
from linnet.sweep.spec import Call, Sweep, parse, read
from linnet.sweep.sweep import Checked, Damage, Expected, Throughput, check, expect, run

__all__ = [
    "Call",
    "Checked",
    "Damage",
    "Expected",
    "Merged",
    "Sweep",
    "Throughput",
    "Worker",
    "as_completed",
    "check",
    "connect",
    "expect",
    "export",
    "load",
    "merge",
    "parse",
    "read",
    "run",
    "workers",
]
