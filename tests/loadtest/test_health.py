"""The client's own health: worst seconds, quantiles of lateness, a loop that is really held up."""

import os
import time

import gevent
import numpy as np
import pytest

from loadtest.health import Health, Punctuality
from loadtest.records import RequestRecord
from loadtest.status import ClientStatus, Status
from loadtest.status_pipe import StatusPipe
from loadtest.watching import Watching
from tierscope.errors import BadInputError

S = 1_000_000_000
BUCKET = 2 ** (1 / 8)


def test_cpu_is_a_share_of_each_second_and_the_worst_is_kept() -> None:
    health = Health(5.0, 0)
    seen = []
    for cpu_s, now_ns in ((5.25, S), (6.15, 2 * S), (6.25, 4 * S)):
        health.tick(cpu_s, now_ns)
        seen.append(health.cpu_ratio)
    assert seen == pytest.approx([0.25, 0.9, 0.05])
    assert health.cpu_max_ratio == pytest.approx(0.9)


def test_a_burst_of_milliseconds_at_a_runs_end_is_no_busy_second() -> None:
    health = Health(0.0, 0)
    health.tick(0.1, S)
    health.tick(0.103, S + 3_000_000)
    assert health.cpu_max_ratio == pytest.approx(0.1)
    health.tick(1.0, 2 * S)  # and nothing of it is lost
    assert health.cpu_max_ratio == pytest.approx(0.9)


def test_a_beat_counts_in_its_second_and_the_worst_of_all_is_kept() -> None:
    health = Health(0.0, 0)
    assert health.hub_late_p99_s is None
    for late_s in (0.001, 0.030, 0.002):
        health.beat(late_s)
    health.tick(0.0, S)
    assert health.hub_late_s == 0.030
    health.beat(0.004)
    health.tick(0.0, 2 * S)
    assert health.hub_late_s == 0.004
    assert health.hub_late_max_s == 0.030


def test_quantiles_of_lateness_are_within_a_bucket_and_never_above_the_worst() -> None:
    health, late = Health(0.0, 0), np.random.default_rng(2).lognormal(-7, 1, 5000)
    for late_s in late.tolist():
        health.beat(late_s)
    truth = float(np.quantile(late, 0.99, method="inverted_cdf"))
    assert health.hub_late_p99_s is not None
    assert truth <= health.hub_late_p99_s <= truth * BUCKET * 1.001
    alone = Health(0.0, 0)
    alone.beat(0.00123)
    assert alone.hub_late_p99_s == 0.00123


def test_lag_and_coalescing_are_taken_from_the_records() -> None:
    assert Punctuality().coalesced_ratio is None
    assert Punctuality().lag_p99_s is None
    made = Punctuality()
    record = RequestRecord(
        index=0, stage="s", requested_tier="t", model="m", prompt_class_tokens=1, max_tokens=1,
        scheduled_ns=0, outcome="ok", stamp_source="kernel", ended_ns=9, event_ns=[1, 2, 3, 3],
        coalesced_events=1,
    )  # fmt: skip
    made.add(record, None)
    assert made.coalesced_ratio == 0.25
    for lag_s in (*(0.0001,) * 200, 0.5):
        made.add(record, lag_s)
    assert made.lag_p99_s == pytest.approx(0.0001, rel=0.1)


def test_a_loop_that_is_held_up_shows_it() -> None:
    watching = Watching(time.monotonic_ns)
    try:
        gevent.sleep(0.15)  # the first beat has been
        time.sleep(0.5)  # nothing else runs meanwhile: a beat was due at 0.2 s
        gevent.sleep(0.15)
    finally:
        watching.close()
    health = watching.tick()
    assert health.hub_late_max_s is not None
    assert health.hub_late_max_s > 0.3
    assert watching.wall_s > 0.7
    assert watching.cpu_s >= 0


# The pipe


def status(stage: str = "s") -> Status:
    return Status(
        at_s=1, stage=stage, stage_number=1, stages=1, warmup=False, ended=0, requests=1, elapsed_s=0,
        duration_s=None, started_per_s=0, ended_per_s=0, open_loop=False, in_flight=0, tiers=[], errors={},
        client=ClientStatus(
            cpu_ratio=0, worst_lag_s=0, hub_late_s=0, stamp_source="user", coalesced_ratio=0
        ),
        cautions=[],
    )  # fmt: skip


def test_a_reader_that_is_slow_or_gone_never_holds_the_writer_up() -> None:
    reader, writer = os.pipe()
    try:
        pipe = StatusPipe(writer)
        for _ in range(2000):  # far more than a pipe holds
            pipe.write(status())
        first = os.read(reader, 1 << 20).splitlines()
        assert len(first) > 10
        pipe.write(status("again"))
        assert b'"again"' in os.read(reader, 1 << 20)
        os.close(reader)
        reader = -1
        pipe.write(status())
        pipe.write(status())
    finally:
        os.close(writer)
        if reader >= 0:
            os.close(reader)


def test_a_descriptor_that_is_not_open_is_refused_in_one_line() -> None:
    with pytest.raises(BadInputError, match="--status-fd: 99999 cannot be written: Bad file descriptor"):
        StatusPipe(99999)
