"""`linnet data`: what is listed, fetched and checked, and what is said when that fails."""

import json
import sys

import pytest
from pictures import little, publish, serving

COMMAND = ("data",)


@pytest.fixture(autouse=True)
def made(tmp_path, monkeypatch):
    """Little sets, published where nobody listens, and none on this machine."""
    monkeypatch.delenv("LINNET_DATA", raising=False)
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))
    return publish(tmp_path / "made", monkeypatch)


def told(typed, *arguments):
    code, out, _ = typed(*arguments, "--json")
    return code, {one["name"]: one for one in json.loads(out)["sets"]}


def test_a_list(typed, tmp_path):
    code, out, _ = typed()
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:5]] == ["digits", "mnist", "fashion", "cifar10"]
    assert "60,000 + 10,000" in out
    assert "linnet data fetch mnist fashion cifar10 gets what is missing." in out
    little(tmp_path / "cache" / "data" / "mnist")
    code, out, _ = typed()
    assert code == 0
    assert "not whole" in out
    assert "t10k-images-idx3-ubyte' is missing: linnet data fetch mnist gets it." in out
    assert "linnet data fetch fashion cifar10 gets what is missing." in out
    code, found = told(typed)
    assert code == 0
    assert list(found["fashion"]) == ["name", "title", "train", "test", "megabytes", "folder", "trouble", "whole"]
    assert found["fashion"]["megabytes"] == 31
    assert found["mnist"]["folder"] == str(tmp_path / "cache" / "data" / "mnist")
    assert not found["mnist"]["whole"]


def test_fetch_and_check(typed, made, monkeypatch, tmp_path):
    pytest.importorskip("pooch")
    assert typed("check")[0] == 0  # nothing is there that could be damaged
    assert typed("check", "mnist")[0] == 1
    with serving(made, monkeypatch) as asked:
        code, out, errors = typed("fetch", "mnist", "cifar10", "mnist")
        assert (code, errors) == (0, "")
        assert out.count(" whole ") == 2
        assert len(asked) == 5
        assert told(typed, "fetch", "mnist")[1]["mnist"]["whole"]
        assert len(asked) == 5
    assert typed("check", "mnist", "cifar10")[0] == 0
    batch = tmp_path / "cache" / "data" / "cifar10" / "test_batch.bin"
    batch.write_bytes(batch.read_bytes()[:-1])
    code, found = told(typed, "check")
    assert code == 1
    assert [name for name, one in found.items() if one["folder"] and not one["whole"]] == ["cifar10"]
    assert found["cifar10"]["trouble"].startswith(f"{str(batch)!r} is not the published file")
    assert told(typed, "check", "mnist")[0] == 0


def test_faults_are_one_sentence(typed, monkeypatch):
    for arguments in (("check", "faces"), ("fetch", "mnist", "faces")):
        code, _, errors = typed(*arguments)
        assert code == 2
        assert errors.startswith("linnet: name = 'faces' is not allowed: name must be one of 'digits', 'mnist'")
    code, _, errors = typed("fetch", "digits")
    assert code == 2
    assert "they come with scikit-learn" in errors
    pytest.importorskip("pooch")
    code, _, errors = typed("fetch", "mnist")
    assert code == 2
    assert "http://127.0.0.1:9/train-images-idx3-ubyte.gz cannot be reached" in errors
    assert errors.endswith("LINNET_DATA=FOLDER.")
    monkeypatch.setitem(sys.modules, "pooch", None)
    code, _, errors = typed("fetch", "mnist")
    assert code == 2
    assert "pip install 'linnet[data]'" in errors
