"""Reproduction: running experiments and claims, side by side or alone, and keeping their files."""

from linnet.reproduction.files import Requirement, Result, Verdicts, Verified, results, verdicts
from linnet.reproduction.seeds import Spread, claims_over_seeds, over_seeds
from linnet.reproduction.verification import verify
from linnet.reproduction.work import Made, Work, plan

__all__ = [
    "Made",
    "Requirement",
    "Result",
    "Spread",
    "Verdicts",
    "Verified",
    "Work",
    "claims_over_seeds",
    "over_seeds",
    "plan",
    "results",
    "verdicts",
    "verify",
]
