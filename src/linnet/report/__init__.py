"""Reports: everything that was reproduced, on one page."""

from linnet.report.report import write

__all__ = ["write"]
