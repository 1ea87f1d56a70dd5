"""Writes `index.html`: one page, offline, of all experiments in a folder."""

import json
from importlib import resources
from pathlib import Path

import jinja2

from linnet._version import __version__
from linnet.claims.claim import PAPERS
from linnet.experiments.experiment import put


def write(out: Path) -> Path:
    """The page of all results below `out`, in the order of the papers."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*/*/result.json"))]
    papers = [
        {"id": paper, "title": title, "experiments": [r for r in results if r["id"].split("/")[0] == paper]}
        for paper, title in PAPERS.items()
    ]
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["figure"] = _figure
    template = environment.from_string(
        resources.files("linnet.report").joinpath("index.html.jinja").read_text(encoding="utf-8")
    )
    verdicts = [v for r in results for v in r["verdicts"]]
    page = template.render(
        papers=[paper for paper in papers if paper["experiments"]],
        version=__version__,
        held=sum(v["holds"] for v in verdicts),
        verdicts=len(verdicts),
        experiments=len(results),
        seconds=sum(r["seconds"] for r in results),
    )
    path = out / "index.html"
    put(path, page)
    return path


def _figure(number: float) -> str:
    return f"{number:.4g}"
