"""What importing and installing promise."""

import ast
import functools
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import linnet as ln

SOURCE = Path(ln.__file__).parent
CORE = (
    "_check",
    "_compiler",
    "_input",
    "_random",
    "_update",
    "linalg",
    "data",
    "problems",
    "states",
    "init",
    "optim",
    "outcome",
    "record",
    "curves",
    "simulation",
    "trajectory",
    "observe",
    "maps",
    "theory",
)
ALLOWED = {"numpy", "scipy", "jax", "equinox", "diffrax", "optimistix", "jaxtyping", "linnet"}
MAP = (SOURCE.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")


def layers():
    """The packages of each layer, the top one first, as the block in the documentation lists them."""
    (block,) = re.findall(r"```text\n(cli .*?)```", MAP, flags=re.DOTALL)
    return [re.split(r"  +", line)[:-1] for line in block.splitlines()]


def python(code):
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def files(package):
    path = SOURCE / package
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


@functools.cache
def parsed(file):
    return ast.parse(file.read_text(encoding="utf-8"))


def imports(tree, *, nested):
    nodes = ast.walk(tree) if nested else tree.body
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield from (f"linnet.{a.name}" for a in node.names) if module == "linnet" else [module]


def lazy_imports(tree):
    """What methods called `plot`, `animate`, and `report` import from the packages above that they are named for."""
    packages = {"plot": "plot", "animate": "plot", "report": "report"}
    methods = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in packages]
    inside = [(packages[node.name], name) for node in methods for name in imports(node, nested=True)]
    return Counter(name for package, name in inside if name.split(".")[:2] == ["linnet", package])


def test_import_is_light():
    loaded = python("import sys, linnet; print(' '.join(sys.modules))").split()
    for heavy in ("jax", "matplotlib", "xarray", "zarr", "typer", "rich", "torch", "pandas", "pooch", "urllib.request"):
        assert heavy not in loaded
    assert not {"pooch", "requests", "sklearn"} & {*python("import sys, linnet.data; print(*sys.modules)").split()}
    used = python(
        "import sys, linnet as ln; ln.simulate, ln.init.gaussian, ln.observe; print(' '.join(sys.modules))"
    ).split()
    for heavy in ("matplotlib", "xarray", "zarr", "typer", "rich", "torch", "pandas", "matfree"):
        assert heavy not in used


def test_what_a_prediction_does_not_need_loads_when_it_is_used():
    code = "import sys, linnet.prediction, linnet as ln; ln.optim.SGD; print(*sys.modules)"
    loaded = python(code).split()
    assert "linnet.prediction.theories.phase" in loaded
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
    for package in CORE:
        for file in files(package):
            for name in imports(parsed(file), nested=False):
                top = name.split(".")[0]
                assert top in ALLOWED or top in sys.stdlib_module_names, f"{file.name} imports {name}"


def test_the_core_works_without_the_libraries_of_other_packages():
    readme = (SOURCE.parents[1] / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^pip install --no-deps \. && pip install (.*)$", readme, flags=re.MULTILINE)
    assert {*line.split(), "linnet"} == ALLOWED
    packages = ", ".join(f"linnet.{package}" for package in CORE)
    code = f"""
import sys
blocked = "matplotlib rich typer pydantic xarray zarr jinja2 matfree pandas sklearn".split()
sys.modules.update(dict.fromkeys(blocked))  # None: importing them is an ImportError
import {packages}
import linnet as ln
problem = ln.factorization([[2.0, 0.0], [0.0, 1.0]])
state = ln.init.i_gamma(problem, gamma=0.1)
run = ln.simulate(problem, state, ln.optim.GradientFlow(), time=1.0, observe=["loss", "modes"])
print(run.status, run["loss"].shape[0] > 1)
"""
    assert python(code).split() == ["horizon", "True"]


def test_one_figure_imports_no_claims_and_no_figures_of_other_papers():
    code = "import sys; from linnet import reproduction; from linnet.experiments import find; find(['feature/fig1'])"
    loaded = python(f"{code}; print(*sys.modules)").split()
    parts = [name.split(".") for name in loaded if name.startswith(("linnet.experiments.", "linnet.claims."))]
    assert sorted(parts) == [
        ["linnet", "claims", "claim"],
        ["linnet", "experiments", "experiment"],
        ["linnet", "experiments", "feature"],
    ]


def test_pytorch_is_the_probes_alone():
    for file in sorted(SOURCE.rglob("*.py")):
        if file.parent != SOURCE / "probe":
            names = imports(parsed(file), nested=True)
            assert not [name for name in names if name.split(".")[0] == "torch"], f"{file} imports torch"
    above = [package for layer in layers()[:8] for package in layer]
    names = ", ".join(f"linnet.{name}" for name in (*above, "cli.app", "cli.probe", "probe.record"))
    code = f"import sys, {names}; print(*sys.modules)"
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


def test_the_map_lists_every_package():
    there = {path.name.removesuffix(".py") for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()}
    listed = sorted(package for layer in layers() for package in layer)
    assert listed == sorted(there - {"__init__", "__main__", "__pycache__"})


def test_packages_import_only_from_the_layers_below():
    order = layers()
    assert len(order) > 10
    for level, packages in enumerate(order):
        below = {package for layer in order[level + 1 :] for package in layer}
        for package in packages:
            for file in files(package):
                tree = parsed(file)
                for name in Counter(imports(tree, nested=True)) - lazy_imports(tree):
                    parts = name.split(".")
                    if parts[0] == "linnet" and len(parts) > 1:
                        assert parts[1] in below | {package}, f"{file} of layer {level} imports {name}"


@functools.cache
def public_names(package):
    """What the `__all__` of a package lists, nothing where there is none."""
    tree = parsed(SOURCE / package / "__init__.py")
    lists = [
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    return set(ast.literal_eval(lists[0])) if lists else set()


def reach_past(tree, own):
    """Imports that go past the public names of other packages and modules: names without an underscore in front, of a
    package those in its `__all__` or of a module that this lists.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names if alias.name.startswith("linnet.")]
            yield from (name for name in modules if name.count(".") > 1 and name.split(".")[1] != own)
        if not isinstance(node, ast.ImportFrom):
            continue
        first, *parts = (node.module or "").split(".")
        if first != "linnet" or not parts or parts[0] == own:
            continue
        names = {alias.name for alias in node.names}
        hidden = {name for name in names if re.match("_[^_]", name)}
        if (SOURCE / parts[0]).is_dir() and (SOURCE / parts[0] / "__init__.py").exists():
            public = public_names(parts[0])
            if len(parts) == 1:
                hidden |= names - public
            elif len(parts) > 2 or parts[1] not in public:
                hidden |= names
        yield from (f"{node.module}.{name}" for name in sorted(hidden))


def test_packages_import_public_names_of_others():
    """The rule of docs/architecture.md, nested imports included."""
    for file in sorted(SOURCE.rglob("*.py")):
        own = file.relative_to(SOURCE).parts[0].removesuffix(".py")
        found = list(reach_past(parsed(file), own))
        assert not found, f"{file} imports {found}"


@pytest.mark.parametrize(
    "code",
    [
        "from linnet.prediction.theories.phase_run import plane",
        "from linnet.observe.hessian import hessian_product",
        "from linnet.theory.mixed import _table",
        "from linnet.sweep import cluster",
        "from linnet.sweep.cluster import connect",
        "from linnet.linalg import _small",
        "import linnet.optim.flow",
        "def nested():\n    from linnet.optim.flow import Flow",
    ],
)
def test_an_import_past_public_names_is_found(code):
    assert list(reach_past(ast.parse(code), "lab"))


@pytest.mark.parametrize(
    "code",
    [
        "from linnet.theory import mixed",
        "from linnet.theory.mixed import Phase",
        "from linnet.sweep import connect",
        "from linnet.linalg import product",
        "from linnet._check import InputError",
        "from linnet.lab.view import _shown",
        "import linnet as ln",
    ],
)
def test_an_import_of_public_names_is_not(code):
    assert not list(reach_past(ast.parse(code), "lab"))


def test_no_submodule_is_hidden_by_a_name_of_its_package():
    code = """
import importlib, pkgutil, types, linnet
for info in pkgutil.walk_packages(linnet.__path__, "linnet."):
    parent, _, name = info.name.rpartition(".")
    if "torch" in info.name or info.name.startswith(("linnet.probe.", "linnet.lab.", "linnet.__main__")): continue
    package = importlib.import_module(parent)
    importlib.import_module(info.name)
    if not isinstance(getattr(package, name), types.ModuleType): print(info.name)
"""
    assert python(code).split() == []


def test_classes_have_names_of_their_own():
    """Private ones aside."""
    places = {}
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(file.relative_to(SOURCE).as_posix())
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


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
            "init",
            "maps",
            "networks",
            "optim",
            "problems",
            "record",
            "states",
            "curves",
            "experiments",
            "lab",
            "observe",
            "prediction",
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
    for name in ln.maps.__all__:
        if callable(getattr(ln.maps, name)) and name != "Map":
            assert f"::: linnet.maps.{name}\n" in text


def test_the_reference_lists_every_prediction():
    text = (SOURCE.parents[1] / "docs" / "reference.md").read_text()
    for name in ln.prediction.__all__:
        assert f".{name}\n" in text, f"{name} is missing in docs/reference.md"


def test_functions_and_files_stay_short():
    for file in sorted(SOURCE.rglob("*.py")):
        package = file.relative_to(SOURCE).parts[0]
        text = file.read_text()
        assert package != "prediction" or text.count("\n") <= 350, f"{file} has {text.count(chr(10))} lines"
        for node in ast.walk(parsed(file)) if package not in ("claims", "experiments") else ():
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 80, f"{node.name} in {file} is too long"


@pytest.mark.slow
def test_the_tests_run_without_pytests_cache():
    options = ["-p", "no:cacheprovider", "-n0", "--collect-only", "-q", "tests/test_release.py"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    root = SOURCE.parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options], cwd=root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
