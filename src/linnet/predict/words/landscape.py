"""A landscape in words."""

from rich.console import Group, RenderableType
from rich.text import Text

from linnet._table import Column, Fitted
from linnet.observe.landscape import Kind
from linnet.predict.answer import plural, preparation
from linnet.predict.landscape import LandscapeMeasured, LandscapePrediction

_WORDS = {
    Kind.GLOBAL_MIN: ("global minimum", "green"),
    Kind.STRICT_SADDLE: ("strict saddle", ""),
    Kind.DEGENERATE_SOSP: ("degenerate", "yellow"),
    Kind.NOT_CRITICAL: ("not critical", "red"),
}
_LEGEND = (
    "index: how many Hessian eigenvalues are negative; lambda_min: the smallest, at the balanced factorisation of the "
    "point. A change of basis between layers keeps loss, kind and index, and changes lambda_min but not its sign."
)


def words(said: LandscapePrediction, seen: LandscapeMeasured | None = None) -> RenderableType:
    """The network, its critical points in a table, and what they mean; measured columns beside predicted ones."""
    total, shown, modes = said.critical_sets, said.shown, said.spectrum
    which = "." if shown == total else f"; here are 1 ... k and those of the smallest loss, {shown} in all."
    what = "whitened data" if said.whitened else "singular values of the projected labels"
    parts: list[RenderableType] = [
        f"{_layers(said.widths)} neurons, bottleneck {said.bottleneck}: {plural(total, 'set')} of modes{which}",
        f"Modes: {', '.join(f'{z:.4g}' for z in modes[:12])}{' ...' if len(modes) > 12 else ''} ({what}).",
        *preparation(said),
    ]
    beside = (("built: kind", 1), ("index ", 3), ("lambda_min ", 2)) if seen is not None else ()
    table = Fitted(
        Column("modes kept"),
        Column("loss", 5, right=True),
        Column("excess", 6, right=True),
        Column("kind"),
        Column("index", 4, right=True),
        Column("lambda_min", 3, right=True),
        *(Column(name, spare, right=spare > 1) for name, spare in beside),
    )
    measured = [None] * shown if seen is None else list(seen.points)
    for point, found in zip(said.points, measured, strict=True):
        cells: list[str | Text] = [point.name, f"{point.loss:.5g}", f"{point.excess:.5g}"]
        for one in (point,) if found is None else (point, found):
            word, style = _WORDS[one.label]
            rounded = 0.0 if one is found and not one.negative_eigenvalues else one.smallest_eigenvalue
            cells += [Text(word, style), str(one.negative_eigenvalues), f"{rounded:.5g}"]
        table.add(*cells)
    parts += [table, _LEGEND]
    if any(point.label is Kind.DEGENERATE_SOSP for point in said.points):
        parts.append("Degenerate points are no minima and have no second-order descent: training slows down near them.")
    else:
        parts.append("Every critical point but the global minima has a descent direction of second order.")
    if seen is not None:
        parts.append(
            f"Built as weights: kind and index as predicted at {shown - len(seen.different)} of "
            f"{plural(shown, 'point')}; lambda_min within {seen.largest_gap_in_eigenvalue:.1e} of the largest "
            "eigenvalue."
        )
    return Group(*parts)


def _layers(widths: tuple[int, ...]) -> str:
    """The widths with arrows, those of very deep networks shortened."""
    names = [str(w) for w in widths]
    return " -> ".join(names if len(names) <= 12 else [*names[:5], "...", *names[-2:]])
