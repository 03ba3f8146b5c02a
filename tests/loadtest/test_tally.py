"""When a run is hopeless, or was fruitless, and whose words say so."""

import pytest

from loadtest.records import Outcome, RequestRecord
from loadtest.tally import SAME_FAILURES, Tally


def record(outcome: Outcome = "ok", status: int | None = 200, detail: str = "") -> RequestRecord:
    return RequestRecord(
        index=0, stage="s", requested_tier="a", model="m", prompt_class_tokens=4, max_tokens=8,
        scheduled_ns=0, sent_ns=0, outcome=outcome, status=status, detail=detail, stamp_source="kernel",
        ended_ns=9, event_ns=[250_000_000, 450_000_000], output_tokens=5,
    )  # fmt: skip


def tally(*records: RequestRecord) -> Tally:
    made = Tally()
    for one in records:
        made.add(one)
    return made


REFUSED = record("http_error", 401, "HTTP 401: wrong key")


def test_twenty_failures_of_one_kind_at_the_start_end_a_run_with_the_servers_words() -> None:
    assert tally(*[REFUSED] * (SAME_FAILURES - 1)).hopeless() == ""
    assert (
        tally(*[REFUSED] * SAME_FAILURES).hopeless()
        == "the first 20 requests all failed: HTTP 401: wrong key"
    )


@pytest.mark.parametrize("other", [record(), record("http_error", 404, "x"), record("timeout", None, "idle")])
def test_one_that_went_otherwise_keeps_a_run_going(other: RequestRecord) -> None:
    assert tally(other, *[REFUSED] * 50).hopeless() == ""
    assert tally(*[REFUSED] * 19, other, *[REFUSED] * 50).hopeless() == ""


def test_a_run_without_one_success_is_fruitless() -> None:
    assert tally().fruitless() == ""
    assert tally(record("cancelled")).fruitless() == ""
    assert tally(REFUSED, record()).fruitless() == ""
    assert tally(REFUSED, REFUSED, record("timeout", None, "idle")).fruitless() == (
        "none of 3 requests succeeded: HTTP 401: wrong key"
    )


def test_the_worst_lag_is_kept() -> None:
    made = Tally()
    for lag_s in (0.001, 0.5, None, 0.01):
        made.add(record(), lag_s)
    assert made.worst_lag_s == 0.5
