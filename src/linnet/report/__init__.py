"""HTML pages: everything that was reproduced, or the record of a probe; and their formulas."""

from linnet.report.formulas import Formulas
from linnet.report.latex import mathml, typeset
from linnet.report.probe import write_probe
from linnet.report.report import write

__all__ = [
    "Formulas",
    "mathml",
    "typeset",
    "write",
    "write_probe",
]
