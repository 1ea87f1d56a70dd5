"""Writes `index.html`: one page, offline, of all experiments and verdicts in a folder."""

import collections
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from linnet._files import locked, put
from linnet._version import __version__
from linnet.claims import GRADES, KINDS, Claim, Erratum, Subject, registry, subjects
from linnet.experiments import experiments
from linnet.papers import typed
from linnet.report.page import environment
from linnet.reproduction import Result, Verdicts, Verified, results, verdicts

_WORDS = ("as stated", "not as stated", "not run")


def write(out: Path) -> Path:
    """The page of all results and verdicts below `out`, in the order of the papers, then the users' own subjects."""
    with locked(out, out, wait=True):  # no page may hide what another process has just put there
        return _write(out)


def _write(out: Path) -> Path:
    there, checked = results(out), verdicts(out)
    ids = [*(result.id for result in there), *(verdict.id for verdict in _claims(checked))]
    occurring = {name.split("/")[0] for name in ids}
    order, entries = list(experiments(occurring)), registry(occurring)
    made = sorted((r for r in there if r.id in order), key=lambda result: order.index(result.id))
    known = {} if checked is None else {verdict.id: verdict for verdict in checked.claims if verdict.id in entries}
    # of users' subjects that were declared when they were made, and are not now
    foreign = [*(r.id for r in there if r.id not in order), *(v.id for v in _claims(checked) if v.id not in entries)]
    papers = [_paper(subject, made, known) for subject in subjects().values() if subject.name in occurring]
    template = environment().get_template("index.html.jinja")
    required = [v for r in made for v in r.verdicts]
    page = template.render(
        papers=[paper for paper in papers if paper["experiments"] or paper["claims_run"] or paper["errata_run"]],
        version=__version__,
        held=sum(v.holds for v in required),
        verdicts=len(required),
        experiments=len(made),
        seconds=sum(r.seconds for r in made),
        pixels={result.id: _pixels(out / result.id / "figure.png") for result in made},
        checked=len(known),
        checked_size=None if checked is None else checked.size,
        failed=sum(not verdict.as_stated for verdict in known.values()),
        foreign=foreign,
        machine=_machine([*made, *([] if checked is None else [checked])]),
    )
    path = out / "index.html"
    put(path, page.lstrip())
    return path


def _claims(checked: Verdicts | None) -> Sequence[Verified]:
    return () if checked is None else checked.claims


def _paper(subject: Subject, results: list[Result], verdicts: Mapping[str, Verified]) -> dict[str, Any]:
    """What the page says about one paper."""

    def about(kind: type) -> list[dict[str, Any]]:
        chosen = [e for e in registry({subject.name}).values() if isinstance(e, kind)]
        return [{"entry": e, "verdict": verdicts.get(e.id), "word": _word(verdicts.get(e.id))} for e in chosen]

    mine = [result for result in results if result.id.split("/")[0] == subject.name]
    required = [verdict for result in mine for verdict in result.verdicts]
    claims, errata = about(Claim), about(Erratum)
    kinds, words = ({c["entry"].kind for c in claims}, {c["word"] for c in claims})
    grades = collections.Counter(e["entry"].grade for e in errata)
    made = {result.id for result in mine}
    source = typed(subject.name)
    return {
        "id": subject.name,
        "name": subject.short,
        "title": subject.title,
        "authors": subject.authors,
        "source": "" if source is None else f" --from {source}",
        "experiments": mine,
        "absent": [name for name in experiments({subject.name}) if name not in made],
        "held": sum(verdict.holds for verdict in required),
        "required": len(required),
        "claims": claims,
        "claims_run": sum(c["verdict"] is not None for c in claims),
        "as_stated": sum(c["word"] == "as stated" for c in claims),
        "kinds": [kind for kind in KINDS if kind in kinds],
        "words": [word for word in _WORDS if word in words],
        "errata": errata,
        "errata_run": sum(e["verdict"] is not None for e in errata),
        "shown": sum(e["word"] == "as stated" for e in errata),
        "noted": sum(e["entry"].check is None for e in errata),
        "grades": [(grade, grades[grade]) for grade in GRADES if grades[grade]],
    }


def _word(verdict: Verified | None) -> str:
    if verdict is None:
        return "not run"
    return "as stated" if verdict.as_stated else "not as stated"


def _machine(sources: Sequence[Result | Verdicts]) -> list[tuple[str, list[str]]]:
    """Devices and versions, each with all values that occur: a folder may have been filled on several machines."""
    found: dict[str, dict[str, None]] = {}
    for source in sources:
        device = {"device": source.device} if isinstance(source, Result) else {}
        for name, text in {**source.machine, **device, **source.versions}.items():
            found.setdefault(name, {})[text] = None  # a set that keeps its order
    return [(name, list(values)) for name, values in found.items()]


def _pixels(picture: Path) -> tuple[int, int] | None:
    """Width and height of a PNG, so that the page does not jump while it loads."""
    try:
        head = picture.read_bytes()[:24]
    except OSError:
        return None
    return struct.unpack(">II", head[16:24]) if head[:8] == b"\x89PNG\r\n\x1a\n" else None
