"""Adapters on a pre-trained model: the figures' machinery on a small random one, made here."""

import numpy as np
import pytest
import xarray

from linnet._check import InputError
from linnet.experiments.experiment import find

WORDS = ["a", "the", "man", "woman", "dog", "plays", "runs", "eats", "guitar", "flute", "bread", "in", "park", "red"]


@pytest.fixture
def stsb(tmp_path, monkeypatch):
    """Made pairs in the published format, quotes and all, where they are looked for."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "data" / "stsb"
    folder.mkdir(parents=True)
    for part, count in (("train", 40), ("dev", 12)):
        lines = []
        for i in range(count):
            first, second = (" ".join(rng.choice(WORDS, size=5)) for _ in range(2))
            lines.append(f'main-captions\tMSRvid\t2012test\t{i:04d}\t{rng.uniform(0, 5):.3f}\t"{first}\t{second}.')
        (folder / f"sts-{part}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.setenv("LINNET_DATA", str(tmp_path / "data"))
    return folder


@pytest.fixture
def bert(tmp_path):
    """A folder with a small random BERT and its vocabulary."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    pytest.importorskip("peft")
    folder = tmp_path / "bert"
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", '"', ".", *WORDS]
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24
    )
    transformers.BertModel(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    return folder


def small(name, model, **changes):
    given = {"model": str(model), "n": 24, "batch": 8, "longest": 20, "development": 10, "dropout": False, "steps": 16}
    return find([f"stability/{name}"])[0].of_size("paper", {**given, **changes})


@pytest.mark.slow
def test_ranks_on_a_small_model(stsb, bert, tmp_path):
    asked = small("fig20", bert, ranks=(1, 4))
    assert asked.missing() is None
    data = asked.run(tmp_path, lambda done, total: None, 1)
    assert data["loss"].shape == (2, 16)
    found = asked.accept(data)
    for name in ("at initialization: sharpness / |dL/dW|", "at initialization: lowest curvature / |dL/dW|"):
        assert found[name].holds
    assert all(finding.holds for name, finding in found.items() if "fixed batch" in name)
    # the first batch of all is that of a constant: no step was made yet
    assert float(np.abs(data["loss"] - data["constant"])[:, 0].max()) < 0.3
    spoilt = asked.accept(
        data.assign(
            fixed=data["fixed"][:, ::-1].assign_coords(step=data["step"]),
            sharpness=data["sharpness"] * 1.01,
            lowest=data["lowest"] * 0.99,
            constant=data["constant"][:, ::-1].assign_coords(step=data["step"]) + 1,
            adaptive=data["threshold"],
        )
    )
    assert not any(finding.holds for name, finding in spoilt.items() if name != "sharpness / (2/lr), largest")
    again = asked.run(tmp_path, lambda done, total: None, 1)
    np.testing.assert_allclose(data["loss"], again["loss"], rtol=1e-6)
    assert asked.draw(data).axes


@pytest.mark.slow
def test_heads_on_a_small_model(stsb, bert, tmp_path):
    asked = small("fig21", bert, rates=(1e-5, 1e-2), rank=2, dropout=True)
    data = asked.run(tmp_path, lambda done, total: None, 1)
    assert data["pearson"].shape == (3, 2, 9)
    begin = data["mean"].isel(check=0, lr=0).values
    assert begin[1] - begin[0] == pytest.approx(np.mean(_scores(stsb)), abs=0.8)  # the mean of 24 of them
    assert begin[2] == begin[0]  # a head that trains starts as one that does not
    loss = data["loss"].sel(lr=1e-2).isel(step=0)
    assert float(loss.sel(head="trained")) == float(loss.sel(head="zero bias"))
    assert abs(float((data["loss"].sel(head="trained") - data["loss"].sel(head="zero bias")).isel(lr=1, step=-1))) > 0.1
    assert len(asked.accept(data)) == 4  # those of a long run are not asked of a short one
    assert asked.draw(data).axes


def test_adapters_may_start_as_in_the_public_code(stsb, bert, tmp_path):
    """The first factor N(0, 1) and the last 0: the model is the pre-trained one, and no saddle is claimed."""
    asked = small("fig20", bert, ranks=(4,), last_zero=True)
    tuned = asked.fine_tuning().adapted(4, 0.0, False)
    factors = {name: weight for name, weight in tuned.module.named_parameters() if "lora_" in name}
    assert all(bool((weight == 0).all()) == ("lora_B" in name) for name, weight in factors.items())
    first = np.concatenate([weight.detach().numpy().ravel() for name, weight in factors.items() if "lora_A" in name])
    assert np.std(first) == pytest.approx(1, abs=4 / np.sqrt(2 * first.size))
    assert not any("initialization" in name for name in asked.accept(asked.run(tmp_path, lambda *_: None, 1)))


def test_what_must_hold_of_heads():
    """Numbers as those of a pre-trained model, and with the two heads exchanged."""
    asked = find(["stability/fig21"])[0]()
    rng = np.random.default_rng(0)
    scores = rng.uniform(0, 5, 200)
    shape, checks = (3, len(asked.rates)), np.array([0, asked.steps])
    mean = np.zeros((*shape, 2)) + np.array([0.86, scores.mean(), 0.0])[:, None, None]
    loss = scores.var() + (mean - scores.mean()) ** 2
    loss[0, :, 0], loss[1:, :, 1] = scores.var() + scores.mean() ** 2, 0.8
    loss[0, 0, 1] = 0.9 * loss[0, 0, 0]  # the smallest learning rate has not escaped
    pearson = np.zeros((*shape, 2))
    pearson[1:, 1:, 1] = 0.7
    axes = ("head", "lr", "check")
    data = xarray.Dataset(
        {
            "loss": (("head", "lr", "step"), np.zeros((*shape, asked.steps))),
            "mean": (axes, mean),
            "spread": (axes, np.zeros((*shape, 2)) + np.array([1e-4, 0.7, 0.7])[:, None, None]),
            "pearson": (axes, pearson),
            "development loss": (axes, loss),
            "scores": ("pair", scores),
        },
        coords={"head": list(asked.heads), "lr": list(asked.rates), "check": checks},
    )
    assert all(finding.holds for finding in asked.accept(data).values())
    heads = {"zero bias": "mean bias", "mean bias": "zero bias", "trained": "zero bias"}
    other = asked.accept(data.sel(head=list(heads.values())).assign_coords(head=list(heads)))
    kept = {name for name, finding in other.items() if finding.holds}
    assert kept == {
        "zero bias: loss at the end / at initialization, largest lr",
        "zero bias, lr 1e-05: |Pearson|",
        *(f"zero bias, lr {lr:g}: loss at the end / at initialization" for lr in asked.rates[1:]),
    }
    back = {
        name for name, found in asked.accept(data.isel(check=[1, 0]).assign_coords(check=checks)).items() if found.holds
    }
    assert not any(
        "loss at the end" in name for name in back - {"zero bias, lr 1e-05: loss at the end / at initialization"}
    )


def _scores(folder):
    return [float(line.split("\t")[4]) for line in (folder / "sts-train.csv").read_text().splitlines()]


def test_what_is_missing_is_one_sentence(tmp_path, monkeypatch):
    pytest.importorskip("transformers"), pytest.importorskip("peft")
    monkeypatch.setenv("LINNET_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    told = small("fig20", "nowhere").missing()
    assert told is not None
    assert "sts-train.csv of STS-B is not on this machine" in told
    assert "LINNET_DATA=FOLDER" in told


def test_a_model_that_is_not_there(stsb, tmp_path):
    pytest.importorskip("transformers"), pytest.importorskip("peft")
    with pytest.raises(InputError, match="neither a folder with a pre-trained model"):
        small("fig20", tmp_path / "none").run(tmp_path, lambda done, total: None, 1)


def test_parameters_that_are_refused():
    with pytest.raises(InputError, match="batch = 64 is more than n = 24"):
        small("fig20", "x", batch=64)
    with pytest.raises(InputError, match="must ascend"):
        small("fig20", "x", ranks=(4, 1))
    with pytest.raises(InputError, match="must differ"):
        small("fig21", "x", heads=("trained", "trained"))
    with pytest.raises(InputError, match="must ascend"):
        small("fig21", "x", rates=(1e-3, 1e-4))
