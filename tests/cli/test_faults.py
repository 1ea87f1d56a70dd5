"""Whatever goes wrong around a command, it says one sentence or does the right work: no traceback, and no lost file.

The faults: a full disk, places that cannot be written, damaged files, two commands at once, a kill, closed pipes, no
home, tiny terminals, too little memory.
"""

import contextlib
import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import pytest
from rich.console import Console

import linnet as ln
from linnet import _check, _files, claims, papers, prediction, report
from linnet._table import Fitted, Heading
from linnet.experiments import experiments
from linnet.plot.style import canvas
from linnet.reproduction import Verdicts, Verified, files
from linnet.sweep.place import located

COMMAND = ()
SPEC = """
batch = 1
[axes]
lr = [0.1, 0.2]
[problem]
kind = "factorization"
target = [[2.0, 0.0], [0.0, 1.0]]
[init]
kind = "i_gamma"
gamma = 0.1
[optimizer]
kind = "SGD"
lr = "lr"
[run]
steps = 5
[store]
loss = "loss at end"
"""
OWN = '''
"""An experiment that costs nothing, and waits where nobody has made the file `go`."""
import time
from pathlib import Path
import xarray
from linnet.claims import at_most, subject
from linnet.experiments import Experiment
from linnet.plot.style import canvas

subject("tiny", "Next to nothing")

class Fig(Experiment):
    """A line."""
    id, place, title = "tiny/fig1", "page 1", "A line"
    quick, minutes = {}, {"quick": 0.01, "paper": 0.01}

    def run(self, folder, progress, workers):
        while not Path("go").exists():
            Path("began").touch()
            time.sleep(0.01)
        return xarray.Dataset({"y": ("x", [float(k) for k in range(10_000)])})

    def draw(self, data):
        figure = canvas(6, 4)
        figure.subplots().plot(data["y"])
        return figure

    def accept(self, data):
        return {"it starts at zero": at_most(abs(float(data["y"][0])), 0.0)}
'''
FIGURE = ("reproduce", "tiny/fig1", "--from", "own.py", "--out", "r")
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
    "film": ("demo", "--d", 10, "--rank", 1, "--steps", 5, "--out", "x.gif"),
    **{topic: ("predict", topic, *more, "--plot", "x.png") for topic, more in PREDICT.items()},
}
WRITERS = {"sweep": SWEEP, "reproduce": FIGURE, "verify": VERIFY, **PICTURES}
FILES = ("data.nc", "figure.png", "figure.svg", "parameters.json", "result.json")


@pytest.fixture
def folder(tmp_path):
    """A sweep described, and an experiment of one's own."""
    for name, text in {"s.toml": SPEC, "own.py": OWN, "go": ""}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def here(typed, folder, monkeypatch):
    """Runs a command in that folder, in this process."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    claims.registry(), experiments()
    with papers.apart():
        yield typed


class Told(prediction.Prediction):
    """What a prediction is to its command: the figures themselves are no business of this file."""

    def __rich__(self):
        return "It converges."

    def plot(self):
        return canvas(4, 3)

    def measure(self, *, progress=None):
        raise NotImplementedError


@pytest.fixture
def quick(monkeypatch):
    """Predictions that cost nothing."""
    for topic in {*PREDICT, "gaussian_features"} - {"network", "stability"}:  # which are asked in other ways, and quick
        monkeypatch.setattr(prediction, topic, lambda *arguments, **options: Told("told", "It converges.", ()))


def written(folder):
    """All files that a command has left."""
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {name for name in there if "__pycache__" not in name} - {"s.toml", "own.py", "go", "began"}


def one_sentence(err, words):
    assert words in err
    assert err.startswith("linnet: ")
    assert "Traceback" not in err


# Full disks and places that cannot be written -------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRITERS)
def test_a_disk_that_fills_up(name, here, quick, tmp_path, monkeypatch):
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
def test_what_cannot_be_written_is_found_before_the_work(name, fault, here, quick, tmp_path, monkeypatch):
    """A full disk, a read-only one, a folder of someone else's."""
    for method in ("write_bytes", "mkdir", "touch"):
        monkeypatch.setattr(Path, method, _refused(fault))
    code, out, err = here(*WRITERS[name])
    assert code == 2
    one_sentence(err, f"cannot be written: {os.strerror(fault).lower()}")
    assert out == ("2 lr: 2 runs into s.zarr\n" if name == "sweep" else "")
    assert not written(tmp_path)


def _refused(code):
    def refuse(*arguments, **options):
        raise OSError(code, os.strerror(code))

    return refuse


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_disk_that_is_really_full(here, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80k", "none", disk], capture_output=True).returncode:
        pytest.skip("this machine does not mount disks")
    try:
        command = (*FIGURE[:-1], disk / "r")
        code, _, err = here(*command)
        assert code == 2
        one_sentence(err, "cannot be written: no space left on device")
        with contextlib.suppress(OSError):
            (disk / "rest").write_bytes(bytes(80_000))
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
        (("demo", "--out", "x.avi"), "ending in .png, .svg, .pdf, .gif, .mp4"),
        (("demo", "--out", "none/x.gif"), "in a folder that exists"),
        (("demo", "--out", "folder.gif"), "in a folder that exists"),
        (("demo", "--out", "link.gif"), "it is not a file"),
        (("demo", "--out", "link.mp4"), "it is not a file"),
        ((*FIGURE[:-1], "/dev/full"), "there is a file where a folder should be"),
        (("verify", "mixed/C17", "--out", "s.toml"), "there is a file where a folder should be"),
        (("sweep", "s.toml", "--out", "/dev/full"), "is not a store of a sweep"),
        (("sweep", "s.toml", "--out", "s.toml/s.zarr"), "there is a file where a folder should be"),
        (("sweep", "s.toml", "--out", "none.zarr", "--check"), "there is nothing"),
        (("predict", "bias", *PREDICT["bias"], "--plot", "x.tiff"), "ending in .png"),
        (("predict", "bias", *PREDICT["bias"], "--plot", "folder.png"), "ending in .png"),
    ],
)
def test_places_that_are_none(arguments, words, here, tmp_path):
    for suffix in ("png", "gif", "mp4"):
        (tmp_path / f"folder.{suffix}").mkdir()
        (tmp_path / f"link.{suffix}").symlink_to("/dev/full")
    code, out, err = here(*arguments)
    assert code == 2
    assert out in ("", f"2 lr: 2 runs into {arguments[-1]}\n")
    one_sentence(err, words)


def test_an_mp4_without_ffmpeg_is_refused_before_the_work(here, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    code, out, err = here("demo", "--out", "x.mp4")
    assert (code, out) == (2, "")
    one_sentence(err, "an MP4 needs ffmpeg: pip install 'linnet[lab]'")
    assert not written(tmp_path)


def test_a_link_to_a_picture_stays_a_link(here, quick, tmp_path):
    (tmp_path / "x.png").symlink_to(tmp_path / "real.png")
    assert here(*PICTURES["bias"])[0] == 0
    assert (tmp_path / "x.png").is_symlink()
    assert (tmp_path / "real.png").read_bytes().startswith(b"\x89PNG")


# Pipes ----------------------------------------------------------------------------------------------------------------


def test_a_closed_pipe_loses_no_file(started, folder):
    """`linnet reproduce ... | head -1`."""
    child = started(*FIGURE, cwd=folder)
    child.process.stdout.close()
    assert child.process.stderr.read() == ""
    assert child.process.wait() == 0
    assert written(folder) == {"r/index.html", *(f"r/tiny/fig1/{name}" for name in FILES)}


def test_standard_output_on_a_full_disk(started, folder):
    with open("/dev/full", "w") as full:
        child = started(*SWEEP, cwd=folder, stdout=full, env={**os.environ, "COLUMNS": "200"})
    told = child.process.stderr.read()
    assert child.process.wait() == 1
    assert told.startswith("linnet: standard output cannot be written: no space left on device; ")
    assert told.count("\n") == 1
    assert (folder / "s.zarr" / "loss" / "1").exists()  # all the same


# No home, tiny terminals, little memory -------------------------------------------------------------------------------


def test_no_home(started, folder):
    """Whose libraries would keep their fonts there: no word of it, and the picture is made."""
    without = {name: value for name, value in os.environ.items() if name not in ("HOME", "MPLCONFIGDIR")}
    places = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), "/proc/none")
    child = started(*FIGURE, cwd=folder, env={**without, **places})
    told = child.process.stderr.read()
    assert (child.process.wait(), told) == (0, "")
    assert (folder / "r" / "tiny" / "fig1" / "figure.png").exists()


SPECTRUM = [2.123, 1.456]
WHITE = prediction.whitened(SPECTRUM)
TARGET = ln.factorization(SPECTRUM)
ANSWERS = {
    "balance": lambda: prediction.balance(
        prediction.whitened(SPECTRUM),
        ln.init.lambda_balanced(jax.random.key(0), prediction.whitened(SPECTRUM), 0.5, 2, scale=0.01),
    ),
    "bias": lambda: prediction.bias(WHITE, ln.init.i_gamma(WHITE, 0.1)),
    "landscape": lambda: prediction.landscape(SPECTRUM, (2,)),
    "rates": lambda: prediction.rates(WHITE, ln.init.rank_one(jax.random.key(0), WHITE, 0.01, 2)),
    "stability": lambda: prediction.stability(TARGET, ln.init.one_zero(TARGET, 0.1, 2)),
    "features": lambda: prediction.gaussian_features(samples=4, inputs=5, width=10, v0=1, sigma0=0.1),
    "phase": lambda: prediction.phase(gamma_w=1.5, gamma_sigma2=-1.5, d=20, rank=1),
    "landscape, measured": lambda: prediction.landscape(SPECTRUM, (2,)).measure(),
}
PRINTED = {
    "list": ("list", "nonlocal"),
    "show": ("show", "mixed/C17"),
    "a figure": ("show", "mixed/fig1"),
    "verify": ("verify", "mixed/C17"),
}
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?%?(?![\w.]*\d)")


def narrow_enough(told, columns, wide):
    """No line is too long, nothing is cut, and every number is one of those of a wide terminal."""
    assert max(map(len, told.splitlines())) <= columns
    assert "…" not in told
    if columns >= 45:  # below, what has no room at all goes on in the next line
        assert set(NUMBER.findall(told)) <= set(NUMBER.findall(wide))


@pytest.mark.parametrize("name", ANSWERS)
def test_predictions_on_tiny_terminals_leave_out_columns_and_never_digits(name):
    answer = ANSWERS[name]()

    def told(columns):
        console = Console(width=columns, file=io.StringIO(), highlight=False)
        console.print(answer)
        return console.file.getvalue()

    for columns in (80, 60, 45, 20):
        narrow_enough(told(columns), columns, told(400))


@pytest.mark.parametrize("name", PRINTED)
def test_lists_on_tiny_terminals_leave_out_columns_and_never_digits(name, here):
    def told(columns):
        code, out, err = here(*PRINTED[name], columns=columns)
        assert (code, err) == (0, "")
        return re.sub(r"\d+\.\d( s|$|  )|\d+ s,", "", out, flags=re.MULTILINE)  # times are never the same

    wide = told(400)
    for columns in (60, 45, 20):
        narrow_enough(told(columns), columns, wide)


def test_columns_go_in_order():
    table = Fitted(Heading("id"), Heading("a", 1, right=True), Heading("b", 2), Heading("words", 3, prose=True))
    table.add("one", "1.2345678901234", "beta", "a long text that goes on and on and on")
    table.add("two")
    seen = {}
    for columns in (60, 26, 25, 10):
        console = Console(width=columns, file=io.StringIO())
        console.print(table)
        head, *rest = console.file.getvalue().splitlines()
        seen[columns] = head.split()
    assert seen == {60: ["id", "a", "b", "words"], 26: ["id", "a", "b"], 25: ["id", "a"], 10: ["id"]}
    assert " ".join(" ".join(rest).split()).endswith("Columns left out: a, b, words.")


def test_too_little_memory(here, monkeypatch):
    for error in (MemoryError(), RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")):

        def fail(*arguments, error=error, **options):
            raise error

        monkeypatch.setattr(prediction, "bias", fail)
        code, out, err = here("predict", "bias", *PREDICT["bias"])
        assert (code, out) == (2, "")
        one_sentence(err, "the memory of this machine does not suffice")
    monkeypatch.setattr(_check, "memory", lambda: 10**5)
    code, _, err = here(*PICTURES["demo"][:1], "--d", 1000, "--rank", 1)
    assert code == 2
    one_sentence(err, "d = 1000 is not allowed: matrices of 1000 x 1000 would take about")


# Kills, damage, two at once -------------------------------------------------------------------------------------------


def test_killed_and_given_again(started, here, folder):
    (folder / "go").unlink()
    child = started(*FIGURE, cwd=folder)
    child.until((folder / "began").exists)
    child.process.send_signal(signal.SIGKILL)
    child.process.communicate()
    (folder / "go").touch()
    code, _, err = here(*FIGURE)
    assert (code, err) == (0, "")
    assert written(folder) == {"r/index.html", *(f"r/tiny/fig1/{name}" for name in FILES)}


def test_damaged_results(here, folder):
    """What can be made again is; of what cannot, the sentence says how to go on."""
    assert here(*FIGURE)[0] == here(*VERIFY)[0] == 0
    place = folder / "r" / "tiny" / "fig1"
    good = {place / name: (place / name).read_bytes() for name in ("data.nc", "parameters.json")}
    data, mark = good.values()
    for name, bad in (
        ("data.nc", b""),
        ("data.nc", data[:-9]),
        ("data.nc", data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]),
        ("parameters.json", mark[:-9]),
        ("parameters.json", b"\xff\xfe"),
    ):
        (place / name).write_bytes(bad)
        code, out, err = here(*FIGURE)
        assert (code, err) == (0, ""), (name, bad[:20])
        assert "kept from" not in out
        assert {path: path.read_bytes() for path in good} == good
    for path, command in ((place / "result.json", FIGURE), (folder / "r" / "claims.json", VERIFY)):
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
    assert (code, out) == (0, "s.zarr: 2 of 2 runs are complete.\n")
    chunk = tmp_path / "s.zarr" / "loss" / "1"
    good = chunk.read_bytes()
    chunk.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    code, out, _ = here(*SWEEP, "--check")
    assert code == 1
    assert out.startswith("damaged loss at lr = 0.2\ns.zarr: 1 of 2 runs are complete.\n")
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
    folder = tmp_path / "r" / "tiny" / "fig1"
    folder.mkdir(parents=True)
    for command, lock in ((FIGURE, _files.locked(folder, folder)), (SWEEP, located(tmp_path / "s.zarr").alone())):
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
