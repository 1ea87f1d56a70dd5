"""The linear theory of a layer in words."""

import math

from rich.console import Group, RenderableType

from linnet._table import Column, Fitted
from linnet.predict.answer import number, plural
from linnet.predict.layer_result import RIGHT, LayerMeasured, LayerPrediction
from linnet.predict.words.network import source


def words(said: LayerPrediction, seen: LayerMeasured | None = None) -> RenderableType:
    """The step that it bears, its modes, the loss, how wrong that is, and where each figure is from."""
    name = _name(said)
    bears = f"{number(said.largest_stable_lr)} in linear theory" + ("" if said.layer is None else ", all else at rest")
    parts: list[RenderableType] = [
        f"[bold]{name} bears lr < {bears}[/]; the network {number(said.network_largest_stable_lr)} at its start.",
        _setting(said),
        _modes(said),
        f"lr = {said.lr:.4g}{' (chosen here)' if said.lr_chosen else ''}: {_loss(said)}",
        *(_way(said) if math.isfinite(said.loss.end) else ()),
    ]
    if seen is not None:
        parts += [_runs(said, seen), f"Right: the loss is wrong by less than {RIGHT:.0%} of what it has fallen by."]
    return Group(*parts, *map(source, said.theory))


def _name(said: LayerPrediction) -> str:
    return "All that moves" if said.layer is None else f"W_{said.layer}"


def _setting(said: LayerPrediction) -> str:
    data = f"{plural(said.samples, 'sample')}, {plural(said.outputs, 'output')}"
    if said.shape is None:
        return f"{plural(said.weights, 'weight')}; {data}."
    shape = " x ".join(map(str, said.shape))
    return (
        f"{shape}, {said.weights:,} of {plural(said.weights_in_all, 'weight')}; {data}; it has "
        f"{said.gradient_share:.1%} of the squared gradient, the first fall of the loss."
    )


def _modes(said: LayerPrediction) -> Fitted:
    table = Fitted(
        Column("mode", right=True),
        Column("curvature", right=True),
        Column("lr times it", spare=1, right=True),
        Column("of the loss", right=True),
        Column("half at step", right=True),
    )
    for i, mode in enumerate(said.modes):
        share, half = f"{mode.share:.2%}", number(mode.half_learned.step, 3)
        table.add(str(i + 1), number(mode.curvature), f"{said.lr * mode.curvature:.3g}", share, half)
    return table


def _loss(said: LayerPrediction) -> str:
    if not math.isfinite(said.loss.end):
        return f"linear theory [bold]diverges[/] within {plural(said.steps, 'step')}."
    return (
        f"linear theory leads the loss from {said.loss.start:.4g} to {said.loss.end:.4g} in "
        f"{plural(said.steps, 'step')}."
    )


def _way(said: LayerPrediction) -> list[str]:
    """What is true of the network at the weights to which linear theory leads."""
    return [
        f"At the weights it leads to the network itself has {said.loss_there:.4g}: its outputs differ from the linear "
        f"ones by {said.nonlinearity:.2g} of their change, in {said.bent:.1%} of the samples.",
        f"[bold]{str(said.regime).capitalize()}[/]: the tangent kernel changes by {said.kernel_change:.2g} of itself.",
    ]


def _runs(said: LayerPrediction, seen: LayerMeasured) -> Fitted:
    table = Fitted(
        Column("run"),
        Column("status", spare=2),
        Column("loss", right=True),
        Column("its error", right=True),
        Column("of outputs", right=True),
        Column("right until step", right=True),
        Column("curvature", spare=1, right=True),
    )
    table.add("linear theory", "", number(said.loss.end), "", "", "", number(said.gauss_newton_sharpness))
    for name, run in ((f"{_name(said)}{'' if said.layer is None else ' alone'}", seen.alone), ("all", seen.everything)):
        if run is not None:
            errors = number(run.error, 2), number(run.output_error, 2)
            told = *errors, str(run.right_until), number(run.gauss_newton_sharpness)
            table.add(name, run.status, number(run.loss.end), *told)
    return table
