"""Where training can get stuck: the critical points of a deep linear network, by the modes they have learned."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from linnet import _check, observe
from linnet._check import InputError
from linnet.init import critical
from linnet.linalg import DENSE_SPECTRUM
from linnet.observe import Kind
from linnet.prediction import coerce
from linnet.prediction.assumption import Assumption, NotApplicable, Source
from linnet.prediction.numbers import plural
from linnet.prediction.panel import Curve, Panel
from linnet.prediction.prediction import Column, Comparison, ExactRun, Prediction, Progress, Quantity, Row
from linnet.problems import Factorization, Regression
from linnet.states import Weights
from linnet.theory import landscape as theory

_ZERO = 1e-10  # eigenvalues below this share of the largest are rounding
_NAMED = 40  # points up to which a figure names all; of more only 1 ... k
_KINDS = {  # words and color in a terminal; words, marker, and color in a figure
    Kind.STRICT_SADDLE: ("strict saddle", "", "strict saddle", "points", "noise"),
    Kind.DEGENERATE_SOSP: ("degenerate", "yellow", "degenerate: no second-order descent", "squares", "signal"),
    Kind.GLOBAL_MIN: ("global minimum", "green", "global minimum", "stars", "train"),
    Kind.NOT_CRITICAL: ("not critical", "red", "not critical", "diamonds", "test"),
}
_LEGEND = (
    "index: how many Hessian eigenvalues are negative; lambda_min: the smallest, at the balanced factorization of the "
    "point. A change of basis between layers keeps loss, kind and index, and changes lambda_min but not its sign."
)


def landscape(problem: Any, network: Weights | Sequence[int], *, most: int = 64) -> Prediction:
    """The critical points of a deep linear network, by the set of modes that they have learned.

    Each set stands for its balanced critical point and for all that changes of basis between layers make of it; they
    share loss, kind, and number of negative Hessian eigenvalues, which hold for any data (nonlocal/C2 to C5). The
    smallest eigenvalue is the balanced point's: in closed form on whitened data, else computed from its Hessian.

    - `problem`: a regression on any data (n < d_in allowed), a factorization, or the singular values of a target.
    - `network`: `Weights`, of which only the widths matter, or the widths of the hidden layers.
    - `most`: all sets of modes if there are at most so many; else {1 ... k}, which training from small weights visits,
      and those of the smallest loss.

    `points` are rows with `kept` (mode numbers, from 1), `loss`, `excess` (above the global minimum), `label`,
    `negative_eigenvalues`, and `smallest_eigenvalue`, by increasing loss. `measure()` builds every point as weights and
    computes its whole Hessian.
    """
    asked = problem if isinstance(problem, Factorization) else coerce.regression(problem)
    hidden = _hidden(network, asked)
    found = theory.critical_points(asked, hidden, most=_check.integer("most", most, least=1, most=10_000))
    widths, points = (asked.shape[1], *hidden, asked.shape[0]), tuple(_row(asked, hidden, p) for p in found.points)
    modes, origin = Source("modes of the least-squares fit", ("nonlocal/C1", "nonlocal/C2")), _source(asked, found)
    columns = (
        Column("kept", "modes kept", _words, measured=False),
        Column("loss", "loss", ".5g", 5, measured=False),
        Column("excess", "excess", ".5g", 6, measured=False),
        Column("label", "kind", _colored),
        Column("negative_eigenvalues", "index", spare=4),
        Column("smallest_eigenvalue", "lambda_min", spare=3),
    )
    return Prediction(
        topic="landscape",
        headline=_headline(points),
        setting=_setting(widths, found),
        notes=(_LEGEND,),
        quantities=(
            Quantity("prepared", ()),
            Quantity("widths", widths),
            Quantity("depth", len(hidden) + 1),
            Quantity("bottleneck", found.bottleneck),
            Quantity("samples", asked.samples if isinstance(asked, Regression) else None),
            Quantity("normalization", coerce.normalization(asked) if isinstance(asked, Regression) else None),
            Quantity("whitened", found.whitened),
            Quantity("spectrum", tuple(map(float, found.values)), source=modes),
            Quantity("critical_sets", found.total, source=modes),
            Quantity("shown", len(points)),
            Quantity("points", points, source=origin, columns=columns, rows=len(points)),
        ),
        problem=asked,
        network=network,
        panels=_panels,
        experiment=_experiment(asked, hidden, points),
    )


def for_triple(problem: Any, network: Any, optimizer: Any) -> Prediction:
    """The landscape of any linear network of two layers or more; the optimizer does not matter."""
    if not isinstance(problem, Regression | Factorization) or len(problem.shape) != 2:
        raise NotApplicable("landscape", Assumption.fails("a regression or a factorization of a matrix"))
    if not isinstance(network, Weights) or network.depth < 2:
        raise NotApplicable("landscape", Assumption.fails("Weights of two layers or more"))
    return landscape(problem, network)


def _hidden(network: Any, problem: Factorization | Regression) -> tuple[int, ...]:
    """The hidden widths."""
    if not isinstance(network, Weights):
        if not isinstance(network, Sequence):
            return network  # `critical_points` says what is needed
        return tuple(_check.integer("width", width, least=1, most=10**6) for width in network)
    coerce.same_shape(network, problem.shape)
    if network.compressed:
        why = "network is compressed, which hides its width: give the widths of its hidden layers."
        raise NotApplicable("landscape", Assumption.fails("layers that are not compressed"), why)
    return network.widths[1:-1]


def _row(problem: Factorization | Regression, hidden: Sequence[int], point: theory.CriticalPoint) -> Row:
    """A point with its smallest eigenvalue, in closed form or of the Hessian; changes of basis make 0 the least."""
    smallest = point.smallest + 0.0  # -0 is 0
    if math.isnan(smallest):
        enough = len(point.kept) + 1  # one neuron without a mode stands for all of them
        narrow = critical(problem, tuple(min(width, enough) for width in hidden), point.kept)
        smallest = observe.classify(narrow, problem).smallest if point.negative else 0.0
    return Row(
        kept=point.kept,
        loss=point.loss,
        excess=point.excess,
        label=point.label,
        negative_eigenvalues=point.negative,
        smallest_eigenvalue=smallest,
    )


def _source(problem: Factorization | Regression, found: theory.Landscape) -> Source:
    spread = coerce.anisotropy(problem) if isinstance(problem, Regression) else 0.0
    white = Assumption.of("white inputs: X^T X is a multiple of the identity", spread)
    smallest = "in closed form" if found.whitened else "computed from the balanced point's Hessian"
    return Source(
        "critical points keep modes; kind and index by the second-order form, the same in all bases and for any data "
        f"(Theorems 7 and 8); lambda_min {smallest}",
        ("nonlocal/C2", "nonlocal/C3", "nonlocal/C4", "nonlocal/C5"),
        (white,) if found.whitened else (),
    )


# Words ---------------------------------------------------------------------------------------------------------------


def _headline(points: Sequence[Row]) -> str:
    if any(point.label is Kind.DEGENERATE_SOSP for point in points):
        return (
            "[bold]Degenerate points[/] are no minima and have no second-order descent: training slows down near them."
        )
    return "[bold]Every critical point[/] but the global minima has a descent direction of second order."


def _setting(widths: Sequence[int], found: theory.Landscape) -> str:
    names, modes, shown = [str(w) for w in widths], found.values, len(found.points)
    layers = " -> ".join(names if len(names) <= 12 else [*names[:5], "...", *names[-2:]])
    which = "." if shown == found.total else f"; here are 1 ... k and those of the smallest loss, {shown} in all."
    values = ", ".join(f"{z:.4g}" for z in modes[:12]) + (" ..." if len(modes) > 12 else "")
    data = "whitened data" if found.whitened else "singular values of the projected labels"
    sets = plural(found.total, "set")
    return f"{layers} neurons, bottleneck {found.bottleneck}: {sets} of modes{which}\nModes: {values} ({data})."


def _words(kept: Sequence[int]) -> str:
    """Modes in words, long runs shortened: `1-4 6`."""
    runs: list[list[int]] = []
    for mode in kept:
        if runs and runs[-1][-1] == mode - 1:
            runs[-1].append(mode)
        else:
            runs.append([mode])
    return " ".join(" ".join(map(str, run)) if len(run) < 4 else f"{run[0]}-{run[-1]}" for run in runs) or "none"


def _colored(label: Kind) -> str:
    words, color = _KINDS[label][:2]
    return f"[{color}]{words}[/]" if color else words


# The points as weights -----------------------------------------------------------------------------------------------


class Built(tuple[Row, ...]):
    """Critical points built as weights: rows as predicted ones have them, with the Hessian's `largest_eigenvalue`."""

    def __repr__(self) -> str:
        return f"whole Hessians of {plural(len(self), 'point')} built as weights"


def _experiment(problem: Factorization | Regression, hidden: Sequence[int], points: Sequence[Row]) -> ExactRun:
    """Every balanced point built as weights, with the eigenvalues of its whole Hessian."""

    def run(progress: Progress | None) -> Built:
        widths = (problem.shape[1], *hidden, problem.shape[0])
        parameters = sum(below * above for below, above in pairwise(widths))
        if parameters > DENSE_SPECTRUM:
            raise InputError(
                f"a network of {parameters:,} weights cannot be measured: whole Hessians are for at most "
                f"{DENSE_SPECTRUM}."
            )
        rows = []
        for done, point in enumerate(points):
            rows.append(_measured(problem, critical(problem, hidden, point.kept), point.kept))
            if progress is not None:
                progress(done + 1, len(points))
        return Built(rows)

    def read(built: Built) -> tuple[Quantity, ...]:
        pairs = list(zip(points, built, strict=True))
        different = tuple(b for a, b in pairs if any(a[n] != b[n] for n in ("label", "negative_eigenvalues")))
        gaps = [abs(b.smallest_eigenvalue - a.smallest_eigenvalue) / (b.largest_eigenvalue or 1.0) for a, b in pairs]
        as_predicted = f"as predicted at {len(points) - len(different)} of {plural(len(points), 'point')}"
        text = "lambda_min: largest error, over the point's largest eigenvalue"
        return (
            Quantity("points", tuple(built)),
            Quantity("different", different, "kind and index", format=lambda _: as_predicted),
            Quantity("largest_gap_in_eigenvalue", max(gaps), text, format=".1e"),
        )

    return ExactRun(run, read, kind=Built)


def _measured(problem: Factorization | Regression, state: Weights, kept: tuple[int, ...]) -> Row:
    values, found = np.linalg.eigvalsh(np.asarray(_hessian(state, problem))), observe.classify(state, problem)
    largest = float(np.max(np.abs(values)))
    return Row(
        kept=kept,
        loss=float(problem.cost(state.matrix)),
        excess=found.excess,
        label=found.label,
        negative_eigenvalues=int(np.sum(values < -_ZERO * largest)),
        smallest_eigenvalue=float(values[0]),
        largest_eigenvalue=largest,
    )


_hessian = jax.jit(observe.hessian_matrix)


# Figure --------------------------------------------------------------------------------------------------------------


def _panels(prediction: Prediction, comparison: Comparison | None) -> list[Panel]:
    title = f"{prediction.depth} layers, bottleneck {prediction.bottleneck}"
    built = () if comparison is None else comparison.points
    return [critical_point_panel(prediction.points, built, title=title, ylabel="loss")]


def critical_point_panel(
    points: Iterable[Row], built: Iterable[Row] = (), *, labeled: bool = True, **labels: Any
) -> Panel:
    """Critical points by loss and index, named by the modes they keep, with lines to one mode more.

    `built` are the same points as they were measured, drawn as rings. With `labeled` curves are in the legend; `labels`
    are fields of the `Panel`.
    """
    place = {point.kept: (point.negative_eigenvalues, point.loss) for point in points}
    named = [kept for kept in place if len(place) <= _NAMED or kept == tuple(range(1, len(kept) + 1))]
    edges = [
        (place[smaller], place[kept])
        for kept in place
        for mode in kept
        if (smaller := tuple(m for m in kept if m != mode)) in place
    ]
    curves = [_curve("", edge, "faint", "noise", labeled=False) for edge in edges]
    for kind, (*_, words, style, color) in _KINDS.items():
        chosen = [place[point.kept] for point in points if point.label is kind]
        curves += [_curve(words, chosen, style, color, labeled=labeled)] if chosen else []
    rings = [(point.negative_eigenvalues, point.loss) for point in built]
    curves += [_curve("built as weights", rings, "rings", "theory", labeled=labeled)] if rings else []
    names = tuple(map(_words, named))
    curves.append(_curve("", [place[kept] for kept in named], "labels", "theory", labeled=False, text=names))
    wide = max(1, *(x for x, _ in place.values()))
    labels = {"xlabel": "negative eigenvalues of the Hessian", "xlim": (-0.1 * wide, 1.16 * wide)} | labels
    return Panel(tuple(curves), **labels)


def _curve(name: str, points: Sequence[tuple[int, float]], style: str, color: str, **options: Any) -> Curve:
    x, y = zip(*points, strict=True)
    return Curve(name, np.array(x), np.array(y), style, color, **options)
