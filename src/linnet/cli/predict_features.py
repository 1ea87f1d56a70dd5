"""`linnet predict features`: lazy or rich, in which stages and when, for a two-layer network of one output."""

import math
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from linnet import _check, observe
from linnet._check import InputError
from linnet.cli.bar import bar
from linnet.cli.files import read_regression
from linnet.cli.typed import LARGEST, SMALLEST, picture
from linnet.initial import readout
from linnet.linalg import RANK_TOLERANCE
from linnet.motion import GradientDescent
from linnet.problems import Regression, gaussian_samples, mean_field_regression
from linnet.record import linear
from linnet.simulation import simulate
from linnet.theory import feature
from linnet.theory.feature import Covariance, EndState, Task

_ALIGNED = 0.95  # stage one ends at this slope
_LAZY, _RICH = 1.1, 10.0  # below and above this growth of the kernel
_STEPS = 20_000  # the longest run
_SAMPLES = 2000  # the most samples whose kernel is formed


class _Setting(NamedTuple):
    problem: Regression
    dimension: int
    sigma: Covariance
    beta_bar: float
    noise2: float
    told: str
    notes: list[str]


def features(
    n: int | None,
    d: int | None,
    width: int,
    v0: float,
    sigma0: float,
    lr: float | None,
    noise2: float | None,
    teacher: float | None,
    data: Path | None,
    eps: float | None,
    seed: int,
    *,
    run: bool,
    plot: Path | None,
    quiet: bool,
) -> dict[str, Any]:
    """Regime, times, end kernel, step sizes and assumptions; what `--json` prints."""
    width = _check.integer("width", width, least=1, most=10**12)
    v = _check.real("v0", v0, least=SMALLEST, most=LARGEST)
    sigma0 = _check.real("sigma0", sigma0, least=0, most=LARGEST)
    if 0 < sigma0 < SMALLEST:
        raise InputError(f"sigma0 = {sigma0:g} is not allowed: sigma0 must be 0 or at least {SMALLEST:g}.")
    seed = _check.integer("seed", seed, least=0, most=2**63 - 1)
    if eps is not None:
        eps = _check.real("eps", eps, least=SMALLEST, most=LARGEST)
    if lr is not None:
        lr = _check.real("lr", lr, least=SMALLEST, most=LARGEST)
    picture(plot)
    key = jax.random.key(seed)
    setting = _file(data, n, d, width, noise2, teacher) if data else _drawn(key, n, d, width, noise2, teacher)
    problem = setting.problem
    task = feature.task(problem)
    samples = problem.samples
    unit = float(task.rate)
    richness = float(feature.richness(task.vstar2, v, sigma0))
    limits = feature.step_limits(task, v, sigma0)
    spectrum = np.linalg.svd(np.asarray(task.root), compute_uv=False)
    spectrum = spectrum[spectrum > RANK_TOLERANCE * spectrum[0]] ** 2
    growth = float(feature.total_growth(task, v, sigma0))
    end = feature.end_state(task, v, sigma0)
    stable = float(min(limits.start, limits.end))
    chosen = lr if lr is not None else 0.1 * stable
    x = chosen * unit
    floor = float(task.floor / task.start_loss)
    answer: dict[str, Any] = {
        "samples": samples,
        "d": setting.dimension,
        "width": width,
        "v0": v,
        "sigma0": sigma0,
        "data": setting.told,
        "gamma": float(task.gamma),
        "condition_of_gram": float(spectrum[0] / spectrum[-1]),
        "v_star": math.sqrt(float(task.vstar2)),
        "richness": richness,
        "regime": "lazy" if growth < _LAZY else "rich" if growth > _RICH else "between lazy and rich",
        "kernel_growth": growth,
        "kernel_growth_isotropic": float(feature.kernel_growth(richness)),
        "lr": chosen,
        "lr_was_given": lr is not None,
        "x": x,
        "largest_stable_lr": stable,
        "largest_lr_without_overshoot": min(float(limits.monotone), stable),
        "settles": chosen < stable,
        "floor": floor,
        "end": {
            "mean_square_of_v": float(end.mean_square),
            "kernel_norm": float(end.values[0]),
            "distance_from_target_aligned": _distance(task, end),
            "late_factor": float(feature.late_factor(task, chosen, end)),
        },
        "notes": list(setting.notes),
    }
    output = v * sigma0 / (float(task.vstar2) * math.sqrt(width / samples))
    if output > 0.1:
        answer["notes"].append(
            "the start's own output is not small beside the labels, as the model wants it: the loss will differ"
        )
    if sigma0 > 0.1 * v and width < 10 * len(spectrum):
        answer["notes"].append(
            f"width {width} is not large beside the {len(spectrum)} directions of the samples, as the model wants it: "
            "the start's kernel is uneven, and times and growth will differ"
        )
    curves = None
    if answer["settles"]:
        curves = _model(task, x, richness, v, sigma0)
        answer |= _times(curves, rounded=curves["step"][1] > 1)
    else:
        answer |= {"t1": None, "loss_left_at_t1": None, "kernel_growth_at_t1": None, "half_loss_step": None}
        answer["two_stages"] = None
    target = eps if eps is not None else 0.01 * float(task.start_loss)
    answer["eps"] = target
    answer["assumptions"] = [
        condition._asdict()
        for condition in feature.assumptions(
            samples,
            setting.dimension,
            width,
            setting.sigma,
            beta_bar=setting.beta_bar,
            sigma0=sigma0,
            v0=v,
            lr=chosen,
            eps=target,
            noise2=setting.noise2,
        )
    ]
    measured = None
    if run:
        measured = _measure(setting, task, answer, curves, key, quiet)
        answer["run"] = {name: value for name, value in measured.items() if name != "curves"}
    _show(answer, Console(quiet=quiet))
    if plot is not None:
        from linnet.plot.feature import prediction as draw

        if curves is None and measured is None:
            raise InputError(
                f"plot needs a stable step size: lr = {chosen:g} is above {stable:.4g}; lower lr, or add --run."
            )
        draw(answer, curves, None if measured is None else measured["curves"], plot)
        answer["figure"] = str(plot)
    return answer


# Data ----------------------------------------------------------------------------------------------------------------


def _drawn(key: Any, n: int | None, d: int | None, width: int, noise2: float | None, teacher: float | None) -> _Setting:
    """Gaussian inputs of unit covariance, drawn at a price without d."""
    if n is None or d is None:
        raise InputError("samples and d are missing: give --samples and --d, or samples of your own with --data FILE.")
    n, d = _check.integer("samples", n, least=1, most=_SAMPLES), _check.integer("d", d, least=1, most=10**12)
    noise = _check.real("noise2", 0.0 if noise2 is None else noise2, least=0, most=LARGEST)
    if teacher is None:  # standard normal
        teacher = math.sqrt(float(jax.random.chisquare(jax.random.fold_in(key, 1), d, dtype=float)))
    norm = _check.real("teacher", teacher, least=SMALLEST, most=LARGEST)
    draws = gaussian_samples(key, n, d, noise2=noise, teacher=norm)
    return _Setting(
        mean_field_regression(*draws, width=width),
        d,
        feature.covariance(d),
        norm,
        noise,
        "one draw of standard normal inputs with a linear teacher",
        [],
    )


def _file(
    data: Path, n: int | None, d: int | None, width: int, noise2: float | None, teacher: float | None
) -> _Setting:
    """The first n samples of a file."""
    for name, value in (("d", d), ("noise2", noise2), ("teacher", teacher)):
        if value is not None:
            raise InputError(f"{name} = {value} is not allowed with --data: the file has its own.")
    inputs, labels = read_regression(data)
    if labels.shape[1] != 1:
        raise InputError(f"data = {str(data)!r} cannot be used: it has {labels.shape[1]} label columns, not one.")
    if n is not None:
        count = _check.integer("samples", n, least=1)
        if count > len(inputs):
            raise InputError(f"samples = {count} is not allowed: {str(data)!r} holds {len(inputs)} samples.")
        inputs, labels = inputs[:count], labels[:count]
    y = labels[:, 0]
    if not np.any(y) or not np.any(inputs):
        raise InputError(f"data = {str(data)!r} cannot be used: its first {len(y)} inputs or labels are all zero.")
    samples, dimension = inputs.shape
    if min(samples, dimension) > _SAMPLES:
        raise InputError(
            f"data = {str(data)!r} is too large: {samples} samples of {dimension} inputs; at most {_SAMPLES} of either "
            "are possible, so give --samples."
        )
    values = np.linalg.svd(inputs, compute_uv=False) ** 2 / samples
    notes = []
    mean = inputs.mean(axis=0)
    if mean @ mean > 0.1 * np.sum(values):
        notes.append("the inputs are not centred: the slope may pass 1 and the stages blur; subtract the column means")
    if samples < dimension:
        notes.append("with fewer samples than inputs the covariance is overestimated: c6 is really larger")
    # the span of the samples is all that moves, and a rotation-invariant start stays one there
    problem = mean_field_regression(inputs, y, width=width).project().problem
    return _Setting(
        problem,
        dimension,
        Covariance(float(np.sum(values)), float(values[0]), float(np.linalg.norm(values))),
        float(np.linalg.norm(y) / math.sqrt(samples)),
        0.0,
        "your data, covariance and beta estimated from them",
        notes,
    )


# Prediction ----------------------------------------------------------------------------------------------------------


def _distance(task: Task, end: EndState) -> float:
    target = observe.target_kernel(task.root @ task.root.T, task.inside, end.mean_square / task.width)
    return float(observe.kernel_distance(end.kernel(task.root), target))


def _model(task: Task, x: float, richness: float, v0: float, sigma0: float) -> dict[str, np.ndarray]:
    """Loss, slope and growth of the kernel by the aligned model: map of descent, or the flow where steps are tiny.

    Steps of the flow are those of descent to a share of x/2, below 1/2000.
    """
    start = feature.expected_amplitudes(v0, sigma0)
    share = float(feature.kernel_growth(richness)) / richness  # 1/x of the largest step
    rapidity = float(feature.total_rapidity(richness)) + 8 / share
    if x * share >= 1e-3:
        steps = np.arange(math.ceil(rapidity / math.log1p(x)) + 2.0)
        path = feature.aligned_descent(start, x, task.vstar2, len(steps) - 1)
    else:
        theta = np.linspace(0, rapidity, 8001)
        steps, path = theta / x, feature.aligned_flow(theta, start, task.vstar2)
    return {
        "step": steps,
        "loss": np.asarray(path.loss(task) / task.start_loss),
        "slope": np.asarray(path.slope(start, v0)),
        "growth": np.asarray(path.kernel_growth(start)),
    }


def _first(steps: np.ndarray, above: np.ndarray) -> int | None:
    """The first whole step at which a curve is not negative, between two records by a line."""
    if not np.any(above >= 0):
        return None
    place = int(np.argmax(above >= 0))
    at = float(steps[place])
    if place and np.isfinite(above[place - 1]):
        at -= float((steps[place] - steps[place - 1]) * above[place] / (above[place] - above[place - 1]))
    return math.ceil(at)


def _times(curves: dict[str, np.ndarray], *, rounded: bool = False) -> dict[str, Any]:
    """What is told of curves, predicted or measured; `rounded` to three digits."""
    steps = curves["step"]
    t1, half = _first(steps, curves["slope"] - _ALIGNED), _first(steps, 0.5 - curves["loss"])
    left, growth = (None if t1 is None else float(np.interp(t1, steps, curves[name])) for name in ("loss", "growth"))
    if rounded:
        t1, half = (None if step is None else int(float(f"{step:.3g}")) for step in (t1, half))
    return {
        "t1": t1,
        "loss_left_at_t1": left,
        "kernel_growth_at_t1": growth,
        "half_loss_step": half,
        "two_stages": left is not None and left > 0.5,
    }


def _measure(
    setting: _Setting,
    task: Task,
    answer: dict[str, Any],
    curves: dict[str, np.ndarray] | None,
    key: Any,
    quiet: bool,
) -> dict[str, Any]:
    """Exact gradient descent at the full width, in compressed coordinates."""
    steps = 200
    if curves is not None:
        factor = min(max(answer["end"]["late_factor"], 0.0), 1 - 1e-12)
        late = math.log(1e-3) / math.log(factor) if factor > 0 else 0.0
        steps = math.ceil(curves["step"][-1]) + 1
        if steps > _STEPS:
            raise InputError(
                f"lr = {answer['lr']:g} is not allowed with --run: it takes about {steps} steps, and {_STEPS} are the "
                f"most; raise it, up to {answer['largest_stable_lr']:.4g}."
            )
        steps = min(_STEPS, steps + math.ceil(late))
    problem = setting.problem
    looks = {"loss": observe.loss, "slope": observe.slope, "label": observe.label_kernel}
    if problem.root.shape[0] <= 200:
        looks["distance"] = observe.target_distance
    start = readout(key, problem, answer["width"], sigma0=answer["sigma0"], v0=answer["v0"])
    with bar("exact descent", quiet=quiet) as progress:
        run = simulate(
            problem,
            start,
            GradientDescent(answer["lr"]),
            steps=steps,
            record=linear(min(steps, 4000) + 1),
            observe=looks,
            progress=progress,
        )
    at = np.asarray(run.steps)
    loss, label = (np.asarray(run[name]) for name in ("loss", "label"))
    left = loss / float(task.start_loss)
    seen = {"step": at, "loss": left, "slope": np.asarray(run["slope"]), "growth": label / label[0]}
    found = _times(seen)
    distance = np.asarray(run["distance"]) if "distance" in looks else None
    return {
        "status": run.status,
        "steps": int(at[-1]),
        **{name: found[name] for name in ("t1", "loss_left_at_t1", "kernel_growth_at_t1", "half_loss_step")},
        "kernel_growth": None if run.status == "diverged" else float(seen["growth"][-1]),
        "loss_left_at_the_end": float(left[-1]),
        "distance_at_t1": None
        if distance is None or found["t1"] is None
        else float(np.interp(found["t1"], at, distance)),
        "distance_at_the_end": None if distance is None or run.status == "diverged" else float(distance[-1]),
        "curves": seen,
    }


# What is said --------------------------------------------------------------------------------------------------------


def _show(answer: dict[str, Any], console: Console) -> None:
    say = partial(console.print, highlight=False)
    growth, run = answer["kernel_growth"], answer.get("run")
    regime = answer["regime"]
    say(
        f"[bold]{regime[0].upper()}{regime[1:]}:[/] R = {answer['richness']:.4g}; the kernel grows "
        f"{_number(growth)}-fold along the labels."
    )
    say(
        f"n = {answer['samples']}, d = {answer['d']}, width {answer['width']}, v0 = {answer['v0']:g}, "
        f"sigma0 = {answer['sigma0']:g}, {answer['data']}; v* = {answer['v_star']:.4g}."
    )
    given = "" if answer["lr_was_given"] else " (a tenth of the largest stable one)"
    say(f"lr = {answer['lr']:.4g}{given}, dimensionless step x = {answer['x']:.4g}.")
    if not answer["settles"]:
        say(f"[bold]This step size will not settle:[/] the largest stable lr is {answer['largest_stable_lr']:.4g}.")
    elif answer["two_stages"]:
        say(f"Two stages: {answer['loss_left_at_t1']:.0%} of the loss is left when the neurons are aligned.")
    elif answer["t1"] is None:
        if answer["half_loss_step"] is not None:
            say("One stage: the loss is halved before the neurons are aligned.")
        else:
            say(f"No stages: the neurons are never aligned to a slope of {_ALIGNED:g}.")
    else:
        say(f"No clear stages: {answer['loss_left_at_t1']:.0%} of the loss is left when the neurons are aligned.")
    table = Table(box=None, pad_edge=False, show_header=run is not None)
    table.add_column("")
    table.add_column("predicted", justify="right")
    if run is not None:
        table.add_column("measured", justify="right")

    def row(name: str, predicted: float | None, measured: float | None = None, *, compared: bool = False) -> None:
        cells = [_number(predicted)]
        if run is not None:
            cells.append(_number(measured) if compared else "")
        table.add_row(name, *cells)

    found = run or {}
    if answer["settles"] or run is not None:
        for words, name in (
            (f"aligned (slope {_ALIGNED:g}) at step t1", "t1"),
            ("  loss left there", "loss_left_at_t1"),
            ("  growth of the kernel until then", "kernel_growth_at_t1"),
            ("loss halved at step", "half_loss_step"),
        ):
            row(words, answer[name], found.get(name), compared=True)
    row("growth of the kernel, whole training", growth, found.get("kernel_growth"), compared=True)
    end = answer["end"]
    row(
        "distance from the target-aligned kernel, end",
        end["distance_from_target_aligned"],
        found.get("distance_at_the_end"),
        compared=True,
    )
    row("mean of v² at the end", end["mean_square_of_v"])
    row("largest eigenvalue of the kernel there", end["kernel_norm"])
    row("factor of the residual in a late step", end["late_factor"])
    row("largest lr without overshoot", answer["largest_lr_without_overshoot"])
    row("largest stable lr", answer["largest_stable_lr"])
    console.print(table)
    if answer["floor"] > 0.5 and answer["half_loss_step"] is None:
        say(
            f"The loss is halved only in a third stage: along X^T y alone {answer['floor']:.0%} of it would stay, "
            "because the Gram matrix is far from a multiple of the identity."
        )
    elif answer["condition_of_gram"] > 3:
        say(
            f"The Gram matrix has condition {answer['condition_of_gram']:.3g}: times are those of the isotropic model, "
            f"whose loss stays at {answer['floor']:.2g} of its start; a third stage learns the rest."
        )
    if run is not None:
        left = run["loss_left_at_the_end"]
        say(f"Exact descent ({run['status']}, {run['steps']} steps): loss {left:.2e} of its start.")
    say(f"The paper's assumption, with the constant that each part needs (eps = {answer['eps']:.3g}):")
    conditions = Table(box=None, pad_edge=False)
    for name in ("", "value", "must be", "holds"):
        conditions.add_column(name, justify="right" if name == "value" else "left")
    for condition in answer["assumptions"]:
        limit = condition["limit"]
        conditions.add_row(
            f"{condition['id']}: {condition['text']}",
            _number(condition["value"]),
            f"{condition['sense']} {_number(limit) if limit is not None else 'a constant'}",
            {None: "open", True: "yes", False: "no"}[condition["holds"]],
        )
    console.print(conditions)
    for note in answer["notes"]:
        say(f"Note: {note}.")


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:d}" if isinstance(value, int) else f"{value:.4g}"
