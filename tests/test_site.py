"""The documentation site builds without warnings, typesets its formulas and loads nothing from elsewhere."""

import importlib.util
import json
import operator
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import linnet
from linnet.claims import PAPERS, registry
from linnet.experiments import experiments

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
needs_site = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("mkdocs", "material", "mkdocstrings", "latex2mathml")),
    reason="needs the extra docs",
)


class Page(HTMLParser):
    """Text outside code and scripts, formulas, what the page loads, ids and links within the site."""

    LOADED = ("script", "img", "iframe", "source", "video", "audio")

    def __init__(self, html):
        super().__init__()
        self.text, self.loaded, self.tags, self.ids, self.links, self._hidden = "", [], [], set(), [], 0
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append(tag)
        self._hidden += tag in ("code", "pre", "script", "style")
        if tag in self.LOADED and values.get("src"):
            self.loaded.append(values["src"])
        if tag == "link" and values.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(values["href"])
        if "id" in values:
            self.ids.add(values["id"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])

    def handle_endtag(self, tag):
        self._hidden -= tag in ("code", "pre", "script", "style")

    def handle_data(self, data):
        if not self._hidden:
            self.text += data


def outside(address):
    return re.match(r"\s*(\w+:)?//", address) is not None


@needs_site
def test_the_site(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == ""
    assert not list(tmp_path.rglob("*.py"))
    pages = {path.parent: Page(path.read_text(encoding="utf-8")) for path in tmp_path.rglob("index.html")}
    assert len(pages) == len(PAGES)
    for folder, page in pages.items():
        name = str(folder.relative_to(tmp_path))
        assert "$" not in page.text, name
        assert "merror" not in page.tags, name
        assert not [address for address in page.loaded if outside(address)], name
        # `mixed/E10` leads to that entry
        for link in page.links:
            target, _, place = link.partition("#")
            if place and not outside(link):
                assert place in pages[(folder / target).resolve()].ids, f"{name}: {link}"
    for sheet in tmp_path.rglob("*.css"):
        found = re.findall(r"(?:@import\s*|url\()[\"']?([^\"')]+)", sheet.read_text(encoding="utf-8"))
        assert not [address for address in found if outside(address)], sheet
    for subject in ("mixed", "spectral", "convergence", "landscape", "stability", "feature", "balance"):
        assert pages[tmp_path / "theory" / subject].tags.count("math") > 10
    index = json.loads((tmp_path / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    texts = [f"{entry['title']} {entry['text']}".lower() for entry in index]
    for word in ("NTK", "EoS", "catapult", "early stopping", "LoRA"):
        assert any(re.search(rf"\b{word.lower()}s?\b", text) for text in texts), word
    listed = pages[tmp_path / "claims"].ids | pages[tmp_path / "errata"].ids
    assert {name.replace("/", "-") for name in registry()} <= listed


@needs_site
def test_dollars_that_are_no_formula_survive():
    from markdown import Markdown

    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)

    def html(text):
        return Markdown(extensions=["fenced_code", "tables", hooks.Formulas()]).convert(text)

    for text in ("from $20 to $30", "a \\$5 note, or \\$6", "5 $ or 6 $", "one $ alone"):
        assert "<math" not in html(text)
        assert html(text).count("$") == text.count("$")
    for text in ("`$HOME` and `$PATH`", "```bash\necho $HOME $PATH\n```", "para\n\n    echo $HOME $PATH"):
        assert "<math" not in html(text)
        assert "$HOME" in html(text)
        assert "$PATH" in html(text)
    for text in ("so $a_1 * b_2 * c$ is", "$2s$-fold", "($x$)", "**$x$**", "$a$, $b$"):
        assert html(text).count("<math") == text.count("$") / 2
        assert "$" not in html(text)
        assert "<em>" not in html(text)
    assert 'display="block"' in html("$$\n\\frac{a}{b}\n= c_1 * d_1\n$$")
    with pytest.raises(ValueError, match="cannot be typeset"):
        html(r"$\nosuchcommand{x}$")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_ids_on_pages_exist(page):
    """Claims, errata, figures and functions that a page names."""
    code = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL))
    for name in code:
        if re.fullmatch(rf"({'|'.join(PAPERS)})/[CE]\d+", name):
            assert name in registry()
        if found := re.fullmatch(rf"linnet reproduce (({'|'.join(PAPERS)})/\w+)", name):
            assert found[1] in experiments()
        if found := re.fullmatch(r"linnet((?:\.\w+)+)(\(.*\))?", name):
            operator.attrgetter(found[1][1:])(linnet)
