"""Claims: theorems, lemmas and in-text statements made executable, and errata with their evidence."""

from linnet.claims.claim import (
    AUTHORS,
    GRADES,
    KINDS,
    PAPERS,
    SIZES,
    Claim,
    Erratum,
    Finding,
    Verdict,
    at_least,
    at_most,
    find,
    registry,
    within,
)

__all__ = [
    "AUTHORS",
    "GRADES",
    "KINDS",
    "PAPERS",
    "SIZES",
    "Claim",
    "Erratum",
    "Finding",
    "Verdict",
    "at_least",
    "at_most",
    "find",
    "registry",
    "within",
]
