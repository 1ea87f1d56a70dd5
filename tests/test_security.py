"""Hostile stores and saved runs are refused or read as numbers, and nothing in them runs."""

import json
import os
import pickle
import shutil
import sys

import numcodecs
import numpy as np
import pytest
import zarr

import linnet as ln
from linnet import sweep
from linnet.sweep.place import located
from linnet.sweep.store import Store

PROBLEM = ln.factorization(np.diag([2.0, 1.0]))


CALLED = []


def attack():
    """What nobody who reads a file wants to happen."""
    CALLED.append("attack")


class Call:
    """What a pickle may hold: a function that is called when it is read."""

    def __reduce__(self):
        return attack, ()


@pytest.fixture
def attacked(monkeypatch):
    """The calls of the attack, which works where nothing prevents it: some versions of numcodecs unpickle anything."""
    monkeypatch.setattr(numcodecs.pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)
    CALLED.clear()
    pickle.loads(pickle.dumps(Call()))
    assert CALLED.pop() == "attack"
    return CALLED


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A run in a folder."""
    place = tmp_path_factory.mktemp("saved") / "run.zarr"
    network = ln.init.gaussian(0, PROBLEM, 3, 0.01)
    ln.simulate(PROBLEM, network, ln.optim.SGD(0.1, momentum=0.5), steps=4).save(place)
    return place


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A store of a sweep."""
    place = tmp_path_factory.mktemp("stored") / "store.zarr"
    described = sweep.parse("""
axes.lr = [0.1, 0.2]
problem = { kind = "factorization", target = [[2.0, 0.0], [0.0, 1.0]] }
init = { kind = "one_zero", depth = 2, alpha = 0.1 }
optimizer = { kind = "SGD", lr = "lr" }
run = { steps = 3 }
store.loss = "loss at end"
""")
    sweep.run(described, place)
    return place


def changed(place, name, change):
    """Changes what a store says of one of its arrays, everywhere where it says it."""
    for path in (place / name / ".zarray", place / ".zmetadata"):
        tree = json.loads(path.read_text())
        (tree if path.name == ".zarray" else tree["metadata"][f"{name}/.zarray"]).update(change)
        path.write_text(json.dumps(tree))


def changed_tree(place, change):
    """Changes the description of the states of a saved run."""
    for path in (place / ".zattrs", place / ".zmetadata"):
        tree = json.loads(path.read_text())
        attributes = tree if path.name == ".zattrs" else tree["metadata"][".zattrs"]
        about = json.loads(attributes["linnet"])
        change(about)
        attributes["linnet"] = json.dumps(about)
        path.write_text(json.dumps(tree))


def copied(place, tmp_path):
    return shutil.copytree(place, tmp_path / "copy.zarr")


PICKLED = {"dtype": "|O", "filters": [{"id": "pickle", "protocol": 5}], "compressor": None}
HOSTILE = {
    "numbers that are pickled": (PICKLED | {"dtype": "<f8"}, "codec 'pickle'"),
    "objects": (PICKLED, "codec 'pickle'"),
    "a codec that runs code": ({"compressor": {"id": "pickle", "protocol": 5}}, "codec 'pickle'"),
    "a codec of a plugin": ({"filters": [{"id": "from.a.plugin"}]}, "codec 'from.a.plugin'"),
    "objects of JSON": ({"dtype": "|O", "filters": [], "compressor": None}, r"type '\|O'"),
    "records": ({"dtype": [["a", "<f8"]]}, "type"),
    "no type": ({"dtype": "import os"}, "type 'import os'"),
    "more than the memory": ({"shape": [2**60]}, "of memory"),
    "many chunks": ({"dtype": "|i1", "shape": [2**28], "chunks": [1]}, "more than 10,000,000 chunks"),
    "a chunk beyond the memory": ({"chunks": [2**60]}, "of memory"),
    "a negative shape": ({"shape": [-1]}, "shape"),
    "axes without end": ({"shape": [1] * 3}, "shape"),
    "folders": ({"dimension_separator": "/"}, "folders"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_run_is_refused(name, saved, tmp_path, attacked):
    place = copied(saved, tmp_path)
    change, words = HOSTILE[name]
    (place / "loss" / "0").write_bytes(pickle.dumps(np.array([Call()], dtype=object)))
    changed(place, "loss", change)
    with pytest.raises(ln.InputError, match=words):
        ln.load(place)
    assert not attacked


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_store_is_refused(name, stored, tmp_path, attacked):
    place = copied(stored, tmp_path)
    change, words = HOSTILE[name]
    (place / "loss" / "0").write_bytes(pickle.dumps(np.array([Call()], dtype=object)))
    changed(place, "loss", change)
    for opened in (Store, sweep.load, lambda out: sweep.export(out, tmp_path / "s.nc")):
        with pytest.raises(ln.InputError, match=words):
            opened(place)
    assert not attacked


def test_the_codec_that_is_refused_runs_the_attack(attacked):
    codec = numcodecs.get_codec({"id": "pickle"})
    codec.decode(codec.encode(np.array([Call()], dtype=object)))
    assert attacked


def test_a_chunk_that_unpacks_to_more_than_its_array_is_damaged(saved, stored, tmp_path):
    bombs = {
        "blosc": numcodecs.Blosc(),
        "zstd": numcodecs.Zstd(),
    }
    for number, (name, codec) in enumerate(bombs.items()):
        data = bytes(codec.encode(np.zeros(2**22)))
        assert len(data) < 2**21
        run, store = (shutil.copytree(place, tmp_path / f"{place.stem}{number}.zarr") for place in (saved, stored))
        for place in (run, store):
            changed(place, "loss", {"compressor": codec.get_config()})
            chunk = next(path for path in (place / "loss").iterdir() if not path.name.startswith("."))
            chunk.write_bytes(data)
        with pytest.raises(ln.InputError, match="is damaged: DamagedChunkError"):
            ln.load(run)
        assert [names for _, names in Store(store).damaged] == [["loss"]], name


def test_a_frame_without_its_length_is_damaged():
    from linnet._stores import _unpacked

    for numbers in (3, 100, 10_000, 2**20):
        data = np.zeros(numbers, dtype=np.int8)
        for codec in (numcodecs.Zstd(), numcodecs.Blosc()):
            assert _unpacked(codec.codec_id, bytes(codec.encode(data))[:32]) == numbers
    assert _unpacked("zstd", bytes.fromhex("28b52ffd0058")) == np.inf  # a frame of unknown length
    assert _unpacked("zstd", b"") == _unpacked("blosc", b"123") == np.inf


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes")
def test_a_pipe_in_a_store_is_not_read(saved, stored, tmp_path):
    run, store = (shutil.copytree(place, tmp_path / place.name) for place in (saved, stored))
    for place in (run, store):
        chunk = next(path for path in (place / "loss").iterdir() if not path.name.startswith("."))
        chunk.unlink()
        os.mkfifo(chunk)
    with pytest.raises(ln.InputError, match=r"lost|damaged"):
        ln.load(run)
    assert [names for _, names in Store(store).damaged] == [["loss"]]
    (run / ".zattrs").unlink()
    os.mkfifo(run / ".zattrs")
    with pytest.raises(ln.InputError, match="not a run"):
        ln.load(run)


def of(about, change):
    """Changes the description of the final state."""
    about["trees"]["final"].update(change)


HOSTILE_TREES = {
    "a module that is not loaded": (lambda about: of(about, {"type": "optax.contrib._nothing.State"}), "holds a optax"),
    "a program": (lambda about: of(about, {"type": "linnet.__main__.main"}), "holds a linnet.__main__"),
    "a function": (lambda about: of(about, {"type": "linnet.optim.sgd.np"}), "holds a linnet.optim"),
    "another package": (lambda about: of(about, {"type": "antigravity.fly"}), "holds a antigravity"),
    "a method": (lambda about: about["trees"]["final"]["fields"].update(vjp={"value": 1}), "does not have: vjp"),
    "a class": (lambda about: about["trees"]["final"]["fields"].update(__class__={"value": 1}), "does not have"),
    "another place": (lambda about: about["trees"].update(final={"array": "../../secret"}), "damaged"),
    "a root": (lambda about: about["trees"].update(final={"array": "/etc/passwd"}), "damaged"),
    "no tree": (lambda about: about["trees"].update(final=[]), "damaged"),
}


@pytest.mark.parametrize("name", HOSTILE_TREES)
def test_a_hostile_description_is_refused(name, saved, tmp_path):
    place = copied(saved, tmp_path)
    change, words = HOSTILE_TREES[name]
    changed_tree(place, change)
    import optax  # noqa: F401  # which a memory of optax's is a reason to import

    before = set(sys.modules)
    with pytest.raises(ln.InputError, match=words):
        ln.load(place)
    new = {name for name in set(sys.modules) - before if name.startswith(("optax", "linnet", "antigravity"))}
    assert not new


def test_a_description_without_end_is_damaged(saved, tmp_path):
    place = copied(saved, tmp_path)
    for path in (place / ".zattrs", place / ".zmetadata"):
        tree = json.loads(path.read_text())
        attributes = tree if path.name == ".zattrs" else tree["metadata"][".zattrs"]
        attributes["linnet"] = "[" * 100_000
        path.write_text(json.dumps(tree))
    with pytest.raises(ln.InputError, match="damaged"):
        ln.load(place)


def test_names_of_an_object_store_stay_inside(stored, tmp_path):
    import fsspec

    files = fsspec.filesystem("memory")
    try:
        for name in located(stored).names():
            files.pipe_file(f"/hostile.zarr/{name}", (stored / name).read_bytes())
        files.store["/hostile.zarr/loss/../../../outside/.zattrs"] = files.store["/hostile.zarr/.zattrs"]
        names = located("memory://hostile.zarr").names()
        assert names == located(stored).names()
        merged = sweep.merge("memory://hostile.zarr", stored, tmp_path / "inner" / "merged.zarr")
        assert merged.finished == 2
        assert {path.name for path in tmp_path.iterdir()} == {"inner"}
    finally:
        files.store.clear()


def test_ours_are_read_as_before(saved, stored):
    assert ln.load(saved).values["loss"].shape == (5,)
    assert np.isfinite(sweep.load(stored)["loss"].values).all()
    assert zarr.open_group(saved, mode="r", zarr_format=2)["loss"].shape == (5,)


@pytest.mark.parametrize("text", ["(" * 500 + "1" + ")" * 500, "-" * 5_000 + "1", "1" + "+1" * 20_000, "9" * 5_000])
def test_arithmetic_without_end_is_one_sentence(text):
    from linnet.sweep import expression

    with pytest.raises(ln.InputError):
        expression.evaluate(text, float, expression.FUNCTIONS)


ABOUT = {"format": 3, "parameters": 7, "precision": "float32", "device": "<b>cpu", "layers": ["<script>a", "b"]}
MEASURED = {
    "kind": "measurement",
    "step": 0,
    "batch_loss": 1.0,
    "sharpness": [2.0],
    "residual": [0.1],
    "lowest": -0.5,
    "products": 3,
    "singular_values": [[1.0], [0.5]],
    "drift": [None, None],
}
HOSTILE_LINES = {
    "no dictionary": "[1]",
    "a word": '"step"',
    "no kind": '{"step": 1}',
    "another kind": '{"kind": "run", "step": 1}',
    "a kind that is a list": '{"kind": ["step"], "step": 1}',
    "no step": '{"kind": "step", "loss": 1.0}',
    "a step of text": '{"kind": "step", "step": "<script>"}',
    "text": json.dumps(MEASURED | {"batch_loss": "<script>alert(1)</script>"}),
    "text in a row": json.dumps(MEASURED | {"sharpness": ["__import__('os')"]}),
    "no rows": json.dumps(MEASURED | {"sharpness": []}),
    "a row without end": json.dumps(MEASURED | {"drift": [[[[1.0]]]]}),
    "an object": json.dumps(MEASURED | {"products": {"__class__": "os.system"}}),
    "no pairs": '{"kind": "pairs", "step": 0, "pairs": {}}',
    "a pair of no layer": '{"kind": "pairs", "step": 0, "pairs": [{"layer": 7}]}',
    "a pair before the first": '{"kind": "pairs", "step": 0, "pairs": [{"layer": -1}]}',
    "text in a pair": '{"kind": "pairs", "step": 0, "pairs": [{"layer": 0, "slope": "1"}]}',
    "no trigger": '{"kind": "alarm", "step": 0, "factor": 2.0, "usual": 1.0, "cause": null}',
    "another trigger": '{"kind": "alarm", "step": 0, "factor": 2.0, "usual": 1.0, "cause": null, "trigger": "x"}',
    "another cause": '{"kind": "alarm", "step": 0, "factor": 2.0, "usual": 1.0, "cause": "x", "trigger": "loss"}',
    "a status without a sentence": '{"kind": "status", "step": 0, "status": "healthy"}',
    "a number for a sentence": '{"kind": "status", "step": 0, "status": "healthy", "sentence": 3}',
    "half an interval": '{"kind": "forward", "step": 0, "c_other_low": 1.0}',
    "text in a forward pass": '{"kind": "forward", "step": 0, "moved": "1"}',
    "a number for a layer": '{"kind": "check", "step": 0, "dead": 0.5, "dead_layer": 3}',
    "nesting": "[" * 100_000,
    "a step of 400 digits": '{"kind": "step", "step": ' + "9" * 400 + "}",
    "a step before all numbers": '{"kind": "step", "step": -' + "9" * 400 + "}",
    "a loss of 400 digits": '{"kind": "step", "step": 1, "loss": ' + "9" * 400 + "}",
    "a loss beyond all numbers": '{"kind": "step", "step": 1, "loss": 1e999}',
    "a loss that is a row": '{"kind": "step", "step": 1, "loss": [1.0]}',
    "a truth for a step": '{"kind": "step", "step": true}',
    "more eigenvalues than residuals": json.dumps(MEASURED | {"sharpness": [2.0, 1.0]}),
    "a sharpness that is not known": json.dumps(MEASURED | {"sharpness": [None]}),
    "a residual that is not known": json.dumps(MEASURED | {"residual": [None]}),
    "no lowest": json.dumps(MEASURED | {"lowest": None}),
    "rows of more layers": json.dumps(MEASURED | {"singular_values": [[1.0]] * 50}),
    "drifts of more layers": json.dumps(MEASURED | {"drift": [0.1] * 3}),
    "rows of another length": json.dumps(MEASURED | {"singular_values": [[1.0, 0.5], [0.5]]}),
    "rows longer than before": json.dumps(MEASURED | {"singular_values": [[1.0, 0.5], [0.5, 0.1]]}),
    "empty rows": json.dumps(MEASURED | {"singular_values": [[], []]}),
    "a number for rows": json.dumps(MEASURED | {"singular_values": 1.0}),
    "a ratio alone": json.dumps(MEASURED | {"ratio": 0.5}),
    "a saddle of no layer": json.dumps(MEASURED | {"saddle": 1.0, "saddle_share": 0.5, "saddle_layer": 2}),
    "an age that is not known": '{"kind": "forward", "step": 0, "age": null}',
    "a pair with little": '{"kind": "pairs", "step": 0, "pairs": [{"layer": 0, "slope": 1.0}]}',
}
HOSTILE_ABOUTS = {
    "text for a number": {"parameters": "<script>"},
    "400 digits": {"parameters": int("9" * 400)},
    "a negative number": {"parameters": -1},
    "no number": {"parameters": None},
    "a list for a precision": {"precision": ["float32"]},
    "no device": {"device": None},
}


def record_of(folder, *lines, about=ABOUT):
    folder.mkdir()
    (folder / "probe.json").write_text(json.dumps(about))
    (folder / "record.jsonl").write_text("\n".join([*lines, ""]))
    return folder


@pytest.mark.parametrize("name", HOSTILE_LINES)
def test_a_hostile_record_of_a_probe_is_refused(name, tmp_path):
    from linnet.probe.record import read

    folder = record_of(tmp_path / "probe", json.dumps(MEASURED), HOSTILE_LINES[name])
    with pytest.raises(
        ln.InputError, match=r"record.jsonl' is damaged: line 2 (is none that a probe writes|cannot be)"
    ):
        read(folder)


@pytest.mark.parametrize("name", HOSTILE_ABOUTS)
def test_a_hostile_description_of_a_probe_is_refused(name, tmp_path):
    from linnet.probe.record import read

    folder = record_of(tmp_path / "probe", json.dumps(MEASURED), about=ABOUT | HOSTILE_ABOUTS[name])
    with pytest.raises(ln.InputError, match=r"probe.json' is damaged: a number of parameters and two texts are not"):
        read(folder)


def test_pairs_without_measurements_of_them_are_refused(tmp_path):
    from linnet.probe.record import read

    names = ("value", "slope", "imbalance", "sharpness", "reach", "end", "growth", "sharpness_end")
    pair = {"layer": 0, "regime": "rich", "assumptions": {"product": 0.0}} | dict.fromkeys(names, 1.0)
    lines = json.dumps({"kind": "pairs", "step": 0, "pairs": [pair]}), json.dumps(MEASURED)
    with pytest.raises(ln.InputError, match="there are pairs that no measurement has"):
        read(record_of(tmp_path / "without", *lines))
    known = json.dumps(MEASURED | {"mode_growth": [1.0, None]})
    assert len(read(record_of(tmp_path / "with", lines[0], known)).pairs) == 1


def test_claims_without_end_are_damaged(tmp_path):
    from linnet.reproduction import files

    for text in ("[" * 100_000, "[" * 100_000 + "]" * 100_000, "9" * 5_000, "{", "[1]"):
        (tmp_path / "claims.json").write_text(text)
        with pytest.raises(ln.InputError, match="cannot be read: it is damaged"):
            files.verdicts(tmp_path)


def test_names_of_a_record_are_text_on_its_page(tmp_path):
    from linnet.probe.record import read
    from linnet.report import write_probe

    record = read(record_of(tmp_path / "probe", '{"kind": "step", "step": 0, "loss": 1.0}', json.dumps(MEASURED)))
    page = write_probe(record, tmp_path / "page").read_text()
    assert "&lt;script&gt;a" in page
    assert "&lt;b&gt;cpu" in page
    assert "<script>a" not in page
    for layers in (["a", 1], "ab", None, [["a"]]):
        folder = record_of(tmp_path / f"other{len(str(layers))}", about=ABOUT | {"layers": layers})
        with pytest.raises(ln.InputError, match="layers are no list of names"):
            read(folder)


def test_results_are_text_on_their_page(tmp_path):
    from linnet import report

    attack = "<img src=x onerror=alert(1)>"
    verdict = {"id": "mixed/C17", "paper": "mixed", "kind": "exact", "statement": attack, "detail": attack}
    verdict |= {"holds": True, "measured": 1.0, "required": 0.0, "margin": None, "seconds": 0.1}
    (tmp_path / "claims.json").write_text(json.dumps({"size": "quick", "claims": [verdict], "failed": 0}))
    place = tmp_path / "mixed" / "fig1"
    place.mkdir(parents=True)
    requirement = {"name": attack, "holds": True, "measured": 1.0, "required": 1.0, "text": attack}
    told = dict.fromkeys(("title", "place", "caption", "device", "again", "data", "size"), attack)
    result = {"id": "mixed/fig1", "parameters": {"n": attack}, "seed": 0, "seconds": 1.0, "machine": {attack: attack}}
    result |= told | {"versions": {attack: attack}, "verdicts": [requirement]}
    (place / "result.json").write_text(json.dumps(result))
    page = report.write(tmp_path).read_text()
    assert "<img src=x" not in page
    assert "&lt;img src=x" in page
