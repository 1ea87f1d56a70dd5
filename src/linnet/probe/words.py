"""What a probe has seen, in sentences."""

import itertools
from typing import Any

from linnet.predict.answer import Holds, Hypothesis
from linnet.probe.record import Record
from linnet.theory.regime import Regime

_EDGE = 0.9  # of the threshold, above which a training is at its edge if it also swings
_SWINGS = 0.1  # share of steps that go up, or have turned, at the edge
_WINDOW = 50
AGREE = 0.05  # of the measured sharpness, by which adapters on their saddle have another one
_COLLAPSED = 1e-3  # of the labels' spread, below which outputs are one constant
_NAMED = 3  # pairs of factors that have a sentence of their own
_TRUE = 1e-3  # up to which a hypothesis holds exactly: looks are in single precision
_MORE = 0.05  # of the gradients, by which a loss that sees more than a product shows


def verdict(record: Record) -> list[str]:
    """Where the training stands to its edge, and what it has done to the layers."""
    steps, looks = record.steps, record.looks
    if not looks:
        return ["Nothing was looked at yet."]
    saddle = _adapters(record.about, looks[-1]) or _saddle(looks)
    layers = [*_pairs(record), *_balance(record.about, looks), *_regimes(looks[-1])]
    return [*_edge(steps, looks), *saddle, *layers, *_collapse(looks[-1])]


def line(record: Record) -> str:
    """Where it stands, in one line."""
    steps, looks = record.steps[-_WINDOW:], record.looks[-1:]
    told = [f"step {steps[-1]['step']}"] if steps else ["no step yet"]
    for name, text in (("loss", "loss"), ("flip", "turn")):
        if steps and steps[-1].get(name) is not None:
            told.append(f"{text} {steps[-1][name]:.3g}")
    for look in looks:
        told.append(f"sharpness {look['sharpness'][0]:.3g} at step {look['step']}")
        if look.get("ratio") is not None:
            told.append(f"{look['ratio']:.0%} of the edge")
    return " · ".join(told)


def swings(steps: list[dict[str, Any]]) -> float:
    """The share of the last steps that turned back on the one before, or raised the loss if no step was compared."""
    last = steps[-_WINDOW:]
    turned = [line["flip"] < -0.5 for line in last if line.get("flip") is not None]
    if turned:
        return sum(turned) / len(turned)
    losses = [line["loss"] for line in last if line.get("loss") is not None]
    rises = [b > a for a, b in itertools.pairwise(losses)]
    return sum(rises) / len(rises) if rises else 0.0


def _edge(steps: list[dict[str, Any]], looks: list[dict[str, Any]]) -> list[str]:
    looks = [look for look in looks if look.get("ratio") is not None] or looks[-1:]  # a schedule may end at lr 0
    last = looks[-1]
    top, error = last["sharpness"][0], last["residual"][0]
    measured = f"sharpness {top:.3g} ± {error:.1g}"
    if last.get("ratio") is None:
        return [
            f"At step {last['step']}: {measured}. There is no edge to compare it with: give lr, or an optimiser that "
            "is SGD, Adam or AdamW and has made a step."
        ]
    edge, lr = last["threshold"], last["lr"]
    if "adaptive" in last:
        measured = f"preconditioned sharpness {last['adaptive']:.3g} ± {last['adaptive_residual']:.1g}"
    pair = [look["ratio"] for look in looks[-2:]]
    mean = sum(pair) / len(pair)
    told = f"{measured} against {edge:.3g} at lr {lr:.3g} (step {last['step']})"
    if mean >= _EDGE and swings([line for line in steps if line["step"] <= last["step"]]) > _SWINGS:
        there = list(itertools.takewhile(lambda look: look["ratio"] >= _EDGE, reversed(looks))) or [last]
        return [
            f"At the edge since step {there[-1]['step']}: {told}. It swings there and trains on; with a smaller lr it "
            "would be calm until curvature has risen to the new edge."
        ]
    if mean >= 1:
        return [f"Above the edge: {told}. The next steps go apart in the sharpest direction until it flattens."]
    if mean <= 0:
        return [f"Below the edge: {told}. Nothing curves upwards here."]
    return [f"Below the edge: {told}. Curvature bears an lr up to {lr / mean:.3g}, {1 / mean:.2g} times this one."]


def _saddle(looks: list[dict[str, Any]]) -> list[str]:
    last = looks[-1]
    top, low = last["sharpness"][0], last["lowest"]
    if low < 0 and -low > 0.5 * max(top, 0.0):
        return [f"Near a saddle: the lowest curvature is {low:.3g} or less, the highest {top:.3g}."]
    return []


def _adapters(about: dict[str, Any], last: dict[str, Any]) -> list[str]:
    """Whether two-layer theory of adapters holds."""
    if last.get("saddle") is None:
        return []
    told, share, top = last["saddle"], last["saddle_share"], last["sharpness"][0]
    if abs(told / top - 1) >= AGREE:
        return [
            f"Adapters are away from A = B = 0, where their curvature would be {told:.3g}: of the sharpness {top:.3g} "
            f"their own product makes {100 * share:.2g} %, and the network's curvature the rest. Formulas of two-layer "
            "networks do not tell it."
        ]
    words = (
        f"Fresh adapters are on a saddle: curvatures ± {told:.3g} = |dL/dW| in {about['layers'][last['saddle_layer']]}"
    )
    if last.get("lr") is None:
        return [f"{words}."]
    words += f"; at lr {last['lr']:.3g} plain descent leaves it by a factor 1 + {last['lr'] * told:.2g} a step"
    gone = last.get("escape")
    after = "but not from here, where nothing grows" if gone is None else f"after {float(f'{gone:.2g}'):,.0f} steps"
    if "adaptive" in last:
        return [f"{words}, {after}; Adam moves by lr an entry, at {100 * last['ratio']:.2g} % of its own threshold."]
    return [f"{words}, {after}."]


def hypotheses(pair: dict[str, Any]) -> list[Hypothesis]:
    """What the prediction of a pair needs, as far as it can be measured at its start."""
    texts = {
        "product": "the loss sees the product alone",
        "aligned": "its mode does not turn",
        "sharpness": "its mode makes its curvature",
    }
    found = [
        Hypothesis.of(text, pair["needs"][name], exact=_TRUE) for name, text in texts.items() if name in pair["needs"]
    ]
    if pair["reach"] is not None:
        found.append(Hypothesis.of("it reaches the whole gradient", max(0.0, 1 - pair["reach"]), exact=_TRUE))
    return found


def _pairs(record: Record) -> list[str]:
    """What two-layer theory tells of pairs of factors from their start, and what became of it."""
    pairs, last = record.pairs, record.looks[-1]
    told = [_pair(record.about["layers"][pair["layer"]], pair, last) for pair in pairs[:_NAMED]]
    if len(pairs) <= _NAMED:
        return told
    found = [pair["regime"] or "without an end in sight" for pair in pairs]
    counts = ", ".join(f"{found.count(one)} {one}" for one in (*Regime, "without an end in sight") if one in found)
    words = f"The {len(pairs)} pairs with the largest gradients from their start: {counts}"
    borne = [(pair["largest_lr"], pair["layer"]) for pair in pairs if pair["largest_lr"] is not None]
    if borne:
        lr, layer = min(borne)
        words += f"; each by itself bears an lr up to {lr:.3g}, least {record.about['layers'][layer]}"
    return [*told, f"{words}."]


def _pair(name: str, pair: dict[str, Any], last: dict[str, Any]) -> str:
    if pair["needs"]["product"] > _MORE:
        return f"{name}: the loss sees more than the product of the two, and two-layer theory does not tell of it."
    if pair["end"] is None:
        return f"{name} from its start: no end in sight, since the loss curves downwards along its steepest mode."
    so_far = last["mode_growth"][pair["layer"]]
    words = (
        f"{name} from its start: {pair['regime']}, {pair['value']:.3g} is to become {pair['end']:.3g} against an "
        f"imbalance of {pair['imbalance']:.3g}: its kernel times {pair['growth']:.3g} (so far {so_far:.3g})"
    )
    if pair["largest_lr"] is not None:
        words += f"; bears an lr up to {pair['largest_lr']:.3g}"
        words += f" (now {last['lr']:.3g})" if last.get("lr") is not None else ""
    worst = max(hypotheses(pair), key=lambda need: need.measured)
    if worst.holds is Holds.EXACTLY:
        return f"{words}. Exact while all else rests and the loss is a parabola along it."
    true = "roughly true" if worst.holds is Holds.ROUGHLY else "not true"
    return (
        f"{words}. If all else rests, the loss is a parabola along it, and {worst.text}, {true} ({worst.measured:.2g})."
    )


def _regimes(last: dict[str, Any]) -> list[str]:
    """How much the tangent kernels of products have grown since the first look."""
    found = [Regime.of_growth(max(growth, 1 / growth)) for growth in last.get("growth", []) if growth]
    if not found:
        return []
    counts = ", ".join(f"{found.count(one)} {one}" for one in Regime if one in found)
    return [f"Products of two matrices so far: {counts}, by the growth of |W_1|² + |W_2|² since the start."]


def _collapse(last: dict[str, Any]) -> list[str]:
    """Whether a model says the same of everything."""
    spread, wanted = last.get("output_spread"), last.get("label_spread")
    if spread is None or wanted is None or spread >= _COLLAPSED * wanted:
        return []
    return [
        f"Collapsed: outputs are {last['output_mean']:.3g} ± {spread:.1g} where labels differ by {wanted:.2g}, one "
        "constant for every sample; a correlation with labels means nothing. Begin with an output bias at their mean."
    ]


def _balance(about: dict[str, Any], looks: list[dict[str, Any]]) -> list[str]:
    last = looks[-1]
    drifts = [
        (drift, name) for drift, name in zip(last.get("drift", []), about["layers"], strict=False) if drift is not None
    ]
    if not drifts:
        return []
    worst, name = max(drifts)
    if worst < 0.05:
        return [f"Factors are as balanced as they began (largest drift {worst:.2g} of their squares, {name})."]
    return [f"Factors have lost their balance: it drifted by {worst:.2g} of their squares in {name}."]
