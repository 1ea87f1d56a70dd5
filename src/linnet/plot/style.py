"""What all pictures share."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

CROWDED = 12  # lines from which on a panel is crowded
SIGNAL, NOISE, TRAIN, TEST, QUIET, THEORY = "#c2410c", "#64748b", "#0f766e", "#7c3aed", "#94a3b8", "#111827"


def canvas(width: float, height: float) -> Figure:
    """An empty figure that needs no display."""
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def tidy(axes: Axes) -> None:
    """No box, a faint grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.01)
    axes.grid(color=QUIET, alpha=0.2)
