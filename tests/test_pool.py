"""Calls in processes of our own."""

import math
import operator
import os

import pytest

from linnet._pool import as_completed


@pytest.mark.parametrize("workers", [1, 2])
def test_each_call_answers_under_its_number(workers):
    calls = [(operator.mul, (k, k)) for k in range(5)]
    assert dict(as_completed(calls, workers)) == {k: k * k for k in range(5)}
    assert list(as_completed([], workers)) == []


def test_one_worker_is_this_process_and_two_are_others():
    calls = [(os.getpid, ())] * 4
    assert {process for _, process in as_completed(calls, 1)} == {os.getpid()}
    assert os.getpid() not in {process for _, process in as_completed(calls, 2)}


def test_an_error_comes_through():
    with pytest.raises(ValueError, match=r"math domain error|expected a nonnegative input"):
        list(as_completed([(math.sqrt, (4.0,)), (math.sqrt, (-1.0,)), (math.sqrt, (9.0,))], 2))
