"""What the compiler is told."""

import contextlib
import functools
from typing import Any

import jax
import numpy as np

_OLDER = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}


@functools.cache
def hurried(*, optimised: bool = True) -> dict[str, Any]:
    """Options for `jax.jit` on a CPU, where this version of XLA knows them; elsewhere none.

    XLA's older kernels, written in one piece, run as fast as the newer ones in our programs and compile in half the
    time. Without optimisation that is a tenth, for what runs once.
    """
    told = {} if optimised else {"xla_backend_optimization_level": 0}
    if jax.default_backend() != "cpu":
        return {}
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        jax.jit(lambda: np.zeros(()), compiler_options={**told, **_OLDER})()
        return {**told, **_OLDER}
    return told


def unrounded() -> contextlib.AbstractContextManager[Any]:
    """Where products of single-precision numbers are made in single precision, as PyTorch makes them.

    GPUs would round the factors to ten bits otherwise, of which curvature would keep none. A user's own choice of
    `jax_default_matmul_precision` stands.
    """
    own = jax.config.values["jax_default_matmul_precision"] is not None
    return contextlib.nullcontext() if own else jax.default_matmul_precision("highest")


def inside(value: Any) -> bool:
    """Whether JAX is tracing any part of `value`, or the function that we are in: its compiler has the options then."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((value, jax.device_put(0))))
