"""What the compiler is told."""

import contextlib
import functools
from typing import Any

import jax
import numpy as np

_PLAIN = {"xla_gpu_enable_triton_gemm": False}
_OLDER = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}


@functools.cache
def hurried(*, optimised: bool = True) -> dict[str, Any]:
    """Options for `jax.jit`, where this version of XLA knows them.

    On a CPU XLA's older kernels, written in one piece, run as fast as the newer ones in our programs and compile in
    half the time. Without optimisation that is a tenth, for what runs once. On a GPU products are left to its library:
    kernels of XLA's own are no faster here, and to try them out takes most of a minute for a network at the edge.
    """
    if jax.default_backend() == "cpu":
        told: dict[str, Any] = {} if optimised else {"xla_backend_optimization_level": 0}
        return {**told, **_known({**told, **_OLDER})}
    return _known(_PLAIN) if jax.default_backend() == "gpu" else {}


def _known(options: dict[str, Any]) -> dict[str, Any]:
    """These options, or none where XLA does not know one of them."""
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        jax.jit(lambda: np.zeros(()), compiler_options=options)()
        return options
    return {}


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
