"""What the commands `list` and `show` tell of claims, errata and experiments, from the registries.

`python -m linnet.cli.describe` writes it to `index.json`, where they read it without loading any of this; the tests
hold that file to the registries.
"""

import ast
import inspect
import json
import math
from collections.abc import Sequence
from functools import lru_cache
from types import FunctionType
from typing import Any

from linnet import _check
from linnet._files import dumps, put
from linnet.claims import SIZES, Claim, Erratum, Finding, find, registry, settle, subjects
from linnet.cli.index import INDEX, Index
from linnet.cli.settings import changes
from linnet.experiments import Experiment, experiments
from linnet.experiments import find as find_experiments
from linnet.papers import GROUP


def index() -> Index:
    """All that is registered, as JSON keeps it."""
    entries, figures = registry(), experiments()
    registered = {
        "group": GROUP,
        "papers": {s.name: {"title": s.title, "authors": s.authors} for s in subjects().values()},
        "entries": {name: _entry(e) for name, e in entries.items()} | {n: _experiment(e) for n, e in figures.items()},
    }
    return Index(**json.loads(dumps(registered)))


def judged(name: str, size: str, settings: Sequence[str], *, run: bool) -> dict[str, Any]:
    """What depends on how a claim or an erratum is asked: its parameters, and the verdict if it is run."""
    (entry,) = find([name])
    _check.choice("size", size, SIZES)
    changed = settle([entry], changes(settings))[entry.id]
    parameters = {name: _plain(changed.get(name, default)) for name, default in entry.parameters.items()}
    if entry.check is None or not run:
        return {"parameters": parameters, "verdict": None}
    measured = entry.measure(size, **changed)
    verdict = entry.judge(measured)
    found = {
        "size": size,
        "holds": verdict.holds,
        "as_stated": verdict.holds == entry.expected,
        "margin": verdict.margin,
        "seconds": round(verdict.seconds, 3),
        "findings": [_finding(finding) for finding in measured.findings],
    }
    return {"parameters": parameters, "verdict": found}


def lacking(name: str) -> str | None:
    """What this machine lacks for an experiment, at quick size or else at the paper's; None if nothing."""
    (kind,) = find_experiments([name])
    lacks = kind.of_size("paper", {}).missing()
    return kind.of_size("quick", {}).missing() or (lacks and f"at paper size: {lacks}")


def _entry(entry: Claim | Erratum) -> dict[str, Any]:
    facts: dict[str, Any] = {"place": entry.place, "kind": entry.kind, "statement": entry.statement}
    if isinstance(entry, Erratum):
        facts |= {name: getattr(entry, name) for name in ("grade", "reading", "printed", "corrected", "evidence")}
    elif entry.significance:
        facts |= {"level": entry.level, "tests": entry.tests, "band": entry.band, "significance": entry.significance}
    return facts | {
        "expected": entry.expected,
        "computed": entry.check is not None,
        "hypotheses": list(entry.hypotheses),
        "parameters": {name: _plain(default) for name, default in entry.parameters.items()},
        "negative_control": [_control(entry, name, value) for name, value in entry.negative_control.items()],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    both = math.isfinite(finding.low) and math.isfinite(finding.high)
    return {
        "holds": finding.holds,
        "measured": finding.measured,
        "required": [finding.low, finding.high] if both else finding.required,
        "margin": finding.margin,
        "printed": finding.printed,
        "case": {name: _plain(value) for name, value in finding.case.items()},
        "text": str(finding),
    }


def _plain(value: Any) -> Any:
    """What JSON has a word for as it is, anything else in words."""
    value = value.item() if getattr(value, "ndim", None) == 0 else value
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value if value is None or isinstance(value, int | float | str) else _text(value)


def _control(entry: Claim | Erratum, name: str, wrong: Any) -> dict[str, Any]:
    assert entry.check is not None
    right = inspect.signature(entry.check).parameters[name].default
    return {"name": name, "right": _text(right), "wrong": _text(wrong)}


def _text(value: Any) -> str:
    """A value in words: of a function its name, of a nameless one what it computes."""
    name = getattr(value, "__name__", None)
    if name is None or not callable(value):
        return _check.show(value)
    if name != "<lambda>" or not isinstance(value, FunctionType):
        return str(name)
    code = value.__code__
    try:
        source = inspect.getsource(inspect.getmodule(value))  # type: ignore[arg-type]
    except (OSError, TypeError):
        return "a function"
    return _lambdas(source).get((code.co_firstlineno, code.co_varnames[: code.co_argcount]), "a function")


@lru_cache
def _lambdas(source: str) -> dict[tuple[int, tuple[str, ...]], str]:
    """The first lambda at each line with these arguments."""
    found: dict[tuple[int, tuple[str, ...]], str] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Lambda):
            found.setdefault((node.lineno, tuple(argument.arg for argument in node.args.args)), ast.unparse(node))
    return found


def _experiment(kind: type[Experiment]) -> dict[str, Any]:
    paper, quick = (kind.of_size(size, {}).model_dump() for size in ("paper", "quick"))
    return {
        "place": kind.place,
        "kind": "experiment",
        "title": kind.title,
        "caption": " ".join((kind.__doc__ or "").split()),
        "minutes": dict(kind.minutes),
        "parameters": [
            {"name": name, "paper": paper[name], "quick": quick[name], "description": field.description or ""}
            for name, field in kind.model_fields.items()
        ],
        "demanding": kind.missing is not Experiment.missing,
    }


if __name__ == "__main__":
    put(INDEX, dumps(index()._asdict()) + "\n")
