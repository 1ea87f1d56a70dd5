"""Sets of images: their formats, where they are searched, what was published, and fetching."""

import gzip
import os
import sys

import numpy as np
import pytest
from pictures import idx, little, publish, serving

import linnet as ln

REAL = os.environ.get("LINNET_DATA")


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """No data sets on this machine but those of the test."""
    monkeypatch.delenv("LINNET_DATA", raising=False)
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    pixels, classes = little(tmp_path / "mnist")
    return tmp_path / "mnist", pixels, classes


def sentence(call):
    with pytest.raises(ln.InputError) as error:
        call()
    text = str(error.value)
    assert text.endswith(".")
    assert "\n" not in text
    return text


# Images in memory ----------------------------------------------------------------------------------------------------


def test_subsets_are_the_first_of_a_permutation(folder):
    images = ln.data.load("mnist", folder=folder[0])
    few, more = images.subset(7, seed=3), images.subset(20, seed=3)
    order = np.random.default_rng(3).permutation(60)
    np.testing.assert_array_equal(more.pixels, folder[1][order[:20]])
    np.testing.assert_array_equal(more.classes, folder[2][order[:20]])
    np.testing.assert_array_equal(few.pixels, more.pixels[:7])
    assert not np.array_equal(images.subset(20, seed=4).pixels, more.pixels)
    assert (len(few), few.shape, few.brightest) == (7, (5, 5), 255)
    whole = images.subset(60)
    np.testing.assert_array_equal(np.sort(whole.classes), folder[2])


def test_pixels_and_classes_for_a_network():
    pixels = np.array([[0, 7, 255], [51, 7, 0], [102, 7, 51]], dtype=np.uint8)
    images = ln.data.Images(pixels, np.array([9, 0, 9], dtype=np.uint8), (1, 3))
    np.testing.assert_allclose(images.scaled(), [[0, 7 / 255, 1], [0.2, 7 / 255, 0], [0.4, 7 / 255, 0.2]], rtol=1e-15)
    x = images.standardized()
    np.testing.assert_allclose(x[:, 0], np.sqrt(1.5) * np.array([-1, 0, 1]), atol=1e-15)
    np.testing.assert_array_equal(x[:, 1], 0)  # the same in all images
    np.testing.assert_allclose([x[:, 2].mean(), x[:, 2].var()], [0, 1], atol=1e-15)
    test = ln.data.Images(np.array([[153, 8, 0]], dtype=np.uint8), np.array([1]), (1, 3)).standardized(over=images)
    np.testing.assert_allclose(test[0, :2], [2 * np.sqrt(1.5), 0], rtol=1e-14)
    hot = images.one_hot()
    assert hot.shape == (3, 10)
    np.testing.assert_array_equal(np.argwhere(hot == 1), [[0, 9], [1, 0], [2, 9]])
    assert hot.sum() == 3


def test_pairs_of_classes(folder):
    _, pixels, classes = folder
    images = ln.data.load("mnist", folder=folder[0])
    x, y = images.pair((7, 0), 10, np.random.default_rng(0))
    assert x.shape == (10, 25)
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-12)
    # the first five are images of class 7, all different, up to one shift
    apart = pixels[classes == 7].astype(float)
    first = [row for row in apart if all(np.isclose(apart, row + z - x[0]).all(axis=1).any() for z in x[:5])]
    assert len(first) == 1
    assert len(np.unique(x, axis=0)) == 10
    np.testing.assert_array_equal(y, [1.0] * 5 + [-1.0] * 5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda images: images.subset(61), "n = 61 is not allowed: there are 60 images"),
        (lambda images: images.subset(0), "n = 0 is not allowed"),
        (lambda images: images.subset(2, seed=-1), "seed = -1 is not allowed"),
        (lambda images: ln.data.Images(images.pixels, images.classes, (5, 4)), "of 20 pixels (5 x 4)"),
        (
            lambda images: images.standardized(ln.data.Images(images.pixels, images.classes, (25,))),
            "over has images of shape (25,): they must be of shape (5, 5)",
        ),
        (lambda images: images.pair((0, 3), 4, None), "class 3 is not known: the images have 0, 1, 7"),
        (lambda images: images.pair((0, 0), 4, None), "two different classes"),
        (lambda images: images.pair((0, 1), 5, None), "n must be even"),
        (lambda images: images.pair((1, 0), 42, None), "it takes 21 images of class 1, and there are 20"),
    ],
)
def test_other_mistakes_are_one_sentence(call, words, folder):
    images = ln.data.load("mnist", folder=folder[0])
    assert words in sentence(lambda: call(images))


# Files ---------------------------------------------------------------------------------------------------------------


def test_idx_files(folder, tmp_path):
    there, pixels, classes = folder
    for place in (there, str(there), tmp_path):  # the folder of the set, or the one around it
        found = ln.data.load("mnist", folder=place)
        np.testing.assert_array_equal(found.pixels, pixels)
        np.testing.assert_array_equal(found.classes, classes)
    (there / "train-labels-idx1-ubyte").rename(there / "t10k-labels.idx1-ubyte")
    (there / "train-images-idx3-ubyte.gz").rename(there / "t10k-images-idx3-ubyte.gz")
    np.testing.assert_array_equal(ln.data.load("fashion", part="test", folder=there).pixels, pixels)
    assert "mnist needs train-images" in sentence(lambda: ln.data.load("mnist", folder=there))


def test_cifar_files(tmp_path):
    rng = np.random.default_rng(3)
    table = rng.integers(0, 256, size=(7, 3073)).astype(np.uint8)
    table[:, 0] %= 10
    for name, rows in (("data_batch_1", table[:4]), ("data_batch_3", table[4:6]), ("test_batch", table[6:])):
        (tmp_path / f"{name}.bin").write_bytes(rows.tobytes())
    (tmp_path / "data_batch_3.bin.gz").write_bytes(gzip.compress((tmp_path / "data_batch_3.bin").read_bytes()))
    (tmp_path / "data_batch_3.bin").unlink()
    found = ln.data.load("cifar10", folder=tmp_path)
    np.testing.assert_array_equal(found.pixels, table[:6, 1:])
    np.testing.assert_array_equal(found.classes, table[:6, 0])
    assert found.shape == (3, 32, 32)
    np.testing.assert_array_equal(ln.data.load("cifar10", part="test", folder=tmp_path).classes, table[6:, 0])


def _cut(folder, name, content):
    (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: (f / "train-labels-idx1-ubyte").unlink(), "needs train-images-idx3-ubyte and train-labels"),
        (lambda f: _cut(f, "train-labels-idx1-ubyte", b"\x00\x00\x08"), "does not begin like an IDX file"),
        (lambda f: _cut(f, "train-labels-idx1-ubyte", b"\x80\x04]q\x00." * 9), "does not begin like an IDX file"),
        (lambda f: _cut(f, "train-images-idx3-ubyte.gz", b"no gzip"), "it is not a whole gzip file"),
        (
            lambda f: _cut(f, "train-images-idx3-ubyte.gz", (f / "train-images-idx3-ubyte.gz").read_bytes()[:-300]),
            "it is not a whole gzip file",
        ),
        (
            lambda f: _cut(f, "train-labels-idx1-ubyte", (f / "train-labels-idx1-ubyte").read_bytes()[:-3]),
            "it announces 60 bytes and holds only 57",
        ),
        (
            lambda f: _cut(f, "train-labels-idx1-ubyte", (f / "train-labels-idx1-ubyte").read_bytes() + b"x"),
            "it announces 60 bytes and holds more",
        ),
        (
            lambda f: _cut(f, "train-labels-idx1-ubyte", b"\x00\x00\x08\x01\xff\xff\xff\xff"),
            "it announces an array of shape (4294967295,)",
        ),
        (lambda f: idx(f / "train-labels-idx1-ubyte", np.zeros(50)), "60 images and"),
        (lambda f: idx(f / "train-labels-idx1-ubyte", np.full(60, 10)), "an image of class 10"),
    ],
)
def test_bad_idx_files_are_one_sentence(change, words, folder):
    change(folder[0])
    assert words in sentence(lambda: ln.data.load("mnist", folder=folder[0]))


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "it needs data_batch_1.bin (to 5) of the binary version"),
        ({"data_batch_1": b"\x80\x04"}, "unpickling runs code; it needs data_batch_1.bin"),
        ({"data_batch_1.bin": b""}, "it has 0 bytes"),
        ({"data_batch_4.bin": bytes(3073 * 2 - 1)}, "it has 6145 bytes, not a multiple of 3073"),
        ({"data_batch_2.bin": b"\x0b" + bytes(3072)}, "an image of class 11"),
        ({"data_batch_2.bin.gz": gzip.compress(bytes(3073))[:-9]}, "it is not a whole gzip file"),
    ],
)
def test_bad_cifar_files_are_one_sentence(files, words, tmp_path):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    assert words in sentence(lambda: ln.data.load("cifar10", folder=tmp_path))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ln.data.load("mnist", folder="nowhere"), "folder = 'nowhere' is not allowed: there is no such folder"),
        (lambda: ln.data.load("digits", folder="."), "not allowed with 'digits'"),
        (lambda: ln.data.load("digits", part="test"), "part = 'test' is not allowed with 'digits'"),
        (lambda: ln.data.load("faces"), "name = 'faces' is not allowed: name must be one of 'digits', 'mnist'"),
        (lambda: ln.data.load("mnist", part="all"), "part = 'all' is not allowed: part must be one of"),
        (lambda: ln.data.status("faces"), "name = 'faces'"),
        (lambda: ln.data.fetch("faces"), "name = 'faces'"),
        (lambda: ln.data.fetch("digits"), "they come with scikit-learn"),
    ],
)
def test_what_is_not_there_is_one_sentence(call, words):
    assert words in sentence(call)


# Where they are ------------------------------------------------------------------------------------------------------


def test_digits():
    pytest.importorskip("sklearn")
    images = ln.data.load("digits")
    assert (len(images), images.shape) == (1797, (8, 8))
    assert images.scaled().max() == 1
    assert ln.data.missing("digits") is None
    assert ln.data.status("digits").whole


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert "needs scikit-learn: pip install 'linnet[images]'" in ln.data.missing("digits")
    assert not ln.data.status("digits").whole


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The bytes of every download of two made sets, a little `mnist` and a little `cifar10`, as if they were
    published where nobody listens.
    """
    return publish(tmp_path / "made", monkeypatch)


def test_the_folder_of_the_environment_comes_before_the_cache(made, tmp_path, monkeypatch):
    base = tmp_path / "cache" / "data"
    words = f"searched in {str(base)!r}: linnet data fetch mnist gets it, or LINNET_DATA=FOLDER names a folder that"
    assert words in ln.data.missing("mnist")
    assert words in sentence(lambda: ln.data.load("mnist"))
    assert "mnist, cifar10 are not on this machine" in ln.data.missing("mnist", "cifar10")
    assert "linnet data fetch mnist cifar10 gets them" in ln.data.missing("mnist", "cifar10")
    little(tmp_path / "cache" / "data" / "mnist")
    assert ln.data.missing("mnist") is None
    assert len(ln.data.load("mnist")) == 60
    assert "mnist (test images) is not on this machine" in sentence(lambda: ln.data.load("mnist", part="test"))
    told = ln.data.status("mnist")
    assert not told.whole
    assert "t10k-images-idx3-ubyte' is missing: linnet data fetch mnist gets it" in told.trouble
    monkeypatch.setenv("LINNET_DATA", str(tmp_path / "own"))
    assert ln.data.status("mnist").folder == str(tmp_path / "cache" / "data" / "mnist")
    assert f"searched in {str(tmp_path / 'own')!r} and {str(base)!r}: " in ln.data.missing("mnist", part="test")
    assert ln.data.missing("mnist", "cifar10").startswith("cifar10 is not")
    little(tmp_path / "own" / "mnist")
    little(tmp_path / "own" / "mnist", part="t10k")
    told = ln.data.status("mnist")
    assert (told.whole, told.folder, told.trouble) == (True, str(tmp_path / "own" / "mnist"), None)
    assert len(ln.data.load("mnist", part="test")) == 60


def test_by_its_name_a_set_is_the_published_one(made, tmp_path, monkeypatch):
    place = tmp_path / "mnist"
    monkeypatch.setenv("LINNET_DATA", str(tmp_path))
    little(place)
    little(place, part="t10k")
    classes = place / "train-labels-idx1-ubyte"
    idx(classes, np.repeat([0, 1, 8], 20))
    assert ln.data.missing("mnist") is None  # which looks at names alone
    words = f"{str(classes)!r} is not the published file, by its MD5: linnet data fetch mnist gets it"
    assert words in sentence(lambda: ln.data.load("mnist"))
    assert words in ln.data.status("mnist").trouble
    assert len(ln.data.load("mnist", folder=place)) == 60  # a folder that is named may hold anything
    assert len(ln.data.load("mnist", part="test")) == 60
    (place / "train-images-idx3-ubyte.gz").write_bytes(b"\x1f\x8bno")
    assert "cannot be read: it is not a whole gzip file: linnet data fetch" in ln.data.status("mnist").trouble
    (place / "train-images-idx3-ubyte.gz").unlink()
    assert "train-images-idx3-ubyte' is missing" in sentence(lambda: ln.data.load("mnist"))


def test_no_home(monkeypatch):
    monkeypatch.setattr(ln.data.sets, "cache_folder", lambda: None)
    assert "searched in no folder" in ln.data.missing("mnist")
    assert "name a folder with LINNET_DATA=FOLDER" in sentence(lambda: ln.data.fetch("mnist"))


# Fetching ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(made, monkeypatch):
    """A server of the made downloads; gives what it was asked for."""
    with serving(made, monkeypatch) as asked:
        yield asked


def test_fetching(server, made, tmp_path):
    pytest.importorskip("pooch")
    told = []
    place = ln.data.fetch("mnist", progress=lambda done, total: told.append((done, total)))
    assert place == tmp_path / "cache" / "data" / "mnist"
    assert sorted(file.name for file in place.iterdir()) == sorted(name for name in made if "idx" in name)
    assert ln.data.status("mnist").whole
    assert len(ln.data.load("mnist", part="test")) == 60
    whole = sum(len(made[name]) for name in made if "idx" in name)
    assert told[0] == (0, whole)
    assert told[-1] == (whole, whole)
    assert sorted(done for done, _ in told) == [done for done, _ in told]
    # what is there is not fetched again; what is damaged is
    assert len(server) == 4
    ln.data.fetch("mnist")
    assert len(server) == 4
    (place / "train-labels-idx1-ubyte").write_bytes(b"damaged")  # comes before the gzipped one
    (place / ".partial").mkdir()  # of a fetch that was killed
    ln.data.fetch("mnist")
    assert server[4:] == ["train-labels-idx1-ubyte.gz"]
    assert ln.data.status("mnist").whole
    assert not (place / "train-labels-idx1-ubyte").exists()
    assert not (place / ".partial").exists()


def test_an_archive_is_taken_apart(server, made, tmp_path, monkeypatch):
    pytest.importorskip("pooch")
    monkeypatch.setenv("LINNET_DATA", str(tmp_path / "mine"))
    place = ln.data.fetch("cifar10")
    assert place == tmp_path / "mine" / "cifar10"
    assert sorted(file.name for file in place.iterdir()) == ["data_batch_1.bin", "test_batch.bin"]
    np.testing.assert_array_equal(ln.data.load("cifar10", part="test").classes, [1])
    # an archive of the right checksum in which something is not what it should be
    published = ln.data.SETS["cifar10"]
    for name, words in (("data_batch_2.bin", "is not in it"), ("data_batch_1.bin", "MD5 of data_batch_1.bin")):
        other = published._replace(contents={"train": {name: "0" * 32}, "test": {}})
        monkeypatch.setitem(ln.data.SETS, "cifar10", other)
        assert words in sentence(lambda: ln.data.fetch("cifar10"))
    assert sorted(file.name for file in place.iterdir()) == ["data_batch_1.bin", "test_batch.bin"]


def test_downloads_that_fail_are_one_sentence_and_leave_nothing(server, made, tmp_path):
    pytest.importorskip("pooch")
    first = next(iter(made))
    content = made[first]
    cures = ("linnet data fetch mnist tries again", "LINNET_DATA=FOLDER")
    for wrong, words in (
        (content[:-20], "cannot be reached or broke off"),
        (content[:-1] + b"x", "is not the published file, by its MD5, and was thrown away"),
        (None, "the server says 404"),
    ):
        made[first] = wrong
        if wrong is None:
            del made[first]
        text = sentence(lambda: ln.data.fetch("mnist"))
        assert words in text
        assert all(cure in text for cure in cures)
        assert list((tmp_path / "cache" / "data" / "mnist").iterdir()) == []
    made[first] = content
    ln.data.fetch("mnist")
    assert ln.data.status("mnist").whole


def test_offline(made):
    pytest.importorskip("pooch")
    assert "http://127.0.0.1:9/train-images-idx3-ubyte.gz cannot be reached" in sentence(lambda: ln.data.fetch("mnist"))


def test_without_pooch(made, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert "needs pooch: pip install 'linnet[data]'" in sentence(lambda: ln.data.fetch("mnist"))


def test_a_place_that_cannot_be_written(made, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LINNET_DATA", str(tmp_path / "file"))
    assert "cannot be written: there is a file where a folder should be" in sentence(lambda: ln.data.fetch("mnist"))


# The real ones -------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(REAL is None, reason="LINNET_DATA names no folder with data sets")
@pytest.mark.parametrize("name", ["mnist", "fashion", "cifar10"])
def test_published_sets(name, monkeypatch):
    monkeypatch.setenv("LINNET_DATA", REAL)
    told = ln.data.status(name)
    assert told.whole, told.trouble
    for part, count in (("train", told.train), ("test", told.test)):
        images = ln.data.load(name, part=part)
        assert len(images) == count
        counts = np.bincount(images.classes)
        assert len(counts) == 10
        if name != "mnist":  # whose classes differ in size
            np.testing.assert_array_equal(counts, count // 10)
    few = images.subset(500, seed=1)
    assert 0 <= few.scaled().min() < few.scaled().max() <= 1
    variances = few.standardized().var(axis=0)
    assert np.all(np.isclose(variances, 1, atol=1e-10) | (variances == 0))


# Pairs of sentences --------------------------------------------------------------------------------------------------


def test_pairs_of_sentences(tmp_path, monkeypatch):
    folder = tmp_path / "stsb"
    folder.mkdir()
    lines = ['a\tb\tc\t1\t5.000\tA "plane.\tAn air plane.', "a\tb\tc\t2\t0.25\tOne\tTwo \tlicense\tx"]
    (folder / "sts-train.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = ln.data.pairs(folder=folder)
    assert (found.first, found.second) == (('A "plane.', "One"), ("An air plane.", "Two"))
    np.testing.assert_array_equal(found.scores, [5.0, 0.25])
    monkeypatch.setenv("LINNET_DATA", str(tmp_path))
    assert len(ln.data.pairs()) == 2
    told = ln.data.no_pairs()
    assert told is not None
    assert told.startswith("sts-dev.csv of STS-B is not on this machine")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\tb\tc\t1\t5.0\tonly one", "has no score and two sentences"),
        ("a\tb\tc\t1\tmuch\tone\ttwo", "has no score and two sentences"),
        ("a\tb\tc\t1\t7.0\tone\ttwo", "no scores from 0 to 5"),
        ("a\tb\tc\t1\tnan\tone\ttwo", "no scores from 0 to 5"),
        ("", "no scores from 0 to 5"),
        (b"\xff\xfe", "has no score"),
    ],
)
def test_bad_pairs_are_one_sentence(text, words, tmp_path):
    (tmp_path / "sts-train.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ln.InputError, match=words):
        ln.data.pairs(folder=tmp_path)


def test_a_part_of_the_pairs_that_is_not_known():
    with pytest.raises(ln.InputError, match="part = 'test' is not allowed"):
        ln.data.pairs("test")
