"""Writes `index.html`: one page, offline, of all experiments and verdicts in a folder."""

import json
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from linnet._version import __version__
from linnet.claims import Claim, Erratum, registry
from linnet.claims.claim import PAPERS
from linnet.experiments import experiments
from linnet.experiments.experiment import put
from linnet.report.typeset import typeset


def write(out: Path) -> Path:
    """The page of all results below `out`, in the order of the papers, with the verdicts that `verify --out` left."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*/*/result.json"))]
    results.sort(key=lambda result: list(experiments()).index(result["id"]))
    stored = out / "claims.json"
    checked = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {"claims": [], "size": None}
    verdicts = {verdict["id"]: verdict for verdict in checked["claims"]}

    def about(paper: str, kind: type) -> list[dict[str, Any]]:
        chosen = [e for e in registry().values() if e.paper == paper and isinstance(e, kind)]
        return [{"entry": entry, "verdict": verdicts.get(entry.id)} for entry in chosen]

    papers = [
        {
            "id": paper,
            "title": title,
            "experiments": [r for r in results if r["id"].split("/")[0] == paper],
            "claims": about(paper, Claim),
            "errata": about(paper, Erratum),
        }
        for paper, title in PAPERS.items()
    ]
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(figure=_figure, typeset=typeset)
    template = environment.from_string(
        resources.files("linnet.report").joinpath("index.html.jinja").read_text(encoding="utf-8")
    )
    required = [v for r in results for v in r["verdicts"]]
    page = template.render(
        papers=[paper for paper in papers if paper["experiments"] or any(e["verdict"] for e in paper["claims"])],
        version=__version__,
        held=sum(v["holds"] for v in required),
        verdicts=len(required),
        experiments=len(results),
        seconds=sum(r["seconds"] for r in results),
        checked=len(verdicts),
        checked_size=checked["size"],
        failed=checked.get("failed", 0),
    )
    path = out / "index.html"
    put(path, page)
    return path


def _figure(number: float) -> str:
    return f"{number:.4g}"
