"""`prediction.features`: every number beside an independent computation or the exact descent."""

import jax
import numpy as np
import pytest

import linnet as ln
from linnet import claims, prediction
from linnet._check import InputError
from linnet.prediction.assumption import NotApplicable
from linnet.prediction.theories.features import for_triple
from linnet.prediction.theories.features_run import measured_curves
from linnet.theory.regime import Regime

PAPER = {"samples": 10, "inputs": 10_000, "width": 1024, "noise2": 0.01}


@pytest.fixture(scope="module")
def run():
    return prediction.gaussian_features(**PAPER, v0=0.001, sigma0=0.01, lr=0.1).measure()


def orthogonal(values, seed=0):
    """Samples whose Gram matrix has these eigenvalues, and labels."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(len(values), len(values))))[0]
    return basis * np.sqrt(values), rng.normal(size=len(values))


def sources(told):
    return {quantity.source for quantity in told.quantities if quantity.source is not None}


def test_the_papers_setting(run):
    told = run.prediction
    assert told.regime is Regime.RICH
    assert not told.lr_chosen
    assert told.settles
    for predicted, measured in ((told.t1, run.t1), (told.half_loss, run.half_loss)):
        assert predicted.step == measured.step
        assert predicted.time == measured.time == pytest.approx(0.1 * measured.step)
        assert measured.exact
        assert not predicted.exact
    assert told.two_stages
    assert run.two_stages
    assert told.loss_left_at_t1 == pytest.approx(run.loss_left_at_t1, abs=5e-3)
    assert told.kernel_growth_at_t1 == pytest.approx(run.kernel_growth_at_t1, rel=0.1)
    assert told.kernel_growth == pytest.approx(run.kernel_growth, rel=0.15)
    for name in ("mean_square_v", "kernel_norm", "target_distance"):
        assert getattr(told, name) == pytest.approx(getattr(run, name), rel=0.02), name
    assert told.loss.initial == pytest.approx(run.loss.initial, rel=1e-3)
    assert told.loss.final == 0
    assert run.loss.final < 1e-12 * run.loss.initial
    assert 0 < run.target_distance_at_t1 < 0.1
    assert (run.status, run.steps) == ("horizon", run.run.steps[-1])
    conditions = {condition.id: condition for condition in told.conditions}
    for name, value in (("c1", 342), ("c2a", 3.2e4), ("c3", 31.6), ("c4", 0.31), ("c6", 30.7)):
        assert conditions[name].value == pytest.approx(value, rel=0.02)
    assert conditions["extra"].holds is False
    assert conditions["c1"].holds is None


def test_what_was_measured_is_the_run_of_the_network(run):
    told = run.prediction
    start = ln.init.readout(jax.random.key(0), told.problem, 1024, sigma0=0.01, v0=0.001)
    looks = ["slope", "loss", "label_kernel", "target_distance"]
    same = ln.simulate(told.problem, start, ln.optim.SGD(0.1), steps=run.steps, observe=looks)
    at = run.t1.step
    assert same["slope"][at - 1] < 0.95 <= same["slope"][at]
    assert run.target_distance_at_t1 == pytest.approx(float(same["target_distance"][at]), rel=1e-9)
    assert run.kernel_growth_at_t1 == pytest.approx(float(same["label_kernel"][at] / same["label_kernel"][0]))
    half = run.half_loss.step
    assert same["loss"][half - 1] > told.loss.initial / 2 >= same["loss"][half]
    output = np.linalg.norm(told.problem.root @ start.matrix[0]) / 1024 / np.sqrt(float(told.data["task"].square))
    needs = {need.name.split(" (")[0]: need.measured for source in sources(told) for need in source.assumptions}
    assert needs["the initial output is small"] == pytest.approx(output, rel=0.6)
    assert needs["the initial kernel is even"] == pytest.approx(np.sqrt(10 / 1024), rel=0.01)
    assert needs["X X^T y is along y"] == pytest.approx(told.floor)
    assert needs["steps are short"] == pytest.approx(0.1 / told.largest_stable_lr)
    assert all(name in claims.registry() for source in sources(told) for name in source.claims)


def test_what_is_told_of_own_data():
    """More samples than inputs and labels with noise: each figure from its definition."""
    rng = np.random.default_rng(0)
    n, d, width, v0, sigma0 = 14, 3, 4096, 0.02, 0.01
    x = rng.normal(size=(n, d)) * [3.0, 2.0, 1.0]
    y = x @ rng.normal(size=d) + 0.5 * rng.normal(size=n)
    told = prediction.features(x, y, width=width, v0=v0, sigma0=sigma0, seed=5)
    assert (told.samples, told.inputs, told.width, told.v0, told.sigma0, told.seed) == (n, d, width, v0, sigma0, 5)
    assert told.distribution == "own"
    gram, g = x @ x.T, x.T @ y
    gamma, phi = g @ g, np.sum((gram @ y) ** 2)
    assert told.gamma == pytest.approx(gamma)
    assert told.condition == pytest.approx(np.linalg.cond(x))
    assert told.v_star == pytest.approx(np.sqrt(gamma**1.5 / phi))
    assert told.richness == pytest.approx(2 * gamma**1.5 / phi / (v0**2 + sigma0**2))
    assert told.kernel_growth_isotropic == pytest.approx(np.sqrt(1 + told.richness**2))
    assert told.lr_chosen
    assert told.lr == pytest.approx(0.1 * told.largest_stable_lr)
    assert told.x == pytest.approx(told.lr * np.sqrt(gamma) / (n * width))
    along = gram @ y
    assert told.floor == pytest.approx(np.sum((y - along * (along @ y) / (along @ along)) ** 2) / (y @ y))
    rest = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    assert told.loss.initial == pytest.approx(y @ y / (2 * n))
    assert told.loss.final == pytest.approx(rest @ rest / (2 * n))
    assert told.eps == pytest.approx(0.01 * told.loss.initial)
    values = {condition.id: condition.value for condition in told.conditions}
    covariance, beta = x.T @ x / n, np.linalg.norm(y) / np.sqrt(n)
    trace = np.trace(covariance)
    spread = n * np.linalg.norm(covariance, 2) + np.sqrt(n) * np.linalg.norm(covariance)
    assert values == pytest.approx(
        {
            "c1": width / np.log(2 * n),
            "c2a": sigma0 * np.sqrt(n * d * trace) * beta,
            "c2b": sigma0 * (n * trace) ** 0.25 * np.sqrt(beta / told.eps),
            "c3": v0 * np.sqrt(n * trace) * beta,
            "c4": told.lr * np.sqrt(trace) * beta / (width * np.sqrt(n)),
            "c5": 0.0,
            "c6": trace / spread,
            "c6b": trace * beta**2,
            "extra": sigma0 * np.sqrt(2 * np.log(8 * width * n**2)) / v0,
        }
    )
    run = told.measure()
    assert run.loss.final == pytest.approx(told.loss.final, rel=1e-3)
    assert run.loss.initial == pytest.approx(told.loss.initial, rel=0.02)
    assert told.kernel_growth == pytest.approx(run.kernel_growth, rel=0.1)
    assert told.mean_square_v == pytest.approx(run.mean_square_v, rel=0.02)
    assert told.target_distance == pytest.approx(run.target_distance, rel=0.05)


def test_lists_and_columns_are_samples_too():
    x, y = orthogonal([1.0, 2.0, 3.0])
    one = prediction.features(x, y, width=8, v0=0.1, sigma0=0)
    assert prediction.features(x.tolist(), y[:, None].tolist(), width=8, v0=0.1, sigma0=0).to_dict() == one.to_dict()


def test_the_late_factor_is_that_of_the_residual():
    x, y = orthogonal(np.geomspace(4, 1, 6))
    run = prediction.features(x, y, width=10**6, v0=0.01, sigma0=0.01).measure()
    loss = np.asarray(run.run["loss"])
    late = np.sqrt(loss[1:] / loss[:-1])[-5:]
    assert late == pytest.approx(run.prediction.late_factor, rel=1e-3)


def test_isotropic_samples_grow_by_the_root():
    x, y = orthogonal(np.full(6, 2.0))
    told = prediction.features(x, y, width=10**6, v0=0.3, sigma0=0.2)
    assert told.kernel_growth == pytest.approx(told.kernel_growth_isotropic, rel=1e-9)
    assert told.floor == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("factor", [0.97, 1.1])
def test_overshoot(factor):
    """Beyond x = 1/2 the output passes the labels."""
    x, y = orthogonal(np.full(6, 2.0))
    told = prediction.features(x, y, width=100, v0=1e-3, sigma0=0)
    lr = factor * told.largest_lr_without_overshoot
    start = ln.init.readout(jax.random.key(0), told.problem, 100, sigma0=0, v0=1e-3)
    way = ln.simulate(told.problem, start, ln.optim.SGD(lr), steps=60, observe=["matrix"])
    learned = np.asarray(way["matrix"][:, 0] @ told.data["task"].feature / told.data["task"].square) / 100
    assert (np.max(learned) > 1 + 1e-9) == (factor > 1)
    assert learned[-1] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_the_largest_stable_step_of_a_small_start(factor):
    x, y = orthogonal(np.geomspace(4, 1, 6))
    limit = prediction.features(x, y, width=100, v0=1e-3, sigma0=0).largest_stable_lr
    told = prediction.features(x, y, width=100, v0=1e-3, sigma0=0, lr=factor * limit)
    assert told.settles == (factor < 1)
    assert (told.half_loss is None) == (factor > 1)
    assert (told.measure().loss.final > 1e-3 * told.loss.initial) == (factor > 1)


def test_the_largest_stable_step_knows_the_width():
    """About as many neurons as samples: the start's kernel has a top eigenvalue of nearly four times the mean one."""
    given = {"samples": 10, "inputs": 10_000, "width": 11, "v0": 0.1, "sigma0": 300}
    wide = 2 * 10 * 11 / (300**2 * 1e4)  # of a wide network
    for seed in range(4):  # nearly all draws diverge, a few are thrown about for ever far above their start
        told = prediction.gaussian_features(**given, lr=0.9 * wide, seed=seed)
        run = told.measure()
        assert not told.settles
        assert run.status == "diverged" or run.loss.final > 2 * told.loss.initial
    given["seed"] = 1  # one that diverges
    told = prediction.gaussian_features(**given, lr=0.9 * wide)
    run = told.measure()
    assert not told.settles
    assert run.status == "diverged"
    assert run.mean_square_v is run.kernel_norm is run.target_distance is run.kernel_growth is None
    assert any("width 11 is not large beside the 10 directions" in note for note in told.notes)
    with pytest.raises(InputError, match="plot needs a stable learning rate"):
        told.plot()
    told = prediction.gaussian_features(**given, lr=0.95 * told.largest_stable_lr)
    run = told.measure()
    assert told.settles
    assert run.status == "horizon"
    assert run.loss.final < 0.5 * told.loss.initial


def test_a_lazy_start_keeps_its_kernel():
    run = prediction.gaussian_features(**PAPER, v0=10, sigma0=0.3).measure()
    told = run.prediction
    assert told.regime is Regime.LAZY
    assert told.t1 is run.t1 is run.target_distance_at_t1 is None
    assert not told.two_stages
    assert told.kernel_growth == pytest.approx(run.kernel_growth, abs=0.01)
    assert told.target_distance == pytest.approx(run.target_distance, rel=0.02)
    assert told.half_loss.step == run.half_loss.step


@pytest.mark.parametrize(("size", "regime"), [(0.2, Regime.RICH), (1.0, Regime.MIXED)])
def test_the_regime_of_spread_data(size, regime):
    """Condition 10: the growth of the kernel is that of any K, not the isotropic one, which is of another regime."""
    x, y = orthogonal(np.geomspace(100, 1, 10))
    run = prediction.features(x, y, width=10**6, v0=size, sigma0=size).measure()
    told = run.prediction
    assert told.condition == pytest.approx(10)
    assert run.loss.final < 1e-5 * run.loss.initial
    assert told.kernel_growth == pytest.approx(run.kernel_growth, rel=0.01)
    assert told.target_distance == pytest.approx(run.target_distance, rel=0.01)
    assert told.regime is regime


def test_notes_on_own_data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 40)) + 3.0
    y = x @ rng.normal(size=40)
    told = prediction.features(x, y, width=128, v0=0.01, sigma0=0.01)
    assert told.mean_square_v == pytest.approx(np.sqrt(y @ np.linalg.solve(x @ x.T, y)), rel=1e-3)
    assert [note.split(":")[0] for note in told.notes] == [
        "The inputs are not centered",
        "With fewer samples than inputs the covariance is overestimated",
        "The loss is halved only in a third stage",
    ]
    centered = prediction.features(x.T, rng.normal(size=40), width=128, v0=10, sigma0=10)
    assert any("output is not small" in note for note in centered.notes)


def test_small_singular_values_count_everywhere():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    told = prediction.features(basis * [1, 1, 1, 1, 1, 3e-7], rng.normal(size=6), width=64, v0=0.1, sigma0=0.1)
    assert told.condition == pytest.approx(1 / 3e-7, rel=1e-6)
    assert told.mean_square_v > 1e6


def test_times_between_records():
    """Steps so small that the flow stands for descent: t1 as the law of stage one has it, not of the nearest record."""
    told = prediction.gaussian_features(samples=10, inputs=10_000, width=1024, v0=1e-40, sigma0=0, lr=1e-7)
    law = np.arctanh(0.95) / np.arctanh(told.x)
    assert told.t1.step == pytest.approx(law, rel=5e-3)
    assert f"{told.t1.step:.3g}" == f"{law:.3g}"


def test_the_teacher_of_the_assumption_is_the_one_drawn():
    """In one dimension c3 = v0 sqrt(n) |beta| with the teacher's own norm: y = X beta without noise."""
    for seed in range(2):
        told = prediction.gaussian_features(samples=1, inputs=1, width=8, v0=1, sigma0=0, seed=seed)
        beta = next(condition.value for condition in told.conditions if condition.id == "c3")
        # one sample: gamma = (x y)^2 = x^4 beta^2 and v*^2 = |y| / |x| = |beta|
        assert beta == pytest.approx(told.v_star**2, rel=1e-9)


def test_the_picture(run):
    told = run.prediction
    for result, count in ((told, 2), (run, 3)):
        for axes, name in zip(result.plot().axes, ("loss", "slope", "growth"), strict=True):
            assert len(axes.lines) == count
            assert np.array_equal(axes.lines[0].get_ydata(), getattr(told.data["curves"], name))
            assert axes.lines[-1].get_xdata()[0] == told.t1.step
            if result is run:
                assert np.array_equal(
                    axes.lines[1].get_ydata(), getattr(measured_curves(run.run, told.loss.initial), name)
                )


@pytest.mark.parametrize(
    ("inputs", "labels", "words"),
    [
        ("x", [1.0], "inputs = 'x' is not allowed"),
        ([[1.0, 2.0]], [[1.0, 2.0]], "labels has 2 columns"),
        ([[1.0]], [1.0, 2.0], "must have one row a sample"),
        ([[np.nan]], [1.0], "NaN"),
        ([[0.0]], [1.0], "inputs are all zero"),
        ([[1.0]], [0.0], "labels are all zero"),
        ([[1e60]], [1.0], "inputs reach 1e\\+60"),
        ([[1.0], [1.0]], [1.0, -1.0], "X\\^T y is zero"),
        (np.ones((2001, 2001)), np.ones(2001), "give fewer samples"),
    ],
)
def test_bad_samples_are_one_sentence(inputs, labels, words):
    with pytest.raises(InputError, match=words):
        prediction.features(inputs, labels, width=8, v0=1, sigma0=1)


@pytest.mark.parametrize("width", [512, (512,)])
def test_a_triple_is_recognized(width):
    """v0 and sigma0 from the weights, in compressed and in full width; the run is that of the triple."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 60))
    problem = ln.problems.mean_field_regression(x, x @ rng.normal(size=60), width=512)
    law = prediction.features(x, np.asarray(problem.sampled().labels), width=512, v0=0.03, sigma0=0.02)
    network = ln.init.readout(jax.random.key(3), problem, width, sigma0=0.02, v0=0.03)
    optimizer = ln.optim.SGD(law.lr)
    told = for_triple(problem, network, optimizer)
    assert told.v0 == pytest.approx(0.03, rel=1e-12)
    assert told.sigma0 == pytest.approx(0.02, rel=0.05)
    assert (told.width, told.lr, told.lr_chosen) == (512, law.lr, False)
    assert told.kernel_growth == pytest.approx(law.kernel_growth, rel=0.05)
    assert told.largest_stable_lr == pytest.approx(law.largest_stable_lr, rel=1e-3)
    looks = ["loss", "slope", "label_kernel"]
    measured = told.compare(ln.simulate(problem, network, optimizer, steps=600, observe=looks))
    assert measured.half_loss.step == pytest.approx(told.half_loss.step, rel=0.1)
    assert measured.mean_square_v == pytest.approx(told.mean_square_v, rel=0.05)
    assert told.measure().half_loss == measured.half_loss


def test_where_a_triple_is_not_covered_the_failing_assumption_is_named():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 60))
    y = x @ rng.normal(size=60)
    problem, sgd = ln.problems.mean_field_regression(x, y, width=64), ln.optim.SGD(0.1)
    network = ln.init.readout(jax.random.key(3), problem, 64, sigma0=0.02, v0=0.03)
    plain = ln.regression(x, y, average=True)
    two = ln.problems.mean_field_regression(x, np.stack([y, y], 1), width=64)
    cases = [
        ((two, ln.init.gaussian(jax.random.key(0), two, 64, 0.01), sgd), "a regression with one output"),
        ((problem, ln.init.gaussian(jax.random.key(0), problem, (9, 9), 0.01), sgd), "two layers"),
        ((problem, network, ln.optim.SGD(0.1, momentum=0.9)), "gradient descent on all samples"),
        ((problem, network, ln.optim.SGD(0.1, batch_size=4)), "gradient descent on all samples"),
        ((problem, network, ln.optim.GradientFlow()), "gradient descent on all samples"),
        ((plain, network, sgd), "the output is divided by the width"),
        ((ln.problems.regression(x, y, output_scale=1 / 64), network, sgd), "the loss is an average"),
        ((problem, network.with_layers([1e4 * w for w in network.layers]), sgd), "the initial output is small"),
        (
            (problem, ln.Weights((np.ones((64, 1)) @ x[:1], np.resize([0.03, -0.03], (1, 64)))), sgd),
            "the initial kernel is even",
        ),
    ]
    for triple, words in cases:
        with pytest.raises(NotApplicable) as error:
            for_triple(*triple)
        assert words in error.value.assumption.name
        assert error.value.theory == "features"
