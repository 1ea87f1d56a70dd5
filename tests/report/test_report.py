"""The page: what stands on it, and that it is whole HTML which asks nothing of the network."""

import html
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from linnet import claims, report
from linnet.cli import verify
from linnet.probe.record import ProbeRecord
from linnet.report.latex import mathml, typeset

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


def test_the_page_of_a_probe_is_whole(tmp_path):
    record = ProbeRecord({"parameters": 7, "precision": "float32", "device": "cpu", "layers": ["a <b>"]})
    report.write_probe(record, tmp_path / "empty")
    record.add([{"kind": "step", "step": 0, "loss": 1.0}])
    measured = {
        "kind": "measurement",
        "step": 0,
        "batch_loss": 1.0,
        "sharpness": [2.0],
        "residual": [0.1],
        "lowest": -0.5,
    }
    record.add([measured | {"products": 3, "singular_values": [[1.0, 0.5, 0.0]], "imbalance": [None], "drift": [None]}])
    report.write_probe(record, tmp_path / "seen")
    for folder in ("empty", "seen"):
        page = parsed(tmp_path / folder / "index.html")
        assert all(source.startswith("data:image/png;base64,") for source in page.loaded)
        assert not page.links
    assert "a <b>" in page.words


def test_verdicts_stand_on_the_page_and_are_joined(tmp_path):
    verify.run(["mixed/C17", "mixed/C22"], None, "quick", tmp_path, quiet=True)
    verify.run(["mixed/E20", "mixed/C17"], None, "quick", tmp_path, quiet=True)
    stored = json.loads((tmp_path / "claims.json").read_text())
    assert sorted(v["id"] for v in stored["claims"]) == ["mixed/C17", "mixed/C22", "mixed/E20"]
    assert stored["failed"] == 0
    page = parsed(tmp_path / "index.html")
    text = " ".join("".join(page.words).split())
    assert "3 claims and errata verified at quick size, 0 not as stated" in text
    assert "fails, as stated here" in text  # mixed/C22 is refuted
    assert "not run" in text
    errata = [e for e in claims.registry().values() if e.paper == "mixed" and isinstance(e, claims.Erratum)]
    noted = sum(e.check is None for e in errata)
    assert f"Errata 1 of 1 shown, {noted} noted" in " ".join(" ".join(page.words).split())
    assert f"1 of 1 shown, {len(errata) - noted - 1} not run, {noted} noted." in text
    assert len(page.ids) == len(set(page.ids))
    assert {"mixed", "mixed-claims", "mixed-errata"} <= set(page.ids)
    assert "spectral" not in page.ids  # nothing is known about it yet
    for link in page.links:
        assert link[1:] in page.ids if link.startswith("#") else (tmp_path / link).exists()
    assert page.loaded == []
    # another size starts anew
    other = tmp_path / "claims.json"
    other.write_text(json.dumps({**stored, "size": "full"}))
    verify.run(["mixed/C17"], None, "quick", tmp_path, quiet=True)
    assert [v["id"] for v in json.loads(other.read_text())["claims"]] == ["mixed/C17"]


def test_a_failure_is_red(tmp_path):
    about = {"id": "mixed/C17", "paper": "mixed", "kind": "exact", "statement": "", "detail": "<b>1 & 2</b>"}
    verdict = {**about, "holds": False, "measured": 1.0, "required": 0.0, "margin": None, "seconds": 0.1}
    (tmp_path / "claims.json").write_text(json.dumps({"size": "quick", "claims": [verdict], "failed": 1}))
    text = report.write(tmp_path).read_text()
    assert '<span class="no">fails</span>' in text
    assert "<details><summary>measured</summary>&lt;b&gt;1 &amp; 2&lt;/b&gt;</details>" in text
    assert 'data-verdict="not as stated"' in text
    assert "1 not as stated" in text


def linear(element):
    """MathML written in a line: x_{i}^{2}."""
    name, parts = element.tag, [linear(part) for part in element]
    if name == "msub":
        return "{}_{{{}}}".format(*parts)
    if name == "msup":
        return "{}^{{{}}}".format(*parts)
    if name == "msubsup":
        return "{}_{{{}}}^{{{}}}".format(*parts)
    if name == "mover":
        return "{} under {}".format(*parts)
    return (element.text or "") + "".join(parts)


@pytest.mark.parametrize(
    ("plain", "read"),
    [
        ("2 gamma_sigma2 + gamma_w > 0", "2 [γ_{σ^{2}}] + [γ_{w}] > 0"),
        ("sqrt(A^T A) <= C1", "√([A^{T}] [A]) ≤ [C_{1}]"),
        ("z_p^{2(L-j)/L} e^{-t}", "[z_{p}^{2(L−j)/L}] [e^{−t}]"),
        ("s_star -> inf", "[s_{⋆}] → [∞]"),
        ("a & <b>", "[a] & <[b]>"),
        ("s_{i+1}^{2-2/L}", "[s_{i+1}^{2−2/L}]"),
        ("d^(2 gamma_w) d^-1 X^+ Y", "[d^{2γ_{w}}] [d^{−1}] [X^{+}] [Y]"),
        ("4.8e-3 of 1e4", "[4.8×10^{−3}] of [10^{4}]"),
        ("C1hat and v_hat, what that is", "[C under ^_{1}] and [v under ^], what that is"),
        ("s <w_r(0), X^T y>, z < 1, z > 1", "[s] ⟨[w_{r}](0), [X^{T}] [y]⟩, [z] < 1, [z] > 1"),
        ("min-norm 2-cycles, the K-th, rank-r, -ln d", "min-norm 2-cycles, the [K]-th, rank-[r], −ln [d]"),
        ("400 x 400, v0 >> t1, R o B", "400 × 400, [v_{0}] ≫ [t_{1}], [R] ∘ [B]"),
        ("|x|^2 {a, b}_k, lambda_max", "|[x][|^{2}] {[a], [b][}_{k}], [λ_{max}]"),
        ("A mode of A: a_i d, a 2-cycle, the paper's I", "A mode of [A]: [a_{i}] [d], a 2-cycle, the paper's I"),
        ("Lemma A.4, dA/dt = the sum of sum_i, 100% & #1", "Lemma A.4, [dA]/[dt] = the sum of [∑_{i}], 100% & #1"),
    ],
)
def test_plain_formulas_become_mathml(plain, read):
    """The formulas in brackets; the rest of the text is escaped and stays."""
    made = re.sub(r"<math.*?</math>", lambda found: f"[{linear(ElementTree.fromstring(found[0]))}]", typeset(plain))
    assert html.unescape(made) == read
    assert "http" not in typeset(plain)


def test_latex_becomes_mathml():
    assert linear(ElementTree.fromstring(mathml(r"\lambda_{\max}^2"))) == "λ_{max}^{2}"
    assert 'display="block"' in mathml("x", "block")
    with pytest.raises(ValueError, match="cannot be typeset"):
        mathml(r"\nosuchcommand x")


def test_every_formula_of_the_papers_is_whole():
    for entry in claims.registry().values():
        for text in (entry.statement, getattr(entry, "printed", ""), getattr(entry, "corrected", "")):
            page = Page()
            page.feed(f"<p>{typeset(text)}</p>")
            assert not page.open
            assert "{" not in "".join(page.words) or "{" in text.replace("_{", "").replace("^{", "")
