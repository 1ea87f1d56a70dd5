"""Starts by PyTorch's names, adapters with alpha/r and a frozen matrix: against torch's formulas and exact runs."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest

import linnet as ln
from linnet import prediction
from linnet._check import InputError
from linnet._files import dumps
from linnet.prediction.initializers import INITIALIZERS, deviations
from linnet.prediction.situation import Situation


def torch_bound(fan, a):
    """The bound b of kaiming_uniform_ as torch.nn.init documents it: gain sqrt(3/fan), gain sqrt(2/(1 + a^2))."""
    return math.sqrt(2 / (1 + a**2)) * math.sqrt(3 / fan)


def torch_variances(name, fan_in, fan_out):
    """What torch.nn.init documents for a weight of fan_out x fan_in; uniform entries on [-b, b] vary by b^2/3."""
    return {
        "kaiming_uniform": torch_bound(fan_in, 0) ** 2 / 3,
        "kaiming_normal": 2 / fan_in,  # std = gain / sqrt(fan_in)
        "xavier_uniform": (math.sqrt(6 / (fan_in + fan_out))) ** 2 / 3,  # b = gain sqrt(6 / (fan_in + fan_out))
        "xavier_normal": 2 / (fan_in + fan_out),  # std = gain sqrt(2 / (fan_in + fan_out))
        "torch_linear": (1 / math.sqrt(fan_in)) ** 2 / 3,  # nn.Linear: U(-sqrt(k), sqrt(k)), k = 1/in_features
    }[name]


@pytest.mark.parametrize("sizes", [(7, 5), (256, 64, 128), (3, 10, 20, 2)])
@pytest.mark.parametrize("name", [name for name in INITIALIZERS if name != "lora"])
def test_scales_are_those_of_torch(name, sizes):
    expected = [torch_variances(name, *pair) for pair in pairwise(sizes)]
    np.testing.assert_allclose(np.square(deviations(name, sizes)), expected, rtol=1e-12)


def test_the_default_of_linear_is_kaiming_with_slope_sqrt_5():
    assert torch_bound(37, math.sqrt(5)) == pytest.approx(1 / math.sqrt(37), rel=1e-12)
    first, second = deviations("lora", (37, 8, 11))
    assert (first**2, second) == (pytest.approx(torch_bound(37, math.sqrt(5)) ** 2 / 3), 0.0)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("name", INITIALIZERS)
def test_a_name_is_the_gaussian_start_of_its_scales(name, depth):
    data = {"spectrum": [2.0, 1.0], "inputs": 5, "outputs": 4}
    network = {"depth": depth} | ({"width": 30} if depth > 1 else {})
    if name == "lora" and depth != 2:
        with pytest.raises(InputError, match=f"'lora' is not allowed with depth {depth}: an adapter has two factors"):
            Situation(data=data, network=network, init={"kind": name}).predict()
        return
    said = Situation(data=data, network=network, init={"kind": name, "seed": 3}).predict()
    scale = deviations(name, (5, *[30] * (depth - 1), 4))
    assert (said.init.kind, said.init.scale) == (name, tuple(scale))
    same = Situation(data=data, network=network, init={"scale": scale, "seed": 3}).predict().to_dict()
    told = said.to_dict()
    assert (told["init"].pop("kind"), same["init"].pop("kind")) == (name, "gaussian")
    assert dumps(told) == dumps(same)


def test_uniform_entries_have_the_kernel_of_gaussian_ones():
    """At large width what moves the modes is the same for entries drawn uniformly, as torch does: 1/sqrt(width) off."""
    width, d = 40_000, 3
    said = Situation(
        data={"spectrum": [3.0, 1.0, 0.5]}, network={"width": width}, init={"kind": "torch_linear"}
    ).predict()
    rng = np.random.default_rng(5)
    first = rng.uniform(-1 / math.sqrt(d), 1 / math.sqrt(d), (width, d))
    second = rng.uniform(-1 / math.sqrt(width), 1 / math.sqrt(width), (d, width))
    sharp = np.linalg.eigvalsh(first.T @ first)[-1] + np.linalg.eigvalsh(second @ second.T)[-1]
    assert said.largest_stable_lr_at_initialization == pytest.approx(2 / sharp, rel=0.03)


# A zero factor -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [[0.3, 0.0], [0.0, 0.3], [0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, 0.5]])
def test_one_layer_may_start_at_zero(scale):
    """Two and three layers, whichever is zero: A is zero at the start, and the exact descent ends as predicted."""
    run = (
        Situation(data={"spectrum": [2.0, 1.0]}, network={"depth": len(scale), "width": 20}, init={"scale": scale})
        .predict()
        .measure()
    )
    assert run.prediction.loss.initial == pytest.approx(2.5, rel=1e-12)
    assert run.status == "converged"
    assert run.predictor_error < 1e-5
    for mode, seen in zip(run.prediction.modes, run.modes, strict=True):
        if mode.half_learned.error is not None:
            assert abs(mode.half_learned.step / seen.half_learned.step - 1) <= mode.half_learned.error + 1e-3
    # two zero layers never move
    with pytest.raises(InputError, match="never moves"):
        Situation(data={"spectrum": [2.0]}, network={"width": 3}, init={"scale": 0})


# alpha/r and a frozen matrix -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("init", [{"kind": "lora"}, {"scale": 0.1}, {"kind": "one-zero", "scale": 0.1}])
def test_alpha_over_r_multiplies_the_product(init):
    """The same as the regression with that output scale, and the exact descent of it ends as predicted."""
    network, c = {"width": 8, "alpha": 16.0}, 2.0
    said = Situation(data={"spectrum": [3.0, 1.0]}, network=network, init=init).predict()
    problem = ln.regression(np.eye(2), np.diag([3.0, 1.0]), output_scale=c)
    same = Situation(network={"width": 8}, init=init).predict(problem)
    assert said.normalization == "1/2 |2 A - A*|^2"
    np.testing.assert_allclose([mode.value for mode in said.modes], [1.5, 0.5], rtol=1e-12)
    assert said.largest_stable_lr == pytest.approx(same.largest_stable_lr, rel=1e-9)
    assert said.loss.initial == pytest.approx(same.loss.initial, rel=1e-9)
    run = said.measure()
    assert run.status == "converged"
    assert run.predictor_error < 1e-5
    # with samples alpha comes on top of what the problem has
    doubled = Situation(network=network, init=init).predict(ln.regression(np.eye(2), np.diag([3.0, 1.0])))
    assert doubled.to_dict() == same.to_dict()


def test_alpha_of_r_is_no_alpha():
    tables = {"data": {"spectrum": [3.0, 1.0]}, "init": {"scale": 0.1}}
    one, two = (Situation(network=n, **tables).predict() for n in ({"width": 8, "alpha": 8}, {"width": 8}))
    assert one.to_dict() == two.to_dict()


def test_a_situation_reads_its_samples_as_asked(tmp_path):
    """Names, centring and a frozen matrix beside a TOML file: the regression on what is left to learn."""
    rng = np.random.default_rng(2)
    x, y, frozen = rng.normal(size=(30, 3)), rng.normal(size=(30, 2)), rng.normal(size=(2, 3))
    np.savetxt(tmp_path / "d.csv", np.hstack([y, x]), delimiter=";", header="p;q;a;b;c", comments="", fmt="%.17g")
    np.save(tmp_path / "w0.npy", frozen)
    (tmp_path / "mine.toml").write_text(
        '[data]\nfile = "d.csv"\noutputs = ["p", "q"]\nfrozen = "w0.npy"\ncenter = true\nloss = "mean"\n'
        "[network]\nwidth = 20\n[init]\nscale = 0.1\n"
    )
    said = prediction.read_situation(tmp_path / "mine.toml").predict()
    left = y - x @ frozen.T
    problem = ln.regression(x - x.mean(0), left - left.mean(0), average=True)
    same = Situation(network={"width": 20}, init={"scale": 0.1}).predict(problem)
    assert said.prepared == ("labels less what the frozen matrix gives", "inputs and labels centered")
    np.testing.assert_allclose([m.value for m in said.modes], [m.value for m in same.modes], rtol=1e-9)
    assert said.loss.final == pytest.approx(same.loss.final, rel=1e-9)
    assert json.loads(dumps(said.to_dict()))["prepared"] == list(said.prepared)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"network": {"alpha": 2.0}}, "network.alpha needs depth 2 and a width"),
        ({"network": {"alpha": 2.0, "depth": 3, "width": 4}}, "network.alpha needs depth 2 and a width"),
        ({"network": {"alpha": 0, "width": 4}}, "network.alpha = 0 is not allowed"),
        ({"network": {"alpha": math.nan, "width": 4}}, "network.alpha = nan is not allowed"),
        ({"init": {"kind": "lora", "scale": 0.1}}, "init.scale is not allowed with init.kind = 'lora'"),
        ({"init": {"kind": "kaiming"}}, "init.kind = 'kaiming' is not allowed"),
        ({"data": {"spectrum": [1.0], "frozen": "w0.npy"}}, "data.frozen is not allowed with spectrum"),
        ({"data": {"spectrum": [1.0], "center": True}}, "data.center is not allowed with spectrum"),
        ({"data": {"spectrum": [1.0], "standardize": True}}, "data.standardize is not allowed with spectrum"),
        ({"data": {"spectrum": [1.0], "intercept": True}}, "data.intercept is not allowed with spectrum"),
        ({"data": {"spectrum": [1.0], "outputs": "price"}}, "data.outputs = 'price' is not allowed with spectrum"),
        ({"data": {"spectrum": [1.0], "outputs": 0}}, "data.outputs = 0 is not allowed"),
        ({"data": {"file": "x.csv", "inputs": 3}}, "data.inputs = 3 is not allowed with file"),
        ({"data": {"file": "x.csv", "standardize": "very"}}, "data.standardize = 'very' is not allowed"),
    ],
)
def test_mistakes_are_one_sentence(tables, said):
    with pytest.raises(InputError) as error:
        Situation(**tables)
    assert said in str(error.value)
    assert str(error.value).endswith(".")
    assert "\n" not in str(error.value)
