"""Observables: functions of a state and a problem that a run can record by name."""

import difflib

from linnet._check import InputError
from linnet.observe.averages import critical_directions, oscillation, predicted_loss
from linnet.observe.batches import batch_sharpness, gradient_noise_interaction, mean_square_ratio
from linnet.observe.consecutive_steps import on, only, path
from linnet.observe.frames import Split, Window, excess, step_split, value_shares, window
from linnet.observe.hessian import (
    adaptive_sharpness,
    aligned_blocks,
    aligned_sharpness,
    aligned_spectrum,
    curvature,
    gauss_newton_product,
    gauss_newton_sharpness,
    hessian_density,
    hessian_matrix,
    hessian_product,
    hessian_spectrum,
    preconditioned_sharpness,
    residual_extremes,
    residual_product,
    sharpness,
    top_hessian,
)
from linnet.observe.kernel import (
    kernel_cosine,
    kernel_distance,
    kernel_drift,
    kernel_matrix,
    kernel_spectrum,
    label_kernel,
    refined_distance,
    refined_kernel,
    sample_kernel,
    slope,
    target_distance,
    target_kernel,
)
from linnet.observe.landscape import Kind, Point, classify
from linnet.observe.layers import (
    balance_drift,
    grams,
    hidden_alignment,
    imbalance,
    input_gram,
    layer_alignment,
    misalignment,
    output_gram,
    rotated,
    subspace_distance,
)
from linnet.observe.noise import gradient_noise, gradient_noise_top
from linnet.observe.observables import Observable, ObservationContext, observable
from linnet.observe.spectra import (
    accuracy,
    closure_error,
    effective_rank,
    layer_gaps,
    layer_modes,
    layer_singular_values,
    loss,
    losses,
    matrix,
    modes,
    on_second,
    singular_values,
    stable_rank,
    test_accuracy,
    test_error,
)

__all__ = [
    "Kind",
    "Observable",
    "ObservationContext",
    "Point",
    "Split",
    "Window",
    "accuracy",
    "adaptive_sharpness",
    "aligned_blocks",
    "aligned_sharpness",
    "aligned_spectrum",
    "balance_drift",
    "batch_sharpness",
    "classify",
    "closure_error",
    "critical_directions",
    "curvature",
    "effective_rank",
    "excess",
    "gauss_newton_product",
    "gauss_newton_sharpness",
    "gradient_noise",
    "gradient_noise_interaction",
    "gradient_noise_top",
    "grams",
    "hessian_density",
    "hessian_matrix",
    "hessian_product",
    "hessian_spectrum",
    "hidden_alignment",
    "imbalance",
    "input_gram",
    "kernel_cosine",
    "kernel_distance",
    "kernel_drift",
    "kernel_matrix",
    "kernel_spectrum",
    "label_kernel",
    "layer_alignment",
    "layer_gaps",
    "layer_modes",
    "layer_singular_values",
    "loss",
    "losses",
    "matrix",
    "mean_square_ratio",
    "misalignment",
    "modes",
    "named",
    "observable",
    "on",
    "on_second",
    "only",
    "oscillation",
    "output_gram",
    "path",
    "preconditioned_sharpness",
    "predicted_loss",
    "refined_distance",
    "refined_kernel",
    "residual_extremes",
    "residual_product",
    "rotated",
    "sample_kernel",
    "sharpness",
    "singular_values",
    "slope",
    "stable_rank",
    "step_split",
    "subspace_distance",
    "target_distance",
    "target_kernel",
    "test_accuracy",
    "test_error",
    "top_hessian",
    "value_shares",
    "window",
]


def named(name: str) -> Observable:
    """The observable called `name`."""
    found = globals().get(name)
    if isinstance(found, Observable):
        return found
    if callable(found):
        raise InputError(f"observable {name!r} takes arguments: give observe.{name}(...) instead of its name.")
    known = sorted(key for key, value in globals().items() if isinstance(value, Observable))
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"it must be one of {', '.join(known)}."
    raise InputError(f"observable {name!r} is not known: {hint}")
