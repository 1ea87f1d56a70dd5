"""HTML pages of the theory, the claims, and the errata, rendered from their sources."""

import asyncio
import re
from functools import lru_cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Template
from markdown import Markdown
from markupsafe import Markup
from tornado.web import RequestHandler

from linnet._check import InputError
from linnet.claims import PAPERS, Claim, Erratum, registry, subjects
from linnet.lab.pages import PAGES
from linnet.papers import unknown
from linnet.report import Formulas, typeset

_HERE = Path(__file__).parent
_ID = re.compile(rf"<code>((?:{'|'.join(PAPERS)})/[CE]\d+)</code>")
_LINK = re.compile(r'<a href="(?![a-z]+:|#)([^"]*)">(.*?)</a>', re.DOTALL)


def style() -> str:
    """The colors, letters and rules of all pages."""
    palette = resources.files("linnet.report").joinpath("palette.css").read_text(encoding="utf-8")
    return palette + _text("page.css")


def top(here: str = "", root: str = "") -> str:
    """The header of every page: links to the pages, and a button for light and dark; `root` leads to the first page."""
    return Template(_text("top.html")).render(pages=PAGES, here=here, root=root or "./")


def theory() -> dict[str, Path]:
    """The pages of theory by name: beside this file where Linnet is installed, else those of the documentation."""
    shipped = _HERE / "theory"
    folder = shipped if shipped.is_dir() else _HERE.parents[2] / "docs" / "theory"
    return {path.stem: path for path in sorted(folder.glob("*.md"))}


@lru_cache(maxsize=32)
def theory_page(name: str) -> tuple[str, str]:
    """The title of a page of theory, and the page: formulas as MathML, links kept, ids of claims linked."""
    pages = theory()
    if name not in pages:
        raise InputError(f"page = {name!r} is not known: there are {', '.join(pages)}.")
    text = pages[name].read_text(encoding="utf-8")
    html = Markdown(extensions=["fenced_code", "tables", "attr_list", Formulas()]).convert(text)
    html = _LINK.sub(lambda found: _linked(found[1], found[2]), html)
    html = _ID.sub(r'<a href="../claims/\1"><code>\1</code></a>', html)
    html = html.replace("<table>", '<div class="wide" tabindex="0"><table>').replace("</table>", "</table></div>")
    return text.split("\n", 1)[0].lstrip("# "), html.replace("<pre>", '<pre tabindex="0">')


def _linked(target: str, words: str) -> str:
    """A link to another page on this server; text alone where the target is not served."""
    page, mark, place = target.partition("#")
    name = page.removesuffix(".md")
    if name in theory():
        return f'<a href="{name}{mark}{place}">{words}</a>'
    return f'<a href="../claims">{words}</a>' if name in ("../claims", "../errata") else words


def entry(name: str) -> str:
    """One claim or erratum, without any verification."""
    entries = registry()
    if name not in entries:
        raise unknown("id", name, entries)
    found = entries[name]
    paper = subjects()[found.paper]
    about = f"{paper.title} ({paper.authors})" if paper.authors else paper.title
    pairs: list[tuple[str, Any]] = [("paper", about), ("place", found.place)]
    if isinstance(found, Erratum):
        texts = {"charitable reading": found.reading, "printed": found.printed, "corrected": found.corrected}
        texts["evidence"] = found.evidence
        pairs += [("grade", found.grade), *((word, typeset(text)) for word, text in texts.items() if text)]
    else:
        pairs += [("kind", found.kind)]
    pairs += [("hypothesis", typeset(words)) for words in found.hypotheses]
    pairs += [("parameter", f"{key} = {value!r}") for key, value in found.parameters.items()]
    facts = Markup().join(Markup("<dt>{}</dt><dd>{}</dd>").format(*pair) for pair in pairs)
    lead = Markup("<p>{}</p>").format(typeset(found.statement)) if isinstance(found, Claim) else Markup()
    return Markup("<h1>{}</h1>{}<dl>{}</dl>{}{}").format(name, lead, facts, _verified(found), _mentioned(name))


def _verified(found: Claim | Erratum) -> Markup:
    if found.check is None:
        return Markup("<p>No computation decides it.</p>")
    lines = f"linnet verify {found.id}\nlinnet show {found.id}      # with every finding"
    return Markup('<h2>See for yourself</h2><pre tabindex="0">{}</pre>').format(lines)


def _mentioned(name: str) -> Markup:
    """Links to the pages of theory that mention it."""
    pages = [page for page, path in theory().items() if f"`{name}`" in path.read_text(encoding="utf-8")]
    links = Markup(", ").join(Markup('<a href="../../theory/{0}">{0}</a>').format(page) for page in pages)
    return Markup("<p>Theory: {}.</p>").format(links) if pages else Markup()


def entries() -> str:
    """All claims and errata, paper by paper."""
    parts = [Markup("<h1>Claims and errata</h1>")]
    for paper in subjects().values():
        rows = Markup().join(
            Markup('<tr><td><a href="claims/{0}">{0}</a></td><td>{1}</td><td>{2}</td></tr>\n').format(
                found.id, found.grade if isinstance(found, Erratum) else found.kind, typeset(found.statement)
            )
            for found in registry().values()
            if found.paper == paper.name
        )
        head = Markup("<thead><tr><th>id</th><th>kind</th><th>statement</th></tr></thead>")
        parts += [Markup("<h2>{}</h2><table>{}<tbody>{}</tbody></table>").format(paper.title, head, rows)]
    return Markup().join(parts)


class _Handler(RequestHandler):
    def show(self, title: str, body: str) -> None:
        """Sends a page."""
        root = "../" * (self.request.path.count("/") - 1)
        page = {"title": escape(title), "style": style(), "top": top(root=root), "body": body}
        self.finish(Template(_text("read.html")).render(page))

    def refuse(self, error: InputError) -> None:
        """Sends an error page."""
        self.set_status(404)
        self.show("Not here", f"<h1>Not here</h1><p>{escape(str(error))}</p>")


class Theory(_Handler):
    """GET /theory/NAME: a page of the theory."""

    async def get(self, name: str) -> None:
        try:
            self.show(*await asyncio.to_thread(theory_page, name or "index"))
        except InputError as error:
            self.refuse(error)


class Claims(_Handler):
    """GET /claims/PAPER/C1: a claim or an erratum."""

    async def get(self, name: str) -> None:
        try:
            self.show(name, await asyncio.to_thread(entry, name))
        except InputError as error:
            self.refuse(error)


class AllClaims(_Handler):
    """GET /claims: all of them."""

    async def get(self) -> None:
        self.show("Claims and errata", await asyncio.to_thread(entries))


def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


HANDLERS = ((r"/theory/(.*)", Theory), (r"/claims", AllClaims), (r"/claims/(.*)", Claims))
