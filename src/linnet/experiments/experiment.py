"""What an experiment is: a figure of a paper with its parameters, its run, its picture and its acceptance."""

import abc
import hashlib
import importlib
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import xarray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from linnet import _check
from linnet._check import InputError
from linnet._files import dumps, placed, put, versions, writing
from linnet._part import sentence
from linnet.claims import Finding
from linnet.claims.papers import admit, blamed, enlist, fingerprint, installed, unknown
from linnet.claims.papers import place as place_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = ("quick", "paper")
Progress = Callable[[int, int], None]
_REGISTRY: dict[str, type["Experiment"]] = enlist({})


class Experiment(BaseModel):
    """A figure of a paper. The fields of a subclass are its parameters and their defaults the paper's; its docstring is
    the caption.

    `run` computes a labelled dataset, `draw` makes the figure of it and `accept` says what must hold of it, by name.
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

    @abc.abstractmethod
    def draw(self, data: xarray.Dataset) -> "Figure":
        """The figure."""

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
            made = self.run(folder, progress, workers)
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


def experiments() -> dict[str, type[Experiment]]:
    """All experiments by id: those of the papers in their order, then those of users."""
    edge = ("orbits", "sharpness", "mild", "starts", "balance", "landscape", "cross", "networks", "lora")
    subjects = (
        "mixed",
        "spectral",
        "landscape",
        "convergence",
        *(f"stability_{part}" for part in edge),
        "feature",
        "balance",
        "optimisers",
    )
    for subject in subjects:
        importlib.import_module(f"linnet.experiments.{subject}")  # they register themselves
    installed()
    return {name: _REGISTRY[name] for name in sorted(_REGISTRY, key=_order)}


def _order(name: str) -> tuple[int, list[Any]]:
    figure = name.split("/")[1]
    return place_of(name), [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", figure)]


def find(ids: Sequence[str]) -> list[type[Experiment]]:
    """The experiments with these ids; all of them if none are given."""
    known = experiments()
    for name in ids:
        if name not in known:
            raise unknown("id", name, known)
    return [known[name] for name in dict.fromkeys(ids)] if ids else list(known.values())
