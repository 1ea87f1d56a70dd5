"""Sweeps on Dask's workers, with real processes: whoever dies, and whenever, the store is that of a plain run."""

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import dask
import pytest
import xarray

import linnet as ln
from linnet import claims, papers, reproduction, sweep
from linnet.sweep import cluster
from linnet.sweep.place import located

SPEC = """
seed = 3
batch = {batch}
[axes]
variance = {{ start = 1e-3, stop = 1.0, count = {rows}, spacing = "log" }}
lr = {{ start = 0.05, stop = 5.0, count = {columns}, spacing = "log" }}
[problem]
kind = "low_rank_recovery"
d = 5
rank = 2
[init]
kind = "gaussian"
width = 9
variance = "variance"
[optimizer]
kind = "SGD"
lr = "lr"
[run]
steps = "40 if lr > 0.1 else 70"
[store]
best = "test_error at lowest test_error"
step = "step at lowest test_error"
values = "singular_values at end"
"""


@pytest.fixture(scope="module")
def grid(request, tmp_path_factory):
    """The file of a sweep of 60 networks (1,000 with --slow), and its store as a plain run makes it."""
    slow = request.config.getoption("--slow")
    folder = tmp_path_factory.mktemp("plain")
    file = folder / "s.toml"
    file.write_text(SPEC.format(rows=20 if slow else 3, columns=50 if slow else 20, batch=5 if slow else 2))
    sweep.run(sweep.read(file), folder / "s.zarr")
    return file, folder / "s.zarr"


@pytest.fixture(scope="module", autouse=True)
def patience():
    """Five minutes for whatever starts or answers, here and in processes of Dask: the machine may be busy."""
    timeouts = {f"distributed.comm.timeouts.{name}": "300s" for name in ("connect", "tcp")}
    with pytest.MonkeyPatch.context() as patch, dask.config.set(timeouts):
        for name in ("CONNECT", "TCP"):
            patch.setenv(f"DASK_DISTRIBUTED__COMM__TIMEOUTS__{name}", "300s")
        for name in ("_ANSWER", "_WORKERS", "_QUEUE"):
            patch.setattr(cluster, name, 300)
        yield


@pytest.fixture(scope="module")
def local(patience):
    with sweep.connect("local:2") as client:
        yield client


def contents(store):
    return {str(path.relative_to(store)): path.read_bytes() for path in sorted(store.rglob("*")) if path.is_file()}


def chunks(store):
    """How many are finished: their status is there."""
    return len(list(store.glob("status/[0-9]*")))


def test_workers_that_die_change_no_byte(grid, tmp_path, local, request):
    """One of two is killed (ten times with --slow); those that begin in its place work too."""
    file, plain = grid
    killed, kills = set(), 10 if request.config.getoption("--slow") else 1

    def kill(done, total):
        if len(killed) < kills and done >= total * (len(killed) + 1) // (kills + 2):
            worker = min(set(local.run(os.getpid, on_error="ignore").values()) - killed, default=None)
            if worker is not None:  # else the next is not there yet
                os.kill(worker, signal.SIGKILL)
                killed.add(worker)

    counts = sweep.run(sweep.read(file), tmp_path / "s.zarr", kill, client=local)
    assert len(killed) == kills
    assert counts["computed"] == counts["cells"]
    assert contents(tmp_path / "s.zarr") == contents(plain)


class Station:
    """A scheduler, which writes a file, and workers that read it; all in processes of their own."""

    def __init__(self, folder):
        self.file = folder / "scheduler.json"
        self.processes = []

    def start(self, what, *options):
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--no-dashboard", *options]
        where = ("--scheduler-file", str(self.file))
        child = subprocess.Popen([*command, *where], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append(child)
        return child

    def open(self):
        """A new scheduler, and a worker."""
        self.file.unlink(missing_ok=True)
        self.schedule()
        self.start("worker", "--nthreads", "1", "--memory-limit", "0", "--no-nanny")

    def schedule(self):
        """A new scheduler, which has written its file whole."""
        self.scheduler = self.start("scheduler", "--host", "127.0.0.1", "--port", "0")
        while True:
            with contextlib.suppress(OSError, ValueError):
                json.loads(self.file.read_text())
                return
            assert self.scheduler.poll() is None
            time.sleep(0.01)

    def close(self):
        for child in self.processes:
            child.kill()
            child.wait()


@pytest.fixture
def station(tmp_path):
    made = Station(tmp_path)
    try:
        made.open()
        yield made
    finally:
        made.close()


@pytest.mark.slow
def test_schedulers_that_die_change_no_byte(grid, tmp_path, station, local):
    file, plain = grid
    spec, store = sweep.read(file), tmp_path / "s.zarr"

    def kill(done, total):
        if done > total // 3:
            station.scheduler.kill()

    with (
        pytest.raises(ln.InputError, match="scheduler has gone; what was finished is kept"),
        sweep.connect(str(station.file)) as client,
    ):
        sweep.run(spec, store, kill, client=client)
    before = chunks(store)
    assert 0 < before < chunks(plain)
    assert sweep.run(spec, store, client=local)["computed"] == spec.batch * (chunks(plain) - before)
    assert contents(store) == contents(plain)


@pytest.mark.slow
def test_drivers_that_die_change_no_byte_and_leave_nobody(grid, tmp_path, started, local, request):
    """SIGKILL of the command in the middle of its work (ten times with --slow); the same command goes on each time."""
    file, plain = grid
    store = tmp_path / "s.zarr"
    kills = 10 if request.config.getoption("--slow") else 1
    for number in range(kills):
        child = started("sweep", file, "--out", store, "--cluster", "local:2", "--json")
        goal = (number + 1) * chunks(plain) // (kills + 2)
        child.until(lambda goal=goal: chunks(store) > goal)
        family = set(child.family())
        assert len(family) >= 3
        os.kill(child.process.pid, signal.SIGKILL)
        child.process.wait()
        child.until(lambda family=family: not family & alive(), alive=False)  # its workers end with it
    before = chunks(store)
    spec = sweep.read(file)
    assert sweep.run(spec, store, client=local)["computed"] == spec.batch * (chunks(plain) - before) > 0
    assert contents(store) == contents(plain)


def alive():
    """The processes of this machine that run."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            found |= {int(stat.parent.name)} if stat.read_text().rsplit(")", 1)[1].split()[0] != "Z" else set()
        except OSError:  # gone meanwhile
            continue
    return found


@pytest.mark.slow
def test_a_store_in_s3_has_the_same_bytes(tmp_path, s3, local):
    """This program alone writes it; what is another's part is missing, and is told before."""
    spec = sweep.parse(SPEC.format(rows=1, columns=8, batch=2))
    sweep.run(spec, tmp_path / "s.zarr")
    assert sweep.run(spec, s3, part=(1, 2), client=local)["computed"] == 4
    assert sweep.expect(spec, s3, client=local).missing == 4
    assert sweep.run(spec, s3, client=local)["computed"] == 4
    there = located(s3)
    assert {name: there.read(name) for name in there.names()} == contents(tmp_path / "s.zarr")


def test_two_clusters_on_one_machine(local):
    with sweep.connect("local:1") as other:
        assert list(other.run(abs, -3).values()) == [3]
    assert cluster.count(local) >= 1


def test_what_ends_every_worker_is_an_error_that_says_where(local):
    before, local.cluster.scheduler.allowed_failures = local.cluster.scheduler.allowed_failures, 0
    try:
        with pytest.raises(ln.InputError, match=r"^the chunk lr = 1 to 2 cannot be computed: 1 workers ended"):
            list(cluster.as_completed(local, [(os._exit, (1,))], lambda number: "the chunk lr = 1 to 2"))
    finally:
        local.cluster.scheduler.allowed_failures = before
    assert dict(cluster.as_completed(local, [(abs, (-3,)), (abs, (4,))], str)) == {0: 3, 1: 4}  # another took its place


def test_workers_that_would_compute_other_numbers_are_refused(local, grid, tmp_path, monkeypatch):
    device = {(worker.device, worker.double) for worker in cluster.workers(local)}
    assert device == {("cpu", True)}
    mine = cluster._versions()
    for name in mine:
        monkeypatch.setattr(cluster, "_versions", lambda name=name: {**mine, name: "0.0.1"})
        with pytest.raises(
            ln.InputError, match=rf"^the worker tcp://.* has {name} {mine[name]} and this program 0.0.1"
        ):
            sweep.run(sweep.read(grid[0]), tmp_path / "s.zarr", client=local)
        with pytest.raises(ln.InputError, match=f"has {name} {mine[name]}"):  # one that came later
            list(cluster.as_completed(local, [(abs, (-3,))], str))
    assert not (tmp_path / "s.zarr").exists()
    with pytest.raises(ln.InputError, match="single precision"):
        cluster._same(cluster.Worker("tcp://somewhere:1", "cpu", "cpu", 2**30, False, mine), mine)


def test_an_error_of_a_chunk_is_its_sentence(local, tmp_path):
    text = SPEC.format(rows=2, columns=2, batch=1).replace("40 if lr > 0.1 else 70", "40 if lr < 1 else log(-lr)")
    with pytest.raises(ln.InputError, match="log"):
        sweep.run(sweep.parse(text), tmp_path / "s.zarr", client=local)


def test_what_a_sweep_will_take(grid, tmp_path, local):
    file, plain = grid
    spec = sweep.read(file)
    local.wait_for_workers(2)
    told = sweep.expect(spec, tmp_path / "none.zarr", client=local)
    cells, batch = xarray.open_zarr(plain)["status"].size, spec.batch
    assert (told.cells, told.missing, told.chunks, told.batch, told.workers) == (cells, cells, cells // batch, batch, 2)
    assert told.store == sum(
        xarray.open_zarr(plain)[name].nbytes for name in ("best", "step", "values", "ended", "status")
    )
    assert told.seconds > 0
    assert told.memory > 0
    assert not (tmp_path / "none.zarr").exists()
    again = sweep.expect(spec, plain)
    assert (again.missing, again.chunks, again.seconds, again.workers) == (0, 0, 0, 1)


OWN = """
import matplotlib.pyplot as plt
import xarray

from linnet.claims import at_most, subject
from linnet.claims.claim import claim
from linnet.experiments import Experiment

subject("mine", "Mine", authors="Me")


@claim("mine/C1", "bound", "page 1", negative_control={"most": 0.0})
def bounded(size, most=1.0, n=2):
    "1/n is at most 1."
    yield at_most(1 / n, most, n=n)


class Line(Experiment):
    id = "mine/line"
    place = "page 3"
    title = "A line"
    quick = {"n": 2}
    minutes = {"quick": 0.01, "paper": 0.02}
    n: int = 5

    def run(self, folder, progress, workers):
        return xarray.Dataset({"y": ("x", [float(k) for k in range(self.n)])})

    def draw(self, data):
        figure, axes = plt.subplots()
        return figure

    def accept(self, data):
        return {"it starts at zero": at_most(abs(float(data["y"][0])), 0.0)}
"""


@pytest.mark.slow
def test_claims_and_experiments_on_a_cluster(local, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    with papers.apart():
        claims.load(str(tmp_path / "own.py"))
        work = reproduction.plan([], "quick", tmp_path / "out", among=["mine"])
        made, verdicts = sorted(work.done(client=local), key=lambda part: isinstance(part, reproduction.Verdicts))
        (verified,) = reproduction.verify(claims.find(["mine/C1"]), client=local).claims
    assert made.result.holds
    assert made.result.device == "a worker of a cluster (cpu)"
    assert (tmp_path / "out/mine/line/figure.png").exists()
    assert [(v.id, v.measured) for v in verdicts.claims] == [(verified.id, verified.measured)] == [("mine/C1", 0.5)]


def test_a_batch_system_starts_workers(grid, tmp_path, monkeypatch):
    """The shipped example, with commands of SLURM that start and end jobs here. A job that ends is submitted again."""
    submit = f'cp "$1" {tmp_path}/job\nsetsid bash {tmp_path}/job >/dev/null 2>&1 &\necho "Submitted batch job $!"'
    commands = {"sbatch": submit, "scancel": 'kill -- "-$1"'}
    for name, text in commands.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(cluster, "_RENEW", 0.1)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    example = (Path(sweep.__file__).parent / "slurm.toml").read_text()
    (tmp_path / "slurm.toml").write_text(example.replace("jobs = 8", "jobs = 1"))
    file, plain = grid
    with sweep.connect(str(tmp_path / "slurm.toml")) as client:
        assert "--gres=gpu:1" in client.cluster.job_script()
        (first,) = client.run(os.getpid).values()
        ended = []

        def end(done, total):
            if done > total // 3 and not ended:
                ended.append(os.killpg(os.getpgid(first), signal.SIGKILL))

        with dask.config.set({"distributed.deploy.lost-worker-timeout": "100ms"}):
            assert sweep.run(sweep.read(file), tmp_path / "s.zarr", end, client=client)["workers"] == 1
        (second,) = client.run(os.getpid).values()
        assert second != first
    assert contents(tmp_path / "s.zarr") == contents(plain)
    last = time.monotonic() + 300
    while {first, second} & alive():
        assert time.monotonic() < last, "the job goes on after the sweep"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("where", "text", "words"),
    [
        ("local:0", None, "after local: comes a number of workers, 1 to 10000"),
        ("local:many", None, "after local: comes"),
        ("", None, "it must be local, local:8, an address"),
        ("nowhere", None, "it must be local, local:8, an address"),
        ("tcp://127.0.0.1:1", None, "cannot be reached: timed out"),
        ("tcp://127.0.0.1", None, "an address such as tcp://10.0.0.1:8786"),
        ("wrong://127.0.0.1:1", None, "an address such as tcp://10.0.0.1:8786"),
        ("file.json", "{}", "no scheduler has written this file"),
        ("file.json", '{"address": "tcp://127.0.0.1:1"}', "cannot be reached: timed out"),
        ("none.toml", None, "cannot be read"),
        ("file.toml", "kind", "is not TOML"),
        ("file.toml", "jobs = 1", "kind = None is not allowed: kind must be one of 'SLURM'"),
        ("file.toml", 'kind = "SLURM"', "jobs = None is not allowed"),
        ("file.toml", 'kind = "SLURM"\njobs = 1', "dask-jobqueue refuses this SLURM cluster"),
        ("file.toml", 'kind = "SLURM"\njobs = 1\ncores = 1\nmemory = "1GB"\nnonsense = 1', "dask-jobqueue refuses"),
    ],
)
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # dask-jobqueue leaves a half-made cluster
def test_strange_clusters_are_one_sentence(tmp_path, monkeypatch, where, text, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster, "_ANSWER", 0.2)
    if text is not None:
        Path(where).write_text(text)
    with pytest.raises(ln.InputError, match=words) as caught, sweep.connect(where):
        pass
    assert "\n" not in str(caught.value)
    del caught
    if "dask-jobqueue" in words:
        gc.collect()


def test_without_dask_and_without_workers(monkeypatch, tmp_path):
    monkeypatch.setattr(cluster, "_WORKERS", 0.1)
    scheduler = Station(tmp_path)
    try:
        scheduler.schedule()
        with (
            pytest.raises(ln.InputError, match="has no workers: start some"),
            sweep.connect(str(scheduler.file)) as client,
        ):
            cluster.workers(client)
    finally:
        scheduler.close()
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ln.InputError, match=r"needs Dask, which is not installed: pip install 'linnet\[cluster\]'"):
        sweep.connect("local").__enter__()
