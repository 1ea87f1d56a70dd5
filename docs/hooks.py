"""What the site makes of its pages: formulas in MathML, lists of claims and errata from the registry, ids that link.

Nothing is loaded from elsewhere and no script is needed: browsers typeset MathML themselves.
"""

import re
from typing import Any
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from markupsafe import Markup
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

from linnet.claims import PAPERS, Claim, Erratum, registry
from linnet.report.typeset import typeset

# A dollar opens a formula where no space follows, and closes it where none precedes and no digit follows: prices are no
# formulas. Code is set aside before, and `\$` is a dollar.
DISPLAY = r"(?<![\\$])\$\$(.+?)\$\$"
INLINE = r"(?<![\\$])\$(?![\s$])((?:\\.|[^$\\])*?(?:\\.|[^\s$\\]))\$(?![\d$])"


class Formula(InlineProcessor):
    """LaTeX between dollars as MathML."""

    def __init__(self, pattern: str, md: Markdown, display: str):
        super().__init__(pattern, md)
        self.display = display

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Element | str, int, int]:  # type: ignore[override]  # noqa: N802
        return self.md.htmlStash.store(mathml(m.group(1), self.display)), m.start(0), m.end(0)


class Formulas(Extension):
    """Formulas in all pages, after code (190) and before escapes (180)."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        md.inlinePatterns.register(Formula(DISPLAY, md, "block"), "display_formula", 186)
        md.inlinePatterns.register(Formula(INLINE, md, "inline"), "inline_formula", 185)
        md.ESCAPED_CHARS.append("$")


def mathml(latex: str, display: str) -> str:
    """A formula as MathML. A command that the converter does not know would be printed as it stands: it is refused."""
    found = convert(latex, display=display)
    if "\\" in found or "merror" in found:
        raise ValueError(f"this formula has a command that cannot be typeset: {latex}")
    return found


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the formulas to the Markdown that every page is read with."""
    config.markdown_extensions.append(Formulas())  # type: ignore[arg-type]  # Markdown takes objects as well as names
    return config


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fills `<!-- claims -->` and `<!-- errata -->`."""
    for mark, kind in (("<!-- claims -->", Claim), ("<!-- errata -->", Erratum)):
        if mark in markdown:
            markdown = markdown.replace(mark, listing(kind))
    return markdown


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
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
    heads = ("printed", "corrected", "evidence") if kind is Erratum else ("statement",)
    rows = Markup()
    for entry in entries:
        grade = entry.grade if kind is Erratum else entry.kind
        cells = Markup().join(Markup("<td>{}</td>").format(typeset(getattr(entry, head))) for head in heads)
        # the id is no link here, so it is not code
        rows += Markup('<tr id="{}"><td><b>{}</b><br>{}<br><i>{}</i></td>{}</tr>\n').format(
            anchor(entry.id), entry.id, entry.place, grade, cells
        )
    head = Markup().join(
        Markup("<th>{}</th>").format(name) for name in (f"id, place, {'grade' if kind is Erratum else 'kind'}", *heads)
    )
    return Markup("<table>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody></table>").format(head, rows)
