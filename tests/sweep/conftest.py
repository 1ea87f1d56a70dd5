"""A server of s3:// on this machine, for stores by URL."""

import time

import pytest


@pytest.fixture(scope="module")
def server():
    """Its address."""
    from moto.server import ThreadedMotoServer

    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def client(server, forget, monkeypatch):
    """What asks the server for more than a store does."""
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
    made = boto3.client("s3")
    yield made
    made.close()
    forget()


@pytest.fixture
def s3(client):
    """The URL of a store in a bucket of one's own."""
    bucket = f"linnet-{time.time_ns()}"
    client.create_bucket(Bucket=bucket)
    return f"s3://{bucket}/grids/s.zarr"


@pytest.fixture
def forget():
    """Closes what is open to s3://; the next one who opens a URL reads the environment anew."""
    import s3fs
    from zarr.core.sync import sync

    def close():
        for files in s3fs.S3FileSystem._cache.values():
            if files.asynchronous and files._s3 is not None:  # xarray's, in zarr's loop
                sync(files._s3.close())
        s3fs.S3FileSystem.clear_instance_cache()

    return close
