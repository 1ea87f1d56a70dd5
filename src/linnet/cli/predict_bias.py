"""`linnet predict bias`: what a two-layer network from I_gamma makes of a regression, and when (spectral bias)."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import diffrax
import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from linnet import _check, observe
from linnet._check import InputError
from linnet.cli.bar import bar
from linnet.cli.files import read_regression
from linnet.cli.frame import Frame, crossing, of_samples, whitened
from linnet.cli.typed import picture, positive
from linnet.initial import i_gamma
from linnet.motion import GradientFlow, loss_below
from linnet.problems import regression
from linnet.record import logarithmic
from linnet.simulation import simulate
from linnet.states import ScalarMirror, State
from linnet.theory import spectral

_SHARE, _FIT = 0.5, 0.01  # a mode is learned at half its value, the data are fitted at 1 % of the excess loss
_GROWN = 2.0  # a singular value of W_1 counts into its rank once it is this many times where it started
_SHOWN = 10  # modes in the table; JSON has all
_LISTED = 100_000  # entries up to which JSON has the predictor itself
_RECORDS, _FITTED, _STEPS, _LARGEST = 240, 1e-16, 50_000, 600
_STIFF = 3000  # steps of descent to the fit


def bias(
    gamma: float,
    data: Path | None,
    spectrum: str | None,
    outputs: int | None,
    width: int | None,
    average: bool | None,
    *,
    run: bool,
    plot: Path | None,
    quiet: bool,
) -> dict[str, Any]:
    """The end of the flow from I_gamma, its layers, its times and its step size; returns what `--json` prints."""
    gamma = _check.real("gamma", gamma, least=1e-100, most=1e100)
    if (data is None) == (spectrum is None):
        raise InputError("data or spectrum: give one of them, --data FILE or --spectrum 3,1,0.5.")
    picture(plot)
    if spectrum is not None:
        for name, value in (("outputs", outputs), ("average", average)):
            if value is not None:
                raise InputError(f"{name} = {value} is not allowed with --spectrum: there are no samples.")
        frame = whitened(positive(spectrum))
    else:
        assert data is not None
        frame = of_samples(*read_regression(data, outputs=outputs), average is not False)
    if width is not None:
        width = _check.integer("width", width, least=frame.d_in, reason="d_in: I_gamma needs orthonormal columns")
    scales, limit = frame.scales, frame.limit
    if run and scales.size > _LARGEST:
        raise InputError(f"data of rank {scales.size} are not allowed with --run: the exact flow needs <= {_LARGEST}.")

    values = np.linalg.svd(limit, compute_uv=False)
    inputs = np.diag(scales)
    times = spectral.activation(_SHARE, inputs, limit, gamma)
    fit = spectral.fit_time(_FIT, inputs, limit, gamma)
    modes = times.time.size  # what is left has no target
    layers = spectral.layer_values(values[:modes], gamma, modes)
    first, second = np.asarray(layers.first), np.asarray(layers.second)
    start = math.sqrt(2 * gamma)
    grown = int(np.sum(first >= _GROWN * start))
    excess = float(np.sum((limit * scales) ** 2) / 2)
    rich = values[:modes] > gamma
    lr = spectral.largest_lr(inputs, limit, gamma)
    answer: dict[str, Any] = {
        "gamma": gamma,
        "samples": frame.samples,
        "d_in": frame.d_in,
        "d_out": limit.shape[0],
        "width": width,
        "average": None if frame.samples is None else average is not False,
        "inputs": {
            "rank": scales.size,
            "largest_singular_value": float(scales[0]),
            "smallest_nonzero_singular_value": float(scales[-1]),
            "whitened": bool(scales[-1] >= (1 - 1e-9) * scales[0]),
        },
        "regime": "rich" if rich.all() else "mixed" if rich.any() else "lazy",
        "loss": {"start": excess + frame.unexplained, "end": frame.unexplained},
        "predictor_norm": float(np.linalg.norm(limit)),
        "predictor": (limit @ frame.basis).tolist() if limit.shape[0] * frame.d_in <= _LISTED else None,
        "first_layer": {
            "start": start,
            "rank": grown,
            "stable_rank": float((np.sum(first**2) + (frame.d_in - modes) * 2 * gamma) / first[0] ** 2),
            "unmoved": frame.d_in - modes,
        },
        "modes": [
            {
                "value": float(values[i]),
                "over_gamma": float(values[i] / gamma),
                "regime": "rich" if rich[i] else "lazy",
                "first_layer": float(first[i]),
                "second_layer": float(second[i]),
                "half_learned": {
                    "time": float(times.time[i]),
                    "exact": bool(times.exact[i]),
                    "not_before": float(times.time[i] if times.exact[i] else times.least[i]),
                    "not_after": float(times.time[i] if times.exact[i] else times.most[i]),
                },
            }
            for i in range(modes)
        ],
        "order": [int(i) + 1 for i in np.argsort(times.time, kind="stable")],
        "fit": {
            "share": _FIT,
            "time": fit.time,
            "exact": fit.exact,
            "not_after": fit.time if fit.exact else fit.most,
        },
        "largest_stable_lr": lr,
        "steps_to_fit_at_that_lr": math.ceil(fit.time / lr) if fit.time / lr < 1e18 else math.inf,
    }
    measured = None
    if run:
        measured = _measure(frame, gamma, answer, quiet)
        answer["run"] = {name: value for name, value in measured.items() if name != "curves"}
    _show(answer, Console(quiet=quiet))
    if plot is not None:
        from linnet.plot.bias import bias as draw

        clock = np.geomspace(times.time.min() / 30, max(times.time.max() * 6, fit.time * 1.5), 300)
        curves = jax.jit(spectral.whitened)(clock, values[:modes], gamma, np.sqrt(times.curvature))
        draw(answer, (clock, np.asarray(curves)), None if measured is None else measured["curves"], plot)
        answer["figure"] = str(plot)
    return answer


def _measure(frame: Frame, gamma: float, answer: dict[str, Any], quiet: bool) -> dict[str, Any]:
    """The exact flow of both layers in the frame of the samples, until the excess loss has vanished.

    Twice: to find its end, then with records spaced for it.
    """
    problem = regression(np.diag(frame.scales), (frame.limit * frame.scales).T)
    # inputs of many scales are stiff, and explicit solvers would go in steps of descent: implicit ones do well in the
    # mirror coordinate of one output, which needs no layers (they follow from A), and badly in weights
    stiff = frame.limit.shape[0] == 1 and answer["steps_to_fit_at_that_lr"] > _STIFF
    start: State = ScalarMirror(np.zeros(problem.shape), gamma) if stiff else i_gamma(problem, gamma)
    motion = GradientFlow(1e-8 if stiff else 1e-10, solver=diffrax.Kvaerno5() if stiff else None, max_steps=_STEPS)
    looks = {"loss": observe.loss, "modes": observe.modes, "values": observe.singular_values}
    if not stiff:
        looks |= {"first": observe.layer_singular_values(1), "second": observe.layer_singular_values(2)}
    modes = len(answer["modes"])
    values, lower = (np.array([mode[name] for mode in answer["modes"]]) for name in ("value", "second_layer"))
    excess = float(np.sum((frame.limit * frame.scales) ** 2) / 2)
    early: float = min(mode["half_learned"]["not_before"] for mode in answer["modes"]) / 30
    late = 10 * max(answer["fit"]["not_after"], *(mode["half_learned"]["not_after"] for mode in answer["modes"]))
    status = ""
    with bar("exact flow", quiet=quiet):  # without its progress, which would double the time to compile it
        for _ in range(2):
            result = simulate(
                problem,
                start,
                motion,
                time=late,
                observe=looks,
                record=logarithmic(_RECORDS, first=early),
                stop=loss_below(_FITTED * excess),
            )
            clock, seen = np.asarray(result.times), np.asarray(result["modes"])[:, :modes]
            crossings = [crossing(clock, seen[:, i] / values[i], _SHARE) for i in range(modes)]
            status = status or ("fitted" if result.status == "converged" else result.status)
            early = np.nanmin([*crossings, result.ended]) / 30
            late = float(result.ended)
    loss, curve = np.asarray(result["loss"]), np.asarray(result["values"])[:, :modes]
    errors: dict[str, float | None] = {"first_layer_error": None, "second_layer_error": None}
    if stiff:
        first = np.asarray(jax.vmap(lambda s: spectral.layer_values(s, gamma, frame.scales.size).first)(curve))
    else:
        first, second = np.asarray(result["first"]), np.asarray(result["second"])[-1, :modes]
        predicted = np.asarray(spectral.layer_values(values, gamma, frame.scales.size).first)
        errors = {
            # what is below the rounding of the largest value cannot be measured
            "first_layer_error": float(
                np.max(np.abs(first[-1] - predicted) / np.maximum(predicted, 1e-12 * predicted[0]))
            ),
            "second_layer_error": float(np.max(np.abs(second / lower - 1))),
        }
    final = np.asarray(result.final.matrix)
    return {
        "status": status,
        "ended": float(result.ended),
        "excess_loss_left": float(loss[-1] / excess),
        "half_learned_at": crossings,
        "fit_at": crossing(clock, -np.log(np.maximum(loss / loss[0], 1e-300)), -math.log(_FIT)),
        "predictor_error": float(np.linalg.norm(final - frame.limit) / np.linalg.norm(frame.limit)),
        **errors,
        "curves": (clock, seen, first),
    }


def _regime(answer: dict[str, Any]) -> str:
    layer, modes = answer["first_layer"], answer["modes"]
    rich = sum(mode["regime"] == "rich" for mode in modes)
    return (
        f"{rich} of {len(modes)} mode{'s' * (len(modes) != 1)} larger than gamma; the first layer ends with rank "
        f"{layer['rank']} of {answer['d_in']} (singular values at least {_GROWN:g} times their start), "
        f"stable rank {layer['stable_rank']:.3g}"
    )


def _show(answer: dict[str, Any], console: Console) -> None:
    run, layer, inputs = answer.get("run"), answer["first_layer"], answer["inputs"]
    modes = answer["modes"]
    say = partial(console.print, highlight=False)
    say(f"[bold]{answer['regime']}[/]: {_regime(answer)}.")
    condition = inputs["largest_singular_value"] / inputs["smallest_nonzero_singular_value"]
    told = f"{answer['d_in']} inputs, {answer['d_out']} output{'s' * (answer['d_out'] != 1)}"
    if answer["samples"] is None:
        told += ", whitened"
    else:
        told = f"{answer['samples']} samples, {told}, rank {inputs['rank']}, condition number {condition:.3g}"
        told += "; loss 1/(2n) sum of squares" if answer["average"] else "; loss 1/2 sum of squares"
    say(f"{told}; gamma = {answer['gamma']:.4g}: W_1 starts at sqrt(2 gamma) = {layer['start']:.4g} in all directions.")
    ends = "least squares" if answer["loss"]["end"] else "an exact fit"
    say(
        f"The flow ends at the predictor of minimum norm {answer['predictor_norm']:.4g} ({ends}); "
        f"loss {answer['loss']['start']:.4g} at the start, {answer['loss']['end']:.4g} there."
    )
    if answer["width"] is not None:
        say(f"The width {answer['width']:,} changes nothing of this: from d_in on all widths move alike.")
    exact = all(mode["half_learned"]["exact"] for mode in modes)
    table = Table(box=None, pad_edge=False)
    # what is measured needs no bounds
    beside = ("exact flow", "error") if run else () if exact else ("not before", "not after")
    for column in ("mode", "value", "", "in W_1", "in W_2", "half at", *beside):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for i, mode in enumerate(modes[:_SHOWN]):
        when = mode["half_learned"]
        cells = [str(i + 1), f"{mode['value']:.4g}", mode["regime"]]
        cells += [f"{mode[name]:.4g}" for name in ("first_layer", "second_layer")]
        cells.append(f"{'' if when['exact'] else '~ '}{when['time']:.4g}")
        if run:
            cells += _compared(when["time"], run["half_learned_at"][i])
        elif not exact:
            cells += [f"{when[name]:.3g}" for name in ("not_before", "not_after")]
        table.add_row(*cells)
    console.print(table)
    if len(modes) > _SHOWN:
        say(f"… and {len(modes) - _SHOWN} more: --json lists them.")
    if layer["unmoved"]:
        say(f"The {layer['unmoved']} other singular values of W_1 stay at {layer['start']:.4g}.")
    fit, steps = answer["fit"], answer["steps_to_fit_at_that_lr"]
    how = "" if fit["exact"] else f" (estimate; certainly by {fit['not_after']:.3g})"
    say(f"The excess loss is down to {fit['share']:.0%} at time {'' if fit['exact'] else '~ '}{fit['time']:.4g}{how}.")
    say(
        f"Gradient descent settles there below lr = {answer['largest_stable_lr']:.4g} (larger steps look for flatter "
        f"layers); that time is {steps:,} such step{'s' * (steps != 1)}."
    )
    if not exact:
        say(
            "[yellow]~ marks estimates:[/] exact where the predictor's directions are principal axes of the inputs, "
            "good for condition numbers near 1, and a rough guide, often several times too early, from 5 on."
            + ("" if run else " --run makes the exact flow.")
        )
    if run:
        parts = {"predictor": "predictor_error", "W_1": "first_layer_error", "W_2": "second_layer_error"}
        apart = ", ".join(f"{part} {run[name]:.1e}" for part, name in parts.items() if run[name] is not None)
        fitted = "not reached" if math.isnan(run["fit_at"]) else f"reached at {run['fit_at']:.4g}"
        say(
            f"Exact flow: {run['status']} at time {run['ended']:.4g}; {fit['share']:.0%} of the excess loss {fitted}. "
            f"Relative distance from the prediction at its end: {apart}."
        )
        if run["status"] != "fitted":
            say(
                f"[yellow]Caution:[/] the flow was left after {_STEPS:,} solver steps with "
                f"{run['excess_loss_left']:.1e} of the excess loss left: inputs of condition number {condition:.3g} "
                "are slow; standardise the columns."
            )


def _compared(predicted: float, measured: float) -> list[str]:
    if math.isnan(measured):
        return ["not reached", ""]
    return [f"{measured:.4g}", f"{predicted / measured - 1:+.1%}"]
