"""Films of runs: they show what was recorded, and are files that others can read."""

import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

import linnet as ln
from linnet import _check
from linnet.plot.animation import film
from linnet.plot.style import CROWDED, canvas

PROBLEM = ln.factorization([[3.0, 0.0], [0.0, 1.0]])
START = ln.init.i_gamma(PROBLEM, gamma=0.01)


def trained(steps=30, lr=0.1, **how):
    return ln.simulate(PROBLEM, START, ln.optim.SGD(lr), steps=steps, observe=["loss", "modes"], **how)


RUN = trained()


def pictures(path):
    """The frames as arrays, and how many milliseconds each is shown."""
    with Image.open(path) as image:
        found = []
        for index in range(image.n_frames):
            image.seek(index)
            found.append((np.asarray(image.convert("RGB")).astype(int), image.info["duration"]))
    return [frame for frame, _ in found], [duration for _, duration in found]


def test_a_gif_has_a_frame_for_every_record(tmp_path):
    RUN.animate(tmp_path / "x.gif", log=["loss"], seconds=3.1)
    with Image.open(tmp_path / "x.gif") as image:
        assert (image.format, image.n_frames, image.info["loop"]) == ("GIF", 31, 0)
        assert image.size == tuple(int(100 * side) for side in RUN.plot().get_size_inches())
    frames, durations = pictures(tmp_path / "x.gif")
    assert durations == [100] * 30 + [1100]
    assert not [k for k in range(30) if (frames[k] == frames[k + 1]).all()]
    assert [path.name for path in tmp_path.iterdir()] == ["x.gif"]


def test_the_same_run_gives_the_same_bytes(tmp_path):
    for name in ("x.gif", "y.gif"):
        trained().animate(tmp_path / name, frames=5)
    assert (tmp_path / "x.gif").read_bytes() == (tmp_path / "y.gif").read_bytes()


def test_a_frame_shows_what_was_recorded_until_then(tmp_path):
    figure, lengths = RUN.plot(), []
    level = figure.axes[1].axhline(3.0)
    film(
        figure,
        tmp_path / "x.gif",
        frames=11,
        progress=lambda done, total: lengths.append((done, total, len(figure.axes[0].lines[0].get_xdata()))),
    )
    assert lengths == [(k + 1, 11, 3 * k + 1) for k in range(11)]
    loss, modes = figure.axes
    np.testing.assert_array_equal(loss.lines[0].get_data(), [RUN.steps, RUN["loss"]])
    for i in range(2):
        np.testing.assert_array_equal(modes.lines[i].get_data(), [RUN.steps, RUN["modes"][:, i]])
    assert list(level.get_xdata()) == [0, 1]
    assert figure.get_suptitle() == "step 30"


def test_the_last_frame_is_the_picture_and_the_axes_stand(tmp_path):
    """Pixel by pixel, up to the colors that a GIF has, but for the clock above and the points at the ends."""
    RUN.animate(tmp_path / "x.gif", "loss", frames=4)
    frames, _ = pictures(tmp_path / "x.gif")
    figure = RUN.plot("loss")
    figure.suptitle("step 30", fontsize="medium")
    figure.axes[0].plot(RUN.steps[-1], RUN["loss"][-1], "o", ms=5, color=figure.axes[0].lines[0].get_color())
    figure.savefig(tmp_path / "x.png", dpi=100)
    with Image.open(tmp_path / "x.png") as image:
        drawn = np.asarray(image.convert("RGB")).astype(int)
    assert np.abs(frames[-1] - drawn).max() <= 40
    assert np.mean(np.abs(frames[-1] - drawn).max(axis=2) > 3) < 0.002
    assert (frames[0][0, 0] == 255).all()
    ink = np.abs(frames[0] - frames[-1]).max(axis=2) > 40
    assert ink[40:-50, 70:].any()
    assert not ink[-40:].any()  # below the axis
    assert not ink[40:, :40].any()  # beside it


def test_frames_are_thinned_evenly(tmp_path):
    for frames, seconds, count in ((7, 8.0, 7), (1000, 8.0, 31), (1000, 0.2, 10), (2, 0.1, 2)):
        RUN.animate(tmp_path / "x.gif", "loss", frames=frames, seconds=seconds, dpi=40)
        assert len(pictures(tmp_path / "x.gif")[0]) == count


def test_batches_have_a_clock_each_and_runs_that_have_ended_one_frame_for_it(tmp_path):
    many = jax.vmap(lambda lr: trained(5, lr))(jnp.array([0.1, 0.05]))
    many.animate(tmp_path / "x.gif", "loss", time=True, dpi=40)
    assert len(pictures(tmp_path / "x.gif")[0]) == len(np.unique(many.times)) > 6
    ended = trained(200, stop=ln.optim.loss_below(1e-3))
    ended.animate(tmp_path / "x.gif", "loss", frames=1000, seconds=600, dpi=40)
    assert len(pictures(tmp_path / "x.gif")[0]) == int(ended.ended) + 1 < 200


def test_crowds_have_no_heads(tmp_path):
    for count, marked in ((CROWDED, True), (CROWDED + 1, False)):
        figure = canvas(3, 2)
        lines = figure.subplots().plot([0, 1], np.ones((2, count)))
        film(figure, tmp_path / "x.gif")
        assert {line.get_marker() == "o" for line in lines} == {marked}


@pytest.mark.slow
@pytest.mark.parametrize("dpi", [50, 51])
def test_an_mp4(dpi, tmp_path):
    """Frames of odd sides have a white border of one pixel."""
    ffmpeg = shutil.which("ffmpeg") or pytest.importorskip("imageio_ffmpeg").get_ffmpeg_exe()
    for name in ("x.mp4", "x.gif"):
        RUN.animate(tmp_path / name, frames=10, seconds=1, dpi=dpi)
    read = subprocess.run(
        [ffmpeg, "-i", tmp_path / "x.mp4", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"], capture_output=True, check=True
    )
    assert "Duration: 00:00:02.00" in read.stderr.decode()
    frames, _ = pictures(tmp_path / "x.gif")
    height, width, _ = frames[0].shape
    shape = (20, height + height % 2, width + width % 2, 3)
    found = np.frombuffer(read.stdout, np.uint8).reshape(shape)[:, :height, :width].astype(int)
    away = np.abs(found[:, None] - np.stack(frames)).mean(axis=(2, 3, 4))
    assert away.min(axis=1).max() < 4
    assert list(away.argmin(axis=1)) == [*range(10)] + [9] * 10


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"path": "x.avi"}, r"path = 'x.avi' is not allowed: give a file ending in .gif or .mp4."),
        ({"path": "x"}, "path = 'x' is not allowed"),
        ({"path": "none/x.gif"}, "'none/x.gif' cannot be written: no such file or directory."),
        ({"path": "folder.gif"}, "'folder.gif' cannot be written: it is not a file."),
        ({"frames": 1}, "frames = 1 is not allowed"),
        ({"seconds": 0}, "seconds = 0 is not allowed"),
        ({"dpi": 10**6}, "dpi = 1000000 is not allowed"),
        ({"log": "z"}, "log = 'z' is not allowed"),
        ({"log": ["absent"]}, "'absent' was not recorded"),
    ],
)
def test_what_is_no_film_is_refused(given, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.gif").mkdir()
    with pytest.raises(ln.InputError, match=words):
        RUN.animate(**{"path": "x.gif", **given})
    assert [path.name for path in tmp_path.iterdir()] == ["folder.gif"]


def test_nothing_to_animate(tmp_path, monkeypatch):
    for run, words in (
        (RUN.first(1), "there is nothing to animate: the run has one record, and a film needs two or more."),
        (ln.simulate(PROBLEM, START, ln.optim.SGD(0.1), steps=3, observe=[]), "there is nothing to draw"),
    ):
        with pytest.raises(ln.InputError, match=words):
            run.animate(tmp_path / "x.gif")
    with pytest.raises(ln.InputError, match="draw it outside of jit"):
        jax.vmap(lambda lr: trained(2, lr).animate(tmp_path / "x.gif"))(jnp.ones(2))
    monkeypatch.setattr(_check, "memory", lambda: 10**6)
    with pytest.raises(ln.InputError, match="dpi = 100 is not allowed: 31 frames of"):
        RUN.animate(tmp_path / "x.gif")
    assert not list(tmp_path.iterdir())


def test_without_ffmpeg_the_cure_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(mpl.rcParams, "animation.ffmpeg_path", "no-such-ffmpeg")
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ln.InputError, match=r"an MP4 needs ffmpeg: pip install 'linnet\[lab\]'"):
        RUN.animate(tmp_path / "x.mp4")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("said", "told"), [("", "ffmpeg gave up"), ("echo x; echo 'Unknown encoder.' >&2;", "unknown")]
)
def test_what_ffmpeg_refuses_is_one_sentence(said, told, tmp_path, monkeypatch):
    command = tmp_path / "ffmpeg"
    command.write_text(f"#!/bin/sh\n{said} exit 1\n")
    command.chmod(0o755)
    monkeypatch.setitem(mpl.rcParams, "animation.ffmpeg_path", str(command))
    with pytest.raises(ln.InputError, match=rf"x.mp4' cannot be written: {told}[\w ]*\.$"):
        RUN.animate(tmp_path / "x.mp4")
    assert [path.name for path in tmp_path.iterdir()] == ["ffmpeg"]
