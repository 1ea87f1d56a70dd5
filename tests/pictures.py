"""Made files in the formats of the published sets, for tests on machines without them."""

import contextlib
import gzip
import hashlib
import http.server
import io
import struct
import tarfile
import threading

import numpy as np

from linnet import data
from linnet.data import files
from linnet.data.sets import Download, Published


def idx(path, array):
    """An array of bytes as MNIST has it, gzipped if the name says so."""
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    content = head + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def little(folder, *, part="train"):
    """A little MNIST: 5 x 5 images of three classes around three means. Gives pixels and classes."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    classes = np.repeat([0, 1, 7], 20)
    means = rng.integers(60, 200, size=(8, 25))
    pixels = np.clip(means[classes] + 25 * rng.normal(size=(60, 25)), 0, 255).astype(np.uint8)
    idx(folder / f"{part}-images-idx3-ubyte.gz", pixels.reshape(60, 5, 5))
    idx(folder / f"{part}-labels-idx1-ubyte", classes)
    return pixels, classes


def publish(folder, monkeypatch):
    """Makes a little `mnist` and a little `cifar10` the published ones; gives the bytes of every download."""
    contents, packed = {"train": {}, "test": {}}, {}
    for part, word in (("train", "train"), ("test", "t10k")):
        little(folder, part=word)
        for name in (f"{word}-images-idx3-ubyte", f"{word}-labels-idx1-ubyte"):
            path = files.find(folder, name)
            content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            contents[part][name] = hashlib.md5(content).hexdigest()
            packed[f"{name}.gz"] = gzip.compress(content, 3)
    table = {name: bytes([k]) + bytes(3072) for k, name in enumerate(("data_batch_1.bin", "test_batch.bin"))}
    batches = {p: {n: hashlib.md5(table[n]).hexdigest()} for p, n in zip(contents, table, strict=True)}
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, content in table.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    tarred = {"cifar-10-binary.tar.gz": archive.getvalue()}
    for name, given, inside in (("mnist", packed, contents), ("cifar10", tarred, batches)):
        downloads = {n: Download(len(content), hashlib.md5(content).hexdigest()) for n, content in given.items()}
        published = Published(f"a little {name}", 60, 60, "http://127.0.0.1:9/", downloads, inside)
        monkeypatch.setitem(data.SETS, name, published)
    return packed | tarred


@contextlib.contextmanager
def serving(made, monkeypatch):
    """A server of these downloads, at which they are published; gives the names that it was asked for."""
    asked = []
    sizes = {name: len(content) for name, content in made.items()}  # told even where less is given later

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.lstrip("/")
            asked.append(name)
            if name not in made:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(sizes[name]))
            self.end_headers()
            self.wfile.write(made[name])

        def log_message(self, *words):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("mnist", "cifar10"):
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        monkeypatch.setitem(data.SETS, name, data.SETS[name]._replace(address=address))
    try:
        yield asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
