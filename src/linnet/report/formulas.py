"""LaTeX between dollars as MathML, which browsers typeset themselves: for the documentation and the laboratory."""

import re
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor

# A dollar opens a formula where no space follows, and closes it where none precedes and no digit follows: prices are no
# formulas. Code is set aside before, and `\$` is a dollar.
DISPLAY = r"(?<![\\$])\$\$(.+?)\$\$"
INLINE = r"(?<![\\$])\$(?![\s$])((?:\\.|[^$\\])*?(?:\\.|[^\s$\\]))\$(?![\d$])"


class Formula(InlineProcessor):
    """LaTeX between dollars as MathML."""

    def __init__(self, pattern: str, md: Markdown, display: str):
        super().__init__(pattern, md)
        self.display = display

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Element | str, int, int]:  # noqa: N802
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
