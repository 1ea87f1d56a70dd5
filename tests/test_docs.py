"""README and documentation run, and print and draw what they show."""

import importlib.util
import io
import re
import tokenize
import tomllib
import unicodedata
from pathlib import Path

import pytest
import yaml

from linnet import sweep
from linnet.experiments.mixed import MixedFig2

ROOT = Path(__file__).parents[1]
SMALLER = {"d=100": "d=30", "width=1_000_000": "width=4_000", "steps=600": "steps=60"}


def script(name):
    """A script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


run = script("run")


def test_the_code_of_the_readme_runs(tmp_path):
    page = (ROOT / "README.md").read_text()
    _, names = run.execute(page, tmp_path, smaller=SMALLER, commands=False)
    assert names["run"].status == "horizon"
    assert names["prediction"].modes
    first, second = names["orbit"]["modes"][-2:, 0]
    assert abs(first - second) > 1  # the orbit that the comment promises
    assert {"horizon", "diverged"} <= set(names["runs"].status)
    assert set(run.PICTURE.findall(page)) <= set(run.COMMANDS)
    assert all(large in page for large in SMALLER)


LONG = {  # pages that train for long, on what other tests cover
    *("clusters.md", "theory/layer.md", "tutorials/animations.md", "tutorials/at-the-edge.md", "tutorials/lora.md"),
    *("tutorials/probe.md", "tutorials/reproduce-a-figure.md"),
}
NAMES = [path.relative_to(run.DOCS).as_posix() for path in run.pages()]


@pytest.mark.parametrize(
    "page", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in NAMES], ids=NAMES
)
def test_pages_print_and_draw_what_they_show(page):
    if (reason := run.lacks(run.DOCS / page)) is not None:
        pytest.skip(reason)
    assert run.check(run.DOCS / page) == []


def test_pages_have_no_code_that_is_not_run():
    for path in run.pages():
        assert not re.search(r"^[ \t]+```", path.read_text(), flags=re.MULTILINE), f"{path}: a block is indented"


PAGE = """`numbers.csv`:

```csv
1,2
```

```python
from pathlib import Path
print("WORD", Path("numbers.csv").read_text().strip())
Path("picture.png").touch()
```

```text
WORD 1,2
```

```bash
linnet --version
linnet verify mixed/C999  # exits with 2
pip install nothing
```

![A picture](../images/picture.png)
"""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("```text\nWORD", "```text\nWORT"),
        ("WORD 1,2\n", "WORD 1,2\nand more\n"),
        ("images/picture.png", "images/other.png"),
        ("1,2\n```\n\n```python", "1,3\n```\n\n```python"),
    ],
)
def test_a_page_that_is_not_as_it_says_is_found(right, wrong, tmp_path):
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    assert run.check(path) == []
    path.write_text(PAGE.replace(right, wrong))
    assert len(run.check(path)) == 1


def test_a_page_says_which_data_it_needs(tmp_path, monkeypatch):
    path = tmp_path / "page.md"
    path.write_text(f"# Title\n\n<!-- needs mnist -->\n\n{PAGE}")
    monkeypatch.setenv("LINNET_DATA", str(tmp_path))
    monkeypatch.setattr("linnet.data.sets.cache_folder", lambda: None)
    assert "linnet data fetch mnist" in run.lacks(path)
    path.write_text(PAGE)
    assert run.lacks(path) is None


def test_a_command_that_fails_is_found(tmp_path):
    with pytest.raises(RuntimeError, match="exits with 2"):
        run.execute(PAGE.replace("# exits with 2", ""), tmp_path)


def test_a_page_is_written_anew_up_to_durations(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "DOCS", tmp_path)
    (tmp_path / "images").mkdir()
    path = tmp_path / "page.md"
    path.write_text(PAGE.replace("WORD 1,2", "what it printed once"))
    assert run.check(path, write=True) == []
    assert path.read_text() == PAGE
    assert (tmp_path / "images" / "picture.png").exists()
    timed = "```python\nprint('done in 3 s')\n```\n\n```text\ndone in 12.5 s\n```\n"
    path.write_text(timed)
    assert run.check(path) == run.check(path, write=True) == []
    assert path.read_text() == timed


def test_the_figure_as_a_file_is_the_figure():
    text = (ROOT / "src" / "linnet" / "experiments" / "mixed_fig2.toml").read_text()
    assert MixedFig2().spec() == sweep.parse(text)


def test_the_page_of_the_commands_is_generated_from_them():
    commands = script("commands")
    assert commands.PAGE.read_text() == commands.page(), "run python docs/commands.py"
    assert "`--weight-decay`" in commands.page()


# Navigation and links ------------------------------------------------------------------------------------------------


def listed(nav):
    """The pages of a navigation, its sections included."""
    for entry in nav:
        (target,) = entry.values() if isinstance(entry, dict) else (entry,)
        yield from [target] if isinstance(target, str) else listed(target)


def anchors(text):
    """The ids of a page's headings, as Markdown makes them."""
    for title, given in re.findall(r"^#+ (.*?)(?: *\{ *#([\w-]+) *\})?$", text, flags=re.MULTILINE):
        plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
        yield given or re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def test_every_page_is_in_the_navigation_once():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    sections = [next(iter(section)) for section in nav[1:]]
    assert sections == ["Getting started", "How-to guides", "Explanation", "Reference"]
    assert sorted(listed(nav)) == sorted(path.relative_to(run.DOCS).as_posix() for path in run.pages())


@pytest.mark.parametrize(
    "path", [*run.pages(), ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda path: path.stem
)
def test_links_within_the_repository_lead_somewhere(path):
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target, _, place in (link.partition("#") for link in re.findall(r"\]\(([^)\s]+)\)", text)):
        if not target.startswith(("http:", "https:")):
            there = path.parent / target if target else path
            assert there.exists(), target
            assert not place or place in anchors(there.read_text()), f"{target}#{place}"


# References ----------------------------------------------------------------------------------------------------------

LABELS = tomllib.loads((Path(__file__).parent / "labels.toml").read_text(encoding="utf-8"))
CALLED = {
    "mixed": "mixed dynamics",
    "spectral": "spectral bias",
    "nonlocal": "nonlocal",
    "stability": "edge of stability",
    "feature": "feature learning",
}
SECTION = re.compile(r"[Ss]ections? ([A-F]?(?:\d+|\b)(?:\.\d+)*)(?=[\s,;:.)]|$)")
LABEL = re.compile(
    r"(?<![\w/^|])[PS]\d{1,2}(?![\w(^])"  # P5, S6
    r"|(?<![\w/^|])E\d{1,2}(?![\w(^])|(?<![\w/^|])C(?:[3-9]|\d\d)(?![\w(^])"  # E13, C7: ids of claims name their paper
    r"|\bspec's\b|\bof the spec\b|\b[Ss]pec [SPCE]\d"
    r"|(?<!\w)\([2-9]\.\d{1,2}\)|(?i:nonlocal|bias|dynamics|stability|learning),? \d\.\d"  # (7.4), nonlocal 2.1
)
LISTED = re.compile(r"(\w+/[CE]\d+)`?(?:(?:,| and| to) [CE]\d+)+")  # mixed/C4, C6


def prose(path):
    """Docstrings and comments of a Python file, the text of a page; white space is one blank."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        parts = [text]
    else:
        parts, comment = [], ""
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                comment += token.string.lstrip("#")
            elif token.type not in (tokenize.NL, tokenize.NEWLINE):
                parts.append(comment)
                comment = ""
            if token.type == tokenize.STRING and token.string.lstrip("rf").startswith('"""'):
                parts.append(token.string)
    return [" ".join(part.split()) for part in parts if part]


def labels(text):
    """What in a text points to nothing that a reader has."""
    found = [match.group() for match in LABEL.finditer(LISTED.sub(r"\1", text))]
    for match in SECTION.finditer(text):
        before = text[: match.start()].lower()
        names = [LABELS[paper] for paper, name in CALLED.items() if re.search(rf"{name}'?s?,?\s*$", before)]
        named = before.endswith(("eftekhari, ", "results*, ", "describes in ")) or text[match.end() :].startswith(
            " of the paper"
        )
        if not named and not any(match.group(1) in paper["section"].split() for paper in names):
            found.append(match.group())
    return found


@pytest.mark.parametrize("folder", ["src", "tests", "docs", "benchmarks", "README.md", "CONTRIBUTING.md"])
def test_references_can_be_resolved(folder):
    """Claim ids, equations and theorems of a named paper, or words: no labels of texts that are not here."""
    root = ROOT / folder
    paths = [root] if root.is_file() else [path for path in root.rglob("*") if path.suffix in (".py", ".md")]
    found = {
        str(path.relative_to(ROOT)): labels(text)
        for path in paths
        if path != Path(__file__)
        for text in prose(path)
        if labels(text)
    }
    assert found == {}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("the slope (P2)", 1),
        ("Spec S9 at a d", 1),
        ("nonlocal 2.1 and the loss (7.4), section 3.4", 3),
        ("feature learning, section 2.7", 1),
        ("what descent keeps (C7), E13", 2),
        ("mixed/C4, C6 and nonlocal/C3, region P1(c0, C), C1 = W_1^T W_1, eq. (12), Lemma B.2", 0),
        ("feature learning, section 3.3; Theorem 3.1 (iii); spectral bias, section 4.1", 0),
    ],
)
def test_labels_are_told_from_references(text, count):
    assert len(labels(text)) == count
