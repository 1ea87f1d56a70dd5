"""Whatever goes wrong around a command, it says one sentence or does the right work: never a traceback, never a lost file.

The faults: a full disk, places that cannot be written, damaged files, two commands at once, a kill, closed pipes, no
home, tiny terminals, too little memory.
"""

import errno
import json
import os
import re
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from linnet import _check, _files, report
from linnet.reproduction import Verdicts, Verified, files
from linnet.sweep.store import alone

COMMAND = ()
SPEC = """
batch = 1
[axes]
lr = [0.1, 0.2]
[problem]
kind = "factorisation"
target = [[2.0, 0.0], [0.0, 1.0]]
[start]
kind = "i_gamma"
gamma = 0.1
[motion]
kind = "GradientDescent"
lr = "lr"
[run]
steps = 5
[store]
loss = "loss at end"
"""
FIGURE = ("reproduce", "stability/fig13", "--out", "r")
VERIFY = ("verify", "mixed/C17", "--out", "r")
SWEEP = ("sweep", "s.toml", "--out", "s.zarr")
PREDICT = {
    "phase": ("--gamma-w", 1.5, "--gamma-sigma2", -1.5, "--d", 20, "--rank", 1),
    "bias": ("--gamma", 0.1, "--spectrum", "2.123,1.456"),
    "landscape": ("--width", 2, "--spectrum", "2.123,1.456"),
    "rates": ("--spectrum", "2.123,1.456", "--depth", 2),
    "stability": ("--depth", 2, "--spectrum", "2.123,1.456"),
    "features": ("--width", 10, "--v0", 1, "--sigma0", 0.1, "--samples", 4, "--inputs", 5),
    "network": ("--spectrum", "2.123,1.456", "--width", 3, "--scale", 0.1),
}
PICTURES = {
    "demo": ("demo", "--d", 10, "--rank", 1, "--steps", 5, "--out", "x.png"),
    **{topic: ("predict", topic, *more, "--plot", "x.png") for topic, more in PREDICT.items()},
}
WRITERS = {"sweep": SWEEP, "reproduce": FIGURE, "verify": VERIFY, **PICTURES}


@pytest.fixture
def here(typed, tmp_path):
    """Runs a command in an empty folder with a sweep described in it."""
    (tmp_path / "s.toml").write_text(SPEC)
    return typed


def written(folder):
    """All files, without what describes the sweep."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} - {"s.toml"}


def one_sentence(err, words):
    assert words in err
    assert err.startswith("linnet: ")
    assert "Traceback" not in err


# Full disks and places that cannot be written -------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRITERS)
def test_a_disk_that_fills_up(name, here, tmp_path, monkeypatch):
    """All files are put in place by a rename; where it has no room, the same command goes on after space is made."""
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", _refused(errno.ENOSPC))
        code, _, err = here(*WRITERS[name])
    assert code == 2
    one_sentence(err, "cannot be written: no space left on device; make space and give the same command again.")
    assert not {file for file in written(tmp_path) if "partial" in file or ".new" in file or "lock" in file}
    code, _, err = here(*WRITERS[name])
    assert (code, err) == (0, "")
    assert written(tmp_path)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_what_cannot_be_written_is_found_before_the_work(name, fault, here, tmp_path, monkeypatch):
    """A full disk, a read-only one, a folder of someone else's."""
    for method in ("write_bytes", "mkdir", "touch"):
        monkeypatch.setattr(Path, method, _refused(fault))
    code, out, err = here(*WRITERS[name])
    assert code == 2
    one_sentence(err, f"cannot be written: {os.strerror(fault).lower()}")
    assert "runs in" not in out  # of a sweep, which tells first what it will do
    assert name == "sweep" or not out
    assert not written(tmp_path)


def _refused(code):
    def refuse(*arguments, **options):
        raise OSError(code, os.strerror(code))

    return refuse


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_disk_that_is_really_full(here, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "none", disk], capture_output=True).returncode:
        pytest.skip("this machine does not mount disks")
    try:
        command = (*FIGURE[:-1], disk / "r")
        code, _, err = here(*command)
        assert code == 2
        one_sentence(err, "data.nc' cannot be written: no space left on device")
        (disk / "rest").write_bytes(bytes(40_000))
        code, out, err = here(*PICTURES["demo"][:-1], disk / "x.png")
        assert (code, out) == (2, "")
        one_sentence(err, "x.png' cannot be written: no space left on device")
        subprocess.run(["mount", "-o", "remount,size=20m", disk], check=True)
        code, _, err = here(*command)
        assert (code, err) == (0, "")
        assert files.results(disk / "r")[0].holds
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("demo", "--out", "/dev/full"), "ending in .png"),
        (("demo", "--out", "/dev/full/x.png"), "in a folder that exists"),
        (("demo", "--out", "link.png"), "it is not a file"),
        (("reproduce", "stability/fig13", "--out", "/dev/full"), "there is a file where a folder should be"),
        (("verify", "mixed/C17", "--out", "s.toml"), "there is a file where a folder should be"),
        (("sweep", "s.toml", "--out", "/dev/full"), "is not a store of a sweep"),
        (("sweep", "s.toml", "--out", "s.toml/s.zarr"), "there is a file where a folder should be"),
        (("sweep", "s.toml", "--out", "none.zarr", "--check"), "there is nothing"),
        (("predict", "bias", *PREDICT["bias"], "--plot", "x.tiff"), "ending in .png"),
        (("predict", "bias", *PREDICT["bias"], "--plot", "folder.png"), "ending in .png"),
    ],
)
def test_places_that_are_none(arguments, words, here, tmp_path):
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "link.png").symlink_to("/dev/full")
    code, out, err = here(*arguments)
    assert (code, out) == (2, "")
    one_sentence(err, words)


def test_a_link_to_a_picture_stays_a_link(here, tmp_path):
    (tmp_path / "x.png").symlink_to(tmp_path / "real.png")
    assert here(*PICTURES["bias"])[0] == 0
    assert (tmp_path / "x.png").is_symlink()
    assert (tmp_path / "real.png").read_bytes().startswith(b"\x89PNG")


# Pipes ----------------------------------------------------------------------------------------------------------------


def test_a_closed_pipe_loses_no_file(started, tmp_path):
    """`linnet reproduce ... | head -1`."""
    child = started(*FIGURE, cwd=tmp_path)
    child.process.stdout.close()
    told = child.process.stderr.read()
    assert (child.process.wait(), told) == (0, "")
    assert written(tmp_path) == {"r/index.html"} | {
        f"r/stability/fig13/{name}"
        for name in ("data.nc", "figure.png", "figure.svg", "parameters.json", "result.json")
    }
    child.process.stdout = None


def test_standard_output_on_a_full_disk(started, tmp_path):
    (tmp_path / "s.toml").write_text(SPEC)
    with open("/dev/full", "w") as full:
        child = started(*SWEEP, cwd=tmp_path, stdout=full)
    _, told = child.process.communicate()
    assert child.process.returncode == 1
    assert (
        "".join(told.split())
        == "linnet:standardoutputcannotbewritten:nospaceleftondevice;makespaceandgivethesamecommandagain."
    )
    assert (tmp_path / "s.zarr" / "loss" / "1").exists()  # all the same


# No home, tiny terminals, little memory --------------------------------------------------------------------------------


def test_no_home(started, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "MPLCONFIGDIR")}
    child = started(
        *PICTURES["bias"], cwd=tmp_path, env={**environment, "HOME": "/proc/none", "XDG_CACHE_HOME": "/proc/none"}
    )
    _, told = child.process.communicate()
    assert (child.process.returncode, told) == (0, "")
    assert (tmp_path / "x.png").exists()


TOLD = {
    "list": ("list", "mixed"),
    "show": ("show", "mixed/C17"),
    "figure": ("show", "mixed/fig1"),
    "verify": ("verify", "mixed/C17", "mixed/E20"),
    **{topic: ("predict", topic, *more) for topic, more in PREDICT.items() if topic != "network"},
    **{f"{topic} run": ("predict", topic, *PREDICT[topic], "--run") for topic in ("bias", "landscape", "phase")},
}
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?%?(?![\w.]*\d)")


@pytest.mark.parametrize("name", TOLD)
def test_tiny_terminals_leave_out_columns_and_never_digits(name, here):
    def told(columns):
        code, out, err = here(*TOLD[name], columns=columns)
        assert (code, err) == (0, "")
        return out

    wide = told(400)
    for columns in (60, 45, 20):
        narrow = told(columns)
        assert "…" not in narrow.replace("… and", "")
        assert max(map(len, narrow.splitlines())) <= columns
        if columns >= 45:  # below, what has no room at all goes on in the next line
            seconds = re.compile(r"\b\d+\.\d\b( s)?")  # times differ
            assert set(NUMBER.findall(seconds.sub("", narrow))) <= set(NUMBER.findall(seconds.sub("", wide)))


def test_too_little_memory(here, monkeypatch):
    for error in (MemoryError(), RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")):

        def fail(*arguments, error=error, **options):
            raise error

        monkeypatch.setattr("linnet.predict.bias.of_samples", fail)
        code, out, err = here("predict", "bias", *PREDICT["bias"])
        assert (code, out) == (2, "")
        one_sentence(err, "the memory of this machine does not suffice")
    monkeypatch.setattr(_check, "memory", lambda: 10**5)
    code, _, err = here(*PICTURES["demo"][:1], "--d", 1000, "--rank", 1)
    assert code == 2
    one_sentence(err, "d = 1000 is not allowed: matrices of 1000 x 1000 would take about")


# Kills, damage, two at once --------------------------------------------------------------------------------------------


def test_killed_and_given_again(started, here, tmp_path):
    child = started(*FIGURE, cwd=tmp_path)
    child.until((tmp_path / "r" / "stability" / "fig13" / "parameters.json").exists)
    child.process.send_signal(signal.SIGKILL)
    child.process.communicate()
    code, _, err = here(*FIGURE)
    assert (code, err) == (0, "")
    assert files.results(tmp_path / "r")[0].holds


def test_damaged_results(here, tmp_path):
    """What can be made again is; of what cannot, the sentence says how to go on."""
    assert here(*FIGURE)[0] == here(*VERIFY)[0] == 0
    folder = tmp_path / "r" / "stability" / "fig13"
    good = {path: path.read_bytes() for path in (folder / "data.nc", folder / "parameters.json")}
    for path, content in good.items():
        for bad in (b"", b"{]", b"\xff\xfe", content[:-9], content.replace(b"\x00", b"\x01", 1) + b" "):
            path.write_bytes(bad)
            code, out, err = here(*FIGURE)
            assert (code, err) == (0, ""), (path, bad[:20])
            assert "kept from" not in out
    assert {path: path.read_bytes() for path in good} == good
    for path, command in ((folder / "result.json", FIGURE), (tmp_path / "r" / "claims.json", VERIFY)):
        for bad in (b"", b"[1, 2]", b'{"size": 3}', b"\xff\xfe", b"null"):
            path.write_bytes(bad)
            code, out, err = here(*command)
            assert (code, out) == (2, "")  # before the work
            one_sentence(err, f"{path.name}' cannot be read: it is damaged")
            assert "delete it and give the same command again" in err
        path.unlink()
        assert here(*command)[0] == 0


def test_damaged_chunks(here, tmp_path):
    assert here(*SWEEP)[0] == 0
    code, out, _ = here(*SWEEP, "--check")
    assert (code, out) == (0, "s.zarr: 2 of 2 runs are there and whole.\n")
    chunk = tmp_path / "s.zarr" / "loss" / "1"
    good = chunk.read_bytes()
    chunk.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    code, out, _ = here(*SWEEP, "--check")
    assert code == 1
    assert out.startswith("damaged loss at lr = 0.2\ns.zarr: 1 of 2 runs are there and whole.\n")
    told = json.loads(here(*SWEEP, "--check", "--json")[1])
    assert told == {
        "out": "s.zarr",
        "cells": 2,
        "finished": 1,
        "damage": [{"arrays": ["loss"], "cells": {"lr": [0.2, 0.2]}}],
    }
    code, out, _ = here(*SWEEP)
    assert code == 0
    assert "Damaged chunks that were computed again: 1." in out
    assert chunk.read_bytes() == good
    assert here(*SWEEP, "--check")[0] == 0
    (tmp_path / "s.zarr" / ".zmetadata").write_text("{]")
    code, _, err = here(*SWEEP)
    assert code == 2
    one_sentence(err, "is not a store of a sweep: give another --out or delete it.")


def test_two_at_once_are_told_so(here, tmp_path):
    folder = tmp_path / "r" / "stability" / "fig13"
    folder.mkdir(parents=True)
    for command, lock in ((FIGURE, _files.locked(folder, folder)), (SWEEP, alone(tmp_path / "s.zarr"))):
        with lock:
            code, _, err = here(*command)
        assert code == 2
        one_sentence(err, "is being written by another process: wait for it or stop it.")
        assert here(*command)[0] == 0


def test_two_at_once_lose_no_verdict(tmp_path):
    """Claims that several commands verify into one folder: whoever comes second waits."""
    begin = threading.Barrier(8)

    def put(number):
        begin.wait()
        verdict = Verified(f"mixed/C{number}", "mixed", "exact", "", True, 0.0, 1.0, 1.0, 0.0, "")
        files.store(tmp_path, Verdicts("quick", [verdict]))
        report.write(tmp_path)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(put, range(1, 9)))
    found = files.verdicts(tmp_path)
    assert {verdict.id for verdict in found.claims} == {f"mixed/C{number}" for number in range(1, 9)}
    assert "8 claims and errata verified" in " ".join((tmp_path / "index.html").read_text().split())
