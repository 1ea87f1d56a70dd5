"""`linnet list` and `linnet show`: what is registered, and everything about one entry."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from rich.console import Console
from rich.markup import escape

from linnet._files import duration
from linnet._table import Fitted, Heading
from linnet.cli.index import known

_LISTED = {  # fields that a list has of each
    "claims": ("kind", "place", "statement"),
    "errata": ("grade", "place", "reading", "printed", "corrected", "computed"),
    "experiments": ("place", "title", "minutes"),
}


def listing(
    wanted: Sequence[str] = (), sources: Sequence[str] = (), kind: str | None = None
) -> dict[str, list[dict[str, Any]]]:
    """What is registered, all or of some papers and ids, or of one kind, as `linnet list --json` prints it."""
    index, among = known(sources)
    kinds = dict.fromkeys([*_LISTED, *(word for entry in index.entries.values() for word in _kinds(entry))])
    if kind is not None and kind not in kinds:
        _refuse(kind, list(kinds), "kind")
    for name in wanted:
        if name not in index.papers and name not in index.entries:
            _refuse(name, [*index.papers, *index.entries])
    asked = set(wanted) or set(among)
    chosen = {
        name: {"id": name, "paper": name.split("/")[0], **entry}
        for name, entry in index.entries.items()
        if (not asked or name in asked or name.split("/")[0] in asked) and (kind is None or kind in _kinds(entry))
    }
    papers = {entry["paper"] for entry in chosen.values()}
    facts: dict[str, list[dict[str, Any]]] = {
        "papers": [{"id": name, "title": paper["title"]} for name, paper in index.papers.items() if name in papers],
        **{kind: [] for kind in _LISTED},
    }
    for entry in chosen.values():
        group = _kinds(entry)[0]
        facts[group].append({field: entry[field] for field in ("id", "paper", *_LISTED[group])})
    return facts


def _kinds(entry: Mapping[str, Any]) -> tuple[str, str]:
    """The group of an entry, and its kind or grade within it."""
    group = {"experiment": "experiments", "erratum": "errata"}.get(entry["kind"], "claims")
    return group, entry.get("grade", entry["kind"])


def show_list(
    wanted: Sequence[str] = (), kind: str | None = None, sources: Sequence[str] = (), *, quiet: bool
) -> dict[str, list[dict[str, Any]]]:
    """Prints what is registered, unless quiet; returns what `--json` prints."""
    everything, console = listing(wanted, sources, kind), Console(quiet=quiet, highlight=False)
    for paper in everything["papers"]:
        title = f"{paper['id']}: {paper['title']}"
        table = Fitted(
            Heading("id"),
            Heading("kind", spare=1),
            Heading("place", spare=2, prose=True),
            Heading("statement", spare=3, prose=True),
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
    return everything


def _of(entries: list[dict[str, Any]], paper: dict[str, Any]) -> list[dict[str, Any]]:
    return [entry for entry in entries if entry["paper"] == paper["id"]]


def show(
    name: str, size: str, settings: Sequence[str], sources: Sequence[str], *, run: bool, quiet: bool
) -> dict[str, Any]:
    """Everything about a claim, an erratum or an experiment; returns what `--json` prints."""
    index, _ = known(sources)
    if name not in index.entries:
        _refuse(name, index.entries)
    entry, paper = index.entries[name], name.split("/")[0]
    facts: dict[str, Any] = {"id": name, "paper": {"id": paper, **index.papers[paper]}, **entry}
    console = Console(quiet=quiet, highlight=False)
    if entry["kind"] == "experiment":
        facts["missing"] = None
        if facts.pop("demanding"):
            from linnet.cli.describe import lacking

            facts["missing"] = lacking(name)
        _print_experiment(console, facts)
    else:
        facts |= _judged(name, size, settings, run=run and entry["computed"])
        _print_entry(console, facts)
    return facts


def _judged(name: str, size: str, settings: Sequence[str], *, run: bool) -> dict[str, Any]:
    if not run and not settings and size == "quick":  # all of it is in the index
        return {"verdict": None}
    from linnet.cli.describe import judged

    return judged(name, size, settings, run=run)


def _refuse(name: str, there: Iterable[str], what: str = "id") -> NoReturn:
    from linnet.papers import unknown

    raise unknown(what, name, there)


def _head(console: Console, facts: Mapping[str, Any], kind: str) -> None:
    console.print(f"[bold]{facts['id']}[/], {kind}: {escape(facts['place'])}")
    authors = f" ({facts['paper']['authors']})" if facts["paper"]["authors"] else ""
    console.print(f"{escape(facts['paper']['title'])}{escape(authors)}", style="dim")
    console.print()


def _print_entry(console: Console, facts: Mapping[str, Any]) -> None:
    _head(console, facts, facts.get("grade", facts["kind"]))
    if "printed" in facts:
        if facts["reading"]:
            console.print(f"Charitable reading: {escape(facts['reading'])}")
        for word in ("printed", "corrected", "evidence"):
            console.print(f"{word.capitalize()}: {escape(facts[word])}")
    else:
        console.print(escape(facts["statement"]))
    if "significance" in facts:
        console.print(f"Significance: {escape(facts['significance'])}.")
    for words in facts["hypotheses"]:
        console.print(f"Hypothesis: {escape(words)}.")
    for name, value in facts["parameters"].items():
        console.print(f"Parameter: {name} = {escape(repr(value))}.")
    for part in facts["negative_control"]:
        console.print(
            f"Negative control: {part['name']} = {escape(part['wrong'])} instead of {escape(part['right'])}.",
        )
    verdict = facts["verdict"]
    if not facts["computed"]:
        console.print("No computation decides it.")
    if verdict is None:
        return
    table = Fitted(
        Heading(""),
        Heading("measured"),
        Heading("margin", spare=2, right=True),
        Heading("case", spare=1, prose=True),
    )
    for f in verdict["findings"]:
        color = "green" if f["holds"] != f["printed"] else "bold red"
        word = ("holds" if f["holds"] else "fails") + (" (printed)" if f["printed"] else "")
        case = ", ".join(f"{name}={value}" for name, value in f["case"].items())
        table.add(f"[{color}]{word}[/]", f["text"], f"{f['margin']:.3g}", escape(case))
    console.print()
    console.print(table)
    stated = "as stated" if verdict["as_stated"] else "[bold red]not as stated[/]"
    what = "holds" if verdict["holds"] else "fails"
    if "printed" in facts:
        what = "shown" if verdict["holds"] else "not shown"
    console.print(f"{what}, {stated}: {verdict['size']} size, {verdict['seconds']:.1f} s.")


def _print_experiment(console: Console, facts: Mapping[str, Any]) -> None:
    _head(console, facts, "experiment")
    console.print(f"{escape(facts['title'])}. {escape(facts['caption'])}")
    console.print()
    table = Fitted(
        Heading("parameter"),
        Heading("paper", prose=True),
        Heading("quick", spare=1, prose=True),
        Heading("what it is", spare=2, prose=True),
    )
    for p in facts["parameters"]:
        quick = "" if p["quick"] == p["paper"] else repr(p["quick"])
        table.add(p["name"], escape(repr(p["paper"])), escape(quick), escape(p["description"]))
    console.print(table)
    minutes = ", ".join(f"{duration(60 * m)} at {size} size" for size, m in facts["minutes"].items())
    console.print(f"\nOn two cores about {minutes}. linnet reproduce {facts['id']} makes it.")
    if facts["missing"]:
        console.print(f"This machine lacks something: {escape(facts['missing'])}")
