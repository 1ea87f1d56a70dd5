"""`linnet predict rates`: every number against the layers' own flow, and every mistake as one sentence."""

import json

import numpy as np
import pytest
from scipy.integrate import solve_ivp

COMMAND = ("predict", "rates")


def brute(z, depth, n, strength, a, b, horizon):
    """Layers of width one: distance to Z_1 and size in time, from a start in the frame of a diagonal Z."""
    root = strength ** (1 / depth)
    k = len(z)

    def velocity(_, state):
        x, w, y = state[:k], state[k], state[k + 1 :]
        g = n * (w ** (depth - 2) * np.outer(y, x) - np.diag(z))
        return -np.concatenate([w ** (depth - 2) * y @ g, [w ** (depth - 3) * (y @ g @ x)], w ** (depth - 2) * g @ x])

    def size(_, s):
        return s[k] ** (depth - 2) * np.linalg.norm(s[:k]) * np.linalg.norm(s[k + 1 :])

    def gap(t, s):
        a = s[k] ** (depth - 2) * np.outer(s[k + 1 :], s[:k])
        a[0, 0] -= z[0]
        return np.linalg.norm(a) / z[0] - 0.01

    def half(t, s):
        return size(t, s) / z[0] - 0.5

    start = np.concatenate([root * b, [root], root * a])
    return solve_ivp(velocity, (0, horizon), start, "DOP853", rtol=1e-11, atol=1e-13, events=[gap, half])


def test_numbers_are_those_of_the_layers(typed):
    z, depth, n, scale, ab = np.array([2.0, 0.6]), 4, 5, 1e-3, 0.49
    code, out, _ = typed(
        *(
            "--depth",
            depth,
            "--spectrum",
            "0.6,2",
            "--samples",
            n,
            "--scale",
            scale,
            "--alignment",
            ab,
            "--json",
            "--run",
        )
    )
    assert code == 0
    answer = json.loads(out)
    assert answer["start"]["alignment"] == pytest.approx(ab)
    cosine = np.sqrt(ab)
    # the other halves may have either sign: the answer says which limit and times belong to this seed
    solutions = [
        brute(
            z, depth, n, scale * z[0], np.array([cosine, s * np.sqrt(1 - ab)]), np.array([cosine, np.sqrt(1 - ab)]), t
        )
        for s in (1, -1)
        for t in [2 * answer["learned"]]
    ]
    gaps = [abs(s.t_events[0][-1] / answer["learned"] - 1) for s in solutions]
    best = solutions[int(np.argmin(gaps))]
    assert min(gaps) < 1e-7
    assert best.t_events[1][0] == pytest.approx(answer["half_grown"], rel=1e-7)
    assert answer["escape_time_of_a_small_start"] == pytest.approx(answer["half_grown"], rel=0.05)
    assert answer["near_rate"] == pytest.approx(n * z[0] ** 0.5 * (z[0] - z[1]))
    assert answer["largest_stable_lr"] == pytest.approx(2 / (n * depth * z[0] ** 1.5))
    assert answer["run"]["largest_gap_in_distance"] < 1e-8
    assert answer["proved_rates"] is None  # the theorem asks for a larger start


def test_what_is_told(typed, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 4))
    np.savez(tmp_path / "d.npz", X=x, Y=x @ rng.normal(size=(4, 1)) + rng.normal(size=(30, 1)))
    code, out, _ = typed("--depth", 3, "--data", "d.npz", "--scale", 6, "--alignment", 0.9, "--plot", "r.png")
    assert code == 0
    assert "your data, whitened first" in out
    assert "far phase ends" in out
    assert "proved" in out
    assert (tmp_path / "r.png").stat().st_size > 10_000
    code, out, _ = typed("--depth", 3, "--spectrum", "3,1", "--alignment", -0.5)
    assert "It gets there" in out  # both signs do, but for a null set of directions
    answer = json.loads(typed("--depth", 2, "--spectrum", "1,1", "--scale", 1e-6, "--json")[1])
    assert answer["near_rate"] == pytest.approx(2)  # along the fits that are equally good nothing moves
    assert answer["learned"] == pytest.approx(np.log(1e6 * 100) / 2, rel=0.1)
    at_rest = json.loads(typed("--depth", 2, "--spectrum", "3,1", "--alignment", 1, "--scale", 1, "--run", "--json")[1])
    assert at_rest["far_rate"] is None
    assert at_rest["learned"] == 0
    code, out, _ = typed("--depth", 4, "--spectrum", "0.5", "--alignment", -1)
    assert code == 0
    assert "It does not get there: the flow ends at size 0" in out
    assert "never" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--depth", "1", "--spectrum", "2"), "depth = 1"),
        (("--depth", "3"), "data or spectrum: give one of them"),
        (("--depth", "3", "--spectrum", "2,x"), "spectrum = '2,x'"),
        (("--depth", "3", "--spectrum", "2,-1"), "spectrum = '2,-1'"),
        (("--depth", "3", "--spectrum", "0"), "the largest above 0"),
        (("--depth", "3", "--spectrum", "2", "--scale", "0"), "scale = 0"),
        (("--depth", "3", "--spectrum", "2,1", "--alignment", "2"), "alignment = 2"),
        (("--depth", "3", "--spectrum", "2", "--samples", "0"), "samples = 0"),
        (("--depth", "3", "--spectrum", "2", "--outputs", "1"), "outputs = 1 is not allowed with --spectrum"),
        (("--depth", "3", "--data", "few.csv"), "cannot be whitened: 2 samples for 3 inputs; give at least as many"),
        (("--depth", "3", "--data", "few.csv", "--samples", "3"), "samples = 3 is not allowed with --data"),
        (("--depth", "3", "--data", "twice.csv"), "its 2 inputs have rank 1; leave out columns that depend on others"),
        (("--depth", "3", "--data", "across.csv"), "its labels are orthogonal to its inputs"),
        (("--depth", "3", "--spectrum", "1e300,1"), "keep numbers between 1e-50 and 1e+50"),
        (("--depth", "3", "--spectrum", "1", "--alignment", "0.5"), "one input and one output are aligned by +-1"),
        (("--depth", "3", "--spectrum", "1", "--scale", "1e-90", "--run"), "scale = 1e-90 is not allowed with --run"),
        (("--depth", "3", "--spectrum", "1", "--seed", "1" + "0" * 400), "seed = 1000"),
        (("--depth", "3", "--spectrum", "2", "--plot", "a.txt"), "plot = 'a.txt'"),
    ],
)
def test_mistakes_are_one_sentence(arguments, words, typed, tmp_path):
    (tmp_path / "few.csv").write_text("1,2,3,4\n5,6,7,9\n")
    (tmp_path / "twice.csv").write_text("1,2,3\n2,4,6\n5,10,1\n")
    (tmp_path / "across.csv").write_text("1,1\n1,-1\n")
    code, _, told = typed(*arguments)
    assert code == 2
    assert words in told
    assert "Traceback" not in told
