"""Stores by URL: the bytes of a plain folder, wherever they lie; kills, refusals and two drivers at once."""

import contextlib
import errno
import json
import os
import signal
import socket
import threading
import time

import numpy as np
import pytest
import xarray

import linnet as ln
from linnet import sweep
from linnet.sweep import place
from linnet.sweep.place import LEASE, Remote, located

SPEC = """
batch = {batch}
[axes]
alpha = [0.1, 0.5, 1.0]
lr = [0.01, 0.05, 0.1, 0.2]
[problem]
kind = "factorisation"
target = [[2.0, 0.0], [0.0, 1.0]]
[start]
kind = "one_zero"
depth = 2
alpha = "alpha"
[motion]
kind = "GradientDescent"
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


@pytest.fixture(scope="module")
def server():
    """An S3 server on this machine, with a bucket called `linnet`."""
    from moto.server import ThreadedMotoServer

    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def s3(server, monkeypatch):
    """A bucket of one's own; gives the URL of a store in it."""
    import boto3

    for name, value in {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "linnet",
        "AWS_SECRET_ACCESS_KEY": "linnet",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    forget()
    client = boto3.client("s3")
    bucket = f"linnet-{time.time_ns()}"
    client.create_bucket(Bucket=bucket)
    yield f"s3://{bucket}/grids/s.zarr"
    client.close()
    forget()


def forget():
    """Closes what is open to S3; the next one who opens a URL reads the environment anew."""
    import s3fs
    from zarr.core.sync import sync

    for files in s3fs.S3FileSystem._cache.values():
        if files.asynchronous and files._s3 is not None:  # xarray's, in zarr's loop
            sync(files._s3.close())
    s3fs.S3FileSystem.clear_instance_cache()


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
    with pytest.raises(ln.InputError, match="holds another sweep: run.steps is 100 there and 99 here"):
        sweep.run(described(steps=99), out)
