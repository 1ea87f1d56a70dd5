"""What is known of PyTorch optimizers as linear filters of the gradient behind a frozen preconditioner.

With P and all coefficients as in its last step, a step is w_{k+1} = (1 - lr d) w_k - lr F((H w + m w) / P). Corrections
of the first moment's bias are left out: they are over long before P has seen as many steps as it averages. An optimizer
whose step has a length that does not depend on the gradient's has no such form.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from linnet import _update as update

Group = Mapping[str, Any]  # settings of a group of parameters
State = Mapping[str, Any]  # of one parameter


def _zero(group: Group, state: State) -> float:
    return 0.0


class Known(NamedTuple):
    """Functions of a group, of the state of one of its parameters, and of the parameter.

    `gain` is the step that alternating gradients of size 1 lead to, over lr; `preconditioner` is P; `inside` is the
    decay m that is added to the gradient, `beside` the decoupled d; `memory` the steps that P averages over.
    """

    gain: Callable[[Group, State, torch.Tensor], float]
    preconditioner: Callable[[Group, State, torch.Tensor, torch.dtype], torch.Tensor] | None = None
    inside: Callable[[Group, State], float] = lambda group, state: float(group.get("weight_decay", 0.0))
    beside: Callable[[Group, State], float] = _zero
    memory: Callable[[Group], float] = lambda group: 0.0


def age(group: Group, state: State) -> float:
    """The steps that a parameter has made."""
    return float(state.get("step", group.get("k", 0)))


# Gains ---------------------------------------------------------------------------------------------------------------


def _heavy_ball(group: Group, state: State, weight: torch.Tensor) -> float:
    b, dampening = float(group.get("momentum", 0.0)), float(group.get("dampening", 0.0))
    return float(update.alternating_gain(b, dampening, nesterov=bool(group.get("nesterov"))))


def _averaged(group: Group, state: State, weight: torch.Tensor) -> float:
    b = float(group["betas"][0])
    return float(update.alternating_gain(b, b, nesterov=False))


def _nadam(group: Group, state: State, weight: torch.Tensor) -> float:
    """(1 - mu_t) g + mu_{t+1} m: the coefficients approach b over thousands of steps."""
    b, step = float(group["betas"][0]), age(group, state)
    now, then = (b * (1 - 0.5 * 0.96 ** (t * float(group["momentum_decay"]))) for t in (step, step + 1))
    return 1 - now + then * _averaged(group, state, weight)


def _adagrad(group: Group, state: State, weight: torch.Tensor) -> float:
    return 1 / (1 + max(0.0, age(group, state) - 1) * float(group["lr_decay"]))


def _adafactor(group: Group, state: State, weight: torch.Tensor) -> float:
    """Its lr is relative to the parameter's size. Clipping, which only makes steps shorter, is left out."""
    rate = min(float(group["lr"]), max(1.0, age(group, state)) ** -0.5)
    size = float(weight.detach().double().square().mean().sqrt())
    return max(float(group["eps"][1]), size) * rate / float(group["lr"])


def _asgd(group: Group, state: State, weight: torch.Tensor) -> float:
    return float(state["eta"]) / float(group["lr"]) if "eta" in state else 1.0


def _schedule_free(group: Group, state: State, weight: torch.Tensor) -> float:
    """z' = z - lr g(y), x' = (1 - c) x + c z', y = (1 - b) z + b x: where all alternate, z is lr g / 2 and x is
    c z / (c - 2), up to the sign.
    """
    b, k = float(group["betas"][0] if "betas" in group else group["momentum"]), float(group["k"])
    weights, warmup = float(group["weight_sum"]), float(group.get("warmup_steps", 0))
    share = k ** float(group["r"]) * float(group["lr_max"]) ** float(group["weight_lr_power"]) if k else 0.0
    c = share / weights if weights else 0.0
    scale = min(1.0, k / warmup) if warmup and k else 1.0
    scale *= math.sqrt(1 - float(group["betas"][1]) ** k) if "betas" in group and k else 1.0
    return scale * (1 - b + c * b / (2 - c))


# Preconditioners -----------------------------------------------------------------------------------------------------


def _adam(group: Group, state: State, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    square = state["max_exp_avg_sq" if group.get("amsgrad") else "exp_avg_sq"].to(dtype)
    unbiased = square / (1 - float(group["betas"][1]) ** age(group, state))
    return unbiased.sqrt() + float(group["eps"])


def _schedule_free_adam(group: Group, state: State, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    root: torch.Tensor = state["exp_avg_sq"].to(dtype).sqrt()
    return root + float(group["eps"])


def _radam(group: Group, state: State, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Adam's over its rectification; 1 in the first steps, which are not preconditioned."""
    b, step = float(group["betas"][1]), age(group, state)
    longest = 2 / (1 - b) - 1
    length = longest - 2 * step * b**step / (1 - b**step)
    if length <= 5:
        return torch.ones_like(weight, dtype=dtype)
    shrunk = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    root: torch.Tensor = state["exp_avg_sq"].to(dtype).sqrt()
    return (root + float(group["eps"])) / math.sqrt(shrunk * (1 - b**step))


def _adamax(group: Group, state: State, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    largest: torch.Tensor = state["exp_inf"].to(dtype)
    return largest


def _rmsprop(group: Group, state: State, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    square = state["square_avg"].to(dtype)
    if group["centered"]:
        square = square - state["grad_avg"].to(dtype) ** 2
    return square.clamp(min=0).sqrt() + float(group["eps"])


def _adadelta(group: Group, state: State, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    squares = (state[name].to(dtype) + float(group["eps"]) for name in ("square_avg", "acc_delta"))
    of_gradients, of_steps = squares
    return (of_gradients / of_steps).sqrt()


def _adagrad_sum(group: Group, state: State, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    root: torch.Tensor = state["sum"].to(dtype).sqrt()
    return root + float(group["eps"])


def _factored(group: Group, state: State, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    least = group["eps"][0]
    least = torch.finfo(weight.dtype).eps if least is None else float(least)
    if "variance" in state:
        square = state["variance"].to(dtype)
    else:
        rows, columns = state["row_var"].to(dtype), state["col_var"].to(dtype)
        square = rows @ columns / rows.mean(dim=-2, keepdim=True).clamp(min=least)
    root: torch.Tensor = square.clamp(min=least**2).sqrt()
    return root


# The tables ----------------------------------------------------------------------------------------------------------


def _split(group: Group) -> tuple[float, float]:
    """Weight decay inside of the gradient and beside it."""
    decay = float(group.get("weight_decay", 0.0))
    return (0.0, decay) if group.get("decoupled_weight_decay") else (decay, 0.0)


def _second(group: Group) -> float:
    return 1 / (1 - float(group["betas"][1]))


_ADAM = Known(_averaged, _adam, lambda g, s: _split(g)[0], lambda g, s: _split(g)[1], _second)
_KNOWN: dict[type, Known] = {
    torch.optim.SGD: Known(_heavy_ball),
    torch.optim.ASGD: Known(_asgd, beside=lambda g, s: float(g["lambd"]) * _asgd(g, s, torch.empty(0))),
    torch.optim.Adam: _ADAM,
    torch.optim.AdamW: _ADAM,
    torch.optim.NAdam: _ADAM._replace(gain=_nadam),
    torch.optim.RAdam: _ADAM._replace(preconditioner=_radam),
    torch.optim.Adamax: _ADAM._replace(preconditioner=_adamax),
    torch.optim.RMSprop: Known(_heavy_ball, _rmsprop, memory=lambda g: 1 / (1 - float(g["alpha"]))),
    torch.optim.Adadelta: Known(lambda g, s, w: 1.0, _adadelta, memory=lambda g: 1 / (1 - float(g["rho"]))),
    torch.optim.Adagrad: Known(_adagrad, _adagrad_sum),
    torch.optim.Adafactor: Known(_adafactor, _factored, inside=_zero, beside=lambda g, s: float(g["weight_decay"])),
}
_KNOWN_BY_NAME = {  # of the package schedulefree
    "SGDScheduleFree": Known(_schedule_free),
    "AdamWScheduleFree": Known(  # its decay is added to g/P
        _schedule_free,
        _schedule_free_adam,
        inside=_zero,
        beside=lambda g, s: float(g["weight_decay"]) * _schedule_free(g, s, torch.empty(0)),
        memory=_second,
    ),
}
_SIGNS = "its steps are signs, whose length does not depend on the gradient"
_UNKNOWN = {  # parts of names
    "Lion": _SIGNS,
    "SignSGD": _SIGNS,
    "Signum": _SIGNS,
    "Rprop": _SIGNS,
    "Muon": "all singular values of its steps are equal, whatever the gradient",
    "LBFGS": "its steps use a model of the curvature that changes at each of them",
    "SparseAdam": "rows without a gradient do not move",
    "8bit": "its state is quantized",
}


def known(optimizer: torch.optim.Optimizer) -> Known | str:
    """What is known of an optimizer, or why it has no stability threshold, in one sentence."""
    kind = type(optimizer)
    name = kind.__name__
    if any(group.get("maximize") for group in optimizer.param_groups):
        return f"{name} has no stability threshold: it maximizes."
    if kind in _KNOWN:
        return _KNOWN[kind]
    if name in _KNOWN_BY_NAME and all("weight_sum" in group for group in optimizer.param_groups):
        return _KNOWN_BY_NAME[name]
    for part, reason in _UNKNOWN.items():
        if part in name:
            return f"{name} has no stability threshold: {reason}."
    return f"{name} has no known stability threshold."
