"""What claims and experiments are about: the papers, and what users bring in files and packages of their own."""

import contextlib
import difflib
import functools
import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, TypeVar

from linnet._check import InputError

GROUP = "linnet.claims"
_TAKEN = ("top", "machine")  # the places of the page that are no subject
_T = TypeVar("_T")


@dataclass(frozen=True)
class Subject:
    """What ids such as `mixed/C6` begin with: a paper, or a work of the user's own.

    `source` is the file or module that declares it; None for the papers, and where no file was read.
    """

    name: str
    title: str
    short: str
    authors: str = ""
    source: str | None = None


@dataclass(frozen=True)
class _Source:
    typed: str
    asked: bool  # by name; installed packages come by themselves
    files: tuple[str, ...] = ()
    fingerprint: str = ""


PAPERS = {
    paper.name: paper
    for paper in (  # authors as the texts that we read name them
        Subject(
            "mixed",
            "Mixed Dynamics In Linear Networks: Unifying the Lazy and Active Regimes",
            "Mixed dynamics",
            "Zhenfeng Tu, Santiago Aranguri, Arthur Jacot",
        ),
        Subject(
            "spectral",
            "On the spectral bias of two-layer linear networks",
            "Spectral bias",
            "Aditya Varre, Maria-Luiza Vladarean, Loucas Pillaud-Vivien, Nicolas Flammarion",
        ),
        Subject(
            "nonlocal",
            "Training Linear Neural Networks: Non-Local Convergence and Complexity Results",
            "Non-local convergence",
            "Armin Eftekhari",
        ),
        Subject(
            "stability",
            "Learning Dynamics of Deep Matrix Factorization Beyond the Edge of Stability",
            "Edge of stability",
            "Anonymous in the version read here, under double-blind review",
        ),
        Subject(
            "feature",
            "Exact and Rich Feature Learning Dynamics of Two-Layer Linear Networks",
            "Feature learning",
            "Wei Huang, Wuyang Chen, Zhiqiang Xu, Zhangyang Wang, Taiji Suzuki",
        ),
        Subject(
            "balance",
            "From Lazy to Rich: Exact Learning Dynamics in Deep Linear Networks",
            "Balance",
            "Clementine C. J. Domine, Nicolas Anguita, Alexandra M. Proca, Lukas Braun, Daniel Kunin, "
            "Pedro A. M. Mediano, Andrew M. Saxe",
        ),
        Subject(
            "optimizers",
            "Beyond gradient descent: momentum, decay, noise, Adam and Muon on linear networks",
            "Optimizers",
            "No paper: what Cohen et al. (2021, 2022) state of momentum and Adam, and what is derived here",
        ),
        Subject(
            "flows",
            "Flows at the edge of stability: central flow, rod, and mini-batches on linear networks",
            "Flows at the edge",
            "No paper: the central flow is that of Cohen, Damian et al. (2025); what is derived here",
        ),
    )
}

_REGISTRIES: list[dict[str, Any]] = []
_SOURCES: dict[str, _Source] = {}
_reading: str | None = None


def enlist(kept: dict[str, _T]) -> dict[str, _T]:
    """Makes a dictionary one of those that files register in: a file that breaks leaves nothing in them."""
    _REGISTRIES.append(kept)
    return kept


_OWN: dict[str, Subject] = enlist({})


def subjects() -> dict[str, Subject]:
    """The papers, then the subjects that users have declared."""
    return {**PAPERS, **_OWN}


def import_papers(package: str, modules: Mapping[str, Iterable[str]], papers: Collection[str] | None) -> None:
    """Imports the modules of these papers (None: of all), which register their claims or experiments, and what
    installed packages bring.
    """
    for paper, names in modules.items():
        if papers is None or paper in papers:
            for name in names:
                importlib.import_module(f"{package}.{name}")
    installed()


def subject(name: str, title: str, *, authors: str = "") -> Subject:
    """Declares a subject of one's own: ids of claims and experiments may then begin with its name.

    `title` and `authors` are what lists and pages show.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name in _TAKEN:
        raise InputError(
            f"name = {name!r} is not allowed: a subject's name must be small letters, digits and _, a letter first"
            f", and not {' or '.join(_TAKEN)}."
        )
    if name in subjects():
        raise InputError(f"name = {name!r} is not allowed: there is a subject of this name, {subjects()[name].title}.")
    if not title.strip():
        raise InputError(f"title = {title!r} is not allowed: {name} needs a title.")
    _OWN[name] = Subject(name, title, name, authors, _reading)
    return _OWN[name]


def admit(id: str, pattern: str, form: str, registered: Iterable[str]) -> None:  # noqa: A002
    """Refuses an id that is malformed, taken, or of a subject that the file being read has not declared."""
    name, _, rest = str(id).partition("/")
    known = subjects()
    if name not in known or not re.fullmatch(pattern, rest):
        raise InputError(
            f"{id!r} is no id: use <subject>/{form} with one of the subjects {', '.join(known)}, or declare one by"
            " linnet.claims.subject(name, title)."
        )
    if _reading is not None and known[name].source != _reading:
        raise InputError(f"{id!r} is not allowed: {name} is declared elsewhere; declare a subject of your own.")
    if id in registered:
        raise InputError(f"{id} is registered twice.")


def place(id: str) -> int:  # noqa: A002
    """Where the subject of an id stands in their order."""
    return list(subjects()).index(id.split("/")[0])


def unknown(what: str, name: str, known: Iterable[str]) -> InputError:
    """Error for an unknown name, with suggestions."""
    there = list(known)
    same = [other for other in there if other.lower() == name.lower()]
    near = same or difflib.get_close_matches(name, there, n=3, cutoff=0.6)
    meant = f"did you mean {' or '.join(near)}?" if near else "linnet list shows what there is."
    return InputError(f"{what} = {name!r} is not known: {meant}")


# Files and packages of users ------------------------------------------------------------------------------------------


def load(source: str) -> list[str]:
    """Registers the claims and experiments of a Python file or an installed module, once; gives its subjects' names.

    `source` is the path of the file or the name of the module.
    """
    return _load(source, asked=True)


@functools.cache
def installed() -> None:
    """Registers what installed packages bring: modules named by entry points of the group `linnet.claims`."""
    for point in entry_points(group=GROUP):
        try:
            _load(point.module, asked=False)
        except InputError as error:
            package = point.dist.name if point.dist is not None else point.module
            raise InputError(f"the installed package {package} cannot be used: {error}") from None


def sources() -> dict[str, str]:
    """The files and modules that were loaded by name, as they are and as they were typed."""
    return {name: source.typed for name, source in _SOURCES.items() if source.asked}


def reload(own: Mapping[str, str]) -> None:
    """Loads in another process what `sources` gave in the first."""
    for name, written in own.items():
        _load(name, asked=True, written=written)


def typed(name: str) -> str | None:
    """What `--from` needs for a subject; None if it is there without."""
    source = _SOURCES.get(subjects()[name].source or "")
    return source.typed if source is not None and source.asked else None


def fingerprint(name: str) -> str | None:
    """A short hash of the code that a subject comes from; None for the papers, whose code has a version."""
    source = subjects()[name].source if name in subjects() else None
    return None if source is None else _SOURCES[source].fingerprint


@contextlib.contextmanager
def blamed(id: str) -> Iterator[None]:  # noqa: A002
    """What goes wrong inside, in the code of a user's claim or experiment, is one sentence with its file and line."""
    declared = subjects().get(id.split("/")[0])
    if declared is None or declared.source is None:
        yield
        return
    try:
        yield
    except Exception as error:
        raise InputError(f"{id}: {_where(error, _SOURCES[declared.source])}") from None


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Subjects declared inside are forgotten after it: pages and tests leave nothing to each other."""
    before, read = set(_OWN), set(_SOURCES)
    try:
        yield
    finally:
        _forget(set(_OWN) - before)
        for name in set(_SOURCES) - read:
            del _SOURCES[name]


def _forget(names: Collection[str]) -> None:
    for registry in _REGISTRIES:
        for key in [key for key in registry if key.split("/")[0] in names]:
            del registry[key]


def _load(source: str, *, asked: bool, written: str | None = None) -> list[str]:
    global _reading
    written = written or source
    file = Path(source)
    is_file = file.suffix == ".py" or file.is_file()
    name = str(file.resolve()) if is_file else source
    if name not in _SOURCES:
        found = (name if file.is_file() else None) if is_file else _origin(source)
        if found is None:
            what = "there is no such file" if is_file else "it is neither a Python file nor an installed module"
            raise InputError(f"from = {source!r} is not allowed: {what}.")
        outer = _reading
        _SOURCES[name], _reading = _Source(written, asked, (found,)), name
        try:
            module = _run_file(file.resolve()) if is_file else importlib.import_module(source)
            files = tuple(_files(module, beside=is_file))
            _SOURCES[name] = _Source(written, asked, files, _hash(files))
            stated = [key for registry in _REGISTRIES for key in registry if "/" in key]
            if not any(key.split("/")[0] in _declared(name) for key in stated):
                raise InputError(f"from = {source!r} is not allowed: it registers no claim and no experiment.")
        except Exception as error:
            _forget(_declared(name))
            tried = _SOURCES.pop(name)
            if isinstance(error, InputError) and str(error).startswith("from = "):
                raise
            raise InputError(_where(error, tried)) from None
        finally:
            _reading = outer
    return _declared(name)


def _declared(source: str) -> list[str]:
    return [own.name for own in _OWN.values() if own.source == source]


def _origin(module: str) -> str | None:
    """The file of an installed module."""
    try:
        spec = importlib.util.find_spec(module)
    except Exception:  # of the packages above it, which are imported to find it
        return None
    return None if spec is None else spec.origin


def _run_file(file: Path) -> ModuleType:
    """Runs a file as a module; what lies beside it can be imported, as in `python mine.py`."""
    name = f"linnet_from_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _files(module: ModuleType, *, beside: bool) -> list[str]:
    """The Python files of a user's code that were imported: those beside a file, or all of a module's package."""
    own = str(module.__file__)
    package = module.__name__.split(".")[0]
    found = {own}
    for name, other in list(sys.modules.items()):
        file = getattr(other, "__file__", None)
        near = Path(file).parent == Path(own).parent if beside and file else name.split(".")[0] == package
        if file and near and file.endswith(".py"):
            found.add(file)
    return sorted(found)


def _hash(files: Iterable[str]) -> str:
    return hashlib.sha256(b"\0".join(Path(file).read_bytes() for file in files)).hexdigest()[:16]


def _where(error: Exception, source: _Source) -> str:
    """What went wrong, with the last line of the user's own code that led there."""
    file, line = None, None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename in source.files:
            file, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    words = str(error).strip().split("\n")[0]
    if isinstance(error, SyntaxError):
        file, line, words = error.filename or file, error.lineno, f"{error.msg}."
    elif not isinstance(error, InputError):
        words = f"{type(error).__name__}: {words}" if words else f"{type(error).__name__}."
    shown = source.typed if file is None or Path(file).name == Path(source.typed).name else file
    return f"{shown}, line {line}: {words}" if line is not None else f"{shown}: {words}"
