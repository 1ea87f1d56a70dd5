"""Reports: everything that was reproduced, or what a probe has seen, on one page."""

from linnet.report.probe import write_probe
from linnet.report.report import write

__all__ = ["write", "write_probe"]
