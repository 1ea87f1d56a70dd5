"""`linnet list` and `linnet show`: what is registered, and everything about one entry."""

import ast
import inspect
import math
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

from rich.console import Console
from rich.markup import escape

from linnet import _check
from linnet._files import duration
from linnet._table import Column, Fitted
from linnet.claims import SIZES, Claim, Erratum, Finding, registry, settle, subjects
from linnet.claims.papers import unknown
from linnet.cli.settings import changes, own
from linnet.experiments import Experiment, experiments


def listing(wanted: Sequence[str] = (), sources: Sequence[str] = ()) -> dict[str, list[dict[str, Any]]]:
    """What is registered, all or of some papers and ids, as `linnet list --json` prints it."""
    among = own(sources)
    entries, figures = registry(), experiments()
    names = {name: name.split("/")[0] for name in (*entries, *figures)}
    for name in wanted:
        if name not in subjects() and name not in names:
            raise unknown("id", name, [*subjects(), *names])
    asked = set(wanted) or set(among)
    chosen = {name for name, paper in names.items() if not asked or name in asked or paper in asked}
    papers = {names[name] for name in chosen}
    return {
        "papers": [{"id": s.name, "title": s.title} for s in subjects().values() if s.name in papers],
        "claims": [
            {"id": e.id, "paper": e.paper, "kind": e.kind, "place": e.place, "statement": e.statement}
            for e in entries.values()
            if isinstance(e, Claim) and e.id in chosen
        ],
        "errata": [
            {
                "id": e.id,
                "paper": e.paper,
                "grade": e.grade,
                "place": e.place,
                "printed": e.printed,
                "corrected": e.corrected,
                "computed": e.check is not None,
            }
            for e in entries.values()
            if isinstance(e, Erratum) and e.id in chosen
        ],
        "experiments": [
            {"id": name, "paper": names[name], "place": e.place, "title": e.title, "minutes": dict(e.minutes)}
            for name, e in figures.items()
            if name in chosen
        ],
    }


def show_list(everything: Mapping[str, list[dict[str, Any]]]) -> None:
    """Prints a list for a person."""
    console = Console()
    for paper in everything["papers"]:
        title = f"{paper['id']}: {paper['title']}"
        table = Fitted(
            Column("id"),
            Column("kind", spare=1),
            Column("place", spare=2, prose=True),
            Column("statement", spare=3, prose=True),
            title=title,
        )
        for c in _of(everything["claims"], paper):
            table.add(c["id"], c["kind"], escape(c["place"]), escape(c["statement"]))
        for e in _of(everything["errata"], paper):
            table.add(e["id"], e["grade"], escape(e["place"]), escape(f"{e['printed']}  ->  {e['corrected']}"))
        for f in _of(everything["experiments"], paper):
            table.add(f["id"], "experiment", escape(f["place"]), escape(f["title"]))
        console.print(table)
        console.print()


def _of(entries: list[dict[str, Any]], paper: dict[str, Any]) -> list[dict[str, Any]]:
    return [entry for entry in entries if entry["paper"] == paper["id"]]


def show(
    name: str, size: str, settings: Sequence[str], sources: Sequence[str], *, run: bool, quiet: bool
) -> dict[str, Any]:
    """Everything about a claim, an erratum or an experiment; returns what `--json` prints."""
    own(sources)
    entries, figures, console = registry(), experiments(), Console(quiet=quiet)
    if name not in entries and name not in figures:
        raise unknown("id", name, [*entries, *figures])
    if name in figures:
        told = _experiment(figures[name])
        _print_experiment(console, told)
        return told
    told = _entry(entries[name], size, settings, run=run)
    _print_entry(console, told)
    return told


def _entry(entry: Claim | Erratum, size: str, settings: Sequence[str], *, run: bool) -> dict[str, Any]:
    _check.choice("size", size, SIZES)
    changed = settle([entry], changes(settings))[entry.id]
    subject = subjects()[entry.paper]
    told: dict[str, Any] = {
        "id": entry.id,
        "paper": {"id": subject.name, "title": subject.title, "authors": subject.authors},
        "place": entry.place,
        "kind": entry.kind,
        "statement": entry.statement,
    }
    if isinstance(entry, Erratum):
        told |= {name: getattr(entry, name) for name in ("grade", "printed", "corrected", "evidence")}
    told |= {
        "expected": entry.expected,
        "computed": entry.check is not None,
        "hypotheses": list(entry.hypotheses),
        "parameters": {name: _plain(changed.get(name, default)) for name, default in entry.parameters.items()},
        "sabotage": [_sabotage(entry, name, value) for name, value in entry.broken.items()],
    }
    if entry.check is None or not run:
        return {**told, "verdict": None}
    measured = entry.measure(size, **changed)
    verdict = entry.judge(measured)
    told["verdict"] = {
        "size": size,
        "holds": verdict.holds,
        "as_stated": verdict.holds == entry.expected,
        "margin": verdict.margin,
        "seconds": round(verdict.seconds, 3),
        "findings": [_finding(finding) for finding in measured.findings],
    }
    return told


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


def _sabotage(entry: Claim | Erratum, name: str, wrong: Any) -> dict[str, Any]:
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
        tree = ast.parse(inspect.getsource(inspect.getmodule(value)))  # type: ignore[arg-type]
    except (OSError, TypeError):
        return "a function"
    names = list(code.co_varnames[: code.co_argcount])
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Lambda)
        and node.lineno == code.co_firstlineno
        and [argument.arg for argument in node.args.args] == names
    ]
    return ast.unparse(found[0]) if found else "a function"


def _experiment(kind: type[Experiment]) -> dict[str, Any]:
    subject = subjects()[kind.id.split("/")[0]]
    paper, quick = (kind.of_size(size, {}).model_dump() for size in ("paper", "quick"))
    return {
        "id": kind.id,
        "paper": {"id": subject.name, "title": subject.title, "authors": subject.authors},
        "place": kind.place,
        "kind": "experiment",
        "title": kind.title,
        "caption": " ".join((kind.__doc__ or "").split()),
        "minutes": dict(kind.minutes),
        "parameters": [
            {"name": name, "paper": paper[name], "quick": quick[name], "description": field.description or ""}
            for name, field in kind.model_fields.items()
        ],
        "missing": kind.of_size("quick", {}).missing(),
    }


def _head(console: Console, told: Mapping[str, Any], kind: str) -> None:
    console.print(f"[bold]{told['id']}[/], {kind}: {escape(told['place'])}", highlight=False)
    authors = f" ({told['paper']['authors']})" if told["paper"]["authors"] else ""
    console.print(f"{escape(told['paper']['title'])}{escape(authors)}", highlight=False, style="dim")
    console.print()


def _print_entry(console: Console, told: Mapping[str, Any]) -> None:
    _head(console, told, told.get("grade", told["kind"]))
    if "printed" in told:
        for word in ("printed", "corrected", "evidence"):
            console.print(f"{word.capitalize()}: {escape(told[word])}", highlight=False)
    else:
        console.print(escape(told["statement"]), highlight=False)
    for words in told["hypotheses"]:
        console.print(f"Hypothesis: {escape(words)}.", highlight=False)
    for name, value in told["parameters"].items():
        console.print(f"Parameter: {name} = {escape(_text(value))}.", highlight=False)
    for part in told["sabotage"]:
        console.print(
            f"Sabotage: {part['name']} = {escape(part['wrong'])} instead of {escape(part['right'])}.", highlight=False
        )
    verdict = told["verdict"]
    if not told["computed"]:
        console.print("No computation decides it.")
    if verdict is None:
        return
    table = Fitted(
        Column(""), Column("measured"), Column("margin", spare=2, right=True), Column("case", spare=1, prose=True)
    )
    for f in verdict["findings"]:
        colour = "green" if f["holds"] != f["printed"] else "bold red"
        word = ("holds" if f["holds"] else "fails") + (" (printed)" if f["printed"] else "")
        case = ", ".join(f"{name}={value}" for name, value in f["case"].items())
        table.add(f"[{colour}]{word}[/]", f["text"], f"{f['margin']:.3g}", escape(case))
    console.print()
    console.print(table)
    stated = "as stated" if verdict["as_stated"] else "[bold red]not as stated[/]"
    what = "holds" if verdict["holds"] else "fails"
    if "printed" in told:
        what = "shown" if verdict["holds"] else "not shown"
    console.print(f"{what}, {stated}: {verdict['size']} size, {verdict['seconds']:.1f} s.", highlight=False)


def _print_experiment(console: Console, told: Mapping[str, Any]) -> None:
    _head(console, told, "experiment")
    console.print(f"{escape(told['title'])}. {escape(told['caption'])}", highlight=False)
    console.print()
    table = Fitted(
        Column("parameter"),
        Column("paper", prose=True),
        Column("quick", spare=1, prose=True),
        Column("what it is", spare=2, prose=True),
    )
    for p in told["parameters"]:
        quick = "" if p["quick"] == p["paper"] else _check.show(p["quick"])
        table.add(p["name"], escape(_check.show(p["paper"])), escape(quick), escape(p["description"]))
    console.print(table)
    minutes = ", ".join(f"{duration(60 * m)} at {size} size" for size, m in told["minutes"].items())
    console.print(f"\nOn two cores about {minutes}. linnet reproduce {told['id']} makes it.", highlight=False)
    if told["missing"]:
        console.print(f"This machine lacks something: {escape(told['missing'])}", highlight=False)
