"""`prediction.stability`: every number against plain descent in NumPy, of matrices or of the chain that a mode is."""

import itertools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linnet as ln
from linnet import prediction
from linnet._check import InputError
from linnet.cli.models import StabilityTopic
from linnet.prediction.assumption import Holds, NotApplicable
from linnet.prediction.theories.stability import suggested_lr
from linnet.prediction.theories.stability_run import diagram
from linnet.theory import optimizers, stability
from linnet.theory.mode_fate import CrossState, Fate


def stability_of(spectrum, *, start="one-zero", **options):
    """`prediction.stability` of the triple that the command builds."""
    return StabilityTopic(spectrum=[float(x) for x in spectrum], init=start, **options).predict()


def brute(s, depth, lr, alpha, steps, keep, kind=np.float64):
    """Matrix descent from the one-zero start with random singular vectors: modes of the last steps and all cross
    components in time.
    """
    rng = np.random.default_rng(0)
    d = len(s)
    u, v = (np.linalg.qr(rng.normal(size=(d, d)))[0].astype(kind) for _ in range(2))
    goal = (u * s.astype(kind)) @ v.T
    w = [kind(alpha) * np.eye(d, dtype=kind) for _ in range(depth - 1)] + [np.zeros((d, d), dtype=kind)]
    modes, cross = [], []
    for k in range(steps):
        below = [np.eye(d, dtype=kind)]
        for layer in w:
            below.append(layer @ below[-1])
        inner = u.T @ below[-1] @ v
        cross.append(np.max(np.abs(inner - np.diag(np.diag(inner)))))
        if k >= steps - keep:
            modes.append(np.diag(inner))
        back = below[-1] - goal
        for level in range(depth - 1, -1, -1):
            w[level], back = w[level] - kind(lr) * back @ below[level].T, w[level].T @ back
    return np.array(modes), np.array(cross)


def chain(s, depth, lr, begin, steps, keep):
    """Values of balanced modes at step sizes `lr`, all layers beginning at `begin`; NaN once beyond all bounds."""
    rho, kept = np.full(np.shape(lr), begin), []
    for k in range(steps + keep):
        if k >= steps:
            kept.append(rho**depth)
        rho = rho - lr * (rho**depth - s) * rho ** (depth - 1)
        rho = np.where(np.abs(rho) > 1e3 * s ** (1 / depth), np.nan, rho)
    return np.array(kept)


def test_an_orbit_of_period_two():
    s, lr, alpha = np.array([10.0, 8.0, 6.0]), 0.0332, 0.1
    seen = stability_of([6, 10, 8], depth=3, lr=lr, alpha=alpha, d=5).measure()
    told = seen.prediction
    assert told.spectrum == (10, 8, 6)
    assert told.notes == ("The spectrum was sorted, largest first.",)
    assert (told.d, told.alpha, told.alpha_chosen, told.lr_chosen) == (5, alpha, False, False)
    modes, _ = brute(s, 3, lr, alpha, 3000, 50)
    for i, mode in enumerate(told.modes):
        for one in (mode, seen.modes[i]):
            assert one.low == pytest.approx(modes[:, i].min(), rel=1e-9)
            assert one.high == pytest.approx(modes[:, i].max(), rel=1e-9)
        assert seen.modes[i].error < 1e-11
        assert mode.thresholds.oscillates == pytest.approx(2 / (3 * s[i] ** (4 / 3)))
        assert mode.curvature == pytest.approx(3 * s[i] ** (4 / 3))
        assert mode.kappa == pytest.approx(lr * mode.curvature)
    assert (told.modes[0].low, told.modes[0].high) == pytest.approx((7.706699, 11.732886), abs=1e-6)
    assert [(mode.fate, mode.period) for mode in told.modes] == [(Fate.CYCLE, 2), *[(Fate.CONVERGES, 1)] * 2]
    assert (seen.status, seen.long_enough) == ("horizon", True)
    assert told.cross.state is CrossState.STABLE
    assert told.cross.visible_after is None
    assert seen.cross.largest < 1e-12
    assert seen.cross.visible_after is None
    # sorted values alternate from the step at which the lower value is that of the next mode
    assert told.sorting.here
    assert chain(10.0, 3, told.sorting.lr, 2.0, 5000, 2).min() == pytest.approx(8.0, rel=1e-9)
    # the same step in the paper's convention
    half = stability_of([10, 8, 6], depth=3, lr=lr / 2, half=False)
    assert half.modes[0].low == pytest.approx(told.modes[0].low, rel=1e-12)
    assert half.modes[0].kappa == pytest.approx(told.modes[0].kappa, rel=1e-12)
    assert half.modes[0].curvature == pytest.approx(2 * told.modes[0].curvature)
    for part, whole in (
        (half.largest_stable_lr, told.largest_stable_lr),
        (half.sorting.lr, told.sorting.lr),
        (half.cross.orbit_lr, told.cross.orbit_lr),
        (half.cross.minimum_lr, told.cross.minimum_lr),
        (half.modes[1].thresholds.chaos, told.modes[1].thresholds.chaos),
    ):
        assert part == pytest.approx(whole / 2)


def test_thresholds_by_iteration():
    """Just below and just above each step size at which theory says that the optimizer of a mode changes."""
    s, depth = 10.0, 3
    at = stability_of([s], depth=depth).modes[0].thresholds
    rates = np.array([[x * (1 - 1e-3), x * (1 + 1e-3)] for x in (at.oscillates, at.doubles, at.leaves)])
    # one long orbit for each of them, from a point that is not special
    late = chain(s, depth, rates, 0.9 * s ** (1 / 3), 40_000, 64)
    assert np.ptp(late[:, 0, 0]) < 1e-9
    assert np.ptp(late[:, 0, 1]) > 0.1
    assert np.ptp(late[::2, 1, 0]) < 1e-9  # period 2
    assert np.ptp(late[::2, 1, 1]) > 0.1
    assert np.ptp(late[::4, 1, 1]) < 1e-9  # period 4
    assert np.min(late[:, 2, 0]) > 0
    assert np.max(late[:, 2, 1]) <= 0  # it has passed below 0, and is trapped there
    # chaos: the exponent of the map changes its sign
    for factor, sign in ((0.998, -1), (1.01, 1)):
        lr = factor * at.chaos
        rho = chain(s, depth, lr, 0.9 * s ** (1 / 3), 5000, 5000) ** (1 / 3)
        slope = 1 - lr * (5 * rho**4 - 2 * s * rho)
        assert np.sign(np.mean(np.log(np.abs(slope)))) == sign
    starts = np.random.default_rng(0).uniform(0.01, 1.05, 400) * s ** (1 / 3)
    gone = [np.isnan(chain(s, depth, np.full(400, f * at.diverges), starts, 5000, 1)).mean() for f in (0.999, 1.01)]
    assert gone[0] == 0
    assert gone[1] > 0.2


def test_when_modes_mix():
    s, lr = np.array([10.0, 9.0, 6.0]), 2 / 57
    seen = stability_of(s, depth=3, lr=lr, alpha=0.01).measure()
    cross = seen.prediction.cross
    assert (cross.state, cross.pair) == (CrossState.UNSTABLE, (1, 2))
    assert cross.minimum_lr == pytest.approx(2 / 60.34809, rel=1e-6)
    for kind, told in ((np.float64, cross.visible_after.double), (np.float32, cross.visible_after.single)):
        _, grown = brute(s, 3, lr, 0.01, 1600, 10, kind)
        assert told == pytest.approx(int(np.argmax(grown > 0.01 * s[0])), rel=0.15)
        if kind is np.float64:  # its growth between 1e-10 and 1e-3 of s_1
            one, two = (int(np.argmax(grown > level)) for level in (1e-9, 1e-2))
            assert np.log(grown[two] / grown[one]) / (two - one) == pytest.approx(cross.growth, rel=0.1)
    assert seen.cross.visible_after == pytest.approx(cross.visible_after.double, rel=0.15)
    assert seen.cross.largest > 0.1
    # the orbit is stable below orbit_lr and unstable above, by the multipliers of this very orbit
    for factor, state in ((0.998, CrossState.STABLE), (1.002, CrossState.UNSTABLE)):
        found = stability_of(s, depth=3, lr=factor * cross.orbit_lr, alpha=0.1).cross
        assert found.state is state
    null = stability_of([10], depth=2, lr=0.12, alpha=3.1, d=5).measure()
    assert null.prediction.cross.pair == (1, None)
    assert null.prediction.cross.visible_after.double == pytest.approx(null.cross.visible_after, rel=0.15)


def test_balance_of_the_layers():
    s, lr = np.array([10.0, 6.0]), 1.8 / (3 * 10 ** (4 / 3))
    told = stability_of(s, depth=3, lr=lr, alpha=0.01)
    x, y, half = np.zeros(2), np.full(2, 0.01), np.full(2, -1)
    for k in range(4000):
        half = np.where((half < 0) & (x * y**2 > s / 2), k, half)
        r = lr * (s - x * y**2)
        x, y = x + r * y**2, y + r * x * y
    left = (y**2 - x**2) / 1e-4
    assert [mode.gap_left for mode in told.modes] == pytest.approx(list(left), rel=1e-6)
    assert told.modes[0].gap_left == pytest.approx(0.603, abs=1e-3)
    assert [mode.escapes_after for mode in told.modes] == pytest.approx(list(half), rel=0.05)
    assert told.balancing.gap_multiplier is None
    # where the flow ends: x y^2 = s, y^2 - x^2 = alpha^2
    wide = stability_of(s, depth=3, lr=lr, alpha=2.0)
    (square,) = (r.real for r in np.roots([1, 8, 16, -100]) if abs(r.imag) < 1e-9)  # x^2 (x^2 + 4)^2 = 100
    sharp = 100 * (1 / square + 2 / (square + 4))
    assert wide.largest_stable_lr_at_flow_end == pytest.approx(2 / sharp, rel=1e-9)
    assert wide.largest_stable_lr == pytest.approx(2 / (3 * 10 ** (4 / 3)), rel=1e-12)
    # the largest alpha: the same sharpness is 2 sqrt(2) / lr
    alpha = wide.balancing.largest_alpha
    (square,) = (r.real for r in np.roots([1, 2 * alpha**2, alpha**4, -100]) if abs(r.imag) < 1e-9)
    assert 100 * (1 / square + 2 / (square + alpha**2)) == pytest.approx(2 * math.sqrt(2) / lr, rel=1e-9)
    # on the 2-cycle a small difference between layers is multiplied every two steps
    told = stability_of(s, depth=3, alpha=0.1)
    x, y, gaps = np.zeros(2), np.full(2, 0.1), []
    for _ in range(400):
        gaps.append(y[0] ** 2 - x[0] ** 2)
        r = told.lr * (s - x * y**2)
        x, y = x + r * y**2, y + r * x * y
    assert told.balancing.gap_multiplier == pytest.approx(gaps[302] / gaps[300], rel=1e-3)
    assert stability_of([2.0], depth=1).balancing is None


def test_chaos_and_divergence():
    edge = 1 / (3 * 10 ** (4 / 3))  # lr of kappa = 1
    chaos = stability_of([10, 6], depth=3, lr=2.66 * edge).modes[0]
    rho = chain(10.0, 3, 2.66 * edge, 2.0, 2000, 40_000) ** (1 / 3)
    slopes = np.log(np.abs(1 - 2.66 * edge * (5 * rho**4 - 20 * rho)))
    assert chaos.fate is Fate.CHAOS
    assert chaos.lyapunov == pytest.approx(np.mean(slopes), abs=0.01)
    assert (chaos.low, chaos.high) == pytest.approx((rho.min() ** 3, rho.max() ** 3), rel=0.01)
    window = stability_of([10, 6], depth=3, lr=3.0 * edge).modes[0]
    assert (window.fate, window.period % 3) == (Fate.CYCLE, 0)
    far = stability_of([10, 6], depth=3, lr=100 * edge, alpha=0.1).measure()
    first, seen = far.prediction.modes[0], far
    x, y, k = 0.0, 0.1, 0
    while max(abs(x), abs(y)) <= 1e3 * 10 ** (1 / 3):
        r = 100 * edge * (10 - x * y**2)
        x, y, k = x + r * y**2, y + r * x * y, k + 1
    assert (first.fate, first.diverges_after, first.low, first.period) == (Fate.DIVERGES, k, None, None)
    assert seen.status == "diverged"
    assert abs(seen.steps - k) <= 2
    assert far.prediction.cross.state is CrossState.NO_ORBIT
    one = stability_of([2, 1], depth=1, lr=2.5).measure()
    assert [mode.fate for mode in one.prediction.modes] == [Fate.DIVERGES] * 2
    assert one.status == "diverged"
    slow = stability_of([10], depth=1, lr=2.0001).modes[0]
    assert slow.diverges_after == pytest.approx(np.log(1e3) / 1e-4, rel=1e-3)


@pytest.mark.parametrize("start", ["balanced", "orthogonal"])
def test_other_starts(start):
    seen = stability_of([10, 6], depth=3, start=start).measure()
    told = seen.prediction
    assert told.modes[0].period == 2
    assert (told.largest_stable_lr_at_flow_end is None) == (start == "balanced")
    assert max(mode.error for mode in seen.modes) < 1e-11
    assert seen.modes[0].low == pytest.approx(told.modes[0].low, rel=1e-9)


def test_the_step_that_is_chosen():
    """Halfway to what comes next: the doubling, or the mixing of two close modes; half of what one layer can bear."""
    alone = stability_of([10], depth=3)
    at = alone.modes[0].thresholds
    assert alone.lr == pytest.approx((at.oscillates + at.doubles) / 2)
    close = stability_of([10, 9], depth=3)
    assert close.lr == pytest.approx((at.oscillates + close.cross.orbit_lr) / 2)
    assert alone.lr_chosen
    assert close.lr < alone.lr
    assert stability_of([10, 9.9], depth=3).modes[0].kappa == pytest.approx(2.05)
    assert stability_of([10, 2], depth=1).lr == pytest.approx(1.0)
    assert alone.alpha == pytest.approx(0.1 * 10 ** (1 / 3))
    assert stability_of([10, 0.1], depth=3).alpha == pytest.approx(0.05)


def test_what_a_review_found():
    """Large starts that end elsewhere, even depths near 0, extremes."""
    stuck = stability_of([10], depth=3, lr=0.0267338, alpha=3.2386173)
    assert stuck.modes[0].fate is Fate.TRAPPED
    long = stability_of([10], depth=4, lr=0.0332039, start="balanced")
    assert (long.modes[0].fate, long.modes[0].lingers) == (Fate.CHAOS, True)
    assert stability_of([1, 1e-10], depth=2, lr=0.1).modes[1].fate is Fate.CONVERGES
    assert stability_of([10], depth=3, lr=1e-300).modes[0].fate is Fate.CONVERGES
    two = stability_of([10, 6, 4], depth=3, lr=0.08)  # one is trapped, one moves, one rests
    assert "mode 2 moves between" in str(two)
    assert "mode 1 ends at the saddle 0; the other converges." in " ".join(str(two).split())


def test_sources_say_how_far_they_hold():
    small, large, balanced = (
        stability_of([10, 6], depth=3, lr=0.02, alpha=alpha, start=start)
        for alpha, start in ((1e-6, "one-zero"), (3.0, "one-zero"), (0.1, "balanced"))
    )

    def of(told, name):
        return told[name].source.assumptions[0]

    assert of(small, "largest_stable_lr").holds is Holds.EXACTLY
    assert of(large, "largest_stable_lr").measured == pytest.approx(9 / 6 ** (2 / 3))
    assert of(large, "modes").holds is Holds.NOT
    assert of(balanced, "largest_stable_lr").measured == 0


@pytest.mark.parametrize(
    ("spectrum", "options", "words"),
    [
        ([10.0], {"depth": 0}, "depth = 0"),
        ([], {}, "spectrum"),
        ([2, -1], {}, "be positive"),
        ([1.0] * 51, {}, "at most 50"),
        ([1e30], {}, "must be from 1e-12 to 1e12"),
        ([2, 1], {"alpha": 1}, "alpha must be below the smallest singular value, 1"),
        ([2, 1], {"alpha": 0}, "alpha = 0"),
        ([2, 1], {"lr": math.nan}, "lr = nan"),
        ([2, 1], {"start": "zero"}, "init = 'zero'"),
        ([2, 1], {"d": 1}, "d = 1"),
        ([2, 1], {"seed": -1}, "seed = -1"),
    ],
)
def test_mistakes_are_one_sentence(spectrum, options, words):
    with pytest.raises(InputError, match=re.escape(words)):
        stability_of(spectrum, **{"depth": 3} | options)


def test_the_picture_shows_orbits_and_the_run():
    said = stability_of([10, 6], depth=3, lr=0.033)
    lr, values = diagram(said)
    late = chain(10.0, 3, lr, 2.0, 4000, 2)
    calm = lr < said.modes[0].thresholds.doubles * 0.99
    edge = np.abs(lr / said.largest_stable_lr - 1) > 0.01  # at a threshold iterates are on their way for long
    keep = calm & edge
    assert np.allclose(values[keep, 0].max(axis=1), late.max(axis=0)[keep], rtol=1e-9)
    assert np.allclose(values[keep, 0].min(axis=1), late.min(axis=0)[keep], rtol=1e-9)
    predicted, measured = said.plot(), said.measure().plot()
    names = [text.get_text() for text in measured.axes[0].get_legend().get_texts()]
    assert names == ["mode 1, target 10", "mode 2, target 6", "lr = 0.033", "exact run, its last steps"]
    assert len(predicted.axes[0].get_legend().get_texts()) == 3


# SGD and decay ---------------------------------------------------------------------------------------------------


def trained(s, depth, lr, alpha, steps, how, *, balanced=False, unit=1.0, kick=0.0):
    """Matrices trained as frameworks write it, towards a target with random singular vectors: U^T A V at every step."""
    rng = np.random.default_rng(0)
    d = len(s)
    u, v = (np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(2))
    v = u if balanced else v
    w = [alpha * np.eye(d) for _ in range(depth)]
    if not balanced:
        w[-1] = np.zeros((d, d))
    w = [layer + kick * rng.normal(size=(d, d)) for layer in w]
    speed, beta, decay = [np.zeros((d, d))] * depth, how.get("momentum", 0.0), how.get("weight_decay", 0.0)
    share, apart = 1 - how.get("dampening", 0.0), how.get("decoupled", False)
    seen = []
    for _ in range(steps):
        below = [np.eye(d)]
        for layer in w:
            below.append(layer @ below[-1])
        seen.append(u.T @ below[-1] @ v)
        if np.max(np.abs(seen[-1])) > 1e6:
            break
        back, next_w = unit * (below[-1] - (u * s) @ v.T), list(w)
        for level in range(depth - 1, -1, -1):
            slope = back @ below[level].T + (0 if apart else decay) * w[level]
            g = share * slope
            speed[level] = beta * speed[level] + g if len(seen) > 1 else slope  # PyTorch's first step has v = g
            along = g + beta * speed[level] if how.get("nesterov") else speed[level]
            next_w[level] = (1 - lr * decay * apart) * w[level] - lr * along
            back = w[level].T @ back
        w = next_w
    return np.array(seen)


@pytest.mark.parametrize(
    "how",
    [
        {"momentum": 0.8},
        {"momentum": 0.8, "nesterov": True, "weight_decay": 0.05},
        {"momentum": 0.8, "dampening": 0.8, "weight_decay": 0.05, "decoupled": True},
        {"momentum": 0.6, "nesterov": True, "weight_decay": 0.05, "decoupled": True},
        {"weight_decay": 0.2},
    ],
)
@pytest.mark.parametrize(("depth", "half"), [(1, True), (2, False), (3, True)])
def test_modes_with_momentum_and_decay(depth, half, how):
    s, unit = np.array([3.0, 2.8, 1.0]), 1.0 if half else 2.0
    told = stability_of(s, depth=depth, alpha=0.5, half=half, **how)
    told = stability_of(s, depth=depth, alpha=0.5, half=half, lr=3 * told.lr, **how)
    seen = trained(s, depth, told.lr, 0.5, 3000, how, unit=unit)
    ends = np.diagonal(seen[-1])
    assert (told.momentum, told.weight_decay) == (how.get("momentum", 0.0), how.get("weight_decay", 0.0))
    for i, mode in enumerate(told.modes):
        assert mode.fate is Fate.CONVERGES
        assert mode.low == mode.high == mode.rest == pytest.approx(ends[i], rel=1e-9)
        assert mode.escapes_after == np.argmax(seen[:, i, i] >= mode.rest / 2)
        assert mode.kappa == pytest.approx(2 * told.lr / mode.thresholds.oscillates)
        assert (mode.thresholds.doubles, mode.thresholds.diverges) == (None, None)
    assert (told.cross, told.sorting, told.balancing) == (None, None, None)
    # whole matrices near the minimum: below the largest stable step they come back, and above they leave
    learned = told.modes[0].rest ** (1 / depth)
    for factor, stable in ((0.98, True), (1.02, False)):
        near = trained(s[:1], depth, factor * told.modes[0].thresholds.oscillates, learned + 1e-6, 1500, how,
                       balanced=True, unit=unit)  # fmt: skip
        assert (np.ptp(near[-10:]) < 1e-6) == stable


def test_two_close_modes_with_decay_bear_less_than_one():
    s, how = np.array([2.0, 1.95]), {"weight_decay": 0.1}
    told = stability_of(s, depth=2, alpha=1.0, start="balanced", lr=0.515, **how)
    first = told.modes[0].thresholds.oscillates
    assert told.largest_stable_lr == pytest.approx(2 / 3.95)
    assert told.largest_stable_lr < told.lr < first == pytest.approx(2 / 3.8)
    assert any("Entries of A between modes grow" in note for note in told.notes)
    assert not stability_of(s, depth=2, lr=0.5, **how).notes
    for lr, grows in ((0.5, False), (0.515, True)):
        seen = trained(s, 2, lr, 1.4, 4000, how, balanced=True, kick=1e-6)
        assert (np.max(np.abs(seen[-10:, 0, 1])) > 1e-3) == grows


@pytest.mark.slow
def test_where_decay_and_momentum_lead():
    # from three layers on 0 is a minimum, and small starts never leave it
    small = stability_of([2.0, 1.0], depth=3, weight_decay=0.1, alpha=0.01, start="balanced", lr=0.01)
    assert [mode.fate for mode in small.modes] == [Fate.TRAPPED] * 2
    assert [mode.escapes_after for mode in small.modes] == [math.inf] * 2
    assert "at 0, which decay has made a minimum" in str(small)
    # two layers: below the decay nothing is learned, and that is the minimum
    soft = stability_of([2.0, 0.1], depth=2, weight_decay=0.3, alpha=0.05, lr=0.05)
    assert [mode.rest for mode in soft.modes] == pytest.approx([1.7, 0.0])
    assert [mode.fate for mode in soft.modes] == [Fate.CONVERGES] * 2
    assert "every mode to the minimum with decay" in str(soft)
    # too slow to be seen: without decay it will leave, and when is the flow's; with decay nobody promises
    slow = stability_of([5.0], depth=6, momentum=0.3, lr=1e-5, alpha=0.01)
    assert (slow.modes[0].fate, slow.modes[0].low) == (Fate.CONVERGES, 5.0)
    time = float(stability.escape_time(5.0, 0.01, 6, "one_zero"))
    assert slow.modes[0].escapes_after == pytest.approx(0.7 * time / 1e-5)
    unknown = stability_of([5.0], depth=6, momentum=0.3, lr=1e-5, alpha=0.01, weight_decay=1e-9)
    assert unknown.modes[0].fate is Fate.UNKNOWN
    assert math.isnan(unknown.modes[0].escapes_after)
    assert "It has not settled" in str(unknown)
    # overshooting: lost on the way to a minimum that would be stable
    lost = stability_of([5.0], depth=2, momentum=0.9, lr=0.19)
    seen = trained(np.array([5.0]), 2, 0.19, lost.alpha, 300, {"momentum": 0.9})
    assert lost.lr < lost.largest_stable_lr
    assert lost.modes[0].fate is Fate.DIVERGES
    assert np.max(np.abs(seen)) > 1e6
    assert "diverges on the way" in str(lost)
    # a cycle beyond the edge, or what nobody knows
    cycle = stability_of([5.0], depth=2, momentum=0.3, lr=0.27, alpha=2.0, start="balanced")
    ends = trained(np.array([5.0]), 2, 0.27, 2.0, 9000, {"momentum": 0.3}, balanced=True)[-50:, 0, 0]
    assert (cycle.modes[0].fate, cycle.modes[0].period) == (Fate.CYCLE, 2)
    assert (cycle.modes[0].low, cycle.modes[0].high) == pytest.approx((ends.min(), ends.max()))
    assert cycle.plot().axes
    assert (cycle.measure().modes[0].low, cycle.measure().modes[0].high) == pytest.approx((ends.min(), ends.max()))


@pytest.mark.quick(8)
@pytest.mark.parametrize(
    "how",
    [
        {"momentum": 0.8},
        {"momentum": 0.8, "nesterov": True},
        {"momentum": 0.7, "nesterov": True, "dampening": 0.7},
        {"momentum": 0.8, "weight_decay": 0.05},
        {"momentum": 0.8, "dampening": 0.8, "weight_decay": 0.05, "decoupled": True},
        {"momentum": 0.6, "nesterov": True, "weight_decay": 0.3, "decoupled": True},
        {"weight_decay": 0.2},
    ],
)
@pytest.mark.parametrize(
    ("depth", "half", "start"), [(1, True, "one-zero"), (2, False, "balanced"), (3, True, "orthogonal")]
)
def test_the_run_with_momentum_and_decay_ends_where_it_is_said(depth, half, start, how):
    said = stability_of([3.0, 2.0, 1.0], depth=depth, alpha=0.5, half=half, start=start, d=4, **how)
    run = said.measure()
    assert (run.status, run.long_enough) == ("horizon", True)
    for mode, found in zip(said.modes, run.modes, strict=True):
        assert mode.fate is Fate.CONVERGES
        assert (found.low, found.high) == pytest.approx((mode.low, mode.high), rel=1e-9)
        assert found.error < 1e-12
    assert run.cross.largest < 1e-12
    # the matrices of the run, trained as frameworks write it
    seen = trained(
        said.spectrum, depth, said.lr, 0.5, 400, how, balanced=start == "balanced", unit=1.0 if half else 2.0
    )
    steps = [int(mode.escapes_after) for mode in said.modes]
    assert steps == [int(np.argmax(seen[:, i, i] >= mode.rest / 2)) for i, mode in enumerate(said.modes)]
    assert "Exact run" in str(run)


def test_the_run_sees_what_decay_takes_away():
    # the second mode is below the threshold and vanishes, slowly: its target pulls nearly as much as the decay
    soft = stability_of([2.0, 0.28], depth=2, weight_decay=0.3, alpha=0.05, lr=0.05)
    run = soft.measure()
    assert [mode.rest for mode in soft.modes] == pytest.approx([1.7, 0.0])
    assert run.long_enough
    assert run.modes[0].high == pytest.approx(1.7, rel=1e-9)
    assert abs(run.modes[1].high) < 1e-9
    # trapped at 0, for ever
    small = stability_of([2.0, 1.0], depth=3, weight_decay=0.1, alpha=0.01, start="balanced", lr=0.01)
    assert [abs(mode.high) < 1e-9 for mode in small.measure().modes] == [True, True]
    # where nobody knows how long it takes the run says so
    unknown = stability_of([5.0], depth=6, momentum=0.3, lr=1e-5, alpha=0.01, weight_decay=1e-9)
    assert not unknown.measure().long_enough
    # lost on the way, in the run too
    lost = stability_of([5.0], depth=2, momentum=0.9, lr=0.19)
    assert lost.measure().status == "diverged"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"momentum": 1.0}, "momentum = 1.0 is not allowed"),
        ({"weight_decay": -1}, "weight_decay = -1.0 is not allowed"),
        ({"nesterov": True}, "nesterov = True is not allowed"),
    ],
)
def test_momentum_and_decay_that_cannot_be(given, words):
    with pytest.raises(InputError, match=re.escape(words)):
        stability_of([2.0], depth=2, **given)


# Batches --------------------------------------------------------------------------------------------------------------


def mean_squares(said, lr, steps, runs):
    """E |A - A_star|^2 on fresh Gaussian samples, over many runs of all matrices from beside the balanced minimum."""
    rng, d, depth = np.random.default_rng(1), said.d, said.depth
    values = np.pad(said.spectrum, (0, d - len(said.spectrum)))
    weights = [np.diag(values ** (1 / depth)) + 1e-7 * rng.normal(size=(runs, d, d)) for _ in range(depth)]
    speeds = [np.zeros_like(w) for w in weights]
    seen = []
    for _ in range(steps + 1):
        below = [np.broadcast_to(np.eye(d), (runs, d, d))]
        for w in weights:
            below.append(w @ below[-1])
        off = below[-1] - np.diag(values)
        seen.append(np.mean(np.sum(off**2, axis=(1, 2))))
        inputs = rng.normal(size=(runs, d, said.batch_size))
        back = said.data["aligned"].scale * off @ inputs @ inputs.swapaxes(1, 2) / said.batch_size
        for level in range(depth - 1, -1, -1):
            gradient, back = back @ below[level].swapaxes(1, 2), weights[level].swapaxes(1, 2) @ back
            speeds[level] = said.momentum * speeds[level] + (1 - said.dampening) * gradient
            weights[level] = weights[level] - lr * speeds[level]
    return np.array(seen)


@pytest.mark.parametrize(
    ("s", "depth", "d", "batch", "how"),
    [
        ([3, 1], 2, 2, 16, {}),
        ([3, 1], 3, 3, 24, {}),
        ([2, 1.5], 3, 2, 24, {"momentum": 0.3, "dampening": 0.3}),
        ([2], 1, 3, 16, {"momentum": 0.3, "half": False}),
    ],
)
def test_squares_on_batches_grow_from_the_largest_stable_step_on(s, depth, d, batch, how):
    """Of 20,000 runs and few steps: later on a mean square is that of runs that are too rare to be seen."""
    said = stability_of(s, depth=depth, d=d, batch_size=batch, **how)
    limit = said.largest_stable_lr_with_batches
    assert limit < said.largest_stable_lr
    below, above = (mean_squares(said, factor * limit, 6, 20_000) for factor in (0.92, 1.08))
    assert below[6] < 0.8 * below[3]
    assert above[6] > 1.2 * above[3]
    # all else is told of the loss itself
    whole = stability_of(s, depth=depth, d=d, **how)
    assert whole.largest_stable_lr_with_batches is None
    assert (whole.lr, whole.modes, whole.largest_stable_lr) == (said.lr, said.modes, said.largest_stable_lr)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("s", [[2.0], [2.0, 1.9], [1.5, 0.3]])
@pytest.mark.parametrize("how", [{}, {"momentum": 0.6}, {"momentum": 0.6, "dampening": 0.6}])
def test_batches_by_the_hessians_of_samples_like_gaussian_ones(depth, s, how):
    """36 points of a plane have the moments of a Gaussian up to the fifth, and squares of a step see four of them."""
    said = stability_of(s, depth=depth, d=2, batch_size=3, **how)
    inputs = np.array(list(itertools.product([0, 0, 0, 0, 3**0.5, -(3**0.5)], repeat=2)))
    layers = [jnp.diag(jnp.asarray(np.pad(s, (0, 2 - len(s))) ** (1 / depth)))] * depth

    def says(weights):
        out = inputs.T
        for w in weights:
            out = w @ out
        return out.T

    parts = jax.tree.leaves(jax.jacobian(says)(layers))
    jacobians = np.concatenate([np.asarray(part).reshape(36, 2, -1) for part in parts], axis=2)
    hessians = np.einsum("ioa,iob->iab", jacobians, jacobians)
    told = {"momentum": said.momentum, "dampening": said.dampening, "replacement": True}
    limit = said.largest_stable_lr_with_batches
    assert limit == pytest.approx(optimizers.largest_batch_lr(hessians, 3, **told), rel=1e-10)
    large = stability_of(s, depth=depth, d=2, batch_size=10**9, **how)
    assert large.largest_stable_lr_with_batches == pytest.approx(said.largest_stable_lr, rel=1e-6)


def test_a_run_on_batches():
    s, how = [3.0, 2.0, 1.0], {"depth": 3, "batch_size": 4, "d": 4}
    limit = stability_of(s, **how).largest_stable_lr_with_batches
    calm = stability_of(s, lr=0.5 * limit, **how).measure()
    assert calm.status == "horizon"
    for mode, value in zip(calm.modes, s, strict=True):
        assert (mode.low, mode.high) == pytest.approx((value, value), rel=1e-6)
    assert calm.cross.largest > 0.01  # samples mix the modes on the way
    assert "4 fresh Gaussian samples a step" in str(calm)
    lost = stability_of(s, lr=2 * limit, **how)
    assert lost.modes[0].fate is not Fate.DIVERGES
    assert lost.measure().status == "diverged"
    again, other = (stability_of(s, lr=0.5 * limit, seed=seed, **how).measure() for seed in (0, 1))
    assert again.modes == calm.modes
    assert other.modes != calm.modes


def test_batches_without_a_formula_are_unknown():
    for how, why in (
        ({"weight_decay": 0.01}, "does not fit every sample"),
        ({"momentum": 0.5, "nesterov": True}, "Nesterov"),
    ):
        said = stability_of([2, 1], depth=2, batch_size=4, **how)
        assert math.isnan(said.largest_stable_lr_with_batches)
        assert why in said["largest_stable_lr_with_batches"].source.origin
        assert said["largest_stable_lr_with_batches"].source.claims == ()
        assert "with batches of 4 fresh Gaussian samples ?" in " ".join(str(said).split())
        assert said.measure().status == "horizon"
    for wrong in (0, 10**10):
        with pytest.raises(InputError, match="batch_size = "):
            stability_of([2, 1], depth=2, batch_size=wrong)


# The triple -----------------------------------------------------------------------------------------------------------


def frames(d):
    rng = np.random.default_rng(0)
    return (np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(2))


def numbers(prediction):
    """Everything but what no theory of modes depends on: names of initializations and growth at rounding."""
    found = prediction.to_dict()
    return [found[name] for name in ("modes", "largest_stable_lr", "largest_stable_lr_at_flow_end", "sorting", "lr")]


def approximately(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(approximately(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(approximately, one, other))
    return one == pytest.approx(other, rel=1e-8) if isinstance(one, float) else one == other


def test_weights_are_recognized_as_their_modes():
    u, v = frames(4)
    s = np.array([6.0, 4.0, 3.0, 0.0])
    problem, modes = ln.factorization((u * s) @ v.T), ln.factorization(s)
    optimizer = ln.optim.SGD(0.055)
    wanted = prediction.stability(modes, ln.init.one_zero(modes, 0.3, 3), optimizer)
    white = ln.regression(2 * np.eye(4), 2 * v * s @ u.T)  # |X A^T - Y|^2 / 2 = 4 / 2 |A - A_star|^2
    for network, kind in (
        (ln.init.one_zero(problem, 0.3, 3), "one-zero"),
        (ln.init.orthogonal(jax.random.key(0), problem, 0.3, 3), "orthogonal"),
    ):
        found = prediction.stability(problem, network, optimizer)
        assert found.init == kind
        assert approximately(numbers(found), numbers(wanted))
        quarter = prediction.stability(white, network, ln.optim.SGD(0.055 / 4))
        assert [mode.kappa for mode in quarter.modes] == pytest.approx([mode.kappa for mode in wanted.modes])
        seen = found.measure()
        assert max(mode.error for mode in seen.modes) < 1e-10
        assert found.compare(seen.run).modes == seen.modes
    symmetric = ln.factorization((u * s) @ u.T)
    found = prediction.stability(symmetric, ln.init.identity(symmetric, 0.3, 3), optimizer)
    assert found.init == "balanced"
    assert approximately(
        numbers(found), numbers(prediction.stability(modes, ln.init.identity(modes, 0.3, 3), optimizer))
    )
    shuffled = ln.factorization(s[[2, 0, 3, 1]])
    found = prediction.stability(shuffled, ln.init.one_zero(shuffled, 0.3, 3), optimizer)
    assert approximately(numbers(found), numbers(wanted))
    assert found.measure().modes[0].error < 1e-12
    # by default the learning rate is the suggested one
    chosen = prediction.stability(modes, ln.init.one_zero(modes, 0.3, 3))
    assert chosen.lr == suggested_lr(modes, ln.init.one_zero(modes, 0.3, 3))[0]
    assert any("halfway from the edge" in note for note in chosen.notes)


def test_what_it_does_not_apply_to():
    u, v = frames(3)
    s = np.array([3.0, 2.0, 1.0])
    problem, sgd = ln.factorization((u * s) @ v.T), ln.optim.SGD(0.01)
    network = ln.init.one_zero(problem, 0.1, 2)
    rng = np.random.default_rng(0)
    for triple, words in (
        ((problem, ln.init.identity(problem, 0.1, 2), sgd), "share the singular vectors"),
        ((problem, ln.Weights([rng.normal(size=(3, 3))] * 2), sgd), "orthogonal matrices"),
        ((problem, ln.Weights([rng.normal(size=(5, 3)), np.zeros((3, 5))]), sgd), "orthogonal matrices"),
        ((ln.regression(rng.normal(size=(9, 3)), rng.normal(size=(9, 3))), network, sgd), "white inputs"),
        ((problem, network, ln.optim.Adam(0.01)), "SGD with one constant learning rate"),
        ((problem, network, ln.optim.SGD(lambda k: 0.1 / (k + 1))), "SGD with one constant learning rate"),
        ((problem, network, ln.optim.SGD(0.1, batch_size=2)), "fresh Gaussian samples"),
        ((ln.factorization([2.0, 1.0]), ln.Modes([[0.1, 0.2], [0.0, 0.0]]), sgd), "alpha > 0 in all layers"),
        ((ln.factorization([2.0, 1.0]), ln.Modes([[0.0, 0.0], [0.0, 0.0]]), sgd), "saddle"),
    ):
        with pytest.raises(NotApplicable, match=words):
            prediction.stability(*triple)
