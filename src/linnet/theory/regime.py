"""Lazy or rich: one word for all subjects."""

import enum

LAZY_BELOW, RICH_ABOVE = 1.1, 10.0  # by how much the tangent kernel grows until what it sees is learned


class Regime(enum.StrEnum):
    """What the tangent kernel does while a network (or a mode of it) learns.

    RICH is called active in the paper on mixed dynamics: the kernel is made by what is learned. LAZY: it stays what it
    was at the start. MIXED lies between.
    """

    LAZY = "lazy"
    MIXED = "mixed"
    RICH = "rich"

    @classmethod
    def of_growth(cls, growth: float) -> "Regime":
        """Lazy below 1.1, rich above 10: the factor by which the kernel grows until the end."""
        return cls.LAZY if growth < LAZY_BELOW else cls.RICH if growth > RICH_ABOVE else cls.MIXED

    @classmethod
    def of_all(cls, parts: "list[Regime]") -> "Regime":
        """What all modes share, MIXED where they differ."""
        return parts[0] if len(set(parts)) == 1 else cls.MIXED
