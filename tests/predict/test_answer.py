import json
import math
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from rich.table import Table

from linnet import predict
from linnet._check import InputError
from linnet._files import dumps
from linnet.predict.answer import Measured, Prediction, hidden, number, plural
from linnet.predict.asked import spectrum
from linnet.theory.regime import Regime


class Pair(NamedTuple):
    low: float
    high: float


@dataclass(frozen=True)
class Told(Prediction):
    regime: Regime
    when: predict.When
    values: tuple[float, ...]
    array: object
    pair: Pair
    curves: object = hidden()

    def __rich__(self):
        table = Table("name", "value")
        table.add_row("regime", f"[bold]{self.regime}[/] <&>")
        return table

    def plot(self):
        raise NotImplementedError

    def measure(self, *, progress=None):
        return Seen(prediction=self, steps=3)


@dataclass(frozen=True, kw_only=True)
class Seen(Measured):
    steps: int

    def __rich__(self):
        return f"{self.steps} steps"

    def plot(self):
        raise NotImplementedError


def made():
    return Told(Regime.RICH, predict.When(1.5, error=0.0), (1.0, math.inf), jnp.ones(2), Pair(0.0, 1.0), np.ones(9))


def test_results_tell_their_fields_as_plain_python():
    told = made().to_dict()
    assert told == {
        "prepared": [],
        "regime": "rich",
        "when": {"time": 1.5, "step": None, "error": 0.0, "not_before": None, "not_after": None},
        "values": [1.0, math.inf],
        "array": [1.0, 1.0],
        "pair": {"low": 0.0, "high": 1.0},
    }
    assert json.loads(dumps(told))["values"] == [1.0, None]
    assert made().measure().to_dict() == {**told, "run": {"steps": 3}}


def test_results_show_themselves_in_text_and_in_html():
    assert "rich <&>" in str(made())
    page = made()._repr_html_()
    assert page.startswith("<pre")
    assert "&lt;&amp;&gt;" in page
    assert "font-weight: bold" in page
    assert "curves" not in repr(made())


def test_regimes_by_the_growth_of_the_kernel():
    assert [Regime.of_growth(x) for x in (1.0, 1.2, 11.0)] == ["lazy", "mixed", "rich"]
    assert Regime.of_all([Regime.LAZY, Regime.LAZY]) is Regime.LAZY
    assert Regime.of_all([Regime.LAZY, Regime.RICH]) is Regime.MIXED


def test_hypotheses_say_how_far_they_hold():
    assert [predict.Hypothesis.of("x", m).holds for m in (0.0, 0.1, 0.6, math.nan)] == [
        "exactly",
        "roughly",
        "not",
        "not",
    ]


def test_numbers_in_words():
    assert [number(x) for x in (None, math.nan, math.inf, 3, 0.123456)] == ["–", "?", "never", "3", "0.1235"]
    assert [plural(1, "mode"), plural(2000, "mode")] == ["1 mode", "2,000 modes"]


def test_spectra_are_sorted_and_checked():
    assert spectrum([1, 3, 2]).tolist() == [3, 2, 1]
    assert spectrum([0, 3], zeros=True).tolist() == [3, 0]
    for wrong, options in (
        ([1, -1], {}),
        ([1, 0], {}),
        ([0, 0], {"zeros": True}),
        ([1, 1e-60], {}),
        ([1e60], {}),
        ([1, 1e-13], {"ratio": 1e12}),
        ([1, math.nan], {}),
        ("3,1", {}),
        ([[1.0]], {}),
        ([], {}),
    ):
        with pytest.raises(InputError, match="spectrum"):
            spectrum(wrong, **options)
