"""Writes the page of a probe: what it says of a training, the picture and the looks."""

import base64
import io
from pathlib import Path

from linnet._files import put, writing
from linnet._version import __version__
from linnet.plot.probe import probe
from linnet.probe.record import Record, dataset
from linnet.probe.words import hypotheses, verdict
from linnet.report.page import environment

_ROWS = 60  # of the table of looks


def write_probe(record: Record, out: Path) -> Path:
    """`index.html` in the folder `out`: one file, with its picture inside."""
    picture = io.BytesIO()
    probe(dataset(record)).savefig(picture, format="png")
    looks = record.looks
    page = (
        environment()
        .get_template("probe.html.jinja")
        .render(
            version=__version__,
            sentences=verdict(record),
            about=record.about,
            steps=len(record.steps),
            looks=looks[:: max(1, -(-len(looks) // _ROWS))],
            count=len(looks),
            pairs=[
                (record.about["layers"][pair["layer"]], pair, looks[-1]["mode_growth"][pair["layer"]], hypotheses(pair))
                for pair in (record.pairs if looks else [])
            ],
            picture=base64.b64encode(picture.getvalue()).decode(),
        )
    )
    path = out / "index.html"
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    put(path, page.lstrip())
    return path
