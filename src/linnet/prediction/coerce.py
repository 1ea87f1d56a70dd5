"""What a topic is asked about: a regression, or the singular values of a target on whitened inputs."""

import math
from typing import Any

import numpy as np

from linnet import _check, problems
from linnet._check import InputError
from linnet.linalg import RANK_TOLERANCE
from linnet.prediction import validation
from linnet.prediction.data import OwnSamples
from linnet.problems import Factorization, Problem, Regression
from linnet.states import State, Weights


def whitened(
    spectrum: Any, *, inputs: int | None = None, outputs: int | None = None, samples: int | None = None
) -> Regression:
    """Whitened inputs, and labels that can be fitted: C(A) = c/2 |A - Z|^2, Z of these singular values (zeros allowed).

    By default X = I, so that c = 1 and the times of training are those of the target alone; with `samples` = n >= d_in
    it is X^T X = n I, so c = n, as inputs of unit covariance have it. Z is diagonal, and by default square.

    `spectrum` are these singular values, `inputs` and `outputs` the dimensions of Z.
    """
    z = validation.spectrum(spectrum, zeros=True, ratio=1e12)
    d_in, d_out = (
        _check.integer(name, len(z) if value is None else value, least=len(z), most=2000, reason="the modes given")
        for name, value in (("inputs", inputs), ("outputs", outputs))
    )
    n, c = d_in, 1.0
    if samples is not None:
        n = _check.integer("samples", samples, least=d_in, most=10**9, reason="whitened data need n >= d_in")
        c = float(n)
    target = np.zeros((d_out, d_in))
    np.fill_diagonal(target[: len(z), : len(z)], z)
    root = math.sqrt(c) * np.eye(d_in)
    x, y, zero, one = (_check.floating(value) for value in (root, target @ root, 0.0, 1.0))
    return Regression(x, y, zero, one, one, n)


def regression(problem: Any, *, samples: bool | None = None) -> Regression:
    """The regression that was given, with something to learn in it: by itself, as users' samples (`read_regression`) or
    as a spectrum (`whitened`). `samples` says whether users' samples are kept one by one.
    """
    if isinstance(problem, OwnSamples):
        problem = problems.regression(*problem, average=problem.average, samples=samples)
    if not isinstance(problem, Problem):
        return whitened(problem)
    if isinstance(problem, Factorization) and len(problem.shape) == 2:  # the same cost, on inputs X = I
        identity, zero, one = (_check.floating(value) for value in (np.eye(problem.shape[1]), 0.0, 1.0))
        problem = Regression(identity, problem.goal, zero, problem.scale, one, problem.shape[1])
    if not isinstance(problem, Regression) or len(problem.shape) != 2:
        kind = f"{type(problem).__name__} of shape {problem.shape}"
        raise InputError(
            f"problem = {kind} is not allowed: problem must be a regression on a matrix, or singular values of a "
            "target, such as [3, 1]."
        )
    if _check.traced(problem):
        raise InputError("problem is traced: predictions are made for known numbers.")
    for name, array in (("inputs", problem.root), ("labels", problem.labels)):
        size = float(np.max(np.abs(array)))
        if size > 0 and not validation.SMALLEST < size < validation.LARGEST:
            allowed = f"give them in units that keep them between {validation.SMALLEST:g} and {validation.LARGEST:g}"
            raise InputError(f"problem has {name} that reach {size:.3g}: {allowed}.")
    explained = float(np.linalg.norm(np.asarray(problem.project().problem.labels)))
    if explained <= RANK_TOLERANCE * math.sqrt(float(problem.square)):
        raise InputError("problem has labels that are zero or orthogonal to its inputs: there is nothing to learn.")
    return problem


def same_shape(network: State, shape: tuple[int, ...]) -> None:
    """Raises `InputError` if the network's matrix has another shape than the problem needs."""
    given = (network.widths[-1], network.widths[0]) if isinstance(network, Weights) else np.shape(network.matrix)
    if given != shape:
        raise InputError(f"network gives a matrix of shape {given}, and the problem needs {shape}.")


def prepared(problem: Any) -> tuple[str, ...]:
    """What was done to users' samples before they came here."""
    return problem.prepared if isinstance(problem, OwnSamples) else ()


def preparation_notes(prepared: tuple[str, ...]) -> tuple[str, ...]:
    """What was done to users' samples (`prepared`) as a sentence, where there was anything."""
    text = "; ".join(prepared)
    return (f"{text[:1].upper()}{text[1:]}.",) if text else ()


def anisotropy(problem: Regression) -> float:
    """How far inputs are from white: 1 minus the smallest over the largest eigenvalue of X^T X."""
    scales = problem.singular_values
    return float(1 - (scales[-1] / scales[0]) ** 2) if len(scales) == problem.shape[1] else 1.0


def curvature(problem: Regression) -> float:
    """c of the loss c/2 |A - Z|^2 on white inputs, the mean over inputs where they are not."""
    whole = float(np.sum(np.square(problem.root)))
    return float(problem.scale) * float(problem.output_scale) ** 2 * whole / problem.shape[1]


def white(problem: Regression) -> tuple[Regression, float]:
    """The regression itself if X^T X is a multiple of the identity, else its whitening; and how far it was from it."""
    d_in = problem.shape[1]
    if len(problem.root) < d_in:
        raise InputError(
            f"problem cannot be whitened: {problem.samples} samples for {d_in} inputs; give at least as many samples "
            "as inputs, or fewer columns."
        )
    rank = len(problem.singular_values)
    if rank < d_in:
        raise InputError(
            f"problem cannot be whitened: its {d_in} inputs have rank {rank}; leave out columns that depend on others."
        )
    spread = anisotropy(problem)
    return (problem if spread <= 1e-9 else problem.whiten().problem), spread


def normalization(problem: Regression) -> str:
    """`sum`, `mean`, or the loss as a formula."""
    scale, stretch = float(problem.scale), float(problem.output_scale)
    if stretch == 1 and scale == 1:
        return "sum"
    if stretch == 1 and math.isclose(scale * problem.samples, 1):
        return "mean"
    return f"{scale:.4g}/2 |{stretch:.4g} X A^T - Y|^2"
