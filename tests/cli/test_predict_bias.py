"""`linnet predict bias`: every number against brute force, and every mistake as one sentence."""

import json

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import linnet as ln
from linnet.cli import predict_bias
from linnet.predict.data import read_regression
from linnet.predict.frame import of_samples

COMMAND = ("predict", "bias")


@pytest.fixture
def ask(typed):
    def run(*arguments):
        code, out, err = typed(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    return run


def full_flow(x, y, gamma, width, horizon, seed=0, times=None):
    """Gradient flow of all weights: (solution, layers of a flat state); events: half learned modes, the fit."""
    d_in, d_out = x.shape[1], y.shape[1]
    frame = np.linalg.qr(np.random.default_rng(seed).normal(size=(width, d_in)))[0]
    start = np.concatenate([np.sqrt(2 * gamma) * frame.ravel(), np.zeros(d_out * width)])

    def layers(flat):
        return flat[: width * d_in].reshape(width, d_in), flat[width * d_in :].reshape(d_out, width)

    def velocity(_, flat):
        first, second = layers(flat)
        force = (y - x @ (second @ first).T).T @ x
        return np.concatenate([(second.T @ force).ravel(), (force @ first.T).ravel()])

    limit = (np.linalg.pinv(x) @ y).T
    u, s, vt = np.linalg.svd(limit, full_matrices=False)
    floor = np.sum((x @ limit.T - y) ** 2) / 2

    def half(i):
        return lambda _, flat: u[:, i] @ layers(flat)[1] @ layers(flat)[0] @ vt[i] - s[i] / 2

    def fit(_, flat):
        first, second = layers(flat)
        return (np.sum((x @ (second @ first).T - y) ** 2) / 2 - floor) / (np.sum(y**2) / 2 - floor) - 0.01

    solution = solve_ivp(
        velocity,
        (0, horizon),
        start,
        method="DOP853",
        rtol=1e-12,
        atol=1e-13 * np.sqrt(gamma),
        t_eval=times,
        events=[*(half(i) for i in range(len(s))), fit],
    )
    return solution, layers


def write(path, x, y):
    np.savetxt(path, np.hstack([x, y]), delimiter=",", header="a,b,c", comments="")


# --- predictions ------------------------------------------------------------------------------------------------------


def samples(n=4, d_in=12, d_out=2, noise=0.0):
    rng = np.random.default_rng(8)
    x = rng.normal(size=(n, d_in))
    y = x @ rng.normal(size=(d_in, d_out)) @ np.diag([1, 0.3, 0.1][:d_out]) / 2
    return x, y + noise * rng.normal(size=y.shape)


@pytest.mark.parametrize("average", [True, False])
def test_every_number_of_data_against_full_weights(average, ask, tmp_path):
    x, y = samples()
    np.savez(tmp_path / "d.npz", inputs=x, labels=y)
    gamma, width = 0.05, 15
    extra = () if average else ("--sum",)
    answer = ask("--gamma", gamma, "--data", "d.npz", "--width", width, "--run", *extra)
    n = len(x) if average else 1
    x, y = x / np.sqrt(n), y / np.sqrt(n)
    horizon = 1.2 * max(answer["run"]["ended"], answer["fit"]["time"])
    solution, layers = full_flow(x, y, gamma, width, horizon)
    first, second = layers(solution.y[:, -1])
    end = second @ first
    values = np.linalg.svd(end, compute_uv=False)
    modes = answer["modes"]
    np.testing.assert_allclose([m["value"] for m in modes], values, rtol=1e-6)
    assert answer["predictor_norm"] == pytest.approx(np.linalg.norm(end), rel=1e-6)
    assert answer["loss"]["start"] == pytest.approx(np.sum(y**2) / 2, rel=1e-12)
    assert answer["loss"]["end"] == 0
    spectrum = np.linalg.svd(first, compute_uv=False)
    unmoved = answer["first_layer"]["unmoved"]
    assert unmoved == 10
    predicted = [*(m["first_layer"] for m in modes), *[answer["first_layer"]["start"]] * unmoved]
    np.testing.assert_allclose(predicted, spectrum, rtol=1e-6)
    np.testing.assert_allclose(
        [m["second_layer"] for m in modes], np.linalg.svd(second, compute_uv=False)[:2], rtol=1e-6
    )
    assert answer["first_layer"]["rank"] == np.sum(spectrum >= 2 * np.sqrt(2 * gamma))
    assert answer["first_layer"]["stable_rank"] == pytest.approx(np.sum(spectrum**2) / spectrum[0] ** 2, rel=1e-6)
    np.testing.assert_allclose(answer["predictor"], end, rtol=1e-5, atol=1e-6)
    for i, mode in enumerate(modes):
        true, when = solution.t_events[i][0], mode["half_learned"]
        assert not when["exact"]
        assert when["not_before"] < true < when["not_after"]
        assert when["time"] == pytest.approx(true, rel=0.3)  # an estimate, at this condition number
        assert answer["run"]["half_learned_at"][i] == pytest.approx(true, rel=1e-5)
    fitted = solution.t_events[-1][0]
    assert fitted < answer["fit"]["not_after"]
    assert answer["run"]["fit_at"] == pytest.approx(fitted, rel=1e-5)
    assert answer["run"]["status"] == "fitted"
    assert max(answer["run"][f"{name}_error"] for name in ("predictor", "first_layer", "second_layer")) < 1e-6


def test_the_flow_in_the_frame_of_the_samples_is_the_flow(tmp_path):
    x, y = samples(d_in=40)
    frame = of_samples(ln.regression(x, y, average=True))
    gamma = 0.03
    answer = predict_bias.bias(gamma, _saved(tmp_path, x, y), None, None, None, None, run=False, plot=None, quiet=True)
    clock, modes, first = predict_bias._measure(frame, gamma, answer, True)["curves"]
    x, y = x / np.sqrt(len(x)), y / np.sqrt(len(x))
    pick = np.arange(20, len(clock), 40)
    solution, layers = full_flow(x, y, gamma, 44, clock[pick[-1]], times=clock[pick])
    u, _, vt = np.linalg.svd((np.linalg.pinv(x) @ y).T, full_matrices=False)
    for k, flat in zip(pick, solution.y.T, strict=True):
        one, two = layers(flat)
        scale = np.linalg.norm(one) ** 2
        np.testing.assert_allclose(modes[k], np.diag(u.T @ two @ one @ vt.T), atol=1e-9 * scale)
        np.testing.assert_allclose(first[k], np.linalg.svd(one, compute_uv=False)[: first.shape[1]], rtol=1e-9)


def _saved(folder, x, y):
    np.savez(folder / "s.npz", X=x, Y=y)
    return folder / "s.npz"


def test_a_spectrum_is_exact(ask):
    gamma, goal = 0.2, [2.0, 0.7, 0.1]
    answer = ask("--gamma", gamma, "--spectrum", "0.7,2,0.1")
    solution, layers = full_flow(np.eye(3), np.diag(goal), gamma, 3, 60.0)
    assert [m["value"] for m in answer["modes"]] == goal
    assert answer["order"] == [1, 2, 3]
    for i, mode in enumerate(answer["modes"]):
        when = mode["half_learned"]
        assert when["exact"]
        assert when["not_before"] == when["not_after"] == when["time"]
        assert when["time"] == pytest.approx(solution.t_events[i][0], rel=1e-9)
        assert mode["over_gamma"] == pytest.approx(goal[i] / gamma)
    assert answer["fit"]["exact"]
    assert answer["fit"]["time"] == pytest.approx(solution.t_events[-1][0], rel=1e-9)
    first, _ = layers(solution.y[:, -1])
    np.testing.assert_allclose(
        [m["first_layer"] for m in answer["modes"]], np.linalg.svd(first, compute_uv=False), rtol=1e-8
    )
    assert [m["regime"] for m in answer["modes"]] == ["rich", "rich", "lazy"]
    assert answer["regime"] == "mixed"
    assert answer["largest_stable_lr"] == pytest.approx(1 / np.hypot(2, gamma), rel=1e-12)
    assert answer["inputs"]["whitened"]
    assert answer["samples"] is None
    assert ask("--gamma", 5, "--spectrum", "0.7,2,0.1")["regime"] == "lazy"
    assert ask("--gamma", 1e-60, "--spectrum", "0.7,2,0.1")["first_layer"]["rank"] == 3


def test_least_squares_and_labels_that_share_directions(ask, tmp_path):
    x, y = samples(n=30, d_in=3, d_out=2, noise=1.0)
    y = np.hstack([y[:, :1], 2 * y[:, :1], -y[:, :1]])  # three outputs, one mode
    write(tmp_path / "d.csv", x, y)
    answer = ask("--gamma", 0.1, "--data", "d.csv", "--outputs", 3)
    best = np.linalg.lstsq(x, y, rcond=None)[0]
    assert len(answer["modes"]) == 1
    assert answer["modes"][0]["value"] == pytest.approx(np.linalg.norm(best, 2), rel=1e-9)
    assert answer["loss"]["end"] == pytest.approx(np.sum((x @ best - y) ** 2) / 60, rel=1e-9)
    assert answer["first_layer"]["unmoved"] == 2


def test_the_largest_step_is_the_edge_of_descent(ask, tmp_path):
    x, y = samples()
    np.savez(tmp_path / "d.npz", X=x, Y=y)
    gamma = 0.3
    lr = ask("--gamma", gamma, "--data", "d.npz", "--sum")["largest_stable_lr"]

    limit = (np.linalg.pinv(x) @ y).T
    _, s, vt = np.linalg.svd(limit, full_matrices=False)
    root = np.sqrt(np.hypot(s, gamma) + gamma)
    layer = np.sqrt(2 * gamma) * np.eye(12) + (vt.T * (root - np.sqrt(2 * gamma))) @ vt
    settled = (layer, limit @ np.linalg.inv(layer))

    def descend(first, second, lr, steps):
        for _ in range(steps):
            force = (y - x @ (second @ first).T).T @ x
            first, second = first + lr * second.T @ force, second + lr * force @ first.T
        return np.linalg.norm(x @ (second @ first).T - y)

    # beside the end of the flow a step below the edge falls back, one above it leaves
    noise = np.random.default_rng(0).normal(size=(12, 12))
    beside = (settled[0] + 1e-7 * noise, settled[1])
    before = descend(*beside, lr, 0)
    assert descend(*beside, 0.99 * lr, 600) < 1e-3 * before
    assert descend(*beside, 1.01 * lr, 600) > 1e3 * before
    # and from the start descent arrives
    assert descend(np.sqrt(2 * gamma) * np.eye(12), np.zeros((2, 12)), 0.9 * lr, 3000) < 1e-12


def test_inputs_of_many_scales(ask, tmp_path):
    """Stiff: measured by an implicit solver in the mirror coordinate; beside it the closed flow of A by another."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 3)) * [100, 1, 0.3]
    y = x @ [0.02, 1.0, -2.0] + 0.1 * rng.normal(size=40)
    np.save(tmp_path / "d.npy", np.hstack([x, y[:, None]]))
    gamma = 0.01
    answer = ask("--gamma", gamma, "--data", "d.npy", "--run", "--plot", "s.svg")
    x, y = x / np.sqrt(40), y / np.sqrt(40)
    limit = np.linalg.pinv(x) @ y
    norm = np.linalg.norm(limit)

    def velocity(_, a):
        force = (y - x @ a) @ x
        s = np.linalg.norm(a)
        h = np.hypot(s, gamma)
        return (h + gamma) * force + (s / (h + gamma) * (a / max(s, 1e-300) @ force)) * a

    half = solve_ivp(
        velocity,
        (0, 10),
        np.zeros(3),
        method="Radau",
        rtol=1e-9,
        atol=1e-13,
        events=lambda _, a: a @ limit / norm - norm / 2,
    ).t_events[0][0]
    (mode,) = answer["modes"]
    assert mode["half_learned"]["not_before"] < half < mode["half_learned"]["not_after"]
    assert answer["run"]["half_learned_at"][0] == pytest.approx(half, rel=1e-5)
    assert answer["run"]["status"] == "fitted"
    assert answer["run"]["predictor_error"] < 1e-5
    assert answer["run"]["first_layer_error"] is None
    assert (tmp_path / "s.svg").read_text().startswith("<?xml")


def test_text_and_picture(typed, tmp_path):
    x, y = samples()
    write(tmp_path / "d.csv", x, y)
    code, out, err = typed("--gamma", 0.01, "--data", "d.csv", "--outputs", 2, "--width", 1000, "--plot", "p.png")
    assert code == 0, err
    told = " ".join(out.split())
    for words in (
        "rich: 2 of 2 modes",
        "4 samples, 12 inputs",
        "minimum norm",
        "not before",
        "width 1,000",
        "estimates",
    ):
        assert words in told
    assert (tmp_path / "p.png").stat().st_size > 20_000
    many = ",".join(str(k) for k in range(1, 15))
    told = " ".join(typed("--gamma", 1, "--spectrum", many, "--plot", "p.pdf")[1].split())
    assert "4 more" in told
    assert "~" not in told


@pytest.mark.parametrize("gamma", [1e-100, 1e-8, 1.0, 1e100])
@pytest.mark.parametrize("scale", [1e-40, 1e-8, 1.0, 1e3, 1e40])
def test_no_scale_breaks_it(gamma, scale, tmp_path):
    rng = np.random.default_rng(0)
    path = _saved(tmp_path, scale * rng.normal(size=(4, 3)), rng.normal(size=4))
    answer = predict_bias.bias(gamma, path, None, None, None, None, run=False, plot=None, quiet=True)
    numbers = [x for x in jax.tree.leaves(answer) if isinstance(x, float)]
    assert all(np.isfinite(x) or x == answer["steps_to_fit_at_that_lr"] for x in numbers)
    when = answer["modes"][0]["half_learned"]
    assert 0 < when["not_before"] <= when["time"] <= when["not_after"]


# --- files ------------------------------------------------------------------------------------------------------------


def test_files_say_the_same(tmp_path):
    x, y = samples()
    np.savez(tmp_path / "a.npz", inputs=x, labels=y)
    np.savez(tmp_path / "b.npz", X=x, Y=y)
    np.save(tmp_path / "c.npy", np.hstack([x, y]))
    np.savetxt(tmp_path / "d.csv", np.hstack([x, y]), delimiter=",", fmt="%.17g")
    names = ",".join(f"c{i}" for i in range(14))
    (tmp_path / "e.csv").write_bytes(b"\xef\xbb\xbf" + names.encode() + b"\r\n\r\n" + (tmp_path / "d.csv").read_bytes())
    for name in ("a.npz", "b.npz", "c.npy", "d.csv", "e.csv"):
        found = read_regression(tmp_path / name, outputs=None if name.endswith("npz") else 2)
        np.testing.assert_array_equal(found[0], x)
        np.testing.assert_array_equal(found[1], y)
    inputs, labels = read_regression(tmp_path / "d.csv")
    assert inputs.shape == (4, 13)
    assert labels.shape == (4, 1)
    np.savez(tmp_path / "f.npz", X=np.arange(6).reshape(3, 2), Y=np.array([True, False, True]))
    assert read_regression(tmp_path / "f.npz")[1].tolist() == [[1.0], [0.0], [1.0]]


BAD = {
    "nan.csv": b"1,2\nnan,3\n",
    "inf.csv": b"1,2\n3,inf\n",
    "ragged.csv": b"1,2,3\n4,5\n",
    "text.csv": b"1,2\n3,red\n",
    "hole.csv": b"1,2,3\n4,,5\n",
    "names.csv": b"a,b\n",
    "empty.csv": b"",
    "one.csv": b"1\n2\n",
    "latin.csv": "1,2\n3,\xe9\n".encode("latin-1"),
    "binary.csv": b"\x00\x01\n",
    "zeros.csv": b"0,1\n0,2\n",
    "flat.csv": b"1,0\n2,0\n",
    "orthogonal.csv": b"1,1\n1,-1\n",
    "huge.csv": b"1e80,1\n",
    "empty.npy": b"",
    "empty.npz": b"",
    "broken.npz": b"PK\x03\x04 nonsense",
    "broken.npy": b"\x93NUMPY\x01\x00 nonsense",
    "cut.npy": b"",
}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nan.csv", "inputs hold 1 NaN or infinite"),
        ("inf.csv", "labels hold 1 NaN or infinite"),
        ("ragged.csv", "line 2 has 2 cells and the first row of numbers 3"),
        ("text.csv", "line 2, column 2 holds 'red'"),
        ("hole.csv", "line 2, column 2 is empty"),
        ("names.csv", "no rows of numbers"),
        ("empty.csv", "no rows of numbers"),
        ("one.csv", "1 column, and 1 for labels leaves none"),
        ("latin.csv", "not text in UTF-8"),
        ("binary.csv", "cannot be used"),
        ("zeros.csv", "inputs are all zero"),
        ("flat.csv", "labels are all zero"),
        ("orthogonal.csv", "labels are orthogonal to its inputs"),
        ("huge.csv", "inputs reach 1e+80"),
        ("empty.npy", "empty, damaged"),
        ("empty.npz", "empty, damaged"),
        ("broken.npz", "empty, damaged"),
        ("broken.npy", "empty, damaged"),
        ("cut.npy", "empty, damaged"),
        ("objects.npy", "empty, damaged or not a .npy file of numbers"),
        ("objects.npz", "X or Y is damaged or not of numbers"),
        ("vector.npy", "its array has shape (3,)"),
        ("cube.npz", "X has shape (2, 2, 2)"),
        ("rows.npy", "shape (0, 3)"),
        ("complex.npz", "X is of type complex128"),
        ("words.npz", "Y is of type <U1"),
        ("names.npz", "inputs and labels, or X and Y, and has A, Y"),
        ("mismatch.npz", "inputs have 3 rows and labels 2"),
        ("really_npy.npz", "not a .npz file"),
        ("really_npz.npy", "not a .npy file"),
        ("missing.csv", "there is no such file"),
        ("folder.csv", "it is a folder"),
        ("data.txt", "it must end in .npz, .npy, .csv"),
    ],
)
def test_bad_files_are_one_sentence(name, words, typed, tmp_path):
    if name in BAD:
        (tmp_path / name).write_bytes(BAD[name])
    three = np.ones((3, 2))
    np.save(tmp_path / "whole.npy", three)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:-5])
    np.save(tmp_path / "objects.npy", np.array([[1, None]], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "objects.npz", X=np.array([[1, None]], dtype=object), Y=three)
    np.save(tmp_path / "vector.npy", np.ones(3))
    np.save(tmp_path / "rows.npy", np.ones((0, 3)))
    np.savez(tmp_path / "cube.npz", X=np.ones((2, 2, 2)), Y=np.ones(2))
    np.savez(tmp_path / "complex.npz", X=1j * three, Y=three)
    np.savez(tmp_path / "words.npz", X=three, Y=np.array(["a", "b", "c"]))
    np.savez(tmp_path / "names.npz", A=three, Y=three)
    np.savez(tmp_path / "mismatch.npz", X=three, Y=np.ones(2))
    (tmp_path / "really_npy.npz").write_bytes((tmp_path / "whole.npy").read_bytes())
    (tmp_path / "really_npz.npy").write_bytes((tmp_path / "mismatch.npz").read_bytes())
    (tmp_path / "folder.csv").mkdir()
    code, _, told = typed("--gamma", 1, "--data", name)
    assert code == 2
    assert words in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing option '--gamma'"),
        (("--gamma", "0", "--spectrum", "1"), "gamma = 0.0 is not allowed"),
        (("--gamma", "-1", "--spectrum", "1"), "gamma = -1.0 is not allowed"),
        (("--gamma", "nan", "--spectrum", "1"), "gamma = nan is not allowed"),
        (("--gamma", "1"), "give one of them"),
        (("--gamma", "1", "--spectrum", "1", "--data", "x.csv"), "give one of them"),
        (("--gamma", "1", "--spectrum", "1,x"), "spectrum = '1,x'"),
        (("--gamma", "1", "--spectrum", ""), "spectrum = ''"),
        (("--gamma", "1", "--spectrum", "1,0"), "must be positive"),
        (("--gamma", "1", "--spectrum", "1,-2"), "must be positive"),
        (("--gamma", "1", "--spectrum", "inf"), "give numbers with commas"),
        (("--gamma", "1", "--spectrum", "1e60"), "keep numbers between 1e-50 and 1e+50"),
        (("--gamma", "1", "--spectrum", "1,2,3", "--width", "2"), "width = 2 is not allowed"),
        (("--gamma", "1", "--spectrum", "1", "--outputs", "1"), "outputs = 1 is not allowed with --spectrum"),
        (("--gamma", "1", "--spectrum", "1", "--sum"), "average = False is not allowed with --spectrum"),
        (("--gamma", "1", "--spectrum", "1", "--plot", "x.bmp"), "plot = 'x.bmp'"),
        (("--gamma", "1", "--spectrum", "1", "--plot", "no/x.png"), "in a folder that exists"),
        (("--gamma", "1", "--data", "good.csv", "--outputs", "0"), "outputs = 0 is not allowed"),
        (("--gamma", "1", "--data", "good.csv", "--outputs", "2"), "2 columns, and 2 for labels leaves none"),
        (("--gamma", "1", "--data", "good.npz", "--outputs", "1"), "the file itself names its labels"),
        (("--gamma", "1", "--data", "large.npz", "--run"), "rank 3 are not allowed with --run"),
    ],
)
def test_bad_options_are_one_sentence(arguments, words, typed, tmp_path, monkeypatch):
    monkeypatch.setattr(predict_bias, "_LARGEST", 2)
    (tmp_path / "good.csv").write_text("1,2\n3,4\n")
    np.savez(tmp_path / "good.npz", X=np.eye(2), Y=np.ones(2))
    np.savez(tmp_path / "large.npz", X=np.eye(3), Y=np.ones(3))
    code, _, told = typed(*arguments)
    assert code == 2
    assert words in told
    assert "Traceback" not in told
