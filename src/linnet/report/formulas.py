"""LaTeX between dollars as MathML, which browsers typeset themselves: for the documentation and the lab."""

import re
from xml.etree.ElementTree import Element

from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor

from linnet.report.latex import mathml

# A dollar opens a formula if no space follows, and closes it if none precedes and no digit follows, so amounts of money
# are no formulas. Code is set aside before, and `\$` is a dollar.
DISPLAY = r"(?<![\\$])\$\$(.+?)\$\$"
INLINE = r"(?<![\\$])\$(?![\s$])((?:\\.|[^$\\])*?(?:\\.|[^\s$\\]))\$(?![\d$])"


class FormulaPattern(InlineProcessor):
    """LaTeX between dollars as MathML."""

    def __init__(self, pattern: str, md: Markdown, display: str):
        super().__init__(pattern, md)
        self.display = display

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Element | str, int, int]:  # noqa: N802
        return self.md.htmlStash.store(mathml(m.group(1), self.display)), m.start(0), m.end(0)


class Formulas(Extension):
    """Formulas in all pages, after code (190) and before escapes (180)."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        md.inlinePatterns.register(FormulaPattern(DISPLAY, md, "block"), "display_formula", 186)
        md.inlinePatterns.register(FormulaPattern(INLINE, md, "inline"), "inline_formula", 185)
        md.ESCAPED_CHARS.append("$")
