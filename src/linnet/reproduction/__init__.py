"""Reproduction: running experiments and claims, side by side or alone, and keeping their files."""

from linnet.reproduction.files import Requirement, Result, Verdicts, Verified, results, verdicts
from linnet.reproduction.verification import verify
from linnet.reproduction.work import Made, Work, plan

__all__ = [
    "Made",
    "Requirement",
    "Result",
    "Verdicts",
    "Verified",
    "Work",
    "plan",
    "results",
    "verdicts",
    "verify",
]
