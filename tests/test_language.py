"""The words of documentation, docstrings, messages, and public names: the field's own, in American spelling."""

import ast
import re
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "linnet"
SOURCES = sorted(PACKAGE.rglob("*.py"))
SCRIPTS = [path for folder in ("docs", "benchmarks") for path in sorted((ROOT / folder).glob("*.py"))]
ROWS = [PACKAGE / "claims" / "errata.toml", *sorted((ROOT / "docs" / "coverage").glob("*.toml"))]
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(path for end in ("jinja", "html", "js") for path in PACKAGE.rglob(f"*.{end}")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CITATION.cff", "mkdocs.yml", "recipe.yaml")),
]
NAMES = {  # parts of all names in the package, with what stands for them
    "start": "initial, initialization",
    "starts": "initializations",
    "started": "initialized",
    "motion": "optimizer, flow",
    "look": "measurement",
    "looks": "measurements",
    "told": "predicted",
    "said": "prediction",
    "seen": "measured",
    "sabotage": "negative_control",
    "road": "pipeline",
    "house": "package",
    "room": "page, layer",
    "bears": "stability_threshold",
    "turned": "rotated",
    "pace": "throughput, schedule",
    "shadow": "second",
    "dress": "theme",
    "push": "vjp, step_along",
    "course": "solution, series",
    "courses": "solutions",
    "rooms": "pages, layers",
    "broken": "negative_control",
}
OTHERS = {"on_train_start", "start"}  # a hook of Lightning, and the first value of a range in a sweep
CLASSES = {"Answer", "Chain", "Clock", "Course", "Frame", "Hypothesis", "Moment", "Motion", "Pace", "Path", "Plate"}
CLASSES |= {"Sight", "Stand", "Way", "When"}
PROSE = {
    r"motions?": "optimizer, flow",
    r"look(s|ed|ing)? at": "measure, read",
    r"(is|are|was|were|be|been|being|and) told": "given, reported, predicted",
    r"tells (what|how|where|when|which|whether|of)": "reports, predicts",
    r"bears? (an?|no|the|more|less)": "is stable up to",
    r"(a|the|no|same) roads?": "pipeline",
    r"(this|several|the|other|few) rooms?": "package, page",
    r"costs? nothing": "has no overhead",
    r"sabotag\w*": "negative control",
    r"step[- ]sizes?(?! (control|growth))": "learning rate",
    r"shadows?": "second state",
    r"told|said": "reported, predicted",
    r"laborator(y|ies)(?!\.md)": "lab",
    r"honest\w*": "explicit",
    r"breath(e|es|ing)": "oscillate",
    r"to and fro": "oscillate",
    r"now and then": "sparsely",
    r"dear(er|est)?": "expensive",
    r"other eyes": "other observables",
    r"(hold|holds|held|holding) (it |them |this |these |the two |both )?against": "compare with",
    r"doors?": "lazy import",
    r"floors? (below|above)": "lower layer",
    r"left out and": "skipped with a message",
    r"so near(?! (to|a|each|that|zero))": "within this distance",
    r"never heard": "without",
    r"for ever": "always",
    r"anew": "again",
    r"speaks? (of|about)": "is about",
    r"too large an? steps?": "too large a learning rate",
    r"largest stable steps?|stable steps?": "stable learning rate",
    # British spelling
    r"optimis(e|ed|es|er|ers|ing|ation)": "optimize",
    r"(re)?normalis(e|ed|es|ing|ation|ations)": "normalize",
    r"initialis(e|ed|es|er|ers|ing|ation)": "initialize",
    r"(regular|factor|linear|standard|general|diagonal)is(e|ed|es|ing|ation)": "-ize",
    r"(minim|maxim|recogn|discret|summar|parametr)is(e|ed|es|ing|ation)": "-ize",
    r"cent(re|red|res|ring)": "center",
    r"(colour|behaviour|neighbour|favour)\w*": "-or",
    r"grey": "gray",
    r"(labell|modell)(ed|ing)": "labeled, modeled",
    r"catalogue": "catalog",
}
LEGITIMATE = re.compile(r"Brownian motions?|equations? of motion", re.IGNORECASE)  # terms with a word of the list
RULE = re.compile(rf"(?<![\w`./=-])({'|'.join(PROSE)})(?![\w=(])", re.IGNORECASE)


def _strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Docstrings and texts of a module: of f-strings their constant parts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def _names(tree: ast.Module, path: Path) -> Iterator[tuple[int, str]]:
    """All names: of the module, its functions, classes, arguments, fields, and variables."""
    yield 1, path.stem
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def _parts(name: str) -> list[str]:
    """The words of a name: `at_start` and `AtStart` have two."""
    return [part.lower() for part in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)]


def _prose(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n")):
        for found in RULE.finditer(LEGITIMATE.sub("", line)):
            yield number, found[0]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_docstrings_messages_and_names(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [(line + number, word) for line, text in _strings(tree) for number, word in _prose(text)]
    for line, name in _names(tree, path):
        foreign = name in OTHERS and path.parent.name in ("probe", "sweep")
        found += (
            [(line, name)] if not foreign and (set(_parts(name)) & set(NAMES) or name.strip("_") in CLASSES) else []
        )
    assert not found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_pages(path):
    assert not [(number + 1, word) for number, word in _prose(path.read_text(encoding="utf-8"))]


def _comments(path: Path) -> Iterator[tuple[int, str]]:
    with path.open(encoding="utf-8") as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


@pytest.mark.parametrize("path", [*SOURCES, *SCRIPTS], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_comments(path):
    assert not [(line, word) for line, text in _comments(path) for _, word in _prose(text)]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_scripts(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not [(line + number, word) for line, text in _strings(tree) for number, word in _prose(text)]


@pytest.mark.parametrize("path", ROWS, ids=lambda path: path.stem)
def test_rows_of_errata_and_coverage(path):
    """All texts but those that quote a paper."""
    (rows,) = tomllib.loads(path.read_text(encoding="utf-8")).values()
    texts = [(row, text) for row in rows for name, text in row.items() if name != "printed" and isinstance(text, str)]
    assert texts
    assert not [(row.get("id", row["place"]), word) for row, text in texts for _, word in _prose(text)]


def test_the_changelog_of_this_version():
    """Names in code may be old ones."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    recent = text[: text.index("## [0.2.0]")]
    assert "## [0.3.0]" in recent
    assert not [(number + 1, word) for number, word in _prose(re.sub(r"`[^`\n]*`", "", recent))]


@pytest.mark.parametrize(
    "text",
    [
        "it looks at whatever theory is about",
        "any network goes the same road",
        "what is dear, now and then",
        "it holds the two against each other",
        "honest about endings",
        "a sabotage that it must notice",
        "at a step that is told",
        "some eigenvalue is so near",
        "the loss is not lost: it breathes",
        "the floors below it",
        "there are doors upwards",
        "left out and said to be",
        "watched by other eyes",
        "which step size does it bear",
        "with too large a step",
        "optimise the colour",
    ],
)
def test_words_of_no_field_are_found(text):
    assert list(_prose(text))


def test_ordinary_words_are_not():
    text = "The lab compares the run with theory; steps are stable, and the floor of the loss is near that of `look`."
    text += " A geometric Brownian motion has an equation of motion."
    assert not list(_prose(text))
