"""Claims of "Exact and Rich Feature Learning Dynamics of Two-Layer Linear Networks" about single neurons, the kernel in
time, and concentration, for all kinds of inputs.

Those of `claims/feature.py` are about Gaussian inputs without preferred directions and ten samples.
"""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from linnet.claims.claim import THREE, Finding, Seed, as_printed, at_least, at_most, claim, evidence, within

# Descent, neuron by neuron -------------------------------------------------------------------------------------------


class _Descent(NamedTuple):
    """Every step of a descent: the inputs (n x n, with the Gram matrix of the samples), labels, W_1, and v."""

    x: np.ndarray
    y: np.ndarray
    first: np.ndarray
    v: np.ndarray

    @property
    def width(self) -> int:
        return self.v.shape[1]

    @property
    def g(self) -> np.ndarray:
        return np.asarray(self.x.T @ self.y)

    @property
    def gamma(self) -> float:
        return float(self.g @ self.g)

    @property
    def rho(self) -> np.ndarray:
        """rho_r(t): steps, neurons."""
        return np.asarray((self.first - self.first[0]) @ self.g)

    @property
    def outputs(self) -> np.ndarray:
        return np.asarray(np.einsum("twd,tw,nd->tn", self.first, self.v, self.x) / self.width)

    @property
    def losses(self) -> np.ndarray:
        return np.asarray(np.sum((self.outputs - self.y) ** 2, axis=1) / (2 * len(self.y)))

    @property
    def end_of_stage_one(self) -> int:
        """The first step at which the mean of |rho_r| is 1."""
        return int(np.argmax(np.mean(np.abs(self.rho), axis=1) >= 1))

    def kernel(self, step: int) -> np.ndarray:
        hidden = self.x @ self.first[step].T
        return np.asarray((np.sum(self.v[step] ** 2) * self.x @ self.x.T + hidden @ hidden.T) / self.width**2)


def _samples(rng: np.random.Generator, n: int, values: np.ndarray, beta: float, noise: float) -> tuple[Any, Any]:
    """Inputs with this covariance, reduced to n x n, and labels of a teacher with beta^T Sigma beta = beta^2."""
    z = rng.normal(size=(n, len(values)))
    inputs, direction = z * np.sqrt(values), rng.normal(size=len(values))
    teacher = beta * direction / math.sqrt(float(np.sum(values * direction**2)))
    y = inputs @ teacher + noise * rng.normal(size=n)
    return np.asarray(np.linalg.qr(inputs.T, mode="r")).T, y


def _descend(x: Any, y: Any, rng: Any, width: int, v0: float, sigma0: float, step: float, steps: int) -> _Descent:
    """Descent with lr = step n w / sqrt(gamma)."""
    n = len(y)
    first, v = sigma0 * rng.normal(size=(width, n)), v0 * rng.choice([-1.0, 1.0], size=width)
    lr = step * n * width / float(np.linalg.norm(x.T @ y))
    path = [(first, v)]
    for _ in range(steps):
        force = lr / (n * width) * (x.T @ (y - x @ (first.T @ v) / width))
        first, v = first + np.outer(v, force), v + first @ force
        path.append((first, v))
    return _Descent(x, y, np.stack([a for a, _ in path]), np.stack([b for _, b in path]))


_COVARIANCES: dict[str, Callable[[int], np.ndarray]] = {
    "isotropic": lambda d: np.ones(d),
    "power law": lambda d: 20 * np.arange(1, d + 1) ** -0.4,
    "one spike": lambda d: np.where(np.arange(d) == 0, d / 100, 1.0),
}


@lru_cache
def _run(law: str, ratio: float, seed: int, n: int = 10, d: int = 2000, level: float = 1e-2) -> _Descent:
    """A run with v0 = level / sqrt(gamma) and sigma0 = ratio v0, to a millionth of the loss and less."""
    rng = np.random.default_rng([seed, n, d])
    x, y = _samples(rng, n, _COVARIANCES[law](d), 1.0, 0.01)
    v0 = level / float(np.linalg.norm(x.T @ y))
    return _descend(x, y, rng, 48, v0, ratio * v0, 0.05, 420)


def _laws(size: str) -> tuple[str, ...]:
    return ("isotropic", "power law") if size == "quick" else tuple(_COVARIANCES)


def _seeds(seed: int, size: str) -> range:
    return range(seed, seed + (2 if size == "quick" else 10))


@claim("feature/C28", "bound", "equation (13)", negative_control={"ratio": 10.0})
def increments_lie_along_the_feature(size: str, ratio: float = 0.1, seed: Seed = 0) -> Iterator[Finding]:
    """The fifth claim of (13): |w_r(t) - w_r(0) - (rho_r / gamma) X^T y| <= C (tr Sigma / gamma^{3/2}) |rho_r| /
    sqrt(gamma) for all neurons and all steps of stage one, with C up to 0.1 where sigma0 is a tenth of v0.
    """
    for law in _laws(size):
        for draw in _seeds(seed, size):
            path = _run(law, ratio, draw)
            stage = slice(1, path.end_of_stage_one + 1)
            rho, moved = path.rho[stage], path.first[stage] - path.first[0]
            rest = np.linalg.norm(moved - rho[:, :, None] / path.gamma * path.g, axis=2)
            unit = float(np.trace(path.x @ path.x.T)) / len(path.y) / path.gamma**2 * np.abs(rho)
            case = {"law": law, "draw": draw, "sigma0 / v0": ratio}
            yield at_most(rest / unit, 0.1, **case, what="C of the fifth claim")


def _induction(path: _Descent, share: float) -> tuple[np.ndarray, np.ndarray]:
    """rho_r v_r(0) and v_r v_r(0) in stage one, over the first four bounds of (13) with gamma (1 + share unit)^2, unit
    = tr(Sigma) / gamma^{3/2}, less 1.
    """
    stage = slice(1, path.end_of_stage_one + 1)
    unit = float(np.trace(path.x @ path.x.T)) / len(path.y) / path.gamma**1.5
    steps, x = np.arange(1, stage.stop)[:, None], 0.05 * (1 + share * unit)
    grown, shrunk = (1 + x) ** steps, (1 - x) ** steps
    initial = path.v[0] ** 2 / 2
    rho = path.rho[stage] * path.v[0] / (math.sqrt(path.gamma) * initial * (grown - shrunk)) - 1
    return rho, path.v[stage] * path.v[0] / (initial * (grown + shrunk)) - 1


@evidence("feature/E28", negative_control={"below": 0.5})
def two_gammas(size: str, below: float = -0.5) -> Iterator[Finding]:
    """All neurons and steps of stage one at sigma0 = v0 / 1e6, C1 = C2 = 1/2: the first four bounds of (13), from below
    with gamma_l and from above with gamma_u, hold to 1e-5, of the order of sigma0 / v0. With gamma_u from below they
    fail by 2e-4 and more, whatever C2 >= 0 is.
    """
    for law in _laws(size):
        for draw in _seeds(0, size):
            path, case = _run(law, 1e-6, draw), {"law": law, "draw": draw}
            bounds = zip(("rho_r", "v_r"), _induction(path, below), _induction(path, 0.5), strict=True)
            for name, lower, upper in bounds:
                yield at_least(lower, -1e-5, **case, of=name, what="over the lower bound, less 1")
                yield at_most(upper, 1e-5, **case, of=name, what="over the upper bound, less 1")
            for share, reading in ((0.5, ""), (0.0, "C2 = 0, the smallest gamma_u")):
                for name, lower in zip(("rho_r", "v_r"), _induction(path, share), strict=True):
                    found = at_least(lower, -1e-5, **case, of=name, what="over the printed lower bound, less 1")
                    yield as_printed(found, reading)


@claim("feature/C29", "asymptotic", "section 5.1, stage two", negative_control={"ratio": 3.0})
def every_neuron_grows(size: str, ratio: float = 0.1, seed: Seed = 0) -> Iterator[Finding]:
    """On descent itself |rho_r| and rho_r v_r grow at every step for all neurons, until the loss is a thousandth of its
    start, where sigma0 is a tenth of v0.
    """
    for law in _laws(size):
        for draw in _seeds(seed, size):
            path = _run(law, ratio, draw)
            end = int(np.argmax(path.losses < 1e-3 * path.losses[0]))
            rho, both = path.rho[: end + 1], (path.rho * path.v)[: end + 1]
            case = {"law": law, "draw": draw, "steps": end}
            yield at_least(end, 50, **case, what="steps to a thousandth of the loss")
            for name, values in (("|rho_r|", np.abs(rho)), ("rho_r v_r", both)):
                falls = np.diff(values, axis=0) < 0
                yield at_most(np.mean(np.any(falls, axis=0)), 0.0, **case, what=f"share of neurons whose {name} falls")


@claim("feature/C30", "bound", "section 4.1", negative_control={"level": 1.0})
def outputs_begin_small(size: str, level: float = 1e-2, seed: Seed = 0) -> Iterator[Finding]:
    """At initialization |f(x_i)| is small beside the labels: |f(0)| / |y| is sigma0 v0 sqrt(tr Sigma / w) / beta up
    to a factor of 3, which is below 1e-4 where v0 sqrt(gamma) = sigma0 sqrt(gamma) = 0.01, and shrinks in proportion to
    sigma0 v0.
    """
    for law in _laws(size):
        for draw in _seeds(seed, size):
            sizes = []
            for scale in (level, level / 10):
                path = _run(law, 1.0, draw, level=scale)
                sizes.append(float(np.linalg.norm(path.outputs[0]) / np.linalg.norm(path.y)))
                initial = scale / math.sqrt(path.gamma)  # sigma0 and v0, with beta = 1
                unit = initial**2 * math.sqrt(float(np.trace(path.x @ path.x.T)) / len(path.y) / path.width)
                yield within(
                    sizes[-1] / unit, 1 / 3, 3.0, law=law, draw=draw, scale=scale, what="|f(0)| / |y|, in units"
                )
            case = {"law": law, "draw": draw}
            yield at_most(sizes[0], 1e-4, **case, what="|f(0)| / |y|")
            yield within(sizes[0] / sizes[1], 99, 101, **case, what="ten times both scales")


@claim("feature/C31", "statistical", "section 5.1, after Lemma 5.3", negative_control={"level": 100.0}, band=THREE)
def kernel_escalates(size: str, level: float = 1e-2, seed: Seed = 0) -> Iterator[Finding]:
    """In stage two, from rho = 1 until a hundredth of the loss is left, the largest eigenvalue of the tangent kernel
    grows at every step, by a factor of ten and more in all, from small initializations; from a lazy one it does not.
    """
    for law in _laws(size):
        for draw in _seeds(seed, size):
            path = _run(law, 0.1, draw, level=level)
            initial, end = path.end_of_stage_one, int(np.argmax(path.losses < 1e-2 * path.losses[0]))
            tops = np.array([np.linalg.eigvalsh(path.kernel(i))[-1] for i in range(initial, end + 1)])
            case = {"law": law, "draw": draw, "steps": len(tops)}
            yield at_least(np.diff(tops) / tops[:-1], 0.0, **case, what="growth in a step, smallest")
            yield at_least(tops[-1] / tops[0], 10.0, **case, what="growth in stage two")


@claim("feature/C37", "bound", "Lemma 5.3, third item", negative_control={"power": 1.0})
def kernel_for_all_sizes(size: str, power: float = 2.0, seed: Seed = 0) -> Iterator[Finding]:
    """In stage two |Theta - T(mean(v^2) / w)| <= C (mean(v^2) / w) tr(Sigma) with C up to 1/2 for all widths, numbers
    of samples, sizes of the teacher, and traces: 24 and 96, 5 and 20, 0.3 and 3, 4000 and 40,000, sigma0 a tenth of v0.
    """
    for n in (5, 20):
        for d in (4000, 40_000):
            for beta in (0.3, 3.0):
                for width in (24, 96):
                    rng = np.random.default_rng([seed, n, d, width])
                    x, y = _samples(rng, n, np.ones(d), beta, 0.01 * beta)
                    v0 = 1e-2 / float(np.linalg.norm(x.T @ y))
                    path = _descend(x, y, rng, width, v0, 0.1 * v0, 0.05, 250 if size == "quick" else 420)
                    pulled, case = x @ (x.T @ y), {"n": n, "d": d, "beta": beta, "w": width}
                    shape = x @ x.T + np.outer(pulled, pulled) / path.gamma
                    for i in range(path.end_of_stage_one, len(path.v), 40):
                        square = float(np.mean(np.abs(path.v[i]) ** power)) / width
                        gap = float(np.linalg.norm(path.kernel(i) - square * shape, 2))
                        yield at_most(gap / (square * d), 0.5, **case, step=i, what="C of the third item")


@claim("feature/C32", "asymptotic", "Lemma 5.3, time of stage two", negative_control={"power": 0.9})
def time_of_stage_two(size: str, power: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """From rho = 1 to the share q of the loss stage two takes (w n / (lr sqrt(gamma))) ln(u (rho_star^2 - 1) / (1 - u))
    / 2 steps with 1 - u = sqrt(q): log(rho_star) and a quarter of log(1/q), the orders of the lemma, for small and
    large labels.
    """
    step = 0.05
    for beta in (0.3, 30.0) if size == "quick" else (0.3, 3.0, 30.0, 300.0):
        for draw in _seeds(seed, size):
            rng, n, d = np.random.default_rng([seed, draw]), 10, 100_000
            x, y = _samples(rng, n, np.ones(d), beta, 0.01 * beta)
            v0 = 1e-2 / float(np.linalg.norm(x.T @ y))
            path = _descend(x, y, rng, 24, v0, 0.1 * v0, step, 420)
            pulled = x @ (x.T @ y)
            top = path.gamma**2.5 / float(pulled @ pulled)  # rho_star^2
            for share in (1e-1, 1e-2):
                u = 1 - math.sqrt(share)
                predicted = math.log(u * (top**power - 1) / (1 - u)) / 2
                taken = step * (int(np.argmax(path.losses < share * path.losses[0])) - path.end_of_stage_one)
                yield within(taken / predicted, 0.97, 1.08, beta=beta, draw=draw, q=share, rho_star=math.sqrt(top))


# Concentration -------------------------------------------------------------------------------------------------------


@claim(
    "feature/C33",
    "statistical",
    "Lemma 5.1",
    negative_control={"operator": 0.0},
    band="none of 300 draws of each law, nor of five seeds: below 0.2 % at a level of 0.05",
)
def gram_concentrates_for_every_covariance(size: str, operator: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """|X X^T - tr(Sigma) I| <= 3 (n |Sigma| + sqrt(n) |Sigma|_F) with a frequency of 1 - n^-2 and more, for covariances
    without preferred directions, with a power law, and with one large direction, for normal entries and for signs; for
    the last one the first term cannot be left out.
    """
    draws, d = (100, 400) if size == "quick" else (1000, 600)
    laws: dict[str, Callable[[int], np.ndarray]] = {
        **_COVARIANCES,
        "one large direction": lambda d: np.where(np.arange(d) == 0, 10.0 * d, 1.0),
    }
    for name, law in laws.items():
        values = law(d)
        for n in (10, 60):
            for signs in (False, True):
                rng = np.random.default_rng([seed, n])
                unit = operator * n * values.max() + math.sqrt(n) * float(np.linalg.norm(values))
                failed, shape = 0, (100, n, d)
                for _ in range(draws // 100):
                    z = rng.choice([-1.0, 1.0], size=shape) if signs else rng.normal(size=shape)
                    grams = (z * values) @ z.swapaxes(1, 2) - values.sum() * np.eye(n)
                    failed += int(np.sum(np.abs(np.linalg.eigvalsh(grams)).max(axis=1) > 3 * unit))
                case = {"law": name, "n": n, "entries": "signs" if signs else "normal", "draws": draws}
                yield at_most(failed / draws, n**-2.0, **case, what="frequency of more than three times the bound")


def _feature_sizes(rng: np.random.Generator, n: int, d: int, noise: float, *, signs: bool) -> tuple[float, float]:
    """gamma / (n tr(Sigma) beta^2) and |X alpha|^2 / (n |alpha|^2) of a draw, Sigma = I; normal inputs by their law."""
    if signs:
        x, alpha = rng.choice([-1.0, 1.0], size=(n, d)), rng.normal(size=d) / math.sqrt(d)
        along = x @ alpha / np.linalg.norm(alpha)
        labels = along + math.sqrt(noise) * rng.normal(size=n)
        gamma = float(np.sum((labels @ x) ** 2))
    else:
        along = rng.normal(size=n)
        labels = along + math.sqrt(noise) * rng.normal(size=n)
        gamma = float(along @ labels) ** 2 + float(labels @ labels) * rng.chisquare(d - 1)
    return gamma / (n * d), float(along @ along) / n


@claim("feature/C34", "statistical", "Lemmas A.3 and A.4", negative_control={"noise": 2.0}, level=2e-5, tests=4)
def feature_concentrates_with_noise(size: str, noise: float = 0.05, seed: Seed = 0) -> Iterator[Finding]:
    """With noise of a twentieth of beta^2, gamma / (n tr(Sigma) beta^2) is in [1/2, 3/2] and |X alpha|^2 / (n
    |alpha|_Sigma^2) in [1/2, 2], the more often the more samples there are, for normal entries and for signs: with many
    in every draw. For few samples they are so less often than 1 - n^-2 (feature/C14, feature/C15).
    """
    for signs, counts, d, several in ((False, (20, 1000), 10**6, (500, 500)), (True, (20, 300), 8000, (100, 40))):
        shares = []
        for n, draws in zip(counts, several, strict=True):
            rng = np.random.default_rng([seed, n, int(signs)])
            count = draws if size == "quick" else 5 * draws
            found = np.array([_feature_sizes(rng, n, d, noise, signs=signs) for _ in range(count)])
            shares.append(float(np.mean(np.any((found < 0.5) | (found > [1.5, 2.0]), axis=1))))
        case = {"entries": "signs" if signs else "normal", "what": "frequency outside"}
        yield at_most(shares[1], 0.0, **case, n=counts[1], draws=several[1])
        yield at_least(shares[0], 0.02, **case, n=counts[0], draws=several[0])


@claim("feature/C35", "asymptotic", "section 5.1, equation (9)", negative_control={"share": 0.0})
def difference_tends_to_the_initialization(size: str, share: float = 1.0, seed: Seed = 0) -> Iterator[Finding]:
    """In stage one rho_r - sqrt(gamma) v_r does not vanish but tends to -<w_r(0), X^T y>, the projection of the
    initialization, as (1 - x)^t; relative to rho_r it diminishes, as the text says.
    """
    for law in _laws(size):
        for draw in _seeds(seed, size):
            path = _run(law, 1.0, draw, level=1e-4)
            initial = path.first[0] @ path.g
            differences = path.rho - math.sqrt(path.gamma) * path.v
            end = path.end_of_stage_one
            case = {"law": law, "draw": draw}
            left = np.abs(differences[end] + share * initial) / np.std(initial)
            yield at_most(left, 0.02, **case, what="distance from minus the projection, in its deviations")
            relative = [np.median(np.abs(differences[i] / path.rho[i])) for i in (end // 4, end // 2, end)]
            yield at_most(
                np.array(relative[1:]) / relative[:-1], 0.5, **case, what="relative difference, later over before"
            )
