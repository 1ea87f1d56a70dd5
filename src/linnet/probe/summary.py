"""The record of a probe summarized in sentences."""

from typing import Any

from linnet.probe.advice import advice, ago
from linnet.probe.health import AT_EDGE, FRESH, RECENT, HealthStatus, assess, digits, judged
from linnet.probe.record import ProbeRecord
from linnet.theory.regime import Regime

SADDLE_TOLERANCE = 0.05  # relative difference of the measured sharpness up to which adapters are at their saddle
_COLLAPSED = 1e-3  # of the labels' spread, below which outputs are constant
_NAMED = 3  # pairs of factors that are described one by one
_EXACT = 1e-3  # up to which an assumption holds exactly: measurements are in single precision
_ROUGH = 0.5  # from which on it does not hold
_SCALED = 1e-3  # of a gradient: smaller factors are those of a scaler
_SAMPLES = 16  # measurements of the stochastic edge that are averaged
_SINCE = 20  # steps between two comparisons of what trains, at least
_WORST = (HealthStatus.NON_FINITE, HealthStatus.NO_PROGRESS)
_FORWARD = ("c_own", "c_other", "c_other_low", "c_other_high", "stochastic_edge")
_NOT_A_PRODUCT = 0.05  # of the gradients, by which the loss depends on more than a product


def verdict(record: ProbeRecord) -> list[str]:
    """Sentences on the training: an alarm of the last fifty steps, its status, how its loop steps, the learning rate,
    curvature against its threshold, and the state of its layers.
    """
    state, measurements = assess(record), record.measurements
    alarms = [alarm_sentence(alarm) for alarm in record.alarms[-_NAMED:]]
    now = record.steps[-1]["step"] if record.steps else 0
    recent = bool(record.alarms) and record.alarms[-1]["step"] > now - RECENT
    loop = _loop(record)
    first = [alarms.pop()] if recent and state.status not in _WORST else []
    cause = [loop.pop(0)] if _unzeroed(record) else []
    sentences = [*cause, *first, state.sentence, *loop, *reversed(alarms)]
    if state.status is HealthStatus.HEALTHY:
        sentences += advice(record)
    sentences += _orbit(record)
    if not measurements:
        return sentences
    last = measurements[-1]
    saddle = _adapters(record.about, last) or _saddle(last)
    layers = [*_pairs(record), *_balance(record.about, last), *_regimes(last)]
    return [*sentences, _curvature(measurements, now), *saddle, *layers, *_collapse(last)]


def status_line(record: ProbeRecord) -> str:
    """The last step and the last measurements in one line."""
    steps = record.steps[-RECENT:]
    parts = [f"step {steps[-1]['step']}"] if steps else ["no step yet"]
    parts += [line["status"].replace("_", " ") for line in record.statuses[-1:]]
    for name, text in (("loss", "loss"), ("flip", "step cosine")):
        if steps and steps[-1].get(name) is not None:
            parts.append(f"{text} {steps[-1][name]:.3g}")
    for line in record.forwards[-1:]:
        if line.get("own_low") is not None:
            parts.append(f"critical step {format_interval(line['own_low'], line['own_high'])}")
    for line in record.measurements[-1:]:
        parts.append(f"sharpness {line['sharpness'][0]:.3g} at step {line['step']}")
        if line.get("ratio") is not None:
            parts.append(f"{line['ratio']:.0%} of the edge")
    return " · ".join(parts)


def values(record: ProbeRecord) -> dict[str, float]:
    """The last numbers for loggers, by `linnet/...`."""
    found: dict[str, float] = {}
    kinds = record.anchors[-1:], record.forwards[-1:], record.measurements[-1:], record.steps[-1:]
    for name in ("anchor", *_FORWARD, "sharpness", "ratio", "flip"):
        for lines in kinds:
            value = lines[-1].get(name) if lines else None
            leading = value[0] if isinstance(value, list) else value
            if leading is not None:
                found[f"linnet/{name}"] = float(leading)
    now = record.steps[-1]["step"] if record.steps else 0
    found["linnet/alarm"] = float(any(alarm["step"] > now - RECENT for alarm in record.alarms))
    return found


def alarm_sentence(alarm: dict[str, Any]) -> str:
    """An alarm with its cause."""
    what = {
        "non_finite": "the loss or a weight was not finite",
        "skipped": "the optimizer's step was skipped",
        "loss": "the loss rose" + ("" if alarm["factor"] is None else f" to {alarm['factor']:.3g} times its median"),
        "anchor": "the loss on the probe's batch rose"
        + ("" if alarm["factor"] is None else f" to {alarm['factor']:.3g} times what it was"),
    }
    cause = {
        "learning_rate": "Cause: the learning rate. The weights were worse before this batch came, or blew up.",
        "bad_batch": "Cause: this batch. The weights were good before it; high losses after it come from its own step.",
        "data_shift": "Cause: the data. The weights were good before, and the next batches have high losses too.",
        "precision": "Cause: the range of the numbers. The loss was normal before.",
        None: "Its cause is not known so far.",
    }
    return f"Alarm at step {alarm['step']}: {what[alarm['trigger']]}. {cause[alarm['cause']]}"


def format_interval(low: float, high: float | None) -> str:
    """The interval from `low` to `high` as text; without an upper bound where `high` is None."""
    return f"above {low:.2g}" if high is None else f"{low:.2g} to {high:.2g}"


def _unzeroed(record: ProbeRecord) -> bool:
    """Whether the last comparison found gradients that had never been set to zero."""
    known = [line["kept"] for line in record.checks if "kept" in line]
    return bool(known) and known[-1]


def _loop(record: ProbeRecord) -> list[str]:
    """What the training loop does beside plain steps: gradients that add up first."""
    sentences = []
    if _unzeroed(record):
        step = next(line["step"] for line in record.checks if line.get("kept"))
        sentences.append(
            f"Gradients add up over all steps: at step {step} the optimizer took the new gradient plus that of the "
            "step before. Call optimizer.zero_grad() before each backward pass of a new step."
        )
    checks = [line for line in record.checks if "passes" in line]
    if checks and checks[-1].get("left_out") is not None:
        count, name = checks[-1]["left_out"], checks[-1]["left_out_name"]
        such = f"parameters that require gradients, such as {name}, are" if count > 1 else f"parameter, {name}, is"
        sentences.append(f"{count} {such} in no group of the optimizer: what is left out does not train.")
    if checks and checks[-1]["passes"] > 1:
        sentences.append(f"Gradients of {checks[-1]['passes']} backward passes make a step.")
    scale = checks[-1].get("gradient_scale") if checks else None
    if scale is not None and _SCALED < scale < 1 - _EXACT:
        sentences.append(
            f"At step {checks[-1]['step']} gradients were multiplied by {scale:.2g} before the step, as clipping does: "
            "the lr alone does not set its length."
        )
    decay = checks[-1].get("weight_decay") if checks else None
    if decay:
        sentences.append(f"Weight decay {decay:.3g} is part of the steps that were measured.")
    thawed = [line for line in record.checks if "thawed" in line]
    if thawed:
        count = thawed[-1]["thawed"]
        sentences.append(
            f"{count} parameter{'s' if count > 1 else ''} frozen at first train since step {thawed[-1]['step']} or the "
            f"{_SINCE} steps before, and {'are' if count > 1 else 'is'} measured from then on."
        )
    return sentences


def _orbit(record: ProbeRecord) -> list[str]:
    """The critical step on the step's own batch, as a distance."""
    forward = record.forwards[-1] if record.forwards else None
    if forward is None or forward.get("own_low") is None:
        return []
    length = format_interval(forward["own_low"], forward["own_high"])
    text = f"Critical step: along step {forward['step']} the loss of its own batch falls for {length} times its length."
    known = [line["stochastic_edge"] for line in record.forwards[-_SAMPLES:] if line.get("stochastic_edge") is not None]
    if not known:
        return [text]
    mean = sum(known) / len(known)
    if mean <= 0:
        return [f"{text} It curves downwards along the last steps that were measured."]
    over = "this measurement" if len(known) == 1 else f"the last {len(known)} measurements"
    return [f"{text} The distance from the stochastic edge is {mean:.2g} by {over}; at 1 steps gain nothing."]


def _curvature(measurements: list[dict[str, Any]], now: int) -> str:
    """The last curvature against its threshold: whether it is stable now, not what else would be."""
    # a schedule may end at lr 0
    last = ([line for line in measurements if line.get("ratio") is not None] or measurements)[-1]
    top, error = last["sharpness"][0], last["residual"][0]
    sharpness = f"sharpness {top:.3g} ± {error:.1g}"
    when = f"step {last['step']}" + (f", {ago(now - last['step'])}" if now > last["step"] else "")
    if last.get("ratio") is None:
        if last.get("unsure"):
            return f"At {when}: no curvature, since differences of gradients disagree by {last['change']:.2g} of it."
        if last.get("reason") is not None:
            return f"At {when}: {sharpness}. {last['reason']} Forward passes along a step need no threshold."
        return (
            f"At {when}: {sharpness}. There is no stability threshold to compare it with: give lr, or an optimizer "
            "whose threshold is known and that has made a step. Forward passes along a step need none."
        )
    threshold = last["threshold"]
    n = digits(last.get("adaptive", top + last.get("decay", 0.0)), threshold)
    sharpness = f"sharpness {top:.{n}g} ± {error:.1g}"
    if last.get("decay"):
        sharpness += f" + weight decay {last['decay']:.{n}g}"
    if "adaptive" in last:
        sharpness = f"preconditioned sharpness {last['adaptive']:.{n}g} ± {last['adaptive_residual']:.1g}"
    found = f"{sharpness} against {threshold:.{n}g} at lr {last['lr']:.3g} ({when})"
    if last.get("fresh") is not None and last["fresh"] < FRESH:
        return f"Curvature: {found}. Not judged: the sharpest direction belongs to these samples alone."
    if not judged(last):
        return f"Curvature: {found}. Too early to judge: the preconditioner averages over {last['memory']:.0f} steps."
    if last["ratio"] >= 1:
        return f"Curvature above its threshold: {found}."
    if last["ratio"] >= AT_EDGE:
        return f"Curvature at its threshold: {found}."
    if last["ratio"] <= 0:
        return f"Curvature below its threshold: {found}. No direction has positive curvature."
    return f"Curvature below its threshold: {found}. Stable now, which does not say that another lr is."


def _saddle(last: dict[str, Any]) -> list[str]:
    top, low = last["sharpness"][0], last["lowest"]
    if low < 0 and -low > 0.5 * max(top, 0.0):
        return [f"Near a saddle: the lowest curvature is {low:.3g} or less, the highest {top:.3g}."]
    return []


def _adapters(about: dict[str, Any], last: dict[str, Any]) -> list[str]:
    """Whether the two-layer theory of adapters holds."""
    if last.get("saddle") is None:
        return []
    predicted, share, top = last["saddle"], last["saddle_share"], last["sharpness"][0]
    if abs(predicted / top - 1) >= SADDLE_TOLERANCE:
        return [
            f"Adapters are away from A = B = 0, where their curvature would be {predicted:.3g}: their own product "
            f"makes {100 * share:.2g} % of the sharpness {top:.3g}, the network's curvature the rest. Formulas of "
            "two-layer networks do not predict it."
        ]
    layer = about["layers"][last["saddle_layer"]]
    text = f"Adapters are at the saddle of their initialization: curvatures ± {predicted:.3g} = |dL/dW| in {layer}"
    if last.get("lr") is None:
        return [f"{text}."]
    text += f"; at lr {last['lr']:.3g} gradient descent leaves it by a factor 1 + {last['lr'] * predicted:.2g} a step"
    escape = last.get("escape")
    after = "but not from here, where nothing grows" if escape is None else f"after {float(f'{escape:.2g}'):,.0f} steps"
    if "adaptive" in last and last.get("ratio") is not None:
        return [
            f"{text}, {after}; Adam moves entries by about lr, at {100 * last['ratio']:.2g} % of its own threshold."
        ]
    return [f"{text}, {after}."]


def pair_assumptions(pair: dict[str, Any]) -> list[tuple[str, float]]:
    """What the prediction of a pair assumes, and how far the initialization is from it (0: exactly, relative)."""
    texts = {
        "product": "the loss depends on the product alone",
        "aligned": "its mode does not rotate",
        "sharpness": "its mode makes its curvature",
    }
    found = [(text, pair["assumptions"][name]) for name, text in texts.items() if name in pair["assumptions"]]
    if pair["reach"] is not None:
        found.append(("it reaches the whole gradient", max(0.0, 1 - pair["reach"])))
    return found


def _pairs(record: ProbeRecord) -> list[str]:
    """What two-layer theory predicts of pairs of factors from their initialization, and what was measured since."""
    last = record.measurements[-1]
    failures = [failure for pair in record.pairs if (failure := _fails(pair)) is not None]
    pairs = [pair for pair in record.pairs if _fails(pair) is None]
    sentences = _inapplicable(failures, len(record.pairs))
    sentences += [_pair(record.about["layers"][pair["layer"]], pair, last) for pair in pairs[:_NAMED]]
    if len(pairs) <= _NAMED:
        return sentences
    unknown = "without a predicted end"
    found = [pair["regime"] or unknown for pair in pairs]
    counts = ", ".join(f"{found.count(one)} {one}" for one in (*Regime, unknown) if one in found)
    text = f"The {len(pairs)} pairs that it applies to, at initialization: {counts}"
    return [*sentences, f"{text}."]


def _fails(pair: dict[str, Any]) -> tuple[str, float] | None:
    """The assumption of two-layer theory that does not hold for a pair, and by how much."""
    if pair["assumptions"]["product"] > _NOT_A_PRODUCT:
        return "the loss depends on the product alone", pair["assumptions"]["product"]
    if pair["end"] is None:
        return None
    worst, error = max(pair_assumptions(pair), key=lambda assumption: assumption[1])
    return (worst, error) if error >= _ROUGH else None


def _inapplicable(failures: list[tuple[str, float]], count: int) -> list[str]:
    """One sentence on all pairs whose assumptions do not hold."""
    if not failures:
        return []
    errors = [error for _, error in failures]
    low, high = (f"{error:.2g}" for error in (min(errors), max(errors)))
    which = " or ".join(dict.fromkeys(worst for worst, _ in failures))
    by = low if low == high else f"{low} to {high}"
    return [
        f"Two-layer theory does not apply to {len(failures)} of {count} pairs of factors: that {which}, which it "
        f"assumes, fails by {by} (0 is exact). The critical step by forward passes needs no such assumption."
    ]


def _pair(name: str, pair: dict[str, Any], last: dict[str, Any]) -> str:
    if pair["end"] is None:
        return f"{name} from initialization: no predicted end, since the loss curves downwards along its steepest mode."
    worst, error = max(pair_assumptions(pair), key=lambda assumption: assumption[1])
    so_far = last["mode_growth"][pair["layer"]]
    text = (
        f"{name} from initialization: {pair['regime']}, {pair['value']:.3g} must become {pair['end']:.3g} against an "
        f"imbalance of {pair['imbalance']:.3g}: its kernel times {pair['growth']:.3g} (so far {so_far:.3g})"
    )
    if error <= _EXACT:
        return f"{text}. Exact while all other parameters are constant and the loss is quadratic along it."
    return (
        f"{text}. Assumes that all other parameters are constant, that the loss is quadratic along it, and that "
        f"{worst}, roughly true ({error:.2g})."
    )


def _regimes(last: dict[str, Any]) -> list[str]:
    """How much the tangent kernels of products have grown since the first measurement."""
    found = [Regime.of_growth(max(growth, 1 / growth)) for growth in last.get("growth", []) if growth]
    if not found:
        return []
    counts = ", ".join(f"{found.count(one)} {one}" for one in Regime if one in found)
    return [f"Products of two matrices so far: {counts}, by the growth of |W_1|² + |W_2|² since initialization."]


def _collapse(last: dict[str, Any]) -> list[str]:
    """Whether a model gives the same output for every sample."""
    spread, labels = last.get("output_spread"), last.get("label_spread")
    if spread is None or labels is None or spread >= _COLLAPSED * labels:
        return []
    return [
        f"Collapsed: outputs are {last['output_mean']:.3g} ± {spread:.1g} where labels differ by {labels:.2g}, one "
        "constant for every sample; a correlation with labels means nothing. Begin with an output bias at their mean."
    ]


def _balance(about: dict[str, Any], last: dict[str, Any]) -> list[str]:
    drifts = [
        (drift, name) for drift, name in zip(last.get("drift", []), about["layers"], strict=False) if drift is not None
    ]
    if not drifts:
        return []
    worst, name = max(drifts)
    if worst < 0.05:
        return [
            f"Factors are as balanced as at initialization (largest drift {worst:.2g} of their squares, in {name})."
        ]
    return [f"Factors have lost their balance: it drifted by {worst:.2g} of their squares in {name}."]
