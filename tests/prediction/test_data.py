"""`read_regression`: every kind of file and table says the same, and every bad cell says where it is."""

import sys
import time

import numpy as np
import pytest

import linnet as ln
from linnet import prediction
from linnet._check import InputError
from linnet.prediction import read_regression
from linnet.problems import Regression

NAMES = ("area", "rooms", "price", "energy")


def table(rows=6):
    return np.round(np.random.default_rng(3).normal(size=(rows, 4)), 6)


def text(delimiter, *, names=True, comma=False):
    rows = [delimiter.join(f"{x:.6f}" for x in row) for row in table()]
    rows = [row.replace(".", ",") for row in rows] if comma else rows
    return "\n".join([*([delimiter.join(NAMES)] if names else []), *rows]) + "\n"


# Files and tables ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize(
    ("name", "delimiter", "comma"),
    [
        ("d.csv", ",", False),
        ("d.csv", ", ", False),
        ("d.csv", ";", False),
        ("d.csv", ";", True),
        ("d.tsv", "\t", False),
        ("d.tsv", "\t", True),
        ("d.txt", " ", False),
        ("d.DAT", "   ", False),
        ("d.txt", ",", False),
    ],
)
def test_what_separates_cells_is_found(name, delimiter, comma, names, tmp_path):
    path = tmp_path / name
    path.write_text(text(delimiter, names=names, comma=comma))
    read = read_regression(path, outputs=2)
    np.testing.assert_array_equal(read.inputs, table()[:, :2])
    np.testing.assert_array_equal(read.labels, table()[:, 2:])
    assert read.input_names == (NAMES[:2] if names else None)
    assert read.label_names == (NAMES[2:] if names else None)
    assert read.prepared == ()


def test_as_numpy_and_data_frames_write_them(tmp_path):
    """Names behind a #, comments, and an index without a name, which is no input."""
    import pandas

    np.savetxt(tmp_path / "n.txt", table(), header=" ".join(NAMES))
    assert read_regression(tmp_path / "n.txt", outputs="area").input_names == NAMES[1:]
    (tmp_path / "c.csv").write_text("# measured twice\n1,2\n# a pause\n3,4\n")
    np.testing.assert_array_equal(read_regression(tmp_path / "c.csv").labels, [[2.0], [4.0]])
    frame = pandas.DataFrame(table(), columns=NAMES)
    frame.to_csv(tmp_path / "i.csv")
    read = read_regression(tmp_path / "i.csv")
    np.testing.assert_allclose(read.inputs, table()[:, :3], rtol=1e-12)
    assert read.prepared == ("the first column has no name and counts the rows: left out",)


@pytest.mark.parametrize(
    "names",
    [("X", "y"), ("x", "y"), ("X", "Y"), ("inputs", "labels"), ("Inputs", "targets"), ("data", "target")],
)
def test_named_arrays_are_found_in_capitals_or_not(names, tmp_path):
    x, y = table()[:, :3], table()[:, 3]
    np.savez(tmp_path / "d.npz", **{names[0]: x, names[1]: y, "other": np.zeros(2)})
    for source in (tmp_path / "d.npz", {names[0]: x, names[1]: y}):
        read = read_regression(source)
        np.testing.assert_array_equal(read.inputs, x)
        np.testing.assert_array_equal(read.labels, y[:, None])


def test_frames_series_bunches_and_arrays_say_what_files_say():
    import pandas
    from sklearn.datasets import load_diabetes

    frame = pandas.DataFrame(table(), columns=NAMES)
    x, y = table()[:, [0, 1, 3]], table()[:, [2]]
    for read in (
        read_regression(frame, outputs="price"),
        read_regression(
            frame[["price", "area", "rooms", "energy"]], inputs=["area", "rooms", "energy"], outputs=["price"]
        ),
        read_regression(frame.drop(columns="price"), frame["price"]),
        read_regression(x, y[:, 0]),
        read_regression(np.hstack([x, y])),
        read_regression(np.hstack([x, y]).tolist(), outputs=1),
    ):
        np.testing.assert_array_equal(read.inputs, x)
        np.testing.assert_array_equal(read.labels, y)
    assert read_regression(frame.drop(columns="price"), frame["price"]).label_names == ("price",)
    bunch, whole = load_diabetes(), load_diabetes(as_frame=True)
    read = read_regression(bunch)
    np.testing.assert_array_equal(read.inputs, bunch.data)
    np.testing.assert_array_equal(read.labels[:, 0], bunch.target)
    assert read.input_names == tuple(bunch.feature_names)
    assert read_regression(whole).label_names == ("target",)
    np.testing.assert_array_equal(read_regression(bunch, inputs="bmi,bp").inputs, bunch.data[:, 2:4])
    np.testing.assert_array_equal(read_regression(whole.frame, outputs="target").inputs, bunch.data)


def test_parquet_is_read_where_pyarrow_is_and_else_says_so(tmp_path, monkeypatch):
    import pandas

    frame, path = pandas.DataFrame(table(), columns=NAMES), tmp_path / "d.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"d.parquet' cannot be used: (reading it needs pyarrow|it is empty, damaged)"):
        read_regression(path)
    with pytest.raises(InputError, match="there is no such file"):
        read_regression(tmp_path / "other.parquet")
    monkeypatch.setattr(pandas, "read_parquet", lambda given: frame if given == path else None)
    np.testing.assert_array_equal(read_regression(path, outputs="price").labels, table()[:, [2]])
    for error, said in ((ImportError, "reading it needs pyarrow"), (OSError, "damaged"), (ValueError, "damaged")):

        def fails(_, error=error):
            raise error

        monkeypatch.setattr(pandas, "read_parquet", fails)
        with pytest.raises(InputError, match=said):
            read_regression(path)


def test_a_parquet_file_itself(tmp_path):
    pytest.importorskip("pyarrow")
    import pandas

    pandas.DataFrame(table(), columns=NAMES).to_parquet(tmp_path / "d.parquet")
    read = read_regression(tmp_path / "d.parquet", outputs="price,energy")
    np.testing.assert_array_equal(read.labels, table()[:, 2:])


def test_importing_linnet_does_not_import_pandas():
    import subprocess

    code = "import sys, linnet; linnet.prediction.read_regression([[1., 2.]]); sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_large_files_are_read_fast(tmp_path):
    """50,000 rows of 13 columns; 0.5 s, and four times that for a busy machine."""
    rng = np.random.default_rng(0)
    np.savetxt(tmp_path / "d.csv", rng.normal(size=(50_000, 13)), delimiter=",", fmt="%.6f")
    begin = time.process_time()
    assert read_regression(tmp_path / "d.csv").inputs.shape == (50_000, 12)
    assert time.process_time() - begin < 2


# Columns by name -----------------------------------------------------------------------------------------------------


def test_labels_and_inputs_by_name(tmp_path):
    (tmp_path / "d.csv").write_text('id,"area, m2",price,age\nred,1,2,3\nblue,4,5,7\n')
    read = read_regression(tmp_path / "d.csv", outputs="price", inputs="age")
    assert (read.inputs.tolist(), read.labels.tolist()) == ([[3.0], [7.0]], [[2.0], [5.0]])
    read = read_regression(tmp_path / "d.csv", outputs="price,age", inputs=["area, m2"])
    assert (read.input_names, read.label_names) == (("area, m2",), ("price", "age"))
    assert read_regression(tmp_path / "d.csv", outputs="area, m2", inputs="age").labels.tolist() == [[1.0], [4.0]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"outputs": "pirce"},
            r"outputs = 'pirce' is not a column \(did you mean 'price'\?\): data = .* has a, price, b, b",
        ),
        ({"outputs": ["zzz"]}, r"outputs = 'zzz' is not a column: data = "),
        ({"outputs": "b"}, "outputs = 'b' is the name of several columns"),
        ({"outputs": "a,a"}, "a column is named twice"),
        ({"outputs": "a", "inputs": "a"}, r"inputs = 'a' is not allowed: column 1 \(a\) is a label"),
        ({"inputs": 3}, "inputs = 3 is not allowed: give names of columns"),
        ({"inputs": []}, "give names of columns"),
        ({"outputs": 0}, "outputs = 0 is not allowed"),
        ({"outputs": 4}, "4 columns, and 4 for labels leaves none for inputs"),
        ({"outputs": 9}, "4 columns, and 9 for labels leaves none for inputs"),
        ({"samples": 3}, "holds 2 samples"),
        ({"samples": 0}, "samples = 0"),
        ({"standardize": 1}, "standardize must be True or False"),
        ({"center": True, "intercept": True}, "intercept is not allowed with center"),
        ({"frozen": np.eye(3), "standardize": True}, "standardize is not allowed with frozen"),
        ({"frozen": np.eye(3)}, r"frozen cannot be used: it has shape \(3, 3\), and \(1, 3\) is needed"),
        ({"frozen": "w.bmp"}, "frozen = 'w.bmp' is not allowed: it must end in .csv"),
        ({"frozen": "w.npy"}, "frozen = 'w.npy' cannot be used: there is no such file"),
        ({"frozen": [[1.0, np.nan, 1.0]]}, "frozen cannot be used: row 1, column 2 holds nan"),
        ({"labels": [1.0, 2.0]}, "labels are not allowed with a file"),
    ],
)
def test_what_cannot_be_read_so_is_one_sentence(options, said, tmp_path):
    (tmp_path / "d.csv").write_text("a,price,b,b\n1,2,3,4\n5,6,7,9\n")
    with pytest.raises(InputError, match=said) as error:
        read_regression(tmp_path / "d.csv", **options)
    assert str(error.value).endswith(".")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        ([[1, 2], [3]], {}, r"data cannot be used: its array has shape \(2,\)"),
        (3, {}, "a matrix with a row for each sample"),
        ({"X": np.eye(2)}, {}, "one called labels or y"),
        ({"X": np.eye(2), "inputs": np.eye(2), "y": np.ones(2)}, {}, "has both X and inputs"),
        ({"X": np.eye(2), "y": np.ones(2)}, {"outputs": 1}, "with named arrays: their names say"),
        ({"X": np.eye(2), "y": np.ones(3)}, {}, "inputs have 2 rows and labels 3"),
        (np.eye(3), {"outputs": "a"}, "outputs = 'a' is not allowed: data has no names of columns"),
        (np.eye(3) * 1j, {}, "of type complex128"),
        (np.eye(2), {"labels": ["a", "b"]}, "its array is of type <U1"),
    ],
)
def test_bad_tables_in_python_are_one_sentence(data, options, said):
    with pytest.raises(InputError, match=said):
        read_regression(data, **options)


# Bad cells -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("red", "holds 'red', and a number is needed: choose the columns of numbers as inputs"),
        ("", "is empty, and a number is needed"),
        ("  ", "is empty, and a number is needed"),
        ("nan", "holds nan, and a finite number is needed"),
        ("-inf", "holds -inf, and a finite number is needed"),
        ("1e400", "holds inf, and a finite number is needed"),
        ("-1e60", "holds -1e+60: give units that keep numbers below 1e+50"),
        ("1.2.3", "holds '1.2.3', and a number is needed: choose the columns of numbers as inputs"),
    ],
)
@pytest.mark.parametrize("column", [0, 1, 2])
def test_every_bad_cell_says_where_it_is(cell, said, names, column, tmp_path):
    """Blank lines count as lines; labels and inputs alike."""
    row = ["7", "8", "9"]
    row[column] = cell
    first = "area,rooms,price\n" if names else ""
    (tmp_path / "d.csv").write_text(f"{first}1,2,3\n\n{','.join(row)}\n4,5,6\n")
    line, name = (4 if names else 3), ("area", "rooms", "price")[column]
    where = f"line {line}, column {column + 1}{f' ({name})' if names else ''} "
    with pytest.raises(InputError) as error:
        read_regression(tmp_path / "d.csv")
    assert f"cannot be used: {where}{said}." in str(error.value)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("a,b\n1,2\n3,4,5\n", "line 3 has 3 cells and the first row of numbers 2"),
        ("1 2 3\n4 5\n6 7 8\n", "line 2 has 2 cells and the first row of numbers 3"),
        ("a,b,c\n1,2\n3,4\n", "its line of names has 3 cells and the first row of numbers 2"),
        ("1,5 2,5\n2,5 3,5\n", "line 1, column 1 holds '1,5', a decimal comma: write a point, or separate columns by"),
        ("a;b\n1.5;2\n3;2,5\n", "line 3 holds '2,5' with a decimal comma and line 2 '1.5' with a point, and one kind"),
        ("a;b\n1,5;red\n", "line 2, column 2 (b) holds 'red'"),
        ("day,b\n2020-01-01 10:00,2\n2020-01-02 10:00,3\n", "line 2, column 1 (day) holds '2020-01-01 10:00'"),
        ("a,b\n", "no rows of numbers"),
    ],
)
def test_bad_text_says_where_it_is(written, said, tmp_path):
    (tmp_path / "d.csv").write_text(written)
    with pytest.raises(InputError) as error:
        read_regression(tmp_path / "d.csv")
    assert said in str(error.value)


def test_bad_cells_of_arrays_and_frames_say_where_they_are(tmp_path):
    import pandas

    bad = table()
    bad[3, 1] = np.nan
    np.save(tmp_path / "d.npy", bad)
    np.savez(tmp_path / "d.npz", X=bad[:, :3], y=bad[:, 3])
    frame = pandas.DataFrame(bad, columns=NAMES)
    odd = frame.assign(rooms=pandas.array([1, 2, 3, None, 5, 6], dtype="Int64"))
    days = frame.assign(area=pandas.to_datetime(["2020-01-01"] * 6))
    for source, said in (
        (tmp_path / "d.npy", "row 4, column 2 holds nan"),
        (tmp_path / "d.npz", "row 4, column 2 of X holds nan"),
        (frame, "row 4, column 2 (rooms) holds nan"),
        (odd, "row 4, column 2 (rooms) holds <NA>, and a number is needed"),
        (days, "row 1, column 1 (area) holds Timestamp"),
        (frame[["price", "area"]].assign(price="red"), "row 1, column 1 (price) holds 'red'"),
    ):
        with pytest.raises(InputError) as error:
            read_regression(source)
        assert said in str(error.value)


# What is done first --------------------------------------------------------------------------------------------------


def test_standardize_center_and_intercept():
    x, y = table(20)[:, :3] * [1, 100, 1e-3] + [5, 6, 7], table(20)[:, 3:] + 3
    read = read_regression(x, y, standardize=True)
    np.testing.assert_allclose(read.inputs, (x - x.mean(0)) / x.std(0), rtol=1e-12)
    np.testing.assert_array_equal(read.labels, y)
    assert read.prepared == ("inputs standardized",)
    read = read_regression(x, y, center=True)
    np.testing.assert_allclose(read.inputs, x - x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(read.labels, y - y.mean(0), rtol=1e-12)
    assert read.prepared == ("inputs and labels centered",)
    read = read_regression(x, y, standardize=True, center=True)
    np.testing.assert_allclose(read.inputs.std(0), 1, rtol=1e-12)
    np.testing.assert_allclose(read.labels, y - y.mean(0), rtol=1e-12)
    assert read.prepared == ("inputs standardized", "labels centered")
    # an intercept learns what centring takes away: the same slopes
    with_ones = np.linalg.lstsq(*read_regression(x, y, intercept=True))[0]
    centered = np.linalg.lstsq(*read_regression(x, y, center=True))[0]
    np.testing.assert_allclose(with_ones[:3], centered, rtol=1e-8)
    # the first samples are chosen before anything is done to them
    first = read_regression(x, y, samples=5, center=True)
    np.testing.assert_allclose(first.inputs, x[:5] - x[:5].mean(0), rtol=1e-12)


def test_constant_columns_become_zero_and_are_told(tmp_path):
    (tmp_path / "d.csv").write_text("one,two,three,y\n0.1,1,5,1\n0.1,2,5,3\n0.1,4,5,2\n")
    read = read_regression(tmp_path / "d.csv", standardize=True)
    np.testing.assert_array_equal(read.inputs[:, [0, 2]], 0)
    assert read.prepared == ("inputs standardized (constant, so zero: column 1 (one), column 3 (three))",)
    said = r"inputs are all zero once prepared \(inputs standardized \(constant, so zero: column 1 \(one\)\)\)"
    with pytest.raises(InputError, match=said):
        read_regression(tmp_path / "d.csv", inputs="one", standardize=True)


def test_a_frozen_matrix_leaves_the_change_to_be_learned(tmp_path):
    x, y = table(20)[:, :2], table(20)[:, 2:]
    frozen = np.array([[1.0, -2.0], [0.5, 3.0]])
    np.save(tmp_path / "w0.npy", frozen)
    for given in (frozen, tmp_path / "w0.npy", str(tmp_path / "w0.npy")):
        read = read_regression(x, y, frozen=given)
        np.testing.assert_allclose(read.labels, y - x @ frozen.T, rtol=1e-12)
        assert read.prepared == ("labels less what the frozen matrix gives",)
    change = np.linalg.lstsq(*read)[0].T
    np.testing.assert_allclose(change + frozen, np.linalg.lstsq(x, y)[0].T, rtol=1e-10)
    with_ones = read_regression(x, y, frozen=frozen, intercept=True)
    np.testing.assert_allclose(with_ones.labels, y - x @ frozen.T, rtol=1e-12)


def test_every_topic_takes_what_was_read_and_tells_what_was_done():
    import pandas

    frame = pandas.DataFrame(table(30), columns=NAMES)
    own = read_regression(frame, outputs="price", center=True, average=True)
    x, y = own
    problem = ln.regression(x, y, average=True)
    assert isinstance(problem, Regression)
    situation = prediction.Situation(network={"width": 20}, init={"scale": 0.1})
    for by_samples, by_problem in (
        (prediction.bias(own, gamma=0.1), prediction.bias(problem, gamma=0.1)),
        (situation.predict(own), situation.predict(problem)),
        (
            prediction.features(own, width=20, v0=0.1, sigma0=0.1),
            prediction.features(x, y, width=20, v0=0.1, sigma0=0.1),
        ),
    ):
        told, plain = by_samples.to_dict(), by_problem.to_dict()
        assert told.pop("prepared") == ["inputs and labels centered"]
        assert plain.pop("prepared") == []
        assert told["notes"].pop(0) == "Inputs and labels centered."
        assert told == plain
    assert "Inputs and labels centered." in str(prediction.bias(own, gamma=0.1))
