"""The figures of feature learning at toy size: they run, draw, and their acceptance can fail."""

import os
import sys

import jax
import numpy as np
import pytest
from pictures import idx, little
from toys import all_hold, broken, quiet, run

import linnet as ln
from linnet import observe
from linnet.cli import reproduce
from linnet.experiments.feature import FeatureFig1, FeatureFig2, FeatureFig3, FeaturePhase, _keeps_sides, _kernels
from linnet.reproduction import work
from linnet.theory import feature


@pytest.fixture
def folder(tmp_path):
    little(tmp_path / "mnist")
    return tmp_path / "mnist"


# Figures -------------------------------------------------------------------------------------------------------------


def test_two_stages(tmp_path):
    figure, data, findings = run(FeatureFig1, tmp_path, draws=4)
    all_hold(findings)
    assert len(figure.draw(data).axes) == 6
    # a network that never aligns, a loss that falls at once, a kernel that stays away
    assert "draws that never align" in broken(figure, data.assign(slope=0.5 * data["slope"]))
    early = data.assign(loss=data["loss"] * 0.8 ** data["step"])
    assert "loss left at t1, smallest" in broken(figure, early)
    assert len(broken(figure, data.assign(distance=data["distance"] + 0.1))) >= 2
    sinking = data.assign(slope=data["slope"] * (1 - 0.2 * (data["step"] > 80)))
    assert {name for name in broken(figure, sinking) if "slope from t1 on" in name} == {
        "slope from t1 on, smallest", "slope from t1 on, largest change"
    }  # fmt: skip
    assert len([name for name in broken(figure, data.assign(ratio=2 * data["ratio"])) if "mean of rho_r" in name]) == 1
    assert any("until t1" in name for name in broken(figure, data.assign(distance=1 - data["distance"])))
    late = broken(figure, data.assign(model=data["model"].shift(step=1, fill_value=data["loss"].values[0, 0])))
    assert {name.split(":")[0] for name in late} == {"two-scalar model"}


def test_phase_map(tmp_path):
    figure, data, findings = run(FeaturePhase, tmp_path, sizes=(1e-2, 0.3, 3.0), steps=1200)
    all_hold(findings)
    assert len(figure.draw(data).axes) == 6
    assert data["growth"].values[0, 0] > 1e3
    assert np.isnan(data["left"].values[2, 2])
    assert len(broken(figure, data.assign(growth=1.2 * data["growth"]))) == 2
    assert len(broken(figure, data.assign(left=1 - data["left"]))) >= 2


def test_images_in_three_stages(tmp_path, folder):
    toy = {"images": "mnist", "folder": str(folder), "pairs": ((0, 1),), "draws": 2, "n": 20, "width": 64}
    figure, data, findings = run(FeatureFig2, tmp_path / "2", **toy)
    wrong = {n: str(f) for n, f in findings.items() if not f.holds}
    assert set(wrong) == {"mnist: runs"}  # two runs are no statistics
    assert len(figure.draw(data).axes) == 3
    # distances at t1 by hand, from the samples themselves
    inputs, labels = figure.samples("mnist")
    x, y = inputs[0], labels[0]
    gram = x @ x.T
    gamma, phi = y @ gram @ y, y @ gram @ gram @ y
    assert float(data["floor"][0]) == pytest.approx(1 - gamma**2 / phi / figure.n)
    assert len(broken(figure, data.assign(distance_t1=data["distance_t1"] + 1, slope=0.8 * data["slope"]))) >= 4

    inputs, labels = FeatureFig2.of_size("quick", toy | {"regression": True}).samples("mnist")
    assert inputs.shape == (2, 20, 20)
    np.testing.assert_allclose(labels.mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(labels.std(axis=1), 1)
    np.testing.assert_allclose(inputs.sum(axis=1), 0, atol=1e-8)  # less their mean
    assert len(np.unique(labels[0])) > 2

    figure, data, findings = run(FeatureFig3, tmp_path / "3", **toy)
    assert not findings["mnist: runs"].holds
    assert findings["mnist: not the target-aligned kernel: distance from t1 on, smallest"].holds
    assert len(figure.draw(data).axes) == 4
    # the slope leaves before the loss is at the floor, the loss falls before the slope is there, the loss never falls
    named = "mnist: runs that leave stage two above the floor of one direction (floors to 0.65)"
    assert findings[named].holds
    late = data["step"] > data["t1"] + 5
    for wrong in (
        {"slope": data["slope"].where(~late, 0.9 * data["slope"])},
        {"loss": data["loss"].where(data["step"] == 0, 0.0)},
        {"loss": 0 * data["loss"] + data["loss"][:, :1].values},
    ):
        assert figure.accept(data.assign(wrong))[named].measured == 2
    swapped = data.assign(sides_2t1=data["cosine_2t1"] - 0.1, cosine_2t1=data["sides_2t1"])
    assert len(broken(figure, swapped.assign(distance=0 * data["distance"]))) >= 4
    # the first steps in NumPy
    key = jax.random.split(jax.random.key(0), 2)[0]
    size = 0.01 * gamma**0.75 / np.sqrt(phi)
    first, second = ln.init.readout(key, ln.factorization(x[:1]), (64,), sigma0=size, v0=size).layers
    w1, v, n, w = np.asarray(first), np.asarray(second)[0], figure.n, 64
    step = 0.1 * n * w / np.sqrt(gamma) / (n * w)
    losses = []
    for _ in range(5):
        hidden = x @ w1.T
        error = y - np.maximum(hidden, 0) @ v / w
        losses.append(error @ error / (2 * n))
        back = error[:, None] * (hidden > 0)
        w1, v = w1 + step * (v * back).T @ x, v + step * np.maximum(hidden, 0).T @ error
    np.testing.assert_allclose(data["loss"][0, :5], losses, rtol=1e-10)


def test_neurons_divide_sides_and_not_classes_that_overlap(tmp_path):
    """As on CIFAR-10: zeros between classes take the target-aligned kernel away from that of the network."""
    rng = np.random.default_rng(0)
    classes = np.repeat([0, 1], 40)
    places = 0.5 * (1 - 2 * classes) + rng.normal(size=80)  # along one direction of the pixels
    pixels = 128 + 12 * places[:, None] * rng.choice([-1, 1], 25) + 2 * rng.normal(size=(80, 25))
    idx(tmp_path / "train-images-idx3-ubyte", np.clip(pixels, 0, 255).reshape(80, 5, 5))
    idx(tmp_path / "train-labels-idx1-ubyte", classes)
    toy = {"images": "mnist", "folder": str(tmp_path), "pairs": ((0, 1),), "draws": 4, "n": 40, "width": 64}
    figure, data, findings = run(FeatureFig3, tmp_path / "3", **toy)
    assert {name for name, finding in findings.items() if not finding.holds} == {"mnist: runs"}
    kept = data["kept"].values
    assert kept.any()
    assert not kept.all()
    assert np.min((data["masked_2t1"] - data["cosine_2t1"]).values[kept]) < -0.05
    # a kernel that is nearer to the whole one than to that with zeros, in one run where the sides stay, or in most
    worse = data.assign(sides_2t1=data["cosine_2t1"] - 0.1)
    named = "mnist: zeros between sides less the whole kernel: cosine at 2 t1, "
    one = data.assign(sides_2t1=data["sides_2t1"].where(np.arange(4) != np.flatnonzero(kept)[0], worse["sides_2t1"]))
    assert broken(figure, one) == {"mnist: runs", f"{named}smallest (sides that stay)"}
    assert broken(figure, worse.assign(kept=data["kept"] & False)) == {"mnist: runs", f"{named}median"}


def test_digits(tmp_path):
    pytest.importorskip("sklearn")
    _, _, findings = run(FeatureFig2, tmp_path, pairs=((0, 1),), draws=1, steps=120)
    assert {name for name, finding in findings.items() if not finding.holds} == {"digits: runs"}
    with pytest.raises(ln.InputError, match="n = 1000 is not allowed: it takes 500 images of class 0, and there are"):
        FeatureFig2.of_size("quick", {"n": 1000}).samples("digits")


def test_several_sets_side_by_side(tmp_path):
    """A row for each set, of numbers that do not depend on the others; read back from the disk too."""
    little(tmp_path / "mnist")
    little(tmp_path / "fashion")
    toy = {"folder": str(tmp_path), "pairs": ((0, 1), (1, 7)), "draws": 2, "n": 10, "width": 32, "steps": 100}
    figure, data, findings = run(FeatureFig2, tmp_path / "both", images="mnist, fashion", **toy)
    assert figure.images == ("mnist", "fashion")
    assert len(findings) == 2 * len({name.split(": ", 1)[1] for name in findings})
    _, alone, _ = run(FeatureFig2, tmp_path / "one", images="fashion", **toy)
    np.testing.assert_array_equal(data["loss"][4:], alone["loss"])
    np.testing.assert_array_equal(data["classes"][4:], alone["classes"])
    kept, there = figure.data(tmp_path / "both", quiet)
    assert there
    assert figure.accept(kept) == findings
    drawn = figure.draw(kept)
    assert [axes.get_title() for axes in drawn.axes[::3]] == [
        f"{name}: 4 runs, $t_1$ from {t1.min()} to {t1.max()}"
        for name, t1 in (("MNIST", data["t1"].values[:4]), ("Fashion-MNIST", data["t1"].values[4:]))
    ]
    # one set goes wrong, and the other not
    worse = data.assign(slope=data["slope"].where(data["images"] == "mnist", 0.5 * data["slope"]))
    assert {name.split(":")[0] for name in broken(figure, worse) - broken(figure, data)} == {"fashion"}


def test_without_data_the_cure_is_said(tmp_path, monkeypatch):
    monkeypatch.delenv("LINNET_DATA", raising=False)
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path))
    monkeypatch.setattr(work, "find", lambda ids: [FeatureFig3])
    out = reproduce.run([], "paper", tmp_path, [], claims=False, quiet=True)
    assert out["experiments"] == []
    (reason,) = (one["reason"] for one in out["skipped"])
    assert "linnet data fetch mnist fashion cifar10 gets them" in reason
    assert reason.endswith("; --set images=digits needs no files.")
    assert FeatureFig3.of_size("quick", {}).images == ("digits",)


@pytest.mark.slow
@pytest.mark.skipif("LINNET_DATA" not in os.environ, reason="LINNET_DATA names no folder with data sets")
@pytest.mark.parametrize("kind", [FeatureFig2, FeatureFig3])
def test_published_images(kind, tmp_path):
    figure = kind.of_size("paper", {"draws": 5})
    data, _ = figure.data(tmp_path, quiet)
    assert broken(figure, data) == set()


def test_without_scikit_learn_the_others_go_on(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    monkeypatch.setattr(work, "find", lambda ids: [FeatureFig2])
    out = reproduce.run([], "quick", tmp_path, [], claims=False, quiet=True)
    assert out["experiments"] == []
    assert "pip install 'linnet[images]'" in out["skipped"][0]["reason"]
    with pytest.raises(ln.InputError, match=r"feature/fig2: .*needs scikit-learn: pip install"):
        reproduce.run(["feature/fig2"], "quick", tmp_path, [], quiet=True)


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        (FeatureFig1, {"v0": 0.0}, "v0 = 0.0 is not allowed"),
        (FeaturePhase, {"sizes": (1.0, 0.1)}, "must ascend"),
        (FeatureFig2, {"n": 21}, "n = 21 must be even"),
        (FeatureFig2, {"pairs": ((1, 1),)}, "two different classes"),
        (FeatureFig3, {"images": "digits", "folder": "here"}, "folder = 'here' must not be given with digits"),
        (FeatureFig3, {"images": ("mnist", "mnist")}, "must be different sets"),
        (FeatureFig3, {"images": ()}, "images = () is not allowed"),
        (
            FeatureFig3,
            {"images": "mnist,faces"},
            "images.1 = 'faces' is not allowed: input should be 'digits', 'mnist'",
        ),
    ],
)
def test_parameters_are_checked(kind, changes, words):
    with pytest.raises(ln.InputError) as error:
        kind.of_size("paper", changes)
    assert words in str(error.value)


# What the figures stand on -------------------------------------------------------------------------------------------


def test_kernel_of_a_relu_network_with_two_outputs():
    rng = np.random.default_rng(1)
    state = ln.states.ReluNetwork(rng.normal(size=(7, 3)), rng.normal(size=(2, 7)), rng.normal(size=(4, 3)))
    problem = ln.factorization(np.ones((2, 4)))
    np.testing.assert_allclose(observe.sample_kernel(state, problem), observe.kernel_matrix(state), rtol=1e-12)


def test_signs_of_the_kernel_of_a_relu_network():
    """No entry is negative where the inputs' product is not, whatever v; elsewhere some are."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(12, 3))
    kernel = np.asarray(
        observe.sample_kernel(
            ln.states.ReluNetwork(rng.normal(size=(40, 3)), 3 * rng.normal(size=(1, 40)), x),
            ln.factorization(np.ones((1, 12))),
        )
    )
    gram = x @ x.T
    assert np.min(kernel[gram >= 0]) >= 0
    assert np.min(kernel[gram < 0]) < 0


def test_sides_that_stay():
    """Gates of ReLU neurons on one side of X^T y never change in stage one where the sides stay; their kernel is zero
    between sides and nearer to the target-aligned one with zeros there, by the ratio of the norms.
    """
    rng = np.random.default_rng(5)
    kept = []
    for _ in range(60):
        half, d = rng.integers(2, 9), rng.integers(1, 6)
        y = np.repeat([1.0, -1.0], half)
        x = rng.normal(size=(2 * half, d)) + rng.uniform(0, 2) * y[:, None]
        x -= x.mean(axis=0)
        gram = x @ x.T
        z = gram @ y
        kept.append(bool(_keeps_sides(gram, y)))
        # one neuron of each sign, each along the pull of its own side, 1e-9 of the labels
        sides = np.stack([z > 0, z < 0])
        v, w1 = np.array([1e-9, -1e-9]), np.stack([(sign * y * s) @ x for sign, s in zip((1, -1), sides, strict=True)])
        w1 *= 1e-9 / np.linalg.norm(w1, axis=1, keepdims=True)
        assert kept[-1] == np.array_equal(w1 @ x.T > 0, sides)
        if not kept[-1]:
            continue
        for _ in range(20):
            hidden = x @ w1.T
            v, w1 = v + 0.01 * np.maximum(hidden, 0).T @ y, w1 + 0.01 * ((hidden > 0) * v * y[:, None]).T @ x
            np.testing.assert_array_equal(w1 @ x.T > 0, sides)
        kernel = np.asarray(observe.sample_kernel(ln.states.ReluNetwork(w1, v[None], x), ln.factorization(y[None])))
        assert np.all(kernel[np.outer(z, z) < 0] == 0)
        target = np.asarray(observe.target_kernel(gram, y))
        ratio = np.linalg.norm(target) / np.linalg.norm(target[np.outer(z, z) > 0])
        found = _kernels(kernel[None], np.ones(1), gram, y)
        assert found["cosine"][0] > 0
        assert found["sides"][0] == pytest.approx(ratio * found["cosine"][0], rel=1e-10)
    assert 10 < sum(kept) < 50


def test_sides_of_separated_classes_stay():
    """Centered, as many of each class, each on its side of X^T y: both pulls are along X^T y itself."""
    rng = np.random.default_rng(6)
    separated = 0
    for _ in range(100):
        half, d = rng.integers(2, 9), rng.integers(1, 6)
        y = np.repeat([1.0, -1.0], half)
        x = rng.normal(size=(2 * half, d)) + rng.uniform(0, 2) * y[:, None]
        x -= x.mean(axis=0)
        if np.all(y * (x @ x.T @ y) > 0):
            separated += 1
            np.testing.assert_allclose(2 * y[:half] @ x[:half], y @ x, rtol=1e-9, atol=1e-12)
            assert _keeps_sides(x @ x.T, y)
    assert separated > 20


def test_what_is_told_of_kernels():
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(6, 3)), np.repeat([1.0, -1.0], 3)
    roots = rng.normal(size=(2, 6, 6))
    kernels, gram, scales = roots @ roots.swapaxes(1, 2), x @ x.T, np.array([0.5, 2.0])
    found = _kernels(kernels, scales, gram, y)
    for i, kernel in enumerate(kernels):
        target = np.asarray(observe.target_kernel(gram, y, scales[i]))
        masked, z = target * (np.outer(y, y) > 0), gram @ y
        assert found["distance"][i] == pytest.approx(float(observe.kernel_distance(kernel, target)), rel=1e-12)
        assert found["masked"][i] == pytest.approx(float(observe.kernel_cosine(kernel, masked)), rel=1e-12)
        sides = target * (np.outer(z, z) > 0)
        assert found["sides"][i] == pytest.approx(float(observe.kernel_cosine(kernel, sides)), rel=1e-12)
        assert found["norm"][i] == pytest.approx(np.linalg.norm(kernel, 2), rel=1e-12)


def test_slope_of_the_aligned_model_is_that_of_its_neurons():
    rng = np.random.default_rng(2)
    v, alpha, vstar2 = 0.3 * rng.choice([-1.0, 1.0], size=9), 0.2 * rng.normal(size=9), 1.7
    initial = feature.Amplitudes(np.mean((v + alpha) ** 2), np.mean((v - alpha) ** 2))
    path = feature.aligned_descent(initial, 0.2, vstar2, 12)
    for k in (0, 3, 12):
        at = feature.Aligned(*(part[k] for part in path))
        rho, now = (np.asarray(part) for part in at.neurons(v, alpha, 4.0))
        assert float(at.slope(initial, 0.3)) == pytest.approx(rho @ now / 2 / (now @ now), rel=1e-10, abs=1e-14)
