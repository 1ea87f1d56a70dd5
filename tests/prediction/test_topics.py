"""What all topics of `predict` share: one concept has one key, sources name claims, results show themselves."""

import dataclasses
import json

import jax
import numpy as np
import pytest

import linnet as ln
from linnet import claims, prediction
from linnet._files import dumps
from linnet.cli.models import StabilityTopic
from linnet.outcome import Status
from linnet.prediction.assumption import Assumption, Source
from linnet.prediction.prediction import Comparison, Prediction, Time
from linnet.theory.regime import Regime

NUMBER, WHOLE = (int, float), int


def asked():
    """Every topic, small."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 6))
    white = prediction.whitened([2.0, 1.0])
    return {
        "network": prediction.Situation(
            data={"spectrum": [2.0, 1.0]}, network={"width": 20}, init={"scale": 0.1}
        ).predict(),
        "phase": prediction.phase(d=12, rank=2, gamma_w=1.5, gamma_sigma2=-1.2),
        "balance": prediction.balance(white, ln.init.lambda_balanced(jax.random.key(0), white, 0.5, 2)),
        "bias": prediction.bias(white, ln.init.i_gamma(white, 0.1)),
        "landscape": prediction.landscape([2.0, 1.0], (1,)),
        "rates": prediction.rates(white, ln.init.rank_one(jax.random.key(0), white, 0.1, 3)),
        "stability": StabilityTopic(spectrum=[2.0, 1.0], depth=2, lr=0.55).predict(),
        "features": prediction.features(x, x @ rng.normal(size=6), width=50, v0=0.1, sigma0=0.1),
        "layer": prediction.layer(ln.supervised(x[:, :2]), ln.networks.mlp(jax.random.key(0), x, (5, 2)), 1, steps=20),
        "edge": prediction.edge(ln.factorization(np.eye(1)), ln.Weights([0.9 * np.eye(1)] * 2), ln.optim.SGD(1.1)),
    }


@pytest.fixture(scope="module")
def answers():
    said = asked()
    return said | {f"{topic} measured": prediction.measure() for topic, prediction in said.items()}


def entries(tree, path=()):
    """(path, key, value) of every entry of a tree of dicts and lists."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield path, key, value
            yield from entries(value, (*path, key))
    elif isinstance(tree, list):
        for value in tree:
            yield from entries(value, path)


def fields(kind):
    return {field.name for field in dataclasses.fields(kind)}


def is_time(value):
    return value is None or set(value) == fields(Time)


# a key means one thing wherever it stands
MEANINGS = {
    "depth": lambda v: isinstance(v, WHOLE),
    "inputs": lambda v: isinstance(v, WHOLE),
    "outputs": lambda v: isinstance(v, WHOLE),
    "samples": lambda v: v is None or isinstance(v, WHOLE),
    "rank": lambda v: isinstance(v, WHOLE),
    "condition": lambda v: isinstance(v, NUMBER) and v >= 1,
    "normalization": lambda v: isinstance(v, str),
    "regime": lambda v: v in list(Regime),
    "kernel_growth": lambda v: isinstance(v, NUMBER),
    "modes": lambda v: all("value" in mode or "half_learned" in mode or "low" in mode for mode in v),
    "value": lambda v: isinstance(v, NUMBER),
    "spectrum": lambda v: all(isinstance(s, NUMBER) for s in v),
    "half_learned": is_time,
    "learned": is_time,
    "fit": is_time,
    "lr": lambda v: isinstance(v, NUMBER),
    "lr_chosen": lambda v: isinstance(v, bool),
    "largest_stable_lr": lambda v: isinstance(v, NUMBER),
    "loss": lambda v: isinstance(v, NUMBER) or set(v) in ({"start", "end"}, {"initial", "final"}),
    "seed": lambda v: isinstance(v, WHOLE),
    "prepared": lambda v: all(isinstance(done, str) for done in v),
    "notes": lambda v: all(isinstance(note, str) for note in v),
    "sources": lambda v: len(v) > 0 and all(set(source) == fields(Source) | {"quantities"} for source in v),
    "assumptions": lambda v: all(set(one) == fields(Assumption) for one in v),
    "status": lambda v: v in list(Status),
    "run": lambda v: isinstance(v, dict),
}
OLD = {"d_in", "d_out", "s", "half_learned_at_step", "largest_lr", "caution", "lr_was", "lr_was_given", "average"}


def test_one_concept_has_one_key_in_all_topics(answers):
    seen = set()
    for topic, answer in answers.items():
        for path, key, value in entries(answer.to_dict()):
            seen.add(key)
            assert key not in OLD, f"{topic}: {path} has {key}"
            assert key not in MEANINGS or MEANINGS[key](value), f"{topic}: {path} has {key} = {value!r}"
    assert seen >= set(MEANINGS)


def test_every_figure_names_claims_that_exist(answers):
    known = claims.registry()
    for topic, answer in answers.items():
        for source in answer.to_dict()["sources"]:
            for name in source["claims"]:
                assert name in known, f"{topic}: {source['origin']} is from {name}"
    assert any(source["claims"] for source in answers["network"].to_dict()["sources"])


def test_answers_are_frozen_and_show_themselves(answers):
    for topic, answer in answers.items():
        assert isinstance(answer, Prediction | Comparison)
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(answer, dataclasses.fields(answer)[-1].name, None)
        assert len(str(answer).splitlines()) > 3, topic
        page = answer._repr_html_()
        assert page.count("<pre") == 1
        assert "Traceback" not in page
        json.loads(dumps(answer.to_dict()))
        assert len(repr(answer)) < 20_000


@pytest.mark.slow
def test_answers_draw_themselves(answers, tmp_path):
    for topic, answer in answers.items():
        file = tmp_path / f"{topic}.png"
        answer.plot().savefig(file)
        assert file.stat().st_size > 10_000, topic


def test_what_was_measured_stands_beside_what_was_predicted(answers):
    for topic in asked_names(answers):
        prediction, measured = answers[topic].to_dict(), answers[f"{topic} measured"].to_dict()
        assert measured.pop("run")
        assert dumps(measured) == dumps(prediction), topic


def asked_names(answers):
    return [topic for topic in answers if not topic.endswith("measured")]
