"""Figures of balance: what lambda does to learning, to a change of task, and to one neuron. All in closed form, with
simulations beside it.
"""

import math
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import jax
import numpy as np
import xarray
from pydantic import Field, model_validator
from scipy.integrate import solve_ivp

from linnet.claims import Finding, at_least, at_most, within
from linnet.curves import crossing
from linnet.experiments.experiment import Experiment, Progress, along
from linnet.init import balanced, lambda_balanced, two_c_balanced
from linnet.optim import GradientFlow
from linnet.problems import factorization
from linnet.record import at
from linnet.simulation import simulate
from linnet.states import Weights
from linnet.theory import balance

# four things in two kinds: what is common, which kind, which of each
_TREE = (
    np.array([[1, 1, 1, 1], [1, 1, -1, -1], [math.sqrt(2), -math.sqrt(2), 0, 0], [0, 0, math.sqrt(2), -math.sqrt(2)]]).T
    / 2
)
_VALUES = np.array([3.0, 2.0, 1.0, 1.0])
Imbalance = Annotated[float, Field(ge=-1e3, le=1e3)]


def _turn(seed: int, *name: int) -> np.ndarray:
    """A random rotation."""
    q = np.linalg.qr(np.random.default_rng([seed, *name]).normal(size=(4, 4)))[0]
    q[:, 0] *= np.sign(np.linalg.det(q))
    return q


def _drift(kernel: np.ndarray) -> np.ndarray:
    """|Theta - Theta_0| / |Theta_0|, times first."""
    norm = np.linalg.norm(kernel - kernel[0], axis=(-2, -1))
    return np.asarray(norm / np.linalg.norm(kernel[0]))


class Representations(Experiment):
    """Networks that learn four things in two kinds, over lambda: the entries of A in closed form (simulated layers
    dashed), then the Gram matrices of inputs and outputs at the end. Near lambda = 0 both layers take the structure of
    the task and the kernel moves; far from it the heavier layer keeps what it had, and the lighter one is left to
    learn.
    """

    id = "balance/qqt"
    place = "after the figures of QQ^T"
    title = "From lazy to rich by one number: learning, kernel and representations over lambda"
    quick = {"points": 41}
    minutes = {"quick": 0.1, "paper": 0.1}

    lams: tuple[Imbalance, ...] = Field(
        default=(-20.0, -2.0, 0.0, 2.0, 20.0), min_length=3, max_length=7, description="Imbalances, ascending."
    )
    scale: float = Field(default=0.1, gt=0, le=10, description="Size of the lighter layer at the start.")
    time: float = Field(default=14.0, gt=0, le=100, description="Time at lambda = 0; less with |lambda|.")
    points: int = Field(default=161, ge=10, le=2000, description="Times.")

    @model_validator(mode="after")
    def _ascend(self) -> Self:
        if list(self.lams) != sorted(set(self.lams)) or 0.0 not in self.lams:
            raise ValueError(f"lams = {self.lams} must ascend and have 0 among them")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        key, target = jax.random.key(self.seed), (_turn(self.seed, 0) * _VALUES) @ _TREE.T
        middle = lambda_balanced(key, factorization(target), 0.0, 4, scale=self.scale)
        if np.linalg.det(target) * np.linalg.det(np.asarray(middle.matrix)) < 0:
            target = -target[[1, 0, 2, 3]]  # the side from which lambda = 0 arrives
        problem = factorization(target)

        def learned(lam: float) -> dict[str, Any]:
            initial = lambda_balanced(key, problem, lam, 4, scale=self.scale)
            times = np.linspace(0, self.time / (1 + abs(lam)), self.points)
            found = balance.flow(times, initial, target)
            run = simulate(
                problem, initial, GradientFlow(rtol=1e-9), time=float(times[-1]), record=at(times), observe=["matrix"]
            )
            return {
                "closed": (("point", "out", "in"), found.matrix),
                "simulated": (("point", "out", "in"), run["matrix"]),
                "drift": ("point", _drift(np.asarray(found.kernel(np.eye(4))))),
                "inputs": (("in", "other_in"), found.input_gram[-1]),
                "outputs": (("out", "other_out"), found.output_gram[-1]),
                "time": ("point", times),
            }

        return along("lam", self.lams, learned, progress).assign(target=(("out", "in"), target))

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        target, drift = data["target"].values, data["drift"].values[:, -1]
        missed = np.abs(data["closed"].values[:, -1] - target).max()
        gap = np.abs(data["closed"].values - data["simulated"].values).max()
        rich = list(self.lams).index(0.0)
        grams = [balance.grams(target, lam, 4) for lam in self.lams]
        apart = max(
            float(np.abs(data[name].values[i] - np.asarray(getattr(gram, field))).max() / (1 + abs(self.lams[i])))
            for i, gram in enumerate(grams)
            for name, field in (("inputs", "input_gram"), ("outputs", "output_gram"))
        )
        falls = [np.max(np.diff(side), initial=-np.inf) for side in (drift[rich:], drift[: rich + 1][::-1])]
        top = np.abs(target).max()
        return {
            "closed form against simulated layers: largest gap / largest entry": at_most(gap / top, 1e-6),
            "largest entry of A - Y in the end / of Y": at_most(missed / top, 0.02),
            "Gram matrices in the end against their formulas of Y": at_most(apart, 0.05),
            "the kernel's change at lambda = 0": at_least(drift[rich], 3.0),
            "the kernel's change falls with |lambda|: its largest rise": at_most(max(falls), 0.0),
            "the kernel's change at the largest |lambda| / at 0": at_most(max(drift[0], drift[-1]) / drift[rich], 0.1),
        }


class BalanceReversal(Experiment):
    """A network that has learned Y is asked for -Y (reversal), or for another task with the same values (transfer).
    Balanced layers never arrive at the reversed task, since every mode would have to pass through zero; a little
    imbalance carries them over, in a time that grows with ln(1/|lambda|), and a large one forgets nothing of how to
    learn.
    """

    place = "after the figures of reversal and transfer learning"
    title = "A change of task over lambda: reversal needs imbalance, transfer does not"
    quick = {"grid": 13, "points": 400}
    minutes = {"quick": 0.2, "paper": 0.4}

    lams: tuple[Annotated[float, Field(ge=0, le=1e3)], ...] = Field(
        default=(0.0, 1e-6, 1e-2, 1.0, 10.0), min_length=3, max_length=7, description="Imbalances of the curves."
    )
    least: float = Field(default=1e-10, gt=0, lt=1e-3, description="Smallest imbalance of the times.")
    most: float = Field(default=1e3, gt=10, le=1e4, description="Largest imbalance of the times.")
    grid: int = Field(default=53, ge=5, le=500, description="Imbalances between them.")
    points: int = Field(default=1500, ge=100, le=10_000, description="Times of a curve.")
    left: float = Field(default=1e-2, gt=0, lt=0.5, description="Share of the first loss at which a task is learned.")
    slowest: ClassVar[float] = float(_VALUES[-1])

    @model_validator(mode="after")
    def _ascend(self) -> Self:
        if list(self.lams) != sorted(set(self.lams)) or self.lams[0] != 0:
            raise ValueError(f"lams = {self.lams} must ascend from 0")
        return self

    def _tasks(self) -> dict[str, np.ndarray]:
        first, second = _turn(self.seed, 1), _turn(self.seed, 2)
        return {"learned": (first * _VALUES) @ _TREE.T, "reversal": -(first * _VALUES) @ _TREE.T,
                "transfer": (second * _VALUES) @ _TREE.T}  # fmt: skip

    def _initial(self, lam: float, learned: np.ndarray) -> Weights:
        """Layers that have learned the first task."""
        return balanced(learned, (4,)) if lam == 0 else two_c_balanced(learned, lam / 2, sign=-1)

    def _loss(self, times: np.ndarray, lam: float, task: np.ndarray, learned: np.ndarray) -> np.ndarray:
        if lam == 0 and np.array_equal(
            task, -learned
        ):  # mode by mode: rounding would lead the layers out of the saddle
            return np.sum([(balance.mode(times, s, -s, 0.0) + s) ** 2 / 2 for s in _VALUES], axis=0)
        gaps = np.asarray(balance.flow(times, self._initial(lam, learned), task).matrix) - task
        return np.asarray(np.sum(gaps**2, axis=(-2, -1)) / 2)

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        tasks = self._tasks()
        learned = tasks.pop("learned")
        shown = np.linspace(0, 20.0 / _VALUES[-1], self.points)
        few = np.linspace(0, 6.0, 13)
        lams = np.geomspace(self.least, self.most, self.grid)

        def asked(name: str) -> dict[str, Any]:
            task, losses, when = tasks[name], [], []
            for lam in self.lams[-3:]:
                run = simulate(
                    factorization(task),
                    self._initial(lam, learned),
                    GradientFlow(rtol=1e-10),
                    time=float(few[-1]),
                    record=at(few),
                    observe=["loss"],
                )
                losses.append(np.asarray(run["loss"]))
            for lam in lams:
                long = np.linspace(0, (math.log(1 + 1 / lam) + 20) / (_VALUES[-1] + lam), self.points)
                loss = self._loss(long, lam, task, learned)
                when.append(crossing(long, -loss, -self.left * loss[0]))
            return {
                "loss": (("lam", "time"), [self._loss(shown, lam, task, learned) for lam in self.lams]),
                "simulated": (("shown", "few"), losses),
                "learned": ("imbalance", when),
            }

        return along("task", list(tasks), asked, progress).assign_coords(
            lam=list(self.lams), shown=list(self.lams[-3:]), time=shown, few=few, imbalance=lams
        )

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        whole, lams = float(np.sum(_VALUES**2)) / 2, data["imbalance"].values
        learned = {name: data["learned"].sel(task=name).values for name in ("reversal", "transfer")}
        stuck = data["loss"].sel(task="reversal", lam=0.0).values
        modes = np.stack([balance.mode(data["few"].values, s, -s, data["shown"].values[-1]) for s in _VALUES], axis=-1)
        by_modes = np.sum((modes + _VALUES) ** 2, axis=-1) / 2
        right = data["simulated"].sel(task="reversal").values[-1]
        between = [
            np.interp(data["few"], data["time"], data["loss"].sel(task=task, lam=lam))
            - data["simulated"].sel(task=task, shown=lam)
            for task in learned
            for lam in data["shown"].values
        ]
        small = lams < 1e-4
        slope = np.polyfit(np.log(1 / lams[small]), learned["reversal"][small], 1)[0] if small.sum() > 1 else math.nan
        lazy = [float(times[-1] * lams[-1] / math.log(1 / math.sqrt(self.left))) for times in learned.values()]
        return {
            "reversal at lambda = 0 ends at zero: its loss / that of A = 0": within(stuck[-1] / whole, 0.999, 1.001),
            "reversal at the smallest lambda takes ln(1/lambda)/s_min: the slope of its time": within(
                slope * _VALUES[-1], 0.9, 1.1
            ),
            "transfer at the smallest lambda / at the middle one": at_most(
                learned["transfer"][0] / learned["transfer"][len(lams) // 2], 1.5
            ),
            "large lambda is lazy, reversal: time times lambda / theory": within(lazy[0], 0.9, 1.1),
            "large lambda is lazy, transfer: time times lambda / theory": within(lazy[1], 0.9, 1.1),
            "simulated reversal against the modes' formula / first loss": at_most(
                np.abs(by_modes - right).max() / (4 * whole), 1e-8
            ),
            "simulated layers against the closed form / first loss": at_most(
                max(float(np.abs(gap).max()) for gap in between) / (4 * whole), 2e-3
            ),
        }


class OneNeuron(Experiment):
    """One hidden neuron. Above: its two weights, one input and one output, with learning rates of the layers; every
    start keeps its hyperbola, and the line a sqrt(eta_1) = -w sqrt(eta_2) parts the starts of one minimum from those of
    the other. Below: what it computes of two inputs, from starts all around. A heavy readout goes straight to the
    target, a heavy first layer keeps its direction first and turns later.
    """

    id = "balance/neuron"
    place = "after the figures of one neuron in Kunin et al. 2024"
    title = "One neuron: basins of its two minima, and its trajectories for each lambda"
    quick = {"grid": 21, "trajectories": 8}
    minutes = {"quick": 0.2, "paper": 0.2}

    ratios: tuple[Annotated[float, Field(gt=0, le=100)], ...] = Field(
        default=(0.25, 1.0, 4.0), min_length=1, max_length=4, description="Rates eta_1/eta_2 of the planes."
    )
    lams: tuple[Imbalance, ...] = Field(
        default=(-4.0, 0.0, 4.0), min_length=2, max_length=4, description="Imbalances of the trajectories, ascending."
    )
    grid: int = Field(default=61, ge=5, le=400, description="Starts along each axis of a plane.")
    trajectories: int = Field(default=16, ge=4, le=100, description="Trajectories of a picture.")
    points: int = Field(default=200, ge=20, le=2000, description="Times of a trajectory.")

    @model_validator(mode="after")
    def _ascend(self) -> Self:
        if list(self.lams) != sorted(set(self.lams)) or self.lams[0] >= 0 or self.lams[-1] <= 0:
            raise ValueError(f"lams = {self.lams} must ascend from below 0 to above 0")
        return self

    def run(self, folder: Path, progress: Progress, workers: int) -> xarray.Dataset:
        axis = np.linspace(-2, 2, self.grid + self.grid % 2)  # even: no weight is zero
        times, goal = 40.0 * np.linspace(0, 1, self.points) ** 3, np.array([[1.0, 0.0]])
        angles = 2 * np.pi * (np.arange(self.trajectories) + 0.5) / self.trajectories

        def ends(ratio: float) -> dict[str, Any]:
            rates = (math.sqrt(ratio), 1 / math.sqrt(ratio))

            def end(w: Any, a: Any) -> Any:
                found = balance.neuron(20.0, Weights((w[None, None], a[None, None])), [[1.0]], lr_multipliers=rates)
                return found.first[0], found.second[0]

            firsts, seconds = np.meshgrid(axis, axis, indexing="ij")
            found = np.stack(jax.jit(jax.vmap(jax.vmap(end)))(firsts, seconds), axis=-1)
            return {"end": (("first", "second", "weight"), found)}

        def trajectories(lam: float) -> dict[str, Any]:
            neurons = [balance.neuron(times, self._initial(lam, angle), goal) for angle in angles]
            computed = [np.asarray(found.second) * np.asarray(found.first) for found in neurons]
            gap = _gap_of_weights(self._initial(lam, angles[1]), goal)
            return {"trajectory": (("angle", "point", "input"), computed), "gap": ((), gap)}

        planes = along("ratio", self.ratios, ends, progress).assign_coords(first=axis, second=axis)
        return planes.merge(along("lam", self.lams, trajectories, progress).assign_coords(angle=angles))

    def _initial(self, lam: float, angle: float) -> Weights:
        """A neuron that computes a vector of length 0.7 in this direction, with this imbalance."""
        readout = math.sqrt((math.hypot(lam, 2 * 0.7) + lam) / 2)
        return Weights((0.7 / readout * np.array([[math.cos(angle), math.sin(angle)]]), [[readout]]))

    def accept(self, data: xarray.Dataset) -> dict[str, Finding]:
        end, ratios = data["end"].values, np.sqrt(data["ratio"].values)
        axis = data["first"].values
        side = axis[None, :, None] / np.sqrt(ratios)[:, None, None] + axis * np.sqrt(ratios)[:, None, None]
        clear = np.abs(side) > 1e-9
        wrong = float(np.mean((np.sign(end[..., 0]) != np.sign(side))[clear]))
        missed = np.abs(end[..., 0] * end[..., 1] - 1)[clear].max()
        imbalance = axis**2 * ratios[:, None, None] - (axis**2)[:, None] / ratios[:, None, None]
        now = end[..., 1] ** 2 * ratios[:, None, None] - end[..., 0] ** 2 / ratios[:, None, None]
        trajectory = data["trajectory"].values
        bent = [float(np.mean([_bend(one) for one in trajectories])) for trajectories in trajectory]
        return {
            "starts on the wrong side of the line: their share": at_most(wrong, 0.0),
            "largest |a w - 1| in the end": at_most(missed, 1e-6),
            "each keeps its hyperbola: largest change of lambda": at_most(np.abs(now - imbalance).max(), 1e-9),
            "all trajectories lead to the target: largest distance in the end": at_most(
                np.linalg.norm(trajectory[:, :, -1] - [1.0, 0.0], axis=-1).max(), 1e-3
            ),
            "a heavy readout's trajectories are straighter than a heavy first layer's: mean bend": at_most(
                bent[-1] / bent[0], 0.5
            ),
            "weights against an integration: largest gap": at_most(data["gap"].max(), 1e-8),
        }


def _bend(trajectory: np.ndarray) -> float:
    """The largest distance of a trajectory from the straight line between its ends, over its length."""
    chord = trajectory[-1] - trajectory[0]
    normal = np.array([-chord[1], chord[0]]) / np.linalg.norm(chord)
    return float(np.abs((trajectory - trajectory[0]) @ normal).max() / np.linalg.norm(chord))


def _gap_of_weights(initial: Weights, goal: np.ndarray) -> float:
    """The closed form against the layers' own flow, at one time."""
    w1, w2 = (np.asarray(w) for w in initial.layers)

    def velocity(_: float, flat: np.ndarray) -> np.ndarray:
        gap = goal[0] - flat[2] * flat[:2]
        return np.append(flat[2] * gap, gap @ flat[:2])

    run = solve_ivp(velocity, (0, 1.5), np.append(w1, w2), method="DOP853", rtol=1e-12, atol=1e-14).y[:, -1]
    found = balance.neuron(1.5, initial, goal)
    return float(np.abs(np.append(found.first, found.second) - run).max())
