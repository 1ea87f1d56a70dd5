"""The record of a probe summarized in sentences."""

import itertools
from typing import Any

from linnet.prediction.assumption import Assumption, Holds
from linnet.probe.record import Record
from linnet.theory.regime import Regime

_EDGE = 0.9  # of the threshold, above which an oscillating training is at the edge of stability
_OSCILLATES = 0.1  # share of steps that reverse or raise the loss at the edge
_WINDOW = 50
SADDLE_TOLERANCE = 0.05  # relative difference of the measured sharpness up to which adapters are at their saddle
_COLLAPSED = 1e-3  # of the labels' spread, below which outputs are constant
_NAMED = 3  # pairs of factors that are described one by one
_EXACT = 1e-3  # up to which an assumption holds exactly: measurements are in single precision
_NOT_A_PRODUCT = 0.05  # of the gradients, by which the loss depends on more than a product


def verdict(record: Record) -> list[str]:
    """The training's distance from the edge of stability, and the state of its layers, in sentences."""
    steps, measurements = record.steps, record.measurements
    if not measurements:
        return ["Nothing was measured yet."]
    last = measurements[-1]
    saddle = _adapters(record.about, last) or _saddle(last)
    layers = [*_pairs(record), *_balance(record.about, last), *_regimes(last)]
    return [*_edge(steps, measurements), *saddle, *layers, *_collapse(last)]


def status_line(record: Record) -> str:
    """The last step and the last measurement in one line."""
    steps, measurements = record.steps[-_WINDOW:], record.measurements[-1:]
    parts = [f"step {steps[-1]['step']}"] if steps else ["no step yet"]
    for name, text in (("loss", "loss"), ("flip", "step cosine")):
        if steps and steps[-1].get(name) is not None:
            parts.append(f"{text} {steps[-1][name]:.3g}")
    for line in measurements:
        parts.append(f"sharpness {line['sharpness'][0]:.3g} at step {line['step']}")
        if line.get("ratio") is not None:
            parts.append(f"{line['ratio']:.0%} of the edge")
    return " · ".join(parts)


def oscillating_share(steps: list[dict[str, Any]]) -> float:
    """The share of the last steps that reversed the one before, or raised the loss where no step was compared."""
    last = steps[-_WINDOW:]
    reversals = [line["flip"] < -0.5 for line in last if line.get("flip") is not None]
    if reversals:
        return sum(reversals) / len(reversals)
    losses = [line["loss"] for line in last if line.get("loss") is not None]
    rises = [b > a for a, b in itertools.pairwise(losses)]
    return sum(rises) / len(rises) if rises else 0.0


def _edge(steps: list[dict[str, Any]], measurements: list[dict[str, Any]]) -> list[str]:
    # a schedule may end at lr 0
    measurements = [line for line in measurements if line.get("ratio") is not None] or measurements[-1:]
    last = measurements[-1]
    top, error = last["sharpness"][0], last["residual"][0]
    sharpness = f"sharpness {top:.3g} ± {error:.1g}"
    if last.get("ratio") is None:
        return [
            f"At step {last['step']}: {sharpness}. There is no stability threshold to compare it with: give lr, or an "
            "optimizer that is SGD, Adam, or AdamW and has made a step."
        ]
    threshold, lr = last["threshold"], last["lr"]
    if last.get("decay"):
        sharpness += f" + weight decay {last['decay']:.3g}"
    if "adaptive" in last:
        sharpness = f"preconditioned sharpness {last['adaptive']:.3g} ± {last['adaptive_residual']:.1g}"
    pair = [line["ratio"] for line in measurements[-2:]]
    mean = sum(pair) / len(pair)
    found = f"{sharpness} against {threshold:.3g} at lr {lr:.3g} (step {last['step']})"
    if mean >= _EDGE and oscillating_share([line for line in steps if line["step"] <= last["step"]]) > _OSCILLATES:
        since = list(itertools.takewhile(lambda line: line["ratio"] >= _EDGE, reversed(measurements))) or [last]
        return [
            f"At the edge since step {since[-1]['step']}: {found}. Training oscillates and still makes progress; a "
            "smaller lr stops the oscillation until the curvature has risen to the new threshold."
        ]
    if mean >= 1:
        return [f"Above the edge: {found}. The next steps diverge along the sharpest direction until it flattens."]
    if mean <= 0:
        return [f"Below the edge: {found}. No direction has positive curvature."]
    return [
        f"Below the edge: {found}. Training is stable up to an lr of {lr / mean:.3g}, {1 / mean:.2g} times this one."
    ]


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
    if "adaptive" in last:
        return [
            f"{text}, {after}; Adam moves entries by about lr, at {100 * last['ratio']:.2g} % of its own threshold."
        ]
    return [f"{text}, {after}."]


def assumptions(pair: dict[str, Any]) -> list[Assumption]:
    """What the prediction of a pair assumes, as far as it can be measured at the initialization."""
    texts = {
        "product": "the loss depends on the product alone",
        "aligned": "its mode does not rotate",
        "sharpness": "its mode makes its curvature",
    }
    found = [
        Assumption.of(text, pair["assumptions"][name], exact=_EXACT)
        for name, text in texts.items()
        if name in pair["assumptions"]
    ]
    if pair["reach"] is not None:
        found.append(Assumption.of("it reaches the whole gradient", max(0.0, 1 - pair["reach"]), exact=_EXACT))
    return found


def _pairs(record: Record) -> list[str]:
    """What two-layer theory predicts of pairs of factors from their initialization, and what was measured since."""
    pairs, last = record.pairs, record.measurements[-1]
    sentences = [_pair(record.about["layers"][pair["layer"]], pair, last) for pair in pairs[:_NAMED]]
    if len(pairs) <= _NAMED:
        return sentences
    unknown = "without a predicted end"
    found = [pair["regime"] or unknown for pair in pairs]
    counts = ", ".join(f"{found.count(one)} {one}" for one in (*Regime, unknown) if one in found)
    text = f"The {len(pairs)} pairs with the largest gradients at initialization: {counts}"
    stable = [(pair["largest_lr"], pair["layer"]) for pair in pairs if pair["largest_lr"] is not None]
    if stable:
        lr, layer = min(stable)
        text += f"; each alone is stable up to an lr of {lr:.3g} or more, least {record.about['layers'][layer]}"
    return [*sentences, f"{text}."]


def _pair(name: str, pair: dict[str, Any], last: dict[str, Any]) -> str:
    if pair["assumptions"]["product"] > _NOT_A_PRODUCT:
        return f"{name}: the loss depends on more than the product of the two, so two-layer theory does not apply."
    if pair["end"] is None:
        return f"{name} from initialization: no predicted end, since the loss curves downwards along its steepest mode."
    so_far = last["mode_growth"][pair["layer"]]
    text = (
        f"{name} from initialization: {pair['regime']}, {pair['value']:.3g} must become {pair['end']:.3g} against an "
        f"imbalance of {pair['imbalance']:.3g}: its kernel times {pair['growth']:.3g} (so far {so_far:.3g})"
    )
    if pair["largest_lr"] is not None:
        text += f"; stable up to an lr of {pair['largest_lr']:.3g}"
        text += f" (now {last['lr']:.3g})" if last.get("lr") is not None else ""
    worst = max(assumptions(pair), key=lambda assumption: assumption.measured)
    if worst.holds is Holds.EXACTLY:
        return f"{text}. Exact while all other parameters are constant and the loss is quadratic along it."
    how = "roughly true" if worst.holds is Holds.ROUGHLY else "not true"
    return (
        f"{text}. Assumes that all other parameters are constant, that the loss is quadratic along it, and that "
        f"{worst.name}, {how} ({worst.measured:.2g})."
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
