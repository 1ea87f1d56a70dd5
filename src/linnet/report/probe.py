"""Writes the page of a probe's record: its summary, the figure, and the table of measurements."""

import base64
import io
from pathlib import Path

from linnet._files import put, writing
from linnet._version import __version__
from linnet.plot.probe import probe
from linnet.probe import ProbeRecord, dataset, format_interval, pair_assumptions, verdict
from linnet.report.page import environment

_ROWS = 60  # of the table of measurements


def write_probe(record: ProbeRecord, out: Path) -> Path:
    """Writes `index.html` into the folder `out`: one file that contains its figure."""
    picture = io.BytesIO()
    probe(dataset(record)).savefig(picture, format="png")
    measurements = record.measurements
    page = (
        environment()
        .get_template("probe.html.jinja")
        .render(
            version=__version__,
            sentences=verdict(record),
            events=sorted([*record.statuses, *record.alarms], key=lambda line: line["step"])[-_ROWS:],
            forwards=record.forwards[:: max(1, -(-len(record.forwards) // _ROWS))],
            interval=format_interval,
            about=record.about,
            steps=len(record.steps),
            measurements=measurements[:: max(1, -(-len(measurements) // _ROWS))],
            count=len(measurements),
            pairs=[
                (
                    record.about["layers"][pair["layer"]],
                    pair,
                    measurements[-1]["mode_growth"][pair["layer"]],
                    pair_assumptions(pair),
                )
                for pair in (record.pairs if measurements else [])
            ],
            picture=base64.b64encode(picture.getvalue()).decode(),
        )
    )
    path = out / "index.html"
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    put(path, page.lstrip())
    return path
