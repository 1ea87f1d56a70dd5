"""The page of one's own data: what it shows against NumPy, its lines and files, and all that people drop."""

import ast
import io
import re
import time
import zipfile
from urllib.parse import parse_qs

import jax
import numpy as np
import pytest

from linnet import prediction
from linnet._check import InputError
from linnet.lab import upload_cache
from linnet.lab.control import Choice, Several, Slider, Switch, write
from linnet.lab.export import execute
from linnet.lab.pages import data
from linnet.lab.pages.data import DataPage
from linnet.lab.upload_cache import UploadCache
from linnet.prediction.render import tables


@pytest.fixture
def page():
    return DataPage()


@pytest.fixture
def houses():
    """A table with three modes of different sizes, as text."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(80, 4)) @ np.diag([2.0, 1.0, 0.7, 1.5]) + [5, 0, -3, 1]
    y = x @ rng.normal(size=(4, 2)) + 0.1 * rng.normal(size=(80, 2)) + 7
    lines = ['rooms,"a, b",age,size,price,it\'s']
    lines += [",".join(f"{cell:.6f}" for cell in row) for row in np.column_stack([x, y])]
    return "\n".join(lines).encode()


def table(content):
    return np.array([[float(cell) for cell in line.split(",")] for line in content.decode().split("\n")[1:]])


def shown(page, values):
    """All that is shown in the end."""
    columns, headline, quantities = {}, "", {}
    for update in page.updates(values):
        columns |= update.columns
        headline = headline if update.headline is None else update.headline
        quantities |= {quantity.name: quantity.value for quantity in update.quantities or ()}
    return columns, headline, quantities


def npz(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def npy(array, **more):
    file = io.BytesIO()
    np.save(file, array, **more)
    return file.getvalue()


def test_what_is_shown_is_what_numpy_computes(page, houses):
    values = page.on_upload("houses.csv", len(houses), houses, page.first()) | {"outputs": ["5", "6"], "scale": 0.1}
    columns, sentence, _ = shown(page, values)
    rows = table(houses)
    x, y = rows[:, :4], rows[:, 4:] - rows[:, 4:].mean(axis=0)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    best = np.linalg.lstsq(x, y, rcond=None)[0]
    ends = np.linalg.svd(best, compute_uv=False)
    # descent in NumPy, from the same initialization in the coordinates of the samples
    given = page._tables(values)
    samples = prediction.OwnSamples(x, y, None, None, True, ())
    predicted = prediction.Situation(**given).predict(samples)
    reduction = predicted.data["training"].setup.reduction
    w1, w2 = (np.asarray(w) for w in predicted.network.layers)
    u, s, vt = np.linalg.svd(reduction.limit)
    assert s == pytest.approx(ends, rel=1e-9)
    gram = np.diag(reduction.scales**2)
    assert np.diag(gram) == pytest.approx(np.linalg.eigvalsh(x.T @ x / len(x))[::-1], rel=1e-9)
    measured = columns["measured"]
    wanted = dict.fromkeys(int(step) for step in measured["step"][0])
    losses = {}
    for step in range(max(wanted) + 1):
        away = w2 @ w1 - reduction.limit
        if step in wanted:
            wanted[step] = np.diag(u.T @ w2 @ w1 @ vt.T)[:2] / s
            losses[step] = np.sum(away @ gram * away) / 2
        force = away @ gram
        w1, w2 = w1 - predicted.lr * w2.T @ force, w2 - predicted.lr * force @ w1.T
    for i in range(2):
        np.testing.assert_allclose(measured["value"][i], [share[i] for share in wanted.values()], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(columns["loss"]["loss"], list(losses.values()), rtol=1e-7)
    # and the prediction lies on it
    for i in range(2):
        drawn = np.interp(measured["step"][i], columns["predicted"]["step"][i], columns["predicted"]["value"][i])
        np.testing.assert_allclose(drawn, measured["value"][i], atol=0.02)
    assert re.match(r"Train with lr = \S+ for [\d,]+ steps", sentence)


def test_the_table_has_value_regime_and_half_learned_step_of_each_mode(page, houses):
    values = page.on_upload("houses.csv", len(houses), houses, page.first()) | {"outputs": ["5", "6"], "scale": 0.1}
    rows = table(houses)
    x, y = rows[:, :4] - rows[:, :4].mean(axis=0), rows[:, 4:] - rows[:, 4:].mean(axis=0)
    ends = np.linalg.svd(np.linalg.lstsq(x / x.std(axis=0), y, rcond=None)[0], compute_uv=False)
    columns, _, quantities = shown(page, values)
    size = [quantities[name] for name in ("samples", "inputs", "outputs")]
    assert size == [80, 4, 2]
    assert quantities["condition"] == pytest.approx(np.linalg.cond(x / x.std(axis=0)), rel=1e-9)
    (made,) = tables([update for update in page.updates(values) if update.quantities][-1].quantities)
    cells = {title: [row[i] for row in made["rows"]] for i, title in enumerate(made["columns"])}
    assert made["title"] == "Rich: of 2 modes 2 rich"
    assert [float(cell) for cell in cells["value"]] == pytest.approx(ends, rel=1e-3)
    assert cells["regime"] == ["rich", "rich"]
    for i, cell in enumerate(cells["half at"]):
        first = np.argmax(columns["measured"]["value"][i] > 0.5)
        before, after = columns["measured"]["step"][i][first - 1 : first + 1]
        assert 0.97 * before <= float(cell) <= 1.03 * after


def test_the_lines_and_the_file_make_the_same_numbers(page, houses, tmp_path, monkeypatch):
    name = 'it\'s "mine".csv'
    first = page.first() | {"depth": 3, "init": "balanced", "scale": 0.2, "intercept": True, "center": False}
    values = page.on_upload(name, len(houses), houses, first) | {"outputs": ["2", "6"]}
    columns, *_ = shown(page, values)
    here = execute(page, values)
    (tmp_path / name).write_bytes(houses)
    monkeypatch.chdir(tmp_path)
    there = {"print": lambda *_: None}
    exec(page.code(values), there)
    for found in (here, there):
        modes = found["data"]["modes"].values
        ends = [mode.value for mode in found["prediction"].modes]
        for i, line in enumerate(columns["measured"]["value"]):
            np.testing.assert_allclose(modes[1:, i] / ends[i], line, rtol=1e-12, atol=1e-14)
        assert found["figure"].axes
    (tmp_path / "mine.toml").write_text(page.toml(values), encoding="utf-8")
    read = prediction.read_situation(tmp_path / "mine.toml").predict()
    assert read.lr == there["prediction"].lr
    assert read.modes == there["prediction"].modes


@pytest.mark.quick(2)
@pytest.mark.parametrize("preset", DataPage.presets)
def test_presets(page, preset, houses):
    for values in (page.first(), page.on_upload("houses.csv", len(houses), houses, page.first())):
        moved = {
            key: value for key, value in DataPage.presets[preset].items() if key != "outputs" or not values["file"]
        }
        _, sentence, quantities = shown(page, page.checked(values | moved))
        assert sentence.startswith("Train with")
        assert quantities["regime"] == {"rich": "rich", "lazy": "lazy"}.get(preset.split(":")[0], "rich")


def corners():
    for control in DataPage.controls:
        if isinstance(control, Slider):
            yield from ({control.name: value} for value in (control.low, control.high))
        if isinstance(control, Switch):
            yield {control.name: not control.value}
        if isinstance(control, Choice):
            yield from ({control.name: value} for value in control.options)
    yield {"auto": False, "lr": 10.0}
    yield {"auto": False, "lr": 10.0, "depth": 6, "scale": 10.0}
    yield {"auto": False, "lr": 1e-6, "scale": 1e-6}
    yield {"depth": 1, "scale": 10.0}
    yield {"center": False, "standardize": False, "intercept": True, "width": 10}


@pytest.mark.quick(4)
@pytest.mark.parametrize("moved", list(corners()), ids=str)
def test_corners(page, moved):
    values = page.checked(page.first() | moved)
    if moved == {"intercept": True}:
        with pytest.raises(InputError, match="intercept is not allowed with center"):
            shown(page, values)
        return
    columns, sentence, _ = shown(page, values)
    assert sentence
    for name in ("predicted", "measured"):
        for line in columns[name]["value"]:
            assert np.nanmax(np.abs(line), initial=0) <= data._TOP
    assert np.isfinite(columns["loss"]["loss"]).all()
    assert np.all(columns["loss"]["loss"] > 0)


def test_a_learning_rate_that_is_too_large_is_reported(page):
    _, sentence, _ = shown(page, page.checked({"auto": False, "lr": 5.0, "scale": 1.0}))
    assert "diverged at step" in sentence
    assert "Lower the learning rate" in sentence


def test_other_numbers_do_not_recompile(page, houses):
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append(event) if "backend_compile" in event else None
    )
    values = page.on_upload("houses.csv", len(houses), houses, page.first())
    shown(page, values | {"scale": 0.011})
    compiled.clear()
    for moved in ({"scale": 1e-5}, {"scale": 1.0}, {"seed": 7}, {"auto": False, "lr": 0.01}, {"standardize": False}):
        shown(page, values | moved)
    assert not compiled


# What people drop --------------------------------------------------------------------------------------------------


def locked():
    content = bytearray(npz(X=np.eye(3), y=np.ones(3)))
    for sign, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flag of an encrypted member
        for found in re.finditer(re.escape(sign), bytes(content)):
            content[found.start() + offset] |= 1
    return bytes(content)


def hidden_bomb():
    """Something that is no array before one that is too large."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as arrays:
        arrays.writestr("readme.txt", "hello")
        arrays.writestr("X.npy", npy(np.zeros((50_000, 100))))
        arrays.writestr("y.npy", npy(np.zeros(50_000)))
    return file.getvalue()


def lying():
    """A short file that says it holds a trillion numbers."""
    content = npy(np.zeros((2, 2)))
    return content.replace(b"'shape': (2, 2), }          ", b"'shape': (1000000, 1000000)}")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"", "it has no rows of numbers"),
        ("a.csv", b"hello\nworld\n", "it has one column"),
        ("a.csv", b"a\n1\n2\n", "it has one column"),
        ("a.csv", bytes(range(256)), "it is not text in UTF-8"),
        ("a.csv", b"a,b\n1,2\n1,2,3\n", "line 3 has 3 cells"),
        ("a.npz", b"PK nothing", "damaged or not a .npz file"),
        ("a.npz", npz(a=np.eye(3)), "it needs one array called inputs or x or data"),
        ("a.npz", npz(X=np.array([[{}]], dtype=object), y=np.ones(1)), "X or y is damaged or not of numbers"),
        ("a.npz", locked(), "X or y is damaged or not of numbers"),
        ("a.npz", npz(X=np.zeros((50_000, 100)), y=np.ones(50_000)), "and 4,000,000 are the most here"),
        ("a.npz", hidden_bomb(), "and 4,000,000 are the most here"),
        ("a.npy", npy(np.array([[{}]], dtype=object), allow_pickle=True), "damaged or not a .npy file"),
        ("a.npy", lying(), "and 4,000,000 are the most here"),
        ("a.npy", npy(np.ones(3)), "a matrix with a row for each sample is needed"),
        ("a.exe", b"MZ", "it must end in .csv"),
        ("../../etc/passwd", b"root", "data = '.._.._etc_passwd' is not allowed"),
        (
            "huge.csv",
            None,
            "huge.csv has 953.7 MiB, and 8 MiB are the most that is sent here: use linnet",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(page, name, content, words):
    with pytest.raises(InputError, match=re.escape(words)) as refused:
        page.on_upload(name, 10**9, content, page.first())
    assert "\n" not in str(refused.value)
    assert "tmp" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a,b\n1,2\n", "so there is nothing to learn"),
        (b"a,city,b\n1,Paris,2\n2,Rome,4\n", "data = 'mine.csv' cannot be used: line 2, column 2 (city) holds 'Paris'"),
        (b"hello,world\nyes,no\n", "line 2, column 1 (hello) holds 'yes', and a number is needed"),
        (b"a,b\n1,2\n1,3\n", "its inputs are all zero once prepared"),
        (b"a,b\n1,2\nnan,3\n", "line 3, column 1 (a) holds nan"),
    ],
)
def test_a_table_that_cannot_be_learned_is_refused(page, content, words):
    values = page.on_upload("mine.csv", len(content), content, page.first())
    for made_of in (lambda: shown(page, values), lambda: execute(page, values), lambda: page.code(values)):
        with pytest.raises(InputError, match=re.escape(words)) as refused:
            made_of()
        assert "tmp" not in str(refused.value)


def test_labels_are_what_the_file_offers(page, houses):
    def labels(name, content):
        values = page.on_upload(name, len(content), content, page.first())
        found = [control for control in page.controls_for(values) if control.name == "outputs"]
        return values, found[0] if found else None

    values, control = labels("a.csv", houses)
    assert isinstance(control, Several)
    assert list(control.options.values()) == ["rooms", "a, b", "age", "size", "price", "it's"]
    assert values["outputs"] == ["6"]
    assert 'outputs=["it\'s"]' in page.code(values)
    values, control = labels("a.csv", b"1,2,4\n2,3,5\n4,4,7\n")
    assert not isinstance(control, Several)
    assert list(control.options) == ["1", "2"]
    assert "outputs=2" in page.code(values | {"outputs": "2"})
    values, control = labels("a.npz", npz(X=np.eye(3), y=np.arange(3.0)))
    assert control is None
    assert "outputs" not in values
    assert "outputs" not in page.code(values)
    with pytest.raises(InputError, match="one or more of"):
        page.checked({"outputs": []})
    with pytest.raises(InputError, match="one or more of"):
        page.checked({"outputs": ["9"]})


def test_names_of_files_and_columns_are_no_code(page):
    name = "'); open('/tmp/stolen', 'w') #\".csv"
    content = b"a,\"'] + [open('stolen')\",c\n1,2,3\n2,3,5\n4,4,1\n"
    values = page.on_upload(name, len(content), content, page.first()) | {"outputs": ["2"]}
    for lines in (page.code(values), page.executed_code(values)):
        known = {"print", "int", "steps_to_train", "train", "str"}
        calls = [node.func for node in ast.walk(ast.parse(lines)) if isinstance(node, ast.Call)]
        assert not [call for call in calls if isinstance(call, ast.Name) and call.id not in known]
    path = data._given(values["file"]).path
    assert re.fullmatch(r"[0-9a-f]{64}\.csv", path.name)
    assert "stolen" not in str(path)


def test_the_address_has_the_file(page, houses):
    values = page.on_upload("houses.csv", len(houses), houses, page.first()) | {"outputs": ["2", "5"], "depth": 3}
    query = write(page.controls_for(values), values)
    read = {key: value[0] for key, value in parse_qs(query).items()}
    assert set(read) == {"file", "outputs", "depth"}
    assert DataPage().read(read) == values
    with pytest.raises(InputError, match=re.escape("mine.csv is not kept here any more: drop the file again.")):
        DataPage().read({"file": "0" * 64 + "/mine.csv"})
    for bad in ("x", "0" * 64, "0" * 64 + "/a/b.csv", "../../etc/passwd", "0" * 64 + "/a\nb.csv"):
        with pytest.raises(InputError, match="is not allowed"):
            DataPage().read({"file": bad})


def test_what_is_kept_is_bounded():
    store = UploadCache(lambda path: path.read_bytes(), most_bytes=100, most_files=3)
    assert store.find("0" * 64, ".csv") is None
    names = [store.keep(bytes([i]) * 20, ".csv", "a.csv") for i in range(3)]
    path, read = store.find(names[0], ".csv")
    assert path.read_bytes() == read == bytes(20)
    assert store.find(names[0], ".npz") is None
    store.keep(b"x" * 20, ".csv", "a.csv")  # a fourth: that goes which nobody has asked for
    assert store.find(names[1], ".csv") is None
    assert store.find(names[0], ".csv") is not None
    large = store.keep(b"y" * 90, ".csv", "a.csv")
    assert store.find(names[0], ".csv") is None
    assert store.find(large, ".csv") is not None
    folder = path.parent
    assert [left.name for left in folder.iterdir()] == [f"{large}.csv"]
    assert store.keep(b"y" * 90, ".csv", "b.csv") == large
    del store
    assert not folder.exists()


def test_a_file_that_is_refused_is_not_kept(monkeypatch):
    def read(path):
        raise InputError(f"data = {str(path)!r} cannot be used.")

    store = UploadCache(read)
    with pytest.raises(InputError, match=r"data = 'mine\.csv' cannot be used"):
        store.keep(b"1", ".csv", "mine.csv")
    assert not store._there
    monkeypatch.setattr(upload_cache, "_CELLS", 3)
    with pytest.raises(InputError, match="unpacks to 4 numbers, and 3 are the most here"):
        store.keep(npy(np.eye(2)), ".npy", "mine.npy")


def test_a_page_takes_a_file(houses):
    pytest.importorskip("panel", reason="panel is not installed: pip install '.[lab]'")
    import base64

    from linnet.lab.view import PageView

    def wait(done):
        end = time.monotonic() + 300
        while not done():
            assert time.monotonic() < end
            time.sleep(0.02)

    view = PageView(DataPage())
    wait(lambda: not view.summary.busy)
    assert "own-data.csv" in view.export.code
    assert view.summary.headline.startswith("Train with lr = ")
    (made,) = view.summary.tables
    assert made["columns"][:2] == ["value", "regime"]
    view.controls.upload = {"name": "mine.csv", "size": len(houses), "content": base64.b64encode(houses).decode()}
    wait(lambda: "mine.csv" in view.export.code and not view.summary.busy)
    assert next(field for field in view.controls.fields if field["name"] == "outputs")["options"][1] == ["2", "a, b"]
    assert view.values["file"].endswith("/mine.csv")
    view.controls.upload = {"name": "huge.csv", "size": 10**9, "content": None}
    wait(lambda: "953.7 MiB" in view.summary.headline)
    assert view.summary.error
    assert view.values["file"].endswith("/mine.csv")
    other = PageView(DataPage())
    wait(lambda: not other.summary.busy)
    assert other.values["file"] == ""


def test_what_closed_forms_know_comes_first_and_stays():
    page = DataPage()
    rough, full, _ = page.updates(page.first())
    np.testing.assert_allclose(rough.columns["growth"]["growth"], full.columns["growth"]["growth"], rtol=0.05)
    assert [q.value for q in rough.quantities if q.name == "regime"] == [
        q.value for q in full.quantities if q.name == "regime"
    ]
    learned = [q.value for update in (rough, full) for q in update.quantities if q.name == "learned"]
    assert np.isnan(learned[0])
    assert np.isfinite(learned[1])
    assert len(list(page.updates(page.first() | {"depth": 1}))) == 2  # one layer has nothing to be followed
