"""Films: a picture whose lines grow with the clock below it."""

import contextlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import matplotlib as mpl
import numpy as np
from jaxtyping import Num, UInt8
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

from linnet import _check
from linnet._check import InputError
from linnet._files import placed, ready
from linnet.plot.style import CROWDED

SUFFIXES = (".gif", ".mp4")
_FASTEST = 50  # frames a second: browsers slow down GIFs that go faster
_HELD = 1.0  # seconds for which the end stays
_COLORS = 255  # of a GIF; one more means "as before", which makes files small

Pixels = UInt8[np.ndarray, "height width 3"]


def film(
    figure: Figure,
    path: str | os.PathLike[str],
    *,
    frames: int = 100,
    seconds: float = 8.0,
    dpi: int = 100,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Writes a figure as a GIF or an MP4: its x axes are a clock, and a frame shows what the lines have until then.

    All else stands still: axes, legends, levels. Every point of the clock is a frame, or `frames` of them are, spaced
    evenly; together they take `seconds`, and the last one stays a second more. The figure is used up.

    `dpi` is the resolution, 20 to 600. `path` ends in .gif or .mp4.
    """
    place, short = Path(path), Path(path).suffix.lower() == ".gif"
    possible(place)
    frames = _check.integer("frames", frames, least=2, most=1000)
    seconds = _check.real("seconds", seconds, least=0.1, most=600)
    dpi = _check.integer("dpi", dpi, least=20, most=600)
    clock = np.unique([point for line in _growing(figure) for point in np.asarray(line.get_xdata())])
    if len(clock) < 2:
        raise InputError("there is nothing to animate: the run has one record, and a film needs two or more.")
    count = min(frames, len(clock), max(2, int(_FASTEST * seconds)))
    pixels = float(np.prod(figure.get_size_inches())) * dpi**2
    held = count if short else 1  # in memory at once, at four bytes a pixel and one for its place in the palette
    _check.fits("dpi", dpi, held * pixels * 5 / 8, f"{held} frames of {pixels:,.0f} pixels")
    shown = clock[np.linspace(0, len(clock) - 1, count).round().astype(int)]
    with placed(place) as partial:
        (_gif if short else _mp4)(partial, _drawn(figure, shown, dpi, progress), seconds / count)


def possible(path: Path) -> None:
    """Refuses a file that no film can be written to, before there is one."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"path = {str(path)!r} is not allowed: give a file ending in {' or '.join(SUFFIXES)}.")
    if path.suffix.lower() == ".mp4":
        _ffmpeg()
    ready(path)


def _growing(figure: Figure) -> list[Line2D]:
    """The lines over the clock; others, such as levels across a panel, have coordinates of their own."""
    return [line for axes in figure.axes for line in axes.lines if line.get_transform() == axes.transData]


def _drawn(
    figure: Figure, times: Num[np.ndarray, " count"], dpi: int, progress: Callable[[int, int], None] | None
) -> Iterator[Pixels]:
    """The frames at these times. What stands still is drawn once: axes take ten times as long as lines."""
    growing = [(line, np.asarray(line.get_xdata()), np.asarray(line.get_ydata())) for line in _growing(figure)]
    unit = figure.axes[0].get_xlabel()
    title = figure.suptitle(" ", fontsize="medium")
    for axes in figure.axes:
        _headed(axes)
    moving = [*(artist for axes in figure.axes for artist in _above(axes)), title]
    for artist in moving:
        artist.set_animated(True)
    figure.set_dpi(dpi)
    canvas: Any = FigureCanvasAgg(figure)  # whose regions have no types
    canvas.draw()
    ground = canvas.copy_from_bbox(figure.bbox)
    for done, now in enumerate(times, start=1):
        title.set_text(f"{unit} {now:,}" if isinstance(now, np.integer) else f"{unit} {now:.4g}")
        for line, x, y in growing:
            line.set_data(x[x <= now], y[x <= now])
        canvas.restore_region(ground)
        for artist in moving:
            figure.draw_artist(artist)
        yield np.asarray(canvas.buffer_rgba())[..., :3].copy()
        if progress is not None:
            progress(done, len(times))


def _above(axes: Axes) -> list[Artist]:
    """What each frame redraws: the lines, and what lies on them."""
    legend = axes.get_legend()
    found: list[Artist] = [*axes.lines, *axes.texts, *([] if legend is None else [legend])]
    return sorted(found, key=lambda artist: artist.get_zorder())


def _headed(axes: Axes) -> None:
    """A point at the end of each line, unless there are too many of them."""
    if len(axes.lines) <= CROWDED:
        for line in axes.lines:
            if line.get_transform() == axes.transData and line.get_marker() == "None":
                line.set(marker="o", markersize=5, markevery=[-1])


def _gif(path: Path, frames: Iterator[Pixels], each: float) -> None:
    """One palette for all frames: the most frequent colors of the last one, where everything is seen."""
    coarse = [Image.fromarray(frame & 0xFC) for frame in frames]  # Pillow finds colors in steps of four
    counted = cast(list[tuple[int, tuple[int, int, int]]], coarse[-1].getcolors(coarse[-1].width * coarse[-1].height))
    levels = [level for _, color in sorted(counted, reverse=True)[:_COLORS] for level in color]
    palette = Image.new("P", (1, 1))
    palette.putpalette(levels)
    first, *rest = images = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in coarse]
    for image in images:
        image.putpalette([level | 0x03 for level in levels])  # white is white
    lasting = [round(1000 * each)] * len(rest) + [round(1000 * (each + _HELD))]
    first.save(path, save_all=True, append_images=rest, duration=lasting, loop=0)


def _mp4(path: Path, frames: Iterator[Pixels], each: float) -> None:
    """H.264 in the form that every player knows, which has even sides."""
    first = next(frames)
    size = f"{first.shape[1]}x{first.shape[0]}"
    given = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-framerate", f"{1 / each:.6f}", "-i", "pipe:"]
    wanted = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2:color=white", "-vcodec", "h264", "-pix_fmt", "yuv420p"]
    command = [_ffmpeg(), "-loglevel", "error", *given, *wanted, "-y", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
        assert writer.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it says why, below
            for frame in itertools.chain([first], frames):
                writer.stdin.write(frame.tobytes())
            for _ in range(round(_HELD / each)):
                writer.stdin.write(frame.tobytes())
        _, words = writer.communicate()
    if writer.returncode:
        *_, why = ["ffmpeg gave up", *words.decode(errors="replace").split("\n")[:-1]]
        raise OSError(0, why.removesuffix("."))


def _ffmpeg() -> str:
    """Where ffmpeg is: as matplotlib is configured, or the one that imageio-ffmpeg brings."""
    found = shutil.which(mpl.rcParams["animation.ffmpeg_path"])
    if found is not None:
        return found
    try:
        from imageio_ffmpeg import get_ffmpeg_exe

        return str(get_ffmpeg_exe())
    except (ImportError, RuntimeError):  # it may be there and have none for this machine
        raise InputError(
            "an MP4 needs ffmpeg: pip install 'linnet[lab]' (or imageio-ffmpeg), or give a file ending in .gif."
        ) from None
