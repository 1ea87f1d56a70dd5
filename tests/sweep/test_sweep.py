"""Sweeps: what users write down, what is stored, and what a kill leaves."""

import json
import os
import random
import signal
import time
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray
import zarr

import linnet as ln
from linnet import sweep
from linnet._random import Memory
from linnet.sweep.cells import Builder, Runner, widened
from linnet.sweep.expression import FUNCTIONS, evaluate
from linnet.sweep.place import located

SPEC = """
seed = 3
batch = {batch}
[let]
c = "variance * 20"
[axes]
variance = [1e-4, 1e-2, 1.0]
lr = {{ start = 0.05, stop = 5.0, count = 4, spacing = "log" }}
[problem]
kind = "low_rank_recovery"
d = 6
rank = 2
[init]
kind = "gaussian"
width = 20
variance = "variance"
[second]
kind = "two_c_balanced"
c = "c"
[optimizer]
kind = "SGD"
lr = "lr"
[run]
steps = "40 if lr > 0.1 else 70"
stop = {{ kind = "loss_below", value = 0.05 }}
[store]
best = "test_error at lowest test_error"
step = "step at lowest test_error"
rank = "stable_rank at lowest test_error"
gap = "closure_error at end"
values = "singular_values at end"
"""


def rounding(values):
    """What singular values may differ by: each has the rounding errors of the largest."""
    return 1e-12 + 8 * np.finfo(float).eps * np.max(np.abs(values), initial=0)


def described(batch=4):
    return sweep.parse(SPEC.format(batch=batch))


@pytest.mark.parametrize("batch", [1, 4])
def test_every_cell_is_the_run_that_it_says(tmp_path, batch):
    spec, measured = described(batch), []
    counts = sweep.run(spec, tmp_path / "s.zarr", throughput=measured.append)
    data = xarray.open_zarr(tmp_path / "s.zarr").load()
    assert len(measured) == 12 / batch
    assert [now.steps for now in measured] == sorted(now.steps for now in measured)
    assert measured[-1].steps == counts["steps"] == int(data["ended"].sum())
    assert all(now.workers == 1 and now.speed > 0 and 0 < now.use <= 100 for now in measured)
    assert dict(data.sizes) == {"variance": 3, "lr": 4, "values_index": 6}
    assert counts["cells"] == counts["computed"] == 12
    assert counts["diverged"] > 0
    assert counts["converged"] > 0
    words = data["status"].attrs["flag_meanings"].split()
    key = jax.random.key(3)
    problem = ln.low_rank_recovery(key, 6, 2)
    for variance in data["variance"].values:
        for lr in data["lr"].values:
            state = ln.init.gaussian(key, problem, 20, variance)
            pair = ln.states.Pair(state, ln.init.two_c_balanced(state.matrix, 20 * variance))
            run = ln.simulate(
                problem,
                pair,
                ln.optim.SGD(lr),
                steps=40 if lr > 0.1 else 70,
                observe=["test_error"],
                stop=ln.optim.loss_below(0.05),
            )
            cell = data.sel(variance=variance, lr=lr)
            assert words[int(cell["status"])] == run.status
            assert cell["ended"] == run.ended
            best = int(np.argmin(run["test_error"]))
            assert cell["step"] == run.steps[best]
            np.testing.assert_allclose(cell["best"], run["test_error"][best], rtol=1e-9)
            np.testing.assert_allclose(cell["gap"], ln.observe.closure_error(run.final, problem), rtol=1e-6, atol=1e-20)
            values = ln.observe.singular_values(run.final, problem)
            np.testing.assert_allclose(cell["values"], values, rtol=1e-9, atol=rounding(values))


def test_a_finished_store_is_not_computed_again_and_others_are_refused(tmp_path):
    store = tmp_path / "s.zarr"
    sweep.run(described(), store)
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    told = []
    assert sweep.run(described(), store, lambda done, total: told.append((done, total)))["computed"] == 0
    assert told[-1] == (12, 12)
    assert before == {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    other = sweep.parse(SPEC.format(batch=4).replace("seed = 3", "seed = 4"))
    with pytest.raises(ln.InputError, match="seed is 3 there and 4 here"):
        sweep.run(other, store)
    (tmp_path / "no.zarr").mkdir()
    with pytest.raises(ln.InputError, match="is not a store of a sweep"):
        sweep.run(described(), tmp_path / "no.zarr")
    (tmp_path / "file").touch()
    with pytest.raises(ln.InputError, match="there is a file where a folder should be"):
        sweep.run(described(), tmp_path / "file" / "s.zarr")


def contents(store):
    return {str(path.relative_to(store)): path.read_bytes() for path in sorted(store.rglob("*")) if path.is_file()}


@pytest.mark.slow
def test_kills_change_no_byte(tmp_path, request, started):
    """SIGKILL at three random moments of the work (ten with --slow); the same command goes on each time."""
    file = tmp_path / "s.toml"
    file.write_text(SPEC.format(batch=1).replace("[1e-4, 1e-2, 1.0]", "[1e-4, 1e-3, 1e-2, 0.1, 1.0]"))
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    environment |= {
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }

    def go(out):
        return started("sweep", file, "--out", out, "--json", env=environment)

    straight, killed = tmp_path / "straight.zarr", tmp_path / "killed.zarr"
    go(straight).finished()
    rng = random.Random(0)
    done = []
    for kill in range(10 if request.config.getoption("--slow") else 3):
        child = go(killed).process
        while not killed.exists() and child.poll() is None:
            time.sleep(0.01)  # the first kills are told by the clock, the others by the work
        goal = len(list(killed.glob("status/*.*"))) + rng.choice([0, 0, 1, 2])
        while len(list(killed.glob("status/*.*"))) < goal and child.poll() is None:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.05) if kill % 2 else rng.uniform(0, 2.0))
        child.send_signal(signal.SIGKILL)
        child.communicate()
        done.append(int(np.count_nonzero(xarray.open_zarr(killed)["status"])))
    assert done == sorted(done)  # nothing finished is lost
    assert json.loads(go(killed).finished())["computed"] == 20 - done[-1]
    assert contents(killed) == contents(straight)


def damage(file, store, batch=4):
    """Turns a few bits of a file, and gives what `check` says of the store."""
    good = file.read_bytes()
    file.write_bytes(good[:-3] + bytes([good[-3] ^ 0x40]) + good[-2:])
    return sweep.check(described(batch), store)


def test_damaged_chunks_are_found_and_computed_again(tmp_path):
    store = tmp_path / "s.zarr"
    sweep.run(described(), store)
    before = contents(store)
    assert sweep.check(described(), store) == (12, 12, [])
    found = damage(store / "best" / "1.0", store)  # the chunk of variance 0.01, all step sizes
    assert found.finished == 8
    assert found.damage == [(["best"], {"variance": [1e-2, 1e-2], "lr": [0.05, 5.0]})]
    assert [arrays for arrays, _ in damage(store / "status" / "0.0", store).damage] == [["status"], ["best"]]
    assert damage(store / "lr" / "0", store).damage[0].arrays == ["lr"]
    (store / "values" / "2.0.0").unlink()
    assert sweep.check(described(), store).finished == 0
    counts = sweep.run(described(), store)
    assert (counts["computed"], counts["damaged"]) == (12, 3)
    assert sweep.check(described(), store) == (12, 12, [])
    assert contents(store) == before


def test_a_store_without_checksums_still_opens(tmp_path):
    """As it was made before there were any."""
    store = tmp_path / "s.zarr"
    sweep.run(described(), store)
    for file in store.rglob(".z*"):
        text = json.loads(file.read_text())
        for part in (text, *text.get("metadata", {}).values()):
            part.pop("checksum", None)
            if part.get("filters"):
                part["filters"] = None
        file.write_text(json.dumps(text))
    for name in ("values", "best", "step", "rank", "gap", "ended", "status", "variance", "lr"):
        whole = zarr.open_group(tmp_path / "s.zarr", mode="r+")[name]
        shape = whole.shape
        for chunk in (store / name).glob("[0-9]*"):
            chunk.unlink()
        whole[...] = np.ones(shape, dtype=whole.dtype)
    (store / "values" / "2.0.0").unlink()
    assert sweep.check(described(), store) == (12, 12, [])
    assert sweep.run(described(), store)["computed"] == 0


def test_no_warning_reaches_users(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sweep.run(described(), tmp_path / "s.zarr")
        (tmp_path / "s.zarr" / "notes.txt").write_text("mine")
        (tmp_path / "s.zarr" / ".zmetadata").rename(tmp_path / "metadata")
        sweep.run(described(), tmp_path / "s.zarr")
        (tmp_path / "metadata").rename(tmp_path / "s.zarr" / ".zmetadata")
        xarray.open_zarr(tmp_path / "s.zarr").load()


def test_every_cell_uses_its_own_initial_matrix():
    text = SPEC.format(batch=1).replace("[1e-4, 1e-2, 1.0]", "{ start = 0.1, stop = 4, count = 40 }")
    text = text.replace('steps = "40 if lr > 0.1 else 70"', 'steps = "1e6 * norm(init) / norm(target)"')
    builder = Builder(sweep.parse(text))
    key = jax.random.key(3)
    problem = ln.low_rank_recovery(key, 6, 2)
    top = np.linalg.norm(problem.target, 2)
    for variance in np.linspace(0.1, 4, 40):
        initial = np.asarray(ln.init.gaussian(key, problem, 20, variance).matrix)
        cell = builder.cell({"variance": variance, "lr": 0.1})
        assert abs(cell.steps - 1e6 * np.linalg.norm(initial, 2) / top) <= 1


def test_networks_of_many_widths_and_lengths_run_in_one_program_as_they_run_alone():
    """As on a GPU: neurons of weight zero stay zero, and a batch ends with its longest run."""
    text = SPEC.format(batch=1).replace("width = 20", 'width = "round(variance * 10) + 1"')
    text = text.replace("[1e-4, 1e-2, 1.0]", "[0.1, 0.3, 1.0]")
    text = text.replace('"40 if lr > 0.1 else 70"', '"7 + 100 * variance"')
    spec = sweep.parse(text)
    builder = Builder(spec)
    runner = Runner(spec, builder.quantities)
    cells = [builder.cell({"variance": variance, "lr": lr}) for variance in (0.1, 0.3, 1.0) for lr in (0.05, 5.0)]
    together = widened(cells)
    assert len({cell.signature() for cell in cells}) == 3
    assert len({cell.signature() for cell in together}) == 1
    batch = runner.batch(together, range(6), 7)  # the last one twice
    found = batch.program(*batch.arguments)
    for number, cell in enumerate(cells):
        single = runner.batch([cell], [0], 1)
        for one, many in zip(*map(jax.tree.leaves, (single.program(*single.arguments), found)), strict=True):
            np.testing.assert_allclose(many[number], one, rtol=1e-9, atol=rounding(one))
    assert len(set(found[2].tolist())) > 3, "their lengths differ"


def test_equal_draws_of_a_grid_are_made_once():
    memory = Memory()
    problem = ln.factorization(np.eye(3))
    first = ln.init.gaussian(jax.random.key(0), problem, 4, 1.0)
    with memory.active():
        drawn = [ln.init.gaussian(jax.random.key(0), problem, 4, variance) for variance in (1.0, 4.0)]
        other = (
            ln.init.gaussian(jax.random.key(1), problem, 4, 1.0),
            ln.init.gaussian(jax.random.key(0), problem, 5, 1.0),
        )
    assert len(memory) == 3
    np.testing.assert_array_equal(drawn[0].layers[0], first.layers[0])
    np.testing.assert_array_equal(drawn[1].layers[0], 2 * first.layers[0])
    assert all(not np.array_equal(state.layers[0][:1], first.layers[0][:1]) for state in other)


def test_names_of_quantities_are_free(tmp_path):
    text = SPEC.format(batch=4).replace("gap =", "file =")
    assert sweep.run(sweep.parse(text), tmp_path / "s.zarr")["computed"] == 12


def test_series_of_descent_and_what_was_once_wrong(tmp_path):
    text = """
[axes]
alpha = [0.1, 0.5]
size = [1.0, 1.000000001]
[problem]
kind = "factorization"
target = [["size", 0.0], [0.0, 1.0]]
[init]
kind = "one_zero"
depth = 2
alpha = "alpha"
[optimizer]
kind = "SGD"
lr = 0.05
[run]
steps = 100
record = RECORD
[store]
loss = "loss at end"
values = "singular_values at end"
SERIES
"""
    problem = ln.factorization(np.eye(2))
    run = ln.simulate(problem, ln.init.one_zero(problem, alpha=0.1, depth=2), ln.optim.SGD(0.05), steps=100)
    for i, record in enumerate(("[0]", "[0, 1, 2, 3]", '"every 1"')):
        sweep.run(sweep.parse(text.replace("RECORD", record).replace("SERIES", "")), tmp_path / f"{i}.zarr")
        data = xarray.open_zarr(tmp_path / f"{i}.zarr")
        assert np.all(data["ended"] == 100)  # however few records are asked for
        np.testing.assert_allclose(data["loss"][0, 0], run["loss"][-1], rtol=1e-9)
        assert data["values"][0, 0, 0] != data["values"][0, 1, 0]  # targets that differ in the ninth digit
    for batch in ("", "batch = 1"):
        described = sweep.parse(batch + text.replace("RECORD", '"linear 11"').replace("SERIES", 'curve = "loss"'))
        sweep.run(described, tmp_path / f"series{batch}.zarr")
        data = xarray.open_zarr(tmp_path / f"series{batch}.zarr")
        np.testing.assert_allclose(data["curve"][0, 0], run["loss"][::10], rtol=1e-9)
        np.testing.assert_array_equal(data["record"], np.arange(0, 101, 10))
    uneven = (
        text.replace("steps = 100", 'steps = "100 * alpha"').replace("RECORD", "[0]").replace("SERIES", 'l = "loss"')
    )
    with pytest.raises(ln.InputError, match="differs from cell to cell"):
        sweep.run(sweep.parse(uneven), tmp_path / "uneven.zarr")


def test_one_writer_at_a_time(tmp_path):
    with located(tmp_path / "s.zarr").alone(), pytest.raises(ln.InputError, match="another process"):
        sweep.run(described(), tmp_path / "s.zarr")


def test_series_flows_files_and_seeds(tmp_path):
    np.savez(tmp_path / "data.npz", x=np.eye(3), y=np.diag([3.0, 2.0, 1.0]))
    text = f"""
[axes]
gamma = [0.1, 1.0]
seed = [0, 1]
[problem]
kind = "regression"
inputs = {{ file = "{tmp_path / "data.npz"}", array = "x" }}
labels = {{ file = "{tmp_path / "data.npz"}", array = "y" }}
[init]
kind = "gaussian"
width = 8
variance = "gamma ** 2"
[optimizer]
kind = "GradientFlow"
[run]
time = 3.0
record = "linear 7"
[store]
loss = "loss"
end = "time at end"
"""
    sweep.run(sweep.parse(text), tmp_path / "f.zarr")
    data = xarray.open_zarr(tmp_path / "f.zarr")
    assert data["loss"].dims == ("gamma", "seed", "record")
    assert data["loss"].shape == (2, 2, 7)
    assert np.all(np.diff(data["loss"], axis=-1) < 0)
    assert np.all(data["end"] == 3)
    assert not np.allclose(data["loss"].sel(seed=0), data["loss"].sel(seed=1))
    np.savez(tmp_path / "data.npz", x=np.eye(3), y=np.diag([3.0, 2.0, 1.5]))
    with pytest.raises(ln.InputError, match="holds another sweep"):
        sweep.run(sweep.parse(text), tmp_path / "f.zarr")


def test_classes_in_a_sweep(tmp_path):
    """Every cell is the run that Python makes."""
    text = """
[axes]
lr = [0.1, 0.5]
[problem]
kind = "classification"
inputs = [[1.0, 0.5], [0.2, 2.0], [-1.0, 0.1]]
labels = [0, 1, 2]
average = true
[init]
kind = "i_gamma"
gamma = 0.1
[optimizer]
kind = "SGD"
lr = "lr"
[run]
steps = 20
[store]
loss = "loss at end"
accuracy = "accuracy at end"
"""
    sweep.run(sweep.parse(text), tmp_path / "c.zarr")
    data = xarray.open_zarr(tmp_path / "c.zarr")
    problem = ln.classification([[1.0, 0.5], [0.2, 2.0], [-1.0, 0.1]], [0, 1, 2], average=True)
    for lr in (0.1, 0.5):
        run = ln.simulate(
            problem, ln.init.i_gamma(problem, 0.1), ln.optim.SGD(lr), steps=20, observe=["loss", "accuracy"]
        )
        for name in ("loss", "accuracy"):
            assert float(data[name].sel(lr=lr)) == pytest.approx(float(run[name][-1]), rel=1e-12)


def test_arithmetic():
    names = {"d": 200, "g": -1.5}
    for text, value in (
        ("d ** 2 / 4", 10000),
        ("d ** g", 200**-1.5),
        ("max(1, round(2.6)) if g < 0 <= 1 and not d == 3 else -1", 3),
        ("-sqrt(4) + 7 // 2 % 2", -1),
        ("1 if g > 0 or d > 100 else 0", 1),
    ):
        assert evaluate(text, names.__getitem__, FUNCTIONS) == pytest.approx(value)
    for text, words in (
        ("__import__('os')", "may call"),
        ("().__class__", "not arithmetic"),
        ("d.real", "not arithmetic"),
        ("[1]", "not arithmetic"),
        ("lambda: 1", "not arithmetic"),
        ("'a'", "not arithmetic"),
        ("1 +", "cannot be read"),
        ("1 / 0", "has no value"),
        ("9 ** 9 ** 9", "has no value"),
        ("(-8) ** 0.5", "has no value"),
        ("log(-1)", "has no value"),
        ("sqrt(1, 2)", "has no value"),
    ):
        with pytest.raises(ln.InputError, match=words):
            evaluate(text, names.__getitem__, FUNCTIONS)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('kind = "gaussian"', 'kind = "gauss"', "init.kind = 'gauss'"),
        ("width = 20", "widht = 20", "init.widht is not known: gaussian takes width, variance"),
        ("width = 20\n", "", "init.width is missing"),
        (
            'variance = "variance"',
            'variance = "varianse"',
            "varianse is not known: expressions may use variance, lr, c",
        ),
        ('c = "variance * 20"', 'c = "c + 1"', "c is defined by itself"),
        ("count = 4", "count = 0", "axes.lr.count = 0 is not allowed"),
        ("[1e-4, 1e-2, 1.0]", "[1e-4, 1e-4]", "each once"),
        ("start = 0.05", "start = -1", "positive start"),
        ("rank = 2", "rank = 20", "rank = 20"),
        ('"stable_rank at lowest test_error"', '"stable_rnak at lowest test_error"', "did you mean 'stable_rank'"),
        ('"stable_rank at lowest test_error"', '"stable_rank at best"', "after 'at' comes"),
        ('"step at lowest test_error"', '"step"', "step needs"),
        ("[store]", "[stored]", "store is missing"),
        ('steps = "40 if lr > 0.1 else 70"', "", "either steps"),
        ('steps = "40 if lr > 0.1 else 70"', "steps = 0", "run.steps = 0"),
        ('steps = "40 if lr > 0.1 else 70"', 'steps = 5\nrecord = "often"', "run.record = 'often'"),
        ("seed = 3", "seed = -3", "seed = -3 is not allowed"),
        ("seed = 3", "sede = 3", "sede is not known"),
        ("batch = 4", "batch = [", "is not TOML"),
        ('gap = "closure_error at end"', 'lr = "loss at end"', "store.lr is not a free name"),
        ('gap = "closure_error at end"', 'a = "step at lowest singular_values"', "singular_values is not one number"),
        ('c = "variance * 20"', 'c = "singular_value(target, 9)"', "numbers 1 to 6"),
        ('c = "variance * 20"', "c = inf", "let.c = inf is not a finite number"),
        ('c = "variance * 20"', "c = 1.0\nseed = 5", "let.seed is not a free name"),
        ("variance = [1e-4, 1e-2, 1.0]", "variance = [1.0]\nseed = [0.5]", "seeds are whole numbers"),
        ("variance = [1e-4, 1e-2, 1.0]", "variance = [1.0]\nstatus = [1.0]", "the axis status is not a free name"),
        ("d = 6", "d = [[1, 2], [3]]", "d"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, old, new, words):
    text = SPEC.format(batch=4)
    assert old in text
    with pytest.raises(ln.InputError) as error:
        sweep.run(sweep.parse(text.replace(old, new)), tmp_path / "s.zarr")
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ln.InputError, match="cannot be read"):
        sweep.read(Path("nowhere.toml"))
    (tmp_path / "bad.npy").write_bytes(b"nonsense")
    np.savez(tmp_path / "named.npz", x=np.eye(2))
    (tmp_path / "words.csv").write_text("1,2\n3,four\n")
    for file, words in {
        '"bad.npy"': "empty, damaged or not a .npy file",
        '"none.csv"': "there is no such file",
        '"named.npz", array = "y"': "it has no array 'y', only x",
        '"words.csv"': "line 2, column 2 holds 'four', and a number is needed",
        '"matrix.xlsx"': "it must end in .csv",
    }.items():
        spec = sweep.parse(SPEC.format(batch=4).replace("width = 20", f"width = {{ file = {file} }}"), folder=tmp_path)
        with pytest.raises(ln.InputError) as error:
            sweep.run(spec, tmp_path / "s.zarr")
        assert str(error.value).startswith("init.width.file = ")
        assert words in str(error.value)


@pytest.mark.parametrize("text", ["2.5;0\n0;1\n", "a;b\n2,5;0\n0;1\n", "# 2\n2.5 0\n0 1\n", "a,b\n2.5,0\n0,1\n"])
def test_sweeps_and_predictions_read_the_same_tables(tmp_path, text):
    (tmp_path / "target.csv").write_text(text)
    made, read = '"low_rank_recovery"\nd = 6\nrank = 2', '"factorization"\ntarget = { file = "target.csv" }'
    spec = sweep.parse(SPEC.format(batch=4).replace(made, read), folder=tmp_path)
    target = Builder(spec).cell({"variance": 1.0, "lr": 0.1}).problem.target
    np.testing.assert_array_equal(target, [[2.5, 0], [0, 1]])
    inputs, labels = ln.prediction.read_regression(tmp_path / "target.csv")
    np.testing.assert_array_equal(np.column_stack([inputs, labels]), target)


def test_optimizers_and_their_batches_in_a_sweep(tmp_path):
    text = """
[axes]
momentum = [0.0, 0.9]
[problem]
kind = "regression"
inputs = [[1.0, 0.5], [0.2, 2.0], [0.3, 0.1]]
labels = [1.0, 0.0, 2.0]
[init]
kind = "lambda_balanced"
lam = -0.5
width = 2
[optimizer]
kind = "SGD"
lr = 0.01
momentum = "momentum"
weight_decay = 0.1
batch_size = 2
[run]
steps = 50
[store]
loss = "loss at end"
"""
    sweep.run(sweep.parse(text), tmp_path / "runs.zarr")
    loss = xarray.open_zarr(tmp_path / "runs.zarr")["loss"].values
    assert np.isfinite(loss).all()
    assert loss[1] < loss[0]
