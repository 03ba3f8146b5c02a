"""When too many of the latest requests have failed, against a window counted anew each time."""

from hypothesis import given
from hypothesis import strategies as st

from loadtest.error_window import ErrorWindow
from loadtest.plan import Control
from loadtest.records import Outcome, RequestRecord


def record(outcome: Outcome) -> RequestRecord:
    return RequestRecord(
        index=0, stage="s", requested_tier="a", model="m", prompt_class_tokens=4, max_tokens=8,
        scheduled_ns=0, outcome=outcome, stamp_source="kernel", ended_ns=9,
    )  # fmt: skip


OUTCOMES: list[Outcome] = ["ok", "timeout", "http_error", "cancelled"]


@given(st.lists(st.sampled_from(OUTCOMES), max_size=60), st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]))
def test_it_strikes_once_enough_of_the_window_have_failed(outcomes: list[Outcome], ratio: float) -> None:
    window = ErrorWindow(Control(stop_at_error_ratio=ratio, error_window_requests=8))
    counted: list[bool] = []
    for outcome in outcomes:
        struck = bool(window.add(record(outcome)))
        if outcome == "cancelled":
            assert not struck
            continue
        counted.append(outcome != "ok")
        failed = sum(counted[-8:])
        assert struck == (failed > 0 and failed >= ratio * 8)


def test_a_plan_without_a_bound_goes_on() -> None:
    window = ErrorWindow(Control())
    assert not any(window.add(record("timeout")) for _ in range(500))


def test_the_sentence_names_counts_and_bound() -> None:
    window = ErrorWindow(Control(stop_at_error_ratio=0.5, error_window_requests=4))
    assert [window.add(record("timeout")) for _ in range(2)] == [
        "",
        "2 of the latest 2 requests failed; stop_at_error_ratio is 0.5 of 4",
    ]
