"""`linnet predict bias` as a user meets it: text, files, and every mistake as one sentence."""

import json
import sys

import numpy as np
import pytest

import linnet as ln
from linnet import prediction
from linnet._files import dumps
from linnet.prediction.data import read_regression

COMMAND = ("predict", "bias")


def samples(n=4, d_in=12, d_out=2):
    rng = np.random.default_rng(8)
    x = rng.normal(size=(n, d_in))
    return x, x @ rng.normal(size=(d_in, d_out)) @ np.diag([1, 0.3, 0.1][:d_out]) / 2


def write(path, x, y):
    np.savetxt(
        path,
        np.hstack([x, y]),
        delimiter=",",
        header=",".join(f"c{i}" for i in range(x.shape[1] + y.shape[1])),
        comments="",
    )


def test_the_command_says_what_python_says(typed, close, tmp_path):
    """Every field, measured ones included."""
    x, y = samples()
    np.savez(tmp_path / "d.npz", X=x, Y=y)
    for arguments, problem, options in (
        (("--data", "d.npz"), ln.regression(x, y), {}),
        (("--data", "d.npz", "--average", "--width", 20), ln.regression(x, y, average=True), {"width": 20}),
        (("--spectrum", "1,2", "--samples", 5, "--inputs", 3), prediction.whitened([1, 2], samples=5, inputs=3), {}),
    ):
        said = prediction.bias(problem, ln.init.i_gamma(problem, 0.1))
        told = json.loads(typed("--gamma", 0.1, *arguments, "--json")[1])
        if options:
            assert (told.pop("width"), told.pop("notes")[0]) == (
                20,
                "The width 20 changes nothing of this: from d_in on all widths move alike.",
            )
        assert told == close({name: part for name, part in said.to_dict().items() if name in told})
        assert set(said.to_dict()) - set(told) == ({"width", "notes"} if options else set())
    run = json.loads(typed("--gamma", 0.1, *arguments, "--run", "--plot", "s.svg", "--json")[1])
    assert (run.pop("figure"), (tmp_path / "s.svg").read_text()[:5]) == ("s.svg", "<?xml")
    assert run == close(said.measure().to_dict())


def test_text_and_picture(typed, tmp_path):
    x, y = samples()
    write(tmp_path / "d.csv", x, y)
    code, out, err = typed("--gamma", 0.01, "--data", "d.csv", "--outputs", 2, "--width", 1000, "--plot", "p.png")
    assert code == 0, err
    told = " ".join(out.split())
    for words in (
        "rich: 2 of 2 modes",
        "4 samples, 12 inputs",
        "minimum norm",
        "not before",
        "width 1,000",
        "the flow itself was integrated",
    ):
        assert words in told
    assert (tmp_path / "p.png").stat().st_size > 20_000
    many = ",".join(str(k) for k in range(1, 15))
    told = " ".join(typed("--gamma", 1, "--spectrum", many, "--plot", "p.pdf")[1].split())
    assert "4 more" in told
    assert "~" not in told


def test_every_topic_reads_columns_by_name_and_tells_what_was_done(typed, tmp_path, request, monkeypatch):
    x, y = samples(n=9, d_in=3, d_out=1)
    (tmp_path / "d.tsv").write_text(
        "y\ta\tb\tc\n" + "\n".join("\t".join(map(repr, row)) for row in np.hstack([y, x]).tolist())
    )
    own = prediction.read_regression(tmp_path / "d.tsv", outputs="y", standardize=True, center=True)
    flags = ("--data", "d.tsv", "--outputs", "y", "--standardize", "--center")
    for command, more, said in (
        ("bias", ("--gamma", "1e-1", "--width", "1e3"), None),
        ("landscape", ("--width", "2e0"), None),
        ("rates", ("--depth", "3e0"), None),
        (
            "features",
            ("--width", "1e2", "--v0", 0.1, "--sigma0", 0.1),
            prediction.features(own, width=100, v0=0.1, sigma0=0.1),
        ),
    ):
        monkeypatch.setattr(request.module, "COMMAND", ("predict", command))
        told = json.loads(typed(*flags, *more, "--json")[1])
        if said is not None:
            assert told == json.loads(dumps(said.to_dict()))
        assert told["prepared"] == ["inputs standardized", "labels centered"]
        assert "Inputs standardized; labels centered." in typed(*flags, *more)[1]


# --- files ------------------------------------------------------------------------------------------------------------


def test_files_say_the_same(tmp_path):
    x, y = samples()
    np.savez(tmp_path / "a.npz", inputs=x, labels=y)
    np.savez(tmp_path / "b.npz", X=x, Y=y)
    np.save(tmp_path / "c.npy", np.hstack([x, y]))
    np.savetxt(tmp_path / "d.csv", np.hstack([x, y]), delimiter=",", fmt="%.17g")
    names = ",".join(f"c{i}" for i in range(14))
    (tmp_path / "e.csv").write_bytes(b"\xef\xbb\xbf" + names.encode() + b"\r\n\r\n" + (tmp_path / "d.csv").read_bytes())
    for name in ("a.npz", "b.npz", "c.npy", "d.csv", "e.csv"):
        found = read_regression(tmp_path / name, outputs=None if name.endswith("npz") else 2)
        np.testing.assert_array_equal(found.inputs, x)
        np.testing.assert_array_equal(found.labels, y)
    inputs, labels = read_regression(tmp_path / "d.csv")
    assert inputs.shape == (4, 13)
    assert labels.shape == (4, 1)
    np.savez(tmp_path / "f.npz", X=np.arange(6).reshape(3, 2), Y=np.array([True, False, True]))
    assert read_regression(tmp_path / "f.npz").labels.tolist() == [[1.0], [0.0], [1.0]]


BAD = {
    "nan.csv": b"1,2\nnan,3\n",
    "inf.csv": b"1,2\n3,inf\n",
    "ragged.csv": b"1,2,3\n4,5\n",
    "text.csv": b"1,2\n3,red\n",
    "hole.csv": b"1,2,3\n4,,5\n",
    "names.csv": b"a,b\n",
    "empty.csv": b"",
    "one.csv": b"1\n2\n",
    "latin.csv": "1,2\n3,\xe9\n".encode("latin-1"),
    "binary.csv": b"\x00\x01\n",
    "zeros.csv": b"0,1\n0,2\n",
    "flat.csv": b"1,0\n2,0\n",
    "orthogonal.csv": b"1,1\n1,-1\n",
    "huge.csv": b"1e80,1\n",
    "empty.npy": b"",
    "empty.npz": b"",
    "broken.npz": b"PK\x03\x04 nonsense",
    "broken.npy": b"\x93NUMPY\x01\x00 nonsense",
    "cut.npy": b"",
}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nan.csv", "line 2, column 1 holds nan, and a finite number is needed"),
        ("inf.csv", "line 2, column 2 holds inf, and a finite number is needed"),
        ("ragged.csv", "line 2 has 2 cells and the first row of numbers 3"),
        ("text.csv", "line 2, column 2 holds 'red'"),
        ("hole.csv", "line 2, column 2 is empty"),
        ("names.csv", "no rows of numbers"),
        ("empty.csv", "no rows of numbers"),
        ("one.csv", "1 column, and 1 for labels leaves none"),
        ("latin.csv", "not text in UTF-8"),
        ("binary.csv", "cannot be used"),
        ("zeros.csv", "inputs are all zero"),
        ("flat.csv", "labels are all zero"),
        ("orthogonal.csv", "labels that are zero or orthogonal to its inputs"),
        ("huge.csv", "line 1, column 1 holds 1e+80: give units that keep numbers below 1e+50"),
        ("empty.npy", "empty, damaged"),
        ("empty.npz", "empty, damaged"),
        ("broken.npz", "empty, damaged"),
        ("broken.npy", "empty, damaged"),
        ("cut.npy", "empty, damaged"),
        ("objects.npy", "empty, damaged or not a .npy file of numbers"),
        ("objects.npz", "X or Y is damaged or not of numbers"),
        ("vector.npy", "its array has shape (3,)"),
        ("cube.npz", "X has shape (2, 2, 2)"),
        ("rows.npy", "shape (0, 3)"),
        ("complex.npz", "X is of type complex128"),
        ("words.npz", "Y is of type <U1"),
        (
            "names.npz",
            "one array called inputs or x or data, and one called labels or y or targets or target, and has A, Y",
        ),
        ("mismatch.npz", "inputs have 3 rows and labels 2"),
        ("really_npy.npz", "not a .npz file"),
        ("really_npz.npy", "not a .npy file"),
        ("missing.csv", "there is no such file"),
        ("folder.csv", "it is a folder"),
        ("data.xlsx", "it must end in .csv, .tsv, .txt, .dat, .npz, .npy, .parquet"),
    ],
)
def test_bad_files_are_one_sentence(name, words, typed, tmp_path):
    if name in BAD:
        (tmp_path / name).write_bytes(BAD[name])
    three = np.ones((3, 2))
    np.save(tmp_path / "whole.npy", three)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:-5])
    np.save(tmp_path / "objects.npy", np.array([[1, None]], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "objects.npz", X=np.array([[1, None]], dtype=object), Y=three)
    np.save(tmp_path / "vector.npy", np.ones(3))
    np.save(tmp_path / "rows.npy", np.ones((0, 3)))
    np.savez(tmp_path / "cube.npz", X=np.ones((2, 2, 2)), Y=np.ones(2))
    np.savez(tmp_path / "complex.npz", X=1j * three, Y=three)
    np.savez(tmp_path / "words.npz", X=three, Y=np.array(["a", "b", "c"]))
    np.savez(tmp_path / "names.npz", A=three, Y=three)
    np.savez(tmp_path / "mismatch.npz", X=three, Y=np.ones(2))
    (tmp_path / "really_npy.npz").write_bytes((tmp_path / "whole.npy").read_bytes())
    (tmp_path / "really_npz.npy").write_bytes((tmp_path / "mismatch.npz").read_bytes())
    (tmp_path / "folder.csv").mkdir()
    code, _, told = typed("--gamma", 1, "--data", name)
    assert code == 2
    assert words in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing option '--gamma'"),
        (("--gamma", "0", "--spectrum", "1"), "gamma = 0.0 is not allowed"),
        (("--gamma", "-1", "--spectrum", "1"), "gamma = -1.0 is not allowed"),
        (("--gamma", "nan", "--spectrum", "1"), "gamma = nan is not allowed"),
        (("--gamma", "1"), "give one of them"),
        (("--gamma", "1", "--spectrum", "1", "--data", "x.csv"), "give one of them"),
        (("--gamma", "1", "--spectrum", "1,x"), "spectrum = '1,x'"),
        (("--gamma", "1", "--spectrum", ""), "spectrum = ''"),
        (("--gamma", "1", "--spectrum", "0,0"), "one must be positive"),
        (("--gamma", "1", "--spectrum", "1,-2"), "must not be negative"),
        (("--gamma", "1", "--spectrum", "inf"), "spectrum holds 1 NaN or infinite entries"),
        (("--gamma", "1", "--spectrum", "1e60"), "keep its values between 1e-50 and 1e+50"),
        (("--gamma", "1", "--spectrum", "1,2,3", "--width", "2"), "width = 2 is not allowed"),
        (("--gamma", "1", "--spectrum", "2,1", "--outputs", "1"), "outputs = 1 is not allowed"),
        (("--gamma", "1", "--spectrum", "1", "--average"), "average is not allowed with --spectrum"),
        (("--gamma", "1", "--data", "good.csv", "--samples", "3"), "samples = 3 is not allowed with --data"),
        (("--gamma", "1", "--spectrum", "1", "--plot", "x.bmp"), "plot = 'x.bmp'"),
        (("--gamma", "1", "--spectrum", "1", "--plot", "no/x.png"), "in a folder that exists"),
        (("--gamma", "1", "--data", "good.csv", "--outputs", "0"), "outputs = 0 is not allowed"),
        (("--gamma", "1", "--data", "good.csv", "--outputs", "2"), "2 columns, and 2 for labels leaves none"),
        (("--gamma", "1", "--data", "good.npz", "--outputs", "1"), "the file itself names its labels"),
        (("--gamma", "1", "--data", "large.npz", "--run"), "rank 3 cannot be measured"),
        (("--gamma", "1", "--data", "good.csv", "--outputs", "price"), "'good.csv' has no names of columns"),
        (("--gamma", "1", "--data", "good.csv", "--inputs", "3"), "inputs = 3 is not allowed with --data: give names"),
        (("--gamma", "1", "--data", "good.csv", "--center", "--intercept"), "intercept is not allowed with center"),
        (("--gamma", "1", "--spectrum", "1", "--center"), "center is not allowed with --spectrum"),
        (("--gamma", "1", "--spectrum", "1", "--outputs", "price"), "outputs = 'price' is not allowed without --data"),
    ],
)
def test_bad_options_are_one_sentence(arguments, words, typed, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["linnet.prediction.theories.bias_run"], "LARGEST", 2)
    (tmp_path / "good.csv").write_text("1,2\n3,4\n")
    np.savez(tmp_path / "good.npz", X=np.eye(2), Y=np.ones(2))
    np.savez(tmp_path / "large.npz", X=np.eye(3), Y=np.ones(3))
    code, _, told = typed(*arguments)
    assert code == 2
    assert words in told
    assert "Traceback" not in told
