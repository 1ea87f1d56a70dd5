"""Every public function of theory, asked for what it cannot answer: a sentence, or a right value, never a wrong one.

The table says of each argument which numbers are allowed. Each is then asked with NaN, a negative number, zero, numbers
that are too large, infinity, a text, a ragged list and shapes that do not go together; lists must do what arrays do. A
public function without a row fails. Formulas of few known numbers are computed in NumPy and all others as one program:
both say the same.
"""

import inspect
import math
import pkgutil
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import combinations, pairwise, product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linnet as ln
from linnet import _check, theory
from linnet.theory import _formula, balance, convergence, feature, landscape, mode_fate
from linnet.theory.regime import Regime

RAGGED = [[1.0], [1.0, 2.0]]


@dataclass(frozen=True)
class Num:
    """A number, or an array of numbers unless `one`: which are allowed, beside finite ones."""

    good: Any
    above: float = -math.inf
    least: float = -math.inf
    below: float = math.inf
    most: float = math.inf
    one: bool = False
    infinite: bool = False  # infinity is allowed
    time: bool = False  # it leads and pairs with nothing
    none: bool = False  # there is a default
    large: float = 1e6

    def probes(self):
        for x in (math.nan, -1.0, 0.0, self.large, math.inf):
            inside = x > self.above and x >= self.least and x < self.below and x <= self.most
            yield x, (inside and math.isfinite(x)) or (self.infinite and x == math.inf)
        for wrong in ("abc", RAGGED, 1j, True):
            yield wrong, False
        yield None, self.none
        if self.one:
            yield [self.good, self.good], False
            yield np.array([self.good, self.good]), False


@dataclass(frozen=True)
class Count:
    """A whole number."""

    good: int
    least: int = 1
    most: int | None = None
    none: bool = False  # there is a default

    def probes(self):
        for x in (-1, 0):
            yield x, x >= self.least
        for wrong in (math.nan, math.inf, 2.5, "abc", RAGGED, [self.good, self.good], True):
            yield wrong, False
        yield None, self.none
        if self.most is not None:
            yield self.most + 1, False


@dataclass(frozen=True)
class Tensor:
    """An array of a fixed number of axes; what its entries may be."""

    good: Any
    negative: bool = True
    zero: bool = True

    def probes(self):
        good = np.asarray(self.good, dtype=float)
        spoiled = good.copy()
        spoiled.flat[0] = math.nan
        yield spoiled, False
        yield np.full_like(good, math.inf), False
        yield -np.abs(good), self.negative
        yield 0 * good, self.zero
        for wrong in (good[None, None], good[:0], "abc", RAGGED, None, 1j * good):
            yield wrong, False


@dataclass(frozen=True)
class Other:
    """Anything else: what is wrong beside numbers and texts."""

    good: Any
    wrong: tuple[Any, ...] = ()

    def probes(self):
        for wrong in (math.nan, -1.0, "abc", *self.wrong):
            yield wrong, False


def positive(good, **more):
    return Num(good, above=0.0, **more)


def nonnegative(good, **more):
    return Num(good, least=0.0, **more)


def share(good, **more):
    return Num(good, above=0.0, below=1.0, **more)


TIME = nonnegative(0.7, time=True)
ONE = {"one": True}
VECTOR, VALUES = np.array([0.6, 0.8]), np.array([2.0, 1.0])
MATRIX = np.array([[1.0, 0.5], [0.2, 2.0]])
PLACE = convergence.Coordinates(0.7, VECTOR, np.array([1.0, 0.0]), VALUES)
AT = Other(PLACE, (PLACE._replace(s=-1.0), PLACE._replace(a=3 * VECTOR), PLACE._replace(z=VALUES[::-1]), (1.0, 2.0)))
START = Other(
    PLACE, (*AT.wrong, PLACE._replace(s=0.0), PLACE._replace(a=VECTOR / 2), PLACE._replace(b=VECTOR * np.nan))
)
RATES = convergence.Envelope(*(np.asarray(x) for x in (2.0, 1.0, 1.5, True)))
PROBLEM = ln.problems.mean_field_regression(np.array([[1.0, 0.5, 0.0], [0.2, 2.0, 0.3]]), np.array([1.0, 0.4]), width=5)
TASK = feature.task(PROBLEM)
A_TASK, SIGMA = Other(TASK), Other(feature.covariance([(1.0, 20)]))
AMPLITUDES = Other(feature.Amplitudes(0.02, 0.03), ((0.0, 0.0), (-1.0, 1.0), (math.nan, 1.0), (1.0,)))
GROWING = Other(feature.Amplitudes(0.02, 0.03), (*AMPLITUDES.wrong, (0.0, 1.0)))
GROWN = Other(feature.Growth(*(np.asarray(x) for x in (1.5, 1.1, 0.5))), ((1.0, 2.0, 3.0),))
ALIGNED = feature.Aligned(*(jnp.asarray(x) for x in (0.3, -0.2, 0.1, 0.9)))
END = feature.EndState(*(jnp.asarray(x) for x in (1.0, 1.0, [1.0, 0.0], 1.0, 1.0, 1.0, [2.0, 1.0])))
SPECTRA = landscape.Spectrum(np.array([2.0, 1.0]), np.array([1, 3]))
MOMENTUM, NO = Num(0.5, least=0.0, below=1.0), Other(False, (1,))
ONE_MOMENTUM = Num(0.5, **ONE, least=0.0, below=1.0)
STEPPING = {
    "momentum": MOMENTUM,
    "dampening": MOMENTUM,
    "nesterov": NO,
    "weight_decay": nonnegative(0.1),
    "decoupled": NO,
}
ONE_STEPPING = {
    **STEPPING,
    "momentum": ONE_MOMENTUM,
    "dampening": ONE_MOMENTUM,
    "weight_decay": nonnegative(0.1, **ONE),
}
DECAYED = {
    "targets": Tensor(VALUES, negative=False),
    "weight_decay": nonnegative(0.1, **ONE),
    "depth": Count(3),
    "scale": positive(1.5, **ONE),
    "local": NO,
}
HESSIANS = np.array([[[1.0, 0.2], [0.2, 2.0]], [[0.5, 0.1], [0.1, 0.3]]])
BATCHES = {
    "hessians": Tensor(HESSIANS, negative=False, zero=False),
    "batch_size": Count(1, 1, 2),
    "momentum": ONE_MOMENTUM,
    "replacement": NO,
    "dampening": ONE_MOMENTUM,
}
SAMPLES, DEPTH = positive(1.5), Num(3.0, above=1.0)
V0, SIGMA0 = positive(0.1, **ONE), nonnegative(0.05, **ONE)
LR = positive(0.1, **ONE)
CONDITIONS = {
    "samples": Count(10),
    "dimension": Count(20),
    "width": positive(100.0, **ONE),
    "sigma": SIGMA,
    "beta_bar": positive(1.0, **ONE),
    "sigma0": nonnegative(0.1, **ONE),
    "v0": positive(0.1, **ONE),
    "lr": positive(0.1, **ONE),
    "eps": positive(0.1, **ONE),
    "noise2": nonnegative(0.1, **ONE),
    "sigma_x": positive(1.0, **ONE),
    "constants": Other({"c1": 2.0}, ({"c1": math.nan}, {"c1": "abc"}, {"c1": -1.0}, {"c1": 0.0})),
    "variant": Other("printed"),
}
MODES = {"s": Tensor(VALUES, negative=False, zero=False), "depth": Count(3), "alpha": positive(0.1, **ONE)}
ESCAPE, KAPPAS = Tensor(np.array([3.0, 8.0]), negative=False), Tensor(np.array([1.0, 0.5]), negative=False, zero=False)
FATE = mode_fate.ModeFate(mode_fate.Fate.CONVERGES, 1, 1.0, 1.0, None, None, False, 1.0, 1.0)
POINTS = np.ones((4, 2, 2))
LEVELS = Tensor(np.array([1.0, 0.8]), negative=False, zero=False)
WIDTHS = Other((2, 3, 2), ((2, 2), (2, -1, 2), (2, 0, 2), (2, math.nan, 2), (2, 2.5, 2)))
KEPT = Other((1,), ((0,), (1, 1), (3,), (math.nan,)))
SPECTRUM = Tensor(VALUES, negative=False)
LEARNED = Other([2.0, 1.0], (VALUES * math.nan, -VALUES, VALUES[::-1], MATRIX, [3.0, 2.0, 1.0]))


WEIGHTS = ln.Weights((MATRIX, MATRIX.T))
BALANCED = Other(
    WEIGHTS,
    (
        ln.Weights((MATRIX, 2 * MATRIX)),
        ln.Weights((MATRIX, MATRIX, MATRIX)),
        ln.Weights((MATRIX[:, :1], MATRIX)),
        (MATRIX, MATRIX.T),
    ),
)
LAZY = Other(ln.Weights((np.eye(2), 2 * np.eye(2))), (WEIGHTS, *BALANCED.wrong))
NEURON = Other(ln.Weights((MATRIX[:1], MATRIX[:, :1])), (WEIGHTS, ln.Weights((MATRIX[:1, :1], MATRIX[:, :1])), MATRIX))
GRAMS = balance.Grams(MATRIX, np.eye(2), np.eye(2))
ZERO = nonnegative(1e-10, **ONE, below=1.0)
LONG = nonnegative(0.7, time=True, large=1e3)  # composed steps cost in proportion


TABLE = {
    # balance
    "balance.Grams.kernel": {"inputs": Tensor(MATRIX)},
    "balance.Grams.similarity": {"inputs": Tensor(MATRIX)},
    "balance.flow": {
        "time": LONG,
        "initial": BALANCED,
        "target": Tensor(MATRIX),
        "scale": positive(1.5, **ONE, large=10.0),
        "weight_decay": nonnegative(0.3, **ONE, large=10.0),
        "tol": ZERO,
    },
    "balance.eigenvectors": {"target": Tensor(MATRIX), "lam": Num(0.3, **ONE)},
    "balance.neuron": {
        "time": LONG,
        "initial": NEURON,
        "target": Tensor(MATRIX),
        "scale": positive(1.5, **ONE, large=10.0),
        "lr_multipliers": Other((2.0, 0.5), ((1.0,), (1.0, 0.0), (1.0, math.nan), (1.0, "abc"))),
    },
    "balance.grams": {"matrix": Tensor(MATRIX), "lam": Num(0.3, **ONE), "width": Count(2, 2, 2)},
    "balance.mode": {
        "time": TIME,
        "initial": Num(0.1),
        "target": Num(2.0),
        "lam": Num(0.3),
        "scale": positive(1.5),
    },
    "balance.lazy": {
        "time": TIME,
        "initial": LAZY,
        "target": Tensor(MATRIX),
        "scale": positive(1.5, **ONE),
        "tol": ZERO,
    },
    "balance.end": {
        "initial": BALANCED,
        "target": Tensor(MATRIX),
        "scale": positive(1.5, **ONE),
        "weight_decay": nonnegative(0.3, **ONE),
        "tol": ZERO,
    },
    # convergence
    "convergence.aligned_time": {
        "initial": positive(0.1, **ONE, most=0.5),
        "end": positive(0.5, **ONE, below=1.0),
        "target": Num(1.0, **ONE, above=0.5),
        "depth": Count(3, 2),
        "samples": positive(1.0, **ONE),
    },
    "convergence.scaled_time": {"time": TIME, "z1": positive(2.0), "depth": DEPTH, "samples": SAMPLES},
    "convergence.limit": {"initial": START, "tol": nonnegative(1e-12, **ONE, below=1.0)},
    "convergence.two_layers": {
        "time": TIME,
        "initial": Tensor(MATRIX),
        "target": Tensor(MATRIX),
        "samples": positive(1.0, **ONE, large=10.0),
        "rank": Count(2, 1, 2, none=True),
    },
    "convergence.distance": {"at": AT},
    "convergence.parts": {"at": AT},
    "convergence.excess": {"at": AT, "samples": SAMPLES},
    "convergence.distance_rate": {"at": AT, "depth": DEPTH, "samples": SAMPLES},
    "convergence.distance_rate_bound": {"at": AT, "depth": DEPTH, "samples": SAMPLES, "sharp": Other(True, (1,))},
    "convergence.envelope": {
        "initial": AT,
        "alpha": nonnegative(0.6, below=1.0),
        "beta": Num(2.0, above=1.0),
        "depth": DEPTH,
        "samples": SAMPLES,
        "form": Other("theorem"),
    },
    "convergence.slow_level": {"alpha": nonnegative(0.6, most=1.0)},
    "convergence.envelope_bound": {
        "time": TIME,
        "square": nonnegative(2.0),
        "rates": Other(RATES),
        "transition": nonnegative(0.3, infinite=True),
    },
    "convergence.in_set": {"at": AT, "alpha": nonnegative(0.6, below=1.0), "beta": positive(2.0, infinite=True)},
    "convergence.alignment_bound": {
        "theta": TIME,
        "alignment": positive(0.5, most=1.0),
        "z1": Num(2.0, least=1.0),
        "z2": nonnegative(1.0, most=2.0),
    },
    "convergence.far_rate": {"at": AT, "depth": DEPTH, "samples": SAMPLES},
    **{
        f"convergence.{name}": {
            "values": Tensor(VALUES, negative=False, zero=False),
            "shape": Other((2, 2), ((2,), (2, 0), (2, math.nan), 2)),
            "depth": Count(3, 2),
            "samples": positive(1.0, **ONE),
            "rank": Count(1, 1, 2),
        }
        for name in ("near_rates", "near_rate")
    },
    "convergence.largest_lr": {"z1": positive(2.0), "depth": DEPTH, "samples": SAMPLES},
    "convergence.escape_time": {"initial": START, "depth": Count(3, 3), "samples": positive(1.0, **ONE)},
    "convergence.escape_time_aligned": {
        "strength": positive(0.1),
        "z1": positive(2.0),
        "depth": Num(3.0, above=2.0),
        "samples": SAMPLES,
    },
    "convergence.escape_time_one_output": {
        "strength": positive(0.1),
        "alignment": Num(0.5, above=-1.0, most=1.0),
        "z1": positive(2.0),
        "depth": Count(3, 3, 4),
        "samples": SAMPLES,
    },
    # feature
    "feature.FeatureTask.step": {"lr": LR},
    "feature.task": {"problem": Other(PROBLEM, (ln.factorization(np.eye(2)),))},
    "feature.growth": {"steps": nonnegative(3.0, time=True), "x": positive(0.3)},
    "feature.flow_growth": {"theta": TIME},
    "feature.stage_one": {"grown": GROWN, "v": Num(0.1), "alpha": Num(0.2), "gamma": positive(2.0)},
    "feature.slope": {"grown": GROWN, "v0": nonnegative(0.1), "sigma0": nonnegative(0.05)},
    "feature.alignment_rapidity": {"level": share(0.9, **ONE), "v0": V0, "sigma0": SIGMA0},
    "feature.alignment_steps": {"level": share(0.9, **ONE), "x": share(0.3, **ONE), "v0": V0, "sigma0": SIGMA0},
    "feature.first_step": {"task": A_TASK, "lr": LR, "v0": V0},
    "feature.mean_field": {"omega": Tensor(VECTOR), "v": Tensor(VECTOR), "task": A_TASK, "lr": LR, "steps": Count(3)},
    "feature.pair_map": {"rho": Tensor(VECTOR), "v": Tensor(VECTOR), "task": A_TASK, "lr": LR, "steps": Count(3)},
    "feature.cubic_map": {"u": Num(0.1), "x": positive(0.3), "steps": Count(3, 0)},
    "feature.cubic_flow": {"theta": TIME, "u": Num(0.1)},
    "feature.cubic_time": {"u": Num(0.5, above=0.0, below=1.0), "gap": positive(0.1, most=0.75)},
    "feature.proxy": {"u": Num(0.1, above=-1.0, below=1.0)},
    "feature.proxy_growth": {"square": nonnegative(0.5, most=1.0), "x": positive(0.3, below=0.9)},
    "feature.loss_gap": {"eps": nonnegative(0.1), "task": A_TASK},
    "feature.amplitudes": {
        "first": Tensor(np.ones((2, TASK.root.shape[1]))),
        "second": Tensor(np.ones((1, 2))),
        "task": A_TASK,
    },
    "feature.expected_amplitudes": {"v0": V0, "sigma0": SIGMA0},
    "feature.Aligned.neurons": {"v": Num(0.1), "alpha": Num(0.2), "gamma": positive(2.0)},
    "feature.Aligned.loss": {"task": A_TASK},
    "feature.Aligned.kernel_growth": {"initial": AMPLITUDES},
    "feature.Aligned.slope": {"initial": AMPLITUDES, "v0": V0},
    "feature.aligned_descent": {
        "initial": AMPLITUDES,
        "x": positive(0.3),
        "vstar2": positive(0.7),
        "steps": Count(3, 0),
    },
    "feature.aligned_flow": {"theta": Num(0.7, time=True), "initial": AMPLITUDES, "vstar2": positive(0.7)},
    "feature.aligned_time": {"share": Num(0.7), "initial": GROWING, "vstar2": positive(0.7)},
    "feature.loss_steps": {
        "share": share(0.5, **ONE),
        "x": positive(0.3),
        "task": A_TASK,
        "v0": Num(0.01, **ONE, above=0.0, below=1.0),
        "sigma0": Num(0.01, **ONE, least=0.0, below=1.0),
    },
    "feature.richness": {"vstar2": positive(0.7), "v0": V0, "sigma0": SIGMA0},
    "feature.kernel_growth": {"richness": nonnegative(2.0)},
    "feature.total_rapidity": {"richness": nonnegative(2.0)},
    "feature.end_growth": {"initial": GROWING, "vstar2": positive(0.7)},
    "feature.total_growth": {"task": A_TASK, "v0": V0, "sigma0": SIGMA0},
    "feature.loss_left": {
        "level": share(0.5, **ONE),
        "richness": positive(40.0),
        "v0": V0,
        "sigma0": SIGMA0,
        "task": A_TASK,
    },
    "feature.growth_at_alignment": {"level": share(0.5, **ONE), "v0": V0, "sigma0": SIGMA0},
    "feature.EndState.fitted": {"inputs": Tensor(MATRIX)},
    "feature.EndState.kernel": {"inputs": Tensor(MATRIX)},
    "feature.end_state": {"task": A_TASK, "v0": V0, "sigma0": SIGMA0},
    "feature.step_limits": {"task": A_TASK, "v0": V0, "sigma0": SIGMA0},
    "feature.late_factor": {"task": A_TASK, "lr": LR, "end": Other(feature.end_state(TASK))},
    "feature.isotropic_late_factor": {"task": A_TASK, "lr": LR},
    "feature.boost_spectrum": {"first": Tensor(np.ones((2, 3))), "second": Tensor(np.ones((1, 2)))},
    "feature.imbalance_step": {
        "first": Tensor(np.ones((2, 3))),
        "second": Tensor(np.ones((1, 2))),
        "force": Tensor(np.ones((1, 3))),
        "lr": LR,
    },
    "feature.covariance": {"groups": Other([(1.0, 3)], (0, [], [(1.0,)], [(-1.0, 3)], [(1.0, 0)], [(math.nan, 3)]))},
    "feature.source_times": {
        **{name: CONDITIONS[name] for name in ("samples", "width", "sigma", "beta_bar", "lr")},
        "v0": share(0.1, **ONE),
        "eps": positive(0.1, **ONE, most=30.0),
        "constants": Other((1.0, 2.0), ((1.0,), (1.0, math.nan), 2.0)),
    },
    "feature.failures": {"samples": Count(10), "width": Num(100.0, least=1.0, **ONE)},
    "feature.initialization_bound": {
        "gamma": positive(2.0, **ONE),
        "sigma0": SIGMA0,
        "width": Num(100.0, least=1.0, **ONE),
        "delta": share(0.1, **ONE),
    },
    "feature.spread_unit": {"samples": Count(10), "sigma": SIGMA, "sigma_x": positive(1.0, **ONE)},
    "feature.assumptions": CONDITIONS,
    # landscape
    "landscape.Spectrum.all": {},
    "landscape.spectrum": {"values": LEARNED, "widths": WIDTHS, "kept": KEPT, "curvature": positive(1.0, **ONE)},
    "landscape.index": {"values": LEARNED, "widths": WIDTHS, "kept": KEPT},
    "landscape.label": {"values": LEARNED, "widths": WIDTHS, "kept": KEPT},
    "landscape.critical_points": {
        "problem": Other(ln.factorization(MATRIX), (PROBLEM.root,)),
        "hidden": Other((3,), ((), (0,), (-1,), (2.5,), (math.nan,))),
        "most": Other(4, (0, 2.5, [1, 2])),
    },
    # mixed
    "mixed.lazy": {
        "time": TIME,
        "initial": Tensor(MATRIX),
        "observed": Tensor(MATRIX),
        "c": nonnegative(0.3, **ONE),
        "kappa": positive(2.0, **ONE),
    },
    "mixed.lazy_optimum": {"truth": Tensor(MATRIX), "noise": Tensor(MATRIX)},
    "mixed.mode": {
        "time": TIME,
        "initial": Num(0.1),
        "target": Num(2.0),
        "c": nonnegative(0.3),
        "kappa": positive(2.0),
    },
    "mixed.mode_time": {
        "initial": Num(0.1),
        "end": Num(1.0),
        "target": Num(2.0),
        "c": nonnegative(0.3),
        "kappa": positive(2.0),
    },
    "mixed.mode_scale": {
        "first": nonnegative(1.0),
        "second": nonnegative(0.5),
        "initial": Num(0.1, least=-0.75, most=0.75),
    },
    "mixed.mode_sharpness": {"value": Num(0.1), "target": Num(2.0), "c": nonnegative(0.3), "kappa": positive(2.0)},
    "mixed.matrix": {
        "time": TIME,
        "initial": Tensor(MATRIX),
        "observed": Tensor(MATRIX),
        "c": nonnegative(0.3, **ONE),
        "kappa": positive(2.0, **ONE),
    },
    "mixed.largest_lr": {"top": nonnegative(2.0), "c": nonnegative(0.3), "kappa": positive(2.0)},
    "mixed.step_size": {
        "d": positive(10.0, **ONE),
        "c": positive(0.3),
        "signal": positive(2.0),
        "lazy": Other(True, (1, 0.0, RAGGED)),
        "c_lr": positive(50.0, **ONE),
    },
    "mixed.descent_bound": {
        "steps": nonnegative(3.0, time=True),
        "lr": positive(0.1),
        "force": nonnegative(1.0),
        "slope": nonnegative(2.0),
        "variant": Other("printed"),
    },
    "mixed.pair_rate": {
        "target": nonnegative(1.0),
        "other": nonnegative(0.5),
        "value": Num(0.9, above=0.3),
        "other_value": nonnegative(0.3, below=0.9),
        "c": nonnegative(0.1),
        "kappa": positive(2.0),
    },
    "mixed.alignment_rate": {"levels": LEVELS, "variant": Other("printed")},
    "mixed.phase": {"gamma_w": Num(2.0, **ONE), "gamma_sigma2": Num(-1.6, **ONE)},
    "mixed.transition": {
        "gamma_w": Num(2.0),
        "low_rank": Other(True, (1,)),
        "target": Other(MATRIX, (RAGGED, 0 * MATRIX, MATRIX[:, :1], MATRIX[None])),
    },
    "mixed.sandwich": {"matrix": Tensor(MATRIX), "imbalance": Tensor(MATRIX + MATRIX.T)},
    "mixed.recovery": {
        "levels": LEVELS,
        "gamma_w": Num(2.0, **ONE, least=1.0, below=2.6),
        "gamma_sigma2": Num(-1.6, **ONE, below=-1.0),
        "d": Num(100.0, **ONE, above=1.0),
        "lr": LR,
        "variant": Other("derived"),
    },
    "mixed.spiked_signals": {"levels": LEVELS, "d": positive(50.0, **ONE)},
    "mixed.recovery_error": {
        "time": TIME,
        "levels": LEVELS,
        "d": Num(50.0, **ONE, least=2.0),
        "c": nonnegative(0.3, **ONE),
        "nodes": Count(8, 1, 1_000_000),
        "spiked": Other(True, (1,)),
        "initial": nonnegative(0.1, **ONE),
    },
    "mixed.early_stopping": {
        "levels": LEVELS,
        "d": Num(50.0, **ONE, least=2.0),
        "c": positive(0.3, **ONE),
        "initial": nonnegative(0.1, **ONE),
    },
    "mixed.in_p1": {
        "values": Tensor(np.array([3.0, 2.0, 0.1]), negative=False),
        "levels": LEVELS,
        **{name: nonnegative(0.5, **ONE) for name in ("c", "c0", "high", "low")},
    },
    "mixed.misalignment_bound": {
        "matrix": Tensor(MATRIX),
        "target": Tensor(MATRIX, zero=False),
        "rank": Count(1, 1, 2),
    },
    "mixed.in_p2": {
        "misalignment": nonnegative(0.1, **ONE),
        "d": positive(10.0, **ONE),
        "constant": nonnegative(1.0, **ONE),
        "gamma": Num(0.5, **ONE),
    },
    # mode_fate
    "mode_fate.worst": {"outcomes": Other([FATE.outcome], ([], [1], [math.nan]))},
    "mode_fate.escape_steps": {**MODES, "init": Other("one-zero"), "step": LR},
    "mode_fate.mode_fates": {**MODES, "kappas": KAPPAS, "init": Other("balanced"), "escape": ESCAPE},
    "mode_fate.cross_fate": {
        **MODES,
        "s": Tensor(np.array([2.0, 1.9]), negative=False, zero=False),
        "lr": LR,
        "points": Other(POINTS, (POINTS[:, 0], POINTS[:1], POINTS * math.nan, POINTS[:, :, :1])),
        "fates": Other([FATE, FATE], ([FATE], [1, 2])),
        "escape": ESCAPE,
        "null": Other(False, (1,)),
    },
    "mode_fate.gaps_left": {**MODES, "depth": Count(3, 2), "kappas": KAPPAS},
    # rank_one_flow
    "rank_one_flow.coordinates": {
        "strength": positive(0.5, **ONE),
        "left": Tensor(VECTOR, zero=False),
        "right": Tensor(VECTOR, zero=False),
        "target": Tensor(MATRIX),
    },
    "rank_one_flow.modes": {
        "time": TIME,
        "initial": START,
        "depth": Num(3.0, **ONE, least=2.0),
        "samples": positive(1.0, **ONE),
    },
    "rank_one_flow.rank_one": {
        "time": TIME,
        "strength": positive(0.5, **ONE),
        "left": Tensor(VECTOR, zero=False),
        "right": Tensor(VECTOR, zero=False),
        "target": Tensor(MATRIX),
        "depth": Count(3, 2),
        "samples": positive(1.0, **ONE),
    },
    "rank_one_flow.passage_time": {
        "level": positive(1.0, **ONE),
        "initial": START,
        "depth": Num(3.0, **ONE, least=2.0),
        "samples": positive(1.0, **ONE),
    },
    "rank_one_flow.transition_time": {
        "initial": START,
        "depth": Num(3.0, **ONE, least=2.0),
        "samples": positive(1.0, **ONE),
        "level": positive(2.0, **ONE),
    },
    "rank_one_flow.aligned": {
        "time": TIME,
        "initial": positive(0.5),
        "target": Num(1.0),
        "depth": Count(3, 2),
        "samples": positive(1.0, **ONE),
    },
    "rank_one_flow.known": {"at": AT},
    "rank_one_flow.one_initial": {"initial": START},
    "rank_one_flow.whole_depth": {"depth": Count(3, 2)},
    # regime
    "regime.Regime.of_growth": {"growth": nonnegative(2.0, **ONE, infinite=True)},
    "regime.Regime.of_all": {"parts": Other([Regime.LAZY], ([], ["lazy"], [1]))},
    # spectral
    "spectral.layer_values": {"values": SPECTRUM, "gamma": nonnegative(0.3, **ONE), "d_in": Count(3, 2)},
    "spectral.loss_bound": {
        "time": TIME,
        "excess": nonnegative(1.0),
        "gamma": nonnegative(0.3),
        "curvature": nonnegative(2.0),
    },
    "spectral.whitened": {"time": TIME, "target": Num(2.0), "gamma": nonnegative(0.3), "scale": positive(1.5)},
    "spectral.hitting_time": {
        "share": nonnegative(0.5, most=1.0),
        "target": Num(2.0),
        "gamma": positive(0.3),
        "scale": positive(1.5),
    },
    "spectral.jump": {"time": TIME, "target": positive(2.0)},
    **{
        f"spectral.{name}": {
            "share": share(0.5, **ONE),
            "inputs": Tensor(MATRIX, zero=False),
            "limit": Tensor(MATRIX, zero=False),
            "gamma": positive(0.3, **ONE),
        }
        for name in ("activation", "fit_time")
    },
    **{
        f"spectral.Limit.{name}": {"share": share(0.5, **ONE), "gamma": positive(0.3, **ONE)}
        for name in ("activation", "fit_time")
    },
    "spectral.Limit.largest_lr": {"gamma": positive(0.3, **ONE)},
    "spectral.entropy": {"values": Tensor(VALUES), "gamma": positive(0.3, **ONE)},
    "spectral.entropy_gradient": {"values": Tensor(VALUES), "gamma": positive(0.3, **ONE)},
    "spectral.potential": {"matrix": Tensor(VECTOR), "gamma": positive(0.3, **ONE)},
    "spectral.potential_gradient": {"matrix": Tensor(VECTOR), "gamma": positive(0.3, **ONE)},
    "spectral.rate": {"time": positive(0.7, time=True), "limit": Tensor(VECTOR), "gamma": positive(0.3, **ONE)},
    "spectral.largest_lr": {
        "inputs": Tensor(MATRIX, zero=False),
        "limit": Tensor(MATRIX),
        "gamma": positive(0.3, **ONE),
    },
    "spectral.gram_limit": {"limit": Tensor(MATRIX), "gamma": positive(0.3, **ONE)},
    "spectral.log_det_objective": {
        "first": Tensor(MATRIX),
        "second": Tensor(MATRIX),
        "gamma": positive(0.3, **ONE),
    },
    "spectral.reduced_objective": {
        "gram": Tensor(np.array([[2.0, 0.5], [0.5, 1.0]]), negative=False, zero=False),
        "matrix": Tensor(MATRIX),
        "gamma": positive(0.3, **ONE),
    },
    "spectral.stationarity": {
        "first": Tensor(MATRIX, zero=False),
        "second": Tensor(MATRIX),
        "inputs": Tensor(MATRIX),
        "gamma": positive(0.3, **ONE),
    },
    "spectral.noise_moments": {
        "time": nonnegative(0.7, time=True, large=3.0),
        "columns": SPECTRUM,
        "readout": nonnegative(0.3),
        "scales": Other(VALUES, (VALUES[:1], -VALUES, MATRIX)),
        "frozen": nonnegative(0.2),
    },
    "spectral.commutator_mean": {
        "time": nonnegative(0.7, time=True),
        "first": Tensor(MATRIX),
        "readout": Tensor(VECTOR),
        "scales": Other(VALUES / 2, (VALUES[:1], -VALUES, MATRIX)),
        "step": Num(0.1, **ONE, above=0.0, none=True),
    },
    "spectral.commutator_growth": {"d": Count(3)},
    "spectral.commutator_moments": {
        "time": nonnegative(0.7, time=True, large=3.0),
        "minors": SPECTRUM,
        "others": SPECTRUM,
    },
    "spectral.lyapunov": {"d": Count(2)},
    "spectral.moment_exponent": {"p": Num(2.0, **ONE, large=10.0), "d": Count(2), "nodes": Count(20, 1, 10_000)},
    "spectral.commutator_limit": {},
    "spectral.label_noise": {
        "delta": nonnegative(0.1),
        "norm": nonnegative(2.0),
        "rank": Count(2),
        "scale": positive(1.0),
    },
    # optimizers
    "optimizers.largest_stable_lr": {"curvature": nonnegative(2.0), **STEPPING},
    "optimizers.stability_limit": {"lr": positive(0.1), **STEPPING},
    "optimizers.largest_monotone_lr": {"curvature": nonnegative(2.0), **STEPPING},
    "optimizers.modified_equation": {"lr": LR, **ONE_STEPPING},
    "optimizers.modified_equation_error": {
        "lr": positive(0.01, **ONE),
        "curvature": nonnegative(2.0, **ONE),
        **ONE_STEPPING,
    },
    "optimizers.effective_decay": {
        "weight_decay": nonnegative(0.1),
        "momentum": MOMENTUM,
        "dampening": MOMENTUM,
        "nesterov": NO,
        "decoupled": Other(True, (1,)),
    },
    "optimizers.momentum_time": {
        "lr": positive(0.1),
        "steps": nonnegative(10.0),
        "momentum": MOMENTUM,
        "dampening": MOMENTUM,
    },
    "optimizers.decay_thresholds": {"weight_decay": nonnegative(0.1), "depth": Count(3), "scale": positive(1.5)},
    "optimizers.decayed_value": {
        "target": nonnegative(2.0),
        "weight_decay": nonnegative(0.1),
        "depth": Count(3),
        "scale": positive(1.5),
        "local": NO,
    },
    "optimizers.decayed_curvatures": DECAYED,
    "optimizers.decayed_sharpness": DECAYED,
    "optimizers.decayed_imbalance": {"time": TIME, "imbalance": Num(0.3), "weight_decay": nonnegative(0.1)},
    "optimizers.label_noise_rate": {"lr": positive(0.1), "noise": nonnegative(0.5), "curvature": nonnegative(2.0)},
    "optimizers.batch_variance": {"curvatures": Tensor(VALUES), "batch_size": Count(1, 1, 2), "replacement": NO},
    "optimizers.batch_stable_lr": {
        "mean": positive(2.0),
        "variance": nonnegative(0.5),
        "momentum": MOMENTUM,
        "dampening": MOMENTUM,
    },
    "optimizers.largest_batch_lr": BATCHES,
    "optimizers.largest_online_lr": {
        "curvatures": Tensor(VALUES, negative=False, zero=False),
        "batch_size": Count(1, 1),
        "momentum": ONE_MOMENTUM,
        "dampening": ONE_MOMENTUM,
    },
    "optimizers.batch_spectral_radius": {**BATCHES, "lr": positive(0.1, **ONE)},
    "optimizers.batch_share": {"samples": Count(2), "batch_size": Count(1, 1, 2), "replacement": NO},
    # flows
    "flows.exact_mode": {"depth": Count(3, 2), "kappa": positive(2.1)},
    "flows.central_mode": {"depth": Count(3, 2), "kappa": positive(2.1), "corrected": NO},
    "flows.mode_ratio": {"depth": Count(3, 2)},
    "flows.two_cycle_variance": {
        "sharpness": positive(21.0),
        "lr": positive(0.1),
        "cubic": positive(2.0),
        "quartic": Num(0.3),
    },
    "flows.central_ratio": {"cubic": positive(2.0), "quartic": Num(0.3)},
    "flows.catapult": {"excess": Num(0.1), "slope": positive(2.0), "variance": nonnegative(0.1)},
    "flows.mean_square_edge": {name: BATCHES[name] for name in ("hessians", "batch_size", "replacement")},
    "flows.batch_ratios": {
        **{name: BATCHES[name] for name in ("hessians", "batch_size", "replacement")},
        "covariance": Tensor(np.array([[2.0, 0.5], [0.5, 1.0]]), negative=False, zero=False),
    },
    "flows.stationary": {
        **{name: BATCHES[name] for name in ("hessians", "batch_size", "replacement")},
        "noise": Tensor(MATRIX),
        "lr": share(0.1, **ONE),
    },
    "flows.sharpness_gap": {
        "lr": positive(0.01),
        "slope": positive(2.0),
        "noise": nonnegative(0.5),
        "rise": positive(1.0),
        "spread": nonnegative(0.1),
    },
    # stability
    "stability.curvature": {"s": positive(2.0), "depth": Count(3)},
    "stability.kappa": {"s": positive(2.0), "depth": Count(3), "lr": positive(0.1), "half": Other(True, (1,))},
    "stability.cross_curvature": {"first": positive(2.0), "second": positive(1.0), "depth": Count(3)},
    "stability.pair_curvatures": {"values": Tensor(MATRIX)},
    "stability.minimum_spectrum": {
        "spectrum": Tensor(VALUES, negative=False, zero=False),
        "depth": Count(3),
        "d": Count(3, 2),
        "alpha": nonnegative(0.1, **ONE, below=1.0),
    },
    "stability.cross_eigenvector": {"first": positive(2.0, **ONE), "second": positive(1.0, **ONE), "depth": Count(3)},
    "stability.mode_curvature": {"rho": Num(0.9), "s": positive(2.0), "depth": Count(3)},
    "stability.orbit": {"s": positive(2.0), "depth": Count(3, 2), "lr": positive(0.1), "half": Other(True, (1,))},
    "stability.onset_amplitude": {
        "s": positive(2.0),
        "depth": Count(3, 2),
        "lr": positive(0.1),
        "half": Other(True, (1,)),
    },
    "stability.stages": {"depth": Count(2, 2)},
    "stability.outcome": {"kappa": positive(1.0), "depth": Count(2)},
    "stability.gap_loss": {"values": Tensor(VECTOR), "s": Num(2.0, **ONE), "lr": LR},
    "stability.one_zero_loss": {
        "x": Num(0.5),
        "y": Num(0.9),
        "s": Num(2.0),
        "lr": positive(0.1),
        "depth": Count(3, 2),
    },
    "stability.one_zero_gap": {"depth": Count(3, 2)},
    "stability.flow_values": {
        "initial": Tensor(np.array([0.5, 0.7]), negative=False, zero=False),
        "s": positive(2.0, **ONE),
    },
    "stability.flow_time": {
        "initial": Tensor(np.array([0.5, 0.7]), negative=False, zero=False),
        "end": Num(1.0),
        "s": positive(2.0, **ONE),
    },
    "stability.flow_sharpness": {"alpha": nonnegative(0.1), "s": positive(2.0), "depth": Count(3, 2)},
    "stability.flow_growth": {"alpha": nonnegative(0.1), "s": positive(2.0), "depth": Count(3, 2)},
    "stability.top_alpha": {"s": positive(2.0), "depth": Count(3, 2)},
    "stability.growth": {"depth": Count(3, 2)},
    "stability.largest_alpha": {
        "s": positive(2.0, **ONE),
        "depth": Count(3, 2),
        "kappa": positive(2.1, **ONE, below=2 * 2**0.5),
        "bound": Other("sharp"),
    },
    "stability.line": {
        "layers": Other([MATRIX, MATRIX], ([], [MATRIX, np.ones((2, 3))], [VECTOR, VECTOR], [MATRIX * np.nan, MATRIX])),
        "direction": Other([MATRIX, MATRIX], ([], [MATRIX], [MATRIX, np.ones((3, 2))])),
    },
    "stability.mode_line": {"s": positive(2.0, **ONE), "depth": Count(3)},
    "stability.cross_line": {
        "first": positive(2.0, **ONE),
        "second": positive(1.0, **ONE),
        "depth": Count(3),
        "angle": Num(0.3, **ONE),
    },
    "stability.cross_multipliers": {
        "ratio": positive(0.9),
        "depth": Count(3, 2),
        "kappa": positive(2.1),
        "second": Other("rest"),
    },
    "stability.cross_multipliers_two_layers": {"first": Num(1.1, **ONE, least=1.0), "second": positive(0.9, **ONE)},
    "stability.cross_edge": {"ratio": positive(0.9), "depth": Count(3)},
    "stability.cross_threshold": {"ratio": positive(0.9, **ONE, most=1.0), "depth": Count(2, 2)},
    "stability.cross_ratio": {"depth": Count(2, 2)},
    "stability.sorting_onset": {"ratio": share(0.9, **ONE), "depth": Count(2, 2)},
    "stability.sorting_crossover": {"depth": Count(2, 2)},
    "stability.escape_time": {
        "s": positive(2.0),
        "alpha": positive(0.1),
        "depth": Count(3, 2),
        "init": Other("one_zero"),
    },
}

# arguments for which infinity (or, where it says so, NaN) is the documented answer
UNKNOWN = {
    "convergence.escape_time_aligned": {"depth"},
    "feature.growth": {"steps"},
    "mixed.descent_bound": {"steps"},
    "feature.flow_growth": {"theta"},
    "feature.cubic_map": {"u", "x"},
    "feature.aligned_time": {"share"},
    "feature.loss_left": {"richness", "level"},
    "mixed.largest_lr": {"top", "c"},
    "mixed.mode_time": {"initial", "end", "target", "c"},
    "rank_one_flow.passage_time": {"level"},
    "spectral.hitting_time": {"share"},
    "spectral.log_det_objective": {"first"},
    "flows.two_cycle_variance": {"cubic", "quartic"},
    "flows.stationary": {"noise"},
    "flows.sharpness_gap": {"lr", "slope", "noise", "rise", "spread"},
    "optimizers.largest_stable_lr": {"curvature"},
    "optimizers.label_noise_rate": {"lr", "curvature"},
    "optimizers.modified_equation_error": {"lr", "curvature", "weight_decay"},
    "stability.cross_threshold": {"ratio"},
    "stability.flow_time": {"end"},
}
SELF = {
    "Grams": GRAMS,
    "FeatureTask": TASK,
    "Aligned": ALIGNED,
    "EndState": END,
    "Regime": Regime,
    "Spectrum": SPECTRA,
    "Limit": theory.spectral.Limit(MATRIX, MATRIX),
}


def public_functions():
    """Functions and methods of the modules of theory, as they would be written down."""
    for module in pkgutil.iter_modules(theory.__path__):
        if module.name.startswith("_"):
            continue
        room = import_module(f"linnet.theory.{module.name}")
        for name, found in vars(room).items():
            if name.startswith("_") or getattr(found, "__module__", None) != room.__name__ or not callable(found):
                continue
            if not inspect.isclass(found):
                yield f"{module.name}.{name}", found
                continue
            for method, inner in vars(found).items():
                if not method.startswith("_") and isinstance(inner, classmethod | type(public_functions)):
                    yield f"{module.name}.{name}.{method}", inner


def the_call(name):
    """The function of a row as users have it, without the checks of types that tests add; a method with its object."""
    room, *inside = name.split(".")
    found = import_module(f"linnet.theory.{room}")
    if len(inside) == 1:
        return inspect.unwrap(getattr(found, inside[0]))
    method = getattr(SELF[inside[0]], inside[1])
    return partial(inspect.unwrap(method.__func__), SELF[inside[0]])


def test_the_table_knows_every_public_function():
    there = dict(public_functions())
    assert set(there) == set(TABLE)
    assert set(UNKNOWN) <= set(TABLE)
    for name, function in there.items():
        inner = function.__func__ if isinstance(function, classmethod) else function
        assert set(inspect.signature(inner).parameters) - {"self", "cls", "name"} == set(TABLE[name]), name


def numbers(value):
    """All numbers in a result, whatever holds them."""
    leaves = jax.tree.leaves(value, is_leaf=lambda x: x is None)
    return [np.asarray(x) for x in leaves if isinstance(x, int | float | complex | np.ndarray | np.generic | jax.Array)]


@pytest.mark.parametrize("name", TABLE)
def test_every_argument_is_refused_or_answered(name):
    call, row = the_call(name), TABLE[name]
    good = {argument: spec.good for argument, spec in row.items()}
    for x in numbers(call(**good)):
        assert np.all(np.isfinite(x)), "the good arguments are not"
    for argument, spec in row.items():
        for value, allowed in spec.probes():
            given = f"{argument} = {value!r}"
            if allowed:
                found = numbers(call(**good | {argument: value}))
                assert argument in UNKNOWN.get(name, ()) or all(np.all(np.isfinite(x)) for x in found), given
                continue
            with pytest.raises(ln.InputError) as refused:
                call(**good | {argument: value})
            told = str(refused.value)
            assert told.endswith("."), (given, told)
            assert "\n" not in told, (given, told)
            assert argument.rstrip("s") in told, (given, told)


@pytest.mark.parametrize("name", TABLE)
def test_lists_are_arrays_and_shapes_go_together(name):
    call, row = the_call(name), TABLE[name]
    good = {argument: spec.good for argument, spec in row.items()}
    many = [argument for argument, spec in row.items() if isinstance(spec, Num) and not spec.one]
    arrays = {argument: np.full(2, good[argument]) for argument in many}
    arrays |= {argument: np.asarray(spec.good) for argument, spec in row.items() if isinstance(spec, Tensor)}
    if arrays:
        as_array = call(**good | arrays)
        as_list = call(**good | {argument: value.tolist() for argument, value in arrays.items()})
        for one, two in zip(numbers(as_array), numbers(as_list), strict=True):
            np.testing.assert_array_equal(one, two)
    paired = [argument for argument in many if not row[argument].time]
    for first, second in pairwise(paired):
        with pytest.raises(ln.InputError, match=r"shapes that do not go together|has shape"):
            call(**good | {first: np.full(2, good[first]), second: np.full(3, good[second])})


MODULES = (
    "balance",
    "convergence",
    "feature",
    "flows",
    "mixed",
    "mode_fate",
    "optimizers",
    "rank_one_flow",
    "spectral",
    "stability",
)


@pytest.fixture
def compiled(monkeypatch):
    """Every formula is compiled, however few its numbers; gives the names of those that were."""
    compiled_names, real = [], _formula.evaluate

    def evaluate(formula, *given, few=0, **static):
        compiled_names.append(formula.__name__)
        return real(formula, *given, few=-1, **static)

    for module in ("_formula", *MODULES):
        if hasattr(found := import_module(f"linnet.theory.{module}"), "evaluate"):
            monkeypatch.setattr(found, "evaluate", evaluate)
    return compiled_names


@pytest.mark.parametrize("name", TABLE)
def test_numpy_and_programs_agree(name, monkeypatch, request):
    call, good = the_call(name), {argument: spec.good for argument, spec in TABLE[name].items()}
    real = _formula._compiled

    def only_traced(*program):
        """What is known and few asks no compiler."""

        def run(*given):
            assert _check.traced(given)
            return real(*program)(*given)

        return run

    with monkeypatch.context() as closed:
        closed.setattr(_formula, "_compiled", only_traced)
        known = numbers(call(**good))
    compiled_names = request.getfixturevalue("compiled")
    for one, two in zip(known, numbers(call(**good)), strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-9, atol=1e-12)
    if name == "mixed.matrix":
        assert compiled_names == ["matrix"]


def test_what_is_traced_or_large_or_empty_is_one_program():
    traced = []

    def double(xp, x):
        traced.append(xp)
        return 2 * x

    assert isinstance(_formula.evaluate(double, 1.5), jax.Array)
    assert traced == [np]
    for many in (np.ones(400), np.ones(0)):
        assert _formula.evaluate(double, many).shape == many.shape
    jax.vmap(lambda x: _formula.evaluate(double, x))(jnp.ones(3))
    assert _formula.evaluate(double, np.ones(400), few=1).shape == (400,)
    assert traced[-1] is jnp
    assert jax.grad(lambda x: _formula.evaluate(double, x))(1.0) == 2


def test_a_formula_has_the_signature_and_the_domains_that_it_declares():
    def ordered(*, low, high):
        if np.any(np.asarray(low) > np.asarray(high)):
            raise ln.InputError("low is above high.")

    @_formula.formula(ordered, low=_formula.at_least(0), high=_formula.NUMBERS)
    def middle(low, high=4.0):
        """The mean."""
        return (low + high) / 2

    assert str(inspect.signature(middle)) == "(low, high=4.0)"
    assert middle.__doc__ == "The mean."
    assert middle(2) == 3
    assert isinstance(middle([1.0, 2.0]), jax.Array)
    assert middle.raw(np.ones(2)).tolist() == [2.5, 2.5]
    with pytest.raises(ln.InputError, match="low is above high"):
        middle(5.0)
    with pytest.raises(ln.InputError, match=r"low = -1.0 is not allowed: low must be a finite number of at least 0"):
        middle(-1.0)
    with pytest.raises(ln.InputError, match=r"shapes that do not go together are not allowed: they are low \(2,\)"):
        middle([1.0, 2.0], [3.0, 4.0, 5.0])
    with pytest.raises(TypeError, match="middle: each argument must have a domain"):
        _formula.formula(low=_formula.NUMBERS)(middle.raw)


def test_many_steps_of_a_loop_are_compiled():
    kinds = []

    @_formula.formula(x=_formula.NUMBERS, steps=_formula.integer(0, loops=True))
    def power(x, steps):
        kinds.append(_check.namespace(x))
        return x**steps

    assert power(1.0, 256) == power(1.0, 257) == 1
    assert kinds == [np, jnp]


# a difference that is zero but for rounding; a search over times whose errors are of no scale that anything else has
ROUNDING = {"mixed.lazy_optimum", "mixed.early_stopping"}
SIZES = (1e-250, 1e-170, 1e160)


def of_sizes(row, most=2, sizes=SIZES):
    """The arguments of a formula with up to `most` of its numbers scaled, and with all of them scaled alike."""
    scaled = [name for name, kind in row.items() if isinstance(kind, Num | Tensor)]
    good = {name: kind.good for name, kind in row.items()}
    cases = [
        dict(zip(few, given, strict=True))
        for count in range(1, min(most, len(scaled)) + 1)
        for few in combinations(scaled, count)
        for given in product(sizes, repeat=count)
    ]
    if len(scaled) > most:
        cases += [dict.fromkeys(scaled, size) for size in sizes]
    limited = {
        name for name in scaled if getattr(row[name], "large", 1e6) < 1e6
    }  # steps, so that time is in proportion
    for case in cases:
        if any(size > 1 and name in limited for name, size in case.items()):
            continue
        yield case, good | {name: size * np.asarray(good[name], float) for name, size in case.items()}


# functions that are NaN or infinite for sizes at which that is right, with the reason
NOT_A_NUMBER = {
    "feature.mean_field": "descent that diverges",
    "feature.pair_map": "descent that diverges",
    "feature.aligned_descent": "descent that diverges",
    "feature.aligned_time": "a share that the flow never learns",
    "feature.loss_left": "training that ends before",
    "flows.sharpness_gap": "beyond its domain",
    "flows.two_cycle_variance": "a cycle on the other side of the edge",
    "mixed.mode_time": "an end that is not between start and target",
    "optimizers.label_noise_rate": "a learning rate that is not stable",
    "spectral.log_det_objective": "the logarithm of what is not positive",
}
_BEYOND = "its value is beyond double precision"
INFINITE = dict.fromkeys(
    (
        "balance.Grams.similarity",
        "convergence.aligned_time",
        "convergence.scaled_time",
        "convergence.distance_rate",
        "convergence.distance_rate_bound",
        "convergence.far_rate",
        "convergence.near_rates",
        "convergence.near_rate",
        "convergence.largest_lr",
        "convergence.escape_time_one_output",
        "feature.mean_field",
        "feature.pair_map",
        "feature.aligned_descent",
        "mode_fate.escape_steps",
        "spectral.hitting_time",
        "spectral.log_det_objective",
        "spectral.stationarity",
        "spectral.label_noise",
        "feature.EndState.kernel",
        "feature.aligned_time",
        "feature.amplitudes",
        "feature.cubic_map",
        "feature.end_state",
        "feature.expected_amplitudes",
        "feature.flow_growth",
        "feature.growth",
        "feature.imbalance_step",
        "feature.step_limits",
        "flows.catapult",
        "mixed.descent_bound",
        "mixed.largest_lr",
        "mixed.misalignment_bound",
        "mixed.mode_sharpness",
        "mixed.mode_time",
        "mixed.pair_rate",
        "mixed.recovery",
        "mixed.spiked_signals",
        "optimizers.decayed_curvatures",
        "optimizers.decayed_sharpness",
        "optimizers.label_noise_rate",
        "stability.escape_time",
        "stability.flow_growth",
        "stability.flow_sharpness",
        "stability.kappa",
        "stability.mode_curvature",
        "stability.onset_amplitude",
        "stability.one_zero_loss",
        "stability.orbit",
        "stability.pair_curvatures",
    ),
    _BEYOND,
) | {
    "optimizers.modified_equation_error": "a direction that oscillates",
    "stability.cross_threshold": "a cycle that is stable until it disappears",
    "stability.flow_time": "a value behind the target",
    "rank_one_flow.passage_time": "a level that is never passed",
    "rank_one_flow.transition_time": "a level that is never passed",
}


@pytest.mark.parametrize("name", TABLE)
def test_numbers_of_any_size_are_answered_or_refused(name):
    """No error but a sentence, no NaN, and nothing infinite, unless that is right."""
    call, found = the_call(name), []
    for sizes, given in of_sizes(TABLE[name], most=1):
        try:
            with np.errstate(all="ignore"):
                known = numbers(call(**given))
        except ln.InputError:
            continue
        except Exception as error:
            found.append((sizes, f"{type(error).__name__}: {error}"))
            continue
        if name not in NOT_A_NUMBER and any(np.any(np.isnan(x)) for x in known):
            found.append((sizes, "NaN"))
        if name not in INFINITE and any(np.any(np.isinf(x)) for x in known):
            found.append((sizes, "infinite"))
    assert found == []


def test_reasons_are_of_functions():
    assert set(NOT_A_NUMBER) | set(INFINITE) <= set(TABLE)


def test_numbers_of_any_size_are_right():
    """Formulas against themselves in longer numbers, wherever those have a value that is a double."""
    compared, wrong = set(), {}
    for name, row in TABLE.items():
        call = the_call(name)
        if name in ROUNDING or not hasattr(call, "raw"):
            continue
        for sizes, given in of_sizes(row):
            longer = {key: np.longdouble(x) if isinstance(x, float | np.ndarray) else x for key, x in given.items()}
            with np.errstate(all="ignore"):
                try:
                    known = jax.tree.leaves(call(**given))
                except ln.InputError:
                    continue
                try:
                    exact = jax.tree.leaves(call.raw(**longer))
                except (TypeError, ValueError, OverflowError):  # linear algebra has no longer numbers
                    continue
                for one, two in zip(map(np.asarray, known), map(np.longdouble, exact), strict=True):
                    sure = (np.abs(two) < 1e300) & (np.abs(two) > 1e-300)  # others have no double
                    compared.add(name)
                    if not np.all(np.abs(one - two)[sure] <= 1e-6 * np.abs(two)[sure]):
                        wrong.setdefault(name, []).append(sizes)
    assert wrong == {}
    assert len(compared) > 40


@pytest.mark.parametrize("size", [1e-200, 1e160])
def test_the_potential_of_any_size(size):
    """It is homogeneous: psi(k A, k gamma) = k^1.5 psi(A, gamma)."""
    a, gamma = np.array([1.0, 2.0]), 1e-3
    one, other = (
        [np.asarray(f(k * a, k * gamma)) for f in (theory.spectral.potential_gradient, theory.spectral.potential)]
        for k in (1.0, size)
    )
    np.testing.assert_allclose(other[0] / np.sqrt(size), one[0], rtol=1e-14)
    np.testing.assert_allclose(other[1], size**1.5 * one[1], rtol=1e-13)


HOMOGENEOUS = {  # functions without `raw`: arguments with the power of the scale in each, and that of the results
    "optimizers.largest_batch_lr": ({"hessians": 1}, (-1,)),
    "optimizers.largest_online_lr": ({"curvatures": 1}, (-1,)),
    "optimizers.batch_spectral_radius": ({"hessians": 1, "lr": -1}, (0,)),
    "flows.mean_square_edge": ({"hessians": 1}, (-1, 0)),
    "flows.batch_ratios": ({"hessians": 1, "covariance": -1}, (1, 1, 1)),
    "mixed.alignment_rate": ({"levels": 1}, (1,)),
    "mixed.misalignment_bound": ({"matrix": 1, "target": 1}, (0,)),
    "stability.cross_eigenvector": ({"first": 1, "second": 1}, (0,)),
    "rank_one_flow.coordinates": ({"left": 1, "right": -1}, (0, 0, 0, 0, 0, 0)),
}


@pytest.mark.parametrize("size", [1e-250, 1e-170, 1e160])
@pytest.mark.parametrize("name", HOMOGENEOUS)
def test_scale_factors_are_taken_out(name, size):
    call, good = the_call(name), {argument: kind.good for argument, kind in TABLE[name].items()}
    powers, degrees = HOMOGENEOUS[name]
    scaled = {argument: np.asarray(good[argument], float) * size**power for argument, power in powers.items()}
    given = {argument: float(x) if x.ndim == 0 else x for argument, x in scaled.items()}
    for one, two, degree in zip(numbers(call(**good)), numbers(call(**good | given)), degrees, strict=True):
        np.testing.assert_allclose(two * size**-degree, one, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("size", [1e-170, 1e160])
def test_noise_and_gradient_flows_of_any_size(size):
    """E[g^T H g]/E|g|^2 is independent of the noise, and layer values are homogeneous in s^{1/L}."""
    good = {name: kind.good for name, kind in TABLE["flows.stationary"].items()}
    known = theory.flows.stationary(**good)
    scaled = theory.flows.stationary(**good | {"hessians": HESSIANS * size, "noise": MATRIX * size, "lr": 0.1 / size})
    assert scaled.interaction / size == pytest.approx(known.interaction, rel=1e-12)
    np.testing.assert_allclose(scaled.covariance, known.covariance, rtol=1e-12)
    with pytest.raises(ln.InputError, match="the covariance is beyond double precision"):
        theory.flows.stationary(**good | {"noise": MATRIX * size})
    s, initial = 2 * size, np.array([0.0, 0.1]) * size**0.5
    one, two = theory.stability.flow_values(initial, s), theory.stability.flow_values(initial / size**0.5, 2.0)
    np.testing.assert_allclose(one / size**0.5, two, rtol=1e-11)
    alpha = 0.1 * size ** (1 / 3)
    value = float(theory.stability.flow_sharpness(alpha, s, 3)) / size ** (4 / 3)
    assert value == pytest.approx(float(theory.stability.flow_sharpness(0.1, 2.0, 3)), rel=1e-10)


def test_sharpness_of_flows_at_extremes():
    """Where alpha is beside s^{1/L}: x = s/alpha^{L-1}, so Psi = alpha^{2L-2}; where it is not, L s^{2-2/L}."""
    assert float(theory.stability.flow_sharpness(0.1, 2e-170, 3)) == pytest.approx(1e-4, rel=1e-10)
    assert float(theory.stability.flow_sharpness(0.1, 2e160, 3)) == pytest.approx(3 * (2e160) ** (4 / 3), rel=1e-10)
    assert float(theory.stability.flow_sharpness(1e70, 2.0, 3)) == pytest.approx(1e280, rel=1e-10)
    np.testing.assert_allclose(theory.stability.flow_values([1e160, 2e160], 2.0), [2 / 3**0.5 / 1e160, 3**0.5 * 1e160])


@pytest.mark.parametrize("size", [1e-250, 1e-170, 1e160])
def test_variances_without_a_double_are_refused(size):
    with pytest.raises(ln.InputError, match="their variance is no number in double precision"):
        theory.optimizers.batch_variance(VALUES * size, 1)
    with pytest.raises(ln.InputError, match="their squares are no numbers in double precision"):
        theory.mixed.lazy_optimum(MATRIX * size, MATRIX.T * size)
    assert theory.optimizers.batch_variance([size, size], 1) == 0
    assert theory.optimizers.batch_variance(VALUES * 1e-120, 1) == pytest.approx(0.25e-240, rel=1e-12)


@pytest.mark.quick(1)
@pytest.mark.parametrize("factor", [{"time": 1e160}, {"time": 1e6, "samples": 1e160}])
def test_two_layers_make_no_steps_without_end(factor):
    with pytest.raises(ln.InputError, match="composed steps"):
        convergence.two_layers(**{"time": 1.0, "initial": MATRIX, "target": MATRIX} | factor)
