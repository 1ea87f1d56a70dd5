"""Predictions as data: quantities, tables, runs, and what follows."""

import dataclasses
import json
from dataclasses import replace

import numpy as np
import pytest

from linnet._check import InputError
from linnet._files import dumps
from linnet.prediction.assumption import Assumption, NotApplicable, Source
from linnet.prediction.panel import Curve, Panel
from linnet.prediction.prediction import Column, ExactRun, Prediction, Quantity, Row, Time, rows

FIRST, SECOND = Source("a formula", ("balance/C9",), (Assumption.of("white inputs", 0.0),)), Source("another formula")


def experiment(level):
    return ExactRun(
        run=lambda progress: (progress and progress(1, 1), level)[1],
        read=lambda run: (
            Quantity("level", run),
            Quantity("modes", (Row(half_learned=Time(2.5)),)),
            Quantity("gap", 0.25, "distance from the formula"),
        ),
        kind=float,
    )


def prediction(**changes):
    modes = tuple(Row(value=float(i), half_learned=Time(1.5 * i, error=0.0)) for i in range(1, 12))
    columns = (Column("value", "value"), Column("half_learned", "half at"))
    quantities = (
        Quantity("level", 3.0, "level", source=FIRST),
        Quantity("modes", modes, "Modes", columns=columns, rows=2, source=SECOND),
    )
    panels = [
        Panel(
            (
                Curve("points", np.array([0, 1, 2]), np.array([1.0, 2.0, 2.0]), "stars"),
                Curve("names", np.array([0, 1, 2]), np.array([1.0, 2.0, 2.0]), "labels", text=("a", "b", "c")),
            )
        )
    ]
    made = Prediction("first", "[bold]stable[/]: no step is too large.", quantities, experiment=experiment(3.5))
    return replace(made, panels=lambda *_: panels, **changes)


def test_values_are_attributes_and_quantities_are_items():
    found = prediction()
    assert found.level == found["level"].value == 3.0
    assert found.modes[1].half_learned.time == 3.0
    assert list(found) == ["level", "modes"]
    assert "level" in found
    with pytest.raises(AttributeError, match="has no quantity 'speed'"):
        _ = found.speed
    with pytest.raises(InputError, match="'speed' is not a quantity of this result: it has level, modes"):
        found["speed"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.topic = "second"
    assert found.including(Quantity("seed", 4)).seed == 4


def test_what_follows_is_shown_measured_and_written_with_what_came_before():
    following = prediction(topic="second", headline="And then?")
    found = prediction().including(Quantity("then", following, "Afterwards"))
    told = found.to_dict()
    assert told["headline"] == "stable: no step is too large."
    assert told["then"] == following.to_dict()
    assert told["sources"][0] == {
        "quantities": ["level"],
        "origin": "a formula",
        "claims": ["balance/C9"],
        "assumptions": [{"name": "white inputs", "measured": 0.0, "holds": "exactly"}],
    }
    heard = []
    measured = found.measure(progress=lambda done, total: heard.append((done, total)))
    assert heard == [(1, 1), (1, 1)]
    assert measured.then.level == 3.5
    run = measured.to_dict()["run"]
    assert run["level"] == run["then"]["level"] == 3.5
    assert json.loads(dumps(measured.to_dict())) | {"run": None} == json.loads(dumps(told)) | {"run": None}
    assert set(vars(found.compare(3.5))) == {"prediction", "run", "quantities"}
    assert "then" not in found.compare(3.5)
    shown = str(measured)
    assert shown.count("a formula (balance/C9)") == 1  # not again for what follows
    assert shown.index("Afterwards") > shown.index("a formula")
    assert shown.count("… and 9 more: --json lists them.") == 2
    assert shown.count("distance from the formula") == 2


def test_points_may_have_words():
    axes = prediction().plot().axes[0]
    assert [(text.get_text(), text.get_ha(), text.xy) for text in axes.texts] == [
        ("a", "left", (0, 1.0)),
        ("b", "left", (1, 2.0)),
        ("c", "left", (2, 2.0)),
    ]
    assert all(float(tick).is_integer() for tick in axes.get_xticks())


def test_a_theory_that_does_not_apply_names_its_assumption():
    why = Assumption.of("white inputs", 0.75)
    assert (NotApplicable("balance", why).theory, NotApplicable("balance", why).assumption) == ("balance", why)
    with pytest.raises(InputError, match=r"balance does not apply: it needs white inputs \(0\.75\)"):
        raise NotApplicable("balance", why)
    with pytest.raises(InputError, match="the inputs are not white"):
        raise NotApplicable("balance", why, "the inputs are not white")


def test_tables_are_made_of_their_columns():
    one, two = rows(value=np.array([1.0, 2.0]), name=map(str, "ab"), between=[None, (0, 1)])
    assert dict(one) == {"value": 1.0, "name": "a", "between": None}
    assert (two.value, two.name, two.between) == (2.0, "b", (0, 1))
    assert type(one.value) is float
    with pytest.raises(ValueError, match="shorter"):
        rows(value=[1.0, 2.0], name=["a"])
