"""Every number of a balance against the layers' own flow by another solver, and every mistake as one sentence."""

import math

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import linnet as ln
from linnet import prediction
from linnet._check import InputError
from linnet.prediction.assumption import NotApplicable
from linnet.theory.regime import Regime

NEAR = 0.01


def predicted(problem, lam, *, width=None, scale=0.01, aligned=False, seed=0, optimizer=None, **switch):
    """Of a problem or a spectrum, and of layers or those of `lambda_balanced`, by default as wide as the heavier."""
    problem = problem if isinstance(problem, ln.problems.Problem) else prediction.whitened(problem)
    if not isinstance(lam, ln.Weights):
        d_out, d_in = problem.shape
        width = width or (d_out if lam > 0 else d_in if lam < 0 else min(d_out, d_in))
        lam = ln.init.lambda_balanced(jax.random.key(seed), problem, lam, width, scale=scale, aligned=aligned)
    return prediction.balance(problem, lam, optimizer, **switch)


def integrated(layers, target, horizon, curvature=1.0):
    """Gradient flow of all weights: a function of time to the two layers."""
    (w, d_in), d_out = layers[0].shape, layers[1].shape[0]

    def parts(flat):
        return flat[: w * d_in].reshape(w, d_in), flat[w * d_in :].reshape(d_out, w)

    def velocity(_, flat):
        first, second = parts(flat)
        force = curvature * (target - second @ first)
        return np.concatenate([(second.T @ force).ravel(), (force @ first.T).ravel()])

    start = np.concatenate([np.asarray(part).ravel() for part in layers])
    run = solve_ivp(velocity, (0, horizon), start, "DOP853", rtol=1e-12, atol=1e-14, dense_output=True)
    return lambda time: parts(run.sol(time))


def kernel(first, second):
    """I x C1 + C2 x I, entry by entry."""
    d_out, d_in = second.shape[0], first.shape[1]
    return np.kron(np.eye(d_out), first.T @ first) + np.kron(second @ second.T, np.eye(d_in))


def hessian(first, second, target, curvature=1.0):
    """Of the loss in all weights, by differences of its gradient."""
    shapes, flat = (first.shape, second.shape), np.concatenate([first.ravel(), second.ravel()])

    def gradient(theta):
        one, two = theta[: first.size].reshape(shapes[0]), theta[first.size :].reshape(shapes[1])
        gap = curvature * (two @ one - target)
        return np.concatenate([(two.T @ gap).ravel(), (gap @ one.T).ravel()])

    step = 1e-5 * np.eye(flat.size)
    return np.array([(gradient(flat + e) - gradient(flat - e)) / 2e-5 for e in step])


def same_course(told, layers, target, curvature=1.0, rel=1e-7):
    """All that is told of one task, against an integration from these layers; returns the last ones.

    `rel` is what the times share, less where the layers themselves were integrated up to some late time.
    """
    late = 1.5 * max(when.time for m in told.modes for when in (m.learned, told.fit) if math.isfinite(when.time))
    far = 6 * late
    at = integrated(layers, target, far, curvature)
    u, s, vt = np.linalg.svd(target)

    def mode(i, time):
        first, second = at(time)
        return u[:, i] @ second @ first @ vt[i]

    first, second = at(far)
    end = second @ first

    def excess(time):
        one, two = at(time)
        return curvature / 2 * (np.sum((two @ one - target) ** 2) - np.sum((end - target) ** 2))

    for i, found in enumerate(told.modes):
        assert found.value == pytest.approx(s[i])
        assert found.initial == pytest.approx(mode(i, 0), abs=1e-4 * rel)
        assert found.final == pytest.approx(mode(i, far), abs=2e-4 * s[0])
        assert found.half_learned.exact
        assert found.learned.exact
        if math.isfinite(found.half_learned.time) and found.half_learned.time > 0:
            assert mode(i, found.half_learned.time) == pytest.approx(s[i] / 2, rel=rel)
        if math.isfinite(found.learned.time):
            assert abs(mode(i, found.learned.time) / s[i] - 1) == pytest.approx(NEAR, rel=1e-4)
            later = [abs(mode(i, t) / s[i] - 1) for t in np.linspace(found.learned.time * 1.001, late, 50)]
            assert max(later) < NEAR
        else:
            assert abs(mode(i, far) / s[i] - 1) > NEAR
        gram = [vt[i] @ one.T @ one @ vt[i] + u[:, i] @ two @ two.T @ u[:, i] for one, two in (at(0), at(far))]
        if gram[0] > 1e-3:  # a mode without neurons has no kernel, and so far the integration did not know
            assert found.kernel_growth == pytest.approx(gram[1] / gram[0], rel=2e-3, abs=1e-3)
    assert excess(told.fit.time) == pytest.approx(NEAR * excess(0), rel=1e-3)
    assert told.loss.initial == pytest.approx(curvature / 2 * np.sum((layers[1] @ layers[0] - target) ** 2))
    assert told.loss.final == pytest.approx(curvature / 2 * np.sum((end - target) ** 2), rel=1e-3, abs=1e-6)
    assert told.rank == np.sum(np.linalg.svd(end, compute_uv=False) > 1e-2 * s[0])
    begin = kernel(*layers)
    moved = np.linalg.norm(kernel(first, second) - begin) / np.linalg.norm(begin)
    assert told.kernel_change == pytest.approx(moved, rel=1e-3, abs=1e-6)
    for change, (before, after) in (
        (told.input_gram_change, (layers[0].T @ layers[0], first.T @ first)),
        (told.output_gram_change, (layers[1] @ layers[1].T, second @ second.T)),
    ):
        assert change == pytest.approx(np.linalg.norm(after - before) / np.linalg.norm(before), rel=1e-3, abs=1e-6)
    top = np.linalg.eigvalsh(hessian(first, second, target, curvature))[-1]
    assert told.largest_stable_lr == pytest.approx(2 / top, rel=1e-3)
    return first, second


CASES = {
    "wide enough": ((3, 3), 0.5, {}),
    "heavy first layer": ((3, 4), -0.7, {"seed": 3}),
    "more outputs": ((4, 3), 0.7, {"seed": 4}),
    "narrow": ((4, 4), 2.0, {"width": 2}),
    "narrow, heavy first": ((3, 5), -0.4, {"width": 2, "scale": 0.3}),
    "balanced": ((3, 4), 0.0, {"scale": 0.2}),
    "balanced, wide": ((3, 4), 0.0, {"scale": 0.2, "width": 9}),
    "lazy": ((3, 3), 40.0, {}),
    "aligned": ((3, 4), 0.3, {"aligned": True}),
    "aligned, narrow": ((4, 3), -0.3, {"aligned": True, "width": 2, "scale": 0.1}),
    "from above": ((3, 3), 0.5, {"scale": 2.0}),
}


@pytest.mark.parametrize("name", CASES)
def test_every_number_against_the_layers_own_flow(name):
    """On the task, and on the reversed one from where the integration came to."""
    (d_out, d_in), lam, options = CASES[name]
    rng = np.random.default_rng(5)
    u, v = (np.linalg.qr(rng.normal(size=(d, d)))[0] for d in (d_out, d_in))
    k = min(d_out, d_in)
    target = (u[:, :k] * np.array([3.0, 2.0, 1.2, 0.7])[:k]) @ v[:, :k].T
    problem = ln.factorization(target)
    said = predicted(problem, lam, **options)
    heavy = {1: d_out, -1: d_in, 0: k}[int(np.sign(lam))]
    width = options.get("width", heavy)
    assert (said.inputs, said.outputs, said.width, said.curvature) == (d_in, d_out, width, 1.0)
    assert said.lam == pytest.approx(lam, rel=1e-12, abs=1e-12)
    options = {"scale": 0.01} | {name: value for name, value in options.items() if name in ("scale", "aligned")}
    seed = CASES[name][2].get("seed", 0)
    state = ln.init.lambda_balanced(jax.random.key(seed), problem, lam, width, **options)
    last = same_course(said, [np.asarray(w) for w in state.layers], target)
    then = said.switch
    assert then.to == "reversal"
    assert then.saddle == (lam == 0)
    if lam != 0:
        same_course(then, last, -target, rel=1e-3)


def test_the_curvature_of_a_regression_is_that_of_its_samples():
    problem = prediction.whitened([3, 1], inputs=3, outputs=2, samples=7)
    said = predicted(problem, 0.5)
    assert said.curvature == pytest.approx(7)
    state = ln.init.lambda_balanced(jax.random.key(0), problem, 0.5, 2, scale=0.01)
    same_course(said, [np.asarray(w) for w in state.layers], np.asarray(problem.target), 7.0)
    noisy = np.vstack([np.eye(2), -np.eye(2)])
    labels = noisy @ np.diag([2.0, 1.0]) + 0.3
    fitted = predicted(ln.regression(noisy, labels, average=True), 0.5)
    assert fitted.curvature == pytest.approx(0.5)
    assert fitted.loss.final == pytest.approx(0.3**2 / 2 * 2)
    assert fitted.loss.initial - fitted.loss.final == pytest.approx(
        0.25 * np.sum((fitted.data["solution"].first.matrix - np.diag([2.0, 1.0])) ** 2)
    )


def test_another_task_from_where_the_first_ended():
    rng = np.random.default_rng(2)
    target, other = rng.normal(size=(2, 3, 4))
    problem = ln.factorization(target)
    for lam in (0.4, -2.0):
        said = predicted(problem, lam, switch=other)
        assert said.switch.to == "another target"
        state = ln.init.lambda_balanced(jax.random.key(0), problem, lam, said.width, scale=0.01)
        last = same_course(said, [np.asarray(w) for w in state.layers], target)
        same_course(said.switch, last, other, rel=1e-3)
    same = predicted(problem, 0.4, switch=target).switch
    assert same.fit.time == 0
    assert all(mode.learned.time == 0 for mode in same.modes)
    assert same.kernel_change < 1e-12


def test_reversal_stays_at_zero_for_lambda_zero_and_passes_it_otherwise():
    """Which is what the layers do: the loss ends at that of A = 0, and the speed at zero is |lambda| s."""
    target = np.diag([3.0, 1.0])
    stuck = predicted(ln.factorization(target), ln.init.balanced(target, (2,))).switch
    at = integrated([np.asarray(w) for w in ln.init.balanced(target, (2,)).layers], -target, 8.0)
    first, second = at(8.0)
    assert np.abs(second @ first).max() < 1e-5
    assert (stuck.saddle, stuck.missing, stuck.rank) == (True, 2, 0)
    assert stuck.loss.final == pytest.approx(np.sum(target**2) / 2)
    assert all(math.isinf(mode.learned.time) for mode in stuck.modes)
    assert "stays at 0" in stuck.explanation
    moves = predicted(ln.factorization(target), 0.2).switch
    seen = moves.data["solution"].curves(np.linspace(0, 4, 4001))
    for i, s in enumerate((3.0, 1.0)):
        k = int(np.argmax(seen.modes[:, i] > 0))
        speed = (seen.modes[k, i] - seen.modes[k - 1, i]) / 1e-3
        assert speed == pytest.approx(0.2 * s, rel=0.05)
    times = [predicted([3, 1], lam, aligned=True).switch.modes[1].learned.time for lam in (1e-4, 1e-6)]
    assert times[1] - times[0] == pytest.approx(math.log(100), rel=1e-3)  # ln(1/lambda)/s


def test_the_sign_of_the_determinant_decides_for_lambda_zero():
    problem, saddles = ln.factorization(np.diag([3.0, 2.0, 1.0])), []
    for seed in range(8):
        said = predicted(problem, 0.0, seed=seed)
        state = ln.init.lambda_balanced(jax.random.key(seed), problem, 0.0, 3, scale=0.01)
        saddles.append(np.linalg.det(np.asarray(state.matrix)) < 0)
        assert said.saddle == saddles[-1]
        assert said.rank == 3 - said.missing
        assert said.loss.final == pytest.approx(0.5 * said.missing)
        assert math.isinf(said.modes[2].learned.time) == said.saddle
        assert ("It ends at a saddle" in str(said)) == said.saddle
    assert 0 < sum(saddles) < 8


def test_lazy_or_rich_by_lambda():
    """The kernel of an aligned mode is hypot(2a, lambda), and the words are those of all topics."""
    for lam, regime in (
        (0.0, "rich"),
        (0.01, "rich"),
        (2.0, "mixed"),
        (-2.0, "mixed"),
        (40.0, "lazy"),
        (-40.0, "lazy"),
    ):
        said = predicted([3, 2], lam, aligned=True, scale=0.1)
        assert said.regime == regime
        for mode in said.modes:
            grown = math.hypot(2 * mode.value, lam) / math.hypot(2 * mode.initial, lam)
            assert mode.kernel_growth == pytest.approx(grown)
            assert mode.regime is Regime.of_growth(grown)
    # on the way through zero a kernel is |lambda|, and comes back to what it was
    then = predicted([3, 2], 0.5, aligned=True).switch
    assert [mode.kernel_growth for mode in then.modes] == pytest.approx([1, 1])
    assert then.regime is Regime.MIXED
    assert [mode.regime for mode in then.modes] == [Regime.of_growth(math.hypot(2 * s, 0.5) / 0.5) for s in (3, 2)]
    # with fewer neurons than outputs the kernel moves however large lambda is
    assert predicted([3, 2], 1e3).kernel_change < 1e-4
    assert predicted([3, 2], 1e3, width=1).kernel_change > 0.1


def test_layers_that_are_given():
    problem = ln.factorization(np.diag([3.0, 2.0, 1.0]))
    for lam in (0.3, 0.0, -2.0):
        state = ln.init.lambda_balanced(jax.random.key(4), problem, lam, 3, scale=0.01)
        given, drawn = predicted(problem, state), predicted(problem, lam, seed=4)
        assert given.lam == pytest.approx(lam, abs=1e-12)
        assert given.defect < 1e-12
        for one, other in zip(given.modes, drawn.modes, strict=True):
            assert one.half_learned.time == pytest.approx(other.half_learned.time, rel=1e-9)
            assert one.learned.time == pytest.approx(other.learned.time, rel=1e-9)
        assert given.kernel_change == pytest.approx(drawn.kernel_change)
    only = ln.Weights(
        (np.diag([0.1, 0.0, 0.0]), np.diag([0.1, 0.0, 0.0]))
    )  # aligned with one mode, and none of the others
    one = predicted(problem, only)
    assert (one.rank, one.missing, one.saddle) == (1, 2, True)
    assert [math.isinf(mode.learned.time) for mode in one.modes] == [False, True, True]


def test_a_start_that_ends_at_zero_has_no_kernel_for_the_next_task():
    """One input, one output, lambda = 0 and the wrong sign: zero is all that follows, of either task."""
    target = np.array([[2.0]])
    said = predicted(ln.factorization(target), ln.Weights(([[0.1]], [[-0.1]])), switch=[[5.0]])
    assert (said.rank, said.saddle, said.kernel_change) == (0, True, pytest.approx(1))
    then = said.switch
    assert (then.rank, then.saddle, then.missing, then.kernel_change) == (0, True, 1, 0)
    assert then.loss.initial == then.loss.final == pytest.approx(12.5)
    seen = said.measure().switch
    assert (seen.largest_gap_in_modes, seen.largest_gap_in_kernel, seen.kernel_change) == (0, 0, 0)
    assert "never learned" in str(said)
    assert "loss at initialization -> in the end" in str(said)


def test_equal_values_are_told_in_the_directions_that_come():
    said = predicted([3, 3, 3], 1.0, width=2)
    assert [mode.final for mode in said.modes] == pytest.approx([3, 3, 0], abs=1e-9)
    assert [math.isfinite(mode.learned.time) for mode in said.modes] == [True, True, False]
    assert not said.saddle
    assert [math.isfinite(mode.learned.time) for mode in said.switch.modes] == [True, True, False]


def test_what_comes_too_late_is_unknown_and_aligned_starts_know_every_time():
    seeds = (predicted([1, 1e-6], 0.0, seed=seed) for seed in range(9))
    late = next(said for said in seeds if not said.saddle)
    assert math.isnan(late.modes[1].learned.time)
    assert late.modes[1].learned.error is None
    assert "comes later than the flow was evaluated" in " ".join(str(late).split())
    known = predicted([1, 1e-6], 0.0, aligned=True).modes[1].learned
    assert known.exact
    assert known.time > 1e6


@pytest.mark.parametrize(("lam", "options"), [(0.5, {}), (0.0, {"aligned": True}), (-1.0, {"width": 2})])
def test_the_exact_flow_beside_it(lam, options):
    said = predicted([3, 2, 1], lam, **options)
    heard = []
    seen = said.measure(progress=lambda done, whole: heard.append((done, whole)))
    assert [done for done, whole in heard].count(heard[-1][1]) == 2  # both runs to their ends
    for told, found in ((said, seen), (said.switch, seen.switch)):
        assert found.status == "horizon"
        assert found.ended == pytest.approx(told.data["solution"].horizon)
        assert max(found.largest_gap_in_modes, found.largest_gap_in_kernel) < 1e-9
        assert found.kernel_change == pytest.approx(
            told.data["solution"].curves([found.ended]).kernel_change[0], rel=1e-9
        )
        for mode, run in zip(told.modes, found.modes, strict=True):
            for one, other in ((mode.half_learned, run.half_learned), (mode.learned, run.learned)):
                assert math.isnan(other.time) == math.isinf(one.time)
                assert math.isinf(one.time) or other.time == pytest.approx(one.time, rel=1e-5)


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        (([3, 2], 0.5), {"width": 3}, "width = 3 is not allowed: lambda > 0 needs a width of at most d_out = 2"),
        (([3, 2], 0.5), {"width": -1}, "width = -1 is not allowed"),
        (([3, 2], math.nan), {}, "lam = nan is not allowed"),
        (([3, 2], 1e12), {}, "lost in rounding beside more than 1e+08 times the largest singular value"),
        (([3, 2], 0.0), {"scale": 0}, "network has layers of zero: they never move"),
        (([3, 2], 0.5), {"scale": -1}, "scale = -1 is not allowed"),
        (([3, 2], 0.5), {"aligned": 1}, "aligned = 1 is not allowed"),
        (([3, 2], 0.5), {"switch": "transfer"}, "switch must be 'reversal', a matrix or a file of one"),
        (([3, 2], 0.5), {"switch": "there.npz"}, "switch = 'there.npz' is not allowed: it must end in"),
        (([3, 2], 0.5), {"switch": np.eye(3)}, "it has shape (3, 3), and (2, 2) is needed"),
        (([3, 2], 0.5), {"switch": np.zeros((2, 2))}, "switch has entries that reach 0"),
        (([3, 2], 0.5), {"switch": ln.factorization(np.eye(2))}, "give its target"),
        ((np.geomspace(1, 2, 101), 0.5), {}, "is followed up to 200 of both together"),
        (
            (ln.regression(np.diag([1.0, 2.0]), np.eye(2)), 0.5),
            {},
            "not white: the smallest eigenvalue of X^T X is 0.25",
        ),
        ((ln.regression(np.eye(3)[:2], np.eye(2)), 0.5), {}, "ask `predict network`, or whiten the inputs first"),
        ((ln.factorization(np.zeros((2, 2))), 0.5), {}, "there is nothing to learn"),
        (([3, 2], ln.Weights((np.eye(2), np.eye(2), np.eye(2)))), {}, "needs Weights of two layers"),
        (([3, 2], ln.Weights((np.eye(2), np.zeros((3, 2))))), {}, "and the problem needs (2, 2)"),
        (([3, 2], ln.Weights((np.zeros((2, 2)), np.zeros((2, 2))))), {}, "layers of zero"),
    ],
)
def test_bad_input_is_one_sentence(given, options, words):
    with pytest.raises(InputError) as refused:
        predicted(*given, **options)
    assert words in str(refused.value)


def test_layers_that_are_not_balanced_are_refused_with_their_defect():
    first, second = np.diag([2.0, 1.0]), np.eye(2)
    gap = second.T @ second - first @ first.T
    lam = np.trace(gap) / 2
    defect = np.linalg.norm(gap - lam * np.eye(2)) / (np.sum(first**2) + np.sum(second**2))
    with pytest.raises(NotApplicable, match=rf"W_1 W_1\^T = {lam:.3g} I \({defect:.2g}\)") as refused:
        predicted([3, 2], ln.Weights((first, second)))
    assert refused.value.theory == "balance"
    assert refused.value.assumption.measured == pytest.approx(defect)


def test_gradient_descent_has_steps():
    flow, descent = (predicted([3, 2], 0.5, optimizer=optimizer) for optimizer in (None, ln.optim.SGD(1e-3)))
    for one, other in ((flow, descent), (flow.switch, descent.switch)):
        assert other.fit.step == pytest.approx(one.fit.time / 1e-3)
        assert [mode.learned.step for mode in other.modes] == [mode.learned.time / 1e-3 for mode in one.modes]
    measured = descent.measure()
    assert measured.largest_gap_in_modes < 0.01
    assert measured.switch.largest_gap_in_modes < 0.01
    with pytest.raises(NotApplicable, match="steps are short"):
        predicted([3, 2], 0.5, optimizer=ln.optim.SGD(1.0))
    with pytest.raises(NotApplicable, match="plain gradient descent"):
        predicted([3, 2], 0.5, optimizer=ln.optim.SGD(0.1, momentum=0.9))


def test_many_modes_from_an_aligned_start():
    said = predicted(np.geomspace(1, 3, 300), 0.5, aligned=True)
    assert len(said.modes) == 300
    assert "292 more" in str(said)
