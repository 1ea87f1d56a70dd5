"""What importing and installing promise."""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import linnet as ln

SOURCE = Path(ln.__file__).parent
CORE = (
    "_check",
    "_compiler",
    "_random",
    "linalg",
    "data",
    "problems",
    "states",
    "initial",
    "motion",
    "outcome",
    "record",
    "curves",
    "simulation",
    "trajectory",
    "observe",
    "dynamics",
    "theory",
)
ALLOWED = {"numpy", "scipy", "jax", "equinox", "diffrax", "optimistix", "jaxtyping", "linnet"}
PICTURE = (SOURCE.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")


def floors():
    """The rooms of each floor of the house, the top one first, as the documentation draws them."""
    (drawn,) = re.findall(r"┌.*?└", PICTURE, flags=re.DOTALL)
    return [
        re.findall(r"\w+", "".join(re.findall(r"^│([^│]*)│", part, flags=re.MULTILINE))) for part in drawn.split("├")
    ]


def python(code):
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def files(room):
    path = SOURCE / room
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


def imports(tree, *, nested):
    nodes = ast.walk(tree) if nested else tree.body
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield from (f"linnet.{a.name}" for a in node.names) if module == "linnet" else [module]


def through_the_door(tree):
    """What functions called `plot`, `animate` and `report` import from the room they open: the ways to floors above."""
    rooms = {"plot": "plot", "animate": "plot", "report": "report"}
    doors = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in rooms]
    inside = [(rooms[node.name], name) for node in doors for name in imports(node, nested=True)]
    return Counter(name for room, name in inside if name.split(".")[:2] == ["linnet", room])


def test_import_is_light():
    loaded = python("import sys, linnet; print(' '.join(sys.modules))").split()
    for heavy in ("jax", "matplotlib", "xarray", "zarr", "typer", "rich", "torch", "pandas", "pooch", "urllib.request"):
        assert heavy not in loaded
    assert not {"pooch", "requests", "sklearn"} & {*python("import sys, linnet.data; print(*sys.modules)").split()}
    used = python(
        "import sys, linnet as ln; ln.simulate, ln.gaussian, ln.observe; print(' '.join(sys.modules))"
    ).split()
    for heavy in ("matplotlib", "xarray", "zarr", "typer", "rich", "torch", "pandas", "matfree"):
        assert heavy not in used


def test_what_a_prediction_does_not_need_loads_when_it_is_used():
    code = "import sys, linnet.predict, linnet as ln; ln.GradientDescent; print(*sys.modules)"
    loaded = python(code).split()
    assert "linnet.predict.phase" in loaded
    for heavy in ("diffrax", "optimistix", "lineax", "matplotlib", "xarray", "pandas", "rich.table"):
        assert heavy not in loaded
    parts = ("integrate", "interpolate", "linalg", "optimize", "sparse", "special", "stats")
    assert not [name for name in loaded if name in {f"scipy.{part}" for part in parts}]


def test_help_loads_nothing_heavy():
    loaded = python(
        "import sys\nfrom linnet.cli.app import app\n"
        "try: app(['--help'])\nexcept SystemExit: pass\nprint(' '.join(sys.modules))"
    ).split()
    assert "typer" in loaded
    for heavy in ("jax", "matplotlib", "xarray", "numpy"):
        assert heavy not in loaded


def test_sixty_four_bits_before_or_after_jax():
    for code in ("import linnet, jax.numpy as jnp", "import jax.numpy as jnp, linnet"):
        assert python(f"{code}; print(jnp.ones(1).dtype)").strip() == "float64"


def test_the_core_imports_only_what_a_bare_device_has():
    for room in CORE:
        for file in files(room):
            for name in imports(ast.parse(file.read_text()), nested=False):
                top = name.split(".")[0]
                assert top in ALLOWED or top in sys.stdlib_module_names, f"{file.name} imports {name}"


def test_the_core_works_without_the_libraries_of_the_outer_rooms():
    readme = (SOURCE.parents[1] / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^pip install --no-deps \. && pip install (.*)$", readme, flags=re.MULTILINE)
    assert {*line.split(), "linnet"} == ALLOWED
    rooms = ", ".join(f"linnet.{room}" for room in CORE)
    code = f"""
import sys
blocked = "matplotlib rich typer pydantic xarray zarr jinja2 matfree pandas sklearn".split()
sys.modules.update(dict.fromkeys(blocked))  # None: importing them is an ImportError
import {rooms}
import linnet as ln
problem = ln.factorisation([[2.0, 0.0], [0.0, 1.0]])
run = ln.simulate(problem, ln.i_gamma(problem, gamma=0.1), ln.GradientFlow(), time=1.0, observe=["loss", "modes"])
print(run.status, run["loss"].shape[0] > 1)
"""
    assert python(code).split() == ["horizon", "True"]


def test_pytorch_is_the_probes_alone():
    for file in sorted(SOURCE.rglob("*.py")):
        if file.parent != SOURCE / "probe":
            names = imports(ast.parse(file.read_text()), nested=True)
            assert not [name for name in names if name.split(".")[0] == "torch"], f"{file} imports torch"
    rooms = [*(room for floor in floors()[:8] for room in floor), "cli.app", "cli.probe", "probe.record"]
    code = "import sys, " + ", ".join(f"linnet.{room}" for room in rooms) + "; print(*sys.modules)"
    assert "torch" not in python(code).split()


def test_without_pytorch_the_probe_is_one_sentence():
    code = """
import sys
sys.modules["torch"] = None  # importing it is an ImportError
import linnet as ln
try: ln.probe.Probe
except ln.InputError as error: print(error)
print(ln.probe.read.__name__, hasattr(ln.probe, "nothing"))
"""
    told = "linnet.probe needs PyTorch: pip install 'linnet[torch]', or pip install torch.\nread False\n"
    assert python(code) == told


def test_the_version_is_one():
    root = SOURCE.parents[1]
    assert f"\nversion: {ln.__version__}\n" in (root / "CITATION.cff").read_text(encoding="utf-8")


def test_the_house_has_all_rooms():
    there = {path.name.removesuffix(".py") for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert sorted(room for floor in floors() for room in floor) == sorted(
        there - {"__init__", "__main__", "__pycache__"}
    )


def test_rooms_stand_on_the_floors_below():
    house = floors()
    assert len(house) == 14
    for level, rooms in enumerate(house):
        below = {room for floor in house[level + 1 :] for room in floor}
        for room in rooms:
            for file in files(room):
                tree = ast.parse(file.read_text())
                for name in Counter(imports(tree, nested=True)) - through_the_door(tree):
                    parts = name.split(".")
                    if parts[0] == "linnet" and len(parts) > 1:
                        assert parts[1] in below | {room}, f"{file} of floor {level} imports {name}"


def test_every_public_name_exists_and_is_documented():
    for name in ln.__all__:
        thing = getattr(ln, name)
        if not name.startswith("__"):
            assert thing.__doc__, f"{name} has no docstring"
    for name in ln.observe.__all__:
        thing = getattr(ln.observe, name)
        assert thing.text if isinstance(thing, ln.observe.Observable) else thing.__doc__, f"{name} has no docstring"


def test_unknown_names_are_attribute_errors():
    assert not hasattr(ln, "no_such_thing")
    assert ln.simulate is not None
    assert callable(ln.simulate)


def test_the_reference_lists_every_public_name():
    text = (SOURCE.parents[1] / "docs" / "reference.md").read_text()
    for name in ln.__all__:
        if name not in (
            "__version__",
            "claims",
            "data",
            "dynamics",
            "experiments",
            "lab",
            "observe",
            "predict",
            "probe",
            "reproduction",
            "sweep",
            "theory",
        ):
            assert f".{name}\n" in text, f"{name} is missing in docs/reference.md"
    for name in ln.observe.__all__:
        thing = getattr(ln.observe, name)
        if isinstance(thing, ln.observe.Observable):
            assert f"| `{name}` | {thing.text.replace('|', '&#124;')} |" in text
        elif name != "named":
            assert f".{name}\n" in text
    for name in ln.data.__all__:
        assert f"::: linnet.data.{name}\n" in text
    for name in ln.lab.__all__:
        assert f"::: linnet.lab.{name}\n" in text
    for name in ln.probe.__all__:
        assert f"::: linnet.probe.{name}\n" in text
    for name in ln.dynamics.__all__:
        if callable(getattr(ln.dynamics, name)) and name != "Map":
            assert f"::: linnet.dynamics.{name}\n" in text


def test_the_reference_lists_every_prediction():
    text = (SOURCE.parents[1] / "docs" / "reference.md").read_text()
    for name in ln.predict.__all__:
        assert f".{name}\n" in text, f"{name} is missing in docs/reference.md"


def test_functions_and_files_stay_short():
    for file in sorted(SOURCE.rglob("*.py")):
        room = file.relative_to(SOURCE).parts[0]
        text = file.read_text()
        assert room != "predict" or text.count("\n") <= 350, f"{file} has {text.count(chr(10))} lines"
        for node in ast.walk(ast.parse(text)) if room not in ("claims", "experiments") else ():
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 80, f"{node.name} in {file} is too long"
