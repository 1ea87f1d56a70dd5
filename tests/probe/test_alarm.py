"""Alarms and their causes, by replayed losses."""

import math
import random

import pytest

from linnet.probe.alarm import Watch


def quiet(seed=0, steps=200, noise=0.1, fall=0.002):
    """Losses that fall with noise."""
    draw = random.Random(seed)
    return [math.exp(-fall * k + draw.gauss(0, noise)) for k in range(steps)]


def replay(losses, *, anchors=None, before=None, skipped=(), finite=lambda step: True):
    """The last word on each alarm."""
    watch, found = Watch(), {}
    for step, loss in enumerate(losses):
        alarms = watch.step(
            step, loss, skipped=step in skipped, finite=finite(step), before=lambda step=step: (before or {}).get(step)
        )
        if step % 20 == 0:
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
    assert watch.quiet() == together.quiet()


def test_no_losses_are_none():
    watch = Watch()
    watch.passed([])
    assert watch.quiet() == (math.inf, 10)
