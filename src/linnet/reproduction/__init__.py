"""Reproduction: running experiments and claims, side by side or alone, and keeping their files."""

from linnet.reproduction.demonstration import Demonstration, DemonstrationSetting, demonstrate
from linnet.reproduction.files import Requirement, Result, Verdicts, Verified, prepare_folder, results, store, verdicts
from linnet.reproduction.seeds import ENOUGH, Spread, claims_over_seeds, over_seeds
from linnet.reproduction.verification import verify
from linnet.reproduction.work import Made, Work, plan

__all__ = [
    "ENOUGH",
    "Demonstration",
    "DemonstrationSetting",
    "Made",
    "Requirement",
    "Result",
    "Spread",
    "Verdicts",
    "Verified",
    "Work",
    "claims_over_seeds",
    "demonstrate",
    "over_seeds",
    "plan",
    "prepare_folder",
    "results",
    "store",
    "verdicts",
    "verify",
]
