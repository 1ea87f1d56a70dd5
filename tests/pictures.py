"""Made files in the formats of the published sets, for tests on machines without them."""

import gzip
import struct

import numpy as np


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
