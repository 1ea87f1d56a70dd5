"""Documentation of the public API: what is computed, every argument, what is raised; examples run."""

import ast
import builtins
import doctest
import importlib
import inspect
import re
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONVENTIONS = (ROOT / "docs" / "conventions.md").read_text(encoding="utf-8")
LISTED = re.findall(r"^::: (linnet[\w.]+)$", (ROOT / "docs" / "reference.md").read_text("utf-8"), flags=re.MULTILINE)
ROWS = re.findall(r"^\| (`\w+`[`\w, ]*) \| ", CONVENTIONS.split("## Arguments")[1], re.MULTILINE)
SHARED = {name for row in ROWS for name in re.findall(r"\w+", row)}


def resolved(name):
    """The object of a dotted name."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise AssertionError(name)


def public():
    """Public functions and classes by name: those of the reference, and of modules that it lists."""
    for name in LISTED:
        found = resolved(name)
        if inspect.ismodule(found):
            for inner, value in vars(found).items():
                if not inner.startswith("_") and getattr(value, "__module__", None) == found.__name__:
                    yield f"{name}.{inner}", value
        elif callable(found):
            yield name, found


PUBLIC = dict(public())
FUNCTIONS = {name: found for name, found in PUBLIC.items() if not inspect.isclass(found)}


def explained(name, *texts):
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text or "") for text in texts)


def unexplained(function):
    """Arguments that neither the docstring of a function nor that of its module nor the conventions explain."""
    module = sys.modules[function.__module__]
    texts = inspect.getdoc(function), inspect.getdoc(module)
    names = [name for name in inspect.signature(function).parameters if name not in SHARED]
    return [name for name in names if not explained(name, *texts)]


def says_nothing(name, text):
    """Whether the first sentence has too few words, or none but those of the name."""
    first = re.split(r"(?<=[.:])\s", text.strip(), maxsplit=1)[0]
    words = re.findall(r"[^\s,.;:]+", first.lower())
    own = set(re.split(r"[._]", name.lower())) | {"a", "an", "the", "of"}
    return len(text.split()) < 4 or not [word for word in words if word not in own]


def raised(function):
    """Exceptions that the body of a function raises by name."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    calls = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)]
    names = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
    known = {**vars(builtins), **vars(sys.modules[function.__module__])}
    return {name for name in names if isinstance(known.get(name), type)}


def test_there_are_hundreds():
    assert len(FUNCTIONS) > 300
    assert len(PUBLIC) - len(FUNCTIONS) > 100
    assert "linnet.theory.mixed.mode" in FUNCTIONS


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_documented(name):
    found = PUBLIC[name]
    text = inspect.getdoc(found)
    assert text, "no docstring"
    assert not says_nothing(name, text)
    if name in FUNCTIONS:
        assert unexplained(found) == []
        assert all(explained(error, text) for error in raised(found) - {"InputError"})


def test_what_is_missing_is_found():
    def half(number, other):
        """Half of `number`."""
        if other:
            raise KeyError("no")

    half.__module__ = __name__
    assert unexplained(half) == ["other"]
    assert raised(half) == {"KeyError"}
    assert says_nothing("linnet.x.half_time", "The half time.")
    assert not says_nothing("linnet.x.half_time", "Where the loss is half of its initial value.")


# Examples ------------------------------------------------------------------------------------------------------------

EXAMPLES = [name for name, found in PUBLIC.items() if ">>>" in (inspect.getdoc(found) or "")]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_it_shows(name):
    example = doctest.DocTestParser().get_doctest(inspect.getdoc(PUBLIC[name]), {}, name, None, None)
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    shown = []
    assert runner.run(example, out=shown.append).failed == 0, "".join(shown)


def test_there_are_examples():
    assert len(EXAMPLES) >= 15
