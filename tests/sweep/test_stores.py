"""Stores by URL: the bytes of a plain folder, wherever they lie; kills, refusals and two drivers at once."""

import contextlib
import errno
import importlib.util
import itertools
import json
import os
import signal
import socket
import sys
import threading
import time

import jax
import numpy as np
import pytest
import xarray

import linnet as ln
from linnet import sweep
from linnet.sweep import exchange, place
from linnet.sweep.place import LEASE, Remote, located

SPEC = """
batch = {batch}
[axes]
alpha = [0.1, 0.5, 1.0]
lr = [0.01, 0.05, 0.1, 0.2]
[problem]
kind = "factorization"
target = [[2.0, 0.0], [0.0, 1.0]]
[init]
kind = "one_zero"
depth = 2
alpha = "alpha"
[optimizer]
kind = "SGD"
lr = "lr"
[run]
steps = {steps}
record = "linear 11"
[store]
end = "loss at end"
curve = "loss"
values = "singular_values at end"
"""


def text(batch=2, steps=100):
    return SPEC.format(batch=batch, steps=steps)


def described(**more):
    return sweep.parse(text(**more))


def contents(out):
    """All bytes of a store, by name."""
    there = located(out)
    return {name: there.read(name) for name in sorted(there.names())}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """What a plain run writes into a folder."""
    out = tmp_path_factory.mktemp("plain") / "s.zarr"
    sweep.run(described(), out)
    return out


@pytest.fixture
def memory():
    """A place in memory that is empty before and after."""
    import fsspec

    files = fsspec.filesystem("memory")
    files.store.clear()
    yield files
    files.store.clear()


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", ["file", "memory", "s3"])
def test_every_place_holds_the_same_bytes(kind, plain, memory, tmp_path, request):
    out = {"file": f"file://{tmp_path}/s.zarr", "memory": "memory://grids/s.zarr"}.get(kind)
    out = out or request.getfixturevalue("s3")
    told = sweep.run(described(), out)
    assert told["computed"] == 12
    assert contents(out) == contents(plain)
    assert sweep.run(described(), out)["computed"] == 0
    assert contents(out) == contents(plain)
    assert sweep.check(described(), out) == (12, 12, [])
    here = xarray.open_zarr(out).load()
    xarray.testing.assert_identical(here, xarray.open_zarr(plain).load())
    with pytest.raises(ln.InputError, match=r"holds another sweep: run\.steps is 100 there and 99 here"):
        sweep.run(described(steps=99), out)


@pytest.mark.slow
def test_a_killed_driver_leaves_a_store_in_s3_that_the_same_command_finishes(s3, tmp_path, started):
    """SIGKILL in the middle; its lease is known to be nobody's, since the process has ended on this machine."""
    file = tmp_path / "s.toml"
    file.write_text(text(batch=1))
    straight = tmp_path / "straight.zarr"
    sweep.run(sweep.read(file), straight)
    done = contents(straight)
    child = started("sweep", file, "--out", s3)
    there = located(s3)
    child.until(lambda: sum(name.startswith("status/") for name in there.names()) > 3)  # with status/.zarray, .zattrs
    child.process.send_signal(signal.SIGKILL)
    child.process.wait()
    left = contents(s3)
    assert json.loads(left.pop(LEASE))["process"] == child.process.pid
    finished = int(np.count_nonzero(xarray.open_zarr(s3)["status"]))
    assert 0 < finished < 12
    told = sweep.run(sweep.read(file), s3)
    assert told["computed"] == 12 - finished
    assert told["damaged"] == 0
    assert contents(s3) == done
    assert left.items() <= done.items()


@pytest.mark.slow
def test_many_kills_and_a_second_driver_change_no_byte_in_s3(s3, tmp_path, started):
    """Ten drivers are killed at different moments, from the first object on; one that comes while another is at work is
    refused, and hinders nobody.
    """
    file = tmp_path / "s.toml"
    file.write_text(text(batch=1))
    straight = tmp_path / "straight.zarr"
    sweep.run(sweep.read(file), straight)
    there = located(s3)
    counts = []
    for _ in range(10):
        goal = len(there.names()) + (1, 9, 4)[len(counts) % 3]
        child = started("sweep", file, "--out", s3)
        child.until(lambda goal=goal: len(there.names()) >= goal)
        child.process.send_signal(signal.SIGSTOP)
        assert "is being written by another process" in one_sentence(sweep.run, sweep.read(file), s3)
        child.process.send_signal(signal.SIGKILL)
        child.process.wait()
        counts.append(sum("status/" in name for name in there.names()))
    assert counts == sorted(counts)
    assert counts[-1] < 2 + 12  # and .zarray, .zattrs: something is left to do
    sweep.run(sweep.read(file), s3)
    assert contents(s3) == contents(straight)


def one_sentence(function, *arguments, **options):
    with pytest.raises(ln.InputError) as error:
        function(*arguments, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_places_out_of_reach_are_one_sentence(s3, forget, monkeypatch):
    assert "the specified bucket does not exist" in one_sentence(sweep.run, described(), "s3://none-such/s.zarr")
    assert "there is nothing" in one_sentence(sweep.check, None, "s3://none-such/s.zarr")
    with socket.socket() as free:  # bound and not listening: connections to it are refused
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
        forget()
        for function in (sweep.run, sweep.check):
            assert "cannot be read: could not connect" in one_sentence(function, described(), s3)
    for url, words in {
        "ftp://x/s.zarr": "it must be a folder or a URL that begins with file://, memory://, s3://, gs://",
        "s3://": "it must be a folder or a URL",
        "s3:/bucket/s.zarr": "two slashes",
    }.items():
        assert words in one_sentence(sweep.run, described(), url)


@pytest.mark.parametrize(
    ("missing", "url", "package"),
    [
        ("fsspec.core", "memory://s", "'linnet[stores]'"),
        ("s3fs", "s3://b/s", "'linnet[stores]'"),
        ("gcsfs", "gs://b/s", "gcsfs"),
    ],
)
def test_packages_that_are_not_there_are_named(missing, url, package, monkeypatch):
    from fsspec.registry import _registry

    for scheme in ("s3", "gs"):
        monkeypatch.delitem(_registry, scheme, raising=False)  # which it has loaded before
    monkeypatch.setitem(sys.modules, missing, None)
    assert one_sentence(sweep.run, described(), url) == f"{url!r} cannot be reached: pip install {package} first."


def test_a_bucket_that_is_read_only_loses_nothing(s3, client, memory):
    """Neither in the middle of a sweep nor before one; what is there can be read."""
    bucket = s3.split("/")[2]
    sweep.run(described(), s3, part=(1, 2))
    before = contents(s3)
    rule = {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": f"arn:aws:s3:::{bucket}/*"}
    client.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [rule]}))
    for url in (s3, f"{s3}-new"):
        assert one_sentence(sweep.run, described(), url) == f"{url!r} cannot be written: forbidden."
    assert contents(s3) == before
    assert sweep.check(None, s3) == (12, 6, [])
    client.delete_bucket_policy(Bucket=bucket)
    assert sweep.run(described(), s3)["computed"] == 6


@pytest.mark.parametrize("after", [0, 2, 6, 20, 30])
def test_a_full_object_store_loses_nothing(after, plain, memory, monkeypatch):
    """While a lease, a new store or a chunk is written; the same call goes on when there is space."""
    url, put = "memory://s.zarr", type(memory).pipe_file
    written = []

    def full(self, path, data, **more):
        if len(written) >= after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(path)
        return put(self, path, data, **more)

    with monkeypatch.context() as patch:
        patch.setattr(type(memory), "pipe_file", full)
        said = one_sentence(sweep.run, described(), url)
    assert "cannot be written: no space left on device; make space and give the same command again." in said
    assert {f"/s.zarr/{name}" for name in located(url).names()} == set(written) - {f"/s.zarr/{LEASE}"}
    assert sweep.run(described(), url)["damaged"] == 0
    assert contents(url) == contents(plain)


def test_a_network_that_fails_is_not_a_damaged_chunk(memory, monkeypatch):
    url, read = "memory://s.zarr", type(memory).cat_file
    sweep.run(described(), url)

    def away(self, path, **more):
        if "/curve/" in path:
            raise ConnectionResetError("Connection reset by peer")
        return read(self, path, **more)

    with monkeypatch.context() as patch:
        patch.setattr(type(memory), "cat_file", away)
        assert "cannot be read: connection reset by peer" in one_sentence(sweep.run, described(), url)
    chunk = "/s.zarr/curve/1.0.0"
    memory.pipe_file(chunk, memory.cat_file(chunk)[:-1] + b"x")
    memory.rm_file("/s.zarr/end/2.1")
    found = sweep.check(None, url)
    assert [arrays for arrays, _ in found.damage] == [["curve"], ["end"]]
    assert found.damage[0].cells == {"alpha": [0.5, 0.5], "lr": [0.01, 0.05]}
    assert sweep.run(described(), url)["damaged"] == 2
    assert sweep.check(None, url) == (12, 12, [])


def test_what_is_not_a_store_is_left_alone(memory):
    memory.pipe_file("/s.zarr/notes.txt", b"mine")
    assert "is not a store of a sweep" in one_sentence(sweep.run, described(), "memory://s.zarr")
    assert located("memory://s.zarr").names() == {"notes.txt"}
    sweep.run(described(), "memory://t.zarr")
    memory.rm_file("/t.zarr/.zmetadata")  # as if killed before the last object of a new store
    before = contents("memory://t.zarr")
    assert "is not a store of a sweep" in one_sentence(sweep.run, described(steps=99), "memory://t.zarr")
    assert contents("memory://t.zarr") == before
    assert sweep.run(described(), "memory://t.zarr")["computed"] == 0
    for name in (".zattrs", ".zmetadata"):  # whose description nobody understands
        memory.pipe_file(f"/t.zarr/{name}", memory.cat_file(f"/t.zarr/{name}").replace(b"axes", b"axis"))
    assert "is not a store of a sweep" in one_sentence(sweep.check, None, "memory://t.zarr")


# Two drivers ----------------------------------------------------------------------------------------------------------


def lease(files, **more):
    """Puts a lease of another driver in place, on another machine."""
    there = {"owner": "other", "time": time.time(), "host": "elsewhere", "process": 7, "machine": "elsewhere", **more}
    files.pipe_file(f"/s.zarr/{LEASE}", json.dumps(there).encode())


def test_a_fresh_lease_is_respected_and_a_stale_one_taken_over(memory, monkeypatch, plain):
    monkeypatch.setattr(place, "SETTLE", 0.0)
    url = "memory://s.zarr"
    lease(memory)
    said = one_sentence(sweep.run, described(), url)
    assert "is being written by another process (7 on elsewhere, seen 0 s ago): wait for it or stop it." in said
    assert located(url).names() == {LEASE}
    lease(memory, time=time.time() - place.TERM - 1)
    sweep.run(described(), url)
    assert contents(url) == contents(plain)  # and no lease is left
    for own, held in ((os.getpid(), True), (2**22 + 1, False)):  # alive, and a number that no process has
        lease(memory, machine=place._machine(), process=own)
        with pytest.raises(ln.InputError, match="another process") if held else contextlib.nullcontext():
            sweep.run(described(), url)
    memory.pipe_file(f"/s.zarr/{LEASE}", b"nonsense")
    sweep.run(described(), url)
    assert contents(url) == contents(plain)


def test_one_of_two_takes_a_lease(s3):
    """Both find none; the condition of the write decides."""
    one, two, began = Remote(s3), Remote(s3), threading.Barrier(2)
    found = {}

    def take(which):
        read = which._lease

        def first():
            which._lease = read
            answer = read()
            began.wait(30)
            return answer

        which._lease = first
        try:
            with which.alone():
                found[which] = "mine"
                began.wait(30)
        except ln.InputError as error:
            found[which] = str(error)
            began.wait(30)

    threads = [threading.Thread(target=take, args=(which,)) for which in (one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(words == "mine" for words in found.values()) == [False, True]
    assert located(s3).names() == set()


def test_a_lease_is_written_anew_and_its_loss_is_told(memory, monkeypatch):
    monkeypatch.setattr(place, "TERM", 0.06)
    url = "memory://s.zarr"
    there = located(url)

    def until(event):
        last = time.monotonic() + 300
        while not event():
            assert time.monotonic() < last
            time.sleep(0.005)

    with there.alone():
        first = there._lease()["time"]
        until(lambda: there._lease()["time"] > first)
        there.ours()
        lease(memory)
        until(lambda: there._lost)
        with pytest.raises(ln.InputError, match="was taken over by another process: this one has stopped"):
            there.ours()
    assert there._lease()["owner"] == "other"  # which is not ours to remove


# Merging and exporting ------------------------------------------------------------------------------------------------


def test_two_halves_become_the_whole(plain, memory, tmp_path):
    first, second, out = tmp_path / "first.zarr", "memory://second.zarr", "memory://both.zarr"
    for part, store in ((1, first), (2, second)):
        assert sweep.run(described(), store, part=(part, 2))["computed"] == 6
    assert sweep.merge(first, second, out) == (12, 12, 6, 6)
    assert contents(out) == contents(plain)
    assert sweep.merge(first, second, tmp_path / "s.zarr") == (12, 12, 6, 6)
    assert contents(tmp_path / "s.zarr") == contents(plain)
    assert sweep.merge(plain, second, first) == (12, 12, 12, 0)  # into one that is there
    assert contents(first) == contents(plain)


@pytest.mark.parametrize("after", [0, 3, 14, 20, 40])
def test_a_merge_that_fails_goes_on(after, plain, memory, monkeypatch):
    put, written = Remote.put, []

    def full(self, name, data):
        if len(written) >= after:
            raise ln.InputError("full")
        written.append(name)
        put(self, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(Remote, "put", full)
        assert one_sentence(sweep.merge, plain, plain, "memory://s.zarr") == "full"
    assert sweep.merge(plain, plain, "memory://s.zarr").finished == 12
    assert contents("memory://s.zarr") == contents(plain)


def test_stores_that_do_not_agree_are_not_merged(plain, memory, tmp_path):
    out = tmp_path / "out.zarr"
    for other, words in (
        (described(steps=99), "hold two sweeps: run.steps is 100 in the first and 99 in the second."),
        (described(batch=4), "hold one sweep in different chunks: give both the same batch and chunks."),
    ):
        store = f"memory://{len(words)}.zarr"
        sweep.run(other, store)
        assert words in one_sentence(sweep.merge, plain, store, out)
    assert "there is nothing" in one_sentence(sweep.merge, plain, "memory://none.zarr", out)
    assert not out.exists()
    sweep.run(described(), "memory://same.zarr")
    end = Remote("memory://same.zarr")
    end.put("end/1.0", end.read("end/0.0"))  # whole, with other numbers
    said = one_sentence(sweep.merge, plain, "memory://same.zarr", out)
    assert said.startswith("end at alpha = 0.5, lr = 0.01 to 0.05 is not the same in all stores that have it")
    assert sweep.check(None, out) == (12, 4, [])  # what was merged before is whole
    end.put("end/1.0", b"damaged")  # which is as good as missing
    assert sweep.merge("memory://same.zarr", plain, out) == (12, 12, 10, 2)
    assert contents(out) == contents(plain)


def test_a_store_becomes_one_file(plain, memory, tmp_path):
    url = "memory://s.zarr"
    sweep.run(described(), url, part=(1, 2))
    for store, finished in ((plain, 12), (url, 6)):
        assert sweep.export(store, tmp_path / "s.nc") == finished
        with xarray.open_dataset(tmp_path / "s.nc", engine="scipy") as data:
            xarray.testing.assert_equal(data.load(), xarray.open_zarr(located(store).zarr()).load())
    assert "must end in .nc or .parquet" in one_sentence(sweep.export, plain, tmp_path / "s.csv")
    assert "there is nothing" in one_sentence(sweep.export, "memory://none", tmp_path / "t.nc")
    located(url).put("end/0.0", b"damaged")
    assert "is damaged" in one_sentence(sweep.export, url, tmp_path / "t.nc")
    assert [path.name for path in tmp_path.iterdir()] == ["s.nc"]


def test_a_table_has_a_row_for_each_run(plain, tmp_path, monkeypatch):
    data = xarray.open_zarr(plain).load()
    table = exchange._table(data, ("alpha", "lr"))
    assert len(table) == 12
    for _, row in table.iterrows():
        cell = data.sel(alpha=row["alpha"], lr=row["lr"])
        assert row["end"] == cell["end"]
        assert row["curve"] == cell["curve"].values.tolist()
        assert row["record"] == data["record"].values.tolist()
    if importlib.util.find_spec("pyarrow") is not None:
        import pandas

        sweep.export(plain, tmp_path / "s.parquet")
        assert pandas.read_parquet(tmp_path / "s.parquet")["end"].tolist() == table["end"].tolist()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "it needs pyarrow" in one_sentence(sweep.export, plain, tmp_path / "t.parquet")


def test_commands(memory, tmp_path, monkeypatch, capsys):
    """What the options ask for, with as many places as that needs."""
    from linnet import cli

    def linnet(*arguments):
        monkeypatch.setattr(sys, "argv", ["linnet", "sweep", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.guarded()
        out, err = capsys.readouterr()
        return ended.value.code or 0, " ".join(out.split()), " ".join(err.split())

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    (tmp_path / "s.toml").write_text(text())
    for part in (1, 2):
        assert linnet("s.toml", "--out", f"memory://{part}.zarr", "--part", f"{part}/2")[0] == 0
    told = linnet("--merge", "memory://1.zarr", "memory://2.zarr", "--out", "memory://s.zarr")
    assert told == (0, "memory://s.zarr: 12 of 12 runs, 6 from memory://1.zarr and 6 from memory://2.zarr.", "")
    assert linnet("--check", "memory://s.zarr") == (0, "memory://s.zarr: 12 of 12 runs are complete.", "")
    assert linnet("s.toml", "--out", "memory://s.zarr", "--check")[0] == 0
    assert linnet("--export", "memory://s.zarr", "s.nc") == (0, "12 finished runs of memory://s.zarr into s.nc.", "")
    told = json.loads(linnet("s.toml", "--out", "memory://none.zarr", "--dry-run", "--json")[1])
    assert (told["out"], told["missing"], told["chunks"]) == ("memory://none.zarr", 12, 6)
    assert not contents("memory://none.zarr")
    memory.rm_file("/s.zarr/curve/1.0.0")
    code, out, _ = linnet("--check", "memory://s.zarr", "--json")
    assert code == 1
    assert json.loads(out)["damage"] == [{"arrays": ["curve"], "cells": {"alpha": [0.5, 0.5], "lr": [0.01, 0.05]}}]
    for arguments, words in (
        (("s.toml",), "needs other arguments: SPEC --out STORE."),
        (("--export", "memory://s.zarr"), "needs other arguments: --export STORE FILE."),
        (("--merge", "memory://s.zarr", "--out", "x"), "needs other arguments: --merge FIRST SECOND --out STORE."),
        (("--check", "--merge", "memory://s.zarr"), "--check and --merge are not allowed together: give one of them."),
        (("--check", "memory://s.zarr", "--part", "1/2"), "--check and --part are not allowed together"),
        (("--check", "memory://s.zarr", "--cluster", "local"), "--check and --cluster are not allowed together"),
        (("s.toml", "--out", "x", "--dry-run", "--part", "1/2"), "--dry-run and --part are not allowed together"),
        (("s.toml", "--cluster", "local"), "needs other arguments: SPEC --out STORE."),
        (("s.toml", "--out", "x", "--part", "3/2"), "part = 3/2 is not allowed: it must be 1/N, 2/N ... or N/N."),
        (("s.toml", "--out", "x", "--part", "half"), "--part half is not allowed"),
    ):
        code, _, err = linnet(*arguments)
        assert code == 2
        assert words in err
    assert not (tmp_path / "x").exists()


# Axes of names, and chunks for who reads ------------------------------------------------------------------------------

NAMED = """
chunks = "{chunks}"
batch = 2
[axes]
seed = [0, 1]
[axes.problem]
made = {{ kind = "factorization", target = [[2.0, 0.0], [0.0, 1.0]] }}
read = {{ kind = "factorization", target = {{ file = "target.csv" }} }}
[axes.init]
small = {{ kind = "gaussian", width = [3], variance = 0.01 }}
eye = {{ kind = "i_gamma", gamma = 0.1 }}
[axes.optimizer.descent]
kind = "SGD"
lr = 0.1
[axes.optimizer.Adam]
kind = "Adam"
lr = "0.01 * norm(target)"
[run]
steps = 20
record = "every 5"
[store]
curve = "loss"
values = "singular_values at end"
"""


def test_axes_hold_problems_initializations_and_optimizers_by_name(tmp_path):
    np.savetxt(tmp_path / "target.csv", [[3.0, 1.0], [0.0, 1.0]], delimiter=",")
    spec = sweep.parse(NAMED.format(chunks="runs"), folder=tmp_path)
    sweep.run(spec, tmp_path / "s.zarr")
    sweep.export(tmp_path / "s.zarr", tmp_path / "s.nc")
    data = xarray.open_zarr(tmp_path / "s.zarr").load()
    with xarray.open_dataset(tmp_path / "s.nc", engine="scipy") as file:
        assert file["optimizer"].values.tolist() == data["optimizer"].values.tolist() == ["descent", "Adam"]
        np.testing.assert_array_equal(file["curve"], data["curve"])
    for seed in (0, 1):
        for name, target in {"made": [[2.0, 0.0], [0.0, 1.0]], "read": [[3.0, 1.0], [0.0, 1.0]]}.items():
            problem = ln.factorization(np.array(target))
            networks = {
                "small": ln.init.gaussian(jax.random.key(seed), problem, (3,), 0.01),
                "eye": ln.init.i_gamma(problem, 0.1),
            }
            optimizers = {"descent": ln.optim.SGD(0.1), "Adam": ln.optim.Adam(0.01 * np.linalg.norm(target, 2))}
            for init, optimizer in itertools.product(networks, optimizers):
                run = ln.simulate(problem, networks[init], optimizers[optimizer], steps=20, record=ln.record.every(5))
                cell = data["curve"].sel(seed=seed, problem=name, init=init, optimizer=optimizer)
                np.testing.assert_allclose(cell, run["loss"], rtol=1e-9)
    found = located(tmp_path / "s.zarr")
    found.put("curve/1.1.0.0.0", b"damaged")
    where = {"seed": [1, 1], "problem": ["read", "read"], "init": ["small", "small"], "optimizer": ["descent", "Adam"]}
    assert sweep.check(spec, tmp_path / "s.zarr").damage == [(["curve"], where)]
    np.savetxt(tmp_path / "target.csv", [[3.0, 1.0], [0.0, 2.0]], delimiter=",")
    assert "holds another sweep: files" in one_sentence(sweep.run, spec, tmp_path / "s.zarr")


def test_records_in_chunks_of_their_own(tmp_path, memory):
    """The same numbers in other chunks; a lost record is found."""
    np.savetxt(tmp_path / "target.csv", np.eye(2), delimiter=",")
    data = {}
    for chunks in ("runs", "records"):
        url = f"memory://{chunks}.zarr"
        spec = sweep.parse(NAMED.format(chunks=chunks), folder=tmp_path)
        sweep.run(spec, url)
        opened = xarray.open_zarr(url)
        assert opened["curve"].encoding["chunks"] == (1, 1, 1, 2, 5 if chunks == "runs" else 1)
        data[chunks] = opened.load()
    xarray.testing.assert_equal(data["runs"], data["records"])
    before = contents(url)
    memory.rm_file("/records.zarr/curve/0.1.0.0.3")
    assert sweep.check(None, url).finished == 14
    assert sweep.run(spec, url)["computed"] == 2
    assert contents(url) == before
    assert "different chunks" in one_sentence(sweep.merge, url, "memory://runs.zarr", "memory://both.zarr")
    assert sweep.merge(url, url, "memory://both.zarr").finished == 16
    assert contents("memory://both.zarr") == before


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "[axes.optimizer.Adam]",
            "[axes.how.Adam]",
            "the axis how has tables: only problem, init, optimizer may have them",
        ),
        ("[run]", "[optimizer]\nkind = 'Adam'\n[run]", "optimizer is given twice: as a table and as an axis"),
        ("[axes.problem]", "[problem.other]", "problem.kind is missing"),
        ('kind = "Adam"', "", "axes.optimizer.kind is missing"),
        ('kind = "Adam"', 'kind = "Adan"', "optimizer.kind = 'Adan' is not allowed"),
        ("width = [3]", "width = 3", "Adam does not treat all neurons alike"),
        ("[[2.0, 0.0], [0.0, 1.0]]", "[[2.0]]", "store.values has shape (1,) in some cells and not in others"),
        ('chunks = "runs"', 'chunks = "steps"', "chunks = 'steps' is not allowed"),
    ],
)
def test_mistakes_in_axes_of_names_are_one_sentence(old, new, words, tmp_path):
    np.savetxt(tmp_path / "target.csv", np.eye(2), delimiter=",")
    described = NAMED.format(chunks="runs")
    assert old in described
    said = one_sentence(
        lambda: sweep.run(sweep.parse(described.replace(old, new), folder=tmp_path), tmp_path / "s.zarr")
    )
    assert words in said
    assert not (tmp_path / "s.zarr").exists()
