"""What a release states in several places is the same in all of them."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
import yaml

import linnet
from linnet.claims import PAPERS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RECIPE = yaml.safe_load((ROOT / "recipe.yaml").read_text(encoding="utf-8"))
CONDA = {"matplotlib": "matplotlib-base"}  # names of the recipe that differ
HOSTS = re.compile(
    "|".join(("py" + r"pi\b", r"\bana" + "conda", "conda-" + "forge", "shields" + r"\.io")), re.IGNORECASE
)


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def versions(requirements):
    """Lower bounds by the name of the package."""
    pairs = (re.fullmatch(r"([\w-]+)(?:\[\w+\])? ?>=([\d.]+)", line).groups() for line in requirements)
    return {CONDA.get(name, name): least for name, least in pairs}


def test_one_version():
    (heading, *_) = re.findall(r"^## \[([\d.]+)\] - ([\d-]+)$", read("CHANGELOG.md"), flags=re.MULTILINE)
    citation = yaml.safe_load(read("CITATION.cff"))
    assert heading == (citation["version"], str(citation["date-released"]))
    assert linnet.__version__ == RECIPE["context"]["version"] == heading[0]


def test_the_citation_lists_the_papers():
    titles = {reference["title"] for reference in yaml.safe_load(read("CITATION.cff"))["references"]}
    own = ("optimizers", "flows")  # which are no papers'
    assert titles == {paper.title for name, paper in PAPERS.items() if name not in own}


@pytest.mark.parametrize(
    "path",
    [
        *(
            ROOT / name
            for name in ("README.md", "CONTRIBUTING.md", "pyproject.toml", "CITATION.cff", "recipe.yaml", "mkdocs.yml")
        ),
        *sorted(path for end in ("md", "py", "toml", "svg") for path in (ROOT / "docs").rglob(f"*.{end}")),
    ],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_no_file_names_a_package_host(path):
    assert HOSTS.findall(path.read_text(encoding="utf-8")) == []


def test_badges_are_those_of_the_project():
    spec = importlib.util.spec_from_file_location("readme", ROOT / "docs" / "readme.py")
    readme = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(readme)
    badges = readme.badges()
    assert badges == {name: read(f"docs/images/{name}") for name in badges}, "run python docs/readme.py"
    stated = [name.rsplit(" ", 1)[1] for name in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d", name)]
    assert f">{stated[0]} to {stated[-1]}<" in badges["badge-python.svg"]
    assert f">{PROJECT['license']}<" in badges["badge-license.svg"]
    text = read("README.md")
    assert all(f"(docs/images/{name})" in text for name in badges)
    assert f"![Python {stated[0]} to {stated[-1]}]" in text


def test_the_recipe_has_the_dependencies_of_the_package():
    run = RECIPE["requirements"]["run"]
    python, *needed = run
    assert python == f"python {PROJECT['requires-python']}" == RECIPE["requirements"]["host"][0]
    assert versions(needed) == versions(PROJECT["dependencies"])
    scripts = [f"{name} = {target}" for name, target in PROJECT["scripts"].items()]
    assert RECIPE["build"]["python"]["entry_points"] == scripts
    assert RECIPE["about"]["summary"].rstrip(".") == PROJECT["description"].removesuffix(" (JAX).")


def test_tested_versions_of_python_are_those_that_are_stated():
    stated = [name.rsplit(" ", 1)[1] for name in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d", name)]
    matrix = yaml.safe_load(read(".github/workflows/test.yml"))["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == stated
    assert PROJECT["requires-python"] == f">={stated[0]}"


def test_extras_are_on_the_page_of_the_installation():
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", read("docs/installation.md"), flags=re.MULTILINE))
    extras = PROJECT["optional-dependencies"]
    assert {*rows} | {"docs", "test", "bench"} == {*extras}
    for name in rows:
        assert rows[name].split(", ") == list(versions(extras[name])), name


@pytest.mark.parametrize("name", ["test", "torch", "lab"])
def test_constraints_satisfy_lower_bounds(name):
    pinned = dict(line.split("==") for line in read("constraints.txt").splitlines() if "==" in line)
    for package, least in versions(PROJECT["optional-dependencies"][name] + PROJECT["dependencies"]).items():
        pin = pinned[{"matplotlib-base": "matplotlib"}.get(package, package)]
        numbers = [[int(part) for part in version.split(".")] for version in (least, pin)]
        assert numbers[0] <= numbers[1], package
