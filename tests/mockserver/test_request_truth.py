"""What a response tells of its request adds up to what happened."""

import numpy as np
import pytest

from mockserver import request_truth
from mockserver.job import Finished, Job, Started
from tests.mockserver.naive_steps import played

MS = 1_000_000


def finished(
    number: int, *, submitted_ns: int, admitted_ns: int, token_ns: list[int], batch: float
) -> Finished:
    return Finished(
        job=Job(number, 100, len(token_ns)),
        submitted_ns=submitted_ns,
        token_ns=np.array(token_ns, dtype=np.int64),
        admitted_ns=admitted_ns,
        cached_tokens=32,
        steps=len(token_ns),
        mean_batch=batch,
        preemptions=number,
    )


def test_the_parts_of_every_request_are_its_whole_time() -> None:
    for one in played(4, pause=True)[1]:
        truth = request_truth.of_finished([one.finished()], wait_ns=3 * MS)
        whole_s = 0.003 + (one.token_ns[-1] - one.submitted_ns) / 1e9
        parts = ("held_s", "queue_s", "prefill_s", "decode_s")
        assert sum(truth[part] for part in parts) == pytest.approx(whole_s)
        assert min(truth.values()) >= 0


def test_several_answers_count_from_the_first_to_the_last() -> None:
    a = finished(1, submitted_ns=0, admitted_ns=10 * MS, token_ns=[50 * MS, 60 * MS], batch=4.0)
    b = finished(2, submitted_ns=0, admitted_ns=20 * MS, token_ns=[90 * MS] * 3 + [100 * MS] * 3, batch=8.0)
    assert request_truth.of_finished([a, b]) == {
        "held_s": 0.0,
        "queue_s": 0.01,
        "prefill_s": 0.04,
        "decode_s": 0.05,
        "steps": 8,
        "mean_batch": 7.0,
        "cached_tokens": 64,
        "preemptions": 3,
    }
    assert request_truth.of_finished([b, a]) == request_truth.of_finished([a, b])


def test_what_is_known_at_the_first_token_is_what_is_told_at_the_end() -> None:
    one = finished(0, submitted_ns=5 * MS, admitted_ns=10 * MS, token_ns=[50 * MS, 60 * MS], batch=2.0)
    started = Started(
        job_id=0, submitted_ns=5 * MS, admitted_ns=10 * MS, first_token_ns=50 * MS, cached_tokens=32
    )
    early, late = (
        request_truth.of_started([started], wait_ns=MS),
        request_truth.of_finished([one], wait_ns=MS),
    )
    assert early.items() <= late.items()


def test_an_answer_of_one_token_takes_no_time_to_decode() -> None:
    one = finished(0, submitted_ns=0, admitted_ns=0, token_ns=[5], batch=0.0)
    assert request_truth.of_finished([one])["decode_s"] == 0.0
