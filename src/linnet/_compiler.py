"""Options of the XLA compiler."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.extend
import numpy as np
from jax.custom_batching import sequential_vmap
from jax.experimental.xla_metadata import set_xla_metadata

_T = TypeVar("_T")

_PLAIN = {"xla_gpu_enable_triton_gemm": False}
_OLDER = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
_ONE_KERNEL = {"xla_cpu_small_call": "true", "inlineable": "false"}
_LITTLE = 1 << 14  # bytes that one kernel may carry
_ARITHMETIC = {
    *("add", "sub", "mul", "div", "neg", "abs", "sign", "square", "integer_pow", "pow", "sqrt", "rsqrt", "exp", "log"),
    *("expm1", "log1p", "tanh", "logistic", "sin", "cos", "max", "min", "reduce_sum", "reduce_max", "reduce_min"),
    *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "select_n", "convert_element_type", "stop_gradient"),
    *("broadcast_in_dim", "reshape", "squeeze", "transpose", "slice", "copy"),
    *("while", "scan", "jit", "pjit", "closed_call", "custom_jvp_call"),
}


@functools.cache
def hurried(*, optimized: bool = True) -> dict[str, Any]:
    """Options for `jax.jit`, where this version of XLA has them.

    On a CPU XLA's older kernels, written in one piece, run as fast as the newer ones in our programs and compile in
    half the time. Without optimization that is a tenth, for what runs once. On a GPU products are left to its library:
    kernels of XLA's own are no faster here, and autotuning them takes most of a minute for a network at the edge.
    """
    if jax.default_backend() == "cpu":
        options: dict[str, Any] = {} if optimized else {"xla_backend_optimization_level": 0}
        return {**options, **_supported({**options, **_OLDER})}
    return _supported(_PLAIN) if jax.default_backend() == "gpu" else {}


def in_one_kernel(function: Callable[..., _T], *arguments: Any) -> _T:
    """function(*arguments), in a program that is compiled in a hurry.

    On a CPU XLA makes one kernel of it, if it is arithmetic alone and carries little. It starts the kernels of a loop
    one by one, which takes as long as what they do to matrices of ten rows, and writes one for the smallest loops only,
    and for calls with this mark. The newer kernels cannot be a part of another.
    """
    if _OLDER.keys() <= hurried().keys():
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        carried = sum(x.size * x.dtype.itemsize for x in closed.in_avals)
        if carried <= _LITTLE and _is_arithmetic(closed.jaxpr):
            run = jax.jit(jax.extend.core.jaxpr_as_fun(closed))
            with set_xla_metadata(**_ONE_KERNEL):
                leaves = run(*jax.tree.leaves(arguments))
            result: _T = jax.tree.unflatten(jax.tree.structure(shape), leaves)
            return result
    return function(*arguments)


def one_by_one(function: Callable[..., _T], *arguments: Any) -> _T:
    """function(*arguments), which a CPU under `jax.vmap` calls for one member after the other.

    For functions whose loops and branches differ between members. In a batch all of them make the iterations of the
    slowest, and both branches; a CPU, which gains little from batches of small matrices, would only wait.
    """
    if jax.default_backend() != "cpu":
        return function(*arguments)
    # with what it closes over as an argument: members may differ there, too
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)

    def run(constants: list[Any], leaves: list[Any]) -> list[Any]:
        made: list[Any] = jax.extend.core.jaxpr_as_fun(jax.extend.core.ClosedJaxpr(closed.jaxpr, constants))(*leaves)
        return made

    leaves: Any = sequential_vmap(run)(closed.consts, jax.tree.leaves(arguments))
    result: _T = jax.tree.unflatten(jax.tree.structure(shape), leaves)
    return result


def _is_arithmetic(jaxpr: jax.extend.core.Jaxpr) -> bool:
    """Whether it is made of what XLA can write into one kernel: library calls are not, nor products for them."""
    inner = jax.extend.core.jaxprs_in_params
    return all(
        str(step.primitive) in _ARITHMETIC and all(_is_arithmetic(part) for part in inner(step.params))
        for step in jaxpr.eqns
    )


def _supported(options: dict[str, Any]) -> dict[str, Any]:
    """These options, or none where XLA does not have one of them."""
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


def cpu() -> contextlib.AbstractContextManager[Any]:
    """Where small things are computed on a CPU whatever JAX's device is, if JAX has one."""
    with contextlib.suppress(RuntimeError):
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    return contextlib.nullcontext()
