"""Alarms and their causes, by replayed losses."""

import math
import random

import pytest

from linnet.probe.alarm import Watch


def quiet(seed=0, steps=200, noise=0.1, fall=0.002):
    """Losses that fall with noise."""
    draw = random.Random(seed)
    return [math.exp(-fall * k + draw.gauss(0, noise)) for k in range(steps)]


def replay(losses, *, anchors=None, before=None, earlier=None, skipped=(), finite=lambda step: True, every=20):
    """The last word on each alarm."""
    watch, found = Watch(), {}
    for step, loss in enumerate(losses):
        alarms = watch.step(
            step, loss, skipped=step in skipped, finite=finite(step), earlier=lambda: earlier,
            before=lambda step=step: (before or {}).get(step),
        )  # fmt: skip
        if every and step % every == 0:
            alarms = [*alarms, *watch.anchor(step, (anchors or {}).get(step, math.exp(-0.002 * step)))]
        found |= {alarm.step: (alarm.trigger, alarm.cause and alarm.cause.value) for alarm in alarms}
    return found


@pytest.mark.parametrize("seed", range(10))
def test_noise_raises_no_alarm(seed):
    assert replay(quiet(seed, steps=1000)) == {}


def test_a_bad_batch_a_shift_and_a_learning_rate_differ():
    losses = quiet()
    usual = math.exp(-0.3)
    bad = [*losses[:150], 3.0, *losses[151:]]
    assert replay(bad, before={150: usual}) == {150: ("loss", "bad_batch")}
    shift = [*losses[:150], *(3 * loss for loss in losses[150:])]
    assert replay(shift, before={150: usual}) == {150: ("loss", "data_shift")}
    assert replay(shift, before={150: 2.0}) == {150: ("loss", "learning_rate")}
    assert replay(bad[:152], before={150: usual}) == {150: ("loss", None)}  # not yet known


def test_numbers_that_are_not_finite():
    losses = quiet()
    overflow = [*losses[:150], math.nan, *losses[151:]]
    assert replay(overflow) == {150: ("non_finite", "precision")}
    blown = [*losses[:148], 3.0, 9.0, math.inf, *losses[151:]]
    assert replay(blown, before={148: 0.7})[150] == ("non_finite", "learning_rate")
    assert replay(losses, finite=lambda step: step != 150) == {150: ("non_finite", "precision")}
    assert replay(losses, skipped=(150,)) == {150: ("skipped", "precision")}
    assert replay([math.nan]) == {0: ("non_finite", "precision")}  # from the first step on


def test_a_slow_rise_is_seen_by_the_anchor():
    losses = [loss * (1 if k < 150 else 1.012 ** (k - 150)) for k, loss in enumerate(quiet())]
    anchors = {k: math.exp(-0.002 * k) * (1 if k < 150 else 1.012 ** (k - 150)) for k in range(0, 200, 20)}
    assert set(replay(losses, anchors=anchors).values()) <= {("anchor", "learning_rate")}
    assert replay(losses, anchors=anchors)


def test_one_alarm_for_one_event():
    losses = quiet()
    several = [loss * (5 if 150 <= k < 155 else 1) for k, loss in enumerate(losses)]
    assert list(replay(several, before=dict.fromkeys(range(150, 155), 2.0))) == [150]


def test_losses_below_zero_and_steps_that_are_taken_together():
    draw = random.Random(0)
    losses = [-1.0 - 0.01 * k + 0.05 * draw.gauss(0, 1) for k in range(200)]
    assert replay(losses) == {}
    assert list(replay([*losses[:150], 5.0, *losses[151:]])) == [150]
    watch, together = Watch(), Watch()
    for step, loss in enumerate(quiet()):
        watch.step(step, loss)
        together.passed([loss])
    assert watch.safe == together.safe < math.inf


def test_the_anchor_at_earlier_weights_decides_without_any_history():
    """The part of the loss's rise that the probe's batch has too, between earlier weights and those before the step."""
    losses, usual = quiet(), math.exp(-0.3)
    bad = [*losses[:150], 4.0, *losses[151:]]
    rise = 4.0 / usual

    def cause(share, **options):
        return replay(bad, every=0, before={150: usual * rise**share}, **options)[150][1]

    assert cause(0.6, earlier=usual) == "learning_rate"
    assert cause(0.2, earlier=usual) == "bad_batch"
    assert cause(-0.5, earlier=usual) == "bad_batch"  # the loss was falling
    assert cause(0.4, earlier=usual) is None
    assert cause(0.0, earlier=usual / rise) == "learning_rate"
    shift = [*losses[:150], *(4 * loss for loss in losses[150:])]
    assert replay(shift, every=0, before={150: usual}, earlier=usual)[150][1] == "data_shift"
    # the step on one batch made the weights worse, so that the next losses are high: still one batch
    before = {150: usual, 151: 4.0 * usual}
    assert replay(shift, every=0, before=before, earlier=usual)[150][1] == "bad_batch"
