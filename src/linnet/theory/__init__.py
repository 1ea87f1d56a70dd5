"""Theory: the papers' formulas in numerically stable form, one module for each subject. No simulation."""

from linnet.theory import mixed, spectral, stability

__all__ = ["mixed", "spectral", "stability"]
