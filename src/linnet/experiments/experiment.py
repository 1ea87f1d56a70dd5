"""What an experiment is: a figure of a paper with its parameters, its run, its drawing, and its acceptance."""

import abc
import hashlib
import importlib
import inspect
import json
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar

import numpy as np
import xarray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo

from linnet import _check
from linnet._check import InputError
from linnet._files import dumps, placed, put, versions, writing
from linnet._schema import sentence
from linnet.claims import Finding
from linnet.papers import admit, blamed, enlist, fingerprint, import_papers, unknown
from linnet.papers import place as place_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = ("quick", "paper")
Progress = Callable[[int, int], None]
_STABILITY = ("orbits", "sharpness", "mild", "initialization", "balance", "landscape", "cross", "networks", "lora")
_MODULES = {  # of this package, by paper
    "mixed": ("mixed", "mixed_relu"),
    "spectral": ("spectral",),
    "nonlocal": ("landscape", "convergence", "convergence_lazy"),
    "stability": tuple(f"stability_{part}" for part in _STABILITY),
    "feature": ("feature",),
    "balance": ("balance",),
    "optimizers": ("optimizers",),
    "flows": ("flows", "flows_batches"),
}
_PAPER = {f"linnet.experiments.{module}": paper for paper, modules in _MODULES.items() for module in modules}
_T = TypeVar("_T")
_REGISTRY: dict[str, type["Experiment"]] = enlist({})


def _ordered(values: tuple[Any, ...], info: ValidationInfo, *, reverse: bool) -> tuple[Any, ...]:
    if list(values) != sorted(set(values), reverse=reverse):
        raise ValueError(f"{info.field_name} = {values} must {'descend' if reverse else 'ascend'}")
    return values


# types of fields: numbers in order, without repetition
Ascending = Annotated[tuple[_T, ...], AfterValidator(partial(_ordered, reverse=False))]
Descending = Annotated[tuple[_T, ...], AfterValidator(partial(_ordered, reverse=True))]


def tracked(items: Sequence[_T], progress: Progress) -> Iterator[_T]:
    """The items one by one; `progress` gets the number of those that are done, and of all."""
    for done, item in enumerate(items):
        progress(done, len(items))
        yield item


def along(
    axis: str,
    items: Sequence[_T],
    measure: Callable[[_T], Mapping[str, Any] | xarray.Dataset],
    progress: Progress = lambda done, total: None,
) -> xarray.Dataset:
    """What `measure` returns for each item along a new first axis, which has the items as its coordinate.

    `measure` returns (dims, values) or (dims, values, attributes) by name; or a dataset, perhaps along another axis.
    """
    measured: list[Any] = [measure(item) for item in tracked(items, progress)]
    variables = {}
    for name in measured[0]:
        parts = [xarray.as_variable(each[name]) for each in measured]
        variables[name] = ((axis, *parts[0].dims), np.stack([part.values for part in parts]), parts[0].attrs)
    return xarray.Dataset(variables, coords={axis: list(items), **getattr(measured[0], "coords", {})})


class Experiment(BaseModel):
    """A figure of a paper. The fields of a subclass are its parameters and their defaults the paper's; its docstring is
    the caption.

    A subclass with a title is registered. Its id is by default the paper and the rest of the name of the class, and its
    place the figure: `SpectralFig1b` of `linnet.experiments.spectral` is "spectral/fig1b", "Figure 1b".

    `run` computes a labeled dataset, `draw` makes the figure of it and `accept` says what must hold of it, by name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    id: ClassVar[str]
    place: ClassVar[str]
    title: ClassVar[str]
    quick: ClassVar[Mapping[str, Any]]
    minutes: ClassVar[Mapping[str, float]]  # on two cores, by size

    seed: int = Field(default=0, ge=0, lt=2**63, description="Seed of everything random.")

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        own, paper = vars(cls), _PAPER.get(cls.__module__, "")
        name = cls.__name__.removeprefix(paper.capitalize())
        figure = re.fullmatch(r"Fig(\d+[a-z]?)", name)
        if "id" not in own and paper and "title" in own:
            cls.id = f"{paper}/{name.lower()}"
        if "place" not in own and figure:
            cls.place = f"Figure {figure[1]}"
        if "id" not in vars(cls):  # what several figures share
            return
        admit(cls.id, r"[a-z][a-z0-9]*", "<figure>", _REGISTRY)
        for name in ("place", "title", "quick", "minutes"):
            if not hasattr(cls, name):
                raise InputError(f"{cls.id} lacks {name}: every experiment has place, title, quick and minutes.")
        _REGISTRY[cls.id] = cls

    @abc.abstractmethod
    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        """The data, by so many processes. Long runs keep what is finished in `folder`, under names that begin with
        "data", and go on from there.
        """

    @property
    def shared(self) -> bool:
        """Whether `run` makes good use of several processes; others run side by side, each on a core."""
        return False

    def missing(self) -> str | None:
        """What this machine lacks for it, as a sentence with the cure; None if nothing."""
        return None

    def draw(self, data: xarray.Dataset) -> "Figure":
        """The figure.

        An experiment of `linnet.experiments` is drawn by the function of `linnet.plot` with the same module name and
        the second part of its id: `spectral/fig1b` by `linnet.plot.spectral.fig1b(data, lr, ...)`. Its parameters
        after the data name attributes of the experiment; methods among them are called with the data. Experiments
        elsewhere define `draw` themselves.
        """
        package, name = __name__.rpartition(".")[0], type(self).__module__
        if not name.startswith(f"{package}."):
            raise NotImplementedError(f"{_id(self)} must define draw.")
        function = getattr(importlib.import_module(name.replace(package, "linnet.plot", 1)), _id(self).split("/")[1])
        values = {key: getattr(self, key) for key in list(inspect.signature(function).parameters)[1:]}
        return function(data, **{key: value(data) if callable(value) else value for key, value in values.items()})

    @abc.abstractmethod
    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        """What must hold of the data."""

    @classmethod
    def of_size(cls, size: str, changes: Mapping[str, Any]) -> Self:
        """The experiment at a preset size, with some fields changed."""
        _check.choice("size", size, SIZES)
        unknown = [name for name in changes if name not in cls.model_fields]
        if unknown:
            raise InputError(f"{unknown[0]} is not known: {cls.id} has {', '.join(cls.model_fields)}.")
        try:
            return cls(**{**(cls.quick if size == "quick" else {}), **changes})
        except ValidationError as error:
            raise InputError(f"{cls.id}: {sentence(error)}") from None

    def versions(self) -> dict[str, str]:
        """What the data depend on besides parameters: versions, and the code of an experiment of the user's own."""
        subject = _id(self).split("/")[0]
        own = fingerprint(subject)
        return {**versions(), **({} if own is None else {subject: own})}

    @property
    def at_paper_size(self) -> bool:
        """Whether all parameters but the seed are the paper's."""
        return self.model_copy(update={"seed": 0}) == type(self)()

    def data(self, folder: Path, progress: Progress, *, workers: int = 1) -> tuple[xarray.Dataset, bool]:
        """The dataset in `folder` if it was made with these parameters, else a new one; and whether it was there."""
        store, file, mark = folder / "data.zarr", folder / "data.nc", folder / "parameters.json"
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        wanted = json.loads(json.dumps({"parameters": self.model_dump(), "versions": self.versions()}))
        there = _read(mark)
        digest = there.pop("data", None)
        ours = there == wanted
        if not ours:
            with writing(folder):
                mark.unlink(missing_ok=True)  # first: data without its mark belongs to nobody
                for leftover in (*folder.glob("data*"), folder / "result.json"):  # by name: others may keep files here
                    shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink(missing_ok=True)
            put(mark, dumps(wanted))
        elif (found := _whole(file, digest)) is not None:
            return found, True
        whole = (folder / "result.json").exists() and not file.exists()
        with blamed(_id(self)):
            progress(0, 1)
            made = self.run(folder, progress, workers)
            progress(1, 1)
        if not store.exists():
            with placed(file) as partial:
                made.to_netcdf(partial, engine="scipy")
            put(mark, dumps({**wanted, "data": _digest(file)}))
        return made, ours and whole


def _read(mark: Path) -> dict[str, Any]:
    """What the mark says; nothing if there is none, or a damaged one."""
    try:
        found = json.loads(mark.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _whole(file: Path, digest: Any) -> xarray.Dataset | None:
    """The dataset of a file; None if there is none, or not the one whose digest was noted."""
    if not file.exists() or digest not in (None, _digest(file)):
        return None
    try:
        with xarray.open_dataset(file, engine="scipy") as found:
            return found.load()
    except Exception:  # a damaged file is reason for anything
        return None


def _id(experiment: Experiment) -> str:
    """Its id; one that is not registered has none."""
    return getattr(type(experiment), "id", "")


def experiments(papers: Collection[str] | None = None) -> dict[str, type[Experiment]]:
    """All experiments by id, or those of some papers, whose modules alone are imported: the papers in their order, then
    users' own subjects.
    """
    import_papers("linnet.experiments", _MODULES, papers)
    names = (name for name in _REGISTRY if papers is None or name.split("/")[0] in papers)
    return {name: _REGISTRY[name] for name in sorted(names, key=_order)}


def _order(name: str) -> tuple[int, list[Any]]:
    figure = name.split("/")[1]
    return place_of(name), [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", figure)]


def find(ids: Sequence[str]) -> list[type[Experiment]]:
    """The experiments with these ids; all of them if none are given."""
    known = experiments({name.split("/")[0] for name in ids} or None)
    for name in ids:
        if name not in known:
            raise unknown("id", name, experiments())
    return [known[name] for name in dict.fromkeys(ids)] if ids else list(known.values())
