"""The page: what stands on it, and that it is whole HTML which asks nothing of the network."""

import json
from html.parser import HTMLParser

import pytest

from linnet import claims, report
from linnet.cli import verify
from linnet.report.typeset import typeset

VOID = {"meta", "img", "br", "input"}


class Page(HTMLParser):
    """Tags in balance, ids, links and what is loaded."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.loaded, self.words = [], [], [], [], []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if "href" in given else []
        self.loaded += [given[name] for name in ("src", "data", "action") if name in given]
        if tag == "img":
            assert given["alt"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.words.append(text)


def parsed(path):
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    assert not page.open
    return page


def test_verdicts_stand_on_the_page_and_are_joined(tmp_path):
    verify.run(["mixed/C17", "mixed/C22"], None, "quick", tmp_path, quiet=True)
    verify.run(["mixed/E20", "mixed/C17"], None, "quick", tmp_path, quiet=True)
    stored = json.loads((tmp_path / "claims.json").read_text())
    assert sorted(v["id"] for v in stored["claims"]) == ["mixed/C17", "mixed/C22", "mixed/E20"]
    assert stored["failed"] == 0
    page = parsed(tmp_path / "index.html")
    text = " ".join("".join(page.words).split())
    assert "3 claims and errata verified at quick size, 0 not as stated" in text
    assert "fails, as stated here" in text  # C22 is refuted
    assert "not run" in text
    assert len(page.ids) == len(set(page.ids))
    assert {"mixed", "mixed-claims", "mixed-errata"} <= set(page.ids)
    assert "spectral" not in page.ids  # nothing is known about it yet
    for link in page.links:
        assert link.startswith("#")
        assert link[1:] in page.ids
    assert page.loaded == []
    # another size starts anew
    other = tmp_path / "claims.json"
    other.write_text(json.dumps({**stored, "size": "full"}))
    verify.run(["mixed/C17"], None, "quick", tmp_path, quiet=True)
    assert [v["id"] for v in json.loads(other.read_text())["claims"]] == ["mixed/C17"]


def test_a_failure_is_red(tmp_path):
    verdict = {"id": "mixed/C17", "holds": False, "margin": None, "detail": "<b>1 & 2</b>"}
    (tmp_path / "claims.json").write_text(json.dumps({"size": "quick", "claims": [verdict], "failed": 1}))
    text = report.write(tmp_path).read_text()
    assert 'class="no" title="&lt;b&gt;1 &amp; 2&lt;/b&gt;">fails</td>' in text
    assert "1 not as stated" in text


@pytest.mark.parametrize(
    ("plain", "html"),
    [
        ("2 gamma_sigma2 + gamma_w > 0", "2 γ<sub>σ<sup>2</sup></sub> + γ<sub>w</sub> &gt; 0"),
        ("sqrt(A^T A) <= C1", "√(A<sup>T</sup> A) ≤ C1"),
        ("z_p^{2(L-j)/L} e^{-t}", "z<sub>p</sub><sup>2(L-j)/L</sup> e<sup>-t</sup>"),
        ("s_star -> inf", "s<sub>⋆</sub> → ∞"),
        ("a & <b>", "a &amp; &lt;b&gt;"),
        ("s_{i+1}^{2-2/L}", "s<sub>i+1</sub><sup>2-2/L</sup>"),
    ],
)
def test_formulas(plain, html):
    assert typeset(plain) == html


def test_every_formula_of_the_papers_is_whole():
    for entry in claims.registry().values():
        for text in (entry.statement, getattr(entry, "printed", ""), getattr(entry, "corrected", "")):
            page = Page()
            page.feed(f"<p>{typeset(text)}</p>")
            assert not page.open
            assert "{" not in "".join(page.words) or "{" in text.replace("_{", "").replace("^{", "")
