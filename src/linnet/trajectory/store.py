"""Runs as files: a zarr group that xarray opens, with the states beside what was recorded.

    run.zarr/               the dataset of `to_xarray`: values, step, time, status (zarr format 2)
      .zattrs               "linnet": a JSON text with "format" 2, "checksum", the labels, and the trees of states
      final/layers.0 ...    the arrays of the final state, one for each leaf, named by its path
      memory/ past/         those of the optimizer's memory and of the observables' past
      checkpoints/ states/  those of the states that were stored
      end/                  the status' number, and the step or time of the end

A tree is null, {"array": path}, {"value": x}, {"tuple": [...]}, {"list": [...]}, {"dict": {...}}, or {"type": the
qualified name of a class, "fields": {...}}; what JSON cannot hold is {"unknown": a text}. Every chunk carries a
checksum and none is left out because it is empty, so that `load` finds what was changed or lost.
"""

import contextlib
import dataclasses
import importlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from linnet import _check, states
from linnet._check import InputError
from linnet._files import hushed, refusal
from linnet.outcome import Checkpoint
from linnet.trajectory.trajectory import Label, Trajectory

_FORMAT = 2
_REMEMBERING = ("optax", "linnet.optim", "linnet.observe")


@hushed()
def save(run: Trajectory, path: str | os.PathLike[str]) -> None:
    """Writes a run beside its place and then renames it into it; a run that was there is replaced."""
    import zarr
    from numcodecs import CRC32

    place = Path(path)
    if _check.traced(run):
        raise InputError("this run is being traced by JAX: save it outside of jit, vmap and grad.")
    if place.exists() and not _is_run(place):
        raise InputError(f"path = {str(path)!r} is not allowed: there is something else than a run.")
    building, old = (place.with_name(f".{place.name}.{os.getpid()}.{word}") for word in ("new", "old"))
    batch = {f"batch_{i}": np.arange(n) for i, n in enumerate(np.shape(run.code))}
    trees: dict[str, Any] = {}
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        dataset = run.to_xarray(**batch)
        codecs: Any = {"filters": [CRC32()]}
        options: Any = {"consolidated": False, "encoding": dict.fromkeys(dataset.variables, codecs)}
        dataset.to_zarr(building, mode="w", zarr_format=2, write_empty_chunks=True, **options)
        root = zarr.open_group(building, mode="r+", zarr_format=2)
        for name, tree in _parts(run).items():
            arrays: dict[str, np.ndarray] = {}
            trees[name] = _described(tree, "", arrays)
            group = root.require_group(name)
            for leaf, array in arrays.items():
                # empty chunks are written, because a zero that is left out comes back without its sign
                chunks = tuple(max(1, n) for n in array.shape)
                config: Any = {"write_empty_chunks": True}
                made = group.create_array(
                    leaf, shape=array.shape, dtype=array.dtype, chunks=chunks, config=config, **codecs
                )
                made[...] = array
        about = {"format": _FORMAT, "checksum": CRC32.codec_id, "labels": run.labels, "trees": trees}
        root.attrs["linnet"] = json.dumps(about)
        zarr.consolidate_metadata(building, zarr_format=2)
        if place.exists():
            place.rename(old)
        try:
            building.rename(place)
        except OSError:
            if old.exists():
                old.rename(place)  # what was there stays
            raise
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be written: {refusal(error)}.") from None
    finally:
        for leftover in (building, old):
            shutil.rmtree(leftover, ignore_errors=True)


@hushed()
def load(path: str | os.PathLike[str], *, like: Any = None) -> Trajectory:
    """The run that `run.save(path)` wrote, every bit of it.

    States of Linnet's own types and memories of optax's come back by themselves. For types of your own give `like`, a
    state (or any tree, such as a tuple of a state and a memory) in which they occur: it tells the classes, and what a
    file cannot hold, such as functions. Nothing in the file is executed.
    """
    import zarr

    from linnet._stores import FolderStore

    if not Path(path).exists():
        raise InputError(f"path = {str(path)!r} is not allowed: there is nothing.")
    if not _is_run(Path(path)):
        raise InputError(f"path = {str(path)!r} is not allowed: it is not a run that save wrote.")
    known = {_name(cls): cls for cls in map(states.__dict__.get, states.__all__) if isinstance(cls, type)}
    examples: dict[str, list[Any]] = {}
    _gather(like, examples)
    known |= {name: type(found[0]) for name, found in examples.items()}
    try:
        root: Any = zarr.open_group(FolderStore(Path(path)), mode="r", zarr_format=2)
        about = json.loads(root.attrs["linnet"])
        if about["format"] != _FORMAT:
            raise InputError(f"{str(path)!r} has format {about['format']}: this version of Linnet reads {_FORMAT}.")
        if "checksum" in about and (lost := [name for name, array in _arrays(root) if not _there(array)]):
            raise InputError(f"{str(path)!r} is damaged: files of {', '.join(lost)} are lost.")
        labels = tuple(Label(n, None if dims is None else tuple(dims), text) for n, dims, text in about["labels"])
        part = {name: _restored(tree, root[name], known, examples) for name, tree in about["trees"].items()}
        return Trajectory(
            values={label.name: _array(root[label.name]) for label in labels},
            steps=_array(root["step"]) if "step" in root else None,
            times=_array(root["time"]),
            labels=labels,
            checkpoints={title: Checkpoint(*values) for title, values in part.pop("checkpoints").items()},
            **part.pop("end"),
            **part,
        )
    except Exception as error:  # a damaged file is reason for anything
        if isinstance(error, InputError):
            raise
        raise InputError(f"{str(path)!r} is damaged: {type(error).__name__} while it was read.") from error


def _parts(run: Trajectory) -> dict[str, Any]:
    return {
        "final": run.final,
        "memory": run.memory,
        "past": run.past,
        "checkpoints": {title: tuple(checkpoint) for title, checkpoint in run.checkpoints.items()},
        "states": run.states,
        "end": {"code": run.code, "ended": run.ended},
    }


def _is_run(path: Path) -> bool:
    try:
        about = path / ".zattrs"
        return about.is_file() and "linnet" in json.loads(about.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _fields(node: Any) -> dict[str, Any] | None:
    """The fields of a module, dataclass or named tuple; None for other things."""
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        return {field.name: getattr(node, field.name) for field in dataclasses.fields(node)}
    return node._asdict() if isinstance(node, tuple) and hasattr(node, "_asdict") else None


def _functions(node: Any) -> set[str]:
    """The fields of a module that hold a function as a part of the program, whatever else it may carry."""
    fields = dataclasses.fields(node) if dataclasses.is_dataclass(node) else ()
    return {field.name for field in fields if field.metadata.get("static") and callable(getattr(node, field.name))}


def _described(node: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    """The JSON of a tree; its arrays are put into `arrays` by their paths."""
    if node is None:
        return None
    if eqx.is_array(node):
        if jnp.issubdtype(node.dtype, jax.dtypes.prng_key):
            raise InputError(f"{path} is a random key: keys cannot be saved; keep the seed instead.")
        arrays[path or "value"] = np.asarray(node)
        return {"array": path or "value"}

    def below(items: Any) -> dict[str, Any]:
        return {str(key): _described(value, f"{path}.{key}".lstrip("."), arrays) for key, value in items}

    fields = _fields(node)
    if fields is not None:
        apart = {name: {"unknown": _check.show(fields[name])} for name in _functions(node)}
        plain = below((name, value) for name, value in fields.items() if name not in apart)
        return {"type": _name(type(node)), "fields": plain | apart}
    if isinstance(node, tuple | list):
        return {type(node).__name__: list(below(enumerate(node)).values())}
    if isinstance(node, dict):
        return {"dict": below(node.items())}
    return {"value": node} if isinstance(node, bool | int | float | str) else {"unknown": _check.show(node)}


def _restored(tree: Any, group: Any, known: dict[str, type], examples: dict[str, list[Any]]) -> Any:
    """The tree of a description."""
    if tree is None:
        return None
    if "type" not in tree:
        ((kind, inner),) = tree.items()
        if kind == "array":
            return _array(group[inner])
        if kind == "value":
            return inner
        if kind == "dict":
            return {key: _restored(value, group, known, examples) for key, value in inner.items()}
        items = [_restored(value, group, known, examples) for value in inner]
        return tuple(items) if kind == "tuple" else items
    name = tree["type"]
    for package in _REMEMBERING:
        if name.startswith(f"{package}."):
            known = known | _remembered(package, name)
    if name not in known:
        raise InputError(f"the file holds a {name}: give load(path, like=...) an object that has one.")
    fields = {}
    for field, value in tree["fields"].items():
        if isinstance(value, dict) and "unknown" in value:
            if name not in examples:
                raise InputError(f"the file has no {field} of {name}: give load(path, like=...) an object that has it.")
            fields[field], *others = (getattr(example, field) for example in examples[name])
            if any(other != fields[field] for other in others):
                raise InputError(f"like has several {name} with another {field} each: the file cannot tell them apart.")
        else:
            fields[field] = _restored(value, group, known, examples)
    cls: Any = known[name]
    if issubclass(cls, tuple):
        return cls(**fields)
    made = object.__new__(cls)  # as JAX does: what was saved has been checked when it was made
    declared = {field.name: field.default for field in dataclasses.fields(cls)}
    if not declared.keys() >= fields.keys():
        raise InputError(
            f"the file gives a {name} fields that it does not have: {', '.join(fields.keys() - declared.keys())}."
        )
    earlier = {field: default for field, default in declared.items() if field not in fields}
    for field, value in (earlier | fields).items():
        object.__setattr__(made, field, value)
    return made


def _remembered(package: str, name: str) -> dict[str, type]:
    """One of the named tuples that optimizers, optax's transformations, and observables remember in; nothing else of a
    module, and no module is imported because a file names it.
    """
    module, _, cls = name.rpartition(".")
    with contextlib.suppress(ImportError):
        importlib.import_module(package)
    found = getattr(sys.modules.get(module), cls, None)
    return {name: found} if isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields") else {}


def _gather(node: Any, examples: dict[str, list[Any]]) -> None:
    """The examples of each type in a tree."""
    fields = _fields(node)
    if fields is not None:
        examples.setdefault(_name(type(node)), []).append(node)
    inner = fields.values() if fields is not None else node.values() if isinstance(node, dict) else node
    if isinstance(node, tuple | list | dict) or fields is not None:
        for value in inner:
            _gather(value, examples)


def _arrays(group: Any) -> list[tuple[str, Any]]:
    """All arrays of a group and of those below."""
    import zarr

    return [(name, member) for name, member in group.members(max_depth=None) if isinstance(member, zarr.Array)]


def _there(array: Any) -> bool:
    return array.size == 0 or array.nchunks_initialized == array.nchunks


def _array(stored: Any) -> Any:
    return jnp.asarray(stored[...])
