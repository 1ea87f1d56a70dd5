"""Theory: the papers' formulas in numerically stable form, one module for each subject. No simulation."""

from linnet.theory import landscape, mixed, spectral

__all__ = ["landscape", "mixed", "spectral"]
