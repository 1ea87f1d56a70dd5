"""What `Situation.predict` says of random situations, against exact training by a program of its own.

    python benchmarks/trust.py [--count 1000] [--seed 0] [--only INDEX]

Samples of any rank and condition with three normalizations of the loss, adapters beside frozen matrices; depths 1 to 4
with bottlenecks; initializations Gaussian, balanced, with a zero last layer, and PyTorch's; SGD plain, with momentum of
all three kinds, with weight decay of both kinds, and on batches; learning rates chosen by Linnet, up to 98 % of the
largest stable one, and beyond it. Training is a loop over matrices in NumPy that shares no code with the predictions.

Prints the table of docs/trust.md and, before it, every answer that is wrong. With `--out FILE` the answers of each
situation are appended to FILE, a line of JSON for each, and situations that are there already are not repeated.

Cycle, chaos, and flips are checked by the orbits that the modes of the trained network are on in the end: for a period
of up to half of the last 8,192 steps, and for whether a second training from weights that differ by 1e-9 separates from
the first. An orbit that shows neither, or that is still settling, is counted as not checked.
"""

import argparse
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.progress import track

import linnet as ln
from linnet import prediction

LONGEST = 40_000  # steps of training that are made to check a prediction; what is predicted for later is not checked
SETTLED = 5000  # steps beyond the predicted ones after which a run should have settled
LATE = 512  # steps that show whether a run is at rest
ORBIT, SETTLING = 8192, 64  # steps in which a period is looked for, and periods to which an orbit may still be settling
DIFFER, APART = 1e-9, 1e-3  # relative: between two copies of the initialization, and between those that have separated
DIRECTIONS = 16  # of the weights that change the outputs: with more the second moments are too large a matrix
REST = 1e-6  # relative: a run that moves by less is at rest
STATED = 2.0  # a time is right within so many of its stated errors
NEAR = 0.01  # of a mode: it is at its target, or at 0
MOVING = ("cycle", "chaos", "flips")  # words for what is bounded and never at rest
EDGE = 0.02  # a largest stable learning rate is right to this share
_TORCH = ("kaiming_uniform", "kaiming_normal", "xavier_uniform", "xavier_normal", "torch_linear")


class Samples(NamedTuple):
    """The cost scale/2 |stretch X A^T - Y|^2, with what a user gives for it."""

    x: np.ndarray
    y: np.ndarray
    scale: float
    stretch: float
    frozen: np.ndarray | None = None  # the matrix beside which an adapter is trained: it is no part of the cost
    alpha: float = 1.0  # stretch of an adapter, which the situation adds

    @property
    def problem(self) -> Any:
        """The regression as a user builds it."""
        average = self.scale != 1.0
        if self.frozen is not None:
            labels = self.y + self.x @ self.frozen.T
            return prediction.read_regression(self.x, labels, frozen=self.frozen, average=average)
        return ln.regression(self.x, self.y, average=average, output_scale=self.stretch / self.alpha)

    def gradient(self, matrix: np.ndarray) -> np.ndarray:
        """dC/dA."""
        return self.scale * self.stretch * (self.stretch * matrix @ self.x.T - self.y.T) @ self.x


class Case(NamedTuple):
    """A situation on given samples, with the rows of the table that it belongs to."""

    situation: prediction.Situation
    samples: Samples
    kinds: tuple[str, ...]


class Answer(NamedTuple):
    """One answer of a prediction: its kind, what was predicted, what came, and whether that is "right"."""

    kind: str
    verdict: str  # right, wrong, unknown, or unchecked: it would come after the longest run
    detail: str = ""
    error: float = math.nan  # of a time in stated errors, of a learning rate relative


# Situations ----------------------------------------------------------------------------------------------------------


def drawn(rng: np.random.Generator, index: int) -> Case:
    """A random situation."""
    samples, condition = _samples(rng)
    d_in, d_out = samples.x.shape[1], samples.y.shape[1]
    top = float(np.linalg.svd(np.linalg.pinv(samples.stretch * samples.x) @ samples.y, compute_uv=False)[0])
    depth = int(rng.integers(1, 5))
    width = int(rng.integers(1, 4)) if rng.random() < 0.4 else int(rng.integers(4, 40))
    kind = (
        str(rng.choice(["gaussian", "zero last layer", "balanced", "PyTorch", "adapter"])) if depth > 1 else "gaussian"
    )
    size = (10 ** rng.uniform(-2, 0.3) * top) ** (1 / depth) / (1 if kind == "balanced" else math.sqrt(width))
    init: dict[str, Any] = {
        "gaussian": {"scale": size},
        "zero last layer": {"scale": [size] * (depth - 1) + [0.0]},
        "balanced": {"kind": "balanced", "scale": size},
        "PyTorch": {"kind": str(rng.choice(_TORCH))},
        "adapter": {"kind": "lora"},
    }[kind]
    network: dict[str, Any] = {"depth": depth} if depth == 1 else {"depth": depth, "width": width}
    if kind == "adapter":
        factor = float(rng.choice([1, 2, 16]))
        network = {"depth": 2, "width": width, "alpha": factor * width}
        frozen = top * rng.normal(size=(d_out, d_in))
        samples = samples._replace(stretch=factor, alpha=factor, frozen=frozen)
    training, how = _training(rng, len(samples.x), top)
    tables: dict[str, Any] = {"network": network, "init": init | {"seed": index}, "training": training}
    kinds = [f"depth {network['depth']}", f"{kind} initialization", how]
    factor = float(rng.uniform(0.5, 0.98) if rng.random() < 0.5 else rng.uniform(1.05, 2.0))
    if rng.random() < 0.6:
        said = prediction.Situation(**tables).predict(samples.problem)
        most = min(said.largest_stable_lr, said.largest_stable_lr_at_initialization if factor < 1 else math.inf)
        if math.isfinite(most) and most > 0:
            tables["training"] = training | {"lr": factor * most}
            kinds.append("lr beyond the edge" if factor > 1 else "lr below the edge")
    if depth > 1 and width < min(np.linalg.matrix_rank(samples.x), d_out):
        kinds.append("bottleneck")
    if condition > 100:
        kinds.append("condition above 100")
    return Case(prediction.Situation(**tables), samples, tuple(kinds))


def _samples(rng: np.random.Generator) -> tuple[Samples, float]:
    d_in, d_out, n = int(rng.integers(1, 9)), int(rng.integers(1, 6)), int(rng.integers(1, 40))
    rank = min(n, d_in) if rng.random() < 0.7 else int(rng.integers(1, min(n, d_in) + 1))
    condition = 10 ** rng.uniform(0, 4) if rank > 1 and rng.random() < 0.6 else 1.0
    left, right = (np.linalg.qr(rng.normal(size=(size, rank)))[0] for size in (n, d_in))
    x = left * np.geomspace(1, 1 / condition, rank) @ right.T * 10 ** rng.uniform(-1, 1)
    y = x @ rng.normal(size=(d_in, d_out))
    if rng.random() < 0.7:
        y = y + 0.1 * np.linalg.norm(x) / math.sqrt(n) * rng.normal(size=(n, d_out))
    scale, stretch = [(1.0, 1.0), (1 / n, 1.0), (1.0, 10 ** rng.uniform(-0.5, 0.5))][rng.integers(3)]
    return Samples(x, y, scale, stretch), condition


def _training(rng: np.random.Generator, n: int, top: float) -> tuple[dict[str, Any], str]:
    """SGD's coefficients and a name for them."""
    momentum = float(rng.choice([0.5, 0.9, 0.95]))
    decay = float(10 ** rng.uniform(-4, -1) * top)
    kinds: list[tuple[dict[str, Any], str]] = [
        ({}, "plain"),
        ({}, "plain"),
        ({"momentum": momentum}, "momentum"),
        ({"momentum": momentum, "nesterov": True}, "nesterov"),
        ({"momentum": momentum, "dampening": momentum}, "dampened momentum"),
        ({"weight_decay": decay}, "weight decay"),
        ({"weight_decay": decay, "decoupled": True, "momentum": momentum}, "decoupled decay"),
        ({"batch_size": int(rng.integers(1, n + 1))}, "batches"),
    ]
    training, name = kinds[rng.integers(len(kinds))]
    return dict(training), name


# Training ------------------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """Exact training: the end-to-end matrix at every step, the last weights, and whether it diverged."""

    matrices: np.ndarray
    layers: list[np.ndarray]
    diverged: bool
    speed: float = 0.0  # of the weights in the last step, relative


def trained(layers: list[np.ndarray], samples: Samples, lr: float, how: Mapping[str, Any], steps: int) -> Run:
    """SGD in the convention of PyTorch on all samples."""
    momentum, dampening, decay = how["momentum"], how["dampening"], how["weight_decay"]
    layers, buffers = [np.array(w) for w in layers], None
    gram = samples.scale * samples.stretch**2 * samples.x.T @ samples.x
    mixed = samples.scale * samples.stretch * samples.y.T @ samples.x
    limit = 1e6 * max(
        1.0, *(float(np.abs(w).max()) for w in layers), float(np.linalg.norm(np.linalg.pinv(gram) @ mixed.T))
    )
    matrices: list[np.ndarray] = []
    for _ in range(steps + 1):
        below = [layers[0]]
        for w in layers[1:]:
            below.append(w @ below[-1])
        matrices.append(below[-1])
        if not max(np.abs(w).max() for w in layers) < limit:
            return Run(np.array(matrices), layers, diverged=True)
        force, gradients = below[-1] @ gram - mixed, []
        for i in range(len(layers) - 1, -1, -1):
            gradients.insert(0, force @ below[i - 1].T if i else force)
            force = layers[i].T @ force
        if decay and not how["decoupled"]:
            gradients = [g + decay * w for g, w in zip(gradients, layers, strict=True)]
        if momentum:
            buffers = (
                [np.array(g) for g in gradients]
                if buffers is None
                else [momentum * v + (1 - dampening) * g for v, g in zip(buffers, gradients, strict=True)]
            )
            if how["nesterov"]:
                gradients = [(1 - dampening) * g + momentum * v for g, v in zip(gradients, buffers, strict=True)]
            else:
                gradients = buffers
        shrink = 1 - lr * decay if how["decoupled"] else 1.0
        before, layers = layers, [shrink * w - lr * g for w, g in zip(layers, gradients, strict=True)]
        if len(matrices) > LATE and len(matrices) % 500 == 0 and _moves(np.array(matrices[-LATE:])) < 1e-9:
            break
    moved, size = (
        math.sqrt(sum(float(np.sum(part**2)) for part in parts))
        for parts in ([a - b for a, b in zip(layers, before, strict=True)], layers)
    )
    return Run(np.array(matrices), layers, diverged=False, speed=moved / size)


def _moves(late: np.ndarray) -> float:
    return float(np.max(np.ptp(late, axis=0)) / max(float(np.max(np.abs(late))), 1e-300))


def behavior(run: Run, size: float) -> str:
    """diverges, rests, or moves: what the last steps show, where `size` is that of the largest mode."""
    if run.diverged:
        return "diverges"
    late = run.matrices[-LATE:]
    moved = float(np.max(np.abs(np.diff(late, axis=0)))) if len(late) > 1 else 0.0
    return "rests" if moved <= REST * max(float(np.abs(late).max()), size) else "moves"


def orbit(late: np.ndarray, other: np.ndarray, size: float) -> int | None:
    """The period of a bounded series of numbers: 1 at rest, 0 for chaos, None where it cannot be decided.

    It is chaos where there is no period of up to half of the series and the other copy has separated from it.
    """
    back = np.abs(late[-1] - late[-2 : -len(late) // 2 - 1 : -1])
    for period in 1 + np.flatnonzero(back <= REST * size):
        if np.max(np.abs(late[period:] - late[:-period])) <= REST * size:
            return int(period)
    quarter = len(late) // 4
    for period in range(1, min(SETTLING, quarter // 2) + 1):
        away = np.abs(late[period:] - late[:-period])
        if np.max(away[-quarter:]) <= np.max(away[:quarter]) / 2:
            return None
    return 0 if np.max(np.abs(late - other)) > APART * size else None


# Answers -------------------------------------------------------------------------------------------------------------


def answers(case: Case) -> Iterator[Answer]:
    """What the prediction says, each beside what comes."""
    problem = case.samples.problem
    said, (_, network, _) = case.situation.predict(problem), case.situation.triple(problem)
    how = {name: said[name].value for name in ("momentum", "dampening", "nesterov", "weight_decay", "decoupled")}
    times = [(f"mode {i + 1} half", mode.half_learned) for i, mode in enumerate(said.modes)]
    times += [("learned", said.learned), ("fit", said.fit)]
    stated = [time.step for _, time in times if time.step is not None and math.isfinite(time.step)]
    far = max(stated, default=0) if len(stated) == len(times) else LONGEST
    if said.modes_mix is not None:
        far = max(far, 2 * said.modes_mix.step)
    steps = int(min(LONGEST, 2 * far + SETTLED))
    run = trained([np.asarray(w) for w in network.layers], case.samples, said.lr, how, steps)
    ends, basis = _end(said)
    run = run._replace(matrices=run.matrices @ basis.T @ basis)  # outside the span of the samples nothing is predicted
    came = behavior(run, float(said.modes[0].value))
    distance = np.linalg.norm(run.matrices - ends, axis=(1, 2)) / max(
        float(np.linalg.norm(run.matrices[0] - ends)), 1e-300
    )
    if str(said.outcome) in MOVING and came != "diverges":
        yield _moving(said, case, network, run, steps, how)
    else:
        yield _outcome(said, came, distance)
    if (
        said.converges and came == "rests" and distance[-1] < 1e-4 and run.speed < 1e-9
    ):  # with weight decay layers become balanced slowly
        yield _stable(said, case, run.layers, how)
    if said.batch_size is not None and not math.isnan(said.largest_stable_lr_with_batches):
        yield _with_batches(said, case, run, distance[-1])
    for name, time in times:
        last = bool(said.momentum) and not name.startswith("mode")  # it comes back: the last time counts
        yield _time(name, time, _curve(said, name, run, distance, case, ends), said.converges, last=last)


def _end(said: Any) -> tuple[np.ndarray, np.ndarray]:
    """The predicted predictor, and an orthonormal basis (rows) of the span of the samples."""
    basis, modes = said.data["training"].setup.reduction.basis, said.data["analysis"].times.modes
    return modes.matrix @ basis, basis


def _outcome(said: Any, came: str, distance: np.ndarray) -> Answer:
    """The predicted outcome; it is unchecked where the run is still on its way to the predicted end."""
    word, arrived = str(said.outcome), came == "rests" and distance[-1] < 1e-3
    detail = f"lr {said.lr:.4g}: {said.outcome}, but {came}, {distance[-1]:.1e} from its end"
    if word == "converges":
        learned = said.learned.step
        early = learned is None or not 2 * learned < len(distance)  # too early to judge, unless it leaves
        on_its_way = came != "diverges" and (early or distance[-1] < distance[len(distance) // 2])
        return Answer("outcome", "right" if arrived else "unchecked" if on_its_way else "wrong", detail)
    expected = {
        "diverges": came == "diverges",
        **dict.fromkeys(MOVING, False),  # it diverges
        "trapped": came == "rests" and not arrived,
    }
    if word not in expected:
        return Answer("outcome", "unknown", detail)
    return Answer("outcome", "right" if expected[word] else "wrong", detail)


def _moving(said: Any, case: Case, network: Any, run: Run, steps: int, how: Mapping[str, Any]) -> Answer:
    """A predicted cycle, chaos, or flips, with the fates and periods of all modes, where training is bounded."""
    rng = np.random.default_rng(0)
    layers = [np.asarray(w) for w in network.layers]
    smallest = min(float(np.abs(w).max()) for w in layers if np.any(w))
    twin = [w + DIFFER * smallest * rng.normal(size=w.shape) for w in layers]
    modes = said.data["analysis"].times.modes
    right = said.data["training"].setup.reduction.basis.T @ modes.right
    first, second = (
        np.einsum("oi,tod,di->it", modes.left, matrices[-min(ORBIT, len(matrices) // 2) :], right)
        for matrices in (run.matrices, trained(twin, case.samples, said.lr, how, steps).matrices)
    )
    size, common = max(float(np.abs(first).max()), float(said.modes[0].value)), min(first.shape[1], second.shape[1])
    found = [orbit(a[-common:], b[-common:], size) for a, b in zip(first, second, strict=True)]
    words, verdicts = [], []
    for mode, series, period in zip(said.modes, first, found, strict=True):
        low, high = float(series.min()), float(series.max())
        words.append(_word(mode.value, low, high, period))
        verdicts.append(_fate(mode, words[-1], period))
    moving = [word for word in words if word != "converges"]  # the outcome is that of the first mode that moves
    word = str(said.outcome)
    verdicts.append(_same(word, moving[0] if moving else "converges"))
    verdict = next((one for one in ("wrong", "unchecked") if one in verdicts), "right")
    predicted = ", ".join(f"{mode.fate} {mode.period}" for mode in said.modes)
    came = ", ".join(f"{word} {period}" for word, period in zip(words, found, strict=True))
    return Answer("outcome", verdict, f"lr {said.lr:.4g}: {word} ({predicted}), but {came}")


def _word(value: float, low: float, high: float, period: int | None) -> str:
    """What one mode does, between these values in the end; "" where it cannot be decided."""
    if period is None:
        return ""
    if period == 1:
        away = [max(abs(low - end), abs(high - end)) for end in (value, 0.0)]
        return "converges" if away[0] < NEAR * value else "trapped" if away[1] < NEAR * value else "rests"
    if period > 1:
        return "cycle"
    return "flips" if low < 0 < high else "chaos"


def _same(word: str, came: str) -> str:
    """Whether a word is right; chaos that visits both signs is chaos too."""
    if not came:
        return "unchecked"
    return "right" if word == came or (word, came) == ("chaos", "flips") else "wrong"


def _fate(mode: Any, came: str, period: int | None) -> str:
    if mode.fate == "unknown":
        return "right"
    verdict = _same(str(mode.fate), came)
    known = verdict == "right" and mode.fate == "cycle" and mode.period is not None
    return "wrong" if known and mode.period != period else verdict


def _stable(said: Any, case: Case, layers: list[np.ndarray], how: Mapping[str, Any]) -> Answer:
    """The largest stable learning rate against the spectral radius of the steps around the end."""
    hessian = _hessian(layers, case.samples)
    curvatures = np.linalg.eigvalsh(hessian)
    curvature = float(curvatures[-1])
    low, high = 1e-12 / curvature, 1e3 / curvature
    for _ in range(80):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _radius(middle, curvature, how) <= 1 + 1e-12 else (low, middle)
    error = abs(said.largest_stable_lr / low - 1)
    verdict = "unknown" if math.isnan(said.largest_stable_lr) else "right" if error <= EDGE else "wrong"
    return Answer("largest stable lr", verdict, f"{said.largest_stable_lr:.6g}, but {low:.6g}", error)


def _radius(lr: float, curvature: float, how: Mapping[str, Any]) -> float:
    """The spectral radius of a step of SGD on curvature/2 theta^2: of (theta, buffer)."""
    b, t, decay = how["momentum"], how["dampening"], how["weight_decay"]
    h = curvature + (0 if how["decoupled"] else decay)
    shrink = 1 - lr * decay if how["decoupled"] else 1.0
    if not b:
        return abs(shrink - lr * h)
    along = np.array([(1 - t) * h, b])  # the new buffer
    step = (np.array([(1 - t) * h, 0.0]) + b * along) if how["nesterov"] else along
    return float(np.max(np.abs(np.linalg.eigvals(np.array([np.array([shrink, 0.0]) - lr * step, along])))))


def _hessian(layers: list[np.ndarray], samples: Samples) -> np.ndarray:
    """The Hessian of the cost in all weights, by the derivative of the gradient along each of them."""
    sizes = np.cumsum([0, *(w.size for w in layers)])

    def gradient(many: list[Any]) -> list[Any]:
        below = [many[0]]
        for w in many[1:]:
            below.append(w @ below[-1])
        force, found = samples.gradient(below[-1]), []
        for i in range(len(many) - 1, -1, -1):
            found.insert(0, force @ below[i - 1].T if i else force)
            force = many[i].T @ force
        return found

    rows = []
    for layer, w in enumerate(layers):
        size = 1e-6 * max(1.0, float(np.abs(w).max()))
        for index in np.ndindex(w.shape):
            sides = []
            for sign in (1, -1):
                moved = [np.array(v) for v in layers]
                moved[layer][index] += sign * size
                sides.append(np.concatenate([g.ravel() for g in gradient(moved)]))
            rows.append((sides[0] - sides[1]) / (2 * size))
    hessian = np.array(rows)
    assert hessian.shape == (sizes[-1], sizes[-1])
    return (hessian + hessian.T) / 2


def _with_batches(said: Any, case: Case, run: Run, distance: float) -> Answer:
    """Mean squares over many runs near the end: they must shrink at 0.9 and grow at 1.15 of the threshold."""
    if not said.converges or run.diverged or distance > 1e-4 or run.speed > 1e-9:  # it may be another end
        return Answer("lr with batches", "unchecked")
    found = [
        _mean_square_growth(run.layers, case, factor * said.largest_stable_lr_with_batches, said.batch_size)
        for factor in (0.9, 1.15)
    ]
    if math.isnan(found[0]):
        return Answer("lr with batches", "unchecked")
    right = found[0] < 0 < found[1]
    return Answer("lr with batches", "right" if right else "wrong", f"rates {found[0]:.3g}, {found[1]:.3g}")


def _mean_square_growth(layers: list[np.ndarray], case: Case, lr: float, batch: int) -> float:
    """The rate of E|J delta|^2 of the linearized steps, by its exact second-moment recursion over all batches."""
    samples, n = case.samples, len(case.samples.x)
    below, above = [np.eye(layers[0].shape[1])], [np.eye(layers[-1].shape[0])]
    for w in layers[:-1]:
        below.append(w @ below[-1])
    for w in layers[:0:-1]:
        above.insert(0, above[0] @ w)
    jacobian = np.concatenate(
        [
            np.einsum("oa,ib->oiab", up, down.T).reshape(up.shape[0] * down.shape[1], -1)
            for up, down in zip(above, below, strict=True)
        ],
        axis=1,
    ).reshape(layers[-1].shape[0], layers[0].shape[1], -1)
    rows = samples.stretch * math.sqrt(samples.scale) * np.einsum("oid,ni->nod", jacobian, samples.x)
    _, sizes, directions = np.linalg.svd(rows.reshape(-1, rows.shape[-1]), full_matrices=False)
    directions = directions[sizes > 1e-10 * sizes[0]]
    if len(directions) > DIRECTIONS:
        return math.nan
    rows = rows @ directions.T
    each = n * np.einsum("noa,nob->nab", rows, rows)
    mean, k = each.mean(axis=0), each.shape[-1]
    square = np.einsum("nab,ncd->acbd", each, each).reshape(k * k, k * k) / n
    full = np.kron(mean, mean)
    share = 0.0 if n == 1 else (n - batch) / (batch * (n - 1))
    second = full + share * (square - full)
    step = np.eye(k * k) - lr * (np.kron(mean, np.eye(k)) + np.kron(np.eye(k), mean)) + lr**2 * second
    return float(np.max(np.abs(np.linalg.eigvals(step)))) - 1


def _curve(said: Any, name: str, run: Run, distance: np.ndarray, case: Case, ends: np.ndarray) -> np.ndarray:
    """What rises through 1 when the time of this name comes."""
    modes = said.data["analysis"].times.modes
    if name.startswith("mode"):
        i = int(name.split()[1]) - 1
        right = said.data["training"].setup.reduction.basis.T @ modes.right[:, i]
        return np.einsum("o,toi,i->t", modes.left[:, i], run.matrices, right) / (modes.value[i] / 2)
    left = distance if name == "learned" else _excess(said, run, case, ends)
    return np.log(np.maximum(left, 1e-300)) / math.log(0.01)


def _excess(said: Any, run: Run, case: Case, ends: np.ndarray) -> np.ndarray:
    """The excess loss over its initial value, without weight decay."""
    if said.weight_decay:
        return np.full(len(run.matrices), math.nan)
    x, scale, stretch = case.samples.x, case.samples.scale, case.samples.stretch
    away = run.matrices - ends
    at_end = case.samples.gradient(ends)
    loss = scale * stretch**2 / 2 * np.sum((away @ x.T) ** 2, axis=(1, 2)) + np.sum(away * at_end, axis=(1, 2))
    return loss / max(float(loss[0]), 1e-300)


def _time(name: str, time: Any, curve: np.ndarray, converges: bool, *, last: bool) -> Answer:
    kind = name.split()[-1]
    if time.error is None or time.step is None or math.isnan(time.step):
        return Answer(kind, "unknown" if converges else "unchecked", f"{name} unknown")
    if np.isnan(curve).any() or math.isinf(time.step):
        return Answer(kind, "unchecked")
    step = crossed(curve, 1.0, last=last)
    if math.isnan(step):  # it has not come: wrong only if it was predicted to
        late = time.step * (1 + STATED * time.error) < len(curve) - 1
        return Answer(kind, "wrong" if late else "unchecked", f"{name} at {time.step:.6g}, but never")
    if time.step == 0 or step == 0:
        return Answer(
            kind, "right" if abs(time.step - step) <= 1 else "wrong", f"{name} at {time.step:.6g}, but {step:.6g}"
        )
    error = abs(time.step - step) / max(step * time.error, 1e-9 * step)
    return Answer(kind, "right" if error <= STATED else "wrong", f"{name} at {time.step:.6g}, but {step:.6g}", error)


def crossed(curve: np.ndarray, level: float, *, last: bool) -> float:
    """The step at which a curve first or last rises through a level, by a line between two steps; NaN if never."""
    above = np.flatnonzero((curve >= level) & (np.append(-np.inf, curve[:-1]) < level if last else True))
    if not above.size or (last and not curve[-1] >= level):
        return math.nan
    k = int(above[-1 if last else 0])
    return 0.0 if k == 0 else k - 1 + float((level - curve[k - 1]) / (curve[k] - curve[k - 1]))


# The table -----------------------------------------------------------------------------------------------------------


def table(found: Mapping[str, tuple[int, list[Answer]]]) -> str:
    """Markdown: a row for each kind of situation."""
    lines = [
        "| situations | | answers | wrong | unknown | not checked | worst time, in stated errors "
        "| worst largest stable lr |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, (count, some) in found.items():
        checked = [one for one in some if one.verdict != "unchecked"]
        wrong, unknown = (sum(one.verdict == verdict for one in checked) for verdict in ("wrong", "unknown"))
        times = [one.error for one in checked if one.kind in ("half", "learned", "fit") and not math.isnan(one.error)]
        rates = [one.error for one in checked if one.kind == "largest stable lr" and not math.isnan(one.error)]
        lines.append(
            f"| {name} | {count} | {len(checked)} | {wrong} | {unknown} ({unknown / max(len(checked), 1):.1%}) | "
            f"{len(some) - len(checked)} | {max(times, default=0):.2g} | {max(rates, default=0):.2g} |"
        )
    return "\n".join(lines)


def _asked(index: int, seed: int) -> dict[str, Any]:
    """The answers for one situation as a record, or why it was refused."""
    rng = np.random.default_rng([seed, index])
    try:
        case = drawn(rng, index)
        return {"index": index, "kinds": case.kinds, "answers": [one._asdict() for one in answers(case)]}
    except ln.InputError as error:  # such as decay with which nothing is learned
        return {"index": index, "refused": str(error)}


def main() -> None:
    """Draws, predicts, trains, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="of situations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of situations: print all their answers")
    parser.add_argument("--out", type=Path, help="file to which the answers are appended, and from which they are read")
    asked = parser.parse_args()
    known: dict[int, dict[str, Any]] = {}
    if asked.out is not None and asked.out.exists():
        known = {record["index"]: record for record in map(json.loads, asked.out.read_text().splitlines())}
    found: dict[str, tuple[int, list[Answer]]] = {"all": (0, [])}
    refused = 0
    for index in track(asked.only or range(asked.count), description="situations"):
        record = known.get(index)
        if record is None:
            record = _asked(index, asked.seed)
            if asked.out is not None:
                with asked.out.open("a") as lines:
                    lines.write(json.dumps(record) + "\n")
        if "refused" in record:
            refused += 1
            print(f"{index} refused: {record['refused']}", flush=True)
            continue
        given = [Answer(**one) for one in record["answers"]]
        for name in ("all", *record["kinds"]):
            count, old = found.get(name, (0, []))
            found[name] = count + 1, old + given
        for one in given:
            if asked.only or one.verdict == "wrong":
                kinds = ", ".join(record["kinds"])
                print(f"{index} {one.verdict}: {one.kind}: {one.detail} ({one.error:.3g}); {kinds}", flush=True)
    print(table(found))
    undecided = sum(one.kind == "outcome" and one.verdict == "unchecked" for one in found["all"][1])
    print(f"{refused} situations refused in a sentence; {undecided} outcomes not decided within {LONGEST:,} steps")


if __name__ == "__main__":
    main()
