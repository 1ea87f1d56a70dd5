"""HTML pages: everything that was reproduced, or the record of a probe."""

from linnet.report.probe import write_probe
from linnet.report.report import write

__all__ = ["write", "write_probe"]
