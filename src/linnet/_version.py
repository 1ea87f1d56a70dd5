"""The version, in one place that nothing heavy has to be loaded for."""

__version__ = "0.2.0"
