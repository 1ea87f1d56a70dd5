"""Writes `index.html`: one page, offline, of all experiments and verdicts in a folder."""

import collections
import json
import struct
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from linnet._files import duration, put
from linnet._version import __version__
from linnet.claims import AUTHORS, GRADES, KINDS, PAPERS, Claim, Erratum, registry
from linnet.experiments import experiments
from linnet.report.typeset import typeset

_NAMES = {
    "mixed": "Mixed dynamics",
    "spectral": "Spectral bias",
    "nonlocal": "Non-local convergence",
    "stability": "Edge of stability",
    "feature": "Feature learning",
}
_WORDS = ("as stated", "not as stated", "not run")


def write(out: Path) -> Path:
    """The page of all results below `out`, in the order of the papers, with the verdicts that `verify --out` left."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*/*/result.json"))]
    results.sort(key=lambda result: list(experiments()).index(result["id"]))
    for result in results:
        result["pixels"] = _pixels(out / result["id"] / "figure.png")
    stored = out / "claims.json"
    checked = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {"claims": [], "size": None}
    verdicts = {verdict["id"]: verdict for verdict in checked["claims"]}
    papers = [_paper(paper, results, verdicts) for paper in PAPERS]
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        figure=_figure, typeset=typeset, duration=duration, capitalised=_capitalised, value=_value
    )
    template = environment.from_string(
        resources.files("linnet.report").joinpath("index.html.jinja").read_text(encoding="utf-8")
    )
    required = [v for r in results for v in r["verdicts"]]
    page = template.render(
        papers=[paper for paper in papers if paper["experiments"] or paper["claims_run"] or paper["errata_run"]],
        version=__version__,
        held=sum(v["holds"] for v in required),
        verdicts=len(required),
        experiments=len(results),
        seconds=sum(r["seconds"] for r in results),
        checked=len(verdicts),
        checked_size=checked["size"],
        failed=checked.get("failed", 0),
        machine=_machine([*results, checked]),
    )
    path = out / "index.html"
    put(path, page.lstrip())
    return path


def _paper(paper: str, results: list[dict[str, Any]], verdicts: dict[str, Any]) -> dict[str, Any]:
    """What the page says about one paper."""

    def about(kind: type) -> list[dict[str, Any]]:
        chosen = [e for e in registry().values() if e.paper == paper and isinstance(e, kind)]
        return [{"entry": e, "verdict": verdicts.get(e.id), "word": _word(e, verdicts.get(e.id))} for e in chosen]

    mine = [result for result in results if result["id"].split("/")[0] == paper]
    required = [verdict for result in mine for verdict in result["verdicts"]]
    claims, errata = about(Claim), about(Erratum)
    kinds, words = ({c["entry"].kind for c in claims}, {c["word"] for c in claims})
    grades = collections.Counter(e["entry"].grade for e in errata)
    made = {result["id"] for result in mine}
    return {
        "id": paper,
        "name": _NAMES[paper],
        "title": PAPERS[paper],
        "authors": AUTHORS[paper],
        "experiments": mine,
        "absent": [name for name in experiments() if name.split("/")[0] == paper and name not in made],
        "held": sum(verdict["holds"] for verdict in required),
        "required": len(required),
        "claims": claims,
        "claims_run": sum(c["verdict"] is not None for c in claims),
        "as_stated": sum(c["word"] == "as stated" for c in claims),
        "kinds": [kind for kind in KINDS if kind in kinds],
        "words": [word for word in _WORDS if word in words],
        "errata": errata,
        "errata_run": sum(e["verdict"] is not None for e in errata),
        "shown": sum(e["word"] == "as stated" for e in errata),
        "grades": [(grade, grades[grade]) for grade in GRADES if grades[grade]],
    }


def _word(entry: Claim | Erratum, verdict: dict[str, Any] | None) -> str:
    if verdict is None:
        return "not run"
    return "as stated" if verdict["holds"] == entry.expected else "not as stated"


def _machine(sources: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Devices and versions, each with all values that occur: a folder may have been filled on several machines."""
    found: dict[str, dict[str, None]] = {}
    for source in sources:
        device = {"device": source["device"]} if "device" in source else {}
        for name, text in {**source.get("machine", {}), **device, **source.get("versions", {})}.items():
            found.setdefault(name, {})[str(text)] = None  # a set that keeps its order
    return [(name, list(values)) for name, values in found.items()]


def _pixels(picture: Path) -> tuple[int, int] | None:
    """Width and height of a PNG, so that the page does not jump while it loads."""
    try:
        head = picture.read_bytes()[:24]
    except OSError:
        return None
    return struct.unpack(">II", head[16:24]) if head[:8] == b"\x89PNG\r\n\x1a\n" else None


def _figure(number: float | None, digits: int = 4) -> Any:
    """A number as it is printed; a dash for what is not finite."""
    return "–" if number is None else typeset(f"{number:.{digits}g}")


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def _value(value: Any) -> str:
    """A parameter's value; long lists in few words."""
    if isinstance(value, list):
        shown = [_value(part) for part in value]
        return ", ".join(shown if len(shown) <= 12 else [*shown[:6], "...", *shown[-2:]])
    return f"{value:.6g}" if isinstance(value, float) else str(value)
