"""What importing and installing promise."""

import ast
import subprocess
import sys
from pathlib import Path

import linnet as ln

SOURCE = Path(ln.__file__).parent
CORE = (
    "_check",
    "linalg",
    "problems",
    "states",
    "initial",
    "motion",
    "record",
    "simulation",
    "trajectory",
    "observe",
    "dynamics",
    "theory",
)
ALLOWED = {"numpy", "scipy", "jax", "equinox", "diffrax", "optimistix", "jaxtyping", "linnet"}
# the road: a room may import only rooms before it
ROAD = [
    "_version",
    "_check",
    "_pool",
    "linalg",
    "dynamics",
    "problems",
    "states",
    "initial",
    "motion",
    "record",
    "observe",
    "trajectory",
]
ROAD += ["simulation", "theory", "claims", "sweep", "plot", "experiments", "report", "cli"]


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


def test_import_is_light():
    loaded = python("import sys, linnet; print(' '.join(sys.modules))").split()
    for heavy in ("jax", "matplotlib", "xarray", "zarr", "typer", "rich", "torch", "pandas"):
        assert heavy not in loaded
    used = python(
        "import sys, linnet as ln; ln.simulate, ln.gaussian, ln.observe; print(' '.join(sys.modules))"
    ).split()
    for heavy in ("matplotlib", "xarray", "zarr", "typer", "rich", "torch", "pandas", "matfree"):
        assert heavy not in used


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


def test_rooms_look_only_back_along_the_road():
    for i, room in enumerate(ROAD):
        for file in files(room):
            for name in imports(ast.parse(file.read_text()), nested=True):
                parts = name.split(".")
                if parts[0] == "linnet" and len(parts) > 1:
                    assert parts[1] in ROAD[: i + 1], f"{file} looks ahead to {name}"


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
        if name not in ("__version__", "claims", "dynamics", "experiments", "observe", "sweep", "theory"):
            assert f".{name}\n" in text, f"{name} is missing in docs/reference.md"
    for name in ln.observe.__all__:
        thing = getattr(ln.observe, name)
        if isinstance(thing, ln.observe.Observable):
            assert f"| `{name}` | {thing.text.replace('|', '&#124;')} |" in text
        elif name != "named":
            assert f".{name}\n" in text
    for name in ln.dynamics.__all__:
        if callable(getattr(ln.dynamics, name)) and name != "Map":
            assert f"::: linnet.dynamics.{name}\n" in text
