"""Claims: theorems, lemmas and in-text statements made executable, and errata with their evidence."""

from linnet.claims.claim import Claim, Erratum, Finding, Verdict, find, registry

__all__ = ["Claim", "Erratum", "Finding", "Verdict", "find", "registry"]
