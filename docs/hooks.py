"""What the site makes of its pages: formulas in MathML, lists of claims and errata from the registry, ids that link.

Nothing is loaded from elsewhere and no script is needed: browsers typeset MathML themselves.
"""

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from linnet.claims import PAPERS, Claim, Erratum, registry
from linnet.report import Formulas, typeset

CHANGELOG = "<!-- changelog -->"

if TYPE_CHECKING:  # the tests read this file where MkDocs is not installed
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

STATUSES = ("whole", "in part", "not computable")


def on_config(config: "MkDocsConfig") -> "MkDocsConfig":
    """Adds the formulas to the Markdown that every page is read with."""
    config.markdown_extensions.append(Formulas())  # type: ignore[arg-type]  # Markdown takes objects as well as names
    return config


def on_page_markdown(markdown: str, *, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """Fills `<!-- claims -->`, `<!-- errata -->`, `<!-- coverage -->`, and `<!-- changelog -->`."""
    for mark, kind in (("<!-- claims -->", Claim), ("<!-- errata -->", Erratum)):
        if mark in markdown:
            markdown = markdown.replace(mark, listing(kind))
    if CHANGELOG in markdown:
        text = (Path(config.docs_dir).parent / "CHANGELOG.md").read_text(encoding="utf-8")
        markdown = markdown.replace(CHANGELOG, text.split("\n", 1)[1].replace("](docs/", "]("))  # a page with a title
    mark = "<!-- coverage -->"
    return markdown.replace(mark, coverage()) if mark in markdown else markdown


def on_page_content(html: str, *, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """Links every `paper/C1` and `paper/E1` in code to its entry; one that does not exist is an error."""
    up = "../" * (page.url.count("/"))

    def link(found: re.Match[str]) -> str:
        name = found[1]
        if name not in registry():
            raise ValueError(f"{page.file.src_path} names {name}, which is no claim and no erratum.")
        return f'<a href="{up}{"claims" if "/C" in name else "errata"}/#{anchor(name)}"><code>{name}</code></a>'

    return re.sub(rf"<code>((?:{'|'.join(PAPERS)})/[CE]\d+)</code>", link, html)


def anchor(name: str) -> str:
    """The place of an entry on its page."""
    return name.replace("/", "-")


def listing(kind: type) -> str:
    """All claims, or all errata, with a heading for each paper."""
    parts = []
    for paper, about in PAPERS.items():
        chosen = [entry for entry in registry().values() if entry.paper == paper and isinstance(entry, kind)]
        parts += [f"## {about.title} {{ #{paper} }}", "", str(_table(chosen, kind)), ""]
    return "\n".join(parts)


def _table(entries: list[Any], kind: type) -> Markup:
    heads = ("reading", "printed", "corrected", "evidence") if kind is Erratum else ("statement",)
    rows = Markup()
    for entry in entries:
        grade = entry.grade if kind is Erratum else ": ".join(filter(None, (entry.kind, entry.significance)))
        cells = Markup().join(Markup("<td>{}</td>").format(typeset(getattr(entry, head))) for head in heads)
        # the id is no link here, so it is not code
        rows += Markup('<tr id="{}"><td><b>{}</b><br>{}<br><i>{}</i></td>{}</tr>\n').format(
            anchor(entry.id), entry.id, entry.place, grade, cells
        )
    head = Markup().join(
        Markup("<th>{}</th>").format({"reading": "charitable reading"}.get(name, name))
        for name in (f"id, place, {'grade' if kind is Erratum else 'kind'}", *heads)
    )
    return Markup("<table>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody></table>").format(head, rows)


def statements() -> dict[str, list[dict[str, Any]]]:
    """The rows of `docs/coverage/<paper>.toml` by paper, in the order of the papers."""
    files = {path.stem: path for path in (Path(__file__).parent / "coverage").glob("*.toml")}
    read = {paper: tomllib.loads(files[paper].read_text(encoding="utf-8")) for paper in PAPERS if paper in files}
    return {paper: rows["statement"] for paper, rows in read.items()}


def coverage() -> str:
    """How many statements of each paper have each status, then a table of all of them for each paper."""
    read = statements()
    parts = ["| paper | statements | whole | in part | not computable |", "|---|---|---|---|---|"]
    for paper, rows in read.items():
        counts = [len(rows), *(sum(row["status"] == status for row in rows) for status in STATUSES)]
        parts.append(f"| [{PAPERS[paper].short}](#{paper}) | {' | '.join(map(str, counts))} |")
    parts.append("")
    for paper, rows in read.items():
        parts += [f"## {PAPERS[paper].title} {{ #{paper} }}", "", str(_covered(rows)), ""]
    return "\n".join(parts)


def _covered(rows: list[dict[str, Any]]) -> Markup:
    body = Markup()
    for row in rows:
        status = Markup("{}").format(row["status"])
        if "reason" in row:
            status += Markup(": {}").format(typeset(row["reason"]))
        names = (*row.get("ids", ()), *row.get("functions", ()))
        by = Markup(", ").join(Markup("<code>{}</code>").format(name) for name in names)
        body += Markup("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n").format(
            row["place"], typeset(row["says"]), status, by
        )
    head = "<thead><tr><th>place</th><th>statement</th><th>status</th><th>by</th></tr></thead>"
    return Markup(f"<table>\n{head}\n<tbody>\n{{}}</tbody></table>").format(body)
