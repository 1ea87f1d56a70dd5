"""The version, in one place that nothing heavy has to be loaded for."""

__version__ = "0.3.0"
