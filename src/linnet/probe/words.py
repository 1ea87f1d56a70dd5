"""What a probe has seen, in sentences."""

import itertools
from typing import Any

from linnet.probe.record import Record

_EDGE = 0.9  # of the threshold, above which a training is at its edge if it also swings
_SWINGS = 0.1  # share of steps that go up, or have turned, at the edge
_WINDOW = 50


def verdict(record: Record) -> list[str]:
    """Where the training stands to its edge, and what it has done to the layers."""
    steps, looks = record.steps, record.looks
    if not looks:
        return ["Nothing was looked at yet."]
    return [*_edge(steps, looks), *_saddle(looks), *_balance(record.about, looks)]


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
